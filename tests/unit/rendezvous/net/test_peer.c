#include "common/error.h"
#include "rendezvous/net/peer.h"
#include "tests/support/suite.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A connection over loopback: the two ends, and the addresses as the accepting one has them. */
static int listener, theirs_fd, ours_fd;
static struct sockaddr_storage ours, theirs;
static struct peer p;

static void set_up(void)
{
    peer_init(&p);
}

static void tear_down(void)
{
    peer_fini(&p);
}

static void connect_ends(int family_of_client)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof any;
    listener = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&any, sizeof any), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&any, &len), 0);
    theirs_fd = socket(family_of_client, SOCK_STREAM, 0);
    ck_assert_int_ge(theirs_fd, 0);
    if (family_of_client == AF_INET) {
        ck_assert_int_eq(connect(theirs_fd, (struct sockaddr *)&any, sizeof any), 0);
    } else {
        struct sockaddr_in6 mapped = {.sin6_family = AF_INET6, .sin6_port = any.sin_port};
        ck_assert_int_eq(inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr), 1);
        ck_assert_int_eq(connect(theirs_fd, (struct sockaddr *)&mapped, sizeof mapped), 0);
    }
    len = sizeof theirs;
    ours_fd = accept(listener, (struct sockaddr *)&theirs, &len);
    ck_assert_int_ge(ours_fd, 0);
    len = sizeof ours;
    ck_assert_int_eq(getsockname(ours_fd, (struct sockaddr *)&ours, &len), 0);
}

static void close_ends(void)
{
    close(theirs_fd);
    close(ours_fd);
    close(listener);
}

static void assert_known(void)
{
    struct co_error err = {0};
    struct peer_owner owner = {.uid = (uid_t)-1};
    struct stat st;
    ck_assert_msg(peer_find(&p, &ours, &theirs, &owner, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(owner.uid, geteuid());
    ck_assert_int_eq(fstat(theirs_fd, &st), 0);
    ck_assert_uint_eq(owner.inode, st.st_ino);
}

static void assert_unknown(int rc)
{
    struct co_error err = {0};
    struct peer_owner owner;
    ck_assert_int_eq(peer_find(&p, &ours, &theirs, &owner, &err), rc);
    ck_assert_ptr_nonnull(strstr(err.text, "the process at the other end"));
}

static void use(enum peer_method method)
{
    if (method == PEER_BY_PROC)
        p.method = PEER_BY_PROC;
    ck_assert_int_eq(p.method, method);
}

START_TEST(the_owner_of_the_other_end_is_found)
{
    if (p.method == PEER_BY_NOTHING) {
        printf("skipped: this system does not tell\n");
        return;
    }
    for (enum peer_method method = p.method; method <= PEER_BY_PROC; method++) {
        use(method);
        connect_ends(AF_INET);
        assert_known();
        shutdown(theirs_fd, SHUT_WR);
        assert_known(); /* half closed, but held */
        close_ends();
    }
}
END_TEST

START_TEST(an_ipv6_socket_with_an_ipv4_address_is_found)
{
    int probe = socket(AF_INET6, SOCK_STREAM, 0);
    if (probe < 0 || p.method == PEER_BY_NOTHING) {
        printf("skipped: no IPv6 here, or a system that does not tell\n");
        return;
    }
    close(probe);
    for (enum peer_method method = p.method; method <= PEER_BY_PROC; method++) {
        use(method);
        connect_ends(AF_INET6);
        assert_known();
        close_ends();
    }
}
END_TEST

START_TEST(processes_of_other_users_are_refused)
{
    struct co_error err = {0};
    const uid_t other = geteuid() + 1;
    char text[128];
    ck_assert_int_eq(peer_check_user(geteuid(), &err), 0);
    ck_assert_int_eq(peer_check_user(0, &err), 0);
    ck_assert_int_eq(peer_check_user(other, &err), -EACCES);
    snprintf(text, sizeof text, "refused: it belongs to user ID %u, the store to user ID %u",
             (unsigned)other, (unsigned)geteuid());
    ck_assert_str_eq(err.text, text);
}
END_TEST

START_TEST(a_closed_end_has_no_owner)
{
    for (enum peer_method method = p.method; method <= PEER_BY_PROC; method++) {
        use(method);
        connect_ends(AF_INET);
        close(theirs_fd);
        theirs_fd = -1;
        assert_unknown(-ESRCH);
        close_ends();
    }
}
END_TEST

START_TEST(a_listener_on_the_port_is_not_the_other_end)
{
    connect_ends(AF_INET);
    /* their port, as if the client's were the port we listen on ourselves */
    struct sockaddr_storage swapped = ours;
    ((struct sockaddr_in *)&theirs)->sin_port = ((struct sockaddr_in *)&swapped)->sin_port;
    ((struct sockaddr_in *)&ours)->sin_port = htons(1);
    for (enum peer_method method = p.method; method <= PEER_BY_PROC; method++) {
        use(method);
        assert_unknown(-ENOENT);
    }
    close_ends();
}
END_TEST

TEST_SUITE(peer)
{
    Suite *suite = suite_create("peer");
    TCase *tc = tcase_create("peer");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, the_owner_of_the_other_end_is_found);
    tcase_add_test(tc, an_ipv6_socket_with_an_ipv4_address_is_found);
    tcase_add_test(tc, processes_of_other_users_are_refused);
    tcase_add_test(tc, a_closed_end_has_no_owner);
    tcase_add_test(tc, a_listener_on_the_port_is_not_the_other_end);
    suite_add_tcase(suite, tc);
    return suite;
}
