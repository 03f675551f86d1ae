#include "rendezvous/net/address.h"
#include "rendezvous/net/peer.h"
#include "rendezvous/net/port_owner.h"
#include "tests/support/suite.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int fd;
static struct sockaddr_storage bound;

/* A socket that listens at an address, at a port of the kernel's choice. */
static void set_up_at(const char *address)
{
    struct sockaddr_storage at;
    socklen_t len = sizeof bound;
    ck_assert_int_eq(address_parse(address, 0, &at), 0);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof(struct sockaddr_in)), 0);
    ck_assert_int_eq(listen(fd, 1), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&bound, &len), 0);
}

static void assert_owner(const char *address, pid_t pid)
{
    struct sockaddr_storage at;
    char text[PORT_OWNER_BYTES], expected[32];
    ck_assert_int_eq(address_parse(address, address_port(&bound), &at), 0);
    port_owner_text(&at, text);
    snprintf(expected, sizeof expected, " (pid %d)", pid);
    ck_assert_msg(strncmp(text, " by ", 4) == 0 && strstr(text, expected) != NULL, "'%s'", text);
}

START_TEST(the_process_that_listens_is_named)
{
    set_up_at("127.0.0.1");
    assert_owner("127.0.0.1", getpid());
    assert_owner("0.0.0.0", getpid());
    assert_owner("::", getpid());
    close(fd);
    set_up_at("0.0.0.0");
    assert_owner("127.0.0.1", getpid());
    close(fd);
}
END_TEST

START_TEST(one_of_several_processes_that_share_the_socket_is_named)
{
    set_up_at("127.0.0.1");
    const pid_t child = fork();
    if (child == 0)
        for (;;)
            pause();
    assert_owner("127.0.0.1", child < getpid() ? child : getpid());
    close(fd);
    assert_owner("127.0.0.1", child);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}
END_TEST

START_TEST(a_process_name_sends_no_control_sequence_to_the_terminal)
{
    char text[PORT_OWNER_BYTES], expected[PORT_OWNER_BYTES];
    set_up_at("127.0.0.1");
    ck_assert_int_eq(prctl(PR_SET_NAME, "a\033[2J\n\x9b\x7f"
                                        "b"),
                     0);
    snprintf(expected, sizeof expected, " by a?[2J???b (pid %d)", getpid());
    ck_assert_str_eq(port_owner_text(&bound, text), expected);
    close(fd);
}
END_TEST

START_TEST(a_port_that_is_free_or_elsewhere_has_no_owner)
{
    struct sockaddr_storage at;
    struct peer_owner owner;
    char text[PORT_OWNER_BYTES];
    set_up_at("127.0.0.1");
    ck_assert_int_eq(address_parse("127.0.0.2", address_port(&bound), &at), 0);
    ck_assert_str_eq(port_owner_text(&at, text), "");
    ck_assert_int_eq(peer_find_bound(&bound, &owner), 0);
    ck_assert_uint_eq(owner.uid, geteuid());
    close(fd);
    ck_assert_str_eq(port_owner_text(&bound, text), "");
    ck_assert_int_eq(peer_find_bound(&bound, &owner), -ENOENT);
}
END_TEST

/* Another user's process cannot be looked at. */
START_TEST(without_a_visible_process_the_user_is_named)
{
    char text[PORT_OWNER_BYTES];
    int status;
    if (geteuid() != 0) {
        printf("skipped: only root can be two users\n");
        return;
    }
    set_up_at("127.0.0.1");
    const pid_t child = fork();
    if (child == 0) {
        close(fd);
        _exit(setuid(65534) != 0 ||
              strcmp(port_owner_text(&bound, text), " by a process of user ID 0") != 0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    close(fd);
}
END_TEST

TEST_SUITE(port_owner)
{
    Suite *suite = suite_create("port_owner");
    TCase *tc = tcase_create("port_owner");
    tcase_add_test(tc, the_process_that_listens_is_named);
    tcase_add_test(tc, one_of_several_processes_that_share_the_socket_is_named);
    tcase_add_test(tc, a_process_name_sends_no_control_sequence_to_the_terminal);
    tcase_add_test(tc, a_port_that_is_free_or_elsewhere_has_no_owner);
    tcase_add_test(tc, without_a_visible_process_the_user_is_named);
    suite_add_tcase(suite, tc);
    return suite;
}
