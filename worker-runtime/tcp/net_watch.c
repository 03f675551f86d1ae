/* net_watch.c - the connections on which ranks report to each other that the job is over, and their
 * messages.
 *
 * Read peers_look() first: it receives from all peers (on_news() handles a message), blames a peer
 * whose connection ended without a message once GRACE_MS are over, and passes on the node's abort
 * word. That word holds the cause: cause_tell() writes it, get_cause() reads it, and nothing is
 * kept here. Each public function takes the mutex and does a part of that. */
#include "net_watch.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/scope.h"
#include "common/utf8.h"
#include "segments/control.h"
#include "worker-runtime/shm/transport_shm.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    GRACE_MS = 20,     /* between the end of a watch and blaming the rank at its other end */
    GOODBYE_MS = 5000, /* for connections that move to another interface */
    SETTLE_MS = 500,   /* for connections that a leaving rank makes */
    NAP_MS = 1,
    MEET_NAP_MS = 20,
    VERDICT_MS =
        2000, /* a rank that waits longer than those that connect hears which rank they miss */
};

enum news_kind { NEWS_BROKEN = 1, NEWS_LEFT, NEWS_ASK, NEWS_ANSWER, NEWS_READY };

struct news { /* what comes on a connection, 256 bytes */
    uint32_t kind;
    /* Of NEWS_BROKEN. The code of NEWS_ASK and NEWS_ANSWER is the local rank + 1 of another rank on
       the node of the rank that answers: whether that has left, and that it has. Else nothing. */
    struct net_abort cause;
};
_Static_assert(sizeof(struct news) == 256, "as agreed");

struct watched {
    unsigned peer;
    size_t n_here;
    struct news news;
    bool has_ended; /* it left, is gone, or has sent the end: nothing more comes */
    bool has_left, was_informed;
    bool is_ready;        /* it is connected to all of its own peers */
    bool is_out_of_reach; /* its connection was not made in the time that a leaver has */
    bool was_met;         /* at the beginning: it had taken the connection */
    uint64_t silent_ms;   /* since when the connection has ended, without a word; 0: it has not */
    bool is_asked;        /* and has not answered: a stopped rank must not be asked without end */
    uint64_t heard_ms;    /* when it answered last; 0: never */
};

struct net_watch {
    struct net_links *links;
    struct control *control;
    unsigned rank, local_rank; /* in the group; on the node */
    const struct transport_shm *shm;
    pthread_mutex_t mutex; /* guards what follows, and the links */
    uint64_t accepted_ms;  /* when connections were accepted last */
    bool has_reported;     /* this rank has used its words */
    unsigned n_peers;      /* that are watched from the beginning */
    unsigned n_watched, n;
    struct watched watched[]; /* n_watched of the job's n ranks; first those */
};

void net_abort_set(struct net_abort *c, int code, const char *text)
{
    *c = (struct net_abort){.code = code};
    memcpy(c->text, text, strnlen(text, sizeof c->text - 1));
}

void net_abort_check(struct net_abort *c)
{
    c->text[sizeof c->text - 1] = '\0';
    co_utf8_clean(c->text, strlen(c->text));
    if (c->text[0] == '\0')
        snprintf(c->text, sizeof c->text, "the job is broken on another node");
    if (c->code >= 0 || c->code <= -4096)
        c->code = -ECONNRESET;
}

/* The few bytes fit into the buffer of a connection on which little else was sent.
 * returns 0 they went; -EAGAIN not yet: the connection is being made; -errno */
static int send_to(struct net_watch *w, const struct watched *x, const struct news *news)
{
    const struct iovec v = {(struct news *)news, sizeof *news};
    ssize_t n = net_links_send(w->links, x->peer, &v, 1);
    return n < 0 ? (int)n : n == (ssize_t)sizeof *news ? 0 : -EIO;
}

/* The last message to every rank; again, to those whose connections were not made yet. */
static void send_end(struct net_watch *w, const struct news *news)
{
    for (unsigned i = 0; i < w->n_watched; i++) {
        struct watched *x = &w->watched[i];
        if (!x->was_informed)
            x->was_informed = send_to(w, x, news) != -EAGAIN;
    }
}

static void cause_tell(struct net_watch *w, int code, const char *text)
{
    if (w->has_reported)
        return;
    w->has_reported = true;
    control_abort_tell(w->control, w->local_rank, code, text);
}

/* returns whether the job is broken */
static bool get_cause(const struct net_watch *w, struct net_abort *ret)
{
    struct co_error why;
    if (control_abort_get(w->control).cause == CONTROL_OK)
        return false;
    int code = transport_shm_describe(w->shm, &why);
    net_abort_set(ret, code, why.text);
    return true;
}

static void pass_on(struct net_watch *w)
{
    struct news news = {.kind = NEWS_BROKEN};
    if (get_cause(w, &news.cause))
        send_end(w, &news);
}

/* A rank that leaves reports that: this one has died. Perhaps because of something that others are
 * about to report. */
static void peer_blame(struct net_watch *w, struct watched *x)
{
    char text[sizeof(struct net_member_name) + 16];
    snprintf(text, sizeof text, "%s died",
             net_member_name(net_links_member(w->links, x->peer)).text);
    x->silent_ms = 0;
    cause_tell(w, -ECONNRESET, text);
}

static struct watched *peer_watch(struct net_watch *w, unsigned peer)
{
    unsigned i = 0;
    while (i < w->n_watched && w->watched[i].peer != peer)
        i++;
    if (i == w->n_watched)
        w->watched[w->n_watched++] = (struct watched){.peer = peer};
    return &w->watched[i];
}

static void answer(struct net_watch *w, const struct watched *x, int32_t about)
{
    struct news news = {.kind = NEWS_ANSWER};
    if (about > 0 && (unsigned)about <= w->control->n_local &&
        control_look(w->control, (unsigned)about - 1) == CONTROL_LEFT)
        news.cause.code = about;
    send_to(w, x, &news);
}

/* Another rank on the peer's node has left. */
static void on_left(struct net_watch *w, unsigned peer, int32_t about)
{
    const uint32_t node = net_links_member(w->links, peer)->node;
    for (unsigned i = 0; i < w->n; i++) {
        const struct net_member *m = net_links_member(w->links, i);
        if (m->node == node && m->local_rank + 1 == (uint32_t)about) {
            struct watched *x = peer_watch(w, i);
            x->has_ended = x->has_left = x->was_informed = true;
        }
    }
}

static void on_news(struct net_watch *w, struct watched *x)
{
    struct news *news = &x->news;
    x->n_here = 0;
    if (news->kind == NEWS_ASK) {
        if (!x->was_informed)
            answer(w, x, news->cause.code);
        return;
    }
    if (news->kind == NEWS_READY) {
        x->is_ready = true;
        return;
    }
    if (news->kind == NEWS_ANSWER) {
        x->heard_ms = co_now_ms();
        x->is_asked = false;
        if (news->cause.code > 0)
            on_left(w, x->peer, news->cause.code);
        return;
    }
    if (news->kind == NEWS_BROKEN) {
        net_abort_check(&news->cause);
        cause_tell(w, news->cause.code, news->cause.text);
    }
    x->has_ended = true;
    x->has_left = news->kind == NEWS_LEFT; /* it is missed by those who wait for it, if any */
}

static void tell_forged(struct net_watch *w, const struct watched *x)
{
    char text[sizeof(struct net_member_name) + 160];
    snprintf(text, sizeof text, "%s " NET_LINKS_FORGED,
             net_member_name(net_links_member(w->links, x->peer)).text);
    cause_tell(w, -EIO, text);
}

static void peer_hear(struct net_watch *w, struct watched *x)
{
    while (!x->has_ended) {
        const struct iovec v = {(uint8_t *)&x->news + x->n_here, sizeof x->news - x->n_here};
        ssize_t n = net_links_receive(w->links, x->peer, &v, 1);
        if (n == -EAGAIN)
            return;
        if (n == -EBADMSG) {
            x->has_ended = true;
            tell_forged(w, x);
        } else if (n < 0) {
            x->has_ended = true;
            if (x->was_met || n != -ECONNREFUSED) /* else it went before it took a question */
                x->silent_ms = co_now_ms();
        } else if ((x->n_here += (size_t)n) == sizeof x->news) {
            on_news(w, x);
        }
    }
}

/* Ranks that ask. A call of a few microseconds looks more than once: they can wait until the next
 * millisecond. */
static void accept_peers(struct net_watch *w)
{
    const uint64_t now_ms = co_now_ms();
    if (now_ms == w->accepted_ms)
        return;
    w->accepted_ms = now_ms;
    for (unsigned peer; net_links_take_new(w->links, &peer);)
        peer_watch(w, peer);
}

static void peers_look(struct net_watch *w)
{
    accept_peers(w);
    for (unsigned i = 0; i < w->n_watched; i++)
        peer_hear(w, &w->watched[i]);
    for (unsigned i = 0; i < w->n_watched; i++) { /* when all were heard */
        struct watched *x = &w->watched[i];
        if (x->silent_ms != 0 && co_now_ms() - x->silent_ms >= GRACE_MS)
            peer_blame(w, x);
    }
    pass_on(w);
}

bool net_watch_look(struct net_watch *w)
{
    pthread_mutex_lock(&w->mutex);
    peers_look(w);
    pthread_mutex_unlock(&w->mutex);
    return control_abort_get(w->control).cause != CONTROL_OK;
}

/* A signal may end it early, which means nothing. */
static void nap(void)
{
    poll(NULL, 0, NAP_MS);
}

bool net_watch_wait(struct net_watch *w)
{
    const uint64_t deadline_ms = co_deadline_ms(NET_WATCH_WAIT_MS);
    for (; !net_watch_look(w); nap())
        if (co_left_ms(deadline_ms) == 0)
            return false;
    return true;
}

/* returns   w->n: no rank has that number */
static unsigned find_peer(const struct net_watch *w, uint32_t rank)
{
    unsigned peer = 0;
    while (peer < w->n && net_links_member(w->links, peer)->rank != rank)
        peer++;
    return peer;
}

/* Watch a rank of the job from now on; NULL: no rank has that number. */
static struct watched *watch_rank(struct net_watch *w, uint32_t rank)
{
    const unsigned peer = find_peer(w, rank);
    return peer < w->n ? peer_watch(w, peer) : NULL;
}

void net_watch_ask(struct net_watch *w, uint32_t rank)
{
    pthread_mutex_lock(&w->mutex);
    struct watched *x = watch_rank(w, rank);
    if (x != NULL && !x->is_asked && !x->was_informed)
        x->is_asked = send_to(w, x, &(struct news){.kind = NEWS_ASK}) == 0;
    pthread_mutex_unlock(&w->mutex);
}

void net_watch_ask_about(struct net_watch *w, uint32_t rank)
{
    const unsigned peer = find_peer(w, rank);
    if (peer == w->n)
        return;
    const struct net_member *m = net_links_member(w->links, peer);
    const struct news ask = {.kind = NEWS_ASK, .cause.code = (int32_t)m->local_rank + 1};
    pthread_mutex_lock(&w->mutex);
    for (unsigned i = 0; i < w->n_watched; i++) {
        const struct watched *x = &w->watched[i];
        if (!x->has_ended && !x->was_informed &&
            net_links_member(w->links, x->peer)->node == m->node)
            send_to(w, x, &ask);
    }
    pthread_mutex_unlock(&w->mutex);
}

void net_watch_warn(struct net_watch *w, uint32_t rank)
{
    pthread_mutex_lock(&w->mutex);
    watch_rank(w, rank);
    pass_on(w);
    pthread_mutex_unlock(&w->mutex);
}

/* All reachable ranks were notified; is_late: those that were not are not waited for again. */
static bool is_settled(struct net_watch *w, bool is_late)
{
    bool all = true;
    pthread_mutex_lock(&w->mutex);
    pass_on(w);
    for (unsigned i = 0; i < w->n_watched; i++) {
        struct watched *x = &w->watched[i];
        all &= x->was_informed || x->has_ended || x->is_out_of_reach;
        x->is_out_of_reach |= is_late;
    }
    pthread_mutex_unlock(&w->mutex);
    return all;
}

void net_watch_settle(struct net_watch *w)
{
    const uint64_t deadline_ms = co_deadline_ms(SETTLE_MS);
    for (bool is_late = false; !is_settled(w, is_late) && !is_late; nap())
        is_late = co_left_ms(deadline_ms) == 0;
}

struct net_watch_of net_watch_of(struct net_watch *w, uint32_t rank)
{
    struct net_watch_of of = {0};
    pthread_mutex_lock(&w->mutex);
    for (unsigned i = 0; i < w->n_watched; i++)
        if (net_links_member(w->links, w->watched[i].peer)->rank == rank)
            of = (struct net_watch_of){w->watched[i].heard_ms, w->watched[i].has_left};
    pthread_mutex_unlock(&w->mutex);
    return of;
}

bool net_watch_tell(struct net_watch *w, int code, const char *text)
{
    pthread_mutex_lock(&w->mutex);
    const bool was_whole = control_abort_get(w->control).cause == CONTROL_OK;
    cause_tell(w, code, text);
    pass_on(w);
    const struct control_abort why = control_abort_get(w->control);
    pthread_mutex_unlock(&w->mutex);
    return was_whole && why.cause == CONTROL_REPORTED && why.rank == w->local_rank;
}

int net_watch_why(const struct net_watch *w, struct co_error *err)
{
    return transport_shm_describe(w->shm, err);
}

/* --- making ----------------------------------------------------------------------------------- */

void net_watch_tell_failure(struct net_watch *w, int code, const struct co_error *err)
{
    char text[CONTROL_WHY_BYTES];
    snprintf(text, sizeof text, "%s %s", net_member_name(net_links_member(w->links, w->rank)).text,
             err->text);
    if (net_links_is_unreachable(code))
        net_watch_tell(w, code, text);
}

int net_watch_judge_failure(const struct transport_shm *shm, int code, struct co_error *err)
{
    struct co_error why;
    const int why_code = transport_shm_describe(shm, &why);
    if (net_links_is_unreachable(code) && net_links_is_unreachable(why_code))
        return code;
    return co_fail(err, -ECONNRESET, "%s", why.text);
}

/* The first peer that is not ready; NULL: all are. */
static const struct watched *find_unready(struct net_watch *w)
{
    for (unsigned i = 0; i < w->n_peers; i++)
        if (!w->watched[i].is_ready)
            return &w->watched[i];
    return NULL;
}

/* A rank has reported that it has no path to another one, or ddprun has ended the generation. Else
 * a ready rank has failed in a call: the next call of this rank reports the reason, as for any
 * other.
 *
 * returns   -ECONNRESET; 0 */
static int fail_broken(const struct net_watch *w, struct co_error *err)
{
    const int code = net_watch_why(w, err);
    const bool was_informed = control_abort_get(w->control).cause == CONTROL_REPORTED;
    return was_informed && !net_links_is_unreachable(code) ? 0 : -ECONNRESET;
}

static int await_ready(struct net_watch *w, uint64_t deadline_ms, struct co_error *err)
{
    const uint64_t later_ms = deadline_ms == CO_NEVER_MS ? CO_NEVER_MS : deadline_ms + VERDICT_MS;
    struct pollfd p[NET_LINKS_POLL_MOST];
    const struct watched *x;
    for (unsigned i = 0; i < w->n_peers; i++)
        send_to(w, &w->watched[i], &(struct news){.kind = NEWS_READY}); /* else it has died */
    for (;;) {
        const bool is_broken = net_watch_look(w);
        x = find_unready(w);
        if (x == NULL)
            return 0;
        const struct net_member_name name = net_member_name(net_links_member(w->links, x->peer));
        if (is_broken)
            return fail_broken(w, err);
        if (x->has_left)
            return co_fail(err, -ECONNRESET, "%s left before all ranks had connected", name.text);
        if (co_left_ms(later_ms) == 0)
            return co_fail(err, -ETIMEDOUT, "timed out waiting for %s to connect to all its peers",
                           name.text);
        poll(p, net_links_watch(w->links, x->peer, true, false, p), MEET_NAP_MS);
    }
}

int net_watch_create(const struct net_watch_opts *opts, uint64_t deadline_ms,
                     struct net_watch **ret, struct co_error *err)
{
    struct net_watch *w = calloc(1, sizeof *w + opts->links.n * sizeof w->watched[0]);
    int code = w != NULL ? net_links_create(&opts->links, &w->links, err)
                         : co_fail(err, -ENOMEM, "out of memory");
    if (code != 0) {
        close(opts->links.listener);
        free(w);
        return code;
    }
    w->control = opts->control;
    w->local_rank = opts->local_rank;
    w->shm = opts->shm;
    w->n = opts->links.n;
    for (; w->n_watched < opts->n_peers; w->n_watched++)
        w->watched[w->n_watched] =
            (struct watched){.peer = opts->peer[w->n_watched], .was_met = true};
    w->n_peers = w->n_watched;
    pthread_mutex_init(&w->mutex, NULL);
    w->rank = opts->links.rank;
    code = net_links_meet(w->links, opts->peer, opts->n_peers, deadline_ms, err);
    if (code == 0)
        code = await_ready(w, deadline_ms, err);
    if (code != 0) {
        net_watch_tell_failure(w, code, err);
        net_links_destroy(w->links);
        pthread_mutex_destroy(&w->mutex);
        free(w);
        return code;
    }
    *ret = w;
    return 0;
}

/* A watch has ended, and no rank is blamed for it yet. */
static bool is_in_doubt(struct net_watch *w)
{
    bool any = false;
    pthread_mutex_lock(&w->mutex);
    for (unsigned i = 0; i < w->n_watched; i++)
        any |= w->watched[i].silent_ms != 0;
    pthread_mutex_unlock(&w->mutex);
    return any;
}

bool net_watch_cause(struct net_watch *w, struct net_abort *ret)
{
    for (; !net_watch_look(w); nap())
        if (!is_in_doubt(w))
            return false;
    return get_cause(w, ret);
}

/* A peer that does not get this, but the end of the connection, takes this rank for dead.
 * returns whether it was sent to all that can be reached */
static bool say_goodbye(struct net_watch *w)
{
    bool all = true;
    send_end(w, &(struct news){.kind = NEWS_LEFT});
    for (unsigned i = 0; i < w->n_watched; i++)
        all &= w->watched[i].was_informed || !net_links_is_moving(w->links, w->watched[i].peer);
    return all;
}

void net_watch_destroy(struct net_watch *w)
{
    if (w == NULL)
        return;
    const uint64_t deadline_ms = co_deadline_ms(GOODBYE_MS);
    struct net_abort why;
    if (net_watch_cause(w, &why))
        net_watch_settle(w);
    else
        while (!say_goodbye(w) && co_left_ms(deadline_ms) != 0)
            nap();
    net_links_destroy(w->links);
    pthread_mutex_destroy(&w->mutex);
    free(w);
}

size_t net_watch_poll(struct net_watch *w, struct pollfd *ret)
{
    size_t n = 0;
    pthread_mutex_lock(&w->mutex);
    for (unsigned i = 0; i < w->n_peers; i++)
        if (!w->watched[i].has_ended)
            n += net_links_watch(w->links, w->watched[i].peer, true, false, ret + n);
    pthread_mutex_unlock(&w->mutex);
    return n;
}

size_t net_watch_poll_most(const struct net_watch *w)
{
    return w->n_peers * NET_LINKS_POLL_MOST;
}
