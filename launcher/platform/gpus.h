/* gpus.h - where the node's GPUs are, and which one is a rank's.
 *
 * Read from the files that the kernel and the driver show: no CUDA, no device is opened. NVIDIA's
 * GPUs; on a node without these, the accelerators of other vendors (AMD Instinct, Intel Data Center
 * GPU Max), which are DRM devices that drive no display. Devices are in the order of their bus
 * addresses, as CUDA numbers them where they are of one kind (elsewhere
 * CUDA_DEVICE_ORDER=PCI_BUS_ID makes it do so). */
#ifndef DDP_LAUNCHER_PLATFORM_GPUS_H
#define DDP_LAUNCHER_PLATFORM_GPUS_H

#include "launcher/placement/placement.h"

#include <stddef.h>

#define GPUS_MAX 256 /* of a node; more are left out */

struct gpu {
    char bus_id[20];     /* "0000:3b:00.0" */
    char uuid[64];       /* "GPU-..."; "": not known */
    struct cpu_set near; /* empty: not known */
};

struct gpus {
    size_t n;
    struct gpu gpu[];
};

/* The list that decides which GPUs a process sees: that of HIP_VISIBLE_DEVICES if it is set and not
 * empty, as HIP has it, else that of CUDA_VISIBLE_DEVICES.
 *
 * get        the value of a variable, or NULL
 * ret_name   the variable, for messages; may be NULL
 * returns    NULL: neither is set */
const char *gpus_visible(const char *(*get)(void *arg, const char *name), void *arg,
                         const char **ret_name);
const char *gpus_visible_here(void); /* in our own environment */

/* How many accelerators of other vendors gpus_find() would find on a node without NVIDIA's. */
int gpus_n_others(const char *root);

/* Those that the driver has, and that this container has a device file of.
 *
 * root      put in front of each path; "" except in tests
 * ret       one block, to free(); n may be 0
 * returns   0, -ENOMEM */
int gpus_find(const char *root, struct gpus **ret);

/* The device that CUDA calls number i where CUDA_VISIBLE_DEVICES is `visible` (NULL: unset): an
 * entry of that is a number, or a UUID or the beginning of one.
 *
 * returns   NULL: no such device, or it cannot be determined (a part of a GPU) */
const struct gpu *gpus_get(const struct gpus *g, const char *visible, int i);

#endif
