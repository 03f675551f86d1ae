/* gpu_net.c - memory of the network on a GPU, and what goes there and back. */
#include "gpu_net.h"

#include <ddp/ddp.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_kernels.h"
#include "gpu_priv.h"

/* --- memory ----------------------------------------------------------------------------------- */

static real *take_reals(struct gpu_net *net, size_t n, cudaError_t *result)
{
    return gpu_take(net, n * sizeof(real), result);
}

static void *take_copy(struct gpu_net *net, const void *from, size_t bytes, cudaError_t *result)
{
    void *at = gpu_take(net, bytes, result);
    if (*result == cudaSuccess && bytes > 0)
        *result = cudaMemcpyAsync(at, from, bytes, cudaMemcpyHostToDevice, net->stream);
    return at;
}

static real *take_filled(struct gpu_net *net, size_t n, real value, cudaError_t *result)
{
    real values[MAX_CHANNELS];
    for (size_t i = 0; i < n; i++)
        values[i] = value;
    return take_copy(net, values, n * sizeof(real), result);
}

static real *take_zeros(struct gpu_net *net, size_t n, cudaError_t *result)
{
    real *at = take_reals(net, n, result);
    if (*result == cudaSuccess)
        *result = cudaMemsetAsync(at, 0, n * sizeof(real), net->stream);
    return at;
}

/* --- making it -------------------------------------------------------------------------------- */

static real *stat_of(const struct gpu_net *net, const struct convnet *like,
                     const struct convnet_stat *stat)
{
    return stat != NULL ? net->stats[stat - like->stats].values : NULL;
}

static void make_block(struct gpu_net *net, const struct convnet *like, const struct block *from,
                       struct gpu_block *b, cudaError_t *result)
{
    const size_t n = net->inside->max_batch, c = from->c_out;
    const size_t n_y = n * from->side * from->side * c;
    *b = (struct gpu_block){
        .s = {.side = (unsigned)from->side, .c_in = (unsigned)from->c_in, .c_out = (unsigned)c},
        .weight = (size_t)(from->weight - like->tensors),
        .bias = (size_t)(from->bias - like->tensors),
        .running_mean = stat_of(net, like, from->running_mean),
        .running_var = stat_of(net, like, from->running_var)};
    if (b->running_mean != NULL) {
        b->gamma = (size_t)(from->gamma - like->tensors);
        b->beta = (size_t)(from->beta - like->tensors);
    }
    b->y = take_reals(net, n_y, result);
    b->out = take_reals(net, n_y / 4, result);
    b->d_out = take_reals(net, n_y / 4, result);
    b->pick = gpu_take(net, n_y / 4, result);
    b->mean = gpu_take(net, c * sizeof(double), result);
    b->var = gpu_take(net, c * sizeof(double), result);
    b->scale = take_filled(net, c, 1, result);
    b->shift = take_filled(net, c, 0, result);
    b->center = take_filled(net, c, 0, result);
    b->a = take_filled(net, c, 1, result);
    b->slope = take_filled(net, c, 0, result);
    b->d = take_filled(net, c, 0, result);
}

static void make_tensors(struct gpu_net *net, const struct convnet *like, cudaError_t *result)
{
    net->n_tensors = like->n_tensors;
    for (size_t i = 0; i < like->n_tensors; i++) {
        const struct ddp_tensor *t = &like->tensors[i];
        net->tensors[i] = *t;
        net->tensors[i].grad = NULL;
        net->tensors[i].param = take_copy(net, t->param, t->count * sizeof(real), result);
        net->inside->velocity[i] = take_zeros(net, t->count, result);
    }
    net->n_stats = like->n_stats;
    for (size_t i = 0; i < like->n_stats; i++) {
        const struct convnet_stat *s = &like->stats[i];
        net->stats[i] = *s;
        net->stats[i].values = take_copy(net, s->values, s->count * sizeof(real), result);
    }
}

/* What all blocks use, each in its turn: space for the largest. */
static void make_shared(struct gpu_net *net, cudaError_t *result)
{
    struct gpu_priv *in = net->inside;
    const size_t n = in->max_batch;
    size_t d_y = 1, part = n;
    for (size_t k = 0; k < in->n_blocks; k++) {
        const struct gpu_shape *s = &in->blocks[k].s;
        const size_t y = n * s->side * s->side * s->c_out;
        const size_t weights = (LAYERS_TAPS * (size_t)s->c_in + 1) * s->c_out;
        d_y = y > d_y ? y : d_y;
        part = GPU_PARTS * weights > part ? GPU_PARTS * weights : part;
    }
    in->d_y = take_reals(net, d_y, result);
    in->ones = take_filled(net, MAX_CHANNELS, 1, result);
    in->zeros = take_filled(net, MAX_CHANNELS, 0, result);
    in->part = gpu_take(net, part * sizeof(double), result);
    in->sums = gpu_take(net, 2 * MAX_CHANNELS * sizeof(double), result);
    in->result = gpu_take(net, sizeof(double), result);
    in->index = gpu_take(net, n * sizeof(int64_t), result);
    in->input = take_reals(net, n * CONVNET_PIXELS, result);
    in->taken = gpu_take(net, n, result);
    in->logits = take_reals(net, n * CONVNET_CLASSES, result);
    in->d_logits = take_reals(net, n * CONVNET_CLASSES, result);
}

static void take_data(struct gpu_net *net, enum gpu_part which, const struct dataset_part *part,
                      cudaError_t *result)
{
    struct gpu_priv *in = net->inside;
    in->pixels[which] = take_copy(net, part->images.pixels, part->n * CONVNET_PIXELS, result);
    in->labels[which] = take_copy(net, part->images.labels, part->n, result);
}

static cudaError_t make(struct gpu_net *net, const struct convnet *like, const struct dataset *data)
{
    struct gpu_priv *in = net->inside;
    const struct convnet_priv *from = like->inside;
    cudaStream_t stream = NULL;
    cudaError_t result = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    net->stream = stream;
    void *results = NULL;
    if (result == cudaSuccess)
        result = gpu_kernels_load();
    if (result == cudaSuccess)
        result = cudaHostAlloc(&results, sizeof *net->results, cudaHostAllocDefault);
    net->results = results;
    make_tensors(net, like, &result);
    in->n_blocks = from->n_blocks;
    for (size_t k = 0; k < in->n_blocks; k++)
        make_block(net, like, &from->blocks[k], &in->blocks[k], &result);
    in->fc_in = (unsigned)from->fc_in;
    in->fc_weight = (size_t)(from->fc_weight - like->tensors);
    in->fc_bias = (size_t)(from->fc_bias - like->tensors);
    make_shared(net, &result);
    take_data(net, GPU_TRAIN, &data->train, &result);
    take_data(net, GPU_TEST, &data->test, &result);
    return result == cudaSuccess ? cudaStreamSynchronize(stream) : result;
}

static void graph_drop(struct gpu_net *net)
{
    if (net->inside->graph != NULL)
        cudaGraphExecDestroy(net->inside->graph);
    net->inside->graph = NULL;
}

static void close_net(struct gpu_net *net)
{
    if (net == NULL)
        return;
    graph_drop(net);
    if (net->stream != NULL)
        cudaStreamDestroy(net->stream);
    for (size_t i = 0; i < net->inside->n_memory; i++)
        cudaFree(net->inside->memory[i]);
    cudaFreeHost(net->results);
    free(net->inside);
    free(net);
}

static int open_net(const struct convnet *like, size_t max_batch, const struct dataset *data,
                    struct gpu_net **ret_net, struct failure *why)
{
    struct gpu_net *net = calloc(1, sizeof *net);
    struct gpu_priv *in = calloc(1, sizeof *in);
    if (net == NULL || in == NULL) {
        free(net);
        free(in);
        return failure_set(why, "out of memory");
    }
    net->inside = in;
    in->max_batch = (unsigned)max_batch;
    in->scale = 1;
    const cudaError_t result = make(net, like, data);
    if (result != cudaSuccess) {
        close_net(net);
        return gpu_check(result, "memory for the network", why);
    }
    *ret_net = net;
    return 0;
}

/* Layers of a group that has gone went with it. */
static int normalise_over(struct gpu_net *net, struct ddp_group *g)
{
    struct gpu_priv *in = net->inside;
    int rc = 0;
    net->norm_status = 0;
    for (size_t k = 0; k < in->n_blocks; k++) {
        struct gpu_block *b = &in->blocks[k];
        b->over_ranks = NULL;
        if (g == NULL || b->running_mean == NULL || rc != 0)
            continue;
        const struct ddp_syncbn_opts opts = {.channels = b->s.c_out,
                                             .dtype = REAL_DTYPE,
                                             .weight = net->tensors[b->gamma].param,
                                             .bias = net->tensors[b->beta].param,
                                             .running_mean = b->running_mean,
                                             .running_var = b->running_var,
                                             .eps = NORM_EPS,
                                             .momentum = NORM_MOMENTUM,
                                             .stream = net->stream};
        rc = ddp_syncbn_create(g, &opts, &b->over_ranks);
    }
    return rc;
}

/* --- steps ------------------------------------------------------------------------------------ */

/* Zeros at first, which are there before the first sum is added. */
static cudaError_t make_accumulated(struct gpu_net *net)
{
    struct gpu_priv *in = net->inside;
    cudaError_t result = cudaSuccess;
    for (size_t i = 0; i < net->n_tensors && in->accumulated[i] == NULL; i++)
        in->accumulated[i] = take_zeros(net, net->tensors[i].count, &result);
    return result;
}

static int accumulator_add(struct gpu_net *net, double share, struct failure *why)
{
    cudaError_t result = make_accumulated(net);
    for (size_t i = 0; i < net->n_tensors && result == cudaSuccess; i++) {
        const struct gpu_add add = {.n = (unsigned)net->tensors[i].count,
                                    .share = (real)share,
                                    .from = net->tensors[i].grad,
                                    .to = net->inside->accumulated[i]};
        result = gpu_add_run(&add, add.n, net->stream);
    }
    return gpu_check(result, "adding up gradients", why);
}

static int accumulator_take(struct gpu_net *net, struct failure *why)
{
    cudaError_t result = make_accumulated(net);
    for (size_t i = 0; i < net->n_tensors && result == cudaSuccess; i++) {
        const size_t bytes = net->tensors[i].count * sizeof(real);
        real *sum = net->inside->accumulated[i];
        result = cudaMemcpyAsync(net->tensors[i].grad, sum, bytes, cudaMemcpyDeviceToDevice,
                                 net->stream);
        if (result == cudaSuccess)
            result = cudaMemsetAsync(sum, 0, bytes, net->stream);
    }
    return gpu_check(result, "adding up gradients", why);
}

static int sgd_step(struct gpu_net *net, double lr, double momentum, struct failure *why)
{
    cudaError_t result = cudaSuccess;
    for (size_t i = 0; i < net->n_tensors && result == cudaSuccess; i++) {
        const struct gpu_sgd step = {.n = (unsigned)net->tensors[i].count,
                                     .lr = (real)lr,
                                     .momentum = (real)momentum,
                                     .grad = net->tensors[i].grad,
                                     .velocity = net->inside->velocity[i],
                                     .param = net->tensors[i].param};
        result = gpu_sgd_run(&step, step.n, net->stream);
    }
    return gpu_check(result, "the optimizer's step", why);
}

static int wait_for_stream(struct gpu_net *net, struct failure *why)
{
    return gpu_check(cudaStreamSynchronize(net->stream), "a step", why);
}

/* --- a graph ---------------------------------------------------------------------------------- */

/* Only this thread is restricted: other threads may continue to call CUDA. */
static int graph_begin(struct gpu_net *net, struct failure *why)
{
    return gpu_check(cudaStreamBeginCapture(net->stream, cudaStreamCaptureModeThreadLocal),
                     "a capture", why);
}

/* If something has failed in it there is no graph, and nothing more to report. */
static int graph_end(struct gpu_net *net, bool keep, struct failure *why)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaError_t result = cudaStreamEndCapture(net->stream, &graph);
    if (result == cudaSuccess && keep)
        result = cudaGraphInstantiate(&exec, graph, 0);
    if (graph != NULL)
        cudaGraphDestroy(graph);
    if (!keep)
        return 0;
    graph_drop(net);
    net->inside->graph = exec;
    return gpu_check(result, "a graph", why);
}

static int graph_launch(struct gpu_net *net, struct failure *why)
{
    return gpu_check(cudaGraphLaunch(net->inside->graph, net->stream), "a launch", why);
}

/* --- there and back --------------------------------------------------------------------------- */

static cudaError_t copy_back(struct gpu_net *net, void *to, const void *from, size_t count)
{
    return cudaMemcpyAsync(to, from, count * sizeof(real), cudaMemcpyDeviceToHost, net->stream);
}

static int get_velocity(struct gpu_net *net, real *to, struct failure *why)
{
    cudaError_t result = cudaSuccess;
    for (size_t i = 0; i < net->n_tensors && result == cudaSuccess; i++) {
        result = copy_back(net, to, net->inside->velocity[i], net->tensors[i].count);
        to += net->tensors[i].count;
    }
    if (result == cudaSuccess)
        result = cudaStreamSynchronize(net->stream);
    return gpu_check(result, "the optimizer's state", why);
}

static int put_velocity(struct gpu_net *net, const real *from, struct failure *why)
{
    cudaError_t result = cudaSuccess;
    for (size_t i = 0; i < net->n_tensors && result == cudaSuccess; i++) {
        const size_t count = net->tensors[i].count;
        result = cudaMemcpyAsync(net->inside->velocity[i], from, count * sizeof(real),
                                 cudaMemcpyHostToDevice, net->stream);
        from += count;
    }
    return gpu_check(result, "the optimizer's state", why);
}

static int get_net(struct gpu_net *net, struct convnet *to, struct failure *why)
{
    cudaError_t result = cudaSuccess;
    for (size_t i = 0; i < net->n_tensors && result == cudaSuccess; i++)
        result = copy_back(net, to->tensors[i].param, net->tensors[i].param, net->tensors[i].count);
    for (size_t i = 0; i < net->n_stats && result == cudaSuccess; i++)
        result = copy_back(net, to->stats[i].values, net->stats[i].values, net->stats[i].count);
    if (result == cudaSuccess)
        result = cudaStreamSynchronize(net->stream);
    return gpu_check(result, "the trained network", why);
}

/* The only name that this library exports. */
__attribute__((visibility("default"))) const struct gpu_ops mnist_gpu_ops = {
    .size = sizeof(struct gpu_ops),
    .real_bytes = sizeof(real),
    .open = open_net,
    .close = close_net,
    .normalise_over = normalise_over,
    .put_batch = gpu_put_batch,
    .forward = gpu_forward,
    .backward = gpu_backward,
    .count_right = gpu_count_right,
    .graph_begin = graph_begin,
    .graph_end = graph_end,
    .graph_launch = graph_launch,
    .graph_drop = graph_drop,
    .accumulator_add = accumulator_add,
    .accumulator_take = accumulator_take,
    .sgd_step = sgd_step,
    .wait = wait_for_stream,
    .get_velocity = get_velocity,
    .put_velocity = put_velocity,
    .get_net = get_net,
    .own_gradients = gpu_own_gradients,
    .get_gradients = gpu_get_gradients,
    .put_params = gpu_put_params,
    .amp_open = gpu_amp_open,
    .set_scale = gpu_set_scale,
    .amp_give = gpu_amp_give,
    .amp_step = gpu_amp_step,
    .amp_show = gpu_amp_show,
    .get_masters = gpu_get_masters,
    .put_masters = gpu_put_masters,
};
