/* What top shows, on terminals of any size. */
#include "ctl/base/table.h"
#include "ctl/top/top_frame.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static json_t *status;

static void set_up(void)
{
    status = json_loads("{\"v\":1,\"job\":\"job7\",\"pid\":70,\"host\":\"n1\",\"program\":[\"a\"],"
                        "\"state\":\"running\",\"generation\":0,\"age_ms\":1000,\"node\":0,"
                        "\"nodes\":1,\"world\":4,\"ranks\":["
                        "{\"rank\":0,\"state\":\"running\",\"cpu_percent\":5.0,\"rss_bytes\":300,"
                        "\"own_ms\":2.0},"
                        "{\"rank\":1,\"state\":\"ended\",\"cpu_percent\":99.0,\"rss_bytes\":900,"
                        "\"exit_code\":0},"
                        "{\"rank\":2,\"state\":\"running\",\"cpu_percent\":50.0,\"rss_bytes\":100,"
                        "\"own_ms\":3.0},"
                        "{\"rank\":3,\"state\":\"running\",\"cpu_percent\":5.0,\"rss_bytes\":200,"
                        "\"own_ms\":1.0}]}",
                        0, NULL);
    ck_assert_ptr_nonnull(status);
}

static void tear_down(void)
{
    json_decref(status);
}

static void check_order(enum top_order order, const char *wanted)
{
    char got[64] = "";
    size_t i;
    const json_t *rank;
    top_frame_sort(status, order);
    json_array_foreach(json_object_get(status, "ranks"), i, rank)
    {
        char number[24];
        snprintf(number, sizeof number, "%d ",
                 (int)json_integer_value(json_object_get(rank, "rank")));
        strcat(got, number);
    }
    ck_assert_str_eq(got, wanted);
}

START_TEST(ranks_are_sorted_and_ended_ones_are_last)
{
    check_order(TOP_BY_CPU, "2 0 3 1 ");
    check_order(TOP_BY_MEMORY, "0 3 2 1 ");
    check_order(TOP_BY_OWN, "2 0 3 1 ");
    check_order(TOP_BY_RANK, "0 2 3 1 ");
}
END_TEST

static char *print(int width, int height, size_t n)
{
    char *text = NULL;
    size_t len = 0;
    json_t *const both[] = {status, status};
    const struct top_view view = {
        .width = width, .height = height, .order = TOP_BY_RANK, .when = "12:34:56"};
    FILE *out = open_memstream(&text, &len);
    ck_assert_int_eq(top_frame_print(&view, both, n, out), 0);
    fclose(out);
    return text;
}

START_TEST(a_frame_has_a_head_and_each_job)
{
    char *text = print(0, 0, 2);
    ck_assert_int_eq(
        strncmp(text,
                "ddpctl 12:34:56  2 job nodes, 6 ranks running, sorted by rank\n\njob job7: ", 66),
        0);
    ck_assert_ptr_nonnull(strstr(strstr(text, "job job7") + 1, "job job7"));
    free(text);
    text = print(0, 0, 0);
    ck_assert_str_eq(text, "ddpctl 12:34:56  0 job nodes, 0 ranks running, sorted by rank\n");
    free(text);
}
END_TEST

START_TEST(a_frame_fits_the_terminal)
{
    for (int width = 1; width < 100; width += 7) {
        for (int height = 1; height < 20; height++) {
            char *text = print(width, height, 2);
            int n = 0;
            for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"), n++)
                if (strncmp(line, "... ", 4) != 0)
                    ck_assert_uint_le(table_width(line), (size_t)width);
            ck_assert_int_le(n, height);
            free(text);
        }
    }
    char *text = print(80, 5, 1);
    ck_assert_ptr_nonnull(strstr(text, "\n... 5 more lines\n"));
    free(text);
}
END_TEST

START_TEST(a_malformed_status_does_no_harm)
{
    json_t *odd =
        json_loads("{\"ranks\":[1,{},{\"rank\":\"x\"},null,{\"cpu_percent\":[]}]}", 0, NULL);
    for (int order = 0; order < TOP_N_ORDERS; order++)
        top_frame_sort(odd, (enum top_order)order);
    ck_assert_uint_eq(json_array_size(json_object_get(odd, "ranks")), 5);
    json_decref(odd);
    odd = json_loads("{\"ranks\":7}", 0, NULL);
    top_frame_sort(odd, TOP_BY_CPU);
    json_decref(odd);
}
END_TEST

TEST_SUITE(top_frame)
{
    Suite *suite = suite_create("top_frame");
    TCase *tc = tcase_create("top_frame");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, ranks_are_sorted_and_ended_ones_are_last);
    tcase_add_test(tc, a_frame_has_a_head_and_each_job);
    tcase_add_test(tc, a_frame_fits_the_terminal);
    tcase_add_test(tc, a_malformed_status_does_no_harm);
    suite_add_tcase(suite, tc);
    return suite;
}
