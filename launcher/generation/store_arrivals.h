/* store_arrivals.h - when ranks came to the generation's store: of programs that say nothing
 * themselves it is the first sign of life, once they have imported what they import.
 *
 * The store knows since when each of its connections is there, the kernel which socket is at the
 * other end, and /proc whose that is: the rank's, or that of a process that it has started. So it
 * is known only while the connection is open, which torch's stay as long as their process group,
 * and only where rank and store are on one machine. */
#ifndef DDP_LAUNCHER_GENERATION_STORE_ARRIVALS_H
#define DDP_LAUNCHER_GENERATION_STORE_ARRIVALS_H

#include <stdint.h>
#include <sys/types.h>

struct server;

enum {
    ARRIVALS_CONNECTIONS = 16384, /* more are not looked at */
    ARRIVALS_PROCESSES = 64,      /* of each rank */
};

struct arrival {
    pid_t pid;        /* of the rank; 0: it is not looked for */
    uint64_t came_ms; /* CLOCK_MONOTONIC, of its first connection; 0: not known */
};

/* Find those that are not known yet. Without memory they stay so. */
void store_arrivals_find(struct server *store, struct arrival *list, int n);

#endif
