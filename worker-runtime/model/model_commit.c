/* model_commit.c - the exchange at the end of a step.
 *
 * Every rank sends what its peers must know before they use the step's gradients, in a call of the
 * size of a barrier; the largest of each number comes back, the same to all. Then the ranks of a
 * node settle by one word that the step counts (model_priv.h): if a rank dies in the middle of the
 * exchange, either all of its peers have received it, or none. */
#include "model_priv.h"

#include "worker-runtime/core/backend.h"
#include "worker-runtime/group/checkpoint_request.h"
#include <ddp/collective.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* --- failures --------------------------------------------------------------------------------- */

int model_keep_failure(struct ddp_model *m, int status, bool is_the_groups)
{
    if (m->failure == 0 || (is_the_groups && !m->broken)) {
        m->failure = status;
        snprintf(m->failure_text, sizeof(m->failure_text), "%s", ddp_last_error());
    }
    m->broken |= is_the_groups;
    return status;
}

int model_misuse(struct ddp_model *m, const char *format, ...)
{
    char text[CO_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return model_keep_failure(m, rt_fail(DDP_EINVAL, "%s", text), false);
}

int model_tell_failure(const struct ddp_model *m)
{
    return m->failure == 0 ? 0 : rt_fail(m->failure, "%s", m->failure_text);
}

/* --- one word for a node ---------------------------------------------------------------------- */

enum { BROKEN = 1 };

static uint64_t step_of(uint64_t word)
{
    return word >> 1;
}

bool model_commit_decide(_Atomic uint64_t *word, uint64_t step)
{
    uint64_t is = atomic_load(word);
    while (step_of(is) < step && (is & BROKEN) == 0)
        if (atomic_compare_exchange_weak(word, &is, step << 1))
            return true;
    return step_of(is) >= step;
}

bool model_commit_give_up(_Atomic uint64_t *word, uint64_t step)
{
    return step_of(atomic_fetch_or(word, BROKEN)) >= step;
}

/* --- the exchange ----------------------------------------------------------------------------- */

/* 28 bytes: they travel in the cache line that shows that a rank has arrived. */
struct says {
    uint32_t misuse;     /* a rank that has made this step fail, + 1; 0: none */
    uint32_t active;     /* world size - rank, of one that has a batch: the lowest one wins */
    uint32_t bad;        /* a gradient whose average is not finite, + 1 */
    uint32_t own_bad;    /* a rank that had such a gradient itself, + 1 */
    uint32_t pending;    /* a node waits to join, and a rank was notified */
    uint32_t signature;  /* of the step: the same on all ranks if the largest one ... */
    uint32_t complement; /* ... is the complement of this one's largest */
};
enum { N_WORDS = sizeof(struct says) / sizeof(uint32_t) };

static struct says describe_step(const struct ddp_model *m)
{
    const struct ddp_group *g = m->g;
    const uint32_t rank = (uint32_t)g->rank + 1;
    const uint32_t signature = (uint32_t)(m->n_steps * 2654435761u + m->set.plan.n_buckets);
    return (struct says){
        .misuse = m->failure != 0 ? rank : 0,
        .active = m->is_joined ? 0 : (uint32_t)(g->world_size - g->rank),
        .bad = m->bad == MODEL_NONE  ? 0
               : m->bad < UINT32_MAX ? (uint32_t)m->bad + 1
                                     : UINT32_MAX,
        .own_bad = m->own_bad != MODEL_NONE ? rank : 0,
        .pending = m->checkpoint_fd >= 0 && checkpoint_request_is_asked(m->checkpoint_fd),
        .signature = signature,
        .complement = ~signature,
    };
}

/* The result of the exchange, whether the step counts or not. */
static void take_answer(struct ddp_model *m, const struct says *says)
{
    struct ddp_group *g = m->g;
    if (says->active != 0)
        m->last_active_rank = g->world_size - (int)says->active;
    if (m->checkpoint_fd >= 0) {
        g->world->knows_pending = true;
        g->world->pending = says->pending != 0;
    }
}

/* What a step that all ranks have finished fails with. */
static int fail_for_all(struct ddp_model *m, const struct says *says)
{
    if (m->failure != 0)
        return m->failure;
    if (says->misuse != 0)
        rt_fail(DDP_EMISMATCH,
                "ddp_model_sync: rank %" PRIu32 " could not finish this step; the step counts on "
                "no rank; check the message of that rank",
                says->misuse - 1);
    else
        rt_fail(DDP_EMISMATCH, "ddp_model_sync: the ranks are in different steps of the model: "
                               "check that all ranks make the same calls");
    return model_keep_failure(m, DDP_EMISMATCH, false);
}

static int fail_not_finite(struct ddp_model *m, const struct says *says)
{
    char where[96] = "",
         whose[96] = "each rank's own gradient was finite, but their sum overflowed";
    const size_t i = says->bad != 0 ? says->bad - 1 : m->own_bad;
    if (m->bad == i)
        snprintf(where, sizeof(where), ": element %zu of its average is %g", m->bad_at,
                 m->bad_value);
    if (says->own_bad != 0)
        snprintf(whose, sizeof(whose), "rank %" PRIu32 " computed the value", says->own_bad - 1);
    if (i < m->n_tensors)
        rt_fail(DDP_ENOTFINITE, "ddp_model_sync: gradient %zu '%s' is not finite%s; %s", i,
                m->tensors[i].name, where, whose);
    else
        rt_fail(DDP_ENOTFINITE, "ddp_model_sync: a gradient is not finite; %s", whose);
    return model_keep_failure(m, DDP_ENOTFINITE, false);
}

static int judge_step(struct ddp_model *m, const struct says *says)
{
    if (says->misuse != 0 || says->signature != ~says->complement)
        return fail_for_all(m, says);
    m->found_inf = says->bad != 0;
    if (m->opts.check_finite && (says->bad != 0 || says->own_bad != 0))
        return fail_not_finite(m, says);
    return 0;
}

/* The group broke. The step may still count; then the next call has the failure. */
static int settle_failure(struct ddp_model *m, _Atomic uint64_t *word, uint64_t step, int rc)
{
    rt_fail(rc, "ddp_model_sync: %s", ddp_last_error());
    model_keep_failure(m, rc, true);
    return word != NULL && model_commit_give_up(word, step) ? 0 : rc;
}

int model_commit(struct ddp_model *m, bool *ret_any_active)
{
    struct ddp_group *g = m->g;
    _Atomic uint64_t *word = g->backend != NULL ? g->backend->ops->commit_word(g->backend) : NULL;
    struct says says = describe_step(m);
    const uint64_t step = ++g->n_exchanges;
    *ret_any_active = true;
    int rc = ddp_all_reduce(g, &says, &says, N_WORDS, DDP_UINT32, DDP_MAX, NULL);
    if (rc != 0)
        return settle_failure(m, word, step, rc);
    *ret_any_active = says.active != 0;
    take_answer(m, &says);
    rc = judge_step(m, &says);
    if (rc != 0 || word == NULL || model_commit_decide(word, step))
        return rc;
    /* a rank of this node that failed in the exchange was faster */
    rc = rt_fail(rt_broken(),
                 "ddp_model_sync: another rank of this node lost its peers in this step");
    return model_keep_failure(m, rc, true);
}
