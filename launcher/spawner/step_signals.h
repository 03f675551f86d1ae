/* step_signals.h - signals of a scheduler that reach the ranks past ddprun. Slurm with
 * ProctrackType=proctrack/linuxproc sends a signal to each process of a step: to the ranks, to the
 * spawner and to ddprun, in this order, since it begins at the leaves of the process tree.
 *
 * A signal that ddprun holds back (--on-term) is ignored by the ranks from their start on, so that
 * it does not end them before they have saved. SIGTERM never is: the processes that a rank starts
 * would also ignore it, and a rank that ends its children by SIGTERM would wait for them forever. A
 * signal that ddprun passes on at once is not sent to ranks that have it already. */
#ifndef DDP_LAUNCHER_SPAWNER_STEP_SIGNALS_H
#define DDP_LAUNCHER_SPAWNER_STEP_SIGNALS_H

#include <signal.h>
#include <stdint.h>
#include <sys/types.h>

enum { STEP_SIGNALS_N = 32 }; /* the standard ones */

struct step_signals {                 /* a zeroed one does nothing */
    uint64_t ignored;                 /* bit N: ranks start with signal N ignored */
    uint64_t once;                    /* bit N: signal N is not sent a second time */
    uint64_t came_ms[STEP_SIGNALS_N]; /* when this process had it; 0: never */
};

/* From now on processes that this one starts ignore the first ones. It has all signals blocked.
 *
 * ret_heard   what this process has to hear by step_signals_hear() */
void step_signals_begin(struct step_signals *s, uint64_t ignored, uint64_t once,
                        sigset_t *ret_heard);

void step_signals_hear(struct step_signals *s, int sig, uint64_t now_ms);

/* What to send to a rank, instead of `sig`, which is for all ranks: the same; 0: nothing, it has it
 * already; SIGTERM: it still ignores `sig`, as at its start. */
int step_signals_choose(const struct step_signals *s, int sig, pid_t rank, uint64_t now_ms);

#endif
