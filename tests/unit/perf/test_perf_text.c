/* The table and the lines of JSON. */
#include "perf/perf_text.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const struct perf_spec usual = {
    .collective = PERF_ALL_REDUCE, .dtype = DDP_FLOAT32, .op = DDP_SUM, .check = true};
static const struct perf_row row = {
    .bytes = 4000,
    .count = 1000,
    .has_in_place = true,
    .out_of_place = {.mean_us = 2, .min_us = 1.5, .wrong = 3},
    .in_place = {.mean_us = 1, .min_us = 0.5},
};

/* Everything that a measurement of one row prints, to be freed. gcc 12 at -O3 would inline it
 * and warn of a dangling pointer to `text`, which the closed stream no longer has. */
__attribute__((noinline)) static char *printed(const struct perf_spec *spec,
                                               const struct perf_row *r, struct perf_sum *sum)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    perf_text_head(out, spec, 4, 1);
    perf_text_row(out, spec, 4, r, sum);
    perf_text_foot(out, spec, sum);
    fclose(out);
    return text;
}

START_TEST(the_table_has_the_columns_of_nccl_tests)
{
    struct perf_sum sum = {0};
    char *text = printed(&usual, &row, &sum);
    const char *line = strstr(text, "\n        4000 ");
    ck_assert_msg(line != NULL, "%s", text);
    double out_us, out_min, out_alg, out_bus, in_us, in_min, in_alg, in_bus;
    unsigned long out_wrong, in_wrong, count;
    char type[16], op[16];
    int root;
    ck_assert_int_eq(sscanf(line, " 4000 %lu %15s %15s %d %lf %lf %lf %lf %lu %lf %lf %lf %lf %lu",
                            &count, type, op, &root, &out_us, &out_min, &out_alg, &out_bus,
                            &out_wrong, &in_us, &in_min, &in_alg, &in_bus, &in_wrong),
                     14);
    ck_assert_uint_eq(count, 1000);
    ck_assert_str_eq(type, "float32");
    ck_assert_str_eq(op, "sum");
    ck_assert_int_eq(root, -1);
    ck_assert_double_eq(out_us, 2);
    ck_assert_double_eq(out_alg, 2);
    ck_assert_double_eq(out_bus, 3);
    ck_assert_uint_eq(out_wrong, 3);
    ck_assert_double_eq(in_min, 0.5);
    ck_assert_double_eq(in_bus, 6);
    ck_assert_uint_eq(in_wrong, 0);
    ck_assert_ptr_nonnull(strstr(text, "# Out of bounds values : 3 FAILED"));
    ck_assert_ptr_nonnull(strstr(text, "# Avg bus bandwidth    : 4.5\n"));
    free(text);
}
END_TEST

START_TEST(json_has_a_line_for_each_measurement)
{
    struct perf_spec spec = usual;
    struct perf_sum sum = {0};
    spec.json = true;
    char *text = printed(&spec, &row, &sum);
    ck_assert_str_eq(text,
                     "{\"op\": \"all_reduce\", \"bytes\": 4000, \"dtype\": \"float32\", \"redop\": "
                     "\"sum\", \"ranks\": 4, \"buffer\": \"segment\", \"in_place\": false, "
                     "\"rewritten\": false, \"time_us\": 2.000, \"min_us\": 1.500, \"algbw_gbps\": "
                     "2.000, \"busbw_gbps\": 3.000, \"wrong\": 3}\n"
                     "{\"op\": \"all_reduce\", \"bytes\": 4000, \"dtype\": \"float32\", \"redop\": "
                     "\"sum\", \"ranks\": 4, \"buffer\": \"segment\", \"in_place\": true, "
                     "\"rewritten\": false, \"time_us\": 1.000, \"min_us\": 0.500, \"algbw_gbps\": "
                     "4.000, \"busbw_gbps\": 6.000, \"wrong\": 0}\n");
    free(text);
}
END_TEST

START_TEST(unchecked_results_are_not_reported_as_correct)
{
    struct perf_spec spec = usual;
    struct perf_sum sum = {0};
    spec.check = false;
    char *text = printed(&spec, &row, &sum);
    ck_assert_ptr_nonnull(strstr(text, "N/A"));
    ck_assert_ptr_null(strstr(text, "Out of bounds"));
    free(text);
    spec.json = true;
    text = printed(&spec, &row, &sum);
    ck_assert_ptr_nonnull(strstr(text, "\"wrong\": null}"));
    free(text);
}
END_TEST

START_TEST(a_call_without_a_reduction_shows_none)
{
    struct perf_spec spec = usual;
    struct perf_sum sum = {0};
    struct perf_row one = row;
    spec.collective = PERF_SEND_RECV;
    spec.json = true;
    one.has_in_place = false;
    char *text = printed(&spec, &one, &sum);
    ck_assert_ptr_nonnull(strstr(text, "\"redop\": \"none\""));
    ck_assert_ptr_null(strstr(text, "\"in_place\": true"));
    free(text);
}
END_TEST

START_TEST(a_network_becomes_a_variable)
{
    static const struct {
        struct perf_link us;
        const char *line;
    } rows[] = {
        {{30, 60 + 47 * 5, 4000}, "latency_ns=25000 message_ns=5000 byte_ps=250"},
        {{30, 50, 4000}, "latency_ns=30000 message_ns=0 byte_ps=250"},
        {{30, 60 + 47 * 50, 4000}, "latency_ns=0 message_ns=30000 byte_ps=250"},
        {{1e9, 0, 1e12}, "latency_ns=100000000 message_ns=0 byte_ps=1000000"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *text, expected[100];
        size_t length;
        FILE *out = open_memstream(&text, &length);
        perf_text_network(out, &rows[i].us, 48, 16000000);
        fclose(out);
        snprintf(expected, sizeof expected, "DDP_TUNING=\"network: %s\"\n", rows[i].line);
        ck_assert_str_eq(text, expected);
        free(text);
    }
}
END_TEST

TEST_SUITE(perf_text)
{
    Suite *suite = suite_create("perf_text");
    TCase *tc = tcase_create("texts");
    tcase_add_test(tc, the_table_has_the_columns_of_nccl_tests);
    tcase_add_test(tc, json_has_a_line_for_each_measurement);
    tcase_add_test(tc, unchecked_results_are_not_reported_as_correct);
    tcase_add_test(tc, a_call_without_a_reduction_shows_none);
    tcase_add_test(tc, a_network_becomes_a_variable);
    suite_add_tcase(suite, tc);
    return suite;
}
