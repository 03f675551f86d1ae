/* channel_pipe.h - the control channel within a process: between the roster and the node in the
 * same process.
 *
 * Messages are kept as bytes and handed over from the loop, so that neither end finds itself called
 * from within its own call, and nothing is lent for longer than it lives. */
#ifndef DDP_RENDEZVOUS_CHANNEL_CHANNEL_PIPE_H
#define DDP_RENDEZVOUS_CHANNEL_CHANNEL_PIPE_H

#include "channel_wire.h"
#include "common/buf.h"

#include <uv.h>

enum channel_pipe_end { CHANNEL_PIPE_ROSTER, CHANNEL_PIPE_NODE };

/* Called from the loop; m is lent for the call. NULL: the other end has closed the pipe, and all it
 * sent before has come. */
typedef void (*channel_pipe_take)(void *arg, const struct message *m);

struct channel_pipe {
    uv_timer_t timer;
    struct channel_wire_scratch *wire; /* owned */
    struct {
        struct co_buf frames; /* on their way to this end */
        bool is_open;
        channel_pipe_take take;
        void *arg;
    } ends[2];
    void (*on_closed)(struct channel_pipe *p);
};

/* Both ends are closed. returns 0, -ENOMEM */
int channel_pipe_init(struct channel_pipe *p, uv_loop_t *loop);

/* Both ends are open, nothing is on its way. */
void channel_pipe_open(struct channel_pipe *p, channel_pipe_take to_roster, void *roster_arg,
                       channel_pipe_take to_node, void *node_arg);

/* From one end to the other; nothing if this one is closed. If memory for a message runs out, the
 * pipe closes. */
void channel_pipe_send(struct channel_pipe *p, enum channel_pipe_end from, const struct message *m);

/* This end takes and sends nothing any more; the other one still gets what is on its way. */
void channel_pipe_shut(struct channel_pipe *p, enum channel_pipe_end end);

/* on_closed: the memory may go. */
void channel_pipe_close(struct channel_pipe *p, void (*on_closed)(struct channel_pipe *p));

#endif
