/* recovery.h - what a process keeps from one generation of its job to the next
 * (docs/design/recovery.md), and how the ranks of the next one come to the same state.
 *
 * A rank has completed so many steps; the most that any rank of a generation has completed is the
 * state that counts. Ranks that have it give it to their peers: when they make a model, a sampler,
 * or register memory. No rank waits for another one here except inside of collectives.
 *
 * It belongs to ddp_run(). A program that calls ddp_init() has none: all functions take the world's
 * NULL for "nothing to keep". */
#ifndef DDP_WORKER_RUNTIME_GROUP_RECOVERY_H
#define DDP_WORKER_RUNTIME_GROUP_RECOVERY_H

#include "shards.h"
#include "worker-runtime/join/node_join.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ddp_group;

struct recovery_place {  /* where a sampler stands, between two batches */
    int64_t epoch;       /* -1: before the first */
    int64_t base, taken; /* of struct sampler_plan, and of this rank after that */
    int64_t world_size;
};

struct recovery_sampler {
    struct recovery_place place; /* after n_done steps */
    uint64_t n_done;
    bool is_known;
};

struct recovery_shards {
    struct recovery_shards *next;
    struct shards shards; /* unused where nothing was kept yet */
    void *gradients;      /* of ddp_alloc(): for the life of the process; NULL: none */
    size_t gradients_bytes;
};

struct recovery_model {
    struct recovery_model *next;
    void *left; /* owned; what the same model of the generation before has left; NULL: nothing */
    void (*release)(void *left);
};

/* Copies of registered memory, for models whose steps change it between exchanges. */
struct recovery_copies {
    uint8_t *memory; /* owned; piece after piece; NULL: no model asked for copies */
    uint64_t digest; /* of the names and sizes of the pieces */
    bool are_made;   /* they are as after the last completed step */
};

struct recovery {
    struct node_again again;
    bool is_inside;  /* this process has entered the job */
    uint64_t n_done; /* steps that this rank has completed, those that it was given included */
    bool is_torn;    /* its state is partly its own, partly another's: good for nothing until it
                        has completed a step with what it was given */
    /* of this generation: */
    uint64_t most_done;                           /* by any rank; 0: there is nothing to give */
    bool all_have;                                /* it, already: the same bits on all ranks */
    size_t n_samplers;                            /* made so far */
    struct recovery_memory *memory, **memory_end; /* registered, in order */
    struct recovery_shards **next_shards;         /* of the next sharded state that is made */
    struct recovery_model **next_model;           /* of the next model */
    /* of all: */
    struct recovery_shards *shards;   /* owned; a list in the order in which they are made */
    struct recovery_model *models;    /* the same */
    struct recovery_copies copies;    /* state.c */
    struct recovery_sampler *sampler; /* owned; by the order in which samplers are made */
    size_t cap;
};

void recovery_init(struct recovery *r);
void recovery_fini(struct recovery *r);

/* A generation begins: compare steps. Collective.
 * returns   0; DDP_EPEER all ranks that had a state are gone, and this one's is torn: it has to be
 *           started again; else as ddp_all_reduce() */
int recovery_begin(struct ddp_group *world);

/* Whether ranks may have to take the state of others in this generation: the same on all. */
bool recovery_is_due(const struct ddp_group *g);

/* Whether this rank has the state that counts. */
static inline bool recovery_has_state(const struct recovery *r)
{
    return r->n_done == r->most_done;
}

/* Whether a rank lacks the state, so that what all share has to be sent: the same on all. Also true
 * if nothing is due: at the start rank 0 gives what it has. */
bool recovery_sends(const struct ddp_group *g);

/* A rank of g whose state counts. Collective over g, where it is due and not all have it; else
 * rank 0 without a call.
 *
 * returns   0; DDP_EUNSUPPORTED no rank of g has it; else as ddp_all_reduce() */
int recovery_find_giver(struct ddp_group *g, int *ret_rank);

/* state.c: take registered memory from rank `giver` of g, the first time in a generation.
 * Collective over g.
 *
 * returns   0; DDP_EMISMATCH the ranks have registered something else, or a callback failed on
 *           another rank; DDP_ENOMEM, or what a callback of this rank returned; else as
 *           ddp_broadcast() */
int recovery_take_memory(struct ddp_group *g, int giver);

/* state.c: where a step that all ranks complete together spans several that a rank makes alone
 * (ddp_model_opts.local_steps), registered memory changes in between. Space for a copy, which
 * recovery_take_memory() of the next generation restores. Not collective; nothing where no
 * generation can follow.
 *
 * returns   0, -ENOMEM */
int recovery_copies_reserve(struct ddp_group *g);
/* The memory is as after a completed step. Nothing without a reserve, or if g is not the world. */
void recovery_copies_save(struct ddp_group *g);

/* A step of training is complete: count it, where it was one of the world, and report it to ddprun.
 *
 * began_ns   when the call began that ends it (common/clock.h) */
void recovery_count_step(struct ddp_group *g, uint64_t began_ns);

/* What is kept for the next sharded state that this generation makes: the same one in the same
 * order in each.
 *
 * ret       lent until recovery_fini(); NULL where no generation can follow this one
 * returns   0, -ENOMEM */
int recovery_get_shards(struct ddp_group *g, struct recovery_shards **ret);

/* What the next model that this generation makes has: the same one in the same order in each.
 *
 * ret       lent until recovery_fini(); NULL where no generation can follow this one
 * returns   0, -ENOMEM */
int recovery_get_model(struct ddp_group *g, struct recovery_model **ret);

/* Make space for one more sampler. returns 0, -ENOMEM */
int recovery_add_sampler(struct ddp_group *g, size_t *ret_number);

/* A sampler is about to continue from here; it returns to what comes after a completed step. */
void recovery_mark(struct ddp_group *g, size_t number, const struct recovery_place *place);

/* Where sampler `number` of rank `giver` of g has to continue. Collective over g, where it is due.
 *
 * ret       .epoch -1: at the start
 * returns   0, else as ddp_broadcast() */
int recovery_take_place(struct ddp_group *g, int giver, size_t number, struct recovery_place *ret);

#endif
