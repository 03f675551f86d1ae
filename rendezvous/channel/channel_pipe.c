#include "channel_pipe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static enum channel_pipe_end other(enum channel_pipe_end end)
{
    return end == CHANNEL_PIPE_NODE ? CHANNEL_PIPE_ROSTER : CHANNEL_PIPE_NODE;
}

int channel_pipe_init(struct channel_pipe *p, uv_loop_t *loop)
{
    *p = (struct channel_pipe){.wire = malloc(sizeof *p->wire)};
    if (p->wire == NULL)
        return -ENOMEM;
    p->timer.data = p;
    uv_timer_init(loop, &p->timer);
    return 0;
}

/* Move the oldest frame to `frame`, which then holds nothing else. */
static bool take_frame(struct co_buf *frames, struct co_buf *frame)
{
    uint32_t len;
    if (co_buf_len(frames) < sizeof len)
        return false;
    memcpy(&len, co_buf_bytes(frames), sizeof len);
    co_buf_consume(frame, co_buf_len(frame));
    if (co_buf_append(frame, co_buf_bytes(frames) + sizeof len, len) < 0)
        return false;
    co_buf_consume(frames, sizeof len + len);
    return true;
}

/* Hand over what has come to one end; its owner may open, shut and send meanwhile. */
static void deliver(struct channel_pipe *p, enum channel_pipe_end end)
{
    struct co_buf frame = {0};
    struct message m;
    while (p->ends[end].is_open && take_frame(&p->ends[end].frames, &frame))
        if (channel_wire_decode(co_buf_bytes(&frame), co_buf_len(&frame), p->wire, &m, NULL) == 0)
            p->ends[end].take(p->ends[end].arg, &m);
    co_buf_fini(&frame);
    if (p->ends[end].is_open && !p->ends[other(end)].is_open) {
        p->ends[end].is_open = false;
        p->ends[end].take(p->ends[end].arg, NULL);
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct channel_pipe *p = timer->data;
    deliver(p, CHANNEL_PIPE_ROSTER);
    deliver(p, CHANNEL_PIPE_NODE);
}

void channel_pipe_open(struct channel_pipe *p, channel_pipe_take to_roster, void *roster_arg,
                       channel_pipe_take to_node, void *node_arg)
{
    for (int end = 0; end < 2; end++) {
        co_buf_consume(&p->ends[end].frames, co_buf_len(&p->ends[end].frames));
        p->ends[end].is_open = true;
    }
    p->ends[CHANNEL_PIPE_ROSTER].take = to_roster;
    p->ends[CHANNEL_PIPE_ROSTER].arg = roster_arg;
    p->ends[CHANNEL_PIPE_NODE].take = to_node;
    p->ends[CHANNEL_PIPE_NODE].arg = node_arg;
}

static int put_frame(struct co_buf *frames, const struct co_buf *frame)
{
    uint32_t len = (uint32_t)co_buf_len(frame);
    if (co_buf_room(frames, sizeof len + len) == NULL)
        return -ENOMEM;
    co_buf_append(frames, &len, sizeof len);
    return co_buf_append(frames, co_buf_bytes(frame), len);
}

void channel_pipe_send(struct channel_pipe *p, enum channel_pipe_end from, const struct message *m)
{
    struct co_buf frame = {0};
    if (!p->ends[from].is_open)
        return;
    if (channel_wire_encode(m, &frame, NULL) < 0 ||
        put_frame(&p->ends[other(from)].frames, &frame) < 0)
        channel_pipe_shut(p, from);
    co_buf_fini(&frame);
    uv_timer_start(&p->timer, on_timer, 0, 0);
}

void channel_pipe_shut(struct channel_pipe *p, enum channel_pipe_end end)
{
    p->ends[end].is_open = false;
    co_buf_consume(&p->ends[end].frames, co_buf_len(&p->ends[end].frames));
    if (p->ends[other(end)].is_open)
        uv_timer_start(&p->timer, on_timer, 0, 0);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct channel_pipe *p = handle->data;
    for (int end = 0; end < 2; end++)
        co_buf_fini(&p->ends[end].frames);
    free(p->wire);
    p->on_closed(p);
}

void channel_pipe_close(struct channel_pipe *p, void (*on_closed)(struct channel_pipe *p))
{
    p->on_closed = on_closed;
    uv_close((uv_handle_t *)&p->timer, on_timer_closed);
}
