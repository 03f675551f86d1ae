/* fuzz_wire.c - conversations of several clients with one store.
 *
 * The input is a run of steps: a byte whose low bits choose the client and what happens, and for
 * bytes that the client sends, their number and themselves. Then all of the input is sent to a
 * fresh store once whole and once byte by byte: how bytes are cut must not change the answers. */
#include "common/buf.h"
#include "common/error.h"
#include "fuzz.h"
#include "rendezvous/store/session.h"

#include <string.h>

enum {
    N_CLIENTS = 4,
    MAX_STORE_BYTES = 256 << 10,
    HIGH_WATER_BYTES = 4096,
    MAX_WORK = 20, /* less than some requests take */
    MAX_REPLY_BYTES = 16 << 10,
    MAX_REQUEST_BYTES = 8 << 10,
};

enum step { /* of the bits above the client's; other values also send */
            STEP_PAUSE = 5,
            STEP_LEAVE = 6,
            STEP_READ = 7,
};

struct client {
    struct session session;
    struct co_buf in;
    int state;
};

static struct session_host host;
static struct client clients[N_CLIENTS];

static void on_output(struct session *s)
{
    require(co_buf_len(&s->out) > 0 || s->no_memory);
}

static void start(void)
{
    const struct store_limits limits = {.max_bytes = MAX_STORE_BYTES, .max_names = 100};
    struct store *store;
    require(store_create(&limits, 1, session_on_wake, NULL, &store, NULL) == 0);
    host = (struct session_host){
        .store = store,
        .limits = {.max_key_bytes = 256,
                   .max_value_bytes = 4096,
                   .max_keys = 64,
                   .max_request_bytes = MAX_REQUEST_BYTES},
        .high_water_bytes = HIGH_WATER_BYTES,
        .max_work = MAX_WORK,
        .max_reply_bytes = MAX_REPLY_BYTES,
        .on_output = on_output,
    };
    for (int i = 0; i < N_CLIENTS; i++) {
        clients[i] = (struct client){0};
        session_init(&clients[i].session, &host);
    }
}

static void leave(struct client *c)
{
    session_fini(&c->session);
    co_buf_fini(&c->in);
    *c = (struct client){0};
}

static void stop(void)
{
    for (int i = 0; i < N_CLIENTS; i++)
        leave(&clients[i]);
    store_destroy(host.store);
}

static void feed_once(struct client *c)
{
    struct co_error err = {0};
    size_t n_used;
    bool was_late = c->state == SESSION_LATE;
    size_t len = co_buf_len(&c->in);
    c->state = session_feed(&c->session, co_buf_bytes(&c->in), len, &n_used, &err);
    require(n_used <= len);
    require(n_used > 0 || !(was_late && c->state == SESSION_LATE)); /* it gets on */
    co_buf_consume(&c->in, n_used);
    require(c->state >= 0 || err.text[0] != '\0');
    require(c->state != SESSION_IDLE || co_buf_len(&c->in) == 0);
    require(co_buf_len(&c->session.out) < HIGH_WATER_BYTES + MAX_REPLY_BYTES + 8);
    require(store_n_bytes(host.store) <= MAX_STORE_BYTES);
}

static void feed(struct client *c)
{
    if (c->state < 0)
        return;
    do
        feed_once(c);
    while (c->state == SESSION_LATE);
}

static void deliver(struct client *c, const uint8_t *bytes, size_t len)
{
    require(co_buf_append(&c->in, bytes, len) == 0);
    feed(c);
}

static void pause_long(struct client *c)
{
    if (c->state != SESSION_AMBIGUOUS)
        return;
    session_decide_a(&c->session);
    feed(c);
    require(c->state != SESSION_AMBIGUOUS);
}

static void read_all(struct client *c)
{
    co_buf_consume(&c->session.out, co_buf_len(&c->session.out));
    feed(c);
}

static void play(const uint8_t *data, size_t size)
{
    start();
    for (size_t i = 0; i < size;) {
        struct client *c = &clients[data[i] % N_CLIENTS];
        int step = data[i++] / N_CLIENTS % 8;
        if (step == STEP_PAUSE) {
            pause_long(c);
        } else if (step == STEP_READ) {
            read_all(c);
        } else if (step == STEP_LEAVE) {
            leave(c);
            session_init(&c->session, &host); /* the next client */
        } else if (i < size) {
            size_t len = data[i++];
            len = len < size - i ? len : size - i;
            deliver(c, data + i, len);
            i += len;
        }
    }
    stop();
}

static void send_in_pieces(const uint8_t *data, size_t size, size_t piece, struct co_buf *ret_out,
                           int *ret_state)
{
    start();
    for (size_t i = 0; i < size; i += piece)
        deliver(&clients[0], data + i, piece < size - i ? piece : size - i);
    *ret_out = clients[0].session.out;
    *ret_state = clients[0].state;
    clients[0].session.out = (struct co_buf){0};
    stop();
}

static void compare_cuts(const uint8_t *data, size_t size)
{
    struct co_buf whole, cut;
    int whole_state, cut_state;
    send_in_pieces(data, size, size > 0 ? size : 1, &whole, &whole_state);
    send_in_pieces(data, size, 1, &cut, &cut_state);
    require(whole_state == cut_state);
    require(co_buf_len(&whole) == co_buf_len(&cut));
    require(co_buf_len(&whole) == 0 ||
            memcmp(co_buf_bytes(&whole), co_buf_bytes(&cut), co_buf_len(&whole)) == 0);
    co_buf_fini(&whole);
    co_buf_fini(&cut);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    play(data, size);
    compare_cuts(data, size);
    return 0;
}
