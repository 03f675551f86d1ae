/* Links to a roster, over loopback and within the process: one loop has both ends. */
#include "common/clock.h"
#include "common/error.h"
#include "rendezvous/channel/seal.h"
#include "rendezvous/jobs/channel_link.h"
#include "rendezvous/jobs/jobs.h"
#include "rendezvous/server/server.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <string.h>

enum { DEADLINE_MS = 20000, MAX_HEARD = 64 };

static uv_loop_t loop;
static struct server *server;
static struct jobs *jobs;
static struct seal_key key, other_key;
static struct co_error err;
static char notes[4096];

struct node { /* one link, and what was heard on it */
    struct channel_link *link;
    int n_up, n_down;
    int code;
    char why[1200];
    enum message_type heard[MAX_HEARD];
    int n_heard;
    uint32_t generation;
    struct message_place place;
    enum message_refusal refusal;
    enum message_outcome outcome;
    bool reports;                 /* a field of its HELLO */
    bool is_asked, writes, stays; /* for its result */
    bool was_asked_late;          /* after the verdict */
    bool has_all;
    uint32_t n_results; /* of other nodes */
    uint32_t last_rank;
    uint32_t n_asked_figures, n_figures;
    uint32_t figures_index; /* of the last ones */
};

static struct node nodes[3];

/* --- the roster's end --- */

static void on_note(void *arg, const char *text)
{
    (void)arg;
    strncat(notes, text, sizeof notes - strlen(notes) - 1);
}

static void on_control(void *arg, int fd, const uint8_t *bytes, size_t len)
{
    (void)arg;
    jobs_adopt(jobs, fd, bytes, len);
}

static struct message_terms terms(uint32_t min, uint32_t max)
{
    return (struct message_terms){.min_nodes = min,
                                  .max_nodes = max,
                                  .window_ms = 10,
                                  .start_timeout_ms = DEADLINE_MS,
                                  .rejoin_timeout_ms = DEADLINE_MS};
}

static void serve(size_t n_keys, const char *only_run_id)
{
    static struct message_terms two;
    two = terms(2, 2);
    struct jobs_opts opts = {.keys = &key,
                             .n_keys = n_keys,
                             .only_run_id = only_run_id,
                             .terms = only_run_id != NULL ? &two : NULL,
                             .on_note = on_note};
    struct server_opts server_opts = {.on_control = on_control};
    ck_assert_int_eq(jobs_create(&loop, &opts, &jobs, &err), 0);
    ck_assert_int_eq(server_start(&loop, &server_opts, &server, &err), 0);
}

/* --- the nodes' end --- */

static void on_up(void *arg)
{
    ((struct node *)arg)->n_up++;
}

static void on_down(void *arg, const char *text, int code)
{
    struct node *n = arg;
    n->n_down++;
    n->code = code;
    snprintf(n->why, sizeof n->why, "%s", text);
}

static void note_result(struct node *n, const struct message_result *r)
{
    if (r->kind == MESSAGE_RESULT_ASKED) {
        n->is_asked = true;
        n->writes = r->writes;
        n->stays = r->stays;
        for (int i = 0; i < n->n_heard; i++)
            n->was_asked_late |= n->heard[i] == MESSAGE_VERDICT;
    } else if (r->kind == MESSAGE_RESULT_RANKS) {
        n->n_results++;
        n->last_rank = r->n_ranks > 0 ? r->ranks[0].rank : UINT32_MAX;
    } else {
        n->has_all = true;
    }
}

static void on_message(void *arg, const struct message *m)
{
    struct node *n = arg;
    ck_assert_int_lt(n->n_heard, MAX_HEARD);
    n->heard[n->n_heard++] = m->type;
    if (m->type == MESSAGE_SEALED) {
        n->generation = m->generation;
        n->place = m->sealed;
        n->place.host = NULL; /* lent */
    } else if (m->type == MESSAGE_REFUSED) {
        n->refusal = m->refused.why;
    } else if (m->type == MESSAGE_VERDICT) {
        n->outcome = m->verdict.outcome;
    } else if (m->type == MESSAGE_RESULT) {
        note_result(n, &m->result);
    } else if (m->type == MESSAGE_FIGURES && m->figures.kind == MESSAGE_FIGURES_ASKED) {
        n->n_asked_figures++;
    } else if (m->type == MESSAGE_FIGURES) {
        n->n_figures++;
        n->figures_index = m->figures.node_index;
    }
}

static void make_node(struct node *n, const char *host, uint16_t port, const struct seal_key *k)
{
    const struct channel_link_callbacks link_callbacks = {
        .on_up = on_up, .on_message = on_message, .on_down = on_down, .arg = n};
    *n = (struct node){0};
    if (host != NULL)
        ck_assert_int_eq(channel_link_create(&loop, host, port, k, &link_callbacks, &n->link, &err),
                         0);
    else
        ck_assert_int_eq(channel_link_create_local(&loop, jobs, &link_callbacks, &n->link, &err),
                         0);
}

static void say_hello(struct node *n, const char *run_id, const char *name, uint8_t instance)
{
    const struct message m = {.type = MESSAGE_HELLO,
                              .generation = MESSAGE_NO_GENERATION,
                              .hello = {.instance = {instance, 1},
                                        .run_id = run_id,
                                        .name = name,
                                        .node_rank = MESSAGE_NO_RANK,
                                        .n_local = 2,
                                        .reports = n->reports,
                                        .resumes = MESSAGE_NO_GENERATION,
                                        .stop_ms = 1000,
                                        .sent_ms = co_now_ms(),
                                        .terms = terms(2, 2)}};
    channel_link_send(n->link, &m);
}

static bool has_heard(const struct node *n, enum message_type type)
{
    for (int i = 0; i < n->n_heard; i++)
        if (n->heard[i] == type)
            return true;
    return false;
}

#define AWAIT(condition)                                                                           \
    do {                                                                                           \
        uint64_t deadline_ms_ = co_deadline_ms(DEADLINE_MS);                                       \
        while (!(condition)) {                                                                     \
            ck_assert_msg(co_now_ms() < deadline_ms_, "waited in vain for " #condition);           \
            uv_run(&loop, UV_RUN_ONCE);                                                            \
        }                                                                                          \
    } while (0)

/* --- the frame of each test --- */

static uv_timer_t ticker; /* so that UV_RUN_ONCE comes back to look at the deadline */

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

static void setup(void)
{
    static const char digits[] = "0123456789abcdef0123456789abcdef01"; /* are not stretched */
    ck_assert_int_eq(seal_key_init(&key, digits, 32, &err), 0);
    ck_assert_int_eq(seal_key_init(&other_key, digits + 2, 32, &err), 0);
    uv_loop_init(&loop);
    uv_timer_init(&loop, &ticker);
    uv_timer_start(&ticker, on_tick, 50, 50);
    memset(nodes, 0, sizeof nodes);
    notes[0] = '\0';
    server = NULL;
    jobs = NULL;
}

static void teardown(void)
{
    for (int i = 0; i < 3; i++)
        if (nodes[i].link != NULL)
            channel_link_close(nodes[i].link, NULL, NULL);
    if (server != NULL)
        server_close(server, NULL, NULL);
    if (jobs != NULL)
        jobs_close(jobs, NULL, NULL);
    uv_close((uv_handle_t *)&ticker, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0); /* nothing is left open */
}

static void link_up(struct node *n, const char *run_id, const char *name, uint8_t instance)
{
    channel_link_connect(n->link);
    AWAIT(n->n_up > 0);
    say_hello(n, run_id, name, instance);
}

/* --- tests --- */

static struct jobs_figures figures(void)
{
    struct jobs_figures f;
    jobs_get_figures(jobs, &f);
    return f;
}

START_TEST(two_nodes_get_a_generation)
{
    const struct seal_key *k = _i == 0 ? &key : NULL;
    serve(_i == 0, NULL);
    for (uint8_t i = 0; i < 2; i++) {
        make_node(&nodes[i], _i == 2 ? "localhost" : "127.0.0.1", server_port(server), k);
        link_up(&nodes[i], "job7", i == 0 ? "node1" : "node2", i);
    }
    AWAIT(has_heard(&nodes[0], MESSAGE_SEALED));
    ck_assert_int_eq(nodes[0].heard[0], MESSAGE_WELCOME);
    ck_assert(nodes[0].place.leads);
    ck_assert_uint_eq(nodes[0].place.world_size, 4);
    ck_assert(!has_heard(&nodes[1], MESSAGE_SEALED)); /* the store is not open yet */
    const struct message ready = {
        .type = MESSAGE_READY,
        .generation = nodes[0].generation,
        .ready = {.host = "127.0.0.1", .port = 1234, .agent_store = true}};
    channel_link_send(nodes[0].link, &ready);
    AWAIT(has_heard(&nodes[1], MESSAGE_SEALED));
    ck_assert_uint_eq(nodes[1].place.first_rank, 2);
    ck_assert_uint_eq(nodes[1].place.port, 1234);
    ck_assert_uint_eq(figures().n_jobs, 1);
}
END_TEST

START_TEST(the_node_with_the_roster_needs_no_socket)
{
    serve(1, "job7");
    make_node(&nodes[0], NULL, 0, NULL);
    make_node(&nodes[1], "127.0.0.1", server_port(server), &key);
    link_up(&nodes[0], "job7", "node1", 0);
    link_up(&nodes[1], "job7", "node2", 1);
    AWAIT(has_heard(&nodes[0], MESSAGE_SEALED));
    ck_assert_uint_eq(figures().n_conns, 1);
}
END_TEST

START_TEST(a_wrong_token_is_reported_and_final)
{
    serve(1, NULL);
    make_node(&nodes[0], "127.0.0.1", server_port(server), _i == 0 ? &other_key : NULL);
    channel_link_connect(nodes[0].link);
    AWAIT(nodes[0].n_down > 0);
    ck_assert_int_eq(nodes[0].code, -EACCES);
    ck_assert_ptr_nonnull(strstr(nodes[0].why, "token"));
    ck_assert_ptr_nonnull(strstr(nodes[0].why, "127.0.0.1:")); /* the other end */
    AWAIT(strstr(notes, "token") != NULL);                     /* and at the other end */
    ck_assert_ptr_nonnull(strstr(notes, "from 127.0.0.1:"));
}
END_TEST

START_TEST(another_jobs_id_is_refused_and_both_are_named)
{
    serve(0, "job7");
    make_node(&nodes[0], "127.0.0.1", server_port(server), NULL);
    link_up(&nodes[0], "job8", "node1", 0);
    AWAIT(nodes[0].n_down > 0);
    ck_assert(has_heard(&nodes[0], MESSAGE_REFUSED));
    ck_assert_int_eq(nodes[0].refusal, MESSAGE_REFUSED_OTHER_JOB);
    ck_assert_ptr_nonnull(strstr(notes, "job7"));
    ck_assert_ptr_nonnull(strstr(notes, "job8"));
}
END_TEST

START_TEST(jobs_do_not_see_each_other)
{
    serve(0, NULL);
    for (uint8_t i = 0; i < 2; i++) {
        make_node(&nodes[i], "127.0.0.1", server_port(server), NULL);
        link_up(&nodes[i], i == 0 ? "job7" : "job8", "node1", i);
        AWAIT(has_heard(&nodes[i], MESSAGE_WELCOME));
    }
    ck_assert_uint_eq(figures().n_jobs, 2);
    ck_assert(!has_heard(&nodes[0], MESSAGE_SEALED));
}
END_TEST

START_TEST(a_refused_connection_is_reported)
{
    serve(0, NULL);
    make_node(&nodes[0], "127.0.0.1", 1, NULL);
    channel_link_connect(nodes[0].link);
    AWAIT(nodes[0].n_down > 0);
    ck_assert_int_eq(nodes[0].code, 0);
    ck_assert_ptr_nonnull(strstr(nodes[0].why, "127.0.0.1:1: connection refused"));
}
END_TEST

START_TEST(a_name_without_an_address_is_reported)
{
    make_node(&nodes[0], "no-such-host.invalid", 29400, NULL);
    channel_link_connect(nodes[0].link);
    AWAIT(nodes[0].n_down > 0);
    ck_assert_ptr_nonnull(strstr(nodes[0].why, "no-such-host.invalid"));
}
END_TEST

START_TEST(a_lookup_can_be_abandoned)
{
    make_node(&nodes[0], "no-such-host.invalid", 29400, NULL);
    channel_link_connect(nodes[0].link);
    channel_link_disconnect(nodes[0].link);
    channel_link_close(nodes[0].link, NULL, NULL);
    nodes[0].link = NULL;
}
END_TEST

START_TEST(a_connection_without_a_valid_hello_is_closed_and_reported)
{
    serve(0, NULL);
    make_node(&nodes[0], "127.0.0.1", server_port(server), NULL);
    channel_link_connect(nodes[0].link);
    AWAIT(nodes[0].n_up > 0);
    channel_link_send(nodes[0].link, &(struct message){.type = MESSAGE_SUCCEEDED});
    AWAIT(nodes[0].n_down > 0);
    AWAIT(strstr(notes, "HELLO") != NULL);
}
END_TEST

START_TEST(a_verdict_arrives_although_the_roster_closes_at_once)
{
    serve(0, NULL);
    for (uint8_t i = 0; i < 2; i++) {
        make_node(&nodes[i], "127.0.0.1", server_port(server), NULL);
        link_up(&nodes[i], "job7", i == 0 ? "node1" : "node2", i);
    }
    const struct message end = {.type = MESSAGE_END,
                                .generation = MESSAGE_NO_GENERATION,
                                .verdict = {.outcome = MESSAGE_ENDED,
                                            .exit_code = 3,
                                            .rank = MESSAGE_NO_RANK,
                                            .node = "node1",
                                            .text = "told to"}};
    channel_link_send(nodes[0].link, &end);
    for (int i = 0; i < 2; i++) {
        AWAIT(has_heard(&nodes[i], MESSAGE_VERDICT));
        ck_assert_int_eq(nodes[i].outcome, MESSAGE_ENDED);
    }
}
END_TEST

/* --- the report --- */

static void end_job(struct node *n)
{
    const struct message end = {.type = MESSAGE_END,
                                .generation = MESSAGE_NO_GENERATION,
                                .verdict = {.outcome = MESSAGE_ENDED,
                                            .exit_code = 3,
                                            .rank = MESSAGE_NO_RANK,
                                            .node = "node1",
                                            .text = "told to"}};
    channel_link_send(n->link, &end);
    for (int i = 0; i < 2; i++)
        AWAIT(has_heard(&nodes[i], MESSAGE_VERDICT));
}

static void send_result(struct node *n, uint32_t rank)
{
    const struct message_result_rank ranks[] = {{.rank = rank}};
    const struct message m = {.type = MESSAGE_RESULT,
                              .generation = 0,
                              .result = {.kind = MESSAGE_RESULT_RANKS,
                                         .host = "n",
                                         .cause = "{}",
                                         .n_ranks = 1,
                                         .ranks = ranks}};
    channel_link_send(n->link, &m);
}

/* Two nodes of a daemon; with `local`, the first one is next to the roster. */
static void begin_reporting(bool first, bool second, bool local)
{
    serve(0, local ? "job7" : NULL);
    for (uint8_t i = 0; i < 2; i++) {
        make_node(&nodes[i], local && i == 0 ? NULL : "127.0.0.1", server_port(server), NULL);
        nodes[i].reports = i == 0 ? first : second;
        link_up(&nodes[i], "job7", i == 0 ? "node1" : "node2", i);
        AWAIT(has_heard(&nodes[i], MESSAGE_WELCOME));
    }
}

START_TEST(the_first_node_of_a_daemon_writes_the_report)
{
    begin_reporting(true, true, false);
    end_job(&nodes[1]);
    ck_assert(nodes[0].is_asked && nodes[0].writes && nodes[0].stays && !nodes[0].has_all);
    ck_assert(nodes[1].is_asked && !nodes[1].writes && !nodes[1].stays);
    ck_assert(!nodes[0].was_asked_late && !nodes[1].was_asked_late);
    send_result(&nodes[1], 3);
    AWAIT(nodes[0].has_all);
    ck_assert_uint_eq(nodes[0].n_results, 1);
    ck_assert_uint_eq(nodes[0].last_rank, 3);
}
END_TEST

START_TEST(the_report_does_not_wait_for_a_disconnected_node)
{
    begin_reporting(true, true, false);
    end_job(&nodes[1]);
    channel_link_disconnect(nodes[1].link);
    AWAIT(nodes[0].has_all);
    ck_assert_uint_eq(nodes[0].n_results, 0);
}
END_TEST

START_TEST(the_node_with_the_roster_stays_for_the_node_that_writes)
{
    begin_reporting(false, true, true);
    end_job(&nodes[1]);
    ck_assert(nodes[0].is_asked && !nodes[0].writes && nodes[0].stays);
    ck_assert(nodes[1].is_asked && nodes[1].writes && nodes[1].stays);
    send_result(&nodes[0], 0);
    AWAIT(nodes[0].has_all && nodes[1].has_all);
    ck_assert_uint_eq(nodes[1].n_results, 1);
}
END_TEST

START_TEST(the_node_with_the_roster_writes_it_before_any_other)
{
    begin_reporting(true, true, true);
    end_job(&nodes[0]);
    ck_assert(nodes[0].writes && !nodes[1].writes && nodes[1].is_asked);
    send_result(&nodes[1], 2);
    send_result(&nodes[1], 3); /* once is enough */
    AWAIT(nodes[0].has_all);
    ck_assert_uint_eq(nodes[0].n_results, 1);
    ck_assert_uint_eq(nodes[0].last_rank, 2);
}
END_TEST

START_TEST(without_a_report_no_node_is_asked)
{
    begin_reporting(false, false, true);
    send_result(&nodes[1], 2);
    end_job(&nodes[0]);
    ck_assert(!nodes[0].is_asked && !nodes[1].is_asked && !has_heard(&nodes[0], MESSAGE_RESULT));
}
END_TEST

/* --- the figures --- */

static void ask_for_figures(struct node *n, uint32_t generation)
{
    channel_link_send(n->link, &(struct message){.type = MESSAGE_FIGURES,
                                                 .generation = generation,
                                                 .figures = {.kind = MESSAGE_FIGURES_ASKED}});
}

static void send_figures(struct node *n, uint32_t node_index, uint32_t generation)
{
    const struct message_figures_rank rank = {.rank = 2};
    channel_link_send(n->link, &(struct message){.type = MESSAGE_FIGURES,
                                                 .generation = generation,
                                                 .figures = {.kind = MESSAGE_FIGURES_RANKS,
                                                             .node_index = node_index,
                                                             .host = "n2",
                                                             .n_ranks = 1,
                                                             .ranks = &rank}});
}

/* What was sent before it has been handled: the answers come in order. */
static void settle(struct node *n)
{
    const struct message m = {.type = MESSAGE_KEEP_ALIVE,
                              .generation = MESSAGE_NO_GENERATION,
                              .keep_alive = {.sent_ms = co_now_ms()}};
    const int n_heard = n->n_heard;
    channel_link_send(n->link, &m);
    AWAIT(n->n_heard > n_heard && n->heard[n->n_heard - 1] == MESSAGE_LEASE);
}

static void begin_generation(bool local)
{
    begin_reporting(false, false, local);
    AWAIT(has_heard(&nodes[0], MESSAGE_SEALED));
    channel_link_send(nodes[0].link, &(struct message){.type = MESSAGE_READY,
                                                       .generation = nodes[0].generation,
                                                       .ready = {"127.0.0.1", 1, true}});
    AWAIT(has_heard(&nodes[1], MESSAGE_SEALED));
}

static void exchange_figures(bool local)
{
    begin_generation(local);
    ask_for_figures(&nodes[0], 0);
    AWAIT(nodes[1].n_asked_figures == 1);
    send_figures(&nodes[1], 0, 0); /* it has another place */
    send_figures(&nodes[1], 1, 0); /* once is enough */
    AWAIT(nodes[0].n_figures == 1);
    settle(&nodes[1]);
    settle(&nodes[0]);
    ck_assert_uint_eq(nodes[0].n_figures, 1);
    ck_assert_uint_eq(nodes[0].figures_index, 1);
    ck_assert_uint_eq(nodes[0].n_asked_figures, 0);
}

START_TEST(the_first_node_gets_the_figures_that_it_asks_for)
{
    exchange_figures(false);
}
END_TEST

START_TEST(a_first_node_with_the_roster_gets_them_too)
{
    exchange_figures(true);
}
END_TEST

START_TEST(figures_that_were_not_asked_for_are_dropped)
{
    begin_generation(false);
    send_figures(&nodes[1], 1, 0);
    ask_for_figures(&nodes[1], 0); /* not the first one */
    ask_for_figures(&nodes[0], 7); /* another generation */
    settle(&nodes[1]);
    settle(&nodes[0]);
    ck_assert_uint_eq(nodes[0].n_figures + nodes[0].n_asked_figures, 0);
    ck_assert_uint_eq(nodes[1].n_figures + nodes[1].n_asked_figures, 0);
    ask_for_figures(&nodes[0], 0);
    ask_for_figures(&nodes[0], 0); /* too early */
    settle(&nodes[0]);
    AWAIT(nodes[1].n_asked_figures > 0);
    settle(&nodes[1]);
    ck_assert_uint_eq(nodes[1].n_asked_figures, 1);
    send_figures(&nodes[1], 1, 7);
    settle(&nodes[1]);
    settle(&nodes[0]);
    ck_assert_uint_eq(nodes[0].n_figures, 0);
}
END_TEST

START_TEST(closing_with_connections_open_leaves_nothing)
{
    serve(1, "job7");
    make_node(&nodes[0], NULL, 0, NULL);
    make_node(&nodes[1], "127.0.0.1", server_port(server), &key);
    link_up(&nodes[0], "job7", "node1", 0);
    link_up(&nodes[1], "job7", "node2", 1);
}
END_TEST

TEST_SUITE(channel_link)
{
    Suite *suite = suite_create("control");
    TCase *t = tcase_create("control");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, two_nodes_get_a_generation, 0, 3);
    tcase_add_test(t, the_node_with_the_roster_needs_no_socket);
    tcase_add_loop_test(t, a_wrong_token_is_reported_and_final, 0, 2);
    tcase_add_test(t, another_jobs_id_is_refused_and_both_are_named);
    tcase_add_test(t, jobs_do_not_see_each_other);
    tcase_add_test(t, a_refused_connection_is_reported);
    tcase_add_test(t, a_name_without_an_address_is_reported);
    tcase_add_test(t, a_lookup_can_be_abandoned);
    tcase_add_test(t, a_connection_without_a_valid_hello_is_closed_and_reported);
    tcase_add_test(t, a_verdict_arrives_although_the_roster_closes_at_once);
    tcase_add_test(t, the_first_node_of_a_daemon_writes_the_report);
    tcase_add_test(t, the_report_does_not_wait_for_a_disconnected_node);
    tcase_add_test(t, the_node_with_the_roster_stays_for_the_node_that_writes);
    tcase_add_test(t, the_node_with_the_roster_writes_it_before_any_other);
    tcase_add_test(t, without_a_report_no_node_is_asked);
    tcase_add_test(t, the_first_node_gets_the_figures_that_it_asks_for);
    tcase_add_test(t, a_first_node_with_the_roster_gets_them_too);
    tcase_add_test(t, figures_that_were_not_asked_for_are_dropped);
    tcase_add_test(t, closing_with_connections_open_leaves_nothing);
    suite_add_tcase(suite, t);
    return suite;
}
