#include "nodes.h"

#include "common/buf.h"
#include "common/clock.h"
#include "rendezvous/channel/channel_wire.h"
#include "rendezvous/membership/member_priv.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TODO = 4096, MAX_LATE = 64 };

/* What has happened and is not yet seen, in order. */
enum todo_type { TODO_EVENT, TODO_TO_MEMBER, TODO_TO_ROSTER, TODO_LINK_UP, TODO_LINK_GONE };

struct todo {
    enum todo_type type;
    int node;
    uint64_t link;
    struct supervisor_event event;
    struct co_buf frame; /* owned */
};

struct late_report {
    uint64_t due_ms;
    struct supervisor_event event;
};

struct node {
    bool is_up;
    char name[8];
    struct supervisor *supervisor;
    struct member *member;
    struct roster_agent agent;
    uint64_t link; /* 0: none */
    bool is_cut, keeps_ranks;
    int start_error;
    int n_next; /* the next rank to be started */
    bool runs[NODES_LOCAL];
    int unseen[NODES_LOCAL]; /* not 0: it has ended with this status */
    int aborts[NODES_LOCAL]; /* not 0: it ends with this status */
    uint64_t lease_end_ms;
    uint64_t report_ms; /* so late the spawner's reports come */
    struct late_report late[MAX_LATE];
    int n_late;
    struct nodes_view view;
};

struct nodes {
    bool recovers, drops;
    uint64_t cause_ms;
    struct message_terms terms;
    struct roster *roster;
    struct node nodes[NODES_MAX];
    uint64_t now_ms, n_links;
    uint16_t n_ports;
    struct todo todo[MAX_TODO];
    int first, n;
    struct channel_wire_scratch scratch;
};

static struct todo *put(struct nodes *w, enum todo_type type, int node)
{
    assert(w->n < MAX_TODO);
    struct todo *t = &w->todo[(w->first + w->n++) % MAX_TODO];
    *t = (struct todo){.type = type, .node = node, .link = w->nodes[node].link};
    return t;
}

static void put_event(struct nodes *w, int node, struct supervisor_event e)
{
    put(w, TODO_EVENT, node)->event = e;
}

static void put_message(struct nodes *w, enum todo_type type, int node, const struct message *m)
{
    int rc = channel_wire_encode(m, &put(w, type, node)->frame, NULL);
    assert(rc == 0);
    (void)rc;
}

/* --- The spawner's double --- */

static void report(struct nodes *w, int node, struct supervisor_event e)
{
    struct node *n = &w->nodes[node];
    if (n->report_ms == 0 && n->n_late == 0) {
        put_event(w, node, e);
        return;
    }
    assert(n->n_late < MAX_LATE);
    n->late[n->n_late++] = (struct late_report){w->now_ms + n->report_ms, e};
}

static void bring_late_reports(struct nodes *w, int node)
{
    struct node *n = &w->nodes[node];
    int n_due = 0;
    while (n_due < n->n_late && n->late[n_due].due_ms <= w->now_ms)
        put_event(w, node, n->late[n_due++].event);
    n->n_late -= n_due;
    memmove(n->late, n->late + n_due, (size_t)n->n_late * sizeof n->late[0]);
}

static bool is_empty(const struct node *n)
{
    for (int i = 0; i < NODES_LOCAL; i++)
        if (n->runs[i])
            return false;
    return true;
}

static void end_rank(struct nodes *w, int node, int rank, int status)
{
    struct node *n = &w->nodes[node];
    if (!n->runs[rank])
        return;
    n->runs[rank] = false;
    report(w, node,
           (struct supervisor_event){.type = SUPERVISOR_EV_EXITED,
                                     .rank = rank,
                                     .status = n->unseen[rank] != 0   ? n->unseen[rank]
                                               : n->aborts[rank] != 0 ? n->aborts[rank]
                                                                      : status,
                                     .was_ending = n->unseen[rank] != 0,
                                     .empty = is_empty(n)});
    n->unseen[rank] = n->aborts[rank] = 0;
}

static void signal_ranks(struct nodes *w, int node, int sig, int except)
{
    struct node *n = &w->nodes[node];
    n->view.n_sigterm += sig == SIGTERM;
    n->view.n_sigkill += sig == SIGKILL;
    for (int i = 0; i < NODES_LOCAL; i++)
        if (i != except && (sig == SIGKILL || !n->keeps_ranks))
            end_rank(w, node, i, sig);
}

static void answer_aborts(struct nodes *w, int node)
{
    struct node *n = &w->nodes[node];
    for (int i = 0; i < NODES_LOCAL; i++)
        if (n->aborts[i] != 0)
            end_rank(w, node, i, n->aborts[i]);
}

/* It comes to the generation that there is. */
static void join(struct nodes *w, int node, int rank)
{
    put_event(w, node,
              (struct supervisor_event){
                  .type = SUPERVISOR_EV_JOINED, .rank = rank, .recovers = w->recovers});
}

static void start_rank(struct nodes *w, int node, int rank)
{
    struct node *n = &w->nodes[node];
    n->view.n_starts++;
    if (n->start_error != 0) {
        report(w, node,
               (struct supervisor_event){.type = SUPERVISOR_EV_START_FAILED,
                                         .rank = rank,
                                         .status = n->start_error,
                                         .stage = SUPERVISOR_START_EXEC,
                                         .empty = is_empty(n)});
        return;
    }
    n->runs[rank] = true;
    report(w, node,
           (struct supervisor_event){
               .type = SUPERVISOR_EV_STARTED, .rank = rank, .pid = 100 * (node + 1) + rank});
    if (w->recovers)
        join(w, node, rank);
}

static void note_place(struct node *n)
{
    const struct member_place *p = member_get_place(n->member);
    n->n_next = 0;
    n->view.is_asked = false;
    n->view.generation = supervisor_generation(n->supervisor);
    n->view.first_rank = p->place.first_rank;
    n->view.n_local = p->place.n_local;
    n->view.world_size = p->place.world_size;
    n->view.port = p->place.port;
}

static void carry_out(struct nodes *w, int node, const struct supervisor_orders *o)
{
    struct node *n = &w->nodes[node];
    if (o->renew || o->recover)
        note_place(n);
    for (int i = 0; o->recover && !n->keeps_ranks && i < NODES_LOCAL; i++)
        if (n->runs[i])
            join(w, node, i);
    for (int i = 0; i < o->n_start; i++)
        start_rank(w, node, n->n_next++);
    for (int i = 0; i < o->n_restart; i++)
        start_rank(w, node, o->restart[i]);
    if (o->signal != 0)
        signal_ranks(w, node, o->signal, o->except);
    if (o->sweep_signal != 0 && is_empty(n))
        report(w, node, (struct supervisor_event){.type = SUPERVISOR_EV_EMPTY});
    if (o->sweep_alone) {
        memset(n->runs, 0, sizeof n->runs);
        n->n_late = 0;
        put_event(w, node, (struct supervisor_event){.type = SUPERVISOR_EV_SWEPT});
    }
    if (o->drain)
        put_event(w, node, (struct supervisor_event){.type = SUPERVISOR_EV_DRAINED});
    if (o->ended) {
        n->view.ended = true;
        n->view.exit_code = supervisor_exit_code(n->supervisor);
        n->view.die_of = supervisor_get_verdict(n->supervisor)->die_of;
        n->is_up = false;
    }
}

/* --- What node_roster.c does --- */

static void feed(struct nodes *w, int node, struct supervisor_event e);

static void follow(struct nodes *w, int node, const struct member_orders *orders);

static void step_member(struct nodes *w, int node, struct member_input in)
{
    struct member_orders o;
    in.now_ms = w->now_ms;
    member_step(w->nodes[node].member, &in, &o);
    follow(w, node, &o);
    if (member_knows_stop(w->nodes[node].member))
        answer_aborts(w, node);
}

static void drop_link(struct nodes *w, int node)
{
    if (w->nodes[node].link != 0 && !w->nodes[node].is_cut)
        put(w, TODO_LINK_GONE, node);
    w->nodes[node].link = 0;
}

static void follow(struct nodes *w, int node, const struct member_orders *orders)
{
    struct node *n = &w->nodes[node];
    const struct member_orders o = *orders;
    struct supervisor_event events[ROSTER_AGENT_MAX_EVENTS];
    for (size_t i = 0; i < o.n_messages; i++)
        if (n->link != 0 && !n->is_cut)
            put_message(w, TODO_TO_ROSTER, node, &o.messages[i]);
    if (o.disconnect)
        drop_link(w, node);
    if (o.connect && !n->is_cut) {
        n->link = ++w->n_links;
        put(w, TODO_LINK_UP, node);
    }
    if (o.set_lease)
        n->lease_end_ms = o.lease_end_ms;
    if (o.open_store)
        step_member(w, node,
                    (struct member_input){.type = MEMBER_STORE_OPEN,
                                          .host = n->name,
                                          .port = (uint16_t)(5000 + ++w->n_ports),
                                          .agent_store = true});
    int n_events = roster_agent_obey(&n->agent, n->member, &o, events);
    for (int i = 0; i < n_events; i++)
        feed(w, node, events[i]);
    n->view.is_asked |= o.request_checkpoint;
}

static void look(struct nodes *w, int node)
{
    struct node *n = &w->nodes[node];
    struct member_input in;
    while (roster_agent_hear(&n->agent, n->supervisor, n->member, &in))
        step_member(w, node, in);
}

static void feed(struct nodes *w, int node, struct supervisor_event e)
{
    struct supervisor_orders o;
    e.now_ms = w->now_ms;
    supervisor_step(w->nodes[node].supervisor, &e, &o);
    carry_out(w, node, &o);
    look(w, node);
}

/* --- The roster's side --- */

static int find_node(const struct nodes *w, uint64_t link)
{
    for (int i = 0; i < NODES_MAX; i++)
        if (w->nodes[i].link == link)
            return i;
    return -1;
}

static void step_roster(struct nodes *w, struct roster_input in)
{
    struct roster_actions actions;
    in.now_ms = w->now_ms;
    roster_step(w->roster, &in, &actions);
    for (size_t i = 0; i < actions.n; i++) {
        const struct roster_action *a = &actions.items[i];
        int node = a->type == ROSTER_CHANGED ? -1 : find_node(w, a->link);
        if (node >= 0 && a->type == ROSTER_SEND && !w->nodes[node].is_cut)
            put_message(w, TODO_TO_MEMBER, node, &a->message);
    }
}

/* --- What is to be done now --- */

static void hear_frame(struct nodes *w, const struct todo *t)
{
    struct message m;
    int rc =
        channel_wire_decode(co_buf_bytes(&t->frame), co_buf_len(&t->frame), &w->scratch, &m, NULL);
    assert(rc == 0);
    (void)rc;
    if (t->type == TODO_TO_ROSTER)
        step_roster(w,
                    (struct roster_input){.type = ROSTER_MESSAGE, .link = t->link, .message = &m});
    else if (w->nodes[t->node].is_up && w->nodes[t->node].link == t->link)
        step_member(w, t->node, (struct member_input){.type = MEMBER_MESSAGE, .message = &m});
}

static void act(struct nodes *w, const struct todo *t)
{
    struct node *n = &w->nodes[t->node];
    switch (t->type) {
    case TODO_EVENT:
        if (n->is_up)
            feed(w, t->node, t->event);
        break;
    case TODO_LINK_UP:
        if (n->is_up && n->link == t->link)
            step_member(w, t->node, (struct member_input){.type = MEMBER_LINK_UP});
        break;
    case TODO_LINK_GONE:
        step_roster(w, (struct roster_input){.type = ROSTER_GONE, .link = t->link});
        break;
    default:
        hear_frame(w, t);
        break;
    }
}

void nodes_settle(struct nodes *w)
{
    while (w->n > 0) {
        struct todo t = w->todo[w->first];
        w->first = (w->first + 1) % MAX_TODO;
        w->n--;
        act(w, &t);
        co_buf_fini(&t.frame);
    }
}

/* As the spawner does it. */
static void lapse(struct nodes *w, int node)
{
    struct node *n = &w->nodes[node];
    n->lease_end_ms = CO_NEVER_MS;
    step_member(w, node, (struct member_input){.type = MEMBER_TIME});
    feed(w, node, (struct supervisor_event){.type = SUPERVISOR_EV_ORDER_KILL});
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t next_ms(const struct nodes *w)
{
    uint64_t at = roster_deadline_ms(w->roster);
    for (int i = 0; i < NODES_MAX; i++) {
        const struct node *n = &w->nodes[i];
        if (!n->is_up)
            continue;
        at = sooner(at, sooner(supervisor_deadline_ms(n->supervisor), n->lease_end_ms));
        at = sooner(at, member_deadline_ms(n->member));
        if (n->n_late > 0)
            at = sooner(at, n->late[0].due_ms);
    }
    return at;
}

static void let_time_act(struct nodes *w)
{
    for (int i = 0; i < NODES_MAX; i++) {
        struct node *n = &w->nodes[i];
        bring_late_reports(w, i);
        nodes_settle(w);
        if (n->is_up && n->lease_end_ms <= w->now_ms)
            lapse(w, i);
        if (n->is_up && supervisor_deadline_ms(n->supervisor) <= w->now_ms)
            feed(w, i, (struct supervisor_event){.type = SUPERVISOR_EV_TIME});
        if (n->is_up && member_deadline_ms(n->member) <= w->now_ms)
            step_member(w, i, (struct member_input){.type = MEMBER_TIME});
        nodes_settle(w);
    }
    if (roster_deadline_ms(w->roster) <= w->now_ms)
        step_roster(w, (struct roster_input){.type = ROSTER_TIME});
    nodes_settle(w);
}

void nodes_advance(struct nodes *w, uint64_t ms)
{
    uint64_t until_ms = w->now_ms + ms;
    nodes_settle(w);
    for (uint64_t at; (at = next_ms(w)) <= until_ms;) {
        if (at > w->now_ms)
            w->now_ms = at;
        let_time_act(w);
    }
    w->now_ms = until_ms;
}

/* --- What happens from outside --- */

struct nodes *nodes_create(const struct message_terms *terms)
{
    struct nodes *w = calloc(1, sizeof *w);
    assert(w != NULL);
    w->now_ms = 1000;
    w->terms = *terms;
    int rc = roster_create(&(struct roster_limits){0}, terms, NULL, 0, w->now_ms, &w->roster, NULL);
    assert(rc == 0);
    (void)rc;
    return w;
}

static void fini_node(struct node *n)
{
    supervisor_destroy(n->supervisor);
    member_destroy(n->member);
    *n = (struct node){0};
}

void nodes_await_cause(struct nodes *w, uint64_t ms)
{
    w->cause_ms = ms;
}

void nodes_recover(struct nodes *w)
{
    w->recovers = true;
}

void nodes_shrink(struct nodes *w)
{
    w->recovers = w->drops = true;
}

void nodes_destroy(struct nodes *w)
{
    if (w == NULL)
        return;
    for (int i = 0; i < NODES_MAX; i++)
        fini_node(&w->nodes[i]);
    while (w->n-- > 0)
        co_buf_fini(&w->todo[w->first++ % MAX_TODO].frame);
    roster_destroy(w->roster);
    free(w);
}

static void start(struct nodes *w, int node, bool ends_job, bool is_cut)
{
    struct node *n = &w->nodes[node];
    static uint8_t n_starts;
    const uint64_t report_ms = n->report_ms;
    fini_node(n);
    *n = (struct node){
        .is_up = true, .is_cut = is_cut, .lease_end_ms = CO_NEVER_MS, .report_ms = report_ms};
    snprintf(n->name, sizeof n->name, "n%d", node);
    struct supervisor_limits limits = {.n_ranks = NODES_LOCAL,
                                       .window = 1,
                                       .grace_ms = 30000,
                                       .failure_grace_ms = 5000,
                                       .has_others = true,
                                       .recovers = w->recovers,
                                       .drops = w->drops,
                                       .cause_ms = w->cause_ms,
                                       .recovery_ms = 60000};
    struct message_hello hello = {.instance = {(uint8_t)node, ++n_starts},
                                  .run_id = "job",
                                  .name = n->name,
                                  .node_rank = MESSAGE_NO_RANK,
                                  .n_local = NODES_LOCAL,
                                  .stop_ms = 60000,
                                  .terms = w->terms};
    struct member_limits times = {.start_timeout_ms = 10000, .failover_timeout_ms = 60000};
    struct member_orders mo;
    n->supervisor = supervisor_create(&limits);
    int rc = member_create(&times, &hello, "n0:29400", &n->member, NULL);
    assert(rc == 0 && n->supervisor != NULL);
    (void)rc;
    roster_agent_init(&n->agent, n->name, "./train", ends_job);
    member_begin(n->member, w->now_ms, &mo);
    follow(w, node, &mo);
    nodes_settle(w);
}

void nodes_start(struct nodes *w, int node, bool ends_job)
{
    start(w, node, ends_job, false);
}

void nodes_start_cut(struct nodes *w, int node)
{
    start(w, node, false, true);
}

void nodes_exit_rank(struct nodes *w, int node, int rank, int status)
{
    end_rank(w, node, rank, status);
    nodes_settle(w);
}

void nodes_exit_after_progress(struct nodes *w, int node, int rank, int status)
{
    struct node *n = &w->nodes[node];
    n->runs[rank] = false;
    report(w, node,
           (struct supervisor_event){.type = SUPERVISOR_EV_EXITED,
                                     .rank = rank,
                                     .status = status,
                                     .was_ending = true,
                                     .progress.n_steps = 1,
                                     .empty = is_empty(n)});
    nodes_settle(w);
}

void nodes_exit_consequence(struct nodes *w, int node, int rank, int status)
{
    struct node *n = &w->nodes[node];
    n->runs[rank] = false;
    report(w, node,
           (struct supervisor_event){.type = SUPERVISOR_EV_EXITED,
                                     .rank = rank,
                                     .status = status,
                                     .lost_peer = true,
                                     .empty = is_empty(n)});
    nodes_settle(w);
}

void nodes_exit_unseen(struct nodes *w, int node, int rank, int status)
{
    w->nodes[node].unseen[rank] = status;
}

void nodes_abort_rank(struct nodes *w, int node, int rank, int status)
{
    struct node *n = &w->nodes[node];
    if (!n->runs[rank])
        return;
    n->aborts[rank] = status;
    report(
        w, node,
        (struct supervisor_event){.type = SUPERVISOR_EV_ABORTED, .rank = rank, .status = status});
    nodes_settle(w);
    if (n->aborts[rank] != 0 && !supervisor_get_rank(n->supervisor, rank)->aborts)
        end_rank(w, node, rank, status);
    nodes_settle(w);
}

void nodes_exit_ranks_at_once(struct nodes *w, int status)
{
    for (int node = 0; node < NODES_MAX; node++)
        for (int rank = 0; rank < NODES_LOCAL; rank++)
            end_rank(w, node, rank, status);
    nodes_settle(w);
}

void nodes_exit_witness(struct nodes *w, int node, int rank, int status, int culprit,
                        int culprit_status)
{
    w->nodes[node].runs[rank] = false;
    report(w, node,
           (struct supervisor_event){.type = SUPERVISOR_EV_EXITED,
                                     .rank = rank,
                                     .status = status,
                                     .blames = true,
                                     .culprit = culprit});
    end_rank(w, node, culprit, culprit_status);
    nodes_settle(w);
}

void nodes_signal(struct nodes *w, int node, int sig)
{
    feed(w, node, (struct supervisor_event){.type = SUPERVISOR_EV_SIGNAL, .sig = sig});
    nodes_settle(w);
}

void nodes_time_out(struct nodes *w, int node)
{
    feed(w, node, (struct supervisor_event){.type = SUPERVISOR_EV_TIMEOUT});
    nodes_settle(w);
}

void nodes_ask_restart(struct nodes *w, int node)
{
    step_member(w, node, (struct member_input){.type = MEMBER_RESTART});
    nodes_settle(w);
}

void nodes_kill(struct nodes *w, int node)
{
    w->nodes[node].is_up = false;
    memset(w->nodes[node].runs, 0, sizeof w->nodes[node].runs);
    drop_link(w, node);
    nodes_settle(w);
}

void nodes_cut(struct nodes *w, int node)
{
    w->nodes[node].is_cut = true;
}

void nodes_save(struct nodes *w, int node)
{
    struct node *n = &w->nodes[node];
    n->agent.saved = n->view.is_asked && !is_empty(n);
    look(w, node);
    nodes_settle(w);
}

void nodes_lose_spawner(struct nodes *w, int node)
{
    feed(w, node, (struct supervisor_event){.type = SUPERVISOR_EV_SPAWNER_LOST});
    nodes_settle(w);
}

void nodes_fail_starts(struct nodes *w, int node, int error)
{
    w->nodes[node].start_error = error;
}

void nodes_slow_spawner(struct nodes *w, int node, uint64_t report_ms)
{
    w->nodes[node].report_ms = report_ms;
}

void nodes_part_rank(struct nodes *w, int node, int rank)
{
    if (!w->nodes[node].runs[rank])
        return;
    put_event(w, node, (struct supervisor_event){.type = SUPERVISOR_EV_ASKED, .rank = rank});
    nodes_settle(w);
}

void nodes_keep_ranks(struct nodes *w, int node)
{
    w->nodes[node].keeps_ranks = true;
}

struct nodes_view nodes_look(const struct nodes *w, int node)
{
    const struct node *n = &w->nodes[node];
    struct nodes_view view = n->view;
    view.supervisor = n->supervisor;
    view.member = n->member;
    for (int i = 0; i < NODES_LOCAL; i++)
        view.n_running += n->runs[i];
    view.is_parked = n->member != NULL && n->member->parks;
    return view;
}

const struct roster *nodes_roster(const struct nodes *w)
{
    return w->roster;
}

uint64_t nodes_now_ms(const struct nodes *w)
{
    return w->now_ms;
}
