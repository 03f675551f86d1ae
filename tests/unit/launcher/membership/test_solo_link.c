/* The link of a node to the roster in its own process, with more messages than the node takes. */
#include "launcher/membership/solo_link.h"

#include "launcher/job/job_spec.h"
#include "rendezvous/membership/message.h"

#include "common/error.h"
#include "tests/support/suite.h"

#include <check.h>
#include <string.h>

static uv_loop_t loop;
static void *link_;
static int n_up, n_down, n_messages;
static enum message_type last;

static void on_up(void *arg, bool is_here)
{
    (void)arg;
    n_up += is_here;
}

static void on_message(void *arg, const struct message *m)
{
    (void)arg;
    n_messages++;
    last = m->type;
}

static void on_down(void *arg, const char *text, int exit_code, bool rejected)
{
    (void)arg;
    ck_assert_ptr_nonnull(strstr(text, "more messages than"));
    ck_assert(exit_code == 0 && !rejected);
    n_down++;
}

static void deliver_all(void)
{
    while (solo_link_ops.deliver(link_))
        ;
}

static void say_hello(void)
{
    const struct message hello = {.type = MESSAGE_HELLO,
                                  .generation = MESSAGE_NO_GENERATION,
                                  .hello = {.run_id = "job",
                                            .name = "node1",
                                            .node_rank = MESSAGE_NO_RANK,
                                            .n_local = 1,
                                            .resumes = MESSAGE_NO_GENERATION,
                                            .terms = {.min_nodes = 1, .max_nodes = 1}}};
    solo_link_ops.send(link_, &hello);
}

START_TEST(too_many_messages_break_the_link_and_a_new_one_continues)
{
    static struct job_spec spec = {.world = {.min_nodes = 1, .max_nodes = 1}};
    const struct roster_link_callbacks callbacks = {
        .on_up = on_up, .on_message = on_message, .on_down = on_down};
    const struct message beat = {.type = MESSAGE_KEEP_ALIVE, .generation = MESSAGE_NO_GENERATION};
    struct co_error err;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(solo_link_ops.open(&loop, &spec, &callbacks, &link_, &err), 0);
    solo_link_ops.connect(link_);
    deliver_all();
    say_hello();
    for (int i = 0; i < 100; i++)
        solo_link_ops.send(link_, &beat);
    ck_assert_int_eq(n_down, 0); /* not from within a call */
    deliver_all();
    ck_assert_int_eq(n_down, 1);
    ck_assert_int_eq(n_messages, 0);
    solo_link_ops.connect(link_);
    deliver_all();
    ck_assert_int_eq(n_up, 2);
    say_hello();
    deliver_all();
    ck_assert_int_eq(n_messages, 3); /* WELCOME, resumed, and its place again */
    ck_assert_int_eq(last, MESSAGE_SEALED);
    solo_link_ops.close(link_);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

TEST_SUITE(solo_link)
{
    Suite *suite = suite_create("solo_link");
    TCase *all = tcase_create("all");
    tcase_add_test(all, too_many_messages_break_the_link_and_a_new_one_continues);
    suite_add_tcase(suite, all);
    return suite;
}
