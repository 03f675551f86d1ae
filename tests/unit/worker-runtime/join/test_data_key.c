#include "common/error.h"
#include "segments/data_secret.h"
#include "tests/support/suite.h"
#include "tests/support/test_dir.h"
#include "worker-runtime/join/data_key.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIGITS "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static const char *encrypt, *fd_text, *file;
static struct data_keys keys;
#define key keys.generation
static bool has_key;
static struct co_error err;

static const char *get(void *arg, const char *name)
{
    (void)arg;
    return strcmp(name, "DDP_ENCRYPT") == 0            ? encrypt
           : strcmp(name, "DDP_ENCRYPT_FD") == 0       ? fd_text
           : strcmp(name, "DDP_ENCRYPT_KEY_FILE") == 0 ? file
                                                       : NULL;
}

static int find(uint32_t generation)
{
    memset(&keys, 0, sizeof keys);
    return data_key_find(get, NULL, generation, &keys, &has_key, &err);
}

static void write_file(const char *text, mode_t mode)
{
    file = test_dir_path("key");
    unlink(file);
    const int fd = open(file, O_WRONLY | O_CREAT, 0600);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    ck_assert_int_eq(fchmod(fd, mode), 0);
    close(fd);
}

static void set_up(void)
{
    test_dir_make();
    encrypt = "1";
    fd_text = file = NULL;
}

START_TEST(without_the_variable_or_with_0_nothing_is_encrypted)
{
    static const char *const off[] = {NULL, "", "0"};
    fd_text = "1000";
    for (int i = 0; i < 3; i++) {
        encrypt = off[i];
        ck_assert_int_eq(find(0), 0);
        ck_assert(!has_key);
    }
    encrypt = "yes";
    ck_assert_int_eq(find(0), -ENOEXEC);
    ck_assert_str_eq(err.text, "invalid value 'yes' for DDP_ENCRYPT: expected 0 or 1");
}
END_TEST

START_TEST(each_generation_has_its_own_key)
{
    static const uint8_t secret[DATA_SECRET_BYTES] = "a secret";
    uint8_t first[CIPHER_KEY_BYTES];
    char text[16];
    int fd;
    ck_assert_int_eq(data_secret_make(secret, &fd, NULL), 0);
    snprintf(text, sizeof text, "%d", fd);
    fd_text = text;
    ck_assert_int_eq(find(3), 0);
    ck_assert(has_key);
    memcpy(first, key, sizeof first);
    ck_assert_mem_ne(first, secret, sizeof first);
    char library[sizeof keys.library];
    memcpy(library, keys.library, sizeof library);
    ck_assert_uint_eq(strspn(library, "0123456789abcdef"), 64);
    ck_assert_int_eq(find(3), 0);
    ck_assert_mem_eq(first, key, sizeof first);
    ck_assert_int_eq(find(4), 0);
    ck_assert_mem_ne(first, key, sizeof first);
    ck_assert_str_eq(library, keys.library); /* that of the job */
    close(fd);
    ck_assert_int_eq(find(3), -ENOEXEC);
    ck_assert(!has_key);
    ck_assert_ptr_nonnull(strstr(err.text, "DDP_ENCRYPT_FD: descriptor"));
}
END_TEST

START_TEST(without_a_key_a_rank_does_not_join)
{
    ck_assert_int_eq(find(0), -ENOEXEC);
    ck_assert_str_eq(err.text, "DDP_ENCRYPT is 1, but this process has no key: use ddprun "
                               "--encrypt, or set DDP_ENCRYPT_KEY_FILE on all nodes");
    static const char *const bad[] = {"x", "-1", "3x", "99999999999"};
    for (int i = 0; i < 4; i++) {
        fd_text = bad[i];
        ck_assert_int_eq(find(0), -ENOEXEC);
    }
}
END_TEST

START_TEST(a_key_file_has_digits_in_either_case)
{
    uint8_t first[CIPHER_KEY_BYTES];
    write_file(DIGITS "\n", 0600);
    ck_assert_int_eq(find(0), 0);
    memcpy(first, key, sizeof first);
    write_file("0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef \r\n", 0400);
    ck_assert_int_eq(find(0), 0);
    ck_assert_mem_eq(first, key, sizeof first);
    write_file("1" DIGITS, 0600);
    ck_assert_int_eq(find(0), 0);
    ck_assert_mem_ne(first, key, sizeof first);
}
END_TEST

START_TEST(a_bad_key_file_is_refused_with_the_reason)
{
    static char much[DATA_KEY_MOST_DIGITS + 200];
    static const char *const bad[] = {"",  "\n", "0123", DIGITS "x", "g" DIGITS, DIGITS "\n" DIGITS,
                                      much};
    memset(much, 'a', sizeof much - 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file(bad[i], 0600);
        ck_assert_int_eq(find(0), -EINVAL);
        ck_assert(!has_key);
        ck_assert_ptr_nonnull(strstr(err.text, "expected 64 to 4096 hexadecimal digits"));
    }
    write_file(DIGITS, 0640);
    ck_assert_int_eq(find(0), -EACCES);
    ck_assert_ptr_nonnull(strstr(err.text, "is accessible to other users (mode 0640)"));
    file = test_dir_path("missing");
    ck_assert_int_eq(find(0), -ENOENT);
    file = test_dir;
    ck_assert_int_eq(find(0), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "not a regular file"));
    file = test_dir_path("pipe");
    ck_assert_int_eq(mkfifo(file, 0600), 0);
    ck_assert_int_eq(find(0), -EINVAL); /* at once */
    if (geteuid() != 0)
        return;
    write_file(DIGITS, 0600);
    ck_assert_int_eq(chown(file, 65534, 0), 0);
    ck_assert_int_eq(find(0), -EACCES);
    ck_assert_ptr_nonnull(strstr(err.text, "belongs to user 65534"));
}
END_TEST

TEST_SUITE(data_key)
{
    Suite *suite = suite_create("data_key");
    TCase *tcase = tcase_create("all");
    tcase_add_checked_fixture(tcase, set_up, test_dir_remove);
    tcase_add_test(tcase, without_the_variable_or_with_0_nothing_is_encrypted);
    tcase_add_test(tcase, each_generation_has_its_own_key);
    tcase_add_test(tcase, without_a_key_a_rank_does_not_join);
    tcase_add_test(tcase, a_key_file_has_digits_in_either_case);
    tcase_add_test(tcase, a_bad_key_file_is_refused_with_the_reason);
    suite_add_tcase(suite, tcase);
    return suite;
}
