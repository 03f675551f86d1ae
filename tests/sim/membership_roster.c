/* membership_roster.c - the real roster: what it is fed, what it orders, what must hold of it. */
#include "membership_world.h"

#include "schedules.h"

#include "rendezvous/membership/roster_priv.h"

#include "common/clock.h"

#include <string.h>

static bool is_exempt(const struct world *w, const struct node *n)
{
    return n->reset_at_ms != 0 && w->now_ms <= n->reset_at_ms + LEASE_MS;
}

bool node_is_excluded(const struct node *n)
{
    return n->has_ended && n->end.by_roster && n->end.outcome == MESSAGE_EXCLUDED;
}

static void check_is_not_excluded(const struct world *w, const char *name)
{
    for (int i = 0; i < w->n_nodes; i++)
        check(w, !node_is_excluded(&w->nodes[i]) || strcmp(w->nodes[i].name, name) != 0,
              "an excluded node has a place");
}

static struct node *node_by_name(struct world *w, const char *name)
{
    int i = 0;
    while (strcmp(w->nodes[i].name, name) != 0)
        i++;
    return &w->nodes[i];
}

/* Whole segments, and each domain in one piece. */
static void check_segments(const struct world *w, const struct node *const members[], uint32_t n)
{
    for (uint32_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && strcmp(members[end]->domain, members[i]->domain) == 0;)
            end++;
        check(w, (end - i) % w->terms.segment == 0, "a segment is not whole");
        for (uint32_t k = end; k < n; k++)
            check(w, strcmp(members[k]->domain, members[i]->domain) != 0,
                  "the nodes of a domain are not consecutive");
    }
}

static void check_places(struct world *w)
{
    const struct node *members[MAX_NODES] = {NULL};
    uint32_t n_members = 0, world_size = 0, highest = 0;
    bool taken[64] = {false};
    struct roster_node_view v;
    for (uint32_t i = 0; i < roster_n_slots(w->roster); i++) {
        if (!roster_view(w->roster, i, &v) || !v.is_member)
            continue;
        check_is_not_excluded(w, v.name);
        check(w, v.node_index < MAX_NODES && members[v.node_index] == NULL,
              "two nodes have the same place");
        members[v.node_index] = node_by_name(w, v.name);
        n_members++;
        world_size += v.n_local;
        for (uint32_t rank = v.first_rank; rank < v.first_rank + v.n_local; rank++) {
            check(w, rank < 64 && !taken[rank], "two nodes have the same rank");
            taken[rank] = true;
            highest = rank > highest ? rank : highest;
        }
    }
    check(w, highest + 1 == world_size, "ranks are not dense");
    if (w->terms.segment > 0)
        check_segments(w, members, n_members);
    check(w, n_members >= w->terms.min_nodes && n_members <= w->terms.max_nodes,
          "fewer nodes than the minimum or more than the maximum");
}

/* A number comes again if no node reports it to the new roster. Nothing of the old one runs. */
static void forget_generation(struct world *w, uint32_t generation)
{
    struct generation *g = &w->generations[generation];
    for (int i = 0; i < w->n_nodes; i++)
        check(w, !w->nodes[i].runs || w->nodes[i].generation != generation,
              "a rank of another generation of the same number runs");
    w->n_own_before += g->has_own_failure;
    *g = (struct generation){0};
}

static void note_places(struct world *w)
{
    struct roster_node_view v;
    w->told = MESSAGE_NO_GENERATION;
    for (uint32_t i = 0; i < roster_n_slots(w->roster); i++) {
        if (!roster_view(w->roster, i, &v) || !v.is_member)
            continue;
        struct node *n = node_by_name(w, v.name);
        const uint32_t known =
            n->is_up ? member_get_place(n->member)->generation : MESSAGE_NO_GENERATION;
        n->sealed_in = roster_generation(w->roster);
        n->sealed_at = v.node_index;
        n->has_place = true;
        if (known != MESSAGE_NO_GENERATION && (w->told == MESSAGE_NO_GENERATION || known > w->told))
            w->told = known;
    }
}

static void check_sealing(struct world *w)
{
    uint32_t generation = roster_generation(w->roster);
    check(w, generation < MAX_GENERATIONS, "too many generations");
    check_places(w);
    if (w->is_blind && w->n_moves > 0)
        forget_generation(w, generation);
    for (int i = 0; i < w->n_nodes; i++) {
        const struct node *n = &w->nodes[i];
        check(w, !n->runs || n->generation >= generation || is_exempt(w, n),
              "a rank of an older generation runs when a new one is sealed");
    }
}

/* Neither the verdict nor the budget may be charged with what a loss did. */
static void check_blame(struct world *w)
{
    const struct message_verdict *v = roster_get_verdict(w->roster);
    uint32_t generation = roster_generation(w->roster);
    if (v->outcome == MESSAGE_RANK_FAILED)
        check(w, w->generations[generation].has_own_failure,
              "the verdict is a failure that was another node's fault");
    if (v->outcome == MESSAGE_RANK_FAILED && w->tells)
        check(w, v->exit_code != CONSEQUENCE_CODE || !w->generations[generation].own_is_heard,
              "the verdict is a consequence, though its cause was heard");
    if (v->outcome == MESSAGE_WELL)
        check(w, !w->generations[generation].has_own_failure, "a failure was forgotten");
    if (v->outcome == MESSAGE_STUCK)
        check(w, w->terms.no_progress > 0 && w->advanced_after != generation + 1,
              "the job ended for want of progress, and there was some");
}

static void check_budget(struct world *w)
{
    uint32_t n_own = w->n_own_before;
    for (int i = 0; i < MAX_GENERATIONS; i++)
        n_own += w->generations[i].has_own_failure;
    check(w, roster_n_restarts(w->roster) <= w->terms.max_restarts, "too many restarts");
    check(w, roster_n_restarts(w->roster) <= n_own, "the budget was charged with a loss");
}

/* Slow messages must not evict a node. */
static void check_loss(const struct world *w, const struct node *n)
{
    uint64_t grace_ms = LEASE_MS + LEASE_MARGIN_MS;
    check(w,
          !n->is_up || n->is_stuck || w->now_ms <= n->blocked_until_ms + grace_ms ||
              w->now_ms <= n->frozen_until_ms + grace_ms ||
              w->now_ms <= w->roster_frozen_until_ms + grace_ms,
          "a node was given up for nothing");
}

/* A node that joins must not cause finished work to be done again. */
static void check_join(const struct world *w)
{
    struct roster_node_view v;
    for (uint32_t i = 0; i < roster_n_slots(w->roster); i++)
        check(w, !roster_view(w->roster, i, &v) || !v.is_done,
              "a node joins, though another one is done");
}

/* The node has a place in the generation that was taken over, and has not started its ranks there:
 * they live on since the generation before. */
static bool lives_on(const struct world *w, const struct node *n)
{
    return n->parks && n->sealed_in == w->inherited && n->generation == w->told &&
           w->inherited == roster_generation(w->roster);
}

/* A new roster knows the nodes of the previous one. Ranks that live on although their node has not
 * received the generation that it has taken over are as good as those that run in it. If the node
 * has received it and has come to the new roster, it can be lost later, like any member. */
static void check_move(struct world *w, const struct node *n)
{
    uint64_t grace_ms = LEASE_MS + LEASE_MARGIN_MS;
    bool is_member = n->phase == RANKS_RUN && n->runs &&
                     n->generation == roster_generation(w->roster) &&
                     roster_get_state(w->roster) == ROSTER_RUNNING;
    bool is_kept = lives_on(w, n) && (n->welcomed_after != w->n_moves ||
                                      member_get_place(n->member)->generation != w->inherited);
    check(w,
          w->n_moves == 0 || !(is_member || is_kept) ||
              w->now_ms <= n->blocked_until_ms + grace_ms ||
              w->now_ms <= n->frozen_until_ms + grace_ms,
          is_kept ? "ranks that lived on were killed when the roster had moved"
                  : "a node that runs was not known when the roster had moved");
}

/* Their ranks may have another state than those that continued without them. */
static void check_welcome(struct world *w, struct node *n)
{
    bool is_kept = lives_on(w, n) && n->generation != roster_generation(w->roster);
    w->n_untold += is_kept;
    check(w,
          !n->parks || is_kept || n->generation == roster_generation(w->roster) ||
              n->sealed_in == roster_generation(w->roster),
          "ranks of a node that was lost live on");
    n->welcomed_after = w->n_moves;
}

static void check_message(struct world *w, const struct link *l, const struct message *m)
{
    if (m->type == MESSAGE_REFUSED && m->refused.why == MESSAGE_REFUSED_LOST)
        check_move(w, &w->nodes[l->node]);
    w->n_left_out += m->type == MESSAGE_REFUSED && strstr(m->refused.text, "(--segment)") != NULL;
    if (m->type == MESSAGE_WELCOME)
        check_welcome(w, &w->nodes[l->node]);
    if (m->type == MESSAGE_REFUSED && m->refused.why == MESSAGE_REFUSED_LOST &&
        strstr(m->refused.text, "was given up:") != NULL)
        check_loss(w, &w->nodes[l->node]);
    if (m->type == MESSAGE_STOP && m->stop.why == MESSAGE_WHY_JOIN)
        check_join(w);
}

/* A node that could come to the new roster, and had ranks, has come. */
static void check_absence(const struct world *w)
{
    unsigned index;
    uint64_t grace_ms = LEASE_MS + LEASE_MARGIN_MS;
    if (sscanf(roster_change(w->roster), "lost GROUP_RANK=%u:", &index) != 1)
        return;
    for (int i = 0; i < w->n_nodes; i++) {
        const struct node *n = &w->nodes[i];
        if (!n->is_up || n->phase != RANKS_RUN || n->generation != w->past.generation ||
            member_get_place(n->member)->place.node_index != index)
            continue;
        check(w,
              w->now_ms <= n->blocked_until_ms + grace_ms ||
                  w->now_ms <= n->frozen_until_ms + grace_ms,
              "a node that runs was not waited for when the roster had moved");
    }
}

/* Somewhere else, which takes its time to answer. */
static void write_record(struct world *w)
{
    const struct message_verdict *v = roster_get_verdict(w->roster);
    if (w->limits.confirm_ms == 0 || roster_generation(w->roster) == MESSAGE_NO_GENERATION)
        return;
    roster_get_past(w->roster, &w->being_written);
    w->being_end = (struct over){.is_over = v != NULL, .exit_code = v != NULL ? v->exit_code : 0};
    w->writes_at_ms = w->now_ms + draw(w, 5);
    w->confirms_at_ms = w->writes_at_ms + draw(w, chance(w, 10) ? 1000 : 5);
}

/* What only some nodes have heard is then lost with the roster. */
static void lose_soon(struct world *w)
{
    if (w->moves_at_ms != CO_NEVER_MS && w->now_ms < FAULTS_END_MS && chance(w, 4))
        w->moves_at_ms = w->now_ms + draw(w, 6);
}

/* A message before it in the same step is checked against it. */
static bool seals(const struct roster_actions *actions)
{
    for (size_t i = 0; i < actions->n; i++)
        if (actions->items[i].type == ROSTER_CHANGED && actions->items[i].to == ROSTER_RUNNING)
            return true;
    return false;
}

static void carry_out_roster(struct world *w, const struct roster_actions *actions)
{
    if (seals(actions) && !w->roster->has_adopted)
        note_places(w);
    for (size_t i = 0; i < actions->n; i++) {
        const struct roster_action *a = &actions->items[i];
        struct link *l = a->type == ROSTER_CHANGED ? NULL : link_by_id(w, a->link);
        if (a->type == ROSTER_CHANGED) {
            schedules_tell(w->now_ms, "%s -> %s: %s", roster_state_name(a->from),
                           roster_state_name(a->to), roster_change(w->roster));
            w->state_since_ms = w->now_ms;
            if (a->to == ROSTER_RUNNING && w->roster->has_adopted) {
                w->past.generation = roster_generation(w->roster);
                w->n_adopted++;
                w->adopted_at_ms = w->now_ms;
            } else if (a->to == ROSTER_RUNNING) {
                check_sealing(w);
                write_record(w);
            }
            if (a->to == ROSTER_STOPPING)
                check_absence(w);
            if (a->to == ROSTER_CLOSED) {
                check_blame(w);
                write_record(w);
                lose_soon(w);
            }
        } else if (a->type == ROSTER_CLOSE && l != NULL) {
            link_close(w, l, TO_ROSTER);
        } else if (a->type == ROSTER_SEND && l != NULL && l->has_end[TO_ROSTER]) {
            schedules_tell(w->now_ms, "  to %s: %s %" PRIu32, w->nodes[l->node].name,
                           message_name(a->message.type), a->message.generation);
            check_message(w, l, &a->message);
            if (l->has_end[TO_NODE])
                link_send(w, l, TO_NODE, &a->message);
        }
    }
    check_budget(w);
}

void roster_feed(struct world *w, struct roster_input in)
{
    struct roster_actions actions;
    in.now_ms = w->now_ms;
    in.max_absent = w->is_blind ? MAX_NODES : 0;
    roster_step(w->roster, &in, &actions);
    carry_out_roster(w, &actions);
}
