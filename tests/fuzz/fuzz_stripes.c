/* fuzz_stripes.c - what a peer sends on the lanes of striped exchanges. The input is a list of
 * steps of 12 bytes: a frame that arrives on a lane, with any of its fields; something that this
 * side sends; a lane that fails. Whatever comes, this side writes only to memory of its pieces or
 * its own, and the bytes that it keeps are bounded. */
#include "fuzz.h"
#include "worker-runtime/tcp/stripes.h"

#include <string.h>

enum { LANES = 3, PIECES = 12, PIECE_BYTES = 300, STRIPE_BYTES = 128, WINDOW = 3, STEP_BYTES = 12 };

struct side {
    uint8_t sent[PIECES][PIECE_BYTES], got[PIECES][PIECE_BYTES];
    size_t n_reported;
};

static enum tcp_next piece_of(void *arg, bool is_out, unsigned p, size_t i, struct tcp_piece *ret)
{
    struct side *s = arg;
    require(p == 0);
    if (i >= PIECES)
        return TCP_END;
    if (i >= s->n_reported + WINDOW)
        return TCP_LATER;
    *ret = (struct tcp_piece){is_out ? s->sent[i] : s->got[i], i % 5 == 4 ? 0 : PIECE_BYTES};
    return TCP_READY;
}

static void on_piece(void *arg, unsigned p, size_t i)
{
    struct side *s = arg;
    require(p == 0 && i >= s->n_reported && i < PIECES);
    s->n_reported = i + 1;
}

static uint32_t number_at(const uint8_t *at)
{
    uint32_t n;
    memcpy(&n, at, sizeof n);
    return n;
}

/* returns whether the connection goes on */
static bool hear(struct stripes *s, unsigned lane, const struct frame *f, bool breaks)
{
    struct tcp_piece piece;
    const int code = stripes_hear(s, lane, f, &piece);
    if (code <= 0 || piece.bytes == 0)
        return code >= 0;
    require(piece.bytes == f->bytes && piece.bytes <= STRIPE_BYTES);
    memset(piece.at, 7, piece.bytes);
    if (breaks && lane > 0)
        stripes_lose(s, lane);
    else
        return stripes_heard(s, lane) == 0;
    return true;
}

static void say(struct stripes *s, unsigned lane)
{
    struct frame f;
    struct tcp_piece piece;
    if (stripes_say(s, lane, &f, &piece) != TCP_READY)
        return;
    require(f.magic == FRAME_MAGIC && piece.bytes <= STRIPE_BYTES);
    uint8_t copy[STRIPE_BYTES];
    if (piece.bytes > 0)
        memcpy(copy, piece.at, piece.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct side side;
    const struct tcp_plan plan = {.arg = &side, .piece = piece_of, .on_piece = on_piece};
    struct stripes *s = stripes_create(LANES);
    uint32_t exchange = 1;
    bool goes_on = s != NULL;
    side.n_reported = 0;
    if (goes_on)
        stripes_open(s, &plan, 0, exchange, STRIPE_BYTES, PIECES * PIECE_BYTES);
    for (; goes_on && size >= STEP_BYTES; data += STEP_BYTES, size -= STEP_BYTES) {
        const unsigned lane = data[1] % (1 + LANES);
        const struct frame f = {.magic = FRAME_MAGIC,
                                .kind = data[2],
                                .exchange = exchange + data[3] - 1u,
                                .number = number_at(data + 4),
                                .bytes = number_at(data + 8)};
        const bool expects = stripes_expects(s, lane);
        if (data[0] % 4 == 0 && (lane == 0 || !stripes_is_lost(s, lane)))
            say(s, lane);
        else if (data[0] % 4 == 1 && expects)
            goes_on = hear(s, lane, &f, data[0] >= 128);
        else if (data[0] % 4 == 2 && lane > 0)
            stripes_lose(s, lane);
        else if (data[0] % 4 == 3 && stripes_is_over(s)) {
            side.n_reported = 0;
            stripes_open(s, &plan, 0, ++exchange, STRIPE_BYTES, PIECES * PIECE_BYTES);
        }
    }
    stripes_destroy(s);
    return 0;
}
