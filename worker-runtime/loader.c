/* loader.c - a ring of batches: the caller asks for them ahead of time, a thread reads them.
 *
 *     free -> asked (indices are there) -> ready (data are there, or an error) -> lent -> free
 *
 * The sampler belongs to the caller's thread: it alone takes indices. The mutex guards the counters
 * that say which batches are whose; what is in a batch belongs to whoever has it. */
#include "common/error.h"
#include "dataset.h"
#include "sampler_state.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_DEPTH = 2, MAX_DEPTH = 64, ALIGNMENT = 64 };

struct slot {
    struct ddp_batch batch; /* its index and data: owned */
    int64_t *index;         /* owned; room for a batch */
    int64_t epoch, consumed;
    struct recovery_place after; /* where the sampler stands behind it */
    int code;                    /* of the reading */
    struct co_error err;
};

struct ddp_loader {
    struct group_child child; /* first member */
    struct ddp_sampler *sampler;
    struct ddp_loader_opts opts;
    struct slot *slots; /* n_slots, owned; used in turn */
    unsigned n_slots;

    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* guards: */
    pthread_cond_t moved; /* one of these has changed */
    uint64_t n_asked, n_read;
    bool is_ending;

    uint64_t n_taken; /* the caller's, as all that follows: batches that were lent; the last still
                         is */
    int64_t epoch, consumed;
    int code; /* what broke it; 0: nothing */
    struct co_error err;
};

/* --- the thread ------------------------------------------------------------------------------- */

static struct slot *slot_of(struct ddp_loader *l, uint64_t number)
{
    return &l->slots[number % l->n_slots];
}

static void read_batch(const struct ddp_loader *l, struct slot *s)
{
    s->code = 0;
    for (size_t i = 0; i < l->opts.n_datasets && s->code == 0; i++)
        s->code =
            dataset_read(l->opts.datasets[i], s->index, s->batch.n, s->batch.data[i], &s->err);
}

static void *run(void *arg)
{
    struct ddp_loader *l = arg;
    pthread_mutex_lock(&l->lock);
    while (!l->is_ending) {
        if (l->n_read == l->n_asked) {
            pthread_cond_wait(&l->moved, &l->lock);
            continue;
        }
        struct slot *s = slot_of(l, l->n_read);
        pthread_mutex_unlock(&l->lock);
        read_batch(l, s);
        pthread_mutex_lock(&l->lock);
        l->n_read++;
        pthread_cond_broadcast(&l->moved);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* Signals are for the program's own threads. */
static int start(struct ddp_loader *l, struct co_error *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = pthread_create(&l->thread, NULL, run, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    l->has_thread = rc == 0;
    return rc == 0 ? 0 : co_fail(err, -rc, "cannot start a thread to read: %s", strerror(rc));
}

static void stop(struct ddp_loader *l)
{
    if (!l->has_thread)
        return;
    pthread_mutex_lock(&l->lock);
    l->is_ending = true;
    pthread_cond_broadcast(&l->moved);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL); /* it finishes the batch it is reading */
    l->has_thread = false;
}

/* Wait until the thread has read `number` batches. */
static void wait_for(struct ddp_loader *l, uint64_t number)
{
    pthread_mutex_lock(&l->lock);
    while (l->n_read < number)
        pthread_cond_wait(&l->moved, &l->lock);
    pthread_mutex_unlock(&l->lock);
}

/* --- making it -------------------------------------------------------------------------------- */

static int check(const struct ddp_sampler *s, const struct ddp_loader_opts *o, struct co_error *err)
{
    if (o->n_datasets == 0 || o->n_datasets > DDP_LOADER_MAX_DATASETS)
        return co_fail(err, -EINVAL, "a loader takes 1 to %d data sets, not %zu",
                       DDP_LOADER_MAX_DATASETS, o->n_datasets);
    if (o->batch == 0 || o->depth > MAX_DEPTH)
        return co_fail(err, -EINVAL, "a batch of %zu, %u of them ahead: at least 1, at most %d",
                       o->batch, o->depth, MAX_DEPTH);
    for (size_t i = 0; i < o->n_datasets; i++) {
        if (o->datasets[i] == NULL)
            return co_fail(err, -EINVAL, "data set %zu is NULL", i);
        if (ddp_dataset_count(o->datasets[i]) != s->plan.n)
            return co_fail(err, -EINVAL,
                           "data set %zu has %" PRId64 " samples, the sampler %" PRId64, i,
                           ddp_dataset_count(o->datasets[i]), s->plan.n);
    }
    return 0;
}

static int make_slot(const struct ddp_loader_opts *o, struct slot *s)
{
    size_t bytes;
    s->index = calloc(o->batch, sizeof *s->index);
    s->batch.index = s->index;
    if (s->index == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < o->n_datasets; i++) {
        if (__builtin_mul_overflow(o->batch, ddp_dataset_sample_bytes(o->datasets[i]), &bytes) ||
            bytes > PTRDIFF_MAX - ALIGNMENT)
            return -ENOMEM;
        bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        s->batch.data[i] = aligned_alloc(ALIGNMENT, bytes);
        if (s->batch.data[i] == NULL)
            return -ENOMEM;
    }
    return 0;
}

static void destroy(struct ddp_loader *l);

/* The group ends, and its samplers stay behind what was used. */
static void destroy_child(struct group_child *child)
{
    destroy((struct ddp_loader *)child);
}

static int make(struct ddp_sampler *s, const struct ddp_loader_opts *opts, struct ddp_loader **ret,
                struct co_error *err)
{
    int code = check(s, opts, err);
    if (code != 0)
        return code;
    struct ddp_loader *l = calloc(1, sizeof *l);
    if (l == NULL)
        return co_fail(err, -ENOMEM, "no memory for a loader");
    *ret = l;
    l->child.destroy = destroy_child;
    l->sampler = s;
    l->opts = *opts;
    if (l->opts.batch > (size_t)s->length) /* there is never more: no memory for it */
        l->opts.batch = s->length > 0 ? (size_t)s->length : 1;
    l->epoch = ddp_sampler_epoch(s);
    l->consumed = ddp_sampler_consumed(s);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->moved, NULL);
    l->n_slots = (opts->depth > 0 ? opts->depth : DEFAULT_DEPTH) + 1; /* and the one that is lent */
    l->slots = calloc(l->n_slots, sizeof *l->slots);
    code = l->slots == NULL ? -ENOMEM : 0;
    for (unsigned i = 0; i < l->n_slots && code == 0; i++)
        code = make_slot(&l->opts, &l->slots[i]);
    return code == 0 ? start(l, err)
                     : co_fail(err, code, "no memory for %u batches of %zu samples", l->n_slots,
                               l->opts.batch);
}

int ddp_loader_create(struct ddp_sampler *s, const struct ddp_loader_opts *opts,
                      struct ddp_loader **ret_loader)
{
    struct co_error err = {0};
    struct ddp_loader *l = NULL;
    if (s == NULL || opts == NULL || ret_loader == NULL)
        return rt_fail(DDP_EINVAL, "ddp_loader_create: sampler, opts and ret_loader are needed");
    int code = make(s, opts, &l, &err);
    if (code != 0) {
        destroy(l);
        return rt_return(code, &err);
    }
    sampler_read_ahead(s);
    group_adopt(s->group, &l->child);
    *ret_loader = l;
    return DDP_OK;
}

void ddp_loader_destroy(struct ddp_loader *l)
{
    if (l != NULL)
        sampler_end_read_ahead(l->sampler);
    destroy(l);
}

static void destroy(struct ddp_loader *l)
{
    if (l == NULL)
        return;
    group_disown(&l->child);
    stop(l);
    for (unsigned i = 0; l->slots != NULL && i < l->n_slots; i++) {
        free(l->slots[i].index);
        for (size_t k = 0; k < l->opts.n_datasets; k++)
            free(l->slots[i].batch.data[k]);
    }
    free(l->slots);
    pthread_cond_destroy(&l->moved);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* --- batches ---------------------------------------------------------------------------------- */

/* Put the next indices into a free slot. false: the epoch has no more. */
static bool ask(struct ddp_loader *l)
{
    struct slot *s = slot_of(l, l->n_asked);
    const int64_t *index;
    const size_t n = ddp_sampler_next(l->sampler, l->opts.batch, &index);
    if (n == 0)
        return false;
    memcpy(s->index, index, n * sizeof *index);
    s->batch.n = n;
    s->epoch = ddp_sampler_epoch(l->sampler);
    s->consumed = ddp_sampler_consumed(l->sampler);
    s->after = sampler_place(l->sampler);
    pthread_mutex_lock(&l->lock);
    l->n_asked++;
    pthread_cond_broadcast(&l->moved);
    pthread_mutex_unlock(&l->lock);
    return true;
}

int ddp_loader_next(struct ddp_loader *l, struct ddp_batch *ret_batch)
{
    if (l == NULL || ret_batch == NULL)
        return rt_fail(DDP_EINVAL, "ddp_loader_next: loader and ret_batch are needed");
    if (l->code != 0)
        return rt_return(l->code, &l->err);
    /* n_asked is written by this thread alone */
    while (l->n_asked - l->n_taken < l->n_slots - 1)
        if (!ask(l))
            break;
    if (l->n_asked == l->n_taken) {
        *ret_batch = (struct ddp_batch){0};
        return DDP_OK;
    }
    const struct slot *s = slot_of(l, l->n_taken);
    wait_for(l, l->n_taken + 1);
    if (s->code != 0) {
        l->code = s->code;
        l->err = s->err;
        return rt_return(l->code, &l->err);
    }
    l->n_taken++;
    sampler_use(l->sampler, &s->after);
    l->epoch = s->epoch;
    l->consumed = s->consumed;
    *ret_batch = s->batch;
    return DDP_OK;
}

void ddp_loader_reset(struct ddp_loader *l)
{
    wait_for(l, l->n_asked);
    l->n_taken = l->n_asked;
    sampler_use_all(l->sampler);
    l->code = 0;
    l->epoch = ddp_sampler_epoch(l->sampler);
    l->consumed = ddp_sampler_consumed(l->sampler);
}

int64_t ddp_loader_consumed(const struct ddp_loader *l)
{
    /* of an epoch that was just begun nothing was read ahead yet */
    return l->epoch == ddp_sampler_epoch(l->sampler) ? l->consumed
                                                     : ddp_sampler_consumed(l->sampler);
}
