/* The JSON of a post, and the token of its header. */
#include "launcher/trainjob/trainjob_body.h"

#include "common/error.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <float.h>
#include <limits.h>
#include <string.h>

static char text[TRAINJOB_BODY_BYTES];
static struct co_error err;

static struct trainjob_progress usual(void)
{
    return (struct trainjob_progress){.steps = 450,
                                      .total = 1000,
                                      .step_s = 0.5,
                                      .goodput = 0.875,
                                      .generation = 2,
                                      .world_size = 8,
                                      .now_s = 1764300000};
}

START_TEST(a_body_has_percent_time_and_metrics)
{
    const struct trainjob_progress p = usual();
    ck_assert_uint_eq(trainjob_body_make(&p, text), strlen(text));
    ck_assert_str_eq(
        text,
        "{\"trainerStatus\":{\"progressPercentage\":45,\"estimatedRemainingSeconds\":275,"
        "\"metrics\":[{\"name\":\"steps\",\"value\":\"450\"},"
        "{\"name\":\"step_seconds\",\"value\":\"0.5\"},{\"name\":\"goodput\",\"value\":\"0.875\"},"
        "{\"name\":\"generation\",\"value\":\"2\"},{\"name\":\"world_size\",\"value\":\"8\"}],"
        "\"lastUpdatedTime\":\"2025-11-28T03:20:00Z\"}}");
}
END_TEST

START_TEST(what_is_unknown_is_left_out)
{
    struct trainjob_progress p = usual();
    p.step_s = 0;
    trainjob_body_make(&p, text);
    ck_assert_ptr_null(strstr(text, "Remaining"));
    ck_assert_ptr_null(strstr(text, "step_seconds"));
    p.step_s = 1e12; /* more seconds than the server takes */
    trainjob_body_make(&p, text);
    ck_assert_ptr_null(strstr(text, "Remaining"));
}
END_TEST

START_TEST(more_steps_than_expected_are_100_percent)
{
    struct trainjob_progress p = usual();
    p.steps = 1001;
    trainjob_body_make(&p, text);
    ck_assert_ptr_nonnull(
        strstr(text, "\"progressPercentage\":100,\"estimatedRemainingSeconds\":0,"));
    p.steps = 999;
    trainjob_body_make(&p, text);
    ck_assert_ptr_nonnull(strstr(text, "\"progressPercentage\":99,"));
}
END_TEST

START_TEST(the_largest_numbers_fit)
{
    const struct trainjob_progress p = {.steps = UINT64_MAX - 1,
                                        .total = UINT64_MAX,
                                        .step_s = DBL_MAX,
                                        .goodput = -DBL_MAX,
                                        .generation = UINT32_MAX,
                                        .world_size = INT_MIN,
                                        .now_s = INT64_C(253402300799)};
    ck_assert_uint_lt(trainjob_body_make(&p, text), TRAINJOB_BODY_BYTES / 2);
    ck_assert_ptr_nonnull(strstr(text, "\"9999-12-31T23:59:59Z\"}}"));
}
END_TEST

START_TEST(white_space_after_a_token_is_cut_off)
{
    char token[] = "a.b-c_d\r\n \n";
    ck_assert_int_eq(trainjob_token_trim(token, strlen(token), &err), 0);
    ck_assert_str_eq(token, "a.b-c_d");
}
END_TEST

START_TEST(bad_tokens_are_refused)
{
    static const struct {
        const char *text;
        size_t len;
    } cases[] = {{"", 0}, {" \n", 2}, {"a b", 3}, {"a\r\nX: y", 7}, {"a\0b", 3}, {"\xc3\xa4", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char token[16] = "";
        memcpy(token, cases[i].text, cases[i].len);
        ck_assert_int_eq(trainjob_token_trim(token, cases[i].len, &err), -EINVAL);
    }
}
END_TEST

TEST_SUITE(trainjob_body)
{
    Suite *suite = suite_create("trainjob_body");
    TCase *all = tcase_create("all");
    tcase_add_test(all, a_body_has_percent_time_and_metrics);
    tcase_add_test(all, what_is_unknown_is_left_out);
    tcase_add_test(all, more_steps_than_expected_are_100_percent);
    tcase_add_test(all, the_largest_numbers_fit);
    tcase_add_test(all, white_space_after_a_token_is_cut_off);
    tcase_add_test(all, bad_tokens_are_refused);
    suite_add_tcase(suite, all);
    return suite;
}
