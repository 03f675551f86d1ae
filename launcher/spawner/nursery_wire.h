/* nursery_wire.h - what ddprun and its nursery say to each other: one struct, one packet of a
 * SOCK_SEQPACKET pair. Both are the same binary. */
#ifndef DDP_LAUNCHER_NURSERY_WIRE_H
#define DDP_LAUNCHER_NURSERY_WIRE_H

#include "spawn.h"

#include <stdint.h>

struct runtime_dir_names;

enum nursery_request_type {
    NURSERY_SPAWN = 1,
    NURSERY_PARENT, /* as SPAWN, of one */
    NURSERY_SIGNAL,
    NURSERY_SIGNAL_ONE,
    NURSERY_RENUMBER,
    NURSERY_LOOK,
    NURSERY_WATCH,
    NURSERY_SWEEP,
    NURSERY_LEASE,
    NURSERY_DISMISS
};

struct nursery_request {
    uint32_t type;
    int32_t local_rank; /* SPAWN: the first; SIGNAL: which not; SIGNAL_ONE: which;
                           RENUMBER: from which */
    int32_t n_ranks;    /* SPAWN: that and those behind it, 1 to SPAWN_AT_ONCE; RENUMBER: to
                           which */
    int32_t target;     /* SIGNAL, SIGNAL_ONE: enum nursery_target */
    int32_t sig;        /* SIGNAL, SIGNAL_ONE, SWEEP */
    uint8_t fd_of[SPAWN_AT_ONCE][SPAWN_N_FDS]; /* SPAWN: which of the descriptors that came along,
                                                  NURSERY_NO_FD: none; ranks have some in common */
    uint64_t end_ms;                           /* LEASE: of CLOCK_MONOTONIC */
};

/* SPAWN: at most so many come along; the first is the image. */
#define NURSERY_MAX_FDS (1 + SPAWN_AT_ONCE * SPAWN_N_FDS)
#define NURSERY_NO_FD   255

/* The nursery's life, in the forked process. sock is its end of the pair. */
_Noreturn void nursery_main(int sock, const struct runtime_dir_names *names);

#endif
