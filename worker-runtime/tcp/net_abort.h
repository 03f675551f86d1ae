/* net_abort.h - why a job broke, as ranks of different nodes tell each other.
 *
 * Whoever leaves a broken job says the cause on every connection before it closes it, so that
 * nobody takes the end of a connection for the cause. What came is untrusted until
 * net_abort_check() has passed it. Pure. */
#ifndef DDP_WORKER_RUNTIME_TCP_NET_ABORT_H
#define DDP_WORKER_RUNTIME_TCP_NET_ABORT_H

#include <stdint.h>

#define NET_ABORT_TEXT_BYTES 248

struct net_abort { /* as it travels, 252 bytes */
    int32_t code;  /* a negative errno */
    char text[NET_ABORT_TEXT_BYTES];
};

/* text   cut to NET_ABORT_TEXT_BYTES - 1 */
void net_abort_set(struct net_abort *c, int code, const char *text);

/* Make what another rank sent fit to be shown: the text ends and has no control characters, is not
 * empty, and the code is an errno (else -ECONNRESET). */
void net_abort_check(struct net_abort *c);

#endif
