#include "env_value.h"

#include "common/error.h"
#include "common/parse.h"
#include "user_segment.h"
#include "worker-runtime/arithmetic/reduce.h"

#include <ddp/env.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool is_flag(const char *value)
{
    return strcmp(value, "0") == 0 || strcmp(value, "1") == 0;
}

static bool is_duration(const char *value)
{
    uint64_t ms;
    return co_parse_duration_ms("", value, &ms, NULL) == 0;
}

static bool is_timeout(const char *value)
{
    uint64_t ms;
    return co_parse_duration_ms("", value, &ms, NULL) == 0 && ms > 0;
}

static bool is_segment(const char *value)
{
    uint64_t bytes;
    return user_segment_size(value, 1, &bytes, NULL) == 0;
}

static bool is_simd(const char *value)
{
    bool is_known;
    reduce_choose(value, &is_known);
    return is_known;
}

static bool is_backend(const char *value)
{
    return strcmp(value, "cpu") == 0 || strcmp(value, "nccl") == 0;
}

static bool is_number(const char *value)
{
    int64_t number;
    return co_parse_int("", value, 0, INT_MAX, &number, NULL) == 0;
}

static bool is_lanes(const char *value)
{
    int64_t number;
    return strcmp(value, ENV_VALUE_LANES_AUTO) == 0 ||
           co_parse_int("", value, 1, ENV_VALUE_LANES_MOST, &number, NULL) == 0;
}

static const struct {
    const char *name;
    bool (*is_valid)(const char *value);
    const char *expected;
} table[] = {
    {DDP_ENV_NODE_RANK, is_number, "a number of 0 or more"},
    {DDP_ENV_SOCKET_LANES, is_lanes, "a number of 1 to 16, or auto"},
    {DDP_ENV_ENCRYPT, is_flag, "0 or 1"},
    {DDP_ENV_SEGMENT_BYTES, is_segment, "a size of 1M to 64T, such as 256M or 8G"},
    {DDP_ENV_TIMEOUT, is_timeout, "a duration of more than 0, such as 90, 1.5s or 10m"},
    {DDP_ENV_PROGRESS_THREAD, is_flag, "0 or 1"},
    {DDP_ENV_CMA, is_flag, "0 or 1"},
    {DDP_ENV_SIMD, is_simd, "scalar, avx2 or avx512"},
    {DDP_ENV_BACKEND, is_backend, "cpu or nccl"},
    {DDP_ENV_NCCL_ABORT_TIMEOUT, is_duration, "a duration, such as 30, 1.5s or 1m"},
};
enum { N_VALUES = sizeof table / sizeof *table };

static int check_row(size_t i, const char *value, struct co_error *err)
{
    if (value == NULL || value[0] == '\0' || table[i].is_valid(value))
        return 0;
    return co_fail(err, -ENOEXEC, "invalid value '%.100s' for %s: expected %s", value,
                   table[i].name, table[i].expected);
}

int env_value_check(const char *name, const char *value, struct co_error *err)
{
    for (size_t i = 0; i < N_VALUES; i++)
        if (strcmp(table[i].name, name) == 0)
            return check_row(i, value, err);
    return 0;
}

int env_value_check_all(struct co_error *err)
{
    int code = 0;
    for (size_t i = 0; i < N_VALUES && code == 0; i++)
        code = check_row(i, getenv(table[i].name), err);
    return code;
}
