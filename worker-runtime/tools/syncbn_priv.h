/* syncbn_priv.h - what the files of ddp_syncbn share: syncbn.c on CPUs, syncbn_device.c on
 * GPUs. */
#ifndef DDP_WORKER_RUNTIME_TOOLS_SYNCBN_PRIV_H
#define DDP_WORKER_RUNTIME_TOOLS_SYNCBN_PRIV_H

#include "worker-runtime/arithmetic/device_layer.h"
#include "worker-runtime/core/group.h"

#include <ddp/syncbn.h>
#include <stdbool.h>

struct ddp_syncbn {
    struct group_child child; /* first member */
    struct ddp_group *g;
    struct ddp_syncbn_opts opts;   /* with defaults filled in */
    double *memory;                /* owned: what the pointers below point into */
    double *mean, *m2;             /* of all ranks' last batch; m2 becomes 1 / sqrt(var + eps) */
    double *a, *b;                 /* work memory, channels each */
    double *sums;                  /* 2 * channels */
    double *all;                   /* each rank's moments, for merge_moments() */
    double count;                  /* of all ranks' last batch; 0: none */
    struct ddp_syncbn_shape shape; /* of this rank's */
    bool has_forward;              /* of a layer on a GPU: there was one that did not fail */
    struct device_layer layer; /* of a layer on a GPU: its own memory, and what does not change */
    void *on_device;           /* owned; what the pointers in it point into; NULL: on CPUs */
};

static inline bool syncbn_is_on_device(const struct ddp_syncbn *bn)
{
    return bn->opts.stream != NULL;
}

/* Of a layer with a stream: as the calls of ddp/syncbn.h, whose arguments were checked. Nothing is
 * waited for. */
int syncbn_device_init(struct ddp_syncbn *bn); /* returns also DDP_EUNSUPPORTED, DDP_ENOMEM */
int syncbn_device_forward(struct ddp_syncbn *bn, const struct ddp_syncbn_shape *shape,
                          const void *x, void *y);
int syncbn_device_infer(const struct ddp_syncbn *bn, const struct ddp_syncbn_shape *shape,
                        const void *x, void *y);
int syncbn_device_backward(struct ddp_syncbn *bn, const struct ddp_syncbn_shape *shape,
                           const void *x, const void *dy, void *dx, void *dweight, void *dbias);

#endif
