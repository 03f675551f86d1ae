/* Variables as managers of jobs set them, each environment as it was written down in
 * tests/data/managers, and bad ones. */
#include "common/error.h"
#include "common/scope.h"
#include "launcher/hosts/schedulers.h"
#include "launcher/job/job_spec.h"
#include "launcher/options/cli.h"
#include "tests/support/cli_words.h"
#include "tests/support/fake_host_env.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct fake_host_env fake;
static struct host_env world;
static struct manager m;
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
    manager_fini(&m);
    job_spec_fini(&spec);
}

/* A file of NAME=VALUE lines; "\n" in a value is a newline. It becomes the environment. */
static void load(const char *name)
{
    static char text[8192];
    static const char *env[100];
    char path[1024];
    size_t n = 0;
    char *rest = NULL;
    snprintf(path, sizeof path, "%s/managers/%s", getenv("TEST_DATA"), name);
    co_autoclose FILE *in = fopen(path, "re");
    ck_assert_msg(in != NULL, "%s", path);
    text[fread(text, 1, sizeof text - 1, in)] = '\0';
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        for (char *escape; (escape = strstr(line, "\\n")) != NULL;) {
            *escape = '\n';
            memmove(escape + 1, escape + 2, strlen(escape + 2) + 1);
        }
        if (*line != '#')
            env[n++] = line;
    }
    env[n] = NULL;
    fake.env = env;
}

static int look(bool has_nodes)
{
    manager_fini(&m);
    err.text[0] = '\0';
    return manager_find(&world, has_nodes, &m, &err);
}

static int parse(const char *const *words)
{
    return cli_words_parse(words, &world, &wish, &spec, &err);
}

#define JOB(...)                                                                                   \
    ck_assert_msg(parse((const char *[]){"ddprun", __VA_ARGS__, NULL}) == 0, "%s", err.text)

START_TEST(a_pod_of_an_indexed_job_finds_the_first_pod)
{
    load("kubernetes-indexed-job");
    fake.own_name = "train-2.train.default.svc.cluster.local";
    JOB("--nnodes", "4", "train.py");
    ck_assert_int_eq(spec.world.node_rank, 2);
    ck_assert_str_eq(spec.world.endpoint_host, "train-0.train.default.svc.cluster.local");
    ck_assert_uint_eq(spec.world.endpoint_port, 29400);
    ck_assert_str_eq(spec.world.node_name, "train-2");
    ck_assert_str_eq(spec.run_id, "train");
    ck_assert_int_eq(spec.world.host, JOB_HOST_ELSEWHERE);
    fake.own_name = "train-0.train.default.svc.cluster.local";
    JOB("--nnodes", "4", "train.py");
    ck_assert_int_eq(spec.world.host, JOB_HOST_HERE);
    JOB("train.py"); /* a pod is a job of its own unless the number of pods is specified */
    ck_assert(!spec.world.has_others);
}
END_TEST

START_TEST(pods_that_may_be_lost_replace_the_coordinator)
{
    load("kubernetes-indexed-job");
    fake.own_name = "train-0.train.default.svc.cluster.local";
    JOB("--nnodes", "4", "--max-restarts", "3", "train.py");
    ck_assert(spec.world.failover && spec.world.comes_again && !spec.world.endpoint_once);
    ck_assert_int_eq(spec.world.host, JOB_HOST_FOUND_OUT);
    ck_assert_uint_eq(spec.world.rejoin_timeout_ms, 600000);
    ck_assert_uint_eq(spec.world.seek_ms, 30000);
    ck_assert_str_eq(spec.world.endpoint_host, "train-0.train.default.svc.cluster.local");
    ck_assert_uint_eq(spec.world.n_also, 0); /* the job begins again at pod 0 */
    JOB("--nnodes", "1:2", "--rejoin-timeout", "7s", "train.py");
    ck_assert(spec.world.failover);
    ck_assert_uint_eq(spec.world.seek_ms, 7000);
    fake.own_name = "train-2.train.default.svc.cluster.local";
    JOB("--nnodes", "3", "--max-restarts", "3", "train.py");
    ck_assert_int_eq(spec.world.host, JOB_HOST_ELSEWHERE);
    JOB("--nnodes", "3", "--max-restarts", "3", "--rdzv-conf", "failover=off", "train.py");
    ck_assert(!spec.world.failover);
    ck_assert_uint_eq(spec.world.n_also, 0);
}
END_TEST

START_TEST(a_pod_of_a_stateful_set_finds_the_first_pod)
{
    load("kubernetes-stateful-set");
    fake.own_name = "my-train-11.t.ns1.svc.cluster.local";
    JOB("--nnodes", "2:16", "train.py");
    ck_assert_int_eq(spec.world.node_rank, 11);
    ck_assert_str_eq(spec.world.endpoint_host, "my-train-0.t.ns1.svc.cluster.local");
    ck_assert_str_eq(spec.run_id, "my-train");
}
END_TEST

START_TEST(a_pod_that_others_cannot_resolve_is_an_error)
{
    load("kubernetes-indexed-job");
    fake.own_name = "train-2";
    ck_assert_int_eq(look(true), -EINVAL);
    ck_assert_str_eq(
        err.text,
        "the name of this pod, 'train-2', cannot be resolved by other pods; create a headless "
        "Service and set its name as the pod's subdomain, or use --rdzv-endpoint");
    static const char *const bad[] = {"train.t.ns", "train-.t.ns", "7.t.ns", "-7.t.ns",
                                      "",           "train-7x.t"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fake.own_name = bad[i];
        ck_assert_int_eq(look(true), -EINVAL);
        ck_assert_ptr_nonnull(strstr(err.text, "does not end in a number"));
    }
}
END_TEST

START_TEST(the_training_operators_variables_are_options)
{
    load("kubernetes-pytorchjob");
    JOB("train.py");
    ck_assert(spec.world.has_others && spec.world.max_nodes == 3);
    ck_assert_int_eq(spec.world.node_rank, 1);
    ck_assert_int_eq(spec.n_local, 4);
    ck_assert_str_eq(spec.world.endpoint_host, "train-master-0");
    ck_assert_uint_eq(spec.world.endpoint_port, 23456);
}
END_TEST

START_TEST(the_variables_of_a_train_job_are_options)
{
    load("kubeflow-trainer-torch");
    fake.own_name = "trainJob-node-0-1.trainJob.default.svc.cluster.local";
    JOB("--max-restarts", "3", "train.py");
    ck_assert(spec.world.has_others && spec.world.comes_again);
    ck_assert_uint_eq(spec.world.max_nodes, 2);
    ck_assert_int_eq(spec.world.node_rank, 1);
    ck_assert_int_eq(spec.n_local, 1);
    ck_assert_str_eq(spec.world.endpoint_host, "trainJob-node-0-0.trainJob");
    ck_assert_uint_eq(spec.world.endpoint_port, 29500);
    ck_assert_int_eq(spec.world.host, JOB_HOST_ELSEWHERE);
    load("kubeflow-trainer-cpus");
    JOB("train.py");
    ck_assert(!spec.world.has_others);
    ck_assert_int_eq(spec.n_local, 4);
}
END_TEST

/* The host files are those of the controllers' fixtures, with a second worker. */
START_TEST(the_launcher_of_mpi_pods_finds_the_workers)
{
    static const struct {
        const char *environment, *host_file, *first;
        uint32_t slots;
    } cases[] = {
        {"mpi-operator-open-mpi",
         "openmpi-with-slots-worker-0.openmpi-with-slots.tenant-a.svc slots=10\n"
         "openmpi-with-slots-worker-1.openmpi-with-slots.tenant-a.svc slots=10\n",
         "openmpi-with-slots-worker-0.openmpi-with-slots.tenant-a.svc", 10},
        {"mpi-operator-intel",
         "intelmpi-with-slots-worker-0.intelmpi-with-slots.project-x.svc:10\n"
         "intelmpi-with-slots-worker-1.intelmpi-with-slots.project-x.svc:10\n",
         "intelmpi-with-slots-worker-0.intelmpi-with-slots.project-x.svc", 10},
        {"mpi-operator-mpich",
         "mpich-with-slots-worker-0.mpich-with-slots.project-x.svc:10\n"
         "mpich-with-slots-worker-1.mpich-with-slots.project-x.svc:10\n",
         "mpich-with-slots-worker-0.mpich-with-slots.project-x.svc", 10},
        {"kubeflow-trainer-mpi",
         "trainJob-node-1-0.trainJob slots=1\ntrainJob-node-1-1.trainJob slots=1\n",
         "trainJob-node-1-0.trainJob", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        load(cases[i].environment);
        fake.host_file = cases[i].host_file;
        JOB("train.py");
        ck_assert_ptr_nonnull(spec.remote);
        ck_assert_uint_eq(spec.remote->hosts.n, 2);
        ck_assert_str_eq(spec.remote->hosts.hosts[0].name, cases[i].first);
        ck_assert_uint_eq(spec.remote->shares[1], cases[i].slots);
        ck_assert(spec.remote->way.starts_late);
        JOB("--nnodes", "1:2", "train.py"); /* the launcher is not a pod of an Indexed Job */
        ck_assert_uint_eq(spec.remote->hosts.n, 2);
        ck_assert_uint_eq(spec.world.min_nodes, 1);
    }
}
END_TEST

START_TEST(a_launcher_that_is_a_worker_is_listed_by_its_own_name)
{
    load("mpi-operator-open-mpi");
    fake.own_name = "train-launcher.train.tenant-a.svc.cluster.local";
    fake.host_file = "train-launcher.train.tenant-a.svc slots=2\n"
                     "train-launcher-2.train.tenant-a.svc slots=2\n"
                     "train.train.tenant-a.svc slots=2\n";
    JOB("train.py");
    ck_assert_str_eq(spec.remote->hosts.hosts[0].name, "train-launcher");
    ck_assert_str_eq(spec.remote->hosts.hosts[1].name, "train-launcher-2.train.tenant-a.svc");
    ck_assert_str_eq(spec.remote->hosts.hosts[2].name, "train.train.tenant-a.svc");
}
END_TEST

START_TEST(a_single_worker_of_mpi_pods_is_another_host)
{
    load("mpi-operator-open-mpi");
    fake.host_file = "openmpi-with-slots-worker-0.openmpi-with-slots.tenant-a.svc slots=10\n";
    JOB("train.py");
    ck_assert_ptr_nonnull(spec.remote);
    ck_assert_uint_eq(spec.remote->shares[0], 10);
    fake.host_file = "";
    ck_assert_int_eq(look(false), -EINVAL);
}
END_TEST

START_TEST(host_files_of_mpi_count_only_in_the_launchers_pod)
{
    static const char *const login_node[] = {"HYDRA_HOST_FILE=/home/u/hosts", NULL};
    static const char *const rank[] = {"KUBERNETES_SERVICE_HOST=10.96.0.1",
                                       "OMPI_MCA_orte_default_hostfile=/etc/mpi/hostfile",
                                       "OMPI_COMM_WORLD_RANK=1", NULL};
    fake.host_file = "n1\nn2\n";
    fake.env = login_node;
    JOB("train.py");
    ck_assert_ptr_null(spec.remote);
    fake.env = rank;
    JOB("train.py");
    ck_assert_ptr_null(spec.remote);
}
END_TEST

START_TEST(skypilot_defines_all_nodes)
{
    load("skypilot");
    JOB("-p", "8", "train.py");
    ck_assert_uint_eq(spec.world.max_nodes, 2);
    ck_assert_int_eq(spec.world.node_rank, 1);
    ck_assert_str_eq(spec.world.endpoint_host, "10.0.0.4");
    ck_assert_str_eq(spec.run_id, "sky-2026-11-20-10-00-00-000000_train_1");
    ck_assert_ptr_null(spec.world.node_name);
    load("skypilot-one-node");
    JOB("train.py");
    ck_assert(!spec.world.has_others);
}
END_TEST

START_TEST(volcanos_plugins_define_all_nodes)
{
    load("volcano");
    fake.own_name = "my-train-worker-2.my-train.default.svc.cluster.local";
    JOB("train.py");
    ck_assert_uint_eq(spec.world.max_nodes, 4);
    ck_assert_int_eq(spec.world.node_rank, 2);
    ck_assert_str_eq(spec.world.endpoint_host, "my-train-worker-0.my-train");
    ck_assert_str_eq(spec.world.node_name, "my-train-worker-2");
    ck_assert_str_eq(spec.run_id, "my-train");
    ck_assert_int_eq(spec.world.host, JOB_HOST_ELSEWHERE);
    ck_assert_ptr_null(spec.remote);
    fake.own_name = "my-train-worker-0";
    JOB("train.py");
    ck_assert_int_eq(spec.world.host, JOB_HOST_HERE);
}
END_TEST

START_TEST(a_volcano_master_precedes_its_workers)
{
    static const char *const names[] = {"t-master-0", "t-worker-0", "t-worker-1"};
    load("volcano-master");
    for (int i = 0; i < 3; i++) {
        fake.own_name = names[i];
        JOB("train.py");
        ck_assert_uint_eq(spec.world.max_nodes, 3);
        ck_assert_int_eq(spec.world.node_rank, i);
        ck_assert_str_eq(spec.world.endpoint_host, "t-master-0.t");
        ck_assert_str_eq(spec.run_id, "t");
    }
}
END_TEST

START_TEST(a_volcano_task_name_may_have_dashes)
{
    static const char *const env[] = {
        "VC_TASK_INDEX=1", "VC_GPU_NODE_HOSTS=a-b-gpu-node-0.a-b,a-b-gpu-node-1.a-b", NULL};
    fake.env = env;
    fake.own_name = "a-b-gpu-node-1";
    JOB("train.py");
    ck_assert_int_eq(spec.world.node_rank, 1);
    ck_assert_str_eq(spec.run_id, "a-b");
}
END_TEST

START_TEST(a_volcano_pod_alone_is_a_job_of_its_own)
{
    static const char *const none[] = {"VC_TASK_INDEX=1", NULL};
    static const char *const alone[] = {"VC_TASK_INDEX=0", "VC_WORKER_HOSTS=t-worker-0.t", NULL};
    static const char *const other[] = {"VC_TASK_INDEX=9",
                                        "VC_WORKER_HOSTS=t-worker-0.t,t-worker-1.t", NULL};
    fake.own_name = "t-worker-1";
    fake.env = none;
    JOB("train.py");
    ck_assert(!spec.world.has_others);
    fake.own_name = "t-worker-0";
    fake.env = alone;
    JOB("train.py");
    ck_assert(!spec.world.has_others);
    static const char *const bad[] = {"VC_TASK_INDEX=0", "VC_WORKER_HOSTS=-x,t-worker-0.t", NULL};
    fake.env = bad;
    ck_assert_int_eq(look(false), -EINVAL);
    ck_assert_str_eq(err.text, "VC_WORKER_HOSTS: '-x' is not a valid host: it begins with '-'");
    fake.own_name = "t-worker-9";
    fake.env = other;
    ck_assert_int_eq(look(false), -EINVAL);
    ck_assert_str_eq(err.text, "VC_TASK_INDEX is set, but no Volcano host list contains this pod, "
                               "'t-worker-9'; use --rdzv-endpoint and --node-rank");
}
END_TEST

START_TEST(pbs_lsf_and_grid_engine_name_hosts)
{
    load("pbs");
    fake.host_file = "n1\nn1\nn2\nn2\n";
    JOB("train.py");
    ck_assert_uint_eq(spec.remote->hosts.n, 2);
    ck_assert_uint_eq(spec.remote->shares[1], 2);
    ck_assert(!spec.remote->way.by_srun);
    load("lsf");
    JOB("train.py");
    ck_assert_uint_eq(spec.remote->hosts.n, 3);
    ck_assert_str_eq(spec.remote->hosts.hosts[0].name, "hosta");
    ck_assert_uint_eq(spec.remote->shares[0], 4);
    ck_assert_uint_eq(spec.remote->shares[2], UINT32_MAX);
    load("grid-engine");
    fake.host_file =
        "n1.cluster 4 all.q@n1.cluster UNDEFINED\nn2.cluster 4 all.q@n2.cluster <NULL>\n";
    JOB("-p", "2", "train.py");
    ck_assert_uint_eq(spec.remote->hosts.n, 2);
    ck_assert_str_eq(spec.remote->hosts.hosts[1].name, "n2.cluster");
    ck_assert_uint_eq(spec.remote->shares[1], 2);
    fake.host_file = "n1.cluster 4 all.q@n1.cluster UNDEFINED\n";
    JOB("train.py"); /* the only host is the one where we were started */
    ck_assert_ptr_null(spec.remote);
}
END_TEST

START_TEST(options_override_the_scheduler)
{
    load("lsf");
    JOB("--standalone", "train.py");
    ck_assert_ptr_null(spec.remote);
    JOB("-N", "1", "train.py");
    ck_assert_ptr_null(spec.remote);
    ck_assert_int_eq(parse((const char *[]){"torchrun", "train.py", NULL}), 0);
    ck_assert_ptr_null(spec.remote);
    load("skypilot");
    JOB("-N", "2", "--rdzv-endpoint", "h", "--rdzv-id", "j", "train.py");
    ck_assert_str_eq(spec.world.endpoint_host, "h");
}
END_TEST

START_TEST(malformed_variables_are_refused)
{
    static const struct {
        const char *const env[4];
        const char *text;
    } cases[] = {
        {{"LSB_MCPU_HOSTS=a 4 b"},
         "LSB_MCPU_HOSTS contains a host without slots, or an invalid entry"},
        {{"LSB_MCPU_HOSTS=a,b 4"},
         "LSB_MCPU_HOSTS contains a host without slots, or an invalid entry"},
        {{"LSB_MCPU_HOSTS=a x b 2"},
         "LSB_MCPU_HOSTS: invalid value 'x' for slots: expected a number"},
        {{"LSB_MCPU_HOSTS=-x 2 b 2"},
         "LSB_MCPU_HOSTS: '-x' is not a valid host: it begins with '-'"},
        {{"PBS_NODEFILE=/gone"}, "PBS_NODEFILE: cannot read '/gone': No such file or directory"},
        {{"PE_HOSTFILE=/gone"}, "PE_HOSTFILE: cannot read '/gone': No such file or directory"},
        {{"SKYPILOT_NODE_RANK=x"}, "invalid value 'x' for SKYPILOT_NODE_RANK: expected a number"},
        {{"SKYPILOT_NODE_RANK=0", "SKYPILOT_NUM_NODES=2"},
         "SKYPILOT_NODE_RANK is set, but SKYPILOT_NODE_IPS is not"},
        {{"SKYPILOT_NODE_RANK=0", "SKYPILOT_NUM_NODES=2", "SKYPILOT_NODE_IPS=\n10.0.0.1"},
         "SKYPILOT_NODE_IPS does not begin with an address"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fake.env = cases[i].env;
        ck_assert_int_eq(look(false), -EINVAL);
        ck_assert_str_eq(err.text, cases[i].text);
    }
}
END_TEST

TEST_SUITE(schedulers)
{
    Suite *suite = suite_create("managers");
    TCase *c = tcase_create("managers");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, a_pod_of_an_indexed_job_finds_the_first_pod);
    tcase_add_test(c, pods_that_may_be_lost_replace_the_coordinator);
    tcase_add_test(c, a_pod_of_a_stateful_set_finds_the_first_pod);
    tcase_add_test(c, a_pod_that_others_cannot_resolve_is_an_error);
    tcase_add_test(c, the_training_operators_variables_are_options);
    tcase_add_test(c, the_variables_of_a_train_job_are_options);
    tcase_add_test(c, the_launcher_of_mpi_pods_finds_the_workers);
    tcase_add_test(c, a_launcher_that_is_a_worker_is_listed_by_its_own_name);
    tcase_add_test(c, a_single_worker_of_mpi_pods_is_another_host);
    tcase_add_test(c, host_files_of_mpi_count_only_in_the_launchers_pod);
    tcase_add_test(c, skypilot_defines_all_nodes);
    tcase_add_test(c, volcanos_plugins_define_all_nodes);
    tcase_add_test(c, a_volcano_master_precedes_its_workers);
    tcase_add_test(c, a_volcano_task_name_may_have_dashes);
    tcase_add_test(c, a_volcano_pod_alone_is_a_job_of_its_own);
    tcase_add_test(c, pbs_lsf_and_grid_engine_name_hosts);
    tcase_add_test(c, options_override_the_scheduler);
    tcase_add_test(c, malformed_variables_are_refused);
    suite_add_tcase(suite, c);
    return suite;
}
