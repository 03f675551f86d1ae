#include "amp.h"

#include <ddp/ddp.h>
#include <stdlib.h>
#include <string.h>

#include "sgd.h"

/* The network's weights are those that the other ranks see, as the layers multiply them. */
void amp_show(struct amp *a, struct convnet *net)
{
    const struct ddp_tensor *seen = ddp_mixed_tensors(a->mixed);

    net->loss_scale = (double)a->scaler.scale;
    for (size_t i = 0; i < net->n_tensors; i++) {
        struct ddp_tensor *t = &net->tensors[i];
        const bool rounds = seen[i].dtype == REAL_DTYPE && !convnet_is_norm(net, i);
        uint16_t half[256];
        ddp_cast(t->param, t->dtype, seen[i].param, seen[i].dtype, t->count);
        for (size_t at = 0; rounds && at < t->count; at += 256) {
            size_t n = t->count - at < 256 ? t->count - at : 256;
            ddp_cast(half, a->policy.compute, (real *)t->param + at, REAL_DTYPE, n);
            ddp_cast((real *)t->param + at, REAL_DTYPE, half, a->policy.compute, n);
        }
    }
}

static int make_masters(struct amp *a, struct convnet *net)
{
    for (size_t i = 0; i < net->n_tensors; i++) {
        struct ddp_tensor *t = &net->tensors[i], *master = &a->masters[i];
        *master = *t;
        master->param = calloc(t->count, sizeof(real));
        master->grad = calloc(t->count, sizeof(real));
        t->grad = calloc(t->count, sizeof(real));
        if (master->param == NULL || master->grad == NULL || t->grad == NULL)
            return -1;
        memcpy(master->param, t->param, t->count * sizeof(real));
    }
    return 0;
}

int amp_init(struct amp *a, enum ddp_opt_level level, enum ddp_dtype half, struct convnet *net)
{
    bool is_norm[CONVNET_MAX_TENSORS];

    *a = (struct amp){{0}};
    a->n = net->n_tensors;
    for (size_t i = 0; i < net->n_tensors; i++)
        is_norm[i] = convnet_is_norm(net, i);
    if (ddp_precision_init(&a->policy, level, half) != 0 || make_masters(a, net) < 0 ||
        ddp_mixed_create(&a->policy, a->masters, net->n_tensors, is_norm, &a->mixed) != 0)
        return -1;
    ddp_precision_scaler(&a->policy, &a->scaler);
    convnet_round_to(net, a->policy.compute);
    amp_show(a, net);
    return 0;
}

void amp_fini(struct amp *a, struct convnet *net)
{
    if (a->n == 0) /* the gradients are the library's */
        return;
    ddp_mixed_destroy(a->mixed);
    for (size_t i = 0; i < net->n_tensors; i++) {
        free(a->masters[i].param);
        free(a->masters[i].grad);
        free(net->tensors[i].grad);
        net->tensors[i].grad = NULL;
    }
    *a = (struct amp){0};
}

int amp_register(struct amp *a, struct ddp_group *g)
{
    int rc = ddp_state_add(g, "scaler", &a->scaler, sizeof a->scaler);

    for (size_t i = 0; rc == 0 && i < a->n; i++)
        rc = ddp_state_add(g, a->masters[i].name, a->masters[i].param,
                           a->masters[i].count * sizeof(real));
    return rc;
}

void amp_give_gradients(struct amp *a, const struct convnet *net)
{
    const struct ddp_tensor *seen = ddp_mixed_tensors(a->mixed);

    for (size_t i = 0; i < net->n_tensors; i++)
        ddp_cast(seen[i].grad, seen[i].dtype, net->tensors[i].grad, REAL_DTYPE, seen[i].count);
}

int amp_step(struct amp *a, const struct ddp_model *m, struct sgd *sgd, struct convnet *net)
{
    int found_inf = ddp_model_found_inf(m);
    int rc = ddp_mixed_take_gradients(a->mixed, &a->scaler, &found_inf);

    if (rc != 0)
        return rc;
    if (found_inf)
        a->n_skipped++;
    else
        sgd_step(sgd, a->masters, net->n_tensors);
    ddp_scaler_update(&a->scaler, found_inf);
    ddp_mixed_give_params(a->mixed);
    amp_show(a, net);
    return 0;
}
