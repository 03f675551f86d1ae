/* store_host.c - the thread that serves a store to the ranks of a job.
 *
 * serve_guests() polls the listener and all guests. serve_ready() reads from the guests that have
 * sent something, then sends to all that are owed something: a request of one guest may complete an
 * answer to another. A guest sends the word first, take_word(); what follows goes to its session,
 * run_session(). */
#include "store_host.h"

#include "common/buf.h"
#include "common/error.h"
#include "common/listener.h"
#include "common/scope.h"
#include "common/secret.h"
#include "rendezvous/store/session.h"
#include "worker-runtime/core/process.h"
#include "worker-runtime/interfaces/net_address.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    UNPROVEN_PEERS = 32, /* guests that have not sent the word; with more, the earliest is
                            dropped */
    READ_BYTES = 64 << 10,
    MAX_KEY_BYTES = 64 << 10,
    GUEST_MS = 60000, /* a guest whose machine is silent for so long is gone */
};
#define MIB ((uint64_t)1 << 20)

struct guest {
    struct session session; /* first */
    int fd;
    bool is_known; /* it has sent the word, or needs none */
    struct co_buf in;
    bool is_choked; /* what it asked waits until it has read some answers */
};

struct store_host {
    struct session_host sessions;
    bool needs_word;
    uint8_t word[STORE_HOST_WORD_BYTES];
    struct co_listener listener;
    int stop_fd;
    pthread_t thread;
    size_t n_guests, max_guests;
    struct guest **guests; /* owned, and each; in the order in which they came */
    struct pollfd *polls;  /* owned; of the guests, the listener and stop_fd */
};

/* --- guests ----------------------------------------------------------------------------------- */

static void drop_guest(struct store_host *h, size_t at)
{
    struct guest *g = h->guests[at];
    session_fini(&g->session);
    co_buf_fini(&g->in);
    close(g->fd);
    free(g);
    memmove(h->guests + at, h->guests + at + 1, (h->n_guests - at - 1) * sizeof *h->guests);
    h->n_guests--;
}

static void drop_unproven(struct store_host *h)
{
    size_t n = 0;
    for (size_t i = 0; i < h->n_guests; i++)
        n += !h->guests[i]->is_known;
    for (size_t i = 0; n >= UNPROVEN_PEERS && i < h->n_guests; i++)
        if (!h->guests[i]->is_known) {
            drop_guest(h, i);
            return;
        }
}

static void accept_guest(struct store_host *h)
{
    const int fd = co_listener_accept(&h->listener, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    drop_unproven(h);
    struct guest *g = h->n_guests < h->max_guests ? calloc(1, sizeof *g) : NULL;
    if (g == NULL) {
        close(fd);
        return;
    }
    g->fd = fd;
    g->is_known = !h->needs_word;
    net_address_tune(fd, GUEST_MS);
    session_init(&g->session, &h->sessions);
    h->guests[h->n_guests++] = g;
}

/* --- what they ask ---------------------------------------------------------------------------- */

/* Once it is there. returns   whether the guest may stay */
static bool take_word(const struct store_host *h, struct guest *g)
{
    if (co_buf_len(&g->in) < STORE_HOST_WORD_BYTES)
        return true;
    if (!co_is_same_secret(h->word, co_buf_bytes(&g->in), sizeof h->word))
        return false;
    co_buf_consume(&g->in, STORE_HOST_WORD_BYTES);
    g->is_known = true;
    return true;
}

/* returns   whether it may stay */
static bool run_session(struct guest *g)
{
    int state = SESSION_LATE;
    g->is_choked = false;
    while (state == SESSION_LATE) {
        size_t n_used = 0;
        state = session_feed(&g->session, co_buf_bytes(&g->in), co_buf_len(&g->in), &n_used, NULL);
        co_buf_consume(&g->in, n_used);
    }
    g->is_choked = state == SESSION_CHOKED;
    return state == SESSION_IDLE || state == SESSION_MORE || state == SESSION_CHOKED;
}

static bool receive_bytes(struct store_host *h, struct guest *g)
{
    uint8_t *room = co_buf_room(&g->in, READ_BYTES);
    if (room == NULL)
        return false;
    const ssize_t n = recv(g->fd, room, READ_BYTES, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    if (n == 0)
        return false;
    co_buf_added(&g->in, (size_t)n);
    if (!g->is_known && !take_word(h, g))
        return false;
    return !g->is_known || run_session(g);
}

static bool send_some(struct guest *g)
{
    struct co_buf *out = &g->session.out;
    while (co_buf_len(out) > 0) {
        const ssize_t n =
            send(g->fd, co_buf_bytes(out), co_buf_len(out), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        co_buf_consume(out, (size_t)n);
    }
    return !g->is_choked || run_session(g);
}

static void on_output(struct session *s)
{
    (void)s; /* the loop looks at all of them */
}

/* --- the thread ------------------------------------------------------------------------------- */

static void fill_polls(const struct store_host *h)
{
    for (size_t i = 0; i < h->n_guests; i++) {
        const struct guest *g = h->guests[i];
        const bool owes = co_buf_len(&g->session.out) > 0;
        h->polls[i] = (struct pollfd){
            .fd = g->fd, .events = (short)((g->is_choked ? 0 : POLLIN) | (owes ? POLLOUT : 0))};
    }
    h->polls[h->n_guests] = co_listener_poll(&h->listener);
    h->polls[h->n_guests + 1] = (struct pollfd){.fd = h->stop_fd, .events = POLLIN};
}

/* A request of one guest may be the answer to another: all that owe something are sent to in the
 * same turn. */
static void serve_ready(struct store_host *h)
{
    const size_t n = h->n_guests;
    const bool is_asked = h->polls[n].revents != 0;
    for (size_t i = n; i-- > 0;) /* from the end: those after a dropped one move up */
        if ((h->polls[i].revents & (POLLIN | POLLERR | POLLHUP)) != 0 &&
            !receive_bytes(h, h->guests[i]))
            drop_guest(h, i);
    for (size_t i = h->n_guests; i-- > 0;)
        if (h->guests[i]->session.no_memory || !send_some(h->guests[i]))
            drop_guest(h, i);
    if (is_asked)
        accept_guest(h);
}

static void *serve_guests(void *arg)
{
    struct store_host *h = arg;
    for (;;) {
        fill_polls(h);
        if (poll(h->polls, h->n_guests + 2, co_listener_wait_ms(&h->listener, -1)) < 0) {
            if (errno != EINTR && errno != EAGAIN)
                return NULL;
            continue;
        }
        if (h->polls[h->n_guests + 1].revents != 0)
            return NULL;
        serve_ready(h);
    }
}

/* --- the whole -------------------------------------------------------------------------------- */

static int make_store(struct store_host *h, struct co_error *err)
{
    const struct store_limits limits = {.max_bytes = 1024 * MIB, .max_names = 1 << 24};
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed)
        return co_fail(err, -EIO, "cannot get random bytes for a store");
    h->sessions = (struct session_host){.limits = {.max_key_bytes = MAX_KEY_BYTES,
                                                   .max_value_bytes = 64 * MIB,
                                                   .max_keys = 1 << 20,
                                                   .max_request_bytes = 80 * MIB},
                                        .high_water_bytes = MIB,
                                        .max_reply_bytes = 128 * MIB,
                                        .max_work = 1 << 20,
                                        .on_output = on_output};
    return store_create(&limits, seed, session_on_wake, NULL, &h->sessions.store, err);
}

static void destroy_host(struct store_host *h)
{
    while (h->n_guests > 0)
        drop_guest(h, h->n_guests - 1);
    co_close_at(&h->listener.fd);
    co_close_at(&h->stop_fd);
    store_destroy(h->sessions.store);
    free(h->guests);
    free(h->polls);
    free(h);
}

int store_host_open(const struct net_address *address, uint16_t *port, const uint8_t *word,
                    unsigned n_clients, struct store_host **ret, struct co_error *err)
{
    struct store_host *h = calloc(1, sizeof *h);
    if (h == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    h->needs_word = word != NULL;
    if (h->needs_word)
        memcpy(h->word, word, sizeof h->word);
    h->listener.fd = h->stop_fd = -1;
    h->max_guests = (size_t)n_clients + UNPROVEN_PEERS;
    h->guests = calloc(h->max_guests, sizeof *h->guests);
    h->polls = calloc(h->max_guests + 2, sizeof *h->polls);
    int rc = h->guests == NULL || h->polls == NULL ? co_fail(err, -ENOMEM, "out of memory")
                                                   : make_store(h, err);
    if (rc == 0)
        rc = net_address_listen(address, port, &h->listener.fd, err);
    if (rc == 0 && (h->stop_fd = eventfd(0, EFD_CLOEXEC)) < 0)
        rc = co_fail(err, -errno, "cannot create an eventfd: %s", strerror(errno));
    if (rc == 0 && (rc = process_start_thread(&h->thread, serve_guests, h)) != 0)
        co_fail(err, rc, "cannot start a thread: %s", strerror(-rc));
    if (rc < 0) {
        destroy_host(h);
        return rc;
    }
    *ret = h;
    return 0;
}

void store_host_close(struct store_host *h)
{
    if (h == NULL)
        return;
    eventfd_write(h->stop_fd, 1);
    pthread_join(h->thread, NULL);
    destroy_host(h);
}
