/* model_agree.c - do all ranks describe the same network?
 *
 * model_agree() compares digests in one all_reduce. Where they differ, explain_difference() sends
 * the description of rank 0 in pieces, each rank looks for the first difference, and all ranks
 * report the lowest one in the same words. */
#include "model_agree.h"

#include "common/hash.h"
#include "worker-runtime/core/call.h"
#include "worker-runtime/core/group.h"
#include <ddp/collective.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NAME_BYTES   96 /* of a name in a message; longer ones are cut there, but compared whole */
#define LAYOUT_BYTES 48 /* the same of a layout */
#define PIECE        32 /* records that travel at once */
#define ALL_THE_SAME INT64_MAX
#define OPTION(k)    (-1 - (int64_t)(k)) /* "index" of a difference in option k */

struct record { /* a tensor, as it travels */
    uint64_t count;
    uint64_t name_hash;
    uint64_t layout_hash;
    uint32_t dtype;
    uint32_t present; /* 0: there is no tensor of this number */
    char name[NAME_BYTES];
    char layout[LAYOUT_BYTES];
};

enum kind { SIZE, FLAG, CHOICE, FACTOR, GIVEN, GIVEN_DATA };

static const struct option {
    const char *name;
    enum kind kind;
    size_t at;
} options[] = {
    {"first_bucket_bytes", SIZE, offsetof(struct ddp_model_opts, first_bucket_bytes)},
    {"bucket_bytes", SIZE, offsetof(struct ddp_model_opts, bucket_bytes)},
    {"message_size", SIZE, offsetof(struct ddp_model_opts, message_size)},
    {"always_fp32", FLAG, offsetof(struct ddp_model_opts, always_fp32)},
    {"predivide_factor", FACTOR, offsetof(struct ddp_model_opts, predivide_factor)},
    {"compress", CHOICE, offsetof(struct ddp_model_opts, compress)},
    {"local_steps", SIZE, offsetof(struct ddp_model_opts, local_steps)},
    {"local_fragments", FLAG, offsetof(struct ddp_model_opts, local_fragments)},
    {"outer_lr", FACTOR, offsetof(struct ddp_model_opts, outer_lr)},
    {"outer_momentum", FACTOR, offsetof(struct ddp_model_opts, outer_momentum)},
    {"hook", GIVEN, offsetof(struct ddp_model_opts, hook)},
    {"allow_unused", FLAG, offsetof(struct ddp_model_opts, allow_unused)},
    {"keep_order", FLAG, offsetof(struct ddp_model_opts, keep_order)},
    {"weighted", FLAG, offsetof(struct ddp_model_opts, weighted)},
    {"check_finite", FLAG, offsetof(struct ddp_model_opts, check_finite)},
    {"tell_nonfinite", FLAG, offsetof(struct ddp_model_opts, tell_nonfinite)},
    {"nccl_memory", FLAG, offsetof(struct ddp_model_opts, nccl_memory)},
    {"n_buffers", SIZE, offsetof(struct ddp_model_opts, n_buffers)},
    {"n_constants", SIZE, offsetof(struct ddp_model_opts, n_constants)},
    {"keep_buffers", FLAG, offsetof(struct ddp_model_opts, keep_buffers)},
    {"stream", GIVEN_DATA, offsetof(struct ddp_model_opts, stream)},
}; /* not delay_allreduce: the order of calls is the same */
enum { N_OPTIONS = sizeof(options) / sizeof(options[0]) };

struct side { /* one rank's side of the first difference */
    uint64_t n_tensors;
    uint64_t option[N_OPTIONS];
    struct record tensor;
};

static uint64_t option_of(const struct ddp_model_opts *o, const struct option *row)
{
    const void *at = (const char *)o + row->at;
    uint64_t bits;
    switch (row->kind) {
    case SIZE:
        return *(const size_t *)at;
    case FLAG:
        return *(const bool *)at;
    case CHOICE:
        return *(const enum ddp_compress *)at;
    case FACTOR:
        memcpy(&bits, at, sizeof(bits));
        return bits;
    case GIVEN_DATA:
        return *(void *const *)at != NULL;
    default:
        return *(ddp_bucket_hook *const *)at != NULL;
    }
}

static size_t n_records(const struct model_description *d)
{
    return d->n_tensors + d->opts->n_buffers + d->opts->n_constants;
}

static void take_text(const char *text, uint64_t *ret_hash, char *cut, size_t size)
{
    const size_t len = strlen(text);
    *ret_hash = co_hash_bytes(CO_HASH_START, text, len);
    memcpy(cut, text, len < size ? len : size - 1);
    if (len >= size)
        memcpy(cut + size - 4, "...", 4);
}

static struct record record_of(const struct model_description *d, size_t i)
{
    struct record r = {0}; /* all of it: records are compared byte by byte */
    if (i >= n_records(d))
        return r;
    const size_t k = i - d->n_tensors; /* of a buffer or a constant */
    const struct ddp_tensor *t = i < d->n_tensors ? &d->tensors[i]
                                 : k < d->opts->n_buffers
                                     ? &d->opts->buffers[k]
                                     : &d->opts->constants[k - d->opts->n_buffers];
    r.count = t->count;
    r.dtype = (uint32_t)t->dtype;
    r.present = 1;
    take_text(t->name, &r.name_hash, r.name, sizeof(r.name));
    take_text(t->layout != NULL ? t->layout : "", &r.layout_hash, r.layout, sizeof(r.layout));
    return r;
}

static struct side side_of(const struct model_description *d, int64_t index)
{
    struct side s = {.n_tensors = n_records(d)};
    for (size_t k = 0; k < N_OPTIONS; k++)
        s.option[k] = option_of(d->opts, &options[k]);
    if (index >= 0)
        s.tensor = record_of(d, (size_t)index);
    return s;
}

static uint64_t digest_of(const struct model_description *d)
{
    const struct side head = side_of(d, OPTION(0));
    uint64_t hash = co_hash_bytes(CO_HASH_START, &head, sizeof(head));
    for (size_t i = 0; i < n_records(d); i++) {
        struct record r = record_of(d, i);
        hash = co_hash_bytes(hash, &r, sizeof(r));
    }
    return hash;
}

static int all_reduce_min(struct ddp_group *g, int64_t *values, size_t n)
{
    return ddp_all_reduce(g, values, values, n, DDP_INT64, DDP_MIN, NULL);
}

/* An option in which this rank and rank 0 differ; ALL_THE_SAME: none. */
static int64_t compare_options(const struct side *zero, const struct model_description *mine)
{
    for (size_t k = 0; k < N_OPTIONS; k++)
        if (zero->option[k] != option_of(mine->opts, &options[k]))
            return OPTION(k);
    return ALL_THE_SAME;
}

/* The number of the first tensor in which this rank and rank 0 differ, an OPTION, or
 * ALL_THE_SAME. */
static int compare_with_rank_0(struct ddp_group *g, const struct model_description *mine,
                               int64_t *ret_index)
{
    struct side zero = side_of(mine, OPTION(0));
    int rc = ddp_broadcast_bytes(g, &zero, sizeof(zero), 0);
    if (rc != 0)
        return rc;
    int64_t index = ALL_THE_SAME;
    for (uint64_t first = 0; first < zero.n_tensors; first += PIECE) {
        struct record piece[PIECE], own[PIECE];
        for (size_t k = 0; k < PIECE; k++)
            piece[k] = own[k] = record_of(mine, first + k);
        if ((rc = ddp_broadcast_bytes(g, piece, sizeof(piece), 0)) != 0)
            return rc;
        for (size_t k = 0; k < PIECE && index == ALL_THE_SAME; k++)
            if (memcmp(&piece[k], &own[k], sizeof(own[k])) != 0)
                index = (int64_t)(first + k);
    }
    if (index == ALL_THE_SAME && n_records(mine) > zero.n_tensors)
        index = (int64_t)zero.n_tensors;
    const int64_t option = compare_options(&zero, mine);
    *ret_index = option != ALL_THE_SAME ? option : index;
    return 0;
}

static void describe_option(const struct side *s, size_t k, int rank, char *text, size_t size)
{
    double factor;
    memcpy(&factor, &s->option[k], sizeof(factor));
    if (options[k].kind == FACTOR)
        snprintf(text, size, "rank %d has %s %g", rank, options[k].name, factor);
    else
        snprintf(text, size, "rank %d has %s %" PRIu64, rank, options[k].name, s->option[k]);
}

static void describe_side(const struct side *s, int rank, int64_t index, char *text, size_t size)
{
    const struct record *t = &s->tensor;
    if (index < 0)
        describe_option(s, (size_t)(-1 - index), rank, text, size);
    else if (t->present == 0)
        snprintf(text, size, "rank %d has %" PRIu64 " tensors", rank, s->n_tensors);
    else
        snprintf(text, size, "rank %d has '%.*s', %" PRIu64 " x %s%s%.*s", rank, NAME_BYTES - 1,
                 t->name, t->count, call_dtype_name(t->dtype), t->layout[0] != '\0' ? ", " : "",
                 LAYOUT_BYTES - 1, t->layout);
}

/* Find the first difference and the first rank that has it; send both sides to every rank. */
static int explain_difference(struct ddp_group *g, const struct model_description *mine)
{
    int64_t index, first, rank;
    int rc = compare_with_rank_0(g, mine, &index);
    if (rc != 0)
        return rc;
    first = index;
    if ((rc = all_reduce_min(g, &first, 1)) != 0)
        return rc;
    rank = index == first ? g->rank : INT64_MAX;
    if ((rc = all_reduce_min(g, &rank, 1)) != 0)
        return rc;
    if (first == ALL_THE_SAME)
        return rt_fail(DDP_EMISMATCH,
                       "ddp_model_create: the tensors changed while the ranks compared them");

    struct side zero = side_of(mine, first), other = zero;
    if ((rc = ddp_broadcast_bytes(g, &zero, sizeof(zero), 0)) != 0 ||
        (rc = ddp_broadcast_bytes(g, &other, sizeof(other), (int)rank)) != 0)
        return rc;
    char one_side[256], other_side[256];
    describe_side(&zero, 0, first, one_side, sizeof(one_side));
    describe_side(&other, (int)rank, first, other_side, sizeof(other_side));
    if (first < 0)
        return rt_fail(DDP_EMISMATCH,
                       "ddp_model_create: the ranks' ddp_model_opts differ: %s, %s; pass the same "
                       "on all ranks",
                       one_side, other_side);
    return rt_fail(DDP_EMISMATCH,
                   "ddp_model_create: the ranks' models differ at tensor %" PRId64
                   ": %s, %s; pass the same tensors on all ranks",
                   first, one_side, other_side);
}

int model_agree(struct ddp_group *g, const struct model_description *mine)
{
    /* The smallest digest is also the largest if the smallest of the complements is the complement
     * of the smallest: one reduction shows every rank whether all agree. */
    int64_t digest = mine != NULL ? (int64_t)digest_of(mine) : 0;
    int64_t least[] = {mine != NULL ? INT64_MAX : g->rank, digest, ~digest};
    int rc = all_reduce_min(g, least, 3);
    if (rc != 0)
        return rc;
    if (least[0] != INT64_MAX)
        return rt_fail(DDP_EMISMATCH,
                       "ddp_model_create: rank %" PRId64 " failed: check its own message",
                       least[0]);
    if (least[1] == ~least[2])
        return 0;
    return explain_difference(g, mine);
}

int model_broadcast(struct ddp_group *g, const struct ddp_tensor *t, size_t n, int root,
                    void *stream)
{
    if (stream != NULL && g->world_size == 1)
        return 0; /* a communicator of one rank would be made for it */
    for (size_t i = 0; i < n; i++) {
        int rc = ddp_broadcast(g, t[i].param, t[i].param, t[i].count, t[i].dtype, root, stream);
        if (rc != 0)
            return rt_fail(rc, "'%s' from rank %d: %s", t[i].name, root, ddp_last_error());
    }
    return 0;
}
