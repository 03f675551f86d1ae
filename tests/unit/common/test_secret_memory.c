/* What remains of a secret in the environment and in children. */
#include "common/secret_memory.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

START_TEST(a_forked_child_does_not_have_it)
{
    int status;
    char *p = co_secret_alloc(10000);
    ck_assert_ptr_nonnull(p);
    memcpy(p + 9000, "secret", 6);
    pid_t pid = fork();
    if (pid == 0)
        _exit(p[9000] == '\0' ? 7 : 8);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(WEXITSTATUS(status), 7);
    ck_assert_mem_eq(p + 9000, "secret", 6);
    co_secret_free(p, 10000);
    co_secret_free(NULL, 1);
}
END_TEST

/* As execve() hands it over, where a name may stand twice. */
START_TEST(a_variable_is_taken_and_its_bytes_are_wiped)
{
    char first[] = "SECRET=one", longer[] = "SECRETS=kept", second[] = "SECRET=two";
    char *const block[] = {first, longer, second, NULL};
    char **const before = environ;
    environ = (char **)block;
    ck_assert_int_eq(co_secret_env_take("SECRET"), 0);
    ck_assert_ptr_null(getenv("SECRET"));
    ck_assert_str_eq(getenv("SECRETS"), "kept");
    environ = before;
    ck_assert_mem_eq(first, "SECRET=\0\0\0", 10);
    ck_assert_mem_eq(second, "SECRET=\0\0\0", 10);
    ck_assert_str_eq(co_secret_env_get(), "one");
    ck_assert_int_eq(co_secret_env_take("SECRET"), 0); /* without one the old one stays */
    ck_assert_int_eq(co_secret_env_put("three"), 0);
    ck_assert_str_eq(co_secret_env_get(), "one");
    co_secret_env_drop();
    ck_assert_ptr_null(co_secret_env_get());
    ck_assert_int_eq(co_secret_env_put("three"), 0);
    ck_assert_str_eq(co_secret_env_get(), "three");
    co_secret_env_drop();
    co_secret_env_drop();
}
END_TEST

START_TEST(an_empty_variable_does_not_count)
{
    setenv("SECRET", "", 1);
    ck_assert_int_eq(co_secret_env_take("SECRET"), 0);
    ck_assert_ptr_null(co_secret_env_get());
    ck_assert_ptr_null(getenv("SECRET"));
}
END_TEST

TEST_SUITE(secret_memory)
{
    Suite *suite = suite_create("secret_memory");
    TCase *c = tcase_create("all");
    tcase_add_test(c, a_forked_child_does_not_have_it);
    tcase_add_test(c, a_variable_is_taken_and_its_bytes_are_wiped);
    tcase_add_test(c, an_empty_variable_does_not_count);
    suite_add_tcase(suite, c);
    return suite;
}
