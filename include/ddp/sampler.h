/* sampler.h - which samples of a data set this rank trains on, and in which order.
 *
 * Bit for bit the indices of torch.utils.data.DistributedSampler: the permutation is that of
 * torch.randperm(n) after manual_seed(seed + epoch); sample k of rank r is perm[(r + k * R) mod n],
 * R being the world size; every rank gets as many samples, the last ones repeating the first unless
 * drop_last. */
#ifndef DDP_SAMPLER_H
#define DDP_SAMPLER_H

#include <ddp/group.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ddp_sampler; /* opaque */

struct ddp_sampler_opts {
    int64_t n;      /* samples in the data set, 0 .. 2^32 - 1 */
    int64_t seed;   /* the same on all ranks */
    bool shuffle;   /* false: 0, 1, 2, ... in every epoch */
    bool drop_last; /* drop the tail instead of repeating the first samples */
};

/* Make a sampler whose position is before epoch 0. Collective: all ranks make the same one, and all
 * fail together. Allocates everything that it will ever need, so that later calls cannot fail, and
 * wait for another rank only until it has drawn a permutation:
 *   - if it shuffles, 4 bytes per sample of the data set on each node, whatever the number of its
 *     ranks: the permutation is in memory that they share. While some ranks are already in the next
 *     epoch there are two. Ranks that cannot share memory have one each
 *   - 8 bytes of address space per sample of this rank, of which pages are used as far as the
 *     largest batch reaches
 *
 * ret_sampler   belongs to the group, which destroys it at ddp_finalize()
 * returns       0; DDP_EINVAL (n out of bounds), DDP_ENOMEM, on all ranks if on one;
 *               DDP_EMISMATCH opts differ: the text has both sides, the group is whole;
 *               else as ddp_all_gather() */
int ddp_sampler_create(struct ddp_group *g, const struct ddp_sampler_opts *opts,
                       struct ddp_sampler **ret_sampler);
void ddp_sampler_destroy(
    struct ddp_sampler *s); /* before ddp_finalize(), if at all; NULL is fine */

/* Go to the next epoch: 0 on the first call, then 1, ...; reshuffles. Immediately after
 * ddp_sampler_resume() it stays in that epoch, so that a loop over epochs is entered in the middle.
 * returns   false when n_epochs are over */
bool ddp_sampler_next_epoch(struct ddp_sampler *s, int64_t n_epochs);

/* Go to the start of that epoch, as torch's set_epoch() does. Epochs may be negative, as there. */
void ddp_sampler_set_epoch(struct ddp_sampler *s, int64_t epoch);

/* Go to the middle of an epoch, where a training stood that is taken up again, by as many ranks as
 * there were or by others. What is left of the epoch comes next, whether ddp_sampler_next() or
 * ddp_sampler_next_epoch() is called first.
 *
 * consumed   what ddp_sampler_consumed() was there: so many samples, counted over all ranks, in the
 *            order of the epoch, were taken before. From there on the ranks take turns again, and
 *            the rest is dealt as a whole epoch is
 * returns    0, DDP_EINVAL (negative, or more than n) */
int ddp_sampler_resume(struct ddp_sampler *s, int64_t epoch, int64_t consumed);

/* Take up to `batch` further samples of this rank in this epoch.
 *
 * ret_index   that many indices, 0 .. n - 1; valid until the next call on this sampler
 * returns     how many: `batch`, fewer at the end of the epoch, then 0 */
size_t ddp_sampler_next(struct ddp_sampler *s, size_t batch, const int64_t **ret_index);

int64_t ddp_sampler_epoch(const struct ddp_sampler *s);  /* -1 before the first */
int64_t ddp_sampler_length(const struct ddp_sampler *s); /* samples of this rank per epoch */

/* How many samples of this epoch, counted over all ranks, have been taken when each rank has taken
 * as many as this one; at most n. With the epoch this is all a checkpoint needs. */
int64_t ddp_sampler_consumed(const struct ddp_sampler *s);

struct ddp_sampler_report {
    int64_t n_taken;     /* by all ranks in this epoch, since its start or ddp_sampler_resume() */
    int64_t n_distinct;  /* samples among them; the others repeat the first ones, at the end */
    bool is_complete;    /* all samples that were due in this epoch were taken (with drop_last: all
                            except the tail) */
    uint64_t digest;     /* hash of the indices that this rank took; in their order */
    uint64_t digest_all; /* of all ranks' digests, in rank order */
};

/* Look whether the ranks together take each sample once, as they should: compares what all of them
 * have taken in this epoch. Collective, at a point where all have taken equally many.
 *
 * ret_report   written only on success
 * cost         n / 8 bytes of memory, an all_reduce of them, and the indices made once more
 * returns      0
 *              DDP_EMISMATCH  two ranks took the same sample, or not as many: the text has numbers;
 *                             or what was taken is not what the sampler gives now. The group is
 *                             whole
 *              DDP_ENOMEM on all ranks if on one; else as ddp_all_reduce() */
int ddp_sampler_verify(struct ddp_sampler *s, struct ddp_sampler_report *ret_report);

/* Deal 0 .. n - 1 out in one stretch for each rank, in rank order; lengths differ by one at most,
 * the longer ones first. For what is read in order: files, test sets.
 *
 * n            0 or more
 * ret_first, ret_end   this rank's are first .. end - 1 */
void ddp_shard_range(const struct ddp_group *g, int64_t n, int64_t *ret_first, int64_t *ret_end);

#ifdef __cplusplus
}
#endif
#endif
