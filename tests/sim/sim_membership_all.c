/* sim_membership_all - every state that a roster and three members can come to.
 *
 * Roster and members are the real ones. From the beginning of a job each thing that could happen
 * next is tried, breadth first: any message at the head of any connection is delivered, a
 * connection is reset or goes silent, a ddprun is killed, leaves, starts late, its ranks fail, end
 * well, stop, or time goes on to the next deadline of anybody. What goes wrong is bounded by a
 * budget for each kind, and so is how often time goes on although a message could be delivered.
 * States are compared by a hash of all that decides what can follow, with times and generations as
 * seen from now.
 *
 * A state that is met again is not gone on from, so the promises of docs/membership.md hold for
 * every schedule within the budgets, however long. Checked in each state: as in sim_membership.c;
 * and that something can happen as long as not all is over.
 *
 * Where ranks outlive the end of a generation (config.mends), their steps are counted, too. A
 * generation's ranks meet, and have the most steps that one of them had. A step is completed by one
 * node after the other, once all have come to its end, so that some may have done it when the
 * generation breaks and others not. Checked besides: no step is completed in a generation when
 * ranks have met in a later one; where ranks meet, nobody that lives has completed more than they
 * have now. So none is lost, and none counts twice.
 *
 * Where the job goes on without ranks that die (config.drops), some may die between generations,
 * too. Checked besides: a node is given as many ranks as it has, or one more for each that died so
 * late. */
#include "small_world.h"

#include "common/clock.h"
#include "common/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_DEPTH = 1000, MAX_ACTS = 64, MAX_STATES = 60000000 };
enum { OWN_CODE = 7, CONSEQUENCE_CODE = 1 }; /* with which ranks fail */

static const char *violation; /* NULL: none */

static void check(bool holds, const char *what)
{
    if (!holds && violation == NULL)
        violation = what;
}

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

static void post(struct link *l, enum direction to, struct mail mail)
{
    if (l->queues[to].n == MAX_MAILS) {
        check(false, "too many messages on their way");
        return;
    }
    l->queues[to].mails[l->queues[to].n++] = mail;
}

static void free_if_over(struct link *l)
{
    if (!l->has_end[TO_ROSTER] && !l->has_end[TO_NODE])
        *l = (struct link){0};
}

static void close_end(struct link *l, enum direction heard)
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

static void check_places(const struct world *w)
{
    uint32_t n_members = 0, world_size = 0, ranks = 0;
    struct roster_node_view v;
    for (uint32_t i = 0; i < roster_n_slots(w->roster); i++) {
        if (!roster_view(w->roster, i, &v) || !v.is_member)
            continue;
        uint32_t own = ((1u << v.n_local) - 1) << v.first_rank;
        check((ranks & own) == 0, "two nodes have the same rank");
        ranks |= own;
        n_members++;
        world_size += v.n_local;
    }
    check(ranks + 1 == 1u << world_size, "ranks are not dense");
    check(n_members >= w->config->min_nodes && n_members <= w->config->max_nodes,
          "fewer nodes than the minimum or more than the maximum");
}

/* After a reset a node has a lease left, and no more. */
static bool is_exempt(const struct world *w, const struct node *n)
{
    return n->reset_ms != 0 &&
           (!w->config->leases || w->now_ms <= n->reset_ms + w->roster->limits.lease_ms);
}

static void check_sealing(const struct world *w)
{
    check(roster_generation(w->roster) < MAX_GENERATIONS, "too many generations");
    check_places(w);
    for (int i = 0; i < N_NODES; i++) {
        const struct node *n = &w->nodes[i];
        check(!n->runs || n->generation >= roster_generation(w->roster) || is_exempt(w, n),
              "a rank of an older generation runs when a new one is sealed");
    }
}

static void check_verdict(const struct world *w)
{
    const struct message_verdict *v = roster_get_verdict(w->roster);
    uint32_t generation = roster_generation(w->roster);
    check(v->outcome != MESSAGE_RANK_FAILED || w->own_failure[generation],
          "the verdict is a failure that was another node's fault");
    check(v->outcome != MESSAGE_RANK_FAILED || !w->config->tells || v->exit_code == OWN_CODE,
          "the verdict is a consequence, though its cause is known");
    check(v->outcome != MESSAGE_WELL || !w->own_failure[generation], "a failure was forgotten");
}

static void check_budget(const struct world *w)
{
    uint32_t n_own = 0;
    for (int i = 0; i < MAX_GENERATIONS; i++)
        n_own += w->own_failure[i];
    check(roster_n_restarts(w->roster) <= w->config->max_restarts, "too many restarts");
    check(roster_n_restarts(w->roster) <= n_own, "the budget was charged with a loss");
}

static void carry_out_roster(struct world *w, const struct roster_actions *actions)
{
    for (size_t i = 0; i < actions->n; i++) {
        const struct roster_action *a = &actions->items[i];
        int node;
        struct link *l = a->type == ROSTER_CHANGED ? NULL : link_of(w, a->link, &node);
        if (a->type == ROSTER_CHANGED && a->to == ROSTER_RUNNING)
            check_sealing(w);
        else if (a->type == ROSTER_CHANGED && a->to == ROSTER_CLOSED)
            check_verdict(w);
        else if (a->type == ROSTER_CLOSE && l != NULL)
            close_end(l, TO_ROSTER);
        else if (a->type == ROSTER_SEND && l != NULL && l->has_end[TO_NODE])
            post(l, TO_NODE, mail_pack(&a->message));
    }
    check_budget(w);
}

static void feed_roster(struct world *w, struct roster_input in)
{
    struct roster_actions actions;
    in.now_ms = w->now_ms;
    roster_step(w->roster, &in, &actions);
    carry_out_roster(w, &actions);
}

/* --- What a member orders --- */

static void break_peers(struct world *w, const struct node *of)
{
    for (int i = 0; i < N_NODES; i++) {
        struct node *n = &w->nodes[i];
        n->breaks |= n != of && n->runs && of->runs && n->generation == of->generation;
    }
}

static void end_ranks(struct world *w, struct node *n)
{
    break_peers(w, n);
    n->runs = n->breaks = n->fails = n->yields = n->opens = false;
    n->keeps = n->mends = n->has_met = n->is_broken = n->all_late = false;
    n->n_steps = n->n_late = 0;
    n->n_ranks = (uint32_t)(n - w->nodes) + 1;
}

static void end_node(struct world *w, struct node *n)
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

static void check_number(const struct node *n, uint32_t n_given)
{
    const uint32_t n_here = n->all_late ? 0 : n->n_ranks;
    check(n_given >= n_here && n_given > 0, "a node is given fewer ranks than it has");
    check(n->all_late || n_given <= n_here + n->n_late, "a rank is counted that died before");
}

static void start_ranks(struct world *w, struct node *n)
{
    const struct member_place *p = member_get_place(n->member);
    check_number(n, p->place.n_local);
    n->n_ranks = p->place.n_local;
    n->n_late = n->all_late = 0;
    uint16_t *port = &w->ports[p->generation];
    check(!n->runs, "ranks are started while others run");
    check(*port != 0 || p->place.leads, "somebody started before the leader");
    for (int i = 0; *port == 0 && i < MAX_GENERATIONS; i++)
        check(w->ports[i] != p->place.port, "two generations share a store");
    if (*port == 0)
        *port = p->place.port;
    check(*port == p->place.port, "the nodes of a generation were told different stores");
    n->runs = true;
    n->breaks = n->fails = n->yields = n->keeps = n->has_met = n->is_broken = false;
    n->generation = p->generation;
}

static void note_end(struct world *w, struct node *n)
{
    const struct member_end *end = member_get_end(n->member);
    n->ended_by_roster = end->by_roster;
    n->exit_code = end->exit_code;
    check(!n->runs, "ddprun ends before its ranks");
    if (end->by_roster)
        check(roster_get_verdict(w->roster)->exit_code == end->exit_code,
              "a ddprun ends with another verdict");
    end_node(w, n);
}

static void carry_out_node(struct world *w, struct node *n, const struct member_orders *o)
{
    for (size_t i = 0; i < o->n_messages; i++)
        if (n->link >= 0 && n->links[n->link].has_end[TO_ROSTER])
            post(&n->links[n->link], TO_ROSTER, mail_pack(&o->messages[i]));
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
    n->yields |= o->tell_pending && n->runs;
    if (o->kill_ranks)
        end_ranks(w, n);
    n->stops |= o->stop_ranks || o->kill_ranks;
    if (o->stop_ranks || o->kill_ranks)
        n->may_keep = o->stop_ranks && o->may_keep;
    if (o->ended)
        note_end(w, n);
}

static void feed_node(struct world *w, struct node *n, struct member_input in)
{
    struct member_orders orders;
    in.now_ms = w->now_ms;
    member_step(n->member, &in, &orders);
    carry_out_node(w, n, &orders);
}

/* --- What can happen --- */

enum act_type {
    START,
    CONNECT,
    DELIVER,
    OPEN,
    FINISH,
    RID,
    KEEP,
    SAVE,
    BREAK,
    SEE,
    MEET,
    STEP,
    FAULT,
    HEAL,
    TICK
};

struct act {
    uint8_t type, node, link, detail; /* detail: direction, or enum fault */
};

static bool is_deliverable(const struct node *n, const struct link *l, int to)
{
    return l->id != 0 && !n->is_silent && l->has_end[to] && l->queues[to].n > 0;
}

static uint64_t next_deadline_ms(const struct world *w)
{
    uint64_t at_ms = roster_deadline_ms(w->roster);
    for (int i = 0; i < N_NODES; i++) {
        uint64_t own_ms =
            w->nodes[i].member != NULL ? member_deadline_ms(w->nodes[i].member) : CO_NEVER_MS;
        at_ms = own_ms < at_ms ? own_ms : at_ms;
    }
    return at_ms >= NO_LEASE_MS ? CO_NEVER_MS : at_ms;
}

static bool is_over(const struct world *w)
{
    for (int i = 0; i < N_NODES; i++)
        if (!w->nodes[i].is_gone)
            return false;
    return true;
}

struct acts {
    struct act items[MAX_ACTS];
    int n;
};

static void add(struct acts *acts, bool can, enum act_type type, int node, int link, int detail)
{
    if (can)
        acts->items[acts->n++] =
            (struct act){(uint8_t)type, (uint8_t)node, (uint8_t)link, (uint8_t)detail};
}

static void list_faults(const struct world *w, int i, struct acts *acts)
{
    const struct node *n = &w->nodes[i];
    bool has_link = n->link >= 0 && n->links[n->link].has_end[TO_ROSTER];
    add(acts, w->budget[KILL] > 0, FAULT, i, 0, KILL);
    add(acts, w->budget[RESET] > 0 && has_link && !n->is_silent, FAULT, i, 0, RESET);
    bool can_fail = n->runs && !n->stops && !n->fails && !n->is_broken;
    bool can_fail_late = w->config->drops && n->keeps && !n->stops && !n->all_late;
    add(acts, w->budget[FAIL] > 0 && (can_fail || can_fail_late), FAULT, i, 0, FAIL);
    add(acts, w->budget[LEAVE] > 0, FAULT, i, 0, LEAVE);
    add(acts, w->budget[RENEW] > 0 && member_get_state(n->member) == MEMBER_RUNNING, FAULT, i, 0,
        RENEW);
    add(acts, w->budget[SILENCE] > 0 && !n->is_silent, FAULT, i, 0, SILENCE);
}

/* Those that the generation was made of, if all of them run in it. */
static bool all_are_in(const struct world *w, const struct node *n)
{
    uint32_t n_in = 0;
    for (int i = 0; i < N_NODES; i++)
        n_in += w->nodes[i].runs && w->nodes[i].generation == n->generation;
    return n_in == member_get_place(n->member)->place.n_nodes;
}

static bool can_meet(const struct world *w, const struct node *n)
{
    return n->runs && !n->has_met && !n->is_broken && !n->stops && all_are_in(w, n);
}

/* Somebody has heard from all that the step is at its end; or nobody has yet, and all are there. */
static bool can_step(const struct world *w, const struct node *n)
{
    if (!n->runs || !n->has_met || n->is_broken || n->n_steps >= w->config->steps)
        return false;
    if (n->n_steps < w->n_steps[n->generation])
        return true;
    for (int i = 0; i < N_NODES; i++) {
        const struct node *peer = &w->nodes[i];
        if (peer->runs && peer->generation == n->generation &&
            (!peer->has_met || peer->n_steps < n->n_steps))
            return false;
    }
    return all_are_in(w, n);
}

static void list_ranks(const struct world *w, int i, struct acts *acts)
{
    const struct node *n = &w->nodes[i];
    bool can_keep = n->stops && n->may_keep && n->mends;
    add(acts, n->runs && !n->stops && !n->breaks && !n->fails && !n->is_broken, FINISH, i, 0, 0);
    /* what ended before the stop is told before */
    add(acts, n->stops && !n->fails && !can_keep, RID, i, 0, 0);
    add(acts, can_keep, KEEP, i, 0, 0);
    add(acts, n->yields, SAVE, i, 0, 0);
    add(acts, n->breaks && !n->stops && !n->fails, BREAK, i, 0, 0);
    add(acts, n->fails, SEE, i, 0, 0);
    add(acts, w->config->mends && can_meet(w, n), MEET, i, 0, 0);
    add(acts, w->config->mends && can_step(w, n), STEP, i, 0, 0);
}

static void list_node(const struct world *w, int i, struct acts *acts, bool *ret_hurries)
{
    const struct node *n = &w->nodes[i];
    add(acts, !n->was_started, START, i, 0, 0);
    for (int k = 0; k < MAX_LINKS; k++) {
        for (int to = 0; to < 2; to++) {
            bool can = is_deliverable(n, &n->links[k], to);
            *ret_hurries |= can;
            add(acts, can, DELIVER, i, k, to);
        }
    }
    if (n->member == NULL)
        return;
    *ret_hurries |= n->is_connecting && !n->is_silent;
    *ret_hurries |= n->opens || n->stops || n->fails;
    add(acts, n->is_connecting && !n->is_silent, CONNECT, i, 0, 0);
    add(acts, n->opens, OPEN, i, 0, 0);
    list_ranks(w, i, acts);
    add(acts, n->is_silent, HEAL, i, 0, 0);
    list_faults(w, i, acts);
}

static void list_acts(const struct world *w, struct acts *acts)
{
    bool hurries = false; /* time does not go on, but for a slow message */
    acts->n = 0;
    for (int i = 0; i < N_NODES; i++)
        list_node(w, i, acts, &hurries);
    add(acts,
        !is_over(w) && next_deadline_ms(w) != CO_NEVER_MS && (!hurries || w->budget[SLOW] > 0),
        TICK, 0, 0, hurries);
}

/* --- Doing it --- */

static void start(struct world *w, int i)
{
    struct node *n = &w->nodes[i];
    struct member_limits limits = {.start_timeout_ms = 20000};
    struct message_hello hello = world_hello(w, i);
    struct member_orders orders;
    if (member_create(&limits, &hello, "sim", &n->member, NULL) < 0)
        abort();
    n->was_started = true;
    member_begin(n->member, w->now_ms, &orders);
    carry_out_node(w, n, &orders);
}

static void connect_node(struct world *w, struct node *n)
{
    int k = 0;
    while (k < MAX_LINKS && n->links[k].id != 0)
        k++;
    if (k == MAX_LINKS) {
        check(false, "too many connections of one node");
        return;
    }
    n->links[k] = (struct link){.id = ++w->n_links, .has_end = {true, true}};
    n->link = k;
    n->is_connecting = false;
    feed_node(w, n, (struct member_input){.type = MEMBER_LINK_UP});
}

static void end_link(struct world *w, struct node *n, int k, int to)
{
    struct link *l = &n->links[k];
    uint64_t id = l->id;
    l->has_end[to] = false;
    free_if_over(l);
    if (to == TO_NODE) {
        n->link = -1;
        feed_node(w, n, (struct member_input){.type = MEMBER_LINK_DOWN, .text = ""});
    } else {
        feed_roster(w, (struct roster_input){.type = ROSTER_GONE, .link = id});
    }
}

static void deliver(struct world *w, int i, int k, int to)
{
    struct node *n = &w->nodes[i];
    struct queue *q = &n->links[k].queues[to];
    struct mail mail = q->mails[0];
    memmove(q->mails, q->mails + 1, (size_t)--q->n * sizeof *q->mails);
    if (mail.type == MAIL_END) {
        end_link(w, n, k, to);
        return;
    }
    struct message m = mail_unpack(w, i, &mail);
    if (to == TO_NODE)
        feed_node(w, n, (struct member_input){.type = MEMBER_MESSAGE, .message = &m});
    else
        feed_roster(w, (struct roster_input){
                           .type = ROSTER_MESSAGE, .link = n->links[k].id, .message = &m});
}

static void fail(struct world *w, struct node *n, int exit_code)
{
    n->breaks = n->fails = false;
    feed_node(w, n,
              (struct member_input){.type = MEMBER_RANK_FAILED,
                                    .exit_code = exit_code,
                                    .consequence = exit_code != OWN_CODE && w->config->tells,
                                    .mends = n->mends,
                                    .text = ""});
}

/* One rank has. On the node that has only one nothing is left to go on with. */
static void fail_by_itself(struct world *w, struct node *n)
{
    w->own_failure[n->generation] = true;
    break_peers(w, n);
    n->is_broken = n->mends;
    n->fails = w->config->tells; /* then it matters who sees what first */
    if (!n->fails)
        fail(w, n, OWN_CODE);
    bool others_live = n->mends && n->n_ranks > 1;
    n->n_ranks -= others_live && w->config->drops;
    n->mends = others_live;
}

/* One of those that were kept has, or what was the last one of them: then others begin anew. */
static void fail_late(struct world *w, struct node *n)
{
    n->n_late++;
    n->all_late = n->n_ranks == 1;
    n->n_ranks = n->all_late ? member_get_place(n->member)->place.n_local : n->n_ranks - 1;
    n->n_steps = n->all_late ? 0 : n->n_steps;
    n->mends = n->mends && !n->all_late;
    if (member_get_state(n->member) == MEMBER_KEEPING)
        feed_node(w, n, (struct member_input){.type = MEMBER_RANKS_KEPT, .n_ranks = n->n_ranks});
}

/* --- Steps --- */

static void check_generations(const struct world *w, const struct node *n)
{
    for (int i = 0; i < N_NODES; i++)
        check(!w->nodes[i].has_met || w->nodes[i].generation <= n->generation || is_exempt(w, n),
              "ranks go on in a generation when others have met in a later one");
}

/* As good as dead: what only its ranks know goes with them. */
static bool is_going(const struct node *n)
{
    return n->member == NULL || n->member->knows_end;
}

static void meet(struct world *w, struct node *n)
{
    for (int i = 0; i < N_NODES; i++) {
        const struct node *peer = &w->nodes[i];
        if (peer->runs && peer->generation == n->generation && peer->n_steps > n->n_steps)
            n->n_steps = peer->n_steps;
    }
    n->has_met = n->mends = true;
    if (w->n_steps[n->generation] < n->n_steps)
        w->n_steps[n->generation] = n->n_steps;
    for (int i = 0; i < N_NODES; i++)
        check(w->nodes[i].n_steps <= n->n_steps || w->nodes[i].has_met || is_going(&w->nodes[i]) ||
                  is_exempt(w, &w->nodes[i]),
              "a step is lost that somebody has completed");
    check_generations(w, n);
}

static void complete_step(struct world *w, struct node *n)
{
    n->n_steps++;
    check(n->n_steps <= w->n_steps[n->generation] + 1, "a step was left out");
    if (w->n_steps[n->generation] < n->n_steps)
        w->n_steps[n->generation] = n->n_steps;
    check_generations(w, n);
}

/* The abort word is written, and with that the generation is over for them. */
static void keep(struct world *w, struct node *n)
{
    break_peers(w, n);
    n->runs = n->stops = n->breaks = n->yields = n->opens = n->has_met = false;
    n->keeps = n->is_broken = true;
    n->n_late = 0;
    feed_node(w, n, (struct member_input){.type = MEMBER_RANKS_KEPT, .n_ranks = n->n_ranks});
}

static void reset(struct world *w, struct node *n)
{
    struct link *l = &n->links[n->link];
    for (int to = 0; to < 2; to++) {
        l->queues[to].n = 0;
        post(l, (enum direction)to, (struct mail){.type = MAIL_END});
    }
    n->reset_ms = w->now_ms;
}

static void befall(struct world *w, struct node *n, enum fault fault)
{
    w->budget[fault]--;
    if (fault == KILL) {
        end_node(w, n);
    } else if (fault == RESET) {
        reset(w, n);
    } else if (fault == FAIL && n->keeps) {
        fail_late(w, n);
    } else if (fault == FAIL) {
        fail_by_itself(w, n);
    } else if (fault == RENEW) {
        feed_node(w, n, (struct member_input){.type = MEMBER_RESTART});
    } else if (fault == SILENCE) {
        n->is_silent = true;
    } else {
        break_peers(w, n);
        feed_node(w, n,
                  (struct member_input){
                      .type = MEMBER_LEAVE, .exit_code = 143, .signal = 15, .text = ""});
    }
}

/* The nursery and ddprun see the end of a lease at the same time here. */
static void tick(struct world *w)
{
    uint64_t at_ms = next_deadline_ms(w); /* may be past: what was answered late is due at once */
    w->now_ms = at_ms > w->now_ms ? at_ms : w->now_ms;
    for (int i = 0; i < N_NODES; i++) {
        struct node *n = &w->nodes[i];
        if (n->member != NULL && member_deadline_ms(n->member) <= w->now_ms)
            feed_node(w, n, (struct member_input){.type = MEMBER_TIME});
    }
    if (roster_deadline_ms(w->roster) <= w->now_ms)
        feed_roster(w, (struct roster_input){.type = ROSTER_TIME});
}

static void apply(struct world *w, struct act act)
{
    struct node *n = &w->nodes[act.node];
    switch ((enum act_type)act.type) {
    case START:
        start(w, act.node);
        break;
    case CONNECT:
        connect_node(w, n);
        break;
    case DELIVER:
        deliver(w, act.node, act.link, act.detail);
        break;
    case OPEN:
        n->opens = false;
        feed_node(w, n,
                  (struct member_input){.type = MEMBER_STORE_OPEN,
                                        .host = "host",
                                        .port = ++w->n_ports,
                                        .agent_store = true});
        break;
    case FINISH:
        n->runs = n->yields = n->mends = n->has_met = false;
        n->n_steps = 0;
        feed_node(w, n, (struct member_input){.type = MEMBER_RANKS_DONE});
        break;
    case RID:
        end_ranks(w, n);
        n->stops = false;
        feed_node(w, n, (struct member_input){.type = MEMBER_RANKS_GONE});
        break;
    case SAVE:
        n->yields = false;
        feed_node(w, n, (struct member_input){.type = MEMBER_YIELDED});
        break;
    case KEEP:
        keep(w, n);
        break;
    case MEET:
        meet(w, n);
        break;
    case STEP:
        complete_step(w, n);
        break;
    case BREAK:
        if (n->mends) { /* its ranks wait for what follows */
            n->breaks = false;
            n->is_broken = true;
        } else {
            fail(w, n, CONSEQUENCE_CODE);
        }
        break;
    case SEE:
        fail(w, n, OWN_CODE);
        break;
    case FAULT:
        befall(w, n, (enum fault)act.detail);
        break;
    case HEAL:
        n->is_silent = false;
        break;
    case TICK:
        w->budget[SLOW] -= act.detail;
        tick(w);
        break;
    }
}

/* --- The search --- */

struct found { /* a state, by how it is reached */
    uint32_t parent;
    struct act act;
};

static struct search {
    struct found *states;
    size_t n, cap;
    uint64_t *hashes; /* of states; 0: free */
    size_t n_cells;
    uint64_t n_steps;
    struct world root, parent, here;
    uint32_t parent_is; /* which state `parent` is */
} search;

static void *grow(void *old, size_t bytes)
{
    void *bigger = realloc(old, bytes);
    if (bigger == NULL) {
        fprintf(stderr, "no memory for so many states\n");
        exit(1);
    }
    return bigger;
}

static bool remember(struct search *s, uint64_t hash)
{
    size_t i = hash & (s->n_cells - 1);
    for (; s->hashes[i] != 0; i = (i + 1) & (s->n_cells - 1))
        if (s->hashes[i] == hash)
            return false;
    s->hashes[i] = hash;
    return true;
}

static void rehash(struct search *s)
{
    uint64_t *old = s->hashes;
    size_t n_old = s->n_cells;
    s->n_cells = n_old == 0 ? 1 << 16 : 2 * n_old;
    s->hashes = calloc(s->n_cells, sizeof *s->hashes);
    if (s->hashes == NULL)
        grow(NULL, SIZE_MAX / 2);
    for (size_t i = 0; i < n_old; i++)
        if (old[i] != 0)
            remember(s, old[i]);
    free(old);
}

static void push(struct search *s, uint64_t hash, uint32_t parent, struct act act)
{
    if (2 * s->n >= s->n_cells)
        rehash(s);
    if (!remember(s, hash | 1))
        return;
    if (s->n == s->cap) {
        s->cap = s->cap == 0 ? 1 << 16 : 2 * s->cap;
        s->states = grow(s->states, s->cap * sizeof *s->states);
    }
    s->states[s->n++] = (struct found){parent, act};
}

/* The acts that lead to a state, first to last. returns how many */
static int find_path(const struct search *s, uint32_t state, struct act *path)
{
    int n = 0;
    for (uint32_t at = state; at != 0; at = s->states[at].parent)
        n++;
    for (uint32_t at = state, i = (uint32_t)n; at != 0; at = s->states[at].parent)
        path[--i] = s->states[at].act;
    return n;
}

/* Children follow each other, so what was made for one is there for the next. */
static void rebuild(struct search *s, uint32_t state, struct world *to)
{
    static struct act path[MAX_DEPTH];
    uint32_t parent = s->states[state].parent;
    if (state == 0) {
        world_copy(to, &s->root);
        return;
    }
    if (s->parent_is != parent) {
        int n = find_path(s, parent, path);
        world_copy(&s->parent, &s->root);
        for (int i = 0; i < n; i++)
            apply(&s->parent, path[i]);
        s->parent_is = parent;
    }
    world_copy(to, &s->parent);
    apply(to, s->states[state].act);
}

static const char *const act_names[] = {"starts",
                                        "connects",
                                        "delivers",
                                        "opens the store",
                                        "ends well",
                                        "has stopped",
                                        "keeps its ranks",
                                        "saves",
                                        "hears that others are gone",
                                        "sees that its rank has failed",
                                        "meets the others",
                                        "completes a step",
                                        "fault",
                                        "is heard again",
                                        "time"};

static void print_world(const struct world *w)
{
    fprintf(stderr, "    %" PRIu64 " ms, %s, generation %d: %s\n", w->now_ms,
            roster_state_name(roster_get_state(w->roster)), (int)roster_generation(w->roster),
            roster_change(w->roster));
    for (int i = 0; i < N_NODES; i++) {
        const struct node *n = &w->nodes[i];
        if (n->member != NULL)
            fprintf(stderr, "        node%d %s%s, generation %" PRIu32 "\n", i,
                    member_state_name(member_get_state(n->member)), n->runs ? ", runs" : "",
                    n->generation);
    }
}

static void report(struct search *s, uint32_t state, struct act last)
{
    static const char *const faults[] = {"is killed", "is reset",           "fails",
                                         "leaves",    "asks for a restart", "is silent"};
    static struct act path[MAX_DEPTH];
    int n = find_path(s, state, path);
    const char *what = violation;
    path[n++] = last;
    world_copy(&s->here, &s->root);
    for (int i = 0; i < n; i++) {
        const struct act *a = &path[i];
        apply(&s->here, *a);
        if (a->type == TICK)
            fprintf(stderr, "time goes on\n");
        else
            fprintf(stderr, "node%d %s%s\n", a->node,
                    a->type == FAULT ? faults[a->detail] : act_names[a->type],
                    a->type != DELIVER       ? ""
                    : a->detail == TO_ROSTER ? " to the roster"
                                             : " what the roster says");
        print_world(&s->here);
    }
    fprintf(stderr, "%s: %s\n", s->root.config->name, what);
    exit(1);
}

/* Find everything that can happen next. */
static void expand(struct search *s, uint32_t state)
{
    static struct world next;
    struct acts acts;
    rebuild(s, state, &s->here);
    list_acts(&s->here, &acts);
    check(acts.n > 0 || is_over(&s->here), "nothing can happen any more");
    if (violation != NULL)
        report(s, s->states[state].parent, s->states[state].act);
    for (int i = 0; i < acts.n; i++) {
        world_copy(&next, &s->here);
        apply(&next, acts.items[i]);
        s->n_steps++;
        if (violation != NULL)
            report(s, state, acts.items[i]);
        push(s, world_digest(&next), state, acts.items[i]);
    }
}

/* returns whether no state is left that was not gone on from */
static bool explore(const struct config *config, size_t max_states)
{
    struct search *s = &search;
    clock_t began = clock();
    *s = (struct search){.parent_is = UINT32_MAX};
    world_init(&s->root, config);
    push(s, world_digest(&s->root), 0, (struct act){0});
    size_t at = 0;
    for (; at < s->n && s->n <= max_states; at++)
        expand(s, (uint32_t)at);
    static struct act path[MAX_DEPTH];
    printf("%-34s %9zu states, %10" PRIu64 " steps, depth %3d, %5.1f s%s\n", config->name, s->n,
           s->n_steps, find_path(s, (uint32_t)at - 1, path),
           (double)(clock() - began) / CLOCKS_PER_SEC, at < s->n ? ", NOT ALL" : "");
    fflush(stdout);
    bool is_all = at == s->n;
    free(s->states);
    free(s->hashes);
    world_fini(&s->root);
    world_fini(&s->parent);
    world_fini(&s->here);
    return is_all;
}

/* A few are for every day; all of them take ten minutes and two gigabytes. */
#define NOW        MESSAGE_SCALE_NOW
#define SAVE_FIRST MESSAGE_SCALE_AT_CHECKPOINT
/* clang-format off */
static const struct config configs[] = {
    /* name                              daily  min max restarts     leases faults */
    {"2:3, nothing wrong",               true,  2, 3, 0, NOW,        false, {0}},
    {"2:3, a kill",                      true,  2, 3, 0, NOW,        false, {[KILL] = 1}},
    {"1:2, a kill",                      true,  1, 2, 0, NOW,        false, {[KILL] = 1}},
    {"1:2, a failure",                   true,  1, 2, 0, NOW,        false, {[FAIL] = 1}},
    {"1:2, a failure, of libddp",        true,  1, 2, 0, NOW,        false, {[FAIL] = 1}, true},
    {"2:3 at a checkpoint",              true,  2, 3, 0, SAVE_FIRST, false, {0}},
    {"1:2, a kill, in place",            true,  1, 2, 0, NOW,        false, {[KILL] = 1}, false, true, 2},
    {"1:2, a failure, in place",         true,  1, 2, 1, NOW,        false, {[FAIL] = 1}, false, true, 2},
    {"1:2, a failure, shrinking",        true,  1, 2, 1, NOW,        false, {[FAIL] = 1}, false, true, 1, true},
    {"1:2, a restart that is asked for", true,  1, 2, 0, NOW,        false, {[RENEW] = 1}},
    {"1:2, a restart, in place",         true,  1, 2, 0, NOW,        false, {[RENEW] = 1}, false, true, 1},
    {"1:2 with leases",                  true,  1, 2, 0, NOW,        true,  {0}},
    {"3 with leases",                    true,  3, 3, 0, NOW,        true,  {0}},

    {"1:2, a kill, a failure",           false, 1, 2, 0, NOW,        false, {[KILL] = 1, [FAIL] = 1}},
    {"2:3, a reset",                     false, 2, 3, 0, NOW,        false, {[RESET] = 1}},
    {"2:3, two resets",                  false, 2, 3, 0, NOW,        false, {[RESET] = 2}},
    {"2:3, two kills",                   false, 2, 3, 0, NOW,        false, {[KILL] = 2}},
    {"2:3, a leave",                     false, 2, 3, 0, NOW,        false, {[LEAVE] = 1}},
    {"2:3, a failure",                   false, 2, 3, 0, NOW,        false, {[FAIL] = 1}},
    {"3, a failure, of libddp",          false, 3, 3, 0, NOW,        false, {[FAIL] = 1}, true},
    {"1:2, a failure, of libddp, a reset", false, 1, 2, 0, NOW,      false, {[RESET] = 1, [FAIL] = 1}, true},
    {"2:3, a kill, a failure",           false, 2, 3, 0, NOW,        false, {[KILL] = 1, [FAIL] = 1}},
    {"2:3 at a checkpoint, a kill",      false, 2, 3, 0, SAVE_FIRST, false, {[KILL] = 1}},
    {"3, a failure, a restart",          false, 3, 3, 1, NOW,        false, {[FAIL] = 1}},
    {"3, a kill, a failure, a restart",  false, 3, 3, 1, NOW,        false, {[KILL] = 1, [FAIL] = 1}},
    {"2:3, a restart that is asked for", false, 2, 3, 0, NOW,        false, {[RENEW] = 1}},
    {"1:2, a restart, a kill",           false, 1, 2, 0, NOW,        false, {[RENEW] = 1, [KILL] = 1}},
    {"1:2, a restart, a failure",        false, 1, 2, 0, NOW,        false, {[RENEW] = 1, [FAIL] = 1}},
    {"1:2, a restart, a reset",          false, 1, 2, 0, NOW,        false, {[RENEW] = 1, [RESET] = 1}},
    {"2:3, in place",                    false, 2, 3, 0, NOW,        false, {0}, false, true, 2},
    {"2:3, a kill, in place",            false, 2, 3, 0, NOW,        false, {[KILL] = 1}, false, true, 1},
    {"3, a failure, in place",           false, 3, 3, 1, NOW,        false, {[FAIL] = 1}, false, true, 1},
    {"3, a failure, shrinking",          false, 3, 3, 1, NOW,        false, {[FAIL] = 1}, false, true, 1, true},
    {"1:2, two failures, shrinking",     false, 1, 2, 2, NOW,        false, {[FAIL] = 2}, false, true, 2, true},
    {"1:2, a kill, a failure, shrinking", false, 1, 2, 1, NOW,       false, {[KILL] = 1, [FAIL] = 1}, false, true, 1, true},
    {"1:2, a kill, a failure, in place", false, 1, 2, 1, NOW,        false, {[KILL] = 1, [FAIL] = 1}, false, true, 2},
    {"1:2, a leave, in place",           false, 1, 2, 0, NOW,        false, {[LEAVE] = 1}, false, true, 2},
    {"1:2, a reset, in place",           false, 1, 2, 0, NOW,        false, {[RESET] = 1}, false, true, 2},
    {"1:2 with leases, in place",        false, 1, 2, 0, NOW,        true,  {0}, false, true, 1},
    {"2:3 with leases",                  false, 2, 3, 0, NOW,        true,  {0}},
    {"3 with leases, a slow message",    false, 3, 3, 0, NOW,        true,  {[SLOW] = 1}},
    {"1:2 with leases, a slow message",  false, 1, 2, 0, NOW,        true,  {[SLOW] = 1}},
    {"1:2 with leases, a kill",          false, 1, 2, 0, NOW,        true,  {[KILL] = 1}},
    {"1:2 with leases, a silence",       false, 1, 2, 0, NOW,        true,  {[SILENCE] = 1}},
};
/* clang-format on */

/* SIM_STATES=N: of each no more than that, those that are come to first. SIM_ONLY=NAME: no
 * other. */
int main(int argc, char **argv)
{
    const char *most = getenv("SIM_STATES");
    const char *only = getenv("SIM_ONLY");
    bool all = argc > 1 && strcmp(argv[1], "all") == 0;
    bool is_all = true;
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++)
        if (only != NULL ? strcmp(only, configs[i].name) == 0 : all || configs[i].is_quick)
            is_all &= explore(&configs[i], most != NULL ? strtoull(most, NULL, 10) : MAX_STATES);
    return is_all || most != NULL ? 0 : 1;
}
