/* sampler_verify.c - do the ranks together take each sample once?
 *
 * Every rank marks what it has taken in a map of one bit per sample; the union of the maps has as
 * many bits as samples were taken, except for those that are repeated on purpose. */
#include "common/error.h"
#include "common/hash.h"
#include "common/scope.h"
#include "sampler_priv.h"
#include "worker-runtime/core/collective.h"

#include <ddp/collective.h>
#include <errno.h>
#include <inttypes.h>

enum { WORD_BITS = 64, PIECE = 512 };

struct tally { /* sums over all ranks, once they have been exchanged */
    int64_t taken;
    int64_t distinct;
    uint64_t digest_all;
};

static size_t words_of(const struct ddp_sampler *s)
{
    return ((size_t)s->plan.n + WORD_BITS - 1) / WORD_BITS;
}

/* Mark all this rank took, made once more, and return its digest. */
static uint64_t mark_samples(const struct ddp_sampler *s, uint64_t *bits)
{
    uint64_t digest = CO_HASH_START;
    for (int64_t first = 0; first < s->taken; first += PIECE) {
        int64_t index[PIECE], left = s->taken - first, n = left < PIECE ? left : PIECE;
        sampler_plan_fill(&s->plan, s->perm, first, n, index);
        for (int64_t k = 0; k < n; k++) {
            digest = co_hash_word(digest, (uint64_t)index[k]);
            bits[index[k] / WORD_BITS] |= (uint64_t)1 << index[k] % WORD_BITS;
        }
    }
    return digest;
}

/* What only this rank can know. */
static int check_own(const struct ddp_sampler *s, uint64_t *bits, struct co_error *err)
{
    if (bits == NULL)
        return co_fail(err, -ENOMEM, "out of memory for a map of %" PRId64 " samples", s->plan.n);
    const uint64_t now = mark_samples(s, bits);
    if (now != s->digest)
        return co_fail(err, -EPROTO,
                       "the samples that were taken (digest %016" PRIx64
                       ") differ from those the sampler gives now (%016" PRIx64
                       "): check for writes beyond a buffer's end",
                       s->digest, now);
    return 0;
}

static int same_everywhere(struct ddp_group *g, int64_t taken)
{
    int64_t ends[] = {taken, -taken};
    int rc = ddp_all_reduce(g, ends, ends, 2, DDP_INT64, DDP_MIN, NULL);
    if (rc == 0 && ends[0] != -ends[1])
        rc = rt_fail(DDP_EMISMATCH,
                     "ddp_sampler_verify: the ranks are at different positions in the epoch: one "
                     "has taken %" PRId64 " samples, another %" PRId64,
                     ends[0], -ends[1]);
    return rc;
}

static int count_samples(struct ddp_sampler *s, uint64_t *bits, struct tally *ret)
{
    struct ddp_group *g = s->group;
    const size_t n = (size_t)g->world_size, words = words_of(s);
    int rc;
    co_autofree uint64_t *digests = collective_gather(g, &s->digest, sizeof s->digest, &rc);
    if (rc == 0)
        rc = ddp_all_reduce(g, bits, bits, words, DDP_UINT64, DDP_BOR, NULL);
    if (rc != 0)
        return rc;
    *ret = (struct tally){.taken = s->taken * s->plan.world_size, .digest_all = CO_HASH_START};
    for (size_t r = 0; r < n; r++)
        ret->digest_all = co_hash_word(ret->digest_all, digests[r]);
    for (size_t w = 0; w < words; w++)
        ret->distinct += __builtin_popcountll(bits[w]);
    return 0;
}

int ddp_sampler_verify(struct ddp_sampler *s, struct ddp_sampler_report *ret_report)
{
    if (s == NULL || ret_report == NULL)
        return rt_fail(DDP_EINVAL, "ddp_sampler_verify: sampler or ret_report is NULL");
    struct co_error err = {0};
    struct tally all = {0};
    co_autofree uint64_t *bits = calloc(words_of(s) + 1, sizeof *bits); /* + 1: never of size 0 */
    int rc = collective_agree(s->group, check_own(s, bits, &err), &err);
    if (rc == 0)
        rc = same_everywhere(s->group, s->taken);
    if (rc == 0)
        rc = count_samples(s, bits, &all);
    if (rc != 0)
        return rc;
    const int64_t expected = all.taken < s->plan.n ? all.taken : s->plan.n;
    if (all.distinct != expected)
        return rt_fail(DDP_EMISMATCH,
                       "ddp_sampler_verify: the ranks took %" PRId64
                       " different samples in %" PRId64 " draws, not %" PRId64
                       ": check that all ranks pass the same ddp_sampler_opts",
                       all.distinct, all.taken, expected);
    *ret_report = (struct ddp_sampler_report){.n_taken = all.taken,
                                              .n_distinct = all.distinct,
                                              .is_complete = s->taken == s->left,
                                              .digest = s->digest,
                                              .digest_all = all.digest_all};
    return DDP_OK;
}
