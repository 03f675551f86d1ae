/* collectives.c - time libddp's all-reduce over a range of sizes.
 *
 *     ddprun -n 2 collectives segment|plain REPEATS MAX_BYTES
 *     ddprun -n 2 collectives segment|plain steady MS BYTES
 *
 * segment: memory from ddp_alloc(), which the other ranks can access; plain: from malloc(). */
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
    struct sweep s = {.all_reduce = all_reduce, .barrier = barrier};
    const int is_plain = argc > 1 && strcmp(argv[1], "plain") == 0;
    void *data = NULL;

    if (argc < 2 || (!is_plain && strcmp(argv[1], "segment") != 0) ||
        sweep_read_words(&s, argc - 2, argv + 2) != 0) {
        fputs("usage: collectives segment|plain REPEATS MAX_BYTES | steady MS BYTES\n", stderr);
        return 2;
    }
    if (ddp_init(NULL, &g) != 0)
        ddp_fatal("init");
    s.library = g;
    s.rank = ddp_rank(g);
    s.world_size = ddp_world_size(g);
    if (is_plain)
        data = malloc(s.max_bytes);
    else if (ddp_alloc(g, s.max_bytes, &data) != 0)
        ddp_fatal("alloc");
    s.data = data;
    if (s.data == NULL || sweep_run(&s) != 0)
        ddp_fatal("sweep");
    ddp_finalize(g);
    return 0;
}
