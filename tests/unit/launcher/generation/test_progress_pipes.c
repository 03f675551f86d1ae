/* A node's ranks report steps, over real pipes. */
#include "launcher/generation/progress_pipes.h"
#include "segments/rank_status.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { N = 2 };

static uv_loop_t loop;
static struct progress_pipes *p;
static int fds[N]; /* the ranks' ends; -1: closed */
static int n_notes;
static char note[256];

static void on_note(void *arg, const char *text)
{
    (void)arg;
    n_notes++;
    snprintf(note, sizeof note, "%s", text);
}

static void set_up(void)
{
    const struct progress_pipes_opts opts = {.n_local = N, .on_note = on_note};
    n_notes = 0;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(progress_pipes_create(&loop, &opts, &p), 0);
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(progress_pipes_add(p, i, &fds[i]), 0);
}

static void tear_down(void)
{
    progress_pipes_close(p);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    for (int i = 0; i < N; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static void say(int rank, const char *text)
{
    ck_assert_int_eq(write(fds[rank], text, strlen(text)), (ssize_t)strlen(text));
}

/* Until the loop has seen that rank complete so many steps. */
static struct progress await(int rank, uint64_t steps)
{
    struct progress progress = {0};
    uint64_t digest;
    while (!progress_pipes_read(p, rank, &progress, &digest) ||
           progress.steps_before + progress.steps < steps)
        uv_run(&loop, UV_RUN_ONCE);
    return progress;
}

START_TEST(steps_are_read_when_they_are_written)
{
    struct progress progress;
    uint64_t digest;
    ck_assert(!progress_pipes_read(p, 0, &progress, &digest));
    say(0, "step 1\n");
    ck_assert(await(0, 1).only_steps);
    ck_assert(!progress_pipes_read(p, 1, &progress, &digest));
    say(0, "step 2\n"); /* the pipe rests now: the timer looks */
    await(0, 2);
    say(1, "step 5\n");
    await(1, 5);
}
END_TEST

START_TEST(the_pipe_is_watched_again_after_a_rest)
{
    say(0, "step 1\n");
    await(0, 1);
    while (uv_backend_timeout(&loop) >= 0) { /* until the timer finds nothing and stops */
        uv_run(&loop, UV_RUN_NOWAIT);
        poll(NULL, 0, 1);
    }
    say(0, "step 2\n");
    await(0, 2);
}
END_TEST

START_TEST(a_rank_never_waits_for_ddprun)
{
    ssize_t rc;
    for (int i = 0; (rc = write(fds[0], "step 1\n", 7)) > 0; i++)
        ck_assert_int_lt(i, 1 << 20);
    ck_assert_int_eq(errno, EAGAIN);
    await(0, 1);
    progress_pipes_drain(p, 0);
    say(0, "step 9\n");
    await(0, 9);
}
END_TEST

START_TEST(the_last_line_of_a_rank_is_read_at_its_end)
{
    struct progress progress;
    uint64_t digest;
    say(1, "step 12\n");
    close(fds[1]);
    fds[1] = -1;
    progress_pipes_drain(p, 1);
    ck_assert(progress_pipes_read(p, 1, &progress, &digest));
    ck_assert_uint_eq(progress.steps_before + progress.steps, 12);
    progress_pipes_drain(p, 1); /* nothing is left to read */
}
END_TEST

START_TEST(another_pipe_replaces_a_ranks)
{
    struct progress progress;
    uint64_t digest;
    say(0, "step 3\n");
    await(0, 3);
    close(fds[0]);
    ck_assert_int_eq(progress_pipes_add(p, 0, &fds[0]), 0);
    ck_assert(!progress_pipes_read(p, 0, &progress, &digest));
    say(0, "step 2\n");
    ck_assert_uint_eq(await(0, 2).steps_before, 1);
}
END_TEST

START_TEST(a_generation_begins_without_steps)
{
    struct progress progress;
    uint64_t digest;
    say(0, "step 3\n");
    progress_pipes_renew(p); /* which reads what is of the old one */
    ck_assert(!progress_pipes_read(p, 0, &progress, &digest));
    say(0, "step 4\n");
    ck_assert_uint_eq(await(0, 4).steps_before, 3);
}
END_TEST

START_TEST(bad_lines_are_noted_once)
{
    say(1, "loss 0.5\nstep 1\n");
    await(1, 1);
    say(1, "loss 0.4\nstep 2\n");
    await(1, 2);
    ck_assert_int_eq(n_notes, 1);
    ck_assert_str_eq(note, "local rank 1 wrote a line to DDP_PROGRESS_FD that ddprun ignores: "
                           "expected 'step N'");
}
END_TEST

TEST_SUITE(progress_pipes)
{
    Suite *suite = suite_create("progress_pipes");
    TCase *tc = tcase_create("progress_pipes");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, steps_are_read_when_they_are_written);
    tcase_add_test(tc, the_pipe_is_watched_again_after_a_rest);
    tcase_add_test(tc, a_rank_never_waits_for_ddprun);
    tcase_add_test(tc, the_last_line_of_a_rank_is_read_at_its_end);
    tcase_add_test(tc, another_pipe_replaces_a_ranks);
    tcase_add_test(tc, a_generation_begins_without_steps);
    tcase_add_test(tc, bad_lines_are_noted_once);
    suite_add_tcase(suite, tc);
    return suite;
}
