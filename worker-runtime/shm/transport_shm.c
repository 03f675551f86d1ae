/* transport_shm.c - steps of a group in shared memory.
 *
 * A call is transport_shm_open(), which prepares the rank's slot; transport_shm_arrive(), which
 * publishes it; transport_shm_wait(), which returns once all ranks have come as far; and so on with
 * arrive and wait, until transport_shm_close(). Read transport_shm_wait() first: a short look at
 * each rank in turn, then wait_for_one(), which spins or yields, and then sleeps on that rank's
 * line with a look around now and then. Each failure ends in transport_shm_fail(); shm_abort.c has
 * the abort word and its texts. */
#include "transport_shm_priv.h"

#include "common/clock.h"
#include "worker-runtime/core/cpus.h"
#include "worker-runtime/core/grace.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    SPIN_NS = 200 * 1000,    /* longer than interrupts and page faults hold a rank up: a rank that
                                sleeps on a busy machine may get its processor back milliseconds
                                later */
    GREEDY_NS = 1000,        /* from then on others may run between two looks */
    MOVE_NS = 1000 * 1000,   /* at least, between two looks for another processor */
    FIRST_LOOKS = 80,        /* before anything else is done: about as long as a step takes */
    LOOKS = 64,              /* between two looks at the clock */
    YIELDS = 4,              /* where ranks share processors */
    FIRST_SLEEP_US = 500,    /* how soon this rank looks whether others called the same ... */
    LONGEST_SLEEP_US = 2000, /* ... and how late; also deaths, if they wake no rank */
    LOOK_NS = 500 * 1000,    /* between two looks around of a rank that does not sleep */
    MORE_MS = 1000, /* than a rank that waits for another node takes to find out which rank is
                       late */
    DRAIN_NS = 1000 * 1000 * 1000,
};

int transport_shm_create(const struct transport_shm_opts *opts, struct transport_shm **ret,
                         struct co_error *err)
{
    struct transport_shm *t = opts->member != NULL ? calloc(1, sizeof *t) : NULL;
    if (t == NULL) {
        free(opts->member);
        return co_fail(err, -ENOMEM, "out of memory");
    }
    *t = (struct transport_shm){.control = opts->control,
                                .member = opts->member,
                                .rank = opts->rank,
                                .n_ranks = opts->n,
                                .group = opts->group,
                                .spin = opts->spin,
                                .timeout_ms = opts->timeout_ms,
                                .names = opts->names,
                                .call_timeout_ms = opts->timeout_ms,
                                .arrived = opts->start};
    *ret = t;
    return 0;
}

int transport_shm_create_world(const struct transport_shm_opts *opts, unsigned local_rank,
                               struct transport_shm **ret, struct co_error *err)
{
    struct control *control = opts->control;
    struct transport_shm_opts all = *opts;
    all.member = calloc(control->n_local, sizeof *all.member);
    for (unsigned r = 0; all.member != NULL && r < control->n_local; r++)
        all.member[r] = (struct transport_shm_member){
            .line = &control->line[r], .mailbox = control_mailbox(control, r), .local_rank = r};
    all.n = control->n_local;
    all.rank = local_rank;
    all.start = atomic_load(&control->line[local_rank].arrived);
    return transport_shm_create(&all, ret, err);
}

void transport_shm_destroy(struct transport_shm *t)
{
    if (t == NULL)
        return;
    free(t->member);
    free(t);
}

void transport_shm_name_ranks(struct transport_shm *t, struct transport_shm_names names)
{
    t->names = names;
}

/* --- failing ---------------------------------------------------------------------------------- */

/* What a rank does to others' memory, in either of its calls. */
static uint32_t touch_of(const struct transport_shm *t, unsigned rank)
{
    uint32_t a = atomic_load(&t->member[rank].line->touching[0]);
    uint32_t b = atomic_load(&t->member[rank].line->touching[1]);
    return a > b ? a : b;
}

/* Wait until no peer touches this rank's memory; the abort word is set, so no peer starts to. A
 * peer that only reads and is stuck in it does no harm. */
static void drain(struct transport_shm *t)
{
    uint64_t end_ns = co_now_ns() + DRAIN_NS;
    for (unsigned r = 0; r < t->n_ranks; r++) {
        if (r == t->rank)
            continue;
        for (uint32_t touch; (touch = touch_of(t, r)) != TOUCH_NOTHING;) {
            if (control_look(t->control, t->member[r].local_rank) == CONTROL_DEAD)
                break;
            if (co_now_ns() > end_ns) {
                t->must_withdraw = t->must_withdraw || touch == TOUCH_WRITES;
                break;
            }
            sched_yield();
        }
    }
}

int transport_shm_fail(struct transport_shm *t, struct co_error *err)
{
    if (!t->broken) {
        drain(t);
        int code = transport_shm_describe(t, &t->why);
        char text[CALL_TEXT_BYTES];
        if (code != -EPROTO && t->seq > 0)
            co_fail_in(&t->why, "%s, call #%u",
                       call_format(&transport_shm_slot(t, t->rank, t->seq)->call, text), t->number);
        t->broken = true;
    }
    return co_fail(err, t->why.code, "%s", t->why.text);
}

void transport_shm_tell_disagreement(struct transport_shm *t, unsigned rank)
{
    if (rank == t->rank)
        shm_abort_tell(t, CONTROL_MISMATCH, t->member[rank].local_rank, SHM_ABORT_MESSAGE);
    else
        shm_abort_tell_mismatch(t, rank);
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

/* Check all peers: is a missing one gone for good, has one that arrived called something else? Both
 * set the abort word. */
static void look_around(struct transport_shm *t)
{
    const struct slot *mine = transport_shm_slot(t, t->rank, t->seq);
    for (unsigned r = 0; r < t->n_ranks; r++) {
        if (transport_shm_has_come(t, r)) {
            if (t->is_meeting && !call_same(&mine->call, &transport_shm_slot(t, r, t->seq)->call))
                shm_abort_tell_mismatch(t, r);
            continue;
        }
        /* It may have come and left between two looks: what it did last decides. */
        const unsigned local_rank = t->member[r].local_rank;
        if (control_look(t->control, local_rank) == CONTROL_LEFT && !transport_shm_has_come(t, r))
            shm_abort_tell(t, CONTROL_RANK_LEFT, local_rank, 0);
    }
}

/* Look around, and at the clock. returns whether the group is broken */
static bool look_for_trouble(struct transport_shm *t)
{
    if (t->deadline_ms == 0)
        t->deadline_ms = co_deadline_ms(t->call_timeout_ms);
    look_around(t);
    if (co_left_ms(t->deadline_ms) > 0)
        return transport_shm_is_broken(t);
    if (!t->has_more_time && shm_abort_is_outside(t)) {
        t->has_more_time = true; /* by then that rank knows which rank is late */
        t->deadline_ms = co_deadline_ms(grace_ms(t->call_timeout_ms) + MORE_MS);
    } else {
        shm_abort_tell_timeout(t);
    }
    return transport_shm_is_broken(t);
}

static bool yield_for(const struct transport_shm *t, unsigned rank)
{
    for (int i = 0; i < YIELDS; i++) {
        sched_yield();
        if (transport_shm_has_come(t, rank))
            return true;
    }
    return false;
}

static bool look_for(const struct transport_shm *t, unsigned rank)
{
    for (int i = 0; i < LOOKS; i++) {
        if (transport_shm_has_come(t, rank))
            return true;
        pause_briefly();
    }
    return false;
}

/* Spin for a while, with a look at the abort word. A rank that has a processor comes at once or in
 * its own time; one that has none comes only if it is given this one. Returns whether `rank` has
 * come. */
static bool spin_for(const struct transport_shm *t, unsigned rank)
{
    const uint64_t start_ns = co_now_ns();
    uint64_t ns = 0;
    do {
        if (ns > GREEDY_NS)
            sched_yield();
        if (look_for(t, rank))
            return true;
        ns = co_now_ns() - start_ns;
    } while (ns < SPIN_NS && !transport_shm_is_broken(t));
    return false;
}

static uint32_t cpu_of(const struct transport_shm *t, unsigned rank)
{
    return atomic_load_explicit(&t->member[rank].line->cpu, memory_order_relaxed);
}

/* Where this thread runs, counted from 1; 0: not known. */
static void say_cpu(struct transport_shm *t)
{
    const int number = sched_getcpu();
    const uint32_t cpu = number >= 0 ? (uint32_t)number + 1 : 0;
    if (cpu != t->cpu)
        atomic_store_explicit(&t->member[t->rank].line->cpu, cpu, memory_order_relaxed);
    t->cpu = cpu;
}

/* Go to a processor where none of the ranks ran last. returns whether this one did */
static bool move_away(struct transport_shm *t)
{
    struct cpus_mask taken = {0};
    for (unsigned r = 0; r < t->n_ranks; r++)
        cpus_add(&taken, cpu_of(t, r));
    if (!cpus_leave(&taken))
        return false;
    say_cpu(t);
    return true;
}

/* Of two ranks on one processor that have found out at the same time one should go: the higher one
 * at once, the lower one if they are still together a while later. */
static bool may_move(struct transport_shm *t, unsigned other)
{
    const uint64_t now_ns = co_now_ns();
    if (now_ns < t->next_move_ns)
        return false;
    const bool is_first = now_ns - t->next_move_ns > MOVE_NS;
    t->next_move_ns = now_ns + MOVE_NS;
    return t->rank > other || !is_first;
}

/* Whether `rank` can come while this one spins. If both share a processor it cannot: a busy system
 * puts a rank that wakes another on the same processor, sees that the two together need no more
 * than one, and leaves them there. */
static bool may_spin_for(struct transport_shm *t, unsigned rank)
{
    if (!t->spin)
        return false;
    say_cpu(t);
    return t->cpu == 0 || cpu_of(t, rank) != t->cpu || (may_move(t, rank) && move_away(t));
}

/* Naps grow, unless there is something else to continue with. */
static uint32_t next_nap_us(const struct transport_shm *t, uint32_t last_us)
{
    if (t->idle != NULL && t->idle(t->idle_arg))
        return FIRST_SLEEP_US;
    return last_us * 2 < LONGEST_SLEEP_US ? last_us * 2 : LONGEST_SLEEP_US;
}

static int wait_for_one(struct transport_shm *t, unsigned rank, struct co_error *err)
{
    if (may_spin_for(t, rank) ? spin_for(t, rank) : yield_for(t, rank))
        return 1;
    struct control_line *line = t->member[rank].line;
    for (uint32_t nap_us = FIRST_SLEEP_US;; nap_us = next_nap_us(t, nap_us)) {
        uint32_t seen = atomic_load_explicit(&line->arrived, memory_order_acquire);
        if ((int32_t)(seen - t->arrived) >= 0)
            return 1;
        if (transport_shm_is_broken(t) || look_for_trouble(t))
            return transport_shm_fail(t, err);
        control_sleep_for(t->control, t->member[rank].local_rank, line, seen, nap_us);
    }
}

/* For a caller that does not wait: the abort word each time, everything else now and then. */
static int glance(struct transport_shm *t, struct co_error *err)
{
    bool broken = transport_shm_is_broken(t);
    uint64_t now_ns = co_now_ns();
    if (!broken && now_ns >= t->next_look_ns) {
        t->next_look_ns = now_ns + LOOK_NS;
        broken = look_for_trouble(t);
    }
    return broken ? transport_shm_fail(t, err) : 0;
}

/* All have arrived: at the same call? */
static int check_meeting(struct transport_shm *t, struct co_error *err)
{
    const struct slot *mine = transport_shm_slot(t, t->rank, t->seq);
    for (unsigned r = 0; r < t->n_ranks; r++) {
        const struct slot *other = transport_shm_slot(t, r, t->seq);
        if (call_same(&mine->call, &other->call) && mine->number == other->number)
            continue;
        shm_abort_tell_mismatch(t, r);
        return transport_shm_fail(t, err);
    }
    t->is_meeting = false;
    return 1;
}

/* The first look, without pauses, which are long compared to a short step. */
static bool glimpse(const struct transport_shm *t, unsigned rank)
{
    for (int i = 0; i < FIRST_LOOKS; i++)
        if (transport_shm_has_come(t, rank))
            return true;
    return false;
}

/* Wake the ranks that sleep until this one comes. Not before the first look at them: while it waits
 * for its own stores, which are on their way to them, theirs are on their way here. */
static void wake_sleepers(struct transport_shm *t)
{
    if (t->owes_wake)
        control_wake(t->member[t->rank].line);
    t->owes_wake = false;
}

/* t->next is the first rank that has not been seen in this step. It survives a return of 0, so that
 * a caller that only looks never looks at a rank twice. Ranks arrive in any order, but all of them
 * have to: to wait for one after the other costs no more than to wait for the last. */
int transport_shm_wait(struct transport_shm *t, bool may_wait, struct co_error *err)
{
    for (; t->next < t->n_ranks; t->next++) {
        if (glimpse(t, t->next))
            continue;
        wake_sleepers(t);
        if (transport_shm_has_come(t, t->next))
            continue;
        int code = may_wait ? wait_for_one(t, t->next, err) : glance(t, err);
        if (code <= 0)
            return code;
    }
    wake_sleepers(t);
    return t->is_meeting ? check_meeting(t, err) : 1;
}

/* --- calls and steps -------------------------------------------------------------------------- */

/* What this rank did last, for those who miss it; transport_shm_describe_rank() reads it. */
static void say_where(struct transport_shm *t, bool inside)
{
    const unsigned kind = transport_shm_slot(t, t->rank, t->seq)->call.kind;
    atomic_store_explicit(&t->member[t->rank].line->where,
                          (uint64_t)t->number << 32 | kind << 1 | inside, memory_order_relaxed);
}

int transport_shm_open(struct transport_shm *t, const struct call *call, uint64_t timeout_ms,
                       union transport_shm_note **ret_note, struct co_error *err)
{
    if (t->broken)
        return transport_shm_fail(t, err);
    t->seq++;
    t->number += !t->goes_on;
    t->goes_on = false;
    struct slot *mine = transport_shm_slot(t, t->rank, t->seq);
    mine->call = *call;
    mine->number = t->number;
    if (transport_shm_is_broken(t))
        return transport_shm_fail(t, err);
    t->is_meeting = true;
    t->call_timeout_ms = timeout_ms != 0 ? timeout_ms : t->timeout_ms;
    say_where(t, true);
    *ret_note = &mine->note;
    return 0;
}

void transport_shm_close(struct transport_shm *t)
{
    wake_sleepers(t);
    say_where(t, false);
}

void transport_shm_arrive(struct transport_shm *t)
{
    struct control_line *line = t->member[t->rank].line;
    t->next = 0;
    t->deadline_ms = 0;
    t->has_more_time = false;
    t->arrived++;
    t->owes_wake = true;
    say_cpu(t);
    if (t->is_meeting)
        atomic_store_explicit(&transport_shm_slot(t, t->rank, t->seq)->met, t->arrived,
                              memory_order_release);
    control_publish(line, t->arrived);
}

static _Atomic uint32_t *own_touch(const struct transport_shm *t)
{
    return &t->member[t->rank].line->touching[t->seq & 1];
}

bool transport_shm_touch_begin(struct transport_shm *t, bool writes)
{
    atomic_store(own_touch(t), writes ? TOUCH_WRITES : TOUCH_READS);
    return !transport_shm_is_broken(t);
}

void transport_shm_touch_end(struct transport_shm *t)
{
    atomic_store_explicit(own_touch(t), TOUCH_NOTHING, memory_order_release);
}
