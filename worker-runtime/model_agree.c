#include "model_agree.h"

#include "group.h"
#include <ddp/collective.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NAME_BYTES   96 /* of a name in a message; longer ones are cut there, but compared whole */
#define PIECE        32 /* records that travel at once */
#define ALL_THE_SAME INT64_MAX
#define LIMITS       (-1) /* "index" of the first difference when the bucket limits differ */

struct record { /* a tensor, as it travels */
    uint64_t count;
    uint64_t name_hash;
    uint32_t dtype;
    uint32_t present; /* 0: there is no tensor of this number */
    char name[NAME_BYTES];
};

struct side { /* what one rank says about the first difference */
    uint64_t n_tensors, first_limit, limit;
    struct record tensor;
};

static uint64_t hash_more(uint64_t hash, const void *bytes, size_t n) /* FNV-1a */
{
    const uint8_t *b = bytes;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ b[i]) * 1099511628211u;
    return hash;
}

static uint64_t hash_of(const void *bytes, size_t n)
{
    return hash_more(14695981039346656037u, bytes, n);
}

static struct record record_of(const struct model_description *d, size_t i)
{
    struct record r = {0}; /* all of it: records are compared byte by byte */
    if (i >= d->n_tensors)
        return r;
    const struct ddp_tensor *t = &d->tensors[i];
    size_t len = strlen(t->name);
    r.count = t->count;
    r.name_hash = hash_of(t->name, len);
    r.dtype = (uint32_t)t->dtype;
    r.present = 1;
    memcpy(r.name, t->name, len < NAME_BYTES ? len : NAME_BYTES - 1);
    if (len >= NAME_BYTES)
        memcpy(r.name + NAME_BYTES - 4, "...", 4);
    return r;
}

static struct side side_of(const struct model_description *d, int64_t index)
{
    struct side s = {.n_tensors = d->n_tensors, .first_limit = d->first_limit, .limit = d->limit};
    if (index >= 0)
        s.tensor = record_of(d, (size_t)index);
    return s;
}

static uint64_t digest_of(const struct model_description *d)
{
    const uint64_t head[] = {d->n_tensors, d->first_limit, d->limit};
    uint64_t hash = hash_of(head, sizeof(head));
    for (size_t i = 0; i < d->n_tensors; i++) {
        struct record r = record_of(d, i);
        hash = hash_more(hash, &r, sizeof(r));
    }
    return hash;
}

static int all_reduce_min(struct ddp_group *g, int64_t *values, size_t n)
{
    return ddp_all_reduce(g, values, values, n, DDP_INT64, DDP_MIN, NULL);
}

static int broadcast_bytes(struct ddp_group *g, void *bytes, size_t n, int root)
{
    return ddp_broadcast(g, bytes, bytes, n / sizeof(int64_t), DDP_INT64, root, NULL);
}
_Static_assert(sizeof(struct record) % sizeof(int64_t) == 0, "records travel as 64-bit words");
_Static_assert(sizeof(struct side) % sizeof(int64_t) == 0, "sides travel as 64-bit words");

/* The number of the first tensor in which this rank and rank 0 differ, LIMITS, or ALL_THE_SAME. */
static int compare_with_rank_0(struct ddp_group *g, const struct model_description *mine,
                               int64_t *ret_index)
{
    struct side zero = side_of(mine, LIMITS);
    int rc = broadcast_bytes(g, &zero, sizeof(zero), 0);
    if (rc != 0)
        return rc;
    int64_t index = ALL_THE_SAME;
    for (uint64_t first = 0; first < zero.n_tensors; first += PIECE) {
        struct record piece[PIECE], own[PIECE];
        for (size_t k = 0; k < PIECE; k++)
            piece[k] = own[k] = record_of(mine, first + k);
        if ((rc = broadcast_bytes(g, piece, sizeof(piece), 0)) != 0)
            return rc;
        for (size_t k = 0; k < PIECE && index == ALL_THE_SAME; k++)
            if (memcmp(&piece[k], &own[k], sizeof(own[k])) != 0)
                index = (int64_t)(first + k);
    }
    if (index == ALL_THE_SAME && mine->n_tensors > zero.n_tensors)
        index = (int64_t)zero.n_tensors;
    if (mine->first_limit != zero.first_limit || mine->limit != zero.limit)
        index = LIMITS;
    *ret_index = index;
    return 0;
}

static void describe(const struct side *s, int rank, int64_t index, char *text, size_t size)
{
    static const char *const type_names[] = {"float32", "float64"};
    const struct record *t = &s->tensor;
    if (index == LIMITS)
        snprintf(text, size, "rank %d has buckets of %" PRIu64 " and %" PRIu64 " bytes", rank,
                 s->first_limit, s->limit);
    else if (t->present == 0)
        snprintf(text, size, "rank %d has %" PRIu64 " tensors", rank, s->n_tensors);
    else
        snprintf(text, size, "rank %d has '%.*s', %" PRIu64 " x %s", rank, NAME_BYTES - 1, t->name,
                 t->count, t->dtype < 2 ? type_names[t->dtype] : "?");
}

/* Find the first difference and the first rank that has it; tell everybody both sides. */
static int explain(struct ddp_group *g, const struct model_description *mine)
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
        return rt_fail(DDP_EMISMATCH, "the tensors changed while the ranks compared them");

    struct side zero = side_of(mine, first), other = zero;
    if ((rc = broadcast_bytes(g, &zero, sizeof(zero), 0)) != 0 ||
        (rc = broadcast_bytes(g, &other, sizeof(other), (int)rank)) != 0)
        return rc;
    char one_side[256], other_side[256];
    describe(&zero, 0, first, one_side, sizeof(one_side));
    describe(&other, (int)rank, first, other_side, sizeof(other_side));
    if (first == LIMITS)
        return rt_fail(DDP_EMISMATCH, "the ranks' ddp_model_opts differ: %s, %s", one_side,
                       other_side);
    return rt_fail(DDP_EMISMATCH, "the ranks' models differ at tensor %" PRId64 ": %s, %s", first,
                   one_side, other_side);
}

int model_agree(struct ddp_group *g, const struct model_description *mine)
{
    /* The smallest digest is the largest, too, if the smallest of the complements is the complement
     * of the smallest: one reduction tells everybody whether all agree. */
    int64_t digest = mine != NULL ? (int64_t)digest_of(mine) : 0;
    int64_t least[] = {mine != NULL ? INT64_MAX : g->rank, digest, ~digest};
    int rc = all_reduce_min(g, least, 3);
    if (rc != 0)
        return rc;
    if (least[0] != INT64_MAX)
        return rt_fail(DDP_EMISMATCH,
                       "rank %" PRId64 " could not make its model: its own message says why",
                       least[0]);
    if (least[1] == ~least[2])
        return 0;
    return explain(g, mine);
}
