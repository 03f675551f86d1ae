/* node_priv.h - the node's inside, for node.c (beginning and end), node_step.c (what happens, and
 * what is done about it), node_start.c (ranks) and node_features.c. Other files of this directory
 * see struct node_view only. */
#ifndef DDP_LAUNCHER_NODE_NODE_PRIV_H
#define DDP_LAUNCHER_NODE_NODE_PRIV_H

#include "launcher/diagnosis/oom_watch.h"
#include "launcher/reporting/event_log.h"
#include "launcher/reporting/node_result.h"
#include "launcher/spawner/runtime_dir.h"
#include "launcher/torch/torch_hook.h"
#include "launcher/warm/warm.h"
#include "node_view.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct co_error;
struct launch_watch;
struct roster_link_ops;
struct roster_restart;
struct init_reaper;

struct node {
    const struct job_spec *spec;
    int null_fd;
    struct runtime_dir_names names; /* owned */
    const char *runtime_dir;        /* one of them; NULL: it is not made */
    struct spawner spawner;
    struct supervisor *supervisor;       /* owned */
    struct launch_watch *launch_channel; /* owned; NULL: not started through one */
    struct init_reaper *init_reaper;     /* owned; NULL: not the first process of a container */
    struct events events;
    struct event_log event_log;
    struct output *output; /* owned */
    struct rank_io io;
    struct generation gen;
    struct generation_callbacks callbacks; /* of each of them */
    struct start start;
    int encrypt_fd; /* the secret of the job for its ranks (data_secret.h); -1: none */
    int memory_fd;  /* where its ranks keep checkpoints (checkpoint_memory.h); -1: nowhere */
    char master_ip[INET6_ADDRSTRLEN]; /* of start.place; found if an argument needs it */
    struct oom_watch oom;
    struct warm warm;
    struct torch_hook torch_hook; /* zeroed: not wanted */
    uint16_t ras_port; /* of NCCL's RAS, as the ranks have it; 0: theirs is not set here */
    int renew_failure; /* -errno: there is nothing to start the next ranks with */
    int signal_fd;
    uint32_t n_charged;    /* restarts, of a job of this node alone */
    uint64_t heard_ms[32]; /* node_hears_again(): by signal; 0: not yet */
    int n_started;         /* ranks asked for: the next one's number */
    int n_held;            /* of those that the supervisor asked for: they wait for node_resume() */
    struct spawner_report held; /* a failure that waits for a dump; node_dump.h */
    uint64_t held_since_ms;     /* 0: none is held */
    bool ended, has_reported;
    bool has_told_teardown; /* that what was killed runs for long */
    struct node_queue queue;
    struct node_parts parts; /* owned */
    struct node_view view;   /* a view of all this, for the features */
    uv_loop_t loop;
    bool has_loop;
    uv_poll_t spawner_poll, signal_poll, warm_poll; /* zeroed: not there */
    uv_timer_t timer, timeout, settled, drain_timer;
    uv_prepare_t prepare;
};

/* --- node.c: what node_run() does, in this order --- */

void node_init(struct node *n, const struct job_spec *spec, int null_fd);

/* The spawner runs, and n->signal_fd is there. returns   as node_run() */
int node_open(struct node *n, const struct roster_link_ops *link, struct co_error *err);

/* The job begins; the rest happens in the loop. */
void node_begin(struct node *n);
void node_close(struct node *n); /* also after a failure */

/* This node waits for a place. */
void node_on_spare(void *arg);

/* --- node_features.c: struct node_feature, of all of them --- */

int node_features_open(const struct node_view *n, struct co_error *err);
void node_features_on_event(const struct node_view *n, const struct supervisor_event *e);
void node_features_on_step(const struct node_view *n);
int node_features_on_generation(const struct node_view *n);
void node_features_on_end(const struct node_view *n, bool lives);
void node_features_close(const struct node_view *n);

/* --- node_start.c --- */

/* A GPU's memory is free when its process has been reaped, and the rank in its place needs it: no
 * rank is to be taken for dead earlier. */
bool node_waits_for_devices(const struct node *n);

/* What the ranks of the generation before had is gone with them; the next ones find all empty. */
void node_renew(struct node *n);

/* Make a generation for ranks that live, and start those in it that the supervisor asked for. */
void node_recover(struct node *n, const struct supervisor_orders *o);

/* Each rank that the supervisor asked for gets an answer, also those that were not tried. */
void node_start_ranks(struct node *n, int n_start);

/* Of struct node_view: start the ranks that were held. */
void node_resume(struct node *n, int failure);

/* The job stops: the ranks that are held are not started. */
void node_drop_held(struct node *n);

/* A rank that was asked for could not be taken by a standby: start it. */
void node_start_again(struct node *n, int rank);

/* Ask for the parent of --warm, if that has not been done. */
void node_warm_up(struct node *n);

/* --- node_step.c --- */

/* Of struct node_queue: step the supervisor, and carry its orders out. */
void node_consume(void *arg, struct supervisor_event *e);

/* The callback of struct node_roster_opts: reports why the last generation ended, and what
 * follows. */
void node_on_restart(void *arg, const struct roster_restart *restart);

/* What of the report is not about ranks. What the roster of a node that is alone has charged is
 * known without a verdict. */
struct node_result_place node_result_place(const struct node *n);

/* An event from outside: post it, and drain the queue. */
void node_feed(struct node *n, const struct supervisor_event *e);

/* Drain the queue, and look whether the roster has something new, until nothing is left. */
void node_settle(struct node *n);

/* Is this the same signal once more, which Slurm sends to each process of a step: also to the
 * launching ddprun, which passes it on, and twice at the end of a job's time? A signal that a
 * person sends, such as ^C, counts each time. */
bool node_hears_again(struct node *n, int sig);

/* For uv_poll_start() and uv_timer_start(), with the node as data. */
void node_on_spawner(uv_poll_t *poll, int status, int events);
void node_on_signal(uv_poll_t *poll, int status, int events);
void node_on_timeout(uv_timer_t *timer);

#endif
