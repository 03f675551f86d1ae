#include "small_orders.h"

#include "small_promises.h"

#include <stddef.h>

/* --- What the roster orders --- */

static struct link *link_of(struct world *w, uint64_t id, int *ret_node)
{
    for (int i = 0; i < N_NODES; i++) {
        for (int k = 0; k < MAX_LINKS; k++) {
            *ret_node = i;
            if (w->nodes[i].links[k].id == id)
                return &w->nodes[i].links[k];
        }
    }
    return NULL;
}

void post(struct link *l, enum direction to, struct mail mail)
{
    if (l->queues[to].n == MAX_MAILS) {
        promise(false, "too many messages on their way");
        return;
    }
    l->queues[to].mails[l->queues[to].n++] = mail;
}

void free_if_over(struct link *l)
{
    if (!l->has_end[TO_ROSTER] && !l->has_end[TO_NODE])
        *l = (struct link){0};
}

void close_end(struct link *l, enum direction heard)
{
    enum direction other = heard == TO_NODE ? TO_ROSTER : TO_NODE;
    if (!l->has_end[heard])
        return;
    l->has_end[heard] = false;
    l->queues[heard].n = 0;
    if (l->has_end[other])
        post(l, other, (struct mail){.type = MAIL_END});
    free_if_over(l);
}

/* Each node's place is noted, although it is not sent yet. */
static void note_places(struct world *w)
{
    struct roster_node_view v;
    w->told = MESSAGE_NO_GENERATION;
    for (uint32_t i = 0; i < roster_n_slots(w->roster); i++) {
        if (!roster_view(w->roster, i, &v) || !v.is_member)
            continue;
        struct node *n = &w->nodes[v.name[4] - '0'];
        n->sealed_in = roster_generation(w->roster);
        const uint32_t was =
            n->member != NULL ? member_get_place(n->member)->generation : MESSAGE_NO_GENERATION;
        if (was != MESSAGE_NO_GENERATION && (w->told == MESSAGE_NO_GENERATION || was > w->told))
            w->told = was;
    }
}

static void want_record(struct world *w)
{
    const struct message_verdict *v = roster_get_verdict(w->roster);
    roster_get_past(w->roster, &w->being_written);
    w->being_code = v != NULL ? v->exit_code : -1;
    w->phase = RECORD_WANTED;
}

static void seal(struct world *w)
{
    promise_at_sealing(w);
    if (w->config->budget[MOVE] == 0)
        return;
    note_places(w);
    want_record(w);
    w->inherited = MESSAGE_NO_GENERATION;
}

static void end_job(struct world *w)
{
    promise_of_verdict(w);
    if (w->config->budget[MOVE] > 0 && roster_generation(w->roster) != MESSAGE_NO_GENERATION)
        want_record(w);
}

static void carry_out_roster(struct world *w, const struct roster_actions *actions)
{
    for (size_t i = 0; i < actions->n; i++) {
        const struct roster_action *a = &actions->items[i];
        int node;
        struct link *l = a->type == ROSTER_CHANGED ? NULL : link_of(w, a->link, &node);
        if (a->type == ROSTER_CHANGED && a->to == ROSTER_RUNNING)
            seal(w);
        else if (a->type == ROSTER_CHANGED && a->to == ROSTER_CLOSED)
            end_job(w);
        else if (a->type == ROSTER_CLOSE && l != NULL)
            close_end(l, TO_ROSTER);
        else if (a->type == ROSTER_SEND && l != NULL && l->has_end[TO_NODE] &&
                 a->message.type != MESSAGE_HEALTH) { /* a member does not look at those */
            promise_of_move(w, &w->nodes[node], &a->message);
            post(l, TO_NODE, mail_pack(w, &a->message));
        }
    }
    promise_of_budget(w);
}

void feed_roster(struct world *w, struct roster_input in)
{
    struct roster_actions actions;
    in.now_ms = w->now_ms;
    w->version = world_new_version();
    roster_step(w->roster, &in, &actions);
    carry_out_roster(w, &actions);
}

/* --- What a member orders --- */

void break_peers(struct world *w, const struct node *of)
{
    for (int i = 0; i < N_NODES; i++) {
        struct node *n = &w->nodes[i];
        n->breaks |= n != of && n->runs && of->runs && n->generation == of->generation;
    }
}

void end_ranks(struct world *w, struct node *n)
{
    break_peers(w, n);
    n->runs = n->breaks = n->fails = n->yields = n->opens = false;
    n->parks = n->recovers = n->has_met = n->is_broken = n->all_late = false;
    n->n_steps = n->n_late = 0;
    n->history = 0;
    n->n_ranks = (uint32_t)(n - w->nodes) + 1;
}

void end_node(struct world *w, struct node *n)
{
    end_ranks(w, n);
    n->is_gone = true;
    n->stops = n->is_connecting = false;
    if (n->link >= 0)
        close_end(&n->links[n->link], TO_NODE);
    n->link = -1;
    member_destroy(n->member);
    n->member = NULL;
}

static void start_ranks(struct world *w, struct node *n)
{
    const struct member_place *p = member_get_place(n->member);
    promise_of_number(n, p->place.n_local);
    n->n_ranks = p->place.n_local;
    n->n_late = n->all_late = 0;
    uint16_t *port = &w->ports[p->generation];
    promise(!n->runs, "ranks are started while others run");
    promise(!w->config->checks || n->is_fit, "a node starts ranks that was not found healthy");
    promise(*port != 0 || p->place.leads, "somebody started before the leader");
    for (int i = 0; *port == 0 && i < MAX_GENERATIONS; i++)
        promise(w->ports[i] != p->place.port, "two generations share a store");
    if (*port == 0)
        *port = p->place.port;
    promise(*port == p->place.port, "the nodes of a generation were told different stores");
    n->runs = true;
    n->breaks = n->fails = n->yields = n->parks = n->has_met = n->is_broken = false;
    n->generation = p->generation;
}

static void note_end(struct world *w, struct node *n)
{
    const struct member_end *end = member_get_end(n->member);
    n->ended_by_roster = end->by_roster && end->took_part;
    n->exit_code = end->exit_code;
    for (int i = 0; i < N_NODES; i++)
        promise(!n->ended_by_roster || !w->nodes[i].ended_by_roster ||
                    w->nodes[i].exit_code == n->exit_code,
                "two ddpruns end with different verdicts");
    promise(!n->runs, "ddprun ends before its ranks");
    if (end->by_roster && end->took_part)
        promise(roster_get_verdict(w->roster)->exit_code == end->exit_code,
                "a ddprun ends with another verdict");
    end_node(w, n);
}

void carry_out_node(struct world *w, struct node *n, const struct member_orders *o)
{
    for (size_t i = 0; i < o->n_messages; i++)
        if (n->link >= 0 && n->links[n->link].has_end[TO_ROSTER])
            post(&n->links[n->link], TO_ROSTER, mail_pack(w, &o->messages[i]));
    if (o->disconnect) {
        n->is_connecting = false;
        if (n->link >= 0)
            close_end(&n->links[n->link], TO_NODE);
        n->link = -1;
    }
    n->is_connecting |= o->connect;
    n->opens |= o->open_store;
    if (o->start_ranks)
        start_ranks(w, n);
    n->yields |= o->request_checkpoint && n->runs;
    if (o->kill_ranks)
        end_ranks(w, n);
    n->stops |= o->stop_ranks || o->kill_ranks;
    if (o->stop_ranks || o->kill_ranks)
        n->may_park = o->stop_ranks && o->may_park;
    if (o->ended)
        note_end(w, n);
}

bool may_check(enum member_state state)
{
    return state == MEMBER_JOINING || state == MEMBER_WAITING || state == MEMBER_PARKED;
}

/* What was found before ranks ran, or in another session, does not count any more. */
static void note_state(struct node *n, enum member_state from)
{
    const enum member_state to = member_get_state(n->member);
    if (from != to && may_check(to) && (!may_check(from) || to == MEMBER_JOINING))
        n->is_fit = false;
}

void feed_node(struct world *w, struct node *n, struct member_input in)
{
    struct member_orders orders;
    const enum member_state from = member_get_state(n->member);
    in.now_ms = w->now_ms;
    n->version = world_new_version();
    member_step(n->member, &in, &orders);
    note_state(n, from);
    carry_out_node(w, n, &orders);
}
