/* stripes.c - the stripes of an exchange: what is sent next, where what arrives belongs, and what
 * has to be sent again.
 *
 * Read stripes_say() and stripes_hear() first. Both directions have a list of the stripes that were
 * cut so far (cut()): in the order of numbers, and no further than the plan allows. */
#include "stripes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { NO_LANE = 255 };

struct stripe {
    uint8_t *at;
    uint32_t bytes;
    uint32_t piece; /* to which it belongs */
    uint32_t order; /* out: how many were sent on its lane before */
    uint8_t lane;   /* out: on which it was sent; NO_LANE: it is to be sent (again) */
    bool is_last;   /* of its piece */
    bool is_taken;  /* in: it is arriving, or has arrived */
    bool is_here;   /* in: it has arrived */
};

struct list { /* one direction */
    struct stripe *stripe;
    size_t n, room;
    size_t n_pieces;       /* that were begun to be cut */
    struct tcp_piece rest; /* of the last one */
    bool is_cut;           /* the plan has no more */
};

struct early { /* a stripe that came before its memory was free */
    uint32_t number, bytes;
    bool is_here;
    uint8_t *data; /* owned */
};

struct incoming { /* what arrives on a lane */
    bool is_open;
    uint32_t number;
};

struct stripes {
    unsigned n_lanes;
    uint32_t lost, announced,
        heard; /* a bit per lane: given up here; the peer knows; the peer gave it up */

    /* of the open exchange */
    const struct tcp_plan *plan;
    unsigned p;
    uint32_t exchange;
    size_t stripe_bytes;
    uint64_t left_bytes; /* that may come early */
    struct list out, in;
    size_t n_again;                          /* of out: to be sent again */
    size_t n_ordered;                        /* of in: all before have arrived, and were reported */
    uint32_t n_sent[1 + STRIPES_LANES_MOST]; /* on each lane */
    uint32_t n_arrived[1 + STRIPES_LANES_MOST];
    struct incoming incoming[1 + STRIPES_LANES_MOST];
    bool had_loss, has_said_all, has_heard_all;
    struct early *early;
    size_t n_early, early_room;
};

static uint32_t bit(unsigned lane)
{
    return UINT32_C(1) << lane;
}

struct stripes *stripes_create(unsigned n_lanes)
{
    struct stripes *s = calloc(1, sizeof *s);
    if (s != NULL) {
        s->n_lanes = n_lanes;
        s->has_said_all = s->has_heard_all = true;
    }
    return s;
}

static void drop_early(struct stripes *s, size_t i)
{
    free(s->early[i].data);
    s->early[i] = s->early[--s->n_early];
}

void stripes_destroy(struct stripes *s)
{
    if (s == NULL)
        return;
    while (s->n_early > 0)
        drop_early(s, 0);
    free(s->early);
    free(s->out.stripe);
    free(s->in.stripe);
    free(s);
}

static void list_reset(struct list *l)
{
    *l = (struct list){.stripe = l->stripe, .room = l->room};
}

void stripes_open(struct stripes *s, const struct tcp_plan *plan, unsigned p, uint32_t exchange,
                  size_t stripe_bytes, uint64_t bytes)
{
    s->plan = plan;
    s->p = p;
    s->exchange = exchange;
    s->stripe_bytes = stripe_bytes;
    s->left_bytes = bytes;
    list_reset(&s->out);
    list_reset(&s->in);
    s->n_again = s->n_ordered = 0;
    memset(s->n_sent, 0, sizeof s->n_sent);
    memset(s->n_arrived, 0, sizeof s->n_arrived);
    memset(s->incoming, 0, sizeof s->incoming);
    s->has_said_all = s->has_heard_all = false;
    s->had_loss = (s->lost & ~s->heard) != 0; /* the peer may still have used such a lane */
    while (s->n_early > 0)
        drop_early(s, 0);
}

bool stripes_is_lost(const struct stripes *s, unsigned lane)
{
    return (s->lost & bit(lane)) != 0;
}

/* Have space for one more. returns 0, -ENOMEM */
static int make_room(void **at, size_t n, size_t *room, size_t size)
{
    if (n < *room)
        return 0;
    const size_t more = *room == 0 ? 64 : 2 * *room;
    void *grown = reallocarray(*at, more, size);
    if (grown == NULL)
        return -ENOMEM;
    *at = grown;
    *room = more;
    return 0;
}

/* Append the next stripe. returns TCP_READY; TCP_LATER; TCP_END all are cut; -ENOMEM */
static int cut(const struct stripes *s, struct list *l, bool is_out)
{
    while (l->rest.bytes == 0 && !l->is_cut) {
        const enum tcp_next next =
            s->plan->piece(s->plan->arg, is_out, s->p, l->n_pieces, &l->rest);
        if (next == TCP_LATER) {
            l->rest.bytes = 0;
            return TCP_LATER;
        }
        if (next == TCP_END) {
            l->rest.bytes = 0;
            l->is_cut = true;
        } else {
            l->n_pieces++;
        }
    }
    if (l->is_cut)
        return TCP_END;
    void *list = l->stripe;
    if (make_room(&list, l->n, &l->room, sizeof *l->stripe) != 0)
        return -ENOMEM;
    l->stripe = list;
    const size_t bytes = l->rest.bytes < s->stripe_bytes ? l->rest.bytes : s->stripe_bytes;
    l->stripe[l->n++] = (struct stripe){.at = l->rest.at,
                                        .bytes = (uint32_t)bytes,
                                        .piece = (uint32_t)(l->n_pieces - 1),
                                        .lane = NO_LANE,
                                        .is_last = bytes == l->rest.bytes};
    l->rest.at = (uint8_t *)l->rest.at + bytes;
    l->rest.bytes -= bytes;
    return TCP_READY;
}

/* --- sending ---------------------------------------------------------------------------------- */

/* No lane is left but the first connection, and it is known what arrived on each of the others. */
static bool needs_first(const struct stripes *s)
{
    const uint32_t all = (bit(s->n_lanes + 1) - 1) & ~bit(0);
    return (s->lost & s->heard & all) == all;
}

/* returns   TCP_READY the stripe to send next; TCP_LATER; TCP_END none is left; -ENOMEM */
static int next_stripe(struct stripes *s, size_t *ret)
{
    if (s->n_again == 0) {
        const int code = cut(s, &s->out, true);
        if (code == TCP_READY)
            *ret = s->out.n - 1;
        return code;
    }
    size_t i = 0;
    while (s->out.stripe[i].lane != NO_LANE)
        i++;
    s->n_again--;
    *ret = i;
    return TCP_READY;
}

static struct frame frame_of(const struct stripes *s, enum frame_kind kind, uint32_t number,
                             uint64_t bytes)
{
    return (struct frame){.magic = FRAME_MAGIC,
                          .kind = (uint32_t)kind,
                          .number = number,
                          .exchange = s->exchange,
                          .bytes = bytes};
}

/* Whether everything has arrived. returns TCP_READY; TCP_LATER; -ENOMEM */
static int find_end(struct stripes *s)
{
    if (s->n_ordered < s->in.n)
        return TCP_LATER;
    const int code = cut(s, &s->in, false);
    return code == TCP_END ? TCP_READY : code < 0 ? code : TCP_LATER;
}

/* What the two sides report to each other. returns TCP_READY; TCP_LATER nothing; -ENOMEM */
static int say_news(struct stripes *s, struct frame *ret)
{
    const uint32_t unannounced = s->lost & ~s->announced;
    if (unannounced != 0) {
        const unsigned lane = (unsigned)__builtin_ctz(unannounced);
        s->announced |= bit(lane);
        *ret = frame_of(s, FRAME_LOST, lane, s->n_arrived[lane]);
        return TCP_READY;
    }
    const int code = s->has_said_all ? TCP_LATER : find_end(s);
    if (code == TCP_READY) {
        s->has_said_all = true;
        *ret = frame_of(s, FRAME_ALL, 0, 0);
    }
    return code;
}

int stripes_say(struct stripes *s, unsigned lane, struct frame *ret_frame, struct tcp_piece *ret)
{
    size_t i;
    *ret = (struct tcp_piece){0};
    int code = lane == 0 ? say_news(s, ret_frame) : TCP_LATER;
    if (code != TCP_LATER)
        return code;
    if (lane == 0 ? !needs_first(s) : stripes_is_lost(s, lane))
        return TCP_LATER;
    code = next_stripe(s, &i);
    if (code != TCP_READY)
        return code == TCP_END ? TCP_LATER : code;
    struct stripe *x = &s->out.stripe[i];
    x->lane = (uint8_t)lane;
    x->order = s->n_sent[lane]++;
    *ret_frame = frame_of(s, FRAME_STRIPE, (uint32_t)i, x->bytes);
    *ret = (struct tcp_piece){x->at, x->bytes};
    return TCP_READY;
}

/* --- receiving -------------------------------------------------------------------------------- */

static struct early *find_early(const struct stripes *s, uint32_t number)
{
    for (size_t i = 0; i < s->n_early; i++)
        if (s->early[i].number == number)
            return &s->early[i];
    return NULL;
}

/* Keep a stripe whose place does not exist yet. */
static int take_early(struct stripes *s, const struct frame *f, struct tcp_piece *ret)
{
    void *list = s->early;
    if (find_early(s, f->number) != NULL || f->bytes > s->left_bytes)
        return -EPROTO;
    if (make_room(&list, s->n_early, &s->early_room, sizeof *s->early) != 0)
        return -ENOMEM;
    s->early = list;
    uint8_t *data = malloc(f->bytes);
    if (data == NULL)
        return -ENOMEM;
    s->early[s->n_early++] =
        (struct early){.number = f->number, .bytes = (uint32_t)f->bytes, .data = data};
    s->left_bytes -= f->bytes;
    *ret = (struct tcp_piece){data, f->bytes};
    return TCP_READY;
}

/* Have the list reach a number. returns TCP_READY; TCP_LATER; TCP_END, -ENOMEM */
static int cut_to(struct stripes *s, uint32_t number)
{
    int code = TCP_READY;
    while (s->in.n <= number && code == TCP_READY)
        code = cut(s, &s->in, false);
    return code;
}

static int take_stripe(struct stripes *s, unsigned lane, const struct frame *f,
                       struct tcp_piece *ret)
{
    if (s->incoming[lane].is_open || f->bytes == 0 || f->bytes > s->stripe_bytes)
        return -EPROTO;
    int code = cut_to(s, f->number);
    if (code == TCP_END)
        return -EPROTO;
    if (code == TCP_LATER)
        code = s->had_loss ? take_early(s, f, ret) : TCP_LATER;
    else if (code == TCP_READY) {
        struct stripe *x = &s->in.stripe[f->number];
        if (x->is_taken || x->bytes != f->bytes)
            return -EPROTO;
        x->is_taken = true;
        *ret = (struct tcp_piece){x->at, x->bytes};
    }
    if (code == TCP_READY)
        s->incoming[lane] = (struct incoming){true, f->number};
    return code;
}

static int hear_all(struct stripes *s)
{
    if (s->has_heard_all || s->n_again > 0 || cut(s, &s->out, true) != TCP_END)
        return -EPROTO;
    s->has_heard_all = true;
    return TCP_READY;
}

int stripes_hear_lost(struct stripes *s, const struct frame *f)
{
    const unsigned lane = f->number;
    if (f->exchange > s->exchange || lane == 0 || lane > s->n_lanes || (s->heard & bit(lane)) != 0)
        return -EPROTO;
    /* of an exchange that is over here: of this one the peer had nothing yet */
    const uint64_t n_arrived = f->exchange == s->exchange ? f->bytes : 0;
    if (n_arrived > s->n_sent[lane])
        return -EPROTO;
    stripes_lose(s, lane);
    s->heard |= bit(lane);
    for (size_t i = 0; i < s->out.n && !s->has_heard_all; i++) {
        struct stripe *x = &s->out.stripe[i];
        if (x->lane != lane || x->order < n_arrived)
            continue;
        x->lane = NO_LANE;
        s->n_again++;
    }
    return TCP_READY;
}

int stripes_hear(struct stripes *s, unsigned lane, const struct frame *f, struct tcp_piece *ret)
{
    *ret = (struct tcp_piece){0};
    if (f->magic != FRAME_MAGIC)
        return -EPROTO;
    if (lane == 0 && f->kind == FRAME_LOST)
        return stripes_hear_lost(s, f);
    if (lane != 0 && f->kind == FRAME_STRIPE && f->exchange == s->exchange + 1)
        return TCP_LATER; /* the peer is one ahead */
    if (f->exchange != s->exchange)
        return -EPROTO;
    if (f->kind == FRAME_STRIPE)
        return take_stripe(s, lane, f, ret);
    return lane == 0 && f->kind == FRAME_ALL ? hear_all(s) : -EPROTO;
}

/* Report pieces in their order, as far as all of them has arrived. */
static void report(struct stripes *s)
{
    while (s->n_ordered < s->in.n && s->in.stripe[s->n_ordered].is_here) {
        const struct stripe *x = &s->in.stripe[s->n_ordered++];
        if (x->is_last && s->plan->on_piece != NULL)
            s->plan->on_piece(s->plan->arg, s->p, x->piece);
    }
}

/* Put a stripe that came early in its place. */
static int settle(struct stripes *s, const struct early *e)
{
    struct stripe *x = &s->in.stripe[e->number];
    if (x->is_taken || x->bytes != e->bytes)
        return -EPROTO;
    memcpy(x->at, e->data, e->bytes);
    x->is_taken = x->is_here = true;
    return 0;
}

/* And all for which there is one now: a report may have made more. */
static int settle_all(struct stripes *s)
{
    for (size_t i = 0; i < s->n_early;) {
        const int code = s->early[i].is_here ? cut_to(s, s->early[i].number) : TCP_LATER;
        if (code == TCP_END)
            return -EPROTO;
        if (code == TCP_LATER) {
            i++;
            continue;
        }
        if (code < 0)
            return code;
        const int result = settle(s, &s->early[i]);
        if (result != 0)
            return result;
        s->left_bytes += s->early[i].bytes;
        drop_early(s, i);
        report(s);
        i = 0;
    }
    return 0;
}

int stripes_heard(struct stripes *s, unsigned lane)
{
    const uint32_t number = s->incoming[lane].number;
    struct early *e = find_early(s, number);
    s->incoming[lane].is_open = false;
    s->n_arrived[lane]++;
    if (e != NULL)
        e->is_here = true;
    else
        s->in.stripe[number].is_here = true;
    report(s);
    return settle_all(s);
}

/* --- losing ----------------------------------------------------------------------------------- */

void stripes_lose(struct stripes *s, unsigned lane)
{
    struct incoming *c = &s->incoming[lane];
    if (stripes_is_lost(s, lane))
        return;
    s->lost |= bit(lane);
    s->had_loss = true;
    if (!c->is_open)
        return;
    c->is_open = false;
    struct early *e = find_early(s, c->number);
    if (e != NULL) {
        s->left_bytes += e->bytes;
        drop_early(s, (size_t)(e - s->early));
    } else {
        s->in.stripe[c->number].is_taken = false;
    }
}

bool stripes_is_over(const struct stripes *s)
{
    return s->has_said_all && s->has_heard_all;
}

bool stripes_expects(const struct stripes *s, unsigned lane)
{
    return lane == 0 ? !stripes_is_over(s) : !s->has_said_all && !stripes_is_lost(s, lane);
}
