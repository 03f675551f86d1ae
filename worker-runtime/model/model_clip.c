/* model_clip.c - the norm of all gradients, as of one vector. Every rank has the same gradients and
 * adds up in the same order: nobody need be asked. */
#include "model_priv.h"

#include "worker-runtime/arithmetic/convert.h"
#include "worker-runtime/core/process.h"
#include <math.h>

int ddp_model_clip(struct ddp_model *m, double max_norm, double *ret_norm)
{
    double sum = 0;
    if (m == NULL || !(max_norm > 0))
        return rt_fail(DDP_EINVAL, "ddp_model_clip: a model and a norm of more than 0 are needed");
    if (m->n_launched > 0)
        return rt_fail(DDP_EINVAL,
                       "ddp_model_clip: %zu gradient buckets are on their way: call "
                       "ddp_model_sync() before",
                       m->n_launched);
    if (model_is_on_device(m))
        return model_device_clip(m, max_norm, ret_norm);
    for (size_t i = 0; i < m->n_tensors; i++)
        sum += convert_sum_of_squares(m->grad[i], m->tensors[i].dtype, m->tensors[i].count);
    const double norm = sqrt(sum), factor = max_norm / (norm + 1e-6);
    if (isfinite(norm) && factor < 1)
        for (size_t i = 0; i < m->n_tensors; i++)
            convert_scale(process_kernels(), m->grad[i], m->tensors[i].dtype, m->tensors[i].count,
                          factor);
    if (ret_norm != NULL)
        *ret_norm = norm;
    return 0;
}
