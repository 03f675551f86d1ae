/* What comes from a node: lines of ours among others, facts there and back, and the bad inputs of
 * tests/data/check/bad, each of which is refused with its reason. */
#include "common/error.h"
#include "common/scope.h"
#include "ctl/check/check_facts.h"
#include "ctl/check/check_wire.h"

#include "tests/support/cases.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct check_wire wire;
static struct co_error err;
static json_t *json;

static void set_up(void)
{
    wire = (struct check_wire){.n_ignored = 0};
    err = (struct co_error){0};
    json = NULL;
}

static void tear_down(void)
{
    check_wire_fini(&wire);
    json_decref(json);
}

static int take(const void *bytes, size_t n)
{
    ck_assert_int_eq(co_buf_append(&wire.in, bytes, n), 0);
    return check_wire_take(&wire, &json, &err);
}

START_TEST(an_object_is_found_in_the_output_of_a_login)
{
    static const char text[] = "Last login: today\r\n\nddpctl-check {\"v\":1}\nmore";
    int n_taken = 0;
    for (size_t i = 0; i < strlen(text); i++)
        n_taken += take(text + i, 1);
    ck_assert_int_eq(n_taken, 1);
    ck_assert_int_eq(json_integer_value(json_object_get(json, "v")), 1);
}
END_TEST

START_TEST(several_objects_are_parsed_one_after_the_other)
{
    static const char text[] = "ddpctl-check {\"n\":1}\nddpctl-check {\"n\":2}\n";
    ck_assert_int_eq(take(text, strlen(text)), 1);
    json_decref(json);
    ck_assert_int_eq(check_wire_take(&wire, &json, &err), 1);
    ck_assert_int_eq(json_integer_value(json_object_get(json, "n")), 2);
    json_decref(json);
    json = NULL;
    ck_assert_int_eq(check_wire_take(&wire, &json, &err), 0);
}
END_TEST

START_TEST(printed_objects_are_parsed)
{
    co_autofree char *line = check_wire_print(json_pack("{s:s}", "do", "time"));
    ck_assert_str_eq(line, "ddpctl-check {\"do\":\"time\"}\n");
    ck_assert_int_eq(take(line, strlen(line)), 1);
    ck_assert_ptr_null(check_wire_print(NULL));
}
END_TEST

START_TEST(facts_survive_a_round_trip)
{
    static struct check_facts f, back;
    f = (struct check_facts){.host = "n1",
                             .version = "0.1.0",
                             .nofile = 1024,
                             .nofile_hard = CHECK_UNLIMITED,
                             .memlock = CHECK_UNKNOWN,
                             .somaxconn = 4096,
                             .first_port = 32768,
                             .last_port = 60999,
                             .port = 65535,
                             .n_addresses = 2,
                             .addresses = {{"eth0", "10.0.0.1"}, {"eth1", "fd00::7"}},
                             .forward = CHECK_NAME_FOREIGN,
                             .forward_to = "10.0.0.9",
                             .reverse = CHECK_NAME_LATE,
                             .token_id = "0123456789abcdef",
                             .n_gpus = 2,
                             .driver = "535.104.05",
                             .n_described = 1,
                             .gpus = {{"H100", 7}},
                             .nccl = "2.18.5"};
    json = check_facts_to_json(&f);
    ck_assert_int_eq(check_facts_from_json(json, &back, &err), 0);
    ck_assert_mem_eq(&f, &back, sizeof f);
}
END_TEST

START_TEST(missing_facts_are_unknown)
{
    static struct check_facts f;
    json = json_object();
    ck_assert_int_eq(check_facts_from_json(json, &f, &err), 0);
    ck_assert(f.nofile == CHECK_UNKNOWN && f.n_gpus == CHECK_UNKNOWN && f.port == CHECK_UNKNOWN);
    ck_assert_int_eq(f.forward, CHECK_NAME_SKIPPED);
    ck_assert_str_eq(f.version, "");
}
END_TEST

START_TEST(texts_and_lists_are_cleaned_and_bounded)
{
    static struct check_facts f;
    json = json_pack("{s:s, s:s}", "host", "a\033[31mb\nc", "version",
                     "a version that is much longer than any version should ever be");
    json_t *list = json_array();
    for (int i = 0; i < 1000; i++)
        json_array_append_new(list, json_pack("{s:s}", "address", "10.0.0.1"));
    json_object_set_new(json, "addresses", list);
    ck_assert_int_eq(check_facts_from_json(json, &f, &err), 0);
    ck_assert_str_eq(f.host, "ab?c");
    ck_assert_uint_eq(strlen(f.version), CHECK_SHORT_BYTES - 1);
    ck_assert_uint_eq(f.n_addresses, CHECK_ADDRESSES_MAX);
}
END_TEST

START_TEST(facts_with_invalid_utf8_still_become_json)
{
    static struct check_facts f;
    snprintf(f.no_version, sizeof f.no_version, "\xff said \xc3");
    json = check_facts_to_json(&f);
    ck_assert_str_eq(json_string_value(json_object_get(json, "no_version")), "? said ?");
}
END_TEST

/* --- bad input --- */

static void check_case(const char *path)
{
    static char input[1 << 16];
    static struct check_facts f;
    char wanted[256];
    size_t n = cases_read(path, "input", input, sizeof input);
    cases_read_line(path, "error", wanted, sizeof wanted);
    set_up();
    int rc = take(input, n);
    if (rc > 0)
        rc = check_facts_from_json(json, &f, &err);
    ck_assert_msg(rc < 0, "%s was taken", path);
    ck_assert_msg(strstr(err.text, wanted) != NULL, "%s: '%s' without '%s'", path, err.text,
                  wanted);
    tear_down();
    set_up();
}

START_TEST(bad_input_is_refused_with_its_reason)
{
    ck_assert_int_ge(cases_each("check/bad", check_case), 15);
}
END_TEST

/* The same piece again and again, until it is refused.
 *
 * returns   how many bytes were taken before */
static size_t pour(const char *piece, size_t most)
{
    size_t n = 0, len = strlen(piece);
    int rc = 0;
    for (; n <= most && (rc = take(piece, len)) == 0; n += len) {
    }
    ck_assert_int_eq(rc, -E2BIG);
    ck_assert_str_eq(err.text, "unexpected reply, not from ddpctl: too long; make sure that login "
                               "scripts print nothing in non-interactive shells");
    return n;
}

START_TEST(input_of_other_nodes_is_bounded)
{
    static const char line[] = "Welcome!\n";
    const size_t n_lines = CHECK_CHATTER_MAX_BYTES / (sizeof line - 1);
    ck_assert_uint_eq(pour(line, CHECK_CHATTER_MAX_BYTES), n_lines * (sizeof line - 1));
}
END_TEST

START_TEST(a_line_is_bounded)
{
    ck_assert_uint_eq(pour("x", CHECK_LINE_MAX_BYTES), CHECK_LINE_MAX_BYTES);
}
END_TEST

/* As long as it may be, and a byte longer. */
START_TEST(an_object_is_no_longer_than_a_line)
{
    static const char before[] = "ddpctl-check {\"host\":\"", behind[] = "\"}\n";
    static char line[CHECK_LINE_MAX_BYTES + 2];
    const size_t n = CHECK_LINE_MAX_BYTES + 1 + (size_t)_i; /* the newline is not counted */
    memset(line, 'x', n);
    memcpy(line, before, sizeof before - 1);
    memcpy(line + n - (sizeof behind - 1), behind, sizeof behind - 1);
    ck_assert_int_eq(take(line, n), _i == 0 ? 1 : -E2BIG);
}
END_TEST

TEST_SUITE(check_wire)
{
    Suite *suite = suite_create("check_wire");
    TCase *c = tcase_create("all");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, an_object_is_found_in_the_output_of_a_login);
    tcase_add_test(c, several_objects_are_parsed_one_after_the_other);
    tcase_add_test(c, printed_objects_are_parsed);
    tcase_add_test(c, facts_survive_a_round_trip);
    tcase_add_test(c, missing_facts_are_unknown);
    tcase_add_test(c, texts_and_lists_are_cleaned_and_bounded);
    tcase_add_test(c, facts_with_invalid_utf8_still_become_json);
    tcase_add_test(c, input_of_other_nodes_is_bounded);
    tcase_add_test(c, a_line_is_bounded);
    tcase_add_loop_test(c, an_object_is_no_longer_than_a_line, 0, 2);
    tcase_add_test(c, bad_input_is_refused_with_its_reason);
    suite_add_tcase(suite, c);
    return suite;
}
