/* A history is made of the lines of a job's events; what has to be done comes of what the ranks do.
 * Bad files are data: of tests/data/replay/bad/CASE `input` is refused with the text in `error`. */
#include "common/error.h"
#include "launcher/reporting/replay.h"
#include "launcher/reporting/replay_read.h"

#include "tests/support/cases.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct replay *replay;
static struct co_error err;
static struct replay_action actions[REPLAY_MAX_DEEDS];

static void tear_down(void)
{
    replay_destroy(replay);
    replay = NULL;
}

#define HEAD "{\"v\":1,\"t\":1.5,\"ms\":2,\"job\":\"j\","
#define SINGLE(more)                                                                               \
    HEAD "\"ev\":\"job_start\",\"gen\":0,\"node\":0,\"host\":\"h\",\"ranks\":3}\n" more
#define EVENT(name, gen, node, more)                                                               \
    HEAD "\"ev\":\"" name "\",\"gen\":" #gen ",\"node\":" #node ",\"host\":\"h\"," more "}\n"
#define EXIT(gen, node, rank, how, step)                                                           \
    EVENT("rank_exit", gen, node, "\"rank\":" #rank "," how ",\"lost_peer\":false,\"step\":" #step)
#define KILLED "\"code\":null,\"signal\":\"SIGKILL\""
#define CODE_3 "\"code\":3,\"signal\":null"
#define STEPS(gen, node, before, after, lives)                                                     \
    EVENT("steps", gen, node, "\"before\":" #before ",\"after\":" #after ",\"lives\":" #lives)
#define PLACE(gen, node, pid, nodes, world)                                                        \
    EVENT("rdzv", gen, node,                                                                       \
          "\"nodes\":" #nodes ",\"world\":" #world ",\"rank\":" #node                              \
          ",\"ranks\":1,\"pid\":" #pid)
#define END(gen, node) EVENT("job_end", gen, node, "\"code\":0")

static int read_text(const char *text)
{
    FILE *in = fmemopen((char *)text, strlen(text), "r");
    int rc = replay_read(in, "FILE", &replay, &err);
    fclose(in);
    return rc;
}

static void expect_read(const char *text)
{
    int rc = read_text(text);
    ck_assert_msg(rc == 0, "%s", err.text);
}

static uint64_t hold_of(uint32_t generation)
{
    uint64_t steps = UINT64_MAX;
    return replay_find_hold(replay, generation, &steps) ? steps : UINT64_MAX;
}

/* held: a letter for each rank of the node: h it waits, r it runs, - it does not. */
static size_t look(uint32_t generation, uint32_t node, uint32_t first_rank, const char *ranks)
{
    bool held[8], runs[8];
    for (size_t i = 0; ranks[i] != '\0'; i++) {
        held[i] = ranks[i] == 'h';
        runs[i] = ranks[i] != '-';
    }
    return replay_look(replay,
                       &(struct replay_view){.generation = generation,
                                             .node = node,
                                             .first_rank = first_rank,
                                             .n_local = (uint32_t)strlen(ranks),
                                             .held = held,
                                             .runs = runs},
                       actions);
}

#define TWO_DEATHS                                                                                 \
    SINGLE(EXIT(0, 0, 1, KILLED, 41) STEPS(0, 0, 0, 41, true) EXIT(1, 0, 2, CODE_3, 57)            \
               STEPS(1, 0, 40, 57, true) STEPS(2, 0, 57, 90, false) END(2, 0))

START_TEST(ranks_wait_behind_the_step_that_counted_for_those_that_lived_on)
{
    expect_read(TWO_DEATHS);
    ck_assert_uint_eq(replay_n_generations(replay), 3);
    ck_assert_uint_eq(hold_of(0), 40); /* step 41 died with rank 1 */
    ck_assert_uint_eq(hold_of(1), 57);
    ck_assert_uint_eq(hold_of(2), UINT64_MAX);
    ck_assert_uint_eq(hold_of(3), UINT64_MAX);
}
END_TEST

START_TEST(a_rank_is_killed_once_when_it_waits_and_counts_as_it_had_ended)
{
    expect_read(TWO_DEATHS);
    ck_assert_uint_eq(look(0, 0, 0, "hrr"), 0);
    ck_assert_uint_eq(look(0, 0, 0, "rhr"), 1);
    ck_assert_int_eq(actions[0].type, REPLAY_KILL);
    ck_assert_uint_eq(actions[0].rank, 1);
    ck_assert_int_eq(actions[0].status, SIGKILL);
    ck_assert_uint_eq(look(0, 0, 0, "hhh"), 0);
    ck_assert_uint_eq(look(1, 0, 0, "hhh"), 1);
    ck_assert_uint_eq(actions[0].rank, 2);
    ck_assert_int_eq(actions[0].status, 3 << 8);
    ck_assert_uint_eq(look(2, 0, 0, "hhh"), 0);
    ck_assert_uint_eq(look(3, 0, 0, "hhh"), 0);
}
END_TEST

START_TEST(where_all_ranks_start_again_the_last_step_of_who_failed_counts)
{
    expect_read(SINGLE(EXIT(0, 0, 1, KILLED, 41)
                           EVENT("stop", 0, 0, "\"why\":\"failure\",\"rank\":1")
                               EXIT(0, 0, 0, "\"code\":null,\"signal\":\"SIGTERM\"", 40)
                                   STEPS(0, 0, 0, 41, false) STEPS(1, 0, 0, 9, false) END(1, 0)));
    ck_assert_uint_eq(hold_of(0), 41);
    ck_assert_uint_eq(look(0, 0, 0, "hhh"), 1); /* those that were stopped are stopped again */
    ck_assert_uint_eq(actions[0].rank, 1);
}
END_TEST

START_TEST(a_consequence_is_not_repeated_but_whom_ddprun_blamed)
{
    expect_read(SINGLE(EVENT("rank_exit", 0, 0,
                             "\"rank\":0,\"code\":1,\"signal\":null,\"lost_peer\":true,\"step\":7")
                           EVENT("stop", 0, 0, "\"why\":\"failure\",\"rank\":2")
                               EXIT(0, 0, 2, KILLED, null) STEPS(0, 0, 0, 7, false)
                                   EVENT("job_end", 0, 0, "\"code\":137")));
    ck_assert_uint_eq(hold_of(0), 7);
    ck_assert_uint_eq(look(0, 0, 0, "hhh"), 1);
    ck_assert_uint_eq(actions[0].rank, 2);
}
END_TEST

START_TEST(a_generation_whose_ranks_never_met_ends_where_the_one_before_did)
{
    expect_read(SINGLE(EXIT(0, 0, 1, KILLED, 5) STEPS(0, 0, 0, 5, true) EXIT(1, 0, 1, KILLED, null)
                           STEPS(1, 0, null, 0, true) STEPS(2, 0, 5, 8, false) END(2, 0)));
    ck_assert_uint_eq(hold_of(0), 5);
    ck_assert_uint_eq(hold_of(1), 5);
}
END_TEST

/* Of two nodes with a rank each the second one goes, then another one comes. */
#define A_NODE_GOES(how)                                                                           \
    PLACE(0, 0, 10, 2, 2)                                                                          \
    PLACE(0, 1, 11, 2, 2)                                                                          \
    STEPS(0, 0, 0, 20, true)                                                                       \
    how PLACE(1, 0, 10, 1, 1) STEPS(1, 0, 20, 30, true) PLACE(2, 0, 10, 2, 2)                      \
        PLACE(2, 1, 12, 2, 2) STEPS(2, 0, 30, 50, false) STEPS(2, 1, 30, 50, false) END(2, 0)      \
            END(2, 1)

START_TEST(a_node_that_was_lost_is_killed_and_the_others_wait_for_one_that_came)
{
    struct replay_shape shape;
    expect_read(A_NODE_GOES(""));
    ck_assert_uint_eq(hold_of(0), 20);
    ck_assert_uint_eq(look(0, 0, 0, "h"), 0);
    ck_assert_uint_eq(look(0, 1, 1, "h"), 1);
    ck_assert_int_eq(actions[0].type, REPLAY_DIE);
    ck_assert_uint_eq(hold_of(1), 30);
    ck_assert_uint_eq(look(1, 0, 0, "h"), 1);
    ck_assert_int_eq(actions[0].type, REPLAY_AWAIT);
    ck_assert_uint_eq(actions[0].n_nodes, 1);
    ck_assert_uint_eq(look(1, 0, 0, "h"), 0);
    ck_assert_uint_eq(hold_of(2), UINT64_MAX);
    ck_assert(replay_get(replay, 1, &shape));
    ck_assert_uint_eq(shape.n_nodes, 1);
    ck_assert_uint_eq(shape.world, 1);
    ck_assert_uint_eq(shape.before, 20);
    ck_assert_uint_eq(shape.n_joining, 1);
    ck_assert(!replay_get(replay, 3, &shape));
}
END_TEST

START_TEST(a_node_that_left_gets_its_signal)
{
    expect_read(A_NODE_GOES(EVENT("stop", 0, 1, "\"why\":\"signal\",\"signal\":\"SIGTERM\"")
                                EXIT(0, 1, 1, "\"code\":null,\"signal\":\"SIGTERM\"", 20)));
    ck_assert_uint_eq(look(0, 1, 1, "h"), 1);
    ck_assert_int_eq(actions[0].type, REPLAY_SIGNAL);
    ck_assert_int_eq(actions[0].sig, SIGTERM);
}
END_TEST

START_TEST(a_node_that_died_before_it_could_tell_of_its_place_dies_at_once)
{
    expect_read(PLACE(0, 0, 10, 1, 1) STEPS(0, 0, 0, 4, true) PLACE(1, 0, 10, 2, 2) STEPS(
        1, 0, null, 0, true) PLACE(2, 0, 10, 1, 1) STEPS(2, 0, 4, 6, false) END(2, 0));
    ck_assert_uint_eq(hold_of(1), 4);
    ck_assert_uint_eq(look(1, 1, 1, "h"), 1);
    ck_assert_int_eq(actions[0].type, REPLAY_DIE);
}
END_TEST

START_TEST(a_node_that_did_not_tell_the_job_s_end_was_lost_at_it)
{
    expect_read(PLACE(0, 0, 10, 2, 2) PLACE(0, 1, 11, 2, 2) STEPS(0, 0, 0, 20, false)
                    EVENT("job_end", 0, 0, "\"code\":75"));
    ck_assert_uint_eq(look(0, 0, 0, "h"), 0);
    ck_assert_uint_eq(look(0, 1, 1, "h"), 1);
    ck_assert_int_eq(actions[0].type, REPLAY_DIE);
}
END_TEST

START_TEST(a_restart_that_was_asked_for_and_a_signal_to_the_job_are_repeated)
{
    expect_read(SINGLE(EVENT("stop", 0, 0, "\"why\":\"restart\"") STEPS(0, 0, 0, 6, false)
                           EVENT("stop", 1, 0, "\"why\":\"signal\",\"signal\":\"SIGINT\"")
                               STEPS(1, 0, 0, 9, false) EVENT("job_end", 1, 0, "\"code\":130")));
    ck_assert_uint_eq(look(0, 0, 0, "hrh"), 0);
    ck_assert_uint_eq(look(0, 0, 0, "h-h"), 1);
    ck_assert_int_eq(actions[0].type, REPLAY_RESTART);
    ck_assert_uint_eq(hold_of(1), 9);
    ck_assert_uint_eq(look(1, 0, 0, "hhh"), 1);
    ck_assert_int_eq(actions[0].type, REPLAY_SIGNAL);
    ck_assert_int_eq(actions[0].sig, SIGINT);
}
END_TEST

START_TEST(a_job_in_which_nothing_happens_needs_nothing)
{
    expect_read(SINGLE(EXIT(0, 0, 0, "\"code\":0,\"signal\":null", 9) END(0, 0)));
    ck_assert_uint_eq(hold_of(0), UINT64_MAX);
    ck_assert_uint_eq(look(0, 0, 0, "hhh"), 0);
}
END_TEST

START_TEST(lines_of_other_events_are_passed_over)
{
    expect_read(SINGLE("\n" EVENT("pace", 0, 0, "\"steps\":\"any\"") "{\"v\":1,\"ev\":\"new\"}\n"));
    ck_assert_uint_eq(replay_n_generations(replay), 1);
}
END_TEST

START_TEST(a_line_that_is_too_long_is_refused)
{
    char *text = malloc(REPLAY_LINE_BYTES + 3);
    memset(text, ' ', REPLAY_LINE_BYTES + 1);
    strcpy(text + REPLAY_LINE_BYTES + 1, "\n");
    ck_assert_int_eq(read_text(text), -EINVAL);
    ck_assert_str_eq(err.text, "FILE:1: the line is longer than 1048576 bytes");
    free(text);
}
END_TEST

enum { FAR_TOO_LONG = 2 }; /* times */

/* Events that nothing has to be known of, each in a line as long as it may be. */
static ssize_t write_more(void *cookie, char *to, size_t n)
{
    static const char event[] = "{\"v\":1,\"ev\":\"x\"}";
    size_t *n_written = cookie;
    if (*n_written >= (size_t)FAR_TOO_LONG * REPLAY_FILE_BYTES)
        return 0;
    for (size_t i = 0; i < n; i++) {
        const size_t at = (*n_written + i) % REPLAY_LINE_BYTES;
        to[i] = at < sizeof event - 1 ? event[at] : at == REPLAY_LINE_BYTES - 1 ? '\n' : ' ';
    }
    *n_written += n;
    return (ssize_t)n;
}

START_TEST(a_file_that_does_not_end_is_refused)
{
    size_t n_written = 0;
    FILE *in = fopencookie(&n_written, "r", (cookie_io_functions_t){.read = write_more});
    ck_assert_ptr_nonnull(in);
    ck_assert_int_eq(replay_read(in, "FILE", &replay, &err), -EINVAL);
    fclose(in);
    ck_assert_str_eq(err.text, "FILE:129: the file is longer than 128 MiB");
}
END_TEST

/* Looked for one by one they would take hours. */
START_TEST(a_generation_may_have_many_nodes_and_ranks)
{
    enum { N_RANKS = 1 << 18 };
    struct replay *r = replay_create();
    struct replay_shape shape;
    struct replay_record w = {.type = REPLAY_PLACE,
                              .line = 1,
                              .n_nodes = REPLAY_MAX_NODES,
                              .world = REPLAY_MAX_NODES,
                              .n_local = 1};
    for (w.generation = 0; w.generation < 2; w.generation++)
        for (w.node = 0; w.node < REPLAY_MAX_NODES; w.node++, w.line++) {
            w.first_rank = w.node;
            w.stay = w.node + w.generation; /* the first one goes, another one comes */
            ck_assert_int_eq(replay_add(r, &w, &err), 0);
        }
    w = (struct replay_record){.type = REPLAY_BEGAN, .line = w.line};
    for (w.rank = 0; w.rank < N_RANKS; w.rank++, w.line++)
        ck_assert_int_eq(replay_add(r, &w, &err), 0);
    w = (struct replay_record){.type = REPLAY_STEPS, .line = w.line, .is_known = true, .after = 9};
    ck_assert_int_eq(replay_add(r, &w, &err), 0);
    ck_assert_msg(replay_finish(r, &err) == 0, "%s", err.text);
    ck_assert(replay_get(r, 0, &shape) && shape.n_joining == 1);
    w = (struct replay_record){.type = REPLAY_BEGAN, .line = 7000000, .rank = 77};
    ck_assert_int_eq(replay_add(r, &w, &err), 0);
    ck_assert_int_eq(replay_finish(r, &err), -EINVAL);
    ck_assert_str_eq(err.text, "7000000: rank 77 starts a second time in generation 0: the file "
                               "has more than one run");
    replay_destroy(r);
}
END_TEST

START_TEST(numbers_that_only_a_caller_could_get_wrong_are_refused)
{
    struct replay *r = replay_create();
    struct replay_record w = {.type = REPLAY_BEGAN, .line = 4, .rank = REPLAY_MAX_RANK};
    ck_assert_int_eq(replay_add(r, &w, &err), -EINVAL);
    ck_assert_str_eq(err.text, "4: a number is out of bounds");
    w = (struct replay_record){.type = REPLAY_END, .line = 5, .node = REPLAY_MAX_NODES};
    ck_assert_int_eq(replay_add(r, &w, &err), -EINVAL);
    w = (struct replay_record){.type = REPLAY_END, .line = 5, .generation = REPLAY_MAX_GENERATIONS};
    ck_assert_int_eq(replay_add(r, &w, &err), -EINVAL);
    replay_destroy(r);
}
END_TEST

static void check_bad(const char *path)
{
    char input[1400], expected[512];
    snprintf(input, sizeof input, "%s/input", path);
    FILE *in = fopen(input, "re");
    ck_assert_msg(in != NULL, "cannot open %s", input);
    int rc = replay_read(in, "FILE", &replay, &err);
    fclose(in);
    cases_read_line(path, "error", expected, sizeof expected);
    ck_assert_msg(rc == -EINVAL, "%s is taken", path);
    ck_assert_str_eq(err.text, expected);
}

START_TEST(bad_files_are_refused_with_the_line)
{
    ck_assert_int_gt(cases_each("replay/bad", check_bad), 20);
}
END_TEST

TEST_SUITE(replay)
{
    Suite *suite = suite_create("replay");
    TCase *t = tcase_create("replay");
    tcase_add_checked_fixture(t, NULL, tear_down);
    tcase_add_test(t, ranks_wait_behind_the_step_that_counted_for_those_that_lived_on);
    tcase_add_test(t, a_rank_is_killed_once_when_it_waits_and_counts_as_it_had_ended);
    tcase_add_test(t, where_all_ranks_start_again_the_last_step_of_who_failed_counts);
    tcase_add_test(t, a_consequence_is_not_repeated_but_whom_ddprun_blamed);
    tcase_add_test(t, a_generation_whose_ranks_never_met_ends_where_the_one_before_did);
    tcase_add_test(t, a_node_that_was_lost_is_killed_and_the_others_wait_for_one_that_came);
    tcase_add_test(t, a_node_that_left_gets_its_signal);
    tcase_add_test(t, a_node_that_died_before_it_could_tell_of_its_place_dies_at_once);
    tcase_add_test(t, a_node_that_did_not_tell_the_job_s_end_was_lost_at_it);
    tcase_add_test(t, a_restart_that_was_asked_for_and_a_signal_to_the_job_are_repeated);
    tcase_add_test(t, a_job_in_which_nothing_happens_needs_nothing);
    tcase_add_test(t, lines_of_other_events_are_passed_over);
    tcase_add_test(t, a_line_that_is_too_long_is_refused);
    tcase_add_test(t, a_file_that_does_not_end_is_refused);
    tcase_add_test(t, a_generation_may_have_many_nodes_and_ranks);
    tcase_add_test(t, numbers_that_only_a_caller_could_get_wrong_are_refused);
    tcase_add_test(t, bad_files_are_refused_with_the_line);
    suite_add_tcase(suite, t);
    return suite;
}
