/* What a daemon keeps of its jobs, and shows of them. The messages between nodes and jobs are in
 * test_control.c. */
#include "common/buf.h"
#include "common/clock.h"
#include "common/error.h"
#include "rendezvous/channel/channel_wire.h"
#include "rendezvous/jobs/jobs.h"
#include "rendezvous/jobs/jobs_page.h"
#include "rendezvous/jobs/jobs_priv.h"
#include "rendezvous/jobs/verdict_log.h"
#include "rendezvous/server/server.h"
#include "tests/support/suite.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DEADLINE_MS = 20000 };

static uv_loop_t loop;
static struct server *server;
static struct jobs *jobs;
static struct co_error err;
static char notes[4096];

static const struct message_terms two_nodes = {
    .min_nodes = 2, .max_nodes = 2, .start_timeout_ms = 600000, .rejoin_timeout_ms = 600000};

/* --- nodes that know the verdict --- */

static const uint8_t first[MESSAGE_INSTANCE_BYTES] = {1}, second[MESSAGE_INSTANCE_BYTES] = {2};

START_TEST(another_process_of_an_informed_node_may_join_again)
{
    struct verdict_log log = {0};
    ck_assert(!verdict_log_missed(&log, first, "node1"));
    verdict_log_add(&log, first, "node1");
    ck_assert(verdict_log_missed(&log, second, "node1"));
    verdict_log_fini(&log);
}
END_TEST

START_TEST(an_informed_process_that_asks_again_is_recognized)
{
    struct verdict_log log = {0};
    verdict_log_add(&log, first, "node1");
    verdict_log_add(&log, second, "node1"); /* another ddprun on the same host */
    ck_assert(!verdict_log_missed(&log, first, "node1"));
    ck_assert(!verdict_log_missed(&log, second, "node1"));
    verdict_log_fini(&log);
}
END_TEST

START_TEST(a_node_that_was_never_informed_is_not_taken_for_a_new_process)
{
    struct verdict_log log = {0};
    char name[16];
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "node%d", i);
        verdict_log_add(&log, (const uint8_t[MESSAGE_INSTANCE_BYTES]){1, (uint8_t)i}, name);
    }
    ck_assert(!verdict_log_missed(&log, second, "node100"));
    ck_assert(verdict_log_missed(&log, second, "node99"));
    verdict_log_fini(&log);
}
END_TEST

/* --- a daemon --- */

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

static void setup(void)
{
    signal(SIGPIPE, SIG_IGN);
    uv_loop_init(&loop);
    server = NULL;
    jobs = NULL;
    notes[0] = '\0';
}

static void teardown(void)
{
    if (server != NULL)
        server_close(server, NULL, NULL);
    if (jobs != NULL)
        jobs_close(jobs, NULL, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0); /* nothing is left open */
}

/* --- pages --- */

static json_t *status_of(const char *run_id)
{
    struct jobs_opts opts = {.only_run_id = run_id, .terms = &two_nodes};
    struct co_buf page = {0};
    json_error_t error;
    ck_assert_int_eq(jobs_create(&loop, &opts, &jobs, &err), 0);
    ck_assert_int_eq(co_buf_append(&page, "{\"x\": 1", 7), 0);
    ck_assert_int_eq(jobs_page_status(jobs, &page), 0);
    ck_assert_int_eq(co_buf_append(&page, "}", 1), 0);
    json_t *json = json_loadb((const char *)co_buf_bytes(&page), co_buf_len(&page),
                              JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(json != NULL, "%s", error.text);
    co_buf_fini(&page);
    return json;
}

START_TEST(the_status_is_valid_json_for_any_job_name)
{
    static const struct {
        const char *id, *shown;
    } cases[] = {
        {"job7", "job7"},
        {"a \"b\" \\ \t/", "a \"b\" \\ \t/"},
        {"\xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\x80 \xc3 \xc0\xaf \xff", "? ? ?? ?"},
        {"\xe0\x80\x80 \xed\xa0\x80 \xf4\x90\x80\x80 \xe2\x82", "??? ??? ???? ??"},
    };
    json_t *json = status_of(cases[_i].id);
    json_t *job = json_array_get(json_object_get(json, "jobs"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(job, "id")), cases[_i].shown);
    ck_assert_str_eq(json_string_value(json_object_get(job, "state")), "GATHERING");
    ck_assert(json_is_null(json_object_get(job, "generation")));
    ck_assert(json_is_null(json_object_get(job, "exit_code")));
    ck_assert_int_eq(json_integer_value(json_object_get(job, "nodes")), 0);
    json_decref(json);
}
END_TEST

START_TEST(the_metrics_count_jobs_by_state)
{
    struct jobs_opts opts = {.only_run_id = "job7", .terms = &two_nodes, .max_conns = 7};
    struct co_buf page = {0};
    ck_assert_int_eq(jobs_create(&loop, &opts, &jobs, &err), 0);
    ck_assert_int_eq(jobs_page_metrics(jobs, &page), 0);
    ck_assert_int_eq(co_buf_append(&page, "", 1), 0);
    const char *text = (const char *)co_buf_bytes(&page);
    static const char *const lines[] = {
        "\n# TYPE ddp_rendezvous_jobs gauge\nddp_rendezvous_jobs{state=\"GATHERING\"} 1\n",
        "\nddp_rendezvous_jobs{state=\"RUNNING\"} 0\n",
        "\nddp_rendezvous_jobs_total 1\n",
        "\nddp_rendezvous_node_connections_limit 7\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        ck_assert_msg(strstr(text, lines[i]) != NULL, "no '%s' in %s", lines[i], text);
    co_buf_fini(&page);
}
END_TEST

/* --- memory --- */

static void count_nodes(void *arg, const char *run_id, const struct roster *r)
{
    (void)run_id;
    *(uint32_t *)arg = roster_n_nodes(r);
}

/* A node that is there, in the clear: the greeting and a HELLO are on their way. */
static int join(const char *name)
{
    static const uint8_t greeting[48] = {
        'D', 'D', 'P', '1', CHANNEL_WIRE_VERSION, CHANNEL_WIRE_VERSION};
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons(server_port(server))};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int few = 4096;
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &few, sizeof few), 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    ck_assert_int_eq(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    ck_assert_int_eq(send(fd, greeting, sizeof greeting, 0), sizeof greeting);
    struct co_buf frame = {0};
    const struct message hello = {.type = MESSAGE_HELLO,
                                  .generation = MESSAGE_NO_GENERATION,
                                  .hello = {.instance = {(uint8_t)name[0]},
                                            .run_id = "job7",
                                            .name = name,
                                            .node_rank = MESSAGE_NO_RANK,
                                            .n_local = 1,
                                            .resumes = MESSAGE_NO_GENERATION,
                                            .terms = two_nodes}};
    ck_assert_int_eq(channel_wire_encode(&hello, &frame, &err), 0);
    uint8_t len[4] = {(uint8_t)co_buf_len(&frame), (uint8_t)(co_buf_len(&frame) >> 8)};
    ck_assert_int_eq(send(fd, len, sizeof len, 0), sizeof len);
    ck_assert_int_eq(send(fd, co_buf_bytes(&frame), co_buf_len(&frame), 0), co_buf_len(&frame));
    co_buf_fini(&frame);
    return fd;
}

/* Many keep-alives in a row, of which each asks for an answer. */
static size_t make_heartbeats(uint8_t *bytes, size_t n)
{
    struct co_buf frame = {0};
    const struct message keep_alive = {.type = MESSAGE_KEEP_ALIVE,
                                       .generation = MESSAGE_NO_GENERATION};
    ck_assert_int_eq(channel_wire_encode(&keep_alive, &frame, &err), 0);
    size_t len = co_buf_len(&frame), used = 0;
    while (used + 4 + len <= n) {
        memcpy(bytes + used, (const uint8_t[4]){(uint8_t)len}, 4);
        memcpy(bytes + used + 4, co_buf_bytes(&frame), len);
        used += 4 + len;
    }
    co_buf_fini(&frame);
    return used;
}

START_TEST(the_node_that_holds_most_memory_is_disconnected)
{
    struct jobs_opts opts = {.max_buffer_bytes = 256 << 10, .on_note = on_note};
    struct server_opts server_opts = {.on_control = on_control};
    static uint8_t heartbeats[64 << 10];
    size_t n = make_heartbeats(heartbeats, sizeof heartbeats), at = 0;
    ck_assert_int_eq(jobs_create(&loop, &opts, &jobs, &err), 0);
    ck_assert_int_eq(server_start(&loop, &server_opts, &server, &err), 0);
    int greedy = join("greedy"), modest = join("modest");
    struct jobs_figures f;
    for (uint64_t end_ms = co_deadline_ms(DEADLINE_MS); strstr(notes, "is used up") == NULL;) {
        ssize_t sent = send(greedy, heartbeats + at, n - at, MSG_NOSIGNAL);
        at = sent > 0 ? (at + (size_t)sent) % n : at;
        uv_run(&loop, UV_RUN_NOWAIT);
        ck_assert_msg(co_now_ms() < end_ms, "it is not cut off");
    }
    close(greedy);
    do {
        uv_run(&loop, UV_RUN_NOWAIT);
        jobs_get_figures(jobs, &f);
    } while (f.n_conns > 1);
    ck_assert_uint_eq(f.n_conns, 1);
    ck_assert_uint_eq(f.n_buffer_bytes, 0); /* all of it is given back */
    ck_assert_uint_eq(f.n_refused, 1);
    close(modest);
}
END_TEST

/* --- slots --- */

static int connect_to_server(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons(server_port(server))};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static bool has_ended(int fd)
{
    char byte;
    uv_run(&loop, UV_RUN_NOWAIT);
    return recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

/* The answer to the message HEARTBEAT of the node of this name: its type, or -1 if the connection
 * is closed without one. */
static int ask_for_heartbeats(int fd, const char *name, uint64_t limit_ms)
{
    static const uint8_t greeting[48] = {
        'D', 'D', 'P', '1', CHANNEL_WIRE_VERSION, CHANNEL_WIRE_VERSION};
    enum { ANSWER_BYTES = 40 }; /* of the roster, to a greeting in the clear; then frames follow */
    struct co_buf frame = {0};
    uint8_t bytes[1024];
    size_t n = 0;
    const struct message m = {
        .type = MESSAGE_HEARTBEAT,
        .generation = MESSAGE_NO_GENERATION,
        .heartbeat = {.instance = {(uint8_t)name[0]}, .run_id = "job7", .limit_ms = limit_ms}};
    ck_assert_int_eq(channel_wire_encode(&m, &frame, &err), 0);
    const uint8_t len[4] = {(uint8_t)co_buf_len(&frame)};
    ck_assert_int_eq(send(fd, greeting, sizeof greeting, 0), sizeof greeting);
    ck_assert_int_eq(send(fd, len, sizeof len, 0), sizeof len);
    ck_assert_int_eq(send(fd, co_buf_bytes(&frame), co_buf_len(&frame), 0), co_buf_len(&frame));
    co_buf_fini(&frame);
    for (uint64_t end_ms = co_deadline_ms(DEADLINE_MS); n < ANSWER_BYTES + 5;) {
        const ssize_t got = recv(fd, bytes + n, sizeof bytes - n, MSG_DONTWAIT);
        if (got == 0)
            return -1;
        n += got > 0 ? (size_t)got : 0;
        uv_run(&loop, UV_RUN_NOWAIT);
        ck_assert_msg(co_now_ms() < end_ms, "no answer");
    }
    return bytes[ANSWER_BYTES + 4];
}

static void await_nodes(uint32_t n)
{
    uint32_t n_nodes = 0;
    for (uint64_t end_ms = co_deadline_ms(DEADLINE_MS); n_nodes != n;) {
        uv_run(&loop, UV_RUN_NOWAIT);
        jobs_each(jobs, count_nodes, &n_nodes);
        ck_assert_msg(co_now_ms() < end_ms, "%u nodes", n_nodes);
    }
}

START_TEST(heartbeats_are_taken_of_known_nodes_with_the_same_limit)
{
    struct jobs_opts opts = {.only_run_id = "job7",
                             .terms = &two_nodes,
                             .host_ms = 500,
                             .host_silent_ms = 625,
                             .on_note = on_note};
    struct server_opts server_opts = {.on_control = on_control};
    ck_assert_int_eq(jobs_create(&loop, &opts, &jobs, &err), 0);
    ck_assert_int_eq(server_start(&loop, &server_opts, &server, &err), 0);
    int node = join("a");
    await_nodes(1);
    int fds[4];
    for (int i = 0; i < 4; i++)
        fds[i] = connect_to_server();
    ck_assert_int_eq(ask_for_heartbeats(fds[0], "a", 500), MESSAGE_HEARTBEAT);
    ck_assert_uint_eq(heartbeats_n(jobs->heartbeats), 1);
    ck_assert_int_eq(ask_for_heartbeats(fds[1], "a", 400), MESSAGE_REFUSED);
    ck_assert_int_eq(ask_for_heartbeats(fds[2], "b", 500), MESSAGE_REFUSED);
    ck_assert_int_eq(ask_for_heartbeats(fds[3], "a", 500), MESSAGE_HEARTBEAT);
    ck_assert_uint_eq(heartbeats_n(jobs->heartbeats), 1); /* the newer one counts */
    ck_assert_ptr_nonnull(strstr(notes, "heartbeats were refused"));
    close(fds[3]);
    for (uint64_t end_ms = co_deadline_ms(DEADLINE_MS); heartbeats_n(jobs->heartbeats) > 0;) {
        uv_run(&loop, UV_RUN_ONCE);
        ck_assert_msg(co_now_ms() < end_ms, "a connection that has ended is kept");
    }
    await_nodes(1);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
    close(node);
}
END_TEST

START_TEST(without_a_limit_no_heartbeats_are_taken)
{
    struct jobs_opts opts = {.only_run_id = "job7", .terms = &two_nodes};
    struct server_opts server_opts = {.on_control = on_control};
    ck_assert_int_eq(jobs_create(&loop, &opts, &jobs, &err), 0);
    ck_assert_int_eq(server_start(&loop, &server_opts, &server, &err), 0);
    int node = join("a");
    await_nodes(1);
    int fd = connect_to_server();
    ck_assert_int_eq(ask_for_heartbeats(fd, "a", 500), MESSAGE_REFUSED);
    close(fd);
    close(node);
}
END_TEST

START_TEST(an_unproven_connection_makes_way_for_a_node_and_a_node_stays)
{
    struct jobs_opts opts = {.max_conns = 3, .on_note = on_note};
    struct server_opts server_opts = {.on_control = on_control};
    struct jobs_figures f = {0};
    int fds[4];
    ck_assert_int_eq(jobs_create(&loop, &opts, &jobs, &err), 0);
    ck_assert_int_eq(server_start(&loop, &server_opts, &server, &err), 0);
    int node = join("node");
    uint64_t end_ms = co_deadline_ms(DEADLINE_MS);
    for (; f.n_jobs < 1; jobs_get_figures(jobs, &f)) {
        uv_run(&loop, UV_RUN_NOWAIT);
        ck_assert_msg(co_now_ms() < end_ms, "it does not join: %s", notes);
    }
    for (int i = 0; i < 4; i++) {
        fds[i] = connect_to_server();
        ck_assert_int_eq(send(fds[i], "DDP1", 4, 0), 4);
        while (i >= 2 && !has_ended(fds[i - 2])) /* the oldest one that has sent no more */
            ck_assert_msg(co_now_ms() < end_ms, "connection %d stays: %s", i - 2, notes);
    }
    ck_assert_ptr_nonnull(strstr(notes, "it has not authenticated, and 3 connections are open"));
    int another = join("other");
    do {
        ck_assert_msg(co_now_ms() < end_ms, "it is kept out: %s", notes);
        uv_run(&loop, UV_RUN_NOWAIT);
        jobs_each(jobs, count_nodes, &f.n_jobs);
    } while (f.n_jobs < 2);
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    close(node);
    close(another);
}
END_TEST

TEST_SUITE(jobs)
{
    Suite *suite = suite_create("jobs");
    TCase *t = tcase_create("jobs");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, another_process_of_an_informed_node_may_join_again);
    tcase_add_test(t, an_informed_process_that_asks_again_is_recognized);
    tcase_add_test(t, a_node_that_was_never_informed_is_not_taken_for_a_new_process);
    tcase_add_loop_test(t, the_status_is_valid_json_for_any_job_name, 0, 5);
    tcase_add_test(t, the_metrics_count_jobs_by_state);
    tcase_add_test(t, an_unproven_connection_makes_way_for_a_node_and_a_node_stays);
    tcase_add_test(t, without_a_limit_no_heartbeats_are_taken);
    tcase_add_test(t, heartbeats_are_taken_of_known_nodes_with_the_same_limit);
    tcase_add_test(t, the_node_that_holds_most_memory_is_disconnected);
    suite_add_tcase(suite, t);
    return suite;
}
