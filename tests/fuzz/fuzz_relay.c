/* fuzz_relay.c - frames from an end of a relay link that is not to be trusted.
 *
 * The first byte chooses the end that is tested and its bounds. Then the input is a list of acts:
 * a byte with the act, and what it needs. A frame is a length byte and that many bytes. Whatever
 * comes, the frames that an end makes must be well-formed, its bounds must hold, a failure must
 * have a text, and nothing may be left at the end. */
#include "common/error.h"
#include "fuzz.h"
#include "rendezvous/relay/relay_node.h"
#include "rendezvous/relay/relay_store.h"

enum {
    MAX_CLIENTS = 3,
    MAX_BYTES = 4096,
    MAX_ACTS = 400,
};

struct script {
    const uint8_t *at, *end;
};

static unsigned take(struct script *s)
{
    return s->at < s->end ? *s->at++ : 0;
}

static const uint8_t *take_bytes(struct script *s, size_t *ret_len)
{
    const size_t n_left = (size_t)(s->end - s->at), len = take(s);
    const uint8_t *bytes = s->at;
    *ret_len = n_left == 0 ? 0 : len < n_left - 1 ? len : n_left - 1;
    s->at += *ret_len;
    return bytes;
}

static void check_frame(enum relay_end from, const struct relay_frame *f)
{
    const uint8_t *at = f->bytes;
    struct relay_record m;
    int rc;
    require(f->len <= RELAY_FRAME_BYTES);
    while ((rc = relay_wire_next(from, &at, f->bytes + f->len, &m, NULL)) > 0)
        ;
    require(rc == 0);
}

/* --- the node end --- */

static struct relay_client *clients[MAX_CLIENTS];

static void act_on_client(struct script *s, struct relay_node *r, unsigned byte)
{
    struct relay_client **c = &clients[byte / 8 % MAX_CLIENTS];
    struct co_error err;
    const char *text;
    size_t len, space;
    if (*c == NULL) {
        if (relay_node_open(r, c, c, &err) < 0)
            *c = NULL;
        return;
    }
    space = relay_client_space(*c);
    switch (byte % 8) {
    case 2: {
        const uint8_t *bytes = take_bytes(s, &len);
        require((relay_client_push(*c, bytes, len) == 0) == (len <= space));
        break;
    }
    case 3:
        relay_client_sent(*c, co_buf_len(relay_client_replies(*c)) / (1 + byte / 128));
        break;
    case 4:
        relay_client_leave(*c);
        break;
    case 5:
        relay_client_quiet(*c);
        break;
    default:
        (void)relay_client_is_ended(*c, &text);
        relay_client_release(*c);
        *c = NULL;
    }
}

static void run_node(struct script *s)
{
    static struct relay_frame out;
    const struct relay_node_limits limits = {.max_clients = 1 + take(s) % 4,
                                             .window_bytes = 2 + 4 * take(s),
                                             .max_bytes = 1 + 8 * take(s)};
    struct relay_node *r;
    struct co_error err = {0};
    size_t len;
    require(relay_node_create(&limits, &r, &err) == 0);
    for (int i = 0; i < MAX_CLIENTS; i++)
        clients[i] = NULL;
    for (int i = 0; i < MAX_ACTS && s->at < s->end; i++) {
        const unsigned byte = take(s);
        int rc = 0;
        if (byte % 8 == 0) {
            const uint8_t *bytes = take_bytes(s, &len);
            rc = relay_node_take(r, bytes, len, &err);
        } else if (byte % 8 == 1) {
            relay_node_put(r, &out);
            check_frame(RELAY_NODE, &out);
        } else {
            act_on_client(s, r, byte);
        }
        struct relay_client *c;
        while ((c = relay_node_next_due(r)) != NULL)
            require(*(struct relay_client **)relay_client_user(c) == c);
        require(relay_node_n_bytes(r) <= 2 * limits.max_bytes);
        require(relay_node_n_clients(r) <= limits.max_clients);
        if (rc < 0) {
            require(err.text[0] != '\0');
            break;
        }
    }
    relay_node_destroy(r);
}

/* --- the store end --- */

static void run_store(struct script *s)
{
    static struct relay_frame out;
    const struct store_limits store_limits = {.max_bytes = 1 << 16, .max_names = 50};
    struct relay_host h = {
        .sessions = {.limits = {.max_key_bytes = 40,
                                .max_value_bytes = 250,
                                .max_keys = 8,
                                .max_request_bytes = 2400},
                     .high_water_bytes = 1 + 2 * take(s),
                     .max_reply_bytes = 600,
                     .max_work = 1 + take(s)},
        .max_clients = 4,
        .window_bytes = 2 + 4 * take(s),
        .max_buffer_bytes = MAX_BYTES,
        .mid_request_ms = 100,
    };
    struct relay_store *links[2];
    struct co_error err = {0};
    uint64_t now_ms = 1;
    size_t len;
    require(store_create(&store_limits, 1, session_on_wake, NULL, &h.sessions.store, &err) == 0);
    relay_host_init(&h);
    for (int i = 0; i < 2; i++)
        require(relay_store_create(&h, NULL, &links[i], &err) == 0);
    for (int i = 0; i < MAX_ACTS && s->at < s->end; i++) {
        const unsigned byte = take(s);
        struct relay_store **link = &links[byte / 8 % 2];
        if (byte % 8 < 4) {
            const uint8_t *bytes = take_bytes(s, &len);
            if (relay_store_take(*link, bytes, len, now_ms, &err) < 0) {
                require(err.text[0] != '\0');
                relay_store_destroy(*link);
                require(relay_store_create(&h, NULL, link, &err) == 0);
            }
        } else if (byte % 8 == 4) {
            relay_host_run_late(&h, now_ms);
        } else if (byte % 8 == 5) {
            now_ms += byte;
            relay_host_expire(&h, now_ms);
            require(relay_host_deadline(&h) > now_ms);
        } else {
            relay_store_put(*link, &out);
            check_frame(RELAY_STORE, &out);
        }
        require(h.n_buffer_bytes <= MAX_BYTES + 4 * h.window_bytes + 4096);
    }
    for (int i = 0; i < 2; i++)
        relay_store_destroy(links[i]);
    require(h.n_clients == 0 && h.n_buffer_bytes == 0);
    store_destroy(h.sessions.store);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct script s = {data, data + size};
    if (take(&s) % 2 == 0)
        run_node(&s);
    else
        run_store(&s);
    return 0;
}
