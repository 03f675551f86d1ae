#include "plan.h"

#include "rendezvous/store/wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    FLOOD_BYTES = 1 << 20,
    LARGE_VALUE_BYTES = 256 << 10,
    N_KEYS = 12, /* few enough that clients use the same ones */
};

const char *const plan_names[PLAN_N_KINDS] = {
    "greeting", "noise", "random",  "mutated", "half",
    "promise",  "crowd", "glutton", "flood",   "nothing",
};

/* How many of a thousand conversations are of a kind: the heavy ones are rare, or nothing else
 * would get its turn. */
static const unsigned shares[PLAN_N_KINDS] = {
    [PLAN_GREETING] = 150, [PLAN_NOISE] = 150,  [PLAN_RANDOM] = 180, [PLAN_MUTATED] = 300,
    [PLAN_HALF] = 100,     [PLAN_PROMISE] = 10, [PLAN_CROWD] = 10,   [PLAN_GLUTTON] = 5,
    [PLAN_FLOOD] = 5,      [PLAN_NOTHING] = 90,
};

enum dialect {
    DIALECT_A,
    DIALECT_B,
    DIALECT_C,
    N_DIALECTS,
};

struct maker {
    uint64_t random;
    struct co_buf *out;
    bool failed;
};

/* splitmix64: any seed works, and adjacent seeds give unrelated numbers. */
static uint64_t draw(struct maker *m)
{
    uint64_t x = m->random += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static size_t below(struct maker *m, size_t n)
{
    return (size_t)(draw(m) % n);
}

/* --- bytes --- */

static void put(struct maker *m, const void *bytes, size_t len)
{
    if (!m->failed && co_buf_append(m->out, bytes, len) < 0)
        m->failed = true;
}

static void put_u8(struct maker *m, unsigned value)
{
    uint8_t byte = (uint8_t)value;
    put(m, &byte, 1);
}

static void put_u64(struct maker *m, uint64_t value)
{
    uint8_t bytes[8];
    wire_put_u64(bytes, value);
    put(m, bytes, sizeof bytes);
}

static void put_noise(struct maker *m, size_t len)
{
    for (size_t i = 0; i < len; i++)
        put_u8(m, (unsigned)draw(m));
}

static void put_key(struct maker *m)
{
    char key[16];
    int len = snprintf(key, sizeof key, "/k%zu", below(m, N_KEYS));
    put_u64(m, (uint64_t)len);
    put(m, key, (size_t)len);
}

static void put_value(struct maker *m)
{
    size_t len = below(m, 8) > 0 ? below(m, 20) : below(m, 4000);
    put_u64(m, len);
    put_noise(m, len);
}

static void put_number(struct maker *m)
{
    put_u64(m, below(m, 4) > 0 ? below(m, 5) - 1 : draw(m));
}

/* --- requests --- */

static void put_arguments(struct maker *m, enum wire_op op)
{
    size_t n = 1;
    bool counted =
        op == WIRE_CHECK || op == WIRE_WAIT || op == WIRE_MULTI_GET || op == WIRE_MULTI_SET;
    bool has_value = op == WIRE_SET || op == WIRE_APPEND || op == WIRE_QUEUE_PUSH ||
                     op == WIRE_COMPARE_SET || op == WIRE_MULTI_SET;
    if (op == WIRE_GETNUMKEYS || op == WIRE_CANCEL_WAIT || op == WIRE_LIST_KEYS || op == WIRE_PING)
        n = 0;
    if (counted)
        put_u64(m, n = below(m, 6));
    for (size_t i = 0; i < n; i++) {
        put_key(m);
        if (has_value)
            put_value(m);
    }
    if (op == WIRE_COMPARE_SET)
        put_value(m);
    if (op == WIRE_ADD || op == WIRE_BARRIER)
        put_number(m);
    if (op == WIRE_PING)
        put_noise(m, 4);
}

static void put_hello(struct maker *m)
{
    static const uint8_t hello[] = {WIRE_VALIDATE, 0xce, 0xf7, 0x85, 0x3c};
    put(m, hello, sizeof hello);
}

static void put_request(struct maker *m, enum dialect dialect)
{
    static const enum wire_op ops_of_b[] = {
        WIRE_SET,    WIRE_COMPARE_SET, WIRE_GET,        WIRE_ADD,
        WIRE_CHECK,  WIRE_WAIT,        WIRE_GETNUMKEYS, WIRE_DELETE_KEY,
        WIRE_APPEND, WIRE_MULTI_GET,   WIRE_MULTI_SET,  WIRE_CANCEL_WAIT,
    };
    enum wire_op op = (enum wire_op)(1 + below(m, WIRE_N_OPS - 1));
    if (op == WIRE_LIST_KEYS &&
        below(m, 20) > 0) /* of a full store it costs more than all others */
        op = WIRE_GETNUMKEYS;
    unsigned opcode = op;
    if (dialect == DIALECT_B)
        op = ops_of_b[opcode = (unsigned)below(m, 12)];
    if (dialect == DIALECT_A) {
        op = ops_of_b[opcode = (unsigned)below(m, 8)];
        opcode += op == WIRE_DELETE_KEY; /* there it is one higher */
    }
    put_u8(m, opcode);
    put_arguments(m, op);
}

static void put_talk(struct maker *m)
{
    enum dialect dialect = (enum dialect)below(m, N_DIALECTS);
    size_t n = 1 + below(m, 30);
    if (dialect == DIALECT_C)
        put_hello(m);
    for (size_t i = 0; i < n; i++)
        put_request(m, dialect);
}

/* --- damage --- */

static void mutate_number(struct maker *m, uint8_t *bytes, size_t len)
{
    static const uint64_t numbers[] = {
        0,
        1,
        8192,
        65536,
        65537,
        131072,
        131073,
        1u << 23,
        64u << 20,
        (64u << 20) + 1,
        (uint64_t)1 << 40,
        INT64_MAX,
        UINT64_MAX,
        UINT64_MAX - 7,
    };
    if (len >= 8)
        wire_put_u64(bytes + below(m, len - 7),
                     numbers[below(m, sizeof numbers / sizeof *numbers)]);
}

/* Bytes change in place, a run of them is lost, and another comes twice. */
static void mutate(struct maker *m)
{
    struct co_buf *b = m->out;
    for (size_t n = 1 + below(m, 6); n > 0 && co_buf_len(b) > 1; n--) {
        uint8_t *bytes = b->data + b->start;
        size_t len = co_buf_len(b);
        size_t at = below(m, len);
        switch (below(m, 5)) {
        case 0:
            bytes[at] ^= (uint8_t)(1u << below(m, 8));
            break;
        case 1:
            bytes[at] = (uint8_t)draw(m);
            break;
        case 2:
            mutate_number(m, bytes, len);
            break;
        case 3: {
            size_t lost = 1 + below(m, len - at);
            memmove(bytes + at, bytes + at + lost, len - at - lost);
            b->end -= lost;
            break;
        }
        default:
            put_noise(m, below(m, 20));
        }
    }
}

/* --- kinds --- */

static void make_greeting(struct maker *m)
{
    static const char *const greetings[] = {
        "GET / HTTP/1.1\r\nHost: store\r\nUser-Agent: scanner\r\nAccept: */*\r\n\r\n",
        "POST /v2/keys HTTP/1.0\r\nContent-Length: 1000000000\r\n\r\n",
        "SSH-2.0-scan\r\n",
        "*1\r\n$4\r\nPING\r\n",
        "EHLO store\r\n",
        "\r\n\r\n",
        "DDP1",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "\x03",
        "stats\r\nversion\r\n",
    };
    const char *greeting = greetings[below(m, sizeof greetings / sizeof *greetings)];
    put(m, greeting, strlen(greeting));
}

static void make_half(struct maker *m)
{
    put_talk(m);
    m->out->end -= below(m, co_buf_len(m->out));
}

static void make_promise(struct maker *m)
{
    put_hello(m);
    put_u8(m, WIRE_SET);
    put_key(m);
    put_u64(m, (uint64_t)(1 + below(m, 64)) << 20);
    put_noise(m, below(m, 2000));
}

static void make_crowd(struct maker *m)
{
    size_t n = 1 + below(m, 4000);
    put_hello(m);
    put_u8(m, WIRE_WAIT);
    put_u64(m, n);
    for (size_t i = 0; i < n; i++) {
        put_u64(m, 8);
        put_u64(m, draw(m));
    }
}

static void make_glutton(struct maker *m)
{
    static const uint8_t zeros[LARGE_VALUE_BYTES];
    put_hello(m);
    put_u8(m, WIRE_SET);
    put_u64(m, 6);
    put(m, "/large", 6);
    put_u64(m, sizeof zeros);
    put(m, zeros, sizeof zeros);
    for (size_t n = 100 + below(m, 400); n > 0; n--) {
        put_u8(m, WIRE_GET);
        put_u64(m, 6);
        put(m, "/large", 6);
    }
}

/* Each flood is of one kind of request. Keys that are new each time fill the store to its bound. */
static void make_flood(struct maker *m)
{
    static const enum wire_op ops[] = {WIRE_SET,   WIRE_SET,        WIRE_ADD,
                                       WIRE_PING,  WIRE_GETNUMKEYS, WIRE_QUEUE_PUSH,
                                       WIRE_CHECK, WIRE_WAIT,       WIRE_LIST_KEYS};
    enum wire_op op = ops[below(m, sizeof ops / sizeof *ops)];
    size_t most = op == WIRE_LIST_KEYS ? 20 : FLOOD_BYTES;
    put_hello(m);
    while (!m->failed && co_buf_len(m->out) < most) {
        put_u8(m, op);
        if (op == WIRE_SET) { /* a new key */
            put_u64(m, 8);
            put_u64(m, draw(m));
            put_u64(m, 0);
        } else {
            put_arguments(m, op);
        }
    }
}

static void (*const makers[PLAN_N_KINDS])(struct maker *m) = {
    [PLAN_GREETING] = make_greeting, [PLAN_RANDOM] = put_talk,      [PLAN_MUTATED] = put_talk,
    [PLAN_HALF] = make_half,         [PLAN_PROMISE] = make_promise, [PLAN_CROWD] = make_crowd,
    [PLAN_GLUTTON] = make_glutton,   [PLAN_FLOOD] = make_flood,
};

static enum plan_kind draw_kind(struct maker *m)
{
    size_t n = below(m, 1000);
    enum plan_kind kind = 0;
    while (n >= shares[kind])
        n -= shares[kind++];
    return kind;
}

int plan_init(struct plan *p, uint64_t seed, uint64_t number)
{
    *p = (struct plan){0};
    struct maker m = {.random = seed * 1000003 + number, .out = &p->bytes};
    p->kind = draw_kind(&m);
    if (makers[p->kind] != NULL)
        makers[p->kind](&m);
    if (p->kind == PLAN_NOISE)
        put_noise(&m, below(&m, 300));
    if (p->kind == PLAN_MUTATED)
        mutate(&m);
    bool is_heavy = co_buf_len(&p->bytes) > 10000;
    p->piece_bytes = is_heavy || below(&m, 4) > 0 ? SIZE_MAX : 1 + below(&m, 200);
    p->reads = p->kind != PLAN_GLUTTON && below(&m, 4) > 0;
    p->hold = (unsigned)(p->kind == PLAN_GREETING || p->kind == PLAN_NOTHING ? 0 : below(&m, 300));
    p->resets = below(&m, 3) == 0;
    if (m.failed)
        plan_fini(p);
    return m.failed ? -ENOMEM : 0;
}

void plan_fini(struct plan *p)
{
    co_buf_fini(&p->bytes);
}
