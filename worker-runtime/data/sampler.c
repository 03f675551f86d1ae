/* sampler.c - torch's DistributedSampler, in batches.
 *
 * ddp_sampler_create() compares the samplers of all ranks, compare_terms(), and finds the place
 * from which to continue, take_place(). start_epoch() draws the order of an epoch, take_samples()
 * gives out the part of this rank. sampler_plan_fill() has the arithmetic.
 *
 * All memory is taken when the sampler is made, so that the step to the next epoch or batch cannot
 * fail. For the batches, and for a permutation of this rank's own, that is address space; pages of
 * it are used as far as they are written. */
#include "common/error.h"
#include "common/hash.h"
#include "common/scope.h"
#include "randperm.h"
#include "sampler_priv.h"
#include "shared_perm.h"
#include "worker-runtime/core/collective.h"

#include <ddp/collective.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

/* How long to wait for a rank that is drawing, only to record that this one is done: if it takes
 * longer, some pages stay until the last rank has gone. */
enum { GIVE_BACK_MS = 1000 };

/* --- places ----------------------------------------------------------------------------------- */

int64_t sampler_plan_length(const struct sampler_plan *p)
{
    int64_t left = p->n - p->base, whole = left / p->world_size;
    bool has_tail = left % p->world_size != 0;
    return has_tail && !p->drop_last ? whole + 1 : whole;
}

void sampler_plan_fill(const struct sampler_plan *p, const uint32_t *perm, int64_t first,
                       int64_t count, int64_t *ret_index)
{
    int64_t place = p->base + p->rank + first * p->world_size;
    for (int64_t k = 0; k < count; k++, place += p->world_size) {
        int64_t wrapped = place < p->n ? place : place % p->n; /* a division at the very end only */
        ret_index[k] = perm == NULL ? wrapped : (int64_t)perm[wrapped];
    }
}

/* --- making one ------------------------------------------------------------------------------- */

/* Space for count elements: mapped without a reservation, since most of it may never be touched.
 * NULL for none. */
static int map_room(int64_t count, size_t size, void **ret)
{
    *ret = NULL;
    if (count == 0)
        return 0;
    void *map = mmap(NULL, (size_t)count * size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return -errno;
    *ret = map;
    return 0;
}

static bool is_shuffled(const struct ddp_sampler *s)
{
    return s->shuffle && s->plan.n > 0;
}

struct recovery_place sampler_place(const struct ddp_sampler *s)
{
    return (struct recovery_place){.epoch = s->epoch,
                                   .base = s->plan.base,
                                   .taken = s->taken,
                                   .world_size = s->plan.world_size};
}

static void mark_place(struct ddp_sampler *s)
{
    const struct recovery_place here = s->is_read_ahead ? s->used : sampler_place(s);
    recovery_mark(s->group, s->number, s->returns ? &s->place : &here);
}

void sampler_use(struct ddp_sampler *s, const struct recovery_place *after)
{
    mark_place(s);
    s->used = *after;
}

void sampler_use_all(struct ddp_sampler *s)
{
    s->used = sampler_place(s);
}

/* The group ends, and with it the generation. */
static void destroy_child(struct group_child *child)
{
    struct ddp_sampler *s = (struct ddp_sampler *)child;
    mark_place(s);
    ddp_sampler_destroy(s);
}

co_define_auto(ddp_sampler, ddp_sampler_destroy);

/* What a rank can do for itself. */
static int make_sampler(struct ddp_group *g, const struct ddp_sampler_opts *opts,
                        struct ddp_sampler **ret_sampler, struct co_error *err)
{
    if (opts->n < 0 || opts->n > (int64_t)SAMPLER_MAX_N)
        return co_fail(err, -EINVAL,
                       "a sampler takes 0 to %lld samples, not %lld: is ddp_sampler_opts.n set?",
                       (long long)SAMPLER_MAX_N, (long long)opts->n);
    co_auto(ddp_sampler) s = calloc(1, sizeof(*s));
    if (s == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    s->child.destroy = destroy_child;
    s->group = g;
    s->plan = (struct sampler_plan){
        .n = opts->n,
        .world_size = ddp_world_size(g),
        .rank = ddp_rank(g),
        .drop_last = opts->drop_last,
    };
    s->shuffle = opts->shuffle;
    s->seed = opts->seed;
    s->length = sampler_plan_length(&s->plan);
    s->epoch = -1; /* and nothing left: before the first epoch there is nothing to take */
    s->digest = CO_HASH_START;
    if (recovery_add_sampler(g, &s->number) < 0 ||
        map_room(s->length, sizeof *s->index, (void **)&s->index) < 0 ||
        (is_shuffled(s) && map_room(s->plan.n, sizeof *s->own, (void **)&s->own) < 0))
        return co_fail(err, -ENOMEM, "out of memory for the order of %lld samples",
                       (long long)opts->n);
    *ret_sampler = co_take(&s);
    return 0;
}

/* What the ranks must have in common, as it travels. */
struct terms {
    int64_t n, seed, shuffle, drop_last;
};

static void describe_terms(const struct terms *t, char *text, size_t size)
{
    snprintf(text, size, "n %" PRId64 ", seed %" PRId64 "%s%s", t->n, t->seed,
             t->shuffle != 0 ? ", shuffle" : "", t->drop_last != 0 ? ", drop_last" : "");
}

/* All ranks find the same first difference, since all look at the same terms. */
static int compare_terms(struct ddp_group *g, const struct ddp_sampler *s)
{
    const struct terms own = {s->plan.n, s->seed, s->shuffle, s->plan.drop_last};
    const size_t n = (size_t)g->world_size;
    int rc;
    co_autofree struct terms *all = collective_gather(g, &own, sizeof own, &rc);
    for (size_t r = 1; rc == 0 && r < n; r++) {
        char first[96], other[96];
        if (memcmp(&all[0], &all[r], sizeof own) == 0)
            continue;
        describe_terms(&all[0], first, sizeof first);
        describe_terms(&all[r], other, sizeof other);
        rc = rt_fail(DDP_EMISMATCH,
                     "ddp_sampler_create: the ranks' options differ: rank 0 has %s, rank %zu has "
                     "%s; pass the same on all ranks",
                     first, r, other);
    }
    return rc;
}

/* In a generation after the first: where the others were. */
static int take_place(struct ddp_sampler *s)
{
    int giver;
    int rc = recovery_find_giver(s->group, &giver);
    if (rc == 0)
        rc = recovery_take_place(s->group, giver, s->number, &s->place);
    s->returns = rc == 0 && s->place.epoch >= 0;
    return rc;
}

int ddp_sampler_create(struct ddp_group *g, const struct ddp_sampler_opts *opts,
                       struct ddp_sampler **ret_sampler)
{
    if (g == NULL || opts == NULL || ret_sampler == NULL)
        return rt_fail(DDP_EINVAL, "ddp_sampler_create: group, opts or ret_sampler is NULL");
    struct co_error err = {0};
    co_auto(ddp_sampler) s = NULL;
    int code = make_sampler(g, opts, &s, &err);
    if (code != 0)
        co_fail_in(&err, "ddp_sampler_create");
    int rc = collective_agree(g, code, &err);
    if (rc == 0 && g->backend != NULL && (rc = compare_terms(g, s)) == 0 && is_shuffled(s))
        rc = shared_perm_create(g, (uint32_t)s->plan.n, &s->shared);
    if (rc == 0)
        rc = take_place(s);
    if (rc != 0)
        return rc;
    group_adopt(g, &s->child);
    *ret_sampler = co_take(&s);
    return 0;
}

static void unmap_room(void *at, size_t bytes)
{
    if (at != NULL)
        munmap(at, bytes);
}

void ddp_sampler_destroy(struct ddp_sampler *s)
{
    if (s == NULL)
        return;
    group_disown(&s->child);
    if (s->shared != NULL) {
        if (s->perm != NULL)
            shared_perm_give_back(s->shared, s->group->local_rank, GIVE_BACK_MS);
        shared_perm_destroy(s->shared);
    }
    unmap_room(s->own, (size_t)s->plan.n * sizeof *s->own);
    unmap_room(s->index, (size_t)s->length * sizeof *s->index);
    free(s);
}

/* The order of an epoch: the node's, else this rank's own. */
static void shuffle_epoch(struct ddp_sampler *s, uint64_t seed)
{
    if (s->shared != NULL)
        s->perm = shared_perm_take(s->shared, seed, s->group->local_rank, s->group->timeout_ms);
    if (s->shared != NULL && s->perm != NULL) {
        madvise(s->own, (size_t)s->plan.n * sizeof *s->own, MADV_DONTNEED);
        return;
    }
    randperm_fill(s->own, (uint32_t)s->plan.n, seed);
    s->perm = s->own;
}

static void start_epoch(struct ddp_sampler *s, int64_t epoch, int64_t consumed)
{
    /* the sum wraps where torch's would be refused; only its low 32 bits are used */
    if (is_shuffled(s))
        shuffle_epoch(s, (uint64_t)s->seed + (uint64_t)epoch);
    s->plan.base = consumed;
    s->left = sampler_plan_length(&s->plan);
    s->epoch = epoch;
    s->taken = 0;
    s->digest = CO_HASH_START;
}

/* Take `count` samples more; returns where they are. */
static const int64_t *take_samples(struct ddp_sampler *s, int64_t count)
{
    sampler_plan_fill(&s->plan, s->perm, s->taken, count, s->index);
    for (int64_t k = 0; k < count; k++)
        s->digest = co_hash_word(s->digest, (uint64_t)s->index[k]);
    s->taken += count;
    return s->index;
}

/* Exactly where the ranks were, if there are as many as before; else after everything that they
 * took. */
static void return_to(struct ddp_sampler *s, const struct recovery_place *p)
{
    const int64_t end = p->base + p->taken * p->world_size;
    if (p->world_size != s->plan.world_size) {
        start_epoch(s, p->epoch, end < s->plan.n ? end : s->plan.n);
        return;
    }
    start_epoch(s, p->epoch, p->base);
    take_samples(s, p->taken);
}

void ddp_sampler_set_epoch(struct ddp_sampler *s, int64_t epoch)
{
    if (s == NULL)
        return;
    const bool returns = s->returns && epoch == s->place.epoch;
    s->returns = false;
    s->is_resumed = false;
    if (returns)
        return_to(s, &s->place);
    else
        start_epoch(s, epoch, 0);
    sampler_use_all(s);
}

int ddp_sampler_resume(struct ddp_sampler *s, int64_t epoch, int64_t consumed)
{
    if (s == NULL)
        return rt_fail_null("ddp_sampler_resume", "sampler");
    if (consumed < 0 || consumed > s->plan.n)
        return rt_fail(
            DDP_EINVAL,
            "ddp_sampler_resume: a dataset of %lld samples cannot be resumed after sample %lld",
            (long long)s->plan.n, (long long)consumed);
    s->returns = false;
    s->is_resumed = true;
    start_epoch(s, epoch, consumed);
    sampler_use_all(s);
    return DDP_OK;
}

bool ddp_sampler_next_epoch(struct ddp_sampler *s, int64_t n_epochs)
{
    if (s == NULL)
        return false;
    if (s->is_resumed && s->epoch < n_epochs) { /* a loop over epochs is entered in its middle */
        s->is_resumed = false;
        return true;
    }
    if (s->epoch == INT64_MAX)
        return false;
    const int64_t next = s->returns ? s->place.epoch : s->epoch + 1;
    if (next >= n_epochs)
        return false;
    ddp_sampler_set_epoch(s, next);
    return true;
}

size_t ddp_sampler_next(struct ddp_sampler *s, size_t batch, const int64_t **ret_index)
{
    if (s == NULL || ret_index == NULL)
        return 0;
    int64_t left = s->left - s->taken;
    int64_t count = batch < (size_t)left ? (int64_t)batch : left;
    s->is_resumed = false;
    if (count > 0 && !s->is_read_ahead)
        mark_place(s);
    *ret_index = take_samples(s, count);
    return (size_t)count;
}

int64_t ddp_sampler_epoch(const struct ddp_sampler *s)
{
    return s != NULL ? s->epoch : -1;
}

int64_t ddp_sampler_length(const struct ddp_sampler *s)
{
    return s != NULL ? s->length : 0;
}

int64_t ddp_sampler_consumed(const struct ddp_sampler *s)
{
    if (s == NULL)
        return 0;
    const int64_t end = s->plan.base + s->taken * s->plan.world_size;
    return end < s->plan.n ? end : s->plan.n;
}

void ddp_shard_range(const struct ddp_group *g, int64_t n, int64_t *ret_first, int64_t *ret_end)
{
    if (g == NULL || ret_first == NULL || ret_end == NULL) {
        if (ret_first != NULL)
            *ret_first = 0;
        if (ret_end != NULL)
            *ret_end = 0;
        return;
    }
    const int64_t each = n / g->world_size, longer = n % g->world_size, rank = g->rank;
    *ret_first = rank * each + (rank < longer ? rank : longer);
    *ret_end = *ret_first + each + (rank < longer ? 1 : 0);
}
