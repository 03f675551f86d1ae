/* group.h - the ranks of a job: join them, get rank and world size, leave.
 *
 * A process joins with the variables that its launcher set: ddprun or torchrun (RANK,
 * WORLD_SIZE, LOCAL_RANK, ...), Open MPI's mpirun (OMPI_COMM_WORLD_*), MPICH's hydra (PMI_*),
 * Slurm's srun (SLURM_PROCID, ...), or a shell script that sets RANK and WORLD_SIZE itself. With
 * none of these it is a world of 1. env.h lists the variables. If LOCAL_WORLD_SIZE (or its
 * counterpart) is less than WORLD_SIZE, the job has several nodes, which rendezvous through the
 * store at MASTER_ADDR and MASTER_PORT, for example that of ddprun or torchrun. Rank 0 serves one
 * there if TORCHELASTIC_USE_AGENT_STORE is False.
 *
 * Threads: a group is used by one thread at a time; different groups by different threads at the
 * same time. The thread that calls ddp_init() or ddp_group_join() must live as long as the group:
 * once it has exited, the first rank of this node that waits for this one considers it dead, and
 * the group is broken; a call in which no rank has to wait still succeeds. After fork() the child
 * is not a rank: calls on the group return DDP_EINVAL there. */
#ifndef DDP_GROUP_H
#define DDP_GROUP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ddp_group; /* opaque */

struct ddp_init_opts {
    uint64_t start_timeout_ms; /* wait this long for the other ranks to join; 0: 600 000 */
    uint64_t timeout_ms;       /* a step of a call fails with DDP_ETIMEOUT after this; 0: the
                                  value of DDP_TIMEOUT ("90", "1.5s", "10m"), else 600 000 */
    int progress_thread;       /* 1: a thread executes asynchronous calls while the program
                                  computes; -1: none; 0: the value of DDP_PROGRESS_THREAD ("1" or
                                  "0"), else none */
};

/* Join the job and make the group of all its ranks. Collective: returns once all ranks have joined.
 *
 * opts        NULL: all defaults
 * ret_world   owned by the caller, which calls ddp_finalize(); written only on success
 * returns     0
 *             DDP_EENV          the environment is contradictory; the text names the variable
 *             DDP_ETIMEOUT      some ranks did not join in time; the text names them
 *             DDP_EPEER         a rank died before it joined
 *             DDP_EUNSUPPORTED  more than 1024 ranks on a node
 *             DDP_ENOMEM, DDP_ESYSTEM */
int ddp_init(const struct ddp_init_opts *opts, struct ddp_group **ret_world);

/* Leave the job, or a group of ddp_group_join(), by the thread that joined. Destroys the models and
 * samplers made from the group and frees it; memory of ddp_alloc() and gradients that the library
 * allocated stay mapped for the life of the process. Not collective: peers that still need this
 * rank get DDP_EPEER. NULL is fine. A group of ddp_group_split() is destroyed.
 *
 * Requests must be complete: ddp_wait() on a pending one returns DDP_EINVAL from then on. In the
 * function that ddp_run(), ddp_spawn() or ddp_spawn_threads() calls, its world stays as it is, and
 * these return DDP_EINVAL where the function returns 0. */
void ddp_finalize(struct ddp_group *world);

/* The rank of a process in a group whose ranks are assigned elsewhere, for example by a framework.
 * The caller keeps ownership of all memory. */
struct ddp_rank_info {
    const char *name; /* 1 to DDP_PLACE_NAME_MAX bytes, the same on all ranks, and never used for
                         another group: for example a random number */
    int rank, world_size;
    int local_rank, local_world_size; /* among its ranks on this node, in the order of their ranks:
                                         those that share a kernel and a network namespace */
    int node_rank, n_nodes;           /* 0 of 1 if all are on one */
    const char *store_host;           /* with several nodes: the address of a store with */
    int store_port;                   /* TCPStore's protocol (ddprun's, PyTorch's); else NULL, 0 */
};
#define DDP_PLACE_NAME_MAX 128

/* Make a group of the ranks that call this with the same name, independent of the environment: a
 * world of its own, separate from that of ddp_init() and from other such groups. A process may be
 * in many. A failure in it breaks no other group and is not reported to ddprun. Collective: returns
 * once all its ranks have joined; other processes do not call it.
 *
 * place       not NULL
 * opts        NULL: all defaults
 * ret_group   owned by the caller, which calls ddp_finalize(); written only on success. For
 *             ddp_run() and ddp_group_split() it is a world
 * cost        of memory as a world: the control segment of a node, half a MiB of address space for
 *             each rank, of which pages are used as needed
 * returns     0
 *             DDP_EINVAL    `place` is contradictory; the text names the member. No communication
 *                           took place
 *             else as ddp_init() */
int ddp_group_join(const struct ddp_rank_info *place, const struct ddp_init_opts *opts,
                   struct ddp_group **ret_group);

/* ddp_init(), `train(world, arg)`, ddp_finalize(). If ddprun recovers in place when other ranks
 * fail (--max-restarts) or nodes join and leave, all calls of all groups return DDP_RETRY on the
 * survivors; `train` returns it and is called again with the current world, which may have more
 * ranks or fewer, and in which this process may have a different rank. All objects that were made
 * from the old world are destroyed, except memory of ddp_alloc() and gradients. The objects that
 * `train` makes get the state after the last completed step, on all ranks:
 *   - ddp_model_create() gives each the parameters and buffers, and memory of ddp_state_add(); and
 *     gradients of zeros
 *   - the first ddp_sampler_next_epoch() continues the interrupted epoch after the samples
 *     that completed steps have used. So does ddp_sampler_set_epoch() of that epoch
 * if it makes the same models and samplers in the same order each time. A step is one
 * ddp_model_sync() or ddp_model_replayed() of a model of the world, one ddp_zero_step(), or one
 * ddp_step_done(): if an iteration has several, the last of them counts. Load a checkpoint only if
 * ddp_completed_steps() is 0, on all ranks: otherwise it overwrites the state that the survivors
 * have kept.
 *
 * returns   0; what train returned if that is negative (if no call had returned it, the text names
 *           the number); DDP_EPEER a rank was not replaced; DDP_EINVAL if it returned a positive
 *           number that no call had returned, has called ddp_finalize() of the world and returned
 *           0, or is NULL; else as ddp_init() */
int ddp_run(int (*train)(struct ddp_group *world, void *arg), void *arg);

/* Split a group: the ranks that give the same color form a new one, in the order of their keys, and
 * of their ranks in `g` where keys are equal. Collective over `g`. The new group has its own calls
 * and its own order of them, independent of those of `g`; what breaks one group breaks the job.
 *
 * color     0 or more; DDP_NO_COLOR: this rank joins none of the new groups
 * ret_sub   owned by the caller, which calls ddp_group_destroy(); NULL with DDP_NO_COLOR. Written
 *           only on success
 * cost      two calls of the size of a barrier; for each group some 0.5 MiB of address space of
 *           each rank's segment, of which pages are used as needed, and used again by later groups
 * returns   0; DDP_EINVAL a bad color; DDP_ENOMEM on all ranks if one is out of memory, and
 *           `g` is as before; else as a barrier */
#define DDP_NO_COLOR (-1)
int ddp_group_split(struct ddp_group *g, int color, int key, struct ddp_group **ret_sub);

/* Destroy a group of ddp_group_split(), with its models and samplers. All its members do that
 * after the same calls, but none waits for another. Requests must be complete, as for
 * ddp_finalize(), which destroys the remaining groups. NULL is fine; the world's group is
 * not. */
void ddp_group_destroy(struct ddp_group *sub);

/* Set the timeout of the calls on CPU memory that begin from now on, instead of that of
 * ddp_init_opts. Not collective: the rank with the shortest timeout ends the group. Groups that are
 * split off later have it as well; other groups of the job, and calls that have begun, keep theirs.
 * How soon a lost connection between nodes is noticed does not change.
 *
 * timeout_ms   greater than 0
 * returns      0; DDP_EINVAL */
int ddp_set_timeout(struct ddp_group *g, uint64_t timeout_ms);

int ddp_rank(const struct ddp_group *g);             /* 0 .. ddp_world_size() - 1 */
int ddp_world_size(const struct ddp_group *g);       /* ranks in the group */
int ddp_local_rank(const struct ddp_group *g);       /* among the ranks of this node */
int ddp_local_world_size(const struct ddp_group *g); /* ranks on this node */
int ddp_node_rank(const struct ddp_group *g);        /* 0 .. ddp_n_nodes() - 1 */
int ddp_n_nodes(const struct ddp_group *g);
uint64_t ddp_generation(const struct ddp_group *g); /* how often the membership was remade */

/* How many steps the job has completed since ddprun started all of its ranks, including those that
 * a replacement received from its peers. At the start of the function of ddp_run() it is the same
 * on all ranks and shows the source of the training state: 0, the program itself, which may load a
 * checkpoint now; more, survivors, which have a later state than any file. Counts what ddp_run()
 * calls a step. 0 for a world of ddp_init() or ddp_group_join(). */
uint64_t ddp_completed_steps(const struct ddp_group *g);

/* Memory that is shared with the other ranks of this node: collectives on it need no copy. Aligned
 * to 64 bytes and zeroed. Not collective. Valid until ddp_free() or the end of the process.
 *
 * returns   0, DDP_ENOMEM (the segment is full; DDP_SEGMENT_BYTES sets its size), DDP_EINVAL */
int ddp_alloc(struct ddp_group *g, size_t bytes, void **ret_ptr);
void ddp_free(struct ddp_group *g, void *ptr); /* NULL is fine */

/* A seed for what must differ between ranks: dropout, augmentation. Use `base` itself for what must
 * be the same on all (initial values, the order of samples). Seeds of different ranks or bases are
 * independent; the same rank gets the same seed in every run. */
uint64_t ddp_seed(const struct ddp_group *g, uint64_t base);

/* printf() on rank 0's stdout, nothing on the others. Flushes. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void ddp_log0(const struct ddp_group *g, const char *format, ...);

#ifdef __cplusplus
}
#endif
#endif
