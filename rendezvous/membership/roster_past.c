/* roster_past.c - to take another roster's place, and to know what to do when another one may have
 * taken ours. docs/design/etcd.md has the whole; here are the roster's few rules of it. */
#include "roster_priv.h"

#include "common/clock.h"
#include "common/error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* --- Taking over --- */

static bool is_before(const struct roster_before *b, uint32_t generation, uint32_t max_nodes)
{
    if (b->generation == MESSAGE_NO_GENERATION)
        return true;
    bool fits = b->generation < generation && b->n_nodes >= 1 && b->n_nodes <= max_nodes &&
                b->n_missing <= ROSTER_PAST_MISSING;
    for (uint32_t i = 0; fits && i < b->n_missing; i++)
        fits = b->missing[i] < b->n_nodes;
    return fits;
}

static int check_past(const struct roster *r, const struct roster_past *p, struct co_error *err)
{
    if (p->generation == MESSAGE_NO_GENERATION || p->n_nodes < 1 ||
        p->n_nodes > r->terms.max_nodes || p->world_size < p->n_nodes ||
        p->world_size > INT32_MAX || p->n_restarts > MESSAGE_MAX_RESTARTS ||
        p->n_excluded > ROSTER_PAST_EXCLUDED ||
        (r->terms.segment > 0 && p->n_nodes % r->terms.segment != 0) ||
        !is_before(&p->before, p->generation, r->terms.max_nodes))
        return co_fail(err, -EINVAL,
                       "cannot take over generation %" PRIu32 " of %" PRIu32 " ranks on %" PRIu32
                       " nodes (maximum %" PRIu32 ")",
                       p->generation, p->world_size, p->n_nodes, r->terms.max_nodes);
    return 0;
}

/* The roster does not wait for a node that has left for good. */
static uint64_t awaited_since_ms(const struct roster *r, uint64_t now_ms, bool is_gone)
{
    if (!is_gone)
        return now_ms;
    return now_ms > r->limits.absent_ms ? now_ms - r->limits.absent_ms : 0;
}

/* The list is in the order of time: nodes that are gone come first. */
static void admit_absents(struct roster *r, const struct roster_past *p, uint64_t now_ms)
{
    for (int wants_gone = 1; wants_gone >= 0; wants_gone--)
        for (uint32_t seat = 0; seat < p->n_nodes; seat++) {
            bool is_gone = p->gone >= 0 && seat == (uint32_t)p->gone;
            if (is_gone != (wants_gone == 1))
                continue;
            uint32_t slot = roster_admit_absent(r, seat, awaited_since_ms(r, now_ms, is_gone));
            r->seats[seat] = (struct roster_order_seat){.index = (int32_t)seat};
            if (seat == 0)
                r->leader = slot;
        }
}

static void exclude_again(struct roster *r, const struct roster_past *p)
{
    for (uint32_t i = 0; r->excluded != NULL && i < p->n_excluded; i++)
        r->excluded[r->n_excluded++ % ROSTER_MAX_EXCLUDED] = p->excluded[i];
}

/* Memory for its nodes is reserved. */
static void take_up(struct roster *r, const struct roster_past *p, uint64_t now_ms)
{
    admit_absents(r, p, now_ms);
    r->begun_ms = now_ms;
    r->deadline_ms = CO_NEVER_MS;
    r->generation = p->generation;
    r->confirmed = true;
    r->n_members = r->n_seats = p->n_nodes;
    r->world_size = p->world_size;
    r->before = p->before;
    snprintf(r->change, sizeof r->change,
             "generation %" PRIu32 " continues with another coordinator", p->generation);
}

int roster_resume(struct roster *r, const struct roster_past *past, uint64_t now_ms,
                  struct co_error *err)
{
    int rc = check_past(r, past, err);
    if (rc < 0)
        return rc;
    const uint32_t n_before = past->before.n_nodes;
    if (roster_reserve_slots(r, n_before > past->n_nodes ? n_before : past->n_nodes) < 0)
        return co_fail(err, -ENOMEM, "out of memory");
    take_up(r, past, now_ms);
    restart_policy_resume(&r->budget, past->n_restarts, now_ms);
    exclude_again(r, past);
    r->state = ROSTER_RUNNING;
    r->entered_ms = now_ms;
    return 0;
}

void roster_get_past(const struct roster *r, struct roster_past *ret)
{
    *ret = (struct roster_past){.generation = r->generation,
                                .n_nodes = r->n_seats,
                                .world_size = r->world_size,
                                .n_restarts = roster_n_restarts(r),
                                .gone = -1,
                                .before = r->before};
    const uint32_t n = r->n_excluded < ROSTER_PAST_EXCLUDED ? r->n_excluded : ROSTER_PAST_EXCLUDED;
    for (uint32_t at = r->n_excluded - n; at != r->n_excluded; at++)
        ret->excluded[ret->n_excluded++] = r->excluded[at % ROSTER_MAX_EXCLUDED];
}

/* --- A generation that only its members know --- */

void roster_note_past(struct roster *r, const struct message_was *was, uint64_t now_ms)
{
    if (!was->is_known || was->generation < r->next_generation ||
        (r->generation != MESSAGE_NO_GENERATION && was->generation <= r->generation))
        return;
    r->next_generation = was->generation + 1;
    if (was->place.n_restarts > roster_n_restarts(r))
        restart_policy_resume(&r->budget, was->place.n_restarts, now_ms);
}

/* As a roster gives them out: rank 0 is at the node that leads, and that is the first one. */
static bool is_a_place(const struct message_place *p)
{
    return p->leads == (p->node_index == 0) && p->leads == (p->first_rank == 0);
}

static struct roster_past past_of(const struct message_was *was)
{
    return (struct roster_past){.generation = was->generation,
                                .n_nodes = was->place.n_nodes,
                                .world_size = was->place.world_size,
                                .gone = -1,
                                .before = {.generation = MESSAGE_NO_GENERATION}};
}

/* A leader that has not opened the store has not published its address: nothing runs elsewhere, and
 * it is simpler to begin the next generation. */
bool roster_can_adopt(struct roster *r, const struct message_hello *hello, uint32_t max_absent)
{
    const struct message_was *was = &hello->was;
    const struct roster_past past = past_of(was);
    return was->is_known && is_a_place(&was->place) && was->place.port != 0 &&
           past.n_nodes >= r->terms.min_nodes && r->generation == MESSAGE_NO_GENERATION &&
           (r->state == ROSTER_GATHERING || r->state == ROSTER_OPEN) &&
           hello->terms.min_nodes == r->terms.min_nodes &&
           hello->terms.max_nodes == r->terms.max_nodes &&
           hello->terms.segment == r->terms.segment && past.n_nodes <= max_absent &&
           check_past(r, &past, NULL) == 0 &&
           roster_reserve_slots(r, r->n_slots + past.n_nodes) == 0;
}

/* A node that is already linked has joined as a new one, and waits like one that joins later. */
void roster_adopt(struct roster *r, const struct message_was *was, uint64_t now_ms)
{
    const struct roster_past past = past_of(was);
    r->has_adopted = true;
    r->join_waits = r->n_here > 0;
    take_up(r, &past, now_ms);
}

/* --- The absent --- */

uint32_t roster_absent_at(const struct roster *r, uint32_t node_index)
{
    uint32_t slot = r->lists[LIST_ABSENT].first;
    while (slot != ROSTER_NO_SLOT && r->nodes[slot].seat != (int32_t)node_index)
        slot = r->nodes[slot].next;
    return slot;
}

static uint32_t find_absent(const struct roster *r, const struct message_was *was)
{
    if (!was->is_known || was->generation != r->generation ||
        was->place.world_size != r->world_size || was->place.n_nodes != r->n_members)
        return ROSTER_NO_SLOT;
    return roster_absent_at(r, was->place.node_index);
}

/* Each node that has received its place knows where the store is. */
static void learn_store(struct roster *r, const struct message_place *place, bool leads,
                        uint64_t now_ms)
{
    if (place->port != 0 && !r->ready) {
        r->ready = true;
        r->agent_store = place->agent_store;
        r->relayed = place->relayed;
        r->port = place->port;
        snprintf(r->host, sizeof r->host, "%s", place->host);
        if (r->state == ROSTER_RUNNING)
            r->deadline_ms = CO_NEVER_MS;
    } else if (leads && !r->ready && r->state == ROSTER_RUNNING) {
        r->deadline_ms = now_ms + r->limits.ready_ms;
    }
}

int roster_embody(struct roster *r, const struct message_hello *hello, bool local, uint64_t now_ms,
                  uint32_t *ret_slot)
{
    const struct message_place *place = &hello->was.place;
    bool may_be_one = r->n_absent > 0 && is_a_place(place);
    uint32_t slot, absent = may_be_one ? find_absent(r, &hello->was) : ROSTER_NO_SLOT;
    if (absent == ROSTER_NO_SLOT)
        return -ENOENT;
    int rc = roster_admit(r, hello, local, now_ms, &slot);
    if (rc < 0)
        return rc;
    bool leads = r->leader == absent;
    enum roster_part part = r->nodes[absent].part;
    roster_forget(r, absent);
    roster_set_part(r, slot, part);
    roster_set_health(r, slot, ROSTER_FIT); /* it was, or it would have no place */
    struct roster_node *n = &r->nodes[slot];
    n->seat = (int32_t)place->node_index;
    n->first_rank = place->first_rank;
    n->n_local = place->n_local;
    roster_set_known(r, slot);
    r->seats[n->seat].key = roster_order_key(n->node_rank, n->name);
    r->seats[n->seat].domain = n->domain;
    if (leads)
        r->leader = slot;
    if (n->stop_ms > r->stop_ms)
        r->stop_ms = n->stop_ms;
    learn_store(r, place, leads, now_ms);
    *ret_slot = slot;
    return 0;
}

/* --- Those that have not received a place in the newest generation --- */

/* The newest generation was made when all nodes that are not missing had stopped. This node has a
 * place in it and has not started there, so no rank has completed a step there: the state that this
 * node's ranks keep is still that of all. A missing node was lost: the others may have continued
 * without it, from another state. */
bool roster_is_from_before(const struct roster *r, const struct message_was *was)
{
    const struct roster_before *b = &r->before;
    if (!was->is_known || b->generation == MESSAGE_NO_GENERATION ||
        was->generation != b->generation || was->place.n_nodes != b->n_nodes)
        return false;
    for (uint32_t i = 0; i < b->n_missing; i++)
        if (b->missing[i] == was->place.node_index)
            return false;
    return true;
}

/* --- When another one may have our place --- */

/* A member that left us for another roster is not heard here. Any node counts: to be too careful
 * costs nothing, as long as there is no doubt. */
bool roster_hears_all(const struct roster *r, uint64_t now_ms)
{
    uint32_t oldest = r->lists[LIST_HEARD].first;
    return r->lists[LIST_AWAY].first == ROSTER_NO_SLOT && r->n_absent == 0 &&
           (oldest == ROSTER_NO_SLOT ||
            now_ms - r->nodes[oldest].since_ms <= r->limits.keep_alive_ms * 3 / 2);
}

/* The other roster waits until our leases are over, but it does not wait forever. A node that runs
 * nothing needs a lease to stay, and no roster has to wait for it. */
bool roster_may_renew(const struct roster *r, uint32_t slot, uint64_t now_ms)
{
    enum roster_part part = r->nodes[slot].part;
    bool may_run = part == PART_ASSIGNED || part == PART_HALTING;
    if (!roster_may_lend(r, now_ms))
        return false;
    return !r->doubts || !may_run || (!r->lost_in_doubt && roster_hears_all(r, now_ms));
}
