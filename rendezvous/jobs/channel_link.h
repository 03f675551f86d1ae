/* channel_link.h - a node's connection to the roster: over TCP, or within the process.
 *
 * One attempt at a time, made on request; member.h decides when to try again. An error text names
 * both ends of the failed connection. */
#ifndef DDP_RENDEZVOUS_JOBS_CHANNEL_LINK_H
#define DDP_RENDEZVOUS_JOBS_CHANNEL_LINK_H

#include "rendezvous/membership/message.h"

#include <uv.h>

struct co_error;
struct channel_link; /* opaque */
struct jobs;
struct seal_key;

enum { CHANNEL_LINK_CONNECT_MS = 2000 }; /* for each address of the roster's host */

/* Called from the loop, never from within a call of this file. */
struct channel_link_callbacks {
    void (*on_up)(void *arg); /* connected, the token proved: messages may be sent */
    void (*on_message)(void *arg, const struct message *m); /* lent for the call */

    /* The link has ended, or could not be made. Not called after channel_link_disconnect().
     * code   -EACCES: another token; -EPROTO: another protocol there: both would be the same the
     *        next time; 0: anything else */
    void (*on_down)(void *arg, const char *text, int code);
    void *arg;
};

/* host    a name or a numeric address; copied, as notes are
 * key     borrowed until the link is closed; NULL: in the clear
 * returns 0, -ENOMEM */
int channel_link_create(uv_loop_t *loop, const char *host, uint16_t port,
                        const struct seal_key *key, const struct channel_link_callbacks *callbacks,
                        struct channel_link **ret, struct co_error *err);

/* To a roster in this process; `jobs` outlives the link. */
int channel_link_create_local(uv_loop_t *loop, struct jobs *jobs,
                              const struct channel_link_callbacks *callbacks,
                              struct channel_link **ret, struct co_error *err);

/* Make one attempt: on_up or on_down follows. An older link is dropped. */
void channel_link_connect(struct channel_link *l);

void channel_link_send(struct channel_link *l, const struct message *m); /* when up; else nothing */

/* The link is not needed any more; what was sent on it still goes out. May be called without a
 * link. */
void channel_link_disconnect(struct channel_link *l);

/* Take the connection of a link that is up, which is then without one; over TCP only.
 * returns   a descriptor; -errno as channel_conn_detach() */
int channel_link_detach(struct channel_link *l);

/* The address by which this node reaches the roster, once it has: what others can reach it by, most
 * likely.
 * returns   0; -ENOTCONN: never was up, or within the process */
int channel_link_own_address(const struct channel_link *l, struct sockaddr_storage *ret);

/* Disconnect, then free everything; on_closed (NULL allowed) is called from the loop. Must not be
 * used after this call. */
void channel_link_close(struct channel_link *l, void (*on_closed)(void *arg), void *arg);

#endif
