/* node_priv.h - the node's inside, for its own files: node.c (beginning and end), node_step.c
 * (what happens, and what is done about it), node_start.c (ranks), node_roster.c (where a roster
 * decides), node_console.c (who asks). */
#ifndef DDP_LAUNCHER_NODE_NODE_PRIV_H
#define DDP_LAUNCHER_NODE_NODE_PRIV_H

#include "launcher/diagnosis/oom_watch.h"
#include "launcher/generation/generation.h"
#include "launcher/reporting/event_log.h"
#include "launcher/reporting/events.h"
#include "launcher/spawner/runtime_dir.h"
#include "launcher/spawner/spawner.h"
#include "launcher/stdio/rank_io.h"
#include "launcher/supervisor/supervisor.h"
#include "launcher/warm/warm.h"
#include "start.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct co_error;
struct job_spec;
struct flights;
struct launch_watch;
struct node_console;
struct node_roster;
struct node_hang;
struct node_leave;
struct node_pace;
struct node_pmi;
struct node_standby;
struct output;
struct roster_restart;
struct init_reaper;

struct node {
    const struct job_spec *spec;
    int null_fd;
    struct runtime_dir_names names; /* owned */
    const char *runtime_dir;        /* one of them; NULL: it is not made */
    struct spawner spawner;
    struct supervisor *supervisor;       /* owned */
    struct node_roster *agent;           /* owned */
    struct launch_watch *launch_channel; /* owned; NULL: nobody holds this one */
    struct node_hang *hang;       /* owned by the loop; NULL: nobody looks for ranks that hang */
    struct node_leave *leave;     /* likewise; NULL: an end is not announced */
    struct node_standby *standby; /* likewise; NULL: nobody waits for a rank */
    struct node_pace *pace;       /* likewise; NULL: nobody asks how fast they are */
    struct node_pmi *pmi;         /* likewise; NULL: the ranks are none of MPI's */
    struct flights *flights;      /* owned; NULL: torch's dumps of this generation are told, or none
                                      is looked for */
    struct node_console *console; /* owned */
    struct init_reaper *init_reaper; /* likewise; NULL: there are none */
    struct events events;
    struct event_log event_log;
    struct output *output; /* owned */
    struct rank_io io;
    struct generation gen;
    struct start start;
    char master_ip[INET6_ADDRSTRLEN]; /* of start.place; found if an argument needs it */
    struct oom_watch oom;
    struct warm warm;
    int renew_failure; /* -errno: there is nothing to start the next ranks with */
    int signal_fd;
    int n_started; /* ranks asked for: the next one's number */
    uint64_t begun_ms;
    bool ended;
    uv_loop_t loop;
    bool has_loop;
    uv_poll_t spawner_poll, signal_poll, warm_poll; /* zeroed: not there */
    uv_timer_t timer, timeout, settled;
};

/* --- node.c --- */

/* Lines of our own, each ended by a newline. */
__attribute__((format(printf, 2, 3))) void node_say(struct node *n, const char *format, ...);
struct generation_callbacks node_generation_callbacks(struct node *n);

/* A GPU's memory is free when its process has been reaped, and who takes its place needs it: no
 * rank is to be taken for dead earlier. */
bool node_waits_for_devices(const struct node *n);

/* --- node_start.c --- */

/* What the ranks of the generation before had is gone with them; the next ones find all empty. */
void node_renew(struct node *n);

/* Make a generation for ranks that live, and start those in it that the supervisor asked for. */
void node_recover(struct node *n, const struct supervisor_orders *o);

/* Each rank that the supervisor asked for gets an answer, also those that were not tried. */
void node_start_ranks(struct node *n, int n_start);

/* A rank that was asked for could not be started the way that was tried: start it as ever. */
void node_start_again(struct node *n, int rank);
/* Ask for the parent of --warm, if that has not been done. */
void node_warm_up(struct node *n);

/* --- node_step.c --- */

/* Print why the last generation ended.
 *
 * restart   what follows; NULL: nothing, the job is over */
void node_report(struct node *n, const struct roster_restart *restart);

/* Say that a rank was replaced, or left out, in place. */
void node_say_replacement(struct node *n, const struct roster_restart *restart);

/* Feed the supervisor, the time filled in, and carry out what follows, which may feed it again. */
void node_feed(struct node *n, struct supervisor_event *e);
void node_carry_out(struct node *n, const struct supervisor_orders *o);
void node_lose_spawner(struct node *n);

/* For uv_poll_start() and uv_timer_start(), with the node as data. */
void node_on_spawner(uv_poll_t *poll, int status, int events);
void node_on_signal(uv_poll_t *poll, int status, int events);
void node_on_timeout(uv_timer_t *timer);

#endif
