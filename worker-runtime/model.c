/* model.c - gradients averaged over the ranks, bucket by bucket; bucket_plan.h decides which tensor
 * goes where.
 *
 * A step, on each rank: gradients become ready in any order (what the user's memory holds is copied
 * into the bucket then, while it is in the cache), and buckets are averaged in the plan's order as
 * far as all before them are complete. ddp_model_sync() does the rest and copies averages back to
 * the user's memory; so gradients that the library did not allocate are as the backward pass left
 * them until the whole step has succeeded.
 *
 * Failures: a broken group (a peer died, ranks differ, a deadline passed) stays broken; ready and
 * sync return it from then on. A misuse of this rank (a gradient said ready twice) must not make
 * the other ranks wait: the step goes on, and sync tells of it when it is over. */
#include <ddp/model.h>

#include "bucket_plan.h"
#include "common/error.h"
#include "common/scope.h"
#include "group.h"
#include "model_agree.h"
#include <ddp/collective.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct model_bucket {
    uint8_t *memory;    /* of ddp_alloc() */
    size_t n_waiting;   /* gradients that are not ready in this step */
    bool is_handed_out; /* the user was given gradients in it: never freed */
};

struct bucket_set {
    struct bucket_set *next_kept;
    struct model_bucket at[]; /* in the order of the plan */
};

struct ddp_model {
    struct group_child child; /* first member */
    struct ddp_group *g;
    struct ddp_tensor *tensors; /* borrowed */
    struct bucket_plan plan;
    struct bucket_set *buckets; /* owned */
    bool *ready;                /* owned; per tensor, in this step */
    size_t next;                /* buckets before this one are averaged in this step */
    int failure;                /* status; 0: none */
    bool broken;                /* the failure is the group's, and stays */
    char failure_text[CO_ERROR_TEXT_BYTES];
};

static uint8_t *place_in_bucket(const struct ddp_model *m, size_t i)
{
    return m->buckets->at[m->plan.place[i].bucket].memory + m->plan.place[i].offset;
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

static int check_tensor(const struct ddp_tensor *t, size_t i)
{
    if (t->name == NULL || t->name[0] == '\0')
        return rt_fail(DDP_EINVAL, "tensor %zu has no name", i);
    if (t->dtype != DDP_FLOAT32 && t->dtype != DDP_FLOAT64)
        return rt_fail(DDP_EINVAL, "tensor %zu '%s' has type %d: float32 or float64 are needed", i,
                       t->name, (int)t->dtype);
    if (t->count > PTRDIFF_MAX / ddp_dtype_size(t->dtype))
        return rt_fail(DDP_EINVAL, "tensor %zu '%s' cannot have %zu elements", i, t->name,
                       t->count);
    if (t->param == NULL && t->count > 0)
        return rt_fail(DDP_EINVAL, "tensor %zu '%s' has no param", i, t->name);
    if ((uintptr_t)t->param % ddp_dtype_size(t->dtype) != 0)
        return rt_fail(DDP_EINVAL, "tensor %zu '%s': param (%p) is not aligned to its elements", i,
                       t->name, t->param);
    return 0;
}

static int plan_buckets(struct ddp_model *m, const struct model_description *d)
{
    struct co_error err = {0};
    if (d->tensors == NULL || d->n_tensors == 0)
        return rt_fail(DDP_EINVAL, "a model needs at least one tensor");
    co_autofree struct bucket_tensor *sizes = calloc(d->n_tensors, sizeof(*sizes));
    if (sizes == NULL)
        return rt_fail(DDP_ENOMEM, "no memory for %zu tensors", d->n_tensors);
    for (size_t i = 0; i < d->n_tensors; i++) {
        int rc = check_tensor(&d->tensors[i], i);
        if (rc != 0)
            return rc;
        sizes[i] = (struct bucket_tensor){bytes_of(&d->tensors[i]), d->tensors[i].dtype};
    }
    return rt_return(
        bucket_plan_init(sizes, d->n_tensors, d->first_limit, d->limit, &m->plan, &err), &err);
}

static int allocate_buckets(struct ddp_model *m)
{
    m->ready = calloc(m->plan.n_tensors, sizeof(*m->ready));
    m->buckets = calloc(1, sizeof(*m->buckets) + m->plan.n_buckets * sizeof(struct model_bucket));
    if (m->ready == NULL || m->buckets == NULL)
        return rt_fail(DDP_ENOMEM, "no memory for a model of %zu tensors", m->plan.n_tensors);
    for (size_t k = 0; k < m->plan.n_buckets; k++) {
        void *memory;
        int rc = ddp_alloc(m->g, m->plan.bucket[k].bytes, &memory);
        if (rc != 0)
            return rt_fail(rc, "gradient bucket %zu of %zu: %s", k + 1, m->plan.n_buckets,
                           ddp_last_error());
        m->buckets->at[k].memory = memory;
    }
    return 0;
}

static void begin_step(struct ddp_model *m)
{
    memset(m->ready, 0, m->plan.n_tensors * sizeof(*m->ready));
    for (size_t k = 0; k < m->plan.n_buckets; k++)
        m->buckets->at[k].n_waiting = m->plan.bucket[k].n_tensors;
    m->next = 0;
}

static void destroy_child(struct group_child *child)
{
    ddp_model_destroy((struct ddp_model *)child);
}

/* All that can fail on one rank alone; no other rank is asked. */
static int prepare(struct ddp_group *g, struct ddp_tensor *tensors,
                   const struct model_description *d, struct ddp_model **ret)
{
    struct ddp_model *m = calloc(1, sizeof(*m));
    if (m == NULL)
        return rt_fail(DDP_ENOMEM, "no memory for a model");
    m->child.destroy = destroy_child;
    m->g = g;
    m->tensors = tensors;
    int rc = plan_buckets(m, d);
    if (rc == 0)
        rc = allocate_buckets(m);
    if (rc != 0) {
        ddp_model_destroy(m);
        return rc;
    }
    begin_step(m);
    *ret = m;
    return 0;
}

static int broadcast_params(struct ddp_model *m)
{
    for (size_t i = 0; i < m->plan.n_tensors; i++) {
        struct ddp_tensor *t = &m->tensors[i];
        int rc = ddp_broadcast(m->g, t->param, t->param, t->count, t->dtype, 0, NULL);
        if (rc != 0)
            return rt_fail(rc, "parameters '%s' from rank 0: %s", t->name, ddp_last_error());
    }
    return 0;
}

static void hand_out_gradients(struct ddp_model *m)
{
    for (size_t i = 0; i < m->plan.n_tensors; i++) {
        struct model_bucket *b = &m->buckets->at[m->plan.place[i].bucket];
        if (m->tensors[i].grad != NULL)
            continue;
        m->tensors[i].grad = place_in_bucket(m, i);
        b->is_handed_out = true;
    }
}

static int model_create(struct ddp_group *g, struct ddp_tensor *tensors,
                        const struct model_description *d, struct ddp_model **ret_model)
{
    struct ddp_model *m = NULL;
    int rc = prepare(g, tensors, d, &m);
    if (rc != 0) {
        char text[CO_ERROR_TEXT_BYTES];
        snprintf(text, sizeof(text), "%s", ddp_last_error());
        model_agree(g, NULL); /* so that nobody waits; what it says is not this rank's reason */
        return rt_fail(rc, "%s", text);
    }
    rc = model_agree(g, d);
    if (rc == 0)
        rc = broadcast_params(m);
    if (rc != 0) {
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
    return model_create(g, tensors, &d, ret_model);
}

/* Memory that was handed out stays for the life of the process. The list keeps it in sight of leak
 * checkers: this is no leak. */
static void keep_for_ever(struct bucket_set *set)
{
    static struct bucket_set *_Atomic kept;
    set->next_kept = atomic_load(&kept);
    while (!atomic_compare_exchange_weak(&kept, &set->next_kept, set)) {
    }
}

static void free_buckets(struct ddp_model *m)
{
    bool any_handed_out = false;
    for (size_t k = 0; k < m->plan.n_buckets; k++) {
        if (m->buckets->at[k].is_handed_out)
            any_handed_out = true;
        else
            ddp_free(m->g, m->buckets->at[k].memory);
    }
    if (any_handed_out)
        keep_for_ever(m->buckets);
    else
        free(m->buckets);
}

void ddp_model_destroy(struct ddp_model *m)
{
    if (m == NULL)
        return;
    group_disown(&m->child);
    if (m->buckets != NULL)
        free_buckets(m);
    bucket_plan_fini(&m->plan);
    free(m->ready);
    free(m);
}

/* --- a step --------------------------------------------------------------------------------- */

/* Keep the first failure and its text; that of the group outlives and outranks a misuse. */
static int keep_failure(struct ddp_model *m, int status, bool is_the_groups)
{
    if (m->failure == 0 || (is_the_groups && !m->broken)) {
        m->failure = status;
        snprintf(m->failure_text, sizeof(m->failure_text), "%s", ddp_last_error());
    }
    m->broken |= is_the_groups;
    return status;
}

static int tell_failure(const struct ddp_model *m)
{
    return m->failure == 0 ? 0 : rt_fail(m->failure, "%s", m->failure_text);
}

static void mark_ready(struct ddp_model *m, size_t i)
{
    if (is_copied(m, i))
        memcpy(place_in_bucket(m, i), m->tensors[i].grad, bytes_of(&m->tensors[i]));
    m->ready[i] = true;
    m->buckets->at[m->plan.place[i].bucket].n_waiting--;
}

/* Average the complete buckets at the front. The gaps between gradients go along: they are 0. */
static int average_complete(struct ddp_model *m)
{
    for (; m->next < m->plan.n_buckets && m->buckets->at[m->next].n_waiting == 0; m->next++) {
        const struct bucket *plan = &m->plan.bucket[m->next];
        void *memory = m->buckets->at[m->next].memory;
        int rc = ddp_all_reduce(m->g, memory, memory, plan->bytes / ddp_dtype_size(plan->dtype),
                                plan->dtype, DDP_AVG, NULL);
        if (rc != 0) {
            rt_fail(rc, "average of gradient bucket %zu of %zu: %s", m->next + 1, m->plan.n_buckets,
                    ddp_last_error());
            return keep_failure(m, rc, true);
        }
    }
    return 0;
}

int ddp_model_ready(struct ddp_model *m, size_t i)
{
    if (m->broken)
        return tell_failure(m);
    if (i >= m->plan.n_tensors) {
        rt_fail(DDP_EINVAL, "ddp_model_ready: there is no gradient %zu, the model has %zu", i,
                m->plan.n_tensors);
        return keep_failure(m, DDP_EINVAL, false);
    }
    if (m->ready[i]) {
        rt_fail(DDP_EINVAL,
                "ddp_model_ready: gradient %zu '%s' was said to be ready before in this step", i,
                m->tensors[i].name);
        return keep_failure(m, DDP_EINVAL, false);
    }
    mark_ready(m, i);
    return average_complete(m);
}

static void copy_averages_back(struct ddp_model *m)
{
    for (size_t i = 0; i < m->plan.n_tensors; i++)
        if (is_copied(m, i))
            memcpy(m->tensors[i].grad, place_in_bucket(m, i), bytes_of(&m->tensors[i]));
}

int ddp_model_sync(struct ddp_model *m)
{
    for (size_t i = 0; !m->broken && i < m->plan.n_tensors; i++)
        if (!m->ready[i])
            mark_ready(m, i);
    if (m->broken || average_complete(m) != 0)
        return tell_failure(m);
    copy_averages_back(m);
    begin_step(m);
    int rc = tell_failure(m); /* a misuse of this step, which ends with it */
    m->failure = 0;
    if (rc == 0)
        group_count_step(m->g);
    return rc;
}
