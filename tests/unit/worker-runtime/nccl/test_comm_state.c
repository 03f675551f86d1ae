/* The life of a communicator: the table, walked through. */
#include "worker-runtime/nccl/comm_state.h"

#include "common/machine.h"
#include "tests/support/machine_checks.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>

static struct comm_life made(bool can_revoke, enum comm_state state)
{
    return (struct comm_life){.state = state, .can_revoke = can_revoke};
}

static const char *name_of(enum comm_state s)
{
    return comm_state_machine.states[s].name;
}

/* Whether something was begun whose end is the next event. */
static bool is_busy(enum comm_state s)
{
    return s == COMM_MAKING || s == COMM_ENDING || s == COMM_REVOKING || s == COMM_ABORTING;
}

static void expect(struct comm_life *l, enum comm_event e, enum comm_action action,
                   enum comm_state then)
{
    ck_assert_int_eq(comm_state_step(l, e), action);
    ck_assert_str_eq(name_of(l->state), name_of(then));
}

START_TEST(each_pair_of_state_and_event_has_one_answer)
{
    assert_whole(&comm_state_machine);
}
END_TEST

START_TEST(an_ignored_event_changes_nothing)
{
    for (int s = 0; s < COMM_N_STATES; s++)
        for (int e = 0; e < COMM_N_EVENTS; e++) {
            struct comm_life l = made(true, (enum comm_state)s);
            if (co_machine_ignores(&comm_state_machine, l.state, (unsigned)e))
                expect(&l, (enum comm_event)e, COMM_NOTHING, (enum comm_state)s);
        }
}
END_TEST

START_TEST(a_communicator_without_faults_is_made_and_destroyed)
{
    struct comm_life l = made(true, COMM_NEW);
    expect(&l, COMM_MAKE, COMM_BEGIN, COMM_MAKING);
    expect(&l, COMM_DONE, COMM_NOTHING, COMM_READY);
    expect(&l, COMM_CLOSE, COMM_END, COMM_ENDING);
    expect(&l, COMM_DONE, COMM_NOTHING, COMM_GONE);
}
END_TEST

START_TEST(a_communicator_of_a_broken_job_is_revoked_and_kept)
{
    struct comm_life l = made(true, COMM_READY);
    expect(&l, COMM_BROKEN, COMM_REVOKE, COMM_REVOKING);
    expect(&l, COMM_DONE, COMM_NOTHING, COMM_REVOKED);
    expect(&l, COMM_CLOSE, COMM_ABORT, COMM_ABORTING);
    expect(&l, COMM_DONE, COMM_NOTHING, COMM_GONE);
}
END_TEST

START_TEST(an_older_nccl_aborts_where_a_newer_one_revokes)
{
    static const enum comm_event bad[] = {COMM_FAILED, COMM_LATE, COMM_BROKEN};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct comm_life old = made(false, COMM_READY), newer = made(true, COMM_READY);
        expect(&old, bad[i], COMM_ABORT, COMM_ABORTING);
        expect(&newer, bad[i], COMM_REVOKE, COMM_REVOKING);
    }
}
END_TEST

START_TEST(a_communicator_that_cannot_be_revoked_is_aborted)
{
    static const enum comm_event bad[] = {COMM_FAILED, COMM_LATE};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct comm_life l = made(true, COMM_REVOKING);
        expect(&l, bad[i], COMM_ABORT, COMM_ABORTING);
    }
}
END_TEST

START_TEST(a_communicator_that_cannot_be_aborted_stays_stuck)
{
    static const enum comm_event bad[] = {COMM_FAILED, COMM_LATE};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct comm_life l = made(true, COMM_ABORTING);
        expect(&l, bad[i], COMM_NOTHING, COMM_STUCK);
        for (int e = 0; e < COMM_N_EVENTS; e++)
            expect(&l, (enum comm_event)e, COMM_NOTHING, COMM_STUCK);
    }
}
END_TEST

/* Every path ends: failures leave no state forever, and a close leads out of each state. */
START_TEST(from_each_state_failures_lead_to_an_end)
{
    for (int s = COMM_MAKING; s < COMM_N_STATES; s++) {
        struct comm_life l = made(true, (enum comm_state)s);
        for (int i = 0; i < 4; i++) {
            comm_state_step(&l, COMM_LATE);
            if (!is_busy(l.state))
                comm_state_step(&l, COMM_CLOSE);
        }
        ck_assert_msg(l.state == COMM_STUCK || l.state == COMM_GONE, "%s ends in %s",
                      name_of((enum comm_state)s), name_of(l.state));
    }
}
END_TEST

START_TEST(the_drawing_is_the_table)
{
    assert_drawn(&comm_state_machine, "nccl");
}
END_TEST

TEST_SUITE(comm_state)
{
    Suite *s = suite_create("comm_state");
    TCase *t = tcase_create("life");
    tcase_add_test(t, each_pair_of_state_and_event_has_one_answer);
    tcase_add_test(t, an_ignored_event_changes_nothing);
    tcase_add_test(t, a_communicator_without_faults_is_made_and_destroyed);
    tcase_add_test(t, a_communicator_of_a_broken_job_is_revoked_and_kept);
    tcase_add_test(t, an_older_nccl_aborts_where_a_newer_one_revokes);
    tcase_add_test(t, a_communicator_that_cannot_be_revoked_is_aborted);
    tcase_add_test(t, a_communicator_that_cannot_be_aborted_stays_stuck);
    tcase_add_test(t, from_each_state_failures_lead_to_an_end);
    tcase_add_test(t, the_drawing_is_the_table);
    suite_add_tcase(s, t);
    return s;
}
