/* gpu_rank.h - what the files of gpu_kernels share: the plug-in, and a rank of its own. */
#ifndef DDP_BENCH_CUDA_GPU_RANK_H
#define DDP_BENCH_CUDA_GPU_RANK_H

#include "gpu_timing.h"

#include "worker-runtime/device/device_plugin.h"

struct rank { /* one of one */
    const struct device_plugin *plugin;
    struct device *device;
    struct device_group *group;
    cudaStream_t stream;
};

/* Each of them ends the process, with a line, where something fails. */
__attribute__((noreturn)) void rank_fail(const char *what, const char *why);
void *rank_host_memory(size_t bytes); /* zeroed */
void *rank_gpu_memory(size_t bytes);

void rank_open(struct rank *r);
void rank_close(struct rank *r);
void rank_average(struct rank *r, const struct device_average *a);
void rank_wait(struct rank *r); /* for averages */

/* What the program is asked for: see gpu_kernels.c. return the exit status */
int gpu_norm_check(void);
int gpu_speed(int repeats, size_t n_values);

#endif
