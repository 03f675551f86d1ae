/* A process that waits in ddp_run(), and the test in ddprun's place. */
#include "common/error.h"
#include "segments/node_socket.h"
#include "tests/unit/worker-runtime/ranks.h"
#include "worker-runtime/join/standby.h"

#include <errno.h>
#include <sys/socket.h>

static int mine;

static const struct node_message take = {.magic = NODE_SOCKET_MAGIC,
                                         .version = NODE_SOCKET_VERSION,
                                         .type = NODE_TAKE,
                                         .local_rank = 2,
                                         .n_local = 4,
                                         .place.rank = 6,
                                         .text = "/run/job/2.json"};

/* The environment of a standby, and its socket. */
static void set_up(void)
{
    int pair[2];
    char text[16];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    mine = pair[0];
    snprintf(text, sizeof text, "%d", pair[1]);
    setenv("DDP_NODE_FD", text, 1);
    setenv("DDP_STANDBY", "1000000", 1);
    setenv("LOCAL_WORLD_SIZE", "4", 1);
    setenv("DDP_SEGMENT_BYTES", "64M", 1);
    unsetenv("RANK");
    unsetenv("LOCAL_RANK");
    unsetenv("TORCHELASTIC_ERROR_FILE");
}

static int wait_now(void)
{
    struct co_error err = {0};
    return standby_wait(&err);
}

START_TEST(a_rank_does_not_wait)
{
    unsetenv("DDP_STANDBY");
    ck_assert_int_eq(wait_now(), 0);
    ck_assert_ptr_null(getenv("RANK"));
}
END_TEST

START_TEST(a_standby_becomes_the_rank_of_its_place)
{
    ck_assert_int_eq(node_message_send(mine, &take, -1), 0);
    ck_assert_int_eq(wait_now(), 0);
    ck_assert_str_eq(getenv("RANK"), "6");
    ck_assert_str_eq(getenv("ROLE_RANK"), "6");
    ck_assert_str_eq(getenv("LOCAL_RANK"), "2");
    ck_assert_str_eq(getenv("TORCHELASTIC_ERROR_FILE"), "/run/job/2.json");
    ck_assert_ptr_null(getenv("DDP_STANDBY")); /* nor does a child of it wait */
    ck_assert_int_eq(wait_now(), 0);
}
END_TEST

START_TEST(an_error_file_is_not_necessary)
{
    struct node_message m = take;
    memset(m.text, 0, sizeof m.text);
    ck_assert_int_eq(node_message_send(mine, &m, -1), 0);
    ck_assert_int_eq(wait_now(), 0);
    ck_assert_str_eq(getenv("LOCAL_RANK"), "2");
    ck_assert_ptr_null(getenv("TORCHELASTIC_ERROR_FILE"));
}
END_TEST

START_TEST(the_end_of_the_job_ends_the_wait)
{
    close(mine);
    ck_assert_int_eq(wait_now(), -ECANCELED);
    ck_assert_ptr_null(getenv("RANK"));
}
END_TEST

START_TEST(an_invalid_place_is_refused)
{
    struct node_message m = take;
    m.local_rank = 4;
    ck_assert_int_eq(node_message_send(mine, &m, -1), 0);
    ck_assert_int_eq(wait_now(), -ENOEXEC);
    m = take;
    m.type = NODE_CONTROL;
    ck_assert_int_eq(node_message_send(mine, &m, -1), 0);
    ck_assert_int_eq(wait_now(), -ENOEXEC);
    m = take;
    m.place.rank = UINT32_MAX;
    ck_assert_int_eq(node_message_send(mine, &m, -1), 0);
    ck_assert_int_eq(wait_now(), -ENOEXEC);
    m = take;
    m.text[0] = 'r'; /* a path that depends on the directory of the process */
    ck_assert_int_eq(node_message_send(mine, &m, -1), 0);
    ck_assert_int_eq(wait_now(), -ENOEXEC);
    m = take;
    memset(m.text, '/', sizeof m.text); /* it has no end */
    ck_assert_int_eq(node_message_send(mine, &m, -1), 0);
    ck_assert_int_eq(wait_now(), -EPROTO);
    ck_assert_int_eq(send(mine, "?", 1, 0), 1);
    ck_assert_int_eq(wait_now(), -EPROTO);
    ck_assert_ptr_null(getenv("RANK"));
    ck_assert_ptr_null(getenv("TORCHELASTIC_ERROR_FILE"));
}
END_TEST

START_TEST(an_invalid_environment_is_refused)
{
    static const char *const bad[][2] = {{"DDP_STANDBY", "some"},   {"DDP_STANDBY", "-1"},
                                         {"DDP_NODE_FD", "three"},  {"DDP_NODE_FD", NULL},
                                         {"LOCAL_WORLD_SIZE", "0"}, {"LOCAL_WORLD_SIZE", NULL}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        set_up();
        if (bad[i][1] != NULL)
            setenv(bad[i][0], bad[i][1], 1);
        else
            unsetenv(bad[i][0]);
        ck_assert_int_eq(wait_now(), -ENOEXEC);
    }
}
END_TEST

START_TEST(a_too_large_amount_of_memory_is_cut_to_the_segment)
{
    setenv("DDP_STANDBY", "9223372036854775807", 1); /* cut to the segment's 64 MiB */
    ck_assert_int_eq(node_message_send(mine, &take, -1), 0);
    ck_assert_int_eq(wait_now(), 0);
}
END_TEST

TEST_SUITE(standby)
{
    Suite *suite = suite_create("standby");
    TCase *tc = tcase_create("standby");
    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, a_rank_does_not_wait);
    tcase_add_test(tc, a_standby_becomes_the_rank_of_its_place);
    tcase_add_test(tc, an_error_file_is_not_necessary);
    tcase_add_test(tc, the_end_of_the_job_ends_the_wait);
    tcase_add_test(tc, an_invalid_place_is_refused);
    tcase_add_test(tc, an_invalid_environment_is_refused);
    tcase_add_test(tc, a_too_large_amount_of_memory_is_cut_to_the_segment);
    suite_add_tcase(suite, tc);
    return suite;
}
