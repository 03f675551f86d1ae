/* net_secure.h - encryption of what two ranks send each other: on the first connection of a link,
 * or on a lane. net_links.c and net_lanes.c carry the bytes.
 *
 *     connects                              accepts
 *     hello: suites, salt, proof ->
 *                                           <- answer: suite, salt, proof
 *     records ->                            <- records
 *
 * Both have the key of the generation. The keys of a connection are derived from it, the hello and
 * the answer: each side has put 32 random bytes in there, so no other connection has these keys,
 * and what was recorded on one is of no use on another.
 *
 * A watch sends its last news to a rank that may be busy, and leaves: on its connections, the rank
 * that connects sends records right after its hello, under a key that the hello alone makes.
 *
 * A link may have two connections, one that each side has made. Each side sends on one of them
 * only, always with the same key: also on a connection that replaces it (net_move.h), whose hello
 * has a proof and no answer. */
#ifndef DDP_WORKER_RUNTIME_TCP_NET_SECURE_H
#define DDP_WORKER_RUNTIME_TCP_NET_SECURE_H

#include "net_links_priv.h"
#include "worker-runtime/cipher/records.h"

struct answer { /* of the rank that accepts an encrypted connection */
    uint32_t magic, suite;
    uint8_t salt[NET_SALT_BYTES];
    uint8_t proof[CIPHER_PROOF_BYTES];
};
#define ANSWER_MAGIC 0x41504444u /* "DDPA" */

enum net_secure_by {
    NET_SECURE_OWN,
    NET_SECURE_PEERS,
    NET_SECURE_N
}; /* which side has connected */

struct net_secure { /* of a link or a lane */
    struct {
        struct cipher *out, *in; /* NULL: that connection was not made */
    } cipher[NET_SECURE_N];
    int sends_by; /* enum net_secure_by: with whose it sends; -1: it has not sent yet */
    bool awaits;  /* the hello of the own connection was sent, and its answer has not come */
    bool has_failed;
    struct hello hello;
    struct answer answer;
    size_t n_answer;
    struct records_out out;
    struct records_in in;
};

/* Complete the hello of a connection of this rank.
 *
 * secure    owned by the caller, made here; of a link whose peer has connected, it is there. NULL:
 *           the connection replaces another
 * returns   0; -ENOMEM, -EIO no random bytes */
int net_secure_offer(const struct net_links *l, struct hello *h, struct net_secure **secure);

/* Read the answer. returns 0 the connection can be used; -EAGAIN; -EPIPE the peer has ended it:
 * it has another key, or is gone; -EACCES an answer with another key; -ENOMEM, -errno */
int net_secure_hear(const struct net_links *l, struct net_secure *s, int fd);

/* The hello of a peer. returns 0; -EACCES and the text has the reason */
int net_secure_check(const struct net_links *l, const struct hello *h, struct co_error *why);

/* Answer it. returns 0; -ENOMEM, -EIO */
int net_secure_take(const struct net_links *l, const struct hello *h, int fd,
                    struct net_secure **secure);

/* Whether this rank has not sent anything on the connection that the peer has made: if nothing has
 * come on it either, the peer may make it once more. */
bool net_secure_is_unused(const struct net_secure *s);

/* The own connection has ended before it could be used. NULL is fine. */
void net_secure_drop_own(struct net_secure *s);
void net_secure_destroy(struct net_secure *s); /* NULL is fine */

/* What to poll() for on a connection that is being made. s   NULL: not encrypted */
static inline short net_secure_event(const struct net_secure *s)
{
    return s != NULL && s->awaits ? POLLIN : POLLOUT;
}

/* Have something to send in s->out: what is there already, or the first of these bytes.
 *
 * by        on whose connection this rank sends, if it has not sent yet
 * returns   0, -ENOMEM, -ENOTCONN */
int net_secure_seal(struct net_secure *s, enum net_secure_by by, const struct iovec *v,
                    unsigned n_v);

/* s->out was sent: n bytes of it, or -errno.
 * returns   how many of the bytes of net_secure_seal() have now gone; -EAGAIN none yet; -errno */
ssize_t net_secure_sent(struct net_secure *s, ssize_t n);

/* Take from what has come.
 *
 * ret_space   if it returns -EAGAIN: where the next bytes go; then records_came()
 * returns     bytes; -EAGAIN, -EBADMSG, -ENOMEM */
ssize_t net_secure_open(struct net_secure *s, const struct iovec *v, unsigned n_v,
                        struct iovec *ret_space);

#endif
