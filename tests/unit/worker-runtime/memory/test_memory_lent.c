#include "common/error.h"
#include "tests/support/suite.h"
#include "worker-runtime/memory/memory_lent.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOT_BYTES = 1 << 20, BYTES = SLOT_BYTES - 100 };

static struct co_error err;
static int fd;
static struct memory_slots slots;

static void set_up(void)
{
    err = (struct co_error){0};
    ck_assert_int_eq(checkpoint_memory_make(2, SLOT_BYTES, &fd, NULL), 0);
    ck_assert_int_eq(memory_slots_open(fd, 1, &slots, NULL), 0);
}

static void tear_down(void)
{
    close(fd);
}

static uint8_t *lend(unsigned slot)
{
    void *got = NULL;
    ck_assert_int_eq(memory_lend(&slots, slot, BYTES, &got, &err), 0);
    return got;
}

/* A process that works in a slot until it is killed. */
static pid_t fork_lender(unsigned slot, uint8_t value)
{
    int ready[2];
    char byte;
    ck_assert_int_eq(pipe(ready), 0);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        void *got = NULL;
        if (memory_lend(&slots, slot, BYTES, &got, NULL) != 0)
            _exit(1);
        memset(got, value, BYTES);
        if (write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

START_TEST(a_slot_is_lent_until_it_is_returned)
{
    uint8_t *const got = lend(2);
    memset(got, 7, BYTES);
    ck_assert_uint_eq(memory_lent_slots(&slots), 1u << 2);
    memory_lent_return(got + 1);
    memory_lent_return(NULL);
    ck_assert_uint_eq(memory_lent_slots(&slots), 1u << 2);
    memory_lent_return(got);
    memory_lent_return(got);
    ck_assert_uint_eq(memory_lent_slots(&slots), 0);
    memory_lent_return(lend(2));
}
END_TEST

START_TEST(slots_before_and_after_it_are_untouched)
{
    uint8_t before[64], got[64];
    memset(before, 5, sizeof before);
    ck_assert_int_eq(memory_slots_put(&slots, 1, SLOT_BYTES - 64, before, 64), 0);
    ck_assert_int_eq(memory_slots_put(&slots, 3, 0, before, 64), 0);
    void *whole = NULL;
    ck_assert_int_eq(memory_lend(&slots, 2, SLOT_BYTES, &whole, &err), 0);
    memset(whole, 7, SLOT_BYTES);
    ck_assert_int_eq(memory_slots_get(&slots, 1, SLOT_BYTES - 64, got, 64), 0);
    ck_assert_mem_eq(got, before, 64);
    ck_assert_int_eq(memory_slots_get(&slots, 3, 0, got, 64), 0);
    ck_assert_mem_eq(got, before, 64);
    memory_lent_return(whole);
}
END_TEST

START_TEST(a_process_gets_one_at_a_time)
{
    void *second = NULL;
    uint8_t *const first = lend(0);
    ck_assert_int_eq(memory_lend(&slots, 1, BYTES, &second, &err), -ENOTSUP);
    ck_assert_str_eq(err.text, "this process has such memory already");
    ck_assert_uint_eq(memory_lent_slots(&slots), 1u << 0);
    memory_lent_return(first);
}
END_TEST

START_TEST(the_slot_of_another_process_is_not_lent)
{
    void *got = NULL;
    const pid_t pid = fork_lender(4, 9);
    ck_assert_uint_eq(memory_lent_slots(&slots), 1u << 4);
    ck_assert_int_eq(memory_lend(&slots, 4, BYTES, &got, &err), -ENOTSUP);
    ck_assert_ptr_nonnull(strstr(err.text, "cannot lock"));
    end(pid);
    ck_assert_uint_eq(memory_lent_slots(&slots), 0);
    memory_lent_return(lend(4));
}
END_TEST

START_TEST(the_pages_outlive_the_process)
{
    end(fork_lender(3, 9));
    const uint8_t *const got = lend(3);
    ck_assert_uint_eq(got[0], 9);
    ck_assert_uint_eq(got[BYTES - 1], 9);
    memory_lent_return((void *)got);
}
END_TEST

START_TEST(it_is_lent_as_long_as_a_forked_process_has_it)
{
    uint8_t *const got = lend(1);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        for (;;)
            pause();
    memory_lent_return(got);
    ck_assert_uint_eq(memory_lent_slots(&slots), 1u << 1);
    end(pid);
    ck_assert_uint_eq(memory_lent_slots(&slots), 0);
}
END_TEST

START_TEST(another_descriptor_that_is_closed_does_not_end_it)
{
    uint8_t *const got = lend(1);
    close(dup(fd));
    ck_assert_uint_eq(memory_lent_slots(&slots), 1u << 1);
    memory_lent_return(got);
}
END_TEST

START_TEST(a_descriptor_that_is_closed_is_an_error)
{
    void *got = NULL;
    const int was = slots.fd;
    slots.fd = dup(fd);
    close(slots.fd);
    ck_assert_int_eq(memory_lend(&slots, 0, BYTES, &got, &err), -ENOTSUP);
    ck_assert_uint_eq(memory_lent_slots(&slots), 0);
    slots.fd = was;
}
END_TEST

TEST_SUITE(memory_lent)
{
    Suite *s = suite_create("memory_lent");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, a_slot_is_lent_until_it_is_returned);
    tcase_add_test(t, slots_before_and_after_it_are_untouched);
    tcase_add_test(t, a_process_gets_one_at_a_time);
    tcase_add_test(t, the_slot_of_another_process_is_not_lent);
    tcase_add_test(t, the_pages_outlive_the_process);
    tcase_add_test(t, it_is_lent_as_long_as_a_forked_process_has_it);
    tcase_add_test(t, another_descriptor_that_is_closed_does_not_end_it);
    tcase_add_test(t, a_descriptor_that_is_closed_is_an_error);
    suite_add_tcase(s, t);
    return s;
}
