#include "env_store.h"

#include "common/error.h"
#include "env.h"
#include "store_host.h"
#include "worker-runtime/interfaces/net_address.h"

#include <ddp/env.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* The environment is about the store of the first generation. ddprun sends the address of a later
 * one, also to a rank that was alone and therefore had none. */
static bool must_serve(const struct env_who *who)
{
    const char *agent_serves = getenv(DDP_ENV_USE_AGENT_STORE);
    return who->rank == 0 && who->store_host[0] == '\0' && agent_serves != NULL &&
           strcmp(agent_serves, "False") == 0;
}

/* A socket of IPv6 also takes connections of IPv4. */
int env_store_serve(const struct env_who *who, uint16_t port, struct co_error *err)
{
    static const struct net_address all[] = {{.family = AF_INET6, .bytes = {[15] = 1}},
                                             {.family = AF_INET, .bytes = {127, 0, 0, 1}}};
    static struct store_host *host;
    const unsigned n_clients = (unsigned)who->world_size * 2;
    if (host != NULL || !must_serve(who))
        return 0;
    const int rc = store_host_open(&all[0], &port, NULL, n_clients, &host, err);
    if (rc == 0 || rc == -EADDRINUSE)
        return rc;
    return store_host_open(&all[1], &port, NULL, n_clients, &host, err);
}
