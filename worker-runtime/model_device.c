/* model_device.c - gradients that lie on a GPU: averaged where they are, never copied, since NCCL
 * takes any number of places at once. */
#include "model_inside.h"

#include "device.h"
#include "device_plugin.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check_opts(const struct ddp_model_opts *o)
{
    const struct {
        const char *name;
        bool is_set;
    } options[] = {
        {"hook", o->hook != NULL},
        {"compress", o->compress != DDP_COMPRESS_NONE},
        {"always_fp32", o->always_fp32},
        {"predivide_factor", o->predivide_factor > 0},
        {"weighted", o->weighted},
        {"check_finite", o->check_finite},
        {"tell_nonfinite", o->tell_nonfinite},
    };
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        if (options[i].is_set)
            return rt_fail(DDP_EUNSUPPORTED, "%s is not for a model with a stream",
                           options[i].name);
    return 0;
}

static int check_tensor(const struct ddp_model *m, const struct ddp_tensor *t)
{
    char which[128];
    snprintf(which, sizeof(which), "'%.96s': param", t->name);
    int rc = t->count > 0 ? device_check_memory(m->g, t->param, which) : 0;
    snprintf(which, sizeof(which), "'%.96s': grad", t->name);
    return rc == 0 && t->count > 0 ? device_check_memory(m->g, t->grad, which) : rc;
}

int model_device_check(const struct ddp_model *m)
{
    int rc = check_opts(&m->opts);
    for (size_t i = 0; rc == 0 && i < m->n_tensors; i++)
        rc = check_tensor(m, &m->tensors[i]);
    for (size_t i = 0; rc == 0 && i < m->opts.n_buffers; i++) {
        const struct ddp_tensor buffer = {.name = m->opts.buffers[i].name,
                                          .param = m->opts.buffers[i].param,
                                          .count = m->opts.buffers[i].count};
        rc = check_tensor(m, &buffer);
    }
    return rc;
}

int model_clear(struct ddp_model *m, void *at, size_t bytes)
{
    if (model_is_on_device(m))
        return device_clear(m->g, at, bytes, m->opts.stream);
    memset(at, 0, bytes);
    return 0;
}

void model_device_scatter(struct ddp_model *m, struct bucket_set *set, size_t k)
{
    struct model_bucket *b = &set->at[k];
    b->n_pieces = 0;
    for (size_t i = 0; i < m->n_tensors; i++)
        if (set->plan.place[i].bucket == k && model_bytes_of(m, i) > 0)
            b->piece[b->n_pieces++] = (struct bucket_piece){
                .memory = m->grad[i], .end = m->grad[i] + model_bytes_of(m, i)};
}

int model_device_send(struct ddp_model *m, const struct model_bucket *b)
{
    if (b->n_pieces == 0) /* in a world of 1, which has no communicator */
        return 0;
    struct device_piece *piece = calloc(b->n_pieces, sizeof(*piece));
    if (piece == NULL)
        return rt_fail(DDP_ENOMEM, "no memory for %zu places of gradients", b->n_pieces);
    for (size_t i = 0; i < b->n_pieces; i++)
        piece[i] = (struct device_piece){.at = b->piece[i].memory,
                                         .count = (size_t)(b->piece[i].end - b->piece[i].memory) /
                                                  ddp_dtype_size(b->dtype)};
    int rc = device_average(m->g, piece, b->n_pieces, b->dtype, m->opts.stream);
    free(piece);
    return rc;
}

int model_device_wait(struct ddp_model *m)
{
    return m->g->world_size > 1 ? device_wait_averages(m->g) : 0;
}
