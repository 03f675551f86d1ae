#include "hang_report.h"

#include "launcher/lines/rank_list.h"
#include "launcher/supervisor/hang.h"

#include "common/process.h"
#include "segments/call_kind.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct out {
    char *buf;
    size_t n, at;
};

__attribute__((format(printf, 2, 3))) static void add_text(struct out *o, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(o->buf + o->at, o->n - o->at, format, args);
    va_end(args);
    if (n > 0)
        o->at = o->at + (size_t)n < o->n ? o->at + (size_t)n : o->n - 1;
}

static void add_bytes(struct out *o, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1024;
        unit++;
    }
    add_text(o, "%.4g %s", value, units[unit]);
}

char *hang_text_call(const struct rank_status_call *call, char buf[HANG_CALL_BYTES])
{
    struct out o = {.buf = buf, .n = HANG_CALL_BYTES};
    add_text(&o, "%s #%" PRIu32, call_kind_name(call->kind), call->number);
    if (call->bytes > 0) {
        add_text(&o, " (");
        add_bytes(&o, call->bytes);
        add_text(&o, ", %s)", call_dtype_name(call->dtype));
    }
    if (call->group != 0)
        add_text(&o, " of group %04x", call->group);
    return buf;
}

static void add_time(struct out *o, uint64_t ms)
{
    if (ms < 10000)
        add_text(o, "%.1f s", (double)ms / 1000);
    else
        add_text(o, "%" PRIu64 " s", ms / 1000);
}

static_assert(HANG_NAMED == RANK_LIST_NAMED, "a list names the ranks that a finding has");

static void add_waiting(struct out *o, const struct hang_finding *f, struct rank_numbers numbers)
{
    int named[RANK_LIST_NAMED];
    char text[RANK_LIST_BYTES];
    for (int i = 0; i < f->n_waiting && i < HANG_NAMED; i++)
        named[i] = rank_number(numbers, f->waiting[i]);
    add_text(o, "%s %s waited", rank_list_text(named, f->n_waiting, text),
             f->n_waiting == 1 ? "has" : "have");
}

static void add_missing(struct out *o, const struct hang_finding *f, struct rank_numbers numbers)
{
    char call[HANG_CALL_BYTES];
    const int rank = rank_number(numbers, f->rank);
    if (f->kind == HANG_NOT_JOINED)
        add_text(o, "rank %d has not joined its peers", rank);
    else if (f->has_call)
        add_text(o, "rank %d is missing in %s", rank, hang_text_call(&f->call, call));
    else
        add_text(o, "rank %d keeps its peers waiting", rank);
    if (f->n_alike > 0)
        add_text(o, ", as %d more %s", f->n_alike, f->n_alike == 1 ? "is" : "are");
    if (f->n_waiting == 0)
        return;
    add_text(o, "; ");
    add_waiting(o, f, numbers);
    add_text(o, f->kind == HANG_NOT_JOINED ? " for it for "
                : f->has_call              ? " in it for "
                                           : " for ");
    add_time(o, f->waiting_ms);
    if (f->kind == HANG_MISSING && f->has_last)
        add_text(o, "; its own last call was %s", hang_text_call(&f->last, call));
}

static void add_all_wait(struct out *o, const struct hang_finding *f, struct rank_numbers numbers)
{
    char call[HANG_CALL_BYTES];
    const bool is_elsewhere = f->has_call && (!f->has_last || f->last.state != RANK_STATUS_WAITS ||
                                              f->last.number != f->call.number);
    if (is_elsewhere && !f->is_stopped)
        add_text(o, "rank %d is waiting in another call; all other ranks have waited",
                 rank_number(numbers, f->rank));
    else
        add_text(o, "all ranks have waited");
    if (f->has_call)
        add_text(o, " in %s", hang_text_call(&f->call, call));
    add_text(o, " for ");
    add_time(o, f->still_ms);
    if (is_elsewhere && f->has_last && f->last.state == RANK_STATUS_WAITS)
        add_text(o, "; rank %d is in %s", rank_number(numbers, f->rank),
                 hang_text_call(&f->last, call));
}

static void add_silent(struct out *o, const struct hang_finding *f, struct rank_numbers numbers)
{
    add_text(o, "no rank made progress for ");
    add_time(o, f->still_ms);
    static const char *const odds[] = {
        [HANG_RUNS] = "is the only one running",
        [HANG_SLEEPS] = "sleeps where no other rank does",
        [HANG_LAGS] = "has not called a collective of torch that others wait in"};
    if (f->odd != HANG_NOT_ODD)
        add_text(o, "; rank %d %s", rank_number(numbers, f->rank), odds[f->odd]);
    if (f->has_steps && f->steps < f->most_steps)
        add_text(o, "; rank %d has completed %llu steps, others %llu",
                 rank_number(numbers, f->rank), (unsigned long long)f->steps,
                 (unsigned long long)f->most_steps);
    else if (f->has_steps && f->most_steps > 0)
        add_text(o, "; the last completed step is %llu", (unsigned long long)f->steps);
}

static void add_timer(struct out *o, const struct hang_finding *f, struct rank_numbers numbers)
{
    add_text(o, "a timer of rank %d", rank_number(numbers, f->rank));
    if (f->timer[0] != '\0')
        add_text(o, " ('%s')", f->timer);
    add_text(o, " expired ");
    add_time(o, f->late_ms);
    add_text(o, " ago; it was set ");
    add_time(o, f->still_ms);
    add_text(o, " ago");
}

char *hang_text(const struct hang_finding *f, struct rank_numbers numbers,
                char buf[HANG_TEXT_BYTES])
{
    struct out o = {.buf = buf, .n = HANG_TEXT_BYTES};
    buf[0] = '\0';
    switch (f->kind) {
    case HANG_MISSING:
    case HANG_NOT_JOINED:
        add_missing(&o, f, numbers);
        break;
    case HANG_ALL_WAIT:
        add_all_wait(&o, f, numbers);
        break;
    case HANG_SILENT:
        add_silent(&o, f, numbers);
        break;
    case HANG_TIMER:
        add_timer(&o, f, numbers);
        break;
    case HANG_ASLEEP:
        add_text(&o, "rank %d has slept uninterruptibly in the kernel for ",
                 rank_number(numbers, f->rank));
        add_time(&o, f->still_ms);
        break;
    }
    const bool is_named = f->kind == HANG_MISSING || f->kind == HANG_NOT_JOINED;
    if (f->is_stopped && is_named)
        add_text(&o, "; it is stopped by a signal");
    else if (f->is_stopped)
        add_text(&o, "; rank %d is stopped by a signal", rank_number(numbers, f->rank));
    else if (f->is_guess)
        add_text(&o, "; the hung rank cannot be identified: ddprun terminates rank %d",
                 rank_number(numbers, f->rank));
    return buf;
}

/* --- for programs --- */

static json_t *make_call(bool is_known, const struct rank_status_call *call)
{
    if (!is_known)
        return json_null();
    return json_pack("{s:s,s:I,s:I,s:s,s:i}", "op", call_kind_name(call->kind), "number",
                     (json_int_t)call->number, "bytes", (json_int_t)call->bytes, "dtype",
                     call_dtype_name(call->dtype), "group", (int)call->group);
}

json_t *hang_json_make(const struct hang_finding *f, struct rank_numbers numbers)
{
    static const char *const kinds[] = {
        [HANG_MISSING] = "missing", [HANG_NOT_JOINED] = "not_joined", [HANG_ALL_WAIT] = "all_wait",
        [HANG_SILENT] = "silent",   [HANG_TIMER] = "timer",           [HANG_ASLEEP] = "asleep"};
    json_t *waiting = json_array();
    for (int i = 0; i < f->n_waiting && i < HANG_NAMED; i++)
        json_array_append_new(waiting, json_integer(rank_number(numbers, f->waiting[i])));
    return json_pack("{s:s,s:b,s:I,s:o,s:I,s:o,s:o,s:o}", "kind", kinds[f->kind], "stopped",
                     f->is_stopped, "still_ms", (json_int_t)f->still_ms, "waiting", waiting,
                     "waiting_ms", (json_int_t)f->waiting_ms, "call",
                     make_call(f->has_call, &f->call), "last", make_call(f->has_last, &f->last),
                     "timer", f->timer[0] != '\0' ? json_string(f->timer) : json_null());
}

/* --- what the kernel reports about a process --- */

void hang_proc_read(pid_t pid, struct hang_proc *ret)
{
    char text[512];
    struct co_process process;
    *ret = (struct hang_proc){.state = '?'};
    if (co_process_look(pid, &process, NULL) == 0)
        ret->state = process.state;
    if (co_process_read(pid, "wchan", text, sizeof text) <= 0 || text[0] == '0')
        return; /* it runs, or we may not know */
    snprintf(ret->place, sizeof ret->place, "%.*s", (int)strcspn(text, " \n"), text);
}

char *hang_proc_text(const struct hang_proc *p, char *buf, size_t n)
{
    static const struct {
        char state;
        const char *text;
    } states[] = {{'R', "runs"},
                  {'S', "sleeps"},
                  {'D', "sleeps and cannot be woken"},
                  {'T', "is stopped"},
                  {'t', "is stopped by a debugger"},
                  {'Z', "has ended"}};
    const char *text = "cannot be inspected";
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (states[i].state == p->state)
            text = states[i].text;
    const bool has_place = p->place[0] != '\0' && (p->state == 'S' || p->state == 'D');
    snprintf(buf, n, "%s%s%s", text, has_place ? " in " : "", has_place ? p->place : "");
    return buf;
}
