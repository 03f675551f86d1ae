/* What a council orders. Three processes, whose ballots arrive at once unless a process is cut off;
 * tests/sim/sim_quorum.c has the rest. */
#include "quorum_cases.h"

#include "rendezvous/quorum/council.h"

#include "common/clock.h"
#include "tests/support/suite.h"

#include <check.h>
#include <string.h>

enum { N = 3 };

static const struct council_limits *limits = &council_usual_limits;

static struct council councils[N + 1]; /* by id */
static struct council_orders did[N + 1];
static bool is_cut[N + 1];  /* nothing happens at it */
static bool is_parted;      /* no ballot arrives */
static bool has_slow_lease; /* that is never reported */
static uint64_t now_ms;

static struct elector_address address_of(uint64_t id)
{
    return (struct elector_address){.host = "node", .port = (uint16_t)id};
}

/* What was ordered since it was last cleared. */
static void note(uint64_t id, const struct council_orders *o)
{
    struct council_orders *d = &did[id];
    d->give_up |= o->give_up;
    d->doubt |= o->doubt;
    d->certain |= o->certain;
    d->make |= o->make;
    d->committed |= o->committed;
    d->follow |= o->follow;
    d->over |= o->over;
    d->merges |= o->merges;
    if (o->make) {
        d->has_past = o->has_past;
        d->past = o->past;
    }
    if (o->certain)
        d->certain_until_ms = o->certain_until_ms;
    if (o->follow)
        d->leader = o->leader;
}

static void carry_out(uint64_t id, const struct council_orders *o);

static void send_ballot(uint64_t from, uint64_t to, const struct ballot *b)
{
    struct ballot answer;
    struct council_orders orders;
    if (to > N || is_parted || is_cut[from] || is_cut[to])
        return;
    council_take(&councils[to], b, now_ms, &answer, &orders);
    carry_out(to, &orders);
    council_take(&councils[from], &answer, now_ms, NULL, &orders);
    carry_out(from, &orders);
}

static void carry_out(uint64_t id, const struct council_orders *o)
{
    struct council *c = &councils[id];
    struct ballot_voter to[QUORUM_MAX_ASKED];
    struct ballot b;
    note(id, o);
    council_question(c, &b);
    const uint32_t n = council_asked(c, to);
    for (uint32_t i = 0; o->ask && i < n; i++)
        send_ballot(id, to[i].id, &b);
    b = (struct ballot){.type = BALLOT_READ, .job = c->job, .from = id};
    const uint32_t n_offers = council_offers(c, to);
    for (uint32_t i = 0; o->read && i < n_offers; i++)
        send_ballot(id, to[i].id, &b);
    council_record(c, &b);
    if (o->repeat)
        send_ballot(id, o->missed.id, &b);
    if (o->lease && council_get_lease(c) == COUNCIL_LEASE_AWAITED && !has_slow_lease) {
        struct council_orders next;
        council_note_leased(c, now_ms, &next);
        carry_out(id, &next);
    }
}

static void go_on(uint64_t ms)
{
    struct council_orders orders;
    for (const uint64_t end_ms = now_ms + ms; now_ms < end_ms; now_ms += 10)
        for (uint64_t id = 1; id <= N; id++)
            if (!is_cut[id] && now_ms >= council_deadline_ms(&councils[id])) {
                council_time(&councils[id], now_ms, &orders);
                carry_out(id, &orders);
            }
}

static void forget_orders(void)
{
    memset(did, 0, sizeof did);
}

static void offer(uint64_t id, uint64_t to)
{
    const struct ballot b = {.type = BALLOT_OFFER,
                             .job = councils[id].job,
                             .from = id,
                             .at = address_of(id),
                             .order = (uint32_t)id,
                             .alone = councils[id].limits.quorum.alone};
    send_ballot(id, to, &b);
}

static void create(bool stands)
{
    now_ms = 100000;
    forget_orders();
    memset(is_cut, 0, sizeof is_cut);
    has_slow_lease = is_parted = false;
    for (uint64_t id = 1; id <= N; id++) {
        const struct elector_address at = address_of(id);
        council_init(&councils[id], limits, id, &at, stands);
    }
}

static void found(void)
{
    struct council_orders orders;
    council_found(&councils[1], 77, now_ms, &orders);
    carry_out(1, &orders);
}

/* Process 1 coordinates, and all vote. */
static void begin(bool stands)
{
    create(stands);
    found();
    offer(2, 1);
    offer(3, 1);
    go_on(1000);
    ck_assert_uint_eq(councils[1].proposer.newest.voters.n, 3);
    ck_assert(councils[1].proposer.newest.settled);
}

static void commit(uint64_t id, uint32_t generation)
{
    const struct elector_record r = {.generation = generation, .n_nodes = 3, .gone = -1};
    struct council_orders orders;
    council_commit(&councils[id], &r, now_ms, &orders);
    carry_out(id, &orders);
}

static void note_ended(uint64_t id, uint64_t ended)
{
    const struct elector_address at = address_of(ended);
    struct council_orders orders;
    council_note_ended(&councils[id], &at, now_ms, &orders);
    carry_out(id, &orders);
}

static void note_silent(uint64_t id, bool is_silent)
{
    struct council_orders orders;
    council_note_silent(&councils[id], is_silent, now_ms, &orders);
    carry_out(id, &orders);
}

static void resign(uint64_t id, uint32_t generation)
{
    const struct elector_record last = {.generation = generation, .n_nodes = 3, .gone = 0};
    struct council_orders orders;
    council_resign(&councils[id], &last, now_ms, &orders);
    carry_out(id, &orders);
}

START_TEST(a_founder_coordinates_at_once_and_others_become_voters)
{
    create(true);
    found();
    ck_assert(did[1].make && !did[1].has_past && did[1].certain);
    ck_assert_int_eq(council_get_state(&councils[1], now_ms), COUNCIL_LEADING);
    ck_assert_int_eq(council_get_state(&councils[2], now_ms), COUNCIL_OUTSIDE);
    ck_assert(!council_has_successor(&councils[1], now_ms));
    offer(2, 1);
    go_on(1000);
    ck_assert(did[2].follow);
    ck_assert_uint_eq(did[2].leader.port, 1);
    ck_assert(council_has_successor(&councils[1], now_ms));
    ck_assert_int_eq(council_get_state(&councils[2], now_ms), COUNCIL_FOLLOWING);
}
END_TEST

START_TEST(a_generation_is_committed_when_voters_that_carry_the_list_have_it)
{
    begin(true);
    is_cut[2] = is_cut[3] = true;
    commit(1, 0);
    ck_assert(!did[1].committed);
    is_cut[3] = false;
    go_on(300);
    ck_assert(did[1].committed);
    ck_assert_uint_eq(councils[3].voter.record.value, councils[1].known);
}
END_TEST

START_TEST(a_coordinator_whose_host_is_silent_is_replaced_when_its_shorter_lease_is_over)
{
    const struct council_limits shorter = council_limits_with(400);
    limits = &shorter;
    begin(true);
    commit(1, 4);
    forget_orders();
    is_cut[1] = true;
    go_on(450);
    note_silent(2, true);
    note_silent(3, true);
    ck_assert(!did[2].make && !did[3].make);
    go_on(300);
    ck_assert(did[2].make && did[2].past.generation == 4);
    ck_assert(did[3].follow && !did[3].make);
    limits = &council_usual_limits;
}
END_TEST

START_TEST(a_coordinator_that_only_its_voters_do_not_hear_stays_as_long_as_usual)
{
    const struct council_limits shorter = council_limits_with(400);
    limits = &shorter;
    begin(true);
    forget_orders();
    is_cut[1] = true;
    note_silent(2, true);
    note_silent(2, false); /* it has answered */
    go_on(1000);
    ck_assert(!did[2].make && !did[3].make);
    go_on(500);
    ck_assert(did[2].make);
    limits = &council_usual_limits;
}
END_TEST

START_TEST(a_killed_coordinator_is_replaced_at_once_by_the_next_voter)
{
    begin(true);
    commit(1, 4);
    forget_orders();
    is_cut[1] = true;
    note_ended(2, 1);
    note_ended(3, 1);
    go_on(110);
    ck_assert(did[2].make && did[2].has_past);
    ck_assert_uint_eq(did[2].past.generation, 4);
    ck_assert(did[3].follow && !did[3].make);
    ck_assert_uint_eq(did[3].leader.port, 2);
    go_on(2000);
    ck_assert_uint_eq(councils[2].proposer.newest.voters.n, 2); /* the dead one does not vote */
}
END_TEST

START_TEST(a_silent_coordinator_is_replaced_when_its_lease_is_over)
{
    begin(true);
    forget_orders();
    is_cut[1] = true;
    go_on(1000);
    ck_assert(!did[2].make && !did[3].make);
    go_on(600);
    ck_assert(did[2].make && did[3].follow);
    ck_assert(!did[2].has_past); /* no generation had begun */
    is_cut[1] = false;
    go_on(50);
    ck_assert(did[1].doubt);
    go_on(1500);
    ck_assert(did[1].give_up && did[1].follow);
    ck_assert_uint_eq(did[1].leader.port, 2);
}
END_TEST

/* Does process `id` answer that it obeys a coordinator? */
static bool names_one(uint64_t id)
{
    const struct ballot b = {.type = BALLOT_READ, .job = 77, .from = 9};
    struct ballot answer;
    struct council_orders orders;
    council_take(&councils[id], &b, now_ms, &answer, &orders);
    carry_out(id, &orders);
    return answer.is_bound;
}

START_TEST(a_process_that_cannot_replace_a_lost_coordinator_does_not_name_it)
{
    begin(true);
    ck_assert(names_one(2));
    is_cut[1] = is_cut[3] = true;
    note_ended(2, 1);
    for (int i = 0; i < 30; i++) {
        go_on(100); /* it claims, and has promised to obey itself */
        ck_assert(!names_one(2));
    }
}
END_TEST

START_TEST(a_coordinator_that_is_cut_off_is_certain_no_longer_than_it_may_be)
{
    begin(true);
    forget_orders();
    is_cut[2] = is_cut[3] = true;
    const uint64_t from_ms = now_ms;
    go_on(limits->doubt_ms - limits->keep_ms - 10);
    ck_assert(!did[1].doubt);
    go_on(limits->keep_ms + 20);
    ck_assert(did[1].doubt);
    ck_assert_uint_le(did[1].certain_until_ms, from_ms + limits->doubt_ms);
    go_on(400); /* its lease is over, and the others are about to be free */
    ck_assert_int_eq(council_get_state(&councils[1], now_ms), COUNCIL_DOUBTING);
    ck_assert(!did[1].give_up);
    forget_orders();
    is_cut[2] = is_cut[3] = false;
    go_on(1500);
    ck_assert(did[1].certain && !did[1].give_up); /* with the same roster */
    ck_assert_int_eq(council_get_state(&councils[1], now_ms), COUNCIL_LEADING);
}
END_TEST

START_TEST(what_was_written_before_a_doubt_is_written_again)
{
    begin(true);
    commit(1, 0);
    forget_orders();
    is_cut[2] = is_cut[3] = true;
    commit(1, 1);
    go_on(1500);
    ck_assert(did[1].doubt && !did[1].committed);
    is_cut[2] = is_cut[3] = false;
    go_on(1500);
    ck_assert(did[1].committed && !did[1].give_up);
    ck_assert_uint_eq(councils[2].voter.record.value, councils[1].known);
}
END_TEST

START_TEST(a_coordinator_that_resigns_is_replaced_at_once)
{
    begin(true);
    commit(1, 2);
    forget_orders();
    resign(1, 2);
    go_on(50);
    ck_assert(did[1].over);
    ck_assert(did[2].make && did[2].has_past);
    ck_assert_int_eq(did[2].past.gone, 0);
    ck_assert_int_eq(council_get_state(&councils[1], now_ms), COUNCIL_ENDED);
}
END_TEST

START_TEST(a_council_that_does_not_stand_replaces_only_one_that_has_resigned)
{
    begin(false);
    is_cut[1] = true;
    note_ended(2, 1);
    note_ended(3, 1);
    go_on(4000);
    ck_assert(!did[2].make && !did[3].make);
    begin(false);
    resign(1, 2);
    go_on(50);
    ck_assert(did[2].make);
}
END_TEST

START_TEST(a_coordinator_without_other_voters_just_ends)
{
    create(true);
    found();
    forget_orders();
    resign(1, 0);
    ck_assert(did[1].over);
    ck_assert_uint_eq(council_deadline_ms(&councils[1]), CO_NEVER_MS);
}
END_TEST

START_TEST(of_two_processes_only_the_coordinator_continues_without_the_other)
{
    create(true);
    found();
    offer(2, 1);
    go_on(1000);
    is_cut[2] = true;
    go_on(3000);
    ck_assert_uint_eq(councils[1].proposer.newest.voters.n, 1);
    ck_assert_int_eq(council_get_state(&councils[1], now_ms), COUNCIL_LEADING);
    ck_assert(!did[1].doubt);
    create(true);
    found();
    offer(2, 1);
    go_on(1000);
    is_cut[1] = true;
    note_ended(2, 1);
    go_on(3000);
    ck_assert(!did[2].make);
}
END_TEST

/* Processes 1 and 2 vote, 1 coordinates, and each of them may continue alone. */
static void begin_alone(void)
{
    static struct council_limits alone;
    alone = council_usual_limits;
    council_limits_set_alone(&alone);
    limits = &alone;
    create(true);
    limits = &council_usual_limits;
    found();
    offer(2, 1);
    go_on(1000);
    ck_assert_uint_eq(councils[1].proposer.newest.voters.n, 2);
    ck_assert_int_eq(council_get_lease(&councils[1]), COUNCIL_LEASE_ON);
    commit(1, 4);
    forget_orders();
}

START_TEST(one_of_two_continues_alone_if_that_is_permitted)
{
    begin_alone();
    is_cut[1] = true; /* stopped */
    note_ended(2, 1);
    go_on(400);
    ck_assert(!did[2].make); /* it asks */
    go_on(200);
    ck_assert(did[2].make && did[2].has_past);
    ck_assert_uint_eq(did[2].past.generation, 4);
    go_on(2000);
    ck_assert_uint_eq(councils[2].proposer.newest.voters.n, 1);
    commit(2, 5);
    is_cut[1] = false;
    go_on(1000);
    ck_assert(did[1].give_up && did[1].follow && did[1].merges && !did[1].make);
    offer(1, 2);
    go_on(1000);
    ck_assert_uint_eq(councils[2].proposer.newest.voters.n, 2);
    ck_assert(!did[2].give_up);
}
END_TEST

START_TEST(a_process_that_is_answered_does_not_continue_alone)
{
    begin_alone();
    note_ended(2, 1); /* a packet filter has refused the connection */
    go_on(3000);
    ck_assert(!did[2].make && !did[1].give_up && !did[1].doubt);
}
END_TEST

START_TEST(a_process_that_was_stopped_asks_before_it_continues_alone)
{
    begin_alone();
    note_ended(2, 1);
    go_on(50);
    is_cut[2] = true; /* stopped, and no answer is read */
    go_on(500);
    is_cut[2] = false;
    is_parted = true;
    go_on(50);
    ck_assert(!did[2].make);
    is_parted = false;
    go_on(3000);
    ck_assert(!did[2].make && !did[1].give_up);
}
END_TEST

static void part(void)
{
    begin_alone();
    is_parted = true;
    go_on(4000);
    ck_assert(did[2].make && !did[1].give_up && !did[1].doubt);
}

START_TEST(two_parts_become_one_job_with_the_newer_coordinator)
{
    struct elector_address at;
    part();
    commit(1, 5);
    commit(2, 5);
    go_on(1000);
    ck_assert(did[1].committed && did[2].committed);
    ck_assert(council_next_stray(&councils[2], &at));
    ck_assert_uint_eq(at.port, 1);
    is_parted = false;
    go_on(1000);
    ck_assert(did[1].give_up && did[1].follow && did[1].merges);
    ck_assert_uint_eq(did[1].leader.port, 2);
    ck_assert(!did[2].give_up);
    go_on(3000);
    ck_assert_int_eq(council_get_state(&councils[1], now_ms), COUNCIL_FOLLOWING);
    offer(1, 2);
    go_on(1000);
    ck_assert_uint_eq(councils[2].proposer.newest.voters.n, 2);
    ck_assert(!council_next_stray(&councils[2], &at));
}
END_TEST

/* The other one does not hear that this one is there, and does not make it a voter. */
START_TEST(a_process_that_has_given_its_part_up_does_not_lead_it_again)
{
    const struct ballot read = {.type = BALLOT_READ, .job = 77, .from = 1};
    struct ballot answer;
    struct council_orders orders;
    part();
    commit(2, 5);
    council_take(&councils[2], &read, now_ms, &answer, &orders);
    carry_out(2, &orders);
    council_take(&councils[1], &answer, now_ms, NULL, &orders);
    carry_out(1, &orders);
    ck_assert(did[1].give_up && did[1].follow);
    forget_orders();
    go_on(5000);
    ck_assert(!did[1].make);
    ck_assert_int_eq(council_get_state(&councils[1], now_ms), COUNCIL_FOLLOWING);
}
END_TEST

START_TEST(a_part_that_has_begun_nothing_since_loses_nothing)
{
    part();
    is_parted = false;
    go_on(1000);
    ck_assert(did[1].give_up && did[1].follow && !did[1].merges);
}
END_TEST

START_TEST(a_process_with_another_setting_does_not_vote)
{
    begin_alone();
    councils[3].limits.quorum.alone = false;
    offer(3, 1);
    go_on(1000);
    ck_assert_uint_eq(councils[1].proposer.newest.voters.n, 2);
    create(true);
    councils[3].limits.quorum.alone = true;
    found();
    offer(2, 1);
    offer(3, 1);
    go_on(1000);
    ck_assert_uint_eq(councils[1].proposer.newest.voters.n, 2);
}
END_TEST

START_TEST(three_processes_need_two_also_where_one_may_continue_alone)
{
    begin_alone();
    offer(3, 1);
    go_on(1000);
    ck_assert_uint_eq(councils[1].proposer.newest.voters.n, 3);
    is_cut[1] = is_cut[3] = true;
    note_ended(2, 1);
    go_on(5000);
    ck_assert(!did[2].make);
}
END_TEST

START_TEST(a_process_that_a_newer_list_does_not_name_keeps_no_voter_from_being_free)
{
    begin_alone();
    offer(3, 1);
    go_on(1000);
    is_cut[2] = true;
    go_on(3000);
    ck_assert_uint_eq(councils[1].proposer.newest.voters.n, 2);
    is_cut[1] = is_cut[3] = true;
    is_cut[2] = false;
    go_on(3000); /* it claims with the older list */
    is_cut[1] = false;
    go_on(500);
    ck_assert(!quorum_list_has(&councils[2].voter.record.voters, 2));
    go_on(5000);
    ck_assert_int_eq(council_get_state(&councils[1], now_ms), COUNCIL_LEADING);
    ck_assert(!did[2].make);
}
END_TEST

START_TEST(ballots_of_another_job_change_nothing)
{
    struct ballot b, answer;
    struct council_orders orders;
    begin(true);
    const struct quorum_record was = councils[2].voter.record;
    council_record(&councils[1], &b);
    b.job = 78;
    b.term = b.entry.record.term = (struct quorum_term){99, 9};
    council_take(&councils[2], &b, now_ms, &answer, &orders);
    ck_assert(!answer.yes);
    ck_assert_uint_eq(answer.job, 77);
    ck_assert_int_eq(quorum_record_compare(&councils[2].voter.record, &was), 0);
    b.type = BALLOT_FREE;
    council_take(&councils[2], &b, now_ms, &answer, &orders);
    ck_assert_uint_gt(councils[2].voter.until_ms, now_ms);
}
END_TEST

START_TEST(only_the_coordinator_itself_frees_its_voters)
{
    struct ballot answer;
    struct council_orders orders;
    begin(true);
    const struct ballot b = {
        .type = BALLOT_FREE, .job = 77, .from = 3, .term = councils[1].proposer.term};
    council_take(&councils[2], &b, now_ms, &answer, &orders);
    ck_assert_uint_gt(councils[2].voter.until_ms, now_ms);
    note_ended(2, 3); /* another process */
    ck_assert_uint_gt(councils[2].voter.until_ms, now_ms);
}
END_TEST

START_TEST(a_voter_that_has_missed_a_record_gets_it)
{
    begin(true);
    is_cut[3] = true;
    commit(1, 0);
    go_on(200);
    ck_assert_uint_ne(councils[3].voter.record.value, councils[1].known);
    is_cut[3] = false;
    go_on(400);
    ck_assert_uint_eq(councils[3].voter.record.value, councils[1].known);
}
END_TEST

START_TEST(a_process_that_offers_and_never_answers_is_not_reached)
{
    struct ballot_voter left[COUNCIL_MAX_OFFERS];
    create(true);
    found();
    offer(2, 1);
    is_cut[3] = true;
    const struct ballot b = {
        .type = BALLOT_OFFER, .job = councils[1].job, .from = 3, .at = address_of(3), .order = 3};
    struct ballot answer;
    struct council_orders orders;
    for (int i = 0; i < 10; i++) /* at once, since process 1 was stopped */
        council_take(&councils[1], &b, now_ms, &answer, &orders);
    go_on(1000);
    for (int i = 1; i < 5; i++) {
        ck_assert_uint_eq(council_unreached(&councils[1], now_ms, left), 0);
        council_take(&councils[1], &b, now_ms, &answer, &orders);
        go_on(1000);
    }
    ck_assert_uint_eq(council_unreached(&councils[1], now_ms, left), 1);
    ck_assert_uint_eq(left[0].id, 3);
    go_on(2000); /* it has left, or ended */
    ck_assert_uint_eq(council_unreached(&councils[1], now_ms, left), 0);
}
END_TEST

START_TEST(answers_that_come_after_the_lease_commit_nothing)
{
    struct council_orders orders;
    struct ballot b, late, unused;
    begin(true);
    is_cut[2] = is_cut[3] = true;
    commit(1, 0);
    council_question(&councils[1], &b);
    ck_assert_int_eq(b.type, BALLOT_WRITE);
    council_take(&councils[3], &b, now_ms, &late, &orders);
    ck_assert(late.yes);
    now_ms += 2000; /* process 1 was stopped */
    council_take(&councils[1], &late, now_ms, &unused, &orders);
    ck_assert(!orders.committed && orders.doubt);
}
END_TEST

START_TEST(the_node_of_a_coordinator_that_no_other_can_replace_needs_no_lease)
{
    create(true);
    found();
    go_on(1000);
    ck_assert_int_eq(council_get_lease(&councils[1]), COUNCIL_LEASE_OFF);
    offer(2, 1);
    go_on(1000);
    ck_assert_uint_eq(councils[1].proposer.newest.voters.n, 2);
    ck_assert_int_eq(council_get_lease(&councils[1]), COUNCIL_LEASE_OFF);
    ck_assert_int_eq(council_get_lease(&councils[2]), COUNCIL_LEASE_ON);
    offer(3, 1);
    go_on(1000);
    ck_assert_uint_eq(councils[1].proposer.newest.voters.n, 3);
    ck_assert_int_eq(council_get_lease(&councils[1]), COUNCIL_LEASE_ON);
    is_cut[3] = true;
    go_on(3000);
    ck_assert_uint_eq(councils[1].proposer.newest.voters.n, 2);
    ck_assert_int_eq(council_get_lease(&councils[1]), COUNCIL_LEASE_OFF);
}
END_TEST

START_TEST(a_list_that_others_carry_waits_for_the_lease)
{
    struct council_orders orders;
    create(true);
    has_slow_lease = true;
    found();
    offer(2, 1);
    offer(3, 1);
    go_on(5000);
    ck_assert_int_eq(council_get_lease(&councils[1]), COUNCIL_LEASE_AWAITED);
    ck_assert_uint_lt(councils[1].proposer.newest.voters.n, 3);
    ck_assert_uint_eq(councils[2].voter.record.voters.n, councils[1].proposer.newest.voters.n);
    council_note_leased(&councils[1], now_ms, &orders);
    carry_out(1, &orders);
    go_on(1000);
    ck_assert_uint_eq(councils[1].proposer.newest.voters.n, 3);
    ck_assert_int_eq(council_get_lease(&councils[1]), COUNCIL_LEASE_ON);
}
END_TEST

START_TEST(a_suspended_coordinator_of_two_is_not_deposed_by_what_waits_for_it)
{
    struct council_orders orders;
    struct ballot b, answer;
    create(true);
    found();
    offer(2, 1);
    go_on(1000);
    is_cut[1] = true; /* stopped */
    go_on(10000);
    council_question(&councils[2], &b);
    ck_assert_int_eq(b.type, BALLOT_CLAIM);
    council_take(&councils[1], &b, now_ms, &answer, &orders);
    ck_assert(!answer.yes);
    is_cut[1] = false;
    carry_out(1, &orders);
    go_on(1000);
    ck_assert_int_eq(council_get_state(&councils[1], now_ms), COUNCIL_LEADING);
    ck_assert_int_eq(council_get_lease(&councils[1]), COUNCIL_LEASE_OFF);
}
END_TEST

START_TEST(a_coordinator_that_resigns_is_replaced_also_where_its_node_needed_no_lease)
{
    struct council_orders orders;
    const struct elector_record last = {.generation = 1, .n_nodes = 2, .gone = 0};
    create(true);
    found();
    offer(2, 1);
    go_on(1000);
    council_resign(&councils[1], &last, now_ms, &orders);
    carry_out(1, &orders);
    go_on(1000);
    ck_assert(did[1].over && did[2].make);
    ck_assert_int_eq(council_get_state(&councils[2], now_ms), COUNCIL_LEADING);
}
END_TEST

TEST_SUITE(council)
{
    Suite *suite = suite_create("council");
    TCase *all = tcase_create("all");
    tcase_add_test(all, a_founder_coordinates_at_once_and_others_become_voters);
    tcase_add_test(all, a_generation_is_committed_when_voters_that_carry_the_list_have_it);
    tcase_add_test(all, a_killed_coordinator_is_replaced_at_once_by_the_next_voter);
    tcase_add_test(all,
                   a_coordinator_whose_host_is_silent_is_replaced_when_its_shorter_lease_is_over);
    tcase_add_test(all, a_coordinator_that_only_its_voters_do_not_hear_stays_as_long_as_usual);
    tcase_add_test(all, a_silent_coordinator_is_replaced_when_its_lease_is_over);
    tcase_add_test(all, a_process_that_cannot_replace_a_lost_coordinator_does_not_name_it);
    tcase_add_test(all, a_coordinator_that_is_cut_off_is_certain_no_longer_than_it_may_be);
    tcase_add_test(all, what_was_written_before_a_doubt_is_written_again);
    tcase_add_test(all, a_coordinator_that_resigns_is_replaced_at_once);
    tcase_add_test(all, a_council_that_does_not_stand_replaces_only_one_that_has_resigned);
    tcase_add_test(all, a_coordinator_without_other_voters_just_ends);
    tcase_add_test(all, of_two_processes_only_the_coordinator_continues_without_the_other);
    tcase_add_test(all, one_of_two_continues_alone_if_that_is_permitted);
    tcase_add_test(all, a_process_that_is_answered_does_not_continue_alone);
    tcase_add_test(all, a_process_that_was_stopped_asks_before_it_continues_alone);
    tcase_add_test(all, two_parts_become_one_job_with_the_newer_coordinator);
    tcase_add_test(all, a_process_that_has_given_its_part_up_does_not_lead_it_again);
    tcase_add_test(all, a_part_that_has_begun_nothing_since_loses_nothing);
    tcase_add_test(all, a_process_with_another_setting_does_not_vote);
    tcase_add_test(all, three_processes_need_two_also_where_one_may_continue_alone);
    tcase_add_test(all, a_process_that_a_newer_list_does_not_name_keeps_no_voter_from_being_free);
    tcase_add_test(all, ballots_of_another_job_change_nothing);
    tcase_add_test(all, only_the_coordinator_itself_frees_its_voters);
    tcase_add_test(all, a_voter_that_has_missed_a_record_gets_it);
    tcase_add_test(all, answers_that_come_after_the_lease_commit_nothing);
    tcase_add_test(all, a_process_that_offers_and_never_answers_is_not_reached);
    tcase_add_test(all, the_node_of_a_coordinator_that_no_other_can_replace_needs_no_lease);
    tcase_add_test(all, a_list_that_others_carry_waits_for_the_lease);
    tcase_add_test(all, a_suspended_coordinator_of_two_is_not_deposed_by_what_waits_for_it);
    tcase_add_test(all, a_coordinator_that_resigns_is_replaced_also_where_its_node_needed_no_lease);
    suite_add_tcase(suite, all);
    suite_add_tcase(suite, council_takeover_cases());
    return suite;
}
