/* elastic.h - nodes that join while the job runs.
 *
 * With ddprun --scale-at checkpoint a node that comes waits until all ranks have saved their state;
 * then ddprun stops them, with SIGTERM, and starts them again together with those of the new node:
 *
 *     int waits;
 *     if ((rc = ddp_scale_pending(g, &waits)) != 0)
 *         return rc;
 *     if (waits || step % 1000 == 999) {
 *         if ((rc = save(g, step)) != 0 ||         // complete on all ranks
 *             (rc = ddp_scale_ready(g)) != 0)
 *             return rc;
 *     }                                            // and go on: SIGTERM comes, or does not
 *
 * A program that saves every now and then, and calls ddp_scale_ready() behind it, needs no
 * ddp_scale_pending(). */
#ifndef DDP_ELASTIC_H
#define DDP_ELASTIC_H

#include <ddp/group.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Does a node wait for a checkpoint? All ranks get the same answer: 1 once one of them knows. Until
 * ddp_scale_ready(); then 0 for the rest of the generation.
 *
 * ret_pending   written only on success
 * cost          where nodes can join, an all_reduce of one number; none behind ddp_model_sync(),
 *               which has brought the answer of that moment, nor where no node can join
 * returns       0; DDP_EINVAL a NULL, or a forked child; DDP_EENV DDP_SCALE_FD is no number;
 *               else as ddp_all_reduce() */
int ddp_scale_pending(struct ddp_group *g, int *ret_pending);

/* This rank's state is saved: a checkpoint from which the job can go on is complete. Not
 * collective, but each rank has to call it. Whether somebody waits need not be known: otherwise it
 * does nothing.
 *
 * returns   0; DDP_EINVAL a NULL, or a forked child; DDP_EENV as above; DDP_ESYSTEM nobody hears
 *           it any more */
int ddp_scale_ready(struct ddp_group *g);

#ifdef __cplusplus
}
#endif
#endif
