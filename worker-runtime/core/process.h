/* process.h - what a process has once, however many groups it forms: its user segment, and whether
 * it is in a job. The only globals of the library besides status.c's. */
#ifndef DDP_WORKER_RUNTIME_CORE_PROCESS_H
#define DDP_WORKER_RUNTIME_CORE_PROCESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;
struct reduce_kernels;
struct user_segment;

/* Enter a job with other ranks.
 *
 * node_fd   DDP_NODE_FD, -1 without: closed at leaving, and in forked children
 * returns   0; -EALREADY this process is in a job; -ENOTSUP it was in one under this ddprun, which
 *           admits a process once */
int process_enter(int node_fd, unsigned local_rank, struct co_error *err);
void process_leave(bool was_joined);

/* Get into a group outside the job: only for what forked children must not do.
 * returns   0; -EALREADY as process_enter(); -ENOMEM */
int process_stand_beside(struct co_error *err);

/* Whether a rank's death is an end for this process: not where ddp_run() joins the next generation.
 * Thread-safe. */
void process_set_may_go_on(bool may);
bool process_may_go_on(void);

/* This process is in that generation from now on. */
void process_begin_generation(uint32_t generation);

/* A call fails because a peer is gone: notify ddprun, which learns that this rank, if it exits
 * because of that, is not the root cause, and that there is a death to look for. Only the first one
 * of a generation is reported. Thread-safe; outside of a job, in forked children and without ddprun
 * nothing happens. */
void process_lose_peer(void);

/* Report to ddprun what this rank cannot reach on another node; ddprun shows the text to users,
 * after the rank's number. "": it can again. Thread-safe; outside of a job, in forked children and
 * without ddprun nothing happens.
 *
 * text   "cannot connect to ..."; the same again is not sent; cut to 255 bytes */
void process_tell_wait(const char *text);

/* The key of the job for libraries that encrypt their own connections, as text: what they have
 * under way does not outlive another key, so it is the same in all generations. "": none.
 * Thread-safe; set before the first such library is used. */
#define PROCESS_LIBRARY_KEY_BYTES 65
void process_set_library_key(const char key[PROCESS_LIBRARY_KEY_BYTES]);
void process_get_library_key(char ret[PROCESS_LIBRARY_KEY_BYTES]);

/* How often this process joined other nodes, this time included. */
unsigned process_count_join(void);

/* The process's user segment, made at the first call with the size in DDP_SEGMENT_BYTES.
 *
 * returns   0, -ENOEXEC, -ENOMEM, -errno */
int process_user_segment(unsigned n_local, struct user_segment **ret, struct co_error *err);

/* Memory in that segment, zeroed, of an earlier world as of this one.
 *
 * returns   of process_alloc(): 0, -ENOMEM; -EINVAL there is no segment. Of process_free(): whether
 *           it was a block there, which is freed */
int process_alloc(size_t bytes, void **ret, struct co_error *err);
bool process_free(void *ptr);

/* A socket to another node, which a forked child must not keep open: it would hide the death of
 * this rank. Thread-safe; of descriptors
 * above 65535 nothing is kept. */
void process_own_socket(int fd);
void process_disown_socket(int fd); /* before it is closed */

/* Start a thread of the library: the program's signals are for its own threads. returns 0,
 * -errno */
int process_start_thread(pthread_t *ret, void *(*run)(void *arg), void *arg);

/* Keep memory for the life of the process, because the program has addresses in it. It stays in
 * sight of leak checkers. */
void process_keep(void *memory);

/* Whether this process was forked, without exec, from one that had entered a job. */
bool process_is_forked(void);

/* The fastest kernels that this processor runs and DDP_SIMD allows. Asked once: a virtual machine
 * may take microseconds to answer. Thread-safe. */
const struct reduce_kernels *process_kernels(void);

#endif
