/* model.c - gradients averaged over the ranks, bucket by bucket; bucket_plan.h decides which tensor
 * goes where.
 *
 * A step, on each rank: gradients become ready in any order (what the user's memory holds is copied
 * into the bucket then, while it is in the cache), and buckets are averaged in the plan's order as far
 * as all before them are complete. ddp_model_sync() does the rest and copies averages back to the
 * user's memory; so gradients that the library did not allocate are as the backward pass left them
 * until the whole step has succeeded.
 *
 * Failures: a broken group (a peer died, ranks differ, a deadline passed) stays broken; ready and sync
 * return it from then on. A misuse of this rank (a gradient said ready twice) must not make the other
 * ranks wait: the step goes on, and sync tells of it when it is over. */
#include <ddp/model.h>

#include "backend.h"
#include "bucket_plan.h"
#include "common/error.h"
#include "common/scope.h"
#include "group.h"
#include "model_agree.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct model_bucket {
    uint8_t *memory;     /* of ddp_alloc() */
    size_t n_waiting;    /* gradients that are not ready in this step */
    bool holds_handouts; /* the user was given gradients in it: never freed */
};

struct ddp_model {
    struct group_child child; /* first member */
    struct ddp_group *g;
    struct ddp_tensor *tensors; /* borrowed */
    struct bucket_plan plan;
    struct model_bucket *bucket; /* owned; plan.n_buckets of them */
    bool *ready;                 /* owned; per tensor, in this step */
    size_t next;                 /* buckets before this one are averaged in this step */
    struct co_error failure;     /* code 0: none */
    bool broken;                 /* the failure is the group's, and stays */
};

static uint8_t *place_in_bucket(const struct ddp_model *m, size_t i)
{
    return m->bucket[m->plan.place[i].bucket].memory + m->plan.place[i].offset;
}

/* The gradient is in the user's memory. An average over one rank needs no copies. */
static bool is_copied(const struct ddp_model *m, size_t i)
{
    return m->tensors[i].grad != place_in_bucket(m, i) && m->g->world_size > 1;
}

static size_t bytes_of(const struct ddp_tensor *t)
{
    return t->count * ddp_dtype_size(t->dtype);
}

/* --- making and destroying ------------------------------------------------------------------ */

static int check_tensor(const struct ddp_tensor *t, size_t i, struct co_error *err)
{
    if (t->name == NULL || t->name[0] == '\0')
        return co_fail(err, -EINVAL, "tensor %zu has no name", i);
    if (t->dtype != DDP_FLOAT32 && t->dtype != DDP_FLOAT64)
        return co_fail(err, -EINVAL, "tensor %zu '%s' has type %d: float32 or float64 are needed",
                       i, t->name, (int)t->dtype);
    if (t->count > PTRDIFF_MAX / ddp_dtype_size(t->dtype))
        return co_fail(err, -EINVAL, "tensor %zu '%s' cannot have %zu elements", i, t->name,
                       t->count);
    if (t->param == NULL && t->count > 0)
        return co_fail(err, -EINVAL, "tensor %zu '%s' has no param", i, t->name);
    return 0;
}

static int plan_buckets(struct ddp_model *m, const struct model_description *d,
                        struct co_error *err)
{
    if (d->tensors == NULL || d->n_tensors == 0)
        return co_fail(err, -EINVAL, "a model needs at least one tensor");
    co_autofree struct bucket_tensor *sizes = calloc(d->n_tensors, sizeof(*sizes));
    if (sizes == NULL)
        return co_fail(err, -ENOMEM, "no memory for %zu tensors", d->n_tensors);
    for (size_t i = 0; i < d->n_tensors; i++) {
        int rc = check_tensor(&d->tensors[i], i, err);
        if (rc < 0)
            return rc;
        sizes[i] = (struct bucket_tensor){bytes_of(&d->tensors[i]), d->tensors[i].dtype};
    }
    int rc = bucket_plan_init(sizes, d->n_tensors, d->first_limit, d->limit, &m->plan, err);
    return rc == -EOVERFLOW ? -EINVAL : rc; /* counts of which no process has the memory */
}

static int allocate_buckets(struct ddp_model *m, struct co_error *err)
{
    struct backend *b = m->g->backend;
    m->ready = calloc(m->plan.n_tensors, sizeof(*m->ready));
    m->bucket = calloc(m->plan.n_buckets, sizeof(*m->bucket));
    if (m->ready == NULL || m->bucket == NULL)
        return co_fail(err, -ENOMEM, "no memory for a model of %zu tensors", m->plan.n_tensors);
    for (size_t k = 0; k < m->plan.n_buckets; k++) {
        size_t bytes = m->plan.bucket[k].bytes;
        void *memory;
        int rc = b->ops->alloc(b, bytes > 0 ? bytes : BUCKET_ALIGN, &memory, err);
        if (rc < 0)
            return co_fail_in(err, "gradient bucket %zu of %zu", k + 1, m->plan.n_buckets);
        m->bucket[k].memory = memory;
    }
    return 0;
}

static void begin_step(struct ddp_model *m)
{
    memset(m->ready, 0, m->plan.n_tensors * sizeof(*m->ready));
    for (size_t k = 0; k < m->plan.n_buckets; k++)
        m->bucket[k].n_waiting = m->plan.bucket[k].n_tensors;
    m->next = 0;
}

static void destroy_child(struct group_child *child)
{
    ddp_model_destroy((struct ddp_model *)child);
}

/* All that can fail on one rank alone; no other rank is asked. */
static int prepare(struct ddp_group *g, struct ddp_tensor *tensors,
                   const struct model_description *d, struct ddp_model **ret, struct co_error *err)
{
    struct ddp_model *m = calloc(1, sizeof(*m));
    if (m == NULL)
        return co_fail(err, -ENOMEM, "no memory for a model");
    m->child.destroy = destroy_child;
    m->g = g;
    m->tensors = tensors;
    int rc = plan_buckets(m, d, err);
    if (rc == 0)
        rc = allocate_buckets(m, err);
    if (rc < 0) {
        ddp_model_destroy(m);
        return rc;
    }
    begin_step(m);
    *ret = m;
    return 0;
}

static int broadcast_params(struct ddp_model *m, struct co_error *err)
{
    struct backend *b = m->g->backend;
    for (size_t i = 0; i < m->plan.n_tensors; i++) {
        struct ddp_tensor *t = &m->tensors[i];
        int rc = b->ops->broadcast(b, m->g->rank == 0 ? t->param : NULL, t->param, t->count,
                                   t->dtype, 0, NULL, err);
        if (rc < 0)
            return co_fail_in(err, "parameters '%s' from rank 0", t->name);
    }
    return 0;
}

static void hand_out_gradients(struct ddp_model *m)
{
    for (size_t i = 0; i < m->plan.n_tensors; i++) {
        if (m->tensors[i].grad != NULL)
            continue;
        m->tensors[i].grad = place_in_bucket(m, i);
        m->bucket[m->plan.place[i].bucket].holds_handouts = true;
    }
}

static int model_create(struct ddp_group *g, struct ddp_tensor *tensors,
                        const struct model_description *d, struct ddp_model **ret_model,
                        struct co_error *err)
{
    struct ddp_model *m = NULL;
    int rc = prepare(g, tensors, d, &m, err);
    if (rc < 0) {
        model_agree(g, NULL, NULL); /* so that nobody waits; this rank's own failure is told */
        return rc;
    }
    rc = model_agree(g, d, err);
    if (rc == 0)
        rc = broadcast_params(m, err);
    if (rc < 0) {
        ddp_model_destroy(m);
        return rc;
    }
    hand_out_gradients(m);
    group_adopt(g, &m->child);
    *ret_model = m;
    return 0;
}

int ddp_model_create(struct ddp_group *g, struct ddp_tensor *tensors, size_t n_tensors,
                     const struct ddp_model_opts *opts, struct ddp_model **ret_model)
{
    if (g == NULL || ret_model == NULL)
        return rt_fail(DDP_EINVAL, "ddp_model_create: group and ret_model are needed");
    size_t first_limit = opts != NULL ? opts->first_bucket_bytes : 0;
    size_t limit = opts != NULL ? opts->bucket_bytes : 0;
    struct model_description d = {
        .tensors = tensors,
        .n_tensors = n_tensors,
        .first_limit = first_limit > 0 ? first_limit : BUCKET_FIRST_DEFAULT,
        .limit = limit > 0 ? limit : BUCKET_BYTES_DEFAULT,
    };
    struct co_error err = {0};
    return rt_return(model_create(g, tensors, &d, ret_model, &err), &err);
}

void ddp_model_destroy(struct ddp_model *m)
{
    if (m == NULL)
        return;
    group_disown(&m->child);
    struct backend *b = m->g->backend;
    for (size_t k = 0; m->bucket != NULL && k < m->plan.n_buckets; k++)
        if (m->bucket[k].memory != NULL && !m->bucket[k].holds_handouts)
            b->ops->free(b, m->bucket[k].memory);
    bucket_plan_fini(&m->plan);
    free(m->bucket);
    free(m->ready);
    free(m);
}

/* --- a step --------------------------------------------------------------------------------- */

/* Keep the first failure; that of the group outlives and outranks a misuse. */
static void keep_failure(struct ddp_model *m, const struct co_error *err, bool is_the_groups)
{
    if (m->failure.code == 0 || (is_the_groups && !m->broken))
        m->failure = *err;
    m->broken |= is_the_groups;
}

static int misused(struct ddp_model *m, const struct co_error *err)
{
    keep_failure(m, err, false);
    return rt_return(err->code, err);
}

static void mark_ready(struct ddp_model *m, size_t i)
{
    if (is_copied(m, i))
        memcpy(place_in_bucket(m, i), m->tensors[i].grad, bytes_of(&m->tensors[i]));
    m->ready[i] = true;
    m->bucket[m->plan.place[i].bucket].n_waiting--;
}

/* Average the complete buckets at the front. The gaps between gradients go along: they hold zeros. */
static int average_complete(struct ddp_model *m)
{
    struct backend *b = m->g->backend;
    for (; m->next < m->plan.n_buckets && m->bucket[m->next].n_waiting == 0; m->next++) {
        const struct bucket *plan = &m->plan.bucket[m->next];
        void *memory = m->bucket[m->next].memory;
        struct co_error err = {0};
        int rc = b->ops->all_reduce(b, memory, memory, plan->bytes / ddp_dtype_size(plan->dtype),
                                    plan->dtype, DDP_AVG, NULL, &err);
        if (rc < 0) {
            co_fail_in(&err, "average of gradient bucket %zu of %zu", m->next + 1,
                       m->plan.n_buckets);
            keep_failure(m, &err, true);
            return rc;
        }
    }
    return 0;
}

int ddp_model_ready(struct ddp_model *m, size_t i)
{
    struct co_error err = {0};
    if (m->broken)
        return rt_return(m->failure.code, &m->failure);
    if (i >= m->plan.n_tensors) {
        co_fail(&err, -EINVAL, "ddp_model_ready: there is no gradient %zu, the model has %zu", i,
                m->plan.n_tensors);
        return misused(m, &err);
    }
    if (m->ready[i]) {
        co_fail(&err, -EINVAL,
                "ddp_model_ready: gradient %zu '%s' was said to be ready before in this step", i,
                m->tensors[i].name);
        return misused(m, &err);
    }
    mark_ready(m, i);
    return rt_return(average_complete(m), &m->failure);
}

int ddp_model_sync(struct ddp_model *m)
{
    if (!m->broken) {
        for (size_t i = 0; i < m->plan.n_tensors; i++)
            if (!m->ready[i])
                mark_ready(m, i);
        average_complete(m);
    }
    if (m->broken)
        return rt_return(m->failure.code, &m->failure);
    for (size_t i = 0; i < m->plan.n_tensors; i++)
        if (is_copied(m, i))
            memcpy(m->tensors[i].grad, place_in_bucket(m, i), bytes_of(&m->tensors[i]));
    begin_step(m);
    struct co_error misuse = m->failure;
    m->failure.code = 0;
    return rt_return(misuse.code, &misuse);
}
