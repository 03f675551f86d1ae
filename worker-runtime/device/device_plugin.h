/* device_plugin.h - what libddp and a plug-in for devices, libddp-nccl.so, know of each other.
 *
 * Both are of one build: `abi` identifies the plug-in's, and libddp refuses others. libddp knows
 * the job (which ranks are in a group, which have died), the plug-in knows the device; it queries
 * the job through struct device_job while it waits.
 *
 * Functions return 0 or -errno with err filled:
 *   -ENOTSUP         there is no such device, or it cannot do that; nothing is broken
 *   -EINVAL          an argument; nothing is broken
 *   -ECONNRESET      the job is broken, by another rank as far as is known
 *   -ETIMEDOUT       the job is broken: something took too long
 *   -EOWNERDEAD      the job is broken by this process, or its device is lost to it: it has to be
 *                    ended and restarted */
#ifndef DDP_WORKER_RUNTIME_DEVICE_DEVICE_PLUGIN_H
#define DDP_WORKER_RUNTIME_DEVICE_DEVICE_PLUGIN_H

#include "device_plan.h"
#include "worker-runtime/arithmetic/device_layer.h"
#include "worker-runtime/core/backend.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device;       /* that of the process */
struct device_feed;  /* places that batches go through on their way to it */
struct device_group; /* the communicator of a group */

#define DEVICE_PLUGIN_ABI    5u
#define DEVICE_PLUGIN_FILE   "libddp-nccl.so"
#define DEVICE_PLUGIN_SYMBOL "ddp_device_plugin"
#define DEVICE_ID_BYTES      128
#define DEVICE_CLIP_BYTES    8208 /* of device_clip.work */

struct device_job { /* copied; `arg` outlives the group */
    void *arg;
    /* Whether the job is whole, without waiting. returns 0; -ECONNRESET, -ETIMEDOUT, -errno */
    int (*look)(void *arg, struct co_error *err);
    /* Break the job. returns whether this was the first report of all ranks: else the reason is
     * another rank's */
    bool (*tell)(void *arg, int code, const char *text);
};

struct device_opts {
    int local_rank;            /* which of the devices that this process sees, if it sees several */
    uint64_t abort_timeout_ms; /* for an abort or a revoke to end */
};

struct device_make { /* lent for the call */
    enum device_way way;
    int rank, n;
    const uint8_t *ids; /* of DEVICE_NEW: n_ids of DEVICE_ID_BYTES each */
    int n_ids;
    int *lost; /* of DEVICE_SHRINK */
    int n_lost;
    uint64_t tag;
    bool may_be_kept; /* for a later DEVICE_SHRINK */
    uint64_t timeout_ms;
    struct device_job job;
};

struct device_piece { /* of a bucket of gradients */
    void *at;
    size_t count;
};

struct device_average { /* of a bucket; lent for the call, and the memory until it is done */
    const struct device_piece *piece;
    size_t n;
    enum ddp_dtype dtype;
    void *wire; /* memory of the device for all values, side by side, in the type that travels; */
    enum ddp_dtype wire_dtype; /* NULL: pieces travel as they are */
    bool is_sum;               /* add up; else average */
    double before, after;      /* each value is multiplied by: before it travels, and in the end */
    uint32_t *found_inf; /* memory of the device, two words: become 1 if a value of this rank is not
                            finite, and if one is not in the end. NULL: not wanted */
    void *stream;
    /* Instead of NCCL's average: puts its own on this stream, after what packs the wire and before
     * what unpacks it. NULL: NCCL averages. returns whether it is there: else nothing comes after
     * it, and average() returns 0 */
    bool (*reduce)(void *arg, void *stream);
    void *arg;
};

struct device_clip { /* lent for the call, and memory of the device until it is done */
    const struct ddp_tensor *tensor; /* n of them: their counts and types */
    uint8_t *const *grad;            /* n gradients */
    size_t n;
    double max_norm;
    void *work;       /* DEVICE_CLIP_BYTES of the device */
    double *ret_norm; /* of alloc_host(); NULL: not wanted */
    void *stream;
};

struct device_span { /* of a place's memory, from its start */
    size_t at, bytes;
};

struct device_plugin {
    uint32_t abi; /* DEVICE_PLUGIN_ABI */
    size_t size;  /* of this struct */
    const char *name;

    /* Take the process's device. Once for the life of the process.
     * returns   0; -ENOTSUP the text names what is missing, and where */
    int (*open)(const struct device_opts *opts, struct device **ret, struct co_error *err);

    /* Make it the calling thread's current one. returns 0; -EIO */
    int (*use)(struct device *d, int *ret_index, struct co_error *err);

    /* Whether work may be given to it.
     * returns   0; -EOWNERDEAD it is lost to this process */
    int (*check)(struct device *d, struct co_error *err);

    /* What it has kept, for a plan: can_scale, tag, rank and n of the note. */
    void (*describe)(struct device *d, struct device_note *ret);

    /* Have communicators that are made from now on encrypt what they send between nodes.
     * key       text of 32 bytes or more; the same again is fine
     * returns   0; -ENOTSUP this library cannot, or has made a communicator that does not */
    int (*encrypt)(struct device *d, const char *key, struct co_error *err);

    int (*make_id)(struct device *d, uint8_t id[DEVICE_ID_BYTES], struct co_error *err);

    /* Make the communicator of a group, with all its ranks. After a failure the job knows of it.
     * ret   owned by the caller, which calls close() */
    int (*make)(struct device *d, const struct device_make *how, struct device_group **ret,
                struct co_error *err);

    /* Form one of some of the ranks of `from`; the same applies. color -1: none, and *ret is NULL
     * how   of which rank, n, timeout_ms and job count */
    int (*split)(struct device_group *from, int color, int key, const struct device_make *how,
                 struct device_group **ret, struct co_error *err);

    /* Put a collective into the order of what->stream. It is done when what was put there after it
     * begins. */
    int (*run)(struct device_group *g, const struct collective *what, struct co_error *err);

    /* The same for a message. */
    int (*message)(struct device_group *g, const struct message *m, void *stream,
                   struct co_error *err);

    /* Wait for all that is in the order of a stream.
     * returns   also -ETIMEDOUT, which breaks the job; -EINVAL a graph is captured */
    int (*wait)(struct device_group *g, void *stream, uint64_t timeout_ms, struct co_error *err);
    /* The same, for a process that has no communicator. */
    int (*wait_alone)(const struct device *d, const struct device_job *job, void *stream,
                      uint64_t timeout_ms, struct co_error *err);

    /* Whether an address is memory that collectives can work on. returns 0; -EINVAL */
    int (*check_memory)(const struct device *d, const void *p, const char *which,
                        struct co_error *err);

    /* Memory on the device, zeroed in the order of the stream.
     *
     * for_nccl   memory that NCCL can register, or any if NCCL has none
     * returns    also -ENOMEM */
    int (*alloc)(struct device *d, size_t bytes, bool for_nccl, void *stream, void **ret,
                 struct co_error *err);
    /* NULL is fine. What drain() has waited for without success may use it: then it stays. */
    void (*free)(struct device *d, void *at);

    /* Register memory of alloc() with the group's communicator, so that NCCL copies nothing: the
     * memory in which the address lies. Registering it twice is fine. It ends with the
     * communicator, or with the memory. All ranks, or none: NCCL does not specify what becomes of
     * other calls.
     * returns   0; -ENOTSUP it is not possible: the text has the reason, nothing is broken; else as
     *           run() */
    int (*enlist)(struct device_group *g, const void *at, struct co_error *err);
    void (*delist)(struct device_group *g, const void *at);
    int (*clear)(struct device *d, void *at, size_t bytes, void *stream, struct co_error *err);

    /* Memory of the host that copies go to without a wait of the host, zeroed.
     * returns   0; -ENOMEM, -EIO */
    int (*alloc_host)(struct device *d, size_t bytes, void **ret, struct co_error *err);
    void (*free_host)(struct device *d, void *at); /* the same */

    /* What clip() needs, and averages that have a wire, a factor, or look for what is not finite.
     * Before anything is on the device's streams that waits for a peer.
     * returns   0; -ENOTSUP this GPU is none that there are kernels for; -ENOMEM; -EIO; -ETIMEDOUT
     *           the driver did not load them in time */
    int (*load_kernels)(struct device *d, uint64_t timeout_ms, struct co_error *err);

    /* Put a step of batch normalization into the order of a stream; layer->n_parts is not read.
     * returns   0; -EINVAL too many channels, or CUDA has invalidated a capture; -EIO */
    int (*norm)(struct device *d, enum device_norm step, const struct device_layer *layer,
                void *stream, struct co_error *err);

    /* Scale gradients so that their norm is at most max_norm, in the order of the stream, as
     * described at ddp_model_clip().
     * returns   0; -ENOTSUP the stream captures a graph, and ret_norm is not NULL; -EINVAL CUDA has
     *           invalidated its capture; -EIO */
    int (*clip)(struct device *d, const struct device_clip *c, struct co_error *err);

    /* Average in place, concurrently with the stream, as soon as what is in its order now is done.
     * If the stream captures a graph the average becomes part of it.
     * returns   also -EINVAL: CUDA has invalidated the capture; nothing is broken */
    int (*average)(struct device_group *g, const struct device_average *a, struct co_error *err);
    /* Copy words to the host, after all averages until now, and zero them.
     *
     * ret_words   of alloc_host(); written when wait_averages() has returned 0
     * returns     as average() */
    int (*take_words)(struct device_group *g, uint32_t *words, uint32_t *ret_words, size_t n,
                      struct co_error *err);
    /* Copy to memory of the host, after all averages, and wait for it: nothing may be there that
     * waits for a peer. returns as run() */
    int (*copy_out)(struct device_group *g, void *to, const void *from, size_t bytes,
                    struct co_error *err);
    /* Whether a stream captures a graph. returns 0; -EINVAL it did, and CUDA has given that up */
    int (*is_capturing)(struct device *d, void *stream, bool *ret, struct co_error *err);
    /* Make what comes on the stream of averages wait for what is on that stream now; and the other
     * way round. A stream that captures has both streams in its graph from the first call to the
     * second.
     * return   as average() */
    int (*fork_averages)(struct device_group *g, void *stream, struct co_error *err);
    int (*join_averages)(struct device_group *g, void *stream, struct co_error *err);
    /* Wait until what is on the stream has ended, and all averages, after kernels of a broken
     * communicator that were made to end. returns false: they did not in their time */
    bool (*drain)(struct device_group *g, void *stream);
    /* Wait for all averages. returns as wait() */
    int (*wait_averages)(struct device_group *g, uint64_t timeout_ms, struct co_error *err);

    /* n places for batches, each of that many bytes of the host, pinned, and as many of the device;
     * and a stream of copies between them. returns also -ENOMEM, -EIO */
    int (*h2d_copy_open)(struct device *d, unsigned n, size_t bytes, struct device_feed **ret,
                         struct co_error *err);
    /* Lend a place's memory. The host's may be written while h2d_copy_sent() returns 1, the
     * device's may be used by the program's stream from h2d_copy_take() to h2d_copy_give(). */
    void (*h2d_copy_place)(const struct device_feed *f, unsigned place, void **ret_host,
                           void **ret_gpu);
    /* Have it copied, after what used the place before: that of h2d_copy_give(). Any thread, one at
     * a time. returns 0, -EIO */
    int (*h2d_copy_send)(struct device_feed *f, unsigned place, const struct device_span *span,
                         size_t n, struct co_error *err);
    /* returns   1 the last copy of it is done, or it has no copy; 0 not yet; -EIO */
    int (*h2d_copy_sent)(struct device_feed *f, unsigned place, struct co_error *err);
    /* What comes on the stream from now on runs after the copy; what is there now has used the
     * place. No h2d_copy_send() of the place may come between h2d_copy_take() and h2d_copy_give().
     * return 0, -EIO */
    int (*h2d_copy_take)(struct device_feed *f, unsigned place, void *stream, struct co_error *err);
    int (*h2d_copy_give)(struct device_feed *f, unsigned place, void *stream, struct co_error *err);
    /* Waits for what is on the streams that it was given: nothing may be there that waits for a
     * peer which died. NULL is fine. */
    void (*h2d_copy_close)(struct device_feed *f);

    /* The raw ncclComm_t, lent. A broken group has none: returns as run() */
    int (*comm)(struct device_group *g, void **ret, struct co_error *err);

    /* Give it back. Looks at the job first: the communicator of a broken one is not ended but
     * revoked and kept, or aborted. NULL is fine. */
    void (*close)(struct device_group *g);
};

#endif
