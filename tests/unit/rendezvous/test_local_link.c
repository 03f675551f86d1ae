/* A job of one node: its roster, its member, and no socket between them. */
#include "rendezvous/local_link.h"

#include "rendezvous/member.h"
#include "rendezvous/roster.h"

#include "common/clock.h"
#include "common/error.h"

#include <check.h>
#include <errno.h>
#include <string.h>

static struct local_link l;
static struct roster *roster;
static struct member *member;
static struct co_error err;
static char did[256]; /* what the ranks' keeper was ordered since it was looked at */

static void put(enum local_link_end to, const struct message *m)
{
    ck_assert_msg(local_link_put(&l, to, m, &err) == 0, "%s", err.text);
}

static void carry_out(const struct member_orders *o)
{
    for (size_t i = 0; i < o->n_messages; i++)
        put(LOCAL_LINK_TO_ROSTER, &o->messages[i]);
    strcat(did, o->connect ? " connect" : "");
    strcat(did, o->open_store ? " open" : "");
    strcat(did, o->start_ranks ? " start" : "");
    strcat(did, o->stop_ranks ? " stop" : "");
    strcat(did, o->ended ? " end" : "");
}

static void feed_member(struct member_input in)
{
    struct member_orders o;
    member_step(member, &in, &o);
    carry_out(&o);
}

static void feed_roster(const struct message *m)
{
    struct roster_actions a;
    roster_step(
        roster,
        &(struct roster_input){.type = ROSTER_MESSAGE, .link = 1, .local = true, .message = m}, &a);
    for (size_t i = 0; i < a.n; i++)
        if (a.items[i].type == ROSTER_SEND)
            put(LOCAL_LINK_TO_MEMBER, &a.items[i].message);
}

/* Feed the member, and all that follows from it. */
static const char *feed(struct member_input in)
{
    struct message m;
    bool quiet = false;
    did[0] = '\0';
    feed_member(in);
    while (!quiet) {
        quiet = true;
        while (local_link_take(&l, LOCAL_LINK_TO_ROSTER, &m, &err) == 1) {
            feed_roster(&m);
            quiet = false;
        }
        while (local_link_take(&l, LOCAL_LINK_TO_MEMBER, &m, &err) == 1) {
            feed_member((struct member_input){.type = MEMBER_MESSAGE, .message = &m});
            quiet = false;
        }
    }
    return did;
}

static void set_up(void)
{
    struct message_terms terms = {.min_nodes = 1,
                                  .max_nodes = 1,
                                  .start_timeout_ms = 1000,
                                  .rejoin_timeout_ms = 1000,
                                  .max_restarts = 1};
    struct message_hello hello = {.run_id = "job",
                                  .name = "node1",
                                  .node_rank = MESSAGE_NO_RANK,
                                  .n_local = 4,
                                  .stop_ms = 1000,
                                  .terms = terms};
    struct member_orders o;
    ck_assert_int_eq(roster_create(&(struct roster_limits){0}, &terms, NULL, 0, 0, &roster, &err),
                     0);
    ck_assert_int_eq(member_create(&(struct member_limits){.start_timeout_ms = 1000, .local = true},
                                   &hello, "itself", &member, &err),
                     0);
    member_begin(member, 0, &o);
    did[0] = '\0';
    carry_out(&o);
    ck_assert_str_eq(did, " connect");
}

static void tear_down(void)
{
    roster_destroy(roster);
    member_destroy(member);
    local_link_fini(&l);
}

static struct member_input input(enum member_input_type type)
{
    return (struct member_input){
        .type = type, .host = "127.0.0.1", .port = 9, .exit_code = 9, .text = "exited with 9"};
}

START_TEST(a_job_of_one_node_runs_restarts_and_ends_without_a_socket)
{
    ck_assert_str_eq(feed(input(MEMBER_LINK_UP)), " open");
    ck_assert_str_eq(feed(input(MEMBER_STORE_OPEN)), " start");
    ck_assert_uint_eq(member_get_place(member)->place.world_size, 4);
    ck_assert_str_eq(feed(input(MEMBER_RANK_FAILED)), " stop");
    ck_assert_str_eq(feed(input(MEMBER_RANKS_GONE)), " open");
    ck_assert_uint_eq(member_get_place(member)->generation, 1);
    ck_assert_str_eq(feed(input(MEMBER_STORE_OPEN)), " start");
    ck_assert_str_eq(feed(input(MEMBER_RANK_FAILED)), " stop stop");
    ck_assert_str_eq(feed(input(MEMBER_RANKS_GONE)), " end");
    ck_assert_int_eq(member_get_end(member)->exit_code, 9);
    ck_assert_uint_eq(member_deadline_ms(member), CO_NEVER_MS);
}
END_TEST

START_TEST(a_job_of_one_node_ends_well)
{
    feed(input(MEMBER_LINK_UP));
    feed(input(MEMBER_STORE_OPEN));
    ck_assert_str_eq(feed(input(MEMBER_RANKS_DONE)), " stop");
    ck_assert_str_eq(feed(input(MEMBER_RANKS_GONE)), " end");
    ck_assert_int_eq(member_get_end(member)->exit_code, 0);
}
END_TEST

START_TEST(what_cannot_be_said_leaves_no_trace)
{
    struct message bad = {.type = MESSAGE_FAILED, .failed = {.text = ""}}, m;
    ck_assert_int_eq(local_link_put(&l, LOCAL_LINK_TO_ROSTER, &bad, &err), -EINVAL);
    ck_assert_int_eq(local_link_take(&l, LOCAL_LINK_TO_ROSTER, &m, &err), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("local_link");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, a_job_of_one_node_runs_restarts_and_ends_without_a_socket);
    tcase_add_test(all, a_job_of_one_node_ends_well);
    tcase_add_test(all, what_cannot_be_said_leaves_no_trace);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed > 0;
}
