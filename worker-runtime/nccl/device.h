/* device.h - inside of the plug-in: the process's device, and the communicators on it.
 *
 * All communicators of a process break together, since the job does. So that the kernels of one do
 * not keep another's end waiting, all of them are made to end before any is waited for: aborted by
 * one call (ncclGroupStart() ... ncclGroupEnd()), revoked by a thread each, since NCCL makes a
 * thread that queries one communicator of a group wait for all of it.
 *
 * Files:
 *   device.c   the device, and what breaks
 *   comm.c     a communicator from its making to its end
 *   call.c     collectives and messages, into the order of a stream
 *   graph_hold.c    graphs that hold calls on a communicator
 *   side_stream.c   a stream in addition to the program's, for averages, and for calls on a
 *                   thread's own default stream
 *   bucket.c   memory for gradients
 *   average.c  their averages, on a stream of the plug-in's
 *   clip.c     their norm
 *   kernels.c  the plug-in's own kernels: kernels.cu
 *   h2d_copy.c batches on their way to the device
 *   wait.c     waits: for a communicator, for a stream
 *   helper_call.c   calls that may never return, by threads of their own
 *   nccl_map.c   types, operations and errors
 *   plugin.c   what libddp sees */
#ifndef DDP_WORKER_RUNTIME_NCCL_DEVICE_H
#define DDP_WORKER_RUNTIME_NCCL_DEVICE_H

#include "comm_state.h"
#include "kernels.h"

#include "common/error.h"
#include "worker-runtime/device/device_plugin.h"

#include <nccl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Calls that not every NCCL has that this plug-in runs with: device.c looks them up, and they are
 * NULL where they are missing. All others are linked (symbols.txt lists both). */
#define NEWER_CALLS(X)          /* name, since */                                                  \
    X(ncclCommInitRankScalable) /* 2.23 */                                                         \
    X(ncclCommShrink)           /* 2.27 */                                                         \
    X(ncclCommRevoke)           /* 2.28.7 */                                                       \
    X(ncclSetEncryption)        /* 2.32 */

struct nccl_encryption { /* as NCCL 2.32 has it */
    size_t size;
    unsigned magic, version;
    int mode;
    const char *psk;
};
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 32, 0)
ncclResult_t ncclSetEncryption(const void *config);
#endif

struct newer {
#define NEWER_MEMBER(name) __typeof__(&name) name;
    NEWER_CALLS(NEWER_MEMBER)
#undef NEWER_MEMBER
};

struct device {
    int index;
    uint64_t abort_timeout_ms;
    struct newer newer;
    pthread_mutex_t mutex;      /* guards all below, and what communicators record of themselves */
    struct device_group *first; /* the communicators of groups that there are */
    struct device_group *kept;  /* owned; revoked, of the world before; NULL: none */
    struct kernels kernels;
    bool encrypts;               /* NCCL does */
    bool has_made;               /* an id or a communicator */
    struct bucket_block *blocks; /* owned; memory of bucket_alloc() */
    bool is_lost;                /* one of them is stuck, or: */
    bool has_no_context;         /* CUDA reports that the process can do no more work with it */
    struct co_error why;         /* it is lost */
};

struct side { /* a stream that runs concurrently with another; zeroed at first */
    cudaStream_t stream;
    cudaEvent_t event;
};

struct device_group { /* a communicator */
    struct device *device;
    struct device_group *next;
    ncclComm_t comm; /* NULL: not yet, or gone */
    struct comm_life life;
    int rank, n;
    uint64_t tag;
    bool is_new; /* made of ids */
    bool may_be_kept;
    atomic_bool is_out;  /* a hand has not come back that works on it: never freed */
    atomic_uint n_calls; /* in progress without the mutex; more only with it: see bucket.c */
    uint64_t timeout_ms;
    struct device_job job;
    bool is_broken;
    struct co_error why;        /* what calls return from then on */
    uint64_t next_look_ns;      /* at the job, by a caller that does not wait */
    struct side averages;       /* its stream is NULL: none so far */
    struct side detour;         /* see side_stream.c */
    struct graph_holds *holds;  /* owned; graphs with calls on it */
    unsigned long long capture; /* CUDA's number of the last one that was counted; 0: none */
    bool is_given_back;         /* revoked, and there until no graph holds it */
    bool is_undrained;          /* averages did not end in their time */
    struct bucket_mark *marks;  /* owned; memory that is registered with it */
};

/* Between two looks at what is waited for: the first come shortly after each other. */
struct nap {
    unsigned n; /* taken so far */
};
static inline void nap_take(struct nap *nap)
{
    enum { EAGER_NAPS = 200, NAP_NS = 50 * 1000 }; /* the eager ones only yield the processor */
    const struct timespec t = {.tv_nsec = NAP_NS};
    if (nap->n++ < EAGER_NAPS)
        sched_yield();
    else
        nanosleep(&t, NULL);
}

/* --- nccl_map.c: libddp's types and operations in NCCL's names; errors of NCCL and CUDA ------- */

/* Of a known type: its name there. */
ncclDataType_t nccl_map_dtype(enum ddp_dtype dtype);

/* returns   whether NCCL has such an operation: not those on bits */
bool nccl_map_op(enum ddp_op op, ncclRedOp_t *ret);

/* Fill err with "WHAT: NCCL reports 'unhandled system error' (LAST WARNING)", and the like.
 *
 * comm      NULL if there is no communicator
 * returns   -EIO; for NCCL also -EREMOTEIO: of a network or a peer, -ENOTSUP: wrong usage; for CUDA
 *           also -EINVAL: nccl_map_is_of_capture(), -ENODEV: the process can do no more work
 *           with CUDA, and 0 for cudaSuccess. CUDA's last error of this thread is forgotten */
int nccl_map_nccl_failed(const char *what, ncclResult_t result, ncclComm_t comm,
                         struct co_error *err);
int nccl_map_cuda(const char *what, cudaError_t result, struct co_error *err);

/* NCCL's state of a communicator, NULL for none. returns 1 it is at rest; 0 something is in
 * progress; as nccl_map_nccl_failed() */
int nccl_map_ask(ncclComm_t comm, const char *what, struct co_error *err);

/* Of several calls: *first is their first failure; those that are under way are none. */
void nccl_map_keep_first(ncclResult_t *first, ncclResult_t result);

/* Whether CUDA refuses something since a graph is captured: the program's mistake, and no failure
 * of the device. */
bool nccl_map_is_of_capture(cudaError_t result);

/* --- helper_call.c: a call that may never return ---------------------------------------------- */

struct helper_call; /* opaque */

/* Have a thread with this device do work(arg).
 *
 * arg       `bytes` of it are copied: the work may outlive its caller
 * returns   NULL: out of memory, or no thread, and nothing was done */
struct helper_call *helper_call_start(int device, int (*work)(const void *arg), const void *arg,
                                      size_t bytes);

/* Wait for its end.
 *
 * ret_result   what the work returned; written only if 0 is returned
 * returns      0; -ETIMEDOUT it continues */
int helper_call_wait(struct helper_call *h, uint64_t timeout_ms, int *ret_result);

/* Done with it. One that is in progress continues, and its end is not reported. NULL is fine. */
void helper_call_leave(struct helper_call *h);

/* All three. returns 0; -ETIMEDOUT it was left; -ENOMEM nothing was done */
int helper_call_run(int device, int (*work)(const void *arg), const void *arg, size_t bytes,
                    uint64_t timeout_ms, int *ret_result);

/* --- device.c --------------------------------------------------------------------------------- */

int device_open(const struct device_opts *opts, struct device **ret, struct co_error *err);
int device_check(struct device *d, struct co_error *err);
int device_encrypt(struct device *d, const char *key, struct co_error *err);

/* The job broke, or this communicator did: end all kernels of all communicators.
 *
 * e      COMM_BROKEN: another rank did it, and `why` has that. COMM_FAILED, COMM_LATE: as far as is
 *        known this rank is the first to see it, and the job gets `code` and why->text.
 * code   -ENOTSUP, with COMM_FAILED: NCCL refuses to make the communicator. The job is broken for
 *        all ranks with that code, since no restart would help.
 *        -ENODEV, with COMM_FAILED: of CUDA. No communicator of this process is revoked or
 *        aborted then: both make calls of CUDA, and an abort after a revoke that failed may end the
 *        process
 * why    becomes what this and all later calls on g return
 * returns its code: -EOWNERDEAD where this process has to be replaced */
int device_break(struct device_group *g, enum comm_event e, int code, struct co_error *why);

/* Take a step of life with one communicator that is in the list, and revoke or abort it if that is
 * what comes next. */
void device_step(struct device_group *g, enum comm_event e);

/* Wait until no call is in progress without the mutex, so that it may be freed. One that is not
 * over by then never comes back, as far as is known: is_out. */
void device_wait_unused(struct device_group *g, uint64_t deadline_ms);

/* Wait until NCCL reports that a communicator is at rest. returns COMM_DONE, COMM_FAILED,
 * COMM_LATE */
enum comm_event device_wait_rest(ncclComm_t comm, const char *what, uint64_t deadline_ms);

/* --- comm.c ----------------------------------------------------------------------------------- */

int comm_make(struct device *d, const struct device_make *how, struct device_group **ret,
              struct co_error *err);
int comm_split(struct device_group *from, int color, int key, const struct device_make *how,
               struct device_group **ret, struct co_error *err);
void comm_close(struct device_group *g);

/* --- call.c ----------------------------------------------------------------------------------- */

int call_run(struct device_group *g, const struct collective *what, struct co_error *err);
int call_message(struct device_group *g, const struct message *m, void *stream,
                 struct co_error *err);

/* Whether an address is of this process's GPU, or of the host and known to CUDA; NULL is fine.
 *
 * which     for the text
 * returns   0; -EINVAL */
int call_check_memory(const struct device *d, const void *p, const char *which,
                      struct co_error *err);

/* Whether a stream captures a graph: see struct device_plugin. */
int call_is_capturing(struct device *d, void *stream, bool *ret, struct co_error *err);

/* A call of CUDA has failed, err has the reason. If it was part of an invalidated capture it never
 * runs: nothing is broken then.
 *
 * code      of nccl_map_cuda()
 * returns   -EINVAL of a capture; else as device_break() */
int call_fail(struct device_group *g, int code, struct co_error *err);
/* The same, for a CUDA result. returns also 0 */
int call_settle_cuda(struct device_group *g, cudaError_t result, const char *what,
                     struct co_error *err);

/* NCCL's result of a call that was made: waits while it is in progress.
 * returns   0; as device_break() */
int call_settle(struct device_group *g, ncclResult_t result, const char *what,
                struct co_error *err);

/* --- graph_hold.c ----------------------------------------------------------------------------- */

struct graph_holds *graph_holds_new(void);     /* NULL: out of memory */
void graph_holds_leave(struct graph_holds *h); /* NULL is fine */
/* Whether there are graphs with calls on the group's communicator. */
bool graph_holds_any(const struct graph_holds *h);

/* Before a call of NCCL on the stream: if it captures a graph, count that graph. */
cudaError_t graph_hold(struct device_group *g, cudaStream_t stream);

/* --- side_stream.c: the calling thread's device is the group's -------------------------------- */

cudaError_t side_stream_open(struct side *s); /* open before is fine */
/* What comes on `to` continues after what is on `from` now; one of them is the side's. */
cudaError_t side_stream_follow(const struct side *s, cudaStream_t to, cudaStream_t from);
void side_stream_close(struct side *s); /* nothing of it runs any more */

/* The stream that NCCL is to be given for a call on `stream`, after what is there by now. */
cudaError_t side_stream_begin(struct side *s, cudaStream_t stream, cudaStream_t *ret);
/* `stream` continues after the call, which is not in progress any more. */
cudaError_t side_stream_end(struct side *s, cudaStream_t stream);

/* --- bucket.c: see struct device_plugin ------------------------------------------------------- */

int bucket_alloc(struct device *d, size_t bytes, bool for_nccl, void *stream, void **ret,
                 struct co_error *err);
void bucket_free(struct device *d, void *at);
int bucket_clear(struct device *d, void *at, size_t bytes, void *stream, struct co_error *err);
int bucket_enlist(struct device_group *g, const void *at, struct co_error *err);
void bucket_delist(struct device_group *g, const void *at);

/* All that is registered with a communicator, handed over: to be dropped by
 * bucket_drop_marks(). NULL: nothing is */
struct bucket_mark *bucket_take_marks(struct device_group *g);
/* comm      NULL: it has gone, and they with it. Else it may hang like other calls that end
 *           something: by a helper call, and after device_wait_unused()
 * returns   ncclResult_t; all are gone in any case */
int bucket_drop_marks(struct bucket_mark *marks, ncclComm_t comm);

int bucket_alloc_host(struct device *d, size_t bytes, void **ret, struct co_error *err);
void bucket_free_host(struct device *d, void *at);

/* --- average.c: see device_plugin.h ----------------------------------------------------------- */

int average_run(struct device_group *g, const struct device_average *a, struct co_error *err);
int average_take(struct device_group *g, uint32_t *words, uint32_t *ret_words, size_t n,
                 struct co_error *err);
int average_copy_out(struct device_group *g, void *to, const void *from, size_t bytes,
                     struct co_error *err);
int average_fork(struct device_group *g, void *stream, struct co_error *err);
int average_join(struct device_group *g, void *stream, struct co_error *err);
int average_wait(struct device_group *g, uint64_t timeout_ms, struct co_error *err);
/* Wait until what was on the stream of a broken communicator has ended, after the kernels that were
 * made to end: then the memory may be used again. returns false: it did not in its time, now or
 * before */
bool average_drain(struct device_group *g);
/* The same, and what is on the program's stream, where graphs were launched */
bool average_drain_behind(struct device_group *g, void *stream);

/* --- clip.c: see device_plugin.h -------------------------------------------------------------- */

int clip_run(struct device *d, const struct device_clip *c, struct co_error *err);

/* --- h2d_copy.c: see device_plugin.h ---------------------------------------------------------- */

int h2d_copy_open(struct device *d, unsigned n, size_t bytes, struct device_feed **ret,
                  struct co_error *err);
void h2d_copy_place(const struct device_feed *f, unsigned place, void **ret_host, void **ret_gpu);
int h2d_copy_send(struct device_feed *f, unsigned place, const struct device_span *span, size_t n,
                  struct co_error *err);
int h2d_copy_sent(struct device_feed *f, unsigned place, struct co_error *err);
int h2d_copy_take(struct device_feed *f, unsigned place, void *stream, struct co_error *err);
int h2d_copy_give(struct device_feed *f, unsigned place, void *stream, struct co_error *err);
void h2d_copy_close(struct device_feed *f);

/* --- wait.c ----------------------------------------------------------------------------------- */

/* Until a call that NCCL has taken is done, so that the next may be made; breaks the job if it does
 * not.
 *
 * asks      the communicator to ask, g's own or the one that it is made of
 * returns   0; as device_break() */
int wait_settled(struct device_group *g, struct device_group *asks, const char *what,
                 struct co_error *err);

/* cudaStreamQuery(). "Not ready" is not an error, but CUDA keeps it as the thread's last one: a
 * program that queries the last error after a launch of its own must not find it. */
cudaError_t wait_ask_stream(cudaStream_t stream);

int wait_stream(struct device_group *g, void *stream, uint64_t timeout_ms, struct co_error *err);
int wait_alone(const struct device *d, const struct device_job *job, void *stream,
               uint64_t timeout_ms, struct co_error *err);

/* Whether calls may be made on g: it is not broken, and neither is the job, which is looked at once
 * in a while. returns 0, -errno */
int wait_check(struct device_group *g, struct co_error *err);

#endif
