/* Peers' segments that stay mapped from one generation to the next: real memory. */
#include "tests/support/suite.h"
#include "worker-runtime/core/peer_maps.h"

#include "common/clock.h"
#include "common/error.h"
#include "worker-runtime/core/user_segment.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum { BYTES = 5 << 20 }; /* more than is given back at a time */

static struct peer_maps m;
static struct user_segment *peer[3];

static void set_up(void)
{
    m = (struct peer_maps){0};
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(user_segment_create(BYTES, &peer[i], NULL), 0);
        user_segment_base(peer[i])[BYTES - 1] = (uint8_t)(10 + i);
    }
}

static void tear_down(void)
{
    peer_maps_fini(&m);
    for (int i = 0; i < 3; i++)
        user_segment_destroy(peer[i]);
}

static uint8_t *take(int i)
{
    uint8_t *base = NULL;
    ck_assert_int_eq(peer_maps_take(&m, user_segment_fd(peer[i]), BYTES, &base, NULL), 0);
    ck_assert_int_eq(base[BYTES - 1], 10 + i);
    return base;
}

static bool is_mapped(const uint8_t *base)
{
    unsigned char in_core;
    return mincore((void *)base, 1, &in_core) == 0;
}

START_TEST(a_segment_that_is_mapped_again_keeps_its_address)
{
    uint8_t *first = take(0), *second = take(1);
    ck_assert_ptr_ne(first, second);
    peer_maps_give_back(&m, first);
    peer_maps_give_back(&m, second);
    ck_assert_ptr_eq(take(1), second);
    ck_assert_ptr_ne(take(2), first);
    ck_assert_ptr_eq(take(0), first);
}
END_TEST

START_TEST(an_unused_segment_is_unmapped_and_the_others_stay)
{
    const uint64_t deadline_ms = co_deadline_ms(60000);
    uint8_t *gone = take(0), *here = take(1);
    peer_maps_give_back(&m, gone);
    peer_maps_give_back(&m, here);
    take(1);
    peer_maps_sweep(&m);
    while (is_mapped(gone))
        ck_assert_int_ne(co_left_ms(deadline_ms), 0);
    ck_assert_int_eq(here[BYTES - 1], 11);
    peer_maps_sweep(&m); /* there is nothing */
    take(0);
}
END_TEST

START_TEST(several_segments_may_be_unmapped_in_a_row)
{
    for (int round = 0; round < 20; round++)
        for (int i = 0; i < 3; i++) {
            peer_maps_give_back(&m, take(i));
            peer_maps_sweep(&m);
        }
    uint8_t *base = take(0);
    peer_maps_fini(&m);
    ck_assert(!is_mapped(base));
}
END_TEST

enum { NOBODY = 65534 };

static void become_nobody(void)
{
    if (geteuid() == 0)
        ck_assert_int_eq(setresuid(NOBODY, NOBODY, NOBODY), 0);
}

static volatile sig_atomic_t n_signals;

static void on_signal(int sig)
{
    (void)sig;
    n_signals++;
}

START_TEST(signals_reach_only_the_programs_own_threads)
{
    sigset_t usr1, none;
    signal(SIGUSR1, on_signal);
    sigemptyset(&none);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    sigprocmask(SIG_BLOCK, &usr1, NULL);
    peer_maps_give_back(&m, take(0));
    peer_maps_sweep(&m);
    kill(getpid(), SIGUSR1); /* no other thread may take it */
    peer_maps_fini(&m);
    ck_assert_int_eq(n_signals, 0);
    sigprocmask(SIG_SETMASK, &none, NULL);
    ck_assert_int_eq(n_signals, 1);
}
END_TEST

START_TEST(without_a_thread_the_caller_unmaps_and_keeps_its_priority)
{
    struct rlimit usual;
    ck_assert_int_eq(getrlimit(RLIMIT_NPROC, &usual), 0);
    const struct rlimit none = {0, usual.rlim_max};
    const int before = getpriority(PRIO_PROCESS, 0);
    uint8_t *gone = take(0);
    peer_maps_give_back(&m, gone);
    ck_assert_int_eq(setrlimit(RLIMIT_NPROC, &none), 0);
    become_nobody(); /* the limit does not hold for root */
    peer_maps_sweep(&m);
    ck_assert_ptr_null(m.sweeps);
    ck_assert(!is_mapped(gone));
    ck_assert_int_eq(getpriority(PRIO_PROCESS, 0), before);
    setrlimit(RLIMIT_NPROC, &usual); /* the leak checker starts a thread */
    prctl(PR_SET_DUMPABLE, 1);       /* that looks at this process */
}
END_TEST

START_TEST(an_invalid_segment_is_refused)
{
    struct co_error err;
    uint8_t *base = NULL;
    int fd = memfd_create("unsealed", MFD_CLOEXEC);
    ck_assert_int_eq(ftruncate(fd, BYTES), 0);
    ck_assert_int_eq(peer_maps_take(&m, fd, BYTES, &base, &err), -EPROTO);
    close(fd);
    ck_assert_int_eq(peer_maps_take(&m, -1, BYTES, &base, &err), -EBADF);
    ck_assert_int_eq(peer_maps_take(&m, user_segment_fd(peer[0]), BYTES + 1, &base, &err), -EPROTO);
    uint8_t *whole = take(0);
    peer_maps_give_back(&m, whole); /* with another size it is not the same */
    ck_assert_int_eq(peer_maps_take(&m, user_segment_fd(peer[0]), 4096, &base, &err), 0);
    ck_assert_ptr_ne(base, whole);
    peer_maps_give_back(&m, NULL);
}
END_TEST

TEST_SUITE(peer_maps)
{
    Suite *suite = suite_create("peer_maps");
    TCase *t = tcase_create("peer_maps");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, a_segment_that_is_mapped_again_keeps_its_address);
    tcase_add_test(t, an_unused_segment_is_unmapped_and_the_others_stay);
    tcase_add_test(t, several_segments_may_be_unmapped_in_a_row);
    tcase_add_test(t, signals_reach_only_the_programs_own_threads);
    tcase_add_test(t, an_invalid_segment_is_refused);
    tcase_add_test(t, without_a_thread_the_caller_unmaps_and_keeps_its_priority);
    suite_add_tcase(suite, t);
    return suite;
}
