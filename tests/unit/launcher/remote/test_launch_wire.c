/* What goes over a launch channel: lines of the node, an order, signals. */
#include "launcher/remote/launch_wire.h"

#include "common/error.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <string.h>

static struct co_error err;
static struct co_buf buf;

static void begin(void)
{
    err = (struct co_error){0};
}

static void end(void)
{
    co_buf_fini(&buf);
}

static int find(enum launch_line which, const char *text, size_t *used, char *from)
{
    return launch_find_line(which, (const uint8_t *)text, strlen(text), used, from, &err);
}

START_TEST(a_node_is_found_after_the_output_of_its_login)
{
    char from[LAUNCH_FROM_BYTES], line[100];
    size_t used;
    launch_print_line(LAUNCH_UP, "fd00::1%eth0", line, sizeof line);
    ck_assert_str_eq(line, "ddprun-launch 1 fd00::1%eth0\n");
    ck_assert_int_eq(find(LAUNCH_UP, "Welcome!\nddprun-launch 1 10.0.0.7\nmore", &used, from), 1);
    ck_assert_str_eq(from, "10.0.0.7");
    ck_assert_uint_eq(used, strlen("Welcome!\nddprun-launch 1 10.0.0.7\n"));
    ck_assert_int_eq(find(LAUNCH_UP, "ddprun-launch 1 -\n", &used, from), 1);
    ck_assert_str_eq(from, "");
    ck_assert_int_eq(find(LAUNCH_READY, "ddprun-launch ready\n", &used, NULL), 1);
    ck_assert_uint_eq(used, strlen("ddprun-launch ready\n"));
}
END_TEST

START_TEST(an_incomplete_line_is_waited_for)
{
    char from[LAUNCH_FROM_BYTES];
    size_t used;
    static const char *const parts[] = {"", "Welcome", "ddprun-lea", "ddprun-launch 1 10.0"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        ck_assert_int_eq(find(LAUNCH_UP, parts[i], &used, from), 0);
    ck_assert_int_eq(find(LAUNCH_READY, "ddprun-launch rea", &used, NULL), 0);
}
END_TEST

START_TEST(other_output_is_not_taken_for_a_node)
{
    static char chatter[LAUNCH_CHATTER_MAX_BYTES + 2];
    char from[LAUNCH_FROM_BYTES];
    size_t used;
    static const char *const bad[] = {
        "ddprun-launch 2 10.0.0.7\n",
        "ddprun-launch one 10.0.0.7\n",
        "ddprun-launch 1\n",
        "ddprun-launch 1 \n",
        "ddprun-launch 1 $(reboot)\n",
        "ddprun-launch 1 1.2.3.4 5\n",
        "ddprun-launch 1 1111:1111:1111:1111:1111:1111:1111:1111:1111:1111:1111:1111:1111\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(find(LAUNCH_UP, bad[i], &used, from) == -EPROTO, "%s", bad[i]);
    memset(chatter, 'x', sizeof chatter - 1);
    ck_assert_int_eq(find(LAUNCH_UP, chatter, &used, from), -E2BIG);
}
END_TEST

START_TEST(a_host_may_request_a_ddprun_of_its_architecture)
{
    char machine[LAUNCH_FROM_BYTES], line[100];
    size_t used;
    launch_print_line(LAUNCH_WANTS, "aarch64", line, sizeof line);
    ck_assert_str_eq(line, "ddprun-launch wants aarch64\n");
    ck_assert_int_eq(find(LAUNCH_WANTS, "Welcome!\nddprun-launch wants x86_64\n", &used, machine),
                     1);
    ck_assert_str_eq(machine, "x86_64");
    ck_assert_uint_eq(used, strlen("Welcome!\nddprun-launch wants x86_64\n"));
    ck_assert_int_eq(find(LAUNCH_WANTS, "ddprun-launch wants x86", &used, machine), 0);
    ck_assert_int_eq(find(LAUNCH_WANTS, "ddprun-launch 1 10.0.0.7\n", &used, machine), 0);
    ck_assert_int_eq(find(LAUNCH_UP, "ddprun-launch wants x86_64\n", &used, machine), -EPROTO);
}
END_TEST

START_TEST(an_architecture_is_a_plain_name)
{
    char machine[LAUNCH_FROM_BYTES];
    size_t used;
    static const char *const bad[] = {
        "ddprun-launch wants \n", "ddprun-launch wants x86 64\n", "ddprun-launch wants \033[2J\n",
        "ddprun-launch wants $(reboot)\n",
        ("ddprun-launch wants "
         "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n")};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(find(LAUNCH_WANTS, bad[i], &used, machine) == -EPROTO, "%s", bad[i]);
}
END_TEST

static char *const words[] = {"ddprun", "-v", "train.py", "", "a b\n", NULL};
static char *const variables[] = {"A=1", "B=", "C=x=y", NULL};
static const struct launch_order whole = {.dir = "/home/me",
                                          .token = "00ff",
                                          .name = "n1",
                                          .run_id = "job7",
                                          .nodes = "2:3",
                                          .host = "",
                                          .port = 29400,
                                          .n_ranks = 8,
                                          .argv = (char **)words,
                                          .env = (char **)variables};

START_TEST(a_launch_request_survives_a_round_trip)
{
    struct launch_order o;
    ck_assert_int_eq(launch_put_order(&whole, &buf), 0);
    size_t len = co_buf_len(&buf);
    ck_assert_int_eq(launch_order_len(NULL, 0), 0);
    for (size_t n = 0; n < len; n++)
        ck_assert_int_eq(launch_order_len(co_buf_bytes(&buf), n), 0);
    ck_assert_int_eq(launch_order_len(co_buf_bytes(&buf), len), (ssize_t)len);
    ck_assert_int_eq(launch_take_order((char *)buf.data + buf.start, len, &o, &err), 0);
    ck_assert_str_eq(o.dir, "/home/me");
    ck_assert_str_eq(o.token, "00ff");
    ck_assert_str_eq(o.name, "n1");
    ck_assert_str_eq(o.run_id, "job7");
    ck_assert_str_eq(o.nodes, "2:3");
    ck_assert_str_eq(o.host, "");
    ck_assert_uint_eq(o.port, 29400);
    ck_assert_uint_eq(o.n_ranks, 8);
    for (size_t i = 0; i <= o.n_argv; i++)
        ck_assert_pstr_eq(o.argv[i], words[i]);
    for (size_t i = 0; i <= o.n_env; i++)
        ck_assert_pstr_eq(o.env[i], variables[i]);
    launch_order_fini(&o);
}
END_TEST

#define ORDER "d/x\0t00\0nn1\0ij\0w1:1\0h\0p1\0l0\0aprogram\0"

START_TEST(an_invalid_launch_request_is_refused)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *text;
    } bad[] = {
#define BAD(bytes, text) {bytes "g", sizeof(bytes "g"), text}
        BAD(ORDER "?\0", "protocol error: the launch request has an unknown part '?'; use the same "
                         "ddprun version on all hosts"),
        BAD(ORDER "\x01\0", "protocol error: the launch request has an unknown part '?'; use the "
                            "same ddprun version on all hosts"),
        BAD(ORDER "n2\0", "protocol error: the launch request has two names; use the same ddprun "
                          "version on all hosts"),
        BAD(ORDER "eA\0", "protocol error: the launch request has an invalid variable"),
        BAD(ORDER "e=1\0", "protocol error: the launch request has an invalid variable"),
        BAD("d/x\0", "protocol error: the launch request has no token; use the same ddprun version "
                     "on all hosts"),
        BAD("",
            "protocol error: the launch request has no directory; use the same ddprun version on "
            "all hosts"),
        BAD("dx\0t00\0nn1\0ij\0w1:1\0h\0p1\0aprogram\0",
            "protocol error: the launch request lacks a command, port, directory, name or run id"),
        BAD("d/x\0t00\0nn1\0ij\0w1:1\0h\0p1\0",
            "protocol error: the launch request lacks a command, port, directory, name or run id"),
        BAD("d/x\0t00\0nn1\0ij\0w1:1\0h\0p0\0aprogram\0",
            "protocol error: the launch request lacks a command, port, directory, name or run id"),
        BAD("p65536\0",
            "invalid value '65536' for the launch request: expected a number from 0 to 65535"),
        BAD("l-1\0",
            "invalid value '-1' for the launch request: expected a number from 0 to 2147483647"),
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct launch_order o;
        char bytes[200];
        memcpy(bytes, bad[i].bytes, bad[i].len);
        ck_assert_int_eq(launch_take_order(bytes, bad[i].len, &o, &err), -EPROTO);
        ck_assert_str_eq(err.text, bad[i].text);
    }
    char open[] = {'g'};
    struct launch_order o;
    ck_assert_int_eq(launch_take_order(open, 1, &o, &err), -EPROTO);
    ck_assert_int_eq(launch_take_order(open, 0, &o, &err), -EPROTO);
}
END_TEST

START_TEST(an_endless_launch_request_is_an_error)
{
    uint8_t *bytes = co_buf_room(&buf, LAUNCH_ORDER_MAX_BYTES + 1);
    ck_assert_ptr_nonnull(bytes);
    memset(bytes, 'a', LAUNCH_ORDER_MAX_BYTES + 1);
    ck_assert_int_eq(launch_order_len(bytes, LAUNCH_ORDER_MAX_BYTES), 0);
    ck_assert_int_eq(launch_order_len(bytes, LAUNCH_ORDER_MAX_BYTES + 1), -E2BIG);
}
END_TEST

START_TEST(signals_arrive_one_by_one)
{
    ck_assert_int_eq(launch_put_signal(2, &buf), 0);
    ck_assert_int_eq(launch_put_signal(15, &buf), 0);
    ck_assert_int_eq(co_buf_append(&buf, "s1", 2), 0);
    ck_assert_int_eq(launch_take_signal(&buf), 2);
    ck_assert_int_eq(launch_take_signal(&buf), 15);
    ck_assert_int_eq(launch_take_signal(&buf), 0);
    ck_assert_int_eq(co_buf_append(&buf, "0", 2), 0);
    ck_assert_int_eq(launch_take_signal(&buf), 10);
    ck_assert_int_eq(launch_take_signal(&buf), 0);
    ck_assert_int_eq(launch_put_signal(LAUNCH_ALL_SAVED, &buf), 0);
    ck_assert_int_eq(launch_take_signal(&buf), LAUNCH_ALL_SAVED);
}
END_TEST

START_TEST(an_invalid_signal_is_refused)
{
    static const char *const bad[] = {"s0", "s66", "s-1", "sx", "s", "x2", "", "s123456789"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        co_buf_fini(&buf);
        ck_assert_int_eq(co_buf_append(&buf, bad[i], strlen(bad[i]) + 1), 0);
        ck_assert_msg(launch_take_signal(&buf) == -EPROTO, "'%s'", bad[i]);
    }
    co_buf_fini(&buf);
    ck_assert_int_eq(co_buf_append(&buf, "s1234567", LAUNCH_SIGNAL_BYTES), 0);
    ck_assert_int_eq(launch_take_signal(&buf), -EPROTO);
}
END_TEST

TEST_SUITE(launch_wire)
{
    Suite *suite = suite_create("launch_wire");
    TCase *c = tcase_create("launch_wire");
    tcase_add_checked_fixture(c, begin, end);
    tcase_add_test(c, a_node_is_found_after_the_output_of_its_login);
    tcase_add_test(c, an_incomplete_line_is_waited_for);
    tcase_add_test(c, other_output_is_not_taken_for_a_node);
    tcase_add_test(c, a_host_may_request_a_ddprun_of_its_architecture);
    tcase_add_test(c, an_architecture_is_a_plain_name);
    tcase_add_test(c, a_launch_request_survives_a_round_trip);
    tcase_add_test(c, an_invalid_launch_request_is_refused);
    tcase_add_test(c, an_endless_launch_request_is_an_error);
    tcase_add_test(c, signals_arrive_one_by_one);
    tcase_add_test(c, an_invalid_signal_is_refused);
    suite_add_tcase(suite, c);
    return suite;
}
