/* gpu_amp.c - training with 16-bit floats on a GPU: masters, and what the other ranks see. */
#include "gpu_kernels.h"
#include "gpu_priv.h"

static enum gpu_half half_of(enum ddp_dtype dtype)
{
    return dtype == DDP_FLOAT16 ? GPU_FLOAT16 : dtype == DDP_BFLOAT16 ? GPU_BFLOAT16 : GPU_REAL;
}

int gpu_own_gradients(struct gpu_net *net, struct failure *why)
{
    cudaError_t result = cudaSuccess;
    for (size_t i = 0; i < net->n_tensors && result == cudaSuccess; i++)
        if (net->tensors[i].grad == NULL)
            net->tensors[i].grad = gpu_take(net, net->tensors[i].count * sizeof(real), &result);
    return gpu_check(result, "memory for gradients", why);
}

/* --- making it -------------------------------------------------------------------------------- */

static cudaError_t see_tensor(struct gpu_net *net, size_t i, const struct ddp_tensor *like)
{
    const size_t count = net->tensors[i].count;
    cudaError_t result = cudaSuccess;
    net->inside->masters[i] = gpu_take(net, count * sizeof(real), &result);
    net->seen[i] = net->tensors[i];
    net->seen[i].dtype = like->dtype;
    net->seen[i].grad = NULL; /* ddp_model_create() allocates it */
    net->seen[i].param = half_of(like->dtype) == GPU_REAL
                             ? net->inside->masters[i]
                             : gpu_take(net, count * sizeof(uint16_t), &result);
    return result;
}

int gpu_amp_open(struct gpu_net *net, const struct ddp_precision *policy,
                 const struct ddp_tensor *seen, const bool *is_norm, struct failure *why)
{
    struct gpu_priv *in = net->inside;
    cudaError_t result = cudaSuccess;
    in->half = half_of(policy->compute);
    in->keeps_masters = policy->master_weights;
    for (size_t i = 0; i < net->n_tensors && result == cudaSuccess; i++) {
        in->is_norm[i] = is_norm[i];
        result = see_tensor(net, i, &seen[i]);
    }
    if (result != cudaSuccess)
        return gpu_check(result, "memory for 16-bit floats", why);
    return gpu_own_gradients(net, why);
}

void gpu_set_scale(struct gpu_net *net, double scale)
{
    net->inside->scale = (real)scale;
}

/* --- a step ----------------------------------------------------------------------------------- */

int gpu_amp_give(struct gpu_net *net, struct failure *why)
{
    cudaError_t result = cudaSuccess;
    for (size_t i = 0; i < net->n_tensors && result == cudaSuccess; i++) {
        const struct gpu_give give = {.n = (unsigned)net->seen[i].count,
                                      .half = half_of(net->seen[i].dtype),
                                      .from = net->tensors[i].grad,
                                      .to = net->seen[i].grad};
        result = gpu_give_run(&give, give.n, net->stream);
    }
    return gpu_check(result, "gradients in 16 bits", why);
}

int gpu_amp_step(struct gpu_net *net, double lr, double momentum, struct failure *why)
{
    cudaError_t result = cudaSuccess;
    for (size_t i = 0; i < net->n_tensors && result == cudaSuccess; i++) {
        const struct gpu_master step = {.n = (unsigned)net->seen[i].count,
                                        .half = half_of(net->seen[i].dtype),
                                        .lr = (real)lr,
                                        .momentum = (real)momentum,
                                        .inverse = 1 / net->inside->scale,
                                        .grad = net->seen[i].grad,
                                        .velocity = net->inside->velocity[i],
                                        .master = net->inside->masters[i]};
        result = gpu_master_run(&step, step.n, net->stream);
    }
    return gpu_check(result, "the optimizer's step", why);
}

int gpu_amp_show(struct gpu_net *net, struct failure *why)
{
    const struct gpu_priv *in = net->inside;
    cudaError_t result = cudaSuccess;
    for (size_t i = 0; i < net->n_tensors && result == cudaSuccess; i++) {
        const enum gpu_half half = half_of(net->seen[i].dtype);
        const struct gpu_show show = {.n = (unsigned)net->seen[i].count,
                                      .half = half,
                                      .compute = in->is_norm[i] ? GPU_REAL : in->half,
                                      .keeps_master = in->keeps_masters,
                                      .master = in->masters[i],
                                      .seen = half != GPU_REAL ? net->seen[i].param : NULL,
                                      .param = net->tensors[i].param};
        result = gpu_show_run(&show, show.n, net->stream);
    }
    return gpu_check(result, "parameters in 16 bits", why);
}

/* --- there and back --------------------------------------------------------------------------- */

int gpu_get_masters(struct gpu_net *net, const struct ddp_tensor *to, struct failure *why)
{
    cudaError_t result = cudaSuccess;
    for (size_t i = 0; i < net->n_tensors && result == cudaSuccess; i++)
        result = cudaMemcpyAsync(to[i].param, net->inside->masters[i], to[i].count * sizeof(real),
                                 cudaMemcpyDeviceToHost, net->stream);
    if (result == cudaSuccess)
        result = cudaStreamSynchronize(net->stream);
    return gpu_check(result, "the masters", why);
}

int gpu_put_masters(struct gpu_net *net, const struct ddp_tensor *from, struct failure *why)
{
    cudaError_t result = cudaSuccess;
    for (size_t i = 0; i < net->n_tensors && result == cudaSuccess; i++)
        result = cudaMemcpyAsync(net->inside->masters[i], from[i].param,
                                 from[i].count * sizeof(real), cudaMemcpyHostToDevice, net->stream);
    return gpu_check(result, "the masters", why);
}

int gpu_get_gradients(struct gpu_net *net, const struct ddp_tensor *to, struct failure *why)
{
    cudaError_t result = cudaSuccess;
    for (size_t i = 0; i < net->n_tensors && result == cudaSuccess; i++)
        result = cudaMemcpyAsync(to[i].grad, net->tensors[i].grad, to[i].count * sizeof(real),
                                 cudaMemcpyDeviceToHost, net->stream);
    if (result == cudaSuccess)
        result = cudaStreamSynchronize(net->stream);
    return gpu_check(result, "gradients", why);
}

int gpu_put_params(struct gpu_net *net, const struct ddp_tensor *from, struct failure *why)
{
    cudaError_t result = cudaSuccess;
    for (size_t i = 0; i < net->n_tensors && result == cudaSuccess; i++)
        result = cudaMemcpyAsync(net->tensors[i].param, from[i].param, from[i].count * sizeof(real),
                                 cudaMemcpyHostToDevice, net->stream);
    return gpu_check(result, "parameters", why);
}
