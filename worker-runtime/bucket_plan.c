#include "bucket_plan.h"

#include "common/error.h"
#include "common/scope.h"
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#define N_DTYPES (DDP_UINT64 + 1)
#define NONE     SIZE_MAX

/* While the tensors are walked buckets are numbered as they are opened. */
struct walk {
    size_t open[N_DTYPES];  /* the open bucket of each type, or NONE */
    size_t limit[N_DTYPES]; /* what closes it */
    size_t next_limit;
};

static int add_tensor(struct bucket_plan *p, struct walk *w, const struct bucket_tensor *t,
                      struct bucket_place *place)
{
    size_t *open = &w->open[t->dtype];
    if (*open == NONE) {
        *open = p->n_buckets++;
        p->bucket[*open] = (struct bucket){.dtype = t->dtype};
    }
    struct bucket *b = &p->bucket[*open];
    size_t padded;
    if (__builtin_add_overflow(b->bytes, BUCKET_ALIGN - 1, &padded))
        return -EINVAL;
    *place = (struct bucket_place){.bucket = *open, .offset = padded & ~(size_t)(BUCKET_ALIGN - 1)};
    if (__builtin_add_overflow(place->offset, t->bytes, &b->bytes))
        return -EINVAL;
    b->payload_bytes += t->bytes; /* never more than b->bytes */
    b->n_tensors++;
    if (b->payload_bytes >= w->limit[t->dtype]) {
        *open = NONE;
        w->limit[t->dtype] = w->next_limit;
    }
    return 0;
}

/* Number the buckets by their last tensors. Going back along the walk, from tensor 0 up, the first
 * sight of a bucket is its last tensor. */
static int order_by_last_tensor(struct bucket_plan *p)
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
    for (size_t i = 0; i < p->n_tensors; i++) {
        size_t opened_as = p->place[i].bucket;
        if (number[opened_as] == NONE) {
            number[opened_as] = --left;
            ordered[left] = p->bucket[opened_as];
        }
        p->place[i].bucket = number[opened_as];
    }
    free(p->bucket);
    p->bucket = ordered;
    return 0;
}

int bucket_plan_init(const struct bucket_tensor *tensors, size_t n_tensors, size_t first_limit,
                     size_t limit, struct bucket_plan *ret_plan, struct co_error *err)
{
    struct bucket_plan p __attribute__((cleanup(bucket_plan_fini))) = {.n_tensors = n_tensors};
    struct walk w = {.next_limit = limit > 0 ? limit : BUCKET_BYTES_DEFAULT};
    for (size_t d = 0; d < N_DTYPES; d++) {
        w.open[d] = NONE;
        w.limit[d] = first_limit > 0 ? first_limit : BUCKET_FIRST_DEFAULT;
    }
    /* calloc checks the product; one more than needed, since of none it may return NULL */
    p.place = calloc(n_tensors + 1, sizeof(*p.place));
    p.bucket = calloc(n_tensors + 1, sizeof(*p.bucket)); /* no more buckets than tensors */
    if (p.place == NULL || p.bucket == NULL)
        return co_fail(err, -ENOMEM, "no memory for the plan of %zu tensors", n_tensors);
    for (size_t i = n_tensors; i-- > 0;) {
        if ((unsigned)tensors[i].dtype >= N_DTYPES)
            return co_fail(err, -EINVAL, "tensor %zu has the unknown type %d", i,
                           (int)tensors[i].dtype);
        if (add_tensor(&p, &w, &tensors[i], &p.place[i]) < 0)
            return co_fail(err, -EINVAL, "with tensor %zu its bucket exceeds the address space", i);
    }
    if (order_by_last_tensor(&p) < 0)
        return co_fail(err, -ENOMEM, "no memory for the order of %zu buckets", p.n_buckets);
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
