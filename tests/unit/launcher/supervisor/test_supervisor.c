/* The supervisor's transition table, as a whole, as a drawing, and in the cases that matter most.
 * Other files: test_supervisor_recovery.c, where a rank replaces another one;
 * test_supervisor_aborts.c, where a rank calls MPI_Abort;
 * test_supervisor_orders.c, what happens at the roster's orders; test_solo_job.c, what the
 * supervisor of a one-node job decides; tests/sim, random cases. */
#include "one_supervisor.h"

#include "common/clock.h"
#include "tests/support/machine_checks.h"

#include <errno.h>

START_TEST(each_pair_of_state_and_event_has_one_answer)
{
    assert_whole(&supervisor_machine);
}
END_TEST

START_TEST(the_drawing_is_the_table)
{
    assert_drawn(&supervisor_machine, "supervisor");
}
END_TEST

START_TEST(ranks_are_started_a_window_at_a_time)
{
    begin(5);
    ck_assert_int_eq(o.n_start, 2);
    started(0);
    ck_assert_int_eq(o.n_start, 1);
    started(1);
    ck_assert_int_eq(o.n_start, 1);
    started(2);
    ck_assert_int_eq(o.n_start, 1);
    started(3);
    ck_assert_int_eq(o.n_start, 0);
    started(4);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_RUNNING);
}
END_TEST

START_TEST(ranks_are_requested_in_batches)
{
    struct supervisor_limits limits = {.n_ranks = 11, .window = 8, .batch = 4};
    create(&limits);
    next(0);
    ck_assert_int_eq(o.n_start, 8);
    for (int i = 0; i < 11; i++) {
        started(i);
        /* the last batch is smaller, and is asked for as soon as it fits */
        ck_assert_int_eq(o.n_start, i == 2 ? 3 : 0);
    }
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_RUNNING);
}
END_TEST

START_TEST(success_of_all_ranks_gives_status_0)
{
    begin_and_start(2);
    exited(1, 0, false);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_RUNNING);
    exited(0, 0, true);
    ck_assert(o.drain);
    event(SUPERVISOR_EV_DRAINED);
    finish(0, 0, ENDED_BY_ROSTER);
    ck_assert(o.drain);
    event(SUPERVISOR_EV_DRAINED);
    ck_assert(o.ended);
    ck_assert_int_eq(supervisor_exit_code(s), 0);
}
END_TEST

START_TEST(the_first_failure_is_the_verdict)
{
    begin_and_start(3);
    exited(1, EXIT_STATUS(3), false);
    ck_assert_int_eq(o.signal, SIGTERM);
    ck_assert(!o.to_groups);
    ck_assert_uint_eq(supervisor_deadline_ms(s), now_ms + 5000);
    exited(0, EXIT_STATUS(5), false);
    exited(2, SIGTERM, true);
    ck_assert(o.drain);
    ck_assert_int_eq(supervisor_exit_code(s), 3);
    ck_assert_int_eq(supervisor_get_verdict(s)->rank, 1);
    ck_assert_int_eq(supervisor_get_rank(s, 1)->signaled_first, 0);
    ck_assert_int_eq(supervisor_get_rank(s, 2)->signaled_first, SIGTERM);
}
END_TEST

static void exited_by(int rank, int status, int culprit)
{
    step((struct supervisor_event){SUPERVISOR_EV_EXITED, .rank = rank, .status = status,
                                   .blames = true, .culprit = culprit});
}

START_TEST(a_witness_names_the_culprit_before_its_exit_is_seen)
{
    begin_and_start(3);
    exited_by(0, EXIT_STATUS(5), 2);
    ck_assert_int_eq(o.signal, SIGTERM);
    ck_assert_int_eq(o.except, 2); /* its own signal must stay its own */
    exited(1, SIGTERM, false);
    exited(2, SIGTERM, true);
    ck_assert(o.drain);
    ck_assert_int_eq(supervisor_get_verdict(s)->rank, 2);
    ck_assert_int_eq(supervisor_exit_code(s), 143);
}
END_TEST

START_TEST(a_culprit_may_take_longer_to_die_than_the_grace)
{
    begin_and_start(2);
    exited_by(0, EXIT_STATUS(5), 1);
    event(SUPERVISOR_EV_TIME);
    ck_assert_int_eq(o.signal, SIGKILL);
    ck_assert_int_eq(o.except, -1);
    exited(1, SIGKILL, true);
    ck_assert_int_eq(supervisor_exit_code(s), 137);
}
END_TEST

START_TEST(a_culprit_that_succeeds_is_not_blamed)
{
    begin_and_start(2);
    exited_by(0, EXIT_STATUS(5), 1);
    exited(1, 0, true);
    ck_assert_int_eq(supervisor_get_verdict(s)->rank, 0);
    ck_assert_int_eq(supervisor_exit_code(s), 5);
    supervisor_destroy(s);

    begin_and_start(2);
    exited_by(0, EXIT_STATUS(5), 7); /* there is no such rank */
    exited(1, SIGTERM, true);
    ck_assert_int_eq(supervisor_exit_code(s), 5);
}
END_TEST

START_TEST(a_later_failure_overrides_its_consequence)
{
    begin_and_start(3);
    exited_of_another(0, EXIT_STATUS(1));
    ck_assert_int_eq(o.signal, SIGTERM);
    exited_before_our_signal(2, EXIT_STATUS(3), false);
    exited(1, SIGTERM, true);
    ck_assert_int_eq(supervisor_get_verdict(s)->rank, 2);
    ck_assert_int_eq(supervisor_exit_code(s), 3);
}
END_TEST

START_TEST(a_consequence_is_the_verdict_if_no_cause_is_known)
{
    begin_and_start(4);
    exited_of_another(1, EXIT_STATUS(6));
    exited_of_another(2, EXIT_STATUS(7));
    exited(3, EXIT_STATUS(8), false);           /* of our signal, for all we know */
    exited_before_our_signal(0, SIGTERM, true); /* that was ours */
    ck_assert_int_eq(supervisor_get_verdict(s)->rank, 1);
    ck_assert_int_eq(supervisor_exit_code(s), 6);
}
END_TEST

START_TEST(the_cause_of_a_lost_peer_is_awaited)
{
    begin_and_lose_a_peer(4, 2000);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_AWAITING);
    ck_assert_int_eq(o.signal, 0);
    ck_assert_uint_eq(supervisor_deadline_ms(s), now_ms + 2000);
    exited_of_another(2, EXIT_STATUS(4)); /* no other kind */
    exited(3, 0, false);
    ck_assert_int_eq(o.signal, 0);
    ck_assert_uint_eq(supervisor_deadline_ms(s), now_ms + 2000);
    exited(1, EXIT_STATUS(7), true);
    ck_assert(o.drain);
    ck_assert_int_eq(supervisor_get_verdict(s)->rank, 1);
    ck_assert_int_eq(supervisor_exit_code(s), 7);
}
END_TEST

START_TEST(the_first_failure_of_another_kind_ends_the_wait)
{
    begin_and_lose_a_peer(4, 2000);
    exited(1, SIGSEGV, false);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_STOPPING);
    ck_assert_int_eq(o.signal, SIGTERM);
    ck_assert_int_eq(supervisor_get_verdict(s)->rank, 1);
    exited_before_our_signal(2, EXIT_STATUS(3), false);
    exited(3, SIGTERM, true);
    ck_assert_int_eq(supervisor_exit_code(s), 139);
    supervisor_destroy(s);

    begin_and_lose_a_peer(3, 2000);
    exited_by(1, EXIT_STATUS(5), 2); /* it knows which one dies */
    ck_assert_int_eq(o.except, 2);
    exited(2, SIGKILL, true);
    ck_assert_int_eq(supervisor_exit_code(s), 137);
    supervisor_destroy(s);

    begin_and_lose_a_peer(2, 0); /* not awaited */
    ck_assert_int_eq(o.signal, SIGTERM);
}
END_TEST

START_TEST(the_wait_for_a_cause_ends_in_time_or_by_an_order)
{
    begin_and_lose_a_peer(2, 2000);
    event(SUPERVISOR_EV_TIME);
    ck_assert_int_eq(o.signal, SIGTERM);
    ck_assert_uint_eq(supervisor_deadline_ms(s), now_ms + 5000);
    exited(1, SIGTERM, true);
    ck_assert_int_eq(supervisor_get_verdict(s)->rank, 0);
    supervisor_destroy(s);

    begin_and_lose_a_peer(2, 2000);
    event(SUPERVISOR_EV_ORDER_STOP); /* a node is lost */
    ck_assert_int_eq(o.signal, SIGTERM);
    supervisor_destroy(s);

    begin_and_lose_a_peer(2, 2000);
    event(SUPERVISOR_EV_ORDER_KILL);
    ck_assert_int_eq(o.signal, SIGKILL);
    supervisor_destroy(s);

    begin_and_lose_a_peer(2, 2000);
    signalled(SIGINT);
    ck_assert_int_eq(o.signal, SIGINT);
    exited(1, SIGINT, true);
    ck_assert_int_eq(supervisor_exit_code(s), 1);
}
END_TEST

/* The last rank of this node exits; the job has other nodes. */
static void lose_a_peer_elsewhere(bool empty)
{
    begin_to_lose_a_peer(1, 2000, true);
    step((struct supervisor_event){SUPERVISOR_EV_EXITED, .rank = 0, .status = EXIT_STATUS(1),
                                   .lost_peer = true, .empty = empty});
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_AWAITING);
}

START_TEST(the_cause_on_another_node_is_awaited_without_local_ranks)
{
    static const struct {
        struct supervisor_event what;
        enum supervisor_state empty, not_empty;
    } cases[] = {
        {{SUPERVISOR_EV_TIME}, SUPERVISOR_DRAINING, SUPERVISOR_LEFTOVERS},
        {{SUPERVISOR_EV_TIMEOUT}, SUPERVISOR_DRAINING, SUPERVISOR_LEFTOVERS},
        {{SUPERVISOR_EV_ORDER_STOP}, SUPERVISOR_DRAINING, SUPERVISOR_LEFTOVERS},
        {{SUPERVISOR_EV_ORDER_KILL}, SUPERVISOR_DRAINING, SUPERVISOR_SWEEPING},
        {{SUPERVISOR_EV_SIGNAL, .sig = SIGTERM}, SUPERVISOR_DRAINING, SUPERVISOR_LEFTOVERS},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int empty = 0; empty < 2; empty++) {
            lose_a_peer_elsewhere(empty);
            step(cases[i].what);
            ck_assert_int_eq(supervisor_get_state(s), empty ? cases[i].empty : cases[i].not_empty);
            ck_assert_int_eq(supervisor_get_verdict(s)->rank, 0);
            supervisor_destroy(s);
        }
    s = NULL;
}
END_TEST

START_TEST(a_rank_that_printed_an_error_before_its_stop_is_the_cause)
{
    begin_and_lose_a_peer(3, 2000);
    event(SUPERVISOR_EV_TIME);
    exited(1, SIGTERM, false);
    step((struct supervisor_event){SUPERVISOR_EV_EXITED, .rank = 2, .status = SIGTERM,
                                   .was_failing = true, .empty = true});
    ck_assert_int_eq(supervisor_get_verdict(s)->rank, 2);
    ck_assert_int_eq(supervisor_exit_code(s), 1); /* not that of our signal */
    supervisor_destroy(s);

    begin_and_start(2); /* of two the first one counts */
    exited(0, EXIT_STATUS(5), false);
    step((struct supervisor_event){SUPERVISOR_EV_EXITED, .rank = 1, .status = SIGTERM,
                                   .was_failing = true, .empty = true});
    ck_assert_int_eq(supervisor_exit_code(s), 5);
}
END_TEST

START_TEST(the_first_of_two_causes_counts)
{
    begin_and_start(3);
    exited(0, EXIT_STATUS(5), false);
    exited_before_our_signal(1, EXIT_STATUS(3), false);
    exited_of_another(2, EXIT_STATUS(1));
    ck_assert_int_eq(supervisor_get_verdict(s)->rank, 0);
    supervisor_destroy(s);

    begin_and_start(3);
    exited_of_another(0, EXIT_STATUS(1));
    exited_before_our_signal(2, EXIT_STATUS(3), false);
    exited_before_our_signal(1, EXIT_STATUS(4), true);
    ck_assert_int_eq(supervisor_get_verdict(s)->rank, 2);
}
END_TEST

START_TEST(a_culprit_that_had_lost_a_peer_itself_gives_way_to_a_cause)
{
    begin_and_start(3);
    exited_by(0, EXIT_STATUS(1), 1);
    exited_of_another(1, EXIT_STATUS(1));
    exited_before_our_signal(2, EXIT_STATUS(3), true);
    ck_assert_int_eq(supervisor_get_verdict(s)->rank, 2);
    ck_assert_int_eq(supervisor_get_verdict(s)->witness, -1);
}
END_TEST

START_TEST(a_failure_during_the_start_awaits_the_requested_ranks)
{
    begin(4);
    started(0);
    exited(0, SIGSEGV, false); /* ranks 1 and 2 were asked for */
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_STOPPING);
    started(1);
    ck_assert_int_eq(o.n_start, 0);
    exited(1, SIGTERM, true);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_STOPPING);
    started(2);
    exited(2, SIGTERM, true);
    ck_assert(o.drain);
    ck_assert_int_eq(supervisor_exit_code(s), 139);
    ck_assert_int_eq(supervisor_get_rank(s, 2)->signaled_first, SIGTERM);
    ck_assert_int_eq(supervisor_get_rank(s, 3)->phase, RANK_NOT_STARTED);
}
END_TEST

START_TEST(a_failed_exec_gives_126_or_127)
{
    static const struct {
        int error;
        enum supervisor_start_stage stage;
        int code;
    } cases[] = {
        {ENOENT, SUPERVISOR_START_EXEC, 127},    {ENOTDIR, SUPERVISOR_START_EXEC, 127},
        {EACCES, SUPERVISOR_START_EXEC, 126},    {E2BIG, SUPERVISOR_START_EXEC, 126},
        {EAGAIN, SUPERVISOR_START_INTERNAL, 70},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin(1);
        step((struct supervisor_event){SUPERVISOR_EV_START_FAILED, .rank = 0,
                                       .status = cases[i].error, .stage = cases[i].stage,
                                       .empty = true});
        ck_assert(o.drain);
        ck_assert_int_eq(supervisor_exit_code(s), cases[i].code);
        supervisor_destroy(s);
        s = NULL;
    }
}
END_TEST

START_TEST(a_signal_is_passed_on_then_grace_then_kill)
{
    begin_and_start(2);
    signalled(SIGTERM);
    ck_assert_int_eq(o.signal, SIGTERM);
    ck_assert(!o.to_groups);
    ck_assert_uint_eq(supervisor_deadline_ms(s), now_ms + 30000);
    now_ms += 30000;
    event(SUPERVISOR_EV_TIME);
    ck_assert_int_eq(o.signal, SIGKILL);
    ck_assert(o.to_groups);
    exited(0, SIGKILL, false);
    exited(1, SIGKILL, false);
    ck_assert_int_eq(o.sweep_signal, SIGKILL); /* descendants had their time with the ranks */
    event(SUPERVISOR_EV_EMPTY);
    ck_assert(o.drain);
    ck_assert_int_eq(supervisor_exit_code(s), 143);
}
END_TEST

START_TEST(a_second_interrupt_kills_but_another_signal_does_not)
{
    begin_and_start(1);
    signalled(SIGTERM);
    signalled(SIGINT);
    ck_assert_int_eq(o.signal, SIGINT);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_STOPPING);
    signalled(SIGINT);
    ck_assert_int_eq(o.signal, SIGKILL);
    exited(0, SIGKILL, true);
    ck_assert_int_eq(supervisor_exit_code(s), 143); /* of the first */
}
END_TEST

START_TEST(a_signal_after_a_failure_does_not_change_the_verdict)
{
    begin_and_start(2);
    exited(0, EXIT_STATUS(9), false);
    signalled(SIGTERM);
    exited(1, SIGTERM, true);
    ck_assert_int_eq(supervisor_exit_code(s), 9);
}
END_TEST

START_TEST(user_signals_are_passed_on_and_stop_no_rank)
{
    begin_and_start(1);
    signalled(SIGUSR1);
    ck_assert_int_eq(o.signal, SIGUSR1);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_RUNNING);
    ck_assert_uint_eq(supervisor_deadline_ms(s), CO_NEVER_MS);
    ck_assert_int_eq(supervisor_get_rank(s, 0)->forwarded, SIGUSR1);
    exited(0, SIGUSR1, true);
    ck_assert_int_eq(supervisor_exit_code(s), 128 + SIGUSR1);
}
END_TEST

START_TEST(descendants_are_signaled_then_killed)
{
    begin_and_start(1);
    exited(0, 0, false);
    ck_assert_int_eq(o.sweep_signal, SIGTERM);
    ck_assert_uint_eq(supervisor_deadline_ms(s), now_ms + 5000);
    now_ms += 5000;
    event(SUPERVISOR_EV_TIME);
    ck_assert_int_eq(o.sweep_signal, SIGKILL);
    event(SUPERVISOR_EV_EMPTY);
    ck_assert(o.drain);
    ck_assert_int_eq(supervisor_exit_code(s), 0);
}
END_TEST

/* Rank 0 fails. What outlives the grace is killed: the other ranks, or what the ranks left. */
static void fail_and_kill(int n)
{
    begin_and_start(n);
    exited(0, EXIT_STATUS(1), false);
    event(SUPERVISOR_EV_TIME);
    ck_assert_int_eq(n > 1 ? o.signal : o.sweep_signal, SIGKILL);
}

START_TEST(processes_that_survive_sigkill_are_swept_then_left)
{
    fail_and_kill(3);
    ck_assert_uint_eq(supervisor_deadline_ms(s), now_ms + SUPERVISOR_KILL_MS);
    event(SUPERVISOR_EV_TIME); /* the ranks hang, or the spawner is deaf */
    ck_assert(o.sweep_alone);
    step((struct supervisor_event){SUPERVISOR_EV_SWEPT, .status = ETIMEDOUT});
    ck_assert(o.drain);
    ck_assert(supervisor_get_verdict(s)->some_hang);
    ck_assert_int_eq(supervisor_exit_code(s), 1);
}
END_TEST

/* A rank with much memory, or with little processor time. */
START_TEST(what_runs_after_sigkill_is_awaited_longer)
{
    const struct supervisor_event runs = {SUPERVISOR_EV_TIME, .some_run = true};
    const bool ends = _i != 0;
    fail_and_kill(1);
    const uint64_t until_ms = now_ms + SUPERVISOR_TEARDOWN_MS;
    while ((now_ms = supervisor_deadline_ms(s)) < until_ms) {
        step(runs);
        ck_assert(!o.sweep_alone && o.sweep_signal == 0);
        ck_assert_uint_eq(supervisor_deadline_ms(s), now_ms + SUPERVISOR_KILL_MS);
    }
    ck_assert_uint_eq(now_ms, until_ms);
    step(ends ? (struct supervisor_event){SUPERVISOR_EV_EMPTY} : runs);
    ck_assert_int_eq(o.drain, ends);
    ck_assert_int_eq(o.sweep_alone, !ends);
}
END_TEST

START_TEST(ranks_that_run_after_sigkill_are_awaited_until_none_runs)
{
    fail_and_kill(2);
    now_ms = supervisor_deadline_ms(s);
    step((struct supervisor_event){SUPERVISOR_EV_TIME, .some_run = true});
    ck_assert(!o.sweep_alone);
    now_ms = supervisor_deadline_ms(s);
    event(SUPERVISOR_EV_TIME);
    ck_assert(o.sweep_alone);
}
END_TEST

START_TEST(without_the_spawner_ddprun_sweeps_alone)
{
    begin_and_start(2);
    event(SUPERVISOR_EV_SPAWNER_LOST);
    ck_assert(o.sweep_alone);
    step((struct supervisor_event){SUPERVISOR_EV_SWEPT, .status = ETIMEDOUT});
    ck_assert(o.drain);
    ck_assert_int_eq(supervisor_exit_code(s), 70);
    ck_assert(supervisor_get_verdict(s)->some_hang);
}
END_TEST

START_TEST(a_signal_ends_the_wait_for_a_reader)
{
    begin_and_start(1);
    exited(0, 0, true);
    event(SUPERVISOR_EV_DRAINED);
    finish(0, 0, ENDED_BY_ROSTER);
    ck_assert(o.drain);
    signalled(SIGWINCH);
    ck_assert(!o.ended);
    signalled(SIGHUP);
    ck_assert(o.ended);
    ck_assert_int_eq(supervisor_exit_code(s), 128 + SIGHUP);
    ck_assert_int_eq(supervisor_die_of(s), SIGHUP);
}
END_TEST

START_TEST(a_node_that_is_the_whole_job_ends_by_its_own_verdict)
{
    static const struct {
        enum supervisor_ender ender;
        int code, die_of;
    } cases[] = {
        {ENDED_BY_ROSTER, 3, 0}, {ENDED_BY_STOP, 128 + SIGTERM, SIGTERM}, {ENDED_BY_LOSS, 70, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin_and_start(1);
        exited(0, EXIT_STATUS(3), true);
        event(SUPERVISOR_EV_DRAINED);
        if (cases[i].ender == ENDED_BY_STOP) /* of the pause before a restart */
            signalled(SIGTERM);
        finish(99, SIGKILL, cases[i].ender);
        ck_assert_int_eq(supervisor_exit_code(s), cases[i].code);
        ck_assert_int_eq(supervisor_die_of(s), cases[i].die_of);
        supervisor_destroy(s);
        s = NULL;
    }
    begin_and_start(1);
    exited(0, EXIT_STATUS(3), true);
    event(SUPERVISOR_EV_TIMEOUT); /* while its last output is passed on */
    finish(124, 0, ENDED_BY_STOP);
    ck_assert_int_eq(supervisor_exit_code(s), SUPERVISOR_EXIT_TIMEOUT);
}
END_TEST

START_TEST(without_a_spawner_ended_ranks_decide_the_outcome)
{
    begin_and_start(2);
    exited(0, EXIT_STATUS(3), false);
    event(SUPERVISOR_EV_SPAWNER_LOST); /* nothing can follow, and no rank has to be stopped */
    step((struct supervisor_event){SUPERVISOR_EV_SWEPT});
    event(SUPERVISOR_EV_DRAINED);
    finish(70, 0, ENDED_BY_LOSS);
    ck_assert_int_eq(supervisor_exit_code(s), 3);
    supervisor_destroy(s);

    begin_and_start(1);
    exited(0, EXIT_STATUS(3), true);
    event(SUPERVISOR_EV_DRAINED);
    event(SUPERVISOR_EV_SPAWNER_LOST); /* in a pause */
    ck_assert(supervisor_is_alone(s));
    finish(70, 0, ENDED_BY_LOSS);
    ck_assert_int_eq(supervisor_exit_code(s), 70);
}
END_TEST

/* The only rank of a generation fails, at 2000 ms after its start at 1000 ms. */
static bool has_progressed(struct supervisor_progress progress, uint64_t output_after_ms)
{
    create(
        &(struct supervisor_limits){.n_ranks = 1, .window = 1, .output_after_ms = output_after_ms});
    next(0);
    started(0);
    now_ms += 2000;
    step((struct supervisor_event){SUPERVISOR_EV_EXITED, .status = EXIT_STATUS(1), .empty = true,
                                   .progress = progress});
    const bool has = supervisor_has_progressed(s);
    supervisor_destroy(s);
    s = NULL;
    return has;
}

START_TEST(a_step_is_progress_and_so_is_late_output)
{
    ck_assert(!has_progressed((struct supervisor_progress){0}, 500));
    ck_assert(has_progressed((struct supervisor_progress){.n_steps = 1}, 500));
    ck_assert(!has_progressed((struct supervisor_progress){.output_ms = 999}, 500)); /* older */
    ck_assert(!has_progressed((struct supervisor_progress){.output_ms = 1499}, 500));
    ck_assert(has_progressed((struct supervisor_progress){.output_ms = 1500}, 500));
    ck_assert(!has_progressed((struct supervisor_progress){.output_ms = 1000}, 0)); /* perhaps */
    ck_assert(has_progressed((struct supervisor_progress){.output_ms = 1001}, 0));
    ck_assert(!has_progressed((struct supervisor_progress){.output_ms = 2999}, UINT64_MAX));
}
END_TEST

START_TEST(an_exit_blames_the_lost_rank_or_the_aborting_one)
{
    static const struct {
        int status, lost, aborter;
        bool blames;
        int culprit;
    } cases[] = {
        {EXIT_STATUS(1), -1, -1, false, -1}, /* nothing is known */
        {EXIT_STATUS(1), 2, -1, true, 2},    /* a peer has died */
        {EXIT_STATUS(1), -1, 3, true, 3},    /* a rank aborts, and this one ends first */
        {EXIT_STATUS(1), 2, 3, true, 2},     /* a death that was seen counts more */
        {EXIT_STATUS(1), -1, 0, false, -1},  /* it is the one that aborts */
        {0, -1, 3, false, -1},               /* it has succeeded */
        {0, 2, -1, true, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct supervisor_exit x = {.status = cases[i].status,
                                          .lost = cases[i].lost,
                                          .aborter = cases[i].aborter,
                                          .was_ending = true,
                                          .empty = true,
                                          .lost_peer = true,
                                          .progress.n_steps = 7};
        const struct supervisor_event e = supervisor_exit_event(&x);
        ck_assert_int_eq(e.type, SUPERVISOR_EV_EXITED);
        ck_assert_int_eq(e.status, cases[i].status);
        ck_assert_int_eq(e.blames, cases[i].blames);
        ck_assert_int_eq(e.culprit, cases[i].culprit);
        ck_assert(e.was_ending && e.empty && e.lost_peer);
        ck_assert_uint_eq(e.progress.n_steps, 7);
    }
}
END_TEST

START_TEST(progress_counts_within_a_generation_before_its_failure)
{
    begin_and_start(2);
    step((struct supervisor_event){SUPERVISOR_EV_EXITED, .rank = 0, .status = EXIT_STATUS(1),
                                   .progress.n_steps = 0});
    step((struct supervisor_event){SUPERVISOR_EV_EXITED, .rank = 1, .status = SIGTERM,
                                   .empty = true, .progress.n_steps = 1});
    ck_assert(!supervisor_has_progressed(s));
    supervisor_destroy(s);

    begin_and_start(1);
    step((struct supervisor_event){SUPERVISOR_EV_EXITED, .rank = 0, .status = EXIT_STATUS(1),
                                   .empty = true, .progress.n_steps = 3});
    ck_assert(supervisor_has_progressed(s));
    event(SUPERVISOR_EV_DRAINED);
    next(1);
    ck_assert(!supervisor_has_progressed(s));
}
END_TEST

START_TEST(impossible_reports_change_nothing)
{
    begin(2);
    exited(0, 0, true); /* asked for, but not started */
    ck_assert_int_eq(supervisor_get_rank(s, 0)->phase, RANK_ASKED);
    started(-1);
    started(2);
    started(1 << 30);
    ck_assert_int_eq(o.n_start, 0);
    started(0);
    started(0);
    exited(0, 0, false);
    exited(0, EXIT_STATUS(1), false);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_STARTING);
}
END_TEST

TEST_SUITE(supervisor)
{
    Suite *suite = suite_create("supervisor");
    TCase *t = tcase_create("supervisor");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, each_pair_of_state_and_event_has_one_answer);
    tcase_add_test(t, the_drawing_is_the_table);
    tcase_add_test(t, ranks_are_started_a_window_at_a_time);
    tcase_add_test(t, ranks_are_requested_in_batches);
    tcase_add_test(t, success_of_all_ranks_gives_status_0);
    tcase_add_test(t, the_first_failure_is_the_verdict);
    tcase_add_test(t, a_witness_names_the_culprit_before_its_exit_is_seen);
    tcase_add_test(t, a_culprit_may_take_longer_to_die_than_the_grace);
    tcase_add_test(t, a_culprit_that_succeeds_is_not_blamed);
    tcase_add_test(t, a_later_failure_overrides_its_consequence);
    tcase_add_test(t, a_consequence_is_the_verdict_if_no_cause_is_known);
    tcase_add_test(t, the_cause_of_a_lost_peer_is_awaited);
    tcase_add_test(t, the_first_failure_of_another_kind_ends_the_wait);
    tcase_add_test(t, the_wait_for_a_cause_ends_in_time_or_by_an_order);
    tcase_add_test(t, the_cause_on_another_node_is_awaited_without_local_ranks);
    tcase_add_test(t, a_rank_that_printed_an_error_before_its_stop_is_the_cause);
    tcase_add_test(t, the_first_of_two_causes_counts);
    tcase_add_test(t, a_culprit_that_had_lost_a_peer_itself_gives_way_to_a_cause);
    tcase_add_test(t, a_failure_during_the_start_awaits_the_requested_ranks);
    tcase_add_test(t, a_failed_exec_gives_126_or_127);
    tcase_add_test(t, a_signal_is_passed_on_then_grace_then_kill);
    tcase_add_test(t, a_second_interrupt_kills_but_another_signal_does_not);
    tcase_add_test(t, a_signal_after_a_failure_does_not_change_the_verdict);
    tcase_add_test(t, user_signals_are_passed_on_and_stop_no_rank);
    tcase_add_test(t, descendants_are_signaled_then_killed);
    tcase_add_test(t, processes_that_survive_sigkill_are_swept_then_left);
    tcase_add_loop_test(t, what_runs_after_sigkill_is_awaited_longer, 0, 2);
    tcase_add_test(t, ranks_that_run_after_sigkill_are_awaited_until_none_runs);
    tcase_add_test(t, without_the_spawner_ddprun_sweeps_alone);
    tcase_add_test(t, a_signal_ends_the_wait_for_a_reader);
    tcase_add_test(t, a_node_that_is_the_whole_job_ends_by_its_own_verdict);
    tcase_add_test(t, without_a_spawner_ended_ranks_decide_the_outcome);
    tcase_add_test(t, a_step_is_progress_and_so_is_late_output);
    tcase_add_test(t, an_exit_blames_the_lost_rank_or_the_aborting_one);
    tcase_add_test(t, progress_counts_within_a_generation_before_its_failure);
    tcase_add_test(t, impossible_reports_change_nothing);
    suite_add_tcase(suite, t);
    suite_add_tcase(suite, supervisor_abort_cases());
    suite_add_tcase(suite, supervisor_recovery_cases());
    return suite;
}
