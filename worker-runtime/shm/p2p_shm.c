/* p2p_shm.c - messages between two ranks of a group on one node.
 *
 * Each rank keeps what it sends in an outbox in its own user segment: a ring of 64 slots for each
 * receiver. A short message rides in its slot; of a long one the slot has the address, and the
 * receiver fetches it: from the user segment, by system call from ordinary memory, or, where
 * neither can be, through a staging buffer that the sender fills piece by piece. A rank writes into
 * another's memory only the words by which both negotiate about a slot.
 *
 * Matching is the receiver's: it looks through the slots in the order of sending and takes the
 * first with its tag. So unmatched messages are bounded by the ring, and a sender waits when it is
 * full.
 *
 * p2p_shm_begin() adds a message to the list of those that are open, and advance_locked() continues
 * all of them: advance_send() and advance_receive() are the two sides. */
#include "common/clock.h"
#include "common/error.h"
#include "cpu.h"
#include "segments/control.h"
#include "worker-runtime/core/user_segment.h"

#include <ddp/env.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#define MESSAGES_SHORT_BYTES 4096 /* that ride in a slot */
#define MESSAGES_SLOTS       64   /* of a ring */

enum {
    CHUNK_BYTES = 64 * 1024, /* of a staged message; two of them take turns */
    TRIES = 200,             /* to continue, before sleeping; a few if ranks share processors */
    FEW_TRIES = 4,
    NAP_US = 1000, /* how late a death is noticed */
};

/* A slot goes round: FREE -> POSTED by its sender; then FREE again by the receiver if the message
 * rides in it; else -> TAKEN by the receiver once it has fetched it, -> FREE by the sender. Staged:
 * POSTED -> STAGED by the receiver, which asks the sender to fill the staging buffer. */
enum slot_state { SLOT_FREE, SLOT_POSTED, SLOT_STAGED, SLOT_TAKEN };

struct message_slot {
    _Alignas(64) _Atomic uint64_t state; /* number of the message << 8 | enum slot_state */
    int32_t tag;
    uint32_t dtype;
    uint64_t count;
    uint64_t place; /* of a long one: offset into the sender's user segment, or address */
    uint64_t probe; /* as in struct transport_shm_place */
    uint32_t pid;
    uint32_t in_segment;
    _Atomic uint32_t written, read; /* chunks of a staged one */
    _Alignas(64) uint8_t bytes[MESSAGES_SHORT_BYTES];
};

struct ring { /* from one rank to another */
    struct message_slot slot[MESSAGES_SLOTS];
    uint8_t chunk[2][CHUNK_BYTES];
};

struct outbox {
    struct control_line bell; /* rung by peers that did something for this rank */
    struct ring ring[];       /* one for each rank */
};

struct peer {
    uint32_t next_out;            /* number of the next message to it */
    uint32_t next_in;             /* messages from it below have been taken, */
    uint64_t taken;               /* and next_in + i if bit i is set */
    const struct message *staged; /* the one that comes through the staging buffer */
    /* in a pass over all open messages, so that none overtakes those before it: */
    uint64_t looked, full; /* the pass in which its ring was looked at; in which ours was full */
    uint32_t posted;       /* messages from it below have been posted when it was looked at */
};

struct p2p_shm {
    struct cpu *c;
    pthread_mutex_t mutex; /* guards what follows */
    struct outbox *own;
    struct message *first, **last; /* that are open, in the order of beginning */
    uint64_t pass;                 /* number of the pass over them */
    struct peer peer[];
};

enum stage { STAGE_NEW, STAGE_POSTED, STAGE_CHUNKS };

int p2p_shm_create(struct cpu *c, struct p2p_shm **ret, struct co_error *err)
{
    struct p2p_shm *ms = calloc(1, sizeof *ms + c->n * sizeof ms->peer[0]);
    void *outbox;
    if (ms == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    int code = user_segment_alloc(c->own, sizeof(struct outbox) + c->n * sizeof(struct ring),
                                  &outbox, err);
    if (code != 0) {
        free(ms);
        return code;
    }
    ms->c = c;
    ms->own = outbox;
    ms->last = &ms->first;
    pthread_mutex_init(&ms->mutex, NULL);
    /* sequentially consistent: a message posted before this rank looks here is found by the first
     * look at its ring */
    atomic_store(&c->shm->member[c->rank].line->outbox,
                 (uint64_t)((uint8_t *)outbox - user_segment_base(c->own)) + 1);
    *ret = ms;
    return 0;
}

void p2p_shm_destroy(struct p2p_shm *ms)
{
    if (ms == NULL)
        return;
    pthread_mutex_destroy(&ms->mutex);
    free(ms);
}

/* --- slots ------------------------------------------------------------------------------------ */

static struct outbox *outbox_of(const struct p2p_shm *ms, unsigned rank)
{
    const struct control_line *line = ms->c->shm->member[rank].line;
    uint64_t at = atomic_load(&line->outbox);
    return at == 0 ? NULL : (struct outbox *)(ms->c->user[rank] + at - 1);
}

static void ring_bell(const struct p2p_shm *ms, int rank)
{
    struct outbox *other = outbox_of(ms, (unsigned)rank);
    if (other != NULL)
        control_ring(&other->bell);
}

static uint64_t state_word(uint32_t number, enum slot_state state)
{
    return (uint64_t)number << 8 | state;
}

static bool is_in(const struct message_slot *s, uint32_t number, enum slot_state state)
{
    return atomic_load_explicit(&s->state, memory_order_acquire) == state_word(number, state);
}

static void set_state(struct p2p_shm *ms, struct message_slot *s, uint32_t number,
                      enum slot_state state, int peer)
{
    atomic_store(&s->state, state_word(number, state));
    ring_bell(ms, peer);
}

static size_t bytes_of(const struct message *m)
{
    return m->count * ddp_dtype_size(m->dtype);
}

static struct message_slot *slot_out(const struct p2p_shm *ms, const struct message *m)
{
    return &ms->own->ring[m->peer].slot[m->seq % MESSAGES_SLOTS];
}

static struct message_slot *slot_in(const struct p2p_shm *ms, struct outbox *from, uint32_t number)
{
    return &from->ring[ms->c->rank].slot[number % MESSAGES_SLOTS];
}

/* Bytes of chunk `i`. */
static struct slice chunk_of(const struct message *m, uint32_t i)
{
    return slice_piece(bytes_of(m), CHUNK_BYTES, i);
}

/* --- sending ---------------------------------------------------------------------------------- */

/* Whether the next slot is free. Once it is not, it is taken for full until the next pass: else a
 * slot that becomes free meanwhile would go to a later message. */
static bool has_room(struct p2p_shm *ms, struct message *m)
{
    struct peer *to = &ms->peer[m->peer];
    m->seq = to->next_out;
    const struct message_slot *s = slot_out(ms, m);
    if (to->full == ms->pass)
        return false;
    if ((atomic_load_explicit(&s->state, memory_order_acquire) & 0xff) == SLOT_FREE)
        return true;
    to->full = ms->pass;
    return false;
}

/* Put the message into the next slot, if that is free. returns whether it was */
static bool message_post(struct p2p_shm *ms, struct message *m)
{
    const struct cpu *c = ms->c;
    if (!has_room(ms, m))
        return false;
    struct message_slot *s = slot_out(ms, m);
    ms->peer[m->peer].next_out++;
    s->tag = m->tag;
    s->dtype = m->dtype;
    s->count = m->count;
    if (bytes_of(m) <= MESSAGES_SHORT_BYTES) {
        cpu_copy(s->bytes, m->data, bytes_of(m));
    } else {
        s->in_segment = user_segment_find(c->own, m->data, bytes_of(m), &s->place);
        if (!s->in_segment)
            s->place = (uint64_t)m->data;
        s->probe = (uint64_t)&c->cma_probe;
        s->pid = c->pid;
        atomic_store(&s->written, 0);
        atomic_store(&s->read, 0);
    }
    set_state(ms, s, m->seq, SLOT_POSTED, m->peer);
    return true;
}

static void write_chunks(struct p2p_shm *ms, struct message *m, struct message_slot *s)
{
    struct ring *ring = &ms->own->ring[m->peer];
    uint32_t written = atomic_load_explicit(&s->written, memory_order_relaxed);
    const uint32_t read = atomic_load_explicit(&s->read, memory_order_acquire);
    for (struct slice piece; written - read < 2; written++) {
        piece = chunk_of(m, written);
        if (piece.count == 0)
            return;
        memcpy(ring->chunk[written & 1], (uint8_t *)m->data + piece.first, piece.count);
        atomic_store(&s->written, written + 1);
        ring_bell(ms, m->peer);
    }
}

/* returns whether it is done */
static bool advance_send(struct p2p_shm *ms, struct message *m)
{
    if (m->stage == STAGE_NEW) {
        if (!message_post(ms, m))
            return false;
        m->stage = STAGE_POSTED;
        if (bytes_of(m) <= MESSAGES_SHORT_BYTES)
            return true;
    }
    struct message_slot *s = slot_out(ms, m);
    if (is_in(s, m->seq, SLOT_STAGED))
        write_chunks(ms, m, s);
    if (!is_in(s, m->seq, SLOT_TAKEN))
        return false;
    atomic_store(&s->state, state_word(m->seq, SLOT_FREE));
    return true;
}

/* --- receiving -------------------------------------------------------------------------------- */

/* How far the messages of a peer have been posted, found out once in a pass: what comes later is
 * for the next one. Else it could go to a later receive, after an earlier one of the same tag has
 * looked for it without success. */
static uint32_t posted_by(struct p2p_shm *ms, struct peer *from, struct outbox *box)
{
    if (from->looked == ms->pass)
        return from->posted;
    uint32_t i = 0;
    while (box != NULL && i < MESSAGES_SLOTS &&
           ((from->taken >> i & 1) ||
            is_in(slot_in(ms, box, from->next_in + i), from->next_in + i, SLOT_POSTED)))
        i++;
    from->looked = ms->pass;
    from->posted = from->next_in + i;
    return from->posted;
}

/* The first message of this tag that has been posted and not been taken. */
static bool find_match(struct p2p_shm *ms, struct message *m)
{
    struct peer *from = &ms->peer[m->peer];
    struct outbox *box = outbox_of(ms, (unsigned)m->peer);
    const uint32_t end = posted_by(ms, from, box);
    for (uint32_t number = from->next_in; number != end; number++) {
        if (from->taken >> (number - from->next_in) & 1 || slot_in(ms, box, number)->tag != m->tag)
            continue;
        m->seq = number;
        from->taken |= UINT64_C(1) << (number - from->next_in);
        for (; from->taken & 1; from->taken >>= 1)
            from->next_in++;
        return true;
    }
    return false;
}

static int check_match(struct p2p_shm *ms, struct message *m, const struct message_slot *s)
{
    if (s->dtype == (uint32_t)m->dtype && s->count == m->count)
        return 0;
    transport_shm_tell_disagreement(ms->c->shm, ms->c->rank);
    return co_fail(m->err, -EPROTO, "%s sent %llu x %s with tag %d, but %s expects %zu x %s",
                   transport_shm_name_rank(ms->c->shm, (unsigned)m->peer).text,
                   (unsigned long long)s->count, call_dtype_name(s->dtype), m->tag,
                   transport_shm_name_rank(ms->c->shm, ms->c->rank).text, m->count,
                   call_dtype_name(m->dtype));
}

/* A long message, without its sender's help. returns whether that went well */
static bool message_fetch(struct p2p_shm *ms, struct message *m, const struct message_slot *s)
{
    const struct cpu *c = ms->c;
    if (s->in_segment) {
        memcpy(m->data, c->user[m->peer] + s->place, bytes_of(m));
        return true;
    }
    return c->may_cma && cma_can_read(s->pid, s->probe, (unsigned)m->peer) &&
           cma_read(s->pid, m->data, s->place, bytes_of(m)) == 0;
}

/* Fetch what has been matched, or ask for it to be staged. returns whether it is done */
static bool message_take(struct p2p_shm *ms, struct message *m, struct message_slot *s)
{
    if (bytes_of(m) <= MESSAGES_SHORT_BYTES) {
        cpu_copy(m->data, s->bytes, bytes_of(m));
        set_state(ms, s, m->seq, SLOT_FREE, m->peer);
        return true;
    }
    if (message_fetch(ms, m, s)) {
        set_state(ms, s, m->seq, SLOT_TAKEN, m->peer);
        return true;
    }
    struct peer *from = &ms->peer[m->peer];
    if (from->staged != NULL)
        return false; /* its turn comes */
    from->staged = m;
    m->stage = STAGE_CHUNKS;
    set_state(ms, s, m->seq, SLOT_STAGED, m->peer);
    return false;
}

static bool read_chunks(struct p2p_shm *ms, struct message *m, struct message_slot *s)
{
    const struct ring *ring = &outbox_of(ms, (unsigned)m->peer)->ring[ms->c->rank];
    while (atomic_load_explicit(&s->written, memory_order_acquire) > m->n_chunks) {
        struct slice piece = chunk_of(m, m->n_chunks);
        memcpy((uint8_t *)m->data + piece.first, ring->chunk[m->n_chunks & 1], piece.count);
        atomic_store(&s->read, ++m->n_chunks);
        ring_bell(ms, m->peer);
    }
    if (chunk_of(m, m->n_chunks).count > 0)
        return false;
    ms->peer[m->peer].staged = NULL;
    set_state(ms, s, m->seq, SLOT_TAKEN, m->peer);
    return true;
}

static bool advance_receive(struct p2p_shm *ms, struct message *m)
{
    const bool is_new = m->stage == STAGE_NEW;
    if (is_new && !find_match(ms, m))
        return false;
    struct message_slot *s = slot_in(ms, outbox_of(ms, (unsigned)m->peer), m->seq);
    if (is_new) {
        m->stage = STAGE_POSTED;
        m->code = check_match(ms, m, s);
        if (m->code != 0)
            return true;
    }
    return m->stage == STAGE_CHUNKS ? read_chunks(ms, m, s) : message_take(ms, m, s);
}

/* --- all together ----------------------------------------------------------------------------- */

static uint64_t timeout_of(const struct p2p_shm *ms, const struct message *m)
{
    return m->timeout_ms != 0 ? m->timeout_ms : ms->c->shm->timeout_ms;
}

static int message_fail(struct p2p_shm *ms, struct message *m)
{
    const struct transport_shm *shm = ms->c->shm;
    const struct control_abort why = control_abort_get(shm->control);
    if (why.cause == CONTROL_TIMEOUT && why.rank == shm->member[ms->c->rank].local_rank)
        co_fail(m->err, -ETIMEDOUT,
                "timed out after %.3g s waiting for %s; raise " DDP_ENV_TIMEOUT
                " if this is expected",
                (double)timeout_of(ms, m) / 1e3,
                transport_shm_describe_rank(shm, (unsigned)m->peer).text);
    else
        transport_shm_describe(shm, m->err);
    return co_fail_in(m->err, "%s of %zu x %s %s %s, tag %d", m->is_send ? "ddp_send" : "ddp_recv",
                      m->count, call_dtype_name(m->dtype), m->is_send ? "to" : "from",
                      transport_shm_name_rank(shm, (unsigned)m->peer).text, m->tag);
}

static bool advance_one(struct p2p_shm *ms, struct message *m)
{
    if (m->is_send ? advance_send(ms, m) : advance_receive(ms, m))
        return true;
    if (!transport_shm_is_broken(ms->c->shm))
        return false;
    m->code = message_fail(ms, m);
    return true;
}

static bool advance_locked(struct p2p_shm *ms)
{
    ms->pass++;
    for (struct message **at = &ms->first; *at != NULL;) {
        struct message *m = *at;
        if (!advance_one(ms, m)) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        if (*at == NULL)
            ms->last = at;
        atomic_store(&m->done, true); /* from here on it is its owner's again */
    }
    return ms->first != NULL;
}

void p2p_shm_begin(struct p2p_shm *ms, struct message *m)
{
    m->next = NULL;
    m->stage = STAGE_NEW;
    m->n_chunks = 0;
    m->code = 0;
    atomic_store(&m->done, false);
    pthread_mutex_lock(&ms->mutex);
    *ms->last = m;
    ms->last = &m->next;
    advance_locked(ms);
    pthread_mutex_unlock(&ms->mutex);
}

bool p2p_shm_advance(struct p2p_shm *ms)
{
    pthread_mutex_lock(&ms->mutex);
    bool more = advance_locked(ms);
    pthread_mutex_unlock(&ms->mutex);
    return more;
}

static bool is_done_soon(struct p2p_shm *ms, const struct message *m)
{
    const bool spin = ms->c->shm->spin;
    for (int i = 0; i < (spin ? TRIES : FEW_TRIES); i++) {
        p2p_shm_advance(ms);
        if (atomic_load(&m->done))
            return true;
        if (!spin)
            sched_yield();
    }
    return false;
}

void p2p_shm_wait(struct p2p_shm *ms, const struct message *until)
{
    struct transport_shm *shm = ms->c->shm;
    struct control_line *bell = &ms->own->bell;
    const unsigned peer = shm->member[until->peer].local_rank;
    uint64_t deadline_ms = 0;
    while (!is_done_soon(ms, until)) {
        const uint32_t seen = atomic_load(&bell->arrived);
        const bool has_left = control_look(shm->control, peer) == CONTROL_LEFT;
        p2p_shm_advance(ms); /* what the peer did before it left counts */
        if (atomic_load(&until->done))
            return;
        if (has_left)
            shm_abort_tell(shm, CONTROL_RANK_LEFT, peer, 0);
        if (transport_shm_is_broken(shm))
            continue; /* p2p_shm_advance() ends them all */
        if (deadline_ms == 0)
            deadline_ms = co_deadline_ms(timeout_of(ms, until));
        if (co_left_ms(deadline_ms) == 0)
            shm_abort_tell(shm, CONTROL_TIMEOUT, shm->member[shm->rank].local_rank, peer);
        else
            control_sleep_for(shm->control, peer, bell, seen, NAP_US);
    }
}
