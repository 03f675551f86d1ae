/* bucket_plan.c - which gradient goes into which bucket, and which buckets of a step are complete.
 *
 * fill_plan() makes a plan in three walks: add_tensor() numbers the buckets as they are opened,
 * order_by_last_tensor() numbers them again in the order of averaging, lay_down() gives each
 * gradient its place in its bucket. */
#include "bucket_plan.h"

#include "common/error.h"
#include "common/scope.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define N_DTYPES (DDP_UINT64 + 1)
#define NONE     SIZE_MAX

/* While the tensors are walked buckets are numbered as they are opened. */
struct walk {
    const struct bucket_limits *limits;
    size_t open[N_DTYPES];   /* the open bucket of each type, or NONE */
    bool has_one[N_DTYPES];  /* its first one is closed */
    size_t filled[N_DTYPES]; /* the open one holds so many elements */
};

static size_t number_at(const size_t *order, size_t n, size_t k)
{
    return order != NULL ? order[k] : n - 1 - k;
}

static int add_tensor(struct bucket_plan *p, struct walk *w, const struct bucket_tensor *t,
                      struct bucket_place *place)
{
    size_t *open = &w->open[t->dtype];
    if (*open == NONE) {
        *open = p->n_buckets++;
        p->bucket[*open] = (struct bucket){.dtype = t->dtype};
        w->filled[t->dtype] = 0;
    }
    struct bucket *b = &p->bucket[*open];
    place->bucket = *open;
    if (__builtin_add_overflow(b->payload_bytes, t->bytes, &b->payload_bytes))
        return -EINVAL;
    w->filled[t->dtype] += t->bytes / ddp_dtype_size(t->dtype);
    b->n_tensors++;
    const struct bucket_limits *most = w->limits;
    const bool is_full =
        most->elements > 0
            ? w->filled[t->dtype] >= most->elements
            : b->payload_bytes >= (w->has_one[t->dtype] ? most->bytes : most->first_bytes);
    if (is_full) {
        *open = NONE;
        w->has_one[t->dtype] = true;
    }
    return 0;
}

/* Number the buckets by their last tensors. Going back along the walk, the first sight of a bucket
 * is its last tensor. */
static int order_by_last_tensor(struct bucket_plan *p, const size_t *order)
{
    co_autofree size_t *number = malloc((p->n_buckets + 1) * sizeof(*number));
    struct bucket *ordered = malloc((p->n_buckets + 1) * sizeof(*ordered));
    if (number == NULL || ordered == NULL) {
        free(ordered);
        return -ENOMEM;
    }
    for (size_t b = 0; b < p->n_buckets; b++)
        number[b] = NONE;
    size_t left = p->n_buckets;
    for (size_t k = p->n_tensors; k-- > 0;) {
        struct bucket_place *place = &p->place[number_at(order, p->n_tensors, k)];
        size_t opened_as = place->bucket;
        if (number[opened_as] == NONE) {
            number[opened_as] = --left;
            ordered[left] = p->bucket[opened_as];
        }
        place->bucket = number[opened_as];
    }
    free(p->bucket);
    p->bucket = ordered;
    return 0;
}

/* Give the tensor its place after those of lower numbers.
 *
 * last   the bucket of the tensor of this type before it, or NONE */
static int lay_down(struct bucket_plan *p, const struct bucket_tensor *t,
                    struct bucket_place *place, size_t *last)
{
    struct bucket *b = &p->bucket[place->bucket];
    if (t->bytes > 0) {
        b->n_runs += *last != place->bucket;
        *last = place->bucket;
    }
    place->run = b->n_runs > 0 ? b->n_runs - 1 : 0;
    size_t padded;
    if (__builtin_add_overflow(b->bytes, BUCKET_ALIGN - 1, &padded))
        return -EINVAL;
    place->offset = padded & ~(size_t)(BUCKET_ALIGN - 1);
    return __builtin_add_overflow(place->offset, t->bytes, &b->bytes) ? -EINVAL : 0;
}

/* It may have come from another process. */
static int check_order(const size_t *order, size_t n, struct co_error *err)
{
    if (order == NULL)
        return 0;
    co_autofree bool *seen = calloc(n + 1, sizeof(*seen));
    if (seen == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    for (size_t k = 0; k < n; k++)
        if (order[k] < n)
            seen[order[k]] = true;
    for (size_t i = 0; i < n; i++)
        if (!seen[i])
            return co_fail(err, -EINVAL, "the order of %zu tensors lacks tensor %zu", n, i);
    return 0;
}

static int fill_plan(struct bucket_plan *p, const struct bucket_tensor *tensors,
                     const size_t *order, struct walk *w, struct co_error *err)
{
    const size_t n = p->n_tensors;
    size_t last[N_DTYPES];
    for (size_t d = 0; d < N_DTYPES; d++)
        last[d] = NONE;
    for (size_t k = 0; k < n; k++) {
        const size_t i = number_at(order, n, k);
        if (add_tensor(p, w, &tensors[i], &p->place[i]) < 0)
            return co_fail(err, -EINVAL, "with tensor %zu its bucket exceeds the address space", i);
    }
    if (order_by_last_tensor(p, order) < 0)
        return co_fail(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++)
        if (lay_down(p, &tensors[i], &p->place[i], &last[tensors[i].dtype]) < 0)
            return co_fail(err, -EINVAL, "with tensor %zu its bucket exceeds the address space", i);
    return 0;
}

int bucket_plan_init(const struct bucket_tensor *tensors, size_t n_tensors, const size_t *order,
                     const struct bucket_limits *limits, struct bucket_plan *ret_plan,
                     struct co_error *err)
{
    struct bucket_plan p __attribute__((cleanup(bucket_plan_fini))) = {.n_tensors = n_tensors};
    struct walk w = {.limits = limits};
    for (size_t d = 0; d < N_DTYPES; d++)
        w.open[d] = NONE;
    /* calloc checks the product; one more than needed, since of none it may return NULL */
    p.place = calloc(n_tensors + 1, sizeof(*p.place));
    p.bucket = calloc(n_tensors + 1, sizeof(*p.bucket)); /* no more buckets than tensors */
    if (p.place == NULL || p.bucket == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < n_tensors; i++)
        if ((unsigned)tensors[i].dtype >= N_DTYPES)
            return co_fail(err, -EINVAL, "tensor %zu has the unknown type %d", i,
                           (int)tensors[i].dtype);
    int code = check_order(order, n_tensors, err);
    if (code == 0)
        code = fill_plan(&p, tensors, order, &w, err);
    if (code != 0)
        return code;
    *ret_plan = p;
    p = (struct bucket_plan){0}; /* handed over */
    return 0;
}

void bucket_plan_fini(struct bucket_plan *p)
{
    free(p->place);
    free(p->bucket);
    *p = (struct bucket_plan){0};
}

bool bucket_plan_same(const struct bucket_plan *a, const struct bucket_plan *b)
{
    if (a->n_tensors != b->n_tensors || a->n_buckets != b->n_buckets)
        return false;
    for (size_t i = 0; i < a->n_tensors; i++)
        if (a->place[i].bucket != b->place[i].bucket)
            return false;
    return true;
}

/* --- ready ------------------------------------------------------------------------------------ */

int bucket_ready_init(struct bucket_ready *r, const struct bucket_plan *plan)
{
    *r = (struct bucket_ready){.plan = plan};
    r->order = calloc(plan->n_tensors + 1, sizeof(*r->order));
    r->said = calloc(plan->n_tensors + 1, sizeof(*r->said));
    r->n_waiting = calloc(plan->n_buckets + 1, sizeof(*r->n_waiting));
    if (r->order == NULL || r->said == NULL || r->n_waiting == NULL) {
        bucket_ready_fini(r);
        return -ENOMEM;
    }
    bucket_ready_begin(r);
    return 0;
}

void bucket_ready_fini(struct bucket_ready *r)
{
    free(r->order);
    free(r->said);
    free(r->n_waiting);
    *r = (struct bucket_ready){0};
}

void bucket_ready_begin(struct bucket_ready *r)
{
    memset(r->said, 0, r->plan->n_tensors * sizeof(*r->said));
    for (size_t k = 0; k < r->plan->n_buckets; k++)
        r->n_waiting[k] = r->plan->bucket[k].n_tensors;
    r->n_said = 0;
}

bool bucket_ready_say(struct bucket_ready *r, size_t i)
{
    if (r->said[i])
        return false;
    r->said[i] = true;
    r->order[r->n_said++] = i;
    r->n_waiting[r->plan->place[i].bucket]--;
    return true;
}
