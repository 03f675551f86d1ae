/* Threads use one store at a time, some directly and some through relays of two nodes, while links
 * are lost; what they asked and were answered must be linearizable (tests/sim/relay_history.h). The
 * simulation of the core has more operations; here are real connections.
 *
 * HISTORIES=N in the environment: so many, SEED=N: others. */
#include "common/clock.h"
#include "common/error.h"
#include "rendezvous/channel/seal.h"
#include "rendezvous/client/client.h"
#include "rendezvous/relays/relay_hub.h"
#include "rendezvous/relays/relay_port.h"
#include "rendezvous/server/server.h"
#include "tests/sim/relay_history.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    DEADLINE_MS = 20000,
    N_NODES = 2,    /* with a relay */
    N_CLIENTS = 6,  /* two of each node, and two of the store's own */
    N_REQUESTS = 9, /* of each client; a set is two */
    KEY = 0,        /* names of the history */
    COUNTER = 1,
};

static uv_loop_t loop;
static uv_async_t order; /* to the loop's thread: lose all links, or stop */
static struct seal_key key;
static struct server *store, *listener;
static struct relay_hub *hub;
static struct relay_port *ports[N_NODES];
static atomic_bool is_over;

static struct history history;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the history */
static atomic_uint_fast64_t now;
static atomic_uint n_incarnations;
static atomic_int n_values;

/* --- the store and its relays, in a thread --- */

static void on_control(void *arg, int fd, const uint8_t *bytes, size_t len)
{
    (void)arg;
    relay_hub_adopt(hub, fd, bytes, len);
}

static void open_hub(void)
{
    struct co_error err = {0};
    const struct relay_hub_opts o = {
        .server = store, .key = &key, .run_id = "job", .max_links = 8, .max_clients = 100};
    ck_assert_int_eq(relay_hub_create(&loop, &o, &hub, &err), 0);
}

static void close_all(void)
{
    for (int i = 0; i < N_NODES; i++)
        relay_port_close(ports[i]);
    relay_hub_close(hub);
    server_close(listener, NULL, NULL);
    server_close(store, NULL, NULL);
    uv_close((uv_handle_t *)&order, NULL);
}

/* The keys stay: a node that has lost its link comes back to the same store. */
static void on_order(uv_async_t *async)
{
    (void)async;
    if (atomic_load(&is_over)) {
        close_all();
        return;
    }
    relay_hub_close(hub);
    open_hub();
}

static void *run_loop(void *arg)
{
    (void)arg;
    uv_run(&loop, UV_RUN_DEFAULT);
    return NULL;
}

static void open_all(void)
{
    const struct server_opts links = {.no_store = true, .on_control = on_control};
    struct co_error err = {0};
    uv_loop_init(&loop);
    uv_async_init(&loop, &order, on_order);
    ck_assert_int_eq(server_start(&loop, &(struct server_opts){0}, &store, &err), 0);
    ck_assert_int_eq(server_start(&loop, &links, &listener, &err), 0);
    open_hub();
    const struct relay_port_opts o = {.host = "127.0.0.1",
                                      .port = server_port(listener),
                                      .key = &key,
                                      .run_id = "job",
                                      .max_clients = 100};
    for (int i = 0; i < N_NODES; i++)
        ck_assert_int_eq(relay_port_open(&loop, &o, &ports[i], &err), 0);
}

/* --- the history --- */

static struct history_operation *begin(enum history_kind kind, int name, uint32_t client, int64_t a)
{
    pthread_mutex_lock(&lock);
    ck_assert_int_lt(history.n, HISTORY_OPERATIONS);
    struct history_operation *o = &history.operations[history.n++];
    *o = (struct history_operation){.kind = kind,
                                    .name = name,
                                    .client = client,
                                    .a = a,
                                    .begin = atomic_fetch_add(&now, 1),
                                    .end = HISTORY_PENDING};
    pthread_mutex_unlock(&lock);
    return o;
}

static void end(struct history_operation *o, int64_t result)
{
    o->result = result;
    o->end = atomic_fetch_add(&now, 1);
}

/* --- the clients, a thread each --- */

struct client {
    uint16_t port;
    unsigned seed;
    uint32_t incarnation;
    struct store_client *store; /* NULL: not connected */
};

static uint64_t soon(void)
{
    return co_deadline_ms(DEADLINE_MS);
}

/* A set has no reply: it was done when a later request on the same connection is answered. */
static int set_and_check(struct client *c)
{
    const int64_t value = atomic_fetch_add(&n_values, 1) + 1;
    char text[24];
    bool is_there;
    const int n = snprintf(text, sizeof text, "%lld", (long long)value);
    struct history_operation *set = begin(HISTORY_SET, KEY, c->incarnation, value);
    int rc = client_set(c->store, "k", 1, text, (size_t)n, soon(), NULL);
    struct history_operation *check = begin(HISTORY_CHECK, KEY, c->incarnation, 0);
    if (rc == 0)
        rc = client_check(c->store, "k", 1, soon(), &is_there, NULL);
    if (rc == 0) {
        end(check, is_there);
        end(set, 0);
    }
    return rc;
}

static int get(struct client *c)
{
    uint8_t *value = NULL;
    size_t len;
    struct history_operation *o = begin(HISTORY_GET, KEY, c->incarnation, 0);
    int rc = client_get_now(c->store, "k", 1, soon(), &value, &len, NULL);
    if (rc == 0 || rc == -ENOENT)
        end(o, rc == 0 ? atoll((const char *)value) : 0);
    free(value);
    return rc == -ENOENT ? 0 : rc;
}

static int delete (struct client *c)
{
    int64_t was_there;
    struct history_operation *o = begin(HISTORY_DELETE, KEY, c->incarnation, 0);
    int rc = client_delete(c->store, "k", 1, soon(), &was_there, NULL);
    if (rc == 0)
        end(o, was_there);
    return rc;
}

static int add(struct client *c)
{
    int64_t sum;
    struct history_operation *o = begin(HISTORY_ADD, COUNTER, c->incarnation, 1);
    int rc = client_add(c->store, "n", 1, 1, soon(), &sum, NULL);
    if (rc == 0)
        end(o, sum);
    return rc;
}

/* The link may be lost meanwhile, so that the handshake fails. */
static void connect_again(struct client *c)
{
    struct co_error err = {0};
    const uint64_t deadline_ms = soon();
    c->incarnation = atomic_fetch_add(&n_incarnations, 1);
    while (client_connect("127.0.0.1", c->port, deadline_ms, &c->store, &err) != 0)
        ck_assert_msg(co_left_ms(deadline_ms) > 0, "%s", err.text);
}

static void *run_client(void *arg)
{
    static int (*const requests[])(struct client * c) = {set_and_check, get, get, delete, add, add};
    struct client *c = arg;
    for (int i = 0; i < N_REQUESTS; i++) {
        if (c->store == NULL)
            connect_again(c);
        const size_t n = sizeof requests / sizeof *requests;
        if (requests[(unsigned)rand_r(&c->seed) % n](c) == 0)
            continue;
        client_close(c->store); /* whether it was done is not known */
        c->store = NULL;
    }
    client_close(c->store);
    return NULL;
}

/* --- the cases --- */

static void search(unsigned seed)
{
    for (int name = KEY; name <= COUNTER; name++) {
        const enum history_answer answer = history_search(&history, name);
        ck_assert_msg(answer != HISTORY_HAS_NONE, "no order explains history %u; SEED=%u", seed,
                      seed);
    }
}

/* n_losses   how often all links are lost, at moments that depend on the seed */
static void make_history(unsigned seed, int n_losses)
{
    pthread_t server, threads[N_CLIENTS];
    struct client clients[N_CLIENTS];
    history.n = 0;
    atomic_store(&is_over, false);
    open_all();
    ck_assert_int_eq(pthread_create(&server, NULL, run_loop, NULL), 0);
    for (int i = 0; i < N_CLIENTS; i++) {
        const int node = i % (N_NODES + 1);
        clients[i] = (struct client){.port = node < N_NODES ? relay_port_number(ports[node])
                                                            : server_port(store),
                                     .seed = seed * N_CLIENTS + (unsigned)i};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run_client, &clients[i]), 0);
    }
    for (int i = 0; i < n_losses; i++) {
        const uint64_t until = atomic_load(&now) + seed % 40;
        for (int k = 0; k < 1000 && atomic_load(&now) < until; k++)
            usleep(100);
        uv_async_send(&order);
    }
    for (int i = 0; i < N_CLIENTS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&is_over, true);
    uv_async_send(&order);
    pthread_join(server, NULL);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    search(seed);
}

static unsigned number_of(const char *variable, unsigned missing)
{
    const char *text = getenv(variable);
    return text != NULL ? (unsigned)atoi(text) : missing;
}

START_TEST(what_clients_are_answered_has_an_order_also_if_links_are_lost)
{
    const unsigned n = number_of("HISTORIES", 30), first = number_of("SEED", 1);
    struct co_error err = {0};
    signal(SIGPIPE, SIG_IGN);
    ck_assert_int_eq(seal_key_init(&key, "0123456789abcdef0123456789abcdef", 32, &err), 0);
    for (unsigned seed = first; seed < first + n; seed++)
        make_history(seed, (int)(seed % 3));
}
END_TEST

START_TEST(an_answer_that_is_out_of_date_has_none)
{
    history = (struct history){.n = 3};
    history.operations[0] =
        (struct history_operation){.kind = HISTORY_SET, .a = 1, .begin = 1, .end = 2};
    history.operations[1] =
        (struct history_operation){.kind = HISTORY_SET, .client = 1, .a = 2, .begin = 3, .end = 4};
    history.operations[2] = (struct history_operation){
        .kind = HISTORY_GET, .client = 2, .result = 2, .begin = 5, .end = 6};
    ck_assert_int_eq(history_search(&history, KEY), HISTORY_HAS_ORDER);
    history.operations[2].result = 1;
    ck_assert_int_eq(history_search(&history, KEY), HISTORY_HAS_NONE);
}
END_TEST

TEST_SUITE(relay_histories)
{
    Suite *suite = suite_create("relay_histories");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 0); /* each wait has a deadline */
    tcase_add_test(all, what_clients_are_answered_has_an_order_also_if_links_are_lost);
    tcase_add_test(all, an_answer_that_is_out_of_date_has_none);
    suite_add_tcase(suite, all);
    return suite;
}
