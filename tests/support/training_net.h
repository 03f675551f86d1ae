/* training_net.h - what training_program.c leaves to its reader: a network, the smallest there is,
 * a linear regression.
 *
 * The global batch is the same for every world size, so the result must also be the same, except
 * for the order of additions. The program prints nothing; at exit it writes its final parameters to
 * the file TRAINING_NET_OUT. */
#ifndef DDP_TESTS_SUPPORT_TRAINING_NET_H
#define DDP_TESTS_SUPPORT_TRAINING_NET_H

#include <ddp/ddp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define N_IMAGES     960
#define N_FEATURES   30
#define EPOCHS       5
#define GLOBAL_BATCH 48
#define BATCH        ((size_t)(GLOBAL_BATCH / ddp_world_size(g))) /* where a group is called g */

struct net {
    struct ddp_tensor *tensors;
    size_t n_tensors;
    size_t n_images;
};

/* Static, so that it can be read at exit, when main() and its variables are gone. */
static double weight[N_FEATURES], bias;
static double feature[N_IMAGES][N_FEATURES], label[N_IMAGES];
static double miss[GLOBAL_BATCH]; /* prediction - label of each sample of the batch */
static const int64_t *batch;
static size_t n_batch;

enum { WEIGHT, BIAS };
static struct ddp_tensor tensors[] = {
    [WEIGHT] = {.name = "weight", .param = weight, .count = N_FEATURES, .dtype = DDP_FLOAT64},
    [BIAS] = {.name = "bias", .param = &bias, .count = 1, .dtype = DDP_FLOAT64},
};

static void write_params(void)
{
    const char *path = getenv("TRAINING_NET_OUT");
    FILE *out = path != NULL ? fopen(path, "we") : NULL;
    if (out == NULL)
        return;
    for (int k = 0; k < N_FEATURES; k++)
        fprintf(out, "%a\n", weight[k]); /* hexadecimal: bit for bit */
    fprintf(out, "%a\n", bias);
    fclose(out);
}

/* Labels are a known function of the features; parameters start wrong on all ranks but rank 0,
 * whose are 0, as nothing but ddp_model_create() can put right. */
static inline void net_init(struct net *net)
{
    const char *rank = getenv("RANK");
    bool is_rank_0 = rank == NULL || rank[0] == '0';
    for (int i = 0; i < N_IMAGES; i++) {
        label[i] = 2.5;
        for (int k = 0; k < N_FEATURES; k++) {
            feature[i][k] = sin(i * 0.7 + k * k * 1.3);
            label[i] += (k - 7) * feature[i][k];
        }
    }
    for (int k = 0; k < N_FEATURES; k++)
        weight[k] = is_rank_0 ? 0.0 : 1e6;
    *net = (struct net){.tensors = tensors, .n_tensors = 2, .n_images = N_IMAGES};
    atexit(write_params);
}

static inline void forward(struct net *net, const int64_t *index, size_t n)
{
    (void)net;
    batch = index;
    n_batch = n;
    for (size_t s = 0; s < n; s++) {
        miss[s] = bias - label[index[s]];
        for (int k = 0; k < N_FEATURES; k++)
            miss[s] += weight[k] * feature[index[s]][k];
    }
}

static inline void backward(struct net *net, struct ddp_model *m)
{
    double *d_weight = net->tensors[WEIGHT].grad, *d_bias = net->tensors[BIAS].grad;
    *d_bias = 0;
    for (size_t s = 0; s < n_batch; s++)
        *d_bias += 2 * miss[s] / (double)n_batch;
    ddp_model_ready(m, BIAS);
    for (int k = 0; k < N_FEATURES; k++) {
        d_weight[k] = 0;
        for (size_t s = 0; s < n_batch; s++)
            d_weight[k] += 2 * miss[s] * feature[batch[s]][k] / (double)n_batch;
    }
    ddp_model_ready(m, WEIGHT);
}

static inline void sgd_step(struct net *net)
{
    const double *d_weight = net->tensors[WEIGHT].grad, *d_bias = net->tensors[BIAS].grad;
    for (int k = 0; k < N_FEATURES; k++)
        weight[k] -= 0.05 * d_weight[k];
    bias -= 0.05 * *d_bias;
}

#endif
