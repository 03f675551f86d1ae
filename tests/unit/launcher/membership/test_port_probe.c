/* What a probe of a port shows: refused only if no address of the host has a listener. */
#include "some_endpoints.h"

#include "launcher/membership/port_probe.h"

static int n_probed;
static bool was_refused;

static void on_probed(void *arg, bool is_refused)
{
    (void)arg;
    n_probed++;
    was_refused = is_refused;
    uv_stop(&loop);
}

static struct port_probe *start_probe(const char *host)
{
    struct port_probe *p;
    n_probed = 0;
    ck_assert_int_eq(port_probe_start(&loop, host, port, on_probed, NULL, &p, &err), 0);
    return p;
}

START_TEST(a_port_without_a_listener_is_refused)
{
    start_probe("127.0.0.1");
    AWAIT(n_probed == 1);
    ck_assert(was_refused);
    start_probe("localhost"); /* each of its addresses */
    AWAIT(n_probed == 1);
    ck_assert(was_refused);
}
END_TEST

START_TEST(a_port_with_a_listener_is_not_refused)
{
    int listener = listen_at_port();
    start_probe("127.0.0.1");
    AWAIT(n_probed == 1);
    ck_assert(!was_refused);
    start_probe("localhost"); /* although ::1 refuses */
    AWAIT(n_probed == 1);
    ck_assert(!was_refused);
    close(listener);
}
END_TEST

START_TEST(a_host_without_an_address_is_not_refused)
{
    start_probe("no-such-host.invalid");
    AWAIT(n_probed == 1);
    ck_assert(!was_refused);
}
END_TEST

START_TEST(a_closed_probe_reports_nothing)
{
    port_probe_close(start_probe("127.0.0.1"));
    port_probe_close(start_probe("localhost"));
    struct port_probe *p = start_probe("127.0.0.1");
    uv_run(&loop, UV_RUN_NOWAIT); /* it has connected, or is about to */
    if (n_probed == 0)
        port_probe_close(p);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_le(n_probed, 1);
}
END_TEST

TCase *port_probe_cases(void)
{
    TCase *t = tcase_create("port_probe");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_port_without_a_listener_is_refused);
    tcase_add_test(t, a_port_with_a_listener_is_not_refused);
    tcase_add_test(t, a_host_without_an_address_is_not_refused);
    tcase_add_test(t, a_closed_probe_reports_nothing);
    return t;
}
