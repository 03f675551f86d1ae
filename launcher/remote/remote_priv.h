/* remote_priv.h - the inside of remote.h, for its own files: remote.c (the whole), remote_plan.c
 * (what all hosts are told) and remote_host.c (one host: its process, its launch channel, what it
 * writes before it is a node). */
#ifndef DDP_LAUNCHER_REMOTE_REMOTE_PRIV_H
#define DDP_LAUNCHER_REMOTE_REMOTE_PRIV_H

#include "launch_wire.h"
#include "launcher/hosts/host_list.h"
#include "launcher/spawner/spawner.h"
#include "payload.h"

#include "common/error.h"

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

struct job_spec;
struct job_world;
struct bringup;
struct output;
struct remote;
struct remote_roster;
struct init_reaper;

enum {
    REMOTE_HEARD_MAX_BYTES = 16384, /* of standard error, kept until the host is a node */
    REMOTE_WHY_BYTES = 400,
};

struct remote_host {
    struct remote *remote;
    const struct host *host;
    uint32_t n_ranks;          /* UINT32_MAX: it finds out itself */
    bool is_here;              /* this machine: no ssh */
    int in_fd, out_fd, err_fd; /* our ends; -1: closed, or output's */
    uv_poll_t in_poll, out_poll, err_poll;
    bool is_told;     /* it was sent its order */
    bool was_sent;    /* the payload, or some of it */
    bool is_writing;  /* in_poll waits for room */
    size_t n_to_send; /* bytes of the payload that are still to be written, before to_write */
    struct co_buf to_write;
    struct co_buf heard;          /* of its standard output, up to our lines */
    struct co_buf complaint;      /* of its standard error */
    char from[LAUNCH_FROM_BYTES]; /* the address of ours that it was started from; "": unknown */
    int pidfd;                    /* -1: it does not run */
    bool runs;
    bool is_killed;             /* by us, whatever its status says */
    char why[REMOTE_WHY_BYTES]; /* we gave it up; "": we did not */
};

struct remote {
    const struct job_spec *spec;
    int null_fd;
    char *program;                       /* owned; this ddprun's path, the same on all hosts */
    struct payload payload;              /* zeroed: none is sent */
    char note[CO_ERROR_TEXT_BYTES + 64]; /* "", or why there is one and it is not sent */
    char *dir;                           /* owned; where to start */
    char *token;                         /* owned; hexadecimal digits */
    char *nodes;                         /* owned; as of --nnodes */
    char **env;                          /* owned; for the hosts */
    char **argv;                         /* owned; for the hosts */
    struct spawner spawner;
    struct output *output;        /* owned */
    struct bringup *bringup;      /* owned */
    struct remote_roster *roster; /* owned */
    struct remote_host *hosts;    /* owned; by number */
    size_t n_hosts;
    uv_loop_t loop;
    bool has_loop;
    struct init_reaper *init_reaper; /* owned by the loop; NULL: there are none */
    uv_poll_t spawner_poll, signal_poll;
    uv_timer_t timer; /* of the bring-up */
    uv_timer_t last;  /* the hosts' ends are waited for so long */
    int signal_fd;
    uint64_t begun_ms;
    int stop_signal;  /* the first that stops us; 0: none */
    int refusal_code; /* what the first ddprun exited with that did not take the order; 0: none */
    bool has_verdict, ended;
    int verdict_code;
    bool is_ours_to_tell; /* the verdict: no node does */
    char verdict_text[1024];
};

/* --- remote.c, for remote_host.c --- */

/* Gets the payload; has answered; has understood the order; is given up, for a reason. */
void remote_on_sending(struct remote_host *h);
void remote_on_up(struct remote_host *h);
void remote_on_ready(struct remote_host *h);
void remote_on_failed(struct remote_host *h, const char *why);

/* --- remote_plan.c --- */

/* Fill what all orders have in common, and make a key of the token.
 *
 * world     gets the key
 * returns   0, -ENOMEM, -errno; remote_plan_fini() in any case */
int remote_plan_make(struct remote *r, struct job_world *world, struct co_error *err);
void remote_plan_fini(struct remote *r);

/* --- remote_host.c --- */

/* Start the way there; remote_on_up() or remote_on_failed() follows, or its process's end.
 *
 * returns   0, -errno: it cannot be started here */
int remote_host_start(struct remote_host *h);
void remote_host_started(struct remote_host *h, pid_t pid); /* the spawner has said so */

/* Write the order to it. returns 0, -ENOMEM */
int remote_host_tell(struct remote_host *h);
void remote_host_signal(struct remote_host *h, int sig);
void remote_host_kill(struct remote_host *h); /* what it still says does not count */

/* The last line that it, or ssh or srun, has written to standard error, before it is a node.
 *
 * to   n bytes; "": nothing */
void remote_host_said(struct remote_host *h, char *to, size_t n);

/* Its process has ended. Why it did not become a node: what it said last.
 *
 * returns   h->why, or what was heard, or "" */
const char *remote_host_ended(struct remote_host *h);
void remote_host_close(struct remote_host *h); /* from the loop */

#endif
