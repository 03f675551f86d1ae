/* PMI-1: lines, and what the ranks of a node are answered. */
#include "common/buf.h"
#include "common/error.h"
#include "rendezvous/pmi/pmi1_server.h"

#include "tests/support/cases.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct pmi1_server *server;
static struct co_error err;

static void make(struct pmi1_place place)
{
    if (place.name == NULL)
        place.name = "job";
    ck_assert_int_eq(pmi1_server_create(&place, &server, &err), 0);
}

static void tear_down(void)
{
    pmi1_server_destroy(server);
    server = NULL;
}

static int say(int rank, const char *text)
{
    err.text[0] = '\0';
    return pmi1_server_feed(server, rank, (const uint8_t *)text, strlen(text), &err);
}

/* What a rank is answered, which is gone then. */
static const char *hear(int rank)
{
    static char text[PMI1_MAX_OUT_BYTES + 1];
    struct co_buf *out = pmi1_server_out(server, rank);
    const size_t n = co_buf_len(out);
    if (n > 0)
        memcpy(text, co_buf_bytes(out), n);
    text[n] = '\0';
    co_buf_consume(out, n);
    return text;
}

#define EXPECT(rank, question, reply)                                                              \
    do {                                                                                           \
        ck_assert_int_eq(say(rank, question), 0);                                                  \
        ck_assert_str_eq(hear(rank), reply);                                                       \
    } while (0)

START_TEST(a_rank_learns_its_bounds_its_key_space_and_the_size_of_the_job)
{
    make((struct pmi1_place){.n_local = 2, .world_size = 2, .n_nodes = 1});
    ck_assert_int_eq(pmi1_server_get_rank(server, 0)->state, PMI1_SILENT);
    EXPECT(0, "cmd=init pmi_version=1 pmi_subversion=1\n",
           "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    ck_assert_int_eq(pmi1_server_get_rank(server, 0)->state, PMI1_INSIDE);
    EXPECT(0, "cmd=get_maxes\n", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0\n");
    EXPECT(0, "cmd=get_appnum\n", "cmd=appnum appnum=0 rc=0\n");
    EXPECT(0, "cmd=get_my_kvsname\n", "cmd=my_kvsname kvsname=job rc=0\n");
    EXPECT(0, "cmd=get_universe_size\n", "cmd=universe_size size=2 rc=0\n");
    EXPECT(0, "cmd=finalize\n", "cmd=finalize_ack rc=0\n");
    ck_assert_int_eq(pmi1_server_get_rank(server, 0)->state, PMI1_FINALIZED);
    ck_assert_int_eq(pmi1_server_get_rank(server, 1)->state, PMI1_SILENT);
}
END_TEST

START_TEST(a_pmi_2_client_learns_that_this_is_pmi_1)
{
    make((struct pmi1_place){.n_local = 1, .world_size = 1, .n_nodes = 1});
    EXPECT(0, "cmd=init pmi_version=2 pmi_subversion=0\n",
           "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n");
    ck_assert_int_eq(pmi1_server_get_rank(server, 0)->state, PMI1_SILENT);
}
END_TEST

START_TEST(ranks_of_several_programs_have_their_numbers)
{
    make((struct pmi1_place){
        .n_local = 3, .world_size = 3, .n_nodes = 1, .appnum = (const int[]){0, 1, 1}});
    EXPECT(0, "cmd=get_appnum\n", "cmd=appnum appnum=0 rc=0\n");
    EXPECT(2, "cmd=get_appnum\n", "cmd=appnum appnum=1 rc=0\n");
}
END_TEST

START_TEST(a_put_is_visible_to_the_others_after_the_barrier)
{
    make((struct pmi1_place){.n_local = 2, .world_size = 2, .n_nodes = 1});
    EXPECT(0, "cmd=put kvsname=job key=P0-card value=tag#0$port#5=x\n",
           "cmd=put_result rc=0 msg=success\n");
    EXPECT(0, "cmd=barrier_in\n", "");
    ck_assert(!pmi1_server_is_gathered(server));
    EXPECT(1, "cmd=barrier_in\n", "");
    ck_assert(pmi1_server_is_gathered(server));
    ck_assert_int_eq(pmi1_server_release(server), 0);
    ck_assert_str_eq(hear(0), "cmd=barrier_out rc=0\n");
    ck_assert_str_eq(hear(1), "cmd=barrier_out rc=0\n");
    ck_assert(!pmi1_server_is_gathered(server));
    EXPECT(1, "cmd=get kvsname=job key=P0-card\n",
           "cmd=get_result rc=0 msg=success value=tag#0$port#5=x\n");
    EXPECT(1, "cmd=get kvsname=job key=P7-card\n",
           "cmd=get_result rc=-1 msg=key_P7-card_not_found value=unknown\n");
    EXPECT(1, "cmd=get kvsname=other key=P0-card\n",
           "cmd=get_result rc=-1 msg=no_such_kvsname value=unknown\n");
}
END_TEST

START_TEST(lines_may_arrive_in_any_pieces)
{
    static const char talk[] = "cmd=get_appnum\ncmd=get_universe_size\n";
    make((struct pmi1_place){.n_local = 1, .world_size = 1, .n_nodes = 1});
    for (size_t i = 0; i < sizeof talk - 1; i++)
        ck_assert_int_eq(pmi1_server_feed(server, 0, (const uint8_t *)talk + i, 1, &err), 0);
    ck_assert_str_eq(hear(0), "cmd=appnum appnum=0 rc=0\ncmd=universe_size size=1 rc=0\n");
    EXPECT(0, talk, "cmd=appnum appnum=0 rc=0\ncmd=universe_size size=1 rc=0\n");
}
END_TEST

START_TEST(keys_and_values_have_bounds)
{
    char line[2048], longest[PMI1_VALUE_BYTES];
    make((struct pmi1_place){.n_local = 1, .world_size = 1, .n_nodes = 1});
    memset(longest, 'v', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    snprintf(line, sizeof line, "cmd=put kvsname=job key=k value=%s\n", longest);
    EXPECT(0, line, "cmd=put_result rc=0 msg=success\n");
    snprintf(line, sizeof line, "cmd=put kvsname=job key=k value=%sx\n", longest);
    EXPECT(0, line, "cmd=put_result rc=-1 msg=bad_key_or_value\n");
    snprintf(line, sizeof line, "cmd=put kvsname=job key=%.64s value=x\n", longest);
    EXPECT(0, line, "cmd=put_result rc=-1 msg=bad_key_or_value\n");
    EXPECT(0, "cmd=put kvsname=job key= value=x\n", "cmd=put_result rc=-1 msg=bad_key_or_value\n");
    EXPECT(0, "cmd=put kvsname=other key=k value=x\n",
           "cmd=put_result rc=-1 msg=no_such_kvsname\n");
    snprintf(line, sizeof line, "cmd=get kvsname=job key=%.64s\n", longest);
    EXPECT(0, line, "cmd=get_result rc=-1 msg=key_too_long value=unknown\n");
}
END_TEST

START_TEST(a_rank_that_reads_no_answers_is_dropped)
{
    int rc = 0;
    make((struct pmi1_place){.n_local = 1, .world_size = 1, .n_nodes = 1});
    for (size_t i = 0; rc == 0 && i < PMI1_MAX_OUT_BYTES; i++)
        rc = say(0, "cmd=get_appnum\n");
    ck_assert_int_eq(rc, -ENOSPC);
    ck_assert_uint_le(co_buf_len(pmi1_server_out(server, 0)), PMI1_MAX_OUT_BYTES);
}
END_TEST

START_TEST(an_abort_keeps_its_exit_status_and_gets_no_answer)
{
    make((struct pmi1_place){.n_local = 2, .world_size = 2, .n_nodes = 1});
    EXPECT(1, "cmd=abort exitcode=-77\n", "");
    ck_assert(pmi1_server_get_rank(server, 1)->aborted);
    ck_assert_int_eq(pmi1_server_get_rank(server, 1)->exit_code, -77);
    ck_assert(!pmi1_server_get_rank(server, 0)->aborted);
}
END_TEST

START_TEST(unsupported_commands_are_refused_with_a_text)
{
    make((struct pmi1_place){.n_local = 1, .world_size = 1, .n_nodes = 1});
    EXPECT(0, "cmd=publish_name service=a port=b\n",
           "cmd=publish_result rc=-1 msg=not_supported_by_ddprun\n");
    EXPECT(0, "cmd=unpublish_name service=a\n",
           "cmd=unpublish_result rc=-1 msg=not_supported_by_ddprun\n");
    EXPECT(0, "cmd=lookup_name service=a\n",
           "cmd=lookup_result rc=-1 msg=not_supported_by_ddprun\n");
    EXPECT(0, "mcmd=spawn\nnprocs=2\nexecname=./child\narg1=-x\ncmd=abort exitcode=3\nendcmd\n",
           "cmd=spawn_result rc=-1 msg=not_supported_by_ddprun\n");
    ck_assert(pmi1_server_get_rank(server, 0)->asked_to_spawn);
    ck_assert(!pmi1_server_get_rank(server, 0)->aborted); /* it was a word of the request */
    EXPECT(0, "cmd=get_appnum\n", "cmd=appnum appnum=0 rc=0\n");
}
END_TEST

START_TEST(nodes_exchange_their_puts)
{
    struct co_buf puts = {0};
    make((struct pmi1_place){.n_local = 1, .world_size = 3, .n_nodes = 2});
    EXPECT(0, "cmd=put kvsname=job key=a value=1\n", "cmd=put_result rc=0 msg=success\n");
    EXPECT(0, "cmd=put kvsname=job key=b value=c=d\n", "cmd=put_result rc=0 msg=success\n");
    ck_assert_int_eq(pmi1_server_take_puts(server, &puts), 0);
    ck_assert_int_eq(pmi1_server_take_puts(server, &puts), 0); /* nothing new */
    ck_assert_uint_eq(co_buf_len(&puts), strlen("a=1\nb=c=d\n"));
    tear_down();

    make((struct pmi1_place){.n_local = 2, .world_size = 3, .n_nodes = 2});
    ck_assert_int_eq(pmi1_server_learn(server, co_buf_bytes(&puts), co_buf_len(&puts), &err), 0);
    EXPECT(1, "cmd=get kvsname=job key=b\n", "cmd=get_result rc=0 msg=success value=c=d\n");
    co_buf_fini(&puts);
}
END_TEST

START_TEST(a_refused_put_reaches_no_node)
{
    char value[801], line[1000];
    struct co_buf puts = {0};
    memset(value, 'x', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    make((struct pmi1_place){.n_local = 1, .world_size = 2, .n_nodes = 2, .max_kvs_bytes = 1024});
    EXPECT(0, "cmd=put kvsname=job key=a value=1\n", "cmd=put_result rc=0 msg=success\n");
    snprintf(line, sizeof line, "cmd=put kvsname=job key=b value=%s\n", value);
    ck_assert_int_eq(say(0, line), 0);
    hear(0); /* at the latest the second is one too many */
    snprintf(line, sizeof line, "cmd=put kvsname=job key=c value=%s\n", value);
    EXPECT(0, line, "cmd=put_result rc=-1 msg=too_many_keys\n");
    EXPECT(0, "cmd=get kvsname=job key=c\n",
           "cmd=get_result rc=-1 msg=key_c_not_found value=unknown\n");
    ck_assert_int_eq(pmi1_server_take_puts(server, &puts), 0);
    ck_assert_ptr_nonnull(memmem(co_buf_bytes(&puts), co_buf_len(&puts), "a=1\n", 4));
    ck_assert_ptr_null(memmem(co_buf_bytes(&puts), co_buf_len(&puts), "c=", 2));
    co_buf_fini(&puts);
}
END_TEST

START_TEST(the_puts_of_another_node_are_checked)
{
    static const char *const bad[] = {"a=1", "a=1 b=2\n", "\n", "=1\n", "a=\x01\n"};
    make((struct pmi1_place){.n_local = 1, .world_size = 2, .n_nodes = 2});
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(pmi1_server_learn(server, (const uint8_t *)bad[i], strlen(bad[i]), &err) ==
                          -EPROTO,
                      "%s", bad[i]);
    ck_assert_int_eq(pmi1_server_learn(server, NULL, 0, &err), 0);
}
END_TEST

START_TEST(the_process_mapping_is_sent_once_it_is_known)
{
    static const char question[] = "cmd=get kvsname=job key=PMI_process_mapping\n";
    make((struct pmi1_place){.n_local = 2, .world_size = 6, .n_nodes = 3});
    EXPECT(1, question, "");
    ck_assert_int_eq(pmi1_server_set_nodes(server, (const uint32_t[]){2, 3, 2}, 3, &err), -EINVAL);
    ck_assert_str_eq(err.text, "PMI: the nodes have 7 ranks in total, but the job has 6");
    ck_assert_str_eq(hear(1), "");
    ck_assert_int_eq(pmi1_server_set_nodes(server, (const uint32_t[]){2, 2, 2}, 3, &err), 0);
    ck_assert_str_eq(hear(1), "cmd=get_result rc=0 msg=success value=(vector,(0,3,2))\n");
    ck_assert_str_eq(hear(0), "");
    EXPECT(0, question, "cmd=get_result rc=0 msg=success value=(vector,(0,3,2))\n");
}
END_TEST

START_TEST(a_mapping_counts_equal_nodes_together)
{
    char text[64], small[30];
    ck_assert_int_eq(pmi1_print_mapping((const uint32_t[]){4}, 1, text, sizeof text), 0);
    ck_assert_str_eq(text, "(vector,(0,1,4))");
    ck_assert_int_eq(pmi1_print_mapping((const uint32_t[]){2, 2, 1, 2}, 4, text, sizeof text), 0);
    ck_assert_str_eq(text, "(vector,(0,2,2),(2,1,1),(3,1,2))");
    ck_assert_int_eq(pmi1_print_mapping((const uint32_t[]){2, 2, 1, 2}, 4, small, sizeof small),
                     -ENOSPC);
}
END_TEST

/* tests/data/pmi1/bad/CASE/{input,error} */
static void check_bad(const char *path)
{
    static char input[16384];
    char wanted[512];
    const size_t len = cases_read(path, "input", input, sizeof input);
    cases_read_line(path, "error", wanted, sizeof wanted);
    make((struct pmi1_place){.n_local = 1, .world_size = 1, .n_nodes = 1});
    ck_assert_msg(pmi1_server_feed(server, 0, (const uint8_t *)input, len, &err) == -EPROTO, "%s",
                  path);
    ck_assert_msg(strcmp(err.text, wanted) == 0, "%s: %s", path, err.text);
    tear_down();
}

START_TEST(bad_lines_are_refused_with_a_reason)
{
    ck_assert_int_ge(cases_each("pmi1/bad", check_bad), 12);
}
END_TEST

TEST_SUITE(pmi1)
{
    Suite *suite = suite_create("pmi1");
    TCase *t = tcase_create("pmi1");
    tcase_add_checked_fixture(t, NULL, tear_down);
    tcase_add_test(t, a_rank_learns_its_bounds_its_key_space_and_the_size_of_the_job);
    tcase_add_test(t, a_pmi_2_client_learns_that_this_is_pmi_1);
    tcase_add_test(t, ranks_of_several_programs_have_their_numbers);
    tcase_add_test(t, a_put_is_visible_to_the_others_after_the_barrier);
    tcase_add_test(t, lines_may_arrive_in_any_pieces);
    tcase_add_test(t, keys_and_values_have_bounds);
    tcase_add_test(t, a_rank_that_reads_no_answers_is_dropped);
    tcase_add_test(t, an_abort_keeps_its_exit_status_and_gets_no_answer);
    tcase_add_test(t, unsupported_commands_are_refused_with_a_text);
    tcase_add_test(t, nodes_exchange_their_puts);
    tcase_add_test(t, a_refused_put_reaches_no_node);
    tcase_add_test(t, the_puts_of_another_node_are_checked);
    tcase_add_test(t, the_process_mapping_is_sent_once_it_is_known);
    tcase_add_test(t, a_mapping_counts_equal_nodes_together);
    tcase_add_test(t, bad_lines_are_refused_with_a_reason);
    suite_add_tcase(suite, t);
    return suite;
}
