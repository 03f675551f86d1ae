/* The ranks' node sockets, over real ones. What the broker makes of them:
 * segments/test_broker.c. */
#include "launcher/generation/node_memory.h"

#include "segments/control.h"
#include "segments/node_socket.h"
#include "tests/support/suite.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

static uv_loop_t loop;
static struct node_memory *m;

static void on_note(void *arg, const char *text)
{
    (void)arg;
    ck_abort_msg("%s", text);
}

static void on_joined(void *arg, int rank, bool recovers)
{
    (void)arg;
    (void)recovers;
    ck_abort_msg("rank %d has not said hello", rank);
}

static void on_asked(void *arg, int rank)
{
    on_joined(arg, rank, false);
}

static void on_any_joined(void *arg, int rank, bool recovers)
{
    (void)arg, (void)rank, (void)recovers;
}

static int n_deaths, n_waits;
static char last_wait[NODE_SOCKET_TEXT_MAX + 16];

static void on_wait(void *arg, int rank, const char *text)
{
    (void)arg;
    n_waits++;
    snprintf(last_wait, sizeof last_wait, "%d %s", rank, text);
}

static void on_death(void *arg)
{
    (void)arg;
    n_deaths++;
}

static void set_up(void)
{
    const struct node_memory_opts opts = {
        .n_local = 2, .on_note = on_note, .on_joined = on_joined, .on_asked = on_asked};
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(node_memory_create(&loop, &opts, &m, NULL), 0);
}

/* Of a job whose ranks may outlive each other. */
static void set_up_to_recover(void)
{
    const struct node_memory_opts opts = {.n_local = 2,
                                          .recovers = true,
                                          .on_note = on_note,
                                          .on_joined = on_any_joined,
                                          .on_asked = on_asked,
                                          .on_death = on_death,
                                          .on_wait = on_wait};
    n_deaths = n_waits = 0;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(node_memory_create(&loop, &opts, &m, NULL), 0);
}

static void tear_down(void)
{
    node_memory_close(m);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static bool is_at_end(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

START_TEST(all_sockets_end_with_the_memory)
{
    int fds[2];
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(node_memory_add(m, i, &fds[i]), 0);
    close(fds[0]); /* one is closed before, as its rank ends without a word */
    uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert(!is_at_end(fds[1]));
    close(fds[1]);
}
END_TEST

/* A standby that received the rank has died, or did not get the message: another one takes the
 * rank. */
START_TEST(a_second_socket_of_a_rank_replaces_the_first)
{
    int first, second;
    ck_assert_int_eq(node_memory_add(m, 1, &first), 0);
    ck_assert_int_eq(node_memory_add(m, 1, &second), 0);
    ck_assert(is_at_end(first));
    ck_assert(!is_at_end(second));
    close(first);
    uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert(!is_at_end(second));
    close(second);
}
END_TEST

static void say(int sock, enum node_message_type type, unsigned local_rank, int fd)
{
    const struct node_message message = {.magic = NODE_SOCKET_MAGIC,
                                         .version = NODE_SOCKET_VERSION,
                                         .type = (uint16_t)type,
                                         .local_rank = local_rank,
                                         .n_local = 2,
                                         .bytes = 4096,
                                         .flags = NODE_RECOVERS};
    ck_assert_int_eq(node_message_send(sock, &message, fd), 0);
    uv_run(&loop, UV_RUN_NOWAIT);
}

/* returns the control segment, as the rank sees it */
static struct control *join_as(int sock, unsigned local_rank)
{
    struct node_message answer;
    struct control *c;
    int fd = memfd_create("segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_eq(ftruncate(fd, 4096), 0);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    say(sock, NODE_HELLO, local_rank, fd);
    close(fd);
    ck_assert_int_eq(node_message_receive(sock, &answer, &fd, NULL), 1);
    ck_assert_int_eq(answer.type, NODE_CONTROL);
    ck_assert_int_eq(control_map(fd, &c, NULL), 0);
    close(fd);
    return c;
}

START_TEST(a_death_that_ranks_report_is_passed_on_once)
{
    int fds[2];
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(node_memory_add(m, i, &fds[i]), 0);
    struct control *c = join_as(fds[0], 0);
    say(fds[0], NODE_LOST, 0, -1); /* not the death of a rank of this node */
    ck_assert_int_eq(n_deaths, 0);
    control_abort_set(c, (struct control_abort){.cause = CONTROL_RANK_DIED, .rank = 1});
    say(fds[0], NODE_LOST, 0, -1);
    say(fds[0], NODE_LOST, 0, -1);
    ck_assert_int_eq(n_deaths, 1);
    control_unmap(c);
    close(fds[0]);
    close(fds[1]);
}
END_TEST

START_TEST(a_death_that_ranks_were_informed_of_is_not_passed_on)
{
    int fds[2];
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(node_memory_add(m, i, &fds[i]), 0);
    struct control *c = join_as(fds[0], 0);
    ck_assert_int_eq(node_memory_rank_gone(m, 1, SIGKILL), -1);
    ck_assert_int_eq(control_abort_get(c).cause, CONTROL_RANK_DIED);
    say(fds[0], NODE_LOST, 0, -1);
    ck_assert_int_eq(n_deaths, 0);
    control_unmap(c);
    close(fds[0]);
    close(fds[1]);
}
END_TEST

static void say_wait(int sock, unsigned rank, const char *text)
{
    ck_assert_int_eq(node_message_tell_wait(sock, rank, 0, text), 0);
    uv_run(&loop, UV_RUN_NOWAIT);
}

START_TEST(an_unreachable_peer_is_reported_once_and_bounded)
{
    int sock;
    char text[32];
    ck_assert_int_eq(node_memory_add(m, 1, &sock), 0);
    ck_assert_str_eq(node_memory_wait_of(m, 1), "");
    for (int i = 0; i < 2; i++) {
        say_wait(sock, 1, "cannot connect to rank 7");
        ck_assert_str_eq(node_memory_wait_of(m, 1), "cannot connect to rank 7");
        say_wait(sock, 1, "");
        ck_assert_str_eq(node_memory_wait_of(m, 1), "");
    }
    ck_assert_int_eq(n_waits, 1);
    ck_assert_str_eq(last_wait, "1 cannot connect to rank 7");
    for (int i = 0; i < 100; i++) {
        snprintf(text, sizeof text, "cannot connect to rank %d", i);
        say_wait(sock, 1, text);
    }
    ck_assert_int_eq(n_waits, NODE_MEMORY_MOST_WAITS);
    ck_assert_str_eq(node_memory_wait_of(m, 1), text);
    close(sock);
}
END_TEST

START_TEST(the_last_of_many_messages_is_read_when_the_rank_is_gone)
{
    enum { MANY = 100 /* more than the broker reads in a turn */ };
    int fds[2];
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(node_memory_add(m, i, &fds[i]), 0);
    struct control *c = join_as(fds[0], 0);
    for (int i = 0; i < MANY; i++)
        ck_assert_int_eq(node_message_notify(fds[0], NODE_STEP, 0, 0), 0);
    ck_assert_int_eq(node_message_notify(fds[0], NODE_LOST, 0, 0), 0);
    node_memory_rank_gone(m, 0, 1 << 8);
    ck_assert(node_memory_has_lost_peer(m, 0));
    control_unmap(c);
    for (int i = 0; i < 2; i++)
        close(fds[i]);
}
END_TEST

TEST_SUITE(node_memory)
{
    Suite *suite = suite_create("node_memory");
    TCase *t = tcase_create("sockets");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, all_sockets_end_with_the_memory);
    tcase_add_test(t, a_second_socket_of_a_rank_replaces_the_first);
    suite_add_tcase(suite, t);
    t = tcase_create("deaths");
    tcase_add_checked_fixture(t, set_up_to_recover, tear_down);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_death_that_ranks_report_is_passed_on_once);
    tcase_add_test(t, an_unreachable_peer_is_reported_once_and_bounded);
    tcase_add_test(t, the_last_of_many_messages_is_read_when_the_rank_is_gone);
    tcase_add_test(t, a_death_that_ranks_were_informed_of_is_not_passed_on);
    suite_add_tcase(suite, t);
    return suite;
}
