/* loader.c - a ring of batches: the caller asks for them ahead of time, a thread reads them.
 *
 *     free -> asked (indices are there) -> ready (data are there, or an error) -> lent -> free
 *
 * The sampler belongs to the caller's thread: it alone takes indices. The mutex guards the counters
 * from which the owner of each batch follows; the contents of a batch belong to its owner.
 *
 * On the way to a GPU the thread reads into a place of the feed and sends it at once, so that
 * copies continue while the program computes; only the program's stream waits for a copy. A slot is
 * free for the thread when its last copy is done, and for the copy when the stream has used it.
 *
 * Read ddp_loader_next() and read_batches() first. */
#include "common/clock.h"
#include "common/error.h"
#include "data_format.h"
#include "sampler_priv.h"
#include "worker-runtime/core/process.h"
#include "worker-runtime/device/device.h"
#include "worker-runtime/device/device_link.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    DEFAULT_DEPTH = 2,
    MAX_DEPTH = 64,
    ALIGNMENT = 64,
    SPAN_ALIGNMENT = 256,      /* of a data set's samples in a place: that of cudaMalloc() */
    COPY_LOOK_NS = 100 * 1000, /* between two looks at a copy that is not done, */
    JOB_LOOK_NS = 1000 * 1000, /* and at the job */
    NS_PER_S = 1000 * 1000 * 1000,
};

struct slot {
    struct ddp_batch batch;                /* as it is lent */
    void *memory[DDP_LOADER_MAX_DATASETS]; /* where files are read to: owned, or the feed's */
    int64_t *index;                        /* owned; has space for a batch */
    int64_t epoch, consumed;
    struct recovery_place after; /* position of the sampler after it */
    int code;                    /* of the reading */
    struct co_error err;
};

/* The way of batches to the GPU: places of pinned memory that the thread reads files into, each
 * with its place on the GPU, which the program's stream uses. Two threads use a feed: the loader's
 * own writes and sends places, the program's takes and gives them back; a place is one thread's at
 * a time. */
struct feed {
    const struct device_plugin *plugin;
    struct device *device;
    struct device_feed *places; /* one for each slot; NULL: batches stay on the CPU */
};

struct ddp_loader {
    struct group_child child; /* first member */
    struct ddp_sampler *sampler;
    struct ddp_loader_opts opts;
    struct slot *slots; /* n_slots, owned; used in turn */
    unsigned n_slots;
    struct feed feed;

    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* guards: */
    pthread_cond_t moved; /* one of these has changed */
    uint64_t n_asked, n_read;
    bool is_ending;

    uint64_t n_taken; /* the caller's, as all that follows: batches that were lent; the last still
                         is, if: */
    bool is_lent;
    int64_t epoch, consumed;
    int code; /* what broke it; 0: nothing */
    struct co_error err;
};

/* --- the thread ------------------------------------------------------------------------------- */

static struct slot *slot_of(struct ddp_loader *l, uint64_t number)
{
    return &l->slots[number % l->n_slots];
}

static bool has_feed(const struct ddp_loader *l)
{
    return l->feed.places != NULL;
}

static unsigned place_of(const struct ddp_loader *l, const struct slot *s)
{
    return (unsigned)(s - l->slots);
}

/* Where each data set's samples lie in a place: the next one after the space for a whole batch. */
static size_t span_bytes(const struct ddp_loader *l, size_t i)
{
    const size_t bytes = l->opts.batch * ddp_dataset_sample_bytes(l->opts.datasets[i]);
    return (bytes + SPAN_ALIGNMENT - 1) / SPAN_ALIGNMENT * SPAN_ALIGNMENT;
}

static void send_batch(struct ddp_loader *l, struct slot *s)
{
    struct device_span span[DDP_LOADER_MAX_DATASETS];
    size_t at = 0;
    for (size_t i = 0; i < l->opts.n_datasets; i++) {
        span[i] =
            (struct device_span){at, s->batch.n * ddp_dataset_sample_bytes(l->opts.datasets[i])};
        at += span_bytes(l, i);
    }
    s->code = l->feed.plugin->h2d_copy_send(l->feed.places, place_of(l, s), span,
                                            l->opts.n_datasets, &s->err);
}

/* Until something has moved, or so long. With the mutex held. */
static void wait_a_while(struct ddp_loader *l, long ns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ns;
    until.tv_sec += until.tv_nsec / NS_PER_S;
    until.tv_nsec %= NS_PER_S;
    pthread_cond_clockwait(&l->moved, &l->lock, CLOCK_MONOTONIC, &until);
}

/* Until the last copy out of the slot's memory is done. CUDA could wait for it, but not be
 * interrupted by the loader's end. With the mutex held, which is given back meanwhile.
 *
 * returns   false: the loader ends */
static bool wait_for_copy(struct ddp_loader *l, struct slot *s)
{
    s->code = 0;
    while (!l->is_ending && has_feed(l)) {
        const int code = l->feed.plugin->h2d_copy_sent(l->feed.places, place_of(l, s), &s->err);
        s->code = code < 0 ? code : 0;
        if (code != 0)
            break;
        wait_a_while(l, COPY_LOOK_NS);
    }
    return !l->is_ending;
}

static void *read_batches(void *arg)
{
    struct ddp_loader *l = arg;
    pthread_mutex_lock(&l->lock);
    while (!l->is_ending) {
        if (l->n_read == l->n_asked) {
            pthread_cond_wait(&l->moved, &l->lock);
            continue;
        }
        struct slot *s = slot_of(l, l->n_read);
        if (!wait_for_copy(l, s))
            break;
        pthread_mutex_unlock(&l->lock);
        for (size_t i = 0; i < l->opts.n_datasets && s->code == 0; i++)
            s->code =
                dataset_read(l->opts.datasets[i], s->index, s->batch.n, s->memory[i], &s->err);
        if (s->code == 0 && has_feed(l))
            send_batch(l, s);
        pthread_mutex_lock(&l->lock);
        l->n_read++;
        pthread_cond_broadcast(&l->moved);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static void stop_thread(struct ddp_loader *l)
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

/* Wait until the thread has read `number` batches. It may have to wait for the program's stream,
 * and that for a peer: whether there is still one to wait for is asked here, by the thread whose
 * calls may break the job.
 *
 * returns   0; of a stream's wait that was ended -errno, and the text is l->err */
static int wait_for(struct ddp_loader *l, uint64_t number)
{
    const uint64_t deadline_ms = co_deadline_ms(l->sampler->group->timeout_ms);
    int code = 0;
    pthread_mutex_lock(&l->lock);
    while (l->n_read < number && code == 0) {
        if (!has_feed(l)) {
            pthread_cond_wait(&l->moved, &l->lock);
            continue;
        }
        wait_a_while(l, JOB_LOOK_NS);
        pthread_mutex_unlock(&l->lock);
        code =
            device_look(l->sampler->group, l->opts.stream, co_left_ms(deadline_ms) == 0, &l->err);
        pthread_mutex_lock(&l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return code;
}

/* --- making it -------------------------------------------------------------------------------- */

static int check_opts(const struct ddp_sampler *s, const struct ddp_loader_opts *o,
                      struct co_error *err)
{
    if (o->n_datasets == 0 || o->n_datasets > DDP_LOADER_MAX_DATASETS)
        return co_fail(err, -EINVAL, "a loader takes 1 to %d datasets, not %zu",
                       DDP_LOADER_MAX_DATASETS, o->n_datasets);
    if (o->batch == 0 || o->depth > MAX_DEPTH)
        return co_fail(err, -EINVAL,
                       "invalid batch size %zu or number of batches ahead %u: expected 1 to %d",
                       o->batch, o->depth, MAX_DEPTH);
    for (size_t i = 0; i < o->n_datasets; i++) {
        if (o->datasets[i] == NULL)
            return co_fail(err, -EINVAL, "dataset %zu is NULL", i);
        if (ddp_dataset_count(o->datasets[i]) != s->plan.n)
            return co_fail(err, -EINVAL,
                           "dataset %zu has %" PRId64 " samples, the sampler %" PRId64, i,
                           ddp_dataset_count(o->datasets[i]), s->plan.n);
    }
    return 0;
}

/* Bytes of a whole batch: data sets one after the other. returns -ENOMEM: more than possible */
static int count_bytes(const struct ddp_loader *l, size_t *ret)
{
    size_t bytes, all = 0;
    for (size_t i = 0; i < l->opts.n_datasets; i++) {
        if (__builtin_mul_overflow(l->opts.batch, ddp_dataset_sample_bytes(l->opts.datasets[i]),
                                   &bytes) ||
            bytes > PTRDIFF_MAX - SPAN_ALIGNMENT ||
            __builtin_add_overflow(all, span_bytes(l, i), &all) || all > PTRDIFF_MAX)
            return -ENOMEM;
    }
    *ret = all;
    return 0;
}

static int make_memory(const struct ddp_loader *l, struct slot *s)
{
    for (size_t i = 0; i < l->opts.n_datasets; i++) {
        s->batch.data[i] = s->memory[i] = aligned_alloc(ALIGNMENT, span_bytes(l, i));
        if (s->memory[i] == NULL)
            return -ENOMEM;
    }
    return 0;
}

static void lay_out(const struct ddp_loader *l, struct slot *s)
{
    void *host, *gpu;
    size_t at = 0;
    l->feed.plugin->h2d_copy_place(l->feed.places, place_of(l, s), &host, &gpu);
    for (size_t i = 0; i < l->opts.n_datasets; i++) {
        s->memory[i] = (char *)host + at;
        s->batch.data[i] = (char *)gpu + at;
        at += span_bytes(l, i);
    }
}

/* Of a GPU that is lost to this process, or that a fork did not inherit, nothing can be freed, nor
 * where something on the stream does not end. */
static void close_feed(struct ddp_loader *l)
{
    struct co_error err = {0};
    struct feed *f = &l->feed;
    if (has_feed(l) && !process_is_forked() &&
        device_end_waits(l->sampler->group, l->opts.stream) &&
        f->plugin->check(f->device, &err) == 0)
        f->plugin->h2d_copy_close(f->places);
}

/* The memory of all slots. err is filled if there is a reason other than CPU memory. */
static int make_slots(struct ddp_loader *l, struct co_error *err)
{
    size_t bytes = 0;
    struct feed *f = &l->feed;
    l->slots = calloc(l->n_slots, sizeof *l->slots);
    int code = l->slots != NULL ? count_bytes(l, &bytes) : -ENOMEM;
    const bool is_on_gpu = l->opts.stream != NULL;
    for (unsigned i = 0; i < l->n_slots && code == 0; i++) {
        struct slot *s = &l->slots[i];
        s->batch.index = s->index = calloc(l->opts.batch, sizeof *s->index);
        code = s->index != NULL ? 0 : -ENOMEM;
    }
    for (unsigned i = 0; !is_on_gpu && i < l->n_slots && code == 0; i++)
        code = make_memory(l, &l->slots[i]);
    if (is_on_gpu && code == 0)
        code = device_take(l->sampler->group, &f->plugin, &f->device, err);
    if (is_on_gpu && code == 0)
        code = f->plugin->h2d_copy_open(f->device, l->n_slots, bytes, &f->places, err);
    for (unsigned i = 0; is_on_gpu && i < l->n_slots && code == 0; i++)
        lay_out(l, &l->slots[i]);
    return code;
}

static void destroy_loader(struct ddp_loader *l);

/* The group ends, and its samplers stay after what was used. */
static void destroy_child(struct group_child *child)
{
    destroy_loader((struct ddp_loader *)child);
}

static int make_loader(struct ddp_sampler *s, const struct ddp_loader_opts *opts,
                       struct ddp_loader **ret, struct co_error *err)
{
    int code = check_opts(s, opts, err);
    if (code != 0)
        return code;
    struct ddp_loader *l = calloc(1, sizeof *l);
    if (l == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    *ret = l;
    l->child.destroy = destroy_child;
    l->sampler = s;
    l->opts = *opts;
    if (l->opts.batch > (size_t)s->length) /* there is never more, so it gets no more memory */
        l->opts.batch = s->length > 0 ? (size_t)s->length : 1;
    l->epoch = ddp_sampler_epoch(s);
    l->consumed = ddp_sampler_consumed(s);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->moved, NULL);
    l->n_slots = (opts->depth > 0 ? opts->depth : DEFAULT_DEPTH) + 1; /* and the one that is lent */
    code = make_slots(l, err);
    if (code == 0) {
        code = process_start_thread(&l->thread, read_batches, l);
        l->has_thread = code == 0;
        return code == 0 ? 0
                         : co_fail(err, code, "cannot start a reader thread: %s", strerror(-code));
    }
    if (err->text[0] != '\0') {
        co_fail_in(err, "%u batches of %zu samples on a GPU", l->n_slots, l->opts.batch);
        return code;
    }
    return co_fail(
        err, code,
        "out of memory for %u batches of %zu samples: use smaller batches or fewer ahead",
        l->n_slots, l->opts.batch);
}

int ddp_loader_create(struct ddp_sampler *s, const struct ddp_loader_opts *opts,
                      struct ddp_loader **ret_loader)
{
    struct co_error err = {0};
    struct ddp_loader *l = NULL;
    if (s == NULL || opts == NULL || ret_loader == NULL)
        return rt_fail(DDP_EINVAL, "ddp_loader_create: sampler, opts or ret_loader is NULL");
    int code = make_loader(s, opts, &l, &err);
    if (code != 0) {
        destroy_loader(l);
        return rt_return_from("ddp_loader_create", code, &err);
    }
    sampler_use_all(s);
    s->is_read_ahead = true;
    group_adopt(s->group, &l->child);
    *ret_loader = l;
    return DDP_OK;
}

void ddp_loader_destroy(struct ddp_loader *l)
{
    if (l != NULL) {
        sampler_use(l->sampler, &l->sampler->used);
        l->sampler->is_read_ahead = false;
    }
    destroy_loader(l);
}

static void destroy_loader(struct ddp_loader *l)
{
    if (l == NULL)
        return;
    group_disown(&l->child);
    if (l->has_thread && process_is_forked()) /* a child has no such thread, which waits with it */
        return;
    stop_thread(l);
    for (unsigned i = 0; l->slots != NULL && i < l->n_slots; i++) {
        free(l->slots[i].index);
        for (size_t k = 0; l->opts.stream == NULL && k < l->opts.n_datasets; k++)
            free(l->slots[i].memory[k]);
    }
    close_feed(l);
    free(l->slots);
    pthread_cond_destroy(&l->moved);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* --- batches ---------------------------------------------------------------------------------- */

/* Put the next indices into a free slot. false: the epoch has no more. */
static bool ask_batch(struct ddp_loader *l)
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

static int fail_loader(struct ddp_loader *l, int code)
{
    l->code = code;
    return rt_return(l->code, &l->err);
}

/* The batch that is lent, if one is, goes back: before its slot is asked for again. */
static int take_back(struct ddp_loader *l)
{
    const bool was_lent = l->is_lent;
    l->is_lent = false;
    if (!was_lent || !has_feed(l))
        return 0;
    return l->feed.plugin->h2d_copy_give(l->feed.places, place_of(l, slot_of(l, l->n_taken - 1)),
                                         l->opts.stream, &l->err);
}

/* The slot's batch was read: hand it to the stream, where there is one. */
static int lend_batch(struct ddp_loader *l, const struct slot *s)
{
    if (s->code != 0)
        l->err = s->err;
    if (s->code != 0 || !has_feed(l))
        return s->code;
    return l->feed.plugin->h2d_copy_take(l->feed.places, place_of(l, s), l->opts.stream, &l->err);
}

int ddp_loader_next(struct ddp_loader *l, struct ddp_batch *ret_batch)
{
    if (l == NULL || ret_batch == NULL)
        return rt_fail(DDP_EINVAL, "ddp_loader_next: loader or ret_batch is NULL");
    if (process_is_forked())
        return rt_fail(DDP_EINVAL,
                       "ddp_loader_next: this process was forked from the one that joined");
    if (l->code != 0)
        return rt_return(l->code, &l->err);
    int code = take_back(l);
    if (code != 0)
        return fail_loader(l, code);
    /* n_asked is written by this thread alone */
    while (l->n_asked - l->n_taken < l->n_slots - 1)
        if (!ask_batch(l))
            break;
    if (l->n_asked == l->n_taken) {
        *ret_batch = (struct ddp_batch){0};
        return DDP_OK;
    }
    const struct slot *s = slot_of(l, l->n_taken);
    code = wait_for(l, l->n_taken + 1);
    if (code == 0)
        code = lend_batch(l, s);
    if (code != 0)
        return fail_loader(l, code);
    l->n_taken++;
    l->is_lent = true;
    sampler_use(l->sampler, &s->after);
    l->epoch = s->epoch;
    l->consumed = s->consumed;
    *ret_batch = s->batch;
    return DDP_OK;
}

void ddp_loader_reset(struct ddp_loader *l)
{
    if (l == NULL || process_is_forked()) /* what reads is not here */
        return;
    int code = take_back(l);
    if (code == 0)
        code = wait_for(l, l->n_asked);
    l->n_taken = l->n_asked;
    sampler_use_all(l->sampler);
    l->code = code; /* files are read again; if a GPU has failed the next call returns the error */
    l->epoch = ddp_sampler_epoch(l->sampler);
    l->consumed = ddp_sampler_consumed(l->sampler);
}

int64_t ddp_loader_consumed(const struct ddp_loader *l)
{
    if (l == NULL)
        return 0;
    /* of an epoch that was just begun nothing was read ahead yet */
    return l->epoch == ddp_sampler_epoch(l->sampler) ? l->consumed
                                                     : ddp_sampler_consumed(l->sampler);
}
