/* fitness.c - libuv around health.h.
 *
 * Read fitness_note_member() first: the states of the member show when a check is needed, and
 * feed() gives that to the machine. Its orders begin a check: begin_probe() asks the process that
 * reads facts, begin_command() starts the command, both at the same time. What they answer is put
 * together in settle_check(), which feeds GOOD or BAD, and that is reported through the member
 * (opts.on_result).
 *
 * Invariant: the member is never stepped from within fitness_note_member(), which is called
 * from its own step. A check that cannot begin fails from the loop. */
#include "fitness.h"

#include "launcher/diagnosis/stacks.h"
#include "launcher/health/health_probe.h"
#include "launcher/job/job_spec.h"
#include "launcher/platform/gpus.h"
#include "launcher/reporting/events.h"
#include "launcher/reporting/health_list.h"
#include "launcher/reporting/report.h"
#include "launcher/supervisor/health.h"
#include "launcher/supervisor/supervisor.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

enum {
    OUTPUT_BYTES = 4096, /* of the command's; its last line is in them */
    MEMORY_WAIT_MS = 10000,
    SPARE_MS = 60000, /* the child runner's own limit comes after ours */
};

enum answer { NO_ANSWER, AWAITED, WELL };

struct fitness {
    struct fitness_opts opts;
    const struct health_spec *spec;
    bool checks;
    struct health machine;
    uv_timer_t timer;

    enum answer command, probe; /* of the check that runs */
    struct stack_tool *tool;    /* runs; NULL: none does */
    struct health_probe process;
    uv_poll_t *poll; /* owned by the loop when it is closed; NULL: none */
    unsigned n_owed; /* answers of the process; only the last one counts */
    bool has_failed; /* the check could not begin, with `text` */
    bool has_first;
    struct health_facts first, facts;
    struct health_clock clock;
    char text[HEALTH_TEXT_BYTES]; /* why the check has failed */

    struct health_list list;
};

_Static_assert((int)HEALTH_TEXT_BYTES <= (int)MESSAGE_HEALTH_BYTES, "a reason fits in a message");

static void feed(struct fitness *h, enum health_event_type type);

/* --- The results of a check --- */

static uint32_t generation(const struct fitness *h)
{
    return supervisor_generation(h->opts.supervisor);
}

static void settle_check(struct fitness *h)
{
    if (h->command != AWAITED && h->probe != AWAITED)
        feed(h, HEALTH_EV_GOOD);
}

/* What else runs of the check does not matter any more. */
static void end_check(struct fitness *h)
{
    stack_tool_cancel(h->tool);
    h->tool = NULL;
    h->command = h->probe = NO_ANSWER;
    h->has_failed = false;
}

static void fail_check(struct fitness *h)
{
    end_check(h);
    feed(h, HEALTH_EV_BAD);
}

/* --- The command --- */

/* Its last line that is not empty, in place. */
static const char *last_line(char *text)
{
    size_t n = strlen(text);
    while (n > 0 && strchr(" \t\r\n", text[n - 1]) != NULL)
        text[--n] = '\0';
    const char *newline = strrchr(text, '\n');
    return newline != NULL ? newline + 1 : text;
}

static void take_reason(struct fitness *h, const char *output, int status)
{
    char text[OUTPUT_BYTES + 1], end[REPORT_STATUS_BYTES];
    snprintf(text, sizeof text, "%s", output);
    const char *line = last_line(text);
    if (*line != '\0')
        snprintf(h->text, sizeof h->text, "%s", line);
    else
        snprintf(h->text, sizeof h->text, "the health command ended without output: %.100s",
                 report_status(status, end, sizeof end));
    co_utf8_clean(h->text, strlen(h->text));
}

static void on_command(void *arg, const char *output, int status, bool timed_out)
{
    struct fitness *h = arg;
    (void)timed_out; /* our own limit comes first */
    h->tool = NULL;
    if (h->command != AWAITED)
        return;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        h->command = WELL;
        settle_check(h);
        return;
    }
    take_reason(h, output, status);
    fail_check(h);
}

static int begin_command(struct fitness *h, struct co_error *err)
{
    char *const argv[] = {"sh", "-c", h->spec->command, NULL};
    const struct stack_tool_opts opts = {.path = "/bin/sh",
                                         .argv = argv,
                                         .max_bytes = OUTPUT_BYTES,
                                         .keeps_end = true,
                                         .timeout_ms = h->spec->timeout_ms + SPARE_MS,
                                         .on_done = on_command,
                                         .arg = h};
    h->command = AWAITED;
    return stack_tool_begin(h->opts.loop, &opts, &h->tool, err);
}

/* --- The process that reads facts --- */

static void free_poll(uv_handle_t *handle)
{
    free(handle->data);
}

static void stop_process(struct fitness *h)
{
    if (h->poll != NULL) {
        h->poll->data = h->poll;
        uv_close((uv_handle_t *)h->poll, free_poll);
    }
    h->poll = NULL;
    h->n_owed = 0;
    health_probe_stop(&h->process);
}

static void judge(struct fitness *h)
{
    if (!health_checks_judge(&h->spec->builtin, h->opts.spec->output.log_dir,
                             h->has_first ? &h->first : NULL, &h->facts, &h->clock, h->text)) {
        fail_check(h);
        return;
    }
    if (!h->has_first)
        h->first = h->facts;
    h->has_first = true;
    h->probe = WELL;
    settle_check(h);
}

static void on_facts(uv_poll_t *poll, int status, int events)
{
    struct fitness *h = poll->data;
    (void)status;
    (void)events;
    const int rc = health_probe_receive(&h->process, &h->facts);
    if (rc == -EAGAIN)
        return;
    if (rc == 1 && h->n_owed > 0 && --h->n_owed > 0)
        return; /* of a check that was canceled */
    if (rc == 1 && h->probe == AWAITED) {
        judge(h);
    } else if (rc == 0) {
        stop_process(h);
        snprintf(h->text, sizeof h->text, "the process of the built-in checks has ended");
        if (h->probe == AWAITED)
            fail_check(h);
    }
}

static int start_process(struct fitness *h, struct co_error *err)
{
    const struct health_probe_opts opts = {
        .checks = &h->spec->builtin,
        .root = "",
        .log_dir = h->opts.spec->output.log_dir,
        .nvml = "libnvidia-ml.so.1",
        .visible = h->opts.spec->gpus != NULL ? h->opts.spec->gpus : gpus_visible_here()};
    uv_poll_t *poll = calloc(1, sizeof *poll);
    if (poll == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    int rc = health_probe_start(&opts, &h->process, err);
    if (rc == 0 && (rc = uv_poll_init(h->opts.loop, poll, h->process.sock)) < 0)
        co_fail(err, rc, "cannot watch its process: %s", uv_strerror(rc));
    if (rc < 0) {
        free(poll);
        health_probe_stop(&h->process);
        return rc;
    }
    h->poll = poll;
    poll->data = h;
    uv_poll_start(poll, UV_READABLE, on_facts);
    return 0;
}

static int begin_probe(struct fitness *h, struct co_error *err)
{
    const uint64_t most_ms = h->spec->timeout_ms / 2;
    h->probe = AWAITED;
    int rc = h->process.pid == 0 ? start_process(h, err) : 0;
    if (rc < 0)
        return rc;
    rc = health_probe_ask(&h->process, h->has_first ? &h->first : NULL,
                          (uint32_t)(most_ms < MEMORY_WAIT_MS ? most_ms : MEMORY_WAIT_MS));
    if (rc < 0)
        return co_fail(err, rc, "cannot ask its process: %s", strerror(-rc));
    h->n_owed++;
    return 0;
}

/* --- Orders --- */

static void begin_check(struct fitness *h)
{
    struct co_error err;
    int rc = 0;
    end_check(h);
    if (health_checks_any(&h->spec->builtin))
        rc = begin_probe(h, &err);
    if (rc == 0 && h->spec->command != NULL)
        rc = begin_command(h, &err);
    if (rc == 0)
        return;
    snprintf(h->text, sizeof h->text, "its health cannot be checked: %.140s", err.text);
    end_check(h);
    h->has_failed = true;
}

static void note_late(struct fitness *h)
{
    const bool is_probe = h->probe == AWAITED;
    snprintf(h->text, sizeof h->text, "%s did not end within %.3g s (--health-timeout)",
             is_probe ? "the built-in checks" : "the health command",
             (double)h->spec->timeout_ms / 1e3);
    if (is_probe) /* a file system or a driver holds it */
        stop_process(h);
}

__attribute__((format(printf, 3, 4))) static void
say(const struct fitness *h, enum co_severity severity, const char *format, ...)
{
    char text[CO_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    h->opts.on_note(h->opts.arg, severity, text);
}

static void say_bad(const struct fitness *h)
{
    const uint64_t at_ms = health_deadline_ms(&h->machine), now_ms = co_now_ms();
    say(h, CO_WARNING, "node %s is unhealthy: %s; checking it again in %.0f s", h->opts.name,
        h->text, at_ms > now_ms ? (double)(at_ms - now_ms) / 1e3 : 0.0);
}

static void report(struct fitness *h, bool is_fit)
{
    const bool is_news =
        health_list_note(&h->list, h->opts.name, is_fit ? MESSAGE_FIT : MESSAGE_UNFIT, h->text);
    if (is_news)
        events_health(h->opts.events, generation(h), h->opts.name, is_fit ? "healthy" : "unhealthy",
                      is_fit ? NULL : h->text);
    if (is_news && !is_fit)
        say_bad(h);
    else if (is_news)
        say(h, CO_NOTE, "node %s is healthy again", h->opts.name);
    h->opts.on_result(h->opts.arg, is_fit, h->text);
}

static void on_timer(uv_timer_t *timer)
{
    struct fitness *h = timer->data;
    if (h->has_failed)
        fail_check(h);
    else
        feed(h, HEALTH_EV_DUE);
}

static void set_timer(struct fitness *h)
{
    const uint64_t deadline_ms = health_deadline_ms(&h->machine), now_ms = co_now_ms();
    if (deadline_ms == CO_NEVER_MS) {
        uv_timer_stop(&h->timer);
        return;
    }
    uv_update_time(h->opts.loop);
    uv_timer_start(&h->timer, on_timer,
                   h->has_failed || deadline_ms <= now_ms ? 0 : deadline_ms - now_ms, 0);
}

static void feed(struct fitness *h, enum health_event_type type)
{
    struct health_orders o;
    health_step(&h->machine, type, co_now_ms(), &o);
    if (o.is_late)
        note_late(h);
    if (o.cancel)
        end_check(h);
    if (o.begin)
        begin_check(h);
    set_timer(h);
    if (o.report_fit || o.report_unfit)
        report(h, o.report_fit);
}

/* --- What happens --- */

/* The clock is compared with that of the coordinator, which has to be found first. */
static bool may_check(const struct fitness *h, enum member_state state)
{
    return state == MEMBER_WAITING || state == MEMBER_PARKED ||
           (state == MEMBER_JOINING && !h->spec->builtin.clock);
}

void fitness_note_member(struct fitness *h, enum member_state from, enum member_state to)
{
    if (h == NULL || !h->checks || from == to)
        return;
    if (may_check(h, to) && (!may_check(h, from) || to == MEMBER_JOINING))
        feed(h, HEALTH_EV_NEEDED);
    else if (!may_check(h, to))
        feed(h, HEALTH_EV_TAKEN);
}

void fitness_hear(struct fitness *h, const struct message_health *health)
{
    static const char *const states[] = {
        [MESSAGE_FIT] = "healthy", [MESSAGE_UNFIT] = "unhealthy", [MESSAGE_FIT_GONE] = "gone"};
    if (h != NULL && health_list_note(&h->list, health->node, health->fitness, health->text))
        events_health(h->opts.events, generation(h), health->node, states[health->fitness],
                      health->fitness == MESSAGE_UNFIT ? health->text : NULL);
}

void fitness_hear_clock(struct fitness *h, const struct message_welcome *welcome)
{
    const uint64_t now_ms = co_now_ms();
    struct timespec now;
    if (h == NULL || welcome->clock_ms == 0 || welcome->sent_ms > now_ms)
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    const int64_t half_ms = (int64_t)(now_ms - welcome->sent_ms) / 2;
    const int64_t own_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    h->clock = (struct health_clock){.is_known = true,
                                     .ahead_ms = own_ms - (int64_t)welcome->clock_ms - half_ms,
                                     .error_ms = (uint64_t)half_ms + 1};
}

const struct health_list *fitness_list(const struct fitness *h)
{
    return h != NULL ? &h->list : NULL;
}

/* --- Beginning and end --- */

int fitness_create(const struct fitness_opts *opts, struct fitness **ret, struct co_error *err)
{
    struct fitness *h = calloc(1, sizeof *h);
    if (h == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    h->opts = *opts;
    h->spec = &opts->spec->health;
    h->checks = job_spec_checks(opts->spec);
    h->process = (struct health_probe){.sock = -1};
    health_init(&h->machine, h->spec->timeout_ms);
    uv_timer_init(opts->loop, &h->timer);
    h->timer.data = h;
    *ret = h;
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    struct fitness *h = handle->data;
    health_list_fini(&h->list);
    free(h);
}

void fitness_close(struct fitness *h)
{
    if (h == NULL)
        return;
    end_check(h);
    stop_process(h);
    uv_close((uv_handle_t *)&h->timer, on_closed);
}
