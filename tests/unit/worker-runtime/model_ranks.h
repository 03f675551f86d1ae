/* model_ranks.h - ranks that have a model of a few tensors, for tests. */
#ifndef DDP_TESTS_UNIT_WORKER_RUNTIME_MODEL_RANKS_H
#define DDP_TESTS_UNIT_WORKER_RUNTIME_MODEL_RANKS_H

#include "ranks.h"

#include "worker-runtime/arithmetic/convert.h"
#include "worker-runtime/core/group.h"
#include "worker-runtime/core/process.h"
#include "worker-runtime/group/recovery.h"

#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { SMALL_MOST = 32, SMALL_TIMEOUT_MS = 60000 };

static int own_rank;

#define rank_expect(condition) RANK_CHECK(own_rank, condition, "must hold")
#define rank_expect_text(part) RANK_CHECK(own_rank, strstr(ddp_last_error(), part) != NULL, "text")

struct ranks_job {
    void (*body)(struct ddp_group *g, void *arg);
    void *arg;
};

static inline int ranks_job_run(int rank, void *arg)
{
    const struct ranks_job *job = arg;
    own_rank = rank;
    struct ddp_group *g = rank_init(rank, SMALL_TIMEOUT_MS);
    job->body(g, job->arg);
    ddp_finalize(g);
    exit(0); /* not _exit(): leak checkers speak at exit */
}

/* Run body on n ranks of one job; all of them must end with 0. */
static inline void ranks_run(int n, void (*body)(struct ddp_group *g, void *arg), void *arg)
{
    struct ranks r;
    ranks_start(&r, n, ranks_job_run, &(struct ranks_job){body, arg});
    ranks_expect_success(&r);
}

/* Tensors of `count` elements each, whose parameters are their numbers. */
struct small {
    struct ddp_tensor t[SMALL_MOST];
    size_t n;
    struct ddp_model *m;
};

static inline void small_init(struct small *s, size_t n, size_t count, enum ddp_dtype dtype)
{
    *s = (struct small){.n = n};
    for (size_t i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%zu", i);
        s->t[i] = (struct ddp_tensor){.name = strdup(name),
                                      .param = calloc(count + 1, sizeof(double)),
                                      .count = count,
                                      .dtype = dtype};
    }
}

static inline void small_fini(struct small *s)
{
    ddp_model_destroy(s->m);
    for (size_t i = 0; i < s->n; i++) {
        free((char *)s->t[i].name);
        free(s->t[i].param);
    }
}

static inline void small_create(struct small *s, struct ddp_group *g,
                                const struct ddp_model_opts *opts)
{
    rank_expect(ddp_model_create(g, s->t, s->n, opts, &s->m) == 0);
}

/* A gradient that all types hold. */
static inline double small_value(int rank, int step, size_t i, size_t k)
{
    return (double)((rank * 5 + step * 3 + (int)i * 2 + (int)(k % 7)) % 16) - 6;
}

static inline void small_set(const struct ddp_tensor *t, size_t k, double value)
{
    const float single = (float)value;
    if (t->dtype == DDP_FLOAT64)
        ((double *)t->grad)[k] = value;
    else if (t->dtype == DDP_FLOAT32)
        ((float *)t->grad)[k] = single;
    else
        convert(process_kernels(), (uint16_t *)t->grad + k, t->dtype, &single, DDP_FLOAT32, 1);
}

static inline double small_get(const struct ddp_tensor *t, size_t k)
{
    return convert_get(t->grad, t->dtype, k);
}

static inline void small_backward(struct small *s, int rank, int step)
{
    for (size_t i = 0; i < s->n; i++)
        for (size_t k = 0; k < s->t[i].count; k++)
            small_set(&s->t[i], k, small_value(rank, step, i, k));
}

static inline void small_say_all(struct small *s)
{
    rank_expect(ddp_model_ready_range(s->m, 0, s->n) == 0);
}

/* Gradients are `factor` times the sum of those of ranks 0 .. n - 1. */
static inline void small_expect_sums(const struct small *s, int n, int step, double factor,
                                     double tolerance)
{
    for (size_t i = 0; i < s->n; i++)
        for (size_t k = 0; k < s->t[i].count; k++) {
            double sum = 0;
            for (int rank = 0; rank < n; rank++)
                sum += small_value(rank, step, i, k);
            RANK_CHECK(own_rank, fabs(small_get(&s->t[i], k) - sum * factor) <= tolerance,
                       "step %d, gradient %zu, element %zu is %g, not %g", step, i, k,
                       small_get(&s->t[i], k), sum * factor);
        }
}

static inline struct ddp_model_stats small_stats(const struct small *s)
{
    struct ddp_model_stats stats;
    ddp_model_get_stats(s->m, &stats);
    return stats;
}

/* --- generations ------------------------------------------------------------------------------ */

/* They are made over one group: struct recovery, which is ddp_run()'s, is filled in by hand. A rank
 * that `joins` is a new one, without state. */
static inline void generation_begin(struct ddp_group *g, struct recovery *r, uint64_t n_steps,
                                    bool joins)
{
    if (g->world->recovery == NULL)
        recovery_init(r);
    if (joins)
        r->n_done = 0;
    g->world->recovery = r;
    g->world->has_memory = false;
    r->again.may_follow = true;
    r->most_done = n_steps;
    r->all_have = false;
    r->next_model = &r->models;
    r->memory = NULL;
    r->memory_end = &r->memory;
}

static inline void generation_end(struct ddp_group *g, struct recovery *r)
{
    group_destroy_children(g);
    g->world->recovery = NULL;
    recovery_fini(r);
}

/* --- three ranks of which one is killed: do the others agree on the last step that counts? ---- */

static _Atomic uint64_t *small_counted; /* steps that each had, in memory they share */

static inline int small_train_until_death(int rank, void *arg)
{
    struct small s;
    (void)arg;
    own_rank = rank;
    struct ddp_group *g = rank_init(rank, SMALL_TIMEOUT_MS);
    small_init(&s, 2, 4, DDP_FLOAT32);
    small_create(&s, g, NULL);
    for (;;) {
        int rc = ddp_model_sync(s.m);
        if (rc != 0)
            return rc == DDP_EPEER ? 0 : 1;
        atomic_fetch_add(&small_counted[rank], 1);
    }
}

/* Before the ranks start. */
static inline void small_count_begin(void)
{
    small_counted = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(small_counted, MAP_FAILED);
}

/* Kill rank 2 after this many steps, and wait for all. */
static inline void small_count_end(struct ranks *r, uint64_t n_steps)
{
    const uint64_t deadline_ms = co_deadline_ms(60000);
    while (atomic_load(&small_counted[2]) < n_steps && co_left_ms(deadline_ms) > 0)
        sched_yield();
    ck_assert_int_eq(kill(r->pid[2], SIGKILL), 0);
    ranks_wait(r);
    for (int rank = 0; rank < 2; rank++)
        ck_assert(WIFEXITED(r->status[rank]) && WEXITSTATUS(r->status[rank]) == 0);
    ck_assert_uint_eq(atomic_load(&small_counted[0]), atomic_load(&small_counted[1]));
    ck_assert_uint_ge(atomic_load(&small_counted[0]) + 1, n_steps);
    munmap(small_counted, 4096);
}

#endif
