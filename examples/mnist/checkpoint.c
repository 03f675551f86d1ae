#include "checkpoint.h"

#include <ddp/error.h>
#include <ddp/safetensors.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../shared/failure.h"
#include "convnet.h"

enum { MAX_TENSORS = CONVNET_MAX_TENSORS + 2 * CONVNET_MAX_STATS, MAX_NAME = 64 };

/* Describe everything; parameters are copied to `to`, which has space for all of them.
 * counters    names of the layers' num_batches_tracked, one for each running_mean */
static size_t describe(const struct convnet *net, real *to, char counters[][MAX_NAME],
                       struct ddp_safetensors_tensor *tensors)
{
    size_t n = 0;

    for (size_t i = 0; i < net->n_tensors; i++) {
        struct ddp_safetensors_tensor *t = &tensors[n++];
        *t = (struct ddp_safetensors_tensor){
            .name = net->tensors[i].name, .dtype = REAL_DTYPE, .data = to};
        t->n_dims = (unsigned)convnet_copy_tensor(net, i, to, t->shape);
        to += net->tensors[i].count;
    }
    for (size_t i = 0; i < net->n_stats; i++) {
        const struct convnet_stat *s = &net->stats[i];
        tensors[n++] = (struct ddp_safetensors_tensor){.name = s->name,
                                                       .dtype = REAL_DTYPE,
                                                       .n_dims = 1,
                                                       .shape = {s->count},
                                                       .data = s->values};
        const char *mean = strstr(s->name, "running_mean");
        if (mean == NULL)
            continue;
        snprintf(counters[i], MAX_NAME, "%.*snum_batches_tracked", (int)(mean - s->name), s->name);
        tensors[n++] = (struct ddp_safetensors_tensor){
            .name = counters[i], .dtype = DDP_INT64, .data = &net->n_batches};
    }
    return n;
}

int checkpoint_write(const char *path, const struct convnet *net, struct failure *why)
{
    struct ddp_safetensors_tensor tensors[MAX_TENSORS];
    char counters[CONVNET_MAX_STATS][MAX_NAME];
    size_t count = 0;

    for (size_t i = 0; i < net->n_tensors; i++)
        count += net->tensors[i].count;
    real *copies = malloc(count * sizeof(real));
    if (copies == NULL)
        return failure_set(why, "out of memory for '%s'", path);
    const struct ddp_safetensors_text format = {"format", "pt"};
    const size_t n = describe(net, copies, counters, tensors);
    int rc = ddp_safetensors_write(path, tensors, n, &format, 1);
    free(copies);
    return rc == 0 ? 0 : failure_set(why, "%s", ddp_last_error());
}
