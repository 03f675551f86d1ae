/* model_int8.c - averages whose values travel between nodes as int8, with a scale per block.
 *
 * The ranks of a node add up their gradients as float32, in the node's memory, exactly as without
 * compression. One rank of each node, the leader, exchanges the sums: each node adds up a slice of
 * them, and hands its result out.
 *
 *     sums of the node, plus what rounding left of the last step     -> int8, the rest is kept
 *     slice j of each node                                           -> node j: all_to_all
 *     added up in the order of the nodes, plus what rounding left    -> int8, the rest is kept
 *     the result of each node                                        -> all nodes: all_gather
 *     back to float32                                                -> all ranks of the node
 *
 * What rounding leaves is added to the next step's values (error feedback: F. Seide et al., "1-Bit
 * Stochastic Gradient Descent", Interspeech 2014; on both ways: H. Tang et al., "DoubleSqueeze",
 * 2019, arXiv:1905.05957). All ranks decode the same bytes, so all have the same bits. */
#include "model_priv.h"

#include "worker-runtime/arithmetic/convert.h"
#include "worker-runtime/arithmetic/slices.h"
#include "worker-runtime/core/process.h"
#include <ddp/collective.h>
#include <stdlib.h>
#include <string.h>

/* --- slices ----------------------------------------------------------------------------------- */

struct packed { /* a slice of a bucket, as a node packs it: scales, then bytes */
    size_t first, count;
    size_t n_scales, bytes;
};

_Static_assert(REDUCE_INT8_BLOCK == 64, "borders of slices of bytes are borders of blocks");

static struct packed packed_slice(size_t count, size_t i, size_t n)
{
    const struct slice s = slice_of(count, 1, (unsigned)i, (unsigned)n);
    const size_t n_scales = (s.count + REDUCE_INT8_BLOCK - 1) / REDUCE_INT8_BLOCK;
    return (struct packed){
        .first = s.first,
        .count = s.count,
        .n_scales = n_scales,
        .bytes = n_scales * sizeof(float) + (s.count + 3) / 4 * 4 /* scales stay aligned */
    };
}

static size_t packed_bytes(size_t count, size_t n)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += packed_slice(count, i, n).bytes;
    return bytes;
}

static void pack(uint8_t *to, const struct packed *s, float *values)
{
    process_kernels()->to_int8((int8_t *)(to + s->n_scales * sizeof(float)), (float *)(void *)to,
                               values, s->count);
}

static void unpack(float *to, const uint8_t *from, const struct packed *s, bool adds)
{
    process_kernels()->from_int8(to, (const int8_t *)(from + s->n_scales * sizeof(float)),
                                 (const float *)(const void *)from, s->count, adds);
}

/* to += values */
static void add(float *to, const float *values, size_t count)
{
    const void *in[] = {to, values};
    void *out = to;
    if (count > 0)
        process_kernels()->fn[DDP_FLOAT32][DDP_SUM](in, 2, &out, 1, count);
}

/* --- memory and groups ------------------------------------------------------------------------ */

int model_int8_open(struct ddp_model *m)
{
    if (!model_is_int8(m))
        return 0;
    const bool leads = m->g->local_rank == 0;
    int rc = ddp_group_split(m->g, m->g->node_rank, m->g->rank, &m->node);
    if (rc == 0)
        rc = ddp_group_split(m->g, leads ? 0 : DDP_NO_COLOR, m->g->node_rank, &m->leaders);
    if (m->node != NULL)
        group_disown(&m->node->child); /* they go with the model, whatever goes first */
    if (m->leaders != NULL)
        group_disown(&m->leaders->child);
    if (rc == 0 && m->leaders != NULL)
        m->int8_bytes = calloc(2 * (size_t)m->leaders->world_size, sizeof(*m->int8_bytes));
    return rc; /* without that memory placing a bucket fails, on all ranks */
}

void model_int8_close(struct ddp_model *m)
{
    ddp_group_destroy(m->leaders);
    ddp_group_destroy(m->node);
    free(m->int8_bytes);
}

/* Of a leader: what rounding leaves of a bucket and of its own slice, and packed values, which are
 * sent, received and the result. */
bool model_int8_place(struct ddp_model *m, struct model_bucket *b)
{
    if (m->leaders == NULL || b->count == 0 || !b->is_int8)
        return true;
    const size_t n = (size_t)m->leaders->world_size;
    const struct packed own = packed_slice(b->count, (size_t)m->leaders->rank, n);
    b->rest = calloc(b->count + own.count + 1, sizeof(*b->rest));
    b->packed = calloc(1, packed_bytes(b->count, n) * 2 + own.bytes * (n + 1) + 1);
    if (b->rest != NULL && b->packed != NULL && m->int8_bytes != NULL)
        return true;
    rt_fail(DDP_ENOMEM, "out of memory for %zu gradients as int8", b->count);
    return false;
}

void model_int8_forget(struct ddp_model *m)
{
    for (size_t k = 0; m->set.at != NULL && k < m->set.plan.n_buckets; k++) {
        const struct model_bucket *b = &m->set.at[k];
        if (b->rest == NULL)
            continue;
        const struct packed own =
            packed_slice(b->count, (size_t)m->leaders->rank, (size_t)m->leaders->world_size);
        memset(b->rest, 0, (b->count + own.count) * sizeof(*b->rest));
    }
}

size_t model_int8_bytes(const struct ddp_model *m, const struct model_bucket *b)
{
    return m->leaders != NULL ? packed_bytes(b->count, (size_t)m->leaders->world_size) : 0;
}

/* --- the average ------------------------------------------------------------------------------ */

/* Between the leaders: sums of the node become sums of all nodes. */
static int exchange(struct ddp_model *m, struct model_bucket *b, float *values)
{
    const size_t n = (size_t)m->leaders->world_size, me = (size_t)m->leaders->rank;
    const struct packed own = packed_slice(b->count, me, n);
    const size_t bytes = packed_bytes(b->count, n);
    size_t *sends = m->int8_bytes, *gets = sends + n;
    uint8_t *sent = b->packed, *all = sent + bytes, *got = all + bytes,
            *result = got + own.bytes * n;
    float *rest = b->rest, *own_rest = rest + b->count, *own_values = values + own.first;
    add(rest, values, b->count);
    uint8_t *at = sent;
    for (size_t i = 0; i < n; i++) {
        const struct packed s = packed_slice(b->count, i, n);
        pack(at, &s, rest + s.first);
        at += sends[i] = s.bytes;
        gets[i] = own.bytes;
    }
    int rc = ddp_all_to_all_v(m->leaders, sent, sends, got, gets, DDP_UINT8, NULL);
    if (rc != 0)
        return rc;
    for (size_t i = 0; i < n; i++)
        unpack(own_values, got + i * own.bytes, &own, i > 0);
    add(own_rest, own_values, own.count);
    pack(result, &own, own_rest);
    rc = ddp_all_gather_v(m->leaders, result, all, sends, DDP_UINT8, NULL);
    at = all;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const struct packed s = packed_slice(b->count, i, n);
        unpack(values + s.first, at, &s, false);
        at += s.bytes;
    }
    return rc;
}

int model_int8_average(struct ddp_model *m, struct model_bucket *b, bool is_sum)
{
    float *values = (float *)(void *)b->wire;
    if (b->count == 0)
        return 0;
    if (!is_sum)
        convert_scale(process_kernels(), values, DDP_FLOAT32, b->count, 1.0 / m->g->world_size);
    int rc = ddp_reduce(m->node, values, values, b->count, DDP_FLOAT32, DDP_SUM, 0, NULL);
    if (rc == 0 && m->leaders != NULL)
        rc = exchange(m, b, values);
    if (rc == 0)
        rc = ddp_broadcast(m->node, values, values, b->count, DDP_FLOAT32, 0, NULL);
    return rc;
}
