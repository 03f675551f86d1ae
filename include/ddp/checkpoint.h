/* checkpoint.h - the state of a training on the disk: written by rank 0, read once a node, and
 * resumed by any number of ranks.
 *
 * A directory holds a checkpoint for each step that was saved:
 *
 *     step-000000001000.safetensors    all tensors, whole: other programs may read it
 *     step-000000001000.manifest       size and digest of that, written last
 *
 * Without its manifest a file is not a checkpoint: the remains of a job that was killed, or of a
 * full disk, are never read, and older checkpoints stay. The directory has to be the same one on
 * all nodes. One job writes to it at a time, by one ddp_checkpoint. */
#ifndef DDP_CHECKPOINT_H
#define DDP_CHECKPOINT_H

#include <ddp/group.h>
#include <ddp/safetensors.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ddp_checkpoint; /* opaque */

struct ddp_checkpoint_opts {
    const char *directory; /* made if it is not there, its parent has to be; copied */
    int keep_last;         /* after a save remove all but so many, the highest steps; never what was
                              just saved. 0: keep all */
    bool async;            /* save returns once the state is copied; a thread of rank 0 writes it */
};

/* One piece of the state. `data` is the whole tensor, the same on all ranks; or with is_sharded
 * each rank's own part of it. Numbers (a step, a random state) are also tensors. */
struct ddp_checkpoint_item {
    const char *name;
    enum ddp_dtype dtype;
    unsigned n_dims;                        /* 0: a single number */
    size_t shape[DDP_SAFETENSORS_MAX_DIMS]; /* shape of the whole tensor; the same on all ranks */
    void *data;                             /* read by save, written by load */
    bool is_sharded;
    size_t first, count; /* with is_sharded: the part's place among all elements in their order.
                            Save: rank 0's begins at 0, each next one's where the last ended, and
                            all are covered. Load: any part, so that another number of ranks can
                            share the tensor out in another way */
};

/* Make the directory, if it is missing, and remove what a job that was killed left half written.
 * Collective.
 *
 * ret_checkpoint   belongs to the group, which closes it at ddp_finalize()
 * returns          0; on all ranks, if on one: DDP_EINVAL (opts), DDP_ENOMEM, DDP_ESYSTEM (no such
 *                  directory, not allowed); else as ddp_all_reduce() */
int ddp_checkpoint_open(struct ddp_group *g, const struct ddp_checkpoint_opts *opts,
                        struct ddp_checkpoint **ret_checkpoint);

/* Save the state as that of `step`; a checkpoint of that step is replaced. Collective. Without
 * async it is on the disk when this returns. With it, rank 0 needs memory for a second copy of all
 * items, and waits here while the one before is still being written; an error of that one is
 * returned here, on all ranks, and nothing more is saved.
 *
 * step      0 or more
 * items     the same on all ranks, except for data and parts. Not needed any more on return
 * cost      rank 0 writes all bytes; sharded items are gathered there, so it needs memory for
 *           all of them whole
 * returns   0; on all ranks alike:
 *           DDP_EINVAL     a bad item, or shares that overlap or leave gaps
 *           DDP_EMISMATCH  the ranks' items differ
 *           DDP_ENOMEM; DDP_ESYSTEM the disk is full, for instance: older checkpoints are intact
 *           else as ddp_all_reduce() */
int ddp_checkpoint_save(struct ddp_checkpoint *c, int64_t step,
                        const struct ddp_checkpoint_item *items, size_t n);

/* Wait until what was saved is on the disk. Collective.
 * returns   as ddp_checkpoint_save() without async */
int ddp_checkpoint_wait(struct ddp_checkpoint *c);

/* The highest step for which a checkpoint exists; -1: none. Collective: rank 0 searches.
 * returns   0; DDP_ESYSTEM the directory cannot be read; else as ddp_all_reduce() */
int ddp_checkpoint_latest(struct ddp_checkpoint *c, int64_t *ret_step);

/* Read the state of `step`. Collective. The first rank of each node reads and checks the whole file
 * and shares it with the others of the node.
 *
 * items     name, dtype and shape as saved; n_items may be fewer than the file has. data is written
 *           (where this fails, perhaps a part)
 * returns   0; on all ranks alike:
 *           DDP_EINVAL   no such checkpoint, it is damaged, or lacks an item as described
 *           DDP_ENOMEM, DDP_ESYSTEM; else as ddp_all_reduce() */
int ddp_checkpoint_load(struct ddp_checkpoint *c, int64_t step,
                        const struct ddp_checkpoint_item *items, size_t n);

/* Before ddp_finalize(), if at all. Waits for the thread that writes, and does not report its
 * failure: call ddp_checkpoint_wait() before. NULL is fine. Not collective. */
void ddp_checkpoint_close(struct ddp_checkpoint *c);

#ifdef __cplusplus
}
#endif
#endif
