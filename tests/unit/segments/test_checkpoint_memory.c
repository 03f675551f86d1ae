#include "common/error.h"
#include "segments/checkpoint_memory.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAD_BYTES = 24 };

START_TEST(it_is_read_as_it_was_made)
{
    struct checkpoint_memory m = {0};
    struct stat st;
    int fd = -1;
    ck_assert_int_eq(checkpoint_memory_make(3, 5000, &fd, NULL), 0);
    ck_assert_int_eq(checkpoint_memory_read(fd, &m, NULL), 0);
    ck_assert_uint_eq(m.n_ranks, 3);
    ck_assert_uint_eq(m.slot_bytes, 8192);
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_uint_eq((uint64_t)st.st_size, checkpoint_memory_bytes(&m));
    ck_assert_uint_eq(checkpoint_memory_bytes(&m), 4096 + 3 * 4096 + 3 * 5 * 8192);
    ck_assert_uint_eq(st.st_mode & 0777, 0600);
    ck_assert_int_le(st.st_blocks, 8 * 2); /* of 512 bytes: what is not written uses none */
    ck_assert_int_ne(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    close(fd);
}
END_TEST

START_TEST(entries_and_slots_do_not_overlap)
{
    const struct checkpoint_memory m = {.n_ranks = 2, .slot_bytes = 4096};
    ck_assert_uint_eq(checkpoint_memory_entries_at(0), 4096);
    ck_assert_uint_eq(checkpoint_memory_entries_at(1), 8192);
    ck_assert_uint_eq(checkpoint_memory_slot_at(&m, 0, 0), 12288);
    ck_assert_uint_eq(checkpoint_memory_slot_at(&m, 0, 4), 12288 + 4 * 4096);
    ck_assert_uint_eq(checkpoint_memory_slot_at(&m, 1, 0), 12288 + 5 * 4096);
    ck_assert_uint_eq(checkpoint_memory_bytes(&m), 12288 + 10 * 4096);
}
END_TEST

START_TEST(no_rank_can_make_it_larger)
{
    struct checkpoint_memory m;
    int fd = -1;
    ck_assert_int_eq(checkpoint_memory_make(1, 1, &fd, NULL), 0);
    ck_assert_int_eq(checkpoint_memory_read(fd, &m, NULL), 0);
    const off_t end = (off_t)checkpoint_memory_bytes(&m);
    ck_assert_int_eq(pwrite(fd, "x", 1, end), -1);
    ck_assert_int_eq(errno, EPERM);
    ck_assert_int_eq(ftruncate(fd, end - 1), -1);
    ck_assert_int_eq(ftruncate(fd, end + 1), -1);
    ck_assert_int_eq(pwrite(fd, "x", 1, end - 1), 1);
    close(fd);
}
END_TEST

START_TEST(impossible_sizes_are_refused)
{
    struct co_error err = {0};
    int fd = -1;
    ck_assert_int_eq(checkpoint_memory_make(0, 4096, &fd, &err), -EINVAL);
    ck_assert_int_eq(checkpoint_memory_make(1025, 4096, &fd, &err), -EINVAL);
    ck_assert_int_eq(checkpoint_memory_make(1, 0, &fd, &err), -EINVAL);
    ck_assert_int_eq(checkpoint_memory_make(1, CHECKPOINT_MEMORY_SLOT_MAX + 1, &fd, &err), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "cannot be kept in memory"));
    ck_assert_int_eq(fd, -1);
    ck_assert_int_eq(checkpoint_memory_make(1024, CHECKPOINT_MEMORY_SLOT_MAX, &fd, &err), 0);
    close(fd);
}
END_TEST

START_TEST(a_limit_on_files_is_reported_and_sends_no_signal)
{
    struct co_error err = {0};
    int fd = -1;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){1 << 20, RLIM_INFINITY}), 0);
    ck_assert_int_eq(checkpoint_memory_make(1, 1 << 20, &fd, &err), -EFBIG);
    ck_assert_ptr_nonnull(strstr(err.text, "ulimit -f"));
    ck_assert_int_eq(checkpoint_memory_make(1, 1 << 16, &fd, &err), 0);
    close(fd);
}
END_TEST

/* A file that looks like it, with one word of its beginning replaced. */
static int read_changed(size_t at, uint64_t word, off_t length, int seals)
{
    struct checkpoint_memory m;
    uint8_t head[HEAD_BYTES];
    int real = -1;
    ck_assert_int_eq(checkpoint_memory_make(2, 4096, &real, NULL), 0);
    ck_assert_int_eq(pread(real, head, sizeof head, 0), (ssize_t)sizeof head);
    close(real);
    const int fd = memfd_create("other", MFD_ALLOW_SEALING);
    memcpy(head + at, &word, at == 8 || at == 12 ? 4 : 8);
    ck_assert_int_eq(pwrite(fd, head, sizeof head, 0), (ssize_t)sizeof head);
    ck_assert_int_eq(ftruncate(fd, length), 0);
    if (seals != 0)
        ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
    const int code = checkpoint_memory_read(fd, &m, NULL);
    close(fd);
    return code;
}

START_TEST(what_is_not_such_memory_is_refused)
{
    enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };
    const off_t length = 4096 * 3 + 10 * 4096;
    struct checkpoint_memory m;
    struct co_error err = {0};
    int fds[2];
    uint64_t ours;
    memcpy(&ours, "DDPCKM1", 8);
    ck_assert_int_eq(read_changed(0, ours, length, SEALS), 0);
    ck_assert_int_eq(read_changed(0, ours + 1, length, SEALS), -EBADF);
    ck_assert_int_eq(read_changed(8, 0, length, SEALS), -EBADF);
    ck_assert_int_eq(read_changed(8, 3, length, SEALS), -EBADF); /* more ranks than it has */
    ck_assert_int_eq(read_changed(8, UINT32_MAX, length, SEALS), -EBADF);
    ck_assert_int_eq(read_changed(12, 4, length, SEALS), -EBADF);
    ck_assert_int_eq(read_changed(16, 0, length, SEALS), -EBADF);
    ck_assert_int_eq(read_changed(16, 4095, length, SEALS), -EBADF);
    ck_assert_int_eq(read_changed(16, UINT64_MAX - 4095, length, SEALS), -EBADF);
    ck_assert_int_eq(read_changed(0, ours, length - 1, SEALS), -EBADF);
    ck_assert_int_eq(read_changed(0, ours, length, F_SEAL_SHRINK), -EBADF);
    ck_assert_int_eq(checkpoint_memory_read(-1, &m, &err), -EBADF);
    ck_assert_ptr_nonnull(strstr(err.text, "descriptor -1 is not the memory for checkpoints"));
    ck_assert_int_eq(pipe(fds), 0);
    ck_assert_int_eq(checkpoint_memory_read(fds[0], &m, &err), -EBADF);
    close(fds[0]);
    close(fds[1]);
}
END_TEST

TEST_SUITE(checkpoint_memory)
{
    Suite *suite = suite_create("checkpoint_memory");
    TCase *tcase = tcase_create("all");
    tcase_add_test(tcase, it_is_read_as_it_was_made);
    tcase_add_test(tcase, entries_and_slots_do_not_overlap);
    tcase_add_test(tcase, no_rank_can_make_it_larger);
    tcase_add_test(tcase, impossible_sizes_are_refused);
    tcase_add_test(tcase, a_limit_on_files_is_reported_and_sends_no_signal);
    tcase_add_test(tcase, what_is_not_such_memory_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
