/* self_probe.h - does an address lead back to this process?
 *
 * Names and addresses do not show it: a host's name may be only in its own /etc/hosts, and an
 * address may be that of a gateway that passes connections on to us or, in a container, to another
 * process. So: connect there, send the greeting of a control connection, whose random number no
 * other process has, and check whether it arrives at our own listener. The daemon of another job
 * takes it for a node that has changed its mind. */
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

enum { SELF_PROBE_MS = 1000 }; /* until the probe fails */

enum self_probe_result {
    SELF_PROBE_US,
    SELF_PROBE_ANOTHER, /* another process answered, or hung up */
    SELF_PROBE_NOBODY,  /* not reached, or no answer */
};

/* Called once, from the loop, not after self_probe_close(). The probe closes itself afterwards.
 * text   why, except with SELF_PROBE_US: "connection refused" */
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
