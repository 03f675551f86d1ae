#include "relay_listener.h"

#include "generation.h"
#include "launcher/job/job_spec.h"
#include "listen.h"

#include "common/error.h"
#include "rendezvous/relays/relay_hub.h"
#include "rendezvous/server/server.h"

#include <errno.h>
#include <stdlib.h>

struct relay_listener {
    struct server *server; /* owned; without a store of its own */
    struct relay_hub *hub; /* owned */
    struct generation_callbacks callbacks;
};

static void on_refused(void *arg, const char *text)
{
    const struct relay_listener *l = arg;
    l->callbacks.on_store_refused(l->callbacks.arg, text);
}

/* The port may be one that the roster has lent. */
static void on_control(void *arg, int fd, const uint8_t *bytes, size_t len)
{
    const struct relay_listener *l = arg;
    if (l->callbacks.on_control == NULL || relay_link_claims(bytes, len))
        relay_hub_adopt(l->hub, fd, bytes, len);
    else
        l->callbacks.on_control(l->callbacks.arg, fd, bytes, len);
}

static int open_hub(const struct job_spec *spec, uv_loop_t *loop,
                    const struct relay_listener_opts *opts, struct relay_listener *l,
                    struct co_error *err)
{
    const struct listen_limits limits = listen_limits(spec);
    const struct relay_hub_opts hub = {.server = opts->store,
                                       .key = spec->world.key,
                                       .run_id = spec->run_id,
                                       .generation = opts->generation,
                                       .max_links = limits.n_nodes,
                                       .max_clients = RELAY_LISTENER_MAX_CLIENTS,
                                       .on_refused = on_refused,
                                       .arg = l};
    return relay_hub_create(loop, &hub, &l->hub, err);
}

static int open_server(const struct job_spec *spec, uv_loop_t *loop,
                       const struct relay_listener_opts *opts, struct relay_listener *l,
                       struct co_error *err)
{
    const struct server_opts server = {.no_store = true,
                                       .max_clients = listen_limits(spec).n_newcomers,
                                       .allow = opts->allow,
                                       .on_control = on_control,
                                       .on_refused = on_refused,
                                       .arg = l};
    return server_create(loop, &server, &l->server, err)
               ?: listen_for(l->server, opts->host, spec->master_port, err);
}

int relay_listener_open(const struct job_spec *spec, uv_loop_t *loop,
                        const struct relay_listener_opts *opts, struct relay_listener **ret,
                        struct co_error *err)
{
    struct relay_listener *l = calloc(1, sizeof *l);
    if (l == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    l->callbacks = *opts->callbacks;
    int rc = open_hub(spec, loop, opts, l, err) ?: open_server(spec, loop, opts, l, err);
    if (rc < 0) {
        relay_listener_close(l);
        return rc;
    }
    *ret = l;
    return 0;
}

uint16_t relay_listener_port(const struct relay_listener *l)
{
    return server_port(l->server);
}

void relay_listener_close(struct relay_listener *l)
{
    if (l == NULL)
        return;
    relay_hub_close(l->hub);
    if (l->server != NULL)
        server_close(l->server, free, l);
    else
        free(l);
}
