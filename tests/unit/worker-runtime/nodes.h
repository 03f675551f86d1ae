/* nodes.h - real ranks on several "nodes" of one machine: the environment defines which ranks are
 * on one node. They join through the real store (store_process.h). */
#ifndef DDP_TESTS_UNIT_WORKER_RUNTIME_NODES_H
#define DDP_TESTS_UNIT_WORKER_RUNTIME_NODES_H

#include "exchange.h"
#include "ranks.h"
#include "segments/data_secret.h"
#include "store_process.h"

enum { NODES_MAX = 16 };

struct nodes {
    int n, n_ranks;
    int size[NODES_MAX];
    bool dealt; /* ranks are dealt to the nodes in turns, as mpirun --map-by node does */
};

/* Which node a rank is on, and which of its ranks it is. */
static inline void nodes_place(const struct nodes *n, int rank, int *ret_node, int *ret_local)
{
    int taken[NODES_MAX] = {0}, node = 0;
    for (int r = 0;; r++) {
        if (n->dealt)
            for (node = r % n->n; taken[node] == n->size[node];)
                node = (node + 1) % n->n;
        else
            for (node = 0; taken[node] == n->size[node];)
                node++;
        if (r == rank)
            break;
        taken[node]++;
    }
    *ret_node = node;
    *ret_local = taken[node];
}

static inline void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* With TEST_ENCRYPT: what ddprun --encrypt gives to ranks. */
static inline void nodes_encrypt(void)
{
    static const uint8_t secret[DATA_SECRET_BYTES] = "a secret of the tests";
    int fd;
    if (getenv("TEST_ENCRYPT") == NULL || getenv("DDP_ENCRYPT_FD") != NULL)
        return;
    ck_assert_int_eq(data_secret_make(secret, &fd, NULL), 0);
    set_number("DDP_ENCRYPT_FD", fd);
    set_number("DDP_ENCRYPT", 1);
}

static inline void nodes_start_one(struct ranks *r, const struct nodes *n, int rank, rank_fn *fn,
                                   void *arg)
{
    int node, local;
    nodes_place(n, rank, &node, &local);
    nodes_encrypt();
    set_number("LOCAL_RANK", local);
    set_number("LOCAL_WORLD_SIZE", n->size[node]);
    set_number("GROUP_RANK", node);
    set_number("GROUP_WORLD_SIZE", n->n);
    ranks_start_one(r, rank, fn, arg);
}

static inline void nodes_start(struct ranks *r, const struct nodes *n, rank_fn *fn, void *arg)
{
    ranks_init(r, n->n_ranks);
    for (int i = 0; i < n->n_ranks; i++)
        nodes_start_one(r, n, i, fn, arg);
}

/* --- what a reduction must give: the ranks of a node in their order, then the nodes ----------- */

static inline void nodes_fold(enum ddp_dtype dtype, enum ddp_op op, const void *const *in,
                              unsigned n, void *out, size_t count)
{
    reduce_scalar.fn[dtype][op](in, n, &out, 1, count);
}

/* Elements first, first + 1 ... of it. free() it. Averages of floats where nodes differ are not
 * worked out here. */
static inline uint8_t *nodes_reduced(const struct nodes *n, enum ddp_dtype dtype, enum ddp_op op,
                                     uint32_t salt, size_t first, size_t count)
{
    const bool divides = op == DDP_AVG && dtype != DDP_FLOAT32 && dtype != DDP_FLOAT64 &&
                         dtype != DDP_FLOAT16 && dtype != DDP_BFLOAT16;
    const enum ddp_op part_op = divides ? DDP_SUM : op;
    const size_t size = ddp_dtype_size(dtype), bytes = count * size;
    int most = 0;
    for (int k = 0; k < n->n; k++)
        most = n->size[k] > most ? n->size[k] : most;
    /* no more than is used: `meson test` has malloc() fill it (MALLOC_PERTURB_) */
    uint8_t *all = malloc(bytes * (size_t)most + 1);
    uint8_t *sums = malloc(bytes * (size_t)n->n + 1);
    uint8_t *result = malloc(bytes + 1);
    const void *in[RANKS_MAX], *sum[NODES_MAX];
    for (int k = 0; k < n->n; k++) {
        unsigned n_in = 0;
        for (int r = 0; r < n->n_ranks; r++) {
            int node, local;
            nodes_place(n, r, &node, &local);
            if (node != k)
                continue;
            in[n_in] = all + bytes * n_in;
            values_fill_from(all + bytes * n_in++, dtype, salt, r, first, count);
        }
        sum[k] = sums + bytes * (size_t)k;
        nodes_fold(dtype, part_op, in, n_in, sums + bytes * (size_t)k, count);
    }
    nodes_fold(dtype, part_op, sum, (unsigned)n->n, result, count);
    if (divides) {
        /* what the kernels do with the sum of one rank's worth, n times */
        for (size_t i = 0; i < count; i++) {
            uint8_t *at = result + i * size;
            if (dtype == DDP_INT8)
                *(int8_t *)at = (int8_t)(*(int8_t *)at / n->n_ranks);
            else if (dtype == DDP_UINT8)
                *at = (uint8_t)(*at / (unsigned)n->n_ranks);
            else if (dtype == DDP_INT32)
                *(int32_t *)at /= n->n_ranks;
            else if (dtype == DDP_UINT32)
                *(uint32_t *)at /= (unsigned)n->n_ranks;
            else if (dtype == DDP_INT64)
                *(int64_t *)at /= n->n_ranks;
            else
                *(uint64_t *)at /= (unsigned)n->n_ranks;
        }
    }
    free(all);
    free(sums);
    return result;
}

#endif
