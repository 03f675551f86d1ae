/* transport_shm_why.c - why the group broke: from the abort word to a text, and back. */
#include "transport_shm_inside.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { NAMED = 8 }; /* ranks in one text */

void why_tell(struct transport_shm *t, enum control_cause cause, unsigned local_rank,
              uint32_t detail)
{
    control_abort_set(t->control, (struct control_abort){.cause = (uint16_t)cause,
                                                         .rank = (uint16_t)local_rank,
                                                         .detail = detail});
}

/* A mismatch is told as a pair of ranks of a group, the lower one in `detail` beside the group and
 * which of the two slots holds the call. */
void why_tell_mismatch(struct transport_shm *t, unsigned other)
{
    unsigned low = other < t->rank ? other : t->rank;
    unsigned high = other < t->rank ? t->rank : other;
    why_tell(t, CONTROL_MISMATCH, high, t->group << 17 | (t->seq & 1) << 16 | low);
}

/* How many steps a rank is behind this one; 0: it has come. */
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

/* Those who are missing may themselves wait for one that is further behind: that one is named. */
void why_tell_timeout(struct transport_shm *t)
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
        why_tell(t, CONTROL_TIMEOUT, t->member[t->rank].local_rank,
                 (n_missing - 1) << 16 | t->member[first].local_rank);
}

/* --- texts ------------------------------------------------------------------------------------ */

static int describe_mismatch(const struct transport_shm *t, struct control_abort why,
                             struct co_error *err)
{
    const unsigned low = why.detail & 0xffff, group = why.detail >> 17;
    if (low == WHY_MESSAGE)
        return co_fail(err, -EPROTO, "a message to rank %u is not what it expected", why.rank);
    if (group != t->group || low >= t->n_ranks || why.rank >= t->n_ranks)
        return co_fail(err, -EPROTO, "ranks of another group called different collectives");
    const struct slot *a = slot_of(t, why.rank, why.detail >> 16);
    const struct slot *b = slot_of(t, low, why.detail >> 16);
    char text_a[CALL_TEXT_BYTES], text_b[CALL_TEXT_BYTES];
    if (call_same(&a->call, &b->call) && a->call.form == CALL_PAIRS)
        return co_fail(err, -EPROTO,
                       "%s, call #%u: ranks %u and %u do not expect the counts that they send each "
                       "other",
                       call_format(&a->call, text_a), a->seq, low, why.rank);
    return co_fail(err, -EPROTO, "rank %u called %s as call #%u where rank %u called %s",
                   t->member[why.rank].local_rank, call_format(&a->call, text_a), a->seq,
                   t->member[low].local_rank, call_format(&b->call, text_b));
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

void transport_shm_describe_rank(const struct transport_shm *t, unsigned rank,
                                 char text[TRANSPORT_SHM_RANK_TEXT_BYTES])
{
    const struct transport_shm_member *m = &t->member[rank];
    const uint64_t where = atomic_load(&m->line->where);
    const uint32_t seq = (uint32_t)(where >> 32);
    const uint32_t pid = atomic_load(&t->control->line[m->local_rank].pid);
    const char *kind = call_kind_name(where >> 1 & 0xff);
    char last[64];
    if (seq == 0)
        snprintf(last, sizeof last, "made no call yet");
    else if (where & 1)
        snprintf(last, sizeof last, "is in %s, call #%u", kind, seq);
    else
        snprintf(last, sizeof last, "last made call #%u, %s", seq, kind);
    snprintf(text, TRANSPORT_SHM_RANK_TEXT_BYTES, "rank %u (process %u, which %s)", m->local_rank,
             pid, last);
}

/* The missing, those furthest behind first. */
static int describe_own_timeout(const struct transport_shm *t, const char *first,
                                struct co_error *err)
{
    char names[NAMED * (TRANSPORT_SHM_RANK_TEXT_BYTES + 2)] = "", more[32] = "";
    const uint32_t longest = longest_lag(t);
    size_t length = 0;
    unsigned n = 0;
    for (unsigned i = 0; i < 2 * t->n_ranks;
         i++) { /* two rounds: the furthest behind; the others */
        const unsigned r = i % t->n_ranks;
        const uint32_t lag = lag_of(t, r);
        char name[TRANSPORT_SHM_RANK_TEXT_BYTES];
        if (lag == 0 || (lag == longest) != (i < t->n_ranks) || n++ >= NAMED)
            continue;
        transport_shm_describe_rank(t, r, name);
        length += (size_t)snprintf(names + length, sizeof names - length, "%s%s",
                                   length > 0 ? ", " : "", name);
    }
    if (n > NAMED)
        snprintf(more, sizeof more, " and %u more", n - NAMED);
    return co_fail(err, -ETIMEDOUT, "waited %.3g s in vain for %s%s",
                   (double)t->call_timeout_ms / 1e3, n > 0 ? names : first, more);
}

static int describe_timeout(const struct transport_shm *t, struct control_abort why,
                            struct co_error *err)
{
    const unsigned missing = why.detail & 0xffff, others = why.detail >> 16;
    char first[32], and_others[32] = "";
    snprintf(first, sizeof first, "rank %u", missing);
    if (why.rank == t->member[t->rank].local_rank)
        return describe_own_timeout(t, first, err);
    if (others > 0)
        snprintf(and_others, sizeof and_others, " and %u more", others);
    return co_fail(err, -ETIMEDOUT, "rank %u gave up waiting for %s%s", why.rank, first,
                   and_others);
}

int transport_shm_describe(const struct transport_shm *t, struct co_error *err)
{
    const struct control_abort why = control_abort_get(t->control);
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
    case CONTROL_UNREADABLE:
        return co_fail(err, -EFAULT, "the memory that rank %u gave to a call cannot be read",
                       why.rank);
    default:
        return co_fail(err, -ECONNRESET, "the group is broken (cause %u)", why.cause);
    }
}
