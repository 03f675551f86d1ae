/* net_reduce.c - the reduction between nodes; net.h describes it. */
#include "net.h"

static unsigned node_of(const struct net_reduce *f, unsigned p)
{
    return p < f->me ? p : p + 1;
}

static size_t n_segments(const struct net_reduce *f, unsigned node)
{
    const size_t count = f->part[node].count;
    return count / f->segment + (count % f->segment != 0);
}

static struct slice segment_of(const struct net_reduce *f, unsigned node, size_t i)
{
    return slice_piece(f->part[node].count, f->segment, i);
}

static uint8_t *scratch_of(const struct net_reduce *f, unsigned p, size_t i)
{
    return f->scratch + (p * f->n_ahead + i % f->n_ahead) * f->segment * f->size;
}

static size_t segment_elements(const struct net_reduce *f)
{
    const size_t elements = f->segment_bytes / ddp_dtype_size(f->dtype);
    return elements > 0 ? elements : 1;
}

size_t net_reduce_scratch_bytes(const struct net_reduce *f)
{
    return (f->n - 1) * f->n_ahead * segment_elements(f) * ddp_dtype_size(f->dtype);
}

/* --- combining -------------------------------------------------------------------------------- */

/* Divide integers by n, towards 0. */
#define DIVIDE(T, BY)                                                                              \
    for (size_t i = 0; i < count; i++)                                                             \
        ((T *)at)[i] = (T)(((T *)at)[i] / (BY));                                                   \
    break

static void divide(enum ddp_dtype dtype, void *at, size_t count, unsigned n)
{
    const int64_t by = n;
    const uint64_t by_unsigned = n;
    switch (dtype) {
    case DDP_INT8:
        DIVIDE(int8_t, by);
    case DDP_UINT8:
        DIVIDE(uint8_t, by_unsigned);
    case DDP_INT32:
        DIVIDE(int32_t, by);
    case DDP_UINT32:
        DIVIDE(uint32_t, by_unsigned);
    case DDP_INT64:
        DIVIDE(int64_t, by);
    case DDP_UINT64:
        DIVIDE(uint64_t, by_unsigned);
    default:
        break;
    }
}

/* in[] is set for the peers. */
static void combine(struct net_reduce *f, const uint8_t *own, uint8_t *out, size_t count)
{
    void *to = out;
    f->in[f->me] = own;
    if (count == 0)
        return;
    f->kernels->fn[f->dtype][f->op](f->in, f->n, &to, 1, count);
    if (f->divisor > 0)
        divide(f->dtype, out, count, f->divisor);
}

static bool has_come(const struct net_reduce *f, size_t i)
{
    for (unsigned p = 0; p + 1 < f->n; p++)
        if (f->n_come[p] <= i)
            return false;
    return true;
}

static void fold_segment(struct net_reduce *f)
{
    const struct slice s = segment_of(f, f->me, f->n_folded);
    for (unsigned p = 0; p + 1 < f->n; p++)
        f->in[node_of(f, p)] = scratch_of(f, p, f->n_folded);
    combine(f, f->data + (f->part[f->me].first + s.first) * f->size, f->out + s.first * f->size,
            s.count);
    f->n_folded++;
}

/* --- the plan: parts -------------------------------------------------------------------------- */

static enum tcp_next piece_set(struct tcp_piece *ret, const struct net_reduce *f, uint8_t *at,
                               struct slice s)
{
    *ret = (struct tcp_piece){at, s.count * f->size};
    return TCP_READY;
}

/* From a rank to its peer, with a lag of 2: segment 0 of the peer's part, nothing, segment 1,
 * nothing, segment 2, result 0, segment 3, result 1, ... Even numbers are segments, odd ones
 * results; what there is not is an empty piece.
 *
 * Piece `i` between this rank and peer p. What belongs to the other node's part lies in `data`: the
 * segments that go there, and the results that come. For its own part segments come into `scratch`,
 * which has space for n_ahead beyond what was added up, and results go from `out`, once they have
 * been. */
static enum tcp_next piece_of_part(void *arg, bool is_out, unsigned p, size_t i,
                                   struct tcp_piece *ret)
{
    const struct net_reduce *f = arg;
    const unsigned peer = node_of(f, p), from = is_out ? f->me : peer, to = is_out ? peer : f->me;
    const bool is_result = i % 2 == 1;
    const unsigned owner = is_result ? from : to;
    const size_t index = is_result ? i / 2 - f->lag : i / 2;
    const size_t segments = n_segments(f, to),
                 results = f->gather ? n_segments(f, from) + f->lag : 0;
    if (i / 2 >= (segments > results ? segments : results))
        return TCP_END;
    if ((is_result && (!f->gather || i / 2 < f->lag)) || index >= n_segments(f, owner))
        return piece_set(ret, f, NULL, (struct slice){0, 0});
    const struct slice s = segment_of(f, owner, index);
    if (owner != f->me)
        return piece_set(ret, f, f->data + (f->part[owner].first + s.first) * f->size, s);
    if (index >= f->n_folded + (is_result ? 0 : f->n_ahead))
        return TCP_LATER;
    return piece_set(ret, f, is_result ? f->out + s.first * f->size : scratch_of(f, p, index), s);
}

static void on_part(void *arg, unsigned p, size_t i)
{
    struct net_reduce *f = arg;
    if (i % 2 == 1) /* a result: it is where it belongs */
        return;
    f->n_come[p] = i / 2 + 1;
    while (f->n_folded < n_segments(f, f->me) && has_come(f, f->n_folded))
        fold_segment(f);
}

static size_t bytes_of_part(void *arg, bool is_out, unsigned p)
{
    const struct net_reduce *f = arg;
    const unsigned peer = node_of(f, p), from = is_out ? f->me : peer, to = is_out ? peer : f->me;
    return (f->part[to].count + (f->gather ? f->part[from].count : 0)) * f->size;
}

struct tcp_plan net_reduce_plan(struct net_reduce *f)
{
    f->size = ddp_dtype_size(f->dtype);
    f->segment = segment_elements(f);
    f->n_folded = 0;
    for (unsigned p = 0; p + 1 < f->n; p++)
        f->n_come[p] = 0;
    return (struct tcp_plan){.peer = f->peer,
                             .n_peers = f->n - 1,
                             .arg = f,
                             .piece = piece_of_part,
                             .on_piece = on_part,
                             .bytes = bytes_of_part};
}

/* --- everything to every rank ----------------------------------------------------------------- */

void net_reduce_whole(struct net_reduce *f, size_t count)
{
    for (unsigned p = 0; p + 1 < f->n; p++)
        f->in[node_of(f, p)] = f->scratch + p * count * ddp_dtype_size(f->dtype);
    combine(f, f->data, f->out, count);
}

void net_reduce_rotated(struct net_reduce *f, size_t count)
{
    for (unsigned i = 1; i < f->n; i++)
        f->in[(f->me + i) % f->n] = f->scratch + i * count * ddp_dtype_size(f->dtype);
    combine(f, f->data, f->out, count);
}
