/* backend.h - what a home for collectives must offer. backend_cpu.c is the one for CPU memory.
 *
 * Calls come with arguments already checked by collective.c (types, roots, NULLs), in the same
 * order on all ranks. Each returns 0 or -errno with err filled: -EPROTO mismatch, -ECONNRESET a
 * rank died or left, -ETIMEDOUT. After such a failure the back end is broken and returns it
 * again. */
#ifndef DDP_WORKER_RUNTIME_BACKEND_H
#define DDP_WORKER_RUNTIME_BACKEND_H

#include <ddp/types.h>
#include <stddef.h>

struct co_error;
struct backend;

struct backend_ops {
    const char *name;
    int (*all_reduce)(struct backend *b, const void *in, void *out, size_t count,
                      enum ddp_dtype dtype, enum ddp_op op, void *stream, struct co_error *err);
    int (*reduce)(struct backend *b, const void *in, void *out, size_t count, enum ddp_dtype dtype,
                  enum ddp_op op, int root, void *stream, struct co_error *err);
    int (*broadcast)(struct backend *b, const void *in, void *out, size_t count,
                     enum ddp_dtype dtype, int root, void *stream, struct co_error *err);
    int (*all_gather)(struct backend *b, const void *in, void *out, size_t count,
                      enum ddp_dtype dtype, void *stream, struct co_error *err);
    int (*barrier)(struct backend *b, struct co_error *err);
    int (*alloc)(struct backend *b, size_t bytes, void **ret, struct co_error *err);
    void (*free)(struct backend *b, void *ptr);
    void (*destroy)(struct backend *b); /* leaves; NULL never passed */
};

struct backend {
    const struct backend_ops *ops; /* first member of every back end */
};

#endif
