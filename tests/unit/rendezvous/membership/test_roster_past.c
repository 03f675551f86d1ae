/* A roster that takes another one's place, and one whose place another may have taken. All orders
 * of messages, and faults of all kinds: tests/sim/sim_membership.c. */
#include "one_roster.h"

#include "rendezvous/membership/lease.h"
#include "rendezvous/membership/restart_policy.h"

#include "common/clock.h"

#include <errno.h>

static bool was_sent(int link, enum message_type type)
{
    for (size_t i = 0; i < last.n; i++)
        if (last.items[i].type == ROSTER_SEND && last.items[i].link == (uint64_t)link &&
            last.items[i].message.type == type)
            return true;
    return false;
}

static void heartbeat(int link)
{
    say_message(link,
                (struct message){.type = MESSAGE_KEEP_ALIVE, .generation = MESSAGE_NO_GENERATION});
}

/* Node 1, 2, ... has 2 ranks, and took part with index 0, 1, ... if `was`. */
static void come(int node, bool was, uint32_t generation, uint32_t n_nodes)
{
    char name[16];
    struct message m = {.type = MESSAGE_HELLO,
                        .generation = MESSAGE_NO_GENERATION,
                        .hello = {.instance = {(uint8_t)node},
                                  .run_id = "job",
                                  .name = name,
                                  .node_rank = MESSAGE_NO_RANK,
                                  .n_local = 2,
                                  .resumes = was ? generation : MESSAGE_NO_GENERATION,
                                  .stop_ms = 1000,
                                  .terms = terms,
                                  .was = {.is_known = was,
                                          .generation = generation,
                                          .place = {.n_nodes = n_nodes,
                                                    .node_index = (uint32_t)node - 1,
                                                    .world_size = 2 * n_nodes,
                                                    .first_rank = 2 * ((uint32_t)node - 1),
                                                    .n_local = 2,
                                                    .leads = node == 1,
                                                    .agent_store = true,
                                                    .host = "node1",
                                                    .port = 4242}}}};
    snprintf(name, sizeof name, "node%d", node);
    say_message(node, m);
}

static void create_unconfirmed(uint32_t min, uint32_t max)
{
    struct roster_limits limits = {.confirm_ms = 60000, .absent_ms = 8000};
    struct co_error err;
    terms = (struct message_terms){.min_nodes = min,
                                   .max_nodes = max,
                                   .start_timeout_ms = 600000,
                                   .rejoin_timeout_ms = 60000,
                                   .max_restarts = 3};
    now_ms = 100000;
    ck_assert_int_eq(roster_create(&limits, &terms, NULL, 0, now_ms, &r, &err), 0);
}

/* Generation 7 of 3 nodes. */
static void take_over_after(int32_t gone, struct roster_before before)
{
    const struct roster_past past = {.generation = 7,
                                     .n_nodes = 3,
                                     .world_size = 6,
                                     .n_restarts = 2,
                                     .gone = gone,
                                     .before = before};
    struct co_error err;
    create_unconfirmed(2, 4);
    ck_assert_int_eq(roster_resume(r, &past, now_ms, &err), 0);
}

static void take_over(int32_t gone)
{
    take_over_after(gone, (struct roster_before){.generation = MESSAGE_NO_GENERATION});
}

/* All three have come. */
static void take_over_whole(void)
{
    take_over(-1);
    for (int node = 1; node <= 3; node++)
        come(node, true, 7, 3);
}

START_TEST(members_that_send_their_places_continue_undisturbed)
{
    take_over(-1);
    for (int node = 3; node >= 1; node--) {
        come(node, true, 7, 3);
        ck_assert(was_sent(node, MESSAGE_WELCOME));
        ck_assert(last.items[0].message.welcome.resumed);
        ck_assert(!was_sent(node, MESSAGE_STOP));
    }
    time_goes_on(3000);
    for (int node = 1; node <= 3; node++)
        heartbeat(node);
    time_goes_on(3400);
    assert_state(ROSTER_RUNNING);
    ck_assert_uint_eq(roster_generation(r), 7);
    ck_assert_uint_eq(roster_n_restarts(r), 2);
    ck_assert_uint_eq(roster_n_nodes(r), 3);
}
END_TEST

START_TEST(a_member_that_does_not_return_is_lost)
{
    take_over(-1);
    come(2, true, 7, 3);
    come(3, true, 7, 3);
    for (int i = 0; i < 7; i++) {
        time_goes_on(1000);
        heartbeat(2);
        heartbeat(3);
    }
    time_goes_on(999);
    assert_state(ROSTER_RUNNING);
    time_goes_on(1);
    assert_state(ROSTER_STOPPING);
    ck_assert_str_eq(
        roster_change(r),
        "lost GROUP_RANK=0: it did not reconnect after the failover of the coordinator");
    for (int node = 2; node <= 3; node++) {
        say(node, MESSAGE_STOPPING);
        say(node, MESSAGE_STOPPED);
    }
    assert_state(ROSTER_RUNNING);
    ck_assert_uint_eq(roster_generation(r), 8);
}
END_TEST

START_TEST(a_node_that_left_with_the_old_roster_is_not_waited_for)
{
    take_over(0);
    time_goes_on(0);
    assert_state(ROSTER_STOPPING);
    come(2, true, 7, 3);
    ck_assert(was_sent(2, MESSAGE_STOP));
}
END_TEST

START_TEST(a_node_of_another_generation_is_not_a_member)
{
    take_over(-1);
    come(2, true, 6, 3);
    ck_assert(was_sent(2, MESSAGE_REFUSED));
    come(1, true, 7, 2); /* nor in another world */
    ck_assert(was_sent(1, MESSAGE_REFUSED));
}
END_TEST

/* Generation 7 was made of nodes 2, 3 and 4 of generation 6, and of no other. */
static void take_over_untold(void)
{
    take_over_after(
        -1, (struct roster_before){.generation = 6, .n_nodes = 4, .n_missing = 1, .missing = {0}});
}

START_TEST(ranks_that_live_on_are_kept_if_their_node_has_not_received_the_newest_generation)
{
    take_over_untold();
    for (int node = 4; node >= 2; node--) {
        come(node, true, 6, 4);
        ck_assert(was_sent(node, MESSAGE_WELCOME));
        ck_assert(last.items[0].message.welcome.resumed);
        ck_assert(!was_sent(node, MESSAGE_SEALED));
    }
    for (int i = 0; i < 8; i++) {
        time_goes_on(1000);
        for (int node = 2; node <= 4; node++)
            heartbeat(node);
    }
    assert_state(ROSTER_RUNNING);
    ck_assert_uint_eq(roster_generation(r), 8);
    step((struct roster_input){.type = ROSTER_CONFIRMED, .generation = 8});
    ck_assert(was_sent(2, MESSAGE_SEALED)); /* in the order of generation 6 */
}
END_TEST

START_TEST(a_node_that_was_lost_before_the_newest_generation_is_lost)
{
    take_over_untold();
    come(1, true, 6, 4);
    ck_assert(was_sent(1, MESSAGE_REFUSED));
    ck_assert_int_eq(last.items[0].message.refused.why, MESSAGE_REFUSED_LOST);
    come(2, true, 6, 3); /* not that generation */
    ck_assert(was_sent(2, MESSAGE_REFUSED));
    come(3, true, 5, 4);
    ck_assert(was_sent(3, MESSAGE_REFUSED));
}
END_TEST

START_TEST(the_leader_that_has_received_it_precedes_the_nodes_that_have_not)
{
    take_over_untold();
    come(4, true, 6, 4);
    come(1, true, 7, 3); /* the leader of generation 7 */
    say(1, MESSAGE_STOPPING);
    for (int i = 0; i < 8; i++) {
        time_goes_on(1000);
        heartbeat(1);
        heartbeat(4);
    }
    assert_state(ROSTER_STOPPING);
    say(1, MESSAGE_STOPPED);
    step((struct roster_input){.type = ROSTER_CONFIRMED, .generation = 8});
    ck_assert(was_sent(1, MESSAGE_SEALED));
    struct roster_past past;
    roster_get_past(r, &past);
    ck_assert_uint_eq(past.before.generation, 7); /* the newest that one of them knows */
    ck_assert_uint_eq(past.before.n_nodes, 3);
    ck_assert_uint_eq(past.before.n_missing, 2);
    ck_assert_uint_eq(past.before.missing[0], 1);
    ck_assert_uint_eq(past.before.missing[1], 2);
}
END_TEST

START_TEST(a_generation_that_no_node_has_received_does_not_count_as_the_one_before)
{
    struct roster_past past;
    take_over_whole();
    step((struct roster_input){.type = ROSTER_GONE, .link = 3});
    time_goes_on(50); /* node 3 is lost */
    for (int node = 1; node <= 2; node++)
        say(node, MESSAGE_STOPPED);
    ck_assert_uint_eq(roster_generation(r), 8);
    roster_get_past(r, &past);
    ck_assert_uint_eq(past.before.generation, 7);
    ck_assert_uint_eq(past.before.n_missing, 1);
    ck_assert_uint_eq(past.before.missing[0], 2);
    come(4, false, 0, 0); /* before the confirmation: ended at once, for it */
    ck_assert_uint_eq(roster_generation(r), 9);
    roster_get_past(r, &past);
    ck_assert_uint_eq(past.before.generation, 7);
    ck_assert_uint_eq(past.before.n_missing, 1);
}
END_TEST

START_TEST(more_missing_nodes_than_the_record_takes_are_not_recorded)
{
    enum { N = ROSTER_PAST_MISSING + 2 };
    struct roster_past past;
    create_unconfirmed(1, N);
    for (int node = 1; node <= N; node++)
        come(node, false, 0, 0);
    step((struct roster_input){.type = ROSTER_CONFIRMED, .generation = 0});
    say(1, MESSAGE_READY);
    for (int node = 2; node <= N; node++)
        step((struct roster_input){.type = ROSTER_GONE, .link = (uint64_t)node});
    time_goes_on(50);
    say(1, MESSAGE_STOPPED);
    ck_assert_uint_eq(roster_generation(r), 1);
    roster_get_past(r, &past);
    ck_assert_uint_eq(past.before.generation, MESSAGE_NO_GENERATION);
}
END_TEST

START_TEST(a_generation_waits_for_a_member_whose_link_is_replaced)
{
    take_over_whole();
    step((struct roster_input){.type = ROSTER_GONE, .link = 3});
    time_goes_on(50);
    say(1, MESSAGE_STOPPED);
    step((struct roster_input){.type = ROSTER_GONE, .link = 1});
    say(2, MESSAGE_STOPPED);
    assert_state(ROSTER_STOPPING);
    come(1, true, 7, 3);
    assert_state(ROSTER_RUNNING);
    ck_assert_uint_eq(roster_generation(r), 8);
}
END_TEST

START_TEST(ranks_that_missed_a_generation_while_their_node_was_away_are_lost)
{
    take_over_untold(); /* node 2 is welcome, and then away while generation 8 is made */
    come(2, true, 6, 4);
    come(3, true, 6, 4);
    come(4, true, 6, 4);
    for (int i = 0; i < 7; i++) {
        time_goes_on(1000);
        for (int node = 2; node <= 4; node++)
            heartbeat(node);
    }
    time_goes_on(980);
    step((struct roster_input){.type = ROSTER_GONE, .link = 2});
    time_goes_on(20); /* the absent are lost */
    ck_assert_uint_eq(roster_generation(r), 8);
    come(2, true, 6, 4);
    ck_assert(was_sent(2, MESSAGE_REFUSED));
}
END_TEST

START_TEST(a_place_is_returned_once)
{
    take_over_whole();
    say_message(9, (struct message){.type = MESSAGE_HELLO,
                                    .generation = MESSAGE_NO_GENERATION,
                                    .hello = {.instance = {9},
                                              .run_id = "job",
                                              .name = "thief",
                                              .node_rank = MESSAGE_NO_RANK,
                                              .n_local = 2,
                                              .resumes = 7,
                                              .terms = terms,
                                              .was = {.is_known = true,
                                                      .generation = 7,
                                                      .place = {.n_nodes = 3,
                                                                .node_index = 1,
                                                                .world_size = 6,
                                                                .first_rank = 2,
                                                                .n_local = 2,
                                                                .agent_store = true,
                                                                .host = "node1",
                                                                .port = 4242}}}});
    ck_assert(was_sent(9, MESSAGE_REFUSED));
}
END_TEST

START_TEST(a_newcomer_waits_until_all_members_have_returned)
{
    take_over(-1);
    come(1, true, 7, 3);
    come(4, false, 0, 0);
    ck_assert(was_sent(4, MESSAGE_WELCOME));
    assert_state(ROSTER_RUNNING);
    come(2, true, 7, 3);
    come(3, true, 7, 3);
    assert_state(ROSTER_STOPPING);
    ck_assert_str_eq(roster_change(r), "node4 joins");
}
END_TEST

START_TEST(a_generation_is_not_announced_before_it_is_confirmed)
{
    create_unconfirmed(2, 2);
    come(1, false, 0, 0);
    come(2, false, 0, 0);
    assert_state(ROSTER_RUNNING);
    ck_assert(!was_sent(1, MESSAGE_SEALED));
    step((struct roster_input){.type = ROSTER_CONFIRMED, .generation = 5}); /* another one */
    ck_assert(!was_sent(1, MESSAGE_SEALED));
    step((struct roster_input){.type = ROSTER_CONFIRMED, .generation = 0});
    ck_assert(was_sent(1, MESSAGE_MEMBERS));
    ck_assert(was_sent(1, MESSAGE_SEALED));
    step((struct roster_input){.type = ROSTER_CONFIRMED, .generation = 0}); /* once more */
    ck_assert_uint_eq(last.n, 0);
}
END_TEST

START_TEST(a_leader_that_returns_before_that_is_not_informed)
{
    create_unconfirmed(2, 2);
    come(1, false, 0, 0);
    come(2, false, 0, 0);
    step((struct roster_input){.type = ROSTER_GONE, .link = 1});
    step((struct roster_input){.type = ROSTER_GONE, .link = 2});
    come(2, false, 0, 0);
    ck_assert(was_sent(2, MESSAGE_WELCOME));
    ck_assert(!was_sent(2, MESSAGE_SEALED));
}
END_TEST

START_TEST(an_unconfirmed_generation_ends_the_job)
{
    create_unconfirmed(1, 1);
    come(1, false, 0, 0);
    for (int i = 0; i < 59; i++) {
        time_goes_on(1000);
        heartbeat(1);
    }
    assert_state(ROSTER_RUNNING);
    time_goes_on(1000);
    assert_state(ROSTER_CLOSED);
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 75);
}
END_TEST

START_TEST(in_doubt_leases_are_renewed_while_all_nodes_respond)
{
    take_over_whole();
    step((struct roster_input){.type = ROSTER_DOUBT});
    for (int node = 1; node <= 3; node++) {
        heartbeat(node);
        ck_assert(was_sent(node, MESSAGE_LEASE));
    }
    time_goes_on(1000);
    heartbeat(1);
    heartbeat(2);
    time_goes_on(501); /* node 3 was heard 1.5 heartbeats ago */
    heartbeat(1);
    ck_assert(!was_sent(1, MESSAGE_LEASE));
    step((struct roster_input){.type = ROSTER_CERTAIN});
    heartbeat(1);
    ck_assert(was_sent(1, MESSAGE_LEASE));
}
END_TEST

START_TEST(in_doubt_a_lost_member_stops_the_renewal_of_leases)
{
    take_over_whole();
    step((struct roster_input){.type = ROSTER_DOUBT});
    step((struct roster_input){.type = ROSTER_GONE, .link = 3});
    time_goes_on(ROSTER_DOUBT_RETURN_MS - 1); /* it may have gone over to another roster */
    assert_state(ROSTER_RUNNING);
    time_goes_on(1);
    assert_state(ROSTER_STOPPING);
    heartbeat(1);
    ck_assert(!was_sent(1, MESSAGE_LEASE));
    say(2, MESSAGE_STOPPED);
    heartbeat(2); /* nothing of the generation runs there */
    ck_assert(was_sent(2, MESSAGE_LEASE));
}
END_TEST

START_TEST(in_doubt_a_newcomer_does_not_end_the_generation)
{
    take_over_whole();
    step((struct roster_input){.type = ROSTER_DOUBT});
    come(4, false, 0, 0);
    assert_state(ROSTER_RUNNING);
    step((struct roster_input){.type = ROSTER_CERTAIN});
    assert_state(ROSTER_STOPPING);
}
END_TEST

START_TEST(no_lease_is_given_after_the_roster_was_certain_for_the_last_time)
{
    take_over_whole();
    step((struct roster_input){.type = ROSTER_CERTAIN, .until_ms = now_ms + 600});
    heartbeat(1);
    ck_assert(was_sent(1, MESSAGE_LEASE));
    now_ms += 600; /* this process was stopped: no DOUBT came before the message */
    heartbeat(1);
    ck_assert(!was_sent(1, MESSAGE_LEASE));
    come(4, false, 0, 0);
    ck_assert(!was_sent(4, MESSAGE_WELCOME));
    step((struct roster_input){.type = ROSTER_CERTAIN, .until_ms = now_ms + 600});
    heartbeat(1);
    ck_assert(was_sent(1, MESSAGE_LEASE));
    step((struct roster_input){.type = ROSTER_CERTAIN});
    now_ms += 1000;
    heartbeat(1);
    ck_assert(was_sent(1, MESSAGE_LEASE));
}
END_TEST

START_TEST(a_member_whose_process_has_ended_is_not_waited_for)
{
    const struct roster_input ended = {.type = ROSTER_ENDED, .generation = 7, .node_index = 0};
    take_over(-1);
    come(2, true, 7, 3);
    come(3, true, 7, 3);
    step((struct roster_input){.type = ROSTER_ENDED, .generation = 6, .node_index = 0});
    step((struct roster_input){.type = ROSTER_ENDED, .generation = 7, .node_index = 3});
    step((struct roster_input){.type = ROSTER_ENDED, .generation = 7, .node_index = 1}); /* here */
    assert_state(ROSTER_RUNNING);
    step(ended);
    assert_state(ROSTER_STOPPING);
    ck_assert_str_eq(roster_change(r),
                     "lost GROUP_RANK=0: its ddprun, which hosted the coordinator, has ended");
    step(ended);
    for (int node = 2; node <= 3; node++) {
        say(node, MESSAGE_STOPPING);
        say(node, MESSAGE_STOPPED);
    }
    assert_state(ROSTER_RUNNING);
    ck_assert_uint_eq(roster_generation(r), 8);
}
END_TEST

START_TEST(an_impossible_past_is_not_taken_over)
{
    static const struct roster_past bad[] = {
        {.generation = MESSAGE_NO_GENERATION, .n_nodes = 1, .world_size = 1},
        {.n_nodes = 0, .world_size = 1},
        {.n_nodes = 5, .world_size = 5}, /* than --nnodes allows */
        {.n_nodes = 2, .world_size = 1},
        {.n_nodes = 2, .world_size = UINT32_MAX},
        {.n_nodes = 2, .world_size = 2, .n_restarts = UINT32_MAX},
        {.n_nodes = 2, .world_size = 2, .n_excluded = ROSTER_PAST_EXCLUDED + 1},
        {.n_nodes = 2, .world_size = 2, .before = {.n_nodes = 2}}, /* not before it */
        {.generation = 1, .n_nodes = 2, .world_size = 2},          /* of no node */
        {.generation = 1, .n_nodes = 2, .world_size = 2, .before = {.n_nodes = 5}},
        {.generation = 1,
         .n_nodes = 2,
         .world_size = 2,
         .before = {.n_nodes = 2, .n_missing = ROSTER_PAST_MISSING + 1}},
        {.generation = 1,
         .n_nodes = 2,
         .world_size = 2,
         .before = {.n_nodes = 2, .n_missing = 1, .missing = {2}}},
    };
    struct co_error err;
    create_unconfirmed(2, 4);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_int_eq(roster_resume(r, &bad[i], now_ms, &err), -EINVAL);
    assert_state(ROSTER_GATHERING);
}
END_TEST

START_TEST(the_past_survives_a_takeover)
{
    struct roster_past past;
    take_over_whole();
    roster_get_past(r, &past);
    ck_assert_uint_eq(past.generation, 7);
    ck_assert_uint_eq(past.n_nodes, 3);
    ck_assert_uint_eq(past.world_size, 6);
    ck_assert_uint_eq(past.n_restarts, 2);
    ck_assert_int_eq(past.gone, -1);
}
END_TEST

/* --- One that knows nothing, and learns of a generation from its members --- */

/* As come(): where the store is open, with so many restarts before. */
static void come_back(int node, uint32_t generation, uint32_t n_restarts, bool has_stopped)
{
    struct message_hello h = hello_of(node);
    h.returns = true;
    h.resumes = has_stopped ? MESSAGE_NO_GENERATION : generation;
    h.was = (struct message_was){.is_known = true,
                                 .generation = generation,
                                 .place = {.n_nodes = 3,
                                           .node_index = (uint32_t)node - 1,
                                           .world_size = 6,
                                           .first_rank = 2 * ((uint32_t)node - 1),
                                           .n_local = 2,
                                           .n_restarts = n_restarts,
                                           .leads = node == 1,
                                           .agent_store = true,
                                           .host = "node1",
                                           .port = 4242}};
    say_hello(node, h, false);
}

static void create_knowing_nothing(uint32_t min, uint32_t max)
{
    max_absent = 100;
    create(min, max, 3);
}

START_TEST(a_roster_learns_a_running_generation_from_its_members)
{
    create_knowing_nothing(3, 3);
    come_back(2, 7, 2, false);
    assert_said(" RUNNING 2<WELCOME 2<SEALED");
    ck_assert(told(2, MESSAGE_WELCOME)->welcome.resumed);
    ck_assert(told(2, MESSAGE_WELCOME)->welcome.replaced);
    ck_assert_str_eq(roster_change(r), "generation 7 continues with another coordinator");
    come_back(3, 7, 2, false);
    come_back(1, 7, 2, false);
    time_goes_on(3400);
    for (int node = 1; node <= 3; node++)
        heartbeat(node);
    time_goes_on(3400);
    assert_state(ROSTER_RUNNING);
    ck_assert_uint_eq(roster_generation(r), 7);
    ck_assert_uint_eq(roster_n_restarts(r), 2);
    fails(2, 9, false);
    for (int node = 1; node <= 3; node++)
        stops(node);
    time_goes_on(RESTART_FIRST_WAIT_MS);
    assert_state(ROSTER_RUNNING);
    ck_assert_uint_eq(roster_generation(r), 8);
    ck_assert_uint_eq(roster_n_restarts(r), 3); /* the last one */
    ck_assert_uint_eq(told(1, MESSAGE_SEALED)->sealed.n_restarts, 3);
    say(1, MESSAGE_READY);
    fails(2, 9, false);
    for (int node = 1; node <= 3; node++)
        stops(node);
    assert_state(ROSTER_CLOSED);
}
END_TEST

START_TEST(a_member_that_does_not_return_to_that_generation_is_lost)
{
    create_knowing_nothing(2, 3);
    come_back(1, 7, 0, false);
    come_back(2, 7, 0, false);
    time_goes_on(3000);
    heartbeat(1);
    heartbeat(2);
    assert_state(ROSTER_RUNNING);
    time_goes_on(500);
    assert_state(ROSTER_STOPPING);
    stops(1);
    stops(2);
    assert_state(ROSTER_RUNNING);
    ck_assert_uint_eq(roster_generation(r), 8);
    ck_assert(!told(1, MESSAGE_SEALED)->sealed.n_restarts);
}
END_TEST

START_TEST(newcomers_that_join_before_its_members_wait_for_a_place)
{
    create_knowing_nothing(1, 4);
    join(4);
    assert_state(ROSTER_OPEN);
    come_back(1, 7, 0, false);
    come_back(2, 7, 0, false);
    assert_state(ROSTER_RUNNING);
    come_back(3, 7, 0, false);
    assert_state(ROSTER_STOPPING); /* for node 4, now that all are known */
    for (int node = 1; node <= 3; node++)
        stops(node);
    ck_assert_uint_eq(roster_generation(r), 8);
    ck_assert_uint_eq(told(1, MESSAGE_SEALED)->sealed.n_nodes, 4);
}
END_TEST

START_TEST(the_next_generation_follows_a_stopped_one)
{
    create_knowing_nothing(3, 3);
    for (int node = 1; node <= 3; node++) {
        come_back(node, 7, 0, true);
        say(node, MESSAGE_STOPPED);
    }
    assert_state(ROSTER_RUNNING);
    ck_assert_uint_eq(roster_generation(r), 8);
}
END_TEST

/* For example, in a generation of two nodes whose ranks run by a lease of the old roster. */
START_TEST(a_spare_that_returns_first_does_not_restart_the_job)
{
    struct message_hello h;
    create_knowing_nothing(1, 1);
    h = hello_of(1);
    h.returns = true;
    say_hello(1, h, false);
    assert_state(ROSTER_OPEN);
    time_goes_on(3400);
    heartbeat(1);
    assert_state(ROSTER_OPEN);
    time_goes_on(100); /* no rank can run any more */
    assert_state(ROSTER_RUNNING);
    ck_assert_uint_eq(roster_generation(r), 0);
}
END_TEST

START_TEST(all_nodes_together_do_not_wait_for_an_ended_generation)
{
    struct message_hello h;
    create_knowing_nothing(3, 3);
    h = hello_of(4); /* a spare, for which members are waited for */
    h.returns = true;
    say_hello(4, h, false);
    for (int node = 1; node <= 3; node++)
        come_back(node, 7, 0, false);
    assert_state(ROSTER_RUNNING);
    leaves(4);
    leaves(3);
    stops(3);
    stops(1);
    stops(2);
    assert_state(ROSTER_GATHERING);
    join(5);
    assert_state(ROSTER_RUNNING);
    ck_assert_uint_eq(roster_generation(r), 8);
}
END_TEST

START_TEST(a_generation_that_cannot_continue_still_counts)
{
    static const struct {
        uint32_t max_absent, min, n_nodes, world_size;
        uint16_t port;
    } bad[] = {
        {2, 1, 3, 6, 4242},   /* more than it may wait for */
        {100, 2, 3, 6, 4242}, /* another --nnodes */
        {100, 1, 9, 9, 4242}, /* more than the maximum */
        {100, 1, 3, 2, 4242}, /* fewer ranks than nodes */
        {100, 1, 0, 6, 4242}, /* fewer than the minimum */
        {100, 1, 3, 6, 0},    /* a leader that did not send the place of its store */
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        create(1, 3, 3);
        max_absent = bad[i].max_absent;
        struct message_hello h = hello_of(1);
        h.terms.min_nodes = bad[i].min;
        h.resumes = 7;
        h.was = (struct message_was){.is_known = true,
                                     .generation = 7,
                                     .place = {.n_nodes = bad[i].n_nodes,
                                               .world_size = bad[i].world_size,
                                               .n_local = 1,
                                               .n_restarts = 2,
                                               .leads = true,
                                               .host = "",
                                               .port = bad[i].port}};
        say_hello(1, h, false);
        assert_said(" 1<REFUSED 1 closed");
        ck_assert(told(1, MESSAGE_REFUSED)->refused.again);
        ck_assert_ptr_nonnull(strstr(told(1, MESSAGE_REFUSED)->refused.text, "generation 7"));
        for (int node = 1; node <= 3; node++)
            join(node);
        assert_state(ROSTER_RUNNING);
        ck_assert_uint_eq(roster_generation(r), 8);
        ck_assert_uint_eq(roster_n_restarts(r), 2);
        come_back(4, 9, 0, false); /* and no generation is adopted next to its own */
        assert_said(" 4<REFUSED 4 closed");
        roster_destroy(r);
        r = NULL;
    }
}
END_TEST

TEST_SUITE(roster_past)
{
    Suite *suite = suite_create("roster_past");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, members_that_send_their_places_continue_undisturbed);
    tcase_add_test(all, a_member_that_does_not_return_is_lost);
    tcase_add_test(all, a_node_that_left_with_the_old_roster_is_not_waited_for);
    tcase_add_test(all, a_node_of_another_generation_is_not_a_member);
    tcase_add_test(
        all, ranks_that_live_on_are_kept_if_their_node_has_not_received_the_newest_generation);
    tcase_add_test(all, a_node_that_was_lost_before_the_newest_generation_is_lost);
    tcase_add_test(all, the_leader_that_has_received_it_precedes_the_nodes_that_have_not);
    tcase_add_test(all, a_generation_that_no_node_has_received_does_not_count_as_the_one_before);
    tcase_add_test(all, more_missing_nodes_than_the_record_takes_are_not_recorded);
    tcase_add_test(all, a_generation_waits_for_a_member_whose_link_is_replaced);
    tcase_add_test(all, ranks_that_missed_a_generation_while_their_node_was_away_are_lost);
    tcase_add_test(all, a_place_is_returned_once);
    tcase_add_test(all, a_newcomer_waits_until_all_members_have_returned);
    tcase_add_test(all, a_generation_is_not_announced_before_it_is_confirmed);
    tcase_add_test(all, a_leader_that_returns_before_that_is_not_informed);
    tcase_add_test(all, an_unconfirmed_generation_ends_the_job);
    tcase_add_test(all, in_doubt_leases_are_renewed_while_all_nodes_respond);
    tcase_add_test(all, in_doubt_a_lost_member_stops_the_renewal_of_leases);
    tcase_add_test(all, in_doubt_a_newcomer_does_not_end_the_generation);
    tcase_add_test(all, no_lease_is_given_after_the_roster_was_certain_for_the_last_time);
    tcase_add_test(all, a_member_whose_process_has_ended_is_not_waited_for);
    tcase_add_test(all, an_impossible_past_is_not_taken_over);
    tcase_add_test(all, the_past_survives_a_takeover);
    tcase_add_test(all, a_roster_learns_a_running_generation_from_its_members);
    tcase_add_test(all, a_member_that_does_not_return_to_that_generation_is_lost);
    tcase_add_test(all, newcomers_that_join_before_its_members_wait_for_a_place);
    tcase_add_test(all, the_next_generation_follows_a_stopped_one);
    tcase_add_test(all, a_spare_that_returns_first_does_not_restart_the_job);
    tcase_add_test(all, all_nodes_together_do_not_wait_for_an_ended_generation);
    tcase_add_test(all, a_generation_that_cannot_continue_still_counts);
    suite_add_tcase(suite, all);
    return suite;
}
