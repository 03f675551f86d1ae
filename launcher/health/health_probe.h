/* health_probe.h - the process that reads the facts of health_checks.h: a file system or a driver
 * that does not answer holds it, and not ddprun.
 *
 * It is forked from ddprun for the first check, waits between checks, and is killed when ddprun
 * dies. One that does not answer is killed by the caller, which makes another one. It notes Xids as
 * long as it lives. Nothing here blocks, except in that process. */
#ifndef DDP_LAUNCHER_HEALTH_HEALTH_PROBE_H
#define DDP_LAUNCHER_HEALTH_HEALTH_PROBE_H

#include "health_checks.h"

#include <sys/types.h>

struct co_error;

enum { HEALTH_PROBE_HELD_MAX = 4 };

struct health_probe { /* {.sock = -1}: none */
    pid_t pid;
    int sock; /* readable when there is an answer, or the process has ended */
    pid_t held[HEALTH_PROBE_HELD_MAX]; /* killed before, and not reaped yet; 0: free */
};

struct health_probe_opts { /* all borrowed, for the fork */
    const struct health_checks *checks;
    const char *root, *log_dir; /* as in health_facts.h */
    const char *nvml;           /* the library */
    const char *visible;        /* as in nvml.h */
    bool fabric;                /* the NVLink domain is asked for */
};

/* The caller is single-threaded.
 *
 * p         none
 * returns   0; -EBUSY HEALTH_PROBE_HELD_MAX of them were killed and have not ended; -errno */
int health_probe_start(const struct health_probe_opts *opts, struct health_probe *p,
                       struct co_error *err);

/* Ask for the facts.
 *
 * first     those of the first check, if this is not the first: memory of a GPU that is missing
 *           since is waited for
 * wait_ms   for so long at most
 * returns   0; -EPIPE: the process has ended; -errno */
int health_probe_ask(const struct health_probe *p, const struct health_facts *first,
                     uint32_t wait_ms);

/* returns   1 the facts; 0 the process has ended; -EAGAIN nothing there */
int health_probe_receive(const struct health_probe *p, struct health_facts *ret);

/* Kill it. Afterwards it is none. One that the kernel holds is reaped by a later call, or by the
 * process that gets our orphans. */
void health_probe_stop(struct health_probe *p);

#endif
