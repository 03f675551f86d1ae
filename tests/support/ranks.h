/* ranks.h - the ranks of a job as children of a test, started by hand: RANK, WORLD_SIZE, DDP_JOB. */
#ifndef DDP_TESTS_SUPPORT_RANKS_H
#define DDP_TESTS_SUPPORT_RANKS_H

#include <stdio.h>
#include <stdlib.h>

#define RANKS_MAX 8

struct ddp_group;

/* In a rank: end it as failed unless the condition holds. (Check's own assertions speak for the test's
 * process alone.) */
#define rank_expect(condition)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: rank %s: not so: %s (last error: %s)\n", __FILE__, __LINE__,   \
                    getenv("RANK"), #condition, ddp_last_error());                                 \
            _Exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* Fork n ranks, each joins the job, runs body and leaves; wait for all of them.
 *
 * ret_status   what waitpid() said, per rank; NULL: all must have ended with 0, else the test fails */
void ranks_run(int n, void (*body)(struct ddp_group *g, void *arg), void *arg, int *ret_status);

/* Environment of a new job that no other test has, for rank `rank` of n. Called in a child. */
void ranks_set_environment(int rank, int n, unsigned job);
unsigned ranks_new_job(void);

#endif
