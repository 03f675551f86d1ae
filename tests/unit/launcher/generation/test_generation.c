/* A generation's store with several nodes: where it listens, which peers it accepts, when it
 * closes. */
#include "launcher/generation/generation.h"
#include "launcher/job/job_spec.h"
#include "launcher/platform/own_addresses.h"

#include "common/clock.h"
#include "common/error.h"
#include "tests/support/suite.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DEADLINE_MS = 20000 };

static uv_loop_t loop;
static struct generation g;
static struct job_spec spec;
static struct generation_reach reach;
static struct co_error err;
static char refused[512];

static void on_refused(void *arg, const char *text)
{
    (void)arg;
    snprintf(refused, sizeof refused, "%s", text);
}

static const struct generation_callbacks callbacks = {.on_store_refused = on_refused};

static void set_up(void)
{
    uv_loop_init(&loop);
    g = (struct generation){0};
    spec = (struct job_spec){.n_local = 1};
    reach = (struct generation_reach){.host = "127.0.0.1", .world_size = 2};
    refused[0] = '\0';
}

static void tear_down(void)
{
    generation_close(&g);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static int open_store(void)
{
    return generation_open_store(&spec, &reach, &loop, &callbacks, &g, &err);
}

/* returns a connected socket, or -errno */
static int connect_to(const char *host, uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(inet_pton(AF_INET, host, &to.sin_addr), 1);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0)
        return fd;
    int rc = -errno;
    close(fd);
    return rc;
}

/* Does the store answer a connection to this address? */
static bool serves_at(const char *host, uint16_t port)
{
    static const uint8_t ask_n_keys[] = {0x00, 0xce, 0xf7, 0x85, 0x3c, 0x07};
    int fd = connect_to(host, port);
    if (fd < 0)
        return false;
    ck_assert_int_eq(send(fd, ask_n_keys, sizeof ask_n_keys, MSG_NOSIGNAL), sizeof ask_n_keys);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    uint64_t deadline_ms = co_deadline_ms(DEADLINE_MS);
    while (poll(&p, 1, 1) == 0 && co_left_ms(deadline_ms) > 0)
        uv_run(&loop, UV_RUN_NOWAIT);
    uint8_t answer[8];
    ssize_t n = recv(fd, answer, sizeof answer, MSG_DONTWAIT);
    close(fd);
    return n == sizeof answer;
}

static bool serves(const char *host)
{
    return serves_at(host, g.master_port);
}

START_TEST(it_listens_where_others_reach_this_node)
{
    reach.host = "127.0.0.2";
    ck_assert_int_eq(open_store(), 0);
    ck_assert(g.agent_store);
    ck_assert(serves("127.0.0.2"));
    ck_assert(!serves("127.0.0.1"));
}
END_TEST

START_TEST(a_foreign_name_or_address_means_all_addresses)
{
    static const char *const hosts[] = {"node1", "203.0.113.7", ""};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        reach.host = hosts[i];
        ck_assert_msg(open_store() == 0, "%s", err.text);
        ck_assert(serves("127.0.0.1"));
        ck_assert(serves("127.0.0.2"));
        generation_close_store(&g);
    }
}
END_TEST

START_TEST(it_closes_at_once)
{
    ck_assert_int_eq(open_store(), 0);
    uint16_t port = g.master_port;
    int fd = connect_to("127.0.0.1", port); /* lies in the backlog */
    ck_assert_int_ge(fd, 0);
    generation_close_store(&g);
    char byte;
    ck_assert_int_le(recv(fd, &byte, 1, MSG_DONTWAIT), 0);
    ck_assert_int_ne(errno, EAGAIN);
    ck_assert_int_eq(connect_to("127.0.0.1", port), -ECONNREFUSED);
    close(fd);
    generation_close_store(&g); /* and once more is fine */
}
END_TEST

START_TEST(a_fixed_port_is_reused_and_a_taken_one_is_reported)
{
    ck_assert_int_eq(open_store(), 0);
    spec.master_port = g.master_port;
    struct generation second = {0};
    ck_assert_int_eq(generation_open_store(&spec, &reach, &loop, &callbacks, &second, &err),
                     -EADDRINUSE);
    ck_assert_msg(strstr(err.text, "cannot open the store") != NULL, "%s", err.text);
    ck_assert_ptr_null(second.store);
    generation_close(&second);
    for (int i = 0; i < 3; i++) {
        generation_close_store(&g);
        ck_assert_int_eq(open_store(), 0);
        ck_assert_uint_eq(g.master_port, spec.master_port);
        ck_assert(serves("127.0.0.1"));
    }
}
END_TEST

START_TEST(a_world_of_one_has_a_port_and_no_store)
{
    reach.world_size = 1;
    ck_assert_int_eq(open_store(), 0);
    ck_assert(!g.agent_store);
    ck_assert_ptr_null(g.store);
    ck_assert_uint_ne(g.master_port, 0);
    spec.store = STORE_WORKER; /* and so may a larger one */
    reach.world_size = 4;
    ck_assert_int_eq(open_store(), 0);
    ck_assert(!g.agent_store);
}
END_TEST

START_TEST(only_the_nodes_of_the_generation_are_admitted)
{
    struct message_address own[MESSAGE_MAX_ADDRESSES];
    char host[INET_ADDRSTRLEN];
    size_t n = own_addresses_find(own);
    size_t i = 0;
    while (i < n && own[i].family != 4)
        i++;
    if (i == n)
        return; /* a machine without any address has no peer to refuse */
    inet_ntop(AF_INET, own[i].bytes, host, sizeof host);
    reach.host = host;
    ck_assert_int_eq(open_store(), 0);
    ck_assert(!serves(host));
    ck_assert_msg(strstr(refused, "refused: its address is not in --allow") != NULL, "%s", refused);
    generation_close_store(&g);
    reach.allowed = &own[i];
    reach.n_allowed = 1;
    ck_assert_int_eq(open_store(), 0);
    ck_assert(serves(host));
}
END_TEST

static int open_relay(struct generation *other)
{
    return generation_open_relay(&spec, reach.generation, "127.0.0.1", g.master_port, &loop,
                                 &callbacks, other, &err);
}

START_TEST(a_relayed_store_is_served_on_loopback_of_each_node)
{
    struct generation other = {0};
    spec.store_relay = RELAY_ON;
    spec.run_id = (char *)"job";
    spec.world.max_nodes = 2;
    reach.generation = 5;
    ck_assert_int_eq(open_store(), 0);
    ck_assert(g.agent_store);
    ck_assert_ptr_nonnull(g.links);
    ck_assert(serves_at("127.0.0.1", g.local_port));
    ck_assert_int_eq(connect_to("127.0.0.2", g.local_port), -ECONNREFUSED);
    ck_assert(!serves_at("127.0.0.1", g.master_port)); /* for links only */

    ck_assert_int_eq(open_relay(&g), 0); /* the store itself */
    ck_assert_ptr_null(g.relay);
    ck_assert_int_eq(open_relay(&other), 0);
    ck_assert_uint_ne(other.local_port, g.local_port);
    ck_assert(serves_at("127.0.0.1", other.local_port));
    const uint16_t first = other.local_port;
    ck_assert_int_eq(open_relay(&other), 0); /* another one in its place */
    ck_assert_int_eq(connect_to("127.0.0.1", first), -ECONNREFUSED);
    ck_assert(serves_at("127.0.0.1", other.local_port));

    const uint16_t second = other.local_port;
    generation_close_store(&other);
    ck_assert_uint_eq(other.local_port, 0);
    ck_assert_int_eq(connect_to("127.0.0.1", second), -ECONNREFUSED);
    generation_close_store(&g);
    ck_assert_ptr_null(g.links);
}
END_TEST

START_TEST(a_relay_of_another_generation_is_refused)
{
    struct generation other = {0};
    spec.store_relay = RELAY_ON;
    spec.run_id = (char *)"job";
    spec.world.max_nodes = 2;
    ck_assert_int_eq(open_store(), 0);
    reach.generation = 1;
    ck_assert_int_eq(open_relay(&other), 0);
    ck_assert(!serves_at("127.0.0.1", other.local_port));
    ck_assert_msg(strstr(refused, "another job, generation or version") != NULL, "%s", refused);
    generation_close(&other);
}
END_TEST

TEST_SUITE(generation)
{
    Suite *suite = suite_create("generation");
    TCase *c = tcase_create("generation");
    tcase_set_timeout(c, 50);
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, it_listens_where_others_reach_this_node);
    tcase_add_test(c, a_foreign_name_or_address_means_all_addresses);
    tcase_add_test(c, it_closes_at_once);
    tcase_add_test(c, a_fixed_port_is_reused_and_a_taken_one_is_reported);
    tcase_add_test(c, a_world_of_one_has_a_port_and_no_store);
    tcase_add_test(c, only_the_nodes_of_the_generation_are_admitted);
    tcase_add_test(c, a_relayed_store_is_served_on_loopback_of_each_node);
    tcase_add_test(c, a_relay_of_another_generation_is_refused);
    suite_add_tcase(suite, c);
    return suite;
}
