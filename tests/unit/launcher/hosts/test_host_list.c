/* What users and resource managers write down as a job's hosts. */
#include "launcher/hosts/host_list.h"

#include "common/error.h"
#include "tests/support/cases.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct host_list list;
static struct co_error err;

static void begin(void)
{
    err = (struct co_error){0};
}

static void end(void)
{
    host_list_fini(&list);
}

/* The list as "user@name:slots/max^port ...", without what is not specified. */
static const char *shown(void)
{
    static char text[1 << 16];
    size_t len = 0;
    text[0] = '\0';
    for (size_t i = 0; i < list.n; i++) {
        const struct host *h = &list.hosts[i];
        char slots[16] = "", max[16] = "", port[16] = "";
        if (h->slots != 0)
            snprintf(slots, sizeof slots, ":%u", h->slots);
        if (h->max_slots != 0)
            snprintf(max, sizeof max, "/%u", h->max_slots);
        if (h->port != 0)
            snprintf(port, sizeof port, "^%u", h->port);
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%s%s%s%s%s%s", i > 0 ? " " : "",
                                h->user, h->user[0] != '\0' ? "@" : "", h->name, slots, max, port);
    }
    return text;
}

START_TEST(each_way_to_write_hosts_is_read)
{
    static const struct {
        const char *text, *hosts;
    } cases[] = {
        {"n1", "n1"},
        {"n1,n2:4,n3*2", "n1 n2:4 n3:2"},
        {"alice@n1:8,bob@10.0.0.7", "alice@n1:8 bob@10.0.0.7"},
        {"[::1]:4,[fe80::1%eth0],fd00::2", "::1:4 fe80::1%eth0 fd00::2"},
        {"me@[fd00::1]:2", "me@fd00::1:2"},
        {"n[8-11]", "n8 n9 n10 n11"},
        {"n[001-003,070]", "n001 n002 n003 n070"},
        {"n[01-02]-ib:8,m3", "n01-ib:8 n02-ib:8 m3"},
        {"r[1-2]n[1-2]", "r1n1 r1n2 r2n1 r2n2"},
        {"a.example.org,b-2.example.org:3", "a.example.org b-2.example.org:3"},
        {"n1,n2,n1,n1", "n1:3 n2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        host_list_fini(&list);
        ck_assert_msg(host_list_add(&list, "-H", cases[i].text, &err) == 0, "%s: %s", cases[i].text,
                      err.text);
        ck_assert_str_eq(shown(), cases[i].hosts);
    }
}
END_TEST

START_TEST(files_of_other_launchers_are_read)
{
    static const char text[] = "# a comment\n"
                               "\n"
                               "n1 slots=4 max_slots=8   # behind an entry\n"
                               "n2:2\r\n"
                               "\tn3 max-slots=3 slots=3 port=2222\n"
                               "root@n[4-5] slots=1\n"
                               "n6\nn6\nn6\nn6"; /* no newline at the end */
    ck_assert_msg(host_list_add_file(&list, "hosts", text, sizeof text - 1, &err) == 0, "%s",
                  err.text);
    ck_assert_str_eq(shown(), "n1:4/8 n2:2 n3:3/3^2222 root@n4:1 root@n5:1 n6:4");
}
END_TEST

START_TEST(the_maximum_number_of_hosts_is_read)
{
    ck_assert_int_eq(host_list_add(&list, "-H", "n[1-1024]", &err), 0);
    ck_assert_uint_eq(list.n, HOST_LIST_MAX);
    ck_assert_str_eq(list.hosts[1023].name, "n1024");
}
END_TEST

/* tests/data/hosts/bad/CASE/{input,error} */
static void check_bad(const char *path)
{
    static char input[1 << 16];
    char expected[400];
    size_t len = cases_read(path, "input", input, sizeof input);
    cases_read_line(path, "error", expected, sizeof expected);
    begin();
    int rc = host_list_add_file(&list, "hosts", input, len, &err);
    ck_assert_msg(rc == -EINVAL || rc == -ERANGE, "%s is accepted", path);
    if (strcmp(err.text, expected) != 0)
        ck_abort_msg("%s: '%s'", path, err.text);
    host_list_fini(&list);
}

START_TEST(an_invalid_host_file_is_refused_with_line_and_reason)
{
    ck_assert_int_ge(cases_each("hosts/bad", check_bad), 40);
}
END_TEST

START_TEST(the_length_of_a_file_is_bounded)
{
    size_t len = HOST_FILE_MAX_BYTES + 1;
    char *text = malloc(len);
    ck_assert_ptr_nonnull(text);
    memset(text, '\n', len);
    ck_assert_int_eq(host_list_add_file(&list, "hosts", text, len, &err), -EINVAL);
    ck_assert_str_eq(err.text, "hosts is not a valid host file: it is longer than 1 MiB");
    free(text);
}
END_TEST

START_TEST(errors_name_the_option_of_the_list)
{
    ck_assert_int_eq(host_list_add(&list, "-H", "n1,n2:x", &err), -EINVAL);
    ck_assert_str_eq(err.text, "-H: invalid value 'x' for slots: expected a number");
}
END_TEST

static uint32_t shares[4];

static int share(const char *hosts, uint32_t n_total, uint32_t per_node)
{
    host_list_fini(&list);
    begin();
    ck_assert_int_eq(host_list_add(&list, "-H", hosts, &err), 0);
    ck_assert_uint_le(list.n, 4);
    return host_list_share(&list, n_total, per_node, shares, &err);
}

static bool are(uint32_t a, uint32_t b, uint32_t c)
{
    return shares[0] == a && shares[1] == b && shares[2] == c;
}

START_TEST(ranks_are_shared_out_by_options_then_by_slots)
{
    ck_assert(share("a,b,c", 0, 0) == 0 && are(UINT32_MAX, UINT32_MAX, UINT32_MAX));
    ck_assert(share("a:2,b,c:4", 0, 0) == 0 && are(2, UINT32_MAX, 4));
    ck_assert(share("a:2,b,c:4", 0, 3) == 0 && are(3, 3, 3));
    ck_assert(share("a,b,c", 6, 0) == 0 && are(2, 2, 2));
    ck_assert(share("a,b,c", 6, 2) == 0 && are(2, 2, 2));
    ck_assert(share("a:4,b:4,c:4", 6, 0) == 0 && are(4, 2, 0));
    ck_assert(share("a:4,b:4,c:4", 12, 0) == 0 && are(4, 4, 4));
}
END_TEST

START_TEST(impossible_shares_are_refused)
{
    ck_assert_int_eq(share("a:4,b:4,c:4", 13, 0), -EINVAL);
    ck_assert_str_eq(err.text,
                     "13 ranks requested, but the hosts have 12 slots; add hosts or slots");
    ck_assert_int_eq(share("a,b,c", 7, 0), -EINVAL);
    ck_assert_str_eq(
        err.text, "7 ranks are not divisible among 3 hosts; give each host its slots (HOST:SLOTS)");
    ck_assert_int_eq(share("a,b,c", 7, 2), -EINVAL);
    ck_assert_str_eq(err.text,
                     "7 ranks disagree with 2 ranks on each of 3 hosts; give one of the two");
    host_list_fini(&list);
    ck_assert_int_eq(host_list_add_file(&list, "f", "a max-slots=2", 13, &err), 0);
    ck_assert_int_eq(host_list_share(&list, 0, 3, shares, &err), -EINVAL);
    ck_assert_str_eq(err.text, "3 ranks on 'a' exceed its max-slots of 2");
}
END_TEST

TEST_SUITE(host_list)
{
    Suite *suite = suite_create("host_list");
    TCase *c = tcase_create("host_list");
    tcase_add_checked_fixture(c, begin, end);
    tcase_add_test(c, each_way_to_write_hosts_is_read);
    tcase_add_test(c, files_of_other_launchers_are_read);
    tcase_add_test(c, the_maximum_number_of_hosts_is_read);
    tcase_add_test(c, an_invalid_host_file_is_refused_with_line_and_reason);
    tcase_add_test(c, the_length_of_a_file_is_bounded);
    tcase_add_test(c, errors_name_the_option_of_the_list);
    tcase_add_test(c, ranks_are_shared_out_by_options_then_by_slots);
    tcase_add_test(c, impossible_shares_are_refused);
    suite_add_tcase(suite, c);
    return suite;
}
