/* The report's words, for each way a job can end. */
#include "launcher/diagnosis/oom.h"
#include "launcher/reporting/report.h"
#include "launcher/supervisor/supervisor.h"
#include "rendezvous/membership/member.h"
#include "rendezvous/membership/roster.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_STATUS(code) ((code) << 8)
#define CORE              0x80 /* the flag in a wait status */

static struct supervisor *s;
static struct report r;

static void create(const struct supervisor_limits *limits)
{
    s = supervisor_create(limits);
    r = (struct report){.supervisor = s, .host = "n1", .program = "./train", .now_ms = 3723000};
}

static void begin_with(const struct supervisor_limits *limits)
{
    struct supervisor_orders o;
    create(limits);
    supervisor_step(s, &(struct supervisor_event){SUPERVISOR_EV_NEXT, .n_ranks = limits->n_ranks},
                    &o);
}

static void begin_as(int n, bool has_others)
{
    begin_with(&(struct supervisor_limits){.n_ranks = n, .window = n, .has_others = has_others});
}

static void begin_shrinkable(int n)
{
    begin_with(&(struct supervisor_limits){
        .n_ranks = n, .window = n, .recovers = true, .drops = true, .recovery_ms = 60000});
}

static void begin(int n)
{
    begin_as(n, false);
}

static void step(struct supervisor_event e)
{
    struct supervisor_orders o;
    supervisor_step(s, &e, &o);
}

static void start_all(void)
{
    for (int i = 0; i < supervisor_n_ranks(s); i++)
        step((struct supervisor_event){SUPERVISOR_EV_STARTED, .rank = i, .pid = 100 + i});
}

static void exited(int rank, int status, uint64_t now_ms)
{
    step((struct supervisor_event){SUPERVISOR_EV_EXITED, .rank = rank, .status = status,
                                   .now_ms = now_ms, .empty = true});
}

static void check(const char *expected)
{
    char *text;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    report_print(out, &r);
    fclose(out);
    ck_assert_str_eq(text, expected);
    free(text);
    supervisor_destroy(s);
}

START_TEST(a_successful_job_has_no_report)
{
    begin(1);
    start_all();
    exited(0, 0, 10);
    check("");
}
END_TEST

START_TEST(the_failed_rank_is_first_and_the_others_are_grouped)
{
    begin(9);
    start_all();
    exited(8, 0, 100);
    exited(1, EXIT_STATUS(3), 520);
    for (int i = 0; i < 8; i++)
        exited(i, i == 4 ? EXIT_STATUS(1) : i == 5 ? SIGKILL : SIGTERM, 600);
    check("ddprun: error: rank 1 failed: exit status 3, 0.52 s after its start\n  host n1, local "
          "rank 1, pid 101, ./train\n  ranks 0, 2-3, 6-7: stopped by ddprun (SIGTERM)\n  rank 4: "
          "exit status 1 after SIGTERM from ddprun\n  rank 5: killed by SIGKILL (Killed) after "
          "SIGTERM from ddprun\n  rank 8: succeeded\n");
}
END_TEST

/* Rank 1 has a handler for it. */
START_TEST(a_forwarded_signal_is_reported_as_ddpruns)
{
    begin(3);
    start_all();
    step((struct supervisor_event){SUPERVISOR_EV_SIGNAL, .sig = SIGUSR1});
    exited(0, SIGUSR1, 100);
    exited(1, SIGTERM, 200);
    exited(2, SIGUSR1, 200);
    check("ddprun: error: rank 0 failed: killed by SIGUSR1 (User defined signal 1), which ddprun "
          "forwarded, 0.10 s after its start\n"
          "  host n1, local rank 0, pid 100, ./train\n"
          "  rank 1: stopped by ddprun (SIGTERM)\n"
          "  rank 2: killed by SIGUSR1 (User defined signal 1), which ddprun forwarded\n");
}
END_TEST

START_TEST(a_restart_after_a_shrink_names_the_new_number_of_a_rank)
{
    const struct roster_restart restart = {.why = MESSAGE_WHY_FAILURE, .n_counted = 2};
    begin_shrinkable(4);
    start_all();
    for (int i = 0; i < 4; i++)
        step((struct supervisor_event){SUPERVISOR_EV_JOINED, .rank = i, .recovers = true});
    exited(1, SIGKILL, 100);
    step((struct supervisor_event){SUPERVISOR_EV_NEXT, .generation = 1, .n_ranks = 3});
    exited(2, EXIT_STATUS(3), 500);
    r.restart = &restart;
    r.max_restarts = 5;
    check("ddprun: note: rank 1 failed: exit status 3, 0.50 s after its start; restart 2 of 5\n");
}
END_TEST

START_TEST(after_a_shrink_ranks_have_their_new_numbers)
{
    begin_shrinkable(4);
    start_all();
    for (int i = 0; i < 4; i++)
        step((struct supervisor_event){SUPERVISOR_EV_JOINED, .rank = i, .recovers = true});
    exited(1, SIGKILL, 100);
    step((struct supervisor_event){SUPERVISOR_EV_NEXT, .generation = 1, .n_ranks = 3});
    exited(2, SIGSEGV, 500);
    step((struct supervisor_event){SUPERVISOR_EV_ORDER_STOP, .now_ms = 500});
    exited(0, SIGTERM, 600);
    exited(3, SIGTERM, 600);
    check("ddprun: error: rank 1 failed: killed by SIGSEGV (Segmentation fault), 0.50 s after its "
          "start\n"
          "  host n1, local rank 2, pid 102, ./train\n"
          "  ranks 0, 2: stopped by ddprun (SIGTERM)\n"
          "  after 1 restart\n");
}
END_TEST

START_TEST(a_rank_that_was_stopped_while_it_failed_is_marked)
{
    begin_with(&(struct supervisor_limits){.n_ranks = 4, .window = 4, .cause_ms = 2000});
    start_all();
    step((struct supervisor_event){SUPERVISOR_EV_EXITED, .rank = 0, .status = EXIT_STATUS(1),
                                   .lost_peer = true, .now_ms = 500});
    step((struct supervisor_event){SUPERVISOR_EV_TIME, .now_ms = 2500});
    step((struct supervisor_event){SUPERVISOR_EV_EXITED, .rank = 1, .status = SIGTERM,
                                   .was_failing = true, .now_ms = 2510});
    step((struct supervisor_event){SUPERVISOR_EV_EXITED, .rank = 2, .status = SIGTERM,
                                   .lost_peer = true, .now_ms = 2510});
    exited(3, SIGTERM, 2520);
    const struct report_other others[] = {
        {.rank = 3, .is_own = true, .error = "KeyError: 3", .tail = "one\ntwo\n"},
        {.rank = 0, .error = "RuntimeError: Connection closed by peer"}};
    r.others = others;
    r.n_others = 2;
    r.log = "/logs/stderr.log";
    r.log_trouble = "No space left on device";
    r.error = "ValueError: 4";
    r.error_file = "/logs/error.json";
    check("ddprun: error: rank 1 failed: stopped by ddprun (SIGTERM) while it failed, 2.51 s after "
          "its start\n  host n1, local rank 1, pid 101, ./train\n  error: ValueError: 4\n  its "
          "standard error is in /logs/stderr.log\n  its log files may be incomplete: No space left "
          "on device\n  its error file is /logs/error.json\n  rank 3 also failed: KeyError: 3\n    "
          "| one\n    | two\n  rank 0 lost a peer: RuntimeError: Connection closed by peer\n  rank "
          "0: exit status 1 after a peer was lost\n  rank 2: stopped by ddprun (SIGTERM) after a "
          "peer was lost\n  rank 3: stopped by ddprun (SIGTERM)\n");
}
END_TEST

/* The only rank fails after 500 ms, and `restart` follows; of so many, if that is not 0. */
static void check_restart(const struct roster_restart *restart, int max, bool after_progress,
                          const char *expected)
{
    begin(1);
    start_all();
    exited(0, EXIT_STATUS(3), 500);
    r.restart = restart;
    r.max_restarts = max;
    r.after_progress = after_progress;
    check(expected);
}

START_TEST(a_restart_for_no_rank_names_none)
{
    const struct roster_restart restart = {.why = MESSAGE_WHY_FAILURE, .n_counted = 1};
    begin(1);
    start_all();
    step((struct supervisor_event){SUPERVISOR_EV_ORDER_STOP, .now_ms = 100});
    exited(0, SIGTERM, 500);
    ck_assert_int_lt(supervisor_get_verdict(s)->rank, 0);
    r.restart = &restart;
    r.max_restarts = 5;
    check("ddprun: note: the generation failed; restart 1 of 5\n");
}
END_TEST

START_TEST(a_restart_is_one_line)
{
    struct roster_restart restart = {.why = MESSAGE_WHY_FAILURE, .n_counted = 2};
    check_restart(
        &restart, 0, false,
        "ddprun: note: rank 0 failed: exit status 3, 0.50 s after its start; restart 1\n");
    check_restart(
        &restart, 5, false,
        "ddprun: note: rank 0 failed: exit status 3, 0.50 s after its start; restart 1 of 5\n");
    restart.wait_ms = 200;
    check_restart(&restart, 5, true,
                  "ddprun: note: rank 0 failed: exit status 3, 0.50 s after its start; restart 1 "
                  "(2 of 5 without progress) in 0.20 s\n");
    restart.is_free = true;
    check_restart(&restart, 5, true,
                  "ddprun: note: rank 0 failed: exit status 3, 0.50 s after its start; restart 1 "
                  "(after progress) in 0.20 s\n");
    restart.why = MESSAGE_WHY_RESTART;
    check_restart(&restart, 5, true,
                  "ddprun: note: restarting all ranks as requested; restart 1\n");
}
END_TEST

START_TEST(a_signal_has_a_text)
{
    begin(1);
    start_all();
    exited(0, SIGSEGV | CORE, 62000);
    check("ddprun: error: rank 0 failed: killed by SIGSEGV (Segmentation fault), core dumped, 1 "
          "min 2 s "
          "after"
          " its start\n"
          "  host n1, local rank 0, pid 100, ./train\n");
}
END_TEST

START_TEST(unknown_signals_have_a_number)
{
    char text[80];
    ck_assert_str_eq(report_status(40, text, sizeof text), "killed by signal 40");
}
END_TEST

START_TEST(the_error_and_the_last_lines_are_shown)
{
    begin(1);
    start_all();
    exited(0, EXIT_STATUS(1), 0);
    r.error = "RuntimeError: two\nlines";
    r.tail = "one\ntwo\n";
    r.note = "something else";
    check("ddprun: error: rank 0 failed: exit status 1, 0.00 s after its start\n"
          "  host n1, local rank 0, pid 100, ./train\n"
          "  error: RuntimeError: two\n"
          "         lines\n"
          "  last lines of its stderr:\n"
          "    | one\n"
          "    | two\n"
          "  note: something else\n");
}
END_TEST

START_TEST(an_oom_kill_precedes_the_ranks_output)
{
    struct oom_finding oom = {.blame = OOM_BLAME_RANK,
                              .n_kills = 1,
                              .scope = OOM_SCOPE_NODE,
                              .node_bytes = 1 << 30,
                              .victim_rank = -1};
    begin(1);
    start_all();
    exited(0, SIGKILL, 0);
    r.error = "RuntimeError";
    r.oom = &oom;
    check("ddprun: error: rank 0 failed: killed by SIGKILL (Killed), 0.00 s after its start\n  "
          "host n1, local rank 0, pid 100, ./train\n  out of memory: killed by the kernel's OOM "
          "killer\n    the node's memory, 1.0 GiB, was exhausted; 1 OOM kill since the ranks' "
          "start\n    try: fewer ranks or data loader workers on this node, a smaller batch\n  "
          "error: RuntimeError\n");
}
END_TEST

START_TEST(few_lines_are_shown_but_the_whole_traceback)
{
    char tail[1024] = "";
    char expected[2048];
    for (int i = 0; i < 20; i++)
        sprintf(tail + strlen(tail), "line %d\n", i);
    begin(1);
    start_all();
    exited(0, EXIT_STATUS(1), 0);
    r.tail = tail;
    strcpy(expected, "ddprun: error: rank 0 failed: exit status 1, 0.00 s after its start\n"
                     "  host n1, local rank 0, pid 100, ./train\n"
                     "  last lines of its stderr:\n");
    size_t head = strlen(expected);
    for (int i = 20 - REPORT_TAIL_LINES; i < 20; i++)
        sprintf(expected + strlen(expected), "    | line %d\n", i);
    check(expected);

    begin(1);
    start_all();
    exited(0, EXIT_STATUS(1), 0);
    memcpy(tail, "[r]: Traceback (most recent call last):\n", 40); /* over "line 0" and its next */
    r.tail = tail;
    expected[head] = '\0';
    for (const char *p = tail; *p != '\0'; p += strcspn(p, "\n") + 1) {
        strcat(expected, "    | ");
        strncat(expected, p, strcspn(p, "\n") + 1);
    }
    check(expected);
}
END_TEST

START_TEST(a_program_that_cannot_be_executed_takes_one_line)
{
    begin(2);
    step((struct supervisor_event){SUPERVISOR_EV_START_FAILED, .rank = 0, .status = EACCES,
                                   .stage = SUPERVISOR_START_EXEC, .empty = true});
    r.error = "cannot execute '/bin/train': permission denied";
    check("ddprun: error: cannot execute '/bin/train': permission denied\n");
}
END_TEST

START_TEST(a_process_limit_is_explained)
{
    begin(2);
    step((struct supervisor_event){SUPERVISOR_EV_START_FAILED, .rank = 0, .status = EAGAIN,
                                   .empty = true});
    check("ddprun: error: cannot start rank 0: Resource temporarily unavailable\n  the limit on "
          "processes is reached: check ulimit -u and the control group's pids.max\n");
}
END_TEST

START_TEST(a_refused_system_call_is_explained)
{
    begin(2);
    step((struct supervisor_event){SUPERVISOR_EV_START_FAILED, .rank = 0, .status = EPERM,
                                   .empty = true});
    check("ddprun: error: cannot start rank 0: Operation not permitted\n"
          "  ddprun needs memfd_create(2) and clone(2): a seccomp filter or the kernel refuses one "
          "of them\n");
}
END_TEST

START_TEST(a_stopped_job_reports_its_signal_and_time)
{
    begin(3);
    start_all();
    step((struct supervisor_event){SUPERVISOR_EV_SIGNAL, .sig = SIGINT});
    exited(0, SIGINT, 1);
    exited(1, 0, 1);
    exited(2, EXIT_STATUS(1), 1);
    check("ddprun: note: stopped by SIGINT after 1 h 2 min\n"
          "  rank 0: stopped by ddprun (SIGINT)\n"
          "  rank 1: exit status 0 after SIGINT from ddprun\n"
          "  rank 2: exit status 1 after SIGINT from ddprun\n");
}
END_TEST

START_TEST(the_end_of_the_spawner_is_an_internal_error)
{
    begin(1);
    start_all();
    step((struct supervisor_event){SUPERVISOR_EV_SPAWNER_LOST});
    check("ddprun: error: internal error: the process that starts and reaps the ranks is gone; all "
          "ranks "
          "were "
          "killed\n");
}
END_TEST

START_TEST(a_process_that_hangs_in_the_kernel_is_reported)
{
    begin(2);
    start_all();
    exited(1, EXIT_STATUS(1), 10);
    step((struct supervisor_event){SUPERVISOR_EV_TIME});
    step((struct supervisor_event){SUPERVISOR_EV_TIME});
    step((struct supervisor_event){SUPERVISOR_EV_SWEPT, .status = ETIMEDOUT});
    const struct report_stuck stuck = {0, "sleeps and cannot be woken in nfs_wait, on /data/x"};
    r.stuck = &stuck;
    r.n_stuck = 1;
    check("ddprun: error: rank 1 failed: exit status 1, 0.01 s after its start\n  host n1, local "
          "rank 1, pid 101, ./train\n  rank 0: killed by ddprun\n  some processes survived SIGKILL "
          "(stuck in the kernel, for example on NFS or in a GPU driver): pid 100\n    rank 0 (pid "
          "100) sleeps and cannot be woken in nfs_wait, on /data/x\n");
}
END_TEST

/* --- One node of several --- */

static struct report_job job;

/* It holds the ranks 4 and 5 of the job. */
static void begin_job(void)
{
    begin_as(2, true);
    job = (struct report_job){.first_rank = 4};
    r.job = &job;
    start_all();
}

static void end_job(const struct member_end *end)
{
    job.end = end;
    step((struct supervisor_event){SUPERVISOR_EV_DRAINED});
    step((struct supervisor_event){SUPERVISOR_EV_FINISH, .exit_code = end->exit_code,
                                   .sig = end->signal});
}

static void exited_late(int rank, int status, bool empty)
{
    step((struct supervisor_event){SUPERVISOR_EV_EXITED, .rank = rank, .status = status,
                                   .now_ms = 500, .empty = empty});
}

START_TEST(ranks_have_their_numbers_in_the_job)
{
    const struct member_end end = {.exit_code = 3,
                                   .by_roster = true,
                                   .outcome = MESSAGE_RANK_FAILED,
                                   .rank = 5,
                                   .node = "n1",
                                   .text = "rank 5 on n1: exit status 3"};
    begin_job();
    exited_late(1, EXIT_STATUS(3), false);
    exited_late(0, SIGTERM, true);
    end_job(&end);
    check("ddprun: error: rank 5 failed: exit status 3, 0.50 s after its start\n"
          "  host n1, local rank 1, pid 101, ./train\n"
          "  rank 4: stopped by ddprun (SIGTERM)\n");
}
END_TEST

START_TEST(the_verdict_of_another_node_is_first)
{
    const struct member_end end = {.exit_code = 9,
                                   .by_roster = true,
                                   .outcome = MESSAGE_RANK_FAILED,
                                   .rank = 1,
                                   .node = "n0",
                                   .text = "rank 1 on n0: exit status 9, 0.4 s after its start"};
    begin_job();
    exited_late(1, EXIT_STATUS(1), false); /* its connections broke: no cause of anything */
    exited_late(0, SIGTERM, true);
    end_job(&end);
    check("ddprun: error: rank 1 on n0: exit status 9, 0.4 s after its start\n"
          "  rank 4: stopped by ddprun (SIGTERM)\n"
          "  rank 5: exit status 1\n");
}
END_TEST

START_TEST(a_node_that_leaves_reports_the_reason)
{
    const struct member_end end = {.exit_code = 143,
                                   .signal = SIGTERM,
                                   .outcome = MESSAGE_ENDED,
                                   .rank = MESSAGE_NO_RANK,
                                   .text = "SIGTERM"};
    begin_job();
    step((struct supervisor_event){SUPERVISOR_EV_SIGNAL, .sig = SIGTERM});
    exited_late(0, SIGTERM, false);
    exited_late(1, SIGTERM, true);
    end_job(&end);
    check("ddprun: note: stopped by SIGTERM after 1 h 2 min\n"
          "  ranks 4-5: stopped by ddprun (SIGTERM)\n");
}
END_TEST

START_TEST(without_a_started_rank_no_rank_is_reported)
{
    const struct member_end end = {
        .exit_code = 69,
        .by_roster = true,
        .outcome = MESSAGE_MISSING,
        .rank = MESSAGE_NO_RANK,
        .text = "timed out after 600 s waiting for nodes: 1 of at least 2 have joined"};
    create(&(struct supervisor_limits){.n_ranks = 2, .window = 2, .has_others = true});
    job = (struct report_job){0};
    r.job = &job;
    end_job(&end);
    check("ddprun: error: timed out after 600 s waiting for nodes: 1 of at least 2 have joined\n");
}
END_TEST

START_TEST(a_successful_job_of_several_nodes_has_no_report)
{
    const struct member_end end = {
        .by_roster = true, .outcome = MESSAGE_WELL, .rank = MESSAGE_NO_RANK, .text = ""};
    begin_job();
    exited_late(0, 0, false);
    exited_late(1, 0, true);
    end_job(&end);
    check("");
}
END_TEST

TEST_SUITE(report)
{
    Suite *suite = suite_create("report");
    TCase *c = tcase_create("report");
    tcase_add_test(c, a_successful_job_has_no_report);
    tcase_add_test(c, the_failed_rank_is_first_and_the_others_are_grouped);
    tcase_add_test(c, a_forwarded_signal_is_reported_as_ddpruns);
    tcase_add_test(c, after_a_shrink_ranks_have_their_new_numbers);
    tcase_add_test(c, a_restart_after_a_shrink_names_the_new_number_of_a_rank);
    tcase_add_test(c, a_rank_that_was_stopped_while_it_failed_is_marked);
    tcase_add_test(c, a_restart_for_no_rank_names_none);
    tcase_add_test(c, a_restart_is_one_line);
    tcase_add_test(c, a_signal_has_a_text);
    tcase_add_test(c, unknown_signals_have_a_number);
    tcase_add_test(c, the_error_and_the_last_lines_are_shown);
    tcase_add_test(c, an_oom_kill_precedes_the_ranks_output);
    tcase_add_test(c, few_lines_are_shown_but_the_whole_traceback);
    tcase_add_test(c, a_program_that_cannot_be_executed_takes_one_line);
    tcase_add_test(c, a_process_limit_is_explained);
    tcase_add_test(c, a_refused_system_call_is_explained);
    tcase_add_test(c, a_stopped_job_reports_its_signal_and_time);
    tcase_add_test(c, the_end_of_the_spawner_is_an_internal_error);
    tcase_add_test(c, a_process_that_hangs_in_the_kernel_is_reported);
    tcase_add_test(c, ranks_have_their_numbers_in_the_job);
    tcase_add_test(c, the_verdict_of_another_node_is_first);
    tcase_add_test(c, a_node_that_leaves_reports_the_reason);
    tcase_add_test(c, without_a_started_rank_no_rank_is_reported);
    tcase_add_test(c, a_successful_job_of_several_nodes_has_no_report);
    suite_add_tcase(suite, c);
    return suite;
}
