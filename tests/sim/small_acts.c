#include "small_acts.h"

#include "small_orders.h"
#include "small_promises.h"

#include "common/clock.h"

#include <stdlib.h>
#include <string.h>

/* --- What can happen --- */

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

bool acts_are_over(const struct world *w)
{
    for (int i = 0; i < N_NODES; i++)
        if (!w->nodes[i].is_gone)
            return false;
    return true;
}

static void add(struct acts *acts, bool can, enum act_type type, int node, int link, int detail)
{
    if (can)
        acts->items[acts->n++] =
            (struct act){(uint8_t)type, (uint8_t)node, (uint8_t)link, (uint8_t)detail};
}

/* As fitness.c does. */
static bool can_check(const struct world *w, const struct node *n)
{
    return w->config->checks && may_check(member_get_state(n->member));
}

static void list_faults(const struct world *w, int i, struct acts *acts)
{
    const struct node *n = &w->nodes[i];
    bool has_link = n->link >= 0 && n->links[n->link].has_end[TO_ROSTER];
    add(acts, w->budget[KILL] > 0, FAULT, i, 0, KILL);
    add(acts, w->budget[RESET] > 0 && has_link && !n->is_silent, FAULT, i, 0, RESET);
    bool can_fail = n->runs && !n->stops && !n->fails && !n->is_broken;
    bool can_fail_late = w->config->drops && n->parks && !n->stops && !n->all_late;
    add(acts, w->budget[FAIL] > 0 && (can_fail || can_fail_late), FAULT, i, 0, FAIL);
    add(acts, w->budget[LEAVE] > 0, FAULT, i, 0, LEAVE);
    add(acts, w->budget[RENEW] > 0 && member_get_state(n->member) == MEMBER_RUNNING, FAULT, i, 0,
        RENEW);
    add(acts, w->budget[SILENCE] > 0 && !n->is_silent, FAULT, i, 0, SILENCE);
    add(acts, w->budget[SICK] > 0 && can_check(w, n) && n->member->health != MEMBER_HEALTH_UNFIT,
        FAULT, i, 0, SICK);
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

/* A rank knows from all that the step is complete; or none knows yet, and all are present. */
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
    bool can_keep = n->stops && n->may_park && n->recovers;
    add(acts, n->runs && !n->stops && !n->breaks && !n->fails && !n->is_broken, FINISH, i, 0, 0);
    /* ends before the stop are reported first */
    add(acts, n->stops && !n->fails && !can_keep, RID, i, 0, 0);
    add(acts, can_keep, KEEP, i, 0, 0);
    add(acts, n->yields, SAVE, i, 0, 0);
    add(acts, n->breaks && !n->stops && !n->fails, BREAK, i, 0, 0);
    add(acts, n->fails, SEE, i, 0, 0);
    add(acts, w->config->recovers && can_meet(w, n), MEET, i, 0, 0);
    add(acts, w->config->recovers && can_step(w, n), STEP, i, 0, 0);
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
    *ret_hurries |= can_check(w, n) && n->member->health == MEMBER_HEALTH_UNKNOWN;
    add(acts, can_check(w, n) && n->member->health != MEMBER_HEALTH_FIT, CHECK, i, 0, 0);
    add(acts, n->is_connecting && !n->is_silent, CONNECT, i, 0, 0);
    add(acts, n->opens, OPEN, i, 0, 0);
    list_ranks(w, i, acts);
    add(acts, n->is_silent, HEAL, i, 0, 0);
    list_faults(w, i, acts);
}

void acts_list(const struct world *w, struct acts *acts)
{
    bool hurries = false; /* time stands still, except for a slow message */
    acts->n = 0;
    for (int i = 0; i < N_NODES; i++)
        list_node(w, i, acts, &hurries);
    hurries |= w->phase != RECORD_CONFIRMED;
    add(acts, w->phase == RECORD_WANTED, WRITE, 0, 0, 0);
    add(acts, w->phase == RECORD_WRITTEN, CONFIRM, 0, 0, 0);
    const bool has_record = roster_get_state(w->roster) != ROSTER_CLOSED ||
                            roster_generation(w->roster) != MESSAGE_NO_GENERATION;
    add(acts, w->budget[MOVE] > 0 && has_record, FAULT, 0, 0, MOVE);
    add(acts,
        !acts_are_over(w) && next_deadline_ms(w) != CO_NEVER_MS &&
            (!hurries || w->budget[SLOW] > 0),
        TICK, 0, 0, hurries);
}

/* --- Doing it --- */

static void start(struct world *w, int i)
{
    struct node *n = &w->nodes[i];
    struct member_limits limits = {.start_timeout_ms = 20000};
    struct message_hello hello = world_hello(w, i);
    struct member_orders orders;
    n->version = world_new_version();
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
        promise(false, "too many connections of one node");
        return;
    }
    n->links[k] = (struct link){.id = ++w->n_links, .has_end = {true, true}};
    n->link = k;
    n->is_connecting = false;
    feed_node(w, n, (struct member_input){.type = MEMBER_LINK_UP});
}

static void open_store(struct world *w, struct node *n)
{
    n->opens = false;
    feed_node(
        w, n,
        (struct member_input){
            .type = MEMBER_STORE_OPEN, .host = "host", .port = ++w->n_ports, .agent_store = true});
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
                                    .recovers = n->recovers,
                                    .text = ""});
}

/* Ranks that can live on wait for what follows. */
static void hear_of_break(struct world *w, struct node *n)
{
    if (n->recovers) {
        n->breaks = false;
        n->is_broken = true;
    } else {
        fail(w, n, CONSEQUENCE_CODE);
    }
}

/* One rank has failed. A node with only one rank has nothing left to continue with. */
static void fail_by_itself(struct world *w, struct node *n)
{
    w->own_failure[n->generation] = true;
    break_peers(w, n);
    n->is_broken = n->recovers;
    n->fails = w->config->tells; /* then the order of detection matters */
    if (!n->fails)
        fail(w, n, OWN_CODE);
    bool others_live = n->recovers && n->n_ranks > 1;
    n->n_ranks -= others_live && w->config->drops;
    n->recovers = others_live;
}

/* One of those that were parked has, or what was the last one of them: then others begin again. */
static void fail_late(struct world *w, struct node *n)
{
    n->n_late++;
    n->all_late = n->n_ranks == 1;
    n->n_ranks = n->all_late ? member_get_place(n->member)->place.n_local : n->n_ranks - 1;
    n->n_steps = n->all_late ? 0 : n->n_steps;
    n->history = n->all_late ? 0 : n->history;
    n->recovers = n->recovers && !n->all_late;
    if (member_get_state(n->member) == MEMBER_PARKED)
        feed_node(w, n, (struct member_input){.type = MEMBER_RANKS_PARKED, .n_ranks = n->n_ranks});
}

static void meet(struct world *w, struct node *n)
{
    for (int i = 0; i < N_NODES; i++) {
        const struct node *peer = &w->nodes[i];
        if (peer->runs && peer->generation == n->generation && peer->n_steps > n->n_steps) {
            n->n_steps = peer->n_steps;
            n->history = peer->history;
        }
    }
    n->has_met = n->recovers = true;
    if (w->n_steps[n->generation] < n->n_steps)
        w->n_steps[n->generation] = n->n_steps;
    promise_no_step_is_lost(w, n);
    promise_of_history(w, n);
    promise_of_generations(w, n);
}

static void complete_step(struct world *w, struct node *n)
{
    n->n_steps++;
    n->history = (n->history ^ n->generation) * 16777619u + 1;
    promise(n->n_steps <= w->n_steps[n->generation] + 1, "a step was left out");
    if (w->n_steps[n->generation] < n->n_steps)
        w->n_steps[n->generation] = n->n_steps;
    promise_of_generations(w, n);
}

/* The abort word is written, and with that the generation is over for them. */
static void park(struct world *w, struct node *n)
{
    break_peers(w, n);
    n->runs = n->stops = n->breaks = n->yields = n->opens = n->has_met = false;
    n->parks = n->is_broken = true;
    n->n_late = 0;
    feed_node(w, n, (struct member_input){.type = MEMBER_RANKS_PARKED, .n_ranks = n->n_ranks});
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

/* The record is of the end of the job: the next verdict has its exit status. */
static void end_again(struct world *w)
{
    const struct message end = {.type = MESSAGE_END,
                                .generation = MESSAGE_NO_GENERATION,
                                .verdict = {.outcome = MESSAGE_ENDED,
                                            .exit_code = (uint8_t)w->past_code,
                                            .rank = MESSAGE_NO_RANK,
                                            .node = "",
                                            .text = ""}};
    feed_roster(w, (struct roster_input){.type = ROSTER_END, .message = &end});
}

/* What was on its way to a node and arrives has arrived before. */
static void move_roster(struct world *w)
{
    const struct roster_limits limits = w->roster->limits;
    const struct message_terms terms = w->roster->terms;
    for (int i = 0; i < N_NODES; i++)
        for (int k = 0; k < MAX_LINKS; k++) {
            w->nodes[i].links[k].queues[TO_NODE].n = 0;
            close_end(&w->nodes[i].links[k], TO_ROSTER);
        }
    roster_destroy(w->roster);
    w->version = world_new_version();
    if (roster_create(&limits, &terms, NULL, 0, w->now_ms, &w->roster, NULL) < 0 ||
        (w->has_past && roster_resume(w->roster, &w->past, w->now_ms, NULL) < 0))
        abort();
    w->phase = RECORD_CONFIRMED;
    w->inherited = w->has_past ? w->past.generation : MESSAGE_NO_GENERATION;
    if (w->past_code >= 0)
        end_again(w);
}

static void befall(struct world *w, struct node *n, enum fault fault)
{
    w->budget[fault]--;
    if (fault == MOVE) {
        move_roster(w);
    } else if (fault == KILL) {
        end_node(w, n);
    } else if (fault == RESET) {
        reset(w, n);
    } else if (fault == FAIL && n->parks) {
        fail_late(w, n);
    } else if (fault == FAIL) {
        fail_by_itself(w, n);
    } else if (fault == RENEW) {
        feed_node(w, n, (struct member_input){.type = MEMBER_RESTART});
    } else if (fault == SILENCE) {
        n->is_silent = true;
    } else if (fault == SICK) {
        n->is_fit = false;
        feed_node(w, n, (struct member_input){.type = MEMBER_UNFIT, .text = "sick"});
    } else {
        break_peers(w, n);
        feed_node(w, n,
                  (struct member_input){
                      .type = MEMBER_LEAVE, .exit_code = 143, .signal = 15, .text = ""});
    }
}

/* The spawner and ddprun see the end of a lease at the same time here. */
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

void act_do(struct world *w, struct act act)
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
        open_store(w, n);
        break;
    case FINISH:
        n->runs = n->yields = n->recovers = n->has_met = false;
        n->n_steps = 0;
        n->history = 0;
        feed_node(w, n, (struct member_input){.type = MEMBER_RANKS_SUCCEEDED});
        break;
    case RID:
        end_ranks(w, n);
        n->stops = false;
        feed_node(w, n, (struct member_input){.type = MEMBER_RANKS_STOPPED});
        break;
    case SAVE:
        n->yields = false;
        feed_node(w, n, (struct member_input){.type = MEMBER_RANKS_SAVED});
        break;
    case KEEP:
        park(w, n);
        break;
    case CHECK:
        n->is_fit = true;
        feed_node(w, n, (struct member_input){.type = MEMBER_FIT});
        break;
    case MEET:
        meet(w, n);
        break;
    case STEP:
        complete_step(w, n);
        break;
    case BREAK:
        hear_of_break(w, n);
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
    case WRITE:
        w->has_past = true;
        w->past = w->being_written;
        w->past_code = w->being_code;
        w->phase = RECORD_WRITTEN;
        break;
    case CONFIRM:
        w->phase = RECORD_CONFIRMED;
        feed_roster(
            w, (struct roster_input){.type = ROSTER_CONFIRMED, .generation = w->past.generation});
        break;
    case TICK:
        w->budget[SLOW] -= act.detail;
        tick(w);
        break;
    }
}
