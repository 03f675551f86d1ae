/* torch's flight recorder: the newest collective of each group, and which rank lags. */
#include "launcher/torch/torch_trace.h"

#include "common/error.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ENTRY(group, about, op, number, rest)                                                      \
    "{\"process_group\": [\"" group "\", \"" about "\"], \"profiling_name\": \"" op                \
    "\", \"collective_seq_id\": " #number ", " rest "}"
#define ENDED         "\"state\": \"scheduled\", \"retired\": true, \"is_p2p\": false"
#define DONE          "\"state\": \"completed\", \"retired\": false, \"is_p2p\": false"
#define WAITS         "\"state\": \"scheduled\", \"retired\": false, \"is_p2p\": false"
#define MESSAGE       "\"state\": \"scheduled\", \"retired\": false, \"is_p2p\": true"
#define DUMP(entries) "{\"version\": \"2.10\", \"entries\": [" entries "]}"

enum { RANKS = 3 };

static struct torch_trace traces[RANKS];
static struct torch_rank ranks[RANKS];

static void set_up(void)
{
    memset(traces, 0, sizeof traces);
    for (int i = 0; i < RANKS; i++)
        ranks[i] = (struct torch_rank){.rank = i + 4, .trace = &traces[i]};
}

static void add(int rank, const char *text)
{
    struct co_error err;
    ck_assert_msg(torch_trace_add(&traces[rank], text, strlen(text), &err) == 0, "%s", err.text);
}

static void check_missing(int missing, const char *lines)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    torch_trace_print_missing(ranks, RANKS, out);
    fclose(out);
    ck_assert_str_eq(text, lines);
    free(text);
    ck_assert_int_eq(torch_trace_find_missing(ranks, RANKS), missing);
}

START_TEST(the_newest_collective_of_each_group_is_kept)
{
    add(0, DUMP(ENTRY("0", "default_pg", "gloo:all_reduce", 1, ENDED) "," ENTRY(
               "0", "default_pg", "gloo:all_gather", 2,
               WAITS) "," ENTRY("7", "", "gloo:send", 9,
                                MESSAGE) "," ENTRY("5", "dp", "nccl:broadcast", 3, DONE)));
    ck_assert_uint_eq(traces[0].n, 2);
    ck_assert_str_eq(traces[0].calls[0].op, "gloo:all_gather");
    ck_assert(traces[0].calls[0].waits && !traces[0].calls[1].waits);
    ck_assert_uint_eq(torch_trace_total(&traces[0]), 5);
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    torch_trace_print(&traces[0], out);
    fclose(out);
    ck_assert_str_eq(text, " gloo:all_gather #2 of process group 0 (default_pg), waits; "
                           "nccl:broadcast #3 of process group 5 (dp)");
    free(text);
    json_t *list = torch_trace_json_make(&traces[0]);
    ck_assert_uint_eq(json_array_size(list), 2);
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(list, 1), "description")),
                     "dp");
    json_decref(list);
}
END_TEST

START_TEST(the_rank_that_lags_is_named)
{
    add(0, DUMP(ENTRY("0", "default_pg", "gloo:all_reduce", 38, WAITS)));
    add(1, DUMP(ENTRY("0", "default_pg", "gloo:all_reduce", 37, ENDED)));
    add(2, DUMP(ENTRY("0", "default_pg", "gloo:all_reduce", 38, WAITS)));
    check_missing(1, "rank 5 is missing in gloo:all_reduce #38 of process group 0 (default_pg): "
                     "ranks 4 and 6 wait in it\n");
}
END_TEST

START_TEST(a_rank_without_a_call_lags_in_the_default_group_only)
{
    add(0, DUMP(ENTRY("0", "default_pg", "gloo:barrier", 1, WAITS)));
    add(2, DUMP(ENTRY("0", "default_pg", "gloo:barrier", 1, WAITS)));
    check_missing(1, "rank 5 is missing in gloo:barrier #1 of process group 0 (default_pg): ranks "
                     "4 and 6 wait in it\n");
    set_up();
    add(0, DUMP(ENTRY("3", "dp", "gloo:barrier", 1, WAITS)));
    check_missing(-1, "");
    set_up();
    add(0, DUMP(ENTRY("0", "default_pg", "gloo:barrier", 1, WAITS)));
    ranks[1].trace = ranks[2].trace = NULL; /* not known */
    check_missing(-1, "");
}
END_TEST

START_TEST(equal_counts_and_calls_that_ended_mean_nothing)
{
    check_missing(-1, "");
    for (int i = 0; i < RANKS; i++)
        add(i, DUMP(ENTRY("0", "default_pg", "gloo:all_reduce", 5, WAITS)));
    check_missing(-1, "");
    set_up();
    add(0, DUMP(ENTRY("0", "default_pg", "gloo:broadcast", 6, ENDED)));
    add(1, DUMP(ENTRY("0", "default_pg", "gloo:broadcast", 5, ENDED)));
    check_missing(-1, "");
}
END_TEST

START_TEST(a_rank_that_is_ahead_does_not_hide_one_that_lags)
{
    add(0, DUMP(ENTRY("0", "default_pg", "gloo:broadcast", 6, ENDED)));
    add(1, DUMP(ENTRY("0", "default_pg", "gloo:broadcast", 5, WAITS)));
    add(2, DUMP(ENTRY("0", "default_pg", "gloo:broadcast", 4, ENDED)));
    check_missing(2, "rank 6 is missing in gloo:broadcast #5 of process group 0 (default_pg): rank "
                     "5 waits in it\n");
}
END_TEST

START_TEST(several_ranks_are_not_one)
{
    add(0, DUMP(ENTRY("0", "default_pg", "gloo:all_reduce", 5, WAITS)));
    add(1, DUMP(ENTRY("0", "default_pg", "gloo:all_reduce", 4, ENDED)));
    add(2, DUMP(ENTRY("0", "default_pg", "gloo:all_reduce", 3, ENDED)));
    check_missing(-1, "ranks 5 and 6 are missing in gloo:all_reduce #5 of process group 0 "
                      "(default_pg): rank 4 waits in it\n");
}
END_TEST

START_TEST(bad_dumps_are_refused_and_odd_entries_left_out)
{
    static const char *const bad[] = {"", "x", "[]", "\"x\"", "{\"entries\": [", "1"};
    static const char *const odd[] = {"{}", "{\"entries\": 1}", "{\"entries\": [1, null, [], {}]}",
                                      DUMP("{\"process_group\": 1, \"collective_seq_id\": -1}"),
                                      DUMP("{\"collective_seq_id\": \"x\"}")};
    struct co_error err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_int_eq(torch_trace_add(&traces[0], bad[i], strlen(bad[i]), &err), -EPROTO);
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        add(0, odd[i]);
    ck_assert_uint_eq(traces[0].n, 0);
    add(0,
        DUMP("{\"process_group\": [\"\\u001b[31mlong long long long long long long long long long "
             "long long long\"], \"collective_seq_id\": 1}"));
    ck_assert_uint_eq(traces[0].n, 1);
    ck_assert_uint_eq(strlen(traces[0].calls[0].group), TORCH_TEXT_BYTES - 1);
    ck_assert_int_eq(traces[0].calls[0].group[0], '?');
    check_missing(-1, "");
}
END_TEST

START_TEST(groups_beyond_the_limit_are_left_out)
{
    char text[256];
    for (int i = 0; i < TORCH_GROUPS_MAX + 3; i++) {
        snprintf(text, sizeof text,
                 "{\"entries\": [{\"process_group\": [\"%d\"], \"collective_seq_id\": 1}]}", i);
        add(0, text);
    }
    ck_assert_uint_eq(traces[0].n, TORCH_GROUPS_MAX);
}
END_TEST

TEST_SUITE(torch_trace)
{
    Suite *suite = suite_create("torch_trace");
    TCase *c = tcase_create("torch_trace");
    tcase_add_checked_fixture(c, set_up, NULL);
    tcase_add_test(c, the_newest_collective_of_each_group_is_kept);
    tcase_add_test(c, the_rank_that_lags_is_named);
    tcase_add_test(c, a_rank_without_a_call_lags_in_the_default_group_only);
    tcase_add_test(c, equal_counts_and_calls_that_ended_mean_nothing);
    tcase_add_test(c, a_rank_that_is_ahead_does_not_hide_one_that_lags);
    tcase_add_test(c, several_ranks_are_not_one);
    tcase_add_test(c, bad_dumps_are_refused_and_odd_entries_left_out);
    tcase_add_test(c, groups_beyond_the_limit_are_left_out);
    suite_add_tcase(suite, c);
    return suite;
}
