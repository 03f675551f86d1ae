/* The life of a communicator: the table, walked through. */
#include "worker-runtime/nccl/life.h"

#include "common/machine.h"
#include "tests/support/machine_checks.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>

static struct life made(bool can_revoke, enum life_state state)
{
    return (struct life){.state = state, .can_revoke = can_revoke};
}

static void expect(struct life *l, enum life_event e, enum life_action action, enum life_state then)
{
    ck_assert_int_eq(life_step(l, e), action);
    ck_assert_str_eq(life_state_name(l->state), life_state_name(then));
}

START_TEST(each_pair_of_state_and_event_has_one_answer)
{
    assert_whole(&life_machine);
}
END_TEST

START_TEST(an_ignored_event_changes_nothing)
{
    for (int s = 0; s < LIFE_N_STATES; s++)
        for (int e = 0; e < LIFE_N_EVENTS; e++) {
            struct life l = made(true, (enum life_state)s);
            if (co_machine_ignores(&life_machine, l.state, (unsigned)e))
                expect(&l, (enum life_event)e, LIFE_NOTHING, (enum life_state)s);
        }
}
END_TEST

START_TEST(one_that_nothing_happens_to_is_made_and_ended)
{
    struct life l = made(true, LIFE_NEW);
    expect(&l, LIFE_MAKE, LIFE_BEGIN, LIFE_MAKING);
    expect(&l, LIFE_DONE, LIFE_NOTHING, LIFE_READY);
    expect(&l, LIFE_CLOSE, LIFE_END, LIFE_ENDING);
    expect(&l, LIFE_DONE, LIFE_NOTHING, LIFE_GONE);
}
END_TEST

START_TEST(one_of_a_broken_job_is_revoked_and_kept)
{
    struct life l = made(true, LIFE_READY);
    expect(&l, LIFE_BROKEN, LIFE_REVOKE, LIFE_REVOKING);
    expect(&l, LIFE_DONE, LIFE_NOTHING, LIFE_REVOKED);
    expect(&l, LIFE_CLOSE, LIFE_ABORT, LIFE_ABORTING);
    expect(&l, LIFE_DONE, LIFE_NOTHING, LIFE_GONE);
}
END_TEST

START_TEST(an_older_nccl_aborts_where_a_newer_one_revokes)
{
    static const enum life_event bad[] = {LIFE_FAILED, LIFE_LATE, LIFE_BROKEN};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct life old = made(false, LIFE_READY), newer = made(true, LIFE_READY);
        expect(&old, bad[i], LIFE_ABORT, LIFE_ABORTING);
        expect(&newer, bad[i], LIFE_REVOKE, LIFE_REVOKING);
    }
}
END_TEST

START_TEST(what_cannot_be_revoked_is_aborted)
{
    static const enum life_event bad[] = {LIFE_FAILED, LIFE_LATE};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct life l = made(true, LIFE_REVOKING);
        expect(&l, bad[i], LIFE_ABORT, LIFE_ABORTING);
    }
}
END_TEST

START_TEST(what_cannot_be_aborted_is_stuck_for_good)
{
    static const enum life_event bad[] = {LIFE_FAILED, LIFE_LATE};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct life l = made(true, LIFE_ABORTING);
        expect(&l, bad[i], LIFE_NOTHING, LIFE_STUCK);
        for (int e = 0; e < LIFE_N_EVENTS; e++)
            expect(&l, (enum life_event)e, LIFE_NOTHING, LIFE_STUCK);
    }
}
END_TEST

/* Every walk ends: no state is left by its failures for ever, and a close leads out of each. */
START_TEST(from_each_state_failures_lead_to_an_end)
{
    for (int s = LIFE_MAKING; s < LIFE_N_STATES; s++) {
        struct life l = made(true, (enum life_state)s);
        for (int i = 0; i < 4; i++) {
            life_step(&l, LIFE_LATE);
            if (!life_is_busy(l.state))
                life_step(&l, LIFE_CLOSE);
        }
        ck_assert_msg(l.state == LIFE_STUCK || l.state == LIFE_GONE, "%s ends in %s",
                      life_state_name((enum life_state)s), life_state_name(l.state));
    }
}
END_TEST

START_TEST(the_drawing_is_the_table)
{
    assert_drawn(&life_machine, "nccl");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("nccl_life");
    TCase *t = tcase_create("life");
    tcase_add_test(t, each_pair_of_state_and_event_has_one_answer);
    tcase_add_test(t, an_ignored_event_changes_nothing);
    tcase_add_test(t, one_that_nothing_happens_to_is_made_and_ended);
    tcase_add_test(t, one_of_a_broken_job_is_revoked_and_kept);
    tcase_add_test(t, an_older_nccl_aborts_where_a_newer_one_revokes);
    tcase_add_test(t, what_cannot_be_revoked_is_aborted);
    tcase_add_test(t, what_cannot_be_aborted_is_stuck_for_good);
    tcase_add_test(t, from_each_state_failures_lead_to_an_end);
    tcase_add_test(t, the_drawing_is_the_table);
    suite_add_tcase(s, t);
    return run_suite(s);
}
