/* Slurm's variables, as srun, sbatch and salloc of Slurm 22.05 set them, and bad ones. */
#include "common/error.h"
#include "launcher/hosts/schedulers.h"
#include "launcher/job/job_spec.h"
#include "launcher/options/cli.h"
#include "tests/support/cli_words.h"
#include "tests/support/fake_host_env.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <string.h>

static struct fake_host_env fake;
static struct host_env world;
static struct manager s;
static struct job_spec spec;
static struct co_error err;
static enum cli_wish wish;

static void set_up(void)
{
    fake = fake_host_env_usual;
    world = fake_host_env_make(&fake);
    err = (struct co_error){0};
}

static void tear_down(void)
{
    manager_fini(&s);
    job_spec_fini(&spec);
}

static int look(const char *const *env)
{
    manager_fini(&s);
    err.text[0] = '\0';
    fake.env = env;
    return slurm_find(&world, &s, &err);
}

#define ENV(...) ((const char *const[]){"PATH=/usr/bin", __VA_ARGS__, NULL})
#define JOB      "SLURM_JOB_ID=12", "SLURM_JOB_NODELIST=n[1-2]"
#define STEP     JOB, "SLURM_STEP_ID=3", "SLURM_STEP_NODELIST=n[1-2]"

static int parse(const char *const *env, const char *const *words)
{
    fake.env = env;
    return cli_words_parse(words, &world, &wish, &spec, &err);
}

START_TEST(outside_of_slurm_nothing_is_found)
{
    ck_assert_int_eq(look(ENV("SLURM_CONF=/etc/slurm.conf")), 0);
    ck_assert_int_eq(s.kind, MANAGER_NONE);
}
END_TEST

START_TEST(counts_of_tasks_are_read)
{
    uint32_t n[4];
    ck_assert_int_eq(slurm_read_counts("2(x3),1", n, 4), 0);
    ck_assert(n[0] == 2 && n[1] == 2 && n[2] == 2 && n[3] == 1);
    ck_assert_int_eq(slurm_read_counts("7", n, 1), 0);
    ck_assert_uint_eq(n[0], 7);
    static const char *const bad[] = {
        "",       "2(x3)", "2(x5)", "0(x4)",  "2(x0),1",   "a",      "2,2,2,",
        "2(x3,1", "2(x",   "2(y3)", "-1(x4)", "1,2,3,4,5", "2 (x4)", "99999999999999999999(x4)"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(slurm_read_counts(bad[i], n, 4) == -EINVAL, "'%s'", bad[i]);
}
END_TEST

START_TEST(a_task_on_each_node_is_a_node)
{
    ck_assert_int_eq(look(ENV(STEP, "SLURM_NODEID=1", "SLURM_STEP_TASKS_PER_NODE=1(x2)")), 0);
    ck_assert_int_eq(s.kind, MANAGER_SEAT);
    ck_assert_str_eq(s.assignment.nodes, "2");
    ck_assert_str_eq(s.assignment.node_rank, "1");
    ck_assert_str_eq(s.assignment.name, "n2");
    ck_assert_str_eq(s.assignment.run_id, "slurm-12.3");
    ck_assert_str_eq(s.assignment.endpoint, "n1:21575");
    ck_assert(!s.assignment.has_roster);
    ck_assert_int_eq(parse(ENV(STEP, "SLURM_NODEID=0", "SLURM_STEP_TASKS_PER_NODE=1(x2)"),
                           (const char *[]){"ddprun", "-p", "4", "train.py", NULL}),
                     0);
    ck_assert(spec.world.has_others && spec.world.max_nodes == 2 && spec.n_local == 4);
    ck_assert_int_eq(spec.world.host, JOB_HOST_HERE);
    ck_assert_int_eq(spec.world.node_rank, 0);
    ck_assert_str_eq(spec.world.endpoint_host, "n1");
}
END_TEST

START_TEST(one_node_needs_no_peers)
{
    ck_assert_int_eq(look(ENV("SLURM_JOB_ID=12", "SLURM_STEP_ID=0", "SLURM_STEP_NODELIST=n7",
                              "SLURM_NODEID=0", "SLURM_STEP_TASKS_PER_NODE=1")),
                     0);
    ck_assert_int_eq(s.kind, MANAGER_NONE);
    ck_assert_int_eq(look(ENV("SLURM_JOB_ID=12", "SLURM_JOB_NODELIST=n7", "SLURMD_NODENAME=n7")),
                     0);
    ck_assert_int_eq(s.kind, MANAGER_NONE);
}
END_TEST

START_TEST(several_tasks_on_a_node_are_ranks)
{
    ck_assert_int_eq(look(ENV(STEP, "SLURM_NODEID=1", "SLURM_STEP_TASKS_PER_NODE=2,1",
                              "SLURM_PROCID=2", "SLURM_LOCALID=0", "SLURM_STEP_NUM_TASKS=3")),
                     0);
    ck_assert_int_eq(s.kind, MANAGER_TASK);
    ck_assert_uint_eq(s.task.rank, 2);
    ck_assert_uint_eq(s.task.world_size, 3);
    ck_assert_uint_eq(s.task.local_world_size, 1);
    ck_assert_uint_eq(s.task.node_rank, 1);
    ck_assert_str_eq(s.task.master_addr, "n1");
    ck_assert_uint_eq(s.task.master_port, 21575);
    ck_assert_str_eq(s.run_id, "slurm-12.3");
}
END_TEST

#define WORDS(...) ((const char *const[]){"ddprun", __VA_ARGS__, NULL})
#define TASK                                                                                       \
    "SLURM_JOB_ID=12", "SLURM_STEP_ID=3", "SLURM_STEP_NODELIST=n1", "SLURM_NODEID=0",              \
        "SLURM_STEP_TASKS_PER_NODE=2", "SLURM_LOCALID=1", "SLURM_STEP_NUM_TASKS=2"

START_TEST(tasks_on_one_node_need_no_node_name)
{
    ck_assert_int_eq(look(ENV(TASK, "SLURM_PROCID=1")), 0);
    ck_assert_int_eq(s.kind, MANAGER_TASK);
    ck_assert_str_eq(s.task.master_addr, "127.0.0.1");
}
END_TEST

START_TEST(all_tasks_of_a_step_have_the_same_run_id)
{
    ck_assert_int_eq(parse(ENV(TASK, "SLURM_PROCID=1"), WORDS("true")), 0);
    ck_assert_str_eq(spec.run_id, "slurm-12.3");
    job_spec_fini(&spec);
    ck_assert_int_eq(parse(ENV(TASK, "SLURM_PROCID=1"), WORDS("--rdzv-id", "mine", "true")), 0);
    ck_assert_str_eq(spec.run_id, "mine");
}
END_TEST

START_TEST(one_task_warns_of_options_that_need_a_supervisor)
{
    ck_assert_int_eq(parse(ENV(TASK, "SLURM_PROCID=1"), WORDS("--on-term", "5s", "true")), 0);
    ck_assert_ptr_null(spec.notes);
    job_spec_fini(&spec);
    ck_assert_int_eq(parse(ENV("SLURM_JOB_ID=12", "SLURM_STEP_ID=3", "SLURM_STEP_NODELIST=n1",
                               "SLURM_NODEID=0", "SLURM_STEP_TASKS_PER_NODE=2", "SLURM_LOCALID=0",
                               "SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=0"),
                           WORDS("--on-term", "5s", "true")),
                     0);
    ck_assert_str_eq(spec.notes,
                     "--on-term ignored: Slurm started each rank and supervises it; use srun "
                     "--ntasks-per-node 1 to have ddprun supervise the ranks\n");
}
END_TEST

START_TEST(an_allocation_is_a_list_of_hosts)
{
    ck_assert_int_eq(look(ENV(JOB, "SLURM_TASKS_PER_NODE=1(x2)", "SLURMD_NODENAME=n1")), 0);
    ck_assert_int_eq(s.kind, MANAGER_HOSTS);
    ck_assert_uint_eq(s.hosts.n, 2);
    ck_assert_uint_eq(s.hosts.hosts[0].slots, 0);
    ck_assert_int_eq(look(ENV(JOB, "SLURM_STEP_ID=4294967290", "SLURM_TASKS_PER_NODE=8,4")), 0);
    ck_assert_int_eq(s.kind, MANAGER_HOSTS);
    ck_assert_uint_eq(s.hosts.hosts[0].slots, 8);
    ck_assert_uint_eq(s.hosts.hosts[1].slots, 4);
    ck_assert_int_eq(look(ENV("SLURM_JOB_ID=1", "SLURM_JOB_NODELIST=n7")), 0);
    ck_assert_int_eq(s.kind, MANAGER_HOSTS); /* salloc's shell is elsewhere, perhaps */
    ck_assert_int_eq(
        parse(ENV(JOB), (const char *[]){"ddprun", "-p", "2", "nowhere-here.py", NULL}), 0);
    ck_assert(spec.remote != NULL && spec.remote->way.by_srun);
    ck_assert_uint_eq(spec.remote->hosts.n, 2);
    ck_assert_uint_eq(spec.remote->shares[1], 2);
}
END_TEST

START_TEST(options_that_place_nodes_override_slurm)
{
    static const char *const words[][5] = {
        {"ddprun", "--standalone", "train.py"},
        {"ddprun", "--nnodes=1", "train.py"},
        {"torchrun", "train.py"},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        ck_assert_msg(parse(ENV(JOB), words[i]) == 0, "%s", err.text);
        ck_assert(spec.remote == NULL && !spec.world.has_others);
    }
    ck_assert_int_eq(parse(ENV(JOB), (const char *[]){"ddprun", "-H", "a,b,c", "x", NULL}), 0);
    ck_assert(!spec.remote->way.by_srun && spec.remote->hosts.n == 3);
}
END_TEST

START_TEST(ranks_have_less_time_to_stop_than_slurm_gives)
{
    const char *words[] = {"ddprun", "--standalone", "train.py", NULL};
    ck_assert_int_eq(parse(ENV(JOB), words), 0);
    ck_assert_uint_eq(spec.grace_ms, 25000);
    ck_assert_int_eq(parse(ENV("A=1"), words), 0);
    ck_assert_uint_eq(spec.grace_ms, 30000);
    words[0] = "torchrun";
    ck_assert_int_eq(parse(ENV(JOB), words), 0);
    ck_assert_uint_eq(spec.grace_ms, 30000);
}
END_TEST

START_TEST(missing_slurm_variables_are_an_error)
{
    static const struct {
        const char *const env[9];
        const char *text;
    } cases[] = {
        {{"SLURM_JOB_ID=12"},
         "this is a Slurm job, but SLURM_JOB_NODELIST is not set; use --nnodes 1 to start ranks on "
         "this node only"},
        {{"SLURM_JOB_ID=x"}, "invalid value 'x' for SLURM_JOB_ID: expected a number"},
        {{JOB, "SLURM_TASKS_PER_NODE=2(x3)"},
         "SLURM_TASKS_PER_NODE is '2(x3)', which is not a valid list of tasks for 2 nodes"},
        {{"SLURM_JOB_ID=12", "SLURM_JOB_NODELIST=n[1-"},
         "SLURM_JOB_NODELIST: '[1-': the closing ']' is missing"},
        {{STEP},
         "this is a Slurm job, but SLURM_NODEID is not set; use --nnodes 1 to start ranks on this "
         "node only"},
        {{STEP, "SLURM_NODEID=2"},
         "SLURM_NODEID=2 contradicts SLURM_STEP_NODELIST, which has 2 nodes"},
        {{STEP, "SLURM_NODEID=1", "SLURM_STEP_TASKS_PER_NODE=1"},
         "SLURM_STEP_TASKS_PER_NODE is '1', which is not a valid list of tasks for 2 nodes"},
        {{STEP, "SLURM_NODEID=1", "SLURM_STEP_TASKS_PER_NODE=2(x2)", "SLURM_PROCID=4",
          "SLURM_LOCALID=0", "SLURM_STEP_NUM_TASKS=4"},
         "SLURM_PROCID 4, SLURM_LOCALID 0 and SLURM_STEP_NUM_TASKS 4 contradict "
         "SLURM_STEP_TASKS_PER_NODE"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *env[12] = {0};
        memcpy(env, cases[i].env, sizeof cases[i].env);
        ck_assert_int_eq(look(env), -EINVAL);
        ck_assert_str_eq(err.text, cases[i].text);
    }
}
END_TEST

TEST_SUITE(slurm)
{
    Suite *suite = suite_create("slurm");
    TCase *c = tcase_create("slurm");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, outside_of_slurm_nothing_is_found);
    tcase_add_test(c, counts_of_tasks_are_read);
    tcase_add_test(c, a_task_on_each_node_is_a_node);
    tcase_add_test(c, one_node_needs_no_peers);
    tcase_add_test(c, several_tasks_on_a_node_are_ranks);
    tcase_add_test(c, tasks_on_one_node_need_no_node_name);
    tcase_add_test(c, all_tasks_of_a_step_have_the_same_run_id);
    tcase_add_test(c, one_task_warns_of_options_that_need_a_supervisor);
    tcase_add_test(c, an_allocation_is_a_list_of_hosts);
    tcase_add_test(c, options_that_place_nodes_override_slurm);
    tcase_add_test(c, ranks_have_less_time_to_stop_than_slurm_gives);
    tcase_add_test(c, missing_slurm_variables_are_an_error);
    suite_add_tcase(suite, c);
    return suite;
}
