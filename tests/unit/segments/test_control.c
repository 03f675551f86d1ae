#include "common/error.h"
#include "segments/control.h"
#include "tests/support/chance.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct control *c;
static int fd;

static void set_up(void)
{
    struct co_error err;
    ck_assert_msg(control_create(3, 7, &fd, &c, &err) == 0, "%s", err.text);
}

static void tear_down(void)
{
    control_unmap(c);
    close(fd);
}

/* A child that runs `act` and waits to be killed; returns once it has acted. */
static pid_t start_child(void (*act)(void))
{
    int ready[2];
    ck_assert_int_eq(pipe(ready), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        act();
        if (write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    char byte;
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static void kill_child(pid_t pid)
{
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

START_TEST(a_second_mapping_sees_the_same_words)
{
    struct control *other;
    ck_assert_int_eq(control_map(fd, &other, NULL), 0);
    ck_assert_uint_eq(other->n_local, 3);
    ck_assert_uint_eq(other->generation, 7);
    control_arrive(&c->line[2], 42);
    ck_assert_uint_eq(atomic_load(&other->line[2].arrived), 42);
    control_mailbox(c, 2)[CONTROL_MAILBOX_BYTES - 1] = 9;
    ck_assert_uint_eq(control_mailbox(other, 2)[CONTROL_MAILBOX_BYTES - 1], 9);
    control_unmap(other);
}
END_TEST

START_TEST(sizes_out_of_bounds_are_refused)
{
    struct co_error err;
    int f;
    struct control *p;
    ck_assert_int_eq(control_create(0, 0, &f, &p, &err), -EINVAL);
    ck_assert_int_eq(control_create(CONTROL_MAX_LOCAL + 1, 0, &f, &p, &err), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "1025"));
}
END_TEST

START_TEST(a_segment_that_cannot_be_made_is_reported_with_its_size)
{
    struct rlimit limit;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const struct rlimit no_more = {.rlim_cur = 0, .rlim_max = limit.rlim_max};
    struct control *other = NULL;
    struct co_error err;
    int other_fd = -1;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &no_more), 0);
    int rc = control_create(3, 7, &other_fd, &other, &err);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert_int_eq(rc, -EMFILE);
    ck_assert_ptr_null(other);
    ck_assert_ptr_nonnull(strstr(err.text, " bytes: memfd_create: Too many open files"));
}
END_TEST

START_TEST(an_invalid_control_segment_is_refused)
{
    struct co_error err;
    struct control *p;
    int other = memfd_create("other", MFD_ALLOW_SEALING);
    ck_assert_int_eq(ftruncate(other, (off_t)control_bytes(3)), 0);
    ck_assert_int_eq(control_map(other, &p, &err), -EPROTO);
    ck_assert_ptr_nonnull(strstr(err.text, "sealed"));
    ck_assert_int_eq(fcntl(other, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    ck_assert_int_eq(control_map(other, &p, &err), -EPROTO);
    ck_assert_ptr_nonnull(strstr(err.text, "magic"));
    close(other);

    c->shared->version++;
    ck_assert_int_eq(control_map(fd, &p, &err), -EPROTO);
    ck_assert_ptr_nonnull(strstr(err.text, "version"));
    c->shared->version--;
    c->shared->n_local = 2;
    ck_assert_int_eq(control_map(fd, &p, &err), -EPROTO);
    ck_assert_ptr_nonnull(strstr(err.text, "sizes"));
}
END_TEST

static void join_as_1(void)
{
    if (control_join(c, 1, (uint32_t)getpid()) != 0)
        _exit(1);
}

static void join_and_leave_as_1(void)
{
    join_as_1();
    control_leave(c, 1);
}

START_TEST(a_rank_is_seen_to_join_once)
{
    ck_assert_int_eq(control_look(c, 1), CONTROL_NOT_JOINED);
    pid_t pid = start_child(join_as_1);
    ck_assert_int_eq(control_look(c, 1), CONTROL_ALIVE);
    ck_assert_uint_eq(atomic_load(&c->line[1].pid), (uint32_t)pid);
    ck_assert_int_eq(control_join(c, 1, 1), -EBUSY);
    kill_child(pid);
}
END_TEST

START_TEST(a_leave_is_distinguished_from_a_death)
{
    pid_t pid = start_child(join_and_leave_as_1);
    ck_assert_int_eq(control_look(c, 1), CONTROL_LEFT);
    kill_child(pid);
    ck_assert_int_eq(control_look(c, 1), CONTROL_LEFT);
    ck_assert_int_eq(control_abort_get(c).cause, CONTROL_OK);
}
END_TEST

START_TEST(a_killed_rank_is_dead_at_every_look)
{
    pid_t pid = start_child(join_as_1);
    kill_child(pid);
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(control_look(c, 1), CONTROL_DEAD);
    ck_assert_int_eq(control_abort_get(c).cause, CONTROL_RANK_DIED);
    ck_assert_int_eq(control_abort_get(c).rank, 1);
}
END_TEST

START_TEST(the_first_cause_of_an_abort_stays)
{
    control_abort_set(c, (struct control_abort){CONTROL_RANK_DIED, 2, 9});
    control_abort_set(c, (struct control_abort){CONTROL_TIMEOUT, 1, 0});
    struct control_abort why = control_abort_get(c);
    ck_assert_int_eq(why.cause, CONTROL_RANK_DIED);
    ck_assert_int_eq(why.rank, 2);
    ck_assert_uint_eq(why.detail, 9);
}
END_TEST

static void fill_segment(struct chance *chance, int pattern)
{
    uint64_t *words = (uint64_t *)c->shared;
    for (size_t i = 0; i < c->bytes / sizeof *words; i++)
        words[i] = pattern == 0   ? UINT64_MAX
                   : pattern == 1 ? (uint64_t)(uintptr_t)words
                   : pattern == 2 ? chance_draw(chance, 8) << 32 | chance_draw(chance, 8)
                                  : chance_draw(chance, UINT64_MAX);
}

/* Without the process's own copy of the sizes this reads and writes far outside of the segment; if
 * it locked a mutex of such words, that would follow their pointers. */
START_TEST(control_look_stays_inside_the_segment_and_locks_nothing)
{
    struct chance chance = chance_from((uint64_t)_i);
    for (int i = 0; i < 20; i++) {
        uint8_t alive[3][sizeof(pthread_mutex_t)];
        fill_segment(&chance, i % 4);
        for (unsigned r = 0; r < 3; r++)
            memcpy(alive[r], &c->line[r].alive, sizeof alive[r]);
        for (unsigned r = 0; r < 3; r++) {
            control_look(c, r);
            atomic_store(&c->line[r].left, 0);
            control_look(c, r);
            ck_assert_mem_eq(alive[r], &c->line[r].alive, sizeof alive[r]);
        }
        control_most_steps(c);
        control_abort_get(c);
        atomic_store(&c->shared->abort, 0);
        control_abort_set(c, (struct control_abort){.cause = CONTROL_RENEWED});
        ck_assert_int_eq(control_abort_get(c).cause, CONTROL_RENEWED);
        ck_assert_ptr_eq(control_mailbox(c, 2) + CONTROL_MAILBOX_BYTES,
                         (uint8_t *)c->shared + control_bytes(3));
    }
}
END_TEST

static void take_two_steps(void)
{
    rank_status_step(&c->line[1].progress, 1, 0);
    rank_status_step(&c->line[1].progress, 2, 0);
}

START_TEST(the_steps_of_dead_ranks_stay_counted)
{
    ck_assert_uint_eq(control_most_steps(c), 0);
    kill_child(start_child(take_two_steps));
    rank_status_step(&c->line[2].progress, 1, 0);
    ck_assert_uint_eq(control_most_steps(c), 2);
}
END_TEST

START_TEST(an_arrival_wakes_a_sleeper)
{
    pid_t pid = fork();
    if (pid == 0) {
        while (atomic_load(&c->line[0].arrived) == 0)
            control_sleep(&c->line[0], 0, 60000000);
        _exit(0);
    }
    while (atomic_load(&c->line[0].sleepers) == 0)
        usleep(100);
    control_arrive(&c->line[0], 1);
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0),
                     pid); /* Check's own time limit catches a lost wake-up */
    ck_assert_int_eq(status, 0);
}
END_TEST

/* A process that sleeps on line 2 for rank 0, again when it is woken, until `is_over`; it ends
 * with 0. Returns once `n` sleep there. */
static pid_t start_sleeper(bool (*is_over)(void), unsigned n)
{
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        while (!is_over())
            control_sleep_for(c, 0, &c->line[2], 0, 60000000);
        _exit(0);
    }
    while (atomic_load(&c->line[2].sleepers) < n)
        usleep(100); /* between two looks; Check's own time limit is the deadline */
    return pid;
}

static void expect_awake(pid_t sleeper)
{
    int status; /* Check's own time limit catches a lost wake-up: it is shorter than the sleep */
    ck_assert_int_eq(waitpid(sleeper, &status, 0), sleeper);
    ck_assert_int_eq(status, 0);
}

static bool has_died(void)
{
    return control_look(c, 0) == CONTROL_DEAD;
}

static bool has_left(void)
{
    return control_look(c, 0) == CONTROL_LEFT;
}

static bool is_aborted(void)
{
    return control_abort_get(c).cause != CONTROL_OK;
}

static bool has_arrived(void)
{
    return atomic_load(&c->line[2].arrived) != 0;
}

static void join_as_0(void)
{
    ck_assert_int_eq(control_join(c, 0, (uint32_t)getpid()), 0);
}

/* Without the system call a sleeper that is not woken otherwise sleeps to the end of its nap. */
static bool can_wait_for_several(void)
{
#ifdef SYS_futex_waitv
    syscall(SYS_futex_waitv, NULL, 0, 0, NULL, 0);
    return errno == EINVAL;
#else
    return false;
#endif
}

START_TEST(a_death_wakes_sleepers_of_that_rank)
{
    if (!can_wait_for_several()) {
        printf("skipped: no futex_waitv(2) here\n");
        return;
    }
    const pid_t rank = start_child(join_as_0);
    const pid_t a = start_sleeper(has_died, 1), b = start_sleeper(has_died, 2);
    kill_child(rank);
    expect_awake(a);
    expect_awake(b);
}
END_TEST

START_TEST(a_departure_wakes_sleepers_of_that_rank)
{
    if (!can_wait_for_several()) {
        printf("skipped: no futex_waitv(2) here\n");
        return;
    }
    join_as_0();
    const pid_t sleeper = start_sleeper(has_left, 1);
    control_leave(c, 0);
    expect_awake(sleeper);
}
END_TEST

START_TEST(an_arrival_wakes_sleepers_of_that_rank)
{
    join_as_0();
    const pid_t sleeper = start_sleeper(has_arrived, 1);
    control_arrive(&c->line[2], 1);
    expect_awake(sleeper);
}
END_TEST

START_TEST(the_abort_word_wakes_sleepers_of_a_rank)
{
    join_as_0();
    const pid_t sleeper = start_sleeper(is_aborted, 1);
    control_abort_set(c, (struct control_abort){.cause = CONTROL_JOB_STOPPING});
    expect_awake(sleeper);
}
END_TEST

static _Atomic uint32_t stop_word; /* of this process */

/* As start_sleeper(), of a rank that watches over all others of its node. */
static pid_t start_watcher(bool (*is_over)(void))
{
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        while (!is_over())
            control_sleep_until_end(c, 1, &stop_word, 0, 60000000);
        _exit(0);
    }
    return pid;
}

static bool is_over(void)
{
    return has_died() || is_aborted();
}

START_TEST(a_death_wakes_all_that_watch_over_the_generation)
{
    enum { WATCHERS = 3 };
    if (!can_wait_for_several()) {
        printf("skipped: no futex_waitv(2) here\n");
        return;
    }
    const pid_t rank = start_child(join_as_0);
    pid_t watcher[WATCHERS];
    for (int i = 0; i < WATCHERS; i++)
        watcher[i] = start_watcher(is_over);
    if (_i == 1)
        usleep(1000); /* they sleep already, or find it dead: either is correct */
    kill_child(rank);
    for (int i = 0; i < WATCHERS; i++)
        expect_awake(watcher[i]);
}
END_TEST

static void *stop_sleep(void *arg)
{
    (void)arg;
    atomic_store(&stop_word, 1);
    control_stop_sleep(&stop_word);
    return NULL;
}

START_TEST(a_watcher_can_be_stopped_from_its_own_process)
{
    pthread_t thread;
    join_as_0();
    stop_word = 0;
    ck_assert_int_eq(pthread_create(&thread, NULL, stop_sleep, NULL), 0);
    while (atomic_load(&stop_word) == 0)
        control_sleep_until_end(c, 1, &stop_word, 0, 60000000);
    pthread_join(thread, NULL);
}
END_TEST

START_TEST(any_ring_wakes_a_sleeper_and_no_ring_is_lost)
{
    enum { RINGS = 100 };
    pid_t pid = fork();
    if (pid == 0) {
        for (uint32_t seen = 0; seen < 2 * RINGS; seen = atomic_load(&c->line[0].arrived))
            control_sleep(&c->line[0], seen, 60000000);
        _exit(0);
    }
    while (atomic_load(&c->line[0].sleepers) == 0)
        usleep(100);
    pid_t other = fork();
    for (int i = 0; i < RINGS; i++)
        control_ring(&c->line[0]);
    if (other == 0)
        _exit(0);
    int status;
    ck_assert_int_eq(waitpid(other, &status, 0), other);
    ck_assert_int_eq(waitpid(pid, &status, 0),
                     pid); /* Check's own time limit catches a lost wake-up */
    ck_assert_int_eq(status, 0);
    ck_assert_uint_eq(atomic_load(&c->line[0].arrived), 2 * RINGS);
}
END_TEST

TEST_SUITE(control)
{
    Suite *s = suite_create("control");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, a_second_mapping_sees_the_same_words);
    tcase_add_test(t, sizes_out_of_bounds_are_refused);
    tcase_add_test(t, a_segment_that_cannot_be_made_is_reported_with_its_size);
    tcase_add_test(t, an_invalid_control_segment_is_refused);
    tcase_add_test(t, a_rank_is_seen_to_join_once);
    tcase_add_test(t, a_leave_is_distinguished_from_a_death);
    tcase_add_test(t, a_killed_rank_is_dead_at_every_look);
    tcase_add_test(t, the_first_cause_of_an_abort_stays);
    tcase_add_loop_test(t, control_look_stays_inside_the_segment_and_locks_nothing, 0, 10);
    tcase_add_test(t, the_steps_of_dead_ranks_stay_counted);
    tcase_add_test(t, an_arrival_wakes_a_sleeper);
    tcase_add_test(t, a_death_wakes_sleepers_of_that_rank);
    tcase_add_test(t, a_departure_wakes_sleepers_of_that_rank);
    tcase_add_test(t, an_arrival_wakes_sleepers_of_that_rank);
    tcase_add_test(t, the_abort_word_wakes_sleepers_of_a_rank);
    tcase_add_loop_test(t, a_death_wakes_all_that_watch_over_the_generation, 0, 2);
    tcase_add_test(t, a_watcher_can_be_stopped_from_its_own_process);
    tcase_add_test(t, any_ring_wakes_a_sleeper_and_no_ring_is_lost);
    suite_add_tcase(s, t);
    return s;
}
