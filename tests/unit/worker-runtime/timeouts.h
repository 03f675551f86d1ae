/* timeouts.h - rank 0 of a group with a timeout of a minute shortens it by ddp_set_timeout(), and
 * calls what the other ranks never call. */
#ifndef DDP_TESTS_UNIT_WORKER_RUNTIME_TIMEOUTS_H
#define DDP_TESTS_UNIT_WORKER_RUNTIME_TIMEOUTS_H

#include "ranks.h"

enum timeouts_kind {
    TIMEOUTS_CALL,
    TIMEOUTS_REQUEST,
    TIMEOUTS_MESSAGE,
    TIMEOUTS_SPLIT, /* of a group that is split off afterward */
    TIMEOUTS_N_KINDS
};

struct timeouts {
    enum timeouts_kind kind;
    int gate[2]; /* a pipe; a byte for each rank that may leave */
};

static inline int timeouts_call(struct ddp_group *g, enum timeouts_kind kind)
{
    struct ddp_request *request;
    float x = 1;
    if (kind == TIMEOUTS_REQUEST)
        return ddp_iall_reduce(g, &x, &x, 1, DDP_FLOAT32, DDP_SUM, NULL, &request)
                   ?: ddp_wait(request);
    if (kind == TIMEOUTS_MESSAGE)
        return ddp_recv(g, &x, 1, DDP_FLOAT32, 1, 0, NULL);
    return ddp_barrier(g);
}

static inline int timeouts_run(int rank, void *arg)
{
    const struct timeouts *t = arg;
    struct ddp_group *g = rank_init(rank, 60000), *sub = g;
    char byte;
    if (rank == 0)
        RANK_CHECK(rank, ddp_set_timeout(g, 0) == DDP_EINVAL && ddp_set_timeout(g, 250) == DDP_OK,
                   "set");
    RANK_CHECK(rank, ddp_barrier(g) == DDP_OK, "in time");
    if (t->kind == TIMEOUTS_SPLIT)
        RANK_CHECK(rank, ddp_group_split(g, 0, 0, &sub) == DDP_OK, "split");
    if (rank > 0) {
        RANK_CHECK(rank, read(t->gate[0], &byte, 1) == 1, "gate");
        ddp_finalize(g);
        return 0;
    }
    RANK_CHECK(rank, timeouts_call(sub, t->kind) == DDP_ETIMEOUT, "they do not come");
    RANK_CHECK(rank, strstr(ddp_last_error(), "timed out after 0.25 s waiting for rank 1") != NULL,
               "text");
    for (int r = 1; r < ddp_world_size(g); r++)
        RANK_CHECK(rank, write(t->gate[1], "x", 1) == 1, "gate");
    ddp_finalize(g);
    return 0;
}

#endif
