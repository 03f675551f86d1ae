/* --domain: which text names the domain of a node. */
#include "launcher/platform/domain_rule.h"

#include "common/error.h"
#include "rendezvous/membership/message.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct co_error err;

static void assert_domain(const char *rule, const char *name, const char *expected)
{
    char domain[MESSAGE_DOMAIN_BYTES];
    ck_assert_msg(domain_rule_check("--domain", rule, &err) == 0, "%s", err.text);
    ck_assert_msg(domain_rule_apply(rule, name, domain, &err) == 0, "%s", err.text);
    ck_assert_str_eq(domain, expected);
}

static void assert_none(const char *rule, const char *name, int rc, const char *why)
{
    char domain[MESSAGE_DOMAIN_BYTES];
    ck_assert_int_eq(domain_rule_check("--domain", rule, &err), 0);
    ck_assert_int_eq(domain_rule_apply(rule, name, domain, &err), rc);
    ck_assert_msg(strstr(err.text, why) != NULL, "%s", err.text);
}

static void assert_bad(const char *rule, const char *why)
{
    ck_assert_int_eq(domain_rule_check("--domain", rule, &err), -EINVAL);
    ck_assert_msg(strstr(err.text, why) != NULL, "%s", err.text);
}

START_TEST(a_label_is_the_domain)
{
    assert_domain("rack7", "n1", "rack7");
    ck_assert(!domain_rule_is_gpu("rack7"));
    ck_assert(domain_rule_is_gpu("gpu"));
    ck_assert_int_eq(domain_rule_check("--domain", "gpu", &err), 0);
}
END_TEST

START_TEST(a_name_is_matched)
{
    assert_domain("name:^rack[0-9]+", "rack12-node3", "rack12");
    assert_domain("name:-sw([0-9]+)-", "n3-sw4-x", "4");
    assert_domain("name:(a)|b", "xb", "b"); /* a group that matches nothing */
    assert_none("name:^rack", "node3", -ENOENT, "does not match the name of this node, 'node3'");
    assert_none("name:x*", "node3", -EINVAL, "cannot be a domain");
}
END_TEST

START_TEST(a_variable_is_read)
{
    ck_assert_int_eq(setenv("TEST_RACK", "r7", 1), 0);
    assert_domain("env:TEST_RACK", "n1", "r7");
    ck_assert_int_eq(setenv("TEST_RACK", "", 1), 0);
    assert_none("env:TEST_RACK", "n1", -EINVAL, "'' cannot be a domain");
    ck_assert_int_eq(setenv("TEST_RACK", "two words", 1), 0);
    assert_none("env:TEST_RACK", "n1", -EINVAL, "'two words' cannot be a domain");
    ck_assert_int_eq(unsetenv("TEST_RACK"), 0);
    assert_none("env:TEST_RACK", "n1", -ENOENT, "this variable is not set on this node");
}
END_TEST

START_TEST(a_value_may_not_be_longer_than_a_domain)
{
    char text[2 * MESSAGE_DOMAIN_BYTES];
    memset(text, 'x', sizeof text);
    text[MESSAGE_DOMAIN_BYTES] = '\0';
    ck_assert_int_eq(setenv("TEST_RACK", text, 1), 0);
    assert_none("env:TEST_RACK", "n1", -EINVAL, "expected 1 to 127 printable characters");
    text[MESSAGE_DOMAIN_BYTES - 1] = '\0';
    ck_assert_int_eq(setenv("TEST_RACK", text, 1), 0);
    assert_domain("env:TEST_RACK", "n1", text);
    ck_assert_int_eq(unsetenv("TEST_RACK"), 0);
}
END_TEST

START_TEST(bad_rules_are_refused)
{
    char text[2000];
    static const char *const bad[] = {
        "", "two words", "kind:x", "env:", "env:A=B", "name:", "r\x1b", "\xc3\xa9"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_bad(bad[i], "expected gpu, name:REGEX, env:NAME, or a label");
    assert_bad("name:(", "expected a regular expression: ");
    assert_bad("name:(a{1,9999}){1,9999}", "expected a regular expression without '{'");
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    assert_bad(text, "expected gpu");
    memcpy(text, "name:", 5);
    assert_bad(text, "expected gpu");
}
END_TEST

TEST_SUITE(domain_rule)
{
    Suite *suite = suite_create("domain_rule");
    TCase *tc = tcase_create("all");
    tcase_add_test(tc, a_label_is_the_domain);
    tcase_add_test(tc, a_name_is_matched);
    tcase_add_test(tc, a_variable_is_read);
    tcase_add_test(tc, a_value_may_not_be_longer_than_a_domain);
    tcase_add_test(tc, bad_rules_are_refused);
    suite_add_tcase(suite, tc);
    return suite;
}
