/* transport_tcp_end.c - the end of an exchange that fails: the error that follows from a peer's,
 * and waits that are too long. */
#include "common/clock.h"
#include "net_watch.h"
#include "transport_tcp_priv.h"
#include "worker-runtime/core/process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TELL_EVERY_MS = 1000,
    NAP_MS = 1,
};

static bool is_missing(const struct stream *s)
{
    return !tcp_is_idle(&s->in) || !tcp_is_idle(&s->out);
}

/* --- failing ---------------------------------------------------------------------------------- */

static struct net_member_name name_of(const struct transport_tcp *t, unsigned rank)
{
    return net_member_name(net_links_member(t->opts.links, rank));
}

int tcp_fail_left(const struct transport_tcp *t, unsigned peer, struct co_error *err)
{
    return co_fail(err, -ECONNRESET, "%s left the job while others needed it",
                   name_of(t, peer).text);
}

/* It went without a message. Other ranks may know the cause of it, and are about to report it. */
int tcp_fail_gone(const struct transport_tcp *t, unsigned peer, int code, struct co_error *err)
{
    const struct net_member_name name = name_of(t, peer);
    if (code == -EBADMSG)
        return tcp_fail_forged(t, peer, 0, err);
    if (net_watch_wait(t->opts.watch))
        return net_watch_why(t->opts.watch, err);
    if (net_watch_of(t->opts.watch, net_links_member(t->opts.links, peer)->rank).has_left)
        return tcp_fail_left(t, peer, err);
    if (code == -EPIPE || code == -ECONNRESET)
        return co_fail(err, -ECONNRESET, "%s died", name.text);
    if (code == -ECONNREFUSED)
        return co_fail(err, -ECONNRESET, "%s left the job while others needed it, or died",
                       name.text);
    return co_fail(err, -ECONNRESET, "the connection to %s broke: %s", name.text, strerror(-code));
}

static int fail_mismatch(const struct transport_tcp *t, unsigned peer, const struct frame *theirs,
                         struct co_error *err)
{
    const struct net_member_name me = name_of(t, t->opts.rank), other = name_of(t, peer);
    char my_call[CALL_TEXT_BYTES];
    if (call_same(&t->call, &theirs->call) && t->number == theirs->number &&
        t->call.form == CALL_PAIRS)
        return co_fail(err, -EPROTO, "%s, call #%u: the counts that %s and %s pass do not match",
                       call_format(&t->call, my_call), t->number, me.text, other.text);
    return call_fail_mismatch(&(struct call_side){other.text, &theirs->call, theirs->number},
                              &(struct call_side){me.text, &t->call, t->number}, err);
}

/* Something short that was sent in one go, of which n_here bytes have arrived.
 * returns whether all came in time */
bool tcp_receive_all(const struct transport_tcp *t, unsigned peer, void *at, size_t bytes,
                     size_t n_here)
{
    const uint64_t deadline_ms = co_deadline_ms(NET_WATCH_WAIT_MS);
    while (n_here < bytes) {
        const struct iovec v = {(uint8_t *)at + n_here, bytes - n_here};
        ssize_t n = net_links_receive(t->opts.links, peer, &v, 1);
        if (n < 0 && (n != -EAGAIN || co_left_ms(deadline_ms) == 0))
            return false;
        if (n > 0)
            n_here += (size_t)n;
        else
            poll(NULL, 0, NAP_MS); /* whatever ends it */
    }
    return true;
}

int tcp_fail_broken(const struct transport_tcp *t, unsigned peer, const void *here, size_t n_here,
                    struct co_error *err)
{
    struct net_abort why;
    if (n_here > sizeof why)
        n_here = sizeof why;
    if (n_here > 0)
        memcpy(&why, here, n_here);
    if (tcp_receive_all(t, peer, &why, sizeof why, n_here)) {
        net_abort_check(&why);
        net_watch_tell(t->opts.watch, why.code, why.text);
    }
    if (!net_watch_wait(t->opts.watch))
        return co_fail(err, -ECONNRESET, "%s left a broken job", name_of(t, peer).text);
    return net_watch_why(t->opts.watch, err);
}

int tcp_fail_forged(const struct transport_tcp *t, unsigned peer, unsigned lane,
                    struct co_error *err)
{
    return co_fail(err, -EIO, "%s, lane %u to %s, " NET_LINKS_FORGED, name_of(t, peer).text, lane,
                   name_of(t, t->opts.rank).text);
}

int tcp_fail_invalid(const struct transport_tcp *t, unsigned peer, struct co_error *err)
{
    return co_fail(err, -EIO, "%s sent an invalid call", name_of(t, peer).text);
}

int tcp_check_frame(const struct transport_tcp *t, unsigned p, const void *after,
                    struct co_error *err)
{
    const struct tcp_plan *plan = t->plan;
    const unsigned peer = plan->peer[p];
    const struct stream *s = &t->stream[peer];
    const struct frame *f = &s->in.frame;
    if (f->magic == FRAME_MAGIC && f->kind == FRAME_BROKEN)
        return tcp_fail_broken(t, peer, after, s->in.n_piece, err);
    if (f->magic == FRAME_MAGIC && f->kind == FRAME_LEFT)
        return tcp_fail_left(t, peer, err);
    if (f->magic != FRAME_MAGIC || (f->kind != FRAME_CALL && f->kind != FRAME_STRIPED))
        return tcp_fail_invalid(t, peer, err);
    if (!call_same(&t->call, &f->call) || f->number != t->number || f->exchange != s->n_exchanges ||
        f->bytes != s->out.frame.expects || f->expects != s->out.frame.bytes)
        return fail_mismatch(t, peer, f, err);
    return f->kind == s->out.frame.kind ? 0 : tcp_fail_invalid(t, peer, err);
}

/* A missing peer whose machine acknowledges nothing; NULL: none. If a peer is only late, or
 * stopped, its machine acknowledges what was sent. */
static const unsigned *find_cut(const struct transport_tcp *t)
{
    for (unsigned p = 0; p < t->plan->n_peers; p++)
        if (is_missing(&t->stream[t->plan->peer[p]]) &&
            net_links_is_unacknowledged(t->opts.links, t->plan->peer[p]))
            return &t->plan->peer[p];
    return NULL;
}

/* After NET_LINKS_TELL_MS without a byte in either direction, and then once a second. */
void tcp_tell_cut(struct transport_tcp *t)
{
    const uint64_t now_ms = co_now_ms();
    if (now_ms - t->late.begun_ms < NET_LINKS_TELL_MS || now_ms < t->tell_ms)
        return;
    t->tell_ms = now_ms + TELL_EVERY_MS;
    const unsigned *peer = find_cut(t);
    if (peer == NULL)
        return;
    struct net_links_trouble text;
    snprintf(text.text, sizeof text.text,
             "got no acknowledgment from %s for %d s; " NET_LINKS_PATH_HINT,
             net_links_path(t->opts.links, *peer).text, NET_LINKS_TELL_MS / 1000);
    t->has_warned = true;
    process_tell_wait(text.text);
}

void tcp_end_wait(struct transport_tcp *t)
{
    straggler_reset(&t->late, t->late.timeout_ms);
    if (t->has_warned)
        process_tell_wait("");
    t->has_warned = false;
}

/* The time is up, or it is time to ask. It is about those that sent least of what this rank waits
 * for: the others may also wait for them. */
int tcp_late_judge(struct transport_tcp *t, struct co_error *err)
{
    uint64_t least = UINT64_MAX;
    unsigned n = 0;
    for (unsigned p = 0; p < t->plan->n_peers; p++) {
        const struct stream *s = &t->stream[t->plan->peer[p]];
        if (is_missing(s) && s->in.total < least)
            least = s->in.total;
    }
    for (unsigned p = 0; p < t->plan->n_peers; p++) {
        const unsigned peer = t->plan->peer[p];
        if (is_missing(&t->stream[peer]) && t->stream[peer].in.total == least)
            t->who[n++] = net_links_member(t->opts.links, peer);
    }
    const int code = straggler_judge(&t->late, t->opts.watch, t->who, n, err);
    const unsigned *cut = code == -ETIMEDOUT ? find_cut(t) : NULL;
    return cut != NULL ? net_links_fail_cut(t->opts.links, *cut, t->late.timeout_ms, err) : code;
}
