#include "listen.h"

#include "launcher/job/job_spec.h"
#include "rendezvous/net/address.h"
#include "rendezvous/server/server.h"

#include <errno.h>
#include <stddef.h>
#include <strings.h>
#include <sys/resource.h>

enum {
    FILES_BESIDE = 96, /* the loop's, the spawner's, those of ranks that are being started, logs */
    FILES_A_CHILD = 4, /* sockets and pipes of a rank, or of a remote shell */
    /* besides two connections of each node, which may connect again before the loss of its old
     * connection is noticed */
    SPARE_NODES = 16,
    MIN_NEWCOMERS = 4,
    MAX_NEWCOMERS = 1024,
    MIN_NODES = 8,
    MIN_CLIENTS = 64, /* also where the limit is too small for the ranks: they report it */
    MAX_CLIENTS = 65536,
};

static uint32_t clamp(uint64_t n, uint32_t min, uint32_t max)
{
    return n < min ? min : n > max ? max : (uint32_t)n;
}

struct listen_limits listen_limits_of(uint64_t n_files, uint32_t n_children, uint32_t max_nodes)
{
    const uint64_t needed = FILES_BESIDE + FILES_A_CHILD * (uint64_t)n_children;
    const uint64_t n_free = n_files > needed ? n_files - needed : 0;
    const uint64_t wanted = 2 * (uint64_t)max_nodes + SPARE_NODES;
    const uint32_t n_newcomers = clamp(n_free / 8, MIN_NEWCOMERS, MAX_NEWCOMERS);
    const uint32_t n_nodes =
        clamp(wanted < n_free / 4 ? wanted : n_free / 4, MIN_NODES, UINT32_MAX);
    const uint64_t n_others = 2 * (uint64_t)n_newcomers + n_nodes; /* twice: HTTP has as many */
    return (struct listen_limits){
        .n_newcomers = n_newcomers,
        .n_nodes = n_nodes,
        .n_clients = clamp(n_free > n_others ? n_free - n_others : 0, MIN_CLIENTS, MAX_CLIENTS)};
}

struct listen_limits listen_limits(const struct job_spec *spec)
{
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
    uint32_t n_children =
        spec->remote != NULL ? (uint32_t)spec->remote->hosts.n : (uint32_t)spec->n_local;
    getrlimit(RLIMIT_NOFILE, &limit);
    return listen_limits_of(limit.rlim_cur, n_children, spec->world.max_nodes);
}

/* "localhost" may lead to either. The second one is for clients that try it first. */
static int listen_at_both(struct server *s, uint16_t port, struct co_error *err)
{
    struct sockaddr_storage bound;
    int rc = server_listen(s, "127.0.0.1", port, &bound, err);
    if (rc == 0)
        server_listen(s, "::1", address_port(&bound), NULL, NULL);
    return rc;
}

int listen_for(struct server *s, const char *host, uint16_t port, struct co_error *err)
{
    const char *const at[] = {host, "::", "0.0.0.0"}; /* the last for a kernel without IPv6 */
    int rc = 0;
    if (strcasecmp(host, "localhost") == 0)
        return listen_at_both(s, port, err);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        rc = server_listen(s, at[i], port, NULL, err);
        if (rc != -EINVAL && rc != -EADDRNOTAVAIL && rc != -EAFNOSUPPORT)
            break;
    }
    return rc;
}

int listen_open_roster(uv_loop_t *loop, const struct job_spec *spec,
                       const struct server_opts *callbacks, const char *host, uint16_t port,
                       struct server **ret_server, struct co_error *err)
{
    struct server_opts opts = *callbacks;
    opts.no_store = opts.http = true;
    opts.hosts = spec->http_hosts;
    opts.host_advice = JOB_HTTP_HOST_ADVICE;
    opts.version = DDPRUN_VERSION;
    opts.max_clients = listen_limits(spec).n_newcomers;
    int rc = server_create(loop, &opts, ret_server, err);
    return rc == 0 ? listen_for(*ret_server, host, port, err) : rc;
}
