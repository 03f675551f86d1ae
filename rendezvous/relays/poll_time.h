/* poll_time.h - when it pays to poll for what comes next instead of sleeping until it does.
 *
 * To wake a process that sleeps takes longer than all that the relay does for a request. So the
 * port polls for a short time after a request for the reply, and both ends after a reply for the
 * next request; each only if that came fast the last time. So they do not poll through a slow
 * network, while ranks wait for each other, or for ranks that ask now and then. Pure. */
#ifndef DDP_RENDEZVOUS_RELAYS_POLL_TIME_H
#define DDP_RENDEZVOUS_RELAYS_POLL_TIME_H

#include <stdbool.h>
#include <stdint.h>

enum {
    POLL_TIME_NS = 50000,       /* at most, for one thing */
    POLL_TIME_FAST_NS = 100000, /* what came within this was fast: a wake-up is part of it */
};

enum poll_wait { POLL_FOR_REQUEST, POLL_FOR_REPLY, POLL_N_WAITS };

struct poll_time { /* zeroed: nothing was fast */
    enum poll_wait next;
    uint64_t since_ns;
    bool is_fast[POLL_N_WAITS]; /* the last one of these was */
};

/* A request was sent, or a reply has come.
 *
 * next   what is expected now */
void poll_time_expect(struct poll_time *p, enum poll_wait next, uint64_t now_ns);

bool poll_time_is_on(const struct poll_time *p, uint64_t now_ns);

#endif
