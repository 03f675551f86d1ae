/* net_split.c - a group of some ranks of another, on several nodes.
 *
 * All ranks of the parent exchange their color, key, and where they will listen for the new group.
 * The members on each node form a group of their own by backend_cpu.c; a group with all members on
 * one node needs no more than that. Then all exchange whether it succeeded. */
#include "common/clock.h"
#include "common/scope.h"
#include "net.h"
#include "net_watch.h"
#include "worker-runtime/shm/backend_cpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct record { /* what a rank publishes */
    int32_t color, key, ok;
    uint16_t port[NET_N_CHANNELS];
    uint16_t padding_;
};

struct split {
    struct net *n;
    struct record mine, *all; /* `all`: by rank of the parent */
    int listener[NET_N_CHANNELS];
    unsigned *rank; /* members' ranks in the parent, in the order of the new group */
    unsigned n_members, place;
    struct backend *local; /* members of this node; NULL: one, or none */
    struct net_map map;
    struct net_member *member;
};

static int exchange(struct split *s, struct co_error *err)
{
    const struct collective what = {.kind = CALL_GROUP_SPLIT,
                                    .dtype = DDP_UINT8,
                                    .count = sizeof s->mine,
                                    .in = &s->mine,
                                    .out = s->all};
    int code = backend_run(&s->n->backend, &what, err);
    for (unsigned r = 0; code == 0 && r < s->n->map.n; r++)
        if (!s->all[r].ok)
            code = co_fail(err, -ENOMEM, "rank %u could not create its part of another group",
                           s->n->member[s->n->map.position_of[r]].rank);
    return code;
}

/* By color; insertion keeps the order of ranks where keys are equal. */
static void choose_members(struct split *s)
{
    const unsigned me = s->n->map.rank_at[s->n->map.position];
    for (unsigned r = 0; r < s->n->map.n; r++) {
        if (s->all[r].color != s->mine.color)
            continue;
        unsigned at = s->n_members++;
        for (; at > 0 && s->all[s->rank[at - 1]].key > s->all[r].key; at--)
            s->rank[at] = s->rank[at - 1];
        s->rank[at] = r;
    }
    while (s->rank[s->place] != me)
        s->place++;
}

/* Which of the members on its node a member is: as backend_cpu.c orders them, by key, then by their
 * order on the node. */
static uint32_t local_of(const struct split *s, unsigned rank)
{
    const struct net_map *m = &s->n->map;
    const unsigned position = m->position_of[rank], node = net_map_node_of(m, position);
    uint32_t before = 0;
    for (unsigned p = m->first[node]; p < m->first[node + 1]; p++) {
        const struct record *other = &s->all[m->rank_at[p]], *own = &s->all[rank];
        before += other->color == own->color &&
                  (other->key < own->key || (other->key == own->key && p < position));
    }
    return before;
}

static int make_map(struct split *s, struct co_error *err)
{
    const struct net_map *m = &s->n->map;
    co_autofree struct net_place *place = calloc(s->n_members, sizeof *place);
    s->member = calloc(s->n_members, sizeof *s->member);
    if (place == NULL || s->member == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    for (unsigned i = 0; i < s->n_members; i++)
        place[i] = (struct net_place){net_map_node_of(m, m->position_of[s->rank[i]]),
                                      local_of(s, s->rank[i])};
    int code = net_map_init(&s->map, place, s->n_members, s->place, err);
    for (unsigned p = 0; code == 0 && p < s->n_members; p++) {
        const unsigned rank = s->rank[s->map.rank_at[p]];
        s->member[p] = s->n->member[m->position_of[rank]];
        memcpy(s->member[p].port, s->all[rank].port, sizeof s->member[p].port);
    }
    return code;
}

static int make_backend(struct split *s, struct backend **ret, struct co_error *err)
{
    struct backend_net_opts opts = s->n->opts; /* the parent's */
    opts.local = s->local;
    opts.map = &s->map;
    opts.member = s->member;
    opts.listener = s->listener;
    opts.owns_watch = false;
    opts.world = &s->n->world->backend;
    opts.tuning = &s->n->tuning;
    opts.group = opts.group * 31u + s->n->n_splits * 1009u + (uint32_t)s->mine.color + 1;
    opts.deadline_ms = co_deadline_ms(opts.timeout_ms);
    opts.on_destroy = NULL;
    int code = net_create(&opts, s->n->backend.ops, ret, err);
    s->listener[NET_DATA] = s->listener[NET_MESSAGES] = -1;
    if (code == 0) {
        s->member = NULL;
        s->local = NULL;
    }
    return code;
}

static int form(struct split *s, struct backend **ret, struct co_error *err)
{
    choose_members(s);
    int code = make_map(s, err);
    if (code != 0)
        return code;
    if (s->map.n_nodes > 1)
        return make_backend(s, ret, err);
    if (s->local != NULL)
        backend_cpu_on_idle(s->local, net_on_idle, s->n->world);
    *ret = co_take(&s->local); /* NULL: a group of one */
    return 0;
}

/* A node that is out of memory for it reports that to the others afterwards. */
static int split_inside(struct split *s, int *ret_n_local, struct co_error *err)
{
    struct backend *local = s->n->local;
    int local_rank;
    int code = local->ops->split(local, s->mine.color, s->mine.key, &s->local, &local_rank,
                                 ret_n_local, err);
    if (code == -ENOMEM)
        s->mine.ok = 0;
    else if (code != 0)
        return net_fail(s->n, code, true, err);
    return 0;
}

static int split_net(struct split *s, struct backend **ret, struct co_error *err)
{
    struct backend *made = NULL;
    int n_local = 0;
    int code = exchange(s, err);
    if (code == 0 && s->n->local != NULL)
        code = split_inside(s, &n_local, err);
    if (code != 0)
        return code;
    if (s->local != NULL && n_local == 1) { /* no peer on this node */
        s->local->ops->destroy(s->local);
        s->local = NULL;
    }
    if (s->mine.color >= 0 && s->mine.ok)
        s->mine.ok = form(s, &made, err) == 0;
    code = exchange(s, err);
    if (code != 0 && made != NULL)
        made->ops->destroy(made);
    if (code == 0)
        *ret = made;
    return code;
}

int net_split(struct backend *b, int color, int key, struct backend **ret, int *ret_rank,
              int *ret_n, struct co_error *err)
{
    struct net *n = (struct net *)b;
    co_autofree struct record *all = calloc(n->map.n, sizeof *all);
    co_autofree unsigned *rank = calloc(n->map.n, sizeof *rank);
    struct split s = {.n = n,
                      .mine = {.color = color, .key = key, .ok = 1},
                      .all = all,
                      .listener = {-1, -1, -1},
                      .rank = rank};
    n->n_splits++;
    if (all == NULL || rank == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    const struct net_member *own = &n->member[n->map.position];
    for (int i = NET_DATA; color >= 0 && s.mine.ok && i < NET_N_CHANNELS; i++)
        s.mine.ok = net_member_listen(own, &s.mine.port[i], &s.listener[i], NULL) == 0;
    int code = split_net(&s, ret, err);
    if (code == 0 && color >= 0) {
        *ret_rank = (int)s.place;
        *ret_n = (int)s.n_members;
    }
    if (s.local != NULL)
        s.local->ops->destroy(s.local);
    for (int i = NET_DATA; i < NET_N_CHANNELS; i++)
        if (s.listener[i] >= 0)
            close(s.listener[i]);
    net_map_fini(&s.map);
    free(s.member);
    return code;
}
