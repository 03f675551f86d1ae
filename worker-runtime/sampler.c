/* sampler.c - torch's DistributedSampler, in batches.
 *
 * All memory is taken when the sampler is made, so that going on to the next epoch or batch cannot
 * fail. For the batches that is address space for all samples of a rank; pages of it are used as
 * far as the largest batch reaches. */
#include <ddp/sampler.h>

#include "common/error.h"
#include "group.h"
#include "randperm.h"
#include "sampler_plan.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

struct ddp_sampler {
    struct group_child child; /* first member */
    struct sampler_plan plan;
    int64_t seed, length;
    int64_t epoch, taken; /* taken: samples of this epoch that were given out */
    uint32_t *perm;       /* owned; NULL: no shuffling */
    int64_t *index;       /* owned; the current batch, from its start; room for `length` */
};

/* The batch buffer: mapped without a reservation, since most of it is never touched. NULL for an
 * empty one. */
static int map_index(int64_t length, int64_t **ret_index)
{
    *ret_index = NULL;
    if (length == 0)
        return 0;
    void *map = mmap(NULL, (size_t)length * sizeof(int64_t), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return -errno;
    *ret_index = map;
    return 0;
}

static void destroy_child(struct group_child *child)
{
    ddp_sampler_destroy((struct ddp_sampler *)child);
}

static int sampler_create(struct ddp_group *g, const struct ddp_sampler_opts *opts,
                          struct ddp_sampler **ret_sampler, struct co_error *err)
{
    if (opts->n < 0 || opts->n > (int64_t)SAMPLER_MAX_N)
        return co_fail(err, -EINVAL,
                       "a sampler takes 0 to %lld samples, not %lld: is ddp_sampler_opts.n set?",
                       (long long)SAMPLER_MAX_N, (long long)opts->n);
    struct ddp_sampler *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return co_fail(err, -ENOMEM, "no memory for a sampler");
    s->child.destroy = destroy_child;
    s->plan = (struct sampler_plan){
        .n = opts->n,
        .world_size = ddp_world_size(g),
        .rank = ddp_rank(g),
        .drop_last = opts->drop_last,
    };
    s->seed = opts->seed;
    s->length = sampler_plan_length(&s->plan);
    s->taken = s->length; /* before the first epoch there is nothing to take */
    s->epoch = -1;
    if (opts->shuffle && opts->n > 0)
        s->perm = malloc((size_t)opts->n * sizeof(*s->perm));
    if ((opts->shuffle && opts->n > 0 && s->perm == NULL) || map_index(s->length, &s->index) < 0) {
        ddp_sampler_destroy(s);
        return co_fail(err, -ENOMEM, "no memory for the order of %lld samples", (long long)opts->n);
    }
    group_adopt(g, &s->child);
    *ret_sampler = s;
    return 0;
}

int ddp_sampler_create(struct ddp_group *g, const struct ddp_sampler_opts *opts,
                       struct ddp_sampler **ret_sampler)
{
    if (g == NULL || opts == NULL || ret_sampler == NULL)
        return rt_fail(DDP_EINVAL, "ddp_sampler_create: group, opts and ret_sampler are needed");
    struct co_error err = {0};
    return rt_return(sampler_create(g, opts, ret_sampler, &err), &err);
}

void ddp_sampler_destroy(struct ddp_sampler *s)
{
    if (s == NULL)
        return;
    group_disown(&s->child);
    if (s->index != NULL)
        munmap(s->index, (size_t)s->length * sizeof(*s->index));
    free(s->perm);
    free(s);
}

void ddp_sampler_set_epoch(struct ddp_sampler *s, int64_t epoch)
{
    /* the sum wraps where torch's would be refused; only its low 32 bits are used */
    if (s->perm != NULL)
        randperm_fill(s->perm, (uint32_t)s->plan.n, (uint64_t)s->seed + (uint64_t)epoch);
    s->epoch = epoch;
    s->taken = 0;
}

bool ddp_sampler_next_epoch(struct ddp_sampler *s, int64_t n_epochs)
{
    if (s->epoch == INT64_MAX || s->epoch + 1 >= n_epochs)
        return false;
    ddp_sampler_set_epoch(s, s->epoch + 1);
    return true;
}

size_t ddp_sampler_next(struct ddp_sampler *s, size_t batch, const int64_t **ret_index)
{
    int64_t left = s->length - s->taken;
    int64_t count = batch < (size_t)left ? (int64_t)batch : left;
    sampler_plan_fill(&s->plan, s->perm, s->taken, count, s->index);
    s->taken += count;
    *ret_index = s->index;
    return (size_t)count;
}

int64_t ddp_sampler_epoch(const struct ddp_sampler *s)
{
    return s->epoch;
}

int64_t ddp_sampler_length(const struct ddp_sampler *s)
{
    return s->length;
}
