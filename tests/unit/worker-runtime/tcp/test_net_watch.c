/* test_net_watch.c - the cause of a broken job: shortened for the wire, checked after arrival; and
 * the cause that it yields for the failure of a rank that has not joined the others. */
#include "common/error.h"
#include "segments/control.h"
#include "tests/support/suite.h"
#include "worker-runtime/shm/transport_shm.h"
#include "worker-runtime/tcp/net_watch.h"

#include <check.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

START_TEST(a_cause_survives_a_round_trip)
{
    struct net_abort c;
    net_abort_set(&c, -ETIMEDOUT, "rank 3 on node 1 (h\xc3\xb6st) died");
    net_abort_check(&c);
    ck_assert_int_eq(c.code, -ETIMEDOUT);
    ck_assert_str_eq(c.text, "rank 3 on node 1 (h\xc3\xb6st) died");
}
END_TEST

START_TEST(a_too_long_text_is_cut)
{
    char text[2 * NET_ABORT_TEXT_BYTES];
    struct net_abort c;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    net_abort_set(&c, -ECONNRESET, text);
    ck_assert_uint_eq(strlen(c.text), NET_ABORT_TEXT_BYTES - 1);
}
END_TEST

START_TEST(a_text_without_an_end_gets_one)
{
    struct net_abort c = {.code = -ECONNRESET};
    memset(c.text, 'x', sizeof c.text);
    net_abort_check(&c);
    ck_assert_uint_eq(strnlen(c.text, sizeof c.text), NET_ABORT_TEXT_BYTES - 1);
}
END_TEST

START_TEST(control_characters_do_not_reach_a_terminal)
{
    struct net_abort c = {.code = -ECONNRESET, .text = "\x1b[2Jrank 1\n\x7f\xc2\x9b"};
    net_abort_check(&c);
    ck_assert_str_eq(c.text, "?[2Jrank 1????");
}
END_TEST

START_TEST(a_cause_without_a_text_gets_one)
{
    struct net_abort c = {.code = -ECONNRESET};
    net_abort_check(&c);
    ck_assert_str_eq(c.text, "the job is broken on another node");
}
END_TEST

START_TEST(an_invalid_errno_means_a_lost_peer)
{
    static const int32_t codes[] = {0, 1, 104, -4096, INT32_MIN, INT32_MAX};
    struct net_abort c;
    net_abort_set(&c, codes[_i], "rank 1 died");
    net_abort_check(&c);
    ck_assert_int_eq(c.code, -ECONNRESET);
}
END_TEST

/* Judges the failure of a node. Its only rank broke the job with the first code and a text, and
 * then failed with the second. */
static int judge(int told, int own, struct co_error *err)
{
    int fd;
    struct control *control;
    struct transport_shm *shm;
    ck_assert_int_eq(control_create(1, 0, &fd, &control, NULL), 0);
    ck_assert_int_eq(control_join(control, 0, (uint32_t)getpid()), 0);
    const struct transport_shm_opts opts = {.control = control, .timeout_ms = 1000};
    ck_assert_int_eq(transport_shm_create_world(&opts, 0, &shm, NULL), 0);
    control_abort_tell(control, 0, told, "the words of the abort word");
    co_fail(err, own, "the rank's own words");
    const int code = net_watch_judge_failure(shm, own, err);
    transport_shm_destroy(shm);
    control_unmap(control);
    close(fd);
    return code;
}

START_TEST(a_rank_that_cannot_reach_a_dead_one_can_continue)
{
    static const struct {
        int told, own;
    } rows[] = {{-ECONNRESET, -ECONNREFUSED},
                {-ECONNRESET, -EHOSTUNREACH},
                {-ECONNRESET, -ETIMEDOUT},
                {-EHOSTUNREACH, -ECONNREFUSED}};
    struct co_error err;
    ck_assert_int_eq(judge(rows[_i].told, rows[_i].own, &err), -ECONNRESET);
    ck_assert_str_eq(err.text, "the words of the abort word");
}
END_TEST

START_TEST(a_rank_without_a_path_fails_with_its_own_error)
{
    struct co_error err;
    ck_assert_int_eq(judge(-ETIMEDOUT, -EHOSTUNREACH, &err), -EHOSTUNREACH);
    ck_assert_str_eq(err.text, "the rank's own words");
}
END_TEST

TEST_SUITE(net_watch)
{
    Suite *suite = suite_create("net_watch");
    TCase *tcase = tcase_create("all");
    tcase_add_test(tcase, a_cause_survives_a_round_trip);
    tcase_add_test(tcase, a_too_long_text_is_cut);
    tcase_add_test(tcase, a_text_without_an_end_gets_one);
    tcase_add_test(tcase, control_characters_do_not_reach_a_terminal);
    tcase_add_test(tcase, a_cause_without_a_text_gets_one);
    tcase_add_loop_test(tcase, an_invalid_errno_means_a_lost_peer, 0, 6);
    tcase_add_loop_test(tcase, a_rank_that_cannot_reach_a_dead_one_can_continue, 0, 4);
    tcase_add_test(tcase, a_rank_without_a_path_fails_with_its_own_error);
    suite_add_tcase(suite, tcase);
    return suite;
}
