/* channel_conn.h - one connection of the control channel: libuv around seal.h and channel_wire.h.
 *
 * Both ends use it: the roster's for connections that were accepted, the node's for one it makes.
 * Messages come out whole and checked; what breaks the protocol, dawdles in mid-frame or leaves too
 * much unread costs the connection, and nothing else. */
#ifndef DDP_RENDEZVOUS_CHANNEL_CHANNEL_CONN_H
#define DDP_RENDEZVOUS_CHANNEL_CHANNEL_CONN_H

#include "channel_wire.h"

#include <uv.h>

struct co_error;
struct channel_conn; /* opaque */
struct seal;

enum {
    CHANNEL_CONN_MID_FRAME_MS = 10000, /* from a connection's beginning until it is open, and from a
                                          frame's first byte to its last */
    CHANNEL_CONN_LINGER_MS = 2000,     /* for the other end to take the last message in */
    CHANNEL_CONN_MAX_UNSENT = 4 << 20, /* bytes; the other end does not read */
};

/* What the connections of a loop share, so that a silent one holds no buffers. */
struct channel_conn_host {
    uv_loop_t *loop;
    uint8_t *scratch;                  /* to read into */
    struct channel_wire_scratch *wire; /* to decode into */
    struct co_buf *frame;              /* to encode into */
    uint32_t n_conns;                  /* including those in mid-close */
    uint32_t n_open;                   /* without these */
    uint64_t mid_frame_ms;             /* from channel_conn_host_init() CHANNEL_CONN_MID_FRAME_MS */
    uint64_t n_buffer_bytes;           /* that all of them hold of incomplete frames, and unsent */
    uint64_t max_buffer_bytes; /* beyond this, a connection that holds more than the mean and asks
                                  for more is ended; 0: no bound but each one's own */
    void (*on_gone)(struct channel_conn_host *h); /* one less; NULL: ignored */
};

/* returns   0, -ENOMEM */
int channel_conn_host_init(struct channel_conn_host *h, uv_loop_t *loop, struct co_error *err);

/* No connection may be left: n_conns == 0. A zeroed one is fine. */
void channel_conn_host_fini(struct channel_conn_host *h);

/* Called from the loop. Each may end or abort the connection. */
struct channel_conn_callbacks {
    void (*on_open)(void *arg); /* the other end has proved itself; messages may be sent */
    void (*on_message)(void *arg, const struct message *m); /* lent for the call */

    /* NULL, or another protocol than that of channel_wire.h is spoken: a whole frame, lent for the
     * call; on_message is not called, and channel_conn_send_frame() sends. */
    void (*on_frame)(void *arg, const uint8_t *frame, size_t len);

    /* All that was sent has left this process, after a part of it had to wait. NULL: ignored */
    void (*on_sent)(void *arg);

    /* It has ended, by the other end or for a reason of ours, and frees itself: the last call. Not
     * made after channel_conn_end().
     * code   -EPROTO, -EACCES, -EBADMSG as seal_feed(); -ETIMEDOUT; -ECONNRESET: the other end
     *        closed it; -errno */
    void (*on_end)(void *arg, int code, const char *text);
    void *arg;
};

/* Take over a connected socket from which these bytes were read already.
 *
 * seal      taken over, also on failure
 * notes     copied. None is called before this has returned
 * returns   0; -ENOMEM, -errno: the descriptor is closed */
int channel_conn_adopt(struct channel_conn_host *h, struct seal *seal, int fd, const uint8_t *bytes,
                       size_t len, const struct channel_conn_callbacks *callbacks,
                       struct channel_conn **ret_conn, struct co_error *err);

/* Make a connection; on_open or on_end follows.
 *
 * connect_ms   how long that may take at most
 * returns      as above */
int channel_conn_connect(struct channel_conn_host *h, struct seal *seal, const struct sockaddr *to,
                         uint64_t connect_ms, const struct channel_conn_callbacks *callbacks,
                         struct channel_conn **ret_conn, struct co_error *err);

/* Send a message, as soon as everything queued before it is out. A connection that breaks here is
 * reported by on_end, later. Not before on_open. */
void channel_conn_send(struct channel_conn *c, const struct message *m);
void channel_conn_send_frame(struct channel_conn *c, const void *frame, size_t len);

/* What was sent and has not left this process. A caller that sends only while it is 0 never
 * keeps more than one frame for a peer that does not read. */
size_t channel_conn_n_unsent(const struct channel_conn *c);

/* Close when everything queued is sent and the other end has seen it, or its time is up; on_gone
 * reports it. */
void channel_conn_end(struct channel_conn *c);

/* Give up the connection, which stays open, and free it; on_gone reports that. No on_end follows.
 * What has come after the last message is dropped, and what is not sent yet must be nothing.
 *
 * returns   a descriptor of it, without TCP's delay; -EAGAIN: something is not sent; -errno: as
 *           before */
int channel_conn_detach(struct channel_conn *c);

/* The address of the other end, in figures; "?" when it is gone. */
#define CHANNEL_CONN_PEER_BYTES 80
void channel_conn_peer(const struct channel_conn *c, char text[CHANNEL_CONN_PEER_BYTES]);

/* The address of this end, as the other one sees it.
 * returns   0, -errno */
int channel_conn_own_address(const struct channel_conn *c, struct sockaddr_storage *ret);

#endif
