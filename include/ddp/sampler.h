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

/* Make a sampler that stands before epoch 0. Not collective. Takes all memory it will ever need: 4
 * bytes per sample of the data set if it shuffles, and 8 bytes of address space per sample of this
 * rank, of which pages are used as far as the largest batch reaches. So going on cannot fail.
 *
 * ret_sampler   belongs to the group, which destroys it at ddp_finalize()
 * returns       0, DDP_EINVAL (n out of bounds), DDP_ENOMEM */
int ddp_sampler_create(struct ddp_group *g, const struct ddp_sampler_opts *opts,
                       struct ddp_sampler **ret_sampler);
void ddp_sampler_destroy(
    struct ddp_sampler *s); /* before ddp_finalize(), if at all; NULL is fine */

/* Go to the next epoch: 0 on the first call, then 1, ...; reshuffles.
 * returns   false when n_epochs are over */
bool ddp_sampler_next_epoch(struct ddp_sampler *s, int64_t n_epochs);

/* Go to the start of that epoch, as torch's set_epoch() does. Epochs may be negative, as there. */
void ddp_sampler_set_epoch(struct ddp_sampler *s, int64_t epoch);

/* Take up to `batch` further samples of this rank in this epoch.
 *
 * ret_index   that many indices, 0 .. n - 1; valid until the next call on this sampler
 * returns     how many: `batch`, fewer at the end of the epoch, then 0 */
size_t ddp_sampler_next(struct ddp_sampler *s, size_t batch, const int64_t **ret_index);

int64_t ddp_sampler_epoch(const struct ddp_sampler *s);  /* -1 before the first */
int64_t ddp_sampler_length(const struct ddp_sampler *s); /* samples of this rank per epoch */

#ifdef __cplusplus
}
#endif
#endif
