#include "transport_shm.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/scope.h"
#include "segments/control.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum {
    SPIN_NS = 20 * 1000,  /* longer than a step without skew; shorter than a sleep and a wake-up */
    YIELDS = 4,           /* where ranks share processors */
    FIRST_SLEEP_US = 500, /* how soon a death is noticed without ddprun ... */
    LONGEST_SLEEP_US = 4000, /* ... and how late */
    DRAIN_NS = 1000 * 1000 * 1000,
};

struct slot { /* what a rank publishes with a call; the first 64 bytes are one cache line */
    struct call call;
    uint32_t seq;              /* of the call, from 1 */
    _Atomic uint32_t touching; /* 1 while the rank touches others' memory for this call */
    union transport_shm_note note;
    uint64_t spare_;
};

struct notes { /* of one rank: control_line.note; calls take turns */
    struct slot slot[2];
};
_Static_assert(sizeof(struct slot) == 128, "two slots fill a rank's note");
_Static_assert(sizeof(struct notes) == sizeof(((struct control_line *)0)->note), "as agreed");
_Static_assert(TRANSPORT_SHM_MAILBOX_BYTES <= CONTROL_MAILBOX_BYTES, "the rest is for joining");

struct transport_shm {
    struct control *control;
    unsigned rank, n_ranks;
    bool spin, broken, must_withdraw;
    uint64_t timeout_ms;
    uint32_t seq;        /* calls opened */
    uint32_t arrived;    /* what this rank's line says */
    struct co_error why; /* once broken */
};

int transport_shm_create(const struct transport_shm_opts *opts, struct transport_shm **ret,
                         struct co_error *err)
{
    struct transport_shm *t = calloc(1, sizeof *t);
    if (t == NULL)
        return co_fail(err, -ENOMEM, "no memory for a transport");
    t->control = opts->control;
    t->rank = opts->local_rank;
    t->n_ranks = opts->control->n_local;
    t->spin = opts->spin;
    t->timeout_ms = opts->timeout_ms;
    t->arrived = atomic_load(&t->control->line[t->rank].arrived);
    *ret = t;
    return 0;
}

void transport_shm_destroy(struct transport_shm *t)
{
    free(t);
}

unsigned transport_shm_rank(const struct transport_shm *t)
{
    return t->rank;
}

unsigned transport_shm_n_ranks(const struct transport_shm *t)
{
    return t->n_ranks;
}

uint8_t *transport_shm_mailbox(const struct transport_shm *t, unsigned local_rank)
{
    return control_mailbox(t->control, local_rank);
}

bool transport_shm_must_withdraw(const struct transport_shm *t)
{
    return t->must_withdraw;
}

static struct slot *slot_of(const struct transport_shm *t, unsigned rank, uint32_t seq)
{
    return &((struct notes *)t->control->line[rank].note)->slot[seq & 1];
}

const union transport_shm_note *transport_shm_note(const struct transport_shm *t,
                                                   unsigned local_rank)
{
    return &slot_of(t, local_rank, t->seq)->note;
}

static bool has_reached(const struct transport_shm *t, unsigned rank, uint32_t target)
{
    uint32_t is = atomic_load_explicit(&t->control->line[rank].arrived, memory_order_acquire);
    return (int32_t)(is - target) >= 0; /* the counter wraps around */
}

/* Sequentially consistent, unlike control_abort_get(): it pairs with slot.touching. */
static bool is_aborted(const struct transport_shm *t)
{
    return atomic_load(&t->control->abort) != 0;
}

/* --- why the group broke ---------------------------------------------------------------------- */

/* A mismatch is told as a pair of ranks, the lower one and the number of the call in `detail`. */
static void tell_mismatch(struct transport_shm *t, unsigned other)
{
    unsigned low = other < t->rank ? other : t->rank;
    unsigned high = other < t->rank ? t->rank : other;
    control_abort_set(t->control, (struct control_abort){.cause = CONTROL_MISMATCH,
                                                         .rank = (uint16_t)high,
                                                         .detail = t->seq << 16 | low});
}

static int describe_mismatch(const struct transport_shm *t, struct control_abort why,
                             struct co_error *err)
{
    unsigned low = why.detail & 0xffff;
    if (low >= t->n_ranks || why.rank >= t->n_ranks)
        return co_fail(err, -EPROTO, "ranks called different collectives");
    const struct slot *a = slot_of(t, why.rank, why.detail >> 16);
    const struct slot *b = slot_of(t, low, why.detail >> 16);
    char text_a[CALL_TEXT_BYTES], text_b[CALL_TEXT_BYTES];
    return co_fail(err, -EPROTO, "rank %u called %s as call #%u where rank %u called %s", why.rank,
                   call_format(&a->call, text_a), a->seq, low, call_format(&b->call, text_b));
}

static int describe_death(struct control_abort why, struct co_error *err)
{
    int status = (int)why.detail;
    if (status != 0 && WIFSIGNALED(status))
        return co_fail(err, -ECONNRESET, "rank %u died: killed by signal %d (%s)", why.rank,
                       WTERMSIG(status), strsignal(WTERMSIG(status)));
    if (status != 0 && WIFEXITED(status))
        return co_fail(err, -ECONNRESET, "rank %u died: it exited with status %d", why.rank,
                       WEXITSTATUS(status));
    return co_fail(err, -ECONNRESET, "rank %u died", why.rank);
}

static int describe_timeout(const struct transport_shm *t, struct control_abort why,
                            struct co_error *err)
{
    unsigned missing = why.detail & 0xffff, others = why.detail >> 16;
    char and_others[32] = "";
    if (others > 0)
        snprintf(and_others, sizeof and_others, " and %u more", others);
    if (why.rank == t->rank)
        return co_fail(err, -ETIMEDOUT, "waited %.3g s in vain for rank %u%s",
                       (double)t->timeout_ms / 1e3, missing, and_others);
    return co_fail(err, -ETIMEDOUT, "rank %u gave up waiting for rank %u%s", why.rank, missing,
                   and_others);
}

static int describe(const struct transport_shm *t, struct control_abort why, struct co_error *err)
{
    switch (why.cause) {
    case CONTROL_RANK_DIED:
        return describe_death(why, err);
    case CONTROL_RANK_LEFT:
        return co_fail(err, -ECONNRESET, "rank %u left the job while others needed it", why.rank);
    case CONTROL_MISMATCH:
        return describe_mismatch(t, why, err);
    case CONTROL_TIMEOUT:
        return describe_timeout(t, why, err);
    case CONTROL_JOB_STOPPING:
        return co_fail(err, -ECONNRESET, "ddprun is stopping the job");
    default:
        return co_fail(err, -ECONNRESET, "the group is broken (cause %u)", why.cause);
    }
}

/* --- waiting ---------------------------------------------------------------------------------- */

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Wait until nobody touches this rank's memory; the abort word is set, so nobody starts to. */
static void drain(struct transport_shm *t)
{
    uint64_t end_ns = co_now_ns() + DRAIN_NS;
    for (unsigned r = 0; r < t->n_ranks; r++) {
        if (r == t->rank)
            continue;
        while (atomic_load(&slot_of(t, r, 0)->touching) ||
               atomic_load(&slot_of(t, r, 1)->touching)) {
            if (control_look(t->control, r) == CONTROL_DEAD)
                break;
            if (co_now_ns() > end_ns) {
                t->must_withdraw = true;
                return;
            }
            sched_yield();
        }
    }
}

int transport_shm_fail(struct transport_shm *t, struct co_error *err)
{
    if (!t->broken) {
        drain(t);
        int code = describe(t, control_abort_get(t->control), &t->why);
        char text[CALL_TEXT_BYTES];
        if (code != -EPROTO && t->seq > 0)
            co_fail_in(&t->why, "%s, call #%u",
                       call_format(&slot_of(t, t->rank, t->seq)->call, text), t->seq);
        t->broken = true;
    }
    return co_fail(err, t->why.code, "%s", t->why.text);
}

static void give_up(struct transport_shm *t, uint32_t target)
{
    unsigned first = 0, n_missing = 0;
    for (unsigned r = t->n_ranks; r-- > 0;) {
        if (has_reached(t, r, target))
            continue;
        first = r;
        n_missing++;
    }
    if (n_missing > 0)
        control_abort_set(t->control,
                          (struct control_abort){.cause = CONTROL_TIMEOUT,
                                                 .rank = (uint16_t)t->rank,
                                                 .detail = (n_missing - 1) << 16 | first});
}

/* Ask after everybody: is one of those who are missing gone for good, has one of those who are here
 * called something else? Both set the abort word. */
static void look_around(struct transport_shm *t, uint32_t target, bool meeting)
{
    const struct call *mine = &slot_of(t, t->rank, t->seq)->call;
    for (unsigned r = 0; r < t->n_ranks; r++) {
        if (has_reached(t, r, target)) {
            if (meeting && !call_same(mine, &slot_of(t, r, t->seq)->call))
                tell_mismatch(t, r);
            continue;
        }
        /* It may have come and left between two looks: what it did last decides. */
        if (control_look(t->control, r) == CONTROL_LEFT && !has_reached(t, r, target))
            control_abort_set(t->control, (struct control_abort){.cause = CONTROL_RANK_LEFT,
                                                                 .rank = (uint16_t)r});
    }
}

/* Spin for a while, with a look at the abort word. Returns whether `rank` has come. */
static bool spin_for(const struct transport_shm *t, unsigned rank, uint32_t target)
{
    if (!t->spin) {
        for (int i = 0; i < YIELDS; i++) {
            sched_yield();
            if (has_reached(t, rank, target))
                return true;
        }
        return false;
    }
    uint64_t end_ns = 0;
    do {
        for (int i = 0; i < 64; i++) {
            if (has_reached(t, rank, target))
                return true;
            pause_briefly();
        }
        uint64_t now_ns = co_now_ns();
        if (end_ns == 0)
            end_ns = now_ns + SPIN_NS;
        if (now_ns > end_ns)
            return false;
    } while (!is_aborted(t));
    return false;
}

static int wait_for_one(struct transport_shm *t, unsigned rank, uint32_t target, bool meeting,
                        struct co_error *err)
{
    if (spin_for(t, rank, target))
        return 0;
    struct control_line *line = &t->control->line[rank];
    uint64_t deadline_ms = co_deadline_ms(t->timeout_ms);
    uint32_t sleep_us = FIRST_SLEEP_US;
    for (;;) {
        uint32_t seen = atomic_load_explicit(&line->arrived, memory_order_acquire);
        if ((int32_t)(seen - target) >= 0)
            return 0;
        if (is_aborted(t))
            return transport_shm_fail(t, err);
        look_around(t, target, meeting);
        if (co_left_ms(deadline_ms) == 0)
            give_up(t, target);
        if (!is_aborted(t))
            control_sleep(line, seen, sleep_us);
        sleep_us = sleep_us * 2 < LONGEST_SLEEP_US ? sleep_us * 2 : LONGEST_SLEEP_US;
    }
}

static int wait_for_all(struct transport_shm *t, bool meeting, struct co_error *err)
{
    const uint32_t target = t->arrived;
    for (unsigned r = 0; r < t->n_ranks; r++) {
        if (has_reached(t, r, target))
            continue;
        int code = wait_for_one(t, r, target, meeting, err);
        if (code != 0)
            return code;
    }
    return 0;
}

/* --- calls and steps -------------------------------------------------------------------------- */

int transport_shm_open(struct transport_shm *t, const struct call *call,
                       union transport_shm_note **ret_note, struct co_error *err)
{
    if (t->broken)
        return transport_shm_fail(t, err);
    t->seq++;
    struct slot *mine = slot_of(t, t->rank, t->seq);
    mine->call = *call;
    mine->seq = t->seq;
    if (is_aborted(t))
        return transport_shm_fail(t, err);
    *ret_note = &mine->note;
    return 0;
}

void transport_shm_step_no_wait(struct transport_shm *t)
{
    control_arrive(&t->control->line[t->rank], ++t->arrived);
}

int transport_shm_step(struct transport_shm *t, struct co_error *err)
{
    transport_shm_step_no_wait(t);
    return wait_for_all(t, false, err);
}

int transport_shm_meet(struct transport_shm *t, struct co_error *err)
{
    transport_shm_step_no_wait(t);
    int code = wait_for_all(t, true, err);
    if (code != 0)
        return code;
    const struct call *mine = &slot_of(t, t->rank, t->seq)->call;
    for (unsigned r = 0; r < t->n_ranks; r++) {
        if (call_same(mine, &slot_of(t, r, t->seq)->call))
            continue;
        tell_mismatch(t, r);
        return transport_shm_fail(t, err);
    }
    return 0;
}

bool transport_shm_touch_begin(struct transport_shm *t)
{
    atomic_store(&slot_of(t, t->rank, t->seq)->touching, 1);
    return !is_aborted(t);
}

bool transport_shm_touch_more(struct transport_shm *t)
{
    return !is_aborted(t);
}

void transport_shm_touch_end(struct transport_shm *t)
{
    atomic_store_explicit(&slot_of(t, t->rank, t->seq)->touching, 0, memory_order_release);
}
