/* The list of checks, and their rules. */
#include "launcher/health/health_checks.h"

#include "common/error.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct health_checks c;
static struct health_facts first, now;
static struct health_clock clock_of;
static struct co_error err;
static char text[HEALTH_TEXT_BYTES];

static void set_up(void)
{
    c = (struct health_checks){.n_disks = 0};
    clock_of = (struct health_clock){.is_known = false};
    first = (struct health_facts){.memory_free = HEALTH_UNKNOWN};
    now = first;
}

static void tear_down(void)
{
    health_checks_fini(&c);
}

static void parse(const char *list)
{
    health_checks_fini(&c);
    ck_assert_msg(health_checks_parse("--health-builtin", list, &c, &err) == 0, "%s", err.text);
}

static void assert_refused(const char *list, const char *why)
{
    health_checks_fini(&c);
    ck_assert_int_lt(health_checks_parse("--health-builtin", list, &c, &err), 0);
    ck_assert_msg(strstr(err.text, why) != NULL, "'%s' instead of '%s'", err.text, why);
}

static void assert_healthy(void)
{
    ck_assert_msg(health_checks_judge(&c, "/logs", &first, &now, &clock_of, text), "%s", text);
}

static void assert_reason(const char *expected)
{
    ck_assert(!health_checks_judge(&c, "/logs", &first, &now, &clock_of, text));
    ck_assert_str_eq(text, expected);
}

START_TEST(a_list_names_what_is_checked)
{
    parse("gpu,disk=/ckpt:2G,memory=8G,clock=500ms,network=ib0,network=mlx5_0/1");
    ck_assert(c.gpu && c.memory && c.clock && c.network);
    ck_assert_uint_eq(c.n_disks, 1);
    ck_assert_str_eq(c.disks[0].path, "/ckpt");
    ck_assert_uint_eq(c.disks[0].free_min, (uint64_t)2 << 30);
    ck_assert_uint_eq(c.memory_min, (uint64_t)8 << 30);
    ck_assert_uint_eq(c.clock_max_ms, 500);
    ck_assert_uint_eq(c.n_links, 2);
    ck_assert_str_eq(c.links[1], "mlx5_0/1");
    parse("default");
    ck_assert(c.gpu && c.n_disks == 1 && !c.memory && !c.clock && !c.network);
    parse("all");
    ck_assert(c.gpu && c.n_disks == 1 && c.memory && c.clock && c.network && c.n_links == 0);
    parse("none");
    ck_assert(!health_checks_any(&c));
}
END_TEST

START_TEST(what_is_wrong_in_a_list_is_named)
{
    char many[HEALTH_DISKS_MAX * 8 + 16] = "", long_name[64] = "network=";
    assert_refused("", "invalid value '' for --health-builtin");
    assert_refused("gpu,", "invalid value ''");
    assert_refused("gpus", "invalid value 'gpus'");
    assert_refused("gpu=1", "gpu has no value");
    assert_refused("default=1", "default has no value");
    assert_refused("none=", "none has no value");
    assert_refused("disk=", "expected disk=DIR");
    assert_refused("disk=relative", "expected disk=DIR");
    assert_refused("disk=/a:much", "much");
    assert_refused("memory=0", "0");
    assert_refused("clock=x", "x");
    assert_refused("network=", "expected the name of an interface");
    memset(long_name + 8, 'x', HEALTH_LINK_BYTES);
    assert_refused(long_name, "expected the name of an interface");
    for (int i = 0; i <= HEALTH_DISKS_MAX; i++)
        strcat(many, i == 0 ? "disk=/a" : ",disk=/a");
    assert_refused(many, "too many disks");
}
END_TEST

START_TEST(random_lists_are_refused_or_understood)
{
    static const char letters[] = "gpudiskmemory=,:/0123456789 \x01\xff";
    uint64_t state = 88172645463325252u;
    for (int i = 0; i < 20000; i++) {
        char list[40];
        size_t n = 0;
        for (; n < sizeof list - 1; n++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            if (state % 30 == 0)
                break;
            list[n] = letters[state / 64 % (sizeof letters - 1)];
        }
        list[n] = '\0';
        health_checks_fini(&c);
        health_checks_parse("x", list, &c, &err);
    }
}
END_TEST

START_TEST(unknown_facts_break_no_rule)
{
    parse("all,disk=/x");
    assert_healthy();
    ck_assert(health_checks_judge(&c, NULL, NULL, &now, &clock_of, text));
}
END_TEST

START_TEST(memory_and_disks_have_minima)
{
    parse("memory=1G,disk=/ckpt:1G,disk");
    now.n_disks = 2;
    now.memory_free = (uint64_t)1 << 30;
    now.disks[0].free_bytes = now.disks[1].free_bytes = (uint64_t)1 << 30;
    assert_healthy();
    now.memory_free--;
    assert_reason("memory: 1023 MiB are free, expected 1024 MiB");
    now.memory_free++;
    now.disks[1].free_bytes = 0;
    assert_reason("disk: /logs has 0 MiB free, expected 16 MiB");
    now.disks[0].error = EROFS;
    assert_reason("disk: /ckpt: Read-only file system");
}
END_TEST

START_TEST(a_clock_may_be_off_by_its_bound_and_the_uncertainty)
{
    parse("clock=1s");
    clock_of = (struct health_clock){.is_known = true, .ahead_ms = 1500, .error_ms = 500};
    assert_healthy();
    clock_of.ahead_ms = -1501;
    assert_reason("clock: it is 1.501 s earlier than the coordinator's (uncertainty 0.500 s)");
    clock_of.ahead_ms = INT64_MIN;
    ck_assert(!health_checks_judge(&c, NULL, NULL, &now, &clock_of, text));
}
END_TEST

START_TEST(a_link_that_was_up_must_stay_up_and_a_named_one_must_be_up)
{
    parse("network");
    first.n_links = now.n_links = 2;
    strcpy(first.links[0].name, "eth0");
    strcpy(first.links[1].name, "eth1");
    first.links[0].is_up = true;
    memcpy(now.links, first.links, sizeof now.links);
    assert_healthy(); /* eth1 was down */
    now.links[0].is_up = false;
    assert_reason("network: eth0 was up when ddprun started, and is down");
    now.n_links = 0;
    assert_reason("network: eth0 was up when ddprun started, and is missing");
    now.n_links = 2;
    now.links[0].is_up = true;
    parse("network=eth1");
    assert_reason("network: eth1 is down");
}
END_TEST

START_TEST(a_gpu_may_need_what_a_restart_does_not_give)
{
    parse("gpu");
    first.n_gpus = now.n_gpus = 2;
    assert_healthy();
    now.gpus[1].error = 15;
    assert_reason("gpu: GPU 1 does not answer (NVML error 15)");
    now.gpus[1].error = 0;
    now.gpus[1].action = 1;
    assert_reason("gpu: GPU 1 needs a reset (recovery action 1)");
    now.gpus[1].action = 2;
    assert_reason("gpu: GPU 1 needs a reboot of the node (recovery action 2)");
    now.gpus[1].action = 4; /* less capacity; what runs is safe */
    assert_healthy();
    now.gpus[1].action = 99;
    assert_healthy();
    now.gpus[1].xid = 79;
    assert_reason("gpu: GPU 1 had Xid 79, which needs a reset");
    now.gpus[1].xid = 0;
    first.gpus[0].ecc_errors = 3; /* old ones */
    now.gpus[0].ecc_errors = 3;
    assert_healthy();
    now.gpus[0].ecc_errors = 5;
    assert_reason("gpu: GPU 0 had 2 uncorrectable memory errors since ddprun started");
    now.gpus[0].ecc_errors = 3;
    now.gpus[0].used_bytes = (uint64_t)40 << 30;
    assert_reason("gpu: 40960 MiB of GPU 0 are in use, but no process has them");
    ck_assert(health_checks_keeps_memory(&first, &now));
    now.gpus[0].n_processes = 1; /* of another job */
    assert_healthy();
    now.n_gpus = 1;
    assert_reason("gpu: 1 GPUs, but there were 2 when ddprun started");
    strcpy(now.gpu_trouble, "NVML cannot be used: no");
    assert_reason("gpu: NVML cannot be used: no");
}
END_TEST

START_TEST(xids_of_program_errors_are_not_fatal)
{
    static const uint64_t harmless[] = {13, 31, 43, 45, 63, 94, 154};
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        ck_assert(!health_checks_is_fatal_xid(harmless[i]));
    ck_assert(health_checks_is_fatal_xid(79) && health_checks_is_fatal_xid(48));
}
END_TEST

TEST_SUITE(health_checks)
{
    Suite *suite = suite_create("health_checks");
    TCase *tc = tcase_create("health_checks");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, a_list_names_what_is_checked);
    tcase_add_test(tc, what_is_wrong_in_a_list_is_named);
    tcase_add_test(tc, random_lists_are_refused_or_understood);
    tcase_add_test(tc, unknown_facts_break_no_rule);
    tcase_add_test(tc, memory_and_disks_have_minima);
    tcase_add_test(tc, a_clock_may_be_off_by_its_bound_and_the_uncertainty);
    tcase_add_test(tc, a_link_that_was_up_must_stay_up_and_a_named_one_must_be_up);
    tcase_add_test(tc, a_gpu_may_need_what_a_restart_does_not_give);
    tcase_add_test(tc, xids_of_program_errors_are_not_fatal);
    suite_add_tcase(suite, tc);
    return suite;
}
