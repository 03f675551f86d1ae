/* shm_abort.c - why the group broke: from the abort word to a text, and back. */
#include "transport_shm_priv.h"

#include <ddp/env.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { NAMED = 8 }; /* ranks in one text */

void shm_abort_tell(struct transport_shm *t, enum control_cause cause, unsigned local_rank,
                    uint32_t detail)
{
    control_abort_set(t->control, (struct control_abort){.cause = (uint16_t)cause,
                                                         .rank = (uint16_t)local_rank,
                                                         .detail = detail});
}

/* "rank 3", or "rank 3 on node 1 (host)". */
static struct rank_name name_of(const struct transport_shm *t, unsigned local_rank)
{
    struct rank_name name;
    const uint32_t *world_rank = t->names.world_rank;
    if (world_rank == NULL || local_rank >= t->control->n_local)
        snprintf(name.text, sizeof name.text, "rank %u", local_rank);
    else
        snprintf(name.text, sizeof name.text, "rank %u%s", world_rank[local_rank], t->names.where);
    return name;
}

/* A mismatch is recorded as a pair of ranks of a group: the lower one in `detail`, with the group
 * and which of the two slots holds the call. */
void shm_abort_tell_mismatch(struct transport_shm *t, unsigned other)
{
    unsigned low = other < t->rank ? other : t->rank;
    unsigned high = other < t->rank ? t->rank : other;
    shm_abort_tell(t, CONTROL_MISMATCH, high, t->group << 17 | (t->seq & 1) << 16 | low);
}

/* How many steps a rank lags; 0: it has come. */
static uint32_t lag_of(const struct transport_shm *t, unsigned rank)
{
    uint32_t is = atomic_load_explicit(&t->member[rank].line->arrived, memory_order_acquire);
    int32_t lag = (int32_t)(t->arrived - is);
    return lag > 0 ? (uint32_t)lag : 0;
}

static uint32_t longest_lag(const struct transport_shm *t)
{
    uint32_t longest = 0;
    for (unsigned r = 0; r < t->n_ranks; r++) {
        uint32_t lag = lag_of(t, r);
        longest = lag > longest ? lag : longest;
    }
    return longest;
}

bool shm_abort_is_outside(const struct transport_shm *t)
{
    const uint32_t longest = longest_lag(t);
    for (unsigned r = 0; longest > 0 && r < t->n_ranks; r++)
        if (lag_of(t, r) == longest &&
            atomic_load(&t->control->line[t->member[r].local_rank].outside) != 0)
            return true;
    return false;
}

/* Missing ranks may themselves wait for one that lags further: that one is named. */
void shm_abort_tell_timeout(struct transport_shm *t)
{
    const uint32_t longest = longest_lag(t);
    unsigned first = t->n_ranks, n_missing = 0;
    for (unsigned r = 0; r < t->n_ranks; r++) {
        const uint32_t lag = lag_of(t, r);
        n_missing += lag > 0;
        if (lag > 0 && lag == longest && first == t->n_ranks)
            first = r;
    }
    if (first < t->n_ranks)
        shm_abort_tell(t, CONTROL_TIMEOUT, t->member[t->rank].local_rank,
                       (n_missing - 1) << 16 | t->member[first].local_rank);
}

/* --- texts ------------------------------------------------------------------------------------ */

static int describe_mismatch(const struct transport_shm *t, struct control_abort why,
                             struct co_error *err)
{
    const unsigned low = why.detail & 0xffff, group = why.detail >> 17;
    if (low == SHM_ABORT_MESSAGE)
        return co_fail(err, -EPROTO, "a message to %s differs from what it expects",
                       name_of(t, why.rank).text);
    if (group != t->group || low >= t->n_ranks || why.rank >= t->n_ranks)
        return co_fail(err, -EPROTO, "ranks of another group called different collectives");
    const struct slot *a = transport_shm_slot(t, why.rank, why.detail >> 16);
    const struct slot *b = transport_shm_slot(t, low, why.detail >> 16);
    const struct rank_name name_a = name_of(t, t->member[why.rank].local_rank);
    const struct rank_name name_b = name_of(t, t->member[low].local_rank);
    char text[CALL_TEXT_BYTES];
    if (call_same(&a->call, &b->call) && a->call.form == CALL_PAIRS)
        return co_fail(err, -EPROTO, "%s, call #%u: the counts that %s and %s pass do not match",
                       call_format(&a->call, text), a->number, name_b.text, name_a.text);
    return call_fail_mismatch(&(struct call_side){name_a.text, &a->call, a->number},
                              &(struct call_side){name_b.text, &b->call, b->number}, err);
}

static int describe_death(const struct transport_shm *t, struct control_abort why,
                          struct co_error *err)
{
    const struct rank_name who = name_of(t, why.rank);
    int status = (int)why.detail;
    if (status != 0 && WIFSIGNALED(status))
        return co_fail(err, -ECONNRESET, "%s died: killed by signal %d (%s)", who.text,
                       WTERMSIG(status), strsignal(WTERMSIG(status)));
    if (status != 0 && WIFEXITED(status))
        return co_fail(err, -ECONNRESET, "%s died: exit status %d", who.text, WEXITSTATUS(status));
    return co_fail(err, -ECONNRESET, "%s died", who.text);
}

struct rank_name transport_shm_name_rank(const struct transport_shm *t, unsigned rank)
{
    struct rank_name name;
    if (t->names.world_rank != NULL)
        return name_of(t, t->member[rank].local_rank);
    snprintf(name.text, sizeof name.text, "rank %u", rank);
    return name;
}

struct rank_name transport_shm_describe_rank(const struct transport_shm *t, unsigned rank)
{
    struct rank_name name;
    const struct transport_shm_member *m = &t->member[rank];
    const uint64_t where = atomic_load(&m->line->where);
    const uint32_t seq = (uint32_t)(where >> 32);
    const uint32_t pid = atomic_load(&t->control->line[m->local_rank].pid);
    const char *kind = call_kind_name(where >> 1 & 0xff);
    char last[64];
    if (seq == 0)
        snprintf(last, sizeof last, "no call yet");
    else if (where & 1)
        snprintf(last, sizeof last, "in %s, call #%u", kind, seq);
    else
        snprintf(last, sizeof last, "last call: %s, call #%u", kind, seq);
    snprintf(name.text, sizeof name.text, "%s (pid %u, %s)", name_of(t, m->local_rank).text, pid,
             last);
    return name;
}

/* The missing ranks, those that lag most first. */
static int describe_own_timeout(const struct transport_shm *t, const char *first,
                                struct co_error *err)
{
    char names[NAMED * (sizeof(struct rank_name) + 2)] = "", more[32] = "";
    const uint32_t longest = longest_lag(t);
    size_t length = 0;
    unsigned n = 0;
    for (unsigned i = 0; i < 2 * t->n_ranks; i++) { /* those that lag most; then the others */
        const unsigned r = i % t->n_ranks;
        const uint32_t lag = lag_of(t, r);
        if (lag == 0 || (lag == longest) != (i < t->n_ranks) || n++ >= NAMED)
            continue;
        length += (size_t)snprintf(names + length, sizeof names - length, "%s%s",
                                   length > 0 ? ", " : "", transport_shm_describe_rank(t, r).text);
    }
    if (n > NAMED)
        snprintf(more, sizeof more, " and %u more", n - NAMED);
    return co_fail(err, -ETIMEDOUT,
                   "timed out after %.3g s waiting for %s%s; raise " DDP_ENV_TIMEOUT
                   " if this is expected",
                   (double)t->call_timeout_ms / 1e3, n > 0 ? names : first, more);
}

static int describe_timeout(const struct transport_shm *t, struct control_abort why,
                            struct co_error *err)
{
    const unsigned missing = why.detail & 0xffff, others = why.detail >> 16;
    const struct rank_name first = name_of(t, missing);
    char and_others[32] = "";
    if (why.rank == t->member[t->rank].local_rank)
        return describe_own_timeout(t, first.text, err);
    if (others > 0)
        snprintf(and_others, sizeof and_others, " and %u more", others);
    return co_fail(err, -ETIMEDOUT, "%s timed out waiting for %s%s", name_of(t, why.rank).text,
                   first.text, and_others);
}

static int describe_reported(const struct transport_shm *t, struct control_abort why,
                             struct co_error *err)
{
    const int code = why.detail > 0 && why.detail < 4096 ? -(int)why.detail : -ECONNRESET;
    if (why.rank >= t->control->n_local)
        return co_fail(err, code, "the job is broken on another node");
    return co_fail(err, code, "%.*s", CONTROL_WHY_BYTES - 1, t->control->line[why.rank].why);
}

int transport_shm_describe(const struct transport_shm *t, struct co_error *err)
{
    const struct control_abort why = control_abort_get(t->control);
    switch (why.cause) {
    case CONTROL_RANK_DIED:
        return describe_death(t, why, err);
    case CONTROL_RANK_LEFT:
        return co_fail(err, -ECONNRESET, "%s left the job while others needed it",
                       name_of(t, why.rank).text);
    case CONTROL_MISMATCH:
        return describe_mismatch(t, why, err);
    case CONTROL_TIMEOUT:
        return describe_timeout(t, why, err);
    case CONTROL_JOB_STOPPING:
        return co_fail(err, -ECONNRESET, "ddprun is stopping the job");
    case CONTROL_RENEWED:
        return co_fail(err, -ECONNRESET, "the job continues in another generation");
    case CONTROL_UNREADABLE:
        return co_fail(err, -EFAULT, "cannot read the memory that %s passed to a call",
                       name_of(t, why.rank).text);
    case CONTROL_REPORTED:
        return describe_reported(t, why, err);
    default:
        return co_fail(err, -ECONNRESET, "the group is broken (cause %u)", why.cause);
    }
}
