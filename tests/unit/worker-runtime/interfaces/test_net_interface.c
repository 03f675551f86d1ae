/* test_net_interface.c - the rule of DDP_SOCKET_IFNAME, and the interfaces that a rank uses. */
#include "common/error.h"
#include "common/scope.h"
#include "tests/support/suite.h"
#include "worker-runtime/interfaces/net_interface.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the rule --------------------------------------------------------------------------------- */

#define FORM                                                                                       \
    "expected names of network interfaces, such as eth0,eth1, or the beginnings of those to "      \
    "leave out, such as ^docker,virbr"

static const struct {
    const char *value;
    int n;
    bool excludes;
    const char *why; /* of an invalid one */
} rules[] = {
    {NULL, 0, false, NULL},
    {"", 0, false, NULL},
    {"eth0", 1, false, NULL},
    {"eth0,eth1", 2, false, NULL},
    {"^docker", 1, true, NULL},
    {"^docker,virbr", 2, true, NULL},
    {"abcdefghijklmno", 1, false, NULL}, /* the longest */
    {"bond0.100,wlan@x,a:b", 3, false, NULL},
    {"a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p", 16, false, NULL},
    {"a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q", 0, false, "more than 16 network interfaces"},
    {"abcdefghijklmnop", 0, false, FORM},
    {"^", 0, false, FORM},
    {",", 0, false, FORM},
    {"eth0,", 0, false, FORM},
    {",eth0", 0, false, FORM},
    {"eth0,,eth1", 0, false, FORM},
    {"eth0 eth1", 0, false, FORM},
    {"eth0, eth1", 0, false, FORM},
    {"eth0,^eth1", 0, false, FORM},
    {"^^eth1", 0, false, FORM},
    {"../eth0", 0, false, FORM},
    {"eth0\n", 0, false, FORM},
    {"\xc3\xa9th0", 0, false, FORM},
    {"eth0,eth1,eth0", 0, false, "a network interface is given twice"},
};

START_TEST(a_rule_is_parsed_or_the_error_names_what_is_expected)
{
    struct net_interface_rule rule;
    struct co_error err = {0};
    char expected[CO_ERROR_TEXT_BYTES] = "";
    const int code = net_interface_rule_parse(rules[_i].value, &rule, &err);
    if (rules[_i].why != NULL)
        snprintf(expected, sizeof expected, "invalid value '%s' for DDP_SOCKET_IFNAME: %s",
                 rules[_i].value, rules[_i].why);
    ck_assert_int_eq(code, rules[_i].why != NULL ? -ENOEXEC : 0);
    ck_assert_str_eq(err.text, expected);
    if (code != 0)
        return;
    ck_assert_uint_eq(rule.n, (unsigned)rules[_i].n);
    ck_assert_int_eq(rule.excludes, rules[_i].excludes);
}
END_TEST

/* Short values of the characters that matter: none is read past its end, and what is accepted
 * consists of names. */
START_TEST(any_value_is_accepted_or_refused)
{
    static const char alphabet[] = ",^a0/ ";
    srand(1);
    for (int i = 0; i < 200000; i++) {
        co_autofree char *value = malloc(24);
        size_t length = (size_t)rand() % 23;
        struct net_interface_rule rule = {.n = 99};
        for (size_t k = 0; k < length; k++)
            value[k] = alphabet[rand() % 6];
        value[length] = '\0';
        if (net_interface_rule_parse(value, &rule, NULL) != 0)
            continue;
        ck_assert_uint_le(rule.n, NET_INTERFACES_MOST);
        for (unsigned k = 0; k < rule.n; k++)
            ck_assert(rule.name[k][0] != '\0' && strpbrk(rule.name[k], ",^/ ") == NULL);
    }
}
END_TEST

START_TEST(a_rule_leaves_interfaces_in_or_out)
{
    struct net_interface_rule rule;
    ck_assert_int_eq(net_interface_rule_parse(NULL, &rule, NULL), 0);
    ck_assert(net_interface_rule_allows(&rule, "eth0"));
    ck_assert_int_eq(net_interface_rule_parse("eth0,eth1", &rule, NULL), 0);
    ck_assert(net_interface_rule_allows(&rule, "eth1"));
    ck_assert(!net_interface_rule_allows(&rule, "eth10"));
    ck_assert_int_eq(net_interface_rule_parse("^docker,br-", &rule, NULL), 0);
    ck_assert(net_interface_rule_allows(&rule, "eth0"));
    ck_assert(!net_interface_rule_allows(&rule, "docker0"));
    ck_assert(!net_interface_rule_allows(&rule, "br-42"));
}
END_TEST

/* --- the choice ------------------------------------------------------------------------------- */

#define UP       .is_up = true
#define PHYSICAL .is_up = true, .is_physical = true
#define V4(d)                                                                                      \
    {                                                                                              \
        .family = AF_INET, .bytes = { 10, 0, d, 1 }                                                \
    }
#define V6(d)                                                                                      \
    {                                                                                              \
        .family = AF_INET6, .bytes = { 0xfd, [13] = d, [15] = 1 }                                  \
    }
#define LINK_LOCAL                                                                                 \
    {                                                                                              \
        .family = AF_INET6, .bytes = { 0xfe, 0x80, [15] = 1 }                                      \
    }

static const struct net_interface machine[] = {
    {"lo", {.family = AF_INET, .bytes = {127, 0, 0, 1}}, 8, 0, -1, UP, .is_loopback = true},
    {"mgmt", V4(0), 24, 1000, 0, PHYSICAL},
    {"eth0", V4(1), 24, 100000, 0, PHYSICAL},
    {"eth1", V4(2), 24, 100000, 1, PHYSICAL},
    {"eth2", V4(3), 24, 100000, 1, .is_physical = true}, /* no cable */
    {"eth3", LINK_LOCAL, 64, 100000, 1, PHYSICAL},
    {"eth1", V4(20), 24, 100000, 1, PHYSICAL}, /* another address */
    {"eth0", V6(1), 64, 100000, 0, PHYSICAL},
    {"eth1", V6(2), 64, 100000, 1, PHYSICAL},
    {"docker0", V4(9), 16, 0, -1, UP},
    {"bond0", V4(10), 24, 200000, -1, UP},
    {"tun0", V4(11), 24, 0, -1, UP},
    {"bare", {0}, 0, 0, -1, UP},
};
enum { N_MACHINE = sizeof machine / sizeof *machine };

static const struct {
    const char *rule;
    struct net_address reached_by;
    unsigned local_rank;
    int memory_node;
    const char *first, *ends; /* names; of an error, its text */
} choices[] = {
    {NULL, V4(0), 0, -1, "mgmt", "eth0 eth1 "},
    {NULL, V4(0), 1, -1, "mgmt", "eth1 eth0 "},
    {NULL, V4(0), 0, 1, "mgmt", "eth1 eth0 "},
    {NULL, V4(0), 1, 0, "mgmt", "eth0 eth1 "},
    {NULL, V4(0), 0, 7, "mgmt", "eth0 eth1 "},
    {NULL, V4(1), 0, -1, "eth0", "eth0 eth1 "},
    {NULL, V4(2), 0, -1, "eth1", "eth0 eth1 "},
    {NULL, V4(20), 0, -1, "eth1 (2)", "eth0 eth1 (2) "},
    {NULL, V6(1), 0, -1, "eth0 (2)", "eth0 (2) eth1 (3) "},
    {NULL, V4(77), 0, -1, "?", "eth0 eth1 "}, /* an address that is not in the list */
    {"eth0", V4(0), 0, -1, "eth0", ""},
    {"docker0", V4(0), 0, -1, "docker0", ""},
    {"eth3", V4(0), 0, -1, "eth3", ""},
    {"eth0,eth1", V4(0), 0, -1, "eth0", "eth0 eth1 "},
    {"eth1,eth0", V4(0), 0, -1, "eth1", "eth1 eth0 "},
    {"eth0,mgmt", V4(0), 0, -1, "eth0", "eth0 mgmt "},
    {"eth0,eth1,mgmt,docker0,bond0", V4(0), 0, -1, "eth0", "eth0 eth1 mgmt docker0 "},
    {"eth0,eth1,mgmt,docker0,bond0", V4(0), 4, -1, "eth0", "bond0 eth0 eth1 mgmt "},
    {"eth0,eth1,mgmt,docker0,bond0", V4(0), 4, 1, "eth0", "eth1 bond0 eth0 mgmt "},
    {"eth0,eth2", V4(0), 0, -1, "eth0", "eth0 eth2 "}, /* named, so it is tried */
    {"eth9", V4(0), 0, -1,
     "invalid value 'eth9' for DDP_SOCKET_IFNAME: no such network interface; "
     "`ip address` lists them",
     NULL},
    {"eth0,eth9", V4(0), 0, -1, "eth0",
     "invalid value 'eth9' for DDP_SOCKET_IFNAME: no such network "
     "interface; `ip address` lists them"},
    {"bare", V4(0), 0, -1,
     "invalid value 'bare' for DDP_SOCKET_IFNAME: the network interface has no address", NULL},
    {"eth0,eth3", V4(0), 0, -1, "eth0",
     "invalid value 'eth3' for DDP_SOCKET_IFNAME: the network "
     "interface has no IPv4 address, as the first one has"},
    {"eth3,mgmt", V4(0), 0, -1, "eth3",
     "invalid value 'eth3' for DDP_SOCKET_IFNAME: the network "
     "interface has only a link-local address, which is of no use in a list of interfaces"},
    {"^docker", V4(0), 0, -1, "mgmt", "eth0 eth1 bond0 "},
    {"^docker,bond", V4(0), 0, -1, "mgmt", "eth0 eth1 "},
    {"^mgmt", V4(0), 0, -1, "bond0", "eth0 eth1 bond0 "},
    {"^mgmt,eth,bond", V4(0), 0, -1, "docker0", "docker0 tun0 "},
    {"^mgmt,eth,bond,tun", V4(0), 0, -1, "docker0", ""},
    {"^eth,bond,docker,tun", V4(0), 0, -1, "mgmt", ""},
    {"^mgmt,eth,bond,docker,tun", V4(0), 0, -1,
     "DDP_SOCKET_IFNAME leaves no network interface; `ip address` lists them", NULL},
};

/* "eth1 (2)": the second address of it in the list; "?": none has it */
static void name_address(const struct net_address *a, char *text, size_t size)
{
    snprintf(text, size, "?");
    for (int i = 0; i < N_MACHINE; i++) {
        int number = 1;
        if (!net_address_is_same(&machine[i].address, a))
            continue;
        for (int k = 0; k < i; k++)
            number += strcmp(machine[k].name, machine[i].name) == 0;
        snprintf(text, size, number > 1 ? "%s (%d)" : "%s", machine[i].name, number);
        return;
    }
}

START_TEST(interfaces_are_chosen)
{
    struct net_interface_rule rule;
    struct net_address first;
    struct net_ends ends;
    struct co_error err = {0};
    char text[256] = "", name[64];
    ck_assert_int_eq(net_interface_rule_parse(choices[_i].rule, &rule, &err), 0);
    int code = net_interface_choose_first(&rule, machine, N_MACHINE, &choices[_i].reached_by,
                                          &first, &err);
    if (code == 0)
        name_address(&first, name, sizeof name);
    ck_assert_str_eq(code == 0 ? name : err.text, choices[_i].first);
    if (code != 0) {
        ck_assert_int_eq(code, -ENOEXEC);
        return;
    }
    const struct net_interface_user user = {choices[_i].local_rank, choices[_i].memory_node};
    code = net_interface_choose_ends(&rule, machine, N_MACHINE, &first, &user, &ends, &err);
    for (unsigned i = 0; code == 0 && i < ends.n; i++) {
        const struct net_address a = net_ends_address(&ends.end[i]);
        name_address(&a, name, sizeof name);
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s ", name);
    }
    ck_assert_str_eq(code == 0 ? text : err.text, choices[_i].ends);
    ck_assert(code == -ENOEXEC || net_ends_is_valid(&ends));
}
END_TEST

START_TEST(without_interfaces_lanes_have_no_ends)
{
    const struct net_interface_rule rule = {0};
    const struct net_address loopback = {.family = AF_INET, .bytes = {127, 0, 0, 1}};
    const struct net_interface_user user = {0, -1};
    struct net_address first;
    struct net_ends ends;
    ck_assert_int_eq(net_interface_choose_first(&rule, NULL, 0, &loopback, &first, NULL), 0);
    ck_assert(net_address_is_same(&first, &loopback));
    ck_assert_int_eq(net_interface_choose_ends(&rule, NULL, 0, &first, &user, &ends, NULL), 0);
    ck_assert_uint_eq(ends.n, 0);
    /* a node that reaches the store over loopback, and has one interface */
    ck_assert_int_eq(net_interface_choose_ends(&rule, machine + 2, 1, &first, &user, &ends, NULL),
                     0);
    ck_assert_uint_eq(ends.n, 0);
}
END_TEST

START_TEST(the_machine_has_a_loopback_interface)
{
    const struct net_address loopback = {.family = AF_INET, .bytes = {127, 0, 0, 1}};
    struct net_interface_rule rule;
    struct net_address a;
    struct co_error err;
    co_autofree struct net_interface *list = NULL;
    char name[IF_NAMESIZE] = "";
    unsigned n;
    ck_assert_int_eq(net_interface_list(&list, &n, &err), 0);
    ck_assert_int_eq(net_interface_rule_parse("lo", &rule, &err), 0);
    ck_assert_int_eq(net_interface_choose_first(&rule, list, n, &loopback, &a, &err), 0);
    ck_assert(net_address_is_same(&a, &loopback));
    ck_assert(net_interface_find_name(&loopback, name));
    ck_assert_str_eq(name, "lo");
    ck_assert(!net_interface_find_name(&(struct net_address){.family = AF_INET}, name));
}
END_TEST

TEST_SUITE(net_interface)
{
    Suite *suite = suite_create("net_interface");
    TCase *tcase = tcase_create("all");
    tcase_add_loop_test(tcase, a_rule_is_parsed_or_the_error_names_what_is_expected, 0,
                        sizeof rules / sizeof *rules);
    tcase_add_test(tcase, any_value_is_accepted_or_refused);
    tcase_add_test(tcase, a_rule_leaves_interfaces_in_or_out);
    tcase_add_loop_test(tcase, interfaces_are_chosen, 0, sizeof choices / sizeof *choices);
    tcase_add_test(tcase, without_interfaces_lanes_have_no_ends);
    tcase_add_test(tcase, the_machine_has_a_loopback_interface);
    suite_add_tcase(suite, tcase);
    return suite;
}
