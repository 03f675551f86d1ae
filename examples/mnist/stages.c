#include "stages.h"

#include <string.h>

/* Micro-batch `micro` of the step: images first .. first + n - 1. */
static size_t first_of(const struct stages *s, int micro)
{
    return s->n * (size_t)micro / STAGES_MICRO;
}

static size_t count_of(const struct stages *s, int micro)
{
    return first_of(s, micro + 1) - first_of(s, micro);
}

/* The forward pass of this rank's part; `again` for the backward pass. */
static double compute(struct stages *s, int micro, const void *in, void *out, bool again)
{
    const int64_t *index = s->index + first_of(s, micro);

    if (count_of(s, micro) == 0)
        return 0;
    return convnet_part_forward(s->net, s->stage, s->images, index, count_of(s, micro), in, out,
                                again);
}

static int forward(void *arg, int micro, const void *in, void *out)
{
    struct stages *s = arg;

    s->loss += compute(s, micro, in, out, false) * (double)count_of(s, micro) / (double)s->n;
    return 0;
}

static int backward(void *arg, int micro, const void *in, const void *d_out, void *d_in)
{
    struct stages *s = arg;
    const double share = (double)count_of(s, micro) / (double)s->n;

    if (share == 0)
        return 0;
    compute(s, micro, in, NULL, true);
    convnet_part_backward(s->net, s->stage, d_out, d_in);
    accumulator_add(&s->parts, s->net->tensors + s->first, s->n_tensors, share);
    return 0;
}

int stages_init(struct stages *s, struct ddp_group *g, struct convnet *net, size_t most)
{
    const size_t between = (most + STAGES_MICRO - 1) / STAGES_MICRO * convnet_cut_count(net);
    int rc;

    *s = (struct stages){.net = net};
    if ((rc = ddp_pipeline_groups(g, STAGES, &s->chain, &s->replicas)) != 0)
        return rc;
    s->stage = ddp_rank(s->chain);
    convnet_part_tensors(net, s->stage, &s->first, &s->n_tensors);
    const struct ddp_pipeline_opts opts = {.n_micro = STAGES_MICRO,
                                           .in_count = s->stage > 0 ? between : 0,
                                           .out_count = s->stage > 0 ? 0 : between,
                                           .dtype = REAL_DTYPE,
                                           .forward = forward,
                                           .backward = backward,
                                           .arg = s};
    if ((rc = ddp_pipeline_create(s->chain, &opts, &s->pipeline)) != 0 ||
        (rc = ddp_model_create(s->replicas, net->tensors + s->first, s->n_tensors, NULL,
                               &s->model)) != 0)
        return rc;
    return accumulator_init(&s->parts, net->tensors + s->first, s->n_tensors) < 0 ? DDP_ENOMEM : 0;
}

void stages_fini(struct stages *s)
{
    accumulator_fini(&s->parts);
}

int stages_step(struct stages *s, const struct convnet_images *images, const int64_t *index,
                size_t n, double *ret_loss)
{
    int rc;

    s->images = images;
    s->index = index;
    s->n = n;
    s->loss = 0;
    if ((rc = ddp_pipeline_step(s->pipeline)) != 0)
        return rc;
    *ret_loss = STAGES * s->loss;
    accumulator_take(&s->parts, s->net->tensors + s->first, s->n_tensors);
    return ddp_model_sync(s->model);
}

int stages_exchange(struct stages *s)
{
    int rc = 0;

    for (int stage = 0; stage < STAGES; stage++) {
        size_t first, n;
        convnet_part_tensors(s->net, stage, &first, &n);
        for (size_t i = first; rc == 0 && i < first + n; i++) {
            const struct ddp_tensor *t = &s->net->tensors[i];
            rc = ddp_broadcast(s->chain, t->param, t->param, t->count, t->dtype, stage, NULL);
        }
        for (size_t i = 0; rc == 0 && i < s->net->n_stats; i++) {
            const struct convnet_stat *stat = &s->net->stats[i];
            if (convnet_part_of_stat(s->net, i) == stage)
                rc = ddp_broadcast(s->chain, stat->values, stat->values, stat->count, REAL_DTYPE,
                                   stage, NULL);
        }
    }
    return rc;
}
