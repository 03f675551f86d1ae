#include "common/error.h"
#include "segments/data_secret.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint8_t secret[DATA_SECRET_BYTES] = "a secret of thirty-two bytes ..";

START_TEST(a_secret_is_read_as_it_was_made_and_again)
{
    uint8_t got[DATA_SECRET_BYTES];
    struct stat st;
    int fd;
    ck_assert_int_eq(data_secret_make(secret, &fd, NULL), 0);
    for (int i = 0; i < 2; i++) { /* ranks share the descriptor's position */
        memset(got, 0, sizeof got);
        ck_assert_int_eq(data_secret_read(fd, got, NULL), 0);
        ck_assert_mem_eq(got, secret, sizeof got);
    }
    ck_assert_int_ne(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0600);
    close(fd);
}
END_TEST

START_TEST(it_cannot_be_changed)
{
    int fd;
    ck_assert_int_eq(data_secret_make(secret, &fd, NULL), 0);
    ck_assert_int_eq(pwrite(fd, "x", 1, 0), -1);
    ck_assert_int_eq(errno, EPERM);
    ck_assert_int_eq(ftruncate(fd, 0), -1);
    ck_assert_ptr_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    close(fd);
}
END_TEST

START_TEST(another_descriptor_is_refused)
{
    uint8_t got[DATA_SECRET_BYTES];
    struct co_error err;
    char magic[40] = "DDPKEY2";
    int fds[2];
    ck_assert_int_eq(data_secret_read(1000, got, &err), -EBADF);
    ck_assert_str_eq(err.text, "descriptor 1000 is not the key that ddprun has passed: a program "
                               "between ddprun and this process has closed it");
    ck_assert_int_eq(pipe(fds), 0);
    ck_assert_int_eq(data_secret_read(fds[0], got, &err), -EBADF);
    close(fds[0]);
    close(fds[1]);
    const int fd = memfd_create("other", 0);
    ck_assert_int_eq(data_secret_read(fd, got, &err), -EBADF); /* empty */
    ck_assert_int_eq(pwrite(fd, magic, sizeof magic, 0), sizeof magic);
    ck_assert_int_eq(data_secret_read(fd, got, &err), -EBADF);
    ck_assert_int_eq(pwrite(fd, "DDPKEY1", 8, 0), 8);
    ck_assert_int_eq(ftruncate(fd, 39), 0);
    ck_assert_int_eq(data_secret_read(fd, got, &err), -EBADF); /* too short */
    close(fd);
}
END_TEST

TEST_SUITE(data_secret)
{
    Suite *suite = suite_create("data_secret");
    TCase *tcase = tcase_create("all");
    tcase_add_test(tcase, a_secret_is_read_as_it_was_made_and_again);
    tcase_add_test(tcase, it_cannot_be_changed);
    tcase_add_test(tcase, another_descriptor_is_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
