/* zero.h - a sharded optimizer (ZeRO stage 1): each rank keeps the state for an n-th of the
 * parameters, and computes the step for these.
 *
 *     ddp_zero_create(g, tensors, n_tensors, &(struct ddp_zero_opts){.optimizer = DDP_ADAMW,
 *                                                                    .lr = 1e-3}, &z);
 *     for each batch:
 *         forward, backward: writes all gradients
 *         if ((rc = ddp_zero_step(z, NULL, NULL)) != 0)
 *             return rc;
 *
 * It is used instead of a ddp_model and its optimizer. A step is a reduce_scatter of the gradients,
 * the optimizer's arithmetic on this rank's shard, an all_gather of the parameters: the traffic of
 * an all_reduce, and the state of an optimizer once in the job instead of on each rank. Averages
 * are those of ddp_model, to the bit; so any number of ranks computes what one does, except for
 * rounding.
 *
 * A rank that dies takes its shard with it. Under ddp_run(), if ranks are replaced, each rank keeps
 * its shard of the last two steps, and with `buddies` a copy of those of the rank before it, the
 * peer replica: then the replacement gets the shard from there, and the job continues from the last
 * completed step. Without peer replicas, or if a rank and the next one die at the same time,
 * ddp_zero_create() fails with DDP_EPEER: all ranks have to start again, from a checkpoint. */
#ifndef DDP_ZERO_H
#define DDP_ZERO_H

#include <ddp/checkpoint.h>
#include <ddp/model.h>
#include <ddp/scaler.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ddp_zero; /* opaque */

enum ddp_optimizer {
    DDP_SGD = 0,  /* v = momentum * v + g; p -= lr * v; g has weight_decay * p in it */
    DDP_ADAMW = 1 /* torch.optim.AdamW: decay is not part of the gradient */
};

struct ddp_zero_opts { /* the same on all ranks */
    enum ddp_optimizer optimizer;
    double lr;              /* 0 or more; ddp_zero_set_lr() changes it */
    double momentum;        /* of SGD, below 1; 0: none, and no state either */
    double weight_decay;    /* 0 or more */
    double beta1, beta2;    /* of AdamW, below 1; 0: 0.9 and 0.999 */
    double eps;             /* of AdamW; 0: 1e-8 */
    const bool *keeps_size; /* n_tensors flags: no weight_decay of these; NULL: all have it. Read by
                               create only */
    double max_norm;        /* clip as ddp_model_clip() does; 0: do not */
    bool buddies;           /* see above; used only where ranks can be replaced */
};

/* Give every rank rank 0's parameters, and divide the state, zeroed, among the ranks. Collective,
 * and all ranks fail together. After a replacement parameters and state are those of the last
 * completed step: make the same ones in the same order each time, as models.
 *
 * tensors    n_tensors (1 or more), all of one floating-point type. grad NULL: the library
 *            allocates it; else it is copied in each step. Borrowed until destroyed
 * ret_zero   belongs to the group, which destroys it with itself
 * cost       the gradients' size, shared; with 16-bit parameters a shard of float32 masters; with
 *            optimizers 1 (SGD with momentum) or 2 (AdamW) numbers per parameter of the shard.
 *            Twice that if ranks are replaced, and again for a peer replica
 * returns    0
 *            DDP_EINVAL     an option or a tensor is out of its bounds
 *            DDP_EMISMATCH  tensors or opts differ between ranks
 *            DDP_EPEER      a shard of the last step is lost; the text names the ranks
 *            DDP_ENOMEM; else as ddp_all_reduce() */
int ddp_zero_create(struct ddp_group *g, struct ddp_tensor *tensors, size_t n_tensors,
                    const struct ddp_zero_opts *opts, struct ddp_zero **ret_zero);
void ddp_zero_destroy(struct ddp_zero *z); /* NULL is fine. Not collective */

/* Of steps from now on. The same on all ranks. */
int ddp_zero_set_lr(struct ddp_zero *z, double lr); /* 0; DDP_EINVAL negative or not finite */

struct ddp_zero_step {
    int found_inf; /* 1: a gradient was not finite: the step changed nothing */
    double norm;   /* norm of all gradients as of one vector; unscaled, before clipping */
};

/* Average, step, hand out. Collective. When it returns 0 all ranks have the same parameters;
 * gradients are undefined.
 *
 * scaler    what the loss was multiplied by; NULL: nothing. ddp_scaler_update() it with found_inf
 * ret       the same on all ranks; NULL: not wanted
 * returns   0; DDP_EINVAL z is NULL; as ddp_all_reduce(), DDP_RETRY among these: the step counts as
 *           docs/design/recovery.md has it */
int ddp_zero_step(struct ddp_zero *z, const struct ddp_scaler *scaler, struct ddp_zero_step *ret);

/* --- checkpoints ------------------------------------------------------------------------------ */

enum { DDP_ZERO_MAX_ITEMS = 4 };

/* Describe the state for ddp_checkpoint_save() and _load(), in addition to the parameters, which
 * are whole items of the program's own. The state is one row of all parameters, of which this rank
 * has a shard: another number of ranks can load it. Between two steps; each time again, since the
 * state moves.
 *
 * name      goes before the items' names: "NAME.exp_avg". It and what is written here are needed
 *           until the save or load is over
 * items     DDP_ZERO_MAX_ITEMS of them; the first *ret_n are written
 * returns   0; DDP_EINVAL a NULL, a name of more than 80 bytes, or the last ddp_zero_step()
 * failed in
 *           its middle, if no generation can follow: the state belongs to no step */
int ddp_zero_items(struct ddp_zero *z, const char *name,
                   struct ddp_checkpoint_item items[DDP_ZERO_MAX_ITEMS], size_t *ret_n);

/* After a load, of parameters and of ddp_zero_items(): continue from there. Collective.
 * returns   0; DDP_EINVAL the number of steps is negative; else as ddp_all_reduce() */
int ddp_zero_loaded(struct ddp_zero *z);

/* --- numbers ---------------------------------------------------------------------------------- */

struct ddp_zero_stats {
    uint64_t n_steps;         /* that changed parameters */
    size_t first, count;      /* this rank's shard of all elements */
    size_t state_bytes;       /* of it: one version */
    size_t whole_state_bytes; /* what one rank would have alone */
    size_t held_bytes;        /* with second versions and the peer replica */
};
/* As of the last step. Not collective. */
void ddp_zero_get_stats(const struct ddp_zero *z, struct ddp_zero_stats *ret);

#ifdef __cplusplus
}
#endif
#endif
