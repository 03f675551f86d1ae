/* The nodes that were found unhealthy. */
#include "launcher/reporting/health_list.h"

#include "tests/support/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

static struct health_list l;

static void set_up(void)
{
    l = (struct health_list){.n = 0};
}

static void tear_down(void)
{
    health_list_fini(&l);
}

static void assert_json(json_t *json, const char *expected)
{
    char *text = json_dumps(json, JSON_COMPACT);
    ck_assert_str_eq(text, expected);
    free(text);
    json_decref(json);
}

START_TEST(only_nodes_that_were_unhealthy_are_listed)
{
    ck_assert(!health_list_note(&l, "n1", MESSAGE_FIT, ""));
    assert_json(health_list_json_all(&l), "[]");
    assert_json(health_list_json_all(NULL), "[]");
}
END_TEST

START_TEST(a_list_has_the_newest_reason_and_how_often)
{
    ck_assert(health_list_note(&l, "n1", MESSAGE_UNFIT, "a"));
    ck_assert(!health_list_note(&l, "n1", MESSAGE_UNFIT, "a"));
    ck_assert(health_list_note(&l, "n1", MESSAGE_UNFIT, "b"));
    assert_json(health_list_json_now(&l), "[{\"node\":\"n1\",\"reason\":\"b\"}]");
    ck_assert(health_list_note(&l, "n1", MESSAGE_FIT, ""));
    assert_json(health_list_json_now(&l), "[]");
    ck_assert(health_list_note(&l, "n1", MESSAGE_UNFIT, "c"));
    ck_assert(health_list_note(&l, "n1", MESSAGE_FIT_GONE, ""));
    assert_json(health_list_json_all(&l),
                "[{\"node\":\"n1\",\"reason\":\"c\",\"times\":2,\"unhealthy\":false}]");
}
END_TEST

START_TEST(more_nodes_than_the_bound_are_not_kept)
{
    char name[16];
    for (int i = 0; i <= HEALTH_LIST_MAX; i++) {
        snprintf(name, sizeof name, "n%d", i);
        ck_assert(health_list_note(&l, name, MESSAGE_UNFIT, "x") == (i < HEALTH_LIST_MAX));
    }
    ck_assert_uint_eq(l.n, HEALTH_LIST_MAX);
}
END_TEST

TEST_SUITE(health_list)
{
    Suite *suite = suite_create("health_list");
    TCase *tc = tcase_create("health_list");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, only_nodes_that_were_unhealthy_are_listed);
    tcase_add_test(tc, a_list_has_the_newest_reason_and_how_often);
    tcase_add_test(tc, more_nodes_than_the_bound_are_not_kept);
    suite_add_tcase(suite, tc);
    return suite;
}
