#include "listen.h"

#include "rendezvous/net/address.h"
#include "rendezvous/server/server.h"

#include <errno.h>
#include <stddef.h>
#include <strings.h>

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

int listen_open_roster(uv_loop_t *loop, const struct server_opts *callbacks, const char *host,
                       uint16_t port, struct server **ret_server, struct co_error *err)
{
    struct server_opts opts = *callbacks;
    opts.no_store = opts.http = true;
    opts.version = DDPRUN_VERSION;
    int rc = server_create(loop, &opts, ret_server, err);
    return rc == 0 ? listen_for(*ret_server, host, port, err) : rc;
}
