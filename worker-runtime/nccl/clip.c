/* clip.c - the norm of gradients, and what they are scaled by: three kernels on the program's
 * stream. The factor stays on the device, so that no wait for it is needed. */
#include "device.h"

#include <ddp/model.h>
#include <errno.h>

_Static_assert(DEVICE_CLIP_BYTES >= sizeof(double) * (KERNEL_CLIP_BLOCKS + 2),
               "parts, two results");
_Static_assert(sizeof(struct kernel_clip) <= 4096, "what a kernel may be given");

/* To wait for the norm is to wait for the stream, which cannot be done while it captures. */
static int check_capture(struct device *d, const struct device_clip *c, struct co_error *err)
{
    bool is_capturing = false;
    const int code = c->ret_norm != NULL ? call_is_capturing(d, c->stream, &is_capturing, err) : 0;
    if (code != 0 || !is_capturing)
        return code;
    return co_fail(
        err, -ENOTSUP,
        "the norm is not available while the stream captures a graph: pass ret_norm NULL");
}

/* Launch a kernel for all gradients, as many at a time as it takes. */
static int run_kernel(const struct device *d, const struct device_clip *c, enum kernel which,
                      struct kernel_clip *k, struct co_error *err)
{
    int code = 0;
    for (size_t i = 0; i < c->n && code == 0; i++) {
        k->gradient[k->n++] = (struct kernel_gradient){
            .at = c->grad[i], .count = c->tensor[i].count, .dtype = (uint32_t)c->tensor[i].dtype};
        if (k->n < KERNEL_PIECES && i + 1 < c->n)
            continue;
        code = kernels_run_vector(&d->kernels, which, k, c->stream, err);
        k->n = 0;
    }
    return code;
}

int clip_run(struct device *d, const struct device_clip *c, struct co_error *err)
{
    double *work = c->work;
    struct kernel_clip k = {.max_norm = c->max_norm,
                            .part = work,
                            .norm = work + KERNEL_CLIP_BLOCKS,
                            .factor = work + KERNEL_CLIP_BLOCKS + 1};
    const char what[] = "the norm of gradients";
    int code = nccl_map_cuda("cudaSetDevice", cudaSetDevice(d->index), err); /* of the thread */
    if (code == 0)
        code = check_capture(d, c, err);
    if (code == 0)
        code = nccl_map_cuda(
            what, cudaMemsetAsync(k.part, 0, KERNEL_CLIP_BLOCKS * sizeof *k.part, c->stream), err);
    if (code == 0)
        code = run_kernel(d, c, KERNEL_SQUARES, &k, err);
    if (code == 0)
        code = kernels_find_factor(&d->kernels, &k, c->stream, err);
    if (code == 0)
        code = run_kernel(d, c, KERNEL_SCALE, &k, err);
    if (code == 0 && c->ret_norm != NULL)
        code = nccl_map_cuda(
            what,
            cudaMemcpyAsync(c->ret_norm, k.norm, sizeof *k.norm, cudaMemcpyDeviceToHost, c->stream),
            err);
    return code;
}
