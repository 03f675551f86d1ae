/* node_roster.c - libuv around the member, for the node that it belongs to.
 *
 * Read node_roster_look() first: the node calls it after each step of the supervisor. It asks
 * roster_agent_hear() for facts that the member does not know, and steps the member with each
 * (hear_input() -> step_member()). follow() carries the member's orders out: it connects the link,
 * sends messages, and posts what roster_agent_obey() makes of the rest to the node's queue. The
 * other way in are the callbacks of the link: on_up(), on_message(), on_down(), and the timer.
 *
 * Invariant: the supervisor is never stepped from here. What the member orders waits in the
 * queue (node_view.h), so a step of one machine does not run inside a step of the other. */
#include "node_roster.h"

#include "launcher/diagnosis/error_file.h"
#include "launcher/generation/checkpoint_request.h"
#include "launcher/job/job_spec.h"
#include "launcher/job/worker_env.h"
#include "launcher/membership/fitness.h"
#include "launcher/membership/roster_agent.h"
#include "launcher/membership/roster_link.h"
#include "launcher/platform/own_addresses.h"
#include "launcher/reporting/report.h"
#include "launcher/stdio/output.h"
#include "node_dump.h"
#include "node_goodput.h"
#include "node_leave.h"
#include "node_pmi.h"
#include "node_report.h"
#include "node_view.h"
#include "node_wait.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/scope.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { EXIT_NO_STORE = 69 };

struct node_roster {
    const struct node_view *node;
    struct node_roster_opts opts;
    struct roster_agent agent;
    struct member *member;   /* owned */
    struct fitness *fitness; /* owned: fitness_close(); NULL: no checks, and no other nodes */
    const struct roster_link_ops *ops;
    void *link; /* owned: ops->close() it */
    uv_timer_t timer, hold_timer;
    bool is_looking;   /* node_roster_look() is under way, and comes to what is new by itself */
    bool is_up;        /* the link */
    bool was_rejected; /* and a warning was printed */
    bool is_spare;     /* the coordinator has reported it once */
    bool keeps_link;   /* the member has ended, and node_report.h still needs it */
    bool is_due; /* the member's deadline has come; what was received before it is read first */
    char name[MESSAGE_NAME_BYTES];
    char daemon[MESSAGE_HOST_BYTES];
    char host[MESSAGE_HOST_BYTES]; /* by which others reach this node */
    struct node_wait wait;

    /* whether this process was stopped: the member steps at each keep-alive, 3 in a lease */
    uint64_t lease_ms; /* how long it is; 0: none */
    uint64_t stepped_ms;
    uint64_t suspended_ms;      /* since then the spawner has suspended the ranks; 0: it has not */
    uint64_t stood_ms, woke_ms; /* the last time that it was: for so long, until then */
};

static void step_member(struct node_roster *g, struct member_input *in);

static uint32_t generation(const struct node_roster *g)
{
    return supervisor_generation(g->node->supervisor);
}

/* Another ddprun started this one through a launch channel: it reports what concerns the whole
 * job. */
static bool is_led(const struct node_roster *g)
{
    return g->node->spec->world.launch_fd != 0;
}

/* No other node takes part: the rendezvous is not reported, and the store is the generation's. */
static bool is_alone(const struct node_roster *g)
{
    return !g->node->spec->world.has_others;
}

/* --- The generation's store --- */

/* The host by which others reach this node: as configured, or the address by which it reaches the
 * roster; if the roster is in this process, the endpoint at which the others look for it. */
static void find_host(struct node_roster *g)
{
    const struct job_world *world = &g->node->spec->world;
    if (world->local_addr != NULL)
        snprintf(g->host, sizeof g->host, "%s", world->local_addr);
    else if (g->ops->own_address(g->link, g->host, sizeof g->host) < 0)
        snprintf(g->host, sizeof g->host, "%s", world->endpoint_host);
}

void node_roster_adopt(struct node_roster *g, int fd, const uint8_t *bytes, size_t len)
{
    g->ops->adopt(g->link, fd, bytes, len);
}

static void close_store(struct node_roster *g)
{
    struct co_error err;
    generation_close_store(g->opts.gen);
    if (g->link != NULL && g->ops->take_port(g->link, &err) < 0)
        node_say(g->node, CO_WARNING, "no node can join the job from now on: %s", err.text);
}

/* Ours, or one that rank 0 makes at the port that was given. */
static bool has_store(const struct job_spec *spec, uint32_t world_size)
{
    return spec->store == STORE_WORKER || job_spec_agent_store(spec, world_size);
}

static void open_store(struct node_roster *g)
{
    const struct node_view *n = g->node;
    if (is_alone(g)) { /* it comes with the memory of its generation: node_renew() */
        step_member(g, &(struct member_input){.type = MEMBER_STORE_OPEN, .host = ""});
        return;
    }
    const struct member_place *place = member_get_place(g->member);
    struct generation_callbacks callbacks = g->opts.callbacks;
    struct generation_reach reach = {
        .host = g->host, .world_size = place->place.world_size, .generation = place->generation};
    struct co_error err;
    reach.allowed = member_get_addresses(g->member, &reach.n_allowed);
    find_host(g);
    if (has_store(n->spec, reach.world_size) && g->ops->lend_port(g->link, n->spec->master_port))
        callbacks.on_control = g->opts.on_control;
    int rc = generation_open_store(n->spec, &reach, n->loop, &callbacks, g->opts.gen, &err);
    if (rc == 0)
        step_member(g, &(struct member_input){.type = MEMBER_STORE_OPEN,
                                              .host = g->host,
                                              .port = n->gen->master_port,
                                              .agent_store = n->gen->agent_store,
                                              .relayed = n->gen->links != NULL});
    else
        step_member(g, &(struct member_input){.type = MEMBER_RANK_FAILED,
                                              .rank = (int32_t)place->place.first_rank,
                                              .exit_code = EXIT_NO_STORE,
                                              .final = true,
                                              .text = err.text});
}

/* --- The member's orders --- */

/* "...; generation 1: 2 nodes, 16 ranks" */
static void announce(struct node_roster *g)
{
    const struct member_place *p = member_get_place(g->member);
    events_place(g->node->events, p->generation, &p->place, co_now_ms() - g->wait.from_ms);
    if ((p->generation > 0 || g->node->spec->verbose > 0) && !is_led(g))
        node_say(g->node, CO_NOTE,
                 "%s%sgeneration %" PRIu32 ": %" PRIu32 " node%s, %" PRIu32 " rank%s",
                 g->wait.cause, g->wait.cause[0] != '\0' ? "; " : "", p->generation,
                 p->place.n_nodes, p->place.n_nodes == 1 ? "" : "s", p->place.world_size,
                 p->place.world_size == 1 ? "" : "s");
    g->wait.cause[0] = '\0';
}

static const char *const why_names[] = {
    [MESSAGE_WHY_JOIN] = "join",   [MESSAGE_WHY_LOST] = "lost",
    [MESSAGE_WHY_LEAVE] = "leave", [MESSAGE_WHY_FAILURE] = "failure",
    [MESSAGE_WHY_ORDER] = "order", [MESSAGE_WHY_RESTART] = "restart",
};

static void note_order(struct node_roster *g, const struct member_orders *o)
{
    enum supervisor_state state = supervisor_get_state(g->node->supervisor);
    bool ends = member_get_state(g->member) == MEMBER_ENDING;
    if (state != SUPERVISOR_STARTING && state != SUPERVISOR_RUNNING &&
        state != SUPERVISOR_RECOVERING && state != SUPERVISOR_PARKED &&
        state != SUPERVISOR_AWAITING)
        return;
    if (!o->kill_ranks && supervisor_get_aborter(g->node->supervisor) >= 0)
        return; /* say_transition() in node_step.c names it */
    if (o->kill_ranks)
        events_order(g->node->events, generation(g), "lease", g->wait.trouble);
    else if (o->stop_ranks)
        events_order(g->node->events, generation(g), ends ? "end" : why_names[o->why],
                     ends ? member_get_end(g->member)->text : member_stop_text(g->member));
}

/* Asked once; the member may hear it again on a new link. The signal comes with it, since a rank
 * that computes does not look at a descriptor. */
static void ask_to_save(struct node_roster *g)
{
    const struct node_view *n = g->node;
    if (n->gen->checkpoint_request == NULL || !checkpoint_request_ask(n->gen->checkpoint_request))
        return;
    node_goodput_note_save(n);
    events_save(n->events, generation(g), "asked");
    node_say(n, CO_NOTE, "a node is waiting to join: asking the ranks to save their state");
    if (spawner_signal(n->spawner,
                       n->spec->signal_scope == SCOPE_GROUP ? SPAWNER_GROUP : SPAWNER_MAIN, -1,
                       WORKER_CHECKPOINT_SIGNAL) < 0)
        node_lose_spawner(n);
}

static void on_hold_timer(uv_timer_t *timer)
{
    struct node_roster *g = timer->data;
    g->agent.holds_gone = false;
    node_roster_look(g);
}

/* The lease is over, and the spawner may have killed all while we were stopped or slow. The roster
 * may have reported already whether it has evicted us or has missed nothing, or it reports it when
 * it receives our next message. The report that nothing runs any more decides what happens to this
 * node, so it is held back that long. */
static void hold_gone(struct node_roster *g)
{
    g->agent.holds_gone = true;
    uv_update_time(g->node->loop);
    uv_timer_start(&g->hold_timer, on_hold_timer, LEASE_MARGIN_MS, 0);
}

static void on_timer(uv_timer_t *timer);

static void set_timer(struct node_roster *g)
{
    uint64_t deadline_ms = member_deadline_ms(g->member), now_ms = co_now_ms();
    if (g->is_due)
        return;
    if (deadline_ms == CO_NEVER_MS) {
        uv_timer_stop(&g->timer);
        return;
    }
    uv_update_time(g->node->loop);
    uv_timer_start(&g->timer, on_timer, deadline_ms > now_ms ? deadline_ms - now_ms : 0, 0);
}

static void set_lease(struct node_roster *g, uint64_t end_ms)
{
    const struct node_view *n = g->node;
    uint64_t now_ms = co_now_ms();
    g->lease_ms = end_ms != CO_NEVER_MS && end_ms > now_ms ? end_ms - now_ms : 0;
    if (n->spawner->sock >= 0 && spawner_set_lease(n->spawner, end_ms) < 0)
        node_lose_spawner(n);
}

/* A job that succeeds reports nothing else on a node that had no ranks. */
static void say_spare(const struct node_roster *g)
{
    const struct member_end *end = member_get_end(g->member);
    if (end->exit_code == 0 && end->by_roster && !end->took_part && !is_led(g) && !is_alone(g))
        node_say(g->node, CO_NOTE, "this node was a spare: the job succeeded without it");
}

/* The supervisor of a node that is alone reports its own ranks; here none could be started. */
static void say_unfit(const struct node_roster *g)
{
    const struct member_end *end = member_get_end(g->member);
    if (is_alone(g) && end->by_roster &&
        (end->outcome == MESSAGE_MISSING || end->outcome == MESSAGE_TOO_FEW))
        node_say(g->node, CO_ERROR, "%s", end->text);
}

static void disconnect(struct node_roster *g)
{
    g->is_up = g->keeps_link = false;
    g->ops->disconnect(g->link);
}

/* What follows may make the member step again: its messages go first, and the rest is a copy. */
static void follow(struct node_roster *g, const struct member_orders *orders)
{
    const struct member_orders o = *orders;
    struct supervisor_event events[ROSTER_AGENT_MAX_EVENTS];
    for (size_t i = 0; i < o.n_messages; i++)
        g->ops->send(g->link, &o.messages[i]);
    g->keeps_link = o.disconnect && o.ended && g->is_up && node_report_needs_link(g->node);
    if (o.disconnect && !g->keeps_link)
        disconnect(g);
    if (o.connect)
        g->ops->connect(g->link);
    set_timer(g);
    if (!is_alone(g) && o.start_ranks)
        announce(g);
    if (o.ended)
        say_spare(g);
    if (o.ended)
        say_unfit(g);
    if (!is_alone(g))
        note_order(g, &o);
    if (o.kill_ranks && member_get_state(g->member) == MEMBER_KILLING)
        hold_gone(g);
    int n = roster_agent_obey(&g->agent, g->member, &o, events);
    if (o.set_lease)
        set_lease(g, o.lease_end_ms);
    if (o.leased)
        g->ops->note_leased(g->link);
    if (o.resume && g->node->spawner->sock >= 0 &&
        spawner_resume(g->node->spawner, o.resume_from_ms) < 0)
        node_lose_spawner(g->node);
    if (o.open_store)
        open_store(g);
    for (int i = 0; i < n; i++)
        if (!node_pmi_holds(g->node, &events[i]) && !node_dump_holds(g->node, &events[i]))
            node_post(g->node, &events[i]);
    if (o.request_checkpoint)
        ask_to_save(g);
}

static void note_standstill(struct node_roster *g, uint64_t now_ms)
{
    if (g->lease_ms > 0 && now_ms - g->stepped_ms >= g->lease_ms / 2) {
        g->stood_ms = now_ms - g->stepped_ms;
        g->woke_ms = now_ms;
    }
    g->stepped_ms = now_ms;
}

static void step_member(struct node_roster *g, struct member_input *in)
{
    struct member_orders o;
    enum member_state from = member_get_state(g->member);
    in->now_ms = co_now_ms();
    note_standstill(g, in->now_ms);
    member_step(g->member, in, &o);
    if (!is_alone(g)) {
        node_wait_note(&g->wait, from);
        node_goodput_note_member(g->node, g->member);
    }
    follow(g, &o);
    if (member_knows_stop(g->member))
        node_pmi_note_stop(g->node);
    fitness_note_member(g->fitness, from, member_get_state(g->member));
}

/* What was received before the deadline is read first: the sockets have their turn between the two
 * expiries, which a timer of 0 ms would not give them. */
static void on_timer(uv_timer_t *timer)
{
    struct node_roster *g = timer->data;
    g->is_due = !g->is_due;
    if (g->is_due)
        uv_timer_start(&g->timer, on_timer, 1, 0);
    else
        step_member(g, &(struct member_input){.type = MEMBER_TIME});
}

/* --- What the ranks do --- */

/* What a failed rank wrote to its error file, for the other nodes' terminals. */
static void add_error(struct node_roster *g)
{
    const struct node_view *n = g->node;
    co_autofree char *message = NULL;
    co_autofree char *raw = NULL;
    char path[4096];
    char *text = g->agent.text;
    size_t len = strlen(text);
    rank_io_error_file(n->io, n->runtime_dir, g->agent.reported_rank, path, sizeof path);
    if (error_file_read(path, &message, &raw, NULL) == 0 && message != NULL)
        snprintf(text + len, sizeof g->agent.text - len, ": %.*s", (int)strcspn(message, "\n"),
                 message);
}

static void note_failure(struct node_roster *g, const struct member_input *in)
{
    if (!in->final)
        add_error(g);
    snprintf(g->wait.cause, sizeof g->wait.cause, "rank %" PRId32 " on %s: %s", in->rank, g->name,
             in->text);
}

/* The roster's message about it counts more than what this node saw. */
static void note_gone(struct node_roster *g)
{
    if (member_stop_text(g->member)[0] != '\0')
        snprintf(g->wait.cause, sizeof g->wait.cause, "%s", member_stop_text(g->member));
    close_store(g);
}

const struct roster_restart *node_roster_get_restart(const struct node_roster *g)
{
    return is_alone(g) ? g->ops->restart(g->link) : NULL;
}

/* What the terminals of other nodes and --events get about it; and the store is closed. A node that
 * is alone has its report for that, and a store that ends with its generation. */
static void note_news(struct node_roster *g, const struct member_input *in)
{
    if (in->type == MEMBER_RANK_FAILED)
        note_failure(g, in);
    else if (in->type == MEMBER_RANKS_STOPPED || in->type == MEMBER_RANKS_PARKED)
        note_gone(g);
    else if (in->type == MEMBER_LEAVE || in->type == MEMBER_END_JOB)
        events_leave(g->node->events, generation(g), in->text);
    else if (in->type == MEMBER_RANKS_SAVED)
        events_save(g->node->events, generation(g), "done");
}

static void hear_input(struct node_roster *g, struct member_input *in)
{
    if (!is_alone(g))
        note_news(g, in);
    step_member(g, in);
    const struct roster_restart *restart = node_roster_get_restart(g);
    if (in->type == MEMBER_RANKS_STOPPED && restart != NULL)
        g->opts.on_restart(g->opts.callbacks.arg, restart);
}

/* The supervisor has had all orders: what it shows is news. Else this is called again once it
 * has. */
static bool is_settled(const struct node_roster *g)
{
    return node_queue_is_empty(g->node->queue);
}

void node_roster_look(struct node_roster *g)
{
    struct member_input in;
    if (g->is_looking || !is_settled(g))
        return;
    g->is_looking = true;
    do {
        /* what is saved for our own leaving is not for the roster to take as an answer */
        g->agent.saved = !is_alone(g) &&
                         checkpoint_request_all_saved(g->node->gen->checkpoint_request) &&
                         !node_leave_holds_own(g->node);
        while (is_settled(g) && g->ops->deliver != NULL && g->ops->deliver(g->link)) {
        }
        if (!is_settled(g) || !roster_agent_hear(&g->agent, g->node->supervisor, g->member, &in))
            break;
        hear_input(g, &in);
    } while (is_settled(g));
    g->is_looking = false;
}

void node_roster_lapse(struct node_roster *g)
{
    char stood[REPORT_DURATION_BYTES];
    note_standstill(g, co_now_ms());
    if (g->stood_ms > 0 && co_now_ms() - g->woke_ms <= LEASE_MARGIN_MS)
        snprintf(g->wait.cause, sizeof g->wait.cause,
                 "this ddprun was suspended for %s: its lease expired, and all ranks on this node "
                 "were killed",
                 report_duration(g->stood_ms, stood, sizeof stood));
    else
        snprintf(g->wait.cause, sizeof g->wait.cause,
                 "lost contact with %s: all ranks on this node were killed", g->daemon);
    step_member(g, &(struct member_input){.type = MEMBER_TIME});
    node_post(g->node, &(struct supervisor_event){.type = SUPERVISOR_EV_ORDER_KILL});
}

bool node_roster_hear(struct node_roster *g, const struct spawner_report *r)
{
    const struct node_view *n = g->node;
    const bool is_suspended = r->event == SPAWNER_SUSPENDED;
    if (!is_suspended && r->event != SPAWNER_RESUMED && r->event != SPAWNER_HEARTBEAT_GONE)
        return false;
    if (g->link == NULL || g->ops->note_sign == NULL)
        return true;
    if (r->event == SPAWNER_HEARTBEAT_GONE) {
        g->ops->note_sign(g->link, ROSTER_LINK_GONE);
        return true;
    }
    const uint64_t now_ms = co_now_ms();
    if (is_suspended != (g->suspended_ms != 0))
        events_suspended(n->events, generation(g), is_suspended, now_ms - g->suspended_ms);
    if (!is_suspended || r->status != 0)
        g->ops->note_sign(g->link, is_suspended ? ROSTER_LINK_SILENT : ROSTER_LINK_HEARD);
    if (is_suspended && g->suspended_ms == 0)
        g->suspended_ms = now_ms;
    else if (!is_suspended)
        g->suspended_ms = 0;
    if (is_suspended)
        step_member(g, &(struct member_input){.type = MEMBER_SUSPENDED});
    return true;
}

/* --- The link --- */

static void on_up(void *arg, bool is_here)
{
    struct node_roster *g = arg;
    g->is_up = true;
    g->wait.trouble[0] = '\0';
    step_member(g, &(struct member_input){.type = MEMBER_LINK_UP, .local = is_here});
    node_queue_drain(g->node->queue);
}

/* Why the ranks were stopped may turn out while they stop, or later: those that lost their peers
 * had failed before the roster found the peers' node lost. */
static void hear_stop(struct node_roster *g, const struct message *m)
{
    enum member_state from = member_get_state(g->member);
    char before[MESSAGE_TEXT_BYTES];
    snprintf(before, sizeof before, "%s", member_stop_text(g->member));
    step_member(g, &(struct member_input){.type = MEMBER_MESSAGE, .message = m});
    const char *text = member_stop_text(g->member);
    if (is_alone(g) ||
        (from != MEMBER_STOPPING && from != MEMBER_WAITING && from != MEMBER_PARKED) ||
        strcmp(text, before) == 0)
        return;
    snprintf(g->wait.cause, sizeof g->wait.cause, "%s", text);
    if (m->stop.why != MESSAGE_WHY_FAILURE) /* that one was its own */
        events_order(g->node->events, generation(g), why_names[m->stop.why], text);
}

/* The ranks do not notice it; programs that read the events do. */
static void note_replaced(struct node_roster *g)
{
    events_coordinator(g->node->events, generation(g), "replaced");
    if (!is_led(g))
        node_say(g->node, CO_NOTE,
                 "the coordinator at %s was replaced; generation %" PRIu32
                 " continues with the new one\n",
                 g->daemon, member_get_place(g->member)->generation);
}

/* No generation follows: what runs here may take its time to end. */
static void end_heartbeats(struct node_roster *g)
{
    const struct node_view *n = g->node;
    if (n->spec->world.host_timeout_ms > 0 && n->spawner->sock >= 0 &&
        (spawner_state_end(n->spawner, CO_NEVER_MS) < 0 ||
         spawner_resume(n->spawner, co_now_ms()) < 0))
        node_lose_spawner(n);
}

/* It may prepare for the place that it gets. */
static void note_spare(struct node_roster *g)
{
    const struct message_progress *p = member_get_progress(g->member);
    if (g->is_spare || g->node->spec->world.spares == 0 || p == NULL ||
        p->wait != MESSAGE_WAIT_PLACE || member_get_state(g->member) != MEMBER_WAITING)
        return;
    g->is_spare = true;
    g->opts.on_spare(g->opts.callbacks.arg);
}

/* If this node may join again, the terminal shows why it waits. */
static void on_message(void *arg, const struct message *m)
{
    struct node_roster *g = arg;
    if (m->type == MESSAGE_RESULT)
        node_report_hear(g->node, m);
    if (m->type == MESSAGE_FIGURES && g->node->parts->hear_figures != NULL)
        g->node->parts->hear_figures(g->node, m);
    if (m->type == MESSAGE_HEALTH)
        fitness_hear(g->fitness, &m->health);
    if (m->type == MESSAGE_RESULT || m->type == MESSAGE_FIGURES || m->type == MESSAGE_HEALTH ||
        g->keeps_link)
        return;
    if (m->type == MESSAGE_WELCOME)
        fitness_hear_clock(g->fitness, &m->welcome);
    if (m->type == MESSAGE_REFUSED)
        snprintf(g->wait.trouble, sizeof g->wait.trouble, "%s", m->refused.text);
    if (m->type == MESSAGE_WELCOME && m->welcome.replaced)
        note_replaced(g);
    if (m->type == MESSAGE_VERDICT)
        end_heartbeats(g);
    if (m->type == MESSAGE_STOP)
        hear_stop(g, m);
    else
        step_member(g, &(struct member_input){.type = MEMBER_MESSAGE, .message = m});
    if (m->type == MESSAGE_LEASE)
        note_spare(g);
    node_queue_drain(g->node->queue);
}

/* Once, and early: most likely this node has another token than the others. */
static void warn_of_rejection(struct node_roster *g)
{
    if (member_get_state(g->member) != MEMBER_ENDED && !g->was_rejected)
        node_say(g->node, CO_WARNING,
                 "%s; any process at that address can answer this, so this node keeps trying%s\n",
                 g->wait.trouble,
                 member_get_state(g->member) == MEMBER_JOINING ? " for up to 10 s" : "");
    g->was_rejected = true;
}

static void on_down(void *arg, const char *text, int exit_code, bool rejected)
{
    struct node_roster *g = arg;
    const bool was_kept = g->keeps_link;
    g->is_up = g->keeps_link = false;
    if (was_kept) { /* the member does not know of it */
        node_report_lose_link(g->node);
        return;
    }
    snprintf(g->wait.trouble, sizeof g->wait.trouble, "%s", text);
    step_member(g, &(struct member_input){.type = MEMBER_LINK_DOWN,
                                          .text = g->wait.trouble,
                                          .final = exit_code != 0 && !rejected,
                                          .rejected = rejected,
                                          .exit_code = exit_code});
    if (rejected)
        warn_of_rejection(g);
    node_queue_drain(g->node->queue);
}

static void on_vacant(void *arg, uint64_t asked_ms)
{
    struct node_roster *g = arg;
    step_member(g, &(struct member_input){.type = MEMBER_COORDINATOR_LOST, .asked_ms = asked_ms});
    node_queue_drain(g->node->queue);
}

static void on_lease(void *arg, bool is_needed)
{
    struct node_roster *g = arg;
    step_member(g, &(struct member_input){.type = MEMBER_LEASE, .needed = is_needed});
    node_queue_drain(g->node->queue);
}

static void on_heartbeats(void *arg, int fd, uint64_t from_ms)
{
    struct node_roster *g = arg;
    const struct node_view *n = g->node;
    if (n->spawner->sock >= 0 &&
        spawner_send_heartbeats(n->spawner, fd, from_ms, n->spec->world.host_timeout_ms) < 0)
        node_lose_spawner(n);
}

static void on_end(void *arg, uint64_t end_ms)
{
    struct node_roster *g = arg;
    if (g->node->spawner->sock >= 0 && spawner_state_end(g->node->spawner, end_ms) < 0)
        node_lose_spawner(g->node);
}

static void on_note(void *arg, enum co_severity severity, const char *text)
{
    struct node_roster *g = arg;
    node_say(g->node, severity, "%s", text);
}

/* --- What others want to know --- */

void node_roster_fill_place(const struct node_roster *g, struct generation_place *place,
                            int *ret_first_rank)
{
    const struct message_place *p = &member_get_place(g->member)->place;
    *ret_first_rank = (int)p->first_rank;
    place->world_size = (int)p->world_size;
    place->node_rank = (int)p->node_index;
    place->n_nodes = (int)p->n_nodes;
    place->term = p->term;
    if (is_alone(g))
        return;
    place->master_addr = p->host;
    place->master_port = p->port;
    place->agent_store = p->agent_store;
    place->relayed = p->relayed;
}

const char *node_roster_waiting(const struct node_roster *g)
{
    return is_alone(g) ? NULL : node_wait_text(&g->wait);
}

static void on_health(void *arg, bool is_fit, const char *text)
{
    struct node_roster *g = arg;
    step_member(g,
                &(struct member_input){.type = is_fit ? MEMBER_FIT : MEMBER_UNFIT, .text = text});
    node_queue_drain(g->node->queue);
}

bool node_roster_restart(struct node_roster *g)
{
    if (is_alone(g) && member_get_state(g->member) == MEMBER_WAITING) {
        g->ops->hurry(g->link);
        return true;
    }
    if (member_get_state(g->member) != MEMBER_RUNNING)
        return false;
    step_member(g, &(struct member_input){.type = MEMBER_RESTART});
    return true;
}

void node_roster_end_job(struct node_roster *g)
{
    g->agent.ends_job = true;
}

const struct report_job *node_roster_fill_report(const struct node_roster *g,
                                                 struct report_job *ret)
{
    *ret = (struct report_job){.is_reported_elsewhere = is_led(g),
                               .first_rank = (int)member_get_place(g->member)->place.first_rank,
                               .end = member_get_end(g->member)};
    return ret;
}

struct node_result_place node_roster_place(const struct node_roster *g)
{
    const struct member_place *p = member_get_place(g->member);
    const bool takes_part = p->generation != MESSAGE_NO_GENERATION;
    return (struct node_result_place){.run_id = g->node->spec->run_id,
                                      .takes_part = takes_part,
                                      .generation = takes_part ? generation(g) : p->generation,
                                      .node_index = takes_part ? p->place.node_index : 0,
                                      .n_restarts = member_get_end(g->member)->n_restarts};
}

/* --- For node_report.h, in addition to the member's messages --- */

void node_roster_send(struct node_roster *g, const struct message *m)
{
    if (g->is_up)
        g->ops->send(g->link, m);
}

static void report_send(void *arg, const struct message *m)
{
    node_roster_send(arg, m);
}

static bool report_is_up(const void *arg)
{
    return ((const struct node_roster *)arg)->is_up;
}

static void report_hang_up(void *arg)
{
    struct node_roster *g = arg;
    if (g->keeps_link)
        disconnect(g);
}

/* --- Beginning and end --- */

static void print_endpoint(const struct job_world *world, char *text, size_t n)
{
    bool is_v6 = strchr(world->endpoint_host, ':') != NULL;
    snprintf(text, n, "%s%s%s:%u", is_v6 ? "[" : "", world->endpoint_host, is_v6 ? "]" : "",
             world->endpoint_port);
}

/* From a STOP until nothing is left: the stacks, the grace, then SIGKILL, and the same again for
 * what the ranks left; and for the last words. A node that is lost is not awaited for so long. */
static uint64_t stop_ms(const struct job_spec *spec)
{
    uint64_t grace_ms =
        spec->grace_ms > spec->failure_grace_ms ? spec->grace_ms : spec->failure_grace_ms;
    const uint64_t dump_ms = spec->failure_dump != NULL ? JOB_FAILURE_DUMP_MS : 0;
    uint64_t most_ms = dump_ms + grace_ms + 2 * spec->failure_grace_ms + 2 * SUPERVISOR_TEARDOWN_MS;
    return most_ms < MESSAGE_MAX_MS ? most_ms : MESSAGE_MAX_MS;
}

static int make_member(struct node_roster *g, struct co_error *err)
{
    const struct job_spec *spec = g->node->spec;
    struct message_address addresses[MESSAGE_MAX_ADDRESSES];
    struct message_hello hello = {.run_id = spec->run_id,
                                  .name = g->name,
                                  .node_rank = spec->world.node_rank,
                                  .n_local = (uint32_t)spec->n_local,
                                  .keeps_rank_0 = spec->world.keeps_rank_0,
                                  .reports = node_report_may_write(g->node),
                                  .stop_ms = stop_ms(spec),
                                  .checks = job_spec_checks(spec),
                                  .check_ms = job_spec_checks(spec) ? spec->health.timeout_ms : 0,
                                  .n_addresses = is_alone(g) ? 0 : own_addresses_find(addresses),
                                  .addresses = addresses,
                                  .domain = spec->world.domain};
    struct member_limits limits = {.start_timeout_ms = spec->world.start_timeout_ms,
                                   .failover_timeout_ms = spec->world.failover_timeout_ms,
                                   .seek_ms = spec->world.seek_ms,
                                   .may_be_spare = is_led(g) || is_alone(g),
                                   .awaits_rank = spec->world.comes_again};
    if (!is_alone(g) &&
        getrandom(hello.instance, sizeof hello.instance, 0) != (ssize_t)sizeof hello.instance)
        return co_fail(err, -EIO, "cannot get random bytes for a session id: %s", strerror(errno));
    job_spec_terms(spec, &hello.terms);
    return member_create(&limits, &hello, g->daemon, &g->member, err);
}

static int open_fitness(struct node_roster *g, struct co_error *err)
{
    const struct node_view *n = g->node;
    const struct fitness_opts opts = {.loop = n->loop,
                                      .spec = n->spec,
                                      .supervisor = n->supervisor,
                                      .events = n->events,
                                      .name = g->name,
                                      .on_note = on_note,
                                      .on_result = on_health,
                                      .arg = g};
    if (is_alone(g) && !job_spec_checks(n->spec))
        return 0;
    int rc = fitness_create(&opts, &g->fitness, err);
    n->parts->unhealthy = fitness_list(g->fitness);
    return rc;
}

int node_roster_create(const struct node_view *n, const struct node_roster_opts *opts,
                       struct node_roster **ret, struct co_error *err)
{
    const struct job_world *world = &n->spec->world;
    struct node_roster *g = calloc(1, sizeof *g);
    if (g == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    g->node = n;
    g->opts = *opts;
    g->ops = opts->link;
    own_name_find(world->node_name, g->name);
    if (!is_alone(g))
        print_endpoint(world, g->daemon, sizeof g->daemon);
    roster_agent_init(&g->agent, g->name, n->spec->path, world->ends_job);
    g->agent.is_alone = is_alone(g);
    uv_timer_init(n->loop, &g->timer);
    node_wait_init(&g->wait, n, g->daemon);
    uv_timer_init(n->loop, &g->hold_timer);
    g->timer.data = g->hold_timer.data = g;
    *ret = g;
    const struct roster_link_callbacks callbacks = {.on_up = on_up,
                                                    .on_message = on_message,
                                                    .on_down = on_down,
                                                    .on_vacant = on_vacant,
                                                    .on_lease = on_lease,
                                                    .on_heartbeats = on_heartbeats,
                                                    .on_end = on_end,
                                                    .on_note = on_note,
                                                    .arg = g};
    node_report_set_link(n, &(struct node_report_link){.send = report_send,
                                                       .is_up = report_is_up,
                                                       .hang_up = report_hang_up,
                                                       .arg = g,
                                                       .stop_ms = stop_ms(n->spec)});
    int rc = make_member(g, err) ?: open_fitness(g, err);
    g->wait.member = g->member;
    return rc == 0 ? g->ops->open(n->loop, n->spec, &callbacks, &g->link, err) : rc;
}

void node_roster_lose_launch_channel(struct node_roster *g)
{
    g->agent.leaves = "lost contact with the launching ddprun";
}

void node_roster_begin(struct node_roster *g)
{
    struct member_orders o;
    if (!is_alone(g))
        node_wait_begin(&g->wait);
    member_begin(g->member, co_now_ms(), &o);
    follow(g, &o);
    fitness_note_member(g->fitness, MEMBER_ENDED, member_get_state(g->member));
    node_roster_look(g);
}

void node_roster_close(struct node_roster *g)
{
    if (g == NULL)
        return;
    if (g->link != NULL)
        g->ops->close(g->link);
    g->link = NULL;
    fitness_close(g->fitness);
    g->fitness = NULL;
    g->node->parts->unhealthy = NULL;
    uv_close((uv_handle_t *)&g->timer, NULL);
    node_wait_close(&g->wait);
    uv_close((uv_handle_t *)&g->hold_timer, NULL);
}

void node_roster_destroy(struct node_roster *g)
{
    if (g == NULL)
        return;
    member_destroy(g->member);
    free(g);
}
