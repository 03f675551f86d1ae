/* collectives.c - libddp's all-reduce over sizes.
 *
 *     ddprun -n 2 collectives shared|plain REPEATS
 *
 * shared: memory of ddp_alloc(), which the other ranks reach; plain: of malloc(). */
#include <ddp/ddp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sweep.h"

static int all_reduce(struct sweep *s, size_t count)
{
    return ddp_all_reduce(s->library, s->data, s->data, count, DDP_FLOAT32, DDP_SUM, NULL);
}

static int barrier(struct sweep *s)
{
    return ddp_barrier(s->library);
}

int main(int argc, char **argv)
{
    struct ddp_group *g;
    struct sweep s = {.repeats = argc == 3 ? atoi(argv[2]) : 0};
    void *data = NULL;

    if (s.repeats < 1 || (strcmp(argv[1], "shared") != 0 && strcmp(argv[1], "plain") != 0)) {
        fputs("usage: collectives shared|plain REPEATS\n", stderr);
        return 2;
    }
    if (ddp_init(NULL, &g) != 0)
        ddp_fatal("init");
    s.library = g;
    s.rank = ddp_rank(g);
    s.world_size = ddp_world_size(g);
    s.all_reduce = all_reduce;
    s.barrier = barrier;
    if (strcmp(argv[1], "plain") == 0)
        data = aligned_alloc(4096, SWEEP_MAX_BYTES);
    else if (ddp_alloc(g, SWEEP_MAX_BYTES, &data) != 0)
        ddp_fatal("alloc");
    s.data = data;
    if (s.data == NULL || sweep_run(&s) != 0)
        ddp_fatal("sweep");
    ddp_finalize(g);
    return 0;
}
