/* The roster's table, whole and drawn, and its rules one by one. All orders of messages, and faults
 * of all kinds: tests/sim. */
#include "rendezvous/roster.h"

#include "rendezvous/lease.h"
#include "rendezvous/restart_policy.h"

#include "common/clock.h"
#include "common/error.h"
#include "tests/support/machine_checks.h"

#include <check.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct roster *r;
static uint64_t now_ms;
static char said[4096]; /* what the last step told whom: " 1<WELCOME RUNNING ..." */
static struct roster_actions last;

static const char *const message_names[] = {
#define X(name, meaning) #name,
    MESSAGE_TYPES(X)
#undef X
};

/* --- Telling the roster --- */

static void add_said(const char *format, ...)
{
    size_t n = strlen(said);
    va_list args;
    va_start(args, format);
    vsnprintf(said + n, sizeof said - n, format, args);
    va_end(args);
}

static void step(struct roster_input in)
{
    in.now_ms = now_ms;
    said[0] = '\0';
    roster_step(r, &in, &last);
    for (size_t i = 0; i < last.n; i++) {
        const struct roster_action *a = &last.items[i];
        if (a->type == ROSTER_CHANGED)
            add_said(" %s", roster_state_name(a->to));
        else if (a->type == ROSTER_CLOSE)
            add_said(" %d closed", (int)a->link);
        else
            add_said(" %d<%s", (int)a->link, message_names[a->message.type]);
    }
}

static const struct message *told(int link, enum message_type type)
{
    for (size_t i = 0; i < last.n; i++)
        if (last.items[i].type == ROSTER_SEND && last.items[i].link == (uint64_t)link &&
            last.items[i].message.type == type)
            return &last.items[i].message;
    ck_abort_msg("%d was not told %s, but:%s", link, message_names[type], said);
    return NULL;
}

static struct message_terms terms;

static struct message_hello hello_of(int node)
{
    static char names[100][16];
    struct message_hello h = {.run_id = "job",
                              .name = names[node],
                              .node_rank = MESSAGE_NO_RANK,
                              .n_local = 2,
                              .resumes = MESSAGE_NO_GENERATION,
                              .stop_ms = 5000,
                              .terms = terms};
    snprintf(names[node], sizeof names[node], "node%d", node);
    h.instance[0] = (uint8_t)node;
    return h;
}

static void say_hello(int link, struct message_hello h, bool local)
{
    struct message m = {.type = MESSAGE_HELLO, .generation = MESSAGE_NO_GENERATION, .hello = h};
    step((struct roster_input){
        .type = ROSTER_MESSAGE, .link = (uint64_t)link, .local = local, .message = &m});
}

static void join(int node) /* on a link of its number */
{
    say_hello(node, hello_of(node), false);
}

static void say_message(int link, struct message m)
{
    step((struct roster_input){.type = ROSTER_MESSAGE, .link = (uint64_t)link, .message = &m});
}

static void say(int link, enum message_type type)
{
    say_message(link, (struct message){.type = type,
                                       .generation = roster_generation(r),
                                       .ready = {"host", 1234, true}});
}

static void fails(int link, int exit_code, bool final)
{
    say_message(link, (struct message){.type = MESSAGE_FAILED,
                                       .generation = roster_generation(r),
                                       .failed = {5, (uint8_t)exit_code, final, "bad luck"}});
}

/* Rank 4, since another one's end was seen. */
static void fails_of_another(int link, int exit_code)
{
    say_message(link, (struct message){.type = MESSAGE_FAILED,
                                       .generation = roster_generation(r),
                                       .failed = {.rank = 4,
                                                  .exit_code = (uint8_t)exit_code,
                                                  .text = "its peer is gone",
                                                  .consequence = true}});
}

static void leaves(int link)
{
    say_message(link, (struct message){.type = MESSAGE_LEAVE, .leave = {"SIGTERM"}});
}

static void gone(int link)
{
    step((struct roster_input){.type = ROSTER_GONE, .link = (uint64_t)link});
}

static void time_goes_on(uint64_t by_ms)
{
    now_ms += by_ms;
    step((struct roster_input){.type = ROSTER_TIME});
}

static void stops(int link)
{
    say(link, MESSAGE_STOPPING);
    say(link, MESSAGE_STOPPED);
}

#define assert_said(text) ck_assert_str_eq(said, text)

static void assert_state(enum roster_state state)
{
    ck_assert_msg(roster_get_state(r) == state, "%s: %s", roster_state_name(roster_get_state(r)),
                  roster_change(r));
}

/* --- Making one --- */

static void create_expecting(uint32_t min, uint32_t max, uint32_t max_restarts,
                             const char *const *expected, size_t n)
{
    struct roster_limits limits = {0};
    struct co_error err;
    terms = (struct message_terms){.min_nodes = min,
                                   .max_nodes = max,
                                   .window_ms = 3000,
                                   .start_timeout_ms = 600000,
                                   .rejoin_timeout_ms = 60000,
                                   .max_restarts = max_restarts};
    now_ms = 1000;
    ck_assert_int_eq(roster_create(&limits, &terms, expected, n, now_ms, &r, &err), 0);
}

static void create(uint32_t min, uint32_t max, uint32_t max_restarts)
{
    create_expecting(min, max, max_restarts, NULL, 0);
}

/* A generation of so many nodes, all told. */
static void create_running(uint32_t min, uint32_t max, int n, uint32_t max_restarts)
{
    create(min, max, max_restarts);
    for (int i = 1; i <= n; i++)
        join(i);
    if (roster_get_state(r) == ROSTER_OPEN)
        time_goes_on(3000);
    say(1, MESSAGE_READY);
    assert_state(ROSTER_RUNNING);
}

static void set_up(void)
{
    r = NULL;
}

static void tear_down(void)
{
    roster_destroy(r);
}

/* --- The table --- */

START_TEST(each_pair_of_state_and_event_has_one_answer)
{
    assert_whole(&roster_machine);
}
END_TEST

START_TEST(the_drawing_is_the_table)
{
    assert_drawn(&roster_machine, "roster");
}
END_TEST

/* --- Gathering --- */

START_TEST(a_fixed_number_of_nodes_is_sealed_when_the_last_one_comes)
{
    create(2, 2, 0);
    join(1);
    assert_said(" 1<WELCOME");
    join(2);
    assert_said(" 2<WELCOME 1<MEMBERS 1<SEALED RUNNING");
    const struct message *m = told(1, MESSAGE_SEALED);
    ck_assert(m->sealed.leads);
    ck_assert_uint_eq(m->generation, 0);
    ck_assert_uint_eq(m->sealed.world_size, 4);
    say(1, MESSAGE_READY);
    assert_said(" 2<SEALED");
    m = told(2, MESSAGE_SEALED);
    ck_assert_uint_eq(m->sealed.first_rank, 2);
    ck_assert_uint_eq(m->sealed.node_index, 1);
    ck_assert_str_eq(m->sealed.host, "host");
    ck_assert_uint_eq(m->sealed.port, 1234);
}
END_TEST

START_TEST(a_window_is_open_from_the_minimum_to_the_maximum)
{
    create(1, 3, 0);
    join(1);
    assert_state(ROSTER_OPEN);
    time_goes_on(2999);
    assert_state(ROSTER_OPEN);
    join(2);
    time_goes_on(1);
    assert_state(ROSTER_RUNNING);
    ck_assert_uint_eq(told(1, MESSAGE_SEALED)->sealed.n_nodes, 2);
}
END_TEST

START_TEST(the_window_closes_when_too_few_are_left_and_opens_anew)
{
    create(2, 3, 0);
    join(1);
    join(2);
    assert_state(ROSTER_OPEN);
    gone(2);
    assert_state(ROSTER_GATHERING);
    now_ms += 2000;
    join(3);
    assert_state(ROSTER_OPEN);
    say(1, MESSAGE_HEARTBEAT);
    time_goes_on(2999);
    assert_state(ROSTER_OPEN);
    time_goes_on(1);
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(nodes_that_do_not_come_end_the_job)
{
    create(3, 3, 0);
    join(1);
    join(2);
    for (int i = 0; i < 600; i++) {
        ck_assert_uint_le(roster_deadline_ms(r), 601000);
        say(1, MESSAGE_HEARTBEAT);
        say(2, MESSAGE_HEARTBEAT);
        time_goes_on(1000);
    }
    assert_state(ROSTER_CLOSED);
    const struct message_verdict *v = roster_get_verdict(r);
    ck_assert_int_eq(v->outcome, MESSAGE_MISSING);
    ck_assert_int_eq(v->exit_code, 69);
    ck_assert_str_eq(v->text, "2 of at least 3 nodes are here after 600 s");
}
END_TEST

/* --- Order of ranks, through the whole --- */

START_TEST(rank_0_lost_is_followed_by_the_next_and_newcomers_fill_holes)
{
    create_running(2, 4, 4, 0);
    gone(1);
    time_goes_on(50);
    gone(3);
    time_goes_on(50);
    assert_state(ROSTER_STOPPING);
    say_hello(9, hello_of(9), false);
    say_hello(5, hello_of(5), false);
    stops(2);
    say(4, MESSAGE_STOPPING);
    say(4, MESSAGE_STOPPED);
    assert_said(" 2<MEMBERS 2<SEALED RUNNING");
    say(2, MESSAGE_READY);
    ck_assert_uint_eq(told(5, MESSAGE_SEALED)->sealed.node_index, 1); /* the hole */
    ck_assert_uint_eq(told(4, MESSAGE_SEALED)->sealed.node_index, 2);
    ck_assert_uint_eq(told(9, MESSAGE_SEALED)->sealed.node_index, 3);
}
END_TEST

START_TEST(a_host_file_orders_ranks)
{
    static const char *const expected[] = {"node3", "node1", "node2"};
    create_expecting(3, 3, 0, expected, 3);
    join(1);
    join(2);
    join(3);
    assert_said(" 3<WELCOME 3<MEMBERS 3<SEALED RUNNING");
}
END_TEST

/* --- Joining --- */

START_TEST(a_newcomer_ends_the_generation_at_once)
{
    create_running(1, 3, 2, 0);
    join(3);
    assert_said(" 3<WELCOME 1<STOP 2<STOP STOPPING");
    ck_assert_int_eq(told(1, MESSAGE_STOP)->stop.why, MESSAGE_WHY_JOIN);
    ck_assert_str_eq(told(1, MESSAGE_STOP)->stop.text, "node3 joins");
    stops(1);
    stops(2);
    assert_state(ROSTER_RUNNING);
    ck_assert_uint_eq(roster_generation(r), 1);
    ck_assert_uint_eq(roster_n_restarts(r), 0);
}
END_TEST

/* A second goes by, in which nobody is lost. */
static void beat(uint32_t n_nodes)
{
    time_goes_on(1000);
    for (uint32_t i = 1; i <= n_nodes; i++)
        say(i, MESSAGE_HEARTBEAT);
}

/* One to three nodes, two of which run. */
static void create_at_checkpoint(uint64_t timeout_ms)
{
    create(1, 3, 0);
    roster_destroy(r);
    struct roster_limits limits = {0};
    terms.scale_at = MESSAGE_SCALE_AT_CHECKPOINT;
    terms.scale_timeout_ms = timeout_ms;
    ck_assert_int_eq(roster_create(&limits, &terms, NULL, 0, now_ms, &r, NULL), 0);
    join(1);
    join(2);
    for (int i = 0; i < 3; i++)
        beat(2);
}

START_TEST(a_newcomer_waits_for_a_checkpoint_if_so_agreed)
{
    create_at_checkpoint(0);
    say(1, MESSAGE_READY);
    join(3);
    assert_said(" 3<WELCOME 1<PENDING 2<PENDING");
    say(1, MESSAGE_YIELD);
    assert_state(ROSTER_RUNNING);
    say(1, MESSAGE_YIELD);
    assert_state(ROSTER_RUNNING);
    say(2, MESSAGE_YIELD);
    assert_state(ROSTER_STOPPING);
}
END_TEST

/* One that leads has no ranks before its store is open, the others have none before that is
 * told. */
START_TEST(ranks_that_start_when_a_newcomer_waits_already_are_asked_to_save)
{
    create_at_checkpoint(0);
    join(3);
    assert_said(" 3<WELCOME 1<PENDING");
    say(1, MESSAGE_READY);
    assert_said(" 2<SEALED 1<PENDING 2<PENDING");
    say(1, MESSAGE_YIELD);
    say(2, MESSAGE_YIELD);
    assert_state(ROSTER_STOPPING);
}
END_TEST

START_TEST(a_newcomer_waits_for_a_checkpoint_only_so_long)
{
    create_at_checkpoint(4000);
    join(3); /* the store is not open yet, which takes a second */
    beat(3);
    say(1, MESSAGE_READY);
    say(1, MESSAGE_YIELD);
    beat(3);
    ck_assert_uint_eq(told(3, MESSAGE_LEASE)->lease.progress->elapsed_ms, 2000);
    ck_assert_uint_eq(told(3, MESSAGE_LEASE)->lease.progress->left_ms, 2000);
    beat(3);
    assert_state(ROSTER_RUNNING);
    time_goes_on(1000);
    assert_state(ROSTER_STOPPING);
    ck_assert_str_eq(told(1, MESSAGE_STOP)->stop.text,
                     "not all ranks have saved their state in 4000 ms, others join");
    ck_assert_int_eq(told(1, MESSAGE_STOP)->stop.why, MESSAGE_WHY_JOIN);
}
END_TEST

START_TEST(a_newcomer_that_has_gone_disturbs_nobody_and_the_next_has_its_own_time)
{
    create_at_checkpoint(4000);
    say(1, MESSAGE_READY);
    join(3);
    say(3, MESSAGE_LEAVE);
    for (int i = 0; i < 6; i++)
        beat(2);
    assert_state(ROSTER_RUNNING);
    join(4);
    assert_said(" 4<WELCOME 1<PENDING 2<PENDING");
    beat(2);
    say(4, MESSAGE_HEARTBEAT);
    ck_assert_uint_eq(told(4, MESSAGE_LEASE)->lease.progress->left_ms, 3000);
}
END_TEST

START_TEST(nobody_is_let_in_by_the_clock_when_some_are_done)
{
    create_at_checkpoint(2000);
    say(1, MESSAGE_READY);
    join(3);
    say(2, MESSAGE_DONE);
    for (int i = 0; i < 4; i++)
        beat(3);
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(who_comes_when_all_places_are_taken_is_a_spare)
{
    create_running(2, 2, 2, 0);
    join(3);
    assert_said(" 3<WELCOME");
    say(3, MESSAGE_HEARTBEAT);
    ck_assert_int_eq(told(3, MESSAGE_LEASE)->lease.progress->wait, MESSAGE_WAIT_PLACE);
    gone(2);
    time_goes_on(50);
    assert_state(ROSTER_STOPPING);
    stops(1);
    assert_state(ROSTER_RUNNING);
    say(1, MESSAGE_READY);
    ck_assert_uint_eq(told(3, MESSAGE_SEALED)->sealed.node_index, 1);
}
END_TEST

START_TEST(nobody_joins_when_some_are_done)
{
    create_running(1, 3, 2, 0);
    say(2, MESSAGE_DONE);
    join(3);
    assert_said(" 3<WELCOME");
    say(1, MESSAGE_DONE);
    assert_said(" 1<VERDICT 2<VERDICT 3<VERDICT CLOSED");
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 0);
}
END_TEST

/* --- Losing --- */

START_TEST(a_node_that_comes_back_in_time_was_never_away)
{
    create_running(2, 2, 2, 0);
    gone(2);
    now_ms += 49;
    struct message_hello h = hello_of(2);
    h.resumes = 0;
    say_hello(12, h, false);
    assert_said(" 12<WELCOME 12<SEALED");
    ck_assert(told(12, MESSAGE_WELCOME)->welcome.resumed);
    time_goes_on(1000);
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(a_new_link_of_a_node_replaces_the_one_it_had)
{
    create_running(2, 2, 2, 0);
    say_hello(12, hello_of(2), false);
    assert_said(" 2 closed 12<WELCOME 12<SEALED");
    gone(2); /* late news */
    say(2, MESSAGE_DONE);
    assert_said("");
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(a_node_that_does_not_come_back_is_lost)
{
    create_running(2, 3, 3, 0);
    gone(2);
    time_goes_on(49);
    assert_state(ROSTER_RUNNING);
    time_goes_on(1);
    assert_said(" 1<STOP 3<STOP STOPPING");
    ck_assert_str_eq(roster_change(r), "lost node2: its connection ended");
    struct message_hello h = hello_of(2);
    h.resumes = 0;
    say_hello(12, h, false);
    assert_said(" 12<REFUSED 12 closed");
    ck_assert_int_eq(told(12, MESSAGE_REFUSED)->refused.why, MESSAGE_REFUSED_LOST);
    ck_assert(told(12, MESSAGE_REFUSED)->refused.again);
    h.resumes = MESSAGE_NO_GENERATION;
    say_hello(13, h, false);
    assert_said(" 13<WELCOME");
}
END_TEST

START_TEST(a_silent_node_is_lost_when_its_lease_is_over)
{
    create_running(1, 2, 2, 0);
    time_goes_on(1000);
    say(1, MESSAGE_HEARTBEAT);
    ck_assert_ptr_null(told(1, MESSAGE_LEASE)->lease.progress);
    uint64_t lost_ms = roster_deadline_ms(r);
    ck_assert_uint_eq(lost_ms, now_ms - 1000 + LEASE_MS + LEASE_MARGIN_MS);
    now_ms = lost_ms - 1;
    say(1, MESSAGE_HEARTBEAT);
    time_goes_on(1);
    assert_said(" 2<REFUSED 2 closed 1<STOP STOPPING");
    ck_assert_str_eq(roster_change(r), "lost node2: nothing heard of it for 3500 ms");
}
END_TEST

START_TEST(a_roster_that_slept_calls_nobody_silent)
{
    create_running(1, 2, 2, 0);
    now_ms += 10000;
    step((struct roster_input){.type = ROSTER_ASLEEP});
    time_goes_on(0);
    assert_state(ROSTER_RUNNING);
    time_goes_on(LEASE_MS + LEASE_MARGIN_MS);
    ck_assert_uint_eq(roster_n_nodes(r), 0);
}
END_TEST

START_TEST(too_few_left_end_a_job_that_may_not_wait)
{
    create_running(3, 3, 3, 0);
    gone(2);
    time_goes_on(50);
    assert_said(" 1<VERDICT 3<VERDICT CLOSED");
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 75);
    ck_assert_str_eq(roster_get_verdict(r)->text,
                     "lost node2: its connection ended; 2 of at least 3 nodes are left");
}
END_TEST

START_TEST(a_node_that_may_come_back_counts_when_another_is_lost)
{
    create_running(2, 2, 2, 0);
    join(3); /* a spare */
    gone(1);
    now_ms += 25;
    gone(3);
    time_goes_on(25);
    assert_state(ROSTER_STOPPING); /* node2, and node3, if it is quick */
    say_hello(13, hello_of(3), false);
    stops(2);
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(too_few_left_wait_for_others_when_they_may)
{
    create_running(2, 2, 2, 1);
    gone(2);
    time_goes_on(50);
    assert_said(" 1<STOP STOPPING");
    stops(1);
    assert_state(ROSTER_GATHERING);
    say_hello(3, hello_of(3), false);
    assert_state(ROSTER_RUNNING);
    ck_assert_uint_eq(roster_generation(r), 1);
    ck_assert_uint_eq(roster_n_restarts(r), 0);
}
END_TEST

START_TEST(a_wait_for_others_ends_too)
{
    create_running(2, 2, 2, 1);
    gone(2);
    time_goes_on(50);
    stops(1);
    for (int i = 0; i < 60; i++) {
        say(1, MESSAGE_HEARTBEAT);
        time_goes_on(1000);
    }
    assert_state(ROSTER_CLOSED);
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 75);
}
END_TEST

START_TEST(a_done_node_may_be_lost_unless_it_has_the_store)
{
    create_running(1, 3, 3, 0);
    say(2, MESSAGE_DONE);
    gone(2);
    time_goes_on(50);
    assert_state(ROSTER_RUNNING);
    say(1, MESSAGE_DONE);
    gone(1);
    time_goes_on(50);
    assert_state(ROSTER_STOPPING);
}
END_TEST

START_TEST(a_leader_lost_before_its_store_is_open_leaves_nothing_to_stop)
{
    create(1, 2, 0);
    join(1);
    join(2);
    gone(1);
    time_goes_on(50);
    assert_said(" STOPPING 2<MEMBERS 2<SEALED RUNNING");
    ck_assert_uint_eq(roster_generation(r), 1);
}
END_TEST

START_TEST(only_the_leaders_ready_of_this_generation_counts)
{
    create(2, 2, 0);
    join(1);
    join(2);
    say(2, MESSAGE_READY);
    assert_said("");
    say_message(1,
                (struct message){.type = MESSAGE_READY, .generation = 7, .ready = {"h", 1, true}});
    assert_said("");
    say(1, MESSAGE_READY);
    assert_said(" 2<SEALED");
    say(1, MESSAGE_READY);
    assert_said("");
}
END_TEST

/* Its ranks could run until its lease is over. */
static void keep_alive(int link, int seconds)
{
    for (int i = 0; i < seconds; i++) {
        time_goes_on(1000);
        say(link, MESSAGE_HEARTBEAT);
    }
}

START_TEST(a_node_that_does_not_stop_is_given_up_with_its_lease)
{
    create_running(1, 2, 2, 0);
    fails(1, 1, false);
    say(1, MESSAGE_STOPPED);
    for (int i = 0; i < 10; i++) {
        say(1, MESSAGE_HEARTBEAT);
        say(2, MESSAGE_HEARTBEAT);
        time_goes_on(1000);
    }
    assert_said(" 2<REFUSED 2 closed");
    say(2, MESSAGE_HEARTBEAT);
    assert_said("");
    keep_alive(1, 2);
    assert_state(ROSTER_STOPPING);
    keep_alive(1, 1);
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(a_node_given_up_that_comes_anew_is_not_waited_for)
{
    create(1, 2, 0);
    join(1);
    join(2);
    for (int i = 0; i < 10; i++) {
        say(1, MESSAGE_HEARTBEAT);
        say(2, MESSAGE_HEARTBEAT);
        time_goes_on(1000);
    }
    assert_said(" 1<REFUSED 1 closed"); /* it did not open the store */
    struct message_hello h = hello_of(1);
    h.resumes = 0;
    say_hello(11, h, false);
    assert_said(" 11<REFUSED 11 closed");
    h.resumes = MESSAGE_NO_GENERATION;
    say_hello(12, h, false);
    assert_said(" STOPPING 12<WELCOME 2<MEMBERS 2<SEALED RUNNING");
}
END_TEST

/* --- Failures --- */

START_TEST(a_failure_is_believed_when_all_have_answered)
{
    create_running(3, 3, 3, 0);
    fails(2, 9, false);
    assert_said(" 1<STOP 2<STOP 3<STOP STOPPING");
    say(1, MESSAGE_STOPPING);
    assert_said("");
    say(3, MESSAGE_STOPPING);
    assert_said(" 1<VERDICT 2<VERDICT 3<VERDICT CLOSED");
    const struct message_verdict *v = roster_get_verdict(r);
    ck_assert_int_eq(v->outcome, MESSAGE_RANK_FAILED);
    ck_assert_int_eq(v->exit_code, 9);
    ck_assert_int_eq(v->rank, 5);
    ck_assert_str_eq(v->node, "node2");
    ck_assert_str_eq(v->text, "rank 5 on node2: bad luck");
}
END_TEST

START_TEST(a_node_lost_without_an_answer_was_the_cause)
{
    create_running(1, 3, 3, 0);
    fails(2, 9, false);
    gone(3);
    stops(1);
    say(2, MESSAGE_STOPPED);
    assert_state(ROSTER_STOPPING);
    time_goes_on(50);
    assert_said(" 1<STOP 2<STOP 1<MEMBERS 1<SEALED RUNNING");
    for (int node = 1; node <= 2; node++) {
        const struct message_stop *stop = &told(node, MESSAGE_STOP)->stop;
        ck_assert_int_eq(stop->why, MESSAGE_WHY_LOST);
        ck_assert_str_eq(stop->text, "lost node3: its connection ended");
    }
    ck_assert_uint_eq(roster_n_restarts(r), 0);
}
END_TEST

START_TEST(a_node_that_leaves_without_an_answer_was_the_cause)
{
    create_running(1, 3, 3, 0);
    fails(2, 9, false);
    leaves(3);
    stops(3);
    stops(1);
    say(2, MESSAGE_STOPPED);
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(the_only_node_is_believed_at_once)
{
    create_running(1, 1, 1, 0);
    fails(1, 3, false);
    assert_said(" 1<VERDICT CLOSED");
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 3);
}
END_TEST

START_TEST(failures_are_counted_for_the_whole_job)
{
    create_running(2, 2, 2, 2);
    for (int i = 0; i < 2; i++) {
        fails(1 + i, 1, false);
        assert_said(" 1<STOP 2<STOP STOPPING");
        fails(2 - i, 1, false); /* the other one, too: counted once */
        stops(1);
        stops(2);
        if (i > 0) /* the second restart waits */
            time_goes_on(RESTART_FIRST_WAIT_MS);
        assert_state(ROSTER_RUNNING);
        ck_assert_uint_eq(roster_n_restarts(r), 1 + (uint32_t)i);
        say(1, MESSAGE_READY);
    }
    fails(1, 1, false);
    say(1, MESSAGE_STOPPING);
    say(2, MESSAGE_STOPPING);
    assert_state(ROSTER_CLOSED);
}
END_TEST

START_TEST(a_failure_that_others_outlive_is_counted_and_followed_at_once)
{
    create_running(2, 2, 2, 2);
    for (int i = 0; i < 2; i++) {
        struct message m = {.type = MESSAGE_FAILED,
                            .generation = roster_generation(r),
                            .failed = {.exit_code = 137, .text = "killed", .mends = true}};
        say_message(1, m);
        assert_said(" 1<STOP 2<STOP STOPPING");
        stops(1);
        stops(2);
        assert_state(ROSTER_RUNNING);
        ck_assert_uint_eq(roster_n_restarts(r), 1 + (uint32_t)i);
        say(1, MESSAGE_READY);
    }
    fails(1, 1, false);
    say(2, MESSAGE_STOPPING);
    assert_state(ROSTER_CLOSED); /* the budget is spent */
}
END_TEST

START_TEST(a_final_failure_is_not_followed_by_a_restart)
{
    create_running(2, 2, 2, 5);
    fails(1, 127, true);
    say(2, MESSAGE_STOPPING);
    assert_state(ROSTER_CLOSED);
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 127);
}
END_TEST

START_TEST(some_exit_codes_end_the_job)
{
    create(1, 1, 5);
    roster_destroy(r);
    struct roster_limits limits = {0};
    terms.no_restart_on[66 / 8] = 1 << 66 % 8;
    ck_assert_int_eq(roster_create(&limits, &terms, NULL, 0, now_ms, &r, NULL), 0);
    join(1);
    say(1, MESSAGE_READY);
    fails(1, 66, false);
    assert_state(ROSTER_CLOSED);
}
END_TEST

START_TEST(who_told_a_failure_may_correct_it)
{
    create_running(2, 2, 2, 0);
    fails(1, 1, false);
    fails(2, 2, false); /* somebody else may not */
    fails(1, 137, false);
    say(2, MESSAGE_STOPPING);
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 137);
}
END_TEST

START_TEST(a_consequence_waits_for_its_cause_until_all_ranks_have_ended)
{
    create_running(3, 3, 3, 0);
    fails_of_another(2, 1);
    assert_said(" 1<STOP 2<STOP 3<STOP STOPPING");
    for (int node = 1; node <= 3; node++)
        say(node, MESSAGE_STOPPING);
    assert_state(ROSTER_STOPPING);
    fails(3, 9, false);
    assert_said(" 1<VERDICT 2<VERDICT 3<VERDICT CLOSED");
    const struct message_verdict *v = roster_get_verdict(r);
    ck_assert_int_eq(v->exit_code, 9);
    ck_assert_int_eq(v->rank, 5);
    ck_assert_str_eq(v->text, "rank 5 on node3: bad luck");
}
END_TEST

START_TEST(who_was_told_of_a_consequence_hears_its_cause)
{
    create_running(3, 3, 3, 0);
    fails_of_another(2, 1);
    fails(3, 9, false); /* node 1 may have been lost: it has not answered */
    assert_said(" 1<STOP 2<STOP 3<STOP");
    ck_assert_str_eq(told(1, MESSAGE_STOP)->stop.text, "rank 5 on node3: bad luck");
    fails_of_another(1, 1);
    say(1, MESSAGE_STOPPING);
    assert_said(" 1<VERDICT 2<VERDICT 3<VERDICT CLOSED");
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 9);
}
END_TEST

START_TEST(a_consequence_whose_cause_nobody_tells_is_the_verdict)
{
    create_running(2, 2, 2, 0);
    fails_of_another(2, 1);
    fails_of_another(1, 6);
    stops(1);
    assert_state(ROSTER_STOPPING);
    say(2, MESSAGE_STOPPED);
    assert_said(" 1<VERDICT 2<VERDICT CLOSED");
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 1);
    ck_assert_str_eq(roster_get_verdict(r)->node, "node2");
}
END_TEST

START_TEST(a_consequence_corrects_no_cause)
{
    create_running(3, 3, 3, 0);
    fails(2, 9, false);
    fails_of_another(2, 1);
    fails_of_another(3, 1);
    assert_state(ROSTER_STOPPING);
    say(1, MESSAGE_STOPPING);
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 9);
}
END_TEST

START_TEST(the_only_node_may_correct_a_consequence)
{
    create_running(1, 1, 1, 0);
    fails_of_another(1, 1);
    assert_said(" 1<STOP STOPPING");
    fails(1, 3, false);
    assert_said(" 1<VERDICT CLOSED");
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 3);
}
END_TEST

START_TEST(whether_a_restart_follows_is_for_the_cause_to_say)
{
    create_running(2, 2, 2, 1);
    fails_of_another(1, 1); /* alone it would be followed by one */
    fails(2, 127, true);
    assert_state(ROSTER_CLOSED);
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 127);
}
END_TEST

START_TEST(a_node_lost_without_an_answer_is_the_cause_of_consequences)
{
    create_running(1, 3, 3, 0);
    fails_of_another(2, 1);
    gone(3);
    stops(1);
    say(2, MESSAGE_STOPPED);
    time_goes_on(50);
    assert_state(ROSTER_RUNNING);
    ck_assert_uint_eq(roster_n_restarts(r), 0);
}
END_TEST

/* --- Nodes whose ranks fail again and again --- */

/* Three at most, of which one is a spare if there are four. */
static void create_excluding(uint32_t min, uint32_t after, uint64_t window_ms, int n_nodes)
{
    const struct roster_limits limits = {0};
    terms = (struct message_terms){.min_nodes = min,
                                   .max_nodes = 3,
                                   .start_timeout_ms = 600000,
                                   .rejoin_timeout_ms = 60000,
                                   .max_restarts = 100,
                                   .exclude_after = after,
                                   .exclude_window_ms = window_ms};
    now_ms = 1000;
    ck_assert_int_eq(roster_create(&limits, &terms, NULL, 0, now_ms, &r, NULL), 0);
    for (int i = 1; i <= n_nodes; i++)
        join(i);
    time_goes_on(0); /* the window is over */
    say(1, MESSAGE_READY);
    assert_state(ROSTER_RUNNING);
}

/* A rank of it; all that run stop, it last. What comes behind that is what is said. */
static void fails_and_all_stop(int link, int n_links)
{
    fails(link, 7, false);
    for (int i = 1; i <= n_links; i++)
        if (i != link)
            stops(i);
    say(link, MESSAGE_STOPPED);
}

/* Through the pause, to where the ranks run again. */
static void go_on(void)
{
    while (roster_get_state(r) == ROSTER_STOPPING)
        time_goes_on(roster_deadline_ms(r) - now_ms);
    say(1, MESSAGE_READY);
    assert_state(ROSTER_RUNNING);
}

static uint32_t count_members(void)
{
    struct roster_node_view view;
    uint32_t n = 0;
    for (uint32_t i = 0; i < roster_n_slots(r); i++)
        n += roster_view(r, i, &view) && view.is_member;
    return n;
}

START_TEST(a_node_whose_ranks_failed_too_often_takes_no_part_any_more)
{
    create_excluding(1, 2, 0, 3);
    fails_and_all_stop(2, 3);
    go_on();
    ck_assert_uint_eq(count_members(), 3);
    fails_and_all_stop(3, 3); /* another one's count for that one */
    go_on();
    ck_assert_uint_eq(count_members(), 3);
    fails_and_all_stop(2, 3);
    const struct message_verdict *v = &told(2, MESSAGE_VERDICT)->verdict;
    ck_assert_int_eq(v->outcome, MESSAGE_EXCLUDED);
    ck_assert_int_eq(v->exit_code, 7);
    ck_assert_str_eq(v->node, "node2");
    ck_assert_str_eq(v->text, "node2 takes no part any more: ranks failed there 2 times; the job "
                              "goes on without it");
    ck_assert_int_eq(strncmp(said, " 2<VERDICT 2 closed", 19), 0);
    ck_assert_str_eq(roster_newly_excluded(r), "node2");
    go_on();
    ck_assert_ptr_nonnull(strstr(roster_change(r), "; node2 takes no part any more"));
    ck_assert_uint_eq(count_members(), 2);
    ck_assert_uint_eq(roster_n_nodes(r), 2);
    fails_and_all_stop(3, 3);
    ck_assert_str_eq(roster_newly_excluded(r), "node3"); /* its second, too */
    go_on();
    fails(1, 7, false);
    ck_assert_str_eq(roster_newly_excluded(r), "");
}
END_TEST

START_TEST(who_comes_by_the_name_of_an_excluded_node_hears_the_same)
{
    create_excluding(1, 1, 0, 2);
    fails_and_all_stop(2, 2);
    go_on();
    struct message_hello h = hello_of(2);
    h.instance[0] = 77;
    say_hello(12, h, false);
    assert_said(" 12<VERDICT 12 closed");
    ck_assert_int_eq(told(12, MESSAGE_VERDICT)->verdict.outcome, MESSAGE_EXCLUDED);
    say_hello(13, hello_of(3), false);
    ck_assert_ptr_nonnull(told(13, MESSAGE_WELCOME));
}
END_TEST

START_TEST(who_takes_over_knows_who_is_excluded)
{
    const struct roster_limits limits = {0};
    struct roster_past past;
    create_excluding(1, 1, 0, 3);
    fails_and_all_stop(2, 3);
    go_on();
    roster_get_past(r, &past);
    ck_assert_uint_eq(past.n_excluded, 1);
    roster_destroy(r);
    ck_assert_int_eq(roster_create(&limits, &terms, NULL, 0, now_ms, &r, NULL), 0);
    ck_assert_int_eq(roster_resume(r, &past, now_ms, NULL), 0);
    struct message_hello h = hello_of(2);
    h.instance[0] = 77;
    say_hello(12, h, false);
    assert_said(" 12<VERDICT 12 closed");
    ck_assert_int_eq(told(12, MESSAGE_VERDICT)->verdict.outcome, MESSAGE_EXCLUDED);
    ck_assert_int_eq(told(12, MESSAGE_VERDICT)->verdict.exit_code, 7);
    roster_get_past(r, &past); /* and so does the one behind it */
    ck_assert_uint_eq(past.n_excluded, 1);
    ck_assert_str_eq(past.excluded[0].name, "node2");
}
END_TEST

START_TEST(an_excluded_node_that_was_away_hears_of_it_when_it_comes_back)
{
    create_excluding(1, 1, 0, 3);
    fails(2, 7, false);
    stops(1);
    say(2, MESSAGE_STOPPED);
    gone(2);
    stops(3);
    assert_state(ROSTER_RUNNING);
    say_hello(12, hello_of(2), false);
    assert_said(" 12<VERDICT 12 closed");
}
END_TEST

START_TEST(a_spare_steps_in_for_an_excluded_node)
{
    create_excluding(3, 1, 0, 4);
    fails_and_all_stop(2, 3);
    ck_assert_int_eq(told(2, MESSAGE_VERDICT)->verdict.outcome, MESSAGE_EXCLUDED);
    go_on();
    ck_assert_uint_eq(count_members(), 3);
    ck_assert_ptr_nonnull(told(4, MESSAGE_SEALED));
}
END_TEST

START_TEST(without_an_excluded_node_too_few_wait_for_others)
{
    create_excluding(3, 1, 0, 3);
    fails_and_all_stop(2, 3);
    assert_state(ROSTER_GATHERING);
    ck_assert_ptr_nonnull(strstr(roster_change(r), "; node2 takes no part any more"));
    say_hello(4, hello_of(4), false);
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(failures_that_lie_far_apart_exclude_nobody)
{
    create_excluding(1, 2, 60000, 3);
    fails_and_all_stop(2, 3);
    go_on();
    for (int i = 0; i < 60; i++) {
        for (int link = 1; link <= 3; link++)
            say(link, MESSAGE_HEARTBEAT);
        time_goes_on(1000);
    }
    fails_and_all_stop(2, 3);
    go_on();
    ck_assert_uint_eq(count_members(), 3);
    fails_and_all_stop(2, 3);
    ck_assert_str_eq(told(2, MESSAGE_VERDICT)->verdict.text,
                     "node2 takes no part any more: ranks failed there 2 times within 60 s; the "
                     "job goes on without it");
}
END_TEST

START_TEST(what_follows_from_anothers_end_is_not_counted)
{
    create_excluding(1, 1, 0, 3);
    fails_of_another(2, 7);
    stops(1);
    stops(3);
    say(2, MESSAGE_STOPPED);
    go_on();
    ck_assert_uint_eq(count_members(), 3);
}
END_TEST

START_TEST(where_the_roster_is_is_never_excluded)
{
    const struct roster_limits limits = {0};
    create_excluding(1, 1, 0, 3); /* for its terms */
    roster_destroy(r);
    ck_assert_int_eq(roster_create(&limits, &terms, NULL, 0, now_ms, &r, NULL), 0);
    say_hello(1, hello_of(1), true);
    join(2);
    join(3);
    say(1, MESSAGE_READY);
    fails_and_all_stop(1, 3);
    go_on();
    ck_assert_uint_eq(count_members(), 3);
}
END_TEST

START_TEST(a_failure_that_ends_the_job_excludes_nobody)
{
    create_excluding(1, 1, 0, 3);
    fails(2, 7, true);
    for (int i = 1; i <= 3; i++)
        say(i, MESSAGE_STOPPING);
    assert_state(ROSTER_CLOSED);
    ck_assert_int_eq(told(2, MESSAGE_VERDICT)->verdict.outcome, MESSAGE_RANK_FAILED);
}
END_TEST

START_TEST(a_failure_starts_those_that_were_done_again)
{
    create_running(2, 2, 2, 1);
    say(1, MESSAGE_DONE);
    fails(2, 1, false);
    assert_said(" 1<STOP 2<STOP STOPPING");
    stops(1);
    stops(2);
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(ranks_that_are_gone_end_the_generation)
{
    create_running(2, 2, 2, 0);
    say(2, MESSAGE_STOPPED);
    assert_said(" 1<STOP STOPPING");
    stops(1);
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(a_restart_that_somebody_asks_for_costs_nothing)
{
    create_running(2, 2, 2, 0);
    say(2, MESSAGE_RESTART);
    assert_said(" 1<STOP 2<STOP STOPPING");
    ck_assert_int_eq(told(1, MESSAGE_STOP)->stop.why, MESSAGE_WHY_RESTART);
    ck_assert_str_eq(told(1, MESSAGE_STOP)->stop.text, "a restart was asked for on node2");
    fails(1, 1, false); /* of what it lost */
    assert_said("");
    stops(1);
    stops(2);
    assert_state(ROSTER_RUNNING);
    ck_assert_uint_eq(roster_generation(r), 1);
    ck_assert_uint_eq(roster_n_restarts(r), 0);
}
END_TEST

START_TEST(a_restart_is_for_those_that_were_done_too)
{
    create_running(2, 2, 2, 0);
    say(1, MESSAGE_DONE);
    say(1, MESSAGE_RESTART);
    assert_said(" 1<STOP 2<STOP STOPPING");
}
END_TEST

START_TEST(a_restart_is_for_a_member_to_ask_for_and_once_in_a_generation)
{
    create_running(1, 2, 2, 0);
    join(3); /* a spare */
    say(3, MESSAGE_RESTART);
    assert_state(ROSTER_RUNNING);
    struct message late = {.type = MESSAGE_RESTART, .generation = roster_generation(r)};
    say_message(1, late);
    say_message(2, late);
    assert_said("");
    stops(1);
    stops(2);
    assert_state(ROSTER_RUNNING);
    say(1, MESSAGE_READY);
    say_message(1, late);
    assert_said("");
}
END_TEST

/* --- Leaving and ending --- */

START_TEST(a_leave_goes_on_without_the_node)
{
    create_running(1, 3, 3, 0);
    leaves(2);
    assert_said(" 1<STOP 2<STOP 3<STOP STOPPING");
    ck_assert_str_eq(told(1, MESSAGE_STOP)->stop.text, "node2 leaves: SIGTERM");
    stops(1);
    stops(3);
    assert_state(ROSTER_STOPPING); /* its ranks are given their time */
    stops(2);
    assert_state(ROSTER_RUNNING);
    gone(2);
    ck_assert_uint_eq(roster_n_nodes(r), 2);
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(who_leaves_with_ranks_has_time_to_come_back_too)
{
    create_running(1, 2, 2, 0);
    leaves(2);
    gone(2);
    stops(1);
    assert_state(ROSTER_STOPPING);
    time_goes_on(50);
    assert_state(ROSTER_RUNNING);
}
END_TEST

START_TEST(the_roster_goes_with_its_own_node)
{
    create(1, 2, 0);
    say_hello(1, hello_of(1), true);
    join(2);
    say(1, MESSAGE_READY);
    leaves(1);
    assert_said(" 1<VERDICT 2<VERDICT CLOSED");
    ck_assert_int_eq(roster_get_verdict(r)->exit_code, 75);
    ck_assert_str_eq(roster_get_verdict(r)->text, "node1, where the nodes meet, leaves: SIGTERM");
}
END_TEST

START_TEST(the_roster_s_own_node_is_never_silent)
{
    create(1, 1, 0);
    say_hello(1, hello_of(1), true);
    say(1, MESSAGE_READY);
    ck_assert_uint_eq(roster_deadline_ms(r), CO_NEVER_MS);
}
END_TEST

START_TEST(anybody_may_end_the_job_with_a_verdict_for_all)
{
    create_running(2, 2, 2, 0);
    say_message(2, (struct message){
                       .type = MESSAGE_END,
                       .verdict = {MESSAGE_ENDED, 124, MESSAGE_NO_RANK, "node2", "out of time"}});
    assert_said(" 1<VERDICT 2<VERDICT CLOSED");
    ck_assert_int_eq(told(1, MESSAGE_VERDICT)->verdict.exit_code, 124);
    ck_assert_str_eq(told(1, MESSAGE_VERDICT)->verdict.node, "node2");
}
END_TEST

START_TEST(its_owner_may_end_the_job)
{
    create_running(2, 2, 2, 0);
    struct message m = {.type = MESSAGE_END,
                        .verdict = {MESSAGE_ENDED, 143, MESSAGE_NO_RANK, "daemon", "told to stop"}};
    step((struct roster_input){.type = ROSTER_END, .message = &m});
    assert_said(" 1<VERDICT 2<VERDICT CLOSED");
    ck_assert_str_eq(roster_get_verdict(r)->node, "daemon");
}
END_TEST

START_TEST(a_closed_job_answers_with_its_verdict)
{
    create_running(1, 1, 1, 0);
    say(1, MESSAGE_DONE);
    join(2);
    assert_said(" 2<VERDICT 2 closed");
    say_hello(11, hello_of(1), false);
    assert_said(" 1 closed 11<WELCOME 11<VERDICT");
    gone(11);
    ck_assert_uint_eq(roster_n_nodes(r), 0);
}
END_TEST

/* --- Refusals --- */

static void assert_refused(struct message_hello h, enum message_refusal why, bool again,
                           const char *text)
{
    say_hello(99, h, false);
    ck_assert_str_eq(said, " 99<REFUSED 99 closed");
    const struct message_refused *m = &told(99, MESSAGE_REFUSED)->refused;
    ck_assert_int_eq(m->why, why);
    ck_assert_int_eq(m->again, again);
    ck_assert_str_eq(m->text, text);
}

START_TEST(unequal_numbers_of_nodes_are_refused_and_both_named)
{
    create(2, 4, 0);
    join(1);
    struct message_hello h = hello_of(2);
    h.terms.max_nodes = 2;
    assert_refused(h, MESSAGE_REFUSED_TERMS, false,
                   "node2 was started with --nnodes=2:2, node1 with --nnodes=2:4");
}
END_TEST

START_TEST(two_nodes_with_one_node_rank_are_both_named)
{
    create(2, 4, 0);
    struct message_hello h = hello_of(1);
    h.node_rank = 3;
    say_hello(1, h, false);
    h = hello_of(2);
    h.node_rank = 3;
    assert_refused(h, MESSAGE_REFUSED_NODE_RANK, false, "node1 and node2 both have --node-rank=3");
    now_ms += LEASE_HEARTBEAT_MS + LEASE_MARGIN_MS + 1; /* is it gone, and this one in its place? */
    assert_refused(h, MESSAGE_REFUSED_NODE_RANK, true, "node1 and node2 both have --node-rank=3");
    gone(1);
    assert_refused(h, MESSAGE_REFUSED_NODE_RANK, true, "node1 and node2 both have --node-rank=3");
    time_goes_on(50);
    say_hello(2, h, false);
    assert_said(" 2<WELCOME");
}
END_TEST

START_TEST(rank_0_is_kept_by_one_node)
{
    create(2, 2, 0);
    struct message_hello h = hello_of(5);
    h.keeps_rank_0 = true;
    say_hello(5, h, false);
    h = hello_of(1);
    h.keeps_rank_0 = true;
    assert_refused(h, MESSAGE_REFUSED_NOT_FIRST, false,
                   "node5 and node1 both want rank 0 to be theirs");
    join(1);
    ck_assert(told(5, MESSAGE_SEALED)->sealed.leads);
}
END_TEST

START_TEST(other_terms_that_differ_are_only_mentioned)
{
    create(2, 2, 0);
    struct message_hello h = hello_of(1);
    h.terms.max_restarts = 3;
    h.terms.scale_at = MESSAGE_SCALE_AT_CHECKPOINT;
    say_hello(1, h, false);
    ck_assert_str_eq(told(1, MESSAGE_WELCOME)->welcome.note, "--max-restarts, --scale-at");
}
END_TEST

START_TEST(limits_that_contradict_each_other_are_refused)
{
    struct roster_limits limits = {.lease_ms = 1000, .heartbeat_ms = 1000};
    struct co_error err;
    create(1, 1, 0);
    ck_assert_int_eq(roster_create(&limits, &terms, NULL, 0, 0, &(struct roster *){NULL}, &err),
                     -EINVAL);
    limits = (struct roster_limits){.max_nodes = 3};
    terms.max_nodes = 4;
    ck_assert_int_eq(roster_create(&limits, &terms, NULL, 0, 0, &(struct roster *){NULL}, &err),
                     -EINVAL);
    ck_assert_str_eq(err.text, "from 1 to 4 nodes make no job; at most 3 are taken");
    roster_destroy(NULL);
}
END_TEST

START_TEST(more_nodes_than_the_limit_are_refused)
{
    struct roster_limits limits = {.max_nodes = 2};
    create(2, 2, 0);
    roster_destroy(r);
    ck_assert_int_eq(roster_create(&limits, &terms, NULL, 0, now_ms, &r, NULL), 0);
    join(1);
    join(2);
    assert_refused(hello_of(3), MESSAGE_REFUSED_FULL, false, "2 nodes are here, no more are taken");
}
END_TEST

/* --- What is waited for --- */

START_TEST(who_waits_is_told_who_is_missing)
{
    static const char *const expected[] = {"node1", "node2", "node3", "node4"};
    create_expecting(4, 4, 0, expected, 4);
    join(1);
    join(3);
    now_ms += 200;
    say(1, MESSAGE_HEARTBEAT);
    const struct message_progress *p = told(1, MESSAGE_LEASE)->lease.progress;
    ck_assert_int_eq(p->wait, MESSAGE_WAIT_NODES);
    ck_assert_uint_eq(p->n_here, 2);
    ck_assert_uint_eq(p->n_wanted, 4);
    ck_assert_uint_eq(p->elapsed_ms, 200);
    ck_assert_uint_eq(p->left_ms, 600000 - 200);
    ck_assert_uint_eq(p->n_names, 2);
    ck_assert_str_eq(p->names[0], "node2");
    ck_assert_str_eq(p->names[1], "node4");
}
END_TEST

START_TEST(missing_node_ranks_are_named_when_names_are_unknown)
{
    create(20, 20, 0);
    struct message_hello h = hello_of(1);
    h.node_rank = 1;
    say_hello(1, h, false);
    now_ms += 200;
    say(1, MESSAGE_HEARTBEAT);
    const struct message_progress *p = told(1, MESSAGE_LEASE)->lease.progress;
    ck_assert_uint_eq(p->n_all_names, 19);
    ck_assert_uint_eq(p->n_names, MESSAGE_MAX_NAMES);
    ck_assert_str_eq(p->names[0], "--node-rank=0");
    ck_assert_str_eq(p->names[1], "--node-rank=2");
}
END_TEST

START_TEST(who_waits_for_a_stop_is_told_for_whom)
{
    create_running(1, 3, 2, 0);
    join(3);
    stops(1);
    now_ms += 200;
    say(3, MESSAGE_HEARTBEAT);
    const struct message_progress *p = told(3, MESSAGE_LEASE)->lease.progress;
    ck_assert_int_eq(p->wait, MESSAGE_WAIT_STOP);
    ck_assert_uint_eq(p->n_names, 1);
    ck_assert_str_eq(p->names[0], "node2");
}
END_TEST

/* --- Addresses --- */

START_TEST(the_leader_is_told_all_addresses_in_as_many_messages_as_it_takes)
{
    static struct message_address many[MESSAGE_MAX_ADDRESSES];
    enum { N = 400 };
    create(N, N, 0);
    uint32_t n = 0, n_messages = 0;
    for (int i = 1; i <= N; i++) {
        struct message_hello h = hello_of(i % 100);
        h.instance[1] = (uint8_t)(i / 100 + 1);
        h.addresses = many;
        h.n_addresses = MESSAGE_MAX_ADDRESSES;
        say_hello(i, h, false);
    }
    for (size_t i = 0; i < last.n; i++) {
        const struct message *m = &last.items[i].message;
        if (last.items[i].type != ROSTER_SEND || m->type != MESSAGE_MEMBERS)
            continue;
        ck_assert_uint_eq(m->members.n_all, N * MESSAGE_MAX_ADDRESSES);
        ck_assert_uint_eq(m->members.first, n);
        n += (uint32_t)m->members.n;
        n_messages++;
    }
    ck_assert_uint_eq(n, N * MESSAGE_MAX_ADDRESSES);
    ck_assert_uint_eq(n_messages, 4);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("roster");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, each_pair_of_state_and_event_has_one_answer);
    tcase_add_test(all, the_drawing_is_the_table);
    tcase_add_test(all, a_fixed_number_of_nodes_is_sealed_when_the_last_one_comes);
    tcase_add_test(all, a_window_is_open_from_the_minimum_to_the_maximum);
    tcase_add_test(all, the_window_closes_when_too_few_are_left_and_opens_anew);
    tcase_add_test(all, nodes_that_do_not_come_end_the_job);
    tcase_add_test(all, rank_0_lost_is_followed_by_the_next_and_newcomers_fill_holes);
    tcase_add_test(all, a_host_file_orders_ranks);
    tcase_add_test(all, a_newcomer_ends_the_generation_at_once);
    tcase_add_test(all, a_newcomer_waits_for_a_checkpoint_if_so_agreed);
    tcase_add_test(all, ranks_that_start_when_a_newcomer_waits_already_are_asked_to_save);
    tcase_add_test(all, a_newcomer_waits_for_a_checkpoint_only_so_long);
    tcase_add_test(all, a_newcomer_that_has_gone_disturbs_nobody_and_the_next_has_its_own_time);
    tcase_add_test(all, nobody_is_let_in_by_the_clock_when_some_are_done);
    tcase_add_test(all, who_comes_when_all_places_are_taken_is_a_spare);
    tcase_add_test(all, nobody_joins_when_some_are_done);
    tcase_add_test(all, a_node_that_comes_back_in_time_was_never_away);
    tcase_add_test(all, a_new_link_of_a_node_replaces_the_one_it_had);
    tcase_add_test(all, a_node_that_does_not_come_back_is_lost);
    tcase_add_test(all, a_silent_node_is_lost_when_its_lease_is_over);
    tcase_add_test(all, a_roster_that_slept_calls_nobody_silent);
    tcase_add_test(all, too_few_left_end_a_job_that_may_not_wait);
    tcase_add_test(all, a_node_that_may_come_back_counts_when_another_is_lost);
    tcase_add_test(all, too_few_left_wait_for_others_when_they_may);
    tcase_add_test(all, a_wait_for_others_ends_too);
    tcase_add_test(all, a_done_node_may_be_lost_unless_it_has_the_store);
    tcase_add_test(all, a_leader_lost_before_its_store_is_open_leaves_nothing_to_stop);
    tcase_add_test(all, only_the_leaders_ready_of_this_generation_counts);
    tcase_add_test(all, a_node_that_does_not_stop_is_given_up_with_its_lease);
    tcase_add_test(all, a_node_given_up_that_comes_anew_is_not_waited_for);
    tcase_add_test(all, a_failure_is_believed_when_all_have_answered);
    tcase_add_test(all, a_node_lost_without_an_answer_was_the_cause);
    tcase_add_test(all, a_node_that_leaves_without_an_answer_was_the_cause);
    tcase_add_test(all, the_only_node_is_believed_at_once);
    tcase_add_test(all, failures_are_counted_for_the_whole_job);
    tcase_add_test(all, a_failure_that_others_outlive_is_counted_and_followed_at_once);
    tcase_add_test(all, a_final_failure_is_not_followed_by_a_restart);
    tcase_add_test(all, some_exit_codes_end_the_job);
    tcase_add_test(all, who_told_a_failure_may_correct_it);
    tcase_add_test(all, a_consequence_waits_for_its_cause_until_all_ranks_have_ended);
    tcase_add_test(all, who_was_told_of_a_consequence_hears_its_cause);
    tcase_add_test(all, a_consequence_whose_cause_nobody_tells_is_the_verdict);
    tcase_add_test(all, a_consequence_corrects_no_cause);
    tcase_add_test(all, the_only_node_may_correct_a_consequence);
    tcase_add_test(all, whether_a_restart_follows_is_for_the_cause_to_say);
    tcase_add_test(all, a_node_lost_without_an_answer_is_the_cause_of_consequences);
    tcase_add_test(all, a_node_whose_ranks_failed_too_often_takes_no_part_any_more);
    tcase_add_test(all, who_comes_by_the_name_of_an_excluded_node_hears_the_same);
    tcase_add_test(all, who_takes_over_knows_who_is_excluded);
    tcase_add_test(all, an_excluded_node_that_was_away_hears_of_it_when_it_comes_back);
    tcase_add_test(all, a_spare_steps_in_for_an_excluded_node);
    tcase_add_test(all, without_an_excluded_node_too_few_wait_for_others);
    tcase_add_test(all, failures_that_lie_far_apart_exclude_nobody);
    tcase_add_test(all, what_follows_from_anothers_end_is_not_counted);
    tcase_add_test(all, where_the_roster_is_is_never_excluded);
    tcase_add_test(all, a_failure_that_ends_the_job_excludes_nobody);
    tcase_add_test(all, a_failure_starts_those_that_were_done_again);
    tcase_add_test(all, ranks_that_are_gone_end_the_generation);
    tcase_add_test(all, a_restart_that_somebody_asks_for_costs_nothing);
    tcase_add_test(all, a_restart_is_for_those_that_were_done_too);
    tcase_add_test(all, a_restart_is_for_a_member_to_ask_for_and_once_in_a_generation);
    tcase_add_test(all, a_leave_goes_on_without_the_node);
    tcase_add_test(all, who_leaves_with_ranks_has_time_to_come_back_too);
    tcase_add_test(all, the_roster_goes_with_its_own_node);
    tcase_add_test(all, the_roster_s_own_node_is_never_silent);
    tcase_add_test(all, anybody_may_end_the_job_with_a_verdict_for_all);
    tcase_add_test(all, its_owner_may_end_the_job);
    tcase_add_test(all, a_closed_job_answers_with_its_verdict);
    tcase_add_test(all, unequal_numbers_of_nodes_are_refused_and_both_named);
    tcase_add_test(all, two_nodes_with_one_node_rank_are_both_named);
    tcase_add_test(all, rank_0_is_kept_by_one_node);
    tcase_add_test(all, other_terms_that_differ_are_only_mentioned);
    tcase_add_test(all, limits_that_contradict_each_other_are_refused);
    tcase_add_test(all, more_nodes_than_the_limit_are_refused);
    tcase_add_test(all, who_waits_is_told_who_is_missing);
    tcase_add_test(all, missing_node_ranks_are_named_when_names_are_unknown);
    tcase_add_test(all, who_waits_for_a_stop_is_told_for_whom);
    tcase_add_test(all, the_leader_is_told_all_addresses_in_as_many_messages_as_it_takes);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed > 0;
}
