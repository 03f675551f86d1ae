/* test_env_value.c - which values variables may have. */
#include "common/error.h"
#include "tests/support/suite.h"
#include "worker-runtime/core/env_value.h"

#include <errno.h>

static const struct {
    const char *name, *value, *text; /* text NULL: the value is good */
} rows[] = {
    {"DDP_BACKEND", "nccl", NULL},
    {"DDP_BACKEND", "", NULL},
    {"DDP_BACKEND", NULL, NULL},
    {"DDP_BACKEND", "qq", "invalid value 'qq' for DDP_BACKEND: expected cpu or nccl"},
    {"DDP_CMA", "0", NULL},
    {"DDP_CMA", "9", "invalid value '9' for DDP_CMA: expected 0 or 1"},
    {"DDP_PROGRESS_THREAD", "yes", "invalid value 'yes' for DDP_PROGRESS_THREAD: expected 0 or 1"},
    {"DDP_SIMD", "avx2", NULL},
    {"DDP_SIMD", "foo", "invalid value 'foo' for DDP_SIMD: expected scalar, avx2 or avx512"},
    {"DDP_TIMEOUT", "1.5s", NULL},
    {"DDP_TIMEOUT", "0",
     "invalid value '0' for DDP_TIMEOUT: expected a duration of more than 0, such as 90, 1.5s or "
     "10m"},
    {"DDP_NCCL_ABORT_TIMEOUT", "0", NULL},
    {"DDP_NCCL_ABORT_TIMEOUT", "zz",
     "invalid value 'zz' for DDP_NCCL_ABORT_TIMEOUT: expected a duration, such as 30, 1.5s or 1m"},
    {"DDP_SEGMENT_BYTES", "1M", NULL},
    {"DDP_SEGMENT_BYTES", "64T", NULL},
    {"DDP_SEGMENT_BYTES", "1K",
     "invalid value '1K' for DDP_SEGMENT_BYTES: expected a size of 1M to 64T, such as 256M or 8G"},
    {"DDP_NODE_RANK", "0", NULL},
    {"DDP_NODE_RANK", "-1", "invalid value '-1' for DDP_NODE_RANK: expected a number of 0 or more"},
    {"DDP_SOCKET_LANES", "16", NULL},
    {"DDP_SOCKET_LANES", "0",
     "invalid value '0' for DDP_SOCKET_LANES: expected a number of 1 to 16, or auto"},
    {"DDP_SOCKET_LANES", "17",
     "invalid value '17' for DDP_SOCKET_LANES: expected a number of 1 to 16, or auto"},
    {"DDP_SOCKET_LANES", "auto", NULL},
    {"DDP_SOCKET_LANES", "automatic",
     "invalid value 'automatic' for DDP_SOCKET_LANES: expected a number of 1 to 16, or auto"},
    {"DDP_JOB_ID", "any text", NULL},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

START_TEST(a_value_is_valid_or_the_error_names_what_is_expected)
{
    struct co_error err = {0};
    const int code = env_value_check(rows[_i].name, rows[_i].value, &err);
    ck_assert_int_eq(code, rows[_i].text != NULL ? -ENOEXEC : 0);
    ck_assert_str_eq(err.text, rows[_i].text != NULL ? rows[_i].text : "");
}
END_TEST

START_TEST(all_variables_of_the_process_are_checked)
{
    struct co_error err = {0};
    for (int i = 0; i < N_ROWS; i++)
        unsetenv(rows[i].name);
    ck_assert_int_eq(env_value_check_all(&err), 0);
    for (int i = 0; i < N_ROWS; i++) {
        if (rows[i].text == NULL)
            continue;
        setenv(rows[i].name, rows[i].value, 1);
        ck_assert_int_eq(env_value_check_all(&err), -ENOEXEC);
        ck_assert_str_eq(err.text, rows[i].text);
        unsetenv(rows[i].name);
    }
}
END_TEST

TEST_SUITE(env_value)
{
    Suite *s = suite_create("env_value");
    TCase *c = tcase_create("env_value");
    tcase_add_loop_test(c, a_value_is_valid_or_the_error_names_what_is_expected, 0, N_ROWS);
    tcase_add_test(c, all_variables_of_the_process_are_checked);
    suite_add_tcase(s, c);
    return s;
}
