/* Ranks that find rank 0's store by PMI, from a launcher that the tests simulate: a thread answers
 * as rendezvous/pmi/pmi1_server.h does, or wrongly. Each test is a process of its own, because
 * pmi_store_find() works once in a process. */
#include "common/buf.h"
#include "common/clock.h"
#include "common/error.h"
#include "rendezvous/client/client.h"
#include "rendezvous/pmi/pmi1_server.h"
#include "tests/support/suite.h"
#include "worker-runtime/join/env.h"
#include "worker-runtime/join/pmi_store.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DEADLINE_MS = 60000 };

static struct co_error err;
static int starter_fd; /* of the simulated launcher */

static struct env_who begin(int rank)
{
    int pair[2];
    unsetenv("MASTER_ADDR");
    unsetenv("MASTER_PORT");
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    starter_fd = pair[0];
    return (struct env_who){.rank = rank, .world_size = 2, .pmi_fd = pair[1]};
}

/* --- a launcher that serves ------------------------------------------------------------------- */

/* The server of a one-rank job, so that no barrier waits; `put` is what rank 0 has put. */
static void *serve(void *arg)
{
    const struct pmi1_place place = {.n_local = 1, .world_size = 1, .n_nodes = 1, .name = "job"};
    struct pmi1_server *s;
    const char *put = arg;
    uint8_t bytes[4096];
    ssize_t n;
    ck_assert_int_eq(pmi1_server_create(&place, &s, NULL), 0);
    if (put != NULL)
        ck_assert_int_eq(pmi1_server_learn(s, (const uint8_t *)put, strlen(put), NULL), 0);
    while ((n = recv(starter_fd, bytes, sizeof bytes, 0)) > 0 &&
           pmi1_server_feed(s, 0, bytes, (size_t)n, NULL) == 0) {
        struct co_buf *out = pmi1_server_out(s, 0);
        if (pmi1_server_is_gathered(s))
            pmi1_server_release(s);
        while (co_buf_len(out) > 0)
            co_buf_consume(
                out, (size_t)send(starter_fd, co_buf_bytes(out), co_buf_len(out), MSG_NOSIGNAL));
    }
    pmi1_server_destroy(s);
    return NULL;
}

START_TEST(rank_0_serves_a_store_that_it_reaches_itself)
{
    const struct env_who who = begin(0);
    struct store_client *c;
    pthread_t thread;
    ck_assert(pmi_store_is_for(&who));
    ck_assert_int_eq(pthread_create(&thread, NULL, serve, NULL), 0);
    ck_assert_msg(pmi_store_find(&who, co_deadline_ms(DEADLINE_MS), &err) == 0, "%s", err.text);
    ck_assert(pmi_store_is_known());
    ck_assert_int_eq(pmi_store_find(&who, co_deadline_ms(DEADLINE_MS), &err),
                     0); /* again: nothing */
    ck_assert_msg(pmi_store_connect(co_deadline_ms(DEADLINE_MS), &c, &err) == 0, "%s", err.text);
    ck_assert_int_eq(client_set(c, "a", 1, "b", 1, co_deadline_ms(DEADLINE_MS), &err), 0);
    client_close(c);
    close(who.pmi_fd);
    pthread_join(thread, NULL);
}
END_TEST

#define WORD "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static const struct {
    const char *put, *error;
} told[] = {
    {"other=x\n", "PMI: no such key: 'ddp-store'"},
    {"ddp-store=!out%20of%20memory:%20100%25_in_use%2\n",
     "rank 0 cannot serve a store: out of memory: 100%_in_use%2"},
    {"ddp-store=\n", "invalid PMI value from rank 0 for the address of its store"},
    {"ddp-store=29400\n", "invalid PMI value from rank 0 for the address of its store"},
    {"ddp-store=0;" WORD ";10.0.0.1\n",
     "invalid PMI value from rank 0 for the address of its store"},
    {"ddp-store=70000;" WORD ";10.0.0.1\n",
     "invalid PMI value from rank 0 for the address of its store"},
    {"ddp-store=1;" WORD ";\n", "invalid PMI value from rank 0 for the address of its store"},
    {"ddp-store=1;" WORD ";a;b\n", "invalid PMI value from rank 0 for the address of its store"},
    {"ddp-store=1;" WORD "0;a\n", "invalid PMI value from rank 0 for the address of its store"},
    {"ddp-store=1;g" WORD ";a\n", "invalid PMI value from rank 0 for the address of its store"},
    {"ddp-store=1;G123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef;a\n",
     "invalid PMI value from rank 0 for the address of its store"},
    {"ddp-store=1;" WORD ";1,2,3,4,5,6,7,8,9,10,11,12,13\n",
     "invalid PMI value from rank 0 for the address of its store"},
    {"ddp-store=1;" WORD ";10.0.0.1.and.more.than.any.address.has.of.them\n",
     "invalid PMI value from rank 0 for the address of its store"},
};

START_TEST(the_address_of_rank_0_is_checked)
{
    const struct env_who who = begin(1);
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, serve, (void *)told[_i].put), 0);
    ck_assert_int_lt(pmi_store_find(&who, co_deadline_ms(DEADLINE_MS), &err), 0);
    ck_assert_str_eq(err.text, told[_i].error);
    ck_assert(!pmi_store_is_known());
    close(who.pmi_fd);
    pthread_join(thread, NULL);
}
END_TEST

/* --- a launcher that answers something else --------------------------------------------------- */

#define INIT "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
#define NAME "cmd=my_kvsname kvsname=job\n"

static const struct {
    const char *answers;
    int code;
    const char *error;
} wrong[] = {
    {"", -EPIPE, "PMI: the launcher closed the connection"},
    {"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1 msg=too_old\n", -EPROTO,
     "PMI: the launcher refused PMI-1: too_old"},
    {"cmd=nonsense\n", -EPROTO,
     "PMI: invalid answer 'cmd=nonsense' to 'cmd=init pmi_version=1 pmi_subversion=1\n'"},
    {"\n", -EPROTO, "PMI: a line is empty"},
    {INIT "cmd=my_kvsname\n", -EPROTO, "PMI: the key space has no name"},
    {INIT NAME "cmd=barrier_out rc=-1 msg=a_rank_is_gone\n", -EPROTO,
     "PMI: the launcher refused the barrier: a_rank_is_gone"},
    {INIT NAME "cmd=barrier_out\n"
               "cmd=get_result rc=-1 msg=no_such_key value=unknown\n",
     -ENOENT, "PMI: no such key: 'ddp-store'"},
    {INIT NAME "cmd=barrier_out rc=0\ncmd=get_", -EPIPE, "PMI: the launcher closed the connection"},
};

START_TEST(a_launcher_with_wrong_answers_is_an_error)
{
    const struct env_who who = begin(1);
    const size_t n = strlen(wrong[_i].answers);
    ck_assert_int_eq(send(starter_fd, wrong[_i].answers, n, MSG_NOSIGNAL), (ssize_t)n);
    shutdown(starter_fd, SHUT_WR);
    ck_assert_int_eq(pmi_store_find(&who, co_deadline_ms(DEADLINE_MS), &err), wrong[_i].code);
    ck_assert_str_eq(err.text, wrong[_i].error);
}
END_TEST

START_TEST(an_endless_line_is_refused)
{
    const struct env_who who = begin(1);
    static char line[PMI1_LINE_BYTES + 1];
    memset(line, 'x', sizeof line);
    ck_assert_int_eq(send(starter_fd, line, sizeof line, MSG_NOSIGNAL), sizeof line);
    ck_assert_int_eq(pmi_store_find(&who, co_deadline_ms(DEADLINE_MS), &err), -EPROTO);
    ck_assert_str_eq(err.text, "PMI: a line has more than 4096 bytes");
}
END_TEST

START_TEST(a_launcher_that_has_exited_does_not_kill_the_rank)
{
    const struct env_who who = begin(1);
    close(starter_fd);
    ck_assert_int_eq(pmi_store_find(&who, co_deadline_ms(DEADLINE_MS), &err), -EPIPE);
    ck_assert_str_eq(err.text, "PMI: Broken pipe");
}
END_TEST

START_TEST(a_silent_launcher_is_waited_for_until_the_deadline)
{
    const struct env_who who = begin(1);
    ck_assert_int_eq(pmi_store_find(&who, co_deadline_ms(20), &err), -ETIMEDOUT);
    ck_assert_str_eq(err.text, "PMI: timed out waiting for an answer");
}
END_TEST

START_TEST(a_rank_with_a_store_address_needs_no_pmi)
{
    struct env_who who = begin(1);
    setenv("MASTER_ADDR", "node0", 1);
    ck_assert(pmi_store_is_for(&who)); /* one of the two variables is not enough */
    setenv("MASTER_PORT", "29500", 1);
    ck_assert(!pmi_store_is_for(&who));
    unsetenv("MASTER_PORT");
    who.pmi_fd = -1;
    ck_assert(!pmi_store_is_for(&who));
}
END_TEST

TEST_SUITE(pmi_store)
{
    Suite *suite = suite_create("pmi_store");
    TCase *t = tcase_create("pmi_store");
    tcase_add_test(t, rank_0_serves_a_store_that_it_reaches_itself);
    tcase_add_loop_test(t, the_address_of_rank_0_is_checked, 0, sizeof told / sizeof *told);
    tcase_add_loop_test(t, a_launcher_with_wrong_answers_is_an_error, 0,
                        sizeof wrong / sizeof *wrong);
    tcase_add_test(t, an_endless_line_is_refused);
    tcase_add_test(t, a_launcher_that_has_exited_does_not_kill_the_rank);
    tcase_add_test(t, a_silent_launcher_is_waited_for_until_the_deadline);
    tcase_add_test(t, a_rank_with_a_store_address_needs_no_pmi);
    suite_add_tcase(suite, t);
    return suite;
}
