/* The store next to rank 0 of a step. A process of this test is that rank. */
#include "launcher/generation/step_store.h"

#include "common/error.h"
#include "tests/support/suite.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEADLINE_MS = 20000 };

struct result { /* of step_store_start(), and of a wait for children after it */
    int code, wait_errno;
    struct co_error err;
};

static pid_t rank_0;
static int from_rank[2];
static struct result result;

static uint16_t find_free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    close(fd);
    return ntohs(a.sin_port);
}

static _Noreturn void be_rank_0(uint16_t port)
{
    const struct step_store_opts opts = {.host = "127.0.0.1", .port = port};
    result.code = step_store_start(&opts, &result.err);
    errno = 0;
    if (waitpid(-1, NULL, 0) < 0)
        result.wait_errno = errno;
    if (write(from_rank[1], &result, sizeof result) != (ssize_t)sizeof result)
        _exit(1);
    for (;;)
        pause();
}

static void start_rank_0(uint16_t port)
{
    ck_assert_int_eq(pipe(from_rank), 0);
    rank_0 = fork();
    ck_assert_int_ge(rank_0, 0);
    if (rank_0 == 0)
        be_rank_0(port);
    close(from_rank[1]);
    struct pollfd p = {.fd = from_rank[0], .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, DEADLINE_MS), 1);
    ck_assert_int_eq(read(from_rank[0], &result, sizeof result), sizeof result);
}

static void end_rank_0(void)
{
    kill(rank_0, SIGKILL);
    ck_assert_int_eq(waitpid(rank_0, NULL, 0), rank_0);
    close(from_rank[0]);
}

/* returns   its port. If another program takes it before the store does, this tries another one,
 *           up to 10 in all */
static uint16_t start_rank_0_anywhere(void)
{
    for (int i = 0;; i++) {
        const uint16_t port = find_free_port();
        start_rank_0(port);
        if (result.code != -EADDRINUSE || i == 9)
            return port;
        end_rank_0();
    }
}

static int connect_to(uint16_t port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0)
        return fd;
    close(fd);
    return -1;
}

/* returns   how many bytes came; 0: the end */
static ssize_t receive(int fd, void *to, size_t n)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, DEADLINE_MS), 1);
    return recv(fd, to, n, 0);
}

START_TEST(it_serves_until_rank_0_ends)
{
    static const uint8_t ask_n_keys[] = {0x00, 0xce, 0xf7, 0x85, 0x3c, 0x07};
    uint8_t answer[8];
    const uint16_t port = start_rank_0_anywhere();
    ck_assert_msg(result.code == 0, "%s", result.err.text);
    int fd = connect_to(port);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(send(fd, ask_n_keys, sizeof ask_n_keys, MSG_NOSIGNAL), sizeof ask_n_keys);
    ck_assert_int_eq(receive(fd, answer, sizeof answer), sizeof answer);
    end_rank_0();
    ck_assert_int_le(receive(fd, answer, sizeof answer), 0);
    close(fd);
}
END_TEST

START_TEST(rank_0_gets_no_child_that_it_has_not_started)
{
    start_rank_0_anywhere();
    ck_assert_msg(result.code == 0, "%s", result.err.text);
    ck_assert_int_eq(result.wait_errno, ECHILD);
    end_rank_0();
}
END_TEST

START_TEST(a_taken_port_is_an_error)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    ck_assert_int_eq(listen(fd, 1), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    start_rank_0(ntohs(a.sin_port));
    ck_assert_int_eq(result.code, -EADDRINUSE);
    ck_assert_ptr_nonnull(strstr(result.err.text, "in use"));
    end_rank_0();
    close(fd);
}
END_TEST

TEST_SUITE(step_store)
{
    Suite *s = suite_create("step_store");
    TCase *t = tcase_create("step_store");
    tcase_add_test(t, it_serves_until_rank_0_ends);
    tcase_add_test(t, rank_0_gets_no_child_that_it_has_not_started);
    tcase_add_test(t, a_taken_port_is_an_error);
    suite_add_tcase(s, t);
    return s;
}
