/* listener.h - a listening socket that rests while the process has no descriptor for a new
 * connection.
 *
 * With no descriptor left, a connection stays in the queue and its listener stays readable: a
 * process that polls it spins, and its other work starves. So a listener rests for a while after
 * that. The connection waits rather than being closed: peers connect once, and exit if they are
 * rejected. (Listeners of libuv do as libuv does: it keeps a spare descriptor and closes the new
 * connection.)
 *
 * For one thread. Opens and closes nothing. */
#ifndef DDP_COMMON_LISTENER_H
#define DDP_COMMON_LISTENER_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

enum { CO_LISTENER_REST_MS = 50 };

struct co_listener {
    int fd;                 /* non-blocking; the owner's */
    uint64_t rests_till_ms; /* by co_now_ms(); 0: it does not rest */
};

/* Allow this process as many descriptors as it may have.
 *
 * returns  the limit; UINT64_MAX: unlimited or unknown */
uint64_t co_raise_file_limit(void);

/* error    an errno of accept()
 * returns  whether it will pass when descriptors or memory are given back, here or elsewhere */
bool co_is_shortage(int error);

/* Take one connection.
 *
 * flags    SOCK_CLOEXEC, SOCK_NONBLOCK
 * returns  a descriptor, which is the caller's, or
 *          -EAGAIN  no connection waits, or the listener rests
 *          -errno   of accept(); after a shortage it rests from now on */
int co_listener_accept(struct co_listener *l, int flags);

/* What to poll: nothing, while it rests. It need not have been asked whether its rest is over. */
struct pollfd co_listener_poll(const struct co_listener *l);

/* timeout_ms  of a poll() with the above; -1: none
 * returns     the same, or less if the rest is over before that */
int co_listener_wait_ms(const struct co_listener *l, int timeout_ms);

#endif
