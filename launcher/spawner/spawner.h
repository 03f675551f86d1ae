/* spawner.h - the tiny process that starts and reaps the workers: ddprun's end of it.
 *
 * ddprun forks it before libuv starts. It has a session of its own, blocks every signal, holds no
 * descriptor but its socket, and is a child subreaper: the orphans of a worker become its children.
 * When ddprun dies for any reason, including kill -9, the socket ends and the spawner kills all its
 * descendants, then itself. When the spawner dies, the kernel kills the workers (PDEATHSIG) and
 * ddprun becomes the parent of their descendants and sweeps instead (sweep.h).
 *
 * Requests are carried out in the order they were made: a signal to all ranks reaches every rank
 * whose start was asked for before. Nothing here blocks.
 *
 * Where other nodes rely on this one's ranks being dead after a while without news (the lease of
 * docs/design/membership.md), the spawner enforces it, whether ddprun is alive, stopped or slow.
 * With heartbeats (heartbeat.h) it also suspends the ranks as long as the coordinator may count
 * this node as lost. */
#ifndef DDP_LAUNCHER_SPAWNER_SPAWNER_H
#define DDP_LAUNCHER_SPAWNER_SPAWNER_H

#include <stdint.h>
#include <sys/types.h>

#include "spawn.h"

#define SPAWNER_MAX_RANKS 1024
/* At most this many starts may be unanswered; then the socket's queues cannot fill up, on either
 * side, unless the other one stands still. */
#define SPAWNER_WINDOW 32

struct co_error;
struct runtime_dir_names;

struct spawner {
    pid_t pid;
    int sock; /* readable when there is a report, or the spawner's end; -1: dismissed */
};

enum spawner_event {
    SPAWNER_STARTED = 1,
    SPAWNER_START_FAILED,
    SPAWNER_EXITED,
    SPAWNER_EMPTY,
    SPAWNER_LAPSED,        /* the lease is over: all was killed; the ends are reported after this */
    SPAWNER_PREFORK_READY, /* for the first time there are as many preforked processes as ranks */
    SPAWNER_PARENT_GONE,   /* and with it all preforked processes */
    SPAWNER_SUSPENDED,     /* the ranks, by SIGSTOP. status 1: the coordinator's host is silent; 0:
                              ddprun stated the end, or the connection for heartbeats has ended */
    SPAWNER_RESUMED,       /* they run again */
    SPAWNER_HEARTBEAT_GONE /* the connection for heartbeats has ended */
};

/* How a rank was started. */
enum spawner_way {
    SPAWNER_EXECUTED, /* there is no parent to fork it from */
    SPAWNER_FORKED,
    SPAWNER_NO_SEEDS, /* executed: there were not enough preforked processes */
    SPAWNER_NO_ANSWER /* executed: the preforked processes did not answer and were killed */
};

struct spawner_report {
    uint32_t event; /* enum spawner_event */
    int32_t local_rank;
    int32_t pid;
    int32_t status;   /* EXITED, PARENT_GONE: as waitpid() has it; START_FAILED: the errno */
    int32_t stage;    /* START_FAILED: enum spawn_stage */
    int32_t empty;    /* EXITED, START_FAILED, EMPTY: nothing at all is left below the spawner */
    int32_t way;      /* STARTED: enum spawner_way */
    int32_t signaled; /* EXITED: alive when a signal that may end it was sent */
};

enum spawner_target { SPAWNER_MAIN, SPAWNER_GROUP };

/* Fork it, and make this process a child subreaper. The caller is single-threaded and has SIGCHLD
 * blocked.
 *
 * names     of the directory, which need not exist yet: if ddprun dies, the spawner removes it
 *           (runtime_dir.h); NULL: none
 * returns   0, -errno */
int spawner_open(const struct runtime_dir_names *names, struct spawner *ret, struct co_error *err);

/* No more requests will follow: the spawner kills its remaining descendants, if any, and ends. */
void spawner_dismiss(struct spawner *n);

/* The same, and wait until it has ended; gives up after deadline_ms, leaving it to its work. A
 * zeroed one is fine. */
void spawner_close(struct spawner *n, uint64_t deadline_ms);

/* Ask for workers, which are started together; a report STARTED or START_FAILED answers for each,
 * in order of rank.
 *
 * first_rank   local; n_ranks, 1 to SPAWN_AT_ONCE, from this one on
 * image_fd     of image_make(), with as many workers
 * fds          of each worker, as in struct spawn_order; the caller keeps its own
 * returns      0; -EPIPE the spawner is gone; -EAGAIN it stands still; -errno */
int spawner_spawn(const struct spawner *n, int first_rank, int n_ranks, int image_fd,
                  const int fds[][SPAWN_N_FDS]);

/* Ask for the parent of docs/design/warm.md, which the ranks started from now on are forked from if
 * it has preforked processes ready then. PREFORK_READY and PARENT_GONE report about it.
 *
 * image_fd  the image of one worker
 * notes_fd  what it has as SPAWN_CHECKPOINT_FD
 * returns   as spawner_spawn() */
int spawner_start_parent(const struct spawner *n, int image_fd, int notes_fd);

/* Send sig to each rank that runs, `except` (-1: none) apart: to its first process, or to that
 * one's process group.
 *
 * returns    as spawner_spawn() */
int spawner_signal(const struct spawner *n, enum spawner_target target, int except, int sig);

/* Send sig to one rank, if it runs. How it ends is its own doing: the report does not contain that
 * it got a signal.
 *
 * returns    as spawner_spawn() */
int spawner_signal_one(const struct spawner *n, enum spawner_target target, int rank, int sig);

/* The worker that was started as `from` is rank `to` from now on, which has ended. STARTED answers
 * for `to`; or START_FAILED with SPAWN_GONE, if that worker has ended.
 *
 * returns    as spawner_spawn() */
int spawner_renumber(const struct spawner *n, int from, int to);

/* Ranks may be dying that cannot be reaped yet: report the ends of those that fail at once. They
 * are children of the spawner until they are reaped, so nothing is empty before. It looks several
 * times within a second.
 *
 * returns    as spawner_spawn() */
int spawner_look(const struct spawner *n);

/* From now on find out by the ends of its threads that a rank may be dying (exit_watch.h), and
 * look then as spawner_look() has it done.
 *
 * returns    as spawner_spawn() */
int spawner_watch(const struct spawner *n);

/* Send sig to all that is left, and to what is found later; EMPTY or a report's `empty` answers. */
int spawner_sweep(const struct spawner *n, int sig);

/* A scheduler may send signals to each process of this node, ranks and spawner included
 * (step_signals.h). Before the first rank is started.
 *
 * ignored, once   bit N: signal N
 * returns         as spawner_spawn() */
int spawner_share_signals(const struct spawner *n, uint64_t ignored, uint64_t once);

/* From end_ms (common/clock.h) on nothing of the job runs: all that lives then is killed, and no
 * rank is started (-ECANCELED) until there is a newer lease. CO_NEVER_MS, as at first: no lease.
 *
 * returns   as spawner_signal() */
int spawner_set_lease(const struct spawner *n, uint64_t end_ms);

/* From now on send heartbeats on this connection (heartbeat.h), instead of an older one; the ranks
 * are suspended when its other end has acknowledged none for limit_ms.
 *
 * from_ms   when that was sent which the other end has answered last
 * returns   as spawner_signal() */
int spawner_send_heartbeats(const struct spawner *n, int fd, uint64_t from_ms, uint64_t limit_ms);

/* Send none. Suspend the ranks at end_ms, unless a later end is stated before; CO_NEVER_MS: not.
 *
 * returns   as spawner_signal() */
int spawner_state_end(const struct spawner *n, uint64_t end_ms);

/* The coordinator has answered a keep-alive that was sent at from_ms: ranks that are suspended run
 * again, unless that was too long ago.
 *
 * returns   as spawner_signal() */
int spawner_resume(const struct spawner *n, uint64_t from_ms);

/* returns   1 a report; 0 the spawner is gone; -EAGAIN nothing there */
int spawner_receive(const struct spawner *n, struct spawner_report *ret);

#endif
