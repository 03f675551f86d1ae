/* remote_priv.h - the internals of remote.h, for its own files: remote.c (the whole), remote_plan.c
 * (the orders) and remote_host.c (one host: its process, its launch channel, what it writes before
 * it is a node). */
#ifndef DDP_LAUNCHER_REMOTE_REMOTE_PRIV_H
#define DDP_LAUNCHER_REMOTE_REMOTE_PRIV_H

#include "launch_wire.h"
#include "launcher/hosts/bringup.h"
#include "launcher/hosts/host_list.h"
#include "launcher/reporting/job_report.h"
#include "launcher/spawner/spawner.h"
#include "payload.h"

#include "common/error.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

struct job_spec;
struct job_world;
struct output;
struct remote;
struct remote_roster;
struct init_reaper;

enum {
    REMOTE_HEARD_MAX_BYTES = 16384, /* bytes of standard error, kept until the host is a node */
    REMOTE_WHY_BYTES = 400,
};

struct remote_host {
    struct remote *remote;
    const struct host *host;
    uint32_t n_ranks;          /* UINT32_MAX: it finds out itself */
    bool is_here;              /* this machine: no ssh */
    int in_fd, out_fd, err_fd; /* our ends; -1: closed, or output's */
    uv_poll_t in_poll, out_poll, err_poll;
    bool is_ordered;  /* it was sent its order */
    bool was_sent;    /* the payload, or some of it */
    bool is_writing;  /* in_poll waits until it can write */
    size_t n_to_send; /* bytes of the payload that are still to be written, before to_write */
    struct co_buf to_write;
    struct co_buf heard;          /* its standard output, up to our lines */
    struct co_buf complaint;      /* of its standard error */
    char from[LAUNCH_FROM_BYTES]; /* the address of ours that it was started from; "": unknown */
    int pidfd;                    /* -1: it does not run */
    bool runs;
    bool is_killed;             /* by us, whatever its status is */
    char why[REMOTE_WHY_BYTES]; /* we gave it up; "": we did not */
};

enum { REMOTE_SAME_WHYS = 8, REMOTE_SAME_BYTES = 600 };

struct remote_same { /* why hosts failed; reported for the first one at once, for the others
                      * together */
    char why[REMOTE_WHY_BYTES];
    size_t n, n_named;             /* others */
    char names[REMOTE_SAME_BYTES]; /* those of the others, as many as fit */
};

struct remote {
    const struct job_spec *spec;
    int null_fd;
    char *program;                       /* owned; this ddprun's path, the same on all hosts */
    struct payload payload;              /* zeroed: none is sent */
    char note[CO_ERROR_TEXT_BYTES + 64]; /* "", or why there is one and it is not sent */
    char *dir;                           /* owned; where to start */
    char *token;                         /* owned, secret memory; hexadecimal digits */
    char *nodes;                         /* owned; as of --nnodes */
    char **env;                          /* owned; for the hosts */
    char **argv;                         /* owned; for the hosts */
    char **shell_env;                    /* owned; for the ways to them */
    struct spawner spawner;
    struct output *output;        /* owned */
    struct bringup *bringup;      /* owned */
    struct remote_roster *roster; /* owned */
    struct remote_host *hosts;    /* owned; by number */
    size_t n_hosts;
    uv_loop_t loop;
    bool has_loop;
    struct init_reaper *init_reaper; /* owned by the loop; NULL: not the first process of a
                                      * container */
    uv_poll_t spawner_poll, signal_poll;
    uv_timer_t timer; /* of the bring-up */
    uv_timer_t last;  /* the hosts' ends are waited for so long */
    int signal_fd;
    uint64_t begun_ms;
    struct remote_same same[REMOTE_SAME_WHYS];
    size_t n_same;
    int stop_signal;  /* the first that stops us; 0: none */
    bool is_hurried;  /* a stop signal since the end, or the time of the last output is over */
    int refusal_code; /* what the first ddprun exited with that did not take the order; 0: none */
    bool has_verdict, ended;
    int verdict_code;
    bool is_ours_to_tell; /* the verdict: no node does */
    char verdict_text[1024];
    struct job_report report; /* from the nodes' results */

    /* The address of this machine that hosts got which do not know from where they were started;
     * "": none needed it. */
    char guessed[INET6_ADDRSTRLEN];
    bool has_warned; /* of a ddprun on a host that is not executed */
    bool has_waited; /* for a host that could not be reached */

    /* remote_host.c has news of a host: it gets the payload (REACHING), has answered (UP), has
     * understood its order (READY), or was abandoned (FAILED; why, or "" if that was reported). */
    void (*on_host)(struct remote_host *h, enum bringup_phase phase, const char *why);
};

/* A handle of ours, closed or never begun as it may be. */
static inline void remote_close_handle(void *handle)
{
    uv_handle_t *h = (uv_handle_t *)handle;
    if (h->type != UV_UNKNOWN_HANDLE && !uv_is_closing(h))
        uv_close(h, NULL);
}

/* --- remote_report.c --- */

/* This ddprun writes the job's report. */
bool remote_report_is_wanted(const struct job_spec *spec);

/* The nodes have ended: write it, if it is wanted.
 *
 * exit_code   of this ddprun
 * signal      that stopped the job; 0: none
 * returns     as job_report_write() */
int remote_report_write(struct remote *r, int exit_code, int signal, struct co_error *err);

/* --- remote_plan.c --- */

/* Fill what all orders have in common, and make a key of the token.
 *
 * world     gets the key
 * returns   0, -ENOMEM, -errno; remote_plan_fini() in any case */
int remote_plan_make(struct remote *r, struct job_world *world, struct co_error *err);
void remote_plan_fini(struct remote *r);

/* What starts a ddprun on a host: the way there (remote_shell.h), found in PATH.
 *
 * host        NULL: this machine, without ssh
 * is_shown    to users: without the script that looks whether the program there can be trusted
 * ret_path    owned by the caller: what is executed
 * ret_words   owned by the caller, one free()
 * returns     0, -ENOENT (there is no such command), -ENAMETOOLONG (the path of ours), -ENOMEM */
int remote_command_make(const struct remote *r, const struct host *host, bool may_send,
                        char **ret_path, char ***ret_words, struct co_error *err);

/* The variables that go along to other hosts. All of them, as a Python environment or a library
 * path is one of many, apart from those that mean something on this machine or in this session only
 * (HOME, TMPDIR, SSH_*, XDG_*, DISPLAY, SLURM_* and so on), and the nodes' secret. What is exported
 * goes along in any case.
 *
 * environment   NAME=VALUE, NULL-terminated
 * exports       NAME, or NAME=VALUE, which wins; NULL-terminated. A NAME that is not set is skipped
 * ret           owned by the caller, one free(); its texts are those of the arguments
 * returns       0, -ENOMEM */
int remote_env_make(char *const *environment, const char *const *exports, char ***ret);

/* The variables of the way to a host, and of a ddprun on this one: all except those with which a
 * node reports from where it was started. Ours are about where we were started from.
 *
 * ret       as above */
int remote_shell_env_make(char *const *environment, char ***ret);

/* --- remote_host.c --- */

/* Start the way there; on_host follows, or its process's end.
 *
 * returns   0, -errno: it cannot be started here */
int remote_host_start(struct remote_host *h);
void remote_host_started(struct remote_host *h, pid_t pid); /* the spawner has reported it */

/* Write the order to it. returns 0, -ENOMEM */
int remote_host_tell(struct remote_host *h);
void remote_host_signal(struct remote_host *h, int sig);
void remote_host_kill(struct remote_host *h); /* its further messages do not count */

/* The last line that it, or ssh or srun, has written to standard error, before it is a node.
 *
 * to   n bytes; "": nothing */
void remote_host_said(struct remote_host *h, char *to, size_t n);

/* Its process has ended. Why it did not become a node: its last message.
 *
 * returns   h->why, or the last line received, or "" */
const char *remote_host_ended(struct remote_host *h);
void remote_host_close(struct remote_host *h); /* from the loop */

/* It has ended, and is started again later: as before the first start. */
void remote_host_reset(struct remote_host *h);

#endif
