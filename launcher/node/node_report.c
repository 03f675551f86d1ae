/* node_report.c - which process writes the file of --report, and when. Read node_report_finish()
 * first: it sends this node's result, or collects those of others and writes the file, or writes a
 * file of this node alone. */
#include "node_report.h"

#include "launcher/job/job_spec.h"
#include "launcher/stdio/output.h"
#include "launcher/supervisor/supervisor.h"
#include "node_view.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/scope.h"
#include "rendezvous/membership/lease.h"

#include <errno.h>
#include <stdlib.h>

enum { SLACK_MS = 2000 };

struct node_report {
    const struct node_view *n;
    struct node_report_link link;
    struct node_result own;
    struct job_report collected;
    bool is_asked, writes, stays, all_in; /* according to the coordinator */
    bool is_over;
    uv_timer_t timer;
    uint64_t deadline_ms;
    void (*on_done)(void *arg); /* NULL: nothing is waited for */
    void *arg;
};

void node_report_set_link(const struct node_view *n, const struct node_report_link *link)
{
    if (n->parts->report != NULL)
        n->parts->report->link = *link;
}

bool node_report_may_write(const struct node_view *n)
{
    return n->spec->report != NULL && !job_report_is_by_node(n->spec->report);
}

bool node_report_needs_link(const struct node_view *n)
{
    const struct node_report *p = n->parts->report;
    return p != NULL && p->is_asked && !p->is_over;
}

struct node_result *node_report_result(const struct node_view *n)
{
    struct node_report *p = n->parts->report;
    return p != NULL && (p->is_asked || n->spec->report != NULL) ? &p->own : NULL;
}

/* --- The file --- */

static void collect(struct node_report *p, const struct message *result)
{
    if (job_report_add(&p->collected, result) < 0)
        node_say(p->n, CO_WARNING, "out of memory: the report lacks some ranks");
}

static void write_file(struct node_report *p)
{
    const struct message *m = &p->own.message;
    struct job_report_end *end = &p->own.end;
    co_autofree char *path = job_report_path(p->n->spec->report, m->result.node_index);
    struct co_error err;
    collect(p, m);
    if (end->exit_code == 0 && output_has_loss(p->n->output) && !p->n->spec->as_torchrun)
        end->exit_code = OUTPUT_EXIT_LOST;
    end->output_error = output_error(p->n->output);
    end->unhealthy = p->n->parts->unhealthy;
    if (path == NULL)
        co_fail(&err, -ENOMEM, "out of memory");
    if (path == NULL || job_report_write(&p->collected, end, path, &err) < 0)
        node_say(p->n, CO_WARNING, "%s", err.text);
}

/* --- The end --- */

static void finish(struct node_report *p)
{
    void (*on_done)(void *arg) = p->on_done;
    p->on_done = NULL;
    p->is_over = true;
    uv_timer_stop(&p->timer);
    if (p->writes)
        write_file(p);
    p->link.hang_up(p->link.arg);
    if (on_done != NULL)
        on_done(p->arg);
}

static void finish_if_all_in(struct node_report *p)
{
    if (p->on_done != NULL && p->all_in)
        finish(p);
}

/* A coordinator elsewhere is not to take this node for lost. */
static void on_timer(uv_timer_t *timer)
{
    struct node_report *p = timer->data;
    const struct message m = {.type = MESSAGE_KEEP_ALIVE,
                              .generation = MESSAGE_NO_GENERATION,
                              .keep_alive = {.sent_ms = co_now_ms()}};
    if (co_now_ms() >= p->deadline_ms)
        finish(p);
    else
        p->link.send(p->link.arg, &m);
}

static void await_others(struct node_report *p, void (*on_done)(void *arg), void *arg)
{
    p->on_done = on_done;
    p->arg = arg;
    p->deadline_ms = co_now_ms() + p->link.stop_ms + SLACK_MS;
    uv_update_time(p->n->loop);
    uv_timer_start(&p->timer, on_timer, LEASE_KEEP_ALIVE_MS, LEASE_KEEP_ALIVE_MS);
    finish_if_all_in(p);
}

/* The coordinator has not asked: this node is alone, left the others, or has lost them. Or it has
 * asked, and is gone: what only this node knows is not to be lost. */
static bool writes_alone(const struct node_report *p)
{
    if (p->n->spec->report == NULL)
        return false;
    return !node_report_may_write(p->n) || !p->is_asked ||
           (!p->writes && !p->link.is_up(p->link.arg) && p->own.has_cause);
}

void node_report_finish(const struct node_view *n, void (*on_done)(void *arg), void *arg)
{
    struct node_report *p = n->parts->report;
    if (p == NULL || p->is_over || !p->own.is_made) {
        on_done(arg);
        return;
    }
    if (writes_alone(p))
        write_file(p);
    if (p->is_asked && !p->writes)
        p->link.send(p->link.arg, &p->own.message);
    if (p->is_asked && p->stays && p->link.is_up(p->link.arg)) {
        await_others(p, on_done, arg);
        return;
    }
    p->on_done = on_done;
    p->arg = arg;
    finish(p);
}

void node_report_end(const struct node_view *n)
{
    struct node_report *p = n->parts->report;
    if (p != NULL && p->on_done != NULL) {
        p->on_done = NULL; /* the loop has ended */
        finish(p);
    }
}

/* --- Messages of the coordinator --- */

void node_report_hear(const struct node_view *n, const struct message *m)
{
    struct node_report *p = n->parts->report;
    if (p == NULL || p->is_over)
        return;
    if (m->result.kind == MESSAGE_RESULT_ASKED) {
        p->is_asked = true;
        p->writes |= m->result.writes && node_report_may_write(n);
        p->stays |= m->result.stays;
    } else if (m->result.kind == MESSAGE_RESULT_ALL) {
        p->all_in = true;
        finish_if_all_in(p);
    } else if (p->writes) {
        collect(p, m);
    }
}

void node_report_lose_link(const struct node_view *n)
{
    struct node_report *p = n->parts->report;
    if (p == NULL)
        return;
    p->all_in = true; /* no more come */
    finish_if_all_in(p);
}

/* --- Beginning and end --- */

static int report_open(const struct node_view *n, struct co_error *err)
{
    if (n->spec->report == NULL && !n->spec->world.has_others)
        return 0;
    struct node_report *p = calloc(1, sizeof *p);
    if (p == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    p->n = n;
    uv_timer_init(n->loop, &p->timer);
    p->timer.data = p;
    n->parts->report = p;
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    struct node_report *p = handle->data;
    node_result_fini(&p->own);
    job_report_fini(&p->collected);
    free(p);
}

static void report_close(const struct node_view *n)
{
    if (n->parts->report != NULL)
        uv_close((uv_handle_t *)&n->parts->report->timer, on_closed);
    n->parts->report = NULL;
}

const struct node_feature node_report_feature = {.open = report_open, .close = report_close};
