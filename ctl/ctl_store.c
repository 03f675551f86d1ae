#include "ctl_commands.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/error.h"
#include "common/escape.h"
#include "common/scope.h"
#include "ctl_store_cli.h"
#include "rendezvous/client/client.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SHOWN_BYTES = 200, /* of a value in a dump */
    READ_BYTES = 64 << 10,
};
#define MAX_STDIN_BYTES ((size_t)1 << 30) /* more than any server takes */

/* A running task. */
struct work {
    const struct ctl_store_task *task;
    struct store_client *client;
    uint64_t deadline_ms;
    struct co_error err;
};

static enum ctl_exit store_task_fail(const struct work *w, int rc)
{
    switch (rc) {
    case -ENOENT:
        return ctl_fail(CTL_EXIT_NO, &w->err);
    case -ENOMEM:
        return ctl_fail(CTL_EXIT_INTERNAL, &w->err);
    default:
        return ctl_fail(CTL_EXIT_UNAVAILABLE, &w->err);
    }
}

/* --- keys --- */

/* The key as it is sent.
 * returns   malloc'ed, with a NUL after it; NULL if memory runs out, which is reported */
static char *wire_key(const struct work *w, const char *typed)
{
    char *key = NULL;
    if (asprintf(&key, "%s%s", w->task->raw ? "" : "/", typed) < 0) {
        ctl_tell(CO_ERROR, "out of memory");
        return NULL;
    }
    return key;
}

static bool has_prefix(const struct client_key *key, const char *prefix)
{
    size_t len = strlen(prefix);
    return key->len >= len && memcmp(key->at, prefix, len) == 0;
}

/* Whether a key of the store is one of those that the user can name as things are. */
static bool is_nameable(const struct work *w, const struct client_key *key)
{
    return w->task->raw || has_prefix(key, "/");
}

static int list_keys(struct work *w, struct client_keys *ret_keys)
{
    int rc = client_list_keys(w->client, w->deadline_ms, ret_keys, &w->err);
    if (rc == -EPIPE)
        co_fail(&w->err, rc,
                "the store closed the connection instead of listing its keys; PyTorch's store can "
                "list them since 2.10");
    return rc;
}

/* --- actions --- */

static enum ctl_exit do_get(struct work *w, const char *key)
{
    co_autofree uint8_t *value = NULL;
    size_t len = 0;
    int rc = client_get_now(w->client, key, strlen(key), w->deadline_ms, &value, &len, &w->err);
    if (rc < 0)
        return store_task_fail(w, rc);
    if (isatty(STDOUT_FILENO)) {
        co_escape_print(value, len, stdout);
        putchar('\n');
    } else {
        fwrite(value, 1, len, stdout);
    }
    return CTL_EXIT_OK;
}

/* returns   0, -EIO, -EFBIG, -ENOMEM */
static int read_stdin(struct co_buf *in, struct co_error *err)
{
    size_t n;
    do {
        uint8_t *room = co_buf_room(in, READ_BYTES);
        if (room == NULL)
            return co_fail(err, -ENOMEM, "out of memory reading standard input");
        n = fread(room, 1, READ_BYTES, stdin);
        co_buf_added(in, n);
        if (co_buf_len(in) > MAX_STDIN_BYTES)
            return co_fail(err, -EFBIG, "standard input exceeds %zu bytes", MAX_STDIN_BYTES);
    } while (n > 0);
    if (ferror(stdin))
        return co_fail(err, -EIO, "cannot read standard input: %s", strerror(errno));
    return 0;
}

/* The store does not answer a set, but it answers the check that follows. */
static int set_and_check(struct work *w, const char *key, const void *value, size_t len)
{
    bool is_there;
    int rc = client_set(w->client, key, strlen(key), value, len, w->deadline_ms, &w->err);
    if (rc == 0)
        rc = client_check(w->client, key, strlen(key), w->deadline_ms, &is_there, &w->err);
    if (rc == -EPIPE)
        co_fail(&w->err, rc,
                "lost the connection to the store: it may not accept a key of %zu and a value of "
                "%zu bytes, or be full",
                strlen(key), len);
    return rc;
}

static enum ctl_exit do_set(struct work *w, const char *key)
{
    const char *value = w->task->value;
    if (value != NULL) {
        int rc = set_and_check(w, key, value, strlen(value));
        return rc < 0 ? store_task_fail(w, rc) : CTL_EXIT_OK;
    }
    struct co_buf in = {0};
    int rc = read_stdin(&in, &w->err);
    enum ctl_exit code = rc == -EIO || rc == -EFBIG ? CTL_EXIT_IO : CTL_EXIT_INTERNAL;
    if (rc < 0) {
        ctl_fail(code, &w->err);
    } else {
        w->deadline_ms = co_deadline_ms(w->task->timeout_ms); /* stdin may have taken its time */
        rc = set_and_check(w, key, co_buf_bytes(&in), co_buf_len(&in));
        code = rc < 0 ? store_task_fail(w, rc) : CTL_EXIT_OK;
    }
    co_buf_fini(&in);
    return code;
}

static enum ctl_exit do_add(struct work *w, const char *key)
{
    int64_t sum = 0;
    int rc = client_add(w->client, key, strlen(key), w->task->delta, w->deadline_ms, &sum, &w->err);
    if (rc == -EPIPE)
        co_fail(&w->err, rc, "lost the connection to the store: is the value of '%.200s' a number?",
                key);
    if (rc < 0)
        return store_task_fail(w, rc);
    printf("%" PRId64 "\n", sum);
    return CTL_EXIT_OK;
}

static enum ctl_exit do_wait(struct work *w, const char *key)
{
    int rc = client_wait(w->client, key, strlen(key), w->deadline_ms, &w->err);
    if (rc == -ETIMEDOUT)
        return ctl_fail(CTL_EXIT_NO, &w->err);
    return rc < 0 ? store_task_fail(w, rc) : CTL_EXIT_OK;
}

static enum ctl_exit do_delete(struct work *w, const char *key)
{
    int64_t n_deleted = 0;
    int rc = client_delete(w->client, key, strlen(key), w->deadline_ms, &n_deleted, &w->err);
    if (rc == 0 && n_deleted == 0)
        rc = co_fail(&w->err, -ENOENT, "no such key: '%.200s'", key);
    return rc < 0 ? store_task_fail(w, rc) : CTL_EXIT_OK;
}

static enum ctl_exit delete_prefix(struct work *w, const char *prefix)
{
    struct client_keys keys;
    size_t n = 0;
    int rc = list_keys(w, &keys);
    if (rc < 0)
        return store_task_fail(w, rc);
    for (size_t i = 0; rc == 0 && i < keys.n; i++) {
        int64_t n_deleted = 0;
        if (has_prefix(&keys.keys[i], prefix))
            rc = client_delete(w->client, keys.keys[i].at, keys.keys[i].len, w->deadline_ms,
                               &n_deleted, &w->err);
        n += n_deleted > 0;
    }
    client_keys_fini(&keys);
    printf("%zu\n", n);
    if (rc < 0)
        return store_task_fail(w, rc);
    return n > 0 ? CTL_EXIT_OK : CTL_EXIT_NO;
}

/* returns   0 also when the key is gone meanwhile */
static int dump_key(struct work *w, const struct client_key *key)
{
    co_autofree uint8_t *value = NULL;
    size_t len = 0;
    int rc = client_get_now(w->client, key->at, key->len, w->deadline_ms, &value, &len, &w->err);
    if (rc < 0)
        return rc == -ENOENT ? 0 : rc;
    size_t skip = w->task->raw ? 0 : 1; /* the '/' */
    bool is_cut = len > SHOWN_BYTES && !w->task->is_full;
    co_escape_print(key->at + skip, key->len - skip, stdout);
    putchar('\t');
    co_escape_print(value, is_cut ? SHOWN_BYTES : len, stdout);
    if (is_cut)
        printf("... (%zu bytes)", len);
    putchar('\n');
    return 0;
}

static enum ctl_exit do_dump(struct work *w, const char *prefix)
{
    struct client_keys keys;
    size_t n_hidden = 0;
    int rc = list_keys(w, &keys);
    if (rc < 0)
        return store_task_fail(w, rc);
    for (size_t i = 0; rc == 0 && i < keys.n; i++) {
        if (!is_nameable(w, &keys.keys[i]))
            n_hidden++;
        else if (has_prefix(&keys.keys[i], prefix))
            rc = dump_key(w, &keys.keys[i]);
    }
    client_keys_fini(&keys);
    if (rc < 0)
        return store_task_fail(w, rc);
    if (n_hidden > 0)
        ctl_tell(CO_NOTE, "%zu keys without a leading '/' are not shown; use --raw to show all",
                 n_hidden);
    return CTL_EXIT_OK;
}

/* --- all of it --- */

static enum ctl_exit do_key(struct work *w, const char *key)
{
    switch (w->task->action) {
    case CTL_STORE_GET:
        return do_get(w, key);
    case CTL_STORE_SET:
        return do_set(w, key);
    case CTL_STORE_ADD:
        return do_add(w, key);
    case CTL_STORE_WAIT:
        return do_wait(w, key);
    case CTL_STORE_DELETE:
        return w->task->is_prefix ? delete_prefix(w, key) : do_delete(w, key);
    case CTL_STORE_DUMP:
        return do_dump(w, key);
    case CTL_STORE_N_ACTIONS:
        break;
    }
    return CTL_EXIT_INTERNAL;
}

/* An error with one key may not occur with the next; but without a store no key succeeds. */
static enum ctl_exit do_keys(struct work *w)
{
    const struct ctl_store_task *task = w->task;
    enum ctl_exit code = CTL_EXIT_OK;
    int n = task->n_keys > 0 ? task->n_keys : 1;
    for (int i = 0; i < n && code <= CTL_EXIT_NO; i++) {
        co_autofree char *key = wire_key(w, task->n_keys > 0 ? task->keys[i] : "");
        enum ctl_exit its = key != NULL ? do_key(w, key) : CTL_EXIT_INTERNAL;
        code = its > code ? its : code;
    }
    return code;
}

static enum ctl_exit store_task_run(const struct ctl_store_task *task)
{
    struct work w = {.task = task, .deadline_ms = co_deadline_ms(task->timeout_ms)};
    /* a wait for a key also waits for its store */
    int rc = task->action == CTL_STORE_WAIT
                 ? client_connect(task->host, task->port, w.deadline_ms, &w.client, &w.err)
                 : client_connect_once(task->host, task->port, w.deadline_ms, &w.client, &w.err);
    if (rc < 0)
        return store_task_fail(&w, rc == -ENOENT ? -EINVAL : rc);
    enum ctl_exit code = do_keys(&w);
    client_close(w.client);
    return code;
}

enum ctl_exit ctl_store(int argc, char **argv)
{
    const struct ctl_store_env env = {.master_addr = getenv("MASTER_ADDR"),
                                      .master_port = getenv("MASTER_PORT")};
    struct ctl_store_task task;
    struct co_error err = {0};
    if (ctl_store_cli_parse(argc, argv, &env, &task, &err) < 0)
        return ctl_fail(CTL_EXIT_USAGE, &err);
    if (task.is_help)
        ctl_store_cli_print_help(stdout);
    return ctl_flush(task.is_help ? CTL_EXIT_OK : store_task_run(&task));
}
