/* sampler_print.c - print the indices of samplers, for a comparison with torch's.
 *
 * Each line of the input is a sampler: N WORLD_SIZE RANK EPOCH SEED SHUFFLE DROP_LAST, numbers all
 * of them; each line of the output is its indices. No job is joined: a group is made up of the rank
 * and world size of the line. */
#include "worker-runtime/core/group.h"

#include <ddp/ddp.h>
#include <inttypes.h>
#include <stdio.h>

#define PRINT_BATCH 7 /* odd, so that batches end everywhere */

static int print_one(int world_size, int rank, int64_t epoch, const struct ddp_sampler_opts *opts)
{
    struct world w = {.group = {.world = &w, .world_size = world_size, .rank = rank}};
    struct ddp_sampler *s;
    const int64_t *index;
    if (world_size < 1 || rank < 0 || rank >= world_size) {
        fprintf(stderr, "sampler_print: there is no rank %d of %d\n", rank, world_size);
        return -1;
    }
    int rc = ddp_sampler_create(&w.group, opts, &s);
    if (rc != 0) {
        fprintf(stderr, "sampler_print: %s\n", ddp_last_error());
        return rc;
    }
    ddp_sampler_set_epoch(s, epoch);
    for (size_t got; (got = ddp_sampler_next(s, PRINT_BATCH, &index)) > 0;)
        for (size_t k = 0; k < got; k++)
            printf("%" PRId64 " ", index[k]);
    putchar('\n');
    ddp_sampler_destroy(s);
    return 0;
}

int main(void)
{
    struct ddp_sampler_opts opts;
    int64_t epoch;
    int world_size, rank, shuffle, drop_last, n_fields;
    while ((n_fields = scanf("%" SCNd64 "%d%d%" SCNd64 "%" SCNd64 "%d%d", &opts.n, &world_size,
                             &rank, &epoch, &opts.seed, &shuffle, &drop_last)) == 7) {
        opts.shuffle = shuffle != 0;
        opts.drop_last = drop_last != 0;
        if (print_one(world_size, rank, epoch, &opts) != 0)
            return 1;
    }
    if (n_fields != EOF) {
        fprintf(stderr, "sampler_print: a line is no sampler\n");
        return 2;
    }
    return 0;
}
