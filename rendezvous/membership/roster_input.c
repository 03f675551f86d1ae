/* roster_input.c - inputs of the roster: messages, ends of links, and the time.
 *
 * Read roster_step() first. An input changes facts about nodes (roster_nodes.c); feed() then gives
 * the table of roster.c an event. settle() comes last in each step: it feeds what follows from the
 * facts, for example PAUSE_OVER when no node has ranks of a stopping generation any more. As time
 * passes, silent or absent nodes are declared lost, and leases of nodes that are too slow are not
 * renewed. The messages of the roster are collected as actions and lent to the caller until the
 * next step.
 *
 * Invariant: a message of a node counts only if it is of the current generation and comes on the
 * node's current link; anything else is late and has no effect. */
#include "lease.h"
#include "roster_priv.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/scope.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void await_check(struct roster *r, uint32_t slot, uint64_t now_ms);
static void hear_unfit(struct roster *r, uint32_t slot, const struct message *m, uint64_t now_ms);

/* --- Losing a node --- */

/* It is forgotten before the table is asked, so that all counts are without it. */
static void lose_node(struct roster *r, uint32_t slot, uint64_t now_ms, const char *why)
{
    struct roster_node was = r->nodes[slot];
    char text[MESSAGE_NAME_BYTES + 128];
    snprintf(text, sizeof text, "%s", why);
    was.addresses = NULL;
    r->lost_in_doubt |= r->doubts && was.part != PART_NONE;
    struct roster_event e = {.type = ROSTER_EV_LOST,
                             .now_ms = now_ms,
                             .slot = ROSTER_NO_SLOT,
                             .who = &was,
                             .led = r->leader == slot,
                             .unheard = was.part == PART_ASSIGNED,
                             .text = text};
    roster_send_gone(r, slot);
    roster_forget(r, slot);
    roster_apply(r, &e);
}

/* Its link may still exist, but the node is declared lost: it receives that, if it still can. */
static void send_lost(struct roster *r, uint32_t slot, const char *why)
{
    if (r->nodes[slot].link == 0)
        return;
    snprintf(r->note, sizeof r->note, "node %s was evicted: %s", r->nodes[slot].name, why);
    roster_send_refused(r, r->nodes[slot].link, MESSAGE_REFUSED_LOST, true, r->note);
}

/* It does not do what it was ordered to do, and still sends keep-alives: from now on no lease is
 * renewed. When the last one is over, it is lost like any silent node; its ranks cannot run any
 * more then. A node in this process has no lease. */
static void condemn_node(struct roster *r, uint32_t slot, uint64_t now_ms, const char *why)
{
    send_lost(r, slot, why);
    if (r->nodes[slot].local)
        lose_node(r, slot, now_ms, why);
    else
        roster_cut(r, slot);
}

static uint64_t return_ms(const struct roster *r)
{
    return r->doubts && r->limits.return_ms < ROSTER_DOUBT_RETURN_MS ? ROSTER_DOUBT_RETURN_MS
                                                                     : r->limits.return_ms;
}

static void lose_those_away(struct roster *r, uint64_t now_ms)
{
    uint32_t slot;
    while ((slot = r->lists[LIST_AWAY].first) != ROSTER_NO_SLOT &&
           now_ms - r->nodes[slot].since_ms >= return_ms(r))
        lose_node(r, slot, now_ms, "its connection was lost");
}

static uint64_t silence_ms(const struct roster *r)
{
    return lease_silence_ms(r->limits.lease_ms, r->limits.margin_ms);
}

static void lose_the_silent(struct roster *r, uint64_t now_ms)
{
    uint32_t slot;
    while ((slot = r->lists[LIST_HEARD].first) != ROSTER_NO_SLOT &&
           now_ms - r->nodes[slot].since_ms >= silence_ms(r)) {
        char why[64];
        snprintf(why, sizeof why, "no keep-alive for %" PRIu64 " ms",
                 now_ms - r->nodes[slot].since_ms);
        send_lost(r, slot, why);
        lose_node(r, slot, now_ms, why);
    }
}

static void lose_the_absent(struct roster *r, uint64_t now_ms)
{
    uint32_t slot;
    while ((slot = r->lists[LIST_ABSENT].first) != ROSTER_NO_SLOT &&
           now_ms - r->nodes[slot].since_ms >= r->limits.absent_ms)
        lose_node(r, slot, now_ms, "it did not reconnect after the failover of the coordinator");
}

/* What would be waited for are its ranks. */
static void lose_the_ended(struct roster *r, const struct roster_input *in)
{
    const uint32_t slot =
        in->generation == r->generation ? roster_absent_at(r, in->node_index) : ROSTER_NO_SLOT;
    if (slot != ROSTER_NO_SLOT)
        lose_node(r, slot, in->now_ms, "its ddprun, which hosted the coordinator, has ended");
}

/* Its ranks do not run: heartbeat.h. A keep-alive that was answered lets them run as long as a
 * heartbeat does. */
static void lose_the_host(struct roster *r, const struct roster_input *in)
{
    const uint32_t slot = roster_by_instance(r, in->instance);
    char why[64];
    if (slot == ROSTER_NO_SLOT || r->nodes[slot].in != LIST_HEARD ||
        in->now_ms - r->nodes[slot].since_ms < in->silent_ms)
        return;
    snprintf(why, sizeof why, "its host has not answered for %" PRIu64 " ms", in->silent_ms);
    send_lost(r, slot, why);
    lose_node(r, slot, in->now_ms, why);
}

static bool is_due(const struct roster *r, uint64_t now_ms)
{
    return r->deadline_ms != CO_NEVER_MS && now_ms >= r->deadline_ms;
}

static void condemn_the_slow(struct roster *r, uint64_t now_ms)
{
    r->deadline_ms = CO_NEVER_MS; /* theirs is their lease */
    for (uint32_t i = 0; i < r->n_slots; i++)
        if (r->nodes[i].part == PART_ASSIGNED || r->nodes[i].part == PART_HALTING)
            condemn_node(r, i, now_ms, "timed out waiting for its ranks to stop");
}

static void condemn_the_leader(struct roster *r, uint64_t now_ms)
{
    r->deadline_ms = CO_NEVER_MS;
    if (r->leader != ROSTER_NO_SLOT)
        condemn_node(r, r->leader, now_ms, "timed out waiting for it to open the store");
}

/* Their own time limits are over. */
static void give_up_checks(struct roster *r, uint64_t now_ms)
{
    const struct message m = {.type = MESSAGE_HEALTH,
                              .health = {MESSAGE_UNFIT, "", "it did not report its health"}};
    if (r->n_unchecked == 0 || now_ms < r->unchecked_until_ms)
        return;
    for (uint32_t i = 0; i < r->n_slots; i++)
        if (r->nodes[i].health == ROSTER_UNCHECKED && r->nodes[i].part == PART_STOPPED)
            hear_unfit(r, i, &m, now_ms);
}

static void take_time(struct roster *r, uint64_t now_ms)
{
    lose_those_away(r, now_ms);
    lose_the_silent(r, now_ms);
    lose_the_absent(r, now_ms);
    give_up_checks(r, now_ms);
    if (now_ms >= r->last_call_until_ms)
        r->last_call_until_ms = 0;
    if (!is_due(r, now_ms))
        return;
    if (r->state == ROSTER_RUNNING && r->confirmed && !r->ready)
        condemn_the_leader(r, now_ms);
    else if (r->state == ROSTER_STOPPING)
        condemn_the_slow(r, now_ms);
    else
        roster_apply(r, &(struct roster_event){
                            .type = ROSTER_EV_DEADLINE, .now_ms = now_ms, .slot = ROSTER_NO_SLOT});
}

/* One waiting node asks for all: the others are admitted with it. */
static void let_in_who_waits(struct roster *r, uint64_t now_ms)
{
    r->join_waits = false;
    for (uint32_t i = 0; i < r->n_slots; i++)
        if (roster_is_here(&r->nodes[i]) && r->nodes[i].part == PART_NONE) {
            roster_apply(r, &(struct roster_event){.type = ROSTER_EV_JOIN,
                                                   .now_ms = now_ms,
                                                   .slot = i,
                                                   .who = &r->nodes[i],
                                                   .text = ""});
            return;
        }
}

/* A member that has stopped and whose link is being replaced: a generation that is made now would
 * be without it. It is back, or lost, within return_ms. */
static bool awaits_member(const struct roster *r)
{
    for (uint32_t i = r->lists[LIST_AWAY].first; i != ROSTER_NO_SLOT; i = r->nodes[i].next)
        if (r->nodes[i].part != PART_NONE && !r->nodes[i].leaves)
            return true;
    return false;
}

/* The input may have been what a stop, or a node that joined, waited for. */
static void settle(struct roster *r, uint64_t now_ms)
{
    struct roster_event e = {.now_ms = now_ms, .slot = ROSTER_NO_SLOT};
    if (r->join_waits && r->state == ROSTER_RUNNING && !roster_postpones_join(r))
        let_in_who_waits(r, now_ms);
    if (r->state != ROSTER_STOPPING || roster_n_busy(r) != 0 || now_ms < r->pause_until_ms)
        return;
    e.type = ROSTER_EV_ALL_STOPPED;
    roster_apply(r, &e);
    if (awaits_member(r))
        return;
    e.type = ROSTER_EV_PAUSE_OVER;
    roster_apply(r, &e);
}

/* --- HELLO --- */

static struct roster_event event_of(const struct roster *r, uint32_t slot,
                                    enum roster_event_type type, uint64_t now_ms,
                                    const struct message *m)
{
    return (struct roster_event){.type = type,
                                 .now_ms = now_ms,
                                 .slot = slot,
                                 .who = &r->nodes[slot],
                                 .led = slot == r->leader,
                                 .unheard = r->nodes[slot].part == PART_ASSIGNED,
                                 .text = type == ROSTER_EV_LEAVE ? m->leave.text : "",
                                 .message = m};
}

static void feed(struct roster *r, uint32_t slot, enum roster_event_type type, uint64_t now_ms,
                 const struct message *m)
{
    struct roster_event e = event_of(r, slot, type, now_ms, m);
    roster_apply(r, &e);
}

static void come_back(struct roster *r, uint32_t slot, uint64_t link, const struct message *m,
                      uint64_t now_ms)
{
    r->note[0] = '\0';
    roster_send_close(r, r->nodes[slot].link); /* this link is dead, although its end was not
                                                  reported */
    roster_attach(r, slot, link, now_ms);
    if (r->nodes[slot].part == PART_NONE || r->nodes[slot].part == PART_STOPPED)
        await_check(r, slot, now_ms); /* it repeats what it knows */
    roster_send_welcome(r, slot, &m->hello, true, false);
    roster_send_unfit(r, slot);
    roster_send_again(r, slot);
    if (r->nodes[slot].part == PART_NONE && roster_is_here(&r->nodes[slot]))
        feed(r, slot, ROSTER_EV_JOIN, now_ms, m);
}

/* returns whether no reason is against it; else r->note has the reason */
static bool is_welcome(struct roster *r, const struct message_hello *h, bool is_from_before,
                       uint64_t now_ms, enum message_refusal *ret_why, bool *ret_again)
{
    const struct message_terms *t = &r->terms;
    uint32_t rival = h->node_rank >= 0 ? roster_by_node_rank(r, h->node_rank) : ROSTER_NO_SLOT;
    *ret_again = false;
    if (h->resumes != MESSAGE_NO_GENERATION && !is_from_before) {
        *ret_why = MESSAGE_REFUSED_LOST;
        *ret_again = true;
        snprintf(r->note, sizeof r->note,
                 "%s has ranks of generation %" PRIu32
                 ", which has ended: the node was declared lost, or its coordinator was replaced",
                 h->name, h->resumes);
    } else if (h->terms.min_nodes != t->min_nodes || h->terms.max_nodes != t->max_nodes) {
        *ret_why = MESSAGE_REFUSED_TERMS;
        snprintf(r->note, sizeof r->note,
                 "%s was started with --nnodes=%" PRIu32 ":%" PRIu32 ", %s with --nnodes=%" PRIu32
                 ":%" PRIu32 ": use the same --nnodes on all nodes",
                 h->name, h->terms.min_nodes, h->terms.max_nodes, r->founder, t->min_nodes,
                 t->max_nodes);
    } else if (h->terms.segment != t->segment) {
        *ret_why = MESSAGE_REFUSED_TERMS;
        snprintf(r->note, sizeof r->note,
                 "%s was started with --segment=%" PRIu32 ", %s with --segment=%" PRIu32
                 " (0: without): use the same --segment on all nodes",
                 h->name, h->terms.segment, r->founder, t->segment);
    } else if (rival != ROSTER_NO_SLOT) {
        const struct roster_node *n = &r->nodes[rival];
        *ret_why = MESSAGE_REFUSED_NODE_RANK;
        *ret_again =
            n->link == 0 || (n->in == LIST_HEARD &&
                             now_ms - n->since_ms > r->limits.keep_alive_ms + r->limits.margin_ms);
        snprintf(r->note, sizeof r->note,
                 "%s and %s were both started with --node-rank=%" PRId32 ": give each node its own",
                 n->name, h->name, h->node_rank);
    } else if (h->keeps_rank_0 && r->keeper[0] != '\0') {
        *ret_why = MESSAGE_REFUSED_NOT_FIRST;
        snprintf(r->note, sizeof r->note,
                 "%s and %s were both started with --node-rank 0: give each node its own",
                 r->keeper, h->name);
    } else if (r->n_nodes >= r->limits.max_nodes) {
        *ret_why = MESSAGE_REFUSED_FULL;
        snprintf(r->note, sizeof r->note, "%" PRIu32 " nodes have joined, which is the maximum",
                 r->n_nodes);
    } else {
        return true;
    }
    return false;
}

static void note_founder(struct roster *r, const struct message_hello *h)
{
    if (r->founder[0] == '\0')
        snprintf(r->founder, sizeof r->founder, "%s", h->name);
    roster_note_terms(r, &h->terms);
}

/* A member that another roster knew: it continues as if its link had been away.
 * returns   whether it is one */
static bool come_over(struct roster *r, uint64_t link, bool local, const struct message *m,
                      uint64_t now_ms)
{
    uint32_t slot;
    int rc = roster_embody(r, &m->hello, local, now_ms, &slot);
    if (rc == -ENOENT)
        return false;
    if (rc < 0) {
        roster_send_close(r, link); /* it comes again */
        return true;
    }
    note_founder(r, &m->hello);
    roster_attach(r, slot, link, now_ms);
    roster_send_welcome(r, slot, &m->hello, true, r->has_adopted);
    roster_send_again(r, slot);
    return true;
}

static void come_new(struct roster *r, uint64_t link, bool local, const struct message *m,
                     uint64_t now_ms)
{
    const struct message_hello *h = &m->hello;
    const struct roster_past_excluded *excluded = roster_find_excluded(r, h->name);
    const bool is_from_before = roster_is_from_before(r, &h->was);
    enum message_refusal why;
    bool again;
    uint32_t slot;
    if (excluded != NULL) {
        roster_send_excluded(r, link, excluded);
        return;
    }
    if (!is_welcome(r, h, is_from_before, now_ms, &why, &again)) {
        roster_send_refused(r, link, why, again, r->note);
        return;
    }
    if (roster_admit(r, h, local, now_ms, &slot) < 0) {
        roster_send_refused(r, link, MESSAGE_REFUSED_FULL, true, "out of memory");
        return;
    }
    if (is_from_before)
        r->nodes[slot].known = (struct roster_known){.generation = h->was.generation,
                                                     .n_nodes = h->was.place.n_nodes,
                                                     .index = h->was.place.node_index};
    note_founder(r, h);
    roster_attach(r, slot, link, now_ms);
    roster_send_welcome(r, slot, h, is_from_before, false);
    roster_send_unfit(r, slot);
    if (roster_is_here(&r->nodes[slot])) /* else when it is known to be fit */
        feed(r, slot, ROSTER_EV_JOIN, now_ms, m);
}

/* A node that was away when a generation was made has no place there. If it has kept its ranks,
 * they have missed what the others have done since, and cannot continue with them. */
static uint32_t lose_if_left_out(struct roster *r, uint32_t slot, const struct roster_input *in)
{
    const struct message_hello *h = &in->message->hello;
    if (slot == ROSTER_NO_SLOT || h->resumes == MESSAGE_NO_GENERATION ||
        r->nodes[slot].part != PART_NONE || r->nodes[slot].seat != ROSTER_ORDER_NONE ||
        roster_is_from_before(r, &h->was))
        return slot;
    lose_node(r, slot, in->now_ms, "a generation began while its connection was lost");
    return ROSTER_NO_SLOT;
}

/* A node whose lease is not renewed any more, and that reports that no rank runs there, need not be
 * waited for. */
static uint32_t forgive(struct roster *r, uint32_t slot, const struct roster_input *in)
{
    if (slot == ROSTER_NO_SLOT || !r->nodes[slot].condemned)
        return slot;
    if (in->message->hello.resumes == MESSAGE_NO_GENERATION)
        lose_node(r, slot, in->now_ms, "it restarted (it was evicted before)");
    return ROSTER_NO_SLOT;
}

/* The previous roster is gone, and its generation is not: the generation continues, if it can. */
static void adopt(struct roster *r, const struct roster_input *in)
{
    const struct message_hello *h = &in->message->hello;
    roster_note_past(r, &h->was, in->now_ms);
    if (h->returns && in->max_absent > 0 && r->hold_until_ms == 0 &&
        r->generation == MESSAGE_NO_GENERATION)
        r->hold_until_ms = in->now_ms + r->limits.absent_ms;
    if (roster_can_adopt(r, h, in->max_absent))
        roster_apply(r, &(struct roster_event){.type = ROSTER_EV_ADOPT,
                                               .now_ms = in->now_ms,
                                               .slot = ROSTER_NO_SLOT,
                                               .message = in->message});
}

/* A WELCOME begins a lease: a node that cannot get one tries again, or finds another roster. */
static void hear_hello(struct roster *r, const struct roster_input *in)
{
    if (!roster_may_lend(r, in->now_ms) && !roster_has_informed_all(r)) {
        roster_send_close(r, in->link);
        return;
    }
    uint32_t slot = roster_by_instance(r, in->message->hello.instance);
    slot = lose_if_left_out(r, forgive(r, slot, in), in);
    if (slot != ROSTER_NO_SLOT) {
        come_back(r, slot, in->link, in->message, in->now_ms);
    } else if (r->state == ROSTER_CLOSED) {
        if (roster_has_informed_all(r)) /* else it comes again */
            roster_send_verdict(r, in->link);
        roster_send_close(r, in->link);
    } else {
        adopt(r, in);
        if (!come_over(r, in->link, in->local, in->message, in->now_ms))
            come_new(r, in->link, in->local, in->message, in->now_ms);
    }
}

/* --- The other messages --- */

static bool is_of_generation(const struct roster *r, const struct roster_node *n,
                             const struct message *m)
{
    return m->generation == r->generation && (n->part == PART_ASSIGNED || n->part == PART_HALTING);
}

static void hear_ready(struct roster *r, uint32_t slot, const struct message *m, uint64_t now_ms)
{
    if (slot != r->leader || r->ready || r->state != ROSTER_RUNNING)
        return;
    r->ready = true;
    r->agent_store = m->ready.agent_store;
    r->relayed = m->ready.relayed;
    r->port = m->ready.port;
    snprintf(r->host, sizeof r->host, "%s", m->ready.host);
    feed(r, slot, ROSTER_EV_READY, now_ms, m);
}

/* --- Health --- */

/* The next generation waits for it, for so long at most. */
static void await_check(struct roster *r, uint32_t slot, uint64_t now_ms)
{
    const uint64_t until_ms = now_ms + r->nodes[slot].check_ms + r->limits.slack_ms;
    if (!r->nodes[slot].checks)
        return;
    roster_set_health(r, slot, ROSTER_UNCHECKED);
    if (until_ms > r->unchecked_until_ms)
        r->unchecked_until_ms = until_ms;
}

static void hear_unfit(struct roster *r, uint32_t slot, const struct message *m, uint64_t now_ms)
{
    struct roster_node *n = &r->nodes[slot];
    const bool is_news = strcmp(n->unfit, m->health.text) != 0;
    roster_set_health(r, slot, ROSTER_UNFIT);
    r->had_unfit = true;
    snprintf(n->unfit, sizeof n->unfit, "%s", m->health.text);
    if (is_news)
        roster_send_health(r, slot, MESSAGE_UNFIT);
    feed(r, slot, ROSTER_EV_UNFIT, now_ms, m);
}

static void hear_fit(struct roster *r, uint32_t slot, const struct message *m, uint64_t now_ms)
{
    struct roster_node *n = &r->nodes[slot];
    const bool was_fit = n->health == ROSTER_FIT;
    roster_set_health(r, slot, ROSTER_FIT);
    if (n->unfit[0] != '\0')
        roster_send_health(r, slot, MESSAGE_FIT);
    n->unfit[0] = '\0';
    if (!was_fit && n->part == PART_NONE)
        feed(r, slot, ROSTER_EV_JOIN, now_ms, m);
}

/* A node whose ranks may run checks itself again when they have stopped. */
static void hear_health(struct roster *r, uint32_t slot, const struct message *m, uint64_t now_ms)
{
    const struct roster_node *n = &r->nodes[slot];
    if (!n->checks || !roster_is_linked(n) || r->state == ROSTER_CLOSED ||
        (n->part != PART_NONE && n->part != PART_STOPPED))
        return;
    if (m->health.fitness == MESSAGE_UNFIT)
        hear_unfit(r, slot, m, now_ms);
    else if (m->health.fitness == MESSAGE_FIT)
        hear_fit(r, slot, m, now_ms);
}

/* A message about its generation, from a node whose ranks may run. Each can arrive twice. */
static void hear_of_ranks(struct roster *r, uint32_t slot, const struct message *m, uint64_t now_ms)
{
    const struct roster_node *n = &r->nodes[slot];
    if (m->type == MESSAGE_READY) {
        hear_ready(r, slot, m, now_ms);
    } else if (m->type == MESSAGE_FAILED) {
        if (r->state == ROSTER_STOPPING) /* it halts, and is not what killed the other one's rank */
            roster_set_part(r, slot, PART_HALTING);
        feed(r, slot, ROSTER_EV_FAILED, now_ms, m);
    } else if (m->type == MESSAGE_SUCCEEDED && !n->done && r->state == ROSTER_RUNNING) {
        roster_set_done(r, slot);
        r->is_ending = true;
        feed(r, slot, ROSTER_EV_SUCCEEDED, now_ms, m);
    } else if (m->type == MESSAGE_STOPPING && r->state == ROSTER_STOPPING) {
        roster_set_part(r, slot, PART_HALTING);
        feed(r, slot, ROSTER_EV_STOPPING, now_ms, m);
    } else if (m->type == MESSAGE_STOPPED) {
        struct roster_event e = event_of(r, slot, ROSTER_EV_STOPPED, now_ms, m);
        roster_set_part(r, slot, PART_STOPPED);
        await_check(r, slot, now_ms);
        roster_apply(r, &e);
    } else if (m->type == MESSAGE_SAVED && !n->saved) {
        roster_set_saved(r, slot);
        feed(r, slot, ROSTER_EV_SAVED, now_ms, m);
    } else if (m->type == MESSAGE_RESTART) {
        feed(r, slot, ROSTER_EV_RESTART, now_ms, m);
    }
}

/* The number of ranks for the next generation may be corrected until there is one: a parked rank
 * may exit. It may be parked since the generation before. */
static void note_ranks(struct roster *r, uint32_t slot, const struct message *m)
{
    if (m->type == MESSAGE_STOPPED &&
        (m->generation == r->generation || m->generation == r->nodes[slot].known.generation))
        r->nodes[slot].n_next = m->stopped.n_local;
}

static void note_steps(struct roster *r, const struct message *m)
{
    if (m->type != MESSAGE_STOPPED || m->generation != r->generation ||
        m->stopped.steps <= r->most_steps)
        return;
    r->most_steps = m->stopped.steps;
    r->has_advanced = true;
}

static void hear_leave(struct roster *r, uint32_t slot, const struct message *m, uint64_t now_ms)
{
    if (r->nodes[slot].leaves)
        return;
    roster_set_leaving(r, slot);
    feed(r, slot, ROSTER_EV_LEAVE, now_ms, m);
}

static void message_take(struct roster *r, const struct roster_input *in)
{
    const struct message *m = in->message;
    uint32_t slot = roster_by_link(r, in->link);
    if (m->type == MESSAGE_HELLO) {
        if (slot == ROSTER_NO_SLOT)
            hear_hello(r, in);
        return;
    }
    if (slot == ROSTER_NO_SLOT)
        return;
    roster_hear(r, slot, in->now_ms);
    note_ranks(r, slot, m);
    note_steps(r, m);
    if (m->type == MESSAGE_KEEP_ALIVE) {
        if (roster_may_renew(r, slot, in->now_ms))
            roster_send_lease(r, slot, m->keep_alive.sent_ms, in->now_ms);
    } else if (m->type == MESSAGE_LEAVE) {
        hear_leave(r, slot, m, in->now_ms);
    } else if (m->type == MESSAGE_END) {
        feed(r, slot, ROSTER_EV_END, in->now_ms, m);
    } else if (m->type == MESSAGE_HEALTH) {
        hear_health(r, slot, m, in->now_ms);
    } else if (is_of_generation(r, &r->nodes[slot], m)) {
        hear_of_ranks(r, slot, m, in->now_ms);
    }
}

/* The roster does not wait for a node that announced its leave, nor for any node that was sent the
 * verdict. */
static void hear_gone(struct roster *r, uint64_t link, uint64_t now_ms)
{
    uint32_t slot = roster_by_link(r, link);
    if (slot == ROSTER_NO_SLOT)
        return;
    const struct roster_node *n = &r->nodes[slot];
    bool may_run = n->part == PART_ASSIGNED || n->part == PART_HALTING;
    if (roster_has_informed_all(r) || (n->leaves && !may_run)) {
        lose_node(r, slot, now_ms, "it left");
        return;
    }
    roster_detach(r, slot, now_ms);
    feed(r, slot, ROSTER_EV_DISCONNECTED, now_ms, NULL);
}

/* The next generation of the other roster may look like one of this one. */
static void dismiss_all(struct roster *r, const char *why)
{
    snprintf(r->note, sizeof r->note, "%s", why);
    for (uint32_t i = 0; i < r->n_slots; i++)
        if (r->nodes[i].link != 0)
            roster_send_refused(r, r->nodes[i].link, MESSAGE_REFUSED_LOST, true, r->note);
}

/* One input, in order: facts and the event of the input itself; then settle(), since the input may
 * have been the last thing that a stop or a waiting node waited for. Actions gather in r->actions
 * and are lent until the next step. Losing one node can make several events, each of which sees
 * counts without that node. */
void roster_step(struct roster *r, const struct roster_input *in, struct roster_actions *ret)
{
    r->n_actions = 0;
    r->n_gone = 0;
    switch (in->type) {
    case ROSTER_MESSAGE:
        message_take(r, in);
        break;
    case ROSTER_GONE:
        hear_gone(r, in->link, in->now_ms);
        break;
    case ROSTER_ASLEEP:
        roster_hear_all(r, in->now_ms);
        break;
    case ROSTER_END:
        roster_apply(r, &(struct roster_event){.type = ROSTER_EV_END,
                                               .now_ms = in->now_ms,
                                               .slot = ROSTER_NO_SLOT,
                                               .message = in->message});
        break;
    case ROSTER_CONFIRMED:
        if (in->generation == r->generation && (!r->confirmed || r->state == ROSTER_CLOSED))
            roster_apply(r, &(struct roster_event){.type = ROSTER_EV_CONFIRMED,
                                                   .now_ms = in->now_ms,
                                                   .slot = ROSTER_NO_SLOT,
                                                   .term = in->term});
        break;
    case ROSTER_HURRY:
        r->pause_until_ms = 0; /* what it held up is settled below */
        break;
    case ROSTER_DOUBT:
        r->doubts = true;
        break;
    case ROSTER_CERTAIN:
        r->doubts = r->lost_in_doubt = false;
        r->certain_until_ms = in->until_ms != 0 ? in->until_ms : CO_NEVER_MS;
        break;
    case ROSTER_SILENT:
        lose_the_host(r, in);
        break;
    case ROSTER_ENDED:
        lose_the_ended(r, in);
        break;
    case ROSTER_REPLACED:
        dismiss_all(r, in->text);
        break;
    case ROSTER_TIME:
        take_time(r, in->now_ms);
        break;
    }
    settle(r, in->now_ms);
    *ret = (struct roster_actions){r->actions, r->n_actions};
}

/* --- When time is to be fed --- */

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t roster_state_deadline_ms(const struct roster *r)
{
    return r->deadline_ms;
}

uint64_t roster_deadline_ms(const struct roster *r)
{
    uint32_t away = r->lists[LIST_AWAY].first;
    uint32_t silent = r->lists[LIST_HEARD].first;
    uint32_t absent = r->lists[LIST_ABSENT].first;
    uint64_t deadline_ms = r->deadline_ms;
    if (away != ROSTER_NO_SLOT)
        deadline_ms = sooner(deadline_ms, r->nodes[away].since_ms + return_ms(r));
    if (silent != ROSTER_NO_SLOT)
        deadline_ms = sooner(deadline_ms, r->nodes[silent].since_ms + silence_ms(r));
    if (absent != ROSTER_NO_SLOT)
        deadline_ms = sooner(deadline_ms, r->nodes[absent].since_ms + r->limits.absent_ms);
    if (r->state == ROSTER_STOPPING && r->last_call_until_ms != 0)
        deadline_ms = sooner(deadline_ms, r->last_call_until_ms);
    if (r->n_unchecked > 0)
        deadline_ms = sooner(deadline_ms, r->unchecked_until_ms);
    return deadline_ms;
}

/* --- Beginning and end --- */

static void set_default(uint64_t *at, uint64_t value)
{
    if (*at == 0)
        *at = value;
}

static void set_limits(struct roster *r, const struct roster_limits *limits)
{
    r->limits = *limits;
    if (r->limits.max_nodes == 0 || r->limits.max_nodes > MESSAGE_MAX_NODES)
        r->limits.max_nodes = MESSAGE_MAX_NODES;
    set_default(&r->limits.keep_alive_ms, LEASE_KEEP_ALIVE_MS);
    set_default(&r->limits.lease_ms, LEASE_MS);
    set_default(&r->limits.margin_ms, LEASE_MARGIN_MS);
    set_default(&r->limits.return_ms, LEASE_RETURN_MS);
    set_default(&r->limits.ready_ms, ROSTER_READY_MS);
    set_default(&r->limits.slack_ms, ROSTER_SLACK_MS);
    set_default(&r->limits.verdict_ms, r->limits.lease_ms - r->limits.keep_alive_ms);
    set_default(&r->limits.absent_ms, r->limits.lease_ms + r->limits.margin_ms);
}

static int terms_check(const struct roster *r, const struct message_terms *t, struct co_error *err)
{
    if (r->limits.keep_alive_ms >= r->limits.lease_ms)
        return co_fail(err, -EINVAL,
                       "a lease of %" PRIu64 " ms is shorter than the keep-alive interval",
                       r->limits.lease_ms);
    if (t->min_nodes < 1 || t->min_nodes > t->max_nodes || t->max_nodes > r->limits.max_nodes)
        return co_fail(err, -EINVAL,
                       "invalid number of nodes: minimum %" PRIu32 ", maximum %" PRIu32
                       "; expected 1 to %" PRIu32,
                       t->min_nodes, t->max_nodes, r->limits.max_nodes);
    if (t->segment > 0 && (t->min_nodes % t->segment != 0 || t->max_nodes % t->segment != 0))
        return co_fail(err, -EINVAL,
                       "invalid number of nodes: minimum %" PRIu32 ", maximum %" PRIu32
                       "; expected multiples of the size of a segment, %" PRIu32,
                       t->min_nodes, t->max_nodes, t->segment);
    if (t->max_restarts > MESSAGE_MAX_RESTARTS)
        return co_fail(err, -EINVAL, "too many restarts: expected at most %d",
                       MESSAGE_MAX_RESTARTS);
    if (t->no_progress > MESSAGE_MAX_RESTARTS)
        return co_fail(err, -EINVAL, "too many generations without progress: expected at most %d",
                       MESSAGE_MAX_RESTARTS);
    if (t->exclude_after > MESSAGE_MAX_STRIKES)
        return co_fail(err, -EINVAL, "too many failures of a node: expected at most %d",
                       MESSAGE_MAX_STRIKES);
    return 0;
}

static int set_terms(struct roster *r, const struct message_terms *t)
{
    r->terms = *t;
    for (int code = 0; code < 256; code++)
        r->final_codes[code] = (t->no_restart_on[code / 8] >> code % 8 & 1) != 0;
    struct restart_rules rules = {.max_restarts = (int)t->max_restarts,
                                  .window_ms = t->restart_window_ms,
                                  .no_restart_on = r->final_codes,
                                  .max_idle = t->no_progress};
    return restart_policy_init(&r->budget, &rules);
}

co_define_auto(roster, roster_destroy)

int roster_create(const struct roster_limits *limits, const struct message_terms *terms,
                  const char *const *expected, size_t n_expected, uint64_t now_ms,
                  struct roster **ret_roster, struct co_error *err)
{
    co_auto(roster) r = calloc(1, sizeof *r);
    if (r == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    roster_nodes_init(r);
    set_limits(r, limits);
    int rc = terms_check(r, terms, err);
    if (rc < 0)
        return rc;
    if (terms->exclude_after > 0)
        r->excluded = calloc(ROSTER_MAX_EXCLUDED, sizeof *r->excluded);
    if ((terms->exclude_after > 0 && r->excluded == NULL) || set_terms(r, terms) < 0 ||
        roster_reserve(r, 0) < 0 || roster_nodes_expect(r, expected, n_expected) < 0)
        return co_fail(err, -ENOMEM, "out of memory");
    r->state = ROSTER_GATHERING;
    r->certain_until_ms = CO_NEVER_MS;
    r->term = 1;
    r->generation = r->before.generation = MESSAGE_NO_GENERATION;
    r->entered_ms = now_ms;
    r->gather_deadline_ms = r->deadline_ms = now_ms + terms->start_timeout_ms;
    *ret_roster = co_take(&r);
    return 0;
}

void roster_destroy(struct roster *r)
{
    if (r == NULL)
        return;
    restart_policy_fini(&r->budget);
    roster_nodes_fini(r);
    free(r);
}
