#include "job_request.h"

#include "common/error.h"
#include "common/parse.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_WORDS = 5 }; /* one more than any request has */

static const char *const names[JOB_REQUEST_N_TYPES] = {
    [JOB_REQUEST_STATUS] = "status",   [JOB_REQUEST_LOGS] = "logs",   [JOB_REQUEST_STOP] = "stop",
    [JOB_REQUEST_RESTART] = "restart", [JOB_REQUEST_STACK] = "stack",
};

static const int n_words_of[JOB_REQUEST_N_TYPES] = {
    [JOB_REQUEST_STATUS] = 1,  [JOB_REQUEST_LOGS] = 3,  [JOB_REQUEST_STOP] = 3,
    [JOB_REQUEST_RESTART] = 1, [JOB_REQUEST_STACK] = 4,
};

/* A line, cut into words where its blanks were. */
struct words {
    char text[JOB_REQUEST_BYTES];
    const char *word[MAX_WORDS];
    int n;
};

static int cut(const char *line, size_t len, struct words *w, struct co_error *err)
{
    if (len >= sizeof w->text)
        return co_fail(err, -EINVAL, "the request exceeds %zu bytes", sizeof w->text - 1);
    for (size_t i = 0; i < len; i++)
        if (line[i] < ' ' || line[i] > '~')
            return co_fail(err, -EINVAL, "the request contains invalid text");
    memcpy(w->text, line, len);
    w->text[len] = '\0';
    w->n = 0;
    for (char *at = w->text; at != NULL && w->n < MAX_WORDS; w->n++) {
        w->word[w->n] = at;
        at = strchr(at, ' ');
        if (at != NULL)
            *at++ = '\0';
    }
    return 0;
}

/* co_parse_int() takes what can be written in several ways: 007, +7. */
static int read_number(const char *what, const char *word, int64_t max, int64_t *ret,
                       struct co_error *err)
{
    if (word[0] < '0' || word[0] > '9' || (word[0] == '0' && word[1] != '\0'))
        return co_fail(err, -EINVAL, "invalid value '%s' for %s: expected a number", word, what);
    return co_parse_int(what, word, 0, max, ret, err) < 0 ? -EINVAL : 0;
}

static int read_logs(const struct words *w, struct job_request *r, struct co_error *err)
{
    int64_t rank, from;
    if (read_number("the rank", w->word[1], JOB_REQUEST_RANK_MAX, &rank, err) < 0 ||
        read_number("the beginning", w->word[2], INT64_MAX, &from, err) < 0)
        return -EINVAL;
    r->rank = (int32_t)rank;
    r->from = (uint64_t)from;
    return 0;
}

static int read_stop(const struct words *w, struct job_request *r, struct co_error *err)
{
    int64_t sig;
    r->whole_job = strcmp(w->word[1], "job") == 0;
    if (!r->whole_job && strcmp(w->word[1], "node") != 0)
        return co_fail(err, -EINVAL, "invalid value '%s' for stop: expected job or node",
                       w->word[1]);
    if (read_number("the signal", w->word[2], JOB_REQUEST_SIGNAL_MAX, &sig, err) < 0)
        return -EINVAL;
    if (sig == 0)
        return co_fail(err, -EINVAL, "invalid signal 0");
    r->signal = (int)sig;
    return 0;
}

static int read_stack(const struct words *w, struct job_request *r, struct co_error *err)
{
    int64_t rank = -1, sig;
    if (strcmp(w->word[1], "all") != 0 &&
        read_number("the rank", w->word[1], JOB_REQUEST_RANK_MAX, &rank, err) < 0)
        return -EINVAL;
    if (read_number("the signal", w->word[2], JOB_REQUEST_SIGNAL_MAX, &sig, err) < 0)
        return -EINVAL;
    r->has_tools = strcmp(w->word[3], "tools") == 0;
    if (!r->has_tools && strcmp(w->word[3], "proc") != 0)
        return co_fail(err, -EINVAL, "invalid value '%s' for stack: expected tools or proc",
                       w->word[3]);
    r->rank = (int32_t)rank;
    r->signal = (int)sig;
    return 0;
}

static int find_type(const char *name, struct co_error *err)
{
    for (int i = 0; i < JOB_REQUEST_N_TYPES; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return co_fail(err, -EINVAL, "unknown request '%s'; use a ddpctl of the same version", name);
}

int job_request_read(const char *line, size_t len, struct job_request *ret, struct co_error *err)
{
    struct words w;
    int rc = cut(line, len, &w, err);
    if (rc < 0)
        return rc;
    int type = find_type(w.word[0], err);
    if (type < 0)
        return type;
    if (w.n != n_words_of[type])
        return co_fail(err, -EINVAL, "request '%s' has %d words, expected %d", names[type],
                       n_words_of[type], w.n);
    struct job_request r = {.type = (enum job_request_type)type};
    if (type == JOB_REQUEST_LOGS)
        rc = read_logs(&w, &r, err);
    else if (type == JOB_REQUEST_STOP)
        rc = read_stop(&w, &r, err);
    else if (type == JOB_REQUEST_STACK)
        rc = read_stack(&w, &r, err);
    if (rc == 0)
        *ret = r;
    return rc;
}

static int write_stack(const struct job_request *r, char buf[JOB_REQUEST_BYTES])
{
    char rank[16] = "all";
    if (r->rank >= 0)
        snprintf(rank, sizeof rank, "%" PRId32, r->rank);
    return snprintf(buf, JOB_REQUEST_BYTES, "%s %s %d %s\n", names[r->type], rank, r->signal,
                    r->has_tools ? "tools" : "proc");
}

size_t job_request_write(const struct job_request *r, char buf[JOB_REQUEST_BYTES])
{
    const char *name = names[r->type];
    int n;
    if (r->type == JOB_REQUEST_LOGS)
        n = snprintf(buf, JOB_REQUEST_BYTES, "%s %" PRId32 " %" PRIu64 "\n", name, r->rank,
                     r->from);
    else if (r->type == JOB_REQUEST_STOP)
        n = snprintf(buf, JOB_REQUEST_BYTES, "%s %s %d\n", name, r->whole_job ? "job" : "node",
                     r->signal);
    else if (r->type == JOB_REQUEST_STACK)
        n = write_stack(r, buf);
    else
        n = snprintf(buf, JOB_REQUEST_BYTES, "%s\n", name);
    return (size_t)n;
}
