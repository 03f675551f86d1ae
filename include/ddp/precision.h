/* precision.h - training with 16-bit floats: conversions, and what is kept in which type.
 *
 * The four levels are those of Apex's amp; `half` is DDP_FLOAT16 or DDP_BFLOAT16:
 *
 *     level   layers compute in   parameters, gradients   norm layers   master weights   loss scale
 *     O0      float32             float32                 float32       no               1
 *     O1      half                float32                 float32       no               dynamic
 *     O2      half                half                    float32       yes              dynamic
 *     O3      half                half                    half          no               1
 *
 * The program's kernels choose the type in which a layer computes: ddp_precision.compute gives it.
 * A ddp_mixed keeps the rest. */
#ifndef DDP_PRECISION_H
#define DDP_PRECISION_H

#include <ddp/model.h>
#include <ddp/scaler.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Round each of `from` to nearest (ties to even) into `to`. Floating-point types; with the
 * processor's vectors. A conversion between float64 and a 16-bit type goes by way of float32.
 *
 * returns   0; DDP_EINVAL a type is not floating-point, or NULL with count > 0 */
int ddp_cast(void *to, enum ddp_dtype to_dtype, const void *from, enum ddp_dtype from_dtype,
             size_t count);

/* --- a policy --------------------------------------------------------------------------------- */

enum ddp_opt_level { DDP_O0 = 0, DDP_O1 = 1, DDP_O2 = 2, DDP_O3 = 3 };

struct ddp_precision {      /* plain: change what you want otherwise */
    enum ddp_dtype compute; /* of what goes into layers and comes out of them */
    enum ddp_dtype param;   /* type of parameters, and of gradients that the ranks exchange */
    bool keep_norm_fp32;    /* parameters of norm layers stay as they are */
    bool master_weights;    /* the optimizer's own, finer parameters */
    bool is_scaled;         /* by a scale that follows the gradients; else it is 1 and fixed */
};

/* returns   0; DDP_EINVAL no such level, or `half` is not a 16-bit type */
int ddp_precision_init(struct ddp_precision *p, enum ddp_opt_level level, enum ddp_dtype half);

/* The scaler that goes with it: torch's, at most 2^24 as Apex has it; or fixed at 1. */
void ddp_precision_scaler(const struct ddp_precision *p, struct ddp_scaler *ret);

/* --- parameters in two types ------------------------------------------------------------------ */

/* In addition to the network's parameters as the optimizer sees them, the masters, it has those
 * that the network and the other ranks see: in the policy's type if that is another one, otherwise
 * in the same memory. A step:
 *
 *     backward: writes ddp_mixed_tensors()[i].grad, scaled
 *     ddp_model_sync(m): averages these
 *     ddp_mixed_take_gradients(): unscaled, into the masters' grad
 *     the optimizer's step on the masters, unless found_inf
 *     ddp_mixed_give_params(): the masters, rounded, to the network */
struct ddp_mixed; /* opaque */

/* Not collective, and needs no group.
 *
 * masters     n of them, float32 or float64, param and grad given; borrowed until destroyed
 * is_norm     n flags, of those that belong to norm layers; NULL: none
 * ret_mixed   owned by the caller, which calls ddp_mixed_destroy()
 * cost        a parameter in 16 bits for each that is not kept
 * returns     0; DDP_EINVAL a NULL, or another type; DDP_ENOMEM */
int ddp_mixed_create(const struct ddp_precision *p, struct ddp_tensor *masters, size_t n,
                     const bool *is_norm, struct ddp_mixed **ret_mixed);
void ddp_mixed_destroy(struct ddp_mixed *x); /* after its model; NULL is fine */

/* The n tensors for ddp_model_create(), which allocates gradients that are not the masters'. Lent;
 * the parameters are the masters', rounded, from the beginning on. If ddp_model_create() has taken
 * those of another rank, the masters also have to come from there: by the same seed, or by
 * ddp_state_add() after a replacement. */
struct ddp_tensor *ddp_mixed_tensors(struct ddp_mixed *x);

/* Gradients of ddp_mixed_tensors(), times 1 / scale, into the masters'.
 *
 * found_inf   as of ddp_scaler_unscale()
 * returns     0; DDP_EINVAL a NULL, or a gradient is missing: there was no ddp_model_create() */
int ddp_mixed_take_gradients(struct ddp_mixed *x, const struct ddp_scaler *s, int *found_inf);

/* The masters' values into ddp_mixed_tensors(). Without master weights the masters are also
 * rounded: nothing finer is kept. */
void ddp_mixed_give_params(struct ddp_mixed *x);

#ifdef __cplusplus
}
#endif
#endif
