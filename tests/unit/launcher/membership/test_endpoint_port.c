/* The endpoint's port, lent to a generation's store: meanwhile nodes still join by this port. */
#include "some_endpoints.h"

#include "rendezvous/server/server.h"

#include <string.h>

/* --- the port is lent to the store --- */

static void on_control(void *arg, int fd, const uint8_t *bytes, size_t len)
{
    endpoint_adopt(((struct node *)arg)->endpoint, fd, bytes, len);
}

START_TEST(nodes_join_through_the_store_while_it_has_the_port)
{
    struct node *a = make(0, "127.0.0.1", JOB_HOST_HERE);
    struct server *store;
    const struct server_opts opts = {.port = port, .on_control = on_control, .arg = a};
    begin(a);
    AWAIT(a->n_up == 1);
    ck_assert(!endpoint_lend_port(a->endpoint, (uint16_t)(port + 1)));
    for (int i = 1; i < 5; i++) {
        if (i % 2 == 1) {
            ck_assert(endpoint_lend_port(a->endpoint, port));
            ck_assert_msg(server_start(&loop, &opts, &store, &err) == 0, "%s", err.text);
        }
        struct node *b = make(i, "127.0.0.1", JOB_HOST_ELSEWHERE);
        begin(b);
        AWAIT(b->n_up == 1);
        say_hello(b);
        AWAIT(b->is_welcome);
        if (i % 2 == 1) {
            server_close(store, NULL, NULL);
            ck_assert_msg(endpoint_take_port(a->endpoint, &err) == 0, "%s", err.text);
            ck_assert_int_eq(endpoint_take_port(a->endpoint, &err), 0); /* again is fine */
        }
    }
    for (int i = 1; i < 5; i++)
        ck_assert_int_eq(nodes[i].n_down, 0); /* links outlive the listeners they came by */
}
END_TEST

START_TEST(a_store_on_the_port_does_not_mean_another_host)
{
    uint8_t greeting[SEAL_GREETING_BYTES];
    struct node *a = make(0, "127.0.0.1", JOB_HOST_HERE);
    begin(a);
    ck_assert(endpoint_lend_port(a->endpoint, port)); /* before it is known where the name leads */
    int listener = listen_at_port(), conn = accept_greeting(listener, greeting);
    AWAIT(a->n_up == 1);
    close(listener);
    close(conn); /* as the kernel does it with those that a listener has not taken */
    struct node *b = make(1, "127.0.0.1", JOB_HOST_ELSEWHERE);
    begin(b);
    AWAIT(b->n_down == 1); /* the loop has seen both connections end */
    ck_assert_msg(a->n_notes == 0, "%s", a->note);
}
END_TEST

START_TEST(the_endpoint_itself_is_not_a_store)
{
    struct node *a = make(0, "127.0.0.1", JOB_HOST_HERE);
    begin(a);
    AWAIT(a->n_up == 1);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    ck_assert_int_eq(write(fd, "\x0d\xef\xcd\xab\x3c", 5), 5); /* as a client of a store begins */
    AWAIT(a->n_notes == 1);
    ck_assert_msg(strstr(a->note, "refused: a store client, but this port serves no store") != NULL,
                  "%s", a->note);
    close(fd);
}
END_TEST

TCase *endpoint_port_cases(void)
{
    TCase *t = tcase_create("port");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, nodes_join_through_the_store_while_it_has_the_port);
    tcase_add_test(t, a_store_on_the_port_does_not_mean_another_host);
    tcase_add_test(t, the_endpoint_itself_is_not_a_store);
    return t;
}
