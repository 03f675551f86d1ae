#include "net_watch.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/scope.h"
#include "segments/control.h"
#include "transport_shm.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WAIT_MS = 1000, NAP_MS = 1 };

enum news_kind { NEWS_BROKEN = 1, NEWS_LEFT, NEWS_ASK, NEWS_ANSWER };

struct news { /* what comes on a connection, 256 bytes */
    uint32_t kind;
    int32_t code; /* a negative errno */
    char text[248];
};

struct watched {
    unsigned peer;
    size_t n_here;
    struct news news;
    bool has_ended; /* it left, is gone, or has told us the end: nothing more comes */
    bool has_left, was_told;
    bool is_asked;     /* and has not answered: who is stopped is not to be asked without end */
    uint64_t heard_ms; /* when it answered last; 0: never */
};

struct net_watch {
    struct net_links *links;
    struct control *control;
    unsigned local_rank;
    const struct transport_shm *shm;
    pthread_mutex_t mutex; /* guards what follows, and the links */
    bool has_told;         /* this rank has used its words */
    unsigned n_peers;      /* that are watched from the beginning */
    unsigned n_watched;
    struct watched **watched; /* n_watched of the job's ranks, owned; first those */
};

static void free_watch(struct net_watch *w)
{
    for (unsigned i = 0; w->watched != NULL && i < w->n_watched; i++)
        free(w->watched[i]);
    free(w->watched);
    free(w);
}

static struct net_watch *new_watch(const struct net_watch_opts *opts)
{
    struct net_watch *w = calloc(1, sizeof *w);
    if (w == NULL)
        return NULL;
    *w = (struct net_watch){.control = opts->control,
                            .local_rank = opts->local_rank,
                            .shm = opts->shm,
                            .n_peers = opts->n_peers,
                            .watched = calloc(opts->links.n, sizeof *w->watched)};
    while (w->watched != NULL && w->n_watched < w->n_peers) {
        struct watched *x = calloc(1, sizeof *x);
        if (x == NULL)
            break;
        x->peer = opts->peer[w->n_watched];
        w->watched[w->n_watched++] = x;
    }
    if (w->n_watched < w->n_peers) {
        free_watch(w);
        return NULL;
    }
    return w;
}

/* Of two the lower one connects. */
static int meet_peers(struct net_watch *w, const struct net_watch_opts *opts, uint64_t deadline_ms,
                      struct co_error *err)
{
    unsigned n_first = 0, n_second = opts->n_peers;
    co_autofree unsigned *peer = calloc(opts->n_peers + 1, sizeof *peer);
    if (peer == NULL)
        return co_fail(err, -ENOMEM, "no memory for a watch");
    for (unsigned i = 0; i < opts->n_peers; i++)
        if (opts->links.rank < opts->peer[i])
            peer[n_first++] = opts->peer[i];
        else
            peer[--n_second] = opts->peer[i];
    return net_links_meet(w->links, peer, n_first, peer + n_second, opts->n_peers - n_second,
                          deadline_ms, err);
}

int net_watch_create(const struct net_watch_opts *opts, uint64_t deadline_ms,
                     struct net_watch **ret, struct co_error *err)
{
    struct net_watch *w = new_watch(opts);
    int code = w != NULL ? net_links_create(&opts->links, &w->links, err)
                         : co_fail(err, -ENOMEM, "no memory for a watch");
    if (code != 0) {
        close(opts->links.listener);
        if (w != NULL)
            free_watch(w);
        return code;
    }
    code = meet_peers(w, opts, deadline_ms, err);
    if (code != 0) {
        net_links_destroy(w->links);
        free_watch(w);
        return code;
    }
    pthread_mutex_init(&w->mutex, NULL);
    *ret = w;
    return 0;
}

/* The few bytes find room in the buffer of a connection on which little else was sent.
 * returns whether they went */
static bool send_to(struct net_watch *w, const struct watched *x, enum news_kind kind, int code,
                    const char *text)
{
    struct news news = {.kind = (uint32_t)kind, .code = code};
    const struct iovec v = {&news, sizeof news};
    memcpy(news.text, text, strnlen(text, sizeof news.text - 1));
    return !x->was_told && net_links_send(w->links, x->peer, &v, 1) == (ssize_t)sizeof news;
}

/* The last that is said to everybody. */
static void send_end(struct net_watch *w, enum news_kind kind, int code, const char *text)
{
    for (unsigned i = 0; i < w->n_watched; i++) {
        send_to(w, w->watched[i], kind, code, text);
        w->watched[i]->was_told = true;
    }
}

static void tell(struct net_watch *w, int code, const char *text)
{
    if (w->has_told)
        return;
    w->has_told = true;
    control_abort_tell(w->control, w->local_rank, code, text);
}

static void pass_on(struct net_watch *w)
{
    struct co_error why;
    if (control_abort_get(w->control).cause == CONTROL_OK)
        return;
    int code = transport_shm_describe(w->shm, &why);
    send_end(w, NEWS_BROKEN, code, why.text);
}

static void on_end(struct net_watch *w, struct watched *x)
{
    char name[NET_MEMBER_TEXT_BYTES], text[NET_MEMBER_TEXT_BYTES + 16];
    snprintf(text, sizeof text, "%s died",
             net_member_format(net_links_member(w->links, x->peer), name));
    tell(w, -ECONNRESET, text);
}

static bool is_errno(int code)
{
    return code < 0 && code > -4096;
}

static void on_news(struct net_watch *w, struct watched *x)
{
    struct news *news = &x->news;
    news->text[sizeof news->text - 1] = '\0';
    x->n_here = 0;
    if (news->kind == NEWS_ASK) {
        send_to(w, x, NEWS_ANSWER, 0, "");
        return;
    }
    if (news->kind == NEWS_ANSWER) {
        x->heard_ms = co_now_ms();
        x->is_asked = false;
        return;
    }
    if (news->kind == NEWS_BROKEN)
        tell(w, is_errno(news->code) ? news->code : -ECONNRESET, news->text);
    x->has_ended = true;
    x->has_left = news->kind == NEWS_LEFT; /* it is missed by those who wait for it, if any */
}

static void hear(struct net_watch *w, struct watched *x)
{
    while (!x->has_ended) {
        const struct iovec v = {(uint8_t *)&x->news + x->n_here, sizeof x->news - x->n_here};
        ssize_t n = net_links_receive(w->links, x->peer, &v, 1);
        if (n == -EAGAIN)
            return;
        if (n < 0) {
            x->has_ended = true;
            on_end(w, x);
        } else if ((x->n_here += (size_t)n) == sizeof x->news) {
            on_news(w, x);
        }
    }
}

/* NULL: no memory */
static struct watched *watch(struct net_watch *w, unsigned peer)
{
    for (unsigned i = 0; i < w->n_watched; i++)
        if (w->watched[i]->peer == peer)
            return w->watched[i];
    struct watched *x = calloc(1, sizeof *x);
    if (x == NULL)
        return NULL;
    x->peer = peer;
    w->watched[w->n_watched++] = x;
    return x;
}

static void look(struct net_watch *w)
{
    for (unsigned peer; net_links_take_new(w->links, &peer);)
        watch(w, peer); /* who asks */
    for (unsigned i = 0; i < w->n_watched; i++)
        hear(w, w->watched[i]);
    pass_on(w);
}

bool net_watch_look(struct net_watch *w)
{
    pthread_mutex_lock(&w->mutex);
    look(w);
    pthread_mutex_unlock(&w->mutex);
    return control_abort_get(w->control).cause != CONTROL_OK;
}

bool net_watch_wait(struct net_watch *w)
{
    const uint64_t deadline_ms = co_deadline_ms(WAIT_MS);
    while (!net_watch_look(w))
        if (co_left_ms(deadline_ms) == 0 || poll(NULL, 0, NAP_MS) < 0)
            return false;
    return true;
}

static struct watched *find_watched(const struct net_watch *w, uint32_t rank)
{
    for (unsigned i = 0; i < w->n_watched; i++)
        if (net_links_member(w->links, w->watched[i]->peer)->rank == rank)
            return w->watched[i];
    return NULL;
}

void net_watch_ask(struct net_watch *w, uint32_t rank)
{
    pthread_mutex_lock(&w->mutex);
    struct watched *x = find_watched(w, rank);
    for (unsigned peer = 0; x == NULL && peer < net_links_n(w->links); peer++)
        if (net_links_member(w->links, peer)->rank == rank)
            x = watch(w, peer);
    if (x != NULL && !x->is_asked)
        x->is_asked = send_to(w, x, NEWS_ASK, 0, "");
    pthread_mutex_unlock(&w->mutex);
}

uint64_t net_watch_heard_ms(struct net_watch *w, uint32_t rank)
{
    pthread_mutex_lock(&w->mutex);
    const struct watched *x = find_watched(w, rank);
    const uint64_t heard_ms = x != NULL ? x->heard_ms : 0;
    pthread_mutex_unlock(&w->mutex);
    return heard_ms;
}

bool net_watch_has_left(struct net_watch *w, uint32_t rank)
{
    pthread_mutex_lock(&w->mutex);
    const struct watched *x = find_watched(w, rank);
    const bool has_left = x != NULL && x->has_left;
    pthread_mutex_unlock(&w->mutex);
    return has_left;
}

void net_watch_tell(struct net_watch *w, int code, const char *text)
{
    pthread_mutex_lock(&w->mutex);
    tell(w, code, text);
    pass_on(w);
    pthread_mutex_unlock(&w->mutex);
}

int net_watch_why(const struct net_watch *w, struct co_error *err)
{
    return transport_shm_describe(w->shm, err);
}

void net_watch_destroy(struct net_watch *w)
{
    if (w == NULL)
        return;
    look(w);
    send_end(w, NEWS_LEFT, 0, "");
    net_links_destroy(w->links);
    pthread_mutex_destroy(&w->mutex);
    free_watch(w);
}

size_t net_watch_poll(struct net_watch *w, struct pollfd *ret)
{
    size_t n = 0;
    pthread_mutex_lock(&w->mutex);
    for (unsigned i = 0; i < w->n_peers; i++)
        if (!w->watched[i]->has_ended)
            n += net_links_watch(w->links, w->watched[i]->peer, true, false, ret + n);
    pthread_mutex_unlock(&w->mutex);
    return n;
}

size_t net_watch_poll_most(const struct net_watch *w)
{
    return w->n_peers * NET_LINKS_POLL_MOST;
}
