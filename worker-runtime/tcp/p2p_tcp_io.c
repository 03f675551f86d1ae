/* p2p_tcp_io.c - the bytes of messages between nodes: what goes over a connection, and comes.
 *
 *     sender                     receiver
 *     SHORT seq, bytes     ->    ... receive:  <- TAKEN seq
 *     LONG seq             ->    ... receive:  <- PLEASE seq
 *     DATA seq, bytes      -> */
#include "net_watch.h"
#include "p2p_tcp_priv.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

void p2p_tcp_io_free(struct peer *p)
{
    while (p->first_out != NULL) {
        struct outgoing *o = p->first_out;
        p->first_out = o->next;
        free(o);
    }
    while (p->first_in != NULL) {
        struct arrived *a = p->first_in;
        p->first_in = a->next;
        free(a);
    }
    free(p->reading);
}

void p2p_tcp_io_finish(struct p2p_tcp *ms, struct message *m, int code)
{
    for (struct message **at = &ms->first; *at != NULL; at = &(*at)->next)
        if (*at == m) {
            *at = m->next;
            if (*at == NULL)
                ms->last = at;
            break;
        }
    m->code = code;
    atomic_store(&m->done, true); /* from here on it is its owner's again */
}

/* --- writing ---------------------------------------------------------------------------------- */

struct outgoing *p2p_tcp_io_put(struct peer *to, enum kind kind, const struct message *m,
                                uint32_t seq, size_t copied)
{
    struct outgoing *o = calloc(1, sizeof *o + copied);
    if (o == NULL)
        return NULL;
    o->head = (struct head){.magic = MESSAGE_MAGIC, .kind = (uint32_t)kind, .seq = seq};
    if (m != NULL) {
        o->head.tag = m->tag;
        o->head.dtype = (uint32_t)m->dtype;
        o->head.count = m->count;
    }
    *to->last_out = o;
    to->last_out = &o->next;
    return o;
}

int p2p_tcp_io_write(struct p2p_tcp *ms, unsigned p)
{
    struct peer *to = &ms->peer[p];
    while (to->first_out != NULL) {
        struct outgoing *o = to->first_out;
        struct iovec v[2];
        unsigned n_v = 0;
        if (o->n_gone < sizeof o->head)
            v[n_v++] = (struct iovec){(uint8_t *)&o->head + o->n_gone, sizeof o->head - o->n_gone};
        const size_t of_data = o->n_gone > sizeof o->head ? o->n_gone - sizeof o->head : 0;
        if (o->head.bytes > of_data)
            v[n_v++] = (struct iovec){(uint8_t *)o->data + of_data, o->head.bytes - of_data};
        ssize_t n = net_links_send(ms->links, p, v, n_v);
        if (n < 0)
            return n == -EAGAIN ? 0 : (int)n;
        o->n_gone += (size_t)n;
        if (o->n_gone < sizeof o->head + o->head.bytes)
            continue;
        to->first_out = o->next;
        if (to->first_out == NULL)
            to->last_out = &to->first_out;
        if (o->message != NULL)
            p2p_tcp_io_finish(ms, o->message, 0);
        free(o);
    }
    return 0;
}

/* --- reading ---------------------------------------------------------------------------------- */

static struct message *find_open(struct p2p_tcp *ms, unsigned p, bool is_send, uint32_t seq)
{
    for (struct message *m = ms->first; m != NULL; m = m->next)
        if (m->is_send == is_send && m->stage == STAGE_ANNOUNCED && m->seq == seq &&
            p2p_tcp_position(ms, m) == p)
            return m;
    return NULL;
}

/* What is kept here until all of it has come. */
static int begin_reading(struct peer *from)
{
    from->reading = calloc(1, sizeof *from->reading + from->head.bytes);
    if (from->reading == NULL)
        return -ENOMEM;
    from->reading->head = from->head;
    from->into = from->reading->bytes;
    return 0;
}

static int begin_short(struct peer *from)
{
    const struct head *h = &from->head;
    const bool is_long = h->kind == KIND_LONG;
    if (h->bytes > SHORT_BYTES || (is_long && h->bytes != 0) || from->n_in == NET_SLOTS ||
        ddp_dtype_size((enum ddp_dtype)h->dtype) == 0 ||
        (!is_long && h->bytes != h->count * ddp_dtype_size((enum ddp_dtype)h->dtype)))
        return -EIO;
    return begin_reading(from);
}

static int begin_data(struct p2p_tcp *ms, unsigned p)
{
    struct peer *from = &ms->peer[p];
    struct message *m = find_open(ms, p, false, from->head.seq);
    if (m == NULL || p2p_tcp_bytes(m) != from->head.bytes)
        return -EIO;
    m->stage = STAGE_DATA;
    from->receiving = m;
    from->into = m->data;
    return 0;
}

/* A receiver asks for a long message. */
static int on_please(struct p2p_tcp *ms, unsigned p)
{
    struct peer *to = &ms->peer[p];
    struct message *m = find_open(ms, p, true, to->head.seq);
    struct outgoing *o = m != NULL ? p2p_tcp_io_put(to, KIND_DATA, m, m->seq, 0) : NULL;
    if (o == NULL)
        return m == NULL ? -EIO : -ENOMEM;
    m->stage = STAGE_DATA;
    o->head.bytes = p2p_tcp_bytes(m);
    o->data = m->data;
    o->message = m;
    to->n_under_way--;
    return 0;
}

static int on_head(struct p2p_tcp *ms, unsigned p)
{
    struct peer *from = &ms->peer[p];
    const struct head *h = &from->head;
    const bool has_bytes = h->kind == KIND_SHORT || h->kind == KIND_DATA || h->kind == KIND_BROKEN;
    if (h->magic != MESSAGE_MAGIC || h->kind < KIND_SHORT || h->kind >= KIND_END ||
        (!has_bytes && h->bytes != 0))
        return -EIO;
    switch (h->kind) {
    case KIND_SHORT:
    case KIND_LONG:
        return begin_short(from);
    case KIND_DATA:
        return begin_data(ms, p);
    case KIND_PLEASE:
        return from->n_under_way > 0 ? on_please(ms, p) : -EIO;
    case KIND_TAKEN:
        return from->n_under_way-- > 0 ? 0 : -EIO;
    case KIND_BROKEN:
        return h->bytes == sizeof(struct net_abort) ? begin_reading(from) : -EIO;
    default:
        from->has_left = from->is_missed = true;
        return 0;
    }
}

/* The other side leaves, and has sent why the job broke. */
static void on_broken(struct p2p_tcp *ms, struct peer *from)
{
    struct net_abort why;
    memcpy(&why, from->reading->bytes, sizeof why);
    net_abort_check(&why);
    net_watch_tell(ms->net->watch, why.code, why.text);
    free(from->reading);
    from->reading = NULL;
    from->has_left = true;
}

static void on_bytes(struct p2p_tcp *ms, struct peer *from)
{
    if (from->head.kind == KIND_BROKEN) {
        on_broken(ms, from);
    } else if (from->reading != NULL) {
        *from->last_in = from->reading;
        from->last_in = &from->reading->next;
        from->n_in++;
    }
    if (from->receiving != NULL)
        p2p_tcp_io_finish(ms, from->receiving, 0);
    from->reading = NULL;
    from->receiving = NULL;
    from->n_here = 0;
}

int p2p_tcp_io_read(struct p2p_tcp *ms, unsigned p)
{
    struct peer *from = &ms->peer[p];
    while (!from->has_left) {
        const bool in_head = from->n_here < sizeof from->head;
        const size_t of_bytes = in_head ? 0 : from->n_here - sizeof from->head;
        struct iovec v = {(uint8_t *)&from->head + from->n_here, sizeof from->head - from->n_here};
        if (!in_head)
            v = (struct iovec){from->into + of_bytes, from->head.bytes - of_bytes};
        ssize_t n = net_links_receive(ms->links, p, &v, 1);
        if (n < 0)
            return n == -EAGAIN ? 0 : (int)n;
        from->n_here += (size_t)n;
        int code = in_head && from->n_here == sizeof from->head ? on_head(ms, p) : 0;
        if (code != 0)
            return code;
        if (from->n_here >= sizeof from->head &&
            from->n_here == sizeof from->head + from->head.bytes)
            on_bytes(ms, from);
    }
    return 0;
}
