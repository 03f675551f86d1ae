#include "generation.h"

#include "job_spec.h"
#include "node_memory.h"

#include "common/error.h"
#include "common/scope.h"
#include "rendezvous/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

/* A port that nobody has, for a script that makes its own store there. */
static int find_free_port(uint16_t *ret_port, struct co_error *err)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    co_autoclose_fd int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 ||
        getsockname(fd, (struct sockaddr *)&a, &n) < 0)
        return co_fail(err, -errno, "cannot find a free port: %s", strerror(errno));
    *ret_port = ntohs(a.sin_port);
    return 0;
}

static int open_store(const struct job_spec *spec, uv_loop_t *loop,
                      const struct generation_notes *notes, struct generation *g,
                      struct co_error *err)
{
    g->agent_store = job_spec_agent_store(spec, (uint32_t)spec->n_local);
    g->master_port = spec->master_port;
    if (!g->agent_store)
        return g->master_port != 0 ? 0 : find_free_port(&g->master_port, err);
    struct server_opts opts = {
        .port = spec->master_port, .on_refused = notes->on_store_refused, .arg = notes->arg};
    int rc = server_start(loop, &opts, &g->store, err);
    if (rc < 0)
        return co_fail_in(err, "cannot open the store");
    g->master_port = server_port(g->store);
    return 0;
}

int generation_open(const struct job_spec *spec, uv_loop_t *loop,
                    const struct generation_notes *notes, struct generation *ret,
                    struct co_error *err)
{
    *ret = (struct generation){0};
    int rc = node_memory_create(loop, spec->n_local, notes->on_memory_note, notes->arg,
                                &ret->memory, err);
    if (rc == 0)
        rc = open_store(spec, loop, notes, ret, err);
    return rc;
}

static void close_store(struct generation *g)
{
    if (g->store != NULL)
        server_close(g->store, NULL, NULL);
    g->store = NULL;
}

int generation_renew(const struct job_spec *spec, uv_loop_t *loop,
                     const struct generation_notes *notes, struct generation *g,
                     struct co_error *err)
{
    struct generation next;
    if (spec->master_port != 0) /* the same number once more; else the two must not be the same */
        close_store(g);
    int rc = generation_open(spec, loop, notes, &next, err);
    if (rc < 0) {
        generation_close(&next);
        return rc;
    }
    generation_close(g);
    *g = next;
    return 0;
}

void generation_close(struct generation *g)
{
    close_store(g);
    node_memory_close(g->memory);
    *g = (struct generation){0};
}
