#include "node_view.h"

#include "launcher/job/job_spec.h"
#include "launcher/stdio/output.h"

#include "common/error.h"
#include "common/process.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void node_say(const struct node_view *v, enum co_severity severity, const char *format, ...)
{
    char text[CO_ERROR_TEXT_BYTES + 64];
    char line[sizeof text + sizeof "ddprun: warning: \n"];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(line, sizeof line, "ddprun: %s: %s\n", co_severity_name(severity), text);
    output_say(v->output, line);
}

enum { MAX_ANCESTORS = 16 }; /* between a process and its rank */

int node_rank_above(const struct node_view *v, pid_t pid)
{
    struct co_process process;
    for (int hops = 0; hops < MAX_ANCESTORS && pid > 1; hops++) {
        for (int i = 0; i < v->spec->n_local; i++) {
            const struct supervisor_rank *r = supervisor_get_rank(v->supervisor, i);
            if (r->phase == RANK_RUNS && r->pid == pid)
                return i;
        }
        if (co_process_look(pid, &process, NULL) < 0)
            return -1;
        pid = process.parent;
    }
    return -1;
}

static bool make_room(struct node_queue *q)
{
    if (q->n < q->capacity)
        return true;
    const size_t capacity = q->capacity == 0 ? 16 : 2 * q->capacity;
    struct supervisor_event *events = realloc(q->events, capacity * sizeof *events);
    if (events == NULL)
        return false;
    q->events = events;
    q->capacity = capacity;
    return true;
}

void node_post(const struct node_view *v, const struct supervisor_event *e)
{
    struct node_queue *q = v->queue;
    if (make_room(q))
        q->events[q->n++] = *e;
    else
        q->has_overflowed = true;
}

void node_lose_spawner(const struct node_view *v)
{
    node_post(v, &(struct supervisor_event){.type = SUPERVISOR_EV_SPAWNER_LOST});
}

void node_free_data(uv_handle_t *handle)
{
    free(handle->data);
}

bool node_queue_is_empty(const struct node_queue *q)
{
    return q->first == q->n && !q->has_overflowed;
}

/* A node that has lost an event cannot know what its ranks do: it ends them, as if it had lost the
 * spawner. */
static struct supervisor_event take(struct node_queue *q)
{
    if (q->first < q->n)
        return q->events[q->first++];
    q->has_overflowed = false;
    return (struct supervisor_event){.type = SUPERVISOR_EV_SPAWNER_LOST};
}

void node_queue_drain(struct node_queue *q)
{
    if (q->is_draining)
        return;
    q->is_draining = true;
    while (!node_queue_is_empty(q)) {
        struct supervisor_event e = take(q);
        q->consume(q->arg, &e);
    }
    q->first = q->n = 0;
    q->is_draining = false;
}

struct supervisor_progress node_progress(const struct node_view *v)
{
    struct supervisor_progress p = {0};
    if (v->spec->restart_after_progress) {
        p.n_steps = generation_most_steps(v->gen, v->spec->n_local);
        p.output_ms = output_last_ms(v->output);
    }
    if (v->spec->no_progress > 0)
        p.total_steps = generation_total_steps(v->gen, v->spec->n_local);
    return p;
}
