/* double.h - common declarations of the two halves of the double.
 *
 * A TEST DOUBLE of libcudart.so.13 and libnccl.so.2: the calls that libddp-nccl.so and its tests
 * make of them, and no others, with their names, types and rules. It runs without a GPU, so that
 * the logic of the plug-in can be tested; it shows nothing about speed, and nothing that NVIDIA's
 * libraries do beyond what is stated here.
 *
 *   memory     of a device is memory of the CPU, from malloc()
 *   stream     a thread that executes the queued work in its order
 *   kernel     of a collective is a function on such a thread; its ranks are processes, which share
 *              a file that all of them map (shared.h)
 *   capture    of a graph follows CUDA's rules: streams fork and join by events, and calls that are
 *              not allowed meanwhile invalidate the capture. A launch executes it on one stream, in
 *              the order in which it was captured; the order that streams and events give it is
 *              checked when it is captured
 *   order      of memory accesses is checked: each operation declares what it reads and writes. One
 *              that conflicts with another, with no event, stream or wait of the host between them,
 *              is a race (race.h), whether or not it does harm
 *   faults     are injected by NCCL_DOUBLE_FAULTS (faults.h)
 *
 * A call that breaks a rule fails and writes a line to the file that NCCL_DOUBLE_REPORT names.
 * NCCL_DOUBLE_DIR is the directory through which communicators connect. With NCCL_DOUBLE_NO_STREAMS
 * the driver makes no other stream. */
#ifndef DDP_TESTS_NCCL_DOUBLE_DOUBLE_H
#define DDP_TESTS_NCCL_DOUBLE_DOUBLE_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>

/* Exported by the one half for the other. */
#define DOUBLE_EXPORT __attribute__((visibility("default")))

/* A rule was broken: a line for the report. */
DOUBLE_EXPORT __attribute__((format(printf, 1, 2), nonnull(1))) void
double_report(const char *format, ...);

/* NCCL's calls that make and end communicators, a line each, in the file that NCCL_DOUBLE_LOG
 * names; without it nowhere. */
DOUBLE_EXPORT void double_log(const char *call);

struct double_range { /* memory that an operation touches */
    const void *at;
    size_t bytes;
    bool writes;
};

/* Queue work on a stream. It gets a copy of `bytes` at arg, which is freed after it.
 *
 * name       for reports
 * range      n_ranges of them
 * returns    cudaSuccess; cudaErrorInvalidResourceHandle, cudaErrorMemoryAllocation */
DOUBLE_EXPORT cudaError_t double_queue(cudaStream_t stream, const char *name,
                                       void (*work)(void *arg), const void *arg, size_t bytes,
                                       const struct double_range *range, size_t n_ranges);

/* The same; launched(copy) is called when it is put on a stream, for each launch of its graph. */
DOUBLE_EXPORT cudaError_t double_queue_launched(cudaStream_t stream, const char *name,
                                                void (*work)(void *arg),
                                                void (*launched)(void *arg), const void *arg,
                                                size_t bytes, const struct double_range *range,
                                                size_t n_ranges);

/* The device of a stream; -1: a default one, which is of any. */
DOUBLE_EXPORT int double_device_of(cudaStream_t stream);

/* Whether a stream captures a graph: what is put there is done when the graph is launched. */
DOUBLE_EXPORT bool double_is_capturing(cudaStream_t stream);

/* Have let_go(arg) called when the graph that the stream captures is destroyed with all that was
 * made of it; at once if the stream does not capture. */
DOUBLE_EXPORT void double_graph_hold(cudaStream_t stream, void (*let_go)(void *arg), void *arg);

/* NCCL's call on a stream is in progress: nothing else may be put there before it is done with. */
DOUBLE_EXPORT void double_hold(cudaStream_t stream, int change);

/* How often this process has asked whether an event has come to pass. */
DOUBLE_EXPORT unsigned double_count_queries(void);

/* How many blocks of memory this process has. */
DOUBLE_EXPORT unsigned double_count_blocks(void);

/* The stream reports an error from now on, from which the process cannot recover. */
DOUBLE_EXPORT void double_fail_stream(cudaStream_t stream);
/* Whether that has happened to one of the process's streams. */
DOUBLE_EXPORT bool double_has_failed(void);

#endif
