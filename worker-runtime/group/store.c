/* store.c - ddp_store_: checked arguments, a prefix, and one connection per group. */
#include "common/clock.h"
#include "common/error.h"
#include "common/scope.h"
#include "rendezvous/client/client.h"
#include "worker-runtime/core/group.h"
#include "worker-runtime/join/env.h"
#include "worker-runtime/join/pmi_store.h"

#include <ddp/env.h>
#include <ddp/store.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_MAX_BYTES   4096u
#define VALUE_MAX_BYTES (8u << 20)
#define PREFIX          "ddp/"

struct store_link {           /* the connection, as a child of its group */
    struct group_child child; /* first */
    struct ddp_group *group;  /* borrowed */
    struct store_client *client;
};

struct key {
    char text[sizeof PREFIX + KEY_MAX_BYTES];
    size_t length;
};

static void destroy_link(struct group_child *child)
{
    struct store_link *link = (struct store_link *)child;
    link->group->store = NULL;
    client_close(link->client);
    free(link);
}

/* Where the store is. The environment is read when it is needed, not at joining: most programs
 * never ask. */
static int find_store(const struct world *w, const char **ret_host, uint16_t *ret_port,
                      struct co_error *err)
{
    if (w->group.world_size == 1)
        return co_fail(err, -ENOTSUP, "a job of one rank has no store");
    int rc = env_find_store(w->store_host, w->store_port, ret_host, ret_port, err);
    if (rc == 0)
        return co_fail(err, -ENOTSUP, "the job has no store: set %s and %s to its address and port",
                       DDP_ENV_MASTER_ADDR, DDP_ENV_MASTER_PORT);
    return rc < 0 ? rc : 0;
}

static int open_link(struct ddp_group *g, uint64_t deadline_ms, struct co_error *err)
{
    const char *host = NULL;
    uint16_t port = 0;
    if (g->store != NULL)
        return 0;
    co_autofree struct store_link *link = calloc(1, sizeof *link);
    if (link == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    int code = 0;
    if (g->world->store_host[0] == '\0' && pmi_store_is_known())
        code = pmi_store_connect(deadline_ms, &link->client, err);
    else if ((code = find_store(g->world, &host, &port, err)) == 0)
        code = client_connect(host, port, deadline_ms, &link->client, err);
    if (code != 0)
        return code;
    link->group = g;
    link->child.destroy = destroy_link;
    group_adopt(g, &link->child);
    g->store = co_take(&link);
    return 0;
}

/* What all calls begin with. */
static int begin_call(struct ddp_group *g, const char *text, uint64_t deadline_ms, struct key *ret,
                      struct co_error *err)
{
    size_t length = text != NULL ? strnlen(text, KEY_MAX_BYTES + 1) : 0;
    int code = group_check_here(g, err);
    if (code != 0)
        return code;
    if (length < 1 || length > KEY_MAX_BYTES)
        return co_fail(err, -EINVAL, "invalid key: expected 1 to %u bytes", KEY_MAX_BYTES);
    ret->length = (size_t)snprintf(ret->text, sizeof ret->text, PREFIX "%s", text);
    return open_link(g, deadline_ms, err);
}

/* What all calls end with. A store that answers nonsense or goes away is a failure of the system
 * here, not of a peer or of a collective. */
static int end_call(const char *name, int code, struct co_error *err)
{
    return rt_return_from(name, code == -EPROTO || code == -ECONNRESET ? -EIO : code, err);
}

int ddp_store_set(struct ddp_group *g, const char *key, const void *value, size_t len)
{
    struct co_error err = {0};
    struct key k;
    uint64_t deadline_ms = co_deadline_ms(g != NULL ? g->timeout_ms : 0);
    int code = 0;
    if (len > VALUE_MAX_BYTES || (value == NULL && len > 0))
        code = co_fail(&err, -EINVAL, "invalid value: expected 0 to %u bytes", VALUE_MAX_BYTES);
    if (code == 0)
        code = begin_call(g, key, deadline_ms, &k, &err);
    if (code == 0)
        code = client_set(g->store->client, k.text, k.length, value, len, deadline_ms, &err);
    if (code == 0) /* the protocol's SET is not answered: this is, once the store has the key */
        code = client_wait(g->store->client, k.text, k.length, deadline_ms, &err);
    return end_call("ddp_store_set", code, &err);
}

int ddp_store_get(struct ddp_group *g, const char *key, void *buf, size_t size, size_t *ret_len,
                  uint64_t timeout_ms)
{
    struct co_error err = {0};
    struct key k;
    uint64_t deadline_ms = co_deadline_ms(timeout_ms);
    co_autofree uint8_t *value = NULL;
    size_t length = 0;
    int code = begin_call(g, key, deadline_ms, &k, &err);
    if (code == 0)
        code = client_get(g->store->client, k.text, k.length, deadline_ms, &value, &length, &err);
    if (code == 0 && (length > size || (buf == NULL && length > 0)))
        code = co_fail(&err, -EINVAL, "the value has %zu bytes, but the buffer only %zu", length,
                       buf != NULL ? size : 0);
    if (code == 0 && length > 0)
        memcpy(buf, value, length);
    if (code == 0 && ret_len != NULL)
        *ret_len = length;
    return end_call("ddp_store_get", code, &err);
}

int ddp_store_add(struct ddp_group *g, const char *key, int64_t delta, int64_t *ret_value)
{
    struct co_error err = {0};
    struct key k;
    uint64_t deadline_ms = co_deadline_ms(g != NULL ? g->timeout_ms : 0);
    int64_t value = 0;
    int code = begin_call(g, key, deadline_ms, &k, &err);
    if (code == 0)
        code = client_add(g->store->client, k.text, k.length, delta, deadline_ms, &value, &err);
    if (code == 0 && ret_value != NULL)
        *ret_value = value;
    return end_call("ddp_store_add", code, &err);
}

int ddp_store_wait(struct ddp_group *g, const char *key, uint64_t timeout_ms)
{
    struct co_error err = {0};
    struct key k;
    uint64_t deadline_ms = co_deadline_ms(timeout_ms);
    int code = begin_call(g, key, deadline_ms, &k, &err);
    if (code == 0)
        code = client_wait(g->store->client, k.text, k.length, deadline_ms, &err);
    return end_call("ddp_store_wait", code, &err);
}

int ddp_store_address(struct ddp_group *g, char *host, size_t size, int *ret_port)
{
    struct co_error err = {0};
    const char *found = NULL;
    uint16_t port = 0;
    int code = group_check_here(g, &err);
    if (code == 0 && (host == NULL || ret_port == NULL))
        code = co_fail(&err, -EINVAL, "host or ret_port is NULL");
    if (code == 0 && g->world->store_host[0] == '\0' && pmi_store_is_known())
        code = co_fail(&err, -ENOTSUP, "the address of the store is known through PMI only");
    if (code == 0)
        code = find_store(g->world, &found, &port, &err);
    if (code == 0 && strlen(found) >= size)
        code = co_fail(&err, -EINVAL, "the host has %zu bytes, but the buffer only %zu",
                       strlen(found) + 1, size);
    if (code != 0)
        return end_call("ddp_store_address", code, &err);
    memcpy(host, found, strlen(found) + 1);
    *ret_port = port;
    return DDP_OK;
}
