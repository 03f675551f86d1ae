/* memory.h - checkpoints in memory: the state of each rank, kept where it outlives the rank, and a
 * copy of it on another node.
 *
 * ddprun --memory-checkpoints SIZE holds the memory, for the life of the job on its node. After a
 * restart of all ranks each of them reads its state from there; the rank of a node that was lost
 * gets it from the copy. What is on a disk (checkpoint.h) is needed when the whole job ends, or two
 * nodes are lost at once.
 *
 * A save is loaded only if all ranks have it: all of the newest one, or all of the one before.
 * Every rank saves its own bytes, in any number of items; only as many ranks as saved them can
 * load them. */
#ifndef DDP_MEMORY_H
#define DDP_MEMORY_H

#include <ddp/group.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ddp_memory; /* opaque */

struct ddp_memory_item { /* CPU memory */
    void *data;          /* read by save, written by load; may be NULL with 0 bytes */
    size_t bytes;
};

struct ddp_memory_state { /* what ddp_memory_open() has found, and whether saves are copied */
    int64_t step;         /* as it was saved; -1: no state that all ranks have */
    size_t n_items;       /* of this rank */
    size_t bytes;         /* of all of them */
    int came_from;        /* the rank whose node had the state: this rank's number, unless this node
                             was lost or replaced */
    int copied_to; /* the rank that gets a copy of what this one saves; -1: none does: one node,
                             or one with more than half of the ranks */
    size_t item_bytes_max; /* what --memory-checkpoints allows this rank */
};

/* Find the newest save that all ranks can load, and bring each rank's state to its node, if another
 * node has it. Collective, by all ranks of the job; at most one is open at a time.
 *
 * ret_memory   ddp_memory_close() it; else it is closed with the group. It has a group of its own,
 *              and with several nodes a thread that sends copies: no other call of `g` waits for
 *              them
 * cost         a ddp_group_split(), and a few small calls; where ranks have numbers that differ
 *              from those with which they saved, or nodes were replaced, the transfer of their
 *              states
 * returns      0; on all ranks, if on one:
 *              DDP_EUNSUPPORTED  a rank has no such memory: it was not started by ddprun
 *                                --memory-checkpoints
 *              DDP_EMISMATCH     the sizes given to --memory-checkpoints differ between nodes
 *              DDP_ENOMEM, DDP_ESYSTEM; else as ddp_all_reduce() */
int ddp_memory_open(struct ddp_group *g, struct ddp_memory **ret_memory);

/* Not collective. returns 0; DDP_EINVAL: an argument is NULL */
int ddp_memory_found(const struct ddp_memory *m, struct ddp_memory_state *ret_state);

/* The size of an item of what was found, and its content, which is compared with a digest of what
 * was saved. Before the first ddp_memory_save(). Not collective: other ranks need not read.
 *
 * item      below n_items
 * bytes     its size
 * returns   0; DDP_EINVAL: no such item, another size, or it is damaged */
int ddp_memory_item_bytes(const struct ddp_memory *m, size_t item, size_t *ret_bytes);
int ddp_memory_read(struct ddp_memory *m, size_t item, void *out, size_t bytes);

/* Read all items. n and the sizes are those that were saved.
 * returns   as ddp_memory_read() */
int ddp_memory_load(struct ddp_memory *m, const struct ddp_memory_item *items, size_t n);

/* Memory for the program to work in, such as for the state that is loaded: a slot that no load
 * needs. Its pages remain from one process to the next. So the kernel neither clears new ones after
 * a restart, which takes longer than the copy of the state, nor frees them when a rank dies. Before
 * the first ddp_memory_save(). Not collective.
 *
 * Processes that the program forks share it. It outlives `m`; at most one is in use at a time.
 *
 * bytes      1 to item_bytes_max
 * ret_data   aligned to a page; what is in it is undefined. ddp_memory_free() it
 * memory     a third slot of each rank, or a fifth with copies, in place of memory of the process
 * returns    0; DDP_EINVAL; DDP_EUNSUPPORTED a process has such memory already, or none can be
 *            mapped; DDP_ENOMEM, DDP_ESYSTEM. Then use any other memory */
int ddp_memory_alloc(struct ddp_memory *m, size_t bytes, void **ret_data);

/* NULL is fine. */
void ddp_memory_free(void *data);

/* Keep the state of `step`. Collective. What was saved before stays until this save is complete on
 * all ranks, so that a failure at any moment leaves one that can be loaded.
 *
 * Returns once the bytes are copied on all ranks. With several nodes a thread of each rank then
 * sends its state to the rank that keeps a copy. The next save waits for that, and returns its
 * error.
 *
 * step      0 or more; any numbers, in any order: the last save is the newest
 * items     sizes and number may differ between ranks; not needed any more on return
 * cost      reads and writes the bytes once; a barrier. The thread: reads and sends them, and
 *           receives and writes those of another rank
 * memory    of each rank, once two saves were made: twice its bytes; with copies also twice those
 *           of the other rank; and what ddp_memory_alloc() gives. It is not freed before the job
 *           ends on this node
 * returns   0; on all ranks alike:
 *           DDP_EINVAL   a bad item; more bytes than --memory-checkpoints allows, 16 for each item
 *                        included; more than 2^20 items
 *           DDP_ENOMEM, DDP_ESYSTEM  memory is exhausted: the save before stays
 *           else as ddp_all_reduce() */
int ddp_memory_save(struct ddp_memory *m, int64_t step, const struct ddp_memory_item *items,
                    size_t n);

/* Wait until the copies of the last save are complete on all ranks.
 * returns   as ddp_memory_save() */
int ddp_memory_wait(struct ddp_memory *m);

/* Wait for the thread, and destroy the group: as ddp_group_destroy(). What was saved stays. NULL is
 * fine. */
void ddp_memory_close(struct ddp_memory *m);

#ifdef __cplusplus
}
#endif
#endif
