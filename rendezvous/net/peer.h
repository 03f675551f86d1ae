/* peer.h - whose process is at the other end of a TCP connection within this machine, or has a
 * port?
 *
 * TCP has no SO_PEERCRED, but the kernel knows the owner of each socket of this machine: it is
 * asked by NETLINK_SOCK_DIAG (some microseconds a question), or, where that does not exist
 * (gVisor), looked up in /proc/net/tcp. Only a socket that a process still holds has an owner: a
 * client that has closed its end by the time we ask is unknown, since the kernel would report uid 0
 * for it. */
#ifndef DDP_RENDEZVOUS_NET_PEER_H
#define DDP_RENDEZVOUS_NET_PEER_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

struct co_error;

enum peer_method {
    PEER_BY_NETLINK,
    PEER_BY_PROC,
    PEER_BY_NOTHING, /* this system does not report it */
};

struct peer {
    enum peer_method method;
    int netlink_fd;
    uint32_t sequence; /* of the last question asked there */
};

struct peer_owner {
    uid_t uid;
    uint64_t inode; /* of the socket: what /proc/PID/fd calls it */
};

/* Find out which method works here. */
void peer_init(struct peer *p);
void peer_fini(struct peer *p);

/* The owner of the other end of a TCP connection.
 *
 * ours, theirs   the addresses of the two ends as our socket has them
 * returns        0; -ENOENT: this machine (this network namespace) does not have that end (any
 *                more); -ESRCH: it does, but no process holds it any more; -ENOSYS with
 *                PEER_BY_NOTHING; -errno */
int peer_find(struct peer *p, const struct sockaddr_storage *ours,
              const struct sockaddr_storage *theirs, struct peer_owner *ret, struct co_error *err);

/* May processes of this user use what our process serves to its own user? That user's and root's
 * may.
 *
 * returns   0; -EACCES */
int peer_check_user(uid_t uid, struct co_error *err);

/* The owner of a socket that keeps others from an address: it listens on that port, there or at all
 * addresses, or is connected from there.
 *
 * returns   0; -ENOENT: none is found */
int peer_find_bound(const struct sockaddr_storage *address, struct peer_owner *ret);

#endif
