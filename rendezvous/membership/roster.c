/* roster.c - the rules: the table of states, its conditions and actions.
 *
 * Read roster_step() (roster_input.c) first, then the table, then roster_apply(). An input changes
 * facts about nodes (roster_nodes.c) and becomes an event; the first row of the table that has the
 * state and the event, and whose condition holds, gives the action and the next state. An action
 * sends messages (roster_send.c) and sets deadlines. No other code writes the state. */
#include "roster_priv.h"

#include "common/clock.h"
#include "common/machine.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define EXIT_MISSING 69
#define EXIT_TOO_FEW 75
#define EXIT_STUCK   79

_Static_assert(MESSAGE_MAX_STRIKES <= RESTART_MAX_STRIKES, "all of them are counted");

/* Of the members; the others are lost. */
static uint32_t n_left(const struct roster *r)
{
    return r->n_part[PART_UNASSIGNED] + roster_n_busy(r) + r->n_part[PART_STOPPED];
}

/* --- Conditions --- */

typedef bool condition(const struct roster *r, const struct roster_event *e);

static bool always(const struct roster *r, const struct roster_event *e)
{
    (void)r;
    (void)e;
    return true;
}

static bool makes_max(const struct roster *r, const struct roster_event *e)
{
    (void)e;
    return roster_n_usable(r, COUNT_HERE) >= r->terms.max_nodes;
}

static bool makes_min(const struct roster *r, const struct roster_event *e)
{
    (void)e;
    return roster_n_usable(r, COUNT_HERE) >= r->terms.min_nodes;
}

static bool under_min(const struct roster *r, const struct roster_event *e)
{
    return !makes_min(r, e);
}

/* A roster before this one knew the nodes that have joined, so members of a generation may follow.
 * When none has joined in this time, none of their ranks runs any more. */
static bool expects_members(const struct roster *r, const struct roster_event *e)
{
    return makes_min(r, e) && e->now_ms < r->hold_until_ms;
}

/* Would another generation have more nodes? The domains of absent members are not known. */
static bool has_free_places(const struct roster *r)
{
    return r->n_members < r->terms.max_nodes && (r->terms.segment == 0 || r->n_absent > 0 ||
                                                 roster_n_usable(r, COUNT_JOINABLE) > r->n_members);
}

/* All places are taken, or no segment is whole with this node, or the job is about to end. */
static bool has_no_place(const struct roster *r, const struct roster_event *e)
{
    (void)e;
    return !has_free_places(r) || r->is_ending;
}

/* Not before all is certain again: what is ended now could not be followed by anything. */
static bool must_postpone(const struct roster *r, const struct roster_event *e)
{
    (void)e;
    return roster_postpones_join(r);
}

static bool is_unconfirmed(const struct roster *r, const struct roster_event *e)
{
    (void)e;
    return !r->confirmed;
}

static bool at_checkpoint(const struct roster *r, const struct roster_event *e)
{
    (void)e;
    return r->terms.admit_at == MESSAGE_ADMIT_AT_CHECKPOINT;
}

static bool hosts_roster(const struct roster *r, const struct roster_event *e)
{
    (void)r;
    return e->who->local;
}

/* A spare, or one whose ranks are done and that has no store which others need. */
static bool is_harmless(const struct roster *r, const struct roster_event *e)
{
    (void)r;
    return e->who->part == PART_NONE || (e->who->done && !e->led);
}

static bool may_wait(const struct roster *r, const struct roster_event *e)
{
    (void)e;
    return r->terms.min_nodes < r->terms.max_nodes || r->terms.max_restarts > 0;
}

/* Without this node too few are left, and the job does not wait for others. */
static bool leaves_too_few(const struct roster *r, const struct roster_event *e)
{
    return roster_n_usable(r, COUNT_LEFT) < r->terms.min_nodes && !may_wait(r, e);
}

static bool all_succeeded(const struct roster *r, const struct roster_event *e)
{
    (void)e;
    return r->n_done == n_left(r);
}

static bool all_saved(const struct roster *r, const struct roster_event *e)
{
    (void)e;
    return r->pending && r->n_saved == n_left(r) && !r->is_ending;
}

/* The nodes that waited for a checkpoint have left, or the job is about to end. */
static bool has_no_candidate(const struct roster *r, const struct roster_event *e)
{
    (void)e;
    for (uint32_t i = 0; i < r->n_slots && has_free_places(r); i++) {
        const struct roster_node *n = &r->nodes[i];
        if (n->used && !n->leaves && n->part == PART_NONE && n->health == ROSTER_FIT)
            return r->is_ending;
    }
    return true;
}

/* Each node that could have been the cause has been heard since. That of a consequence may be known
 * only when all ranks have ended. */
static bool believed_for_good(const struct roster *r, const struct roster_event *e)
{
    (void)e;
    return r->cause.why == MESSAGE_WHY_FAILURE && r->cause.for_good &&
           (r->cause.consequence ? roster_n_busy(r) : r->n_part[PART_ASSIGNED]) == 0;
}

/* The failure for which the budget is asked. A node that follows --restart-after-progress reports
 * itself whether there was progress. */
static struct restart_failure failure_of(const struct roster *r, const struct roster_event *e)
{
    return (struct restart_failure){.exit_code = e->message->failed.exit_code,
                                    .begun_ms = r->begun_ms,
                                    .now_ms = e->now_ms,
                                    .is_free = e->message->failed.progressed};
}

static bool is_for_good(const struct roster *r, const struct roster_event *e)
{
    const struct restart_failure failure = failure_of(r, e);
    return e->message->failed.final || !restart_policy_allows(&r->budget, &failure);
}

/* The failed node is the only one that ran anything. Asked before it is noted. */
static bool fails_alone(const struct roster *r, const struct roster_event *e)
{
    return roster_n_busy(r) == 1 && !e->message->failed.consequence && is_for_good(r, e);
}

/* A failure that is a consequence is the cause only while no better one is known. Among the others
 * the first is the cause. Only the node that reported it may correct it, and only while it can
 * matter. */
static bool is_better(const struct roster *r, const struct roster_event *e)
{
    const struct roster_cause *c = &r->cause;
    bool is_consequence = e->message->failed.consequence;
    if (c->why != MESSAGE_WHY_FAILURE || c->charged)
        return false;
    return c->consequence == is_consequence ? c->node == e->slot : c->consequence;
}

/* And believed at once, since all have answered the STOP that another one's failure led to. */
static bool is_better_for_good(const struct roster *r, const struct roster_event *e)
{
    return is_better(r, e) && !e->message->failed.consequence && is_for_good(r, e) &&
           r->n_part[PART_ASSIGNED] == 0;
}

/* The failure is certainly of the node's own ranks, and the job may continue: without the roster it
 * cannot. */
static bool is_for_its_node(const struct roster *r, const struct roster_event *e)
{
    const struct roster_cause *c = &r->cause;
    return r->terms.exclude_after > 0 && c->why == MESSAGE_WHY_FAILURE && !c->struck &&
           !c->consequence && c->node != ROSTER_NO_SLOT && !r->nodes[c->node].local &&
           !believed_for_good(r, e);
}

/* The one that ends the generation, which has run until now. */
static struct restart_failure failure_until(const struct roster *r, const struct roster_event *e)
{
    struct restart_failure failure = r->cause.failure;
    failure.now_ms = e->now_ms;
    return failure;
}

/* Members that have stopped have not reported yet whether they are fit for another generation. */
static bool awaits_checks(const struct roster *r, const struct roster_event *e)
{
    (void)e;
    return r->n_unchecked > 0;
}

static bool awaits_return(const struct roster *r, const struct roster_event *e)
{
    return r->last_call_until_ms > e->now_ms && roster_would_take_spare(r);
}

static bool must_pause(const struct roster *r, const struct roster_event *e)
{
    const struct restart_failure failure = failure_until(r, e);
    return r->cause.why == MESSAGE_WHY_FAILURE && !r->cause.charged && !r->cause.recovers &&
           restart_policy_wait_ms(&r->budget, &failure) > 0;
}

/* Another generation without a new step, and it is the last one that --no-progress allows. All
 * nodes have reported their steps. */
static bool is_stuck(const struct roster *r, const struct roster_event *e)
{
    (void)e;
    return !r->has_advanced && !r->cause.charged &&
           (r->cause.why == MESSAGE_WHY_FAILURE || r->cause.why == MESSAGE_WHY_LOST) &&
           restart_policy_is_stuck(&r->budget);
}

/* A failure is the verdict of all nodes or of none. A coordinator that cannot have it confirmed may
 * still announce it if all members are connected: none of them continues elsewhere. If all ranks
 * have succeeded, or a user has ended the job, no coordinator has another verdict. */
static bool is_undisputed(const struct roster *r, const struct roster_event *e)
{
    const enum message_outcome outcome = r->verdict.outcome;
    return outcome == MESSAGE_WELL || outcome == MESSAGE_ENDED ||
           (!r->lost_in_doubt && roster_hears_all(r, e->now_ms));
}

/* --- What a row does, and what entering a state does --- */

typedef void action(struct roster *r, const struct roster_event *e);

static void nothing(struct roster *r, const struct roster_event *e)
{
    (void)r;
    (void)e;
}

__attribute__((format(printf, 2, 3))) static void explain_change(struct roster *r,
                                                                 const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(r->change, sizeof r->change, format, args);
    va_end(args);
}

/* The text is that of explain_change(). */
static void set_verdict(struct roster *r, enum message_outcome outcome, int exit_code, int32_t rank,
                        const char *node)
{
    snprintf(r->verdict_node, sizeof r->verdict_node, "%s", node);
    snprintf(r->verdict_text, sizeof r->verdict_text, "%s", r->change);
    r->verdict = (struct message_verdict){.outcome = outcome,
                                          .exit_code = (uint8_t)exit_code,
                                          .rank = rank,
                                          .node = r->verdict_node,
                                          .text = r->verdict_text,
                                          .n_restarts = roster_n_restarts(r)};
}

static void explain_loss(struct roster *r, const struct roster_event *e)
{
    explain_change(r, e->type == ROSTER_EV_LEAVE ? "%s left: %s" : "lost %s: %s", e->who->name,
                   e->text);
}

enum { MAX_NAMED = 4 };

/* Why nodes that have joined do not count. */
static void add_unfit(struct roster *r)
{
    uint32_t n_named = 0;
    for (uint32_t i = 0; i < r->n_slots && n_named < MAX_NAMED; i++) {
        const struct roster_node *n = &r->nodes[i];
        const size_t len = strlen(r->change);
        if (!n->used || n->health != ROSTER_UNFIT)
            continue;
        n_named++;
        snprintf(r->change + len, sizeof r->change - len, "; %s is unhealthy: %s", n->name,
                 n->unfit);
    }
}

/* Would there be enough nodes if all were fit? With segments that is not known: both reasons are
 * given. */
static bool lacks_only_health(const struct roster *r)
{
    uint32_t n = r->n_here;
    if (r->terms.segment > 0)
        return false;
    for (uint32_t i = 0; i < r->n_slots; i++)
        n += r->nodes[i].used && r->nodes[i].health == ROSTER_UNFIT;
    return n > r->n_here && n >= r->terms.min_nodes;
}

/* Why nodes that have joined take no part. */
static void add_rest(struct roster *r)
{
    uint32_t n_named = 0;
    if (r->terms.segment == 0)
        return;
    for (uint32_t i = 0; i < r->n_domains && n_named < MAX_NAMED; i++) {
        const struct roster_domain *d = &r->domains[i];
        const size_t len = strlen(r->change);
        const uint32_t rest = d->n[COUNT_HERE] % r->terms.segment;
        if (d->n_nodes == 0 || rest == 0)
            continue;
        snprintf(r->change + len, sizeof r->change - len,
                 "%s domain %s has %" PRIu32 " of %" PRIu32 " nodes of a segment",
                 n_named == 0 ? "; --segment:" : ",", d->name, rest, r->terms.segment);
        n_named++;
    }
}

/* At the end of a generation the reason for that end was reported before. */
static void blame_loss(struct roster *r, const struct roster_event *e)
{
    if (e->who != NULL)
        explain_loss(r, e);
    size_t n = strlen(r->change);
    snprintf(r->change + n, sizeof r->change - n,
             "; %" PRIu32 " of at least %" PRIu32
             " nodes remain; to let a job wait for nodes, use --nnodes MIN:MAX or "
             "--max-restarts",
             roster_n_usable(r, COUNT_LEFT), r->terms.min_nodes);
    add_rest(r);
    add_unfit(r);
    set_verdict(r, MESSAGE_TOO_FEW, EXIT_TOO_FEW, MESSAGE_NO_RANK,
                e->who != NULL ? e->who->name : "");
}

static void blame_host(struct roster *r, const struct roster_event *e)
{
    explain_change(r, "the rendezvous host %s is shutting down: %s", e->who->name, e->text);
    set_verdict(r, MESSAGE_TOO_FEW, EXIT_TOO_FEW, MESSAGE_NO_RANK, e->who->name);
}

static void blame_missing(struct roster *r, const struct roster_event *e)
{
    bool first = r->generation == MESSAGE_NO_GENERATION;
    const uint64_t s = (first ? r->terms.start_timeout_ms : r->terms.rejoin_timeout_ms) / 1000;
    const char *option = first ? "--start-timeout" : "--rejoin-timeout";
    (void)e;
    if (lacks_only_health(r))
        explain_change(r,
                       "timed out after %" PRIu64 " s (%s) waiting for healthy nodes: %" PRIu32
                       " of at least %" PRIu32,
                       s, option, r->n_here, r->terms.min_nodes);
    else
        explain_change(r,
                       "timed out after %" PRIu64 " s waiting for nodes: %" PRIu32
                       " of at least %" PRIu32
                       " have joined; start the others with the same --rdzv-id and "
                       "--rdzv-endpoint, or raise %s",
                       s, roster_n_usable(r, COUNT_HERE), r->terms.min_nodes, option);
    add_rest(r);
    add_unfit(r);
    set_verdict(r, first ? MESSAGE_MISSING : MESSAGE_TOO_FEW, first ? EXIT_MISSING : EXIT_TOO_FEW,
                MESSAGE_NO_RANK, "");
}

static void blame_etcd(struct roster *r, const struct roster_event *e)
{
    (void)e;
    explain_change(r,
                   "generation %" PRIu32 " could not start: timed out after %" PRIu64
                   " s waiting for its confirmation by etcd; check that etcd runs and is reachable",
                   r->generation, r->limits.confirm_ms / 1000);
    set_verdict(r, MESSAGE_TOO_FEW, EXIT_TOO_FEW, MESSAGE_NO_RANK, "");
}

static void take_verdict(struct roster *r, const struct roster_event *e)
{
    const struct message_verdict *v = &e->message->verdict;
    explain_change(r, "%s", v->text);
    set_verdict(r, MESSAGE_ENDED, v->exit_code, v->rank, e->who != NULL ? e->who->name : v->node);
}

static void end_succeeded(struct roster *r, const struct roster_event *e)
{
    (void)e;
    explain_change(r, "all ranks succeeded");
    set_verdict(r, MESSAGE_WELL, 0, MESSAGE_NO_RANK, "");
}

/* The verdict was written as the failure was heard. */
static void blame_rank(struct roster *r, const struct roster_event *e)
{
    (void)e;
    explain_change(r, "%s", r->verdict_text);
}

/* With how the last generation ended. */
static void blame_no_progress(struct roster *r, const struct roster_event *e)
{
    const bool is_failure = r->cause.why == MESSAGE_WHY_FAILURE;
    const int32_t rank = is_failure ? r->verdict.rank : MESSAGE_NO_RANK;
    char node[MESSAGE_NAME_BYTES];
    (void)e;
    snprintf(node, sizeof node, "%s", is_failure ? r->verdict_node : "");
    explain_change(r,
                   "no progress: %" PRIu32 " generations in a row completed no new step "
                   "(--no-progress), the last completed step is %" PRIu64 "; %.700s",
                   r->terms.no_progress, r->most_steps,
                   is_failure ? r->verdict_text : r->stop_text);
    set_verdict(r, MESSAGE_STUCK, EXIT_STUCK, rank, node);
}

static void set_cause(struct roster *r, enum message_why why)
{
    r->cause = (struct roster_cause){.why = why, .node = ROSTER_NO_SLOT};
}

static void note_join(struct roster *r, const struct roster_event *e)
{
    explain_change(r, "%s joins", e->who->name);
    set_cause(r, MESSAGE_WHY_JOIN);
}

static void note_checkpoint(struct roster *r, const struct roster_event *e)
{
    (void)e;
    explain_change(r, "the ranks have saved their state; admitting new nodes");
    set_cause(r, MESSAGE_WHY_JOIN);
}

static void note_no_checkpoint(struct roster *r, const struct roster_event *e)
{
    (void)e;
    explain_change(
        r,
        "timed out after %" PRIu64
        " ms waiting for all ranks to save their state (--admit-timeout); admitting new nodes",
        r->terms.admit_timeout_ms);
    set_cause(r, MESSAGE_WHY_JOIN);
}

static void postpone_join(struct roster *r, const struct roster_event *e)
{
    (void)e;
    r->join_waits = true;
}

/* The next node that joins asks again. */
static void stop_asking(struct roster *r, const struct roster_event *e)
{
    (void)e;
    r->pending = false;
    r->deadline_ms = CO_NEVER_MS;
}

static void note_loss(struct roster *r, const struct roster_event *e)
{
    explain_loss(r, e);
    set_cause(r, e->type == ROSTER_EV_LEAVE ? MESSAGE_WHY_LEAVE : MESSAGE_WHY_LOST);
}

/* A requested restart: no failure, and the budget is not asked. */
static void note_restart(struct roster *r, const struct roster_event *e)
{
    explain_change(r, "restart requested on %s", e->who->name);
    set_cause(r, MESSAGE_WHY_RESTART);
}

static void note_gone_ranks(struct roster *r, const struct roster_event *e)
{
    explain_change(r, "the ranks on %s have exited", e->who->name);
    set_cause(r, MESSAGE_WHY_ORDER);
}

/* To those whose ranks may run, and to those whose ranks have ended if `all`. */
static void send_cause(struct roster *r, bool all)
{
    snprintf(r->stop_text, sizeof r->stop_text, "%s", r->change);
    for (uint32_t i = 0; i < r->n_slots; i++) {
        enum roster_part part = r->nodes[i].part;
        if (part == PART_ASSIGNED || part == PART_HALTING || (all && part == PART_STOPPED))
            roster_send_stop(r, i);
    }
}

/* A node whose ranks were gone before it could answer the STOP was the cause of what looked like a
 * failure of another node. The report about that one is sent again. */
static bool was_the_cause(const struct roster *r, const struct roster_event *e)
{
    return r->cause.why == MESSAGE_WHY_FAILURE && !r->cause.charged && e->unheard;
}

static void note_late_loss(struct roster *r, const struct roster_event *e)
{
    if (!was_the_cause(r, e))
        return;
    note_loss(r, e);
    send_cause(r, true);
}

static void note_late_stop(struct roster *r, const struct roster_event *e)
{
    if (!was_the_cause(r, e))
        return;
    note_gone_ranks(r, e);
    send_cause(r, true);
}

/* This also becomes the verdict if no restart follows. A node that reports its own failure is
 * believed: it halts. */
static void note_failure(struct roster *r, const struct roster_event *e)
{
    const struct message_failed *f = &e->message->failed;
    roster_set_part(r, e->slot, PART_HALTING);
    explain_change(r, "rank %" PRIu32 " on %s: %s", f->rank, e->who->name, f->text);
    set_cause(r, MESSAGE_WHY_FAILURE);
    r->cause.node = e->slot;
    r->cause.consequence = f->consequence;
    r->cause.recovers = f->recovers;
    r->cause.for_good = is_for_good(r, e);
    r->cause.failure = failure_of(r, e);
    set_verdict(r, MESSAGE_RANK_FAILED, f->exit_code, (int32_t)f->rank, e->who->name);
}

/* No other node could have been the cause, or has reported that it was. */
static void blame_alone(struct roster *r, const struct roster_event *e)
{
    note_failure(r, e);
    blame_rank(r, e);
}

/* Each node that was informed of a consequence is informed of its cause. */
static void correct_failure(struct roster *r, const struct roster_event *e)
{
    bool was_consequence = r->cause.consequence;
    note_failure(r, e);
    if (was_consequence && !r->cause.consequence)
        send_cause(r, true);
}

/* Of a generation whose store is open. */
static void set_admit_deadline(struct roster *r)
{
    bool ends = r->pending && r->terms.admit_timeout_ms > 0;
    r->deadline_ms = ends ? r->pending_since_ms + r->terms.admit_timeout_ms : CO_NEVER_MS;
}

static void ask_to_save(struct roster *r, const struct roster_event *e)
{
    if (r->pending)
        return;
    r->pending = true;
    r->pending_since_ms = e->now_ms;
    if (r->ready)
        set_admit_deadline(r);
    for (uint32_t i = 0; i < r->n_slots; i++)
        if (r->nodes[i].part == PART_ASSIGNED)
            roster_send_checkpoint_request(r, i);
}

static void send_to_others(struct roster *r, const struct roster_event *e)
{
    (void)e;
    set_admit_deadline(r);
    for (uint32_t i = 0; i < r->n_slots; i++) {
        if (r->nodes[i].part != PART_UNASSIGNED)
            continue;
        roster_set_part(r, i, PART_ASSIGNED);
        roster_set_known(r, i);
        roster_send_place(r, i);
    }
    for (uint32_t i = 0; r->pending && i < r->n_slots; i++) /* the leader had no ranks to ask */
        if (r->nodes[i].part == PART_ASSIGNED)
            roster_send_checkpoint_request(r, i);
}

static void charge(struct roster *r, const struct roster_event *e)
{
    if (r->cause.charged)
        return;
    r->restart = (struct roster_restart){.why = r->cause.why, .is_free = true};
    if (r->has_advanced || r->cause.why == MESSAGE_WHY_FAILURE || r->cause.why == MESSAGE_WHY_LOST)
        restart_policy_note_progress(&r->budget, r->has_advanced);
    if (r->cause.why != MESSAGE_WHY_FAILURE)
        return;
    const struct restart_failure failure = failure_until(r, e);
    r->cause.charged = true;
    if (r->cause.recovers)
        restart_policy_spend(&r->budget, &failure);
    else
        r->restart.wait_ms = restart_policy_take(&r->budget, &failure);
    r->restart.is_free = failure.is_free;
    r->restart.n_counted = roster_n_restarts(r);
}

static void add_exclusion(struct roster *r)
{
    const size_t n = strlen(r->change);
    if (r->newly_excluded[0] != '\0')
        snprintf(r->change + n, sizeof r->change - n, "; %s is excluded", r->newly_excluded);
}

/* Too many, and it is one node less, as if it had left. */
static void count_for_its_node(struct roster *r, const struct roster_event *e)
{
    const uint32_t slot = r->cause.node;
    struct roster_node *n = &r->nodes[slot];
    r->cause.struck = true;
    if (!restart_strikes_add(&n->strikes, r->terms.exclude_after, r->terms.exclude_window_ms,
                             e->now_ms))
        return;
    const uint64_t link = n->link;
    const struct roster_past_excluded *x =
        roster_exclude(r, slot, (uint8_t)r->cause.failure.exit_code);
    roster_send_excluded(r, link, x);
    memcpy(r->newly_excluded, x->name, sizeof r->newly_excluded);
    add_exclusion(r);
}

static void pause_first(struct roster *r, const struct roster_event *e)
{
    const struct restart_failure failure = failure_until(r, e);
    r->pause_until_ms = e->now_ms + restart_policy_wait_ms(&r->budget, &failure);
    r->deadline_ms = r->pause_until_ms;
    charge(r, e);
}

static void wait_for_others(struct roster *r, const struct roster_event *e)
{
    charge(r, e);
    r->gather_deadline_ms = e->now_ms + r->terms.rejoin_timeout_ms;
}

static void begin_gathering(struct roster *r, const struct roster_event *e)
{
    (void)e;
    roster_clear_places(r);
    r->deadline_ms = r->gather_deadline_ms;
}

/* Until all have joined, but not before members that are expected could have joined. */
static void hold_window(struct roster *r, const struct roster_event *e)
{
    if (makes_max(r, e) || r->deadline_ms < r->hold_until_ms)
        r->deadline_ms = r->hold_until_ms;
}

static void open_window(struct roster *r, const struct roster_event *e)
{
    r->deadline_ms = e->now_ms + r->terms.window_ms;
    hold_window(r, e);
}

/* The generation may begin, with its leader. */
static void send_to_leader(struct roster *r, const struct roster_event *e)
{
    r->confirmed = true;
    if (e->term > r->term)
        r->term = e->term;
    roster_set_part(r, r->leader, PART_ASSIGNED);
    roster_set_known(r, r->leader);
    roster_send_leader(r);
    r->deadline_ms = e->now_ms + r->limits.ready_ms;
}

static void adopt(struct roster *r, const struct roster_event *e)
{
    set_cause(r, MESSAGE_WHY_JOIN);
    roster_adopt(r, &e->message->hello.was, e->now_ms);
}

/* From here on no member of another roster's generation can return to it: when all nodes have
 * joined, they wait for no other. */
static void end_hold(struct roster *r, const struct roster_event *e)
{
    if (r->hold_until_ms > e->now_ms)
        r->hold_until_ms = e->now_ms;
}

/* Their ranks would miss what the others do now: they stop them, and join again as spares. Nothing
 * of them runs in a generation. */
static void release_left_out(struct roster *r)
{
    snprintf(r->left_out, sizeof r->left_out,
             "generation %" PRIu32 " begins without this node: fewer than %" PRIu32
             " nodes of its domain are left for a segment (--segment)",
             r->generation, r->terms.segment);
    for (uint32_t i = 0; i < r->n_slots; i++) {
        if (!r->nodes[i].is_left_out)
            continue;
        roster_send_refused(r, r->nodes[i].link, MESSAGE_REFUSED_LOST, true, r->left_out);
        roster_forget(r, i);
    }
}

/* One that was adopted has its ranks. */
static void give_ranks(struct roster *r, const struct roster_event *e)
{
    if (e->type == ROSTER_EV_ADOPT)
        return;
    end_hold(r, e);
    r->generation++; /* MESSAGE_NO_GENERATION + 1 is 0 */
    if (r->generation < r->next_generation)
        r->generation = r->next_generation;
    r->confirmed = r->ready = r->pending = r->is_ending = r->join_waits = false;
    r->has_adopted = r->has_advanced = false;
    r->begun_ms = e->now_ms;
    r->pause_until_ms = 0;
    set_cause(r, MESSAGE_WHY_JOIN);
    roster_give_places(r);
    release_left_out(r);
    r->deadline_ms = e->now_ms + r->limits.confirm_ms;
    if (r->limits.confirm_ms == 0)
        send_to_leader(r, e);
    explain_change(r,
                   "generation %" PRIu32 ": %" PRIu32 " ranks on %" PRIu32 " nodes, rank 0 on %s",
                   r->generation, r->world_size, r->n_members, r->nodes[r->leader].name);
    add_exclusion(r);
}

/* Members that never got a place have nothing to stop. */
static void stop_ranks(struct roster *r, const struct roster_event *e)
{
    end_hold(r, e);
    r->last_call_until_ms = r->terms.spares > 0 ? e->now_ms + ROSTER_LAST_CALL_MS : 0;
    r->deadline_ms = e->now_ms + r->stop_ms + r->limits.slack_ms;
    r->newly_excluded[0] = '\0';
    send_cause(r, false);
}

static void tell_verdict(struct roster *r, const struct roster_event *e)
{
    (void)e;
    if (r->has_informed_all) /* confirmed again, by a coordinator that was in doubt */
        return;
    r->has_informed_all = true;
    r->deadline_ms = CO_NEVER_MS;
    for (uint32_t i = 0; i < r->n_slots; i++)
        if (r->nodes[i].used)
            roster_send_verdict(r, r->nodes[i].link);
}

/* Where a process that replaces this one would have to know of it, that comes first. Without a
 * generation there is nothing to continue. */
static void send_verdict(struct roster *r, const struct roster_event *e)
{
    if (r->limits.confirm_ms > 0 && r->generation != MESSAGE_NO_GENERATION)
        r->deadline_ms = e->now_ms + r->limits.verdict_ms;
    else
        tell_verdict(r, e);
}

/* It is confirmed, or the leases of the nodes end. */
static void wait_on(struct roster *r, const struct roster_event *e)
{
    r->deadline_ms = e->now_ms + r->limits.keep_alive_ms;
}

/* --- The table: read from the top, the first row that fits is it --- */

struct row {
    struct co_machine_row at;
    condition *only_if;
    action *does;
};

#define ROW(in, on, only_if, does, then)                                                           \
    {                                                                                              \
        {ROSTER_##in, ROSTER_EV_##on, ROSTER_##then, #only_if, #does}, only_if, does               \
    }

/* clang-format off */
static const struct row rows[] = {
    /*  in         on            only if            does                then */
    ROW(GATHERING, JOIN,         expects_members,   nothing,            OPEN),
    ROW(GATHERING, JOIN,         makes_max,         nothing,            RUNNING),
    ROW(GATHERING, JOIN,         makes_min,         nothing,            OPEN),
    ROW(GATHERING, JOIN,         always,            nothing,            GATHERING),
    ROW(GATHERING, ADOPT,        always,            adopt,              RUNNING),
    ROW(GATHERING, DISCONNECTED, always,            nothing,            GATHERING),
    ROW(GATHERING, LOST,         always,            nothing,            GATHERING),
    ROW(GATHERING, LEAVE,        hosts_roster,      blame_host,         CLOSED),
    ROW(GATHERING, LEAVE,        always,            nothing,            GATHERING),
    ROW(GATHERING, UNFIT,        always,            nothing,            GATHERING),
    ROW(GATHERING, DEADLINE,     always,            blame_missing,      CLOSED),
    ROW(GATHERING, END,          always,            take_verdict,       CLOSED),

    ROW(OPEN,      JOIN,         expects_members,   hold_window,        OPEN),
    ROW(OPEN,      JOIN,         makes_max,         nothing,            RUNNING),
    ROW(OPEN,      JOIN,         always,            nothing,            OPEN),
    ROW(OPEN,      ADOPT,        always,            adopt,              RUNNING),
    ROW(OPEN,      DISCONNECTED, under_min,         nothing,            GATHERING),
    ROW(OPEN,      DISCONNECTED, always,            nothing,            OPEN),
    ROW(OPEN,      LOST,         under_min,         nothing,            GATHERING),
    ROW(OPEN,      LOST,         always,            nothing,            OPEN),
    ROW(OPEN,      LEAVE,        hosts_roster,      blame_host,         CLOSED),
    ROW(OPEN,      LEAVE,        under_min,         nothing,            GATHERING),
    ROW(OPEN,      LEAVE,        always,            nothing,            OPEN),
    ROW(OPEN,      UNFIT,        under_min,         nothing,            GATHERING),
    ROW(OPEN,      UNFIT,        always,            nothing,            OPEN),
    ROW(OPEN,      DEADLINE,     always,            nothing,            RUNNING),
    ROW(OPEN,      END,          always,            take_verdict,       CLOSED),

    ROW(RUNNING,   JOIN,         has_no_place,      nothing,            RUNNING),
    ROW(RUNNING,   JOIN,         must_postpone,     postpone_join,      RUNNING),
    ROW(RUNNING,   JOIN,         at_checkpoint,     ask_to_save,        RUNNING),
    ROW(RUNNING,   JOIN,         always,            note_join,          STOPPING),
    ROW(RUNNING,   DISCONNECTED, always,            nothing,            RUNNING),
    ROW(RUNNING,   LOST,         is_harmless,       nothing,            RUNNING),
    ROW(RUNNING,   LOST,         leaves_too_few,    blame_loss,         CLOSED),
    ROW(RUNNING,   LOST,         always,            note_loss,          STOPPING),
    ROW(RUNNING,   LEAVE,        hosts_roster,      blame_host,         CLOSED),
    ROW(RUNNING,   LEAVE,        is_harmless,       nothing,            RUNNING),
    ROW(RUNNING,   LEAVE,        leaves_too_few,    blame_loss,         CLOSED),
    ROW(RUNNING,   LEAVE,        always,            note_loss,          STOPPING),
    ROW(RUNNING,   UNFIT,        always,            nothing,            RUNNING),
    ROW(RUNNING,   CONFIRMED,    always,            send_to_leader,     RUNNING),
    ROW(RUNNING,   READY,        always,            send_to_others,     RUNNING),
    ROW(RUNNING,   FAILED,       fails_alone,       blame_alone,        CLOSED),
    ROW(RUNNING,   FAILED,       always,            note_failure,       STOPPING),
    ROW(RUNNING,   SUCCEEDED,    all_succeeded,     end_succeeded,      CLOSED),
    ROW(RUNNING,   SUCCEEDED,    always,            nothing,            RUNNING),
    ROW(RUNNING,   STOPPED,      always,            note_gone_ranks,    STOPPING),
    ROW(RUNNING,   SAVED,        all_saved,         note_checkpoint,    STOPPING),
    ROW(RUNNING,   SAVED,        always,            nothing,            RUNNING),
    ROW(RUNNING,   RESTART,      always,            note_restart,       STOPPING),
    ROW(RUNNING,   DEADLINE,     is_unconfirmed,    blame_etcd,         CLOSED),
    ROW(RUNNING,   DEADLINE,     has_no_candidate,  stop_asking,        RUNNING),
    ROW(RUNNING,   DEADLINE,     always,            note_no_checkpoint, STOPPING),
    ROW(RUNNING,   END,          always,            take_verdict,       CLOSED),

    ROW(STOPPING,  JOIN,         always,            nothing,            STOPPING),
    ROW(STOPPING,  DISCONNECTED, always,            nothing,            STOPPING),
    ROW(STOPPING,  LOST,         always,            note_late_loss,     STOPPING),
    ROW(STOPPING,  LEAVE,        hosts_roster,      blame_host,         CLOSED),
    ROW(STOPPING,  LEAVE,        always,            note_late_loss,     STOPPING),
    ROW(STOPPING,  UNFIT,        always,            nothing,            STOPPING),
    ROW(STOPPING,  FAILED,       is_better_for_good, blame_alone,       CLOSED),
    ROW(STOPPING,  FAILED,       is_better,         correct_failure,    STOPPING),
    ROW(STOPPING,  FAILED,       always,            nothing,            STOPPING),
    ROW(STOPPING,  STOPPING,     believed_for_good, blame_rank,         CLOSED),
    ROW(STOPPING,  STOPPING,     always,            nothing,            STOPPING),
    ROW(STOPPING,  STOPPED,      always,            note_late_stop,     STOPPING),
    ROW(STOPPING,  ALL_STOPPED,  is_for_its_node,   count_for_its_node, STOPPING),
    ROW(STOPPING,  ALL_STOPPED,  always,            nothing,            STOPPING),
    /* all failed at once */
    ROW(STOPPING,  PAUSE_OVER,   believed_for_good, blame_rank,         CLOSED),
    ROW(STOPPING,  PAUSE_OVER,   is_stuck,          blame_no_progress,  CLOSED),
    ROW(STOPPING,  PAUSE_OVER,   must_pause,        pause_first,        STOPPING),
    ROW(STOPPING,  PAUSE_OVER,   awaits_checks,     nothing,            STOPPING),
    ROW(STOPPING,  PAUSE_OVER,   awaits_return,     nothing,            STOPPING),
    ROW(STOPPING,  PAUSE_OVER,   makes_min,         charge,             RUNNING),
    ROW(STOPPING,  PAUSE_OVER,   may_wait,          wait_for_others,    GATHERING),
    ROW(STOPPING,  PAUSE_OVER,   always,            blame_loss,         CLOSED),
    ROW(STOPPING,  END,          always,            take_verdict,       CLOSED),

    ROW(CLOSED,    CONFIRMED,    always,            tell_verdict,       CLOSED),
    ROW(CLOSED,    DEADLINE,     is_undisputed,     tell_verdict,       CLOSED),
    ROW(CLOSED,    DEADLINE,     always,            wait_on,            CLOSED),
};

/* Pairs that cannot happen, or that mean nothing when they do. */
static const struct co_machine_pair ignored[] = {
#define IGNORE(in, on) {ROSTER_##in, ROSTER_EV_##on}
    /* there is no generation that these could be about */
    IGNORE(GATHERING, READY), IGNORE(GATHERING, FAILED), IGNORE(GATHERING, SUCCEEDED),
    IGNORE(GATHERING, STOPPING), IGNORE(GATHERING, STOPPED), IGNORE(GATHERING, SAVED),
    IGNORE(GATHERING, RESTART), IGNORE(OPEN, READY), IGNORE(OPEN, FAILED), IGNORE(OPEN, SUCCEEDED),
    IGNORE(OPEN, STOPPING), IGNORE(OPEN, STOPPED), IGNORE(OPEN, SAVED), IGNORE(OPEN, RESTART),
    IGNORE(GATHERING, CONFIRMED), IGNORE(OPEN, CONFIRMED),
    /* only a roster that has made no generation adopts one */
    IGNORE(RUNNING, ADOPT), IGNORE(STOPPING, ADOPT), IGNORE(CLOSED, ADOPT),
    /* nothing was stopped */
    IGNORE(GATHERING, PAUSE_OVER), IGNORE(OPEN, PAUSE_OVER), IGNORE(RUNNING, PAUSE_OVER),
    IGNORE(GATHERING, ALL_STOPPED), IGNORE(OPEN, ALL_STOPPED), IGNORE(RUNNING, ALL_STOPPED),
    IGNORE(RUNNING, STOPPING),
    /* the end of a late node is LOST, that of all nodes is PAUSE_OVER */
    IGNORE(STOPPING, DEADLINE),
    /* the generation is already ending, and what follows it begins again */
    IGNORE(STOPPING, CONFIRMED), IGNORE(STOPPING, READY), IGNORE(STOPPING, SUCCEEDED),
    IGNORE(STOPPING, SAVED), IGNORE(STOPPING, RESTART),
    /* the job is over */
    IGNORE(CLOSED, UNFIT), IGNORE(CLOSED, JOIN), IGNORE(CLOSED, DISCONNECTED), IGNORE(CLOSED, LOST), IGNORE(CLOSED, LEAVE),
    IGNORE(CLOSED, READY), IGNORE(CLOSED, FAILED), IGNORE(CLOSED, SUCCEEDED),
    IGNORE(CLOSED, STOPPING), IGNORE(CLOSED, STOPPED), IGNORE(CLOSED, SAVED),
    IGNORE(CLOSED, RESTART), IGNORE(CLOSED, ALL_STOPPED), IGNORE(CLOSED, PAUSE_OVER),
    IGNORE(CLOSED, END),
#undef IGNORE
};
/* clang-format on */

static const struct co_machine_state states[] = {ROSTER_STATES(CO_MACHINE_STATE)};
static action *const entries[] = {ROSTER_STATES(CO_MACHINE_ENTRY)};
static const char *const event_names[] = {ROSTER_EVENTS(CO_MACHINE_EVENT)};

const struct co_machine roster_machine =
    CO_MACHINE("roster", "rendezvous/membership/roster.c", states, event_names, rows, ignored);

/* The only place that writes the state. */
static void state_enter(struct roster *r, enum roster_state state, const struct roster_event *e)
{
    enum roster_state from = r->state;
    r->state = state;
    r->entered_ms = e->now_ms;
    entries[state](r, e);
    roster_add_change(r, from);
}

void roster_apply(struct roster *r, const struct roster_event *e)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        if (row->at.in != r->state || row->at.on != e->type || !row->only_if(r, e))
            continue;
        row->does(r, e);
        if (row->at.then != r->state)
            state_enter(r, row->at.then, e);
        return;
    }
}

const char *roster_state_name(enum roster_state state)
{
    return states[state].name;
}
