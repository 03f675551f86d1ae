/* one_supervisor.h - a supervisor under test: what happens to its ranks, and what it orders. */
#ifndef DDP_TESTS_UNIT_LAUNCHER_SUPERVISOR_ONE_SUPERVISOR_H
#define DDP_TESTS_UNIT_LAUNCHER_SUPERVISOR_ONE_SUPERVISOR_H

#include "launcher/supervisor/supervisor.h"

#include "tests/support/suite.h"

#include <check.h>
#include <signal.h>
#include <stdlib.h>

/* The cases of the files of test_supervisor that have no main(), with the fixture below. */
TCase *supervisor_abort_cases(void);
TCase *supervisor_recovery_cases(void);

static struct supervisor *s;
static struct supervisor_orders o;
static uint64_t now_ms;

#define EXIT_STATUS(code) ((code) << 8)

static inline void step(struct supervisor_event e)
{
    e.now_ms = now_ms;
    supervisor_step(s, &e, &o);
}

/* The next generation, as the roster orders it: of as many ranks as it could have. */
static inline void next(uint32_t generation)
{
    step((struct supervisor_event){SUPERVISOR_EV_NEXT, .generation = generation,
                                   .n_ranks = supervisor_n_next(s)});
}

static inline void create(const struct supervisor_limits *limits)
{
    s = supervisor_create(limits);
    ck_assert_ptr_nonnull(s);
    now_ms = 1000;
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_WAITING);
}

/* has_others   other nodes take part: they also decide how the job ends */
static inline void create_usual(int n_ranks, bool has_others)
{
    create(&(struct supervisor_limits){.n_ranks = n_ranks,
                                       .window = 2,
                                       .grace_ms = 30000,
                                       .failure_grace_ms = 5000,
                                       .has_others = has_others});
}

static inline void begin(int n_ranks)
{
    create_usual(n_ranks, false);
    next(0);
}

static inline void finish(int exit_code, int sig, enum supervisor_ender ender)
{
    step((struct supervisor_event){SUPERVISOR_EV_FINISH, .exit_code = exit_code, .sig = sig,
                                   .ender = ender});
}

static inline void started(int rank)
{
    step((struct supervisor_event){SUPERVISOR_EV_STARTED, .rank = rank, .pid = 100 + rank});
}

static inline void exited(int rank, int status, bool empty)
{
    step((struct supervisor_event){SUPERVISOR_EV_EXITED, .rank = rank, .status = status,
                                   .empty = empty});
}

static inline void exited_of_another(int rank, int status)
{
    step((struct supervisor_event){SUPERVISOR_EV_EXITED, .rank = rank, .status = status,
                                   .lost_peer = true});
}

/* Ranks that run, one of which had cause_ms when it lost a peer. */
static inline void begin_to_lose_a_peer(int n_ranks, uint64_t cause_ms, bool has_others)
{
    create(&(struct supervisor_limits){.n_ranks = n_ranks,
                                       .window = n_ranks,
                                       .grace_ms = 30000,
                                       .failure_grace_ms = 5000,
                                       .has_others = has_others,
                                       .cause_ms = cause_ms});
    next(0);
    for (int i = 0; i < n_ranks; i++)
        started(i);
}

static inline void begin_and_lose_a_peer(int n_ranks, uint64_t cause_ms)
{
    begin_to_lose_a_peer(n_ranks, cause_ms, false);
    exited_of_another(0, EXIT_STATUS(1));
}

static inline void exited_before_our_signal(int rank, int status, bool empty)
{
    step((struct supervisor_event){SUPERVISOR_EV_EXITED, .rank = rank, .status = status,
                                   .was_ending = true, .empty = empty});
}

static inline void signalled(int sig)
{
    step((struct supervisor_event){SUPERVISOR_EV_SIGNAL, .sig = sig});
}

static inline void event(enum supervisor_event_type type)
{
    step((struct supervisor_event){type});
}

static inline void begin_and_start(int n_ranks)
{
    begin(n_ranks);
    for (int i = 0; i < n_ranks; i++)
        started(i);
    ck_assert_int_eq(supervisor_get_state(s), SUPERVISOR_RUNNING);
}

static inline void set_up(void)
{
    s = NULL;
}

static inline void tear_down(void)
{
    supervisor_destroy(s);
}

#endif
