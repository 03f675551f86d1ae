/* membership_links.c - connections: in order, slow, and not forever. */
#include "membership_world.h"

#include "common/buf.h"
#include "common/error.h"

#include <string.h>

void queue_clear(struct queue *q)
{
    for (int i = 0; i < q->n; i++)
        free(q->mails[i].bytes);
    q->n = 0;
}

void queue_put(struct world *w, struct queue *q, uint8_t *bytes, size_t len)
{
    uint64_t at_ms = w->now_ms + (chance(w, 50) ? draw(w, 300) : draw(w, 3));
    if (q->n > 0 && q->mails[q->n - 1].at_ms > at_ms)
        at_ms = q->mails[q->n - 1].at_ms;
    if (q->n == MAX_MAILS)
        give_up(w, "too many messages on their way");
    q->mails[q->n++] = (struct mail){at_ms, bytes, len};
}

struct mail queue_take(struct queue *q)
{
    struct mail mail = q->mails[0];
    memmove(q->mails, q->mails + 1, (size_t)--q->n * sizeof *q->mails);
    return mail;
}

void link_send(struct world *w, struct link *l, enum direction to, const struct message *m)
{
    struct co_buf out = {0};
    struct co_error err = {0};
    if (channel_wire_encode(m, &out, &err) < 0)
        give_up(w, err.text);
    w->n_messages++;
    queue_put(w, &l->queues[to], out.data, co_buf_len(&out));
}

void link_free_if_over(struct world *w, struct link *l)
{
    if (l->has_end[TO_ROSTER] || l->has_end[TO_NODE])
        return;
    queue_clear(&l->queues[TO_ROSTER]);
    queue_clear(&l->queues[TO_NODE]);
    if (w->nodes[l->node].link == l)
        w->nodes[l->node].link = NULL;
    l->id = 0;
}

void link_close(struct world *w, struct link *l, enum direction heard)
{
    enum direction other = heard == TO_NODE ? TO_ROSTER : TO_NODE;
    if (!l->has_end[heard])
        return;
    l->has_end[heard] = false;
    queue_clear(&l->queues[heard]);
    if (heard == TO_NODE)
        w->nodes[l->node].link = NULL;
    if (l->has_end[other])
        queue_put(w, &l->queues[other], NULL, 0);
    link_free_if_over(w, l);
}

void link_reset(struct world *w, struct link *l)
{
    for (int to = 0; to < 2; to++) {
        queue_clear(&l->queues[to]);
        if (l->has_end[to])
            queue_put(w, &l->queues[to], NULL, 0);
    }
    w->nodes[l->node].reset_at_ms = w->now_ms;
}

struct link *link_by_id(struct world *w, uint64_t id)
{
    for (int i = 0; i < MAX_LINKS; i++)
        if (w->links[i].id == id)
            return &w->links[i];
    return NULL;
}
