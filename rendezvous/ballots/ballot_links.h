/* ballot_links.h - the connections on which one process exchanges ballots with others.
 *
 * Questions are sent on connections that this process makes, and answered on them; questions of
 * other processes arrive on connections that its listener has accepted. All are sealed with
 * the job's token, as control connections are, and of one run id. A connection that is idle, breaks
 * the protocol, or is one too many is closed; each end makes it again when it has something to ask.
 * A ballot that cannot be sent at once is replaced by the next one: the council asks again. */
#ifndef DDP_RENDEZVOUS_BALLOTS_BALLOT_LINKS_H
#define DDP_RENDEZVOUS_BALLOTS_BALLOT_LINKS_H

#include "rendezvous/quorum/ballot.h"

#include <stddef.h>
#include <uv.h>

struct ballot_links; /* opaque */
struct co_error;
struct seal_key;

enum {
    /* Of a greeting: where a port also serves control connections, it is for ballots. Those count
     * from 1 (channel_wire.h). */
    BALLOT_LINKS_VERSION = 201,

    BALLOT_LINKS_MAX_OUT = 24,
    BALLOT_LINKS_MAX_IN = 32,
    BALLOT_LINKS_CONNECT_MS = 1000, /* for each address of a host */
    BALLOT_LINKS_OPEN_MS = 3000,    /* until the peer has authenticated, and for a frame */
    BALLOT_LINKS_IDLE_MS = 10000,
    BALLOT_LINKS_AGAIN_MS = 200,   /* after a failure, no connection there is made sooner ... */
    BALLOT_LINKS_NAME_MS = 1000,   /* ... and no name is looked up again */
    BALLOT_LINKS_SILENT_MS = 2000, /* a question is unanswered for so long: the next one is sent on
                                      a new connection, to where the name leads then */
};

/* Called from the loop, never from within a call of this file. Ballots are lent for the call. */
struct ballot_links_callbacks {
    void (*on_question)(void *arg, const struct ballot *question, struct ballot *answer);
    void (*on_answer)(void *arg, const struct elector_address *from, const struct ballot *answer);

    /* The connection to this process failed or ended. NULL: ignored
     * code   of channel_conn.h; -EPROTO: no ddprun that knows ballots */
    void (*on_lost)(void *arg, const struct elector_address *at, int code, const char *text);
    void *arg;
};

/* key, run_id   borrowed until all is closed; key NULL: in the clear
 * returns       0, -ENOMEM */
int ballot_links_create(uv_loop_t *loop, const struct seal_key *key, const char *run_id,
                        const struct ballot_links_callbacks *callbacks, struct ballot_links **ret,
                        struct co_error *err);

/* Is a connection that begins so for ballots? */
bool ballot_links_claims(const uint8_t *bytes, size_t len);

/* Take over an accepted socket whose first bytes, lent, were those. */
void ballot_links_adopt(struct ballot_links *l, int fd, const uint8_t *bytes, size_t len);

/* Send a question, on a new connection if no present one leads there. */
void ballot_links_send(struct ballot_links *l, const struct elector_address *to,
                       const struct ballot *question);

/* The address of this end of an open connection to `to`: what others can reach this process by,
 * most likely. returns 0, -ENOTCONN */
int ballot_links_own_address(const struct ballot_links *l, const struct elector_address *to,
                             struct sockaddr_storage *ret);

/* `to` in figures, as an open connection leads there: later a name may lead to another machine.
 *
 * returns   0; -ENOTCONN, -EINVAL: ret is undefined */
int ballot_links_find_peer(const struct ballot_links *l, const struct elector_address *to,
                           struct elector_address *ret);

/* End all connections; what was sent still goes out. Everything is freed and on_closed called, from
 * the loop. */
void ballot_links_close(struct ballot_links *l, void (*on_closed)(void *arg), void *arg);

#endif
