#include "net_reduce.h"

#include "net_math.h"

enum {
    SLOTS = 4, /* segments from a peer that may wait for those from others */
    LAG = 2,   /* a result follows the segments that were sent so much later */
};

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
    return f->scratch + (p * SLOTS + i % SLOTS) * f->segment * f->size;
}

static size_t segment_elements(const struct net_reduce *f)
{
    const size_t elements = f->segment_bytes / ddp_dtype_size(f->dtype);
    return elements > 0 ? elements : 1;
}

size_t net_reduce_scratch_bytes(const struct net_reduce *f)
{
    const size_t size = ddp_dtype_size(f->dtype);
    if (f->whole)
        return (f->n - 1) * f->count * size;
    return (f->n - 1) * SLOTS * segment_elements(f) * size;
}

/* --- combining -------------------------------------------------------------------------------- */

/* in[] is set for the peers. */
static void combine(struct net_reduce *f, const uint8_t *own, uint8_t *out, size_t count)
{
    void *to = out;
    f->in[f->me] = own;
    if (count == 0)
        return;
    f->kernels->fn[f->dtype][f->op](f->in, f->n, &to, 1, count);
    if (f->divisor > 0)
        net_math_divide(f->dtype, out, count, f->divisor);
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

/* From a rank to its peer: segment 0 of the peer's part, nothing, segment 1, nothing, segment 2,
 * result 0, segment 3, result 1, ... Even numbers are segments, odd ones results; what there is not
 * is an empty piece. */
static bool is_behind_end(const struct net_reduce *f, unsigned from, unsigned to, size_t i)
{
    const size_t segments = n_segments(f, to);
    const size_t results = f->gather ? n_segments(f, from) + LAG : 0;
    return i / 2 >= (segments > results ? segments : results);
}

static bool is_result(size_t i, size_t *ret_index)
{
    *ret_index = i % 2 == 0 ? i / 2 : i / 2 - LAG;
    return i % 2 == 1;
}

static bool is_empty(const struct net_reduce *f, unsigned node, size_t i)
{
    return (i % 2 == 1 && (!f->gather || i / 2 < LAG)) ||
           (i % 2 == 0 ? i / 2 : i / 2 - LAG) >= n_segments(f, node);
}

static enum tcp_next put(struct tcp_piece *ret, const struct net_reduce *f, uint8_t *at,
                         struct slice s)
{
    *ret = (struct tcp_piece){at, s.count * f->size};
    return TCP_READY;
}

static enum tcp_next to_part(void *arg, unsigned p, size_t i, struct tcp_piece *ret)
{
    const struct net_reduce *f = arg;
    const unsigned node = node_of(f, p);
    size_t index;
    if (is_behind_end(f, f->me, node, i))
        return TCP_END;
    if (is_empty(f, i % 2 == 0 ? node : f->me, i))
        return put(ret, f, NULL, (struct slice){0, 0});
    if (!is_result(i, &index)) {
        const struct slice s = segment_of(f, node, index);
        return put(ret, f, f->data + (f->part[node].first + s.first) * f->size, s);
    }
    if (index >= f->n_folded)
        return TCP_LATER;
    const struct slice s = segment_of(f, f->me, index);
    return put(ret, f, f->out + s.first * f->size, s);
}

static enum tcp_next from_part(void *arg, unsigned p, size_t i, struct tcp_piece *ret)
{
    const struct net_reduce *f = arg;
    const unsigned node = node_of(f, p);
    size_t index;
    if (is_behind_end(f, node, f->me, i))
        return TCP_END;
    if (is_empty(f, i % 2 == 0 ? f->me : node, i))
        return put(ret, f, NULL, (struct slice){0, 0});
    if (is_result(i, &index)) {
        const struct slice s = segment_of(f, node, index);
        return put(ret, f, f->data + (f->part[node].first + s.first) * f->size, s);
    }
    if (index >= f->n_folded + SLOTS)
        return TCP_LATER;
    return put(ret, f, scratch_of(f, p, index), segment_of(f, f->me, index));
}

static void on_part(void *arg, unsigned p, size_t i)
{
    struct net_reduce *f = arg;
    size_t index;
    if (is_result(i, &index))
        return;
    f->n_come[p] = index + 1;
    while (f->n_folded < n_segments(f, f->me) && has_come(f, f->n_folded))
        fold_segment(f);
}

static size_t bytes_between(const struct net_reduce *f, unsigned from, unsigned to)
{
    return (f->part[to].count + (f->gather ? f->part[from].count : 0)) * f->size;
}

static size_t part_bytes_to(void *arg, unsigned p)
{
    const struct net_reduce *f = arg;
    return bytes_between(f, f->me, node_of(f, p));
}

static size_t part_bytes_from(void *arg, unsigned p)
{
    const struct net_reduce *f = arg;
    return bytes_between(f, node_of(f, p), f->me);
}

/* --- the plan: everything to everybody -------------------------------------------------------- */

static uint8_t *whole_of(const struct net_reduce *f, unsigned p)
{
    return f->scratch + p * f->count * f->size;
}

static enum tcp_next to_whole(void *arg, unsigned p, size_t i, struct tcp_piece *ret)
{
    const struct net_reduce *f = arg;
    (void)p;
    return i > 0 ? TCP_END : put(ret, f, f->data, (struct slice){0, f->count});
}

static enum tcp_next from_whole(void *arg, unsigned p, size_t i, struct tcp_piece *ret)
{
    const struct net_reduce *f = arg;
    return i > 0 ? TCP_END : put(ret, f, whole_of(f, p), (struct slice){0, f->count});
}

static void on_whole(void *arg, unsigned p, size_t i)
{
    (void)arg;
    (void)p;
    (void)i;
}

static size_t whole_bytes(void *arg, unsigned p)
{
    const struct net_reduce *f = arg;
    (void)p;
    return f->count * f->size;
}

/* --- both ------------------------------------------------------------------------------------- */

struct tcp_plan net_reduce_plan(struct net_reduce *f)
{
    f->size = ddp_dtype_size(f->dtype);
    f->segment = segment_elements(f);
    f->n_folded = 0;
    for (unsigned p = 0; p + 1 < f->n; p++)
        f->n_come[p] = 0;
    struct tcp_plan plan = {.peer = f->peer, .n_peers = f->n - 1, .arg = f};
    plan.to = f->whole ? to_whole : to_part;
    plan.from = f->whole ? from_whole : from_part;
    plan.on_piece = f->whole ? on_whole : on_part;
    plan.bytes_to = f->whole ? whole_bytes : part_bytes_to;
    plan.bytes_from = f->whole ? whole_bytes : part_bytes_from;
    return plan;
}

void net_reduce_finish(struct net_reduce *f)
{
    if (!f->whole)
        return;
    for (unsigned p = 0; p + 1 < f->n; p++)
        f->in[node_of(f, p)] = whole_of(f, p);
    combine(f, f->data, f->out, f->count);
}
