/* Nodes that find each other, on real sockets of the loopback interface; what names and addresses
 * lead elsewhere is for tests/system, which has network namespaces. Several nodes are in this one
 * process: the kernel gives a port to one of them all the same. */
#include "common/clock.h"
#include "common/error.h"
#include "launcher/endpoint.h"
#include "launcher/endpoint_host.h"
#include "launcher/job_spec.h"
#include "launcher/self_probe.h"
#include "rendezvous/address.h"
#include "rendezvous/seal.h"
#include "rendezvous/server.h"
#include "tests/support/suite.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_NODES = 12, DEADLINE_MS = 20000 };

struct node { /* a TEST DOUBLE of what launcher/node_guide.c makes of an endpoint */
    struct job_spec spec;
    struct endpoint *endpoint; /* NULL: closed */
    int n_up, n_down, n_notes, exit_code;
    bool is_welcome, is_refused;
    char text[1500], note[1500];
};

static uv_loop_t loop;
static struct node nodes[MAX_NODES];
static struct seal_key keys[2];
static struct co_error err;
static uint16_t port;

/* --- nodes --- */

static void on_up(void *arg, bool is_here)
{
    struct node *n = arg;
    ck_assert(is_here == endpoint_is_here(n->endpoint));
    n->n_up++;
    uv_stop(&loop); /* here and below: AWAIT() looks again, before the loop sleeps */
}

static void on_message(void *arg, const struct message *m)
{
    struct node *n = arg;
    n->is_welcome |= m->type == MESSAGE_WELCOME;
    n->is_refused |= m->type == MESSAGE_REFUSED;
    uv_stop(&loop);
}

static void on_down(void *arg, const char *text, int exit_code)
{
    struct node *n = arg;
    n->n_down++;
    n->exit_code = exit_code;
    snprintf(n->text, sizeof n->text, "%s", text);
    uv_stop(&loop);
}

static void on_note(void *arg, const char *text)
{
    struct node *n = arg;
    n->n_notes++;
    snprintf(n->note, sizeof n->note, "%s", text);
    uv_stop(&loop);
}

static struct node *make(int i, const char *host, enum job_host who)
{
    struct node *n = &nodes[i];
    n->spec = (struct job_spec){
        .n_local = 1,
        .run_id = "job7",
        .world = {.guided = true,
                  .min_nodes = MAX_NODES,
                  .max_nodes = MAX_NODES,
                  .start_timeout_ms = 600000,
                  .rejoin_timeout_ms = 600000,
                  .node_rank = MESSAGE_NO_RANK,
                  .endpoint_host = (char *)host,
                  .endpoint_port = port,
                  .host = who},
    };
    return n;
}

static void begin(struct node *n)
{
    const struct guide_link_notes notes = {
        .on_up = on_up, .on_message = on_message, .on_down = on_down, .on_note = on_note, .arg = n};
    if (n->endpoint == NULL)
        ck_assert_int_eq(endpoint_open(&loop, &n->spec, &notes, &n->endpoint, &err), 0);
    endpoint_connect(n->endpoint);
}

static void end(struct node *n)
{
    if (n->endpoint != NULL)
        endpoint_close(n->endpoint);
    n->endpoint = NULL;
}

/* As member.h does it, but for the intervals. */
static void say_hello(struct node *n)
{
    const struct message m = {
        .type = MESSAGE_HELLO,
        .generation = MESSAGE_NO_GENERATION,
        .hello = {.instance = {(uint8_t)(n - nodes + 1)},
                  .run_id = n->spec.run_id,
                  .name = "node",
                  .node_rank = MESSAGE_NO_RANK,
                  .n_local = 1,
                  .resumes = MESSAGE_NO_GENERATION,
                  .terms = {.min_nodes = MAX_NODES,
                            .max_nodes = MAX_NODES,
                            .start_timeout_ms = 600000,
                            .rejoin_timeout_ms = 600000}},
    };
    endpoint_send(n->endpoint, &m);
}

/* --- the loop --- */

static void on_deadline(uv_timer_t *timer)
{
    (void)timer;
    ck_abort_msg("nothing happened in time");
}

/* Its memory may go afterwards. */
static void close_now(uv_handle_t *handle)
{
    uv_close(handle, NULL);
    uv_run(&loop, UV_RUN_NOWAIT);
}

/* Run the loop until that holds. */
#define AWAIT(condition)                                                                           \
    do {                                                                                           \
        uv_timer_t deadline;                                                                       \
        uv_timer_init(&loop, &deadline);                                                           \
        uv_timer_start(&deadline, on_deadline, DEADLINE_MS, 0);                                    \
        while (!(condition))                                                                       \
            uv_run(&loop, UV_RUN_ONCE);                                                            \
        close_now((uv_handle_t *)&deadline);                                                       \
    } while (0)

static void set_up(void)
{
    memset(nodes, 0, sizeof nodes);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(seal_key_init(&keys[0], "0123456789abcdef", 16, &err), 0);
    ck_assert_int_eq(seal_key_init(&keys[1], "fedcba9876543210", 16, &err), 0);
    /* a port that nobody has now */
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    port = ntohs(a.sin_port);
    close(fd);
}

static void tear_down(void)
{
    for (int i = 0; i < MAX_NODES; i++)
        end(&nodes[i]);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

/* A program that has the port and is none of ours: a TEST DOUBLE. It answers with `reply`, or hangs
 * up at once if that is NULL. */
struct stranger {
    uv_tcp_t tcp;
    const char *reply;
    int n_came;
};

static void free_handle(uv_handle_t *handle)
{
    free(handle);
}

static void on_stranger(uv_stream_t *listener, int status)
{
    struct stranger *s = (struct stranger *)listener;
    uv_tcp_t *conn = malloc(sizeof *conn);
    ck_assert_int_eq(status, 0);
    uv_tcp_init(&loop, conn);
    ck_assert_int_eq(uv_accept(listener, (uv_stream_t *)conn), 0);
    s->n_came++;
    if (s->reply != NULL) {
        uv_buf_t buf = uv_buf_init((char *)s->reply, (unsigned)strlen(s->reply));
        uv_try_write((uv_stream_t *)conn, &buf, 1);
    }
    uv_close((uv_handle_t *)conn, free_handle);
}

static void begin_stranger(struct stranger *s, const char *reply)
{
    struct sockaddr_in a;
    *s = (struct stranger){.reply = reply};
    uv_ip4_addr("127.0.0.1", port, &a);
    uv_tcp_init(&loop, &s->tcp);
    ck_assert_int_eq(uv_tcp_bind(&s->tcp, (struct sockaddr *)&a, 0), 0);
    ck_assert_int_eq(uv_listen((uv_stream_t *)&s->tcp, 16, on_stranger), 0);
}

/* --- who is the endpoint --- */

START_TEST(a_node_alone_needs_no_socket)
{
    struct node *n = make(0, NULL, JOB_HOST_FOUND_OUT);
    begin(n);
    ck_assert_int_eq(n->n_up, 0); /* never from within a call */
    AWAIT(n->n_up == 1);
    ck_assert(endpoint_is_here(n->endpoint));
    ck_assert(!endpoint_lend_port(n->endpoint, port));
    say_hello(n);
    AWAIT(n->is_welcome);
    endpoint_disconnect(n->endpoint);
    endpoint_connect(n->endpoint);
    AWAIT(n->n_up == 2);
}
END_TEST

START_TEST(the_first_on_a_host_is_the_endpoint_and_others_join)
{
    struct node *a = make(0, "127.0.0.1", JOB_HOST_FOUND_OUT);
    struct node *b = make(1, "127.0.0.1", JOB_HOST_FOUND_OUT);
    char text[64];
    begin(a);
    AWAIT(a->n_up == 1);
    ck_assert(endpoint_is_here(a->endpoint));
    begin(b);
    AWAIT(b->n_up == 1);
    ck_assert(!endpoint_is_here(b->endpoint));
    say_hello(a);
    say_hello(b);
    AWAIT(a->is_welcome && b->is_welcome);
    ck_assert_int_eq(a->n_down + b->n_down, 0);
    ck_assert_int_eq(endpoint_own_address(b->endpoint, text, sizeof text), 0);
    ck_assert_str_eq(text, "127.0.0.1");
    ck_assert_int_eq(endpoint_own_address(a->endpoint, text, sizeof text), 0);
    ck_assert_str_eq(text, "127.0.0.1");
}
END_TEST

static bool all_are_up(void)
{
    bool all = true;
    for (int i = 0; i < MAX_NODES; i++) {
        struct node *n = &nodes[i];
        if (n->n_up == 0 && n->n_down > 0) {
            n->n_down = 0;
            begin(n);
        }
        all = all && n->n_up == 1;
    }
    return all;
}

static const char *const names[] = {"127.0.0.1", "localhost", "127.0.0.7", "::1"};

START_TEST(of_nodes_that_begin_together_one_is_the_endpoint)
{
    int n_here = 0;
    for (int i = 0; i < MAX_NODES; i++) {
        make(i, names[_i], JOB_HOST_FOUND_OUT)->spec.world.key = _i == 0 ? &keys[0] : NULL;
        begin(&nodes[i]);
    }
    AWAIT(all_are_up());
    for (int i = 0; i < MAX_NODES; i++)
        n_here += endpoint_is_here(nodes[i].endpoint);
    ck_assert_int_eq(n_here, 1);
    for (int i = 0; i < MAX_NODES; i++) {
        say_hello(&nodes[i]);
        AWAIT(nodes[i].is_welcome);
    }
}
END_TEST

START_TEST(of_two_that_found_nobody_the_second_one_joins_without_a_pause)
{
    struct node *a = make(0, "127.0.0.1", JOB_HOST_FOUND_OUT);
    struct node *b = make(1, "127.0.0.1", JOB_HOST_FOUND_OUT);
    begin(a);
    begin(b);
    AWAIT(a->n_up == 1 && b->n_up == 1);
    ck_assert_int_eq(a->n_down + b->n_down, 0);
}
END_TEST

START_TEST(a_node_that_may_not_be_the_endpoint_says_what_it_cannot_reach)
{
    struct node *n = make(0, "127.0.0.1", JOB_HOST_ELSEWHERE);
    char expected[100];
    begin(n);
    AWAIT(n->n_down == 1);
    snprintf(expected, sizeof expected, "127.0.0.1:%u: connection refused", (unsigned)port);
    ck_assert_str_eq(n->text, expected);
    ck_assert_int_eq(n->exit_code, 0);
    ck_assert(!endpoint_is_here(n->endpoint));
    struct node *host = make(1, "127.0.0.1", JOB_HOST_HERE);
    begin(host);
    AWAIT(host->n_up == 1);
    begin(n);
    AWAIT(n->n_up == 1);
}
END_TEST

START_TEST(a_name_that_leads_nowhere_is_told)
{
    struct node *n = make(0, "no-such-node.invalid", JOB_HOST_FOUND_OUT);
    begin(n);
    AWAIT(n->n_down == 1);
    ck_assert_int_eq(n->exit_code, 0); /* it may get an address yet */
    ck_assert_msg(strstr(n->text, "'no-such-node.invalid' has no address") != NULL, "%s", n->text);
}
END_TEST

START_TEST(whose_predecessor_has_the_port_waits_for_it)
{
    struct stranger s;
    begin_stranger(&s, NULL);
    struct node *n = make(0, "127.0.0.1", JOB_HOST_FOUND_OUT);
    begin(n);
    AWAIT(n->n_down == 1);
    ck_assert_int_eq(n->exit_code, 0);
    close_now((uv_handle_t *)&s.tcp);
    begin(n);
    AWAIT(n->n_up == 1);
    ck_assert(endpoint_is_here(n->endpoint));
}
END_TEST

START_TEST(another_protocol_there_is_final)
{
    struct stranger s;
    begin_stranger(&s, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    struct node *n = make(0, "127.0.0.1", JOB_HOST_FOUND_OUT);
    begin(n);
    AWAIT(n->n_down == 1);
    ck_assert_int_eq(n->exit_code, GUIDE_LINK_UNAVAILABLE);
    close_now((uv_handle_t *)&s.tcp);
}
END_TEST

START_TEST(who_was_welcome_elsewhere_does_not_become_the_endpoint)
{
    struct node *a = make(0, "127.0.0.1", JOB_HOST_FOUND_OUT);
    struct node *b = make(1, "127.0.0.1", JOB_HOST_FOUND_OUT);
    begin(a);
    AWAIT(a->n_up == 1);
    begin(b);
    AWAIT(b->n_up == 1);
    say_hello(b);
    AWAIT(b->is_welcome);
    end(a);
    AWAIT(b->n_down == 1);
    begin(b);
    AWAIT(b->n_down == 2);
    ck_assert(!endpoint_is_here(b->endpoint));
    struct node *c = make(2, "127.0.0.1", JOB_HOST_FOUND_OUT); /* of the next job */
    begin(c);
    AWAIT(c->n_up == 1);
    ck_assert(endpoint_is_here(c->endpoint));
}
END_TEST

START_TEST(who_was_refused_may_become_it_later)
{
    struct node *a = make(0, "127.0.0.1", JOB_HOST_FOUND_OUT);
    struct node *b = make(1, "127.0.0.1", JOB_HOST_FOUND_OUT);
    b->spec.run_id = "job8";
    begin(a);
    AWAIT(a->n_up == 1);
    begin(b);
    AWAIT(b->n_up == 1);
    say_hello(b);
    AWAIT(b->is_refused);
    end(a);
    AWAIT(b->n_down == 1);
    begin(b);
    AWAIT(b->n_up == 2);
    ck_assert(endpoint_is_here(b->endpoint));
}
END_TEST

/* --- by order --- */

START_TEST(by_order_a_taken_port_is_final)
{
    struct stranger s;
    char part[100];
    begin_stranger(&s, NULL);
    struct node *n = make(0, "127.0.0.1", JOB_HOST_HERE);
    begin(n);
    ck_assert_int_eq(n->n_down, 0); /* never from within a call */
    AWAIT(n->n_down == 1);
    snprintf(part, sizeof part, "127.0.0.1 port %u: address already in use", (unsigned)port);
    ck_assert_int_eq(n->exit_code, GUIDE_LINK_UNAVAILABLE);
    ck_assert_msg(strstr(n->text, "the nodes are to meet on this one") == n->text, "%s", n->text);
    ck_assert_msg(strstr(n->text, part) != NULL, "%s", n->text);
    close_now((uv_handle_t *)&s.tcp);
}
END_TEST

START_TEST(by_order_it_begins_wherever_the_name_leads_and_tells)
{
    char text[64];
    struct node *n = make(0, "no-such-node.invalid", JOB_HOST_HERE);
    begin(n);
    AWAIT(n->n_up == 1);
    ck_assert(endpoint_is_here(n->endpoint));
    AWAIT(n->n_notes == 1);
    ck_assert_msg(strstr(n->note, "warning: the nodes are to meet here, but the name") == n->note,
                  "%s", n->note);
    /* others know it by the name that was given */
    ck_assert_int_eq(endpoint_own_address(n->endpoint, text, sizeof text), -ENOTCONN);
}
END_TEST

static void on_tick(uv_timer_t *timer)
{
    *(bool *)timer->data = true;
    uv_stop(&loop);
}

START_TEST(by_order_and_where_it_should_nothing_is_told)
{
    struct node *n = make(0, "127.0.0.1", JOB_HOST_HERE);
    bool is_late = false; /* what must not come has no event: wait until it would have come */
    uv_timer_t tick;
    begin(n);
    uv_timer_init(&loop, &tick);
    tick.data = &is_late;
    uv_timer_start(&tick, on_tick, SELF_PROBE_MS + 500, 0);
    AWAIT(is_late);
    close_now((uv_handle_t *)&tick);
    ck_assert_int_eq(n->n_up, 1);
    ck_assert_int_eq(n->n_notes, 0);
}
END_TEST

/* --- tokens --- */

START_TEST(the_same_token_lets_in)
{
    struct node *a = make(0, "127.0.0.1", JOB_HOST_FOUND_OUT);
    struct node *b = make(1, "127.0.0.1", JOB_HOST_FOUND_OUT);
    a->spec.world.key = b->spec.world.key = &keys[0];
    begin(a);
    AWAIT(a->n_up == 1);
    begin(b);
    AWAIT(b->n_up == 1);
    say_hello(b);
    AWAIT(b->is_welcome);
}
END_TEST

START_TEST(another_token_or_none_is_final)
{
    struct seal_key *const theirs[][2] = {{&keys[0], &keys[1]}, {&keys[0], NULL}, {NULL, &keys[0]}};
    struct node *a = make(0, "127.0.0.1", JOB_HOST_FOUND_OUT);
    struct node *b = make(1, "127.0.0.1", JOB_HOST_FOUND_OUT);
    a->spec.world.key = theirs[_i][0];
    b->spec.world.key = theirs[_i][1];
    begin(a);
    AWAIT(a->n_up == 1);
    begin(b);
    AWAIT(b->n_down == 1);
    ck_assert_msg(b->exit_code == GUIDE_LINK_NO_ACCESS, "%s", b->text);
    ck_assert_msg(strstr(b->text, "token") != NULL, "%s", b->text);
    ck_assert_int_eq(b->n_up, 0);
}
END_TEST

/* --- the port is lent to the store --- */

static int listen_at_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    ck_assert_int_eq(listen(fd, 1), 0);
    return fd;
}

/* The next connection, when all of its greeting is here. */
static int accept_greeting(int listener, uint8_t greeting[SEAL_GREETING_BYTES])
{
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) < 0)
        uv_run(&loop, UV_RUN_NOWAIT);
    for (size_t len = 0; len < SEAL_GREETING_BYTES;) {
        ssize_t n = read(fd, greeting + len, SEAL_GREETING_BYTES - len);
        len += n > 0 ? (size_t)n : 0;
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    return fd;
}

static void on_control(void *arg, int fd, const uint8_t *bytes, size_t len)
{
    endpoint_adopt(((struct node *)arg)->endpoint, fd, bytes, len);
}

START_TEST(nodes_come_in_by_the_store_while_it_has_the_port)
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

START_TEST(a_store_that_takes_the_port_is_no_sign_that_the_name_leads_elsewhere)
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

START_TEST(it_is_no_store_itself)
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
    ck_assert_msg(strstr(a->note, "there is none at this port") != NULL, "%s", a->note);
    close(fd);
}
END_TEST

/* --- where a name leads --- */

static struct sockaddr_storage address(const char *text)
{
    struct sockaddr_storage a;
    ck_assert_int_eq(address_parse(text, 0, &a), 0);
    return a;
}

START_TEST(only_so_many_words_are_the_loopback_interface)
{
    ck_assert(endpoint_host_is_loopback("localhost"));
    ck_assert(endpoint_host_is_loopback("LocalHost"));
    ck_assert(endpoint_host_is_loopback("127.1.2.3"));
    ck_assert(endpoint_host_is_loopback("::1"));
    ck_assert(!endpoint_host_is_loopback("node1"));
    ck_assert(!endpoint_host_is_loopback("localhost.example"));
    ck_assert(!endpoint_host_is_loopback("10.0.0.1"));
    ck_assert(!endpoint_host_is_loopback("::"));
}
END_TEST

START_TEST(one_address_of_several_is_chosen_in_whatever_order_they_come)
{
    const struct sockaddr_storage several[] = {address("fd00::1"), address("10.0.0.9"),
                                               address("10.0.0.10"), address("::1")};
    char text[64];
    for (int first = 0; first < 4; first++) {
        struct sockaddr_storage turned[4];
        for (int i = 0; i < 4; i++)
            turned[i] = several[(first + i) % 4];
        ck_assert_int_eq(address_print_host(endpoint_host_first(turned, 4), text, sizeof text), 0);
        ck_assert_str_eq(text, "10.0.0.9");
    }
    ck_assert_ptr_eq(endpoint_host_first(several, 1), &several[0]);
}
END_TEST

START_TEST(a_loopback_address_is_told_only_where_all_have_one)
{
    const struct sockaddr_storage loopback = address("127.0.1.1"), real = address("10.0.0.1");
    const struct sockaddr_storage unknown = {0};
    ck_assert(endpoint_host_may_tell("node1", &real));
    ck_assert(endpoint_host_may_tell("127.0.0.1", &loopback));
    ck_assert(!endpoint_host_may_tell("node1", &loopback)); /* as a host's /etc/hosts has it */
    ck_assert(!endpoint_host_may_tell("node1", &unknown));
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

START_TEST(a_probe_tells_nobody_from_somebody_else)
{
    start_probe();
    AWAIT(n_probed == 1);
    ck_assert_int_eq(probed, SELF_PROBE_NOBODY);
    struct stranger s;
    begin_stranger(&s, "hello");
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

int main(void)
{
    Suite *suite = suite_create("endpoint");
    TCase *c = tcase_create("endpoint");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, a_node_alone_needs_no_socket);
    tcase_add_test(c, the_first_on_a_host_is_the_endpoint_and_others_join);
    tcase_add_test(c, of_two_that_found_nobody_the_second_one_joins_without_a_pause);
    tcase_add_loop_test(c, of_nodes_that_begin_together_one_is_the_endpoint, 0, 4);
    tcase_add_test(c, a_node_that_may_not_be_the_endpoint_says_what_it_cannot_reach);
    tcase_add_test(c, a_name_that_leads_nowhere_is_told);
    tcase_add_test(c, whose_predecessor_has_the_port_waits_for_it);
    tcase_add_test(c, another_protocol_there_is_final);
    tcase_add_test(c, who_was_welcome_elsewhere_does_not_become_the_endpoint);
    tcase_add_test(c, who_was_refused_may_become_it_later);
    tcase_add_test(c, by_order_a_taken_port_is_final);
    tcase_add_test(c, by_order_it_begins_wherever_the_name_leads_and_tells);
    tcase_add_test(c, by_order_and_where_it_should_nothing_is_told);
    tcase_add_test(c, the_same_token_lets_in);
    tcase_add_loop_test(c, another_token_or_none_is_final, 0, 3);
    tcase_add_test(c, nodes_come_in_by_the_store_while_it_has_the_port);
    tcase_add_test(c, a_store_that_takes_the_port_is_no_sign_that_the_name_leads_elsewhere);
    tcase_add_test(c, it_is_no_store_itself);
    tcase_add_test(c, only_so_many_words_are_the_loopback_interface);
    tcase_add_test(c, one_address_of_several_is_chosen_in_whatever_order_they_come);
    tcase_add_test(c, a_loopback_address_is_told_only_where_all_have_one);
    tcase_add_test(c, a_probe_tells_nobody_from_somebody_else);
    tcase_add_test(c, a_probe_claims_its_own_bytes_only);
    suite_add_tcase(suite, c);
    return run_suite(suite);
}
