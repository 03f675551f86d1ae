/* A listener without a descriptor for the next connection: it rests, and loses no connection. */
#include "common/listener.h"

#include "common/clock.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DEADLINE_MS = 60000 };

static struct sockaddr_in address;
static struct co_listener listener;

static void set_up(void)
{
    socklen_t len = sizeof address;
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    listener = (struct co_listener){.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)};
    ck_assert_int_eq(bind(listener.fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(listener.fd, 8), 0);
    ck_assert_int_eq(getsockname(listener.fd, (struct sockaddr *)&address, &len), 0);
}

static void tear_down(void)
{
    close(listener.fd);
}

static int come(void)
{
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* before: what was allowed, to be given back */
static void allow_no_more(struct rlimit *before)
{
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, before), 0);
    const int next = dup(0); /* descriptors are given out lowest first */
    close(next);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)next, before->rlim_max}), 0);
}

/* Accepts as the owner of a listener does, until a connection arrives. */
static int await(void)
{
    const uint64_t deadline_ms = co_deadline_ms(DEADLINE_MS);
    for (int fd; co_left_ms(deadline_ms) > 0;) {
        struct pollfd p = co_listener_poll(&listener);
        poll(&p, 1, co_listener_wait_ms(&listener, co_left_ms(deadline_ms)));
        if ((fd = co_listener_accept(&listener, SOCK_CLOEXEC)) >= 0)
            return fd;
    }
    return -1;
}

START_TEST(each_connection_is_accepted_once)
{
    ck_assert_int_eq(co_listener_accept(&listener, 0), -EAGAIN);
    ck_assert_int_eq(co_listener_poll(&listener).fd, listener.fd);
    ck_assert_int_eq(co_listener_wait_ms(&listener, -1), -1);
    const int there = come(), here = await();
    ck_assert_int_ge(here, 0);
    ck_assert_int_eq(co_listener_accept(&listener, 0), -EAGAIN);
    close(here);
    close(there);
}
END_TEST

START_TEST(it_rests_without_a_free_descriptor)
{
    struct rlimit before;
    const int there = come();
    allow_no_more(&before);
    ck_assert_int_eq(co_listener_accept(&listener, 0), -EMFILE);
    listener.rests_till_ms += DEADLINE_MS; /* however slow this is */
    ck_assert_int_eq(co_listener_poll(&listener).fd, -1);
    ck_assert_int_eq(co_listener_wait_ms(&listener, 1), 1);
    ck_assert_int_gt(co_listener_wait_ms(&listener, -1), 1);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    ck_assert_int_eq(co_listener_accept(&listener, 0), -EAGAIN);
    close(there);
}
END_TEST

START_TEST(a_connection_during_the_rest_is_accepted_later)
{
    struct rlimit before;
    const int there = come();
    char byte = 'x', heard = 0;
    allow_no_more(&before);
    ck_assert_int_eq(co_listener_accept(&listener, 0), -EMFILE);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    const int here = await();
    ck_assert_int_ge(here, 0);
    ck_assert_int_eq(send(there, &byte, 1, 0), 1);
    ck_assert_int_eq(recv(here, &heard, 1, 0), 1);
    ck_assert_int_eq(heard, 'x');
    close(here);
    close(there);
}
END_TEST

START_TEST(it_rests_only_for_temporary_errors)
{
    ck_assert(co_is_shortage(EMFILE) && co_is_shortage(ENFILE));
    ck_assert(co_is_shortage(ENOBUFS) && co_is_shortage(ENOMEM));
    ck_assert(!co_is_shortage(EAGAIN) && !co_is_shortage(ECONNABORTED) && !co_is_shortage(EINTR));
    struct co_listener none = {.fd = -1};
    ck_assert_int_eq(co_listener_accept(&none, 0), -EBADF);
    ck_assert_int_eq(co_listener_wait_ms(&none, -1), -1);
}
END_TEST

START_TEST(the_descriptor_limit_is_raised_to_its_maximum)
{
    struct rlimit before, now;
    allow_no_more(&before);
    ck_assert_uint_eq(co_raise_file_limit(), before.rlim_max);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &now), 0);
    ck_assert_uint_eq(now.rlim_cur, before.rlim_max);
    ck_assert_uint_eq(co_raise_file_limit(), before.rlim_max);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
}
END_TEST

TEST_SUITE(listener)
{
    Suite *s = suite_create("listener");
    TCase *t = tcase_create("listener");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, each_connection_is_accepted_once);
    tcase_add_test(t, it_rests_without_a_free_descriptor);
    tcase_add_test(t, a_connection_during_the_rest_is_accepted_later);
    tcase_add_test(t, it_rests_only_for_temporary_errors);
    tcase_add_test(t, the_descriptor_limit_is_raised_to_its_maximum);
    suite_add_tcase(s, t);
    return s;
}
