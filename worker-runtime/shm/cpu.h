/* cpu.h - inside of the CPU back end: what backend_cpu.c and the algorithms share.
 *
 * An algorithm is a way to carry a collective out. All of them are lists of stages with a step
 * between each two, in which the ranks wait for each other (transport_shm.h): an algorithm never
 * waits itself, so any collective can be left and taken up again between two stages. */
#ifndef DDP_WORKER_RUNTIME_SHM_CPU_H
#define DDP_WORKER_RUNTIME_SHM_CPU_H

#include "cpu_tuning.h"
#include "transport_shm_priv.h"
#include "worker-runtime/arithmetic/reduce.h"
#include "worker-runtime/core/backend.h"
#include "worker-runtime/core/layout.h"

#include <string.h>

struct cpu;
struct p2p_shm; /* the messages of a group */
struct user_segment;

enum algo_next { ALGO_DONE = 1, ALGO_STEP = 0 }; /* or -errno */

/* Do stage number `stage` of the open job, 0 first. Before ALGO_STEP it has called
 * transport_shm_arrive().
 * returns   ALGO_STEP continue with the next stage once all ranks have arrived; ALGO_DONE;
 *           -errno */
typedef int cpu_algo(struct cpu *c, size_t stage, struct co_error *err);

struct job { /* the open collective */
    struct layout layout;
    cpu_algo *algo;
    size_t stage;
    uint32_t seq; /* number of calls opened; distinguishes the tables of two calls */
    uint64_t timeout_ms;
    const uint8_t *in;
    uint8_t *out;
    enum ddp_dtype dtype;
    enum ddp_op op;
    struct call call;
    bool is_open;
    reduce_checked_fn *checked; /* the kernel that finds what is not finite; NULL: not wanted */
    int *ret_found;             /* where to record it; NULL: not wanted */
    bool found;                 /* this rank has, in what it added up */
    size_t n_pieces;            /* staged */
    uint64_t first;             /* the number of the first of them */
    size_t lag;                 /* steps from filling a buffer to reading it */
};

struct group_pool {              /* the blocks of memory of this rank in which groups rendezvous */
    struct user_segment *own;    /* borrowed */
    struct group_memory *blocks; /* owned; all that were ever made */
};

enum cma_state { CMA_UNKNOWN, CMA_ASKED, CMA_ON, CMA_OFF };

struct cpu {
    struct backend backend;
    struct transport_shm *shm;
    struct user_segment *own;
    const struct reduce_kernels *kernels;
    struct cpu_tunings tunings;
    struct cpu_tuning tuning; /* of `tunings`, the row for n ranks */
    bool may_cma;
    void (*on_destroy)(void *arg);
    void *arg;
    bool (*on_idle)(void *arg);
    void *idle_arg;
    unsigned rank, n;
    uint64_t pieces;              /* that went through the mailboxes: determines whose turn a buffer
                                     is */
    uint8_t **user;               /* n: where the members' user segments lie here. This and the next
                                     three lie after the struct, in its block */
    const void **in;              /* n: arguments of a kernel */
    void **out;                   /* n */
    size_t *in_first, *out_first; /* n, of the open job's layout */
    struct job job;

    enum cma_state cma; /* the same on all ranks */
    uint32_t pid;       /* this process; asked for once, since each time is a system call */
    uint64_t cma_probe; /* what others must find when they read this rank's memory */
    uint8_t *scratch;   /* what they read goes here; NULL until cma is on */

    struct p2p_shm *_Atomic messages; /* NULL until the first */
    struct group_pool *pool;          /* of the world; that is its own: */
    struct group_pool own_pool;
    struct group_memory *memory; /* of a group that was split off; NULL of the world's */
    unsigned n_splits;
};

cpu_algo algo_note, algo_one_shot, algo_large, algo_direct, algo_cma, algo_staged;

/* --- mailboxes -------------------------------------------------------------------------------- */

enum {
    N_BUFFERS = 2,                        /* in each mailbox, used in turn */
    BUFFER_BYTES = CPU_TUNING_MOST_PIECE, /* of all ranks together they should stay in the caches */
    PIECE_BYTES = 512 * 1024,             /* between two looks at the abort word */
    TABLES_AT = N_BUFFERS * BUFFER_BYTES,
    TABLE_BYTES =
        1024 * 2 * 8, /* where the blocks of an all_to_all_v begin, and how long they are */
    VERDICT_AT = TABLES_AT + 2 * TABLE_BYTES,
    FOUND_AT = VERDICT_AT + 64,
};
_Static_assert(FOUND_AT + 64 <= TRANSPORT_SHM_MAILBOX_BYTES, "all of it fits the mailbox");

static inline uint8_t *cpu_buffer(const struct cpu *c, unsigned rank, uint64_t piece)
{
    return c->shm->member[rank].mailbox + piece % N_BUFFERS * BUFFER_BYTES;
}

/* --- algo_small.c: moving a slice of every block through buffers ------------------------------ */

/* Elements of slice `s` that lie in a block of `count`. */
static inline size_t cpu_clip(struct slice s, size_t count)
{
    size_t left = s.first < count ? count - s.first : 0;
    return left < s.count ? left : s.count;
}

static inline void cpu_copy(void *to, const void *from, size_t bytes)
{
    if (to != from && bytes > 0)
        memcpy(to, from, bytes);
}

/* Fold c->in[0 .. n) into c->out[0 .. n_out). */
static inline void cpu_kernel(struct cpu *c, unsigned n_out, size_t count)
{
    if (count == 0)
        return;
    if (c->job.checked != NULL)
        c->job.found |= c->job.checked(c->in, c->n, c->out, n_out, count);
    else
        c->kernels->fn[c->job.dtype][c->job.op](c->in, c->n, c->out, n_out, count);
}

/* Where a rank that adds up a part records whether it found something there that is not finite. Two
 * calls take turns, as the tables of all_to_all_v do. */
static inline uint32_t *cpu_found_of(const struct cpu *c, unsigned rank)
{
    return (uint32_t *)(c->shm->member[rank].mailbox + FOUND_AT) + (c->job.seq & 1);
}

/* In an algorithm that shares the work: before the step that follows this rank's last kernel, and
 * after it. */
static inline void cpu_tell_found(const struct cpu *c)
{
    if (c->job.checked != NULL)
        *cpu_found_of(c, c->rank) = c->job.found;
}
static inline void cpu_hear_found(struct cpu *c)
{
    for (unsigned r = 0; c->job.checked != NULL && r < c->n; r++)
        c->job.found |= *cpu_found_of(c, r) != 0;
}

/* Put slice `s` of each block of this rank's `in` into `buffer`, `pitch` bytes from block to
 * block. */
void cpu_fill(struct cpu *c, uint8_t *buffer, size_t pitch, struct slice s);

/* Make slice `s` of this rank's `out` from all ranks' buffers, which lie at c->in[]. */
void cpu_take(struct cpu *c, size_t pitch, struct slice s);

/* --- where the ranks' memory is, after the rendezvous ----------------------------------------- */

static inline const struct transport_shm_place *cpu_place(const struct cpu *c, unsigned rank)
{
    return &transport_shm_note(c->shm, rank)->place;
}

/* all_to_all_v: what a rank's `in` looks like. */
struct cpu_table {
    uint64_t first, count;
};
static inline struct cpu_table *cpu_table(const struct cpu *c, unsigned rank)
{
    return (struct cpu_table *)(c->shm->member[rank].mailbox + TABLES_AT +
                                (c->job.seq & 1) * TABLE_BYTES);
}
_Static_assert(TABLE_BYTES >= 1024 * sizeof(struct cpu_table), "a row for each rank");

/* The block of a rank's `in` that this rank reads. */
static inline struct slice cpu_in_of(const struct cpu *c, unsigned rank)
{
    if (c->job.layout.in_counts == c->job.layout.counts)
        return layout_in_of(&c->job.layout, rank);
    const struct cpu_table *t = &cpu_table(c, rank)[c->rank];
    return (struct slice){t->first, t->count};
}

/* --- algo_staged.c ---------------------------------------------------------------------------- */

/* Before the rendezvous: fill the buffer of the first piece. */
void staged_fill_first(struct cpu *c);

/* --- algo_cma.c ------------------------------------------------------------------------------- */

/* Find out whether all ranks can read each other's memory. cma_ask() before a step, cma_agree()
 * after it. */
void cma_ask(struct cpu *c);
void cma_agree(struct cpu *c);
/* Whether the open job is one for it, if it works. */
bool cma_is_worth_it(const struct cpu *c);
void cma_init(struct cpu *c);
/* Copy what this rank gets of a collective that adds nothing up from where the others' memory lies:
 * also of `direct`, with nothing to be read by system call. returns false: the group broke */
bool cma_collect(struct cpu *c);

/* Whether that is a process of this system that is `rank` of the group, and can be read.
 * probe   where its cpu.cma_probe lies */
bool cma_can_read(uint32_t pid, uint64_t probe, unsigned rank);

/* Copy another process's memory. returns 0, -errno */
int cma_read(uint32_t pid, void *to, uint64_t from, size_t bytes);

/* --- p2p_shm.c: messages; any thread may call ------------------------------------------------- */

/* returns   0, -ENOMEM; the text names the variable to change */
int p2p_shm_create(struct cpu *c, struct p2p_shm **ret, struct co_error *err);
void p2p_shm_destroy(struct p2p_shm *ms); /* what is in the outbox stays; NULL is fine */

void p2p_shm_begin(struct p2p_shm *ms, struct message *m);
/* Continue all that are open. returns whether any are still open */
bool p2p_shm_advance(struct p2p_shm *ms);
void p2p_shm_wait(struct p2p_shm *ms, const struct message *until);

/* --- group_memory.c: where the ranks of a group that was split off rendezvous ----------------- */

struct group_memory { /* a block of this rank */
    struct group_memory *next;
    uint64_t offset; /* in this rank's user segment */
    struct control_line *line;
    bool in_use;
    unsigned n_last;            /* members of its last group */
    struct control_line **last; /* their lines, owned; NULL: none */
    uint32_t end;               /* what their counters have reached once that group is over */
};

void group_pool_fini(struct group_pool *p);

/* returns   0; -ENOMEM; the text names the variable to change */
int group_memory_take(struct group_pool *p, struct group_memory **ret, struct co_error *err);

/* Give a block back. NULL is fine.
 *
 * last   the group that used it, whose members' counters will reach its own, or have; NULL: none
 *        did */
void group_memory_give_back(struct group_memory *m, const struct transport_shm *last);

/* The block at that offset of a peer's user segment, which lies at `user` here. */
struct transport_shm_member group_memory_at(uint8_t *user, uint64_t offset, unsigned local_rank);

#endif
