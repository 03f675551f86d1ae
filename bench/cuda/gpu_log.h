/* gpu_log.h - events of ranks, for bench/gpu: a line each in the file that GPU_LOG names, written
 * by one write(), so that those of several processes do not mix.
 *
 *     NS PID RANK EVENT NUMBER
 *
 * NS is CLOCK_MONOTONIC, the same for all processes of a machine; RANK is that of the start. */
#ifndef DDP_BENCH_CUDA_GPU_LOG_H
#define DDP_BENCH_CUDA_GPU_LOG_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static inline void gpu_log(const char *event, long number)
{
    const char *path = getenv("GPU_LOG"), *rank = getenv("RANK");
    struct timespec t;
    char line[128];
    const int fd = path != NULL ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd < 0)
        return;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const int n = snprintf(line, sizeof line, "%lld %d %s %s %ld\n",
                           (long long)t.tv_sec * 1000000000 + t.tv_nsec, (int)getpid(),
                           rank != NULL ? rank : "0", event, number);
    if (write(fd, line, (size_t)n) != n)
        fputs("GPU_LOG cannot be written\n", stderr);
    close(fd);
}

#endif
