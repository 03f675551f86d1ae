/* net_cause.h - why a job broke, as ranks of different nodes tell each other.
 *
 * Whoever leaves a broken job says the cause on every connection before it closes it, so that
 * nobody takes the end of a connection for the cause. What came is a stranger's until it is mended.
 * Pure. */
#ifndef DDP_WORKER_RUNTIME_NET_CAUSE_H
#define DDP_WORKER_RUNTIME_NET_CAUSE_H

#include <stdint.h>

#define NET_CAUSE_TEXT_BYTES 248

struct net_cause { /* as it travels, 252 bytes */
    int32_t code;  /* a negative errno */
    char text[NET_CAUSE_TEXT_BYTES];
};

/* text   cut to NET_CAUSE_TEXT_BYTES - 1 */
void net_cause_set(struct net_cause *c, int code, const char *text);

/* Make what another rank sent fit to be shown: the text ends and has no control characters, is not
 * empty, and the code is an errno (else -ECONNRESET). */
void net_cause_mend(struct net_cause *c);

#endif
