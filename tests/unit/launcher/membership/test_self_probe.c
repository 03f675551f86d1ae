/* How an endpoint knows itself: what its name may be, which of its addresses counts, and whether a
 * connection to it comes in here. */
#include "some_endpoints.h"

#include "launcher/membership/self_probe.h"
#include "rendezvous/net/address.h"

/* --- where a name leads --- */

static struct sockaddr_storage address(const char *text)
{
    struct sockaddr_storage a;
    ck_assert_int_eq(address_parse(text, 0, &a), 0);
    return a;
}

START_TEST(only_known_names_are_the_loopback_interface)
{
    ck_assert(address_host_is_loopback("localhost"));
    ck_assert(address_host_is_loopback("LocalHost"));
    ck_assert(address_host_is_loopback("127.1.2.3"));
    ck_assert(address_host_is_loopback("::1"));
    ck_assert(!address_host_is_loopback("node1"));
    ck_assert(!address_host_is_loopback("localhost.example"));
    ck_assert(!address_host_is_loopback("10.0.0.1"));
    ck_assert(!address_host_is_loopback("::"));
}
END_TEST

START_TEST(the_choice_of_an_address_does_not_depend_on_the_order)
{
    const struct sockaddr_storage several[] = {address("fd00::1"), address("10.0.0.9"),
                                               address("10.0.0.10"), address("::1")};
    char text[64];
    for (int first = 0; first < 4; first++) {
        struct sockaddr_storage turned[4];
        for (int i = 0; i < 4; i++)
            turned[i] = several[(first + i) % 4];
        ck_assert_int_eq(address_print_host(address_first(turned, 4), text, sizeof text), 0);
        ck_assert_str_eq(text, "10.0.0.9");
    }
    ck_assert_ptr_eq(address_first(several, 1), &several[0]);
}
END_TEST

START_TEST(a_loopback_address_is_published_only_for_a_loopback_name)
{
    const struct sockaddr_storage loopback = address("127.0.1.1"), real = address("10.0.0.1");
    const struct sockaddr_storage unknown = {0};
    ck_assert(address_may_tell("node1", &real));
    ck_assert(address_may_tell("127.0.0.1", &loopback));
    ck_assert(!address_may_tell("node1", &loopback)); /* as a host's /etc/hosts has it */
    ck_assert(!address_may_tell("node1", &unknown));
}
END_TEST

/* --- the probe --- */

static int n_probed;
static enum self_probe_result probed;

static void on_probed(void *arg, enum self_probe_result result, const char *text)
{
    (void)arg, (void)text;
    n_probed++;
    probed = result;
    uv_stop(&loop);
}

static struct self_probe *start_probe(void)
{
    struct sockaddr_storage to;
    struct self_probe *p;
    n_probed = 0;
    ck_assert_int_eq(address_parse("127.0.0.1", port, &to), 0);
    ck_assert_int_eq(self_probe_start(&loop, &to, NULL, on_probed, NULL, &p, &err), 0);
    return p;
}

START_TEST(a_probe_distinguishes_a_free_port_from_another_program)
{
    start_probe();
    AWAIT(n_probed == 1);
    ck_assert_int_eq(probed, SELF_PROBE_NOBODY);
    struct descendant s;
    begin_descendant(&s, "hello");
    start_probe();
    AWAIT(n_probed == 1);
    ck_assert_int_eq(probed, SELF_PROBE_ANOTHER);
    s.reply = NULL;
    start_probe();
    AWAIT(n_probed == 1);
    ck_assert_int_eq(probed, SELF_PROBE_ANOTHER);
    self_probe_close(start_probe());
    close_now((uv_handle_t *)&s.tcp);
}
END_TEST

START_TEST(a_probe_claims_its_own_bytes_only)
{
    uint8_t seen[SEAL_GREETING_BYTES];
    int listener = listen_at_port();
    struct self_probe *p = start_probe();
    int conn = accept_greeting(listener, seen);
    ck_assert_int_eq(seal_is_greeting(seen, 4), 1);
    ck_assert(!self_probe_claims(p, seen, 4)); /* as each greeting begins */
    ck_assert(!self_probe_claims(p, seen, 16));
    seen[30] ^= 1;
    ck_assert(!self_probe_claims(p, seen, sizeof seen));
    seen[30] ^= 1;
    ck_assert(self_probe_claims(p, seen, sizeof seen));
    AWAIT(n_probed == 1);
    ck_assert_int_eq(probed, SELF_PROBE_US);
    close(conn);
    close(listener);
}
END_TEST

TCase *self_probe_cases(void)
{
    TCase *t = tcase_create("self");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, only_known_names_are_the_loopback_interface);
    tcase_add_test(t, the_choice_of_an_address_does_not_depend_on_the_order);
    tcase_add_test(t, a_loopback_address_is_published_only_for_a_loopback_name);
    tcase_add_test(t, a_probe_distinguishes_a_free_port_from_another_program);
    tcase_add_test(t, a_probe_claims_its_own_bytes_only);
    return t;
}
