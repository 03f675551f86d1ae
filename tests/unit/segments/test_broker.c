#include "common/error.h"
#include "segments/broker.h"
#include "segments/control.h"
#include "segments/node_socket.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { N = 3, BYTES = 8192 };

static struct broker *b;
static struct control *c;
static int mine[N], theirs[N]; /* the broker's ends, non-blocking; the ranks' */

static void set_up(void)
{
    int fd;
    ck_assert_int_eq(control_create(N, 0, &fd, &c, NULL), 0);
    ck_assert_int_eq(broker_create(N, fd, &b, NULL), 0);
    close(fd); /* the broker keeps its own */
    for (int i = 0; i < N; i++) {
        int pair[2];
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        mine[i] = pair[0];
        theirs[i] = pair[1];
        ck_assert_int_eq(fcntl(mine[i], F_SETFL, O_NONBLOCK), 0);
    }
}

static void tear_down(void)
{
    for (int i = 0; i < N; i++) {
        close(mine[i]);
        close(theirs[i]);
    }
    broker_destroy(b);
    control_unmap(c);
}

static int make_segment(unsigned seals)
{
    int fd = memfd_create("segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_eq(ftruncate(fd, BYTES), 0);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static struct node_message hello(unsigned local_rank)
{
    return (struct node_message){.magic = NODE_SOCKET_MAGIC,
                                 .version = NODE_SOCKET_VERSION,
                                 .type = NODE_HELLO,
                                 .local_rank = local_rank,
                                 .n_local = N,
                                 .bytes = BYTES};
}

static struct node_message fetch(unsigned local_rank)
{
    struct node_message m = hello(local_rank);
    m.type = NODE_FETCH;
    return m;
}

static int let_broker_read(int rank, struct co_error *err)
{
    int who = -1;
    return broker_on_readable(b, rank, mine[rank], &who, err);
}

static void say_hello(int rank)
{
    struct node_message m = hello((unsigned)rank);
    int fd = make_segment(F_SEAL_SHRINK);
    ck_assert_int_eq(pwrite(fd, &rank, sizeof rank, 0), (ssize_t)sizeof rank);
    ck_assert_int_eq(node_message_send(theirs[rank], &m, fd), 0);
    close(fd);
    struct co_error err;
    ck_assert_msg(let_broker_read(rank, &err) == 1, "%s", err.text);
    ck_assert_int_eq(node_message_receive(theirs[rank], &m, &fd, NULL), 1);
    ck_assert_int_eq(m.type, NODE_CONTROL);
    struct control *map;
    ck_assert_int_eq(control_map(fd, &map, NULL), 0);
    control_unmap(map);
    close(fd);
}

static void expect_segment(int rank, int of)
{
    struct node_message m;
    int fd, content = -1;
    ck_assert_int_eq(node_message_receive(theirs[rank], &m, &fd, NULL), 1);
    ck_assert_int_eq(m.type, NODE_SEGMENT);
    ck_assert_int_eq((int)m.local_rank, of);
    ck_assert_uint_eq(m.bytes, BYTES);
    ck_assert_int_eq(pread(fd, &content, sizeof content, 0), (ssize_t)sizeof content);
    ck_assert_int_eq(content, of);
    close(fd);
}

static void expect_refused(int rank, const char *part_of_text)
{
    struct node_message m;
    int fd;
    ck_assert_int_eq(node_message_receive(theirs[rank], &m, &fd, NULL), 1);
    ck_assert_int_eq(m.type, NODE_REFUSED);
    ck_assert_msg(strstr(m.text, part_of_text) != NULL, "%s", m.text);
}

START_TEST(the_segment_of_an_earlier_rank_is_fetched)
{
    say_hello(0);
    say_hello(1);
    struct node_message m = fetch(0);
    ck_assert_int_eq(node_message_send(theirs[1], &m, -1), 0);
    ck_assert_int_eq(let_broker_read(1, NULL), 1);
    expect_segment(1, 0);
}
END_TEST

START_TEST(a_fetch_waits_for_a_later_rank)
{
    say_hello(0);
    struct node_message m = fetch(2);
    ck_assert_int_eq(node_message_send(theirs[0], &m, -1), 0);
    ck_assert_int_eq(let_broker_read(0, NULL), 1);
    ck_assert(!broker_has_said_hello(b, 2));
    say_hello(2);
    ck_assert(broker_has_said_hello(b, 2));
    expect_segment(0, 2);
}
END_TEST

START_TEST(a_fetch_of_a_rank_that_ends_is_refused)
{
    say_hello(0);
    struct node_message m = fetch(2);
    ck_assert_int_eq(node_message_send(theirs[0], &m, -1), 0);
    ck_assert_int_eq(let_broker_read(0, NULL), 1);
    broker_rank_gone(b, 2);
    expect_refused(0, "local rank 2 exited");

    say_hello(1);
    m = fetch(2);
    ck_assert_int_eq(node_message_send(theirs[1], &m, -1), 0);
    ck_assert_int_eq(let_broker_read(1, NULL), -ECONNRESET);
    expect_refused(1, "local rank 2 exited");
}
END_TEST

START_TEST(a_socket_that_closes_is_reported_to_the_owner)
{
    close(theirs[1]);
    ck_assert_int_eq(let_broker_read(1, NULL), 0);
    theirs[1] = -1;
}
END_TEST

START_TEST(a_rank_that_exits_with_unread_answers_does_no_harm)
{
    say_hello(0);
    say_hello(2);
    struct node_message m = fetch(2);
    ck_assert_int_eq(node_message_send(theirs[0], &m, -1), 0);
    ck_assert_int_eq(let_broker_read(0, NULL), 1);
    close(theirs[0]); /* the answer is not read */
    theirs[0] = -1;
    m = hello(1);
    int fd = make_segment(F_SEAL_SHRINK), rank = 1;
    ck_assert_int_eq(pwrite(fd, &rank, sizeof rank, 0), (ssize_t)sizeof rank);
    ck_assert_int_eq(node_message_send(theirs[1], &m, fd), 0);
    close(fd);
    /* one right after the other: what the first read finds is still there for the second */
    int first = let_broker_read(1, NULL), second = let_broker_read(0, NULL);
    ck_assert_int_eq(first, 1);
    ck_assert_int_eq(second, 0);
    m = fetch(1);
    ck_assert_int_eq(node_message_send(theirs[2], &m, -1), 0);
    ck_assert_int_eq(let_broker_read(2, NULL), 1);
    expect_segment(2, 1);
}
END_TEST

static const struct {
    const char *what;
    unsigned type, local_rank, n_local;
    unsigned magic, version;
    int seals; /* -1: no descriptor */
    const char *text;
} bad[] = {
    {"magic", NODE_HELLO, 0, N, 1, NODE_SOCKET_VERSION, F_SEAL_SHRINK, "magic"},
    {"version", NODE_HELLO, 0, N, NODE_SOCKET_MAGIC, 9, F_SEAL_SHRINK, "version 9"},
    {"type", 77, 0, N, NODE_SOCKET_MAGIC, NODE_SOCKET_VERSION, -1, "unknown type 77"},
    {"direction", NODE_CONTROL, 0, N, NODE_SOCKET_MAGIC, NODE_SOCKET_VERSION, -1,
     "unexpected message"},
    {"order", NODE_FETCH, 1, N, NODE_SOCKET_MAGIC, NODE_SOCKET_VERSION, -1, "before HELLO"},
    {"rank", NODE_HELLO, 1, N, NODE_SOCKET_MAGIC, NODE_SOCKET_VERSION, F_SEAL_SHRINK,
     "local rank 1"},
    {"world", NODE_HELLO, 0, 9, NODE_SOCKET_MAGIC, NODE_SOCKET_VERSION, F_SEAL_SHRINK, "expects 9"},
    {"no fd", NODE_HELLO, 0, N, NODE_SOCKET_MAGIC, NODE_SOCKET_VERSION, -1, "without a segment"},
    {"no seal", NODE_HELLO, 0, N, NODE_SOCKET_MAGIC, NODE_SOCKET_VERSION, F_SEAL_GROW,
     "not sealed"},
};

START_TEST(a_bad_message_is_refused_with_its_reason)
{
    struct node_message m = hello(bad[_i].local_rank);
    m.type = (uint16_t)bad[_i].type;
    m.n_local = bad[_i].n_local;
    m.magic = bad[_i].magic;
    m.version = (uint16_t)bad[_i].version;
    int fd = bad[_i].seals < 0 ? -1 : make_segment((unsigned)bad[_i].seals);
    ck_assert_int_eq(node_message_send(theirs[0], &m, fd), 0);
    if (fd >= 0)
        close(fd);
    struct co_error err = {0};
    ck_assert_int_eq(let_broker_read(0, &err), -EPROTO);
    ck_assert_msg(strstr(err.text, bad[_i].text) != NULL, "%s: %s", bad[_i].what, err.text);
    ck_assert(!broker_has_said_hello(b, 0));
}
END_TEST

START_TEST(a_message_of_a_wrong_size_is_refused)
{
    struct co_error err = {0};
    char long_one[sizeof(struct node_message) + 1] = {0};
    ck_assert_int_eq(send(theirs[0], long_one, sizeof long_one, 0), (ssize_t)sizeof long_one);
    ck_assert_int_eq(let_broker_read(0, &err), -EPROTO);
    ck_assert_int_eq(send(theirs[1], "x", 1, 0), 1);
    ck_assert_int_eq(let_broker_read(1, &err), -EPROTO);
    ck_assert_ptr_nonnull(strstr(err.text, "1 bytes"));
}
END_TEST

START_TEST(steps_of_the_rank_itself_count_even_without_hello)
{
    struct node_message m = hello(1);
    struct co_error err;
    m.type = NODE_STEP;
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(node_message_send(theirs[1], &m, -1), 0);
    ck_assert_int_eq(broker_on_readable(b, 1, mine[1], &(int){-1}, NULL), 1);
    ck_assert_uint_eq(broker_n_steps(b), 2);
    m.local_rank = 2;
    ck_assert_int_eq(node_message_send(theirs[1], &m, -1), 0);
    ck_assert_int_eq(broker_on_readable(b, 1, mine[1], &(int){-1}, &err), -EPROTO);
    ck_assert_str_eq(err.text, "STEP of local rank 2 by local rank 1");
    ck_assert_uint_eq(broker_n_steps(b), 2);
}
END_TEST

START_TEST(a_rank_reports_its_own_lost_peer_at_any_time)
{
    struct node_message m = hello(1);
    struct co_error err;
    m.type = NODE_LOST;
    ck_assert(!broker_has_lost_peer(b, 1));
    ck_assert_int_eq(node_message_send(theirs[1], &m, -1), 0);
    ck_assert_int_eq(broker_on_readable(b, 1, mine[1], &(int){-1}, NULL), 1);
    ck_assert(broker_has_lost_peer(b, 1));
    ck_assert_int_eq(node_message_send(theirs[0], &m, -1), 0);
    ck_assert_int_eq(broker_on_readable(b, 0, mine[0], &(int){-1}, &err), -EPROTO);
    ck_assert_str_eq(err.text, "LOST of local rank 1 by local rank 0");
    ck_assert(!broker_has_lost_peer(b, 0));
}
END_TEST

static void say_wait(unsigned rank, uint32_t generation, const char *text)
{
    ck_assert_int_eq(node_message_tell_wait(theirs[rank], rank, generation, text), 0);
    ck_assert_int_eq(broker_on_readable(b, (int)rank, mine[rank], &(int){-1}, NULL),
                     text[0] != '\0' ? 2 : 1);
}

START_TEST(each_text_about_an_unreachable_peer_can_be_read)
{
    ck_assert_int_eq(node_message_tell_wait(theirs[0], 0, 0, "first"), 0);
    ck_assert_int_eq(node_message_tell_wait(theirs[0], 0, 0, ""), 0);
    ck_assert_int_eq(node_message_tell_wait(theirs[0], 0, 0, "second"), 0);
    ck_assert_int_eq(node_message_tell_wait(theirs[0], 0, 0, ""), 0);
    ck_assert_int_eq(broker_on_readable(b, 0, mine[0], &(int){-1}, NULL), 2);
    ck_assert_str_eq(broker_wait_of(b, 0), "first");
    ck_assert_int_eq(broker_on_readable(b, 0, mine[0], &(int){-1}, NULL), 2);
    ck_assert_str_eq(broker_wait_of(b, 0), "second");
    ck_assert_int_eq(broker_on_readable(b, 0, mine[0], &(int){-1}, NULL), 1);
    ck_assert_str_eq(broker_wait_of(b, 0), "");
}
END_TEST

START_TEST(the_last_text_about_an_unreachable_peer_is_kept_and_cleaned)
{
    char text[2 * NODE_SOCKET_TEXT_MAX];
    struct co_error err;
    ck_assert_str_eq(broker_wait_of(b, 1), "");
    say_wait(1, 0, "cannot connect to \x1b[2J\n\xff");
    ck_assert_str_eq(broker_wait_of(b, 1), "cannot connect to ?[2J??");
    ck_assert_str_eq(broker_wait_of(b, 0), "");
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    say_wait(1, 0, text);
    ck_assert_uint_eq(strlen(broker_wait_of(b, 1)), NODE_SOCKET_TEXT_MAX - 1);
    say_wait(1, 0, "");
    ck_assert_str_eq(broker_wait_of(b, 1), "");
    say_wait(1, 0, "again");
    broker_rank_gone(b, 1);
    ck_assert_str_eq(broker_wait_of(b, 1), "");
    ck_assert_int_eq(node_message_tell_wait(theirs[0], 1, 0, "of another"), 0);
    ck_assert_int_eq(broker_on_readable(b, 0, mine[0], &(int){-1}, &err), -EPROTO);
    ck_assert_str_eq(err.text, "WAIT of local rank 1 by local rank 0");
}
END_TEST

START_TEST(a_second_hello_and_a_second_open_fetch_are_refused)
{
    say_hello(0);
    struct node_message m = fetch(1);
    ck_assert_int_eq(node_message_send(theirs[0], &m, -1), 0);
    ck_assert_int_eq(node_message_send(theirs[0], &m, -1), 0);
    ck_assert_int_eq(let_broker_read(0, NULL), -EPROTO);
    expect_refused(0, "two open FETCHes");

    say_hello(2);
    m = hello(2);
    int fd = make_segment(F_SEAL_SHRINK);
    ck_assert_int_eq(node_message_send(theirs[2], &m, fd), 0);
    close(fd);
    ck_assert_int_eq(let_broker_read(2, NULL), -EPROTO);
    expect_refused(2, "already joined");
}
END_TEST

START_TEST(further_descriptors_of_a_message_are_closed)
{
    struct node_message m = hello(0);
    int fds[2] = {make_segment(F_SEAL_SHRINK), make_segment(F_SEAL_SHRINK)};
    char control[CMSG_SPACE(sizeof fds)] __attribute__((aligned(8))) = {0};
    struct iovec iov = {&m, sizeof m};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *h = CMSG_FIRSTHDR(&msg);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof fds);
    memcpy(CMSG_DATA(h), fds, sizeof fds);
    ck_assert_int_gt(sendmsg(theirs[0], &msg, 0), 0);
    close(fds[0]);
    close(fds[1]);

    int next_free = dup(0); /* descriptors are given out lowest first */
    close(next_free);
    ck_assert_int_eq(let_broker_read(0, NULL), 1);
    int after = dup(0);
    close(after);
    ck_assert_int_eq(after, next_free + 1); /* the segment's, and no other */
}
END_TEST

/* --- more than one generation --- */

static void ask_again(int rank, uint32_t generation)
{
    struct node_message m = hello((unsigned)rank);
    m.generation = generation;
    m.flags = NODE_RECOVERS;
    int fd = make_segment(F_SEAL_SHRINK);
    ck_assert_int_eq(pwrite(fd, &rank, sizeof rank, 0), (ssize_t)sizeof rank);
    ck_assert_int_eq(node_message_send(theirs[rank], &m, fd), 0);
    close(fd);
}

static void expect_nothing(int rank)
{
    char byte;
    ck_assert_int_eq(recv(theirs[rank], &byte, 1, MSG_PEEK | MSG_DONTWAIT), -1);
    ck_assert_int_eq(errno, EAGAIN);
}

static void expect_control(int rank, uint32_t generation)
{
    struct node_message m;
    struct control *map;
    int fd;
    ck_assert_int_eq(node_message_receive(theirs[rank], &m, &fd, NULL), 1);
    ck_assert_int_eq(m.type, NODE_CONTROL);
    ck_assert_uint_eq(m.generation, generation);
    ck_assert_uint_eq(m.flags, generation > 0 ? NODE_RECOVERS | NODE_PLACED : NODE_RECOVERS);
    ck_assert_int_eq(control_map(fd, &map, NULL), 0);
    ck_assert_uint_eq(map->generation, generation);
    control_unmap(map);
    close(fd);
}

/* This node is the second of two. */
static void renew(uint32_t generation)
{
    const struct broker_world world = {.first_rank = 10,
                                       .world_size = 20,
                                       .node_rank = 1,
                                       .n_nodes = 2,
                                       .port = 29500,
                                       .host = "node0"};
    struct control *next;
    int fd;
    ck_assert_int_eq(control_create(broker_n_kept(b), generation, &fd, &next, NULL), 0);
    ck_assert_int_eq(broker_renew(b, fd, generation, &world, NULL), 0);
    control_unmap(next);
    close(fd);
}

static void expect_place(int seat, unsigned local_rank, unsigned n_local)
{
    struct node_message m;
    int fd;
    ck_assert_int_eq(node_message_receive(theirs[seat], &m, &fd, NULL), 1);
    ck_assert_int_eq(m.type, NODE_CONTROL);
    ck_assert_uint_eq(m.flags, NODE_RECOVERS | NODE_PLACED);
    ck_assert_uint_eq(m.local_rank, local_rank);
    ck_assert_uint_eq(m.n_local, n_local);
    ck_assert_uint_eq(m.place.rank, 10 + local_rank);
    ck_assert_uint_eq(m.place.world_size, 20);
    ck_assert_uint_eq(m.place.node_rank, 1);
    ck_assert_uint_eq(m.place.n_nodes, 2);
    ck_assert_uint_eq(m.place.port, 29500);
    ck_assert_str_eq(m.text, "node0");
    close(fd);
}

START_TEST(a_rank_in_another_generation_gets_its_place)
{
    broker_offer_more(b, 0);
    for (int i = 0; i < N; i++)
        say_hello(i);
    renew(7); /* generations of which this node was not may lie between */
    for (int i = 0; i < N; i++) {
        ask_again(i, 1);
        ck_assert_int_eq(let_broker_read(i, NULL), 1);
        expect_place(i, (unsigned)i, N);
    }
}
END_TEST

START_TEST(ranks_after_a_dropped_one_move_up)
{
    broker_offer_more(b, 0);
    for (int i = 0; i < N; i++)
        say_hello(i);
    broker_rank_gone(b, 0);
    broker_drop(b, 0);
    ck_assert_uint_eq(broker_n_kept(b), N - 1);
    ck_assert_int_eq(broker_local_of(b, 1), 1); /* still */
    renew(1);
    ck_assert_int_eq(broker_local_of(b, 0), -1);
    ck_assert_int_eq(broker_seat_at(b, N - 1), -1);
    ck_assert_int_eq(broker_seat_at(b, UINT32_MAX), -1);
    for (int i = 1; i < N; i++) {
        ck_assert_int_eq(broker_local_of(b, (unsigned)i), i - 1);
        ck_assert_int_eq(broker_seat_at(b, (unsigned)i - 1), i);
        ask_again(i, 1);
        ck_assert_int_eq(let_broker_read(i, NULL), 1);
        expect_place(i, (unsigned)i - 1, N - 1);
    }
    struct node_message m = fetch(1), answer;
    int fd, content = -1;
    m.generation = 1;
    ck_assert_int_eq(node_message_send(theirs[1], &m, -1), 0);
    ck_assert_int_eq(let_broker_read(1, NULL), 1);
    ck_assert_int_eq(node_message_receive(theirs[1], &answer, &fd, NULL), 1);
    ck_assert_int_eq(answer.type, NODE_SEGMENT);
    ck_assert_uint_eq(answer.local_rank, 1);
    ck_assert_int_eq(pread(fd, &content, sizeof content, 0), (ssize_t)sizeof content);
    ck_assert_int_eq(content, 2); /* whose seat that is */
    close(fd);
    struct co_error err;
    ask_again(0, 1); /* it cannot come back */
    ck_assert_int_eq(let_broker_read(0, &err), -EPROTO);
}
END_TEST

START_TEST(an_impossible_place_is_refused)
{
    struct node_message m = hello(0);
    m.type = NODE_CONTROL;
    m.flags = NODE_PLACED;
    m.place = (struct node_place){.rank = 3, .world_size = 4, .n_nodes = 1};
    struct node_message wrong[] = {m, m, m, m, m, m};
    wrong[0].place.rank = 4;
    wrong[1].local_rank = N;
    wrong[2].n_local = 5;
    wrong[3].place.node_rank = 1;
    wrong[4].place.n_nodes = 5;
    wrong[5].place.port = 65536;
    struct co_error err;
    int fd;
    ck_assert_int_eq(node_message_send(mine[0], &m, -1), 0);
    ck_assert_int_eq(node_message_receive(theirs[0], &m, &fd, &err), 1);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ck_assert_int_eq(node_message_send(mine[0], &wrong[i], -1), 0);
        ck_assert_int_eq(node_message_receive(theirs[0], &m, &fd, &err), -EPROTO);
        ck_assert_msg(strstr(err.text, "an invalid rank assignment") != NULL, "%s", err.text);
    }
}
END_TEST

START_TEST(a_rank_that_requests_the_next_generation_gets_it_when_made)
{
    broker_offer_more(b, 0);
    for (int i = 0; i < N; i++) {
        ask_again(i, 0);
        ck_assert_int_eq(let_broker_read(i, NULL), 1);
        expect_control(i, 0);
        ck_assert(broker_recovers(b, (unsigned)i));
    }
    broker_rank_gone(b, 1);
    ask_again(0, 1); /* before ddprun knows of the death, or after */
    ck_assert_int_eq(let_broker_read(0, NULL), 1);
    expect_nothing(0);
    renew(1);
    expect_control(0, 1);
    ck_assert(broker_has_said_hello(b, 0));
    ck_assert(!broker_has_said_hello(b, 2));
    ask_again(2, 1);
    ck_assert_int_eq(let_broker_read(2, NULL), 1);
    expect_control(2, 1);
    ask_again(1, 0); /* a new process is let into whatever is the newest */
    ck_assert_int_eq(let_broker_read(1, NULL), 1);
    expect_control(1, 1);
}
END_TEST

START_TEST(a_rank_that_waits_for_a_lost_one_may_request_the_next)
{
    broker_offer_more(b, 0);
    ask_again(0, 0);
    ck_assert_int_eq(let_broker_read(0, NULL), 1);
    expect_control(0, 0);
    broker_rank_gone(b, 2);
    struct node_message m = fetch(2);
    ck_assert_int_eq(node_message_send(theirs[0], &m, -1), 0);
    ck_assert_int_eq(let_broker_read(0, NULL), 1); /* its socket stays */
    expect_refused(0, "local rank 2 exited");
    ask_again(0, 1);
    ck_assert_int_eq(let_broker_read(0, NULL), 1);
    renew(1);
    expect_control(0, 1);
}
END_TEST

START_TEST(a_peer_lost_in_an_older_generation_does_not_count)
{
    struct node_message m = hello(1);
    m.type = NODE_LOST;
    broker_offer_more(b, 0);
    say_hello(1);
    renew(1);
    /* it does not know of the renewal yet */
    ck_assert_int_eq(node_message_send(theirs[1], &m, -1), 0);
    ck_assert_int_eq(let_broker_read(1, NULL), 1);
    ck_assert(!broker_has_lost_peer(b, 1));
    m.generation = 1;
    ck_assert_int_eq(node_message_send(theirs[1], &m, -1), 0);
    ck_assert_int_eq(let_broker_read(1, NULL), 1);
    ck_assert(broker_has_lost_peer(b, 1));
}
END_TEST

START_TEST(messages_of_an_older_generation_are_dropped)
{
    broker_offer_more(b, 0);
    say_hello(0);
    struct node_message m = fetch(1);
    ck_assert_int_eq(node_message_send(theirs[0], &m, -1), 0);
    ck_assert_int_eq(let_broker_read(0, NULL), 1);
    renew(1);
    /* it does not know of the renewal yet */
    ck_assert_int_eq(node_message_send(theirs[0], &m, -1), 0);
    ck_assert_int_eq(let_broker_read(0, NULL), 1);
    ask_again(1, 0);
    ck_assert_int_eq(let_broker_read(1, NULL), 1);
    expect_nothing(0);
    ask_again(0, 1);
    ck_assert_int_eq(let_broker_read(0, NULL), 1);
    expect_control(0, 1);
    m.generation = 1;
    ck_assert_int_eq(node_message_send(theirs[0], &m, -1), 0);
    ck_assert_int_eq(let_broker_read(0, NULL), 1);
    expect_segment(0, 1);
}
END_TEST

START_TEST(without_a_next_generation_a_request_is_refused)
{
    broker_offer_more(b, 0);
    ask_again(0, 0);
    ask_again(0, 1);
    ck_assert_int_eq(let_broker_read(0, NULL), 1);
    expect_control(0, 0);
    broker_give_up(b);
    expect_refused(0, "no rank is being replaced");
    ask_again(1, 1);
    ck_assert_int_eq(let_broker_read(1, NULL), 1);
    expect_refused(1, "no rank is being replaced");
}
END_TEST

START_TEST(a_rank_that_exits_before_its_admission_leaves_nothing)
{
    broker_offer_more(b, 0);
    ask_again(0, 1);
    ck_assert_int_eq(let_broker_read(0, NULL), 1);
    close(theirs[0]);
    ck_assert_int_eq(let_broker_read(0, NULL), 0);
    theirs[0] = -1;
    ask_again(1, 1);
    ck_assert_int_eq(let_broker_read(1, NULL), 1);
    broker_rank_gone(b, 1);
    renew(1);
    ck_assert(!broker_has_said_hello(b, 0));
    ck_assert(!broker_has_said_hello(b, 1));
    expect_nothing(1);
}
END_TEST

static const struct {
    bool offers;
    uint32_t first, second; /* generations that are asked for */
} wrong_asking[] = {{false, 0, 1}, {true, 0, 2}, {true, 0, UINT32_MAX}, {true, 1, 1}};

START_TEST(an_impossible_request_is_refused)
{
    struct co_error err = {0};
    if (wrong_asking[_i].offers)
        broker_offer_more(b, 0);
    ask_again(0, wrong_asking[_i].first);
    ck_assert_int_eq(let_broker_read(0, NULL), 1);
    ask_again(0, wrong_asking[_i].second);
    ck_assert_int_eq(let_broker_read(0, &err), -EPROTO);
    ck_assert_msg(strstr(err.text, "requests generation") != NULL, "%s", err.text);
}
END_TEST

START_TEST(the_memory_of_the_largest_segment_is_known)
{
    int none = -1;
    ck_assert_uint_eq(broker_most_bytes(b), 0);
    for (unsigned i = 0; i < 2; i++) {
        int fd = make_segment(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
        if (i == 1)
            ck_assert_int_eq(pwrite(fd, "x", 1, 0), 1); /* a page of it */
        struct node_message m = hello(i);
        m.bytes = BYTES;
        ck_assert_int_eq(node_message_send(theirs[i], &m, fd), 0);
        ck_assert_int_eq(broker_on_readable(b, (int)i, mine[i], &none, NULL), 1);
        close(fd);
    }
    ck_assert_uint_eq(broker_most_bytes(b), 4096);
}
END_TEST

START_TEST(a_turn_reads_some_messages_of_a_rank_and_the_next_one_the_others)
{
    enum { TURN = 64, SENT = TURN + 6 };
    int seat;
    for (int i = 0; i < SENT; i++)
        ck_assert_int_eq(node_message_notify(theirs[0], NODE_STEP, 0, 0), 0);
    ck_assert_int_eq(broker_on_readable(b, 0, mine[0], &seat, NULL), 1);
    ck_assert_uint_eq(broker_n_steps(b), TURN);
    ck_assert_int_eq(broker_on_readable(b, 0, mine[0], &seat, NULL), 1);
    ck_assert_uint_eq(broker_n_steps(b), SENT);
}
END_TEST

TEST_SUITE(broker)
{
    Suite *s = suite_create("broker");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, a_turn_reads_some_messages_of_a_rank_and_the_next_one_the_others);
    tcase_add_test(t, the_segment_of_an_earlier_rank_is_fetched);
    tcase_add_test(t, a_fetch_waits_for_a_later_rank);
    tcase_add_test(t, a_fetch_of_a_rank_that_ends_is_refused);
    tcase_add_test(t, a_socket_that_closes_is_reported_to_the_owner);
    tcase_add_loop_test(t, a_bad_message_is_refused_with_its_reason, 0,
                        (int)(sizeof bad / sizeof *bad));
    tcase_add_test(t, a_message_of_a_wrong_size_is_refused);
    tcase_add_test(t, a_rank_reports_its_own_lost_peer_at_any_time);
    tcase_add_test(t, each_text_about_an_unreachable_peer_can_be_read);
    tcase_add_test(t, the_last_text_about_an_unreachable_peer_is_kept_and_cleaned);
    tcase_add_test(t, steps_of_the_rank_itself_count_even_without_hello);
    tcase_add_test(t, a_second_hello_and_a_second_open_fetch_are_refused);
    tcase_add_test(t, further_descriptors_of_a_message_are_closed);
    tcase_add_test(t, a_rank_that_requests_the_next_generation_gets_it_when_made);
    tcase_add_test(t, a_rank_in_another_generation_gets_its_place);
    tcase_add_test(t, ranks_after_a_dropped_one_move_up);
    tcase_add_test(t, an_impossible_place_is_refused);
    tcase_add_test(t, a_rank_that_exits_with_unread_answers_does_no_harm);
    tcase_add_test(t, a_rank_that_waits_for_a_lost_one_may_request_the_next);
    tcase_add_test(t, a_peer_lost_in_an_older_generation_does_not_count);
    tcase_add_test(t, messages_of_an_older_generation_are_dropped);
    tcase_add_test(t, without_a_next_generation_a_request_is_refused);
    tcase_add_test(t, a_rank_that_exits_before_its_admission_leaves_nothing);
    tcase_add_test(t, the_memory_of_the_largest_segment_is_known);
    tcase_add_loop_test(t, an_impossible_request_is_refused, 0,
                        (int)(sizeof wrong_asking / sizeof *wrong_asking));
    suite_add_tcase(s, t);
    return s;
}
