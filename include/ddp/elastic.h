/* elastic.h - requested checkpoints, the state that the replacement of a dead rank has to get, and
 * in-place recovery of programs that communicate by other means.
 *
 * With ddprun --admit-at checkpoint a node that joins waits until all ranks have saved their state;
 * then ddprun stops them, with SIGTERM, and starts them again together with those of the new node.
 * With --on-term TIME an end is announced the same way: when a ddprun, of a job on one node or on
 * several, gets SIGTERM, it asks the ranks, and they get the signal when those of that node have
 * saved. In both cases the program does this:
 *
 *     int waits;
 *     if ((rc = ddp_checkpoint_requested(g, &waits)) != 0)
 *         return rc;
 *     if (waits || step % 1000 == 999) {
 *         if ((rc = save(g, step)) != 0 ||         // complete on all ranks
 *             (rc = ddp_checkpoint_done(g)) != 0)
 *             return rc;
 *     }                                            // and continue: SIGTERM comes, or does not
 *
 * A program that saves regularly, and calls ddp_checkpoint_done() after it, needs no
 * ddp_checkpoint_requested(). */
#ifndef DDP_ELASTIC_H
#define DDP_ELASTIC_H

#include <ddp/group.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Is a checkpoint requested, because a node joins or the job is about to end? All ranks
 * get the same answer: 1 once one of them knows. Until ddp_checkpoint_done(); then 0 for the rest
 * of the generation.
 *
 * ret_pending   written only on success
 * cost          where ranks may be asked (several nodes, or --on-term), an all_reduce of one
 *               number; none after ddp_model_sync(), which has brought the answer of that
 *               moment, nor elsewhere
 * returns       0; DDP_EINVAL a NULL, or a forked child; DDP_EENV DDP_CHECKPOINT_FD is not a
 *               number; else as ddp_all_reduce() */
int ddp_checkpoint_requested(struct ddp_group *g, int *ret_pending);

/* This rank's state is saved: a checkpoint from which the job can continue is complete. Not
 * collective, but each rank has to call it. It may be called without a request: then it does
 * nothing.
 *
 * returns   0; DDP_EINVAL a NULL, or a forked child; DDP_EENV as above; DDP_ESYSTEM ddprun does not
 *           receive it any more */
int ddp_checkpoint_done(struct ddp_group *g);

/* Register memory that changes from step to step in addition to a model's parameters and buffers:
 * momentum, a step counter, the state of a generator of random numbers. When a rank is replaced
 * (ddp_run()), its replacement gets it from a rank that has completed the last step, as does every
 * rank that has not completed it. To be called by the function that ddp_run() calls, each time it
 * is called, before the first ddp_model_create(); all ranks register the same in the same order.
 *
 * When the function returns DDP_RETRY the memory has to be as after the last completed step: what a
 * step changes before ddp_model_sync(), or ddp_model_replayed(), such as a random state, is put
 * back.
 *
 * name      for messages; copied
 * data      read and written by ddp_model_create() only; stays where it is until the function
 *           returns
 * cost      nothing, but where a rank can be replaced an all_reduce of two numbers by the first
 *           ddp_model_create(); there, after a replacement, a broadcast
 * returns   0; DDP_EINVAL a NULL, no name, or a model was made already; DDP_ENOMEM */
int ddp_state_add(struct ddp_group *g, const char *name, void *data, size_t bytes);

/* Point at the state: *ret_bytes bytes at *ret_data, lent until ddp_model_create() returns. Called
 * inside of the first ddp_model_create(), on one rank that has completed the last step, and only if
 * another rank needs the state.
 * returns   0; another status: ddp_model_create() fails with it (positive: with DDP_EINVAL), and
 *           with DDP_EMISMATCH on the other ranks */
typedef int ddp_state_save(void *arg, const void **ret_data, size_t *ret_bytes);

/* Take the state that another rank has saved. Called inside of the first ddp_model_create(), only
 * on ranks that have not completed the last step. `data` is valid until it returns.
 * returns   as ddp_state_save() */
typedef int ddp_state_load(void *arg, const void *data, size_t bytes);

/* The same for state of which only a rank that has it knows the size: what a framework's optimizer
 * or a random number generator serializes. Rules and order are those of ddp_state_add(). The two
 * functions call nothing of libddp, except ddp_fail().
 *
 * name         for messages; copied
 * save, load   see there; arg: what they are called with
 * cost         as ddp_state_add(); after a replacement also memory for the state on each rank,
 *              while ddp_model_create() runs, and three exchanges of the size of a barrier
 * returns      as ddp_state_add() */
int ddp_state_add_callbacks(struct ddp_group *g, const char *name, ddp_state_save *save,
                            ddp_state_load *load, void *arg);

/* --- programs that communicate by other means ------------------------------------------------- */

/* Report that this rank has completed a step of training. For programs that ddp_run() calls and
 * that have no ddp_model or ddp_zero, whose calls count steps themselves: they average gradients by
 * collectives of their own or of a framework. Each rank calls it once a step, after it has applied
 * the gradients. ddp_completed_steps() counts these steps, and ddprun uses them for --standby,
 * --hang-timeout, --restart-after-progress and the pace that it shows. It does not make the ranks
 * agree on the step: if a rank dies, survivors may differ by one step, and those that have
 * completed most of them have the state to continue with.
 *
 * cost      some ns, no communication
 * returns   0; DDP_EINVAL a NULL, a group that is not the job's world, or a forked child */
int ddp_step_done(struct ddp_group *world);

/* Wait until the generation is over, because a rank died or nodes join or leave: then the calls of
 * libddp return the same. A thread of the program that waits here while another one is inside of a
 * library that knows nothing of ddprun can take that one out of its call, for example by an abort
 * of its communicator. By any thread, at the same time as other calls on the group, but not after
 * the function of ddp_run() has returned.
 *
 * timeout_ms   0: only check
 * cost         the thread sleeps. It looks at the ranks of its node when the kernel wakes it (Linux
 *              5.16 and later, at most 120 ranks on the node) and each second; else every 20 ms
 * returns      0 ddp_end_wait_retry() was called; DDP_RETRY the generation is over; DDP_EPEER a
 *              rank died or left while others needed it, and no generation follows; DDP_ETIMEOUT it
 *              is not over; DDP_EINVAL a NULL, a group that is not a world, or a forked child */
int ddp_wait_retry(struct ddp_group *world, uint64_t timeout_ms);

/* End all waits in ddp_wait_retry() on this world, and all later ones: they return 0. By any
 * thread. The threads still have to be joined before the function of ddp_run() returns.
 *
 * returns   0; DDP_EINVAL as above */
int ddp_end_wait_retry(struct ddp_group *world);

#ifdef __cplusplus
}
#endif
#endif
