/* node_view.h - what a feature sees of its node, and what it can do: read, print messages, and post
 * an event for the supervisor.
 *
 * A feature never steps the supervisor itself: a step may call each feature, and so the one that
 * asked for it. Events wait in a queue. The node drains it before the loop waits for anything, and
 * after each event from outside. */
#ifndef DDP_LAUNCHER_NODE_NODE_VIEW_H
#define DDP_LAUNCHER_NODE_NODE_VIEW_H

#include "launcher/generation/generation.h"
#include "launcher/reporting/events.h"
#include "launcher/spawner/spawner.h"
#include "launcher/start/start.h"
#include "launcher/stdio/rank_io.h"
#include "launcher/supervisor/rank_numbers.h"
#include "launcher/supervisor/supervisor.h"

#include "common/error.h"

#include <stdbool.h>
#include <uv.h>

struct flights;
struct health_list;
struct job_spec;
struct message;
struct node;
struct output;
struct torch_hook;
struct trainjob_poster;

struct node_queue {
    struct supervisor_event *events; /* owned */
    size_t first, n, capacity;       /* from `first` on they wait */
    bool is_draining;
    bool has_overflowed; /* an event is lost, for want of memory */
    void (*consume)(void *arg, struct supervisor_event *e);
    void *arg;
};

struct node_view { /* all borrowed */
    const struct job_spec *spec;
    uv_loop_t *loop;
    const struct supervisor *supervisor;
    const struct spawner *spawner;
    const struct generation *gen;
    struct start *start;
    const struct rank_io *io;
    const char *runtime_dir;
    const struct runtime_dir_names *runtime_names;
    const struct torch_hook *torch_hook;
    uint64_t begun_ms; /* the job */
    struct events *events;
    struct output *output;
    struct node_queue *queue;
    struct node_parts *parts;
    struct node *node; /* opaque to features */

    /* The ranks that a feature held back (node_pmi_is_meeting()) can be started; failure: -errno,
     * none of them can. */
    void (*resume)(struct node *node, int failure);
};

/* What features keep, each by its own file; NULL: the job has not asked for it, or it is closed. */
struct node_parts {
    struct node_dump *dump;
    const char *dump_dir; /* of the job: dumps go into attempt_GENERATION below it; NULL: none */
    struct node_errors *errors;
    struct node_figures *figures;
    struct node_goodput *goodput;
    struct node_hang *hang;
    struct node_http *http;
    const char *http_address; /* "127.0.0.1:8080", of node_http; NULL: not served */
    struct node_leave *leave;
    struct node_standby *standby;
    struct node_status *status;
    /* of node_status: a FIGURES came from the coordinator; NULL: closed */
    void (*hear_figures)(const struct node_view *n, const struct message *m);
    const struct health_list *unhealthy; /* of node_roster: lent; NULL: no node checks its health */
    struct node_timers *timers;
    const char *timer_file;           /* of node_timers; NULL: not served */
    struct trainjob_poster *trainjob; /* of node_status */
    struct node_pace *pace;
    struct node_pmi *pmi;
    struct node_ras *ras;
    struct flights *flights; /* torch's dumps of this generation, which are not reported yet */
    struct node_console *console;
    struct node_report *report;
    struct node_roster *roster;
};

/* What the node calls a feature for; NULL: not for that. node_features.c has the list. */
struct node_feature {
    /* Make the part, if the job asks for it. returns   0, -ENOMEM */
    int (*open)(const struct node_view *n, struct co_error *err);

    /* A fact from outside, which the supervisor is to hear next. */
    void (*on_event)(const struct node_view *n, const struct supervisor_event *e);

    /* The supervisor has made a step, and its orders are carried out. */
    void (*on_step)(const struct node_view *n);

    /* The first ranks of a generation are about to be started; their place is known. returns   0;
     * -errno: they cannot be, and a message was printed */
    int (*on_generation)(const struct node_view *n);

    /* A generation is over; its memory is still there. lives: its ranks continue in the next
     * one. */
    void (*on_end)(const struct node_view *n, bool lives);

    /* Close what the loop knows; what is left is freed from the loop. */
    void (*close)(const struct node_view *n);
};

static inline struct rank_numbers node_numbers(const struct node_view *v)
{
    return (struct rank_numbers){.first = v->start->first_rank, .supervisor = v->supervisor};
}

/* The local rank that a process is, or that it descends from; -1: none that runs. */
int node_rank_above(const struct node_view *v, pid_t pid);

/* Write "ddprun: SEVERITY: TEXT" to stderr. */
__attribute__((format(printf, 3, 4))) void
node_say(const struct node_view *v, enum co_severity severity, const char *format, ...);

/* The supervisor gets it, the time filled in, when the queue is drained. Copied. */
void node_post(const struct node_view *v, const struct supervisor_event *e);

/* Post that the spawner is gone or does not answer. */
void node_lose_spawner(const struct node_view *v);

/* What the ranks of this generation have achieved. Reading it costs a cache line for each rank. */
struct supervisor_progress node_progress(const struct node_view *v);

/* For uv_close(): free the handle's data. */
void node_free_data(uv_handle_t *handle);

bool node_queue_is_empty(const struct node_queue *q);

/* Consume all that waits, and what is posted meanwhile. Does nothing while it is under way. */
void node_queue_drain(struct node_queue *q);

#endif
