/* net_links_priv.h - what net_links.c, net_lanes.c, net_member.c and net_move.c share: the
 * connections to each peer. */
#ifndef DDP_WORKER_RUNTIME_TCP_NET_LINKS_PRIV_H
#define DDP_WORKER_RUNTIME_TCP_NET_LINKS_PRIV_H

#include "common/error.h"
#include "common/listener.h"
#include "net_lanes.h"
#include "worker-runtime/cipher/cipher.h"

#include <net/if.h>

enum { UNPROVEN_PEERS = 32 };

struct hello { /* the first bytes of a connection */
    uint32_t magic, version;
    uint8_t cookie[NET_COOKIE_BYTES];
    uint32_t group;
    uint16_t channel, lane;
    uint32_t from, to; /* in the group */
    uint32_t suites;   /* of cipher.h, from which the other rank chooses; 0: not encrypted */
    uint32_t zero;
    uint8_t salt[NET_SALT_BYTES];
    uint8_t proof[CIPHER_PROOF_BYTES]; /* that this rank has the key; over what is before it */
};
#define HELLO_MAGIC 0x4e504444u /* "DDPN"; another byte order shows */
/* 2: a rank that leaves a broken job sends why; 3: a watch sends READY; 4: lanes */
/* 5: connections that replace others; 6: encryption */
#define HELLO_VERSION 6
#define HELLO_MOVES                                                                                \
    0xffff /* in place of a lane: this connection replaces another one (net_move.h) */

struct newcomer { /* has connected, and not sent its hello yet */
    int fd;
    bool is_foreign; /* no member has its address */
    size_t n_here;
    struct hello hello;
    uint64_t deadline_ms;
};

struct lane {
    enum net_lane_state state;
    int fd;                    /* of OPENING and OPEN */
    int end;                   /* number of its end here; -1: none of its own */
    uint64_t begun_ms;         /* OPENING: since when */
    uint64_t sent_ms;          /* OPEN: when it last took a byte */
    struct net_secure *secure; /* owned; NULL: not encrypted */
};

struct net_move;
struct net_secure;

struct link {
    int out, in;        /* to send on, to receive on; -1: none yet. May be the same */
    bool is_connecting; /* `out` is */
    bool says_in;       /* something was received on `in`; else, on `out` if that came first */
    bool says_out;
    int trouble; /* -errno of the last attempt to connect that found no way there; 0: none */
    bool is_new; /* has connected, and was not returned by net_links_take_new() */
    struct net_move *move;     /* owned; NULL: the connection cannot be replaced */
    struct net_secure *secure; /* owned; NULL: not encrypted, or not connected */
    struct lane *lane;         /* net_lanes_count() of them, owned; NULL: none was opened */
};

struct net_links {
    struct net_links_opts opts;
    struct co_listener listener; /* that of opts */
    uint8_t cookie[NET_COOKIE_BYTES];
    /* What net_move.c needs of net_links.c, which calls it. */
    void (*serve_newcomers)(struct net_links *l);
    int (*finish_connecting)(struct net_links *l, unsigned peer, unsigned lane, int fd,
                             struct net_secure **secure);
    bool is_meeting; /* in net_links_meet() */
    bool has_key;
    uint8_t key[NET_KEY_BYTES];              /* of the generation */
    uint64_t served_ms;                      /* when connections were accepted last; net_move.c */
    struct co_error refusal;                 /* why the last newcomer was sent away */
    char device[NET_ENDS_MOST][IF_NAMESIZE]; /* of each end of this rank; "": not known */
    unsigned n_newcomers, n_new;
    struct newcomer newcomer[UNPROVEN_PEERS]; /* the oldest first */
    struct link link[];
};

/* --- net_links.c ------------------------------------------------------------------------------ */

void net_links_serve_newcomers(struct net_links *l);

/* Finish a connection that was begun: tune it, and send its hello; of an encrypted one, also read
 * the answer.
 *
 * secure    owned by the caller; NULL: the connection replaces another
 * returns   0; -EAGAIN it is not made yet; -EACCES the peer has refused it; -errno */
int net_links_finish_connecting(struct net_links *l, unsigned peer, unsigned lane, int fd,
                                struct net_secure **secure);

/* --- net_member.c ----------------------------------------------------------------------------- */

/* Whether bytes wait on a socket for a machine that has space for them, without an answer. */
bool net_lanes_is_stuck(int fd);

void net_links_close_socket(int fd); /* -1 is fine */

/* Have the names of the interfaces of this rank's ends. */
void net_lanes_find_devices(struct net_links *l);

/* Which end of this rank's lanes a socket is at; -1: none. */
int net_lanes_end_of(const struct net_links *l, int fd);

/* Allocate the lanes to a peer. returns 0, -ENOMEM */
int net_lanes_make(struct net_links *l, unsigned peer);

/* lane   1 .. net_lanes_count(), after net_lanes_make() */
struct lane *net_lane_of(const struct net_links *l, unsigned peer, unsigned lane);
void net_lane_close(struct lane *x); /* for good */

/* A peer has connected a lane: whether it may. returns 0; -EPROTO, -EEXIST, -ENOMEM */
int net_lanes_check(struct net_links *l, const struct hello *h, struct co_error *why);
void net_lanes_take(struct net_links *l, const struct hello *h, int fd);
void net_lanes_fini(struct net_links *l, unsigned peer);

#endif
