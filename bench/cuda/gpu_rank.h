/* gpu_rank.h - common code of gpu_kernels: the plug-in, and a rank without a launcher. */
#ifndef DDP_BENCH_CUDA_GPU_RANK_H
#define DDP_BENCH_CUDA_GPU_RANK_H

#include "gpu_timing.h"

#include "worker-runtime/device/device_plugin.h"

struct rank { /* the only rank of its world */
    const struct device_plugin *plugin;
    struct device *device;
    struct device_group *group;
    cudaStream_t stream;
};

/* Each of these functions ends the process with a message if something fails. */
__attribute__((noreturn)) void rank_fail(const char *what, const char *why);
void *rank_host_memory(size_t bytes); /* zeroed */
void *rank_gpu_memory(size_t bytes);

void rank_open(struct rank *r);
void rank_close(struct rank *r);
void rank_average(struct rank *r, const struct device_average *a);
void rank_wait(struct rank *r); /* waits for the averages */

/* The commands of the program (see gpu_kernels.c). Each returns the exit status. */
int gpu_norm_check(void);
int gpu_speed(int repeats, size_t n_values);

#endif
