/* scaler.h - a loss scale that follows the gradients, number for number as torch's GradScaler.
 *
 * 16-bit floats hold neither very small nor very large gradients. So the loss is multiplied by a
 * scale before the backward pass, and gradients are divided by it after they were averaged. Where
 * one of them became infinite on the way, all ranks skip the step and halve the scale; after 2000
 * steps without that it is doubled:
 *
 *     d_loss *= scaler.scale;
 *     backward(net, m);
 *     if ((rc = ddp_model_sync(m)) != 0)                       // with tell_nonfinite
 *         return rc;
 *     found_inf = ddp_model_found_inf(m);                      // the same on all ranks
 *     ddp_scaler_unscale(&scaler, tensors, n_tensors, &found_inf);
 *     if (!found_inf)
 *         optimiser_step();
 *     ddp_scaler_update(&scaler, found_inf);
 *
 * A scaler is numbers and no more: copy it, register it by ddp_state_add(). All ranks have the same
 * one, since each updates it by what all of them know. */
#ifndef DDP_SCALER_H
#define DDP_SCALER_H

#include <ddp/model.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ddp_scaler_opts {     /* zeroed: torch's defaults */
    float init_scale;        /* more than 0; 0: 65536 */
    double growth_factor;    /* more than 1; 0: 2 */
    double backoff_factor;   /* between 0 and 1; 0: 0.5 */
    int32_t growth_interval; /* steps, 1 or more; 0: 2000 */
    float min_scale;         /* it does not fall below; 0: it does, down to 0, as torch's */
    float max_scale;         /* it does not rise above (Apex: 2^24); 0: as long as it is finite */
    bool is_fixed;           /* it never changes */
};

struct ddp_scaler {
    float scale;            /* what the loss is multiplied by */
    int32_t growth_tracker; /* steps since it last changed */
    int32_t growth_interval;
    int32_t is_fixed; /* 0 or 1 */
    double growth_factor, backoff_factor;
    float min_scale, max_scale;
};

/* returns   0; DDP_EINVAL an option is out of its bounds; *s is not written then */
int ddp_scaler_init(struct ddp_scaler *s, const struct ddp_scaler_opts *opts);

/* Multiply all gradients by 1 / scale, rounded to float32 as torch has it, and look whether they
 * are finite. Not collective. Before clipping; once a step.
 *
 * found_inf   becomes 1 if an element is infinite or a NaN, else it stays: begin with
 *             ddp_model_found_inf() or 0
 * returns     0; DDP_EINVAL a NULL, or a type that is not floating-point; nothing was changed */
int ddp_scaler_unscale(const struct ddp_scaler *s, const struct ddp_tensor *tensors, size_t n,
                       int *found_inf);

/* Has any rank found one? For gradients of which each rank has only a part; those that
 * ddp_model_sync() averaged are the same on all ranks, and need no question. Collective.
 *
 * found_inf   this rank's answer in, the job's out (the largest)
 * returns     as ddp_all_reduce() */
int ddp_scaler_agree(struct ddp_group *g, int *found_inf);

/* The end of a step: once for all optimizers.
 *
 * found_inf   1: the step was skipped. The scale becomes scale * backoff_factor
 *             0: one more that was not; the growth_interval-th in a row makes it
 *                scale * growth_factor, where that is finite */
void ddp_scaler_update(struct ddp_scaler *s, int found_inf);

/* What torch's state_dict() holds, for a checkpoint: a float64 tensor of 5 elements, which are the
 * scale, growth_factor, backoff_factor, growth_interval, _growth_tracker. */
enum { DDP_SCALER_N_STATE = 5 };
void ddp_scaler_save(const struct ddp_scaler *s, double state[DDP_SCALER_N_STATE]);

/* Load such a state. min_scale, max_scale and is_fixed stay, and a scale that lies outside of these
 * bounds becomes the nearer one.
 *
 * returns   0; DDP_EINVAL a number is not possible for a scaler (of a damaged checkpoint, for
 *           example); the scaler is as before */
int ddp_scaler_load(struct ddp_scaler *s, const double state[DDP_SCALER_N_STATE]);

#ifdef __cplusplus
}
#endif
#endif
