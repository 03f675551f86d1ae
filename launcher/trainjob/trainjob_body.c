#include "trainjob_body.h"

#include "common/error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { PERCENT_MAX = 100 };

static int percent_of(const struct trainjob_progress *p)
{
    return p->steps >= p->total ? PERCENT_MAX
                                : (int)((double)p->steps / (double)p->total * PERCENT_MAX);
}

static size_t put_remaining(const struct trainjob_progress *p, char *text, size_t n)
{
    const double left_s = p->steps < p->total ? (double)(p->total - p->steps) * p->step_s : 0;
    if ((p->step_s <= 0 && p->steps < p->total) || left_s > INT32_MAX)
        return 0;
    return (size_t)snprintf(text, n, "\"estimatedRemainingSeconds\":%" PRId32 ",", (int32_t)left_s);
}

static void print_time(int64_t now_s, char text[32])
{
    const time_t t = (time_t)now_s;
    struct tm tm = {0};
    gmtime_r(&t, &tm);
    strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

/* All numbers together need less than half of the bytes. */
size_t trainjob_body_make(const struct trainjob_progress *p, char text[TRAINJOB_BODY_BYTES])
{
    char time_text[32];
    size_t n = (size_t)snprintf(text, TRAINJOB_BODY_BYTES,
                                "{\"trainerStatus\":{\"progressPercentage\":%d,", percent_of(p));
    n += put_remaining(p, text + n, TRAINJOB_BODY_BYTES - n);
    n += (size_t)snprintf(text + n, TRAINJOB_BODY_BYTES - n,
                          "\"metrics\":[{\"name\":\"steps\",\"value\":\"%" PRIu64 "\"},", p->steps);
    if (p->step_s > 0)
        n += (size_t)snprintf(text + n, TRAINJOB_BODY_BYTES - n,
                              "{\"name\":\"step_seconds\",\"value\":\"%.6g\"},", p->step_s);
    print_time(p->now_s, time_text);
    n +=
        (size_t)snprintf(text + n, TRAINJOB_BODY_BYTES - n,
                         "{\"name\":\"goodput\",\"value\":\"%.4g\"},"
                         "{\"name\":\"generation\",\"value\":\"%" PRIu32 "\"},"
                         "{\"name\":\"world_size\",\"value\":\"%d\"}],\"lastUpdatedTime\":\"%s\"}}",
                         p->goodput, p->generation, p->world_size, time_text);
    return n;
}

int trainjob_token_trim(char *text, size_t len, struct co_error *err)
{
    while (len > 0 && strchr(" \t\r\n", text[len - 1]) != NULL)
        text[--len] = '\0';
    if (len == 0)
        return co_fail(err, -EINVAL, "the token is empty");
    for (size_t i = 0; i < len; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return co_fail(err, -EINVAL,
                           "the token contains a byte that is not allowed in a header");
    return 0;
}
