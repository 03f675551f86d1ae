/* membership_nodes.c - nodes: real members, and processes that are made up. */
#include "membership_world.h"

#include "schedules.h"

#include "common/clock.h"
#include "common/error.h"

#include <stddef.h>
#include <string.h>

/* --- A node --- */

static void stop_processes(struct node *n)
{
    n->runs = n->parks = false;
    n->open_at_ms = n->fail_at_ms = n->done_at_ms = n->yield_at_ms = CO_NEVER_MS;
}

/* Ranks whose peers are gone fail soon, most of them. */
static void break_peers(struct world *w, const struct node *of)
{
    for (int i = 0; i < w->n_nodes; i++) {
        struct node *n = &w->nodes[i];
        if (n == of || !n->runs || n->generation != of->generation || n->phase != RANKS_RUN ||
            chance(w, 3))
            continue;
        uint64_t at_ms = w->now_ms + draw(w, 10);
        if (at_ms >= n->fail_at_ms)
            continue;
        n->fail_at_ms = at_ms;
        n->fails_for_others = true;
        n->done_at_ms = CO_NEVER_MS;
    }
}

static void end_processes(struct world *w, struct node *n)
{
    bool ran = n->runs && n->phase == RANKS_RUN;
    stop_processes(n);
    if (ran)
        break_peers(w, n);
}

/* ddprun is gone, and what it had. */
static void end_node(struct world *w, struct node *n, bool says_so)
{
    end_processes(w, n);
    n->phase = RANKS_NONE;
    n->is_up = false;
    n->ended_at_ms = w->now_ms;
    n->gone_at_ms = n->connect_at_ms = n->lease_end_ms = n->restarts_at_ms = CO_NEVER_MS;
    n->check_at_ms = CO_NEVER_MS;
    n->leaves_at_ms = n->killed_at_ms = n->dies_at_ms = n->ends_job_at_ms = CO_NEVER_MS;
    struct link *l = n->link;
    if (l != NULL && says_so) {
        link_close(w, l, TO_NODE);
    } else if (l != NULL) {
        l->is_dead = true;
        l->has_end[TO_NODE] = false;
        queue_clear(&l->queues[TO_NODE]);
        queue_clear(&l->queues[TO_ROSTER]);
        n->link = NULL;
    }
    member_destroy(n->member);
    n->member = NULL;
}

/* Ranks that live on have the state of the others: no generation that all its nodes have started in
 * was without them. */
static void check_missed(struct world *w, const struct node *n, uint32_t generation)
{
    for (uint32_t i = n->generation + 1; n->parks && i < generation; i++) {
        const struct generation *g = &w->generations[i];
        uint32_t n_started = 0;
        for (int k = 0; k < MAX_NODES; k++)
            n_started += g->started[k];
        check(w, n_started == 0 || n_started < g->n_nodes || g->started[n - w->nodes],
              "ranks live on that have missed a generation");
    }
}

static void start_processes(struct world *w, struct node *n)
{
    const struct member_place *p = member_get_place(n->member);
    struct generation *g = &w->generations[p->generation];
    int i = (int)(n - w->nodes);
    check(w, !n->runs, "ranks are started while others run");
    check(w, !n->hello.checks || n->is_fit, "an unhealthy node has started ranks");
    check_missed(w, n, p->generation);
    check(w, !g->started[i], "ranks of one generation are started twice");
    g->started[i] = true;
    for (uint32_t other = 0; g->port == 0 && other < MAX_GENERATIONS; other++)
        check(w, w->generations[other].port != p->place.port, "two generations share a store");
    if (g->port == 0) {
        check(w, p->place.leads, "somebody started before the leader");
        g->leader = i;
        g->port = p->place.port;
        g->world_size = p->place.world_size;
        g->n_nodes = p->place.n_nodes;
        g->is_doomed = w->now_ms < FAULTS_END_MS && chance(w, 3);
        g->lasts_ms = 200 + draw(w, 8000);
    }
    check(w,
          g->port == p->place.port && g->world_size == p->place.world_size &&
              g->n_nodes == p->place.n_nodes,
          "the nodes of a generation were told different things");
    n->phase = RANKS_RUN;
    n->runs = true;
    n->parks = false;
    n->generation = p->generation;
    n->fails_for_others = false;
    n->done_at_ms = w->now_ms + g->lasts_ms + draw(w, chance(w, 4) ? 5000 : 100);
    n->fail_at_ms = g->is_doomed && chance(w, 2) ? w->now_ms + draw(w, 3000) : CO_NEVER_MS;
}

static void note_end(struct world *w, struct node *n)
{
    n->end = *member_get_end(n->member);
    n->has_ended = true;
    schedules_tell(w->now_ms, "  %s ends: %d, %s", n->name, n->end.exit_code, n->end.text);
    check(w, n->end.exit_code != REJECTED_CODE || strncmp(n->end.text, "timed out", 9) == 0,
          "a moment of rejections ended a node");
    check(w, !n->runs, "ddprun ends before its ranks");
    if (node_is_excluded(n))
        check(w, w->terms.exclude_after > 0 && n->n_failures >= w->terms.exclude_after,
              "a node was excluded that had not failed so often");
    end_node(w, n, true);
}

/* It does not keep to the times that it stated. */
static bool gets_stuck(struct world *w, struct node *n)
{
    bool is_stuck = w->now_ms < FAULTS_END_MS && chance(w, 300);
    n->is_stuck |= is_stuck;
    return is_stuck;
}

static void carry_out_ranks(struct world *w, struct node *n, const struct member_orders *o)
{
    if (o->open_store) {
        n->phase = RANKS_OPENING;
        n->open_at_ms = w->now_ms + (gets_stuck(w, n) ? 30000 : draw(w, 3));
    }
    if (o->start_ranks)
        start_processes(w, n);
    if (o->request_checkpoint && n->phase == RANKS_RUN)
        n->yield_at_ms = w->now_ms + draw(w, 500);
    if (o->stop_ranks || o->kill_ranks)
        n->may_park = w->recovers && o->stop_ranks && o->may_park && n->phase == RANKS_RUN;
    if (o->stop_ranks && n->gone_at_ms == CO_NEVER_MS) {
        n->fail_at_ms = n->done_at_ms = n->yield_at_ms = n->open_at_ms = CO_NEVER_MS;
        n->gone_at_ms = w->now_ms + (chance(w, 4) ? draw(w, STOP_MS) : draw(w, 10));
        if (member_get_state(n->member) == MEMBER_STOPPING && gets_stuck(w, n))
            n->gone_at_ms = w->now_ms + 30000; /* unless it is killed */
        if (!n->runs)
            n->gone_at_ms = w->now_ms;
    }
    if (o->kill_ranks) {
        end_processes(w, n);
        n->gone_at_ms = w->now_ms + draw(w, 3);
    }
}

static void carry_out_node(struct world *w, struct node *n, const struct member_orders *o)
{
    if (o->set_lease)
        n->lease_end_ms = o->lease_end_ms;
    if (o->leased) {
        check(w, is_home(w, n) && w->home_needs_lease, "a lease is reported without a question");
        check(w, n->lease_end_ms > w->now_ms, "a lease is reported that is over");
        check(w,
              n->lease_end_ms != CO_NEVER_MS || !(n->runs || n->parks) ||
                  member_get_state(n->member) == MEMBER_ENDING,
              "ranks have no lease, and one was reported");
        w->home_is_leased = true;
    }
    for (size_t i = 0; i < o->n_messages; i++) {
        schedules_tell(w->now_ms, "    %s says %s %" PRIu32 "%s", n->name,
                       message_name(o->messages[i].type), o->messages[i].generation,
                       n->link == NULL ? ", to nobody" : "");
        if (n->link != NULL && n->link->has_end[TO_ROSTER])
            link_send(w, n->link, TO_ROSTER, &o->messages[i]);
    }
    if (o->disconnect) {
        n->connect_at_ms = CO_NEVER_MS;
        if (n->link != NULL)
            link_close(w, n->link, TO_NODE);
    }
    if (o->connect)
        n->connect_at_ms = w->now_ms + draw(w, 3);
    carry_out_ranks(w, n, o);
    if (o->ended)
        note_end(w, n);
}

static bool may_check(enum member_state state)
{
    return state == MEMBER_JOINING || state == MEMBER_WAITING || state == MEMBER_PARKED;
}

/* As fitness.c. */
static void note_state(struct world *w, struct node *n, enum member_state from)
{
    const enum member_state to = member_get_state(n->member);
    if (!n->hello.checks || from == to)
        return;
    if (may_check(to) && (!may_check(from) || to == MEMBER_JOINING)) {
        n->is_fit = false;
        n->check_at_ms = w->now_ms + draw(w, CHECK_MS);
    } else if (!may_check(to)) {
        n->check_at_ms = CO_NEVER_MS;
    }
}

void node_feed(struct world *w, struct node *n, struct member_input in)
{
    struct member_orders orders;
    const enum member_state from = member_get_state(n->member);
    in.now_ms = w->now_ms;
    member_step(n->member, &in, &orders);
    note_state(w, n, from);
    carry_out_node(w, n, &orders);
}

/* One that waits is checked again. */
static void end_check(struct world *w, struct node *n)
{
    n->is_fit = w->now_ms >= FAULTS_END_MS || !chance(w, 3);
    n->check_at_ms = w->now_ms + (n->is_fit ? 3000 : 500) + draw(w, 1000);
    w->n_unfit += !n->is_fit;
    schedules_tell(w->now_ms, "%s is %s", n->name, n->is_fit ? "fit" : "not fit");
    node_feed(w, n,
              (struct member_input){.type = n->is_fit ? MEMBER_FIT : MEMBER_UNFIT, .text = "sick"});
}

void node_make_hello(struct world *w, struct node *n, int i)
{
    n->hello = (struct message_hello){
        .run_id = "sim",
        .name = n->name,
        .node_rank = w->has_node_ranks ? (int32_t)((uint32_t)i % (w->terms.max_nodes + 3))
                                       : MESSAGE_NO_RANK, /* of one that may be gone: a spare */
        .n_local = 1 + (uint32_t)draw(w, 3),
        .resumes = MESSAGE_NO_GENERATION,
        .stop_ms = STOP_MS,
        .terms = w->terms,
        .checks = w->checks && chance(w, 2),
        .domain = w->terms.segment > 0 ? n->domain : "",
    };
    n->hello.check_ms = n->hello.checks ? CHECK_MS : 0;
    for (int at = 0; at < MESSAGE_INSTANCE_BYTES; at++)
        n->hello.instance[at] = (uint8_t)draw(w, 256);
    snprintf(n->name, sizeof n->name, "node%d", i);
    if (w->terms.segment > 0)
        snprintf(n->domain, sizeof n->domain, "d%d", i / (int)w->terms.segment % N_DOMAINS);
}

/* A roster without state, which only nodes without state join, begins the job again, although older
 * ranks may still run under a lease unknown to it. The simulation leaves that case out. */
static bool finds_nobody(const struct world *w, const struct node *n)
{
    return w->is_blind && !n->was_welcome &&
           (w->is_moving || w->now_ms <= w->replaced_at_ms + LEASE_MS + LEASE_MARGIN_MS) &&
           w->n_moves > 0;
}

static void start_node(struct world *w, struct node *n)
{
    struct member_limits limits = {.start_timeout_ms = w->terms.start_timeout_ms,
                                   .failover_timeout_ms = 60000,
                                   .seek_ms =
                                       w->seed / 4 % 2 == 0 ? w->terms.rejoin_timeout_ms : 0};
    struct member_orders orders;
    struct co_error err;
    n->starts_at_ms = CO_NEVER_MS;
    n->is_up = n->exists = true;
    schedules_tell(w->now_ms, "%s starts", n->name);
    if (member_create(&limits, &n->hello, "sim:1", &n->member, &err) < 0)
        give_up(w, err.text);
    member_begin(n->member, w->now_ms, &orders);
    note_state(w, n, MEMBER_ENDED);
    carry_out_node(w, n, &orders);
}

/* --- What happens to a node --- */

static bool is_cut_off(const struct world *w, const struct node *n)
{
    return w->now_ms < n->blocked_until_ms;
}

static void answer_connect(struct world *w, struct node *n)
{
    n->connect_at_ms = CO_NEVER_MS;
    struct link *l = link_by_id(w, 0);
    if (w->is_moving && w->now_ms < w->roster_frozen_until_ms && !is_cut_off(w, n)) {
        if (!w->is_blind) /* only an election knows that another one comes */
            node_feed(
                w, n,
                (struct member_input){.type = MEMBER_COORDINATOR_LOST, .asked_ms = w->now_ms});
        node_feed(w, n, (struct member_input){.type = MEMBER_LINK_DOWN, .text = "nobody leads"});
        return;
    }
    if (is_cut_off(w, n) || l == NULL || finds_nobody(w, n)) {
        node_feed(w, n, (struct member_input){.type = MEMBER_LINK_DOWN, .text = "unreachable"});
        return;
    }
    if (w->now_ms < FAULTS_END_MS && !is_home(w, n) &&
        chance(w, 30)) { /* another process has the port for a moment */
        node_feed(w, n,
                  (struct member_input){.type = MEMBER_LINK_DOWN,
                                        .rejected = true,
                                        .exit_code = REJECTED_CODE,
                                        .text = "another token"});
        return;
    }
    *l = (struct link){.id = ++w->n_links, .node = (int)(n - w->nodes), .has_end = {true, true}};
    n->link = l;
    node_feed(w, n, (struct member_input){.type = MEMBER_LINK_UP});
    if (is_home(w, n) && !w->home_needs_lease)
        node_feed(w, n, (struct member_input){.type = MEMBER_LEASE});
}

void node_turn_lease(struct world *w, struct node *n)
{
    w->lease_turns_at_ms = w->now_ms < FAULTS_END_MS ? w->now_ms + draw(w, 8000) : CO_NEVER_MS;
    w->home_needs_lease = !w->home_needs_lease;
    w->home_is_leased = false;
    if (n->is_up && (w->home_needs_lease || n->link != NULL))
        node_feed(w, n, (struct member_input){.type = MEMBER_LEASE, .needed = w->home_needs_lease});
}

static void answer_open(struct world *w, struct node *n)
{
    n->open_at_ms = CO_NEVER_MS;
    if (w->now_ms < FAULTS_END_MS && chance(w, 200)) {
        w->generations[member_get_place(n->member)->generation].has_own_failure = true;
        node_feed(
            w, n,
            (struct member_input){
                .type = MEMBER_RANK_FAILED, .exit_code = 70, .final = true, .text = "no port"});
        return;
    }
    node_feed(
        w, n,
        (struct member_input){
            .type = MEMBER_STORE_OPEN, .host = "host", .port = ++w->n_ports, .agent_store = true});
}

static void fail_ranks(struct world *w, struct node *n)
{
    const struct member_place *p = member_get_place(n->member);
    bool for_others = n->fails_for_others;
    n->fail_at_ms = n->done_at_ms = CO_NEVER_MS;
    if (!for_others) {
        w->generations[n->generation].has_own_failure = true;
        break_peers(w, n);
    }
    n->n_failures += !for_others || !w->tells;
    schedules_tell(w->now_ms, "%s: a rank fails%s", n->name, for_others ? " for others" : "");
    node_feed(w, n,
              (struct member_input){.type = MEMBER_RANK_FAILED,
                                    .rank = (int32_t)p->place.first_rank,
                                    .exit_code = for_others ? CONSEQUENCE_CODE : 7,
                                    .consequence = for_others && w->tells,
                                    .text = "exited with 7"});
}

/* The spawner's action, whether ddprun is able to see it or not. */
static void lapse(struct world *w, struct node *n)
{
    n->lease_end_ms = CO_NEVER_MS;
    check(w, !(n->runs || n->parks) || !is_home(w, n) || w->home_is_leased || n->is_stuck,
          "ranks were killed that need no lease");
    n->parks = false;
    if (!n->runs)
        return;
    schedules_tell(w->now_ms, "%s: the spawner kills", n->name);
    end_processes(w, n);
    n->fail_at_ms = w->now_ms; /* what ddprun will see of it */
    n->fails_for_others = true;
}

static void finish_ranks(struct world *w, struct node *n)
{
    n->done_at_ms = n->fail_at_ms = CO_NEVER_MS;
    n->runs = false;
    n->phase = RANKS_DONE;
    node_feed(w, n, (struct member_input){.type = MEMBER_RANKS_SUCCEEDED});
}

/* Some generations complete more steps than any before. */
static uint64_t steps_of(const struct world *w, const struct node *n)
{
    return (w->seed + n->generation) % 3 == 0 ? 10 * ((uint64_t)n->generation + 1) : 5;
}

static void rid_ranks(struct world *w, struct node *n)
{
    const uint64_t steps = steps_of(w, n);
    bool parks = n->may_park && n->runs;
    bool hangs = !parks && n->runs && w->now_ms < FAULTS_END_MS && chance(w, 500);
    n->gone_at_ms = CO_NEVER_MS;
    stop_processes(n);
    if (parks) {
        n->phase = RANKS_NONE;
        n->parks = true;
        node_feed(w, n,
                  (struct member_input){
                      .type = MEMBER_RANKS_PARKED, .n_ranks = n->hello.n_local, .steps = steps});
        return;
    }
    n->phase = RANKS_NONE;
    node_feed(w, n,
              (struct member_input){.type = MEMBER_RANKS_STOPPED, .steps = steps, .hangs = hangs});
}

static void leave(struct world *w, struct node *n)
{
    n->leaves_at_ms = CO_NEVER_MS;
    schedules_tell(w->now_ms, "%s leaves", n->name);
    if (n->runs && n->phase == RANKS_RUN)
        break_peers(w, n);
    node_feed(w, n,
              (struct member_input){
                  .type = MEMBER_LEAVE, .exit_code = 143, .signal = 15, .text = "SIGTERM"});
}

static void end_job(struct world *w, struct node *n)
{
    n->ends_job_at_ms = CO_NEVER_MS;
    node_feed(w, n,
              (struct member_input){
                  .type = MEMBER_END_JOB, .exit_code = 124, .text = "the time is over"});
}

/* Of a node whose ranks do not run it means nothing. */
static void ask_restart(struct world *w, struct node *n)
{
    n->restarts_at_ms = CO_NEVER_MS;
    schedules_tell(w->now_ms, "%s is asked for a restart", n->name);
    node_feed(w, n, (struct member_input){.type = MEMBER_RESTART});
}

void node_take_time(struct world *w, struct node *n)
{
    node_feed(w, n, (struct member_input){.type = MEMBER_TIME});
}

static void kill_ddprun(struct world *w, struct node *n)
{
    schedules_tell(w->now_ms, "%s is killed", n->name);
    end_node(w, n, true);
}

static void power_off(struct world *w, struct node *n)
{
    schedules_tell(w->now_ms, "%s is without power", n->name);
    end_node(w, n, false);
}

static void yield(struct world *w, struct node *n)
{
    n->yield_at_ms = CO_NEVER_MS;
    node_feed(w, n, (struct member_input){.type = MEMBER_RANKS_SAVED});
}

typedef void happening(struct world *w, struct node *n);

/* What can happen to a node, and when. Frozen, ddprun sees nothing; the spawner does its part. */
static const struct {
    size_t at; /* offset of the time */
    happening *happen;
    bool needs_ddprun; /* that is awake */
} happenings[] = {
    {offsetof(struct node, lease_end_ms), lapse, false},
    {offsetof(struct node, starts_at_ms), start_node, false},
    {offsetof(struct node, killed_at_ms), kill_ddprun, false},
    {offsetof(struct node, dies_at_ms), power_off, false},
    {offsetof(struct node, connect_at_ms), answer_connect, true},
    {offsetof(struct node, open_at_ms), answer_open, true},
    {offsetof(struct node, fail_at_ms), fail_ranks, true},
    {offsetof(struct node, done_at_ms), finish_ranks, true},
    {offsetof(struct node, gone_at_ms), rid_ranks, true},
    {offsetof(struct node, yield_at_ms), yield, true},
    {offsetof(struct node, leaves_at_ms), leave, true},
    {offsetof(struct node, ends_job_at_ms), end_job, true},
    {offsetof(struct node, restarts_at_ms), ask_restart, true},
    {offsetof(struct node, check_at_ms), end_check, true},
};

_Static_assert(sizeof happenings / sizeof *happenings == NODE_N_HAPPENINGS, "as the header says");

uint64_t node_happens_at_ms(const struct node *n, size_t i)
{
    uint64_t at_ms = *(const uint64_t *)(const void *)((const char *)n + happenings[i].at);
    return at_ms != CO_NEVER_MS && happenings[i].needs_ddprun ? later(at_ms, n->frozen_until_ms)
                                                              : at_ms;
}

void node_happen(struct world *w, struct node *n, size_t i)
{
    happenings[i].happen(w, n);
}
