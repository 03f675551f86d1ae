/* net_links.h - connections between this rank and ranks on other nodes, one channel of one group.
 *
 * Connections are made as they are needed: the rank that sends first connects, unless the other has
 * connected already. If both do so at the same time there are two, one for each direction. A
 * connection opens with a hello that carries the job's cookie; a process that does not have it is
 * rejected, and nothing that it sends is read.
 *
 * Not thread-safe: its user sees to that. */
#ifndef DDP_WORKER_RUNTIME_TCP_NET_LINKS_H
#define DDP_WORKER_RUNTIME_TCP_NET_LINKS_H

#include "worker-runtime/core/env_value.h"
#include "worker-runtime/interfaces/net_address.h"
#include "worker-runtime/interfaces/net_ends.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <sys/uio.h>

struct co_error;
struct control;
struct net_links; /* opaque */

#define NET_COOKIE_BYTES 16
#define NET_KEY_BYTES    32
#define NET_SALT_BYTES   32
#define NET_LANES_MOST   ENV_VALUE_LANES_MOST

enum net_channel { NET_WATCH, NET_DATA, NET_MESSAGES, NET_N_CHANNELS };

struct net_member { /* a rank of the group; travels as it is, except for `rank` in a split */
    uint32_t rank;  /* in the job */
    uint32_t node;  /* number of its node */
    uint32_t local_rank;
    uint32_t pid;
    struct net_address address;
    uint16_t port[NET_N_CHANNELS];
    uint16_t lanes; /* connections for large exchanges that it makes to a peer, at most; 0: none */
    uint32_t encrypts;    /* 1: its connections are encrypted; 0: they are not */
    struct net_ends ends; /* of these connections */
    char host[32];
};

/* Listen for the other ranks: at its address, and at all addresses if lanes have their own. Then
 * connections to others of them are refused (net_links_serve_newcomers()).
 * returns   0, -errno */
int net_member_listen(const struct net_member *m, uint16_t *ret_port, int *ret_fd,
                      struct co_error *err);

struct net_links_opts {
    unsigned rank, n;                /* in the group */
    const struct net_member *member; /* n; lent */
    enum net_channel channel;
    uint32_t group;        /* distinguishes groups */
    const uint8_t *cookie; /* NET_COOKIE_BYTES, copied */
    const uint8_t *key;    /* NET_KEY_BYTES of this generation, copied; NULL: in the clear */
    int listener;          /* handed over */
    uint64_t timeout_ms;   /* a connection dies after this without a sign of the other side */
    const struct control
        *control; /* borrowed; its abort word ends net_links_meet(). NULL: nothing */
};

/* returns   0, -ENOMEM; then the listener is still the caller's */
int net_links_create(const struct net_links_opts *opts, struct net_links **ret,
                     struct co_error *err);
void net_links_destroy(struct net_links *l); /* NULL is fine */

/* How long a path to another rank does not work before this rank reports that to users, through
 * ddprun, and before it regards the path as broken if the network reports it (EHOSTUNREACH). */
#define NET_LINKS_TELL_MS   5000
#define NET_LINKS_PATH_HINT "check routes and firewalls between the two"

/* Whether the code of a failed connection means that there is no path, from the network's report
 * or its silence: the path may come back. A refused connection has found the machine: its rank has
 * died. */
static inline bool net_links_is_unreachable(int code)
{
    return code == -EHOSTUNREACH || code == -ENETUNREACH || code == -ENETDOWN || code == -ETIMEDOUT;
}

/* What follows from -EBADMSG, after the name of the peer. */
#define NET_LINKS_FORGED                                                                           \
    "sent bytes that fail authentication: something on the path changed, repeated or left out "    \
    "bytes, or inserted its own"

struct net_links_path { /* "rank 2 on node 2 (n3) at 10.77.0.3 port 4711, from 10.77.0.2" */
    char text[240];
};
struct net_links_path net_links_path(const struct net_links *l, unsigned peer);

/* Whether the machine of a peer has not acknowledged what was sent to it. If a rank waits for
 * NET_LINKS_TELL_MS, in which nothing was sent, this means that the path does not work: that
 * machine also acknowledges what its rank does not read. */
bool net_links_is_unacknowledged(const struct net_links *l, unsigned peer);

/* The error of a wait that such a path has ended: it names both ends, and blames neither.
 * returns   -ETIMEDOUT */
int net_links_fail_cut(const struct net_links *l, unsigned peer, uint64_t timeout_ms,
                       struct co_error *err);

struct net_links_trouble { /* for people, after the rank's number */
    char text[256];
};

/* Have a connection with each peer. The lower of two ranks connects, and the other one waits for
 * it. process_tell_wait() gets the path, with both addresses, of a connection that could not be
 * made for NET_LINKS_TELL_MS.
 *
 * returns   0; -ETIMEDOUT, -EHOSTUNREACH the text names the rank that was not reached, or did not
 *           come, and addresses; -ECONNRESET the node's abort word is set; -errno */
int net_links_meet(struct net_links *l, const unsigned *peer, unsigned n, uint64_t deadline_ms,
                   struct co_error *err);

/* Send or receive what is possible at once.
 *
 * returns   bytes; -EAGAIN; -EPIPE the other side closed; -ECONNREFUSED it closed, and never showed
 *           that it had taken this rank's connection: it is gone, or was about to go, and could not
 *           report that; -EBADMSG an encrypted connection, which is now closed: what came is not
 *           what the other side sent; -errno. After -EAGAIN the same bytes must be sent next, or
 *           more that begin with them */
ssize_t net_links_send(struct net_links *l, unsigned peer, const struct iovec *v, unsigned n_v);
ssize_t net_links_receive(struct net_links *l, unsigned peer, const struct iovec *v, unsigned n_v);

/* Send something short in one go. returns whether all of it went */
bool net_links_say(struct net_links *l, unsigned peer, const struct iovec *v, unsigned n_v);

/* Connect to a peer, unless one side has connected already.
 *
 * returns   0 a connection is there; -EAGAIN; -ECONNREFUSED the peer is gone, or listens no more;
 *           -errno */
int net_links_reach(struct net_links *l, unsigned peer);

bool net_links_is_open(const struct net_links *l, unsigned peer); /* one side has connected */

/* Whether the connection is being replaced by one over another interface (net_move.h): what is
 * sent has to wait. */
bool net_links_is_moving(const struct net_links *l, unsigned peer);

/* Accept new connections. returns whether there is a peer that was not returned yet */
bool net_links_take_new(struct net_links *l, unsigned *ret_peer);

/* What to poll() for to receive from a peer, or to continue sending to it: adds up to two. */
#define NET_LINKS_POLL_MOST 2
size_t net_links_watch(const struct net_links *l, unsigned peer, bool in, bool out,
                       struct pollfd *ret);
/* The same for new connections. */
struct pollfd net_links_watch_new(const struct net_links *l);

const struct net_member *net_links_member(const struct net_links *l, unsigned peer);

/* "rank 3 on node 1 (host)" */
struct net_member_name {
    char text[80];
} net_member_name(const struct net_member *m);

/* "rank 3 on node 1 (host), rank 4 on node 1 (host) and more": zeroed at first. */
enum { NET_MEMBERS_NAMED = 8 };
struct net_members_text {
    unsigned n; /* added; those beyond the first few are not named */
    size_t length;
    char text[(NET_MEMBERS_NAMED + 1) * (sizeof(struct net_member_name) + 2)];
};
void net_members_add(struct net_members_text *names, const struct net_member *m);

#endif
