/* test_memory_plan.c - the plan alone, and all ranks of small jobs that save, fail and load at any
 * moment by it. */
#include "tests/support/chance.h"
#include "tests/support/suite.h"
#include "worker-runtime/memory/memory_plan.h"

#include <check.h>

enum { MOST = 6 };

static struct memory_save save_of(uint64_t serial, unsigned rank, unsigned n)
{
    return (struct memory_save){
        .id = {serial, 7}, .step = (int64_t)serial, .rank = rank, .world_size = n, .is_whole = 1};
}

/* n ranks, `per_node` on each node, without saves */
static void fill(struct memory_member *m, unsigned n, unsigned per_node)
{
    memset(m, 0, n * sizeof *m);
    for (unsigned r = 0; r < n; r++)
        m[r].node = r / per_node;
}

START_TEST(the_newest_save_that_all_have_is_loaded)
{
    struct memory_member m[2];
    fill(m, 2, 1);
    ck_assert_uint_eq(memory_plan_newest(m, 2).serial, 0);
    m[0].saves[0] = save_of(1, 0, 2);
    m[0].saves[1] = save_of(2, 0, 2);
    m[1].saves[3] = save_of(1, 1, 2);
    ck_assert_uint_eq(memory_plan_newest(m, 2).serial, 1);
    ck_assert_uint_eq(memory_plan_highest(m, 2), 2);
    m[0].saves[2] = save_of(2, 1, 2); /* a copy */
    ck_assert_uint_eq(memory_plan_newest(m, 2).serial, 2);
    m[0].saves[2].is_whole = 0;
    ck_assert_uint_eq(memory_plan_newest(m, 2).serial, 1);
}
END_TEST

START_TEST(states_of_other_worlds_and_lineages_do_not_mix)
{
    struct memory_member m[2];
    fill(m, 2, 1);
    m[0].saves[0] = save_of(5, 0, 2);
    m[1].saves[0] = save_of(5, 1, 2);
    m[1].saves[0].id.lineage = 8;
    ck_assert_uint_eq(memory_plan_newest(m, 2).serial, 0);
    m[1].saves[0] = save_of(5, 1, 3);
    ck_assert_uint_eq(memory_plan_newest(m, 2).serial, 0);
    m[1].saves[0] = save_of(5, 2, 2); /* no such rank */
    ck_assert_uint_eq(memory_plan_newest(m, 2).serial, 0);
    ck_assert_uint_eq(memory_plan_highest(m, 2), 5);
}
END_TEST

START_TEST(an_older_save_does_not_return_after_one_of_another_world)
{
    struct memory_member m[4];
    fill(m, 4, 2);
    for (unsigned r = 0; r < 4; r++)
        m[r].saves[0] = save_of(2, r, 4);
    ck_assert_uint_eq(memory_plan_newest(m, 4).serial, 2);
    m[0].saves[1] = save_of(3, 0, 2); /* half of it */
    ck_assert_uint_eq(memory_plan_newest(m, 4).serial, 2);
    m[1].saves[1] = save_of(3, 1, 2);
    ck_assert_uint_eq(memory_plan_newest(m, 4).serial, 0);
    m[1].saves[1].world_size = UINT32_MAX;
    ck_assert_uint_eq(memory_plan_newest(m, 4).serial, 2);
}
END_TEST

START_TEST(the_nearest_holder_gives_a_state)
{
    struct memory_member m[4];
    unsigned slot = 9;
    fill(m, 4, 2);
    const struct memory_id id = {3, 7};
    ck_assert_int_eq(memory_plan_holder(m, 4, id, 2, &slot), -1);
    m[1].saves[3] = save_of(3, 2, 4);
    ck_assert_int_eq(memory_plan_holder(m, 4, id, 2, &slot), 1);
    ck_assert_uint_eq(slot, 3);
    m[3].saves[1] = save_of(3, 2, 4);
    ck_assert_int_eq(memory_plan_holder(m, 4, id, 2, &slot), 3);
    ck_assert_uint_eq(slot, 1);
    m[2].saves[0] = save_of(3, 2, 4);
    ck_assert_int_eq(memory_plan_holder(m, 4, id, 2, &slot), 2);
    ck_assert_uint_eq(slot, 0);
}
END_TEST

START_TEST(copies_are_on_another_node)
{
    struct memory_member m[6];
    fill(m, 1, 1);
    ck_assert_uint_eq(memory_plan_distance(m, 1), 0);
    fill(m, 4, 4);
    ck_assert_uint_eq(memory_plan_distance(m, 4), 0);
    fill(m, 4, 2);
    ck_assert_uint_eq(memory_plan_distance(m, 4), 2);
    fill(m, 6, 2);
    ck_assert_uint_eq(memory_plan_distance(m, 6), 2);
    fill(m, 4, 2); /* dealt to the nodes in turns */
    m[1].node = 1;
    m[2].node = 0;
    ck_assert_uint_eq(memory_plan_distance(m, 4), 1);
    fill(m, 4, 3); /* one node has more than half */
    ck_assert_uint_eq(memory_plan_distance(m, 4), 0);
    fill(m, 6, 3); /* 3, 2, 1 */
    m[5].node = 2;
    ck_assert_uint_eq(memory_plan_distance(m, 6), 3);
}
END_TEST

START_TEST(a_save_is_copied_if_each_state_is_on_two_nodes)
{
    struct memory_member m[2];
    fill(m, 2, 1);
    m[0].saves[0] = save_of(1, 0, 2);
    m[0].saves[1] = save_of(1, 1, 2);
    m[1].saves[0] = save_of(1, 1, 2);
    ck_assert_uint_eq(memory_plan_copied(m, 2).serial, 0);
    m[1].saves[1] = save_of(1, 0, 2);
    ck_assert_uint_eq(memory_plan_copied(m, 2).serial, 1);
    m[0].saves[2] = save_of(2, 0, 2);
    m[1].saves[2] = save_of(2, 1, 2);
    ck_assert_uint_eq(memory_plan_copied(m, 2).serial, 1);
    m[1].node = 0;
    ck_assert_uint_eq(memory_plan_copied(m, 2).serial, 0);
}
END_TEST

START_TEST(the_oldest_slot_is_written_and_what_is_kept_is_not)
{
    struct memory_save s[MEMORY_SLOTS] = {save_of(2, 0, 2), save_of(1, 0, 2), save_of(2, 1, 2),
                                          save_of(1, 1, 2)};
    const struct memory_keep none = {.rank = 0}, two = {.all = {{2, 7}}},
                             both = {.all = {{2, 7}}, .own = {1, 7}, .rank = 0};
    s[4] = save_of(2, 0, 2);
    ck_assert_int_eq(memory_plan_slot(s, 4, &two), 1);
    ck_assert_int_eq(memory_plan_slot(s, 4, &none), 1);
    ck_assert_int_eq(memory_plan_slot(s, 1, &two), -1);
    ck_assert_int_eq(memory_plan_slot(s, 4, &both), 3); /* of another rank */
    ck_assert_int_eq(memory_plan_slot(s, 3, &both), -1);
    ck_assert_int_eq(
        memory_plan_slot_to_load(s, (struct memory_id){2, 7}, (struct memory_id){1, 7}, 0), 1);
    ck_assert_int_eq(
        memory_plan_slot_to_load(s, (struct memory_id){2, 7}, (struct memory_id){2, 7}, 0), 1);
    s[3].id.serial = 3;
    ck_assert_int_eq(
        memory_plan_slot_to_load(s, (struct memory_id){2, 7}, (struct memory_id){1, 7}, 0), 3);
    s[2].is_whole = 0;
    ck_assert_int_eq(memory_plan_slot(s, 4, &two), 2);
}
END_TEST

START_TEST(a_lent_slot_is_not_written)
{
    struct memory_save s[MEMORY_SLOTS] = {0};
    const struct memory_id id = {2, 7};
    struct memory_keep keep = {.lent = 1u << 0 | 1u << 2};
    ck_assert_int_eq(memory_plan_slot(s, 2, &keep), 1);
    s[1] = save_of(2, 0, 2);
    ck_assert_int_eq(memory_plan_slot(s, 1, &keep), 1);
    ck_assert_int_eq(memory_plan_slot(s, 2, &keep), 3); /* two that are not lent: 1 and 3 */
    s[3] = save_of(1, 0, 2);
    ck_assert_int_eq(memory_plan_slot(s, 2, &keep), 3);
    ck_assert_int_eq(memory_plan_slot(s, 3, &keep), 4);
    ck_assert_int_eq(memory_plan_slot_to_load(s, id, id, 1u << 0), 2);
    ck_assert_int_eq(memory_plan_slot_to_load(s, id, id, 1u << 0 | 1u << 2 | 1u << 4), 3);
    keep.lent = (1u << MEMORY_SLOTS) - 1;
    ck_assert_int_eq(memory_plan_slot(s, MEMORY_SLOTS, &keep), -1);
}
END_TEST

START_TEST(after_a_load_only_its_states_are_kept)
{
    const struct memory_id id = {4, 7}, none = {0, 0};
    const struct memory_save own = save_of(4, 1, 4), copy = save_of(4, 3, 4),
                             other = save_of(4, 2, 4), old = save_of(3, 1, 4);
    ck_assert(memory_plan_keeps(&own, id, id, 1, 3));
    ck_assert(memory_plan_keeps(&copy, id, id, 1, 3));
    ck_assert(!memory_plan_keeps(&copy, id, id, 1, -1));
    ck_assert(!memory_plan_keeps(&other, id, id, 1, 3));
    ck_assert(!memory_plan_keeps(&old, id, id, 1, 3));
    ck_assert(memory_plan_keeps(&old, id, old.id, 1, 3)); /* the last one with copies */
    ck_assert(memory_plan_keeps(&old, none, none, 1, 3));
}
END_TEST

/* --- any order of what ranks do, and any failure ---------------------------------------------- */

/* What memory.c does, one write after the other. A stage ends when all ranks have ended it. */
enum stage { FREE_OWN, WRITE_OWN, AGREE, FREE_COPY, WRITE_COPY, AGREE_COPIES, N_STAGES };

struct job {
    unsigned n, distance, n_slots;
    struct memory_member members[MOST];
    unsigned save[MOST];    /* how many each rank has completed */
    enum stage stage[MOST]; /* of the next one */
    int slot[MOST];
    struct memory_id next[MOST], saved[MOST], kept[MOST];
    unsigned lent[MOST]; /* until the ranks start again */
};

static unsigned donor_of(const struct job *j, unsigned r)
{
    return (r + j->n - j->distance) % j->n;
}

static bool may_pass(const struct job *j, unsigned r)
{
    for (unsigned o = 0; o < j->n; o++)
        if (j->save[o] < j->save[r] || (j->save[o] == j->save[r] && j->stage[o] < j->stage[r]))
            return false;
    return true;
}

static int slot_with(const struct job *j, unsigned r, struct memory_id id, unsigned of)
{
    for (int i = 0; i < MEMORY_SLOTS; i++)
        if (j->members[r].saves[i].is_whole && memory_id_same(j->members[r].saves[i].id, id) &&
            j->members[r].saves[i].rank == of)
            return i;
    return -1;
}

static void end_save(struct job *j, unsigned r)
{
    j->kept[r] = j->saved[r];
    j->save[r]++;
    j->stage[r] = FREE_OWN;
}

static void act(struct job *j, unsigned r)
{
    struct memory_save *saves = j->members[r].saves;
    const struct memory_keep keep = {
        .all = {j->kept[r]}, .own = j->saved[r], .rank = r, .lent = j->lent[r]};
    switch (j->stage[r]) {
    case FREE_OWN:
        j->slot[r] = memory_plan_slot(saves, j->n_slots, &keep);
        ck_assert_int_ge(j->slot[r], 0);
        saves[j->slot[r]] = (struct memory_save){0};
        break;
    case WRITE_OWN:
        saves[j->slot[r]] = save_of(j->next[r].serial, r, j->n);
        saves[j->slot[r]].id.lineage = j->next[r].lineage;
        break;
    case AGREE:
    case AGREE_COPIES:
        if (!may_pass(j, r))
            return;
        if (j->stage[r] == AGREE) {
            j->saved[r] = j->next[r];
            j->next[r].serial++;
        }
        if (j->stage[r] == AGREE_COPIES || j->distance == 0) {
            end_save(j, r);
            return;
        }
        break;
    case FREE_COPY:
        j->slot[r] = memory_plan_slot(saves, MEMORY_COPIED_SLOTS, &keep);
        ck_assert_int_ge(j->slot[r], 0);
        saves[j->slot[r]] = (struct memory_save){0};
        break;
    case WRITE_COPY:
        /* the donor cannot overwrite what it sends before this rank has agreed */
        ck_assert_int_ge(slot_with(j, donor_of(j, r), j->saved[r], donor_of(j, r)), 0);
        saves[j->slot[r]] = save_of(j->saved[r].serial, donor_of(j, r), j->n);
        saves[j->slot[r]].id.lineage = j->saved[r].lineage;
        break;
    case N_STAGES:
        ck_abort();
    }
    j->stage[r]++;
}

/* All ranks start again. What was agreed on must be there. */
static void restart(struct job *j, uint64_t least, uint64_t lineage)
{
    const struct memory_id id = memory_plan_newest(j->members, j->n);
    const uint64_t highest = memory_plan_highest(j->members, j->n);
    struct memory_member before[MOST];
    const struct memory_id copied = memory_plan_copied(j->members, j->n);
    const struct memory_id kept = j->distance > 0 && copied.serial > 0 ? copied : id;
    ck_assert_uint_ge(id.serial, least);
    memcpy(before, j->members, sizeof before);
    for (unsigned r = 0; r < j->n; r++) {
        struct memory_save *saves = j->members[r].saves;
        unsigned slot = 0;
        if (id.serial != 0 && slot_with(j, r, id, r) < 0) {
            const int to = memory_plan_slot_to_load(saves, id, kept, 0);
            const int holder = memory_plan_holder(before, j->n, id, r, &slot);
            ck_assert(holder >= 0 && to >= 0);
            saves[to] = before[holder].saves[slot];
        }
        j->stage[r] = FREE_OWN;
        j->save[r] = 0;
        j->next[r] = (struct memory_id){highest + 1, lineage};
        j->saved[r] = id;
        j->kept[r] = kept;
    }
    for (unsigned r = 0; r < j->n; r++)
        for (int i = 0; i < MEMORY_SLOTS; i++)
            if (!memory_plan_keeps(&j->members[r].saves[i], id, kept, r,
                                   j->distance > 0 ? (int)donor_of(j, r) : -1))
                j->members[r].saves[i] = (struct memory_save){0};
}

/* Some ranks work in a slot. It is lent before the first save, and has no entry. */
static void lend_some(struct job *j, struct chance *chance)
{
    for (unsigned r = 0; r < j->n; r++) {
        struct memory_save *saves = j->members[r].saves;
        const struct memory_keep keep = {.all = {j->kept[r]}, .own = j->saved[r], .rank = r};
        j->lent[r] = 0;
        if (chance_draw(chance, 3) == 0)
            continue;
        const int slot = memory_plan_slot(saves, MEMORY_SLOTS, &keep);
        ck_assert_int_ge(slot, 0);
        saves[slot] = (struct memory_save){0};
        j->lent[r] = 1u << slot;
    }
}

static void lose_node(struct job *j, unsigned node)
{
    for (unsigned r = 0; r < j->n; r++)
        if (j->members[r].node == node)
            memset(j->members[r].saves, 0, sizeof j->members[r].saves);
}

/* Places trade their memory: nodes returned in another order. */
static void trade_nodes(struct job *j, unsigned per_node)
{
    for (unsigned r = 0; r < per_node; r++) {
        struct memory_member first = j->members[r];
        memcpy(j->members[r].saves, j->members[r + per_node].saves, sizeof first.saves);
        memcpy(j->members[r + per_node].saves, first.saves, sizeof first.saves);
    }
}

static void run_job(unsigned n, unsigned per_node, uint64_t seed)
{
    struct chance chance = chance_from(seed);
    struct job j = {.n = n};
    uint64_t copied = 0;     /* the last save that is as complete as it becomes */
    bool has_copies = false; /* of what `copied` is */
    fill(j.members, n, per_node);
    j.distance = memory_plan_distance(j.members, n);
    j.n_slots = j.distance > 0 ? MEMORY_COPIED_SLOTS : MEMORY_OWN_SLOTS;
    restart(&j, 0, 1);
    for (uint64_t life = 2; life < 8; life++) {
        lend_some(&j, &chance);
        for (uint64_t left = 1 + chance_draw(&chance, 80); left > 0; left--)
            act(&j, (unsigned)chance_draw(&chance, n));
        for (unsigned r = 0; r < n; r++) {
            has_copies = has_copies || j.save[r] > 0;
            if (j.kept[r].serial > copied)
                copied = j.kept[r].serial;
        }
        /* a save that some rank knows to be complete is complete; after a node was lost, the next
         * one makes the copies again */
        if (j.distance > 0 && has_copies && chance_draw(&chance, 2) == 0) {
            lose_node(&j, (unsigned)chance_draw(&chance, n / per_node));
            has_copies = false;
        }
        if (n == 2 * per_node && chance_draw(&chance, 4) == 0)
            trade_nodes(&j, per_node);
        restart(&j, copied, life);
    }
}

START_TEST(a_save_that_all_ranks_have_survives_any_failure)
{
    static const unsigned shapes[][2] = {{1, 1}, {2, 2}, {2, 1}, {4, 2}, {3, 1}, {6, 3}, {6, 2}};
    for (uint64_t seed = 1; seed <= 4000; seed++)
        run_job(shapes[_i][0], shapes[_i][1], seed);
}
END_TEST

TEST_SUITE(memory_plan)
{
    Suite *s = suite_create("memory_plan");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, the_newest_save_that_all_have_is_loaded);
    tcase_add_test(t, states_of_other_worlds_and_lineages_do_not_mix);
    tcase_add_test(t, an_older_save_does_not_return_after_one_of_another_world);
    tcase_add_test(t, the_nearest_holder_gives_a_state);
    tcase_add_test(t, copies_are_on_another_node);
    tcase_add_test(t, a_save_is_copied_if_each_state_is_on_two_nodes);
    tcase_add_test(t, the_oldest_slot_is_written_and_what_is_kept_is_not);
    tcase_add_test(t, a_lent_slot_is_not_written);
    tcase_add_test(t, after_a_load_only_its_states_are_kept);
    tcase_add_loop_test(t, a_save_that_all_ranks_have_survives_any_failure, 0, 7);
    suite_add_tcase(s, t);
    return s;
}
