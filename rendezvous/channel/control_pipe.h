/* control_pipe.h - the control channel within a process: between the roster and the node beside it.
 *
 * Messages are kept as bytes and handed over from the loop, so that neither end finds itself called
 * from within its own call, and nothing is lent for longer than it lives. */
#ifndef DDP_RENDEZVOUS_CONTROL_PIPE_H
#define DDP_RENDEZVOUS_CONTROL_PIPE_H

#include "common/buf.h"
#include "control_wire.h"

#include <uv.h>

enum control_pipe_end { CONTROL_PIPE_ROSTER, CONTROL_PIPE_NODE };

/* Called from the loop; m is lent for the call. NULL: the other end has closed the pipe, and all it
 * sent before has come. */
typedef void (*control_pipe_take)(void *arg, const struct message *m);

struct control_pipe {
    uv_timer_t timer;
    struct control_wire_scratch *wire; /* owned */
    struct {
        struct co_buf frames; /* on their way to this end */
        bool is_open;
        control_pipe_take take;
        void *arg;
    } ends[2];
    void (*on_closed)(struct control_pipe *p);
};

/* Both ends are closed. returns 0, -ENOMEM */
int control_pipe_init(struct control_pipe *p, uv_loop_t *loop);

/* Both ends are open, nothing is on its way. */
void control_pipe_open(struct control_pipe *p, control_pipe_take to_roster, void *roster_arg,
                       control_pipe_take to_node, void *node_arg);

/* From one end to the other; nothing when this one is closed. A message for which there is no
 * memory closes the pipe. */
void control_pipe_send(struct control_pipe *p, enum control_pipe_end from, const struct message *m);

/* This end takes and sends nothing any more; the other one still gets what is on its way. */
void control_pipe_shut(struct control_pipe *p, enum control_pipe_end end);

/* on_closed: the memory may go. */
void control_pipe_close(struct control_pipe *p, void (*on_closed)(struct control_pipe *p));

#endif
