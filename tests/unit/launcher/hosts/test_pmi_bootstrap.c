/* A node's place by PMI: the variables, and the line that names node 0.
 * tests/system/one_node/mpi.py tests the rendezvous itself with a real mpiexec.hydra. */
#include "common/error.h"
#include "launcher/hosts/pmi_bootstrap.h"
#include "launcher/job/job_spec.h"
#include "tests/support/cli_words.h"
#include "tests/support/fake_host_env.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <string.h>

static struct fake_host_env fake;
static struct host_env world;
static struct job_spec spec;
static struct co_error err;
static struct pmi_place place;
static int n_meetings;

/* A TEST DOUBLE of pmi_rendezvous_join(): the others are there. */
static int meet(const struct pmi_place *p, struct pmi_bootstrap *ret, struct co_error *e)
{
    (void)e;
    n_meetings++;
    place = *p;
    ret->assignment = (struct node_assignment){.by = "PMI_FD",
                                               .nodes = "3",
                                               .node_rank = p->rank == 0 ? "0" : "2",
                                               .endpoint = "10.0.0.1:4711",
                                               .run_id = "pmi-1",
                                               .has_roster = p->rank == 0};
    return 0;
}

static void set_up(void)
{
    fake = fake_host_env_usual;
    world = fake_host_env_make(&fake);
    world.meet_by_pmi = meet;
    err = (struct co_error){0};
    n_meetings = 0;
}

static void tear_down(void)
{
    job_spec_fini(&spec);
}

static int parse(const char *const *words)
{
    enum cli_wish wish;
    return cli_words_parse(words, &world, &wish, &spec, &err);
}

#define JOB(...)                                                                                   \
    ck_assert_msg(parse((const char *[]){"ddprun", __VA_ARGS__, NULL}) == 0, "%s", err.text)

static const char *const hydra[] = {"PMI_FD=9", "PMI_RANK=2", "PMI_SIZE=3", "MPI_LOCALNRANKS=1",
                                    NULL};

START_TEST(one_ddprun_per_node_is_a_node)
{
    static const char *const first[] = {"PMI_FD=9", "PMI_RANK=0", "PMI_SIZE=3", NULL};
    fake.env = hydra;
    JOB("-p", "2", "train.py");
    ck_assert_int_eq(place.fd, 9);
    ck_assert_uint_eq(place.rank, 2);
    ck_assert_uint_eq(place.size, 3);
    ck_assert(spec.world.has_others);
    ck_assert_int_eq(spec.world.node_rank, 2);
    ck_assert_uint_eq(spec.world.max_nodes, 3);
    ck_assert_str_eq(spec.world.endpoint_host, "10.0.0.1");
    ck_assert_uint_eq(spec.world.endpoint_port, 4711);
    ck_assert_int_eq(spec.world.host, JOB_HOST_ELSEWHERE);
    ck_assert_str_eq(spec.run_id, "pmi-1");
    fake.env = first;
    JOB("-p", "2", "train.py");
    ck_assert_int_eq(spec.world.host, JOB_HOST_HERE);
}
END_TEST

START_TEST(options_that_place_nodes_turn_the_pmi_bootstrap_off)
{
    static const char *const alone[] = {"PMI_FD=9", "PMI_RANK=0", "PMI_SIZE=1", NULL};
    fake.env = hydra;
    JOB("--nnodes", "1", "train.py");
    JOB("--nnodes", "3", "--node-rank", "2", "--rdzv-endpoint", "h", "--rdzv-id", "j", "train.py");
    JOB("--standalone", "train.py");
    JOB("-H", "a,b", "train.py");
    ck_assert_int_eq(parse((const char *[]){"torchrun", "train.py", NULL}), 0);
    fake.env = alone;
    JOB("train.py");
    ck_assert_int_eq(n_meetings, 0);
}
END_TEST

START_TEST(several_ddpruns_per_node_and_malformed_variables_are_refused)
{
    static const struct {
        const char *const env[5];
        const char *text;
    } cases[] = {
        {{"PMI_FD=9"},
         "PMI_FD is set, but PMI_SIZE is not; start ddprun with mpiexec or srun --mpi=pmi2"},
        {{"PMI_FD=9", "PMI_SIZE=2"},
         "PMI_FD is set, but PMI_RANK is not; start ddprun with mpiexec or srun --mpi=pmi2"},
        {{"PMI_FD=x", "PMI_SIZE=2", "PMI_RANK=0"},
         "invalid value 'x' for PMI_FD: expected a number"},
        {{"PMI_FD=9", "PMI_SIZE=2", "PMI_RANK=2"}, "PMI_RANK=2 contradicts PMI_SIZE=2"},
        {{"PMI_FD=9", "PMI_SIZE=4", "PMI_RANK=1", "MPI_LOCALNRANKS=2"},
         "2 ddpruns were started on this node, but one starts all ranks of a node; use mpiexec "
         "-ppn 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fake.env = cases[i].env;
        ck_assert_int_eq(parse((const char *[]){"ddprun", "train.py", NULL}), -EINVAL);
        ck_assert_str_eq(err.text, cases[i].text);
    }
    ck_assert_int_eq(n_meetings, 0);
}
END_TEST

START_TEST(the_address_of_node_0_survives_a_round_trip)
{
    const struct pmi_bootstrap_meeting told = {.port = 4711,
                                               .token = "00ff",
                                               .run_id = "pmi-12ab",
                                               .n_addresses = 2,
                                               .address = {"10.0.0.1", "fd00::1"}};
    struct pmi_bootstrap_meeting heard;
    char text[1024];
    pmi_bootstrap_print(&told, text, sizeof text);
    ck_assert_str_eq(text, "4711;00ff;pmi-12ab;10.0.0.1,fd00::1");
    ck_assert_int_eq(pmi_bootstrap_read(text, &heard, &err), 0);
    ck_assert_uint_eq(heard.port, 4711);
    ck_assert_str_eq(heard.token, "00ff");
    ck_assert_str_eq(heard.run_id, "pmi-12ab");
    ck_assert_uint_eq(heard.n_addresses, 2);
    ck_assert_str_eq(heard.address[1], "fd00::1");
    pmi_bootstrap_print(&told, text, 30); /* addresses that do not fit are left out */
    ck_assert_str_eq(text, "4711;00ff;pmi-12ab;10.0.0.1");
}
END_TEST

START_TEST(an_invalid_address_line_is_refused)
{
    static const char *const bad[] = {
        "",
        ";",
        "4711;00ff;pmi-1",
        "0;00ff;j;10.0.0.1",
        "65536;00ff;j;10.0.0.1",
        "1;00fg;j;10.0.0.1",
        "1;;j;10.0.0.1",
        "1;00ff;;10.0.0.1",
        "1;00ff;a b;10.0.0.1",
        "1;00ff;j;",
        "1;00ff;j;10.0.0.1,",
        "1;00ff;j;name",
        "1;00ff;j;10.0.0.1;x",
        "1;00ff;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa;10.0.0.1",
        "1;00ff;j;::1,::1,::1,::1,::1,::1,::1,::1,::1,::1,::1,::1,::1"};
    struct pmi_bootstrap_meeting heard;
    char text[1024];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        strcpy(text, bad[i]);
        ck_assert_msg(pmi_bootstrap_read(text, &heard, &err) == -EPROTO, "%s", bad[i]);
    }
    strcpy(text, "!no_sockets");
    ck_assert_int_eq(pmi_bootstrap_read(text, &heard, &err), -EIO);
    ck_assert_str_eq(err.text, "rendezvous with node 0 failed: no_sockets");
}
END_TEST

TEST_SUITE(pmi_bootstrap)
{
    Suite *suite = suite_create("pmi_bootstrap");
    TCase *c = tcase_create("pmi_bootstrap");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, one_ddprun_per_node_is_a_node);
    tcase_add_test(c, options_that_place_nodes_turn_the_pmi_bootstrap_off);
    tcase_add_test(c, several_ddpruns_per_node_and_malformed_variables_are_refused);
    tcase_add_test(c, the_address_of_node_0_survives_a_round_trip);
    tcase_add_test(c, an_invalid_address_line_is_refused);
    suite_add_tcase(suite, c);
    return suite;
}
