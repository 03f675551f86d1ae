#include "shards.h"

#include <errno.h>
#include <stdlib.h>

size_t shards_first(const struct shards_shape *s, int rank)
{
    const size_t lines = s->total / SHARDS_ALIGN, n = (size_t)s->n_ranks;
    const size_t first = (lines + n - 1) / n * SHARDS_ALIGN * (size_t)rank;
    return first < s->total ? first : s->total;
}

size_t shards_count(const struct shards_shape *s, int rank)
{
    return shards_first(s, rank + 1) - shards_first(s, rank);
}

size_t shards_bytes(const struct shards_shape *s, int rank)
{
    return shards_count(s, rank) * s->n_arrays * s->element_bytes;
}

static int shard_init(struct shard *s, const struct shards_shape *shape, int rank, int n_versions)
{
    const size_t bytes = shards_bytes(shape, rank);
    s->of_rank = rank;
    for (int i = 0; i < n_versions; i++) {
        s->at[i].memory = calloc(bytes > 0 ? bytes : 1, 1);
        if (s->at[i].memory == NULL)
            return -ENOMEM;
    }
    return 0;
}

int shards_init(struct shards *s, const struct shards_shape *shape, int n_versions, bool has_buddy)
{
    *s = (struct shards){.shape = *shape, .own.of_rank = -1, .buddy.of_rank = -1, .is_used = true};
    int code = shard_init(&s->own, shape, shape->rank, n_versions);
    if (code == 0 && has_buddy)
        code = shard_init(&s->buddy, shape, (shape->rank + shape->n_ranks - 1) % shape->n_ranks,
                          n_versions);
    s->own.at[0].is_valid = true;
    return code;
}

void shards_fini(struct shards *s)
{
    for (int i = 0; i < 2; i++) {
        free(s->own.at[i].memory);
        free(s->buddy.at[i].memory);
    }
    *s = (struct shards){.own.of_rank = -1, .buddy.of_rank = -1};
}

static size_t held_of(const struct shards *s, const struct shard *of)
{
    size_t n = 0;
    for (int i = 0; i < 2; i++)
        n += of->at[i].memory != NULL;
    return n > 0 ? n * shards_bytes(&s->shape, of->of_rank) : 0;
}

size_t shards_held_bytes(const struct shards *s)
{
    return held_of(s, &s->own) + held_of(s, &s->buddy);
}

struct shard_version *shard_find(struct shard *s, uint64_t step)
{
    for (int i = 0; i < 2; i++) {
        struct shard_version *v = &s->at[i];
        if (v->is_valid && v->first_step <= step && step <= v->last_step)
            return v;
    }
    return NULL;
}

struct shard_version *shard_next(struct shard *s, uint64_t step)
{
    struct shard_version *next = &s->at[0];
    if (s->at[1].memory == NULL)
        return next; /* written in place: valid all the time, or the job is lost anyway */
    if (shard_find(s, step) == next)
        next = &s->at[1];
    next->is_valid = false;
    return next;
}

void shard_done(struct shard_version *v, uint64_t step, uint64_t n_updates)
{
    v->first_step = v->last_step = step;
    v->n_updates = n_updates;
    v->is_valid = true;
}

void shard_keep(struct shard *s, uint64_t step)
{
    struct shard_version *v = shard_find(s, step);
    if (v != NULL)
        v->last_step = step + 1;
}
