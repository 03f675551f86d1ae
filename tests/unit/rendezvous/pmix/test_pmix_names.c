/* The texts of PMIx. */
#include "rendezvous/pmix/pmix_names.h"
#include "rendezvous/pmix/pmix_plugin.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

START_TEST(a_node_is_named_after_its_host)
{
    char name[PMIX_NAMES_NODE_BYTES];
    static const struct {
        const char *host, *mark, *name;
    } cases[] = {
        {"n1", "", "n1"},
        {"n1.cluster-a", "0af3", "n1.cluster-a-0af3"},
        {"a,b;c[1] d", "x", "abc1d-x"},
        {"", "", "node"},
        {",", "7", "node-7"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pmix_names_node(cases[i].host, cases[i].mark, name);
        ck_assert_str_eq(name, cases[i].name);
    }
}
END_TEST

START_TEST(long_names_are_cut_and_stay_unique)
{
    char host[300], name[PMIX_NAMES_NODE_BYTES];
    memset(host, 'a', sizeof host - 1);
    host[sizeof host - 1] = '\0';
    pmix_names_node(host, "0123456789abcdef", name);
    ck_assert_uint_lt(strlen(name), sizeof name);
    ck_assert_ptr_nonnull(strstr(name, "aaa-0123456789abcdef"));
}
END_TEST

START_TEST(a_generation_has_a_namespace)
{
    char name[PMIX_NAMES_SPACE_BYTES];
    pmix_names_space("0123456789abcdef0123456789abcdef", 7, name);
    ck_assert_str_eq(name, "ddp-0123456789abcdef0123456789abcdef-7");
    pmix_names_space("0123456789abcdef0123456789abcdef", UINT32_MAX, name);
    ck_assert_str_eq(name, "ddp-0123456789abcdef0123456789abcdef-4294967295");
}
END_TEST

START_TEST(maps_have_all_nodes_and_ranks)
{
    static const struct pmix_plugin_node nodes[] = {{"a", 2}, {"b", 1}, {"c.d", 3}};
    char *text;
    ck_assert_int_eq(pmix_names_node_list(nodes, 3, &text), 0);
    ck_assert_str_eq(text, "a,b,c.d");
    free(text);
    ck_assert_int_eq(pmix_names_rank_list(nodes, 3, &text), 0);
    ck_assert_str_eq(text, "0,1;2;3,4,5");
    free(text);
    ck_assert_int_eq(pmix_names_rank_list(nodes, 1, &text), 0);
    ck_assert_str_eq(text, "0,1");
    free(text);
    ck_assert_int_eq(pmix_names_ranks(4294967290u, 5, &text), 0);
    ck_assert_str_eq(text, "4294967290,4294967291,4294967292,4294967293,4294967294");
    free(text);
    ck_assert_int_eq(pmix_names_ranks(3, 0, &text), 0);
    ck_assert_str_eq(text, "");
    free(text);
}
END_TEST

START_TEST(a_version_is_read)
{
    static const struct {
        const char *text;
        int major, minor, release;
        bool uses_select;
    } cases[] = {
        {"OpenPMIx 4.2.2rc2 (PMIx Standard: 4.2, Stable ABI: 0.0, Provisional ABI: 0.0)", 4, 2, 2,
         true},
        {"OpenPMIx 4.2.6 (x)", 4, 2, 6, false},
        {"OpenPMIx 4.1.9", 4, 1, 9, true},
        {"OpenPMIx 4.3.0", 4, 3, 0, false},
        {"OpenPMIx 5.0.7", 5, 0, 7, true},
        {"PMIx OpenPMIx 5.0.8, repo rev: v5.0.8", 5, 0, 8, false},
        {"OpenPMIx 5.1.0", 5, 1, 0, false},
        {"OpenPMIx 6.0.0", 6, 0, 0, false},
        {"OpenPMIx 3.2.3", 3, 2, 3, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pmix_names_version v;
        ck_assert_int_eq(pmix_names_read_version(cases[i].text, &v), 0);
        ck_assert_int_eq(v.major, cases[i].major);
        ck_assert_int_eq(v.minor, cases[i].minor);
        ck_assert_int_eq(v.release, cases[i].release);
        ck_assert_int_eq(pmix_names_uses_select(&v), cases[i].uses_select);
    }
}
END_TEST

START_TEST(other_versions_are_rejected)
{
    static const char *const texts[] = {"", "OpenPMIx", "4", "4.2", "4.2.x", "OpenPMIx v"};
    struct pmix_names_version v;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        ck_assert_msg(pmix_names_read_version(texts[i], &v) == -EINVAL, "%s", texts[i]);
}
END_TEST

TEST_SUITE(pmix_names)
{
    Suite *suite = suite_create("pmix_names");
    TCase *c = tcase_create("pmix_names");
    tcase_add_test(c, a_node_is_named_after_its_host);
    tcase_add_test(c, long_names_are_cut_and_stay_unique);
    tcase_add_test(c, a_generation_has_a_namespace);
    tcase_add_test(c, maps_have_all_nodes_and_ranks);
    tcase_add_test(c, a_version_is_read);
    tcase_add_test(c, other_versions_are_rejected);
    suite_add_tcase(suite, c);
    return suite;
}
