/* recovery.c - what a rank keeps from one generation to the next.
 *
 * recovery_begin() compares how many steps each rank has completed: the most of them is the state
 * that counts. A model, a sampler or a sharded state that is made in the generation asks
 * recovery_find_giver() for a rank that has this state, and takes its part from there.
 * recovery_count_step() ends a step. Read recovery_begin() and recovery_find_giver() first. */
#include "recovery.h"

#include "common/clock.h"
#include "segments/control.h"
#include "worker-runtime/core/group.h"

#include <ddp/collective.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void recovery_init(struct recovery *r)
{
    *r = (struct recovery){0};
    r->memory_end = &r->memory;
    r->next_shards = &r->shards;
    r->next_model = &r->models;
}

void recovery_fini(struct recovery *r)
{
    while (r->shards != NULL) {
        struct recovery_shards *kept = r->shards;
        r->shards = kept->next;
        shards_fini(&kept->shards);
        free(kept);
    }
    while (r->models != NULL) {
        struct recovery_model *kept = r->models;
        r->models = kept->next;
        if (kept->left != NULL)
            kept->release(kept->left);
        free(kept);
    }
    free(r->copies.memory);
    peer_maps_fini(&r->again.peers);
    free(r->sampler);
    recovery_init(r);
}

static struct recovery *recovery_of(const struct ddp_group *g)
{
    return g->world->recovery;
}

bool recovery_is_due(const struct ddp_group *g)
{
    return recovery_of(g) != NULL && recovery_of(g)->most_done > 0;
}

bool recovery_sends(const struct ddp_group *g)
{
    return !recovery_is_due(g) || !recovery_of(g)->all_have;
}

int recovery_begin(struct ddp_group *world)
{
    struct recovery *r = recovery_of(world);
    r->most_done = 0;
    r->all_have = false;
    r->n_samplers = 0;
    r->next_shards = &r->shards;
    r->next_model = &r->models;
    r->memory = NULL; /* that of the generation before went with its world */
    r->memory_end = &r->memory;
    if (!r->again.may_follow ||
        world->world->generation == 0) /* all ranks have just been started */
        return 0;
    uint64_t most[3] = {r->n_done, r->is_torn, ~r->n_done};
    int rc = ddp_all_reduce(world, most, most, 3, DDP_UINT64, DDP_MAX, NULL);
    if (rc != 0)
        return rc;
    r->most_done = most[0];
    r->all_have = most[0] == ~most[2] && most[1] == 0;
    rank_status_begin(&world->world->line->progress, r->most_done);
    if (r->most_done == 0 && r->is_torn)
        return rt_fail(DDP_EPEER, "the ranks with the training state died before this rank "
                                  "received it: restart the job from a checkpoint");
    return 0;
}

int recovery_find_giver(struct ddp_group *g, int *ret_rank)
{
    struct recovery *r = recovery_of(g);
    *ret_rank = 0;
    if (!recovery_is_due(g) || r->all_have)
        return 0;
    int32_t first = recovery_has_state(r) ? ddp_rank(g) : INT32_MAX;
    if (!recovery_has_state(r)) { /* the state that arrives overwrites this rank's own */
        r->n_done = 0;
        r->is_torn = true;
    }
    int rc = ddp_all_reduce(g, &first, &first, 1, DDP_INT32, DDP_MIN, NULL);
    if (rc == 0 && first == INT32_MAX)
        rc = rt_fail(DDP_EUNSUPPORTED,
                     "none of the %d ranks of this group has the state of step %llu: the ranks "
                     "that had it died; restart the job from a checkpoint",
                     ddp_world_size(g), (unsigned long long)r->most_done);
    if (rc == 0)
        *ret_rank = first;
    return rc;
}

void recovery_count_step(struct ddp_group *g, uint64_t began_ns)
{
    const uint64_t now_ns = co_now_ns();
    struct world *w = g->world;
    struct recovery *r = group_is_world(g) ? w->recovery : NULL;
    if (r != NULL) {
        if (r->n_done < r->most_done) /* what it was given is its own now */
            r->n_done = r->most_done;
        r->n_done++;
        r->is_torn = false;
    }
    if (w->line != NULL)
        rank_status_step(&w->line->progress, now_ns, now_ns - began_ns);
    else if (w->step_fd >= 0)
        node_message_notify(w->step_fd, NODE_STEP, (unsigned)w->group.local_rank, 0);
    w->step_fd = -1; /* the first is enough */
}

uint64_t ddp_completed_steps(const struct ddp_group *g)
{
    const struct recovery *r = g != NULL ? recovery_of(g) : NULL;
    if (r == NULL)
        return 0;
    return r->n_done > r->most_done ? r->n_done : r->most_done;
}

/* --- samplers --------------------------------------------------------------------------------- */

int recovery_add_sampler(struct ddp_group *g, size_t *ret_number)
{
    struct recovery *r = recovery_of(g);
    *ret_number = 0;
    if (r == NULL)
        return 0;
    if (r->n_samplers == r->cap) {
        const size_t cap = r->cap > 0 ? 2 * r->cap : 4;
        struct recovery_sampler *more = realloc(r->sampler, cap * sizeof *more);
        if (more == NULL)
            return -ENOMEM;
        memset(more + r->cap, 0, (cap - r->cap) * sizeof *more);
        r->sampler = more;
        r->cap = cap;
    }
    *ret_number = r->n_samplers++;
    return 0;
}

static void set_place(struct recovery *r, size_t number, const struct recovery_place *place)
{
    r->sampler[number] =
        (struct recovery_sampler){.place = *place, .n_done = r->n_done, .is_known = true};
}

void recovery_mark(struct ddp_group *g, size_t number, const struct recovery_place *place)
{
    struct recovery *r = recovery_of(g);
    if (r == NULL)
        return;
    const struct recovery_sampler *s = &r->sampler[number];
    if (!s->is_known || s->n_done != r->n_done)
        set_place(r, number, place);
}

int recovery_take_place(struct ddp_group *g, int giver, size_t number, struct recovery_place *ret)
{
    struct recovery *r = recovery_of(g);
    *ret = (struct recovery_place){.epoch = -1};
    if (!recovery_is_due(g))
        return 0;
    if (r->sampler[number].is_known)
        *ret = r->sampler[number].place;
    int rc = ddp_broadcast_bytes(g, ret, sizeof *ret, giver);
    if (rc == 0)
        set_place(r, number, ret);
    return rc;
}

/* --- sharded state ---------------------------------------------------------------------------- */

int recovery_get_shards(struct ddp_group *g, struct recovery_shards **ret)
{
    struct recovery *r = recovery_of(g);
    *ret = NULL;
    if (r == NULL || !r->again.may_follow)
        return 0;
    if (*r->next_shards == NULL)
        *r->next_shards = calloc(1, sizeof **r->next_shards);
    if (*r->next_shards == NULL)
        return -ENOMEM;
    *ret = *r->next_shards;
    r->next_shards = &(*ret)->next;
    return 0;
}

/* --- models ----------------------------------------------------------------------------------- */

int recovery_get_model(struct ddp_group *g, struct recovery_model **ret)
{
    struct recovery *r = recovery_of(g);
    *ret = NULL;
    if (r == NULL || !r->again.may_follow)
        return 0;
    if (*r->next_model == NULL)
        *r->next_model = calloc(1, sizeof **r->next_model);
    if (*r->next_model == NULL)
        return -ENOMEM;
    *ret = *r->next_model;
    r->next_model = &(*ret)->next;
    return 0;
}
