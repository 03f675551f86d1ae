/* sim_membership - one roster and its members in a simulated world: connections that are slow, cut,
 * reset or go silent, messages that come twice, nodes that come late, leave, are killed or stopped,
 * ranks that fail, take others along, or end well, restarts that somebody asks for.
 *
 * Roster, members and the bytes between them are the real ones; time, connections and processes are
 * simulated. Each schedule is drawn from a seed. Checked at every step:
 *   - a generation's ranks are dense and unique, its nodes between the minimum and the maximum
 *   - generations follow each other by one; all that start in one have the same world and the same
 *     store, which no other generation had
 *   - no rank of an older generation runs when one is sealed, unless its connection was reset less
 *     than a lease ago
 *   - no wait of the roster lasts longer than its limits allow
 *   - what another node's loss did to a rank is neither the verdict nor charged to the budget
 *   - a node that is excluded had as many failures as that takes, and takes part in nothing more
 * In every third schedule the roster is lost now and then, and another one takes its place, which
 * knows only what was written down as its generation was confirmed (docs/etcd.md): the same holds,
 * and no rank is stopped because of it alone.
 * and at the end: the job is closed, each ddprun that heard the verdict ended with the same code,
 * none is left waiting. */
#include "schedules.h"

#include "rendezvous/control_wire.h"
#include "rendezvous/member.h"
#include "rendezvous/roster.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/error.h"
#include "tests/support/chance.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_NODES = 10, /* that ever are, one after the other too */
    MAX_LINKS = 64, /* at a time */
    MAX_MAILS = 64, /* on their way in one direction */
    MAX_GENERATIONS = 512,
    MAX_STEPS = 200000,
    FAULTS_END_MS = 30000,
    STOP_MS = 2000,       /* what a node says it takes at most */
    CONSEQUENCE_CODE = 1, /* with which ranks fail of another one's end */
};

enum direction { TO_ROSTER, TO_NODE };

struct mail {
    uint64_t at_ms;
    uint8_t *bytes; /* owned; NULL: the connection ends */
    size_t len;
};

struct queue {
    struct mail mails[MAX_MAILS];
    int n;
};

struct link {
    uint64_t id; /* 0: this place is free */
    int node;
    bool has_end[2]; /* by direction: the end that hears is open */
    bool is_dead;    /* nothing comes through any more, and nobody says so */
    struct queue queues[2];
};

enum ranks_phase { RANKS_NONE, RANKS_OPENING, RANKS_RUN, RANKS_DONE };

struct node {
    bool exists; /* the machine */
    bool is_up;  /* ddprun */
    struct member *member;
    char name[16];
    struct message_hello hello;
    uint64_t starts_at_ms, leaves_at_ms, killed_at_ms, dies_at_ms, ends_job_at_ms, restarts_at_ms;
    uint64_t frozen_until_ms, blocked_until_ms, reset_at_ms;
    struct link *link;
    uint64_t connect_at_ms; /* the attempt's answer */

    enum ranks_phase phase;
    bool runs; /* rank processes */
    uint32_t generation;
    uint64_t lease_end_ms; /* as the nursery knows it */
    uint64_t open_at_ms, fail_at_ms, done_at_ms, gone_at_ms, yield_at_ms;
    bool fails_for_others; /* what comes at fail_at_ms is another node's fault */
    uint32_t n_failures;   /* of its ranks, that it does not call another one's fault */
    bool is_stuck;

    bool has_ended;
    uint64_t ended_at_ms;
    struct member_end end;
};

struct generation {
    uint16_t port; /* 0: nobody started yet */
    int leader;
    uint32_t world_size, n_nodes;
    bool started[MAX_NODES];
    bool has_own_failure; /* a rank failed by itself ... */
    bool own_is_heard;    /* ... and the roster heard it in time */
    bool is_doomed;       /* some ranks will fail by themselves */
    uint64_t lasts_ms;
};

struct world {
    uint64_t seed, now_ms;
    struct chance chance;
    struct message_terms terms;
    struct roster *roster;
    uint64_t roster_frozen_until_ms, state_since_ms;
    bool roster_slept;
    struct node nodes[MAX_NODES];
    int n_nodes;
    struct link links[MAX_LINKS];
    uint64_t n_links;
    uint16_t n_ports;
    struct generation generations[MAX_GENERATIONS];
    struct control_wire_scratch scratch;
    uint64_t resets_at_ms, freezes_roster_at_ms;
    struct roster_limits limits;
    uint64_t moves_at_ms;                  /* the roster is lost; CO_NEVER_MS */
    bool is_moving;                        /* it is, until roster_frozen_until_ms */
    uint64_t writes_at_ms, confirms_at_ms; /* the newest generation's record */
    bool has_past;
    struct roster_past past, being_written; /* the record */
    uint32_t n_moves;
    uint64_t n_messages;
    bool has_node_ranks;
    bool loses_nodes; /* some are killed, cut off or leave */
    bool tells;       /* ranks that fail of another one's end say so */
};

/* --- Chance, and giving up --- */

static uint64_t draw(struct world *w, uint64_t below)
{
    return chance_draw(&w->chance, below);
}

static bool chance(struct world *w, uint64_t one_in)
{
    return draw(w, one_in) == 0;
}

static void give_up(const struct world *w, const char *what)
{
    fprintf(stderr, "seed %" PRIu64 ", at %" PRIu64 " ms in %s: %s\n", w->seed, w->now_ms,
            roster_state_name(roster_get_state(w->roster)), what);
    exit(1);
}

static void check(const struct world *w, bool holds, const char *what)
{
    if (!holds)
        give_up(w, what);
}

static const char *const message_names[] = {
#define X(name, meaning) #name,
    MESSAGE_TYPES(X)
#undef X
};

/* --- Connections --- */

static void queue_clear(struct queue *q)
{
    for (int i = 0; i < q->n; i++)
        free(q->mails[i].bytes);
    q->n = 0;
}

static void queue_put(struct world *w, struct queue *q, uint8_t *bytes, size_t len)
{
    uint64_t at_ms = w->now_ms + (chance(w, 50) ? draw(w, 300) : draw(w, 3));
    if (q->n > 0 && q->mails[q->n - 1].at_ms > at_ms)
        at_ms = q->mails[q->n - 1].at_ms;
    if (q->n == MAX_MAILS)
        give_up(w, "too many messages on their way");
    q->mails[q->n++] = (struct mail){at_ms, bytes, len};
}

static struct mail queue_take(struct queue *q)
{
    struct mail mail = q->mails[0];
    memmove(q->mails, q->mails + 1, (size_t)--q->n * sizeof *q->mails);
    return mail;
}

static void send(struct world *w, struct link *l, enum direction to, const struct message *m)
{
    struct co_buf out = {0};
    struct co_error err = {0};
    if (control_wire_encode(m, &out, &err) < 0)
        give_up(w, err.text);
    w->n_messages++;
    queue_put(w, &l->queues[to], out.data, co_buf_len(&out));
}

static void link_free_if_over(struct world *w, struct link *l)
{
    if (l->has_end[TO_ROSTER] || l->has_end[TO_NODE])
        return;
    queue_clear(&l->queues[TO_ROSTER]);
    queue_clear(&l->queues[TO_NODE]);
    if (w->nodes[l->node].link == l)
        w->nodes[l->node].link = NULL;
    l->id = 0;
}

/* The end that hears in this direction is closed by its owner; the other one hears of it. */
static void link_close(struct world *w, struct link *l, enum direction heard)
{
    enum direction other = heard == TO_NODE ? TO_ROSTER : TO_NODE;
    if (!l->has_end[heard])
        return;
    l->has_end[heard] = false;
    queue_clear(&l->queues[heard]);
    if (heard == TO_NODE)
        w->nodes[l->node].link = NULL;
    if (l->has_end[other])
        queue_put(w, &l->queues[other], NULL, 0);
    link_free_if_over(w, l);
}

static void link_reset(struct world *w, struct link *l)
{
    for (int to = 0; to < 2; to++) {
        queue_clear(&l->queues[to]);
        if (l->has_end[to])
            queue_put(w, &l->queues[to], NULL, 0);
    }
    w->nodes[l->node].reset_at_ms = w->now_ms;
}

static struct link *link_by_id(struct world *w, uint64_t id)
{
    for (int i = 0; i < MAX_LINKS; i++)
        if (w->links[i].id == id)
            return &w->links[i];
    return NULL;
}

/* --- The roster --- */

static bool is_exempt(const struct world *w, const struct node *n)
{
    return n->reset_at_ms != 0 && w->now_ms <= n->reset_at_ms + LEASE_MS;
}

/* As it has heard. */
static bool is_excluded(const struct node *n)
{
    return n->has_ended && n->end.by_roster && n->end.outcome == MESSAGE_EXCLUDED;
}

static void check_is_not_excluded(const struct world *w, const char *name)
{
    for (int i = 0; i < w->n_nodes; i++)
        check(w, !is_excluded(&w->nodes[i]) || strcmp(w->nodes[i].name, name) != 0,
              "an excluded node has a place");
}

static void check_places(struct world *w)
{
    uint32_t n_members = 0, world_size = 0, highest = 0;
    bool taken[64] = {false};
    struct roster_node_view v;
    for (uint32_t i = 0; i < roster_n_slots(w->roster); i++) {
        if (!roster_view(w->roster, i, &v) || !v.is_member)
            continue;
        check_is_not_excluded(w, v.name);
        n_members++;
        world_size += v.n_local;
        for (uint32_t rank = v.first_rank; rank < v.first_rank + v.n_local; rank++) {
            check(w, rank < 64 && !taken[rank], "two nodes have the same rank");
            taken[rank] = true;
            highest = rank > highest ? rank : highest;
        }
    }
    check(w, highest + 1 == world_size, "ranks are not dense");
    check(w, n_members >= w->terms.min_nodes && n_members <= w->terms.max_nodes,
          "fewer nodes than the minimum or more than the maximum");
}

static void check_sealing(struct world *w)
{
    uint32_t generation = roster_generation(w->roster);
    check(w, generation < MAX_GENERATIONS, "too many generations");
    check_places(w);
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
}

static void check_budget(struct world *w)
{
    uint32_t n_own = 0;
    for (int i = 0; i < MAX_GENERATIONS; i++)
        n_own += w->generations[i].has_own_failure;
    check(w, roster_n_restarts(w->roster) <= w->terms.max_restarts, "too many restarts");
    check(w, roster_n_restarts(w->roster) <= n_own, "the budget was charged with a loss");
}

/* Slow messages are no reason to give a node up. */
static void check_loss(const struct world *w, const struct node *n)
{
    uint64_t grace_ms = LEASE_MS + LEASE_MARGIN_MS;
    check(w,
          !n->is_up || n->is_stuck || w->now_ms <= n->blocked_until_ms + grace_ms ||
              w->now_ms <= n->frozen_until_ms + grace_ms ||
              w->now_ms <= w->roster_frozen_until_ms + grace_ms,
          "a node was given up for nothing");
}

/* What is done must not be done again because somebody joins. */
static void check_join(const struct world *w)
{
    struct roster_node_view v;
    for (uint32_t i = 0; i < roster_n_slots(w->roster); i++)
        check(w, !roster_view(w->roster, i, &v) || !v.is_done,
              "a node joins, though another one is done");
}

/* Another roster knows who comes from the one before. */
static void check_move(const struct world *w, const struct node *n)
{
    uint64_t grace_ms = LEASE_MS + LEASE_MARGIN_MS;
    check(w,
          w->n_moves == 0 || n->phase != RANKS_RUN ||
              n->generation != roster_generation(w->roster) ||
              roster_get_state(w->roster) != ROSTER_RUNNING ||
              w->now_ms <= n->blocked_until_ms + grace_ms ||
              w->now_ms <= n->frozen_until_ms + grace_ms,
          "a node that runs was not known when the roster had moved");
}

static void check_message(const struct world *w, const struct link *l, const struct message *m)
{
    if (m->type == MESSAGE_REFUSED && m->refused.why == MESSAGE_REFUSED_LOST)
        check_move(w, &w->nodes[l->node]);
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
    if (w->limits.confirm_ms == 0)
        return;
    roster_get_past(w->roster, &w->being_written);
    w->writes_at_ms = w->now_ms + draw(w, 5);
    w->confirms_at_ms = w->writes_at_ms + draw(w, chance(w, 10) ? 1000 : 5);
}

static void carry_out_roster(struct world *w, const struct roster_actions *actions)
{
    for (size_t i = 0; i < actions->n; i++) {
        const struct roster_action *a = &actions->items[i];
        struct link *l = a->type == ROSTER_CHANGED ? NULL : link_by_id(w, a->link);
        if (a->type == ROSTER_CHANGED) {
            schedules_tell(w->now_ms, "%s -> %s: %s", roster_state_name(a->from),
                           roster_state_name(a->to), roster_change(w->roster));
            w->state_since_ms = w->now_ms;
            if (a->to == ROSTER_RUNNING) {
                check_sealing(w);
                write_record(w);
            }
            if (a->to == ROSTER_STOPPING)
                check_absence(w);
            if (a->to == ROSTER_CLOSED)
                check_blame(w);
        } else if (a->type == ROSTER_CLOSE && l != NULL) {
            link_close(w, l, TO_ROSTER);
        } else if (a->type == ROSTER_SEND && l != NULL && l->has_end[TO_ROSTER]) {
            schedules_tell(w->now_ms, "  to %s: %s %" PRIu32, w->nodes[l->node].name,
                           message_names[a->message.type], a->message.generation);
            check_message(w, l, &a->message);
            if (l->has_end[TO_NODE])
                send(w, l, TO_NODE, &a->message);
        }
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

/* --- A node --- */

static void feed_node(struct world *w, struct node *n, struct member_input in);

static void stop_processes(struct node *n)
{
    n->runs = false;
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

static void start_processes(struct world *w, struct node *n)
{
    const struct member_place *p = member_get_place(n->member);
    struct generation *g = &w->generations[p->generation];
    int i = (int)(n - w->nodes);
    check(w, !n->runs, "ranks are started while others run");
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
    check(w, !n->runs, "ddprun ends before its ranks");
    if (is_excluded(n))
        check(w, w->terms.exclude_after > 0 && n->n_failures >= w->terms.exclude_after,
              "a node was excluded that had not failed so often");
    end_node(w, n, true);
}

/* It does not keep to what it said. */
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
    if (o->tell_pending && n->phase == RANKS_RUN)
        n->yield_at_ms = w->now_ms + draw(w, 500);
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
    for (size_t i = 0; i < o->n_messages; i++) {
        schedules_tell(w->now_ms, "    %s says %s %" PRIu32 "%s", n->name,
                       message_names[o->messages[i].type], o->messages[i].generation,
                       n->link == NULL ? ", to nobody" : "");
        if (n->link != NULL && n->link->has_end[TO_ROSTER])
            send(w, n->link, TO_ROSTER, &o->messages[i]);
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

static void feed_node(struct world *w, struct node *n, struct member_input in)
{
    struct member_orders orders;
    in.now_ms = w->now_ms;
    member_step(n->member, &in, &orders);
    carry_out_node(w, n, &orders);
}

static void make_hello(struct world *w, struct node *n, int i)
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
    };
    for (int at = 0; at < MESSAGE_INSTANCE_BYTES; at++)
        n->hello.instance[at] = (uint8_t)draw(w, 256);
    snprintf(n->name, sizeof n->name, "node%d", i);
}

static void start_node(struct world *w, struct node *n)
{
    struct member_limits limits = {.start_timeout_ms = w->terms.start_timeout_ms,
                                   .daemon_timeout_ms = 60000};
    struct member_orders orders;
    struct co_error err;
    n->starts_at_ms = CO_NEVER_MS;
    n->is_up = n->exists = true;
    schedules_tell(w->now_ms, "%s starts", n->name);
    if (member_create(&limits, &n->hello, "sim:1", &n->member, &err) < 0)
        give_up(w, err.text);
    member_begin(n->member, w->now_ms, &orders);
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
        feed_node(w, n, (struct member_input){.type = MEMBER_DAEMON_LOST, .asked_ms = w->now_ms});
        feed_node(w, n, (struct member_input){.type = MEMBER_LINK_DOWN, .text = "nobody leads"});
        return;
    }
    if (is_cut_off(w, n) || l == NULL) {
        feed_node(w, n, (struct member_input){.type = MEMBER_LINK_DOWN, .text = "unreachable"});
        return;
    }
    *l = (struct link){.id = ++w->n_links, .node = (int)(n - w->nodes), .has_end = {true, true}};
    n->link = l;
    feed_node(w, n, (struct member_input){.type = MEMBER_LINK_UP});
}

static void answer_open(struct world *w, struct node *n)
{
    n->open_at_ms = CO_NEVER_MS;
    if (w->now_ms < FAULTS_END_MS && chance(w, 200)) {
        w->generations[member_get_place(n->member)->generation].has_own_failure = true;
        feed_node(
            w, n,
            (struct member_input){
                .type = MEMBER_RANK_FAILED, .exit_code = 70, .final = true, .text = "no port"});
        return;
    }
    feed_node(
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
    feed_node(w, n,
              (struct member_input){.type = MEMBER_RANK_FAILED,
                                    .rank = (int32_t)p->place.first_rank,
                                    .exit_code = for_others ? CONSEQUENCE_CODE : 7,
                                    .consequence = for_others && w->tells,
                                    .text = "exited with 7"});
}

/* The nursery's deed, whether ddprun is able to see it or not. */
static void lapse(struct world *w, struct node *n)
{
    n->lease_end_ms = CO_NEVER_MS;
    if (!n->runs)
        return;
    schedules_tell(w->now_ms, "%s: the nursery kills", n->name);
    end_processes(w, n);
    n->fail_at_ms = w->now_ms; /* what ddprun will see of it */
    n->fails_for_others = true;
}

static void finish_ranks(struct world *w, struct node *n)
{
    n->done_at_ms = n->fail_at_ms = CO_NEVER_MS;
    n->runs = false;
    n->phase = RANKS_DONE;
    feed_node(w, n, (struct member_input){.type = MEMBER_RANKS_DONE});
}

static void rid_ranks(struct world *w, struct node *n)
{
    bool hangs = n->runs && w->now_ms < FAULTS_END_MS && chance(w, 500);
    n->gone_at_ms = CO_NEVER_MS;
    stop_processes(n);
    n->phase = RANKS_NONE;
    feed_node(w, n, (struct member_input){.type = MEMBER_RANKS_GONE, .hangs = hangs});
}

static void leave(struct world *w, struct node *n)
{
    n->leaves_at_ms = CO_NEVER_MS;
    schedules_tell(w->now_ms, "%s leaves", n->name);
    if (n->runs && n->phase == RANKS_RUN)
        break_peers(w, n);
    feed_node(w, n,
              (struct member_input){
                  .type = MEMBER_LEAVE, .exit_code = 143, .signal = 15, .text = "SIGTERM"});
}

static void end_job(struct world *w, struct node *n)
{
    n->ends_job_at_ms = CO_NEVER_MS;
    feed_node(w, n,
              (struct member_input){
                  .type = MEMBER_END_JOB, .exit_code = 124, .text = "the time is over"});
}

/* Of a node whose ranks do not run it means nothing. */
static void ask_restart(struct world *w, struct node *n)
{
    n->restarts_at_ms = CO_NEVER_MS;
    schedules_tell(w->now_ms, "%s is asked for a restart", n->name);
    feed_node(w, n, (struct member_input){.type = MEMBER_RESTART});
}

static void take_node_time(struct world *w, struct node *n)
{
    feed_node(w, n, (struct member_input){.type = MEMBER_TIME});
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
    feed_node(w, n, (struct member_input){.type = MEMBER_YIELDED});
}

typedef void happening(struct world *w, struct node *n);

/* What can happen to a node, and when. Frozen, ddprun sees nothing; the nursery does its part. */
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
};

static uint64_t *time_at(struct node *n, size_t i)
{
    return (uint64_t *)((char *)n + happenings[i].at);
}

/* --- What can happen next --- */

struct choice {
    uint64_t at_ms;
    enum {
        NOBODY,
        NODE,
        NODE_TIME,
        MAIL,
        ROSTER_TIME_,
        WAKE_ROSTER,
        RESET,
        FREEZE_ROSTER,
        LOSE_ROSTER,
        WRITE_RECORD,
        CONFIRM
    } what;
    int index;
    int detail;
};

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void consider(struct choice *best, struct choice c)
{
    if (c.at_ms != CO_NEVER_MS && c.at_ms < best->at_ms)
        *best = c;
}

static void consider_mail(struct world *w, struct choice *best, int i, int to)
{
    const struct link *l = &w->links[i];
    const struct node *n = &w->nodes[l->node];
    if (l->id == 0 || l->is_dead || !l->has_end[to] || l->queues[to].n == 0)
        return;
    uint64_t at_ms = later(l->queues[to].mails[0].at_ms, n->blocked_until_ms);
    at_ms = later(at_ms, to == TO_NODE ? n->frozen_until_ms : w->roster_frozen_until_ms);
    consider(best, (struct choice){at_ms, MAIL, i, to});
}

static void consider_node(struct choice *best, struct node *n, int i)
{
    for (size_t k = 0; k < sizeof happenings / sizeof *happenings; k++) {
        uint64_t at_ms = *time_at(n, k);
        if (at_ms != CO_NEVER_MS && happenings[k].needs_ddprun)
            at_ms = later(at_ms, n->frozen_until_ms);
        consider(best, (struct choice){at_ms, NODE, i, (int)k});
    }
}

/* Messages before time: both machines are to be fed all that was received first. */
static struct choice choose(struct world *w)
{
    struct choice best = {.at_ms = CO_NEVER_MS};
    if (w->roster_slept)
        consider(&best, (struct choice){w->roster_frozen_until_ms, WAKE_ROSTER, 0, 0});
    for (int i = 0; i < MAX_LINKS; i++)
        for (int to = 0; to < 2; to++)
            consider_mail(w, &best, i, to);
    for (int i = 0; i < w->n_nodes; i++)
        consider_node(&best, &w->nodes[i], i);
    consider(&best, (struct choice){w->resets_at_ms, RESET, 0, 0});
    consider(&best, (struct choice){w->freezes_roster_at_ms, FREEZE_ROSTER, 0, 0});
    consider(&best, (struct choice){w->moves_at_ms, LOSE_ROSTER, 0, 0});
    consider(&best, (struct choice){w->writes_at_ms, WRITE_RECORD, 0, 0});
    if (w->confirms_at_ms != CO_NEVER_MS)
        consider(&best, (struct choice){later(w->confirms_at_ms, w->roster_frozen_until_ms),
                                        CONFIRM, 0, 0});
    for (int i = 0; i < w->n_nodes; i++) {
        const struct node *n = &w->nodes[i];
        uint64_t at_ms = n->is_up ? member_deadline_ms(n->member) : CO_NEVER_MS;
        if (at_ms != CO_NEVER_MS)
            at_ms = later(at_ms, n->frozen_until_ms);
        consider(&best, (struct choice){at_ms, NODE_TIME, i, 0});
    }
    uint64_t at_ms = roster_deadline_ms(w->roster);
    if (at_ms != CO_NEVER_MS)
        at_ms = later(at_ms, w->roster_frozen_until_ms);
    consider(&best, (struct choice){at_ms, ROSTER_TIME_, 0, 0});
    return best;
}

/* From a node that takes part: others are not believed. */
static void note_heard(struct world *w, const struct link *l, const struct message *m)
{
    struct roster_node_view v;
    if (m->type != MESSAGE_FAILED || m->failed.exit_code == CONSEQUENCE_CODE ||
        m->generation != roster_generation(w->roster))
        return;
    for (uint32_t i = 0; i < roster_n_slots(w->roster); i++)
        if (roster_view(w->roster, i, &v) && v.is_member && !v.is_stopped &&
            strcmp(v.name, w->nodes[l->node].name) == 0)
            w->generations[m->generation].own_is_heard = true;
}

static void receive(struct world *w, struct link *l, enum direction to, const struct mail *mail)
{
    struct message m;
    struct co_error err = {0};
    struct node *n = &w->nodes[l->node];
    if (control_wire_decode(mail->bytes, mail->len, &w->scratch, &m, &err) < 0)
        give_up(w, err.text);
    if (to == TO_NODE) {
        feed_node(w, n, (struct member_input){.type = MEMBER_MESSAGE, .message = &m});
        return;
    }
    note_heard(w, l, &m);
    feed_roster(w, (struct roster_input){.type = ROSTER_MESSAGE, .link = l->id, .message = &m});
}

static void end_link(struct world *w, struct link *l, enum direction to)
{
    struct node *n = &w->nodes[l->node];
    uint64_t id = l->id;
    l->has_end[to] = false;
    if (to == TO_NODE)
        n->link = NULL;
    link_free_if_over(w, l);
    if (to == TO_NODE)
        feed_node(w, n, (struct member_input){.type = MEMBER_LINK_DOWN, .text = "end of file"});
    else
        feed_roster(w, (struct roster_input){.type = ROSTER_GONE, .link = id});
}

/* Now and then a message comes again later: both machines promise that this means nothing. */
static void deliver(struct world *w, struct link *l, enum direction to)
{
    struct queue *q = &l->queues[to];
    struct mail mail = queue_take(q);
    if (mail.bytes == NULL) {
        end_link(w, l, to);
        return;
    }
    bool ends = q->n > 0 && q->mails[q->n - 1].bytes == NULL;
    if (chance(w, 20) && !ends && w->now_ms < FAULTS_END_MS) {
        uint8_t *again = malloc(mail.len);
        if (again == NULL)
            give_up(w, "no memory");
        memcpy(again, mail.bytes, mail.len);
        queue_put(w, q, again, mail.len);
    }
    receive(w, l, to, &mail);
    free(mail.bytes);
}

static void reset_some(struct world *w)
{
    bool all = chance(w, 4);
    for (int i = 0; i < MAX_LINKS; i++)
        if (w->links[i].id != 0 && !w->links[i].is_dead && (all || chance(w, 2)))
            link_reset(w, &w->links[i]);
    w->resets_at_ms = w->now_ms + draw(w, 4000);
    if (w->resets_at_ms > FAULTS_END_MS)
        w->resets_at_ms = CO_NEVER_MS;
}

static void freeze_roster(struct world *w)
{
    w->freezes_roster_at_ms = CO_NEVER_MS;
    w->roster_frozen_until_ms = w->now_ms + draw(w, 10000);
    w->roster_slept = true;
    w->state_since_ms = w->roster_frozen_until_ms;
}

/* Its process is gone: all connections end, and what was said on them. */
static void lose_roster(struct world *w)
{
    w->moves_at_ms = CO_NEVER_MS;
    if (roster_get_state(w->roster) == ROSTER_CLOSED)
        return;
    schedules_tell(w->now_ms, "the roster is lost");
    for (int i = 0; i < MAX_LINKS; i++) {
        struct link *l = &w->links[i];
        if (l->id == 0 || !l->has_end[TO_ROSTER])
            continue;
        queue_clear(&l->queues[TO_NODE]);
        link_close(w, l, TO_ROSTER);
    }
    w->is_moving = w->roster_slept = true;
    w->roster_frozen_until_ms = w->now_ms + draw(w, 4000);
    w->confirms_at_ms = CO_NEVER_MS; /* nobody hears it; what is on its way to be written is */
    w->n_moves++;
}

static void take_over(struct world *w)
{
    struct co_error err;
    roster_destroy(w->roster);
    if (roster_create(&w->limits, &w->terms, NULL, 0, w->now_ms, &w->roster, &err) < 0 ||
        (w->has_past && roster_resume(w->roster, &w->past, w->now_ms, &err) < 0))
        exit(1);
    schedules_tell(w->now_ms, "another roster: %s", roster_change(w->roster));
    w->is_moving = false;
    w->state_since_ms = w->now_ms;
    if (w->has_past)
        w->generations[w->past.generation].own_is_heard = false; /* it may be told again, or not */
    w->moves_at_ms =
        w->now_ms < FAULTS_END_MS && !chance(w, 3) ? w->now_ms + draw(w, 12000) : CO_NEVER_MS;
}

static void wake_roster(struct world *w)
{
    w->roster_slept = false;
    if (w->is_moving)
        take_over(w);
    else
        feed_roster(w, (struct roster_input){.type = ROSTER_ASLEEP});
}

static void confirm(struct world *w)
{
    w->confirms_at_ms = CO_NEVER_MS;
    feed_roster(w,
                (struct roster_input){.type = ROSTER_CONFIRMED, .generation = w->past.generation});
}

static void live_on(struct world *w, const struct choice *c)
{
    w->now_ms = later(w->now_ms, c->at_ms);
    switch (c->what) {
    case NODE:
        happenings[c->detail].happen(w, &w->nodes[c->index]);
        break;
    case NODE_TIME:
        take_node_time(w, &w->nodes[c->index]);
        break;
    case MAIL:
        deliver(w, &w->links[c->index], (enum direction)c->detail);
        break;
    case ROSTER_TIME_:
        feed_roster(w, (struct roster_input){.type = ROSTER_TIME});
        break;
    case WAKE_ROSTER:
        wake_roster(w);
        break;
    case LOSE_ROSTER:
        lose_roster(w);
        break;
    case WRITE_RECORD:
        w->writes_at_ms = CO_NEVER_MS;
        w->has_past = true;
        w->past = w->being_written;
        break;
    case CONFIRM:
        confirm(w);
        break;
    case RESET:
        reset_some(w);
        break;
    case FREEZE_ROSTER:
        freeze_roster(w);
        break;
    default:
        give_up(w, "nothing will ever happen again");
    }
}

/* --- A whole schedule --- */

static void draw_faults(struct world *w, struct node *n)
{
    n->leaves_at_ms = n->killed_at_ms = n->dies_at_ms = n->ends_job_at_ms = CO_NEVER_MS;
    switch (w->loses_nodes ? draw(w, 8) : 8) {
    case 0:
        n->leaves_at_ms = n->starts_at_ms + 1 + draw(w, 20000);
        break;
    case 1:
        n->killed_at_ms = n->starts_at_ms + 1 + draw(w, 10000);
        break;
    case 2:
        n->dies_at_ms = n->starts_at_ms + 1 + draw(w, 10000);
        break;
    default:
        break;
    }
}

static void draw_node(struct world *w, int i)
{
    struct node *n = &w->nodes[i];
    *n = (struct node){0};
    n->connect_at_ms = n->lease_end_ms = n->open_at_ms = n->fail_at_ms = CO_NEVER_MS;
    n->done_at_ms = n->gone_at_ms = n->yield_at_ms = CO_NEVER_MS;
    n->starts_at_ms = i < (int)w->terms.min_nodes || chance(w, 2) ? draw(w, 50) : draw(w, 15000);
    make_hello(w, n, i);
    draw_faults(w, n);
    if (chance(w, 60))
        n->ends_job_at_ms = n->starts_at_ms + 1 + draw(w, 10000);
    n->restarts_at_ms = chance(w, 20) ? n->starts_at_ms + 1 + draw(w, 20000) : CO_NEVER_MS;
}

/* Silence begins and ends by itself; here it is only drawn when. */
static void draw_silence(struct world *w, struct node *n)
{
    if (w->now_ms >= FAULTS_END_MS || !w->loses_nodes || !n->is_up)
        return;
    if (chance(w, 400))
        n->blocked_until_ms = w->now_ms + draw(w, 6000);
    if (chance(w, 400))
        n->frozen_until_ms = w->now_ms + draw(w, 10000);
}

static void world_init(struct world *w, uint64_t seed)
{
    *w = (struct world){.seed = seed, .chance = chance_from(seed)};
    for (int i = 0; i < 4; i++)
        draw(w, 2);
    w->now_ms = w->state_since_ms = 1;
    w->terms.min_nodes = 1 + (uint32_t)draw(w, 3);
    w->terms.max_nodes = w->terms.min_nodes + (uint32_t)draw(w, 3);
    w->terms.window_ms = draw(w, 3000);
    w->terms.start_timeout_ms = 1000 + draw(w, 20000);
    w->terms.rejoin_timeout_ms = 1000 + draw(w, 10000);
    w->terms.max_restarts = (uint32_t)draw(w, 4);
    w->terms.scale_at = chance(w, 4) ? MESSAGE_SCALE_AT_CHECKPOINT : MESSAGE_SCALE_NOW;
    w->terms.scale_timeout_ms = chance(w, 2) ? draw(w, 20000) : 0;
    w->terms.exclude_after = chance(w, 2) ? 1 + (uint32_t)draw(w, 2) : 0;
    w->terms.exclude_window_ms = chance(w, 4) ? 1 + draw(w, 20000) : 0;
    w->loses_nodes = !chance(w, 4);
    w->has_node_ranks = chance(w, 3);
    w->tells = w->seed % 2 == 1;
    w->resets_at_ms = chance(w, 3) ? draw(w, 10000) : CO_NEVER_MS;
    w->freezes_roster_at_ms = chance(w, 10) ? draw(w, 10000) : CO_NEVER_MS;
    w->writes_at_ms = w->confirms_at_ms = w->moves_at_ms = CO_NEVER_MS;
    if (seed % 3 == 0) {
        w->limits.confirm_ms = 60000;
        w->freezes_roster_at_ms = CO_NEVER_MS; /* one that sleeps has lost its place */
        w->moves_at_ms = draw(w, 12000);
    }
    w->n_nodes = (int)w->terms.min_nodes + (int)draw(w, MAX_NODES - w->terms.min_nodes + 1);
    for (int i = 0; i < w->n_nodes; i++)
        draw_node(w, i);
    struct co_error err;
    if (roster_create(&w->limits, &w->terms, NULL, 0, w->now_ms, &w->roster, &err) < 0)
        exit(1);
}

/* The longest that the roster may stay in a state, given that the nodes keep to what they said. */
static void check_wait(struct world *w)
{
    uint64_t silence_ms = LEASE_MS + LEASE_MARGIN_MS;
    uint64_t most = CO_NEVER_MS;
    switch (roster_get_state(w->roster)) {
    case ROSTER_GATHERING:
        most = later(w->terms.start_timeout_ms, w->terms.rejoin_timeout_ms);
        break;
    case ROSTER_OPEN:
        most = w->terms.window_ms;
        break;
    case ROSTER_STOPPING:
        most = STOP_MS + ROSTER_SLACK_MS + silence_ms + 30000; /* the longest pause */
        break;
    default:
        break;
    }
    if (most != CO_NEVER_MS && w->now_ms > w->state_since_ms &&
        w->roster_frozen_until_ms < w->now_ms)
        check(w, w->now_ms - w->state_since_ms <= most, "a wait is longer than it may be");
}

/* Nobody trains on when the store is gone with its node. */
static void check_store(const struct world *w)
{
    uint32_t generation = roster_generation(w->roster);
    if (roster_get_state(w->roster) != ROSTER_RUNNING || w->generations[generation].port == 0 ||
        w->now_ms < w->roster_frozen_until_ms)
        return;
    const struct node *n = &w->nodes[w->generations[generation].leader];
    check(w,
          n->is_up || w->now_ms <= n->ended_at_ms + LEASE_MS + LEASE_MARGIN_MS + 500 ||
              w->now_ms <= w->roster_frozen_until_ms + LEASE_MS + LEASE_MARGIN_MS + 500,
          "a generation goes on without its store");
}

static bool is_over(const struct world *w)
{
    for (int i = 0; i < w->n_nodes; i++)
        if (w->nodes[i].is_up || w->nodes[i].starts_at_ms != CO_NEVER_MS)
            return false;
    return true;
}

static void check_end(struct world *w)
{
    const struct message_verdict *v = roster_get_verdict(w->roster);
    for (int i = 0; i < w->n_nodes; i++) {
        const struct node *n = &w->nodes[i];
        check(w, !n->runs, "ranks are left");
        if (n->has_ended && n->end.by_roster && !is_excluded(n))
            check(w, v != NULL && n->end.exit_code == v->exit_code,
                  "two nodes ended with different verdicts");
    }
}

static void world_fini(struct world *w)
{
    for (int i = 0; i < MAX_LINKS; i++)
        for (int to = 0; to < 2; to++)
            queue_clear(&w->links[i].queues[to]);
    roster_destroy(w->roster);
}

/* What all schedules together came to: a simulator that never reaches a case proves nothing of
 * it. */
static struct totals {
    uint64_t n_moves, n_messages, n_generations, n_restarts, n_virtual_s;
    uint64_t n_verdicts[MESSAGE_ENDED + 1], n_open, n_excluded;
} totals;

static void add_up(const struct world *w)
{
    const struct message_verdict *v = roster_get_verdict(w->roster);
    totals.n_messages += w->n_messages;
    totals.n_moves += w->n_moves;
    totals.n_generations += roster_generation(w->roster) + 1; /* none: -1 */
    totals.n_restarts += roster_n_restarts(w->roster);
    totals.n_virtual_s += w->now_ms / 1000;
    for (int i = 0; i < w->n_nodes; i++)
        totals.n_excluded += is_excluded(&w->nodes[i]);
    if (v != NULL)
        totals.n_verdicts[v->outcome]++;
    else
        totals.n_open++;
}

static void run(uint64_t seed)
{
    static struct world world;
    struct world *w = &world;
    world_init(w, seed);
    for (int i = 0; !is_over(w); i++) {
        check(w, i < MAX_STEPS && w->now_ms < 1200000, "it goes on and on");
        struct choice c = choose(w);
        live_on(w, &c);
        check_wait(w);
        check_store(w);
        draw_silence(w, &w->nodes[draw(w, (uint64_t)w->n_nodes)]);
    }
    check_end(w);
    add_up(w);
    world_fini(w);
}

int main(void)
{
    const uint64_t n = schedules_run(20000, run);
    if (n == 0)
        return 0;
    printf("%" PRIu64 " schedules, seeds 1 to %" PRIu64 ": %" PRIu64 " generations, %" PRIu64
           " restarts, %" PRIu64 " messages, %" PRIu64 " s\n",
           n, n, totals.n_generations, totals.n_restarts, totals.n_messages, totals.n_virtual_s);
    printf("%" PRIu64 " times another roster took over\n", totals.n_moves);
    printf("verdicts: %" PRIu64 " well, %" PRIu64 " a rank failed, %" PRIu64
           " too few left, %" PRIu64 " missing, %" PRIu64 " ended; nobody left to be told: %" PRIu64
           "; nodes excluded: %" PRIu64 "\n",
           totals.n_verdicts[MESSAGE_WELL], totals.n_verdicts[MESSAGE_RANK_FAILED],
           totals.n_verdicts[MESSAGE_TOO_FEW], totals.n_verdicts[MESSAGE_MISSING],
           totals.n_verdicts[MESSAGE_ENDED], totals.n_open, totals.n_excluded);
    return 0;
}
