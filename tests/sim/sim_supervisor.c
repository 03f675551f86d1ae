/* sim_supervisor - one node in a simulated world: a spawner, ranks that end at any time and in any
 * way, processes that outlive them, signals from outside, a clock that jumps.
 *
 * Each schedule is drawn from a seed. Checked at its end:
 *   - no process of the job runs, unless it hangs in the kernel; then the supervisor reports it
 *   - the verdict is the first failure that the supervisor has received, or the signal that came
 *     before it. A failure of a rank that had lost a peer gives way to the first failure of another
 *     kind, if the supervisor receives that one before it stops any rank, or had received it before
 *   - the job ended within the time that its limits allow
 *   - a restart happened if and only if the budget allowed it, no signal or order had ended the
 *     job, the spawner was alive, and nothing of the previous generation was left. With
 *     after_progress, a failure after progress does not use up the budget
 *   - ranks were started in order, never more at a time than the window, none after a stop
 *   - a failed rank was replaced if and only if replacement was requested, the budget allowed it,
 *     all other ranks ran and were known to survive it, and nothing had ended the job. If a rank
 *     that was called to the next generation did not join it in time, all ranks started again
 * In these schedules the node is alone, and the roster in its process decides
 * (tests/support/solo_job.h). In the other half of the schedules any order comes at any time.
 * Checked then, whenever the supervisor waits for orders:
 *   - nothing of the generation runs; the first failure, signal or order ended it
 *   - this took no more time than its limits allow
 *   - a signal, the end of the job's time and a lost spawner are kept for the roster agent */
#include "supervisor_world.h"

#include "schedules.h"

#include "common/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_STEPS = 5000, MAX_ORDERED = 5 };

static void answer(struct world *w, int i)
{
    struct rank *r = &w->ranks[i];
    r->answered = true;
    w->n_unanswered--;
    if (r->start_error != 0) {
        if (supervisor_get_state(w->s) == SUPERVISOR_AWAITING) {
            w->expected_code = -1;
            w->rank_failed = w->is_consequence = false;
        }
        note_cause(w, r->start_error == ENOENT ? 127 : 126);
        feed(w, (struct supervisor_event){SUPERVISOR_EV_START_FAILED, .rank = i,
                                          .status = r->start_error, .stage = SUPERVISOR_START_EXEC,
                                          .empty = is_empty(w)});
        return;
    }
    if (!r->p.runs) {
        r->p.runs = true;
        r->p.ends_at_ms = w->now_ms + 1 + draw(w, 8000);
    }
    r->joins_at_ms = draw(w, 8) == 0 ? CO_NEVER_MS : w->now_ms + draw(w, 500);
    feed(w, (struct supervisor_event){SUPERVISOR_EV_STARTED, .rank = i, .pid = 100 + i});
}

static void join(struct world *w, int i)
{
    struct rank *r = &w->ranks[i];
    r->has_joined = true;
    r->is_called = false;
    r->joins_at_ms = CO_NEVER_MS;
    feed(w, (struct supervisor_event){SUPERVISOR_EV_JOINED, .rank = i, .recovers = !r->is_plain});
}

/* Sometimes a rank fails because it reads in its shared memory that another one is dying. returns
 * that one, or -1 */
static int make_culprit(struct world *w)
{
    int i = (int)draw(w, 4 * MAX_RANKS);
    if (i >= w->limits.n_ranks || !w->ranks[i].answered || !w->ranks[i].p.runs)
        return -1;
    struct process *p = &w->ranks[i].p;
    p->hangs = false;
    p->ends_at_ms = w->now_ms + draw(w, w->limits.failure_grace_ms);
    p->status = SIGKILL;
    p->obeys = -1; /* what is dying hears no other signal */
    w->ranks[i].loses_peer = w->ranks[i].tells_early = false;
    return i;
}

/* The end of a failed rank is reported while the kernel still frees its memory: until it can be
 * reaped, there is one more process, which receives no signal. */
static void leave_dying(struct world *w)
{
    if (w->n_descendants < MAX_DESCENDANTS)
        w->descendants[w->n_descendants++] = (struct process){
            .runs = true, .obeys = -1, .ends_at_ms = w->now_ms + 1 + draw(w, 3000)};
}

static void end_rank(struct world *w, int i)
{
    struct rank *r = &w->ranks[i];
    r->p.runs = false;
    bool is_replaced = is_to_be_replaced(w, i);
    w->was_replaced = false;
    for (; r->n_descendants > 0 && w->n_descendants < MAX_DESCENDANTS; r->n_descendants--) {
        struct process *p = &w->descendants[w->n_descendants++];
        *p = make_process(w);
        if (draw(w, 2) == 0)
            p->ends_at_ms = w->now_ms + 1 + draw(w, 2000);
    }
    int status = r->p.status;
    if (status != 0 && w->limits.recovers && draw(w, 3) == 0)
        leave_dying(w);
    const bool loses_peer = status != 0 && r->loses_peer;
    int culprit =
        status != 0 && w->expected_code < 0 && !is_replaced && !loses_peer ? make_culprit(w) : -1;
    const bool was_failing = status != 0 && w->stop_seen && r->tells_early;
    int code = status < 256 ? 128 + status : status >> 8;
    if (was_failing && supervisor_is_of_ours(&(struct supervisor_rank){
                           .status = status,
                           .signaled_first = supervisor_get_rank(w->s, i)->signaled_first,
                           .signaled_last = supervisor_get_rank(w->s, i)->signaled_last}))
        code = 1;
    if (w->expected_code < 0)
        w->has_progressed = w->now_ms >= w->first_step_ms;
    if (culprit >= 0) {
        w->culprit = culprit;
        w->witness_code = code;
        note_failure(w, 128 + SIGKILL);
    } else if (status != 0 && w->expected_code < 0) {
        note_failure(w, code);
        w->is_consequence = loses_peer;
    } else if (status != 0 && !loses_peer &&
               (supervisor_get_state(w->s) == SUPERVISOR_AWAITING || was_failing) &&
               (w->is_consequence || w->expected_code == CODE_ORDERED)) {
        note_cause_behind(w, code);
    }
    feed(w, (struct supervisor_event){
                SUPERVISOR_EV_EXITED, .rank = i, .status = status, .empty = is_empty(w),
                .blames = culprit >= 0, .culprit = culprit, .lost_peer = loses_peer,
                .was_failing = was_failing,
                .progress.n_steps = w->after_progress && w->now_ms >= w->first_step_ms});
    check(w, w->was_replaced == is_replaced, "a rank was replaced that could not be, or was not");
}

static void end_descendant(struct world *w, int i)
{
    w->descendants[i].runs = false;
    if (is_empty(w))
        feed(w, (struct supervisor_event){SUPERVISOR_EV_EMPTY});
}

static void send_signal(struct world *w)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGWINCH};
    int sig = signals[draw(w, sizeof signals / sizeof *signals)];
    if (sig != SIGUSR1 && sig != SIGWINCH) {
        note_cause(w, 128 + sig);
        note_stop(w, 128 + sig);
    }
    w->last_signal_ms = w->now_ms;
    w->signal_at_ms = draw(w, 2) == 0 ? w->now_ms + 1 + draw(w, 1500) : CO_NEVER_MS;
    feed(w, (struct supervisor_event){SUPERVISOR_EV_SIGNAL, .sig = sig});
}

static void time_out(struct world *w)
{
    enum supervisor_state state = supervisor_get_state(w->s);
    w->timeout_at_ms = CO_NEVER_MS;
    if (state == SUPERVISOR_STARTING || state == SUPERVISOR_RUNNING ||
        state == SUPERVISOR_RECOVERING)
        note_cause(w, SUPERVISOR_EXIT_TIMEOUT);
    note_stop(w, SUPERVISOR_EXIT_TIMEOUT);
    feed(w, (struct supervisor_event){SUPERVISOR_EV_TIMEOUT});
}

/* What the kernel still takes apart. What hangs does not run. */
static bool some_run(const struct world *w)
{
    bool run = false;
    for (int i = 0; i < w->limits.n_ranks; i++)
        run |= w->ranks[i].p.runs && w->ranks[i].p.ends_slowly;
    for (int i = 0; i < w->n_descendants; i++)
        run |= w->descendants[i].runs && w->descendants[i].ends_slowly;
    return run;
}

/* The time is over, most of all that of ranks that were called. */
static void come_to_deadline(struct world *w)
{
    bool any_called = false;
    for (int i = 0; i < w->limits.n_ranks; i++)
        any_called |= supervisor_get_rank(w->s, i)->called;
    if (supervisor_get_state(w->s) == SUPERVISOR_RECOVERING && any_called) {
        note_failure(w, CODE_LATE);
        w->failed_after_progress = w->has_progressed;
        w->is_late = true;
    } else if (supervisor_get_state(w->s) == SUPERVISOR_RECOVERING) {
        note_cause(w, 70); /* the spawner is deaf: what it was asked for does not come */
    }
    const bool went_alone = w->went_alone, run = some_run(w);
    feed(w, (struct supervisor_event){SUPERVISOR_EV_TIME, .some_run = run});
    check(w,
          went_alone == w->went_alone || !run || w->now_ms - w->kill_ms >= SUPERVISOR_TEARDOWN_MS,
          "what ends slowly was not awaited");
}

static void end_pause(struct world *w)
{
    w->job.now_ms = w->now_ms;
    solo_job_end_pause(&w->job, false);
}

static void drained(struct world *w)
{
    w->draining = false;
    feed(w, (struct supervisor_event){SUPERVISOR_EV_DRAINED});
}

/* --- The roster agent --- */

static bool has_to_end(const struct world *w)
{
    return supervisor_stop_signal(w->s) != 0 || supervisor_timed_out(w->s) ||
           supervisor_is_alone(w->s);
}

static void order(struct world *w)
{
    if (supervisor_get_state(w->s) != SUPERVISOR_WAITING) {
        bool kills = draw(w, 3) == 0;
        enum supervisor_state state = supervisor_get_state(w->s);
        w->order_at_ms = draw(w, 2) == 0 ? w->now_ms + draw(w, 3000) : CO_NEVER_MS;
        if (state == SUPERVISOR_STARTING || state == SUPERVISOR_RUNNING)
            note_cause(w, CODE_ORDERED);
        feed(w,
             (struct supervisor_event){kills ? SUPERVISOR_EV_ORDER_KILL : SUPERVISOR_EV_ORDER_STOP,
                                       .gently = draw(w, 2) == 0});
    } else if (has_to_end(w) || ++w->n_generations > MAX_ORDERED || draw(w, 4) == 0) {
        w->order_at_ms = CO_NEVER_MS;
        w->final_code = (int)draw(w, 256);
        feed(w, (struct supervisor_event){SUPERVISOR_EV_FINISH, .exit_code = w->final_code});
    } else {
        w->generation += 1 + (uint32_t)draw(w, 3);
        feed(w, (struct supervisor_event){SUPERVISOR_EV_NEXT, .generation = w->generation});
    }
}

static uint64_t most_ms(const struct world *w)
{
    /* a failure may be followed by descendants' grace; a kill takes SUPERVISOR_KILL_MS at most */
    return w->limits.cause_ms + w->limits.grace_ms + 2 * w->limits.failure_grace_ms +
           2 * SUPERVISOR_KILL_MS + 1000 + (w->some_end_slowly ? 2 * SUPERVISOR_TEARDOWN_MS : 0);
}

static int code_of_generation(const struct world *w)
{
    switch (supervisor_get_verdict(w->s)->outcome) {
    case OUTCOME_NONE:
    case OUTCOME_WELL:
        return -1;
    case OUTCOME_ORDERED:
        return CODE_ORDERED;
    default:
        return supervisor_exit_code(w->s);
    }
}

/* It has just come to WAITING. */
static void check_generation(struct world *w)
{
    check(w, is_empty(w) || supervisor_get_verdict(w->s)->some_hang,
          "it waits for orders while something runs");
    check(w, code_of_generation(w) == w->expected_code, "the wrong end of a generation");
    check(w, w->stopped_at_ms == CO_NEVER_MS || w->now_ms - w->stopped_at_ms <= most_ms(w),
          "a generation took too long to end");
    check(w, w->stop_code < 0 || has_to_end(w), "what ends the job was forgotten");
}

static void end_spawner(struct world *w)
{
    w->spawner_lives = false;
    w->spawner_dies_at_ms = CO_NEVER_MS;
    if (is_between_generations(w))
        note_stop(w, 70);
    else
        note_cause(w, 70);
    feed(w, (struct supervisor_event){SUPERVISOR_EV_SPAWNER_LOST});
}

enum {
    NOTHING = -1,
    DEADLINE = -2,
    SIGNAL = -3,
    SPAWNER = -4,
    DRAINED = -5,
    TIMEOUT = -6,
    ORDER = -7,
    PAUSE = -8
};

/* The earliest of all that can happen; ANSWER(i), END(i) and DESCENDANT(i) share the positive
 * numbers. */
static int choose(struct world *w, uint64_t *ret_at_ms)
{
    int what = NOTHING;
    uint64_t at = CO_NEVER_MS;
#define CONSIDER(time, code)                                                                       \
    do {                                                                                           \
        uint64_t t_ = (time);                                                                      \
        if (t_ < at || (t_ == at && t_ != CO_NEVER_MS && draw(w, 2) == 0)) {                       \
            at = t_;                                                                               \
            what = (code);                                                                         \
        }                                                                                          \
    } while (0)
    CONSIDER(supervisor_deadline_ms(w->s), DEADLINE);
    CONSIDER(w->signal_at_ms, SIGNAL);
    CONSIDER(w->spawner_dies_at_ms, SPAWNER);
    CONSIDER(w->timeout_at_ms, TIMEOUT);
    CONSIDER(w->order_at_ms, ORDER);
    if (w->is_alone)
        CONSIDER(solo_job_pause_ms(&w->job), PAUSE);
    if (w->draining)
        CONSIDER(w->now_ms + 5, DRAINED);
    bool answers_pending = false;
    for (int i = 0; i < w->limits.n_ranks && spawner_acts(w); i++) {
        struct rank *r = &w->ranks[i];
        if (r->asked && !r->answered && !answers_pending) { /* answers keep their order */
            CONSIDER(r->answer_at_ms > w->now_ms ? r->answer_at_ms : w->now_ms, i);
            answers_pending = true;
        }
        if (r->answered && r->p.runs && !r->p.hangs)
            CONSIDER(r->p.ends_at_ms, 1000 + i);
        if (r->answered && r->p.runs)
            CONSIDER(r->joins_at_ms, 3000 + i);
    }
    for (int i = 0; i < w->n_descendants && spawner_acts(w); i++) {
        if (w->descendants[i].runs && !w->descendants[i].hangs)
            CONSIDER(w->descendants[i].ends_at_ms, 2000 + i);
    }
#undef CONSIDER
    *ret_at_ms = at;
    return what;
}

static void check_recovered(const struct world *w)
{
    for (int i = 0; i < w->limits.n_ranks; i++) {
        const struct rank *r = &w->ranks[i];
        check(w, r->answered, "recovered before the new rank was started");
        check(w, !r->is_called || !r->p.runs, "recovered before all had come");
    }
}

static void live_on(struct world *w)
{
    uint64_t at_ms;
    enum supervisor_state from = supervisor_get_state(w->s);
    if (!w->is_alone && from == SUPERVISOR_WAITING && w->order_at_ms == CO_NEVER_MS)
        w->order_at_ms = w->now_ms + draw(w, 500);
    int what = choose(w, &at_ms);
    if (what == NOTHING && (supervisor_get_state(w->s) == SUPERVISOR_RUNNING ||
                            supervisor_get_state(w->s) == SUPERVISOR_RECOVERING ||
                            supervisor_get_state(w->s) == SUPERVISOR_STARTING)) {
        at_ms = w->now_ms; /* a rank or the spawner hangs: the user becomes impatient */
        what = SIGNAL;
    }
    check(w, what != NOTHING, "nothing will ever happen again");
    if (at_ms > w->now_ms)
        w->now_ms = at_ms;
    if (what == DEADLINE)
        come_to_deadline(w);
    else if (what == SIGNAL)
        send_signal(w);
    else if (what == SPAWNER)
        end_spawner(w);
    else if (what == DRAINED)
        drained(w);
    else if (what == TIMEOUT)
        time_out(w);
    else if (what == ORDER)
        order(w);
    else if (what == PAUSE)
        end_pause(w);
    else if (what >= 3000)
        join(w, what - 3000);
    else if (what >= 2000)
        end_descendant(w, what - 2000);
    else if (what >= 1000)
        end_rank(w, what - 1000);
    else
        answer(w, what);
    if (from == SUPERVISOR_RECOVERING && supervisor_get_state(w->s) == SUPERVISOR_RUNNING)
        check_recovered(w);
    if (!w->is_alone && from != SUPERVISOR_WAITING &&
        supervisor_get_state(w->s) == SUPERVISOR_WAITING)
        check_generation(w);
}

static void check_end(const struct world *w)
{
    const struct supervisor_verdict *v = supervisor_get_verdict(w->s);
    for (int i = 0; i < w->limits.n_ranks; i++)
        check(w, !w->ranks[i].p.runs || (w->ranks[i].p.hangs && v->some_hang),
              "a rank is left running");
    for (int i = 0; i < w->n_descendants; i++)
        check(w, !w->descendants[i].runs || (w->descendants[i].hangs && v->some_hang),
              "a descendant is left running");
    int code = supervisor_exit_code(w->s);
    if (!w->is_alone) {
        check(w, code == w->final_code, "another end than was ordered");
        return;
    }
    bool is_free = w->after_progress && w->failed_after_progress;
    if (w->rank_failed && !w->went_alone && (is_free || w->n_counted < w->max_restarts)) {
        check(w, w->stop_code >= 0, "a restart that was allowed did not come");
        check(w, code == w->stop_code, "the wrong verdict instead of a restart");
        return;
    }
    if (w->is_late)
        check(w, code != 0, "a rank that did not come ended well");
    else
        check(w, code == (w->expected_code < 0 ? 0 : w->expected_code), "the wrong verdict");
    check(w, w->stopped_at_ms == CO_NEVER_MS || w->now_ms - w->stopped_at_ms <= most_ms(w),
          "it took too long");
}

static void begin(struct world *w)
{
    w->job = (struct solo_job){.now_ms = w->now_ms, .carry_out = carry_out_of_job, .arg = w};
    if (w->is_alone) {
        int rc = solo_job_begin(&w->job, &w->limits,
                                (struct message_terms){.max_restarts = (uint32_t)w->max_restarts});
        if (rc < 0)
            exit(1);
    } else {
        w->s = w->job.supervisor = supervisor_create(&w->limits);
        feed(w, (struct supervisor_event){SUPERVISOR_EV_NEXT});
    }
}

static void run(uint64_t seed)
{
    static struct world w;
    world_init(&w, seed);
    begin(&w);
    for (int i = 0; !w.ended; i++) {
        check(&w, i < MAX_STEPS, "it goes on and on");
        live_on(&w);
    }
    check_end(&w);
    solo_job_fini(&w.job);
}

int main(void)
{
    const uint64_t n = schedules_run(20000, run);
    if (n > 0)
        printf("%" PRIu64 " schedules, seeds 1 to %" PRIu64 "\n", n, n);
    return 0;
}
