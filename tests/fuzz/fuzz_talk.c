/* fuzz_talk.c - several clients of one store, compared with a model of it.
 *
 * The input is a script. It makes requests of all three dialects, sends them in pieces that end
 * anywhere, lets clients read late, leave and come back, and sends what must be refused. The
 * sessions see bytes, store_model.c sees requests; every byte of every reply must be the same, and
 * in the end the store must be as small as it began.
 *
 * A step is a byte: the client in its lowest two bits, the action in the next three, an option in
 * the last three. Any bytes that the action needs follow. fuzz_wire.c has the opposite view: bytes
 * without a meaning, and bounds that hold all the time. */
#include "common/error.h"
#include "fuzz.h"
#include "rendezvous/store/session.h"
#include "store_model.h"

#include <errno.h>
#include <string.h>

enum {
    MAX_STORE_BYTES = 1 << 20, /* more than a script can fill */
    TIGHT_STORE_BYTES = 2000,
    HIGH_WATER_BYTES = 200,
    MAX_WORK = 4, /* less than some requests take */
    MAX_REPLY_BYTES = 600,
    MAX_KEY_BYTES = 40,
    MAX_VALUE_BYTES = 250,
    MAX_SCRIPT_BYTES = 4096, /* the target ignores longer ones */
    MAX_ASKED = 2048,        /* of one client, until it leaves */
};

enum step {
    STEP_ASK,        /* a request, sent at once */
    STEP_ASK_LATER,  /* one that waits to be sent */
    STEP_ASK_MOSTLY, /* the last bytes of it are not sent yet */
    STEP_SEND,       /* some of what waits to be sent */
    STEP_READ,       /* take some replies */
    STEP_PAUSE,      /* longer than the server is patient with opcode 8 */
    STEP_LEAVE,      /* and come back, with another dialect */
    STEP_MISBEHAVE,
};

enum dialect {
    DIALECT_C,
    DIALECT_B,
    DIALECT_A,
    N_DIALECTS,
};

static const enum wire_op ops_of_c[] = {
    WIRE_SET,       WIRE_COMPARE_SET, WIRE_GET,        WIRE_ADD,        WIRE_CHECK,
    WIRE_WAIT,      WIRE_GETNUMKEYS,  WIRE_DELETE_KEY, WIRE_APPEND,     WIRE_MULTI_GET,
    WIRE_MULTI_SET, WIRE_CANCEL_WAIT, WIRE_PING,       WIRE_QUEUE_PUSH, WIRE_QUEUE_POP,
    WIRE_QUEUE_LEN, WIRE_LIST_KEYS,   WIRE_BARRIER,
};
static const enum wire_op ops_of_b[] = {
    WIRE_SET,    WIRE_COMPARE_SET, WIRE_GET,        WIRE_ADD,
    WIRE_CHECK,  WIRE_WAIT,        WIRE_GETNUMKEYS, WIRE_DELETE_KEY,
    WIRE_APPEND, WIRE_MULTI_GET,   WIRE_MULTI_SET,  WIRE_CANCEL_WAIT,
};
static const enum wire_op ops_of_a[] = {
    WIRE_SET,   WIRE_COMPARE_SET, WIRE_GET,        WIRE_ADD,
    WIRE_CHECK, WIRE_WAIT,        WIRE_GETNUMKEYS, WIRE_DELETE_KEY,
};
static const struct {
    const enum wire_op *ops;
    size_t n_ops;
} dialects[N_DIALECTS] = {
    [DIALECT_C] = {ops_of_c, sizeof ops_of_c / sizeof *ops_of_c},
    [DIALECT_B] = {ops_of_b, sizeof ops_of_b / sizeof *ops_of_b},
    [DIALECT_A] = {ops_of_a, sizeof ops_of_a / sizeof *ops_of_a},
};

enum { OLD_OPCODE_DELETE_A = 8 };

#define NAME(text)                                                                                 \
    {                                                                                              \
        (const uint8_t *)(text), sizeof(text) - 1                                                  \
    }
static const struct wire_bytes names[MODEL_NAMES] = {
    NAME("k"),     NAME("/k"),      NAME(""),  NAME("a\0b"),
    NAME("init/"), NAME("counter"), NAME("q"), NAME("a name that is as long as a key may be."),
};

struct asked {
    struct model_request request;
    bool is_bad;
    uint64_t end; /* of its bytes, counted from the client's first */
};

struct client {
    struct session session;
    enum dialect dialect;
    bool decided;          /* the session knows which old dialect it is */
    bool gone;             /* dropped; only STEP_LEAVE brings it back */
    int state;             /* of the last session_feed() */
    struct co_buf to_send; /* asked, not sent */
    struct co_buf in;      /* sent, not taken by the session */
    struct asked asked[MAX_ASKED];
    int n_asked, n_done;
    uint64_t n_sent, n_taken;
};

struct script {
    const uint8_t *at, *end;
};

static struct session_host host;
static struct client clients[MODEL_CLIENTS];
static struct model *model;
static bool is_tight;

static int index_of(const struct client *c)
{
    return (int)(c - clients);
}

/* --- bytes --- */

static void put(struct client *c, const void *bytes, size_t len)
{
    require(co_buf_append(&c->to_send, bytes, len) == 0);
}

static void put_u64(struct client *c, uint64_t value)
{
    uint8_t bytes[8];
    wire_put_u64(bytes, value);
    put(c, bytes, sizeof bytes);
}

static void put_string(struct client *c, struct wire_bytes s)
{
    put_u64(c, s.len);
    put(c, s.at, s.len);
}

static void put_opcode(struct client *c, enum wire_op op)
{
    uint8_t opcode = (uint8_t)op;
    for (size_t i = 0; c->dialect == DIALECT_B && i < dialects[DIALECT_B].n_ops; i++)
        if (ops_of_b[i] == op)
            opcode = (uint8_t)i;
    for (size_t i = 0; c->dialect == DIALECT_A && i < dialects[DIALECT_A].n_ops; i++)
        if (ops_of_a[i] == op)
            opcode = op == WIRE_DELETE_KEY ? OLD_OPCODE_DELETE_A : (uint8_t)i;
    put(c, &opcode, 1);
}

static void put_request(struct client *c, const struct model_request *r)
{
    put_opcode(c, r->op);
    bool counted = r->op == WIRE_CHECK || r->op == WIRE_WAIT || r->op == WIRE_MULTI_GET ||
                   r->op == WIRE_MULTI_SET;
    if (counted)
        put_u64(c, (uint64_t)r->n_names);
    for (int i = 0; i < r->n_names; i++) {
        put_string(c, names[r->names[i]]);
        if (r->op == WIRE_MULTI_SET || r->op == WIRE_SET || r->op == WIRE_APPEND ||
            r->op == WIRE_QUEUE_PUSH || r->op == WIRE_COMPARE_SET)
            put_string(c, r->values[i]);
    }
    if (r->op == WIRE_COMPARE_SET)
        put_string(c, r->values[1]);
    if (r->op == WIRE_ADD || r->op == WIRE_BARRIER)
        put_u64(c, (uint64_t)r->number);
    if (r->op == WIRE_PING || r->op == WIRE_VALIDATE) {
        uint8_t bytes[4];
        wire_put_u32(bytes, (uint32_t)r->number);
        put(c, bytes, sizeof bytes);
    }
}

static void remember(struct client *c, const struct model_request *r, bool is_bad)
{
    require(c->n_asked < MAX_ASKED);
    c->asked[c->n_asked++] = (struct asked){*r, is_bad, c->n_sent + co_buf_len(&c->to_send)};
}

/* --- the script --- */

static unsigned take(struct script *s)
{
    return s->at < s->end ? *s->at++ : 0;
}

static struct wire_bytes take_value(struct script *s)
{
    size_t len = take(s);
    len = len < MAX_VALUE_BYTES ? len : MAX_VALUE_BYTES;
    len = len < (size_t)(s->end - s->at) ? len : (size_t)(s->end - s->at);
    struct wire_bytes value = {s->at, len};
    s->at += len;
    return value;
}

static int64_t take_number(struct script *s)
{
    static const int64_t edges[] = {0, 1, -1, INT64_MAX, INT64_MIN, 1000000007};
    unsigned n = take(s);
    return n < sizeof edges / sizeof *edges ? edges[n] : (int64_t)n - 6;
}

static int n_values(enum wire_op op, int n_names)
{
    switch (op) {
    case WIRE_SET:
    case WIRE_APPEND:
    case WIRE_QUEUE_PUSH:
        return 1;
    case WIRE_COMPARE_SET:
        return 2;
    case WIRE_MULTI_SET:
        return n_names;
    default:
        return 0;
    }
}

static int n_names_of(struct script *s, enum wire_op op)
{
    switch (op) {
    case WIRE_CHECK:
    case WIRE_WAIT:
    case WIRE_MULTI_GET:
    case WIRE_MULTI_SET:
        return (int)(take(s) % (MODEL_ITEMS + 1));
    case WIRE_GETNUMKEYS:
    case WIRE_CANCEL_WAIT:
    case WIRE_PING:
    case WIRE_LIST_KEYS:
        return 0;
    default:
        return 1;
    }
}

static struct model_request take_request(struct script *s, enum dialect dialect)
{
    struct model_request r = {.op = dialects[dialect].ops[take(s) % dialects[dialect].n_ops]};
    if (is_tight && r.op == WIRE_MULTI_SET) /* the client cannot see how far it came */
        r.op = WIRE_SET;
    r.n_names = n_names_of(s, r.op);
    for (int i = 0; i < r.n_names; i++)
        r.names[i] = (int)(take(s) % MODEL_NAMES);
    for (int i = 0; i < n_values(r.op, r.n_names); i++)
        r.values[i] = take_value(s);
    if (r.op == WIRE_ADD || r.op == WIRE_BARRIER || r.op == WIRE_PING)
        r.number = take_number(s);
    return r;
}

static void put_bad(struct client *c, unsigned kind)
{
    static const uint8_t zeros[8];
    uint8_t unknown = c->dialect == DIALECT_C ? WIRE_N_OPS : WIRE_CANCEL_WAIT;
    if (kind == 0) {
        put_opcode(c, WIRE_GET);
        put_u64(c, MAX_KEY_BYTES + 1);
    } else if (kind == 1) {
        put_opcode(c, WIRE_SET);
        put(c, zeros, sizeof zeros);
        put_u64(c, UINT64_MAX);
    } else if (kind == 2) {
        put_opcode(c, WIRE_WAIT);
        put_u64(c, MODEL_ITEMS + 1);
    } else if (kind == 3 && c->dialect == DIALECT_C) {
        put(c, zeros, 1); /* VALIDATE again */
    } else {
        put(c, &unknown, 1);
    }
}

/* --- what must hold --- */

static void compare_replies(void)
{
    for (int i = 0; i < MODEL_CLIENTS; i++) {
        if (clients[i].gone)
            continue;
        const struct co_buf *real = &clients[i].session.out;
        const struct co_buf *expected = model_replies(model, i);
        require(co_buf_len(real) == co_buf_len(expected));
        require(co_buf_len(real) == 0 ||
                memcmp(co_buf_bytes(real), co_buf_bytes(expected), co_buf_len(real)) == 0);
    }
}

/* The store lists keys in any order: what the session wrote after `offset` must be the keys that
 * the model has, each once. Then the model takes over the order of the session. */
static void adopt_listing(struct client *c, size_t offset)
{
    struct co_buf *expected = model_replies(model, index_of(c));
    size_t len = co_buf_len(expected) - offset;
    require(co_buf_len(&c->session.out) >= offset + len);
    const uint8_t *listing = co_buf_bytes(&c->session.out) + offset;
    const uint8_t *at = listing + 8;
    unsigned seen = 0;
    require((int64_t)wire_get_u64(listing) == model_n_keys(model));
    for (int64_t i = 0; i < model_n_keys(model); i++) {
        struct wire_bytes key = codec_item_take(&at);
        int n = 0;
        while (n < MODEL_NAMES &&
               (names[n].len != key.len || memcmp(names[n].at, key.at, key.len) != 0))
            n++;
        require(n < MODEL_NAMES && model_has_key(model, n) && (seen & 1u << n) == 0);
        seen |= 1u << n;
    }
    require(at == listing + len);
    memcpy(expected->data + expected->start + offset, listing, len);
}

static bool run_model(struct client *c, const struct model_request *r)
{
    bool tells = r->op == WIRE_DELETE_KEY || r->op == WIRE_APPEND || r->op == WIRE_MULTI_GET ||
                 r->op == WIRE_MULTI_SET || r->op == WIRE_CANCEL_WAIT;
    c->decided = c->decided || tells;
    bool can_cancel = c->dialect == DIALECT_C || (c->dialect == DIALECT_B && c->decided);
    size_t offset = co_buf_len(model_replies(model, index_of(c)));
    if (!model_run(model, index_of(c), can_cancel ? MODEL_CAN_CANCEL : MODEL_CANNOT_CANCEL, r))
        return false;
    if (r->op == WIRE_LIST_KEYS)
        adopt_listing(c, offset);
    return true;
}

/* The session has run these requests: now the model runs them. */
static void run_taken(struct client *c)
{
    while (c->n_done < c->n_asked && c->asked[c->n_done].end <= c->n_taken) {
        const struct asked *a = &c->asked[c->n_done++];
        require(!a->is_bad);
        require(co_buf_len(model_replies(model, index_of(c))) < HIGH_WATER_BYTES);
        require(run_model(c, &a->request));
    }
    require(c->n_taken == (c->n_done > 0 ? c->asked[c->n_done - 1].end : 0));
}

static void leave(struct client *c)
{
    if (c->gone)
        return;
    session_fini(&c->session);
    model_leave(model, index_of(c));
    c->gone = true;
}

static void check_refusal(struct client *c, const struct co_error *err)
{
    require(c->n_done < c->n_asked);
    const struct asked *a = &c->asked[c->n_done];
    require(a->end <= c->n_sent);
    require(err->text[0] != '\0');
    if (c->state == -ENOSPC && strncmp(err->text, "the store is full", 17) == 0)
        require(is_tight);
    else if (c->state == -EPROTO)
        require(a->is_bad);
    else
        require(!a->is_bad && !run_model(c, &a->request));
    leave(c);
}

static void check_state(const struct client *c)
{
    const struct asked *next = c->n_done < c->n_asked ? &c->asked[c->n_done] : NULL;
    switch (c->state) {
    case SESSION_IDLE:
        require(co_buf_len(&c->in) == 0);
        break;
    case SESSION_MORE:
        require(next != NULL && next->end > c->n_sent);
        break;
    case SESSION_AMBIGUOUS:
        require(next != NULL && !c->decided);
        require(c->dialect == DIALECT_A
                    ? next->request.op == WIRE_DELETE_KEY && next->end == c->n_sent
                    : c->dialect == DIALECT_B && next->request.op == WIRE_APPEND);
        break;
    case SESSION_LATE:
        require(next != NULL && co_buf_len(&c->in) > 0);
        break;
    default:
        require(c->state == SESSION_CHOKED && co_buf_len(&c->session.out) >= HIGH_WATER_BYTES);
    }
}

static void feed(struct client *c)
{
    struct co_error err = {0};
    size_t n_used;
    bool was_late = c->state == SESSION_LATE;
    c->state = session_feed(&c->session, co_buf_bytes(&c->in), co_buf_len(&c->in), &n_used, &err);
    require(n_used <= co_buf_len(&c->in));
    require(n_used > 0 || !(was_late && c->state == SESSION_LATE)); /* it gets on */
    co_buf_consume(&c->in, n_used);
    c->n_taken += n_used;
    run_taken(c);
    if (c->state < 0)
        check_refusal(c, &err);
    else
        check_state(c);
    compare_replies();
    require(store_n_bytes(host.store) <= (is_tight ? TIGHT_STORE_BYTES : MAX_STORE_BYTES));
    require((int64_t)store_n_keys(host.store) == model_n_keys(model));
}

/* --- steps --- */

/* After a DELETE_KEY, a client of A sends nothing before it has the answer. */
static size_t may_send(const struct client *c, size_t len)
{
    if (c->dialect != DIALECT_A || c->decided)
        return len;
    for (int i = c->n_done; i < c->n_asked; i++)
        if (c->asked[i].request.op == WIRE_DELETE_KEY && !c->asked[i].is_bad)
            return len < c->asked[i].end - c->n_sent ? len : c->asked[i].end - c->n_sent;
    return len;
}

static void send_bytes(struct client *c, size_t len)
{
    len = len < co_buf_len(&c->to_send) ? len : co_buf_len(&c->to_send);
    len = may_send(c, len);
    if (len == 0)
        return;
    require(co_buf_append(&c->in, co_buf_bytes(&c->to_send), len) == 0);
    co_buf_consume(&c->to_send, len);
    c->n_sent += len;
    feed(c);
}

static void ask(struct client *c, struct script *s, enum step how, unsigned more)
{
    struct model_request r = take_request(s, c->dialect);
    if (c->n_asked == MAX_ASKED)
        return;
    put_request(c, &r);
    remember(c, &r, false);
    size_t len = co_buf_len(&c->to_send);
    if (how == STEP_ASK)
        send_bytes(c, len);
    else if (how == STEP_ASK_MOSTLY)
        send_bytes(c, len > more ? len - more - 1 : 0);
}

static void misbehave(struct client *c, unsigned kind)
{
    if (c->n_asked == MAX_ASKED)
        return;
    put_bad(c, kind % 5);
    remember(c, &(struct model_request){.op = WIRE_N_OPS}, true);
    send_bytes(c, co_buf_len(&c->to_send));
}

static void read_replies(struct client *c, unsigned more)
{
    size_t len = co_buf_len(&c->session.out);
    len = more == 0 ? len : len < 16u * more ? len : 16u * more;
    co_buf_consume(&c->session.out, len);
    co_buf_consume(model_replies(model, index_of(c)), len);
    feed(c);
}

static void pause_long(struct client *c)
{
    if (c->state != SESSION_AMBIGUOUS || c->dialect != DIALECT_A)
        return;
    session_decide_a(&c->session);
    feed(c);
    require(c->state != SESSION_AMBIGUOUS);
}

static void come(struct client *c, enum dialect dialect)
{
    co_buf_fini(&c->to_send);
    co_buf_fini(&c->in);
    c->dialect = dialect;
    c->decided = dialect == DIALECT_C;
    c->gone = false;
    c->state = SESSION_IDLE;
    c->n_asked = c->n_done = 0;
    c->n_sent = c->n_taken = 0;
    session_init(&c->session, &host);
    if (dialect == DIALECT_C) {
        const struct model_request hello = {.op = WIRE_VALIDATE, .number = WIRE_MAGIC};
        put_request(c, &hello);
        remember(c, &hello, false);
    }
}

static void run_step(struct script *s)
{
    unsigned byte = take(s);
    struct client *c = &clients[byte % MODEL_CLIENTS];
    enum step step = (enum step)(byte / MODEL_CLIENTS % 8);
    unsigned more = byte / MODEL_CLIENTS / 8;
    if (step == STEP_LEAVE) {
        leave(c);
        come(c, (enum dialect)(more % N_DIALECTS));
    } else if (c->gone) {
        return;
    } else if (step == STEP_SEND) {
        send_bytes(c, more == 0 ? take(s) : more);
    } else if (step == STEP_READ) {
        read_replies(c, more);
    } else if (step == STEP_PAUSE) {
        pause_long(c);
    } else if (step == STEP_MISBEHAVE) {
        misbehave(c, more);
    } else {
        ask(c, s, step, more);
    }
}

/* --- the whole --- */

static void on_output(struct session *s)
{
    require(co_buf_len(&s->out) > 0);
}

static void start(void)
{
    const struct store_limits limits = {
        .max_bytes = is_tight ? TIGHT_STORE_BYTES : MAX_STORE_BYTES,
        .max_names = is_tight ? MODEL_NAMES - 1 : 1000,
    };
    struct store *store;
    require(store_create(&limits, 1, session_on_wake, NULL, &store, NULL) == 0);
    host = (struct session_host){
        .store = store,
        .limits = {.max_key_bytes = MAX_KEY_BYTES,
                   .max_value_bytes = MAX_VALUE_BYTES,
                   .max_keys = MODEL_ITEMS,
                   .max_request_bytes = MODEL_ITEMS * (MAX_KEY_BYTES + MAX_VALUE_BYTES + 16) + 9},
        .high_water_bytes = HIGH_WATER_BYTES,
        .max_work = MAX_WORK,
        .max_reply_bytes = MAX_REPLY_BYTES,
        .on_output = on_output,
    };
    model = model_create(names, MAX_REPLY_BYTES);
    for (int i = 0; i < MODEL_CLIENTS; i++)
        come(&clients[i], DIALECT_C);
}

static void stop(uint64_t n_bytes_of_empty)
{
    for (int i = 0; i < MODEL_CLIENTS; i++) {
        leave(&clients[i]);
        co_buf_fini(&clients[i].to_send);
        co_buf_fini(&clients[i].in);
    }
    for (int i = 0; i < MODEL_NAMES; i++) {
        require(store_delete(host.store, names[i]) == model_has_key(model, i));
        while (store_queue_len(host.store, names[i]) > 0)
            store_queue_drop(host.store, names[i]);
    }
    require(store_n_bytes(host.store) == n_bytes_of_empty);
    store_destroy(host.store);
    model_destroy(model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > MAX_SCRIPT_BYTES)
        return 0;
    struct script s = {data, data + size};
    is_tight = take(&s) % 4 == 3;
    start();
    uint64_t n_bytes_of_empty = store_n_bytes(host.store);
    while (s.at < s.end)
        run_step(&s);
    stop(n_bytes_of_empty);
    return 0;
}
