/* remote_spec.h - the hosts that a job is to be started on: what was asked for, checked. Plain
 * data, part of a job_spec. */
#ifndef DDP_LAUNCHER_JOB_REMOTE_SPEC_H
#define DDP_LAUNCHER_JOB_REMOTE_SPEC_H

#include "launcher/hosts/host_list.h"

#include <stdbool.h>
#include <stdint.h>

/* The program itself, to hosts that are reached by ssh. */
enum remote_send {
    REMOTE_SEND_AUTO,   /* where there is none that suits, if there is one to be sent */
    REMOTE_SEND_NEVER,  /* it is where it is here */
    REMOTE_SEND_ALWAYS, /* what is installed there does not count */
};

struct remote_spec {
    struct host_list hosts; /* owned; those that take part */
    uint32_t *shares;       /* owned; ranks by host; UINT32_MAX: the host finds out itself */
    bool by_srun;           /* each host by a step of its own in Slurm's allocation */
    char **command;         /* owned, one block; words in front of the host; NULL: ssh, as usual */
    enum remote_send send;
    uint64_t reach_ms; /* a host that has not answered by then is given up; > 0 */
    char *const *argv; /* borrowed; ours, which the others read, too; NULL-terminated */
};

/* returns NULL without memory */
struct remote_spec *remote_spec_create(void);
void remote_spec_destroy(struct remote_spec *r); /* NULL is fine */

#endif
