/* model_priv.h - what the files of ddp_model share.
 *
 *   model.c           making, destroying, and the calls between steps
 *   model_step.c      the calls of a step, also of one in a graph, and of a rank without batches
 *   model_buckets.c   where the buckets of a plan lie in memory; another plan after the first step
 *   model_average.c   from a complete bucket to its average
 *   model_kept.c      what outlives the generation: gradients, and buffers after the last step
 *   model_local.c     steps of each rank alone, and the outer step of all
 *   model_int8.c      averages that travel as int8
 *   model_graph.c     whether a step goes into a CUDA graph
 *   model_commit.c    failures, and the exchange at the end of a step
 *   model_agree.c     do all ranks describe the same network?
 *   model_device.c    gradients that lie on a GPU
 *
 * Failures: a broken group (a peer died, ranks differ, a deadline passed) stays broken, and each
 * call returns it from then on. A misuse of this rank must not make the other ranks wait: the step
 * continues, and fails on all ranks in the exchange at its end. */
#ifndef DDP_WORKER_RUNTIME_MODEL_MODEL_PRIV_H
#define DDP_WORKER_RUNTIME_MODEL_MODEL_PRIV_H

#include "bucket_plan.h"
#include "common/error.h"
#include "worker-runtime/core/group.h"
#include <ddp/error.h>
#include <ddp/model.h>
#include <stdatomic.h>

#define MODEL_NONE SIZE_MAX /* no gradient */

/* Where the gradients of a bucket lie; the same on all ranks. */
enum bucket_where {
    BUCKET_NOWHERE, /* where they are: nothing is averaged in a world of 1 */
    BUCKET_OURS,    /* run by run in memory of the library, as the plan has them */
    BUCKET_USERS,   /* run by run in memory of the program, without gaps */
    BUCKET_COPIED,  /* here and there: they are copied into the bucket and back */
};

struct bucket_piece { /* what one call averages: a run of the plan, or the bucket's copies */
    uint8_t *memory, *end;
    size_t offset;               /* of a run's first gradient in the plan's bucket */
    int found_inf;               /* with check_finite: it may hold what is not finite */
    struct ddp_request *request; /* on its way; NULL: not, or averaged by a hook */
};

struct model_bucket {
    enum bucket_where where;
    enum ddp_dtype dtype;
    struct bucket_piece *piece; /* n_pieces of bucket_set.pieces */
    size_t n_pieces;
    size_t count;    /* elements in all of them */
    uint8_t *copies; /* owned, of ddp_alloc(): the one piece of BUCKET_COPIED; else NULL */
    uint8_t *wire;   /* owned, of ddp_alloc(): what travels where that has another type, or what a
                        hook sees of places on a device: the values of all pieces, with the request
                        of the first one; else NULL */
    enum ddp_dtype wire_dtype;
    bool is_int8;      /* the wire is float32, and travels between nodes as int8 */
    float *rest;       /* owned; of a leader (model_int8.c): what rounding has left; else NULL */
    uint8_t *packed;   /* owned; the same: what is sent and received */
    uint64_t began_ns; /* it was sent on its way */
};

struct bucket_set {
    struct bucket_plan plan;
    struct bucket_ready ready;
    struct model_bucket *at;     /* owned; in the order of the plan */
    struct bucket_piece *pieces; /* owned; one per run, on a device per gradient, and at least one
                                    per bucket */
    uint8_t *can;                /* owned; per bucket: what all ranks can do with it */
};

struct model_homes {             /* of gradients that the library allocated */
    struct bucket_plan plan;     /* a "bucket" per type */
    struct bucket_tensor *sizes; /* owned; per tensor; 0 bytes: it has no home */
    size_t n_tensors;
    bool any_handed_out;             /* the program has addresses in it: never freed */
    uint8_t *memory[DDP_UINT64 + 1]; /* of ddp_alloc(), per bucket of the plan */
};

struct model_kept {            /* model_kept.c */
    struct model_homes *homes; /* owned; of the generation before; NULL: none */
    uint8_t *buffers;          /* owned; one after the other; NULL: no copy is made */
    size_t buffers_bytes;
    bool has_saved;    /* a copy is in `buffers`, */
    bool is_of_a_step; /* made after a step that counted: not only of how they began */
    uint8_t *outer; /* owned; model_local.c: all parameters, then all momenta, after the last outer
                          step; NULL: without local steps */
    size_t outer_bytes;
    bool has_outer; /* `outer` was filled */
};

enum model_step {                      /* the one at hand, of a model with a stream */
                  MODEL_STEP_NONE,     /* none has begun, or it was not determined */
                  MODEL_STEP_PLAIN,    /* its buckets are averaged now */
                  MODEL_STEP_CAPTURED, /* they go into a graph */
                  MODEL_STEP_REFUSED,  /* it cannot be in that graph; the failure has the reason */
};

struct ddp_model {
    struct group_child child; /* first member */
    struct ddp_group *g;
    struct ddp_tensor *tensors; /* borrowed */
    size_t n_tensors;
    struct ddp_model_opts opts;  /* with defaults filled in */
    struct bucket_tensor *sizes; /* owned */
    struct model_homes *homes;   /* owned */
    bool are_homes_old;          /* they are those of the generation before */
    struct model_kept *kept;     /* owned */
    struct recovery_model
        *next;      /* borrowed: takes `kept` when the model goes; NULL: nothing does */
    uint8_t **grad; /* owned; where each gradient is */
    struct bucket_set set;
    size_t *order;         /* owned; n_tensors: see model_reorder() */
    uint64_t *order_words; /* owned; n_tensors + 1 */
    struct trace *trace;   /* borrowed, of the world; NULL: none */

    /* of the step */
    size_t n_launched; /* buckets before this one are on their way, or averaged */
    size_t n_averaged; /* buckets before this one are averaged */
    size_t n_end;      /* this one and those after it are not part of the step */
    enum model_step step;
    bool has_begun;       /* what comes before the first bucket of a step is done */
    bool is_joined;       /* this rank takes part with zeros */
    double factor;        /* of a weighted model: this rank's part of the average */
    size_t own_bad;       /* the first gradient of this rank that is not finite, or MODEL_NONE */
    size_t bad;           /* the same of the averages, */
    size_t bad_at;        /* its element, */
    double bad_value;     /* and that one's value */
    uint64_t backward_ns; /* when the first gradient was ready; of a trace */
    int failure;          /* status; 0: none */
    bool broken;          /* the failure is the group's, and stays */
    char failure_text[CO_ERROR_TEXT_BYTES];

    /* of a model with a stream that goes through a communicator: see model_device.c */
    uint32_t *found;      /* owned; memory of the device */
    uint32_t *found_host; /* owned; as they were at the end of a step's averages */
    char unregistered[CO_ERROR_TEXT_BYTES]; /* why memory is not registered with NCCL */

    /* for a model with a stream; to clip its gradients */
    void *clip_work;   /* owned; memory of the device; NULL: it has no kernels, */
    double *clip_norm; /* owned; where the norm comes to the host */
    char no_kernels[CO_ERROR_TEXT_BYTES]; /* and why */

    /* of all steps */
    bool found_inf; /* with tell_nonfinite, of the last one that counted */
    bool accumulates;
    bool is_captured; /* a graph has a step */
    double weight;
    uint8_t *used;          /* owned; per gradient, in the last step; NULL: all are */
    uint8_t *used_in_graph; /* owned; the same, for this rank in the step that was captured last */
    int checkpoint_fd;      /* by which ddprun asks for a checkpoint; -1: it does not */
    struct ddp_group *node, *leaders; /* owned; model_int8.c; NULL: none */
    size_t *int8_bytes;               /* owned; 2 for each leader; NULL: not a leader */
    size_t *outer_at;     /* owned; n_tensors + 1: where a tensor lies in kept->outer; NULL:
                               without local steps */
    size_t n_inner;       /* steps that this rank has made since the last outer step, or with
                               fragments since all were exchanged */
    uint64_t n_steps;     /* that ended, well or not: part of what ranks agree on */
    int last_active_rank; /* the lowest one that was not joined in the last step that had one */
    struct ddp_model_stats stats;
};

static inline bool model_looks_for_nonfinite(const struct ddp_model *m)
{
    return m->opts.check_finite || m->opts.tell_nonfinite;
}

static inline size_t model_bytes_of(const struct ddp_model *m, size_t i)
{
    return m->sizes[i].bytes;
}

/* --- model_step.c ----------------------------------------------------------------------------- */

/* Nothing is ready, nothing is on its way. */
void model_begin_step(struct ddp_model *m);
/* Gradient i is final: copy it to its bucket, and count down. */
void model_take_gradient(struct ddp_model *m, size_t i);
/* All gradients were marked ready, or none. returns 0; DDP_EINVAL, which was kept */
int model_check_ready(struct ddp_model *m);
/* The exchange, and what follows from it.
 *
 * rc        of the averages
 * n_said    see model_reorder()
 * returns   0 the step counts; else a public status */
int model_end_step(struct ddp_model *m, int rc, uint64_t began_ns, size_t n_said,
                   bool *ret_any_active);

/* --- model_buckets.c -------------------------------------------------------------------------- */

/* Find a place for the gradients that the library allocates, and set m->grad. Not collective.
 * returns a public status */
int model_homes_create(struct ddp_model *m);
/* Give the program its gradients. */
void model_homes_hand_out(struct ddp_model *m);
/* Memory that was handed out stays, for the life of the process. NULL is fine. */
void model_homes_destroy(struct model_homes *h, struct ddp_model *m);

/* Plan buckets, without their memory. Not collective.
 *
 * order     see bucket_plan.h
 * returns   a public status; *set can be destroyed in any case */
int model_buckets_plan(struct ddp_model *m, const size_t *order, struct bucket_set *set);

/* Find or make their memory. Collective, and fails on all ranks if on one.
 *
 * returns   0; DDP_ENOMEM on a rank that has none, DDP_EMISMATCH on the others: the group is whole;
 *           else as ddp_all_reduce() */
int model_buckets_place(struct ddp_model *m, struct bucket_set *set);
void model_buckets_destroy(struct ddp_model *m, struct bucket_set *set); /* zeroed is fine */

/* Where gradient i is averaged: in its bucket's copies, or where it is. */
uint8_t *model_averages_of(const struct ddp_model *m, size_t i);

/* Plan the buckets again from the order in which rank 0 had its gradients ready. Collective,
 * between two steps. If there is no better plan, or some rank is out of memory for it, nothing
 * changes.
 *
 * n_said    how many this rank had reported in the step that is over: of rank 0, all of them, or
 *           there is no order
 * returns   0; else as ddp_broadcast() */
int model_reorder(struct ddp_model *m, size_t n_said);

/* Between a gradient and its bucket: copies where the bucket has copies. */
void model_copy_in(struct ddp_model *m, size_t i);
void model_zero(struct ddp_model *m, size_t i);
void model_copy_out(struct ddp_model *m);

/* --- model_kept.c ----------------------------------------------------------------------------- */

/* Take what the same model of the generation before has left, if it fits.
 * returns a public status */
int model_kept_take(struct ddp_model *m);
/* Leave it to the next one; else free it. Half-built is fine. */
void model_kept_leave(struct ddp_model *m);

/* Give all ranks root's buffers. After an error a rank of the CPU whose job may recover has its own
 * as they were, not parts of root's: it may be the one that gives them in the next generation.
 * returns a public status */
int model_kept_equalize(struct ddp_model *m, int root);
/* With keep_buffers: remember the buffers, or make them what was remembered, if anything was.
 * Without, nothing. */
void model_kept_save(struct ddp_model *m, bool is_of_a_step);
void model_kept_restore(struct ddp_model *m);

/* --- model_local.c ---------------------------------------------------------------------------- */

static inline bool model_is_local(const struct ddp_model *m)
{
    return m->opts.local_steps > 0;
}

/* Memory for the outer state, or that of the generation before. Not collective; nothing without
 * local steps, as of the next two. returns a public status */
int model_local_prepare(struct ddp_model *m);
/* Before parameters are sent: those of the last outer step, of a rank whose state counts. */
void model_local_restore(struct ddp_model *m);
/* After it: the outer state is that of all ranks. Collective. returns as ddp_broadcast() */
int model_local_take(struct ddp_model *m, int giver);
/* --- model_int8.c ----------------------------------------------------------------------------- */

static inline bool model_is_int8(const struct ddp_model *m)
{
    return m->opts.compress == DDP_COMPRESS_INT8 && m->g->n_nodes > 1;
}

/* Groups of a node's ranks, and of one rank of each node. Collective. returns as
 * ddp_group_split() */
int model_int8_open(struct ddp_model *m);
void model_int8_close(struct ddp_model *m); /* half-open is fine */
/* Memory for a bucket. returns false without memory */
bool model_int8_place(struct ddp_model *m, struct model_bucket *b);
/* What rounding has left of a step that does not count is dropped. */
void model_int8_forget(struct ddp_model *m);
/* What this rank sends of a bucket to other nodes, once. */
size_t model_int8_bytes(const struct ddp_model *m, const struct model_bucket *b);
/* The wire becomes the average or, with is_sum, the sum of all ranks' wires. Collective.
 * returns as ddp_all_reduce() */
int model_int8_average(struct ddp_model *m, struct model_bucket *b, bool is_sum);

/* --- model_average.c -------------------------------------------------------------------------- */

/* Send buckets that are complete on their way, in order, and finish those that are there, as far as
 * that goes without waiting. returns 0, or the failure, which was kept */
int model_average_some(struct ddp_model *m);
/* All of them. */
int model_average_all(struct ddp_model *m);
/* Put all of them into the graph that the stream captures; nothing is waited for. */
int model_average_capture(struct ddp_model *m);
/* Nothing is on its way afterwards. The last chance before memory is freed.
 *
 * waits   false: what others must come for is left to the end of the group */
void model_average_stop(struct ddp_model *m, bool waits);

/* --- model_device.c: of a model with a stream
 * -------------------------------------------------- */

static inline bool model_is_on_device(const struct ddp_model *m)
{
    return m->opts.stream != NULL;
}

/* What there is of this rank alone: options, whose memory it is, and what they need. returns a
 * public status */
int model_device_prepare(struct ddp_model *m);
void model_device_fini(struct ddp_model *m); /* half-built is fine, and one on CPUs */

/* Whether buckets go through a communicator: in a world of 1 only to be looked at, or by a hook. */
static inline bool model_device_averages(const struct ddp_model *m)
{
    return model_is_on_device(m) &&
           (m->g->world_size > 1 || model_looks_for_nonfinite(m) || m->opts.hook != NULL);
}

/* Zeros, of any model: in the order of its stream, or at once. */
int model_clear(struct ddp_model *m, void *at, size_t bytes);

/* A piece for each gradient of the bucket, where ranks have them at other distances. */
void model_device_scatter(struct ddp_model *m, struct bucket_set *set, size_t k);

/* Register the memory of all buckets with NCCL, if all ranks can; stats record whether. Collective.
 * returns as ddp_all_reduce() */
int model_device_enlist(struct ddp_model *m, const struct bucket_set *set);

/* Send a bucket on its way.
 *
 * is_sum, before, after   see struct device_average
 * returns                 a public status */
int model_device_send(struct ddp_model *m, const struct model_bucket *b, bool is_sum, double before,
                      double after);
/* Have a hook do that: what it is called with comes after what packs the bucket.
 *
 * call      returns whether that succeeded. It reports its failure itself: then this returns 0
 * returns   a public status */
int model_device_hook(struct ddp_model *m, const struct model_bucket *b,
                      bool (*call)(void *arg, void *stream), void *arg);
/* Wait for all that are, and hear what they found. returns a public status */
int model_device_wait(struct ddp_model *m);

/* Finish what goes into a graph: what is found is copied to the host, and the program's stream
 * waits for everything.
 * returns a public status; DDP_EINVAL: CUDA has invalidated the capture */
int model_device_close_graph(struct ddp_model *m);
/* Before a launch: set the word by which the host sees that it has run. */
void model_device_arm_replay(struct ddp_model *m);
/* Wait for a launch, and hear what it found; arms the next one. returns a public status; DDP_EINVAL
 * none has run */
int model_device_wait_replay(struct ddp_model *m);

/* ddp_model_clip() */
int model_device_clip(struct ddp_model *m, double max_norm, double *ret_norm);

/* --- model_graph.c: the states are in docs/design/nccl.md, "Graphs". On CPUs these return 0
 * ---------- */

/* In a call that belongs to a step: the first one finds out where the step goes. returns 0;
 * otherwise a status, which was kept: the step is not in a graph that it should be in */
int model_graph_enter(struct ddp_model *m);
/* Before something is put on a stream: whether it still goes there. returns the same */
int model_graph_look(struct ddp_model *m);
/* Whether a call may be made between steps, outside of a capture. returns 0; DDP_EINVAL, not
 * kept */
int model_graph_check_outside(struct ddp_model *m, const char *name);
/* Where steps were captured: do all ranks replay this one, or none? Collective. returns 0;
 * DDP_EMISMATCH, the job has been broken; else as ddp_all_reduce() */
int model_graph_meet(struct ddp_model *m, bool replays);
/* Synchronize with the other ranks that replay this step, and wait for its launch. returns 0; the
 * failure, which was kept. A launch that was forgotten fails the step in the exchange at its end:
 * 0 */
int model_graph_wait(struct ddp_model *m);

/* --- model_commit.c --------------------------------------------------------------------------- */

/* Keep the first failure of the step and its text, ddp_last_error(); that of the group outlives and
 * outranks a misuse. returns status */
int model_keep_failure(struct ddp_model *m, int status, bool is_the_groups);
/* Keep a misuse of this rank. returns DDP_EINVAL */
__attribute__((format(printf, 2, 3))) int model_misuse(struct ddp_model *m, const char *format,
                                                       ...);
/* The failure that was kept, with its text. returns it; 0: none */
int model_tell_failure(const struct ddp_model *m);

/* Synchronize with all ranks at the end of the step, and agree whether it counts.
 *
 * ret_any_active   whether a rank took part that was not joined
 * returns          0 it does; else a public status, which was kept */
int model_commit(struct ddp_model *m, bool *ret_any_active);

/* One word for all ranks of a node: the last step that counts.
 *
 * A step ends with an exchange in which all ranks take part. When a rank dies in the middle of it,
 * some of its peers have completed the exchange and some have not: one would continue with the
 * step's gradients, another would discard them. So the answer is written into one word that all of
 * them share:
 *
 *     bit 0       the group is broken: no further step is decided
 *     bits 1-63   the last step that counts
 *
 * A rank that has come through the exchange decides for the step, a rank that has failed in it
 * decides against it; both by compare-and-swap, so the first one settles it for every rank. Between
 * nodes answers can differ, by one step: then the highest one wins.
 *
 * Pure: one word, no waiting. Steps are counted from 1, and decided in their order. */
/* This rank has come through the exchange of `step`. returns whether the step counts */
bool model_commit_decide(_Atomic uint64_t *word, uint64_t step);

/* This rank has failed in the exchange of `step`, or before. returns whether it still counts, since
 * another rank had decided so */
bool model_commit_give_up(_Atomic uint64_t *word, uint64_t step);

#endif
