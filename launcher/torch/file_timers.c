#include "file_timers.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 16 };

/* --- the list --- */

/* The others keep their order: of two that expire at once, the first that was set is the first. */
static void remove_at(struct file_timers *t, size_t i)
{
    free(t->list[i].scope);
    memmove(&t->list[i], &t->list[i + 1], (--t->n - i) * sizeof t->list[0]);
}

static struct file_timer *find(const struct file_timers *t, pid_t pid, const char *scope)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->list[i].pid == pid && strcmp(t->list[i].scope, scope) == 0)
            return &t->list[i];
    return NULL;
}

static bool make_room(struct file_timers *t)
{
    if (t->n < t->capacity)
        return true;
    const size_t capacity = t->capacity == 0 ? FIRST_CAPACITY : 2 * t->capacity;
    if (capacity > FILE_TIMERS_MAX)
        return false;
    struct file_timer *list = realloc(t->list, capacity * sizeof *list);
    if (list == NULL)
        return false;
    t->list = list;
    t->capacity = capacity;
    return true;
}

/* timer   its scope is copied */
static void set(struct file_timers *t, const struct file_timer *timer)
{
    struct file_timer *old = find(t, timer->pid, timer->scope);
    char *scope = old != NULL ? old->scope : strdup(timer->scope);
    if (scope == NULL || (old == NULL && !make_room(t))) {
        free(scope);
        t->n_refused++;
        return;
    }
    struct file_timer *to = old != NULL ? old : &t->list[t->n++];
    *to = *timer;
    to->scope = scope;
}

/* --- lines --- */

static bool read_int(const json_t *json, const char *name, int64_t min, int64_t max, int64_t *ret)
{
    const json_t *value = json_object_get(json, name);
    *ret = json_integer_value(value);
    return json_is_integer(value) && *ret >= min && *ret <= max;
}

/* ret   lends its scope from json */
static bool read_timer(const json_t *json, struct file_timer *ret)
{
    int64_t version, pid, signal;
    const json_t *time = json_object_get(json, "expiration_time");
    const char *scope = json_string_value(json_object_get(json, "scope_id"));
    if (!read_int(json, "version", 1, 1, &version) || !read_int(json, "pid", 1, INT32_MAX, &pid) ||
        !read_int(json, "signal", INT32_MIN, FILE_TIMERS_SIGNAL_MAX, &signal) || scope == NULL ||
        !json_is_number(time))
        return false;
    *ret = (struct file_timer){.pid = (pid_t)pid,
                               .scope = (char *)scope,
                               .expires_s = json_number_value(time),
                               .signal = signal > 0 ? (int)signal : 0};
    return true;
}

static void take_timer(struct file_timers *t, struct file_timer *timer,
                       const struct file_timers_opts *opts)
{
    if (timer->expires_s < 0) {
        file_timers_drop(t, find(t, timer->pid, timer->scope));
        return;
    }
    timer->set_ms = opts->now_ms;
    if (opts->find_process != NULL &&
        (timer->process = opts->find_process(opts->arg, timer->pid)) == 0)
        return; /* it has ended, or is in another PID namespace */
    set(t, timer);
}

static void take_line(struct file_timers *t, const struct file_timers_opts *opts)
{
    struct file_timer timer;
    json_t *json = json_loadb(t->line, t->len, 0, NULL);
    if (json != NULL && read_timer(json, &timer))
        take_timer(t, &timer, opts);
    else
        t->n_bad++;
    json_decref(json);
}

void file_timers_feed(struct file_timers *t, const char *bytes, size_t n,
                      const struct file_timers_opts *opts)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '\n') {
            if (!t->skips)
                take_line(t, opts);
            t->skips = false;
            t->len = 0;
        } else if (t->len == sizeof t->line) {
            t->n_bad += !t->skips;
            t->skips = true;
        } else {
            t->line[t->len++] = bytes[i];
        }
    }
}

/* --- the rest --- */

const struct file_timer *file_timers_first(const struct file_timers *t)
{
    const struct file_timer *first = NULL;
    for (size_t i = 0; i < t->n; i++)
        if (first == NULL || t->list[i].expires_s < first->expires_s)
            first = &t->list[i];
    return first;
}

void file_timers_drop(struct file_timers *t, const struct file_timer *timer)
{
    if (timer != NULL)
        remove_at(t, (size_t)(timer - t->list));
}

void file_timers_drop_process(struct file_timers *t, pid_t pid)
{
    for (size_t i = t->n; i > 0; i--)
        if (t->list[i - 1].pid == pid)
            remove_at(t, i - 1);
}

void file_timers_fini(struct file_timers *t)
{
    while (t->n > 0)
        remove_at(t, t->n - 1);
    free(t->list);
    *t = (struct file_timers){0};
}
