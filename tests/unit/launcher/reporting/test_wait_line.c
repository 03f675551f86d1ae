/* The line that names what the job waits for, and when ddprun repeats it. */
#include "launcher/reporting/wait_line.h"

#include "common/clock.h"
#include "rendezvous/membership/message.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static struct wait_text t;

START_TEST(each_wait_has_a_text)
{
    static const struct {
        struct message_progress p;
        const char *line;
    } cases[] = {
        {{MESSAGE_WAIT_NODES, 6, 8, 12345, 587655, 2, 2, {"node5", "node6"}},
         "waiting for 2 of 8 nodes, 12 s of 600 s: node5 node6"},
        {{MESSAGE_WAIT_NODES, 1, 2, 999, UINT64_MAX, 0, 0, {NULL}},
         "waiting for 1 of 2 nodes, 0 s"},
        {{MESSAGE_WAIT_NODES, 2, 99, 0, UINT64_MAX, 97, 2, {"a", "b"}},
         "waiting for 97 of 99 nodes, 0 s: a b and 95 more"},
        {{MESSAGE_WAIT_WINDOW, 2, 4, 1000, 2000, 0, 0, {NULL}},
         "2 nodes joined, waiting for up to 2 more, 1 s of 3 s"},
        {{MESSAGE_WAIT_WINDOW, 1, 2, 1000, 2000, 0, 0, {NULL}},
         "1 node joined, waiting for up to 1 more, 1 s of 3 s"},
        {{MESSAGE_WAIT_STORE, 2, 2, 1000, 9000, 1, 1, {"n1"}},
         "waiting for the store to open, 1 s of 10 s: n1"},
        {{MESSAGE_WAIT_STOP, 2, 2, 3000, UINT64_MAX, 1, 1, {"n1"}},
         "waiting for 1 node to stop, 3 s: n1"},
        {{MESSAGE_WAIT_STOP, 2, 2, 3000, UINT64_MAX, 2, 2, {"n1", "n2"}},
         "waiting for 2 nodes to stop, 3 s: n1 n2"},
        {{MESSAGE_WAIT_PAUSE, 2, 2, 1000, 1000, 0, 0, {NULL}},
         "waiting before the restart, 1 s of 2 s"},
        {{MESSAGE_WAIT_PLACE, 2, 2, 7000, UINT64_MAX, 0, 0, {NULL}},
         "the job has all its nodes, this node is a spare, 7 s"},
        {{MESSAGE_WAIT_CHECKPOINT, 2, 2, 7000, UINT64_MAX, 0, 0, {NULL}},
         "waiting for the job's next checkpoint, to join it, 7 s"},
        {{MESSAGE_WAIT_NOTHING, 2, 2, 7000, UINT64_MAX, 0, 0, {NULL}}, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wait_text_progress(&t, &cases[i].p);
        ck_assert_str_eq(t.line, cases[i].line);
    }
}
END_TEST

START_TEST(a_search_names_the_endpoint_and_the_error)
{
    wait_text_seek(&t, "n1:29400", "", 2000, 598000);
    ck_assert_str_eq(t.line, "waiting for the rendezvous endpoint n1:29400, 2 s of 600 s");
    wait_text_seek(&t, "n1:29400", "connection refused", 2000, UINT64_MAX);
    ck_assert_str_eq(t.line,
                     "waiting for the rendezvous endpoint n1:29400, 2 s: connection refused");
    wait_text_unsaid(&t, "--master-addr");
    ck_assert_str_eq(t.line, "waiting for the rendezvous endpoint n1:29400, 2 s: connection "
                             "refused; without --master-addr, only nodes on this machine can join");
}
END_TEST

START_TEST(the_longest_names_fit_or_are_cut)
{
    static char name[MESSAGE_NAME_BYTES];
    struct message_progress p = {.wait = MESSAGE_WAIT_NODES,
                                 .n_wanted = 8,
                                 .left_ms = UINT64_MAX,
                                 .n_all_names = 8,
                                 .n_names = MESSAGE_MAX_NAMES};
    memset(name, 'n', sizeof name - 1);
    for (int i = 0; i < MESSAGE_MAX_NAMES; i++)
        p.names[i] = name;
    wait_text_progress(&t, &p);
    ck_assert_uint_gt(strlen(t.line), 8 * (sizeof name - 1));
    static char why[MESSAGE_TEXT_BYTES * 4];
    memset(why, 'w', sizeof why - 1);
    wait_text_seek(&t, name, why, 0, 0);
    ck_assert_uint_eq(strlen(t.line), sizeof t.line - 1);
    wait_text_unsaid(&t, "--master-addr");
    ck_assert_uint_eq(strlen(t.line), sizeof t.line - 1);
}
END_TEST

static enum wait_news look(struct wait_line *w, uint32_t n_here, uint64_t now_ms)
{
    struct message_progress p = {.wait = MESSAGE_WAIT_NODES,
                                 .n_here = n_here,
                                 .n_wanted = 3,
                                 .elapsed_ms = now_ms,
                                 .left_ms = UINT64_MAX};
    wait_text_progress(&t, &p);
    return wait_line_look(w, &t, now_ms);
}

START_TEST(a_line_is_printed_on_a_change_or_after_a_while)
{
    struct wait_line w = {0};
    ck_assert_int_eq(look(&w, 1, 1000), WAIT_CHANGED);
    ck_assert_int_eq(look(&w, 1, 2000), WAIT_TIMES);
    ck_assert_int_eq(look(&w, 2, 3000), WAIT_CHANGED);
    ck_assert_int_eq(look(&w, 2, 3000 + WAIT_LINE_EVERY_MS - 1), WAIT_TIMES);
    ck_assert_int_eq(look(&w, 2, 3000 + WAIT_LINE_EVERY_MS), WAIT_CHANGED);
    wait_text_progress(&t, &(struct message_progress){.wait = MESSAGE_WAIT_NOTHING});
    ck_assert_int_eq(wait_line_look(&w, &t, 99000), WAIT_NOTHING);
}
END_TEST

TEST_SUITE(wait_line)
{
    Suite *suite = suite_create("wait_line");
    TCase *c = tcase_create("wait_line");
    tcase_add_test(c, each_wait_has_a_text);
    tcase_add_test(c, a_search_names_the_endpoint_and_the_error);
    tcase_add_test(c, the_longest_names_fit_or_are_cut);
    tcase_add_test(c, a_line_is_printed_on_a_change_or_after_a_while);
    suite_add_tcase(suite, c);
    return suite;
}
