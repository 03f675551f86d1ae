/* The process that reads facts, with a MOCK of NVML: the six ways in which a GPU fails. */
#include "launcher/health/health_probe.h"

#include "common/error.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct health_probe p;
static struct health_checks c;
static struct health_facts first, now;
static char mock[] = "/tmp/mock_nvml_XXXXXX", text[HEALTH_TEXT_BYTES];

static bool asks_fabric;

static void put(const char *lines)
{
    FILE *f = fopen(mock, "w");
    ck_assert_ptr_nonnull(f);
    fputs(lines, f);
    ck_assert_int_eq(fclose(f), 0);
}

static void start(const char *library)
{
    struct co_error err;
    const struct health_probe_opts opts = {
        .checks = &c, .root = "", .nvml = library, .fabric = asks_fabric};
    ck_assert_msg(health_probe_start(&opts, &p, &err) == 0, "%s", err.text);
}

static void set_up(void)
{
    strcpy(mock, "/tmp/mock_nvml_XXXXXX");
    const int fd = mkstemp(mock);
    ck_assert_int_ge(fd, 0);
    close(fd);
    ck_assert_int_eq(setenv("MOCK_NVML", mock, 1), 0);
    c = (struct health_checks){.gpu = true};
    p = (struct health_probe){.sock = -1};
    asks_fabric = false;
}

static void tear_down(void)
{
    health_probe_stop(&p);
    unlink(mock);
}

/* returns   what health_probe_receive() does, within a long time */
static int await_answer(struct health_facts *ret)
{
    struct pollfd fd = {.fd = p.sock, .events = POLLIN};
    ck_assert_int_eq(poll(&fd, 1, 60000), 1);
    return health_probe_receive(&p, ret);
}

static void ask(const struct health_facts *since, struct health_facts *ret)
{
    ck_assert_int_eq(health_probe_ask(&p, since, 0), 0);
    ck_assert_int_eq(await_answer(ret), 1);
}

static void begin(const char *lines)
{
    put(lines);
    start(getenv("MOCK_NVML_LIBRARY"));
    ask(NULL, &first);
}

static void assert_reason(const char *expected)
{
    const struct health_clock clock_of = {.is_known = false};
    ask(&first, &now);
    ck_assert_msg(!health_checks_judge(&c, NULL, &first, &now, &clock_of, text), "healthy");
    ck_assert_str_eq(text, expected);
}

static void assert_healthy(void)
{
    const struct health_clock clock_of = {.is_known = false};
    ask(&first, &now);
    ck_assert_msg(health_checks_judge(&c, NULL, &first, &now, &clock_of, text), "%s", text);
}

START_TEST(a_machine_without_nvml_is_healthy)
{
    start("/nowhere/libnvidia-ml.so.1");
    ask(NULL, &first);
    ck_assert_uint_eq(first.n_gpus, 0);
    ck_assert_str_eq(first.gpu_trouble, "");
}
END_TEST

START_TEST(a_machine_whose_driver_is_not_loaded_is_healthy)
{
    begin("init 9\n");
    ck_assert_uint_eq(first.n_gpus, 0);
    ck_assert_str_eq(first.gpu_trouble, "");
}
END_TEST

START_TEST(an_nvml_that_cannot_begin_is_a_reason)
{
    begin("init 18\n");
    assert_reason("gpu: NVML cannot be used: Driver/library version mismatch");
}
END_TEST

START_TEST(a_lost_gpu_is_a_reason)
{
    begin("count 2\n");
    assert_healthy();
    ck_assert_uint_eq(now.n_gpus, 2);
    put("count 2\nlost 1 15\n");
    assert_reason("gpu: GPU 1 does not answer (NVML error 15)");
}
END_TEST

START_TEST(a_recovery_action_is_a_reason_until_it_was_taken)
{
    begin("action 0 2\n");
    assert_reason("gpu: GPU 0 needs a reboot of the node (recovery action 2)");
    put("action 0 1\n");
    assert_reason("gpu: GPU 0 needs a reset (recovery action 1)");
    put("");
    assert_healthy();
}
END_TEST

START_TEST(new_memory_errors_are_a_reason)
{
    begin("ecc 0 7\n");
    assert_healthy();
    put("ecc 0 8\n");
    assert_reason("gpu: GPU 0 had 1 uncorrectable memory errors since ddprun started");
}
END_TEST

START_TEST(a_fatal_xid_is_a_reason_for_good_and_that_of_a_program_is_none)
{
    begin("");
    put("xid 0 31\n");
    assert_healthy();
    tear_down();
    set_up();
    begin("");
    put("xid 0 79\n");
    assert_reason("gpu: GPU 0 had Xid 79, which needs a reset");
    assert_reason("gpu: GPU 0 had Xid 79, which needs a reset");
}
END_TEST

START_TEST(memory_that_a_dead_process_has_not_given_back_is_a_reason)
{
    begin("used 0 400\n");
    put("used 0 40000\nprocesses 0 1\n");
    assert_healthy();
    put("used 0 40000\n");
    assert_reason("gpu: 39600 MiB of GPU 0 are in use, but no process has them");
    put("used 0 400\n");
    assert_healthy();
}
END_TEST

START_TEST(memory_that_is_given_back_in_time_is_waited_for)
{
    begin("");
    put("used 0 40000\n");
    ck_assert_int_eq(health_probe_ask(&p, &first, 60000), 0);
    struct pollfd fd = {.fd = p.sock, .events = POLLIN};
    ck_assert_int_eq(poll(&fd, 1, 300), 0); /* it looks again and again */
    put("");
    ck_assert_int_eq(await_answer(&now), 1);
    ck_assert_uint_eq(now.gpus[0].used_bytes, 0);
}
END_TEST

START_TEST(a_driver_that_hangs_holds_only_that_process)
{
    begin("");
    put("hang 1\n");
    ck_assert_int_eq(health_probe_ask(&p, &first, 0), 0);
    struct pollfd fd = {.fd = p.sock, .events = POLLIN};
    ck_assert_int_eq(poll(&fd, 1, 200), 0);
    ck_assert_int_eq(health_probe_receive(&p, &now), -EAGAIN);
    health_probe_stop(&p);
    ck_assert_int_eq(p.pid, 0);
    put("");
    start(getenv("MOCK_NVML_LIBRARY"));
    ask(&first, &now);
    ck_assert_uint_eq(now.n_gpus, 1);
}
END_TEST

START_TEST(killed_processes_are_reaped_and_their_number_is_bounded)
{
    struct co_error err;
    const struct health_probe_opts opts = {.checks = &c, .root = "", .nvml = "/nowhere.so"};
    start(opts.nvml);
    const pid_t killed = p.pid;
    health_probe_stop(&p);
    while (kill(killed, 0) == 0) /* until a call has reaped it */
        health_probe_stop(&p);
    for (int i = 0; i < HEALTH_PROBE_HELD_MAX; i++) { /* as if the kernel held them */
        p.held[i] = fork();
        if (p.held[i] == 0)
            for (;;)
                pause();
    }
    ck_assert_int_eq(health_probe_start(&opts, &p, &err), -EBUSY);
    ck_assert_str_eq(err.text, "a file system or a driver holds the processes of 4 checks");
    for (int i = 0; i < HEALTH_PROBE_HELD_MAX; i++) {
        ck_assert_int_eq(kill(p.held[i], SIGKILL), 0);
        ck_assert_int_eq(waitpid(p.held[i], NULL, 0), p.held[i]);
    }
    start(opts.nvml);
    ck_assert_int_eq(p.held[0], 0);
}
END_TEST

START_TEST(the_end_of_the_process_is_seen)
{
    begin("");
    ck_assert_int_eq(kill(p.pid, SIGKILL), 0);
    ck_assert_int_eq(await_answer(&now), 0);
    ck_assert_int_eq(waitpid(p.pid, NULL, 0), p.pid);
    p.pid = 0;
}
END_TEST

static void assert_no_fabric(const char *lines, const char *trouble)
{
    put(lines);
    ask(NULL, &now);
    ck_assert_str_eq(now.fabric, "");
    ck_assert_str_eq(now.fabric_trouble, trouble);
}

START_TEST(the_nvlink_domain_is_that_of_all_gpus)
{
    asks_fabric = true;
    begin("count 2\nfabric 7\nclique 0 3\nclique 1 3\n");
    ck_assert_str_eq(first.fabric, "00000000-0000-0000-0000-000000000007.3");
    ck_assert_str_eq(first.fabric_trouble, "");
    assert_no_fabric("count 2\nfabric 7\nclique 0 3\nclique 1 4\n",
                     "GPUs 0 and 1 are in different NVLink domains");
    assert_no_fabric("count 2\n", "GPU 0 is in no NVLink domain");
    assert_no_fabric("count 2\nfabric 256\n", "the NVLink domain of GPU 0 is this node only");
    assert_no_fabric("count 2\nfabric 7\nlost 1 15\n", "GPU 1 does not answer (NVML error 15)");
}
END_TEST

START_TEST(without_nvml_there_is_no_nvlink_domain)
{
    asks_fabric = true;
    c.gpu = false;
    start("/nowhere/libnvidia-ml.so.1");
    assert_no_fabric("", "NVML was not found, or has no GPU");
}
END_TEST

START_TEST(an_nvml_that_cannot_begin_has_no_nvlink_domain)
{
    asks_fabric = true;
    begin("init 18\n");
    ck_assert_str_eq(first.fabric_trouble, "NVML cannot be used: Driver/library version mismatch");
}
END_TEST

START_TEST(the_nvlink_domain_is_read_only_if_asked_for)
{
    begin("fabric 7\n");
    ck_assert_str_eq(first.fabric, "");
    ck_assert_str_eq(first.fabric_trouble, "");
}
END_TEST

TEST_SUITE(health_probe)
{
    Suite *suite = suite_create("health_probe");
    TCase *tc = tcase_create("health_probe");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, a_machine_without_nvml_is_healthy);
    tcase_add_test(tc, a_machine_whose_driver_is_not_loaded_is_healthy);
    tcase_add_test(tc, an_nvml_that_cannot_begin_is_a_reason);
    tcase_add_test(tc, a_lost_gpu_is_a_reason);
    tcase_add_test(tc, a_recovery_action_is_a_reason_until_it_was_taken);
    tcase_add_test(tc, new_memory_errors_are_a_reason);
    tcase_add_test(tc, a_fatal_xid_is_a_reason_for_good_and_that_of_a_program_is_none);
    tcase_add_test(tc, memory_that_a_dead_process_has_not_given_back_is_a_reason);
    tcase_add_test(tc, memory_that_is_given_back_in_time_is_waited_for);
    tcase_add_test(tc, a_driver_that_hangs_holds_only_that_process);
    tcase_add_test(tc, killed_processes_are_reaped_and_their_number_is_bounded);
    tcase_add_test(tc, the_end_of_the_process_is_seen);
    tcase_add_test(tc, the_nvlink_domain_is_that_of_all_gpus);
    tcase_add_test(tc, without_nvml_there_is_no_nvlink_domain);
    tcase_add_test(tc, an_nvml_that_cannot_begin_has_no_nvlink_domain);
    tcase_add_test(tc, the_nvlink_domain_is_read_only_if_asked_for);
    suite_add_tcase(suite, tc);
    return suite;
}
