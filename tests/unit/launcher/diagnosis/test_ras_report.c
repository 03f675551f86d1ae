/* What NCCL's RAS reports: tests/data/ras has answers, written from the documented schema. */
#include "common/error.h"
#include "launcher/diagnosis/ras_report.h"
#include "tests/support/cases.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ras_report r;
static struct co_error err;
static char printed[8192];

static int rank_of(void *arg, const char *host, pid_t pid)
{
    (void)arg;
    return strcmp(host, "127.0.0.1") == 0 && pid >= 4711 ? (int)pid - 4711 + 8 : -1;
}

static void read_answer(const char *name)
{
    static char text[65536];
    char path[1024];
    snprintf(path, sizeof path, "%s/ras", getenv("TEST_DATA"));
    const size_t n = cases_read(path, name, text, sizeof text);
    ck_assert_msg(ras_report_parse(text, n, &r, &err) == 0, "%s: %s", name, err.text);
    ras_report_resolve(&r, rank_of, NULL);
}

static void print(void)
{
    FILE *out = fmemopen(printed, sizeof printed, "w");
    ras_report_print(&r, out);
    fclose(out);
}

/* Twice the same. */
static void read_answers(const char *name)
{
    struct ras_report before;
    read_answer(name);
    before = r;
    read_answer(name);
    ras_report_compare(&r, &before, 1000);
    ras_report_fini(&before);
    print();
}

static void tear_down(void)
{
    ras_report_fini(&r);
}

START_TEST(a_rank_that_started_fewer_collectives_lags)
{
    read_answers("lagging.json");
    ck_assert_uint_eq(r.n, 2);
    const struct ras_comm *c = &r.comms[0];
    ck_assert_uint_eq(c->size, 3);
    ck_assert_uint_eq(c->ranks[1].counts[4], 40);
    ck_assert_str_eq(printed,
                     "NCCL 2.28.9: 2 communicators\n"
                     "  communicator 0x5bd5f7fa3dd5ad2e of 3 ranks:\n"
                     "    rank 9 (pid 4712) lags: it has started 40 AllReduce, others 41\n");
    json_t *json = ras_report_json_make(&r);
    json_t *comm = json_array_get(json_object_get(json, "communicators"), 0);
    json_t *lagging = json_array_get(json_object_get(comm, "lagging"), 0);
    ck_assert_int_eq(json_integer_value(json_object_get(lagging, "job_rank")), 9);
    ck_assert_int_eq(json_integer_value(json_object_get(lagging, "count")), 40);
    ck_assert_uint_eq(json_array_size(json_object_get(comm, "missing")), 0);
    ck_assert_int_eq(json_integer_value(json_object_get(json, "apart_ms")), 1000);
    ck_assert_int_eq(json_integer_value(json_object_get(json, "count")), 2);
    json_decref(json);
    const struct ras_sums sums = ras_report_count(&r);
    ck_assert_uint_eq(sums.n_comms, 2);
    ck_assert_uint_eq(sums.n_lagging, 1);
    ck_assert_uint_eq(sums.n_missing + sums.n_errors, 0);
}
END_TEST

START_TEST(after_one_report_a_rank_may_lag)
{
    read_answer("lagging.json");
    ck_assert(ras_report_differs(&r));
    ck_assert_uint_eq(ras_report_count(&r).n_lagging, 0);
    print();
    ck_assert_ptr_nonnull(
        strstr(printed, "rank 9 (pid 4712) may lag: it has started 40 AllReduce, others 41\n"));
    json_t *json = ras_report_json_make(&r);
    json_t *comm = json_array_get(json_object_get(json, "communicators"), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(comm, "lagging")), 0);
    ck_assert(json_is_null(json_object_get(json, "apart_ms")));
    json_decref(json);
    tear_down();
    read_answer("equal.json");
    ck_assert(!ras_report_differs(&r));
}
END_TEST

/* What an earlier report had in place of the one in lagging.json. */
static void expect_no_lag_after(void (*change)(struct ras_report *before))
{
    struct ras_report before;
    read_answer("lagging.json");
    before = r;
    read_answer("lagging.json");
    change(&before);
    ras_report_compare(&r, &before, 1000);
    ras_report_fini(&before);
    ck_assert_uint_eq(ras_report_count(&r).n_lagging, 0);
    print();
    ck_assert_str_eq(printed,
                     "NCCL 2.28.9: 2 communicators; no rank lags: they start collectives\n");
    tear_down();
}

static void count_less(struct ras_report *before)
{
    before->comms[0].ranks[2].counts[0]--;
}

static void drop_comm(struct ras_report *before)
{
    strcpy(before->comms[0].hash, "another");
}

static void drop_rank(struct ras_report *before)
{
    before->comms[0].ranks[0].rank = 7;
}

static void silence_rank(struct ras_report *before)
{
    before->comms[0].ranks[0].is_missing = true;
}

static void drop_all(struct ras_report *before)
{
    ras_report_fini(before);
}

START_TEST(no_rank_lags_in_a_communicator_that_moves)
{
    expect_no_lag_after(count_less);
    expect_no_lag_after(drop_comm);
    expect_no_lag_after(drop_rank);
    expect_no_lag_after(silence_rank);
    expect_no_lag_after(drop_all);
}
END_TEST

START_TEST(the_order_of_a_report_means_nothing)
{
    struct ras_report before;
    read_answer("lagging.json");
    before = r;
    read_answer("lagging.json");
    const struct ras_comm comm = before.comms[0];
    const struct ras_rank rank = comm.ranks[0];
    comm.ranks[0] = comm.ranks[2];
    comm.ranks[2] = rank;
    before.comms[0] = before.comms[1];
    before.comms[1] = comm;
    ras_report_compare(&r, &before, 1000);
    ras_report_fini(&before);
    ck_assert_uint_eq(ras_report_count(&r).n_lagging, 1);
}
END_TEST

START_TEST(equal_counts_show_no_lagging_rank)
{
    read_answers("equal.json");
    ck_assert_str_eq(printed,
                     "NCCL 2.29.2: 1 communicator; no rank lags: all have started the same "
                     "collectives, and may wait inside of one or outside of NCCL\n");
    tear_down();
    read_answers("none.json");
    ck_assert_str_eq(printed, "NCCL 2.28.9: 0 communicators; no rank lags: all have started the "
                              "same collectives, none\n");
}
END_TEST

START_TEST(the_missing_comma_of_2_28_is_put_in)
{
    read_answers("missing-2.28.9.json");
    ck_assert_str_eq(printed, "NCCL 2.28.9: 1 communicator\n"
                              "  communicator 0x5bd5f7fa3dd5ad2e of 3 ranks:\n"
                              "    rank 9 (pid 4712) does not answer\n");
}
END_TEST

START_TEST(dead_ranks_errors_and_aborts_are_named)
{
    read_answers("missing-2.29.2.json");
    ck_assert_str_eq(printed, "NCCL 2.29.2: 1 communicator\n"
                              "  communicator 0x5bd5f7fa3dd5ad2e of 3 ranks:\n"
                              "    rank 10 (pid 4713) has reported NCCL error 2, and aborts the "
                              "communicator\n"
                              "    its rank 1 does not answer: NCCL considers it dead\n");
    ck_assert_int_eq(r.comms[0].ranks[0].job_rank, -1); /* on another host */
}
END_TEST

START_TEST(long_lists_are_cut)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    fprintf(out, "{\"communicators\": [");
    for (int c = 0; c < 20; c++) {
        fprintf(out, "%s{\"hash\": \"%d\", \"size\": 100, \"ranks\": [", c > 0 ? "," : "", c);
        for (int i = 0; i < 100; i++)
            fprintf(out, "%s{\"rank\": %d, \"collective_counts\": {\"Reduce\": %d}}",
                    i > 0 ? "," : "", i, i == 99);
        fprintf(out, "]}");
    }
    fprintf(out, "]}");
    fclose(out);
    ck_assert_int_eq(ras_report_parse(text, len, &r, &err), 0);
    free(text);
    out = fmemopen(printed, sizeof printed, "w");
    ras_report_print(&r, out);
    fclose(out);
    ck_assert_ptr_nonnull(strstr(printed, "    and 91 more\n"));
    ck_assert_ptr_nonnull(strstr(printed, "  and 12 more communicators with such ranks\n"));
}
END_TEST

START_TEST(other_answers_are_refused)
{
    static const struct {
        const char *text;
        int rc;
        const char *error;
    } cases[] = {
        {"", -EPROTO, "not JSON"},
        {"{", -EPROTO, "not JSON"},
        {"[]", -EPROTO, "no list of communicators"},
        {"{\"communicators\": 3}", -EPROTO, "no list of communicators"},
        {"{\"communicators\": []} x", -EPROTO, "not JSON"},
        {"{\"communicators\": [{\"nvml_dev\": 3", -EPROTO, "not JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_int_eq(ras_report_parse(cases[i].text, strlen(cases[i].text), &r, &err),
                         cases[i].rc);
        ck_assert_msg(strstr(err.text, cases[i].error) != NULL, "%s", err.text);
    }
    char *large = calloc(1, RAS_MAX_BYTES + 1);
    ck_assert_int_eq(ras_report_parse(large, RAS_MAX_BYTES + 1, &r, &err), -E2BIG);
    free(large);
}
END_TEST

START_TEST(members_of_other_types_count_as_absent)
{
    static const char text[] =
        "{\"communicators\": [3, {\"size\": -1, \"hash\": \"a\\u001b[31m\", \"ranks\": [4, "
        "{\"rank\": "
        "\"x\", \"pid\": 99999999999, \"host\": 7, \"collective_counts\": {\"AllReduce\": -1}}], "
        "\"missing_ranks\": {}}]}";
    ck_assert_int_eq(ras_report_parse(text, sizeof text - 1, &r, &err), 0);
    ck_assert_uint_eq(r.n, 2);
    const struct ras_rank *rank = &r.comms[1].ranks[1];
    ck_assert_int_eq(rank->rank, -1);
    ck_assert_int_eq(rank->pid, -1);
    ck_assert_str_eq(rank->host, "unknown");
    ck_assert_uint_eq(rank->counts[4], 0);
    ck_assert_str_eq(r.comms[1].hash, "a?[31m"); /* no escape sequence reaches a terminal */
}
END_TEST

TEST_SUITE(ras_report)
{
    Suite *suite = suite_create("ras_report");
    TCase *tc = tcase_create("ras_report");
    tcase_add_checked_fixture(tc, NULL, tear_down);
    tcase_add_test(tc, a_rank_that_started_fewer_collectives_lags);
    tcase_add_test(tc, after_one_report_a_rank_may_lag);
    tcase_add_test(tc, no_rank_lags_in_a_communicator_that_moves);
    tcase_add_test(tc, the_order_of_a_report_means_nothing);
    tcase_add_test(tc, equal_counts_show_no_lagging_rank);
    tcase_add_test(tc, the_missing_comma_of_2_28_is_put_in);
    tcase_add_test(tc, dead_ranks_errors_and_aborts_are_named);
    tcase_add_test(tc, long_lists_are_cut);
    tcase_add_test(tc, other_answers_are_refused);
    tcase_add_test(tc, members_of_other_types_count_as_absent);
    suite_add_tcase(suite, tc);
    return suite;
}
