/* spawner_wire.h - the messages between ddprun and its spawner: one struct, one packet of a
 * SOCK_SEQPACKET pair. Both are the same binary. */
#ifndef DDP_LAUNCHER_SPAWNER_SPAWNER_WIRE_H
#define DDP_LAUNCHER_SPAWNER_SPAWNER_WIRE_H

#include "spawn.h"

#include <stddef.h>
#include <stdint.h>

struct runtime_dir_names;

enum spawner_request_type {
    SPAWNER_SPAWN = 1,
    SPAWNER_PARENT, /* as SPAWN, of one */
    SPAWNER_SIGNAL,
    SPAWNER_SIGNAL_ONE,
    SPAWNER_RENUMBER,
    SPAWNER_LOOK,
    SPAWNER_WATCH,
    SPAWNER_SWEEP,
    SPAWNER_LEASE,
    SPAWNER_SHARE,
    SPAWNER_HEARTBEAT, /* with a connection: begin; without: as heartbeat_state() */
    SPAWNER_RESUME,
    SPAWNER_DISMISS
};

struct spawner_request {
    uint32_t type;
    int32_t local_rank; /* SPAWN: the first; SIGNAL: which not; SIGNAL_ONE: which;
                           RENUMBER: from which */
    int32_t n_ranks;    /* SPAWN: that and those after it, 1 to SPAWN_AT_ONCE; RENUMBER: to which */
    int32_t target;     /* SIGNAL, SIGNAL_ONE: enum spawner_target */
    int32_t sig;        /* SIGNAL, SIGNAL_ONE, SWEEP */
    uint8_t fd_of[SPAWN_AT_ONCE][SPAWN_N_FDS]; /* SPAWN: which of the descriptors that came along,
                                                  SPAWNER_NO_FD: none; ranks have some in common */
    uint64_t end_ms;            /* LEASE, HEARTBEAT without a connection: of CLOCK_MONOTONIC */
    uint64_t from_ms, limit_ms; /* HEARTBEAT with a connection; RESUME: from_ms */
    uint64_t ignored, once;     /* SHARE: as in struct step_signals */
};

/* SPAWN: at most so many come along; the first is the image. */
#define SPAWNER_MAX_FDS (1 + SPAWN_AT_ONCE * SPAWN_N_FDS)
#define SPAWNER_NO_FD   255

/* Send a packet, and copies of n_fds descriptors with it, SPAWNER_MAX_FDS at most. returns 0,
 * -errno */
int spawner_wire_send(int sock, const void *packet, size_t n_bytes, const int *fds, size_t n_fds);

/* The spawner's life, in the forked process. sock is its end of the pair. */
_Noreturn void spawner_main(int sock, const struct runtime_dir_names *names);

#endif
