/* The ranks' node sockets, over real ones. What the broker makes of them:
 * segments/test_broker.c. */
#include "launcher/node_memory.h"

#include <check.h>
#include <stdlib.h>
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

static void on_joined(void *arg, int rank, bool mends)
{
    (void)arg;
    (void)mends;
    ck_abort_msg("rank %d has not said hello", rank);
}

static void on_asked(void *arg, int rank)
{
    on_joined(arg, rank, false);
}

static void set_up(void)
{
    const struct node_memory_opts opts = {
        .n_local = 2, .on_note = on_note, .on_joined = on_joined, .on_asked = on_asked};
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

/* A standby that was given the rank has died, or could not be told: another one takes it. */
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

int main(void)
{
    Suite *suite = suite_create("node_memory");
    TCase *t = tcase_create("sockets");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, all_sockets_end_with_the_memory);
    tcase_add_test(t, a_second_socket_of_a_rank_replaces_the_first);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
