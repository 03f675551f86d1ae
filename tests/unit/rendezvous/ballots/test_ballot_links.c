/* Connections for ballots, on loopback: one loop has both ends. */
#include "rendezvous/ballots/ballot_links.h"

#include "common/error.h"
#include "rendezvous/channel/channel_wire.h"
#include "rendezvous/channel/seal.h"
#include "rendezvous/server/server.h"
#include "tests/support/suite.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { DEADLINE_MS = 20000, N_UNPROVEN = BALLOT_LINKS_MAX_IN + 8 };

static uv_loop_t loop, other_loop;
static uv_loop_t *serving; /* of the end that answers */
static struct server *server;
static struct ballot_links *asked, *asker;
static struct seal_key key, other_key;
static struct elector_address at;
static struct co_error err;
static int n_connections, n_questions, n_answers, n_lost, lost_code;
static struct ballot question, answer;

/* --- the end that answers --- */

static void on_question(void *arg, const struct ballot *q, struct ballot *ret)
{
    (void)arg;
    n_questions++;
    question = *q;
    *ret = (struct ballot){
        .type = BALLOT_VOTE, .job = q->job, .from = 1, .asked = q->type, .yes = true};
}

static void on_control(void *arg, int fd, const uint8_t *bytes, size_t len)
{
    (void)arg;
    n_connections++;
    if (asked != NULL && ballot_links_claims(bytes, len))
        ballot_links_adopt(asked, fd, bytes, len);
    else
        close(fd);
}

static void no_answer(void *arg, const struct elector_address *from, const struct ballot *b)
{
    (void)arg;
    (void)from;
    (void)b;
    ck_abort_msg("an answer to a question that was not asked");
}

static void serve(const struct seal_key *k)
{
    const struct ballot_links_callbacks callbacks = {.on_question = on_question,
                                                     .on_answer = no_answer};
    const struct server_opts opts = {.on_control = on_control, .max_clients = 256};
    struct sockaddr_storage bound;
    ck_assert_int_eq(ballot_links_create(serving, k, "job", &callbacks, &asked, &err), 0);
    ck_assert_int_eq(server_create(serving, &opts, &server, &err), 0);
    ck_assert_int_eq(server_listen(server, "127.0.0.1", 0, &bound, &err), 0);
    at = (struct elector_address){.host = "127.0.0.1", .port = server_port(server)};
}

/* --- the end that asks --- */

static void on_answer(void *arg, const struct elector_address *from, const struct ballot *b)
{
    (void)arg;
    ck_assert_uint_eq(from->port, at.port);
    n_answers++;
    answer = *b;
    uv_stop(&loop);
}

static void on_lost(void *arg, const struct elector_address *where, int code, const char *text)
{
    (void)arg;
    ck_assert_str_eq(where->host, at.host);
    ck_assert_str_ne(text, "");
    n_lost++;
    lost_code = code;
    uv_stop(&loop);
}

static void ask_as(const struct seal_key *k, const char *run_id)
{
    const struct ballot_links_callbacks callbacks = {
        .on_question = on_question, .on_answer = on_answer, .on_lost = on_lost};
    const struct ballot b = {.type = BALLOT_READ, .job = 7, .from = 2};
    if (asker == NULL)
        ck_assert_int_eq(ballot_links_create(&loop, k, run_id, &callbacks, &asker, &err), 0);
    ballot_links_send(asker, &at, &b);
}

/* --- the loop --- */

static void on_deadline(uv_timer_t *timer)
{
    (void)timer;
    ck_abort_msg("nothing happened in time");
}

static void run_until(const int *count, int n)
{
    static uv_timer_t deadline;
    uv_timer_init(&loop, &deadline);
    uv_timer_start(&deadline, on_deadline, DEADLINE_MS, 0);
    while (*count < n)
        uv_run(&loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&deadline, NULL);
    uv_run(&loop, UV_RUN_NOWAIT);
}

static void set_up(void)
{
    asked = asker = NULL;
    server = NULL;
    serving = &loop;
    n_connections = n_questions = n_answers = n_lost = lost_code = 0;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(uv_loop_init(&other_loop), 0);
    ck_assert_int_eq(seal_key_init(&key, "0123456789abcdef0123456789abcdef", 32, &err), 0);
    ck_assert_int_eq(seal_key_init(&other_key, "fedcba9876543210fedcba9876543210", 32, &err), 0);
}

static void tear_down(void)
{
    if (asked != NULL)
        ballot_links_close(asked, NULL, NULL);
    if (asker != NULL)
        ballot_links_close(asker, NULL, NULL);
    if (server != NULL)
        server_close(server, NULL, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_run(&other_loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    ck_assert_int_eq(uv_loop_close(&other_loop), 0);
}

START_TEST(a_question_is_answered_again_and_again_on_one_connection)
{
    struct sockaddr_storage own;
    serve(&key);
    for (int i = 1; i <= 3; i++) {
        ask_as(&key, "job");
        run_until(&n_answers, i);
    }
    ck_assert_int_eq(n_questions, 3);
    ck_assert_int_eq(question.type, BALLOT_READ);
    ck_assert_uint_eq(question.from, 2);
    ck_assert(answer.yes && answer.from == 1);
    ck_assert_int_eq(ballot_links_own_address(asker, &at, &own), 0);
    ck_assert_int_eq(n_lost, 0);
}
END_TEST

START_TEST(the_peer_of_an_open_connection_is_known_in_figures)
{
    struct elector_address peer;
    serve(&key);
    snprintf(at.host, sizeof at.host, "localhost");
    ask_as(&key, "job");
    ck_assert_int_eq(ballot_links_find_peer(asker, &at, &peer), -ENOTCONN);
    run_until(&n_answers, 1);
    ck_assert_int_eq(ballot_links_find_peer(asker, &at, &peer), 0);
    ck_assert_str_eq(peer.host, "127.0.0.1");
    ck_assert_uint_eq(peer.port, at.port);
}
END_TEST

/* Both ends run until so many questions are answered. */
static void run_both_until(int n)
{
    const uint64_t end_ms = uv_hrtime() / 1000000 + DEADLINE_MS;
    while (n_answers < n) {
        uv_run(&other_loop, UV_RUN_NOWAIT);
        uv_run(&loop, UV_RUN_NOWAIT);
        ck_assert_uint_lt(uv_hrtime() / 1000000, end_ms);
    }
}

START_TEST(a_process_that_answers_no_more_is_connected_to_again)
{
    serving = &other_loop;
    serve(&key);
    ask_as(&key, "job");
    run_both_until(1);
    ck_assert_int_eq(n_connections, 1);
    ask_as(&key, "job"); /* the process is stopped, or its machine is gone: nothing is answered */
    const uint64_t from_ms = uv_now(&loop);
    while (uv_now(&loop) < from_ms + BALLOT_LINKS_SILENT_MS) {
        ck_assert_int_eq(n_answers, 1);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    ask_as(&key, "job");
    run_both_until(2);
    ck_assert_int_eq(n_connections, 2);
    ask_as(&key, "job"); /* it answers again */
    run_both_until(3);
    ck_assert_int_eq(n_connections, 2);
    ck_assert_int_eq(n_lost, 0);
}
END_TEST

START_TEST(without_tokens_ballots_go_in_the_clear)
{
    serve(NULL);
    ask_as(NULL, "job");
    run_until(&n_answers, 1);
}
END_TEST

START_TEST(another_token_is_refused)
{
    serve(&key);
    ask_as(&other_key, "job");
    run_until(&n_lost, 1);
    ck_assert_int_eq(lost_code, -EACCES);
    ck_assert_int_eq(n_questions, 0);
}
END_TEST

START_TEST(another_job_gets_no_answer)
{
    serve(&key);
    ask_as(&key, "another job");
    run_until(&n_lost, 1);
    ck_assert_int_eq(n_questions, 0);
    ck_assert_int_eq(n_answers, 0);
}
END_TEST

START_TEST(a_port_without_a_listener_is_refused)
{
    serve(&key);
    server_close(server, NULL, NULL);
    server = NULL;
    uv_run(&loop, UV_RUN_NOWAIT);
    ask_as(&key, "job");
    run_until(&n_lost, 1);
    ck_assert_int_eq(lost_code, -ECONNREFUSED);
}
END_TEST

START_TEST(a_process_that_knows_no_ballots_is_reported)
{
    serve(&key);
    ballot_links_close(asked, NULL, NULL);
    asked = NULL; /* the connection is closed */
    ask_as(&key, "job");
    run_until(&n_lost, 1);
    ck_assert_int_eq(n_answers, 0);
}
END_TEST

START_TEST(a_control_connection_is_not_for_ballots)
{
    const uint8_t control[] = {'D', 'D', 'P', '1', CHANNEL_WIRE_VERSION, CHANNEL_WIRE_VERSION};
    const uint8_t ballots[] = {'D', 'D', 'P', '1', BALLOT_LINKS_VERSION, BALLOT_LINKS_VERSION};
    ck_assert(!ballot_links_claims(control, sizeof control));
    ck_assert(ballot_links_claims(ballots, sizeof ballots));
    ck_assert(!ballot_links_claims(ballots, 4)); /* it is not known yet */
}
END_TEST

/* Its greeting has come, and nothing more does. */
static int connect_unproven(void)
{
    static const uint8_t greeting[SEAL_GREETING_BYTES] = {
        'D', 'D', 'P', '1', BALLOT_LINKS_VERSION, BALLOT_LINKS_VERSION, 1};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(at.port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    ck_assert_int_eq(write(fd, greeting, sizeof greeting), sizeof greeting);
    for (int i = 0; i < 3; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
    return fd;
}

START_TEST(unproven_connections_are_replaced_by_others)
{
    int fds[N_UNPROVEN];
    serve(&key);
    ask_as(&key, "job");
    run_until(&n_answers, 1);
    for (int i = 0; i < N_UNPROVEN; i++)
        fds[i] = connect_unproven();
    ask_as(&key, "job"); /* on its connection, which was not replaced */
    run_until(&n_answers, 2);
    ck_assert_int_eq(n_lost, 0);
    ballot_links_close(asker, NULL, NULL);
    asker = NULL;
    ask_as(&key, "job"); /* on a new one */
    run_until(&n_answers, 3);
    for (int i = 0; i < N_UNPROVEN; i++)
        close(fds[i]);
}
END_TEST

TEST_SUITE(ballot_links)
{
    Suite *suite = suite_create("ballot_links");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_set_timeout(all, 60);
    tcase_add_test(all, a_question_is_answered_again_and_again_on_one_connection);
    tcase_add_test(all, the_peer_of_an_open_connection_is_known_in_figures);
    tcase_add_test(all, a_process_that_answers_no_more_is_connected_to_again);
    tcase_add_test(all, without_tokens_ballots_go_in_the_clear);
    tcase_add_test(all, another_token_is_refused);
    tcase_add_test(all, another_job_gets_no_answer);
    tcase_add_test(all, a_port_without_a_listener_is_refused);
    tcase_add_test(all, a_process_that_knows_no_ballots_is_reported);
    tcase_add_test(all, a_control_connection_is_not_for_ballots);
    tcase_add_test(all, unproven_connections_are_replaced_by_others);
    suite_add_tcase(suite, all);
    return suite;
}
