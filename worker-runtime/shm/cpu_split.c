/* cpu_split.c - a group of some ranks of another: who is in it, and where they meet.
 *
 * All ranks of the parent tell each other their color, key and block of memory; the members form
 * the group; then all tell each other whether that went well, so that nobody is left waiting in a
 * group that another could not make. */
#include "backend_cpu.h"
#include "common/error.h"
#include "cpu.h"
#include "group_memory.h"

#include <errno.h>
#include <stdlib.h>

struct record { /* what a rank says, 24 bytes */
    int32_t color, key;
    uint64_t offset;  /* of its block */
    uint32_t arrived; /* of its block's counter */
    int32_t ok;
};

struct split {
    struct cpu *c;
    struct record mine, *all; /* `all`: one per rank of the parent, owned */
    struct group_memory *memory;
    unsigned *rank; /* the members' ranks in the parent, in the order of the new group; owned */
    unsigned n;
};

static int exchange(struct split *s, struct co_error *err)
{
    struct collective what = {.kind = CALL_GROUP_SPLIT,
                              .dtype = DDP_UINT8,
                              .count = sizeof s->mine,
                              .in = &s->mine,
                              .out = s->all};
    int code = backend_run(&s->c->backend, &what, err);
    for (unsigned r = 0; code == 0 && r < s->c->n; r++)
        if (!s->all[r].ok)
            code = co_fail(err, -ENOMEM, "rank %u has no memory for another group", r);
    return code;
}

/* By color; insertion keeps the order of ranks where keys are equal. */
static void choose_members(struct split *s)
{
    for (unsigned r = 0; r < s->c->n; r++) {
        if (s->all[r].color != s->mine.color)
            continue;
        unsigned at = s->n++;
        for (; at > 0 && s->all[s->rank[at - 1]].key > s->all[r].key; at--)
            s->rank[at] = s->rank[at - 1];
        s->rank[at] = r;
    }
}

static uint32_t start_of(const struct split *s)
{
    uint32_t start = s->mine.arrived;
    for (unsigned i = 0; i < s->n; i++) {
        uint32_t arrived = s->all[s->rank[i]].arrived;
        if ((int32_t)(arrived - start) > 0)
            start = arrived;
    }
    return start;
}

static unsigned place_of(const struct split *s, unsigned rank)
{
    unsigned i = 0;
    while (i < s->n && s->rank[i] != rank)
        i++;
    return i;
}

/* A number for messages: it tells groups apart that exist at the same time, most likely. */
static uint32_t group_number(const struct split *s)
{
    uint32_t x = s->c->n_splits * 131u + (uint32_t)s->mine.color + 1;
    return 1 + x % 0x7ffe;
}

static int make_transport(const struct split *s, struct transport_shm **ret, struct co_error *err)
{
    const struct cpu *c = s->c;
    struct transport_shm_member *member = calloc(s->n, sizeof *member);
    if (member == NULL)
        return co_fail(err, -ENOMEM, "no memory for a group of %u ranks", s->n);
    for (unsigned i = 0; i < s->n; i++) {
        const unsigned r = s->rank[i];
        member[i] = group_memory_at(c->user[r], s->all[r].offset,
                                    transport_shm_member(c->shm, r)->local_rank);
    }
    struct transport_shm_opts opts = {.control = transport_shm_control(c->shm),
                                      .member = member,
                                      .n = s->n,
                                      .rank = place_of(s, c->rank),
                                      .start = start_of(s),
                                      .group = group_number(s),
                                      .spin = transport_shm_spins(c->shm),
                                      .timeout_ms = transport_shm_timeout_ms(c->shm),
                                      .names = transport_shm_names(c->shm)};
    int code = transport_shm_create(&opts, ret, err);
    free(member);
    return code;
}

static int make_backend(struct split *s, struct backend **ret, struct co_error *err)
{
    const struct cpu *c = s->c;
    struct transport_shm *shm = NULL;
    uint8_t **user = calloc(s->n, sizeof *user);
    int code = user != NULL ? make_transport(s, &shm, err)
                            : co_fail(err, -ENOMEM, "no memory for a group of %u ranks", s->n);
    for (unsigned i = 0; code == 0 && i < s->n; i++)
        user[i] = c->user[s->rank[i]];
    struct backend_cpu_opts opts = {.shm = shm,
                                    .own = c->own,
                                    .user = user,
                                    .kernels = c->kernels,
                                    .tunings = &c->tunings,
                                    .may_cma = c->may_cma,
                                    .pool = c->pool,
                                    .memory = s->memory};
    if (code == 0)
        code = backend_cpu_create(&opts, ret, err);
    if (code == 0)
        s->memory = NULL; /* handed over */
    else
        transport_shm_destroy(shm);
    free(user);
    return code;
}

static int split(struct split *s, struct backend **ret, struct co_error *err)
{
    struct backend *made = NULL;
    int code = exchange(s, err);
    if (code != 0)
        return code;
    if (s->mine.color >= 0) {
        choose_members(s);
        s->mine.ok = make_backend(s, &made, err) == 0;
    }
    code = exchange(s, err);
    if (code != 0 && made != NULL)
        made->ops->destroy(made);
    if (code == 0)
        *ret = made;
    return code;
}

int cpu_split(struct backend *b, int color, int key, struct backend **ret, int *ret_rank,
              int *ret_n, struct co_error *err)
{
    struct cpu *c = (struct cpu *)b;
    struct split s = {.c = c, .mine = {.color = color, .key = key, .ok = 1}};
    c->n_splits++;
    if (color >= 0 && group_memory_take(c->pool, &s.memory, err) != 0)
        s.mine.ok = 0;
    if (s.memory != NULL) {
        s.mine.offset = group_memory_offset(s.memory);
        s.mine.arrived = group_memory_arrived(s.memory);
    }
    s.all = calloc(c->n, sizeof *s.all);
    s.rank = calloc(c->n, sizeof *s.rank);
    int code = s.all != NULL && s.rank != NULL
                   ? split(&s, ret, err)
                   : co_fail(err, -ENOMEM, "no memory to split a group of %u ranks", c->n);
    if (code == 0 && color >= 0) {
        *ret_rank = (int)place_of(&s, c->rank);
        *ret_n = (int)s.n;
    }
    group_memory_give_back(s.memory, NULL);
    free(s.all);
    free(s.rank);
    return code;
}
