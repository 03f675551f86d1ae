/* one_job.h - a job of several nodes under test, and what each of them came to. */
#ifndef DDP_TESTS_UNIT_LAUNCHER_MEMBERSHIP_ONE_JOB_H
#define DDP_TESTS_UNIT_LAUNCHER_MEMBERSHIP_ONE_JOB_H

#include "tests/support/nodes.h"
#include "tests/support/suite.h"

#include <check.h>
#include <signal.h>

/* The cases of the file of test_roster_agent that has no main(), with the fixture below. */
TCase *roster_agent_recovery_cases(void);

#define EXIT_STATUS(code) ((code) << 8)

static struct nodes *w;

static inline void begin(uint32_t min, uint32_t max, uint32_t max_restarts)
{
    struct message_terms terms = {.min_nodes = min,
                                  .max_nodes = max,
                                  .window_ms = 3000,
                                  .start_timeout_ms = 10000,
                                  .rejoin_timeout_ms = 20000,
                                  .max_restarts = max_restarts};
    w = nodes_create(&terms);
}

/* Jobs of one to three nodes, of which those that come late wait for a checkpoint. */
static inline void begin_at_checkpoint(void)
{
    struct message_terms terms = {.min_nodes = 1,
                                  .max_nodes = 3,
                                  .window_ms = 3000,
                                  .start_timeout_ms = 10000,
                                  .rejoin_timeout_ms = 20000,
                                  .admit_at = MESSAGE_ADMIT_AT_CHECKPOINT};
    w = nodes_create(&terms);
}

static inline void start(int n_nodes)
{
    for (int i = 0; i < n_nodes; i++)
        nodes_start(w, i, false);
}

static inline void tear_down(void)
{
    nodes_destroy(w);
    w = NULL;
}

static inline void expect_some_running(int node, uint32_t generation, int n, uint32_t first_rank,
                                       uint32_t world_size)
{
    struct nodes_view v = nodes_look(w, node);
    ck_assert_int_eq(v.n_running, n);
    ck_assert_int_eq(supervisor_get_state(v.supervisor), SUPERVISOR_RUNNING);
    ck_assert_uint_eq(v.generation, generation);
    ck_assert_uint_eq(v.first_rank, first_rank);
    ck_assert_uint_eq(v.world_size, world_size);
}

static inline void expect_running(int node, uint32_t generation, uint32_t first_rank,
                                  uint32_t world_size)
{
    expect_some_running(node, generation, NODES_LOCAL, first_rank, world_size);
}

static inline void expect_end(int node, int exit_code, int die_of)
{
    struct nodes_view v = nodes_look(w, node);
    ck_assert_msg(v.ended, "n%d has not ended", node);
    ck_assert_int_eq(v.exit_code, exit_code);
    ck_assert_int_eq(v.die_of, die_of);
    ck_assert_int_eq(v.n_running, 0);
}

static inline void expect_text(int node, const char *text)
{
    ck_assert_str_eq(member_get_end(nodes_look(w, node).member)->text, text);
}

#endif
