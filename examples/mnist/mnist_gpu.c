#include "mnist_gpu.h"

#include <ddp/device.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

#include "../shared/failure.h"

#ifdef REAL_DOUBLE
#define LIBRARY "libmnist_double-cuda.so"
#else
#define LIBRARY "libmnist-cuda.so"
#endif

/* What runs at exit may wait for the GPU forever. */
static void die(const struct failure *why)
{
    fprintf(stderr, "mnist: %s\n", why->text);
    fflush(NULL);
    _exit(EX_TEMPFAIL);
}

/* --- having it -------------------------------------------------------------------------------- */

/* It is in the directory of this program, or in one of LD_LIBRARY_PATH. */
static int load(struct mnist_gpu *u, struct failure *why)
{
    if (u->ops != NULL)
        return 0;
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return failure_set(why,
                           "no GPU: cannot load the CUDA part: %s; build it, or set "
                           "LD_LIBRARY_PATH to CUDA's libraries",
                           dlerror());
    const struct gpu_ops *ops = dlsym(library, GPU_OPS_SYMBOL);
    if (ops == NULL || ops->size != sizeof *ops || ops->real_bytes != sizeof(real)) {
        dlclose(library);
        return failure_set(why, "no GPU: %s has another version: use both from the same build",
                           LIBRARY);
    }
    u->ops = ops; /* never unloaded: CUDA has threads */
    return 0;
}

/* The types in which tensors travel are those of the training on the CPU. */
static int open_amp(struct mnist_gpu *u, struct failure *why)
{
    bool is_norm[CONVNET_MAX_TENSORS];
    for (size_t i = 0; i < u->host->n_tensors; i++)
        is_norm[i] = convnet_is_norm(u->host, i);
    return u->ops->amp_open(u->net, &u->amp->policy, ddp_mixed_tensors(u->amp->mixed), is_norm,
                            why);
}

int mnist_gpu_open(struct mnist_gpu *u, struct ddp_group *g, struct convnet *host, size_t max_batch,
                   const struct dataset *data, struct failure *why)
{
    int device;
    if (load(u, why) < 0)
        return -1;
    if (ddp_device(g, &device) != 0)
        return failure_set(why, "no GPU: %s", ddp_last_error());
    u->host = host;
    if (u->net != NULL)
        return 0;
    if (u->ops->open(host, max_batch, data, &u->net, why) < 0)
        return -1;
    return u->amp != NULL ? open_amp(u, why) : 0;
}

void mnist_gpu_close(struct mnist_gpu *u)
{
    if (u->ops != NULL)
        u->ops->close(u->net);
    u->net = NULL;
}

void mnist_gpu_drop_graph(struct mnist_gpu *u)
{
    if (mnist_gpu_is_on(u))
        u->ops->graph_drop(u->net);
    u->n_captured = 0;
}

void mnist_gpu_get_optimizer(struct mnist_gpu *u, real *velocity)
{
    struct failure why;
    if (u->zero != NULL) /* it is on the CPU */
        return;
    if (u->ops->get_velocity(u->net, velocity, &why) < 0 ||
        (u->amp != NULL && u->ops->get_masters(u->net, u->amp->masters, &why) < 0))
        die(&why);
}

void mnist_gpu_get_net(struct mnist_gpu *u)
{
    struct failure why;
    if (u->ops->get_net(u->net, u->host, &why) < 0)
        die(&why);
}

/* Masters, and what follows from them. */
static void put_masters(struct mnist_gpu *u)
{
    struct failure why;
    if (u->ops->put_masters(u->net, u->amp->masters, &why) < 0 ||
        u->ops->amp_show(u->net, &why) < 0)
        die(&why);
}

int mnist_gpu_model(struct mnist_gpu *u, struct ddp_group *g, struct ddp_group *norm_group,
                    const real *velocity, struct ddp_model **ret_model)
{
    /* the full layer, which is ready first, is on its way while the others are computed */
    const struct ddp_model_opts opts = {
        .stream = u->net->stream, .bucket_bytes = 16 << 10, .tell_nonfinite = u->amp != NULL};
    struct ddp_tensor *tensors = u->amp != NULL ? u->net->seen : u->net->tensors;
    struct failure why;
    int rc = u->ops->normalise_over(u->net, norm_group);
    if (rc == 0)
        rc = ddp_model_create(g, tensors, u->net->n_tensors, &opts, ret_model);
    if (rc == 0 && u->ops->put_velocity(u->net, velocity, &why) < 0)
        die(&why);
    if (rc == 0 && u->amp != NULL)
        put_masters(u);
    return rc;
}

static void put_params(struct mnist_gpu *u)
{
    struct failure why;
    if (u->ops->put_params(u->net, u->host->tensors, &why) < 0)
        die(&why);
}

/* The communicator is for waits: the network may be normalized over the ranks on the stream. */
int mnist_gpu_zero(struct mnist_gpu *u, struct ddp_group *g, struct ddp_group *norm_group,
                   struct ddp_zero *zero)
{
    struct failure why;
    void *unused;
    int rc = u->ops->normalise_over(u->net, norm_group);
    if (rc == 0 && ddp_world_size(g) > 1)
        rc = ddp_nccl_comm(g, &unused);
    if (rc != 0)
        return rc;
    if (u->ops->own_gradients(u->net, &why) < 0)
        die(&why);
    u->zero = zero;
    put_params(u);
    return 0;
}

/* --- steps ------------------------------------------------------------------------------------ */

/* Without a group there is no communicator, and no peer to wait for. */
static int wait_for_stream(struct mnist_gpu *u, struct ddp_group *g)
{
    struct failure why;
    if (ddp_world_size(g) > 1)
        return ddp_stream_wait(g, u->net->stream, 0);
    if (u->ops->wait(u->net, &why) < 0)
        die(&why);
    return 0;
}

static void put_batch(struct mnist_gpu *u, const int64_t *index, size_t n)
{
    struct failure why;
    if (u->amp != NULL)
        u->ops->set_scale(u->net, (double)u->amp->scaler.scale);
    if (u->ops->put_batch(u->net, index, n, &why) < 0)
        die(&why);
    u->host->n_batches++;
}

/* On the stream, or into a graph.
 *
 * m         gets each gradient when it is final; 16-bit ones are made of all of them, afterwards
 * returns   the result of normalizing over the ranks */
static int run_passes(struct mnist_gpu *u, struct ddp_model *m)
{
    struct failure why;
    if (u->ops->forward(u->net, &why) < 0 ||
        u->ops->backward(u->net, u->amp != NULL ? NULL : m, &why) < 0)
        die(&why);
    return u->net->norm_status;
}

/* All gradients of the batch are there: the rest of the average. */
static int meet(struct mnist_gpu *u, struct ddp_model *m)
{
    struct failure why;
    if (m == NULL)
        return 0;
    if (u->amp != NULL && u->ops->amp_give(u->net, &why) < 0)
        die(&why);
    return ddp_model_sync(m);
}

static void add_part(struct mnist_gpu *u, double share)
{
    struct failure why;
    if (u->ops->accumulator_add(u->net, share, &why) < 0)
        die(&why);
}

static void take_sums(struct mnist_gpu *u)
{
    struct failure why;
    if (u->ops->accumulator_take(u->net, &why) < 0)
        die(&why);
}

/* One of the parts of a batch; the ranks exchange gradients at the last. Memory for sums is
 * allocated in the first part, because CUDA may wait for the device for it: nothing on the device
 * waits for a peer by then. */
static int run_part(struct mnist_gpu *u, struct ddp_group *g, struct ddp_model *m,
                    const int64_t *index, size_t n, double share, bool is_last, double *loss)
{
    int rc = 0;
    if (n > 0) {
        put_batch(u, index, n);
        rc = run_passes(u, NULL);
        if (rc == 0)
            rc = wait_for_stream(u, g);
        if (rc != 0)
            return rc;
        add_part(u, share);
        *loss += share * *u->net->results;
    }
    if (is_last)
        take_sums(u);
    rc = m != NULL ? ddp_model_accumulate(m, !is_last) : 0;
    return rc == 0 && is_last ? meet(u, m) : rc;
}

/* The step's end, ddp_model_replayed(), and the optimizer are not in the graph: parameters may
 * change once all ranks have agreed that the step counts. */
static int capture(struct mnist_gpu *u, struct ddp_model *m, size_t n)
{
    struct failure why;
    if (u->ops->graph_begin(u->net, &why) < 0)
        die(&why);
    int rc = run_passes(u, m);
    if (rc == 0)
        rc = meet(u, m);
    if (u->ops->graph_end(u->net, rc == 0, &why) < 0)
        die(&why);
    u->n_captured = rc == 0 ? n : 0;
    return rc;
}

static int replay(struct mnist_gpu *u, struct ddp_model *m)
{
    struct failure why;
    if (u->ops->graph_launch(u->net, &why) < 0)
        die(&why);
    return ddp_model_replayed(m);
}

static int run_step(struct mnist_gpu *u, struct ddp_model *m, const int64_t *index, size_t n)
{
    put_batch(u, index, n);
    if (n == u->n_captured)
        return replay(u, m);
    int rc = run_passes(u, m);
    return rc == 0 ? meet(u, m) : rc;
}

int mnist_gpu_gradients(struct mnist_gpu *u, struct ddp_group *g, struct ddp_model *m,
                        const int64_t *index, size_t n, size_t n_parts, double *ret_loss)
{
    int rc = 0;
    *ret_loss = 0;
    for (size_t p = 0; n_parts > 1 && rc == 0 && p < n_parts; p++) {
        const size_t first = n * p / n_parts, n_here = n * (p + 1) / n_parts - first;
        rc = run_part(u, g, m, index + first, n_here, (double)n_here / (double)n, p + 1 == n_parts,
                      ret_loss);
    }
    if (n_parts > 1)
        return rc;
    rc = run_step(u, m, index, n);
    if (rc == 0)
        rc = wait_for_stream(u, g);
    *ret_loss = *u->net->results;
    if (rc == 0 && u->uses_graph && u->n_captured == 0)
        rc = capture(u, m, n);
    return rc;
}

/* The scale is an argument of a graph's kernels: with another one, another graph is captured. */
static void amp_gpu_step(struct mnist_gpu *u, const struct ddp_model *m, double lr, double momentum)
{
    struct amp *a = u->amp;
    const int found_inf = ddp_model_found_inf(m);
    const float scale = a->scaler.scale;
    struct failure why;
    a->n_skipped += found_inf;
    if (!found_inf &&
        (u->ops->amp_step(u->net, lr, momentum, &why) < 0 || u->ops->amp_show(u->net, &why) < 0))
        die(&why);
    ddp_scaler_update(&a->scaler, found_inf);
    if (a->scaler.scale != scale)
        u->n_captured = 0;
}

/* The optimizer is on the CPU. */
static int zero_step(struct mnist_gpu *u)
{
    struct failure why;
    if (u->ops->get_gradients(u->net, u->host->tensors, &why) < 0)
        die(&why);
    const int rc = ddp_zero_step(u->zero, NULL, NULL);
    if (rc == 0)
        put_params(u);
    return rc;
}

int mnist_gpu_step(struct mnist_gpu *u, const struct ddp_model *m, double lr, double momentum)
{
    struct failure why;
    if (u->zero != NULL)
        return zero_step(u);
    if (u->amp != NULL)
        amp_gpu_step(u, m, lr, momentum);
    else if (u->ops->sgd_step(u->net, lr, momentum, &why) < 0)
        die(&why);
    return 0;
}

/* --- the test --------------------------------------------------------------------------------- */

/* And wait for it: copies from plain memory of the host, which the test makes, may wait for the
 * stream, and know nothing of peers. */
static int average_stats(struct mnist_gpu *u, struct ddp_group *g)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && ddp_world_size(g) > 1 && i < u->net->n_stats; i++) {
        const struct convnet_stat *s = &u->net->stats[i];
        rc = ddp_all_reduce(g, s->values, s->values, s->count, REAL_DTYPE, DDP_AVG, u->net->stream);
    }
    return rc == 0 ? wait_for_stream(u, g) : rc;
}

int mnist_gpu_test(struct mnist_gpu *u, struct ddp_group *g, size_t first, size_t end,
                   size_t max_batch, int64_t *ret_right)
{
    struct failure why;
    int64_t n_right = 0;
    int rc = average_stats(u, g);
    for (size_t i = first; rc == 0 && i < end; i += max_batch) {
        const size_t n = end - i < max_batch ? end - i : max_batch;
        if (u->ops->count_right(u->net, i, n, &why) < 0)
            die(&why);
        rc = wait_for_stream(u, g);
        n_right += (int64_t)*u->net->results;
    }
    *ret_right = n_right;
    return rc;
}
