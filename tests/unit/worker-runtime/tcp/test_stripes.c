/* test_stripes.c - exchanges over lanes in memory: each lane is a queue, in which a chance decides
 * what happens next, and which lanes fail, and where. Both sides must get all their bytes, in
 * pieces reported in order. And frames that a peer must not send. */
#include "tests/support/chance.h"
#include "tests/support/often.h"
#include "tests/support/suite.h"
#include "worker-runtime/tcp/stripes.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    LANES = 3,
    PIECES = 40,
    PIECE_MOST = 700,
    STRIPE_BYTES = 200,
    WINDOW = 5, /* pieces for which a receiver has memory */
    LAG = 4,    /* a piece is sent once the piece so many before has arrived from the other side */
    QUEUE = 16,
    EXCHANGES = 4,
    STEPS_MOST = 400000
};

struct packet {
    struct frame frame;
    uint8_t bytes[STRIPE_BYTES];
};

struct queue {
    struct packet packet[QUEUE];
    unsigned n;
    bool is_cut; /* what its sender sends from now on is lost */
};

struct side {
    struct stripes *stripes;
    struct tcp_plan plan;
    size_t bytes[2][PIECES]; /* of each piece; 1: of those that go out */
    uint8_t sent[PIECES][PIECE_MOST], got[PIECES][PIECE_MOST];
    size_t n_reported;
    uint32_t exchange;
    bool has_opened, is_agreed;
};

struct world {
    struct side side[2];
    struct queue queue[2][1 + LANES]; /* to each side */
    struct chance chance;
};

static uint64_t pick(struct world *w, uint64_t n)
{
    return chance_draw(&w->chance, n);
}

/* --- the plan --------------------------------------------------------------------------------- */

static enum tcp_next piece_of(void *arg, bool is_out, unsigned p, size_t i, struct tcp_piece *ret)
{
    struct side *s = arg;
    OFTEN_CHECK(p == 7);
    if (i == PIECES)
        return TCP_END;
    if (i >= s->n_reported + (is_out ? LAG : WINDOW))
        return TCP_LATER;
    *ret = (struct tcp_piece){is_out ? s->sent[i] : s->got[i], s->bytes[is_out][i]};
    return TCP_READY;
}

/* Pieces without bytes are not reported. */
static void on_piece(void *arg, unsigned p, size_t i)
{
    struct side *s = arg;
    OFTEN_CHECK(p == 7);
    OFTEN_CHECK(i >= s->n_reported);
    for (size_t k = s->n_reported; k < i; k++)
        OFTEN_CHECK(s->bytes[0][k] == 0);
    s->n_reported = i + 1;
}

/* --- an exchange ------------------------------------------------------------------------------ */

static void fill(struct world *w)
{
    for (int from = 0; from < 2; from++) {
        struct side *out = &w->side[from], *in = &w->side[1 - from];
        for (size_t i = 0; i < PIECES; i++) {
            const size_t bytes = i == 0 ? 1 : pick(w, 4) == 0 ? i % 2 : pick(w, PIECE_MOST);
            out->bytes[1][i] = in->bytes[0][i] = bytes == 0 && i % 3 != 0 ? 1 : bytes;
            for (size_t k = 0; k < PIECE_MOST; k++)
                out->sent[i][k] = (uint8_t)pick(w, 256);
        }
    }
}

/* On the first connection comes a frame that opens an exchange. */
static void open_side(struct world *w, unsigned me)
{
    struct side *s = &w->side[me];
    struct queue *q = &w->queue[1 - me][0];
    s->n_reported = 0;
    s->exchange++;
    s->has_opened = true;
    s->is_agreed = false;
    stripes_open(s->stripes, &s->plan, 7, s->exchange, STRIPE_BYTES, PIECES * PIECE_MOST);
    ck_assert_uint_lt(q->n, QUEUE);
    q->packet[q->n++].frame =
        (struct frame){.magic = FRAME_MAGIC, .kind = FRAME_STRIPED, .exchange = s->exchange};
}

static void say(struct world *w, unsigned me, unsigned lane)
{
    struct side *s = &w->side[me];
    struct queue *q = &w->queue[1 - me][lane];
    struct tcp_piece piece;
    struct packet packet;
    if (q->n >= QUEUE - 1 || stripes_say(s->stripes, lane, &packet.frame, &piece) != TCP_READY)
        return;
    OFTEN_CHECK(piece.bytes <= STRIPE_BYTES);
    if (piece.bytes > 0)
        memcpy(packet.bytes, piece.at, piece.bytes);
    if (!q->is_cut)
        q->packet[q->n++] = packet;
}

static void lose(struct world *w, unsigned me, unsigned lane)
{
    stripes_lose(w->side[me].stripes, lane);
    w->queue[me][lane].n = 0;
}

static void hear(struct world *w, unsigned me, unsigned lane, bool breaks)
{
    struct side *s = &w->side[me];
    struct queue *q = &w->queue[me][lane];
    const struct frame *f = &q->packet[0].frame;
    struct tcp_piece piece;
    if (q->n == 0 || !stripes_expects(s->stripes, lane) || (lane > 0 && !s->is_agreed))
        return;
    if (f->kind == FRAME_STRIPED) {
        OFTEN_CHECK(f->exchange == s->exchange);
        s->is_agreed = true;
    } else if (!s->is_agreed) {
        OFTEN_CHECK(stripes_hear_lost(s->stripes, f) == TCP_READY);
    } else {
        const int code = stripes_hear(s->stripes, lane, f, &piece);
        OFTEN_CHECK(code >= 0);
        if (code == TCP_LATER)
            return;
        if (piece.bytes > 0 && breaks) { /* in the middle of the bytes */
            memcpy(piece.at, q->packet[0].bytes, piece.bytes / 2);
            lose(w, me, lane);
            return;
        }
        if (piece.bytes > 0) {
            OFTEN_CHECK(piece.bytes == f->bytes);
            memcpy(piece.at, q->packet[0].bytes, piece.bytes);
            OFTEN_CHECK(stripes_heard(s->stripes, lane) == 0);
        }
    }
    memmove(&q->packet[0], &q->packet[1], --q->n * sizeof q->packet[0]);
}

/* A path breaks: what is on it is lost, from anywhere on, and in one direction or both. Sometimes
 * both sides see it, sometimes only one does, and reports it. */
static void break_lane(struct world *w, unsigned lane)
{
    const unsigned first = (unsigned)pick(w, 2);
    for (unsigned me = 0; me < 2; me++) {
        struct queue *q = &w->queue[me][lane];
        q->n = (unsigned)pick(w, q->n + 1);
        q->is_cut = true;
        if (me == first || pick(w, 2) == 0)
            lose(w, me, lane);
    }
}

static void step(struct world *w, unsigned failures)
{
    const unsigned me = (unsigned)pick(w, 2), lane = (unsigned)pick(w, 1 + LANES);
    if (!stripes_is_lost(w->side[me].stripes, lane) && pick(w, 2) == 0)
        say(w, me, lane);
    if (!stripes_is_lost(w->side[me].stripes, lane))
        hear(w, me, lane, lane > 0 && failures > 0 && pick(w, 150) == 0);
    if (lane > 0 && failures > 0 && pick(w, 400 / failures) == 0)
        break_lane(w, lane);
    if (stripes_is_lost(w->side[me].stripes, lane))
        w->queue[me][lane].is_cut = true;
}

static void run_exchange(struct world *w, unsigned failures)
{
    int steps = 0;
    fill(w);
    memset(w->side[0].got, 0, sizeof w->side[0].got);
    memset(w->side[1].got, 0, sizeof w->side[1].got);
    for (int i = 0; i < 2; i++)
        w->side[i].has_opened = false;
    for (bool over = false; !over; steps++) {
        OFTEN_CHECK(steps < STEPS_MOST); /* it ends */
        const unsigned me = (unsigned)pick(w, 2);
        if (!w->side[me].has_opened && (w->side[1 - me].has_opened || pick(w, 9) == 0))
            open_side(w, me);
        if (w->side[0].has_opened && w->side[1].has_opened)
            step(w, failures);
        over = w->side[0].has_opened && w->side[1].has_opened &&
               stripes_is_over(w->side[0].stripes) && stripes_is_over(w->side[1].stripes);
    }
    for (int to = 0; to < 2; to++)
        for (size_t i = 0; i < PIECES; i++)
            ck_assert_msg(
                memcmp(w->side[to].got[i], w->side[1 - to].sent[i], w->side[to].bytes[0][i]) == 0,
                "piece %zu", i);
}

static struct world *world_create(uint64_t seed)
{
    struct world *w = calloc(1, sizeof *w);
    ck_assert_ptr_nonnull(w);
    w->chance = chance_from(seed);
    for (int i = 0; i < 2; i++) {
        struct side *s = &w->side[i];
        s->stripes = stripes_create(LANES);
        ck_assert_ptr_nonnull(s->stripes);
        s->plan = (struct tcp_plan){.arg = s, .piece = piece_of, .on_piece = on_piece};
    }
    return w;
}

static void world_destroy(struct world *w)
{
    for (int i = 0; i < 2; i++)
        stripes_destroy(w->side[i].stripes);
    free(w);
}

/* _i   how many failures, roughly */
START_TEST(all_bytes_arrive_whatever_lanes_fail)
{
    enum { SEEDS = 60 };
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct world *w = world_create(seed * 7919);
        for (int i = 0; i < EXCHANGES; i++)
            run_exchange(w, (unsigned)_i);
        world_destroy(w);
    }
}
END_TEST

/* --- frames that a peer must not send --------------------------------------------------------- */

/* Into side 0, which has opened exchange 1 and sent the first stripe on lane 1. */
static int hear_one(struct frame f, unsigned lane, unsigned times)
{
    struct world *w = world_create(1);
    struct frame said;
    struct tcp_piece piece;
    int code = TCP_READY;
    fill(w);
    w->side[0].bytes[0][0] = 100;
    open_side(w, 0);
    ck_assert_int_eq(stripes_say(w->side[0].stripes, 1, &said, &piece), TCP_READY);
    for (unsigned i = 0; i < times && code == TCP_READY; i++)
        code = stripes_hear(w->side[0].stripes, lane, &f, &piece);
    world_destroy(w);
    return code;
}

static const struct {
    struct frame frame;
    unsigned lane, times;
} bad[] = {
    {{.magic = 0, .kind = FRAME_ALL, .exchange = 1}, 0, 1},
    {{.magic = FRAME_MAGIC, .kind = FRAME_CALL, .exchange = 1}, 0, 1},
    {{.magic = FRAME_MAGIC, .kind = FRAME_LEFT, .exchange = 1}, 1, 1},
    {{.magic = FRAME_MAGIC, .kind = 99, .exchange = 1}, 1, 1},
    {{.magic = FRAME_MAGIC, .kind = FRAME_ALL, .exchange = 1}, 0, 1}, /* not all are sent */
    {{.magic = FRAME_MAGIC, .kind = FRAME_ALL, .exchange = 1}, 1, 1}, /* on another lane */
    {{.magic = FRAME_MAGIC, .kind = FRAME_ALL, .exchange = 2}, 0, 1},
    {{.magic = FRAME_MAGIC, .kind = FRAME_LOST, .number = 1, .exchange = 1}, 1, 1},
    {{.magic = FRAME_MAGIC, .kind = FRAME_LOST, .number = 0, .exchange = 1}, 0, 1},
    {{.magic = FRAME_MAGIC, .kind = FRAME_LOST, .number = LANES + 1, .exchange = 1}, 0, 1},
    {{.magic = FRAME_MAGIC, .kind = FRAME_LOST, .number = UINT32_MAX, .exchange = 1}, 0, 1},
    {{.magic = FRAME_MAGIC, .kind = FRAME_LOST, .number = 1, .exchange = 1, .bytes = 2}, 0, 1},
    {{.magic = FRAME_MAGIC, .kind = FRAME_LOST, .number = 1, .exchange = 2}, 0, 1},
    {{.magic = FRAME_MAGIC, .kind = FRAME_LOST, .number = 1, .exchange = 1}, 0, 2}, /* twice */
    {{.magic = FRAME_MAGIC, .kind = FRAME_STRIPE, .number = 0, .exchange = 1}, 1, 1},
    {{.magic = FRAME_MAGIC, .kind = FRAME_STRIPE, .number = 0, .exchange = 1, .bytes = 99}, 1, 1},
    {{.magic = FRAME_MAGIC, .kind = FRAME_STRIPE, .exchange = 1, .bytes = STRIPE_BYTES + 1}, 1, 1},
    {{.magic = FRAME_MAGIC, .kind = FRAME_STRIPE, .exchange = 1, .bytes = UINT64_MAX}, 1, 1},
    {{.magic = FRAME_MAGIC, .kind = FRAME_STRIPE, .exchange = 3, .bytes = 100}, 1, 1},
    {{.magic = FRAME_MAGIC, .kind = FRAME_STRIPE, .exchange = 0, .bytes = 100}, 1, 1},
    {{.magic = FRAME_MAGIC, .kind = FRAME_STRIPE, .exchange = 2, .bytes = 100}, 0, 1},
    {{.magic = FRAME_MAGIC, .kind = FRAME_STRIPE, .exchange = 1, .bytes = 100}, 1, 2}, /* twice */
};

START_TEST(a_frame_that_a_peer_must_not_send_is_refused)
{
    ck_assert_int_eq(hear_one(bad[_i].frame, bad[_i].lane, bad[_i].times), -EPROTO);
}
END_TEST

START_TEST(a_stripe_has_to_wait_for_its_memory_and_for_its_exchange)
{
    struct frame f = {.magic = FRAME_MAGIC, .kind = FRAME_STRIPE, .exchange = 1, .bytes = 100};
    ck_assert_int_eq(hear_one(f, 1, 1), TCP_READY);
    f.number = 1000;
    ck_assert_int_eq(hear_one(f, 1, 1), TCP_LATER);
    f.number = 0;
    f.exchange = 2;
    ck_assert_int_eq(hear_one(f, 1, 1), TCP_LATER);
}
END_TEST

/* After a loss a stripe may come before its memory: only as many bytes as the exchange has. */
START_TEST(stripes_that_come_early_are_bounded)
{
    struct world *w = world_create(1);
    struct frame f = {.magic = FRAME_MAGIC, .kind = FRAME_STRIPE, .exchange = 1, .bytes = 100};
    struct tcp_piece piece;
    fill(w);
    open_side(w, 0);
    stripes_lose(w->side[0].stripes, 1);
    size_t n = 0;
    int code;
    for (f.number = 1000;; f.number++, n++) {
        code = stripes_hear(w->side[0].stripes, 2, &f, &piece);
        if (code != TCP_READY)
            break;
        ck_assert_int_eq(stripes_heard(w->side[0].stripes, 2), 0);
    }
    ck_assert_int_eq(code, -EPROTO);
    ck_assert_uint_eq(n, PIECES * PIECE_MOST / 100);
    world_destroy(w);
}
END_TEST

TEST_SUITE(stripes)
{
    Suite *suite = suite_create("stripes");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, all_bytes_arrive_whatever_lanes_fail, 0, 5);
    tcase_add_loop_test(tcase, a_frame_that_a_peer_must_not_send_is_refused, 0,
                        sizeof bad / sizeof *bad);
    tcase_add_test(tcase, a_stripe_has_to_wait_for_its_memory_and_for_its_exchange);
    tcase_add_test(tcase, stripes_that_come_early_are_bounded);
    suite_add_tcase(suite, tcase);
    return suite;
}
