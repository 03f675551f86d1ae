/* self_probe.h - does an address lead back to this process?
 *
 * Names do not tell, nor do addresses: a host's name may be in its own /etc/hosts only, an address
 * may be that of a gateway which passes connections on to us, and in a container to somebody else.
 * So: connect there, send the greeting of a control connection, whose random number nobody else
 * has, and see whether it comes in by our own listener. Another job's daemon takes it for a node
 * that has changed its mind. */
#ifndef DDP_LAUNCHER_MEMBERSHIP_SELF_PROBE_H
#define DDP_LAUNCHER_MEMBERSHIP_SELF_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

struct co_error;
struct seal_key;
struct self_probe; /* opaque */

enum { SELF_PROBE_MS = 1000 }; /* until it is given up */

enum self_probe_result {
    SELF_PROBE_US,
    SELF_PROBE_ANOTHER, /* somebody else answered, or hung up */
    SELF_PROBE_NOBODY,  /* not reached, or no answer */
};

/* Called once, from the loop, not after self_probe_close(). The probe closes itself afterwards.
 * text   why, but for SELF_PROBE_US: "connection refused" */
typedef void (*self_probe_done)(void *arg, enum self_probe_result result, const char *text);

/* key       of the greeting; NULL: in the clear
 * returns   0, -ENOMEM, -ENOSYS, -errno */
int self_probe_start(uv_loop_t *loop, const struct sockaddr_storage *to, const struct seal_key *key,
                     self_probe_done on_done, void *arg, struct self_probe **ret,
                     struct co_error *err);

/* Our listener has got a connection that begins so: is it ours? Then on_done follows from the loop;
 * the connection is of no other use.
 *
 * bytes     all that came with it so far. Some bytes of the random number are enough */
bool self_probe_claims(struct self_probe *p, const uint8_t *bytes, size_t len);

/* Not wanted any more. Not after on_done. */
void self_probe_close(struct self_probe *p);

#endif
