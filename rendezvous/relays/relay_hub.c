/* relay_hub.c - links, and their turns.
 *
 * Read on_frame(), on_turn() and pump() first. A link's first frame is its hello; from then on it
 * has a relay_store, which takes its frames. Requests run as they come. What they have made is sent
 * once a turn of the loop, by links that relay_host_next_ready() names: those on which something
 * waits to leave this process come back by on_sent(). For a moment after that the loop may poll for
 * the next request of the last one (poll_time.h).
 *
 * A timer that runs only while it is needed looks at what takes too long: a link without a hello,
 * one that takes nothing, and a request that is not complete. */
#include "relay_hub.h"

#include "common/error.h"
#include "common/hash.h"
#include "poll_time.h"
#include "rendezvous/channel/channel_conn.h"
#include "rendezvous/channel/seal.h"
#include "rendezvous/net/newcomers.h"
#include "rendezvous/net/refusals.h"
#include "rendezvous/relay/relay_store.h"
#include "rendezvous/server/server.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TICKS = 10 }; /* in the time of a hello: so much later may a deadline be noticed */

struct hub_link {
    struct relay_hub *hub;
    struct channel_conn *conn;
    struct relay_store *end; /* owned; NULL: no hello has come */
    struct newcomer unproven;
    struct poll_time poll;
    uint64_t since_ms;   /* it was accepted */
    uint64_t blocked_ms; /* since then something waits to be sent; 0: nothing does */
    TAILQ_ENTRY(hub_link) all;
};

struct relay_hub {
    uv_loop_t *loop;
    struct relay_hub_opts opts;
    uint8_t hello[RELAY_LINK_HELLO_BYTES];
    size_t hello_len;
    struct channel_conn_host conns;
    struct relay_host host;
    struct newcomers unproven;
    struct refusals refusals;
    TAILQ_HEAD(, hub_link) links;
    uint32_t n_links, n_proven, n_blocked;
    struct hub_link *answered; /* the last link that was; NULL: it has ended */
    uv_timer_t timer;
    uint64_t tick_ms;
    bool is_overdue; /* the last tick found a request that was not complete in time */
    bool closing, timer_closed;
    struct relay_frame frame; /* to put into */
};

static void report(struct relay_hub *h, const char *text)
{
    if (h->opts.on_refused == NULL || h->closing)
        return;
    const char *line = refusals_note(&h->refusals, uv_now(h->loop), text);
    if (line != NULL)
        h->opts.on_refused(h->opts.arg, line);
}

/* --- the end of a link --- */

/* Its connection ends by itself, or has ended. */
static void link_free(struct hub_link *l)
{
    struct relay_hub *h = l->hub;
    newcomers_remove(&h->unproven, &l->unproven);
    TAILQ_REMOVE(&h->links, l, all);
    h->n_links--;
    h->n_proven -= l->end != NULL;
    h->n_blocked -= l->blocked_ms != 0;
    relay_store_destroy(l->end);
    if (h->answered == l)
        h->answered = NULL;
    free(l);
}

static void report_link(struct hub_link *l, const char *why)
{
    char peer[CHANNEL_CONN_PEER_BYTES], text[CO_ERROR_TEXT_BYTES];
    channel_conn_peer(l->conn, peer);
    snprintf(text, sizeof text, "relay link from %s: %.800s", peer, why);
    report(l->hub, text);
}

static void link_drop(struct hub_link *l, const char *why)
{
    report_link(l, why);
    channel_conn_end(l->conn);
    link_free(l);
}

static void on_end(void *arg, int code, const char *why)
{
    struct hub_link *l = arg;
    if (code != -ECONNRESET) /* else the node has ended it */
        report_link(l, why);
    link_free(l);
}

/* --- what takes too long --- */

static void watch(struct relay_hub *h);

static void end_slow_links(struct relay_hub *h, uint64_t now_ms)
{
    struct hub_link *l, *next;
    for (l = TAILQ_FIRST(&h->links); l != NULL; l = next) {
        next = TAILQ_NEXT(l, all);
        if (l->end == NULL && now_ms >= l->since_ms + h->opts.open_ms)
            link_drop(l, "timed out waiting for what it is for");
        else if (l->blocked_ms != 0 && now_ms >= l->blocked_ms + h->opts.stall_ms)
            link_drop(l, "the node does not read what is sent to it");
    }
}

/* What has arrived is taken first: after a pause of this process, time is over before the bytes
 * that came during it were read. So it must be found twice. */
static void on_tick(uv_timer_t *timer)
{
    struct relay_hub *h = timer->data;
    const uint64_t now_ms = uv_now(h->loop);
    const bool is_overdue = relay_host_deadline(&h->host) <= now_ms;
    end_slow_links(h, now_ms);
    if (is_overdue && h->is_overdue)
        relay_host_expire(&h->host, now_ms - h->tick_ms);
    h->is_overdue = is_overdue;
    watch(h);
}

static void watch(struct relay_hub *h)
{
    const bool is_needed = !h->closing && (h->n_proven < h->n_links || h->n_blocked > 0 ||
                                           relay_host_deadline(&h->host) != UINT64_MAX);
    if (!is_needed)
        uv_timer_stop(&h->timer);
    else if (!uv_is_active((uv_handle_t *)&h->timer))
        uv_timer_start(&h->timer, on_tick, h->tick_ms, h->tick_ms);
}

/* --- frames to the node --- */

static void set_blocked(struct hub_link *l, bool is_blocked)
{
    l->hub->n_blocked += is_blocked - (l->blocked_ms != 0);
    l->blocked_ms = is_blocked ? uv_now(l->hub->loop) | 1 : 0;
}

/* As long as the kernel takes it: what waits in this process is at most one frame. */
static void pump(struct hub_link *l)
{
    struct relay_frame *f = &l->hub->frame;
    while (l->blocked_ms == 0 && relay_store_has_output(l->end)) {
        relay_store_put(l->end, f);
        if (f->len == 0)
            break;
        channel_conn_send_frame(l->conn, f->bytes, f->len);
        poll_time_expect(&l->poll, POLL_FOR_REQUEST, uv_hrtime());
        l->hub->answered = l;
        if (channel_conn_n_unsent(l->conn) > 0)
            set_blocked(l, true);
    }
}

static void on_sent(void *arg)
{
    struct hub_link *l = arg;
    set_blocked(l, false);
    if (l->end != NULL)
        pump(l);
}

/* --- turns --- */

static bool on_turn(void *arg)
{
    struct relay_hub *h = arg;
    return relay_host_run_late(&h->host, uv_now(h->loop));
}

/* The link that was answered last may ask again at once. */
static bool polls(const struct relay_hub *h)
{
    const struct hub_link *l = h->answered;
    if (l == NULL || l->poll.next != POLL_FOR_REQUEST || !poll_time_is_on(&l->poll, uv_hrtime()))
        return false;
    sched_yield(); /* polling is for processors that have nothing else to do */
    return true;
}

static bool on_turn_over(void *arg)
{
    struct relay_hub *h = arg;
    struct relay_store *end;
    while ((end = relay_host_next_ready(&h->host)) != NULL)
        pump(relay_store_user(end));
    watch(h);
    return polls(h) || !TAILQ_EMPTY(&h->host.late);
}

/* --- frames from the node --- */

static void take_hello(struct hub_link *l, const uint8_t *frame, size_t len)
{
    struct relay_hub *h = l->hub;
    struct co_error err = {0};
    if (len != h->hello_len || memcmp(frame, h->hello, len) != 0) {
        link_drop(l, "refused: it is for another job, generation or version");
        return;
    }
    if (relay_store_create(&h->host, l, &l->end, &err) < 0) {
        link_drop(l, err.text);
        return;
    }
    newcomers_remove(&h->unproven, &l->unproven);
    h->n_proven++;
}

static void on_frame(void *arg, const uint8_t *frame, size_t len)
{
    struct hub_link *l = arg;
    struct co_error err = {0};
    poll_time_expect(&l->poll, POLL_FOR_REPLY, uv_hrtime());
    if (l->end == NULL)
        take_hello(l, frame, len);
    else if (relay_store_take(l->end, frame, len, uv_now(l->hub->loop), &err) < 0)
        link_drop(l, err.text);
}

static void on_open(void *arg)
{
    (void)arg; /* its hello follows */
}

/* --- new links --- */

/* returns   whether there is a place for one more */
static bool make_place(struct relay_hub *h)
{
    if (h->n_links < h->opts.max_links)
        return true;
    struct newcomer *chosen = newcomers_choose(&h->unproven);
    if (chosen == NULL)
        return false;
    struct hub_link *l = (struct hub_link *)((char *)chosen - offsetof(struct hub_link, unproven));
    link_drop(l, "closed: it has not shown what it is for, and all links are taken");
    return true;
}

static void refuse(struct relay_hub *h, int fd, const char *why)
{
    char text[128];
    close(fd);
    snprintf(text, sizeof text, "relay link refused: %s", why);
    report(h, text);
}

static struct hub_link *link_create(struct relay_hub *h, const struct sockaddr_storage *from)
{
    struct hub_link *l = calloc(1, sizeof *l);
    if (l == NULL)
        return NULL;
    l->hub = h;
    l->since_ms = uv_now(h->loop);
    TAILQ_INSERT_TAIL(&h->links, l, all);
    h->n_links++;
    newcomers_add(&h->unproven, &l->unproven, from);
    return l;
}

void relay_hub_adopt(struct relay_hub *h, int fd, const uint8_t *bytes, size_t len)
{
    struct sockaddr_storage from = {0};
    socklen_t from_len = sizeof from;
    struct co_error err = {0};
    struct seal *seal;
    getpeername(fd, (struct sockaddr *)&from, &from_len); /* gone: of no network */
    if (!make_place(h)) {
        refuse(h, fd, "all nodes that fit are connected; raise the limit with ulimit -n");
        return;
    }
    struct hub_link *l = link_create(h, &from);
    if (l == NULL || seal_create_roster(h->opts.key, h->opts.key != NULL ? 1 : 0,
                                        RELAY_LINK_VERSION, RELAY_LINK_VERSION, &seal, &err) < 0) {
        if (l != NULL)
            link_free(l);
        refuse(h, fd, "out of memory");
        return;
    }
    const struct channel_conn_callbacks callbacks = {
        .on_open = on_open, .on_frame = on_frame, .on_sent = on_sent, .on_end = on_end, .arg = l};
    if (channel_conn_adopt(&h->conns, seal, fd, bytes, len, &callbacks, &l->conn, &err) < 0) {
        link_free(l);
        report(h, err.text);
    }
    watch(h);
}

uint32_t relay_hub_n_links(const struct relay_hub *h)
{
    return h->n_proven;
}

uint32_t relay_hub_n_clients(const struct relay_hub *h)
{
    return h->host.n_clients;
}

/* --- beginning and end --- */

static void destroy_if_closed(struct relay_hub *h)
{
    if (!h->closing || !h->timer_closed || h->conns.n_conns > 0)
        return;
    channel_conn_host_fini(&h->conns);
    free(h);
}

static void on_conn_gone(struct channel_conn_host *conns)
{
    destroy_if_closed((struct relay_hub *)((char *)conns - offsetof(struct relay_hub, conns)));
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct relay_hub *h = handle->data;
    h->timer_closed = true;
    destroy_if_closed(h);
}

void relay_hub_close(struct relay_hub *h)
{
    struct hub_link *l;
    if (h == NULL)
        return;
    h->closing = true;
    server_admit(h->opts.server, NULL, NULL);
    while ((l = TAILQ_FIRST(&h->links)) != NULL) {
        channel_conn_end(l->conn);
        link_free(l);
    }
    uv_close((uv_handle_t *)&h->timer, on_timer_closed);
}

static void fill_opts(struct relay_hub *h, const struct relay_hub_opts *opts)
{
    struct relay_hub_opts *o = &h->opts;
    *o = *opts;
    o->run_id = NULL; /* the caller's text is not ours to keep */
    if (o->max_buffer_bytes == 0)
        o->max_buffer_bytes = UINT64_C(1) << 30;
    if (o->mid_request_ms == 0)
        o->mid_request_ms = 30000;
    if (o->open_ms == 0)
        o->open_ms = RELAY_LINK_OPEN_MS;
    if (o->stall_ms == 0)
        o->stall_ms = RELAY_LINK_STALL_MS;
    h->tick_ms = (o->open_ms + TICKS - 1) / TICKS;
}

static void fill_host(struct relay_hub *h)
{
    const struct relay_hub_opts *o = &h->opts;
    const struct server_guest guest = {.on_turn = on_turn, .on_turn_over = on_turn_over, .arg = h};
    h->host = (struct relay_host){.max_clients = o->max_clients,
                                  .window_bytes = RELAY_LINK_WINDOW_BYTES,
                                  .max_buffer_bytes = o->max_buffer_bytes,
                                  .mid_request_ms = o->mid_request_ms};
    server_admit(o->server, &guest, &h->host.sessions);
    relay_host_init(&h->host);
}

int relay_hub_create(uv_loop_t *loop, const struct relay_hub_opts *opts, struct relay_hub **ret,
                     struct co_error *err)
{
    struct relay_hub *h = calloc(1, sizeof *h);
    if (h == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    int rc = channel_conn_host_init(&h->conns, loop, err);
    if (rc < 0) {
        free(h);
        return rc;
    }
    h->loop = loop;
    fill_opts(h, opts);
    h->hello_len = relay_link_hello(opts->generation, opts->run_id, h->hello);
    h->conns.on_gone = on_conn_gone;
    h->conns.mid_frame_ms = RELAY_LINK_MID_FRAME_MS;
    h->unproven.seed = co_hash_seed();
    TAILQ_INIT(&h->links);
    h->timer.data = h;
    uv_timer_init(loop, &h->timer);
    fill_host(h);
    *ret = h;
    return 0;
}
