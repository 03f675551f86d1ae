/* control.h - the control segment: what the ranks of one node and their ddprun write to each other.
 *
 * One memfd per node and generation. ddprun makes it, or local rank 0 when the ranks were started
 * without ddprun. It is made of a head, a line per local rank, and a mailbox per local rank:
 *
 *     +--------+--------+--------+-- ... --+-----------+-----------+-- ...
 *     | head   | line 0 | line 1 |         | mailbox 0 | mailbox 1 |
 *     +--------+--------+--------+-- ... --+-----------+-----------+-- ...
 *
 * Words:
 *   alive     a robust mutex each rank holds from joining to leaving; when the rank dies the kernel
 *             marks the mutex's futex word, which other processes only read
 *   abort     one word for the node: 0 while all is well, else why no collective of this generation
 *             can complete. Written once, by compare-and-swap: all ranks see the same cause
 *   arrived   how far a rank has come, a counter that others wait on
 *   progress  how far a rank has come, and in which call it is: for ddprun to see (rank_status.h)
 *   commit    the last step of training that counts, on which all ranks of the node agree
 *
 * This file is the interface between launcher/ and worker-runtime/; neither includes the other. */
#ifndef DDP_SEGMENTS_CONTROL_H
#define DDP_SEGMENTS_CONTROL_H

#include "rank_status.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;

#define CONTROL_MAGIC         0x31504444u /* "DDP1" */
#define CONTROL_VERSION       6
#define CONTROL_MAX_LOCAL     1024          /* ranks on one node */
#define CONTROL_MAILBOX_BYTES (512u * 1024) /* per rank: staging area of the collectives */
#define CONTROL_WHY_BYTES     256

enum control_cause {
    CONTROL_OK = 0,
    CONTROL_RANK_DIED,    /* the process is gone without leaving; detail: wait status, or 0 */
    CONTROL_RANK_LEFT,    /* it left while others needed it */
    CONTROL_MISMATCH,     /* ranks called different collectives; `rank` is one of them */
    CONTROL_TIMEOUT,      /* `rank` timed out */
    CONTROL_JOB_STOPPING, /* ddprun is stopping the job */
    CONTROL_UNREADABLE,   /* memory that `rank` gave to a call cannot be read */
    CONTROL_RENEWED,      /* the generation is over without a failure of a rank; another may
                             follow */
    CONTROL_REPORTED      /* something on another node: `rank` has it in words, in its line's `why`;
                             detail: the negative errno as a positive number */
};

struct control_abort { /* packed into one 64-bit word */
    uint16_t cause;    /* enum control_cause */
    uint16_t rank;     /* local rank */
    uint32_t detail;
};

struct control_line { /* one local rank's own line: only that rank writes it, except `sleepers` and
                         `commit` */
    _Alignas(64) _Atomic uint32_t arrived; /* also the futex others sleep on */
    _Atomic uint32_t sleepers;             /* how many sleep on `arrived` */
    _Atomic uint32_t joined;               /* 1 from joining on */
    _Atomic uint32_t left;                 /* 1 once it left in good order */
    _Atomic uint32_t pid;
    _Atomic uint32_t cpu;         /* where the rank ran when it last arrived, counted from 1; a hint
                                     for those who wait for it; 0: not known */
    _Atomic uint32_t touching[2]; /* what the rank does to others' memory; laid out by
                                     worker-runtime */
    _Atomic uint32_t outside; /* 1 while it waits for another node: ranks of this node that wait for
                                 it are not the first to time out */
    uint32_t padding_[7];
    _Alignas(64) pthread_mutex_t alive; /* robust, shared between processes; locked only by its
                                           rank: to lock a mutex is to follow its pointers */
    _Atomic uint64_t where;             /* the rank's last call, laid out by worker-runtime: for
                                           messages; not next to `arrived`, which others wait on */
    _Atomic uint64_t outbox;            /* also laid out by worker-runtime: where its messages are,
                                           0: it has sent none */
    _Alignas(64) _Atomic uint64_t commit; /* of a group's first rank on the node, for all of them:
                                             the last step of training that counts; laid out by
                                             worker-runtime */
    _Alignas(64) uint8_t note[256]; /* signature and small payloads of collectives; laid out by
                                           worker-runtime */
    char why[CONTROL_WHY_BYTES];    /* see CONTROL_REPORTED; written before the abort word is */
    struct rank_status_page progress;
};

struct control_head { /* the segment, as it lies in memory; any rank can write any of it */
    uint32_t magic;
    uint32_t version;
    uint32_t n_local;
    uint32_t generation;
    uint64_t bytes; /* of the whole segment */
    _Alignas(64) _Atomic uint64_t abort;
    _Alignas(64) struct control_line line[]; /* n_local of them, then the mailboxes, page-aligned */
};

struct control {                 /* a mapped segment: this process's own memory, and constant */
    struct control_head *shared; /* its sizes are checked once and never read again: */
    struct control_line *line;   /* n_local of them */
    unsigned n_local;            /* 1 .. CONTROL_MAX_LOCAL */
    uint32_t generation;
    size_t bytes;
};

/* Size of a segment for n_local ranks (1 .. CONTROL_MAX_LOCAL). */
size_t control_bytes(unsigned n_local);

/* Make a sealed memfd of the right size and write head and mutexes into it.
 *
 * ret_fd    owned by the caller; close-on-exec
 * ret       its mapping, control_unmap() it
 * returns   0, -EINVAL, -ENOMEM, -errno */
int control_create(unsigned n_local, uint32_t generation, int *ret_fd, struct control **ret,
                   struct co_error *err);

/* Map a segment that another process made; checks magic, version, sizes and the seals that keep it
 * from shrinking while it is mapped.
 *
 * returns   0, -EPROTO (not such a segment; the text has the reason), -errno */
int control_map(int fd, struct control **ret, struct co_error *err);
void control_unmap(struct control *c); /* NULL is fine */

/* Lend rank's mailbox, CONTROL_MAILBOX_BYTES aligned to a page. */
uint8_t *control_mailbox(struct control *c, unsigned local_rank);

/* Join: lock this rank's `alive` in the calling thread and mark the rank as joined. returns 0 or
 * -EBUSY (taken). */
int control_join(struct control *c, unsigned local_rank, uint32_t pid);
void control_leave(struct control *c, unsigned local_rank); /* same thread; wakes ranks that wait
                                                               for it */

/* Set the abort word if it is still 0, and wake all ranks that sleep on any line. */
void control_abort_set(struct control *c, struct control_abort why);
struct control_abort control_abort_get(const struct control *c); /* .cause 0: none */

/* Set it to CONTROL_REPORTED, with words. At most once for each local rank, by that rank.
 *
 * code   a negative errno
 * text   cut to CONTROL_WHY_BYTES - 1 */
void control_abort_tell(struct control *c, unsigned local_rank, int code, const char *text);

enum control_state { CONTROL_NOT_JOINED, CONTROL_ALIVE, CONTROL_LEFT, CONTROL_DEAD };

/* Look at a rank: a few loads, and no lock. Finding it dead sets the abort word. */
enum control_state control_look(struct control *c, unsigned local_rank);

/* The most steps that any rank has completed in this generation. */
uint64_t control_most_steps(const struct control *c);

/* Publish `arrived = value` (release) and wake the sleepers of this line. */
void control_arrive(struct control_line *line, uint32_t value);

/* The same in two steps, for callers that do something in between. Sleepers may miss the first one,
 * so the second must follow soon; it is a full memory barrier. */
void control_publish(struct control_line *line, uint32_t value);
void control_wake(struct control_line *line);

/* Increment `arrived` and wake the sleepers of this line. Any process may call it. For lines that
 * mean "something happened" rather than how far a rank has come. */
void control_ring(struct control_line *line);

/* Sleep while line->arrived == seen, at most max_us, or until woken. May return early. */
void control_sleep(struct control_line *line, uint32_t seen, uint32_t max_us);

/* The same, and until a rank dies or leaves, or the abort word is set: the kernel wakes the sleeper
 * as it ends that rank. Where the kernel cannot do that (before Linux 5.16, or forbidden by a
 * filter of system calls), the sleeper notices at the end of its sleep, or the first process that
 * notices wakes it.
 *
 * line         of any process, in any memory that these processes share
 * local_rank   one that has joined */
void control_sleep_for(struct control *c, unsigned local_rank, struct control_line *line,
                       uint32_t seen, uint32_t max_us);

/* Sleep until the abort word is set, a rank other than `local_rank` dies or leaves, *stop != seen,
 * or max_us have passed; may return early. For a thread that watches over the generation while the
 * rank does something else: it makes no other rank's calls slower. Where the kernel cannot wait for
 * several words, or the node has more than CONTROL_WATCHED ranks, the sleep is short instead.
 *
 * stop   a word of this process; wake the sleeper with control_stop_sleep() */
#define CONTROL_WATCHED 120
void control_sleep_until_end(struct control *c, unsigned local_rank, _Atomic uint32_t *stop,
                             uint32_t seen, uint32_t max_us);
void control_stop_sleep(_Atomic uint32_t *stop); /* after the word has changed */

#endif
