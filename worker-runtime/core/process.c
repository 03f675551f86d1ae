/* process.c - what a process has once: its user segment, its place in the job, its sockets.
 *
 * process_enter() and process_leave() bracket the time in a job. The mutex guards all of
 * `process`. on_fork_child() reads it without: a forked child has one thread. */
#include "process.h"

#include "common/error.h"
#include "common/hash.h"
#include "segments/node_socket.h"
#include "user_segment.h"
#include "worker-runtime/arithmetic/reduce.h"

#include <ddp/env.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    pthread_mutex_t mutex;
    struct user_segment *segment;
    int node_fd;
    unsigned local_rank;
    uint32_t generation;
    bool inside, was_inside, watches_fork, has_lost_peer;
    uint64_t wait_hash; /* of the text that ddprun got last; 0: of none */
    bool is_beside;     /* it has been in groups outside the job */
} process = {.mutex = PTHREAD_MUTEX_INITIALIZER, .node_fd = -1};

static atomic_bool is_forked, may_go_on;

enum { MOST_SOCKETS = 1 << 16, WORD_BITS = 64 };
static _Atomic uint64_t sockets[MOST_SOCKETS / WORD_BITS]; /* a bit for each descriptor */

void process_own_socket(int fd)
{
    if (fd >= 0 && fd < MOST_SOCKETS)
        atomic_fetch_or(&sockets[fd / WORD_BITS], UINT64_C(1) << fd % WORD_BITS);
}

void process_disown_socket(int fd)
{
    if (fd >= 0 && fd < MOST_SOCKETS)
        atomic_fetch_and(&sockets[fd / WORD_BITS], ~(UINT64_C(1) << fd % WORD_BITS));
}

void process_set_may_go_on(bool may)
{
    atomic_store(&may_go_on, may);
}

bool process_may_go_on(void)
{
    return atomic_load_explicit(&may_go_on, memory_order_relaxed);
}

bool process_is_forked(void)
{
    return atomic_load_explicit(&is_forked, memory_order_relaxed);
}

/* In a forked child: it is not a rank. Its copies of the descriptors would keep the rank's memory
 * and its socket alive after the rank. close() is safe here, whatever other threads were doing. */
static void on_fork_child(void)
{
    if (!process.was_inside && !process.inside && !process.is_beside)
        return;
    atomic_store(&is_forked, true);
    if (process.node_fd >= 0)
        close(process.node_fd);
    if (process.segment != NULL)
        close(user_segment_fd(process.segment));
    process.node_fd = -1;
    for (int word = 0; word < MOST_SOCKETS / WORD_BITS; word++)
        for (uint64_t left = atomic_exchange(&sockets[word], 0); left != 0; left &= left - 1)
            close(word * WORD_BITS + __builtin_ctzll(left));
}

static int watch_fork(struct co_error *err)
{
    if (process_is_forked())
        return co_fail(err, -EALREADY,
                       "this process was forked from a rank and cannot join the job itself");
    if (!process.watches_fork && pthread_atfork(NULL, NULL, on_fork_child) != 0)
        return co_fail(err, -ENOMEM, "out of memory");
    process.watches_fork = true;
    return 0;
}

int process_enter(int node_fd, unsigned local_rank, struct co_error *err)
{
    pthread_mutex_lock(&process.mutex);
    int code = watch_fork(err);
    if (code == 0 && process.inside)
        code = co_fail(err, -EALREADY,
                       "this process has already joined the job: call ddp_finalize() first");
    else if (code == 0 && process.was_inside && node_fd >= 0)
        code =
            co_fail(err, -ENOTSUP,
                    "this process has left the job and cannot join it again: call ddp_init() once");
    if (code == 0) {
        process.inside = true;
        process.node_fd = node_fd;
        process.local_rank = local_rank;
    }
    pthread_mutex_unlock(&process.mutex);
    return code;
}

int process_stand_beside(struct co_error *err)
{
    pthread_mutex_lock(&process.mutex);
    const int code = watch_fork(err);
    process.is_beside = process.is_beside || code == 0;
    pthread_mutex_unlock(&process.mutex);
    return code;
}

void process_leave(bool was_joined)
{
    pthread_mutex_lock(&process.mutex);
    process.inside = false;
    process.was_inside = process.was_inside || was_joined;
    if (process.node_fd >= 0 && was_joined)
        close(process.node_fd);
    process.node_fd = -1;
    pthread_mutex_unlock(&process.mutex);
}

void process_begin_generation(uint32_t generation)
{
    pthread_mutex_lock(&process.mutex);
    process.generation = generation;
    process.has_lost_peer = false;
    process.wait_hash = 0;
    pthread_mutex_unlock(&process.mutex);
}

void process_lose_peer(void)
{
    pthread_mutex_lock(&process.mutex);
    if (process.node_fd >= 0 &&
        !process.has_lost_peer) /* ddprun may be gone: then nothing waits for it */
        node_message_notify(process.node_fd, NODE_LOST, process.local_rank, process.generation);
    process.has_lost_peer = process.inside;
    pthread_mutex_unlock(&process.mutex);
}

void process_tell_wait(const char *text)
{
    pthread_mutex_lock(&process.mutex);
    const uint64_t hash = text[0] != '\0' ? co_hash_bytes(CO_HASH_START, text, strlen(text)) : 0;
    if (process.node_fd >= 0 && hash != process.wait_hash)
        node_message_tell_wait(process.node_fd, process.local_rank, process.generation, text);
    process.wait_hash = hash;
    pthread_mutex_unlock(&process.mutex);
}

int process_start_thread(pthread_t *ret, void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = pthread_create(ret, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -rc;
}

void process_keep(void *memory)
{
    struct kept {
        struct kept *next;
        void *memory;
    };
    static struct kept *_Atomic first;
    struct kept *k = memory != NULL ? malloc(sizeof *k) : NULL;
    if (k == NULL)
        return;
    *k = (struct kept){.next = atomic_load(&first), .memory = memory};
    while (!atomic_compare_exchange_weak(&first, &k->next, k)) {
    }
}

static char library_key[PROCESS_LIBRARY_KEY_BYTES];
static pthread_mutex_t library_key_mutex = PTHREAD_MUTEX_INITIALIZER;

void process_set_library_key(const char key[PROCESS_LIBRARY_KEY_BYTES])
{
    pthread_mutex_lock(&library_key_mutex);
    memcpy(library_key, key, sizeof library_key);
    pthread_mutex_unlock(&library_key_mutex);
}

void process_get_library_key(char ret[PROCESS_LIBRARY_KEY_BYTES])
{
    pthread_mutex_lock(&library_key_mutex);
    memcpy(ret, library_key, sizeof library_key);
    pthread_mutex_unlock(&library_key_mutex);
}

unsigned process_count_join(void)
{
    static atomic_uint n_joins;
    return atomic_fetch_add(&n_joins, 1) + 1;
}

int process_user_segment(unsigned n_local, struct user_segment **ret, struct co_error *err)
{
    uint64_t bytes;
    int code = 0;
    pthread_mutex_lock(&process.mutex);
    if (process.segment == NULL) {
        code = user_segment_size(getenv(DDP_ENV_SEGMENT_BYTES), n_local, &bytes, err);
        if (code == 0)
            code = user_segment_create(bytes, &process.segment, err);
    }
    *ret = process.segment;
    pthread_mutex_unlock(&process.mutex);
    return code;
}

static struct user_segment *segment(void)
{
    pthread_mutex_lock(&process.mutex);
    struct user_segment *s = process.segment;
    pthread_mutex_unlock(&process.mutex);
    return s;
}

int process_alloc(size_t bytes, void **ret, struct co_error *err)
{
    struct user_segment *s = segment();
    if (s == NULL)
        return co_fail(err, -EINVAL, "this process has no user segment");
    return user_segment_alloc(s, bytes, ret, err);
}

bool process_free(void *ptr)
{
    struct user_segment *s = segment();
    return s != NULL && user_segment_free(s, ptr) == 0;
}

const struct reduce_kernels *process_kernels(void)
{
    static _Atomic(const struct reduce_kernels *) chosen;
    bool is_known;
    const struct reduce_kernels *k = atomic_load_explicit(&chosen, memory_order_acquire);
    if (k == NULL) {
        k = reduce_choose(getenv(DDP_ENV_SIMD), &is_known);
        atomic_store_explicit(&chosen, k, memory_order_release);
    }
    return k;
}
