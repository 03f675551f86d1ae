/* check_net.h - the network between two nodes, as `ddpctl check` tries it: a port that echoes and
 * swallows, and the other end of it. Not the paths of a job: it needs none to be there.
 *
 * A connection begins with a secret and a letter, and is dropped if it knows no secret. 'r': answer
 * with a byte and hang up. 'p': answer with a byte, then send back each message of 8 bytes. 's':
 * answer with a byte, read to the end, send how many bytes it was. 'g': answer with a byte, send as
 * fast as it goes for CHECK_STREAM_MS, hang up. */
#ifndef DDP_CTL_PROBE_CHECK_NET_H
#define DDP_CTL_PROBE_CHECK_NET_H

#include "ctl/check/check_report.h"
#include "ctl/check/check_wire.h"

#include <stdint.h>
#include <sys/socket.h>

struct check_server; /* opaque */

enum {
    CHECK_CONNECTIONS_MAX = 64, /* at a time; more wait */
    CHECK_STREAM_MS = 250,      /* in each direction */
    CHECK_PINGS = 200,
    CHECK_PINGS_MS = 250,    /* fewer pings, if they take longer */
    CHECK_CONNECT_MS = 3000, /* a port that answers at all does so before */
    CHECK_IDLE_MS = 2000,    /* a connection on which nothing moves for so long is abandoned */
};

/* Listen at any port that is free, of all addresses, by threads of its own. A connection that has
 * not sent the secret after a quarter of a second is closed if others wait.
 *
 * returns   0; -errno: there is no port, no thread */
int check_server_open(const uint8_t secret[CHECK_SECRET_BYTES], struct check_server **ret,
                      uint16_t *ret_port, struct co_error *err);
void check_server_close(struct check_server *s); /* waits for its threads; NULL is fine */

/* Connect to several ports at once, and see whether our own kind answers.
 * It takes timeout_ms at most, and CHECK_CONNECT_MS.
 *
 * ret   n words; each is written */
void check_net_reach(const uint8_t secret[CHECK_SECRET_BYTES], const struct sockaddr_storage *peers,
                     size_t n, uint64_t timeout_ms, enum check_reach *ret);

/* Measure the way to a port and back: times of messages, then a stream in each direction.
 * It takes timeout_ms at most, and twice CHECK_IDLE_MS.
 *
 * pair      a, b and why are left alone
 * returns   0; -errno */
int check_net_measure(const uint8_t secret[CHECK_SECRET_BYTES], const struct sockaddr_storage *peer,
                      uint64_t timeout_ms, struct check_pair *ret, struct co_error *err);

#endif
