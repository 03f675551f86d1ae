/* What the clients of sim_relay.c ask: requests as bytes, and checks of the answers. */
#include "relay_world.h"

#include <string.h>

/* --- requests --- */

static void put_u64(struct co_buf *b, uint64_t value)
{
    uint8_t bytes[8];
    wire_put_u64(bytes, value);
    co_buf_append(b, bytes, sizeof bytes);
}

void ask_put_string(struct co_buf *b, const char *s, size_t len)
{
    put_u64(b, len);
    co_buf_append(b, s, len);
}

static void put_op(struct co_buf *b, enum dialect dialect, enum wire_op op)
{
    static const uint8_t of_old[WIRE_N_OPS] = {
        [WIRE_SET] = 0,    [WIRE_COMPARE_SET] = 1, [WIRE_GET] = 2,        [WIRE_ADD] = 3,
        [WIRE_CHECK] = 4,  [WIRE_WAIT] = 5,        [WIRE_GETNUMKEYS] = 6, [WIRE_DELETE_KEY] = 7,
        [WIRE_APPEND] = 8, [WIRE_MULTI_GET] = 9,   [WIRE_MULTI_SET] = 10, [WIRE_CANCEL_WAIT] = 11,
    };
    uint8_t opcode = dialect == DIALECT_C ? (uint8_t)op : of_old[op];
    if (dialect == DIALECT_A && op == WIRE_DELETE_KEY)
        opcode = 8;
    co_buf_append(b, &opcode, 1);
}

void ask_hello(struct client *c, struct co_buf *b)
{
    uint8_t magic[4];
    if (c->dialect != DIALECT_C)
        return;
    put_op(b, DIALECT_C, WIRE_VALIDATE);
    wire_put_u32(magic, WIRE_MAGIC);
    co_buf_append(b, magic, sizeof magic);
}

/* --- shared clients --- */

static const char *const shared_names[N_NAMES] = {"key", "counter", "queue"};

static void put_number(struct co_buf *b, int64_t number)
{
    char text[24];
    int len = number == 0 ? 0 : snprintf(text, sizeof text, "%" PRId64, number);
    ask_put_string(b, text, (size_t)len);
}

static const struct history_kinds {
    enum history_kind kind;
    enum wire_op op;
    int name;
} kinds[] = {
    {HISTORY_SET, WIRE_SET, 0},           {HISTORY_GET, WIRE_GET, 0},
    {HISTORY_GET, WIRE_GET, 0},           {HISTORY_COMPARE_SET, WIRE_COMPARE_SET, 0},
    {HISTORY_DELETE, WIRE_DELETE_KEY, 0}, {HISTORY_CHECK, WIRE_CHECK, 0},
    {HISTORY_WAIT, WIRE_WAIT, 0},         {HISTORY_ADD, WIRE_ADD, 1},
    {HISTORY_PUSH, WIRE_QUEUE_PUSH, 2},   {HISTORY_POP, WIRE_QUEUE_POP, 2},
};

bool ask_has_answer(enum history_kind kind)
{
    return kind != HISTORY_SET && kind != HISTORY_PUSH;
}

void ask_shared(struct world *w, struct client *c)
{
    struct history *h = &w->history;
    const struct history_kinds *k = &kinds[draw(w, sizeof kinds / sizeof *kinds)];
    if (c->n_asked == MAX_ASKED || c->waits || h->n == MAX_OPERATIONS)
        return;
    struct history_operation o = {.kind = k->kind,
                                  .name = k->name,
                                  .client = c->id,
                                  .a = 1 + h->n,
                                  .b = 1000 + h->n,
                                  .begin = w->step,
                                  .end = HISTORY_PENDING};
    if (k->kind == HISTORY_COMPARE_SET)
        o.a = (int64_t)draw(w, 2 + (uint64_t)h->n / 8);
    c->waits = k->kind == HISTORY_WAIT; /* what follows it may be answered first */
    struct co_buf *b = &c->to_send;
    put_op(b, DIALECT_C, k->op);
    if (k->op == WIRE_CHECK || k->op == WIRE_WAIT)
        put_u64(b, 1);
    ask_put_string(b, shared_names[k->name], strlen(shared_names[k->name]));
    if (k->kind == HISTORY_ADD)
        put_u64(b, (uint64_t)o.a);
    else if (k->kind == HISTORY_SET || k->kind == HISTORY_PUSH || k->kind == HISTORY_COMPARE_SET)
        put_number(b, o.a);
    if (k->kind == HISTORY_COMPARE_SET)
        put_number(b, o.b);
    c->asked[c->n_asked++] = h->n;
    h->operations[h->n++] = o;
    totals.n_operations++;
}

static int64_t number_of(const uint8_t *at, size_t len)
{
    char text[24] = "";
    memcpy(text, at, len < sizeof text ? len : sizeof text - 1);
    return strtoll(text, NULL, 10);
}

/* returns   how many bytes the answer has; 0: it is not complete */
static size_t read_answer(struct world *w, enum history_kind kind, const uint8_t *at, size_t len,
                          int64_t *ret)
{
    if (kind == HISTORY_CHECK || kind == HISTORY_WAIT) {
        if (len < 1)
            return 0;
        check(w, at[0] <= 1 && (kind == HISTORY_CHECK || at[0] == 0), "a client got a bad answer");
        *ret = at[0] == WIRE_READY;
        return 1;
    }
    if (len < 8)
        return 0;
    *ret = (int64_t)wire_get_u64(at);
    if (kind == HISTORY_ADD || kind == HISTORY_DELETE || (kind == HISTORY_POP && *ret == 0))
        return 8;
    const size_t offset = kind == HISTORY_POP ? 8 : 0;
    if (len < offset + 8)
        return 0;
    const uint64_t n = wire_get_u64(at + offset);
    check(w, n < 24, "a client got a bad answer");
    if (len < offset + 8 + n)
        return 0;
    *ret = number_of(at + offset + 8, n);
    return offset + 8 + n;
}

/* Requests without an answer were done before the next one that has one. */
void ask_end_operations(struct world *w, struct client *c, int n, int64_t result)
{
    for (int i = 0; i < n; i++)
        w->history.operations[c->asked[i]].end = w->step;
    struct history_operation *last = &w->history.operations[c->asked[n - 1]];
    last->result = result;
    if (last->kind == HISTORY_WAIT)
        c->waits = false;
    c->n_asked -= n;
    memmove(c->asked, c->asked + n, (size_t)c->n_asked * sizeof c->asked[0]);
}

void ask_read_shared(struct world *w, struct client *c)
{
    for (;;) {
        int n = 0;
        while (n < c->n_asked && !ask_has_answer(w->history.operations[c->asked[n]].kind))
            n++;
        check(w, n < c->n_asked || co_buf_len(&c->received) == 0,
              "a client got an answer without a question");
        if (n == c->n_asked)
            return;
        const struct history_operation *o = &w->history.operations[c->asked[n]];
        int64_t result;
        const size_t len =
            read_answer(w, o->kind, co_buf_bytes(&c->received), co_buf_len(&c->received), &result);
        if (len == 0)
            return;
        if (o->kind == HISTORY_GET)
            w->links[c->link].seen = result;
        co_buf_consume(&c->received, len);
        ask_end_operations(w, c, n + 1, result);
    }
}

/* --- private clients --- */

static void put_name(struct world *w, struct client *c, struct co_buf *b)
{
    char name[32];
    const int len = snprintf(name, sizeof name, "%" PRIu32 "/%d", c->id, (int)draw(w, N_OWN_NAMES));
    ask_put_string(b, name, (size_t)len);
}

static void put_value(struct world *w, struct co_buf *b)
{
    static char bytes[4096];
    const size_t len = (size_t)draw(w, draw(w, 8) == 0 ? sizeof bytes : 20);
    memset(bytes, '0' + (int)draw(w, 10), len); /* ADD takes it, or refuses it */
    ask_put_string(b, bytes, len);
}

static const enum wire_op own_ops[] = {
    WIRE_SET,        WIRE_GET,         WIRE_CHECK,      WIRE_COMPARE_SET,
    WIRE_DELETE_KEY, WIRE_WAIT,        WIRE_APPEND,     WIRE_MULTI_GET,
    WIRE_MULTI_SET,  WIRE_CANCEL_WAIT, WIRE_QUEUE_PUSH, WIRE_QUEUE_POP,
    WIRE_QUEUE_LEN,  WIRE_PING,        WIRE_BARRIER,    WIRE_ADD,
};
enum { N_OPS_OF_A = 5, N_OPS_OF_B = 10, N_OPS_OF_C = sizeof own_ops / sizeof *own_ops };

static int n_names_of(struct world *w, enum wire_op op)
{
    if (op == WIRE_PING || op == WIRE_CANCEL_WAIT)
        return 0;
    return op == WIRE_MULTI_GET || op == WIRE_MULTI_SET || op == WIRE_WAIT || op == WIRE_CHECK
               ? 1 + (int)draw(w, 3)
               : 1;
}

static void put_own_request(struct world *w, struct client *c, enum wire_op op, struct co_buf *b)
{
    const int n_names = n_names_of(w, op);
    put_op(b, c->dialect, op);
    if (op == WIRE_MULTI_GET || op == WIRE_MULTI_SET || op == WIRE_WAIT || op == WIRE_CHECK)
        put_u64(b, (uint64_t)n_names);
    for (int i = 0; i < n_names; i++) {
        put_name(w, c, b);
        if (op == WIRE_SET || op == WIRE_APPEND || op == WIRE_MULTI_SET || op == WIRE_QUEUE_PUSH ||
            op == WIRE_COMPARE_SET)
            put_value(w, b);
    }
    if (op == WIRE_COMPARE_SET)
        put_value(w, b);
    if (op == WIRE_ADD || op == WIRE_BARRIER)
        put_u64(b, op == WIRE_ADD ? draw(w, 100) : 1 + draw(w, 2));
    if (op == WIRE_PING)
        co_buf_append(b, "ping", 4);
}

bool ask_reference(struct client *c, const struct co_buf *b)
{
    size_t n_used, n_more = 0;
    struct co_error err;
    int state = session_feed(&c->reference, co_buf_bytes(b), co_buf_len(b), &n_used, &err);
    if (state == SESSION_AMBIGUOUS) {
        session_decide_a(&c->reference);
        state = session_feed(&c->reference, co_buf_bytes(b) + n_used, co_buf_len(b) - n_used,
                             &n_more, &err);
    }
    return state == SESSION_IDLE;
}

void ask_private(struct world *w, struct client *c)
{
    static const int n_ops[] = {
        [DIALECT_A] = N_OPS_OF_A, [DIALECT_B] = N_OPS_OF_B, [DIALECT_C] = N_OPS_OF_C};
    if (c->waits || co_buf_len(&c->to_send) > 6000)
        return;
    enum wire_op op = own_ops[draw(w, (uint64_t)n_ops[c->dialect])];
    struct co_buf b = {0};
    /* ADD to a text is refused and costs the connection: let it be a fresh name most of the time */
    if (op == WIRE_ADD && draw(w, 10) != 0)
        op = WIRE_GET;
    put_own_request(w, c, op, &b);
    c->waits = c->dialect == DIALECT_A && op == WIRE_DELETE_KEY;
    if (!ask_reference(c, &b))
        c->waits = true; /* it is dropped for it: nothing follows */
    co_buf_append(&c->to_send, co_buf_bytes(&b), co_buf_len(&b));
    co_buf_fini(&b);
}

void ask_read_private(struct world *w, struct client *c)
{
    const size_t len = co_buf_len(&c->received);
    check(w, len <= co_buf_len(&c->reference.out), "a client got more than a session answers");
    check(w,
          len == 0 || memcmp(co_buf_bytes(&c->received), co_buf_bytes(&c->reference.out), len) == 0,
          "a client got other bytes than a session answers");
    co_buf_consume(&c->reference.out, len);
    co_buf_consume(&c->received, len);
    totals.n_compared_bytes += len;
    if (c->dialect == DIALECT_A && co_buf_len(&c->to_send) == 0 &&
        co_buf_len(&c->reference.out) == 0)
        c->waits = false;
}
