/* The member's table, whole and drawn, and its rules one by one. All orders of messages, and faults
 * of all kinds: tests/sim. */
#include "rendezvous/member.h"

#include "common/clock.h"
#include "common/error.h"
#include "tests/support/machine_checks.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct member *m;
static uint64_t now_ms;
static char did[1024]; /* what the last step said and ordered: " HELLO connect ..." */
static struct member_orders o;

static const char *const message_names[] = {
#define X(name, meaning) #name,
    MESSAGE_TYPES(X)
#undef X
};

static void add_did(bool really, const char *what)
{
    size_t n = strlen(did);
    if (really)
        snprintf(did + n, sizeof did - n, " %s", what);
}

static void note_orders(void)
{
    did[0] = '\0';
    for (size_t i = 0; i < o.n_messages; i++)
        add_did(true, message_names[o.messages[i].type]);
    add_did(o.disconnect, "disconnect");
    add_did(o.connect, "connect");
    add_did(o.open_store, "open");
    add_did(o.start_ranks, "start");
    add_did(o.tell_pending, "tell");
    add_did(o.stop_ranks, "stop");
    add_did(o.kill_ranks, "kill");
    add_did(o.ended, "end");
}

static void step(struct member_input in)
{
    in.now_ms = now_ms;
    member_step(m, &in, &o);
    note_orders();
}

static void hear(struct message message)
{
    step((struct member_input){.type = MEMBER_MESSAGE, .message = &message});
}

static void hears(enum message_type type, uint32_t generation)
{
    hear((struct message){.type = type, .generation = generation, .stop = {MESSAGE_WHY_JOIN, "x"}});
}

static void event(enum member_input_type type)
{
    step((struct member_input){.type = type, .text = "", .host = "host", .port = 77});
}

static void time_goes_on(uint64_t by_ms)
{
    now_ms += by_ms;
    event(MEMBER_TIME);
}

static void welcomed(bool resumed)
{
    hear((struct message){.type = MESSAGE_WELCOME,
                          .generation = MESSAGE_NO_GENERATION,
                          .welcome = {.sent_ms = now_ms,
                                      .heartbeat_ms = 1000,
                                      .lease_ms = 3000,
                                      .resumed = resumed,
                                      .note = ""}});
}

static void sealed(uint32_t generation, bool leads)
{
    hear((struct message){.type = MESSAGE_SEALED,
                          .generation = generation,
                          .sealed = {.n_nodes = 2,
                                     .node_index = leads ? 0 : 1,
                                     .world_size = 4,
                                     .first_rank = leads ? 0 : 2,
                                     .n_local = 2,
                                     .leads = leads,
                                     .agent_store = true,
                                     .host = leads ? "" : "host",
                                     .port = leads ? 0 : 77}});
}

static void refused(bool again)
{
    hear((struct message){.type = MESSAGE_REFUSED,
                          .refused = {MESSAGE_REFUSED_LOST, again, "no reason"}});
}

static void verdict(int exit_code)
{
    hear((struct message){.type = MESSAGE_VERDICT,
                          .verdict = {exit_code == 0 ? MESSAGE_WELL : MESSAGE_RANK_FAILED,
                                      (uint8_t)exit_code, 3, "node9", "rank 3"}});
}

static void answered(uint64_t sent_ms)
{
    hear((struct message){.type = MESSAGE_LEASE, .lease = {.sent_ms = sent_ms}});
}

static void kept(uint32_t n_ranks)
{
    step((struct member_input){.type = MEMBER_RANKS_KEPT, .n_ranks = n_ranks});
}

#define assert_did(text) ck_assert_str_eq(did, text)

static void assert_state(enum member_state state)
{
    ck_assert_msg(member_get_state(m) == state, "in %s", member_state_name(member_get_state(m)));
}

static void create(void)
{
    struct member_limits limits = {.start_timeout_ms = 10000, .daemon_timeout_ms = 60000};
    struct message_hello hello = {.run_id = "job",
                                  .name = "node1",
                                  .n_local = 2,
                                  .resumes = MESSAGE_NO_GENERATION,
                                  .terms = {.min_nodes = 1, .max_nodes = 2}};
    struct co_error err;
    now_ms = 100000;
    ck_assert_int_eq(member_create(&limits, &hello, "head:29400", &m, &err), 0);
    member_begin(m, now_ms, &o);
    note_orders();
    assert_did(" connect");
}

static void create_waiting(void)
{
    create();
    event(MEMBER_LINK_UP);
    assert_did(" HELLO");
    welcomed(false);
    assert_state(MEMBER_WAITING);
}

static void create_running(void)
{
    create_waiting();
    sealed(0, false);
    assert_did(" start");
}

static void set_up(void)
{
    m = NULL;
}

static void tear_down(void)
{
    member_destroy(m);
}

START_TEST(each_pair_of_state_and_event_has_one_answer)
{
    assert_whole(&member_machine);
}
END_TEST

START_TEST(the_drawing_is_the_table)
{
    assert_drawn(&member_machine, "member");
}
END_TEST

/* --- Joining --- */

START_TEST(a_daemon_that_is_not_there_yet_is_tried_again_quickly_then_slowly)
{
    create();
    uint64_t begun_ms = now_ms, last_ms = 1;
    while (now_ms < begun_ms + 5000) {
        event(MEMBER_LINK_DOWN);
        uint64_t wait_ms = member_deadline_ms(m) - now_ms;
        if (now_ms <= begun_ms + LEASE_RETURN_MS)
            ck_assert_uint_le(wait_ms, MEMBER_QUICK_MS);
        else if (now_ms < begun_ms + MEMBER_SOON_FOR_MS)
            ck_assert_uint_le(wait_ms, MEMBER_SOON_MS);
        ck_assert_uint_le(last_ms, wait_ms);
        last_ms = wait_ms;
        time_goes_on(wait_ms);
        assert_did(" connect");
    }
    ck_assert_uint_eq(last_ms, MEMBER_AGAIN_MS);
}
END_TEST

START_TEST(a_daemon_that_is_never_there_ends_the_wait)
{
    create();
    while (member_get_state(m) == MEMBER_SEEKING) {
        step((struct member_input){.type = MEMBER_LINK_DOWN, .text = "connection refused"});
        time_goes_on(member_deadline_ms(m) - now_ms);
    }
    ck_assert_uint_eq(now_ms, 110000);
    assert_state(MEMBER_ENDED);
    ck_assert_int_eq(member_get_end(m)->exit_code, 69);
    ck_assert_str_eq(member_get_end(m)->text,
                     "cannot join at head:29400 for 10 s: connection refused");
}
END_TEST

START_TEST(a_wrong_token_ends_it_at_once)
{
    create();
    step((struct member_input){
        .type = MEMBER_LINK_DOWN, .final = true, .exit_code = 77, .text = "another token"});
    assert_did(" end");
    ck_assert_int_eq(member_get_end(m)->exit_code, 77);
    ck_assert_str_eq(member_get_end(m)->text, "another token");
}
END_TEST

START_TEST(a_refusal_for_good_ends_it_and_says_why)
{
    create();
    event(MEMBER_LINK_UP);
    refused(false);
    assert_did(" disconnect end");
    ck_assert_int_eq(member_get_end(m)->exit_code, 78);
    ck_assert_str_eq(member_get_end(m)->text, "no reason");
}
END_TEST

START_TEST(a_refusal_for_now_is_tried_again_later)
{
    create();
    event(MEMBER_LINK_UP);
    refused(true);
    assert_did(" disconnect");
    ck_assert_uint_eq(member_deadline_ms(m) - now_ms, MEMBER_AGAIN_MS);
    time_goes_on(MEMBER_AGAIN_MS);
    assert_did(" connect");
}
END_TEST

START_TEST(who_comes_to_a_closed_job_hears_its_verdict)
{
    create();
    event(MEMBER_LINK_UP);
    verdict(7);
    assert_did(" disconnect end");
    ck_assert_int_eq(member_get_end(m)->exit_code, 7);
    ck_assert(member_get_end(m)->by_roster);
    ck_assert_str_eq(member_get_end(m)->node, "node9");
}
END_TEST

/* --- A generation --- */

START_TEST(the_leader_opens_the_store_before_its_ranks_start)
{
    create_waiting();
    static const struct message_address address = {4, {10, 0, 0, 2}};
    hear(
        (struct message){.type = MESSAGE_MEMBERS, .generation = 0, .members = {1, 0, 1, &address}});
    sealed(0, true);
    assert_did(" open");
    uint32_t n;
    ck_assert_mem_eq(member_get_addresses(m, &n), &address, sizeof address);
    ck_assert_uint_eq(n, 1);
    event(MEMBER_STORE_OPEN);
    assert_did(" READY start");
    ck_assert_uint_eq(member_get_place(m)->place.port, 77);
}
END_TEST

START_TEST(a_list_of_addresses_with_a_gap_costs_the_link)
{
    create_waiting();
    static const struct message_address address = {4, {10, 0, 0, 2}};
    hear(
        (struct message){.type = MESSAGE_MEMBERS, .generation = 0, .members = {9, 5, 1, &address}});
    assert_did(" disconnect connect");
}
END_TEST

START_TEST(a_store_that_cannot_be_opened_is_a_failure)
{
    create_waiting();
    sealed(0, true);
    step((struct member_input){
        .type = MEMBER_RANK_FAILED, .exit_code = 70, .final = true, .text = "no port"});
    assert_did(" FAILED stop");
    event(MEMBER_RANKS_GONE);
    assert_did(" STOPPED");
    assert_state(MEMBER_WAITING);
}
END_TEST

START_TEST(a_stop_is_answered_at_once_and_when_it_is_done)
{
    create_running();
    hears(MESSAGE_STOP, 0);
    assert_did(" STOPPING stop");
    ck_assert_str_eq(member_stop_text(m), "x");
    event(MEMBER_RANKS_GONE);
    assert_did(" STOPPED");
    sealed(1, false);
    assert_did(" start");
}
END_TEST

START_TEST(the_reason_of_a_stop_may_turn_out_when_it_is_done)
{
    create_running();
    event(MEMBER_RANK_FAILED);
    event(MEMBER_RANKS_GONE);
    assert_state(MEMBER_WAITING);
    hears(MESSAGE_STOP, 0);
    assert_did(" STOPPING STOPPED");
    ck_assert_str_eq(member_stop_text(m), "x");
    sealed(1, false);
    assert_did(" start");
}
END_TEST

START_TEST(what_comes_late_or_twice_means_nothing)
{
    create_running();
    sealed(0, false);
    assert_did("");
    hears(MESSAGE_STOP, 0);
    event(MEMBER_RANKS_GONE);
    sealed(0, false);
    assert_did("");
    sealed(1, false);
    hears(MESSAGE_STOP, 0);
    assert_did("");
    hears(MESSAGE_PENDING, 0);
    assert_did("");
}
END_TEST

START_TEST(a_stop_of_what_was_never_told_is_answered)
{
    create_waiting();
    hears(MESSAGE_STOP, 4);
    assert_did(" STOPPING STOPPED");
    sealed(4, false); /* late */
    assert_did("");
    sealed(5, false);
    assert_did(" start");
}
END_TEST

START_TEST(a_failed_rank_is_told_and_the_others_are_stopped)
{
    create_running();
    step((struct member_input){
        .type = MEMBER_RANK_FAILED, .rank = 3, .exit_code = 9, .text = "exited with 9"});
    assert_did(" FAILED stop");
    ck_assert_int_eq(o.why, MESSAGE_WHY_FAILURE);
    ck_assert_uint_eq(o.messages[0].failed.rank, 3);
    step((struct member_input){
        .type = MEMBER_RANK_FAILED, .rank = 2, .exit_code = 137, .text = "its cause"});
    assert_did(" FAILED");
    hears(MESSAGE_STOP, 0);
    assert_did(" STOPPING");
    event(MEMBER_RANKS_GONE);
    assert_did(" STOPPED");
}
END_TEST

START_TEST(ranks_that_are_kept_go_on_in_the_next_generation)
{
    create_running();
    hears(MESSAGE_STOP, 0);
    assert_did(" STOPPING stop");
    ck_assert(o.may_keep);
    kept(2);
    assert_did(" STOPPED");
    assert_state(MEMBER_KEEPING);
    hears(MESSAGE_STOP, 0); /* for another reason than was thought */
    assert_did(" STOPPING STOPPED");
    sealed(1, false);
    assert_did(" start");
    assert_state(MEMBER_RUNNING);
}
END_TEST

static void expect_stopped(uint32_t generation, uint32_t n_local)
{
    assert_did(" STOPPED");
    ck_assert_uint_eq(o.messages[0].generation, generation);
    ck_assert_uint_eq(o.messages[0].stopped.n_local, n_local);
}

START_TEST(how_many_are_kept_is_told_and_told_again_when_one_dies)
{
    create_running();
    hears(MESSAGE_STOP, 0);
    kept(2);
    expect_stopped(0, 2);
    kept(1);
    expect_stopped(0, 1);
    assert_state(MEMBER_KEEPING);
    event(MEMBER_LINK_DOWN);
    event(MEMBER_LINK_UP);
    ck_assert_uint_eq(o.messages[0].hello.n_local, 1);
    welcomed(true);
    assert_did(" STOPPING STOPPED");
    ck_assert_uint_eq(o.messages[1].stopped.n_local, 1);
    sealed(1, false); /* it was made before that was heard: for two */
    assert_did(" start");
    ck_assert_uint_eq(member_get_place(m)->place.n_local, 2);
    hears(MESSAGE_STOP, 1);
    kept(1);
    expect_stopped(1, 1);
    sealed(2, false);
    hears(MESSAGE_STOP, 2);
    event(MEMBER_RANKS_GONE); /* all of them begin anew */
    expect_stopped(2, 2);
}
END_TEST

START_TEST(a_place_for_more_ranks_than_there_are_costs_the_link)
{
    create_waiting();
    hear((struct message){
        .type = MESSAGE_SEALED,
        .sealed = {.n_nodes = 1, .world_size = 3, .n_local = 3, .leads = true, .host = ""}});
    assert_did(" disconnect connect");
    assert_state(MEMBER_WAITING);
}
END_TEST

START_TEST(where_ranks_are_kept_rank_0_may_be_another_one)
{
    create_running();
    hears(MESSAGE_STOP, 0);
    kept(2);
    sealed(1, true);
    assert_did(" open");
    hears(MESSAGE_STOP, 1); /* somebody else is lost meanwhile */
    assert_did(" STOPPING stop");
    kept(2);
    assert_did(" STOPPED");
    sealed(2, true);
    event(MEMBER_STORE_OPEN);
    assert_did(" READY start");
}
END_TEST

START_TEST(ranks_that_are_kept_are_bound_by_the_lease_and_by_the_verdict)
{
    create_running();
    hears(MESSAGE_STOP, 0);
    kept(2);
    event(MEMBER_LINK_DOWN);
    event(MEMBER_LINK_UP);
    ck_assert_uint_eq(o.messages[0].hello.resumes, 0);
    time_goes_on(3000);
    assert_did(" kill");
    member_destroy(m);

    create_running();
    hears(MESSAGE_STOP, 0);
    kept(2);
    refused(true);
    assert_did(" disconnect kill");
    event(MEMBER_RANKS_GONE);
    assert_state(MEMBER_SEEKING);
    member_destroy(m);

    create_running();
    hears(MESSAGE_STOP, 0);
    kept(2);
    verdict(0);
    assert_did(" stop");
    ck_assert(!o.may_keep);
    kept(2); /* late */
    assert_state(MEMBER_ENDING);
    event(MEMBER_RANKS_GONE);
    assert_did(" STOPPED disconnect end");
}
END_TEST

START_TEST(a_failure_that_the_stop_overtook_is_told_unless_it_is_a_consequence)
{
    create_running();
    hears(MESSAGE_STOP, 0);
    step((struct member_input){
        .type = MEMBER_RANK_FAILED, .exit_code = 1, .consequence = true, .text = "lost a peer"});
    assert_did("");
    step((struct member_input){
        .type = MEMBER_RANK_FAILED, .rank = 3, .exit_code = 9, .text = "exited with 9"});
    assert_did(" FAILED");
    ck_assert(!o.messages[0].failed.consequence);
    event(MEMBER_RANKS_GONE);
    assert_did(" STOPPED");
}
END_TEST

START_TEST(a_consequence_is_told_as_one_until_it_is_corrected)
{
    create_running();
    step((struct member_input){
        .type = MEMBER_RANK_FAILED, .exit_code = 1, .consequence = true, .text = "lost a peer"});
    assert_did(" FAILED stop");
    ck_assert(o.messages[0].failed.consequence);
    step(
        (struct member_input){.type = MEMBER_RANK_FAILED, .exit_code = 9, .text = "exited with 9"});
    assert_did(" FAILED");
    ck_assert(!o.messages[0].failed.consequence);
}
END_TEST

START_TEST(that_stopped_ranks_end_well_is_nobodys_business)
{
    create_running();
    hears(MESSAGE_STOP, 0);
    event(MEMBER_RANKS_DONE);
    assert_did("");
}
END_TEST

START_TEST(the_end_is_told_and_waited_for)
{
    create_running();
    event(MEMBER_RANKS_DONE);
    assert_did(" DONE");
    assert_state(MEMBER_RUNNING);
    verdict(0);
    assert_did(" stop");
    event(MEMBER_RANKS_GONE);
    assert_did(" STOPPED disconnect end");
    ck_assert_int_eq(member_get_end(m)->exit_code, 0);
}
END_TEST

START_TEST(a_newcomer_at_a_checkpoint_is_told_to_the_ranks)
{
    create_running();
    hears(MESSAGE_PENDING, 0);
    assert_did(" tell");
    event(MEMBER_YIELDED);
    assert_did(" YIELD");
}
END_TEST

START_TEST(a_restart_is_asked_for_and_stops_ranks_that_could_be_kept)
{
    create_running();
    event(MEMBER_RESTART);
    assert_did(" RESTART");
    assert_state(MEMBER_RUNNING);
    event(MEMBER_LINK_DOWN);
    event(MEMBER_LINK_UP);
    welcomed(true);
    assert_did(" RESTART");
    hear((struct message){.type = MESSAGE_STOP, .stop = {MESSAGE_WHY_RESTART, "it was asked for"}});
    assert_did(" STOPPING stop");
    ck_assert(!o.may_keep);
    ck_assert_int_eq(o.why, MESSAGE_WHY_RESTART);
    event(MEMBER_RESTART);
    assert_did("");
    event(MEMBER_RANKS_GONE);
    sealed(1, false);
    assert_did(" start");
}
END_TEST

/* --- Links --- */

START_TEST(a_lost_link_is_made_again_at_once_and_all_is_said_again)
{
    create_running();
    event(MEMBER_RANKS_DONE);
    event(MEMBER_LINK_DOWN);
    assert_did(" connect");
    now_ms += 3;
    event(MEMBER_LINK_UP);
    assert_did(" HELLO");
    ck_assert_uint_eq(o.messages[0].hello.resumes, 0);
    welcomed(true);
    assert_did(" DONE");
    assert_state(MEMBER_RUNNING);
}
END_TEST

START_TEST(what_is_said_again_keeps_its_order)
{
    create_running();
    event(MEMBER_LINK_DOWN);
    step((struct member_input){.type = MEMBER_LEAVE, .signal = 15, .exit_code = 143, .text = "T"});
    event(MEMBER_LINK_UP);
    welcomed(true);
    assert_did(" LEAVE");
    hears(MESSAGE_STOP, 0);
    event(MEMBER_LINK_DOWN);
    event(MEMBER_LINK_UP);
    welcomed(true);
    assert_did(" LEAVE STOPPING");
}
END_TEST

START_TEST(a_new_roster_begins_to_count_anew)
{
    create_running();
    hears(MESSAGE_STOP, 0);
    event(MEMBER_RANKS_GONE);
    event(MEMBER_LINK_DOWN);
    event(MEMBER_LINK_UP);
    ck_assert_uint_eq(o.messages[0].hello.resumes, MESSAGE_NO_GENERATION);
    welcomed(false);
    assert_did("");
    sealed(0, false);
    assert_did(" start");
}
END_TEST

START_TEST(an_answer_to_what_was_not_sent_costs_the_link)
{
    create_running();
    answered(now_ms + 1);
    assert_did(" disconnect connect");
}
END_TEST

/* --- Leases --- */

START_TEST(heartbeats_renew_the_lease_from_when_they_were_sent)
{
    create_running();
    ck_assert_uint_eq(o.lease_end_ms, now_ms + 3000);
    time_goes_on(1000);
    assert_did(" HEARTBEAT");
    uint64_t sent_ms = now_ms;
    now_ms += 700;
    answered(sent_ms);
    ck_assert(o.set_lease);
    ck_assert_uint_eq(o.lease_end_ms, sent_ms + 3000);
}
END_TEST

START_TEST(a_lease_that_is_over_kills_and_ends_with_the_daemon_s_name)
{
    create_running();
    time_goes_on(1000);
    time_goes_on(1000);
    time_goes_on(1000);
    assert_did(" HEARTBEAT kill");
    event(MEMBER_RANKS_GONE);
    assert_did(" disconnect end");
    ck_assert_int_eq(member_get_end(m)->exit_code, 75);
    ck_assert_str_eq(member_get_end(m)->text, "lost the daemon at head:29400: it is silent; "
                                              "nothing heard of it for 3000 ms");
}
END_TEST

START_TEST(what_the_nursery_killed_is_no_failure)
{
    create_running();
    now_ms += 3000; /* this ddprun was stopped */
    step((struct member_input){.type = MEMBER_RANK_FAILED, .exit_code = 137, .text = "killed"});
    assert_did(" kill");
    hears(MESSAGE_STOP, 0);
    assert_did("");
    refused(true);
    assert_did(" disconnect");
    event(MEMBER_RANKS_GONE);
    assert_did(" connect");
    assert_state(MEMBER_SEEKING);
}
END_TEST

START_TEST(a_lease_that_comes_back_says_that_the_ranks_are_gone)
{
    create_running();
    time_goes_on(1000);
    time_goes_on(1900);
    uint64_t sent_ms = now_ms;
    time_goes_on(100);
    assert_state(MEMBER_KILLING);
    answered(sent_ms);
    event(MEMBER_RANKS_GONE);
    assert_did(" STOPPED");
    assert_state(MEMBER_WAITING);
}
END_TEST

START_TEST(who_was_given_up_comes_anew)
{
    create_running();
    refused(true);
    assert_did(" disconnect kill");
    event(MEMBER_RANKS_GONE);
    assert_did(" connect");
    event(MEMBER_LINK_UP);
    ck_assert_uint_eq(o.messages[0].hello.resumes, MESSAGE_NO_GENERATION);
}
END_TEST

START_TEST(who_waits_gives_a_silent_daemon_up_and_not_a_slow_one)
{
    create_waiting();
    time_goes_on(1000);
    uint64_t sent_ms = now_ms;
    time_goes_on(1900);
    answered(sent_ms); /* late, but it lives */
    time_goes_on(2999);
    assert_state(MEMBER_WAITING);
    sealed(0, false); /* without a lease nothing starts */
    assert_did(" STOPPED");
    assert_state(MEMBER_WAITING);
    time_goes_on(3000);
    assert_state(MEMBER_ENDED);
    ck_assert_int_eq(member_get_end(m)->exit_code, 75);
}
END_TEST

static void nobody_has_the_roster(uint64_t asked_ms_ago)
{
    step((struct member_input){.type = MEMBER_DAEMON_LOST, .asked_ms = now_ms - asked_ms_ago});
}

START_TEST(a_lease_runs_on_while_nobody_has_the_roster)
{
    create_running();
    event(MEMBER_LINK_DOWN);
    time_goes_on(2000);
    nobody_has_the_roster(100);
    ck_assert_uint_eq(o.lease_end_ms, now_ms - 100 + 3000);
    time_goes_on(2899);
    assert_state(MEMBER_RUNNING);
    time_goes_on(1);
    assert_state(MEMBER_KILLING);
}
END_TEST

START_TEST(a_lease_runs_on_for_the_daemon_timeout_at_most)
{
    create_running();
    event(MEMBER_LINK_DOWN);
    for (int i = 0; i < 59; i++) {
        time_goes_on(1000);
        nobody_has_the_roster(0);
    }
    assert_state(MEMBER_RUNNING);
    time_goes_on(1999); /* 60 s behind the first of them */
    nobody_has_the_roster(0);
    assert_state(MEMBER_RUNNING);
    time_goes_on(1);
    assert_state(MEMBER_KILLING);
}
END_TEST

START_TEST(a_hello_tells_the_place_that_the_node_still_has)
{
    create_running();
    event(MEMBER_LINK_DOWN);
    time_goes_on(1);
    step((struct member_input){.type = MEMBER_LINK_UP});
    ck_assert_int_eq(o.messages[0].type, MESSAGE_HELLO);
    const struct message_was *was = &o.messages[0].hello.was;
    ck_assert(was->is_known);
    ck_assert_uint_eq(was->generation, member_get_place(m)->generation);
    ck_assert_uint_eq(was->place.node_index, member_get_place(m)->place.node_index);
    ck_assert_str_eq(was->place.host, member_get_place(m)->place.host);
}
END_TEST

START_TEST(after_the_verdict_no_lease_kills)
{
    create_running();
    verdict(1);
    ck_assert(o.set_lease);
    ck_assert_uint_eq(o.lease_end_ms, CO_NEVER_MS);
    time_goes_on(100000);
    assert_state(MEMBER_ENDING);
}
END_TEST

START_TEST(a_roster_in_this_process_has_no_leases)
{
    create();
    step((struct member_input){.type = MEMBER_LINK_UP, .local = true});
    welcomed(false);
    sealed(0, true);
    event(MEMBER_STORE_OPEN);
    assert_did(" READY start");
    ck_assert_uint_eq(member_deadline_ms(m), CO_NEVER_MS);
}
END_TEST

START_TEST(who_waits_beside_the_roster_asks_what_for)
{
    create();
    step((struct member_input){.type = MEMBER_LINK_UP, .local = true});
    welcomed(false);
    time_goes_on(999);
    assert_did("");
    for (int i = 0; i < 2; i++) {
        time_goes_on(i == 0 ? 1 : 1000);
        assert_did(" HEARTBEAT");
        hear((struct message){
            .type = MESSAGE_LEASE,
            .generation = MESSAGE_NO_GENERATION,
            .lease = {.sent_ms = now_ms,
                      .progress = &(struct message_progress){.wait = MESSAGE_WAIT_STOP}}});
        ck_assert_int_eq(member_get_progress(m)->wait, MESSAGE_WAIT_STOP);
    }
    sealed(0, true);
    event(MEMBER_STORE_OPEN);
    assert_did(" READY start");
    ck_assert_uint_eq(member_deadline_ms(m), CO_NEVER_MS);
}
END_TEST

/* --- Leaving and ending --- */

START_TEST(a_leave_is_told_before_ranks_stop_and_ends_of_its_signal)
{
    create_running();
    step((struct member_input){
        .type = MEMBER_LEAVE, .signal = 15, .exit_code = 143, .text = "SIGTERM"});
    assert_did(" LEAVE stop");
    hears(MESSAGE_STOP, 0);
    assert_did(" STOPPING");
    verdict(75);
    event(MEMBER_RANKS_GONE);
    assert_did(" STOPPED disconnect end");
    ck_assert_int_eq(member_get_end(m)->signal, 15);
    ck_assert(!member_get_end(m)->by_roster);
}
END_TEST

START_TEST(a_leave_while_nothing_runs_ends_at_once)
{
    create_waiting();
    step((struct member_input){
        .type = MEMBER_LEAVE, .signal = 2, .exit_code = 130, .text = "SIGINT"});
    assert_did(" LEAVE disconnect end");
}
END_TEST

START_TEST(a_signal_before_the_daemon_is_found_ends_at_once)
{
    create();
    step((struct member_input){
        .type = MEMBER_LEAVE, .signal = 15, .exit_code = 143, .text = "SIGTERM"});
    assert_did(" disconnect end");
    ck_assert_uint_eq(member_deadline_ms(m), CO_NEVER_MS);
}
END_TEST

START_TEST(the_end_of_the_job_is_told)
{
    create_running();
    step((struct member_input){.type = MEMBER_END_JOB, .exit_code = 124, .text = "out of time"});
    assert_did(" END stop");
    ck_assert_int_eq(o.messages[0].verdict.exit_code, 124);
    event(MEMBER_RANKS_GONE);
    ck_assert_int_eq(member_get_end(m)->exit_code, 124);
}
END_TEST

START_TEST(a_node_on_which_something_hangs_leaves)
{
    create_running();
    hears(MESSAGE_STOP, 0);
    step((struct member_input){.type = MEMBER_RANKS_GONE, .hangs = true});
    assert_did(" LEAVE disconnect end");
    ck_assert_int_eq(member_get_end(m)->exit_code, 70);
}
END_TEST

START_TEST(what_is_waited_for_is_kept)
{
    create_waiting();
    struct message_progress p = {.wait = MESSAGE_WAIT_NODES, .n_names = 1, .names = {"node5"}};
    hear((struct message){.type = MESSAGE_LEASE, .lease = {.sent_ms = now_ms, .progress = &p}});
    p.names[0] = "gone";
    ck_assert_str_eq(member_get_progress(m)->names[0], "node5");
    answered(now_ms);
    ck_assert_ptr_null(member_get_progress(m));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("member");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, each_pair_of_state_and_event_has_one_answer);
    tcase_add_test(all, the_drawing_is_the_table);
    tcase_add_test(all, a_daemon_that_is_not_there_yet_is_tried_again_quickly_then_slowly);
    tcase_add_test(all, a_daemon_that_is_never_there_ends_the_wait);
    tcase_add_test(all, a_wrong_token_ends_it_at_once);
    tcase_add_test(all, a_refusal_for_good_ends_it_and_says_why);
    tcase_add_test(all, a_refusal_for_now_is_tried_again_later);
    tcase_add_test(all, who_comes_to_a_closed_job_hears_its_verdict);
    tcase_add_test(all, the_leader_opens_the_store_before_its_ranks_start);
    tcase_add_test(all, a_list_of_addresses_with_a_gap_costs_the_link);
    tcase_add_test(all, a_store_that_cannot_be_opened_is_a_failure);
    tcase_add_test(all, a_stop_is_answered_at_once_and_when_it_is_done);
    tcase_add_test(all, the_reason_of_a_stop_may_turn_out_when_it_is_done);
    tcase_add_test(all, what_comes_late_or_twice_means_nothing);
    tcase_add_test(all, a_stop_of_what_was_never_told_is_answered);
    tcase_add_test(all, a_failed_rank_is_told_and_the_others_are_stopped);
    tcase_add_test(all, ranks_that_are_kept_go_on_in_the_next_generation);
    tcase_add_test(all, how_many_are_kept_is_told_and_told_again_when_one_dies);
    tcase_add_test(all, a_place_for_more_ranks_than_there_are_costs_the_link);
    tcase_add_test(all, where_ranks_are_kept_rank_0_may_be_another_one);
    tcase_add_test(all, ranks_that_are_kept_are_bound_by_the_lease_and_by_the_verdict);
    tcase_add_test(all, a_failure_that_the_stop_overtook_is_told_unless_it_is_a_consequence);
    tcase_add_test(all, a_consequence_is_told_as_one_until_it_is_corrected);
    tcase_add_test(all, that_stopped_ranks_end_well_is_nobodys_business);
    tcase_add_test(all, the_end_is_told_and_waited_for);
    tcase_add_test(all, a_newcomer_at_a_checkpoint_is_told_to_the_ranks);
    tcase_add_test(all, a_restart_is_asked_for_and_stops_ranks_that_could_be_kept);
    tcase_add_test(all, a_lost_link_is_made_again_at_once_and_all_is_said_again);
    tcase_add_test(all, what_is_said_again_keeps_its_order);
    tcase_add_test(all, a_new_roster_begins_to_count_anew);
    tcase_add_test(all, an_answer_to_what_was_not_sent_costs_the_link);
    tcase_add_test(all, heartbeats_renew_the_lease_from_when_they_were_sent);
    tcase_add_test(all, a_lease_that_is_over_kills_and_ends_with_the_daemon_s_name);
    tcase_add_test(all, what_the_nursery_killed_is_no_failure);
    tcase_add_test(all, a_lease_that_comes_back_says_that_the_ranks_are_gone);
    tcase_add_test(all, who_was_given_up_comes_anew);
    tcase_add_test(all, who_waits_gives_a_silent_daemon_up_and_not_a_slow_one);
    tcase_add_test(all, a_lease_runs_on_while_nobody_has_the_roster);
    tcase_add_test(all, a_lease_runs_on_for_the_daemon_timeout_at_most);
    tcase_add_test(all, a_hello_tells_the_place_that_the_node_still_has);
    tcase_add_test(all, after_the_verdict_no_lease_kills);
    tcase_add_test(all, a_roster_in_this_process_has_no_leases);
    tcase_add_test(all, who_waits_beside_the_roster_asks_what_for);
    tcase_add_test(all, a_leave_is_told_before_ranks_stop_and_ends_of_its_signal);
    tcase_add_test(all, a_leave_while_nothing_runs_ends_at_once);
    tcase_add_test(all, a_signal_before_the_daemon_is_found_ends_at_once);
    tcase_add_test(all, the_end_of_the_job_is_told);
    tcase_add_test(all, a_node_on_which_something_hangs_leaves);
    tcase_add_test(all, what_is_waited_for_is_kept);
    suite_add_tcase(suite, all);
    return run_suite(suite);
}
