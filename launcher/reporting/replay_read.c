#include "replay_read.h"

#include "common/error.h"
#include "common/hash.h"
#include "common/scope.h"
#include "replay.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { JOB_BYTES = 257 };

co_define_auto(replay, replay_destroy)

    struct reading {
    struct replay *replay;
    char job[JOB_BYTES]; /* the first line's; "": none yet */
    unsigned line;
    struct co_error *err;
};

__attribute__((format(printf, 2, 3))) static int refuse(const struct reading *in,
                                                        const char *format, ...)
{
    char what[200];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return co_fail(in->err, -EINVAL, "%u: %s", in->line, what);
}

/* --- Values --- */

/* returns   0, -EINVAL */
static int get_number(const struct reading *in, json_t *event, const char *key, uint64_t max,
                      uint64_t *ret)
{
    const json_t *value = json_object_get(event, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) > max)
        return refuse(in, "'%s' is no number from 0 to %llu", key, (unsigned long long)max);
    *ret = (uint64_t)json_integer_value(value);
    return 0;
}

static int get_u32(const struct reading *in, json_t *event, const char *key, uint32_t *ret)
{
    uint64_t number = 0;
    int rc = get_number(in, event, key, INT32_MAX, &number);
    *ret = (uint32_t)number;
    return rc;
}

/* A number of steps, or null. */
static int get_steps(const struct reading *in, json_t *event, const char *key, bool *ret_is_known,
                     uint64_t *ret)
{
    *ret_is_known = !json_is_null(json_object_get(event, key));
    return *ret_is_known ? get_number(in, event, key, REPLAY_MAX_STEPS, ret) : 0;
}

static int get_flag(const struct reading *in, json_t *event, const char *key, bool *ret)
{
    const json_t *value = json_object_get(event, key);
    if (!json_is_boolean(value))
        return refuse(in, "'%s' is neither true nor false", key);
    *ret = json_is_true(value);
    return 0;
}

/* "SIGKILL", "signal 35". returns 0: no signal has that name */
static int find_signal(const char *name)
{
    int sig;
    if (strncmp(name, "signal ", 7) == 0) {
        char *end;
        const long number = strtol(name + 7, &end, 10);
        return *end == '\0' && number > 0 && number < NSIG ? (int)number : 0;
    }
    for (sig = 1; sig < NSIG; sig++) {
        const char *is = sigabbrev_np(sig);
        if (is != NULL && strncmp(name, "SIG", 3) == 0 && strcmp(name + 3, is) == 0)
            return sig;
    }
    return 0;
}

static int get_signal(const struct reading *in, json_t *event, int *ret)
{
    const char *name = json_string_value(json_object_get(event, "signal"));
    *ret = name != NULL ? find_signal(name) : 0;
    return *ret != 0 ? 0 : refuse(in, "'signal' names no signal");
}

/* --- Events --- */

/* How a rank ended, as waitpid() would have it. */
static int get_status(const struct reading *in, json_t *event, int *ret)
{
    uint64_t code = 0;
    int rc;
    if (json_is_null(json_object_get(event, "code")))
        return get_signal(in, event, ret);
    rc = get_number(in, event, "code", 255, &code);
    *ret = (int)code << 8;
    return rc;
}

static int read_exit(const struct reading *in, json_t *event, struct replay_record *w)
{
    w->type = REPLAY_EXIT;
    int rc = get_u32(in, event, "rank", &w->rank);
    if (rc == 0)
        rc = get_status(in, event, &w->status);
    if (rc == 0)
        rc = get_flag(in, event, "lost_peer", &w->lost_peer);
    if (rc == 0 && json_object_get(event, "step") == NULL)
        rc = refuse(in, "there is no 'step': an older ddprun has written this");
    return rc == 0 ? get_steps(in, event, "step", &w->is_known, &w->after) : rc;
}

/* A number for the ddprun that writes, other than those of others. */
static int read_place(const struct reading *in, json_t *event, struct replay_record *w)
{
    const char *host = json_string_value(json_object_get(event, "host"));
    uint64_t pid = 0;
    w->type = REPLAY_PLACE;
    if (host == NULL)
        return refuse(in, "'host' is no text");
    int rc = get_u32(in, event, "nodes", &w->n_nodes);
    if (rc == 0)
        rc = get_u32(in, event, "world", &w->world);
    if (rc == 0)
        rc = get_u32(in, event, "rank", &w->first_rank);
    if (rc == 0 && json_object_get(event, "pid") == NULL)
        rc = refuse(in, "there is no 'pid': an older ddprun has written this");
    if (rc == 0)
        rc = get_u32(in, event, "ranks", &w->n_local);
    if (rc == 0)
        rc = get_number(in, event, "pid", INT32_MAX, &pid);
    w->stay = co_hash_word(co_hash_bytes(CO_HASH_START, host, strlen(host)), pid);
    return rc;
}

static int read_stop(const struct reading *in, json_t *event, struct replay_record *w)
{
    const char *why = json_string_value(json_object_get(event, "why"));
    w->type = REPLAY_STOP;
    if (why == NULL)
        return refuse(in, "'why' is no text");
    if (strcmp(why, "failure") == 0 && json_object_get(event, "rank") != NULL) {
        w->why = REPLAY_WHY_FAILURE;
        return get_u32(in, event, "rank", &w->rank);
    }
    if (strcmp(why, "signal") == 0) {
        w->why = REPLAY_WHY_SIGNAL;
        return get_signal(in, event, &w->sig);
    }
    if (strcmp(why, "restart") == 0)
        w->why = REPLAY_WHY_RESTART;
    return 0;
}

static int read_steps(const struct reading *in, json_t *event, struct replay_record *w)
{
    w->type = REPLAY_STEPS;
    int rc = get_steps(in, event, "before", &w->is_known, &w->before);
    if (rc == 0)
        rc = get_number(in, event, "after", REPLAY_MAX_STEPS, &w->after);
    return rc == 0 ? get_flag(in, event, "lives", &w->lives) : rc;
}

static int read_began(const struct reading *in, json_t *event, struct replay_record *w)
{
    w->type = REPLAY_BEGAN;
    return get_u32(in, event, "rank", &w->rank);
}

static int read_start(const struct reading *in, json_t *event, struct replay_record *w)
{
    w->type = REPLAY_START;
    return get_u32(in, event, "ranks", &w->world);
}

static int read_end(const struct reading *in, json_t *event, struct replay_record *w)
{
    (void)in, (void)event;
    w->type = REPLAY_END;
    return 0;
}

static const struct {
    const char *name;
    int (*read)(const struct reading *in, json_t *event, struct replay_record *w);
} kinds[] = {
    {"job_start", read_start}, {"rank_start", read_began}, {"rdzv", read_place},
    {"rank_exit", read_exit},  {"stop", read_stop},        {"steps", read_steps},
    {"job_end", read_end},
};

static int check_job(struct reading *in, json_t *event)
{
    const char *job = json_string_value(json_object_get(event, "job"));
    if (job == NULL || strlen(job) >= sizeof in->job)
        return refuse(in, "'job' is no text of 1 to %d bytes", JOB_BYTES - 1);
    if (in->job[0] == '\0')
        snprintf(in->job, sizeof in->job, "%s", job);
    if (strcmp(in->job, job) != 0)
        return refuse(in, "this is of job '%.60s', what is above of '%.60s'", job, in->job);
    return 0;
}

static int add_event(struct reading *in, json_t *event)
{
    const char *name = json_string_value(json_object_get(event, "ev"));
    const json_t *version = json_object_get(event, "v");
    struct replay_record w = {.line = in->line};
    if (!json_is_integer(version) || json_integer_value(version) != 1 || name == NULL)
        return refuse(in, "this is no event of version 1");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, name) != 0)
            continue;
        int rc = check_job(in, event);
        if (rc == 0)
            rc = get_u32(in, event, "gen", &w.generation);
        if (rc == 0)
            rc = get_u32(in, event, "node", &w.node);
        if (rc == 0)
            rc = kinds[i].read(in, event, &w);
        return rc == 0 ? replay_add(in->replay, &w, in->err) : rc;
    }
    return 0;
}

static int add_line(struct reading *in, const char *line, size_t n)
{
    json_error_t why;
    if (n == 0)
        return 0;
    json_t *event = json_loadb(line, n, JSON_REJECT_DUPLICATES, &why);
    if (event == NULL)
        return refuse(in, "this is no JSON: %.120s", why.text);
    int rc = json_is_object(event) ? add_event(in, event) : refuse(in, "this is no JSON object");
    json_decref(event);
    return rc;
}

/* One line without its end. returns 1; 0: there is none; -E2BIG */
static int read_line(FILE *file, char *line, size_t *ret_n)
{
    size_t n = 0;
    int c;
    while ((c = getc_unlocked(file)) != EOF && c != '\n') {
        if (n == REPLAY_LINE_BYTES)
            return -E2BIG;
        line[n++] = (char)c;
    }
    *ret_n = n;
    return c != EOF || n > 0;
}

static int add_lines(struct reading *in, FILE *file)
{
    co_autofree char *line = malloc(REPLAY_LINE_BYTES);
    size_t n, n_bytes = 0;
    int rc;
    if (line == NULL)
        return co_fail(in->err, -ENOMEM, "1: no memory for a line");
    while ((rc = read_line(file, line, &n)) != 0) {
        in->line++;
        if (rc < 0)
            return refuse(in, "the line is longer than %d bytes", REPLAY_LINE_BYTES);
        n_bytes += n + 1;
        if (n_bytes > REPLAY_FILE_BYTES)
            return refuse(in, "the file is longer than %d MiB", REPLAY_FILE_BYTES >> 20);
        rc = add_line(in, line, n);
        if (rc < 0)
            return rc;
    }
    if (ferror(file))
        return co_fail(in->err, -EIO, "%u: cannot be read to its end", in->line + 1);
    return 0;
}

/* "7: what" becomes "NAME:7: what". */
static int put_name(const char *name, int rc, struct co_error *err)
{
    char text[CO_ERROR_TEXT_BYTES];
    if (err == NULL)
        return rc;
    snprintf(text, sizeof text, "%s", err->text);
    return co_fail(err, rc, "%s:%s", name, text);
}

int replay_read(FILE *file, const char *name, struct replay **ret, struct co_error *err)
{
    co_auto(replay) replay = replay_create();
    struct reading in = {.replay = replay, .err = err};
    if (replay == NULL)
        return co_fail(err, -ENOMEM, "%s: no memory for a job's history", name);
    int rc = add_lines(&in, file);
    if (rc == 0)
        rc = replay_finish(replay, err);
    if (rc < 0)
        return put_name(name, rc, err);
    *ret = co_take(&replay);
    return 0;
}
