#include "common/error.h"
#include "tests/support/suite.h"
#include "worker-runtime/join/env.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* An environment as a launcher passes it, "NAME=value" by "NAME=value". */
static const char *get(void *arg, const char *name)
{
    const char *const *lines = arg;
    size_t length = strlen(name);
    for (; *lines != NULL; lines++)
        if (strncmp(*lines, name, length) == 0 && (*lines)[length] == '=')
            return *lines + length + 1;
    return NULL;
}

#define ENV(...) ((const char *const[]){__VA_ARGS__, NULL})
#define TORCHRUN                                                                                   \
    "RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=3", "LOCAL_WORLD_SIZE=4", "GROUP_RANK=0",                \
        "GROUP_WORLD_SIZE=1", "ROLE_RANK=3", "ROLE_WORLD_SIZE=4", "MASTER_ADDR=node1",             \
        "MASTER_PORT=29500", "TORCHELASTIC_RESTART_COUNT=2", "TORCHELASTIC_RUN_ID=job7"
#define OPEN_MPI                                                                                   \
    "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1",            \
        "OMPI_COMM_WORLD_LOCAL_SIZE=2", "OMPI_COMM_WORLD_NODE_RANK=1", "OMPI_UNIVERSE_SIZE=2",     \
        "PMIX_NAMESPACE=1245511681", "PMIX_RANK=1"
#define HYDRA                                                                                      \
    "PMI_FD=8", "PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALNRANKS=2", "MPI_LOCALRANKID=1",              \
        "HYDI_CONTROL_FD=7"
#define SRUN                                                                                       \
    "SLURM_JOB_ID=812", "SLURM_STEP_ID=0", "SLURM_PROCID=2", "SLURM_LOCALID=2", "SLURM_NODEID=0",  \
        "SLURM_NTASKS=3", "SLURM_STEP_NUM_TASKS=3", "SLURM_STEP_NUM_NODES=1",                      \
        "SLURM_STEP_TASKS_PER_NODE=3"

static const struct {
    const char *title;
    const char *const *env;
    const char *starter;
    int rank, world_size;
    uint32_t generation;
    int node_fd, pmi_fd;
    const char *job;
} good[] = {
    {"nothing", ENV("HOME=/root"), "nothing", 0, 1, 0, -1, -1, ""},
    {"torchrun", ENV(TORCHRUN), "ddprun or torchrun", 3, 4, 2, -1, -1, "run job7 node1:29500 2"},
    {"torchrun, a store per attempt", ENV(TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE=False"),
     "ddprun or torchrun", 3, 4, 0, -1, -1, "run job7 node1:29500 0"},
    {"ddprun", ENV(TORCHRUN, "DDP_NODE_FD=9", "DDP_GENERATION=5"), "ddprun or torchrun", 3, 4, 5, 9,
     -1, "run job7 node1:29500 5"},
    {"Open MPI", ENV(OPEN_MPI), "Open MPI", 1, 2, 0, -1, -1, "pmix 1245511681"},
    {"hydra", ENV(HYDRA), "hydra", 1, 2, 0, -1, 8, ""},
    {"srun", ENV(SRUN), "srun", 2, 3, 0, -1, -1, "slurm 812.0 "},
    {"by hand", ENV("RANK=1", "WORLD_SIZE=2"), "by hand", 1, 2, 0, -1, -1, ""},
    {"by hand with a store", ENV("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=::1", "MASTER_PORT=4000"),
     "by hand", 1, 2, 0, -1, -1, "run  ::1:4000 0"},
    {"by hand with a name", ENV("RANK=1", "WORLD_SIZE=2", "DDP_JOB_ID=mine", "MASTER_PORT=1"),
     "by hand", 1, 2, 0, -1, -1, "name mine"},
    {"by hand with local ranks", ENV("RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1"), "by hand", 1, 2, 0,
     -1, -1, ""},
    {"torchrun under mpirun", ENV(TORCHRUN, OPEN_MPI), "ddprun or torchrun", 3, 4, 2, -1, -1,
     "run job7 node1:29500 2"},
    {"mpirun by way of srun", ENV(OPEN_MPI, SRUN), "Open MPI", 1, 2, 0, -1, -1, "pmix 1245511681"},
    {"hydra by way of srun", ENV(HYDRA, SRUN), "hydra", 1, 2, 0, -1, 8, ""},
    {"RANK set from mpirun's", ENV(OPEN_MPI, "RANK=1", "WORLD_SIZE=2"), "Open MPI", 1, 2, 0, -1, -1,
     "pmix 1245511681"},
    {"a batch script, no step", ENV("SLURM_JOB_ID=812", "SLURM_PROCID=0", "SLURM_NTASKS=8"),
     "nothing", 0, 1, 0, -1, -1, ""},
    {"by hand in a batch script", ENV("RANK=1", "WORLD_SIZE=2", SRUN), "by hand", 1, 2, 0, -1, -1,
     ""},
    {"empty variables are not set", ENV("RANK=", "WORLD_SIZE=", "DDP_NODE_FD="), "nothing", 0, 1, 0,
     -1, -1, ""},
};

START_TEST(the_environment_of_each_launcher_is_read)
{
    struct env_who who;
    struct co_error err = {0};
    int code = env_read(get, (void *)good[_i].env, &who, &err);
    ck_assert_msg(code == 0, "%s: %s", good[_i].title, err.text);
    ck_assert_str_eq(who.starter, good[_i].starter);
    ck_assert_int_eq(who.rank, good[_i].rank);
    ck_assert_int_eq(who.local_rank, good[_i].rank);
    ck_assert_int_eq(who.world_size, good[_i].world_size);
    ck_assert_int_eq(who.local_world_size, good[_i].world_size);
    ck_assert_int_eq(who.n_nodes, 1);
    ck_assert_uint_eq(who.generation, good[_i].generation);
    ck_assert_int_eq(who.node_fd, good[_i].node_fd);
    ck_assert_int_eq(who.pmi_fd, good[_i].pmi_fd);
    ck_assert_str_eq(who.job, good[_i].job);
}
END_TEST

#define LONG_NAME_64 "0123456789012345678901234567890123456789012345678901234567890123"
#define LONG_NAME_512                                                                              \
    LONG_NAME_64 LONG_NAME_64 LONG_NAME_64 LONG_NAME_64 LONG_NAME_64 LONG_NAME_64 LONG_NAME_64     \
        LONG_NAME_64

static const struct {
    const char *const *env;
    int code;
    const char *text; /* part of the message */
} bad[] = {
    {ENV("RANK=1"), -ENOEXEC, "RANK but no WORLD_SIZE"},
    {ENV("WORLD_SIZE=2"), -ENOEXEC, "WORLD_SIZE but no RANK"},
    {ENV("RANK=2", "WORLD_SIZE=2"), -ENOEXEC,
     "invalid value '2' for RANK: expected a number from 0 to 1"},
    {ENV("RANK=-1", "WORLD_SIZE=2"), -ENOEXEC, "invalid value '-1' for RANK: expected a number"},
    {ENV("RANK=one", "WORLD_SIZE=2"), -ENOEXEC, "invalid value 'one' for RANK: expected a number"},
    {ENV("RANK=0", "WORLD_SIZE=0"), -ENOEXEC,
     "invalid value '0' for WORLD_SIZE: expected a number"},
    {ENV("RANK=0", "WORLD_SIZE=99999999999"), -ENOEXEC,
     "invalid value '99999999999' for WORLD_SIZE: expected a number"},
    {ENV("RANK=0", "WORLD_SIZE=2 "), -ENOEXEC,
     "invalid value '2 ' for WORLD_SIZE: expected a number"},
    {ENV("RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "GROUP_WORLD_SIZE=1"),
     -ENOEXEC, "GROUP_WORLD_SIZE is 1, but LOCAL_WORLD_SIZE gives only 2 of 4 ranks"},
    {ENV("RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "GROUP_WORLD_SIZE=2",
         "GROUP_RANK=2"),
     -ENOEXEC, "node index 2 is not less than the number of nodes 2"},
    {ENV("RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "GROUP_WORLD_SIZE=5"),
     -ENOEXEC, "GROUP_WORLD_SIZE is 5, which exceeds the number of ranks"},
    {ENV("RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "DDP_NODE_RANK=x"),
     -ENOEXEC, "invalid value 'x' for DDP_NODE_RANK: expected a number"},
    {ENV("RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4"), -ENOEXEC,
     "invalid value '4' for LOCAL_WORLD_SIZE: expected a number from 1 to 2"},
    {ENV("RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2"), -ENOEXEC,
     "invalid value '2' for LOCAL_RANK: expected less than LOCAL_WORLD_SIZE (2)"},
    {ENV("RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2"), -ENOEXEC,
     "RANK is 1 but LOCAL_RANK is 0"},
    {ENV("RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=0"), -ENOEXEC,
     "set LOCAL_WORLD_SIZE to the number of ranks"},
    {ENV(TORCHRUN, "DDP_NODE_FD=x"), -ENOEXEC,
     "invalid value 'x' for DDP_NODE_FD: expected a number"},
    {ENV(TORCHRUN, "DDP_GENERATION=-3"), -ENOEXEC,
     "invalid value '-3' for DDP_GENERATION: expected a number"},
    {ENV("TORCHELASTIC_RESTART_COUNT=no"), -ENOEXEC,
     "invalid value 'no' for TORCHELASTIC_RESTART_COUNT"},
    {ENV("RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "GROUP_WORLD_SIZE=2"),
     -ENOEXEC, "GROUP_WORLD_SIZE is 2, but all 2 ranks"},
    {ENV("OMPI_COMM_WORLD_RANK=1"), -ENOEXEC, "OMPI_COMM_WORLD_RANK but no OMPI_COMM_WORLD_SIZE"},
    {ENV(OPEN_MPI, "RANK=0", "WORLD_SIZE=2"), -ENOEXEC,
     "RANK and WORLD_SIZE give rank 0 of 2, OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE give "
     "rank "
     "1"},
    {ENV(HYDRA, "WORLD_SIZE=2"), -ENOEXEC, "WORLD_SIZE but no RANK"},
    {ENV("SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=7", "SLURM_LOCALID=0",
         "SLURM_NODEID=9", "SLURM_STEP_TASKS_PER_NODE=2(x3),1"),
     -ENOEXEC, "expected an entry for node 9"},
    {ENV("SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_LOCALID=0",
         "SLURM_STEP_TASKS_PER_NODE=2(y3"),
     -ENOEXEC, "invalid value '2(y3' for SLURM_STEP_TASKS_PER_NODE"},
    {ENV("RANK=0", "WORLD_SIZE=2", "DDP_JOB_ID=" LONG_NAME_512), -ENOEXEC, "too long"},
};

START_TEST(missing_or_conflicting_variables_are_named)
{
    struct env_who who;
    struct co_error err = {0};
    int code = env_read(get, (void *)bad[_i].env, &who, &err);
    ck_assert_msg(code == bad[_i].code, "case %d: %d: %s", _i, code, err.text);
    ck_assert_msg(strstr(err.text, bad[_i].text) != NULL, "case %d: %s", _i, err.text);
}
END_TEST

/* Several nodes: rank, local rank, ranks on this node, this node and how many there are. */
static const struct {
    const char *const *env;
    int rank, local_rank, local_world_size, node_rank, n_nodes;
    const char *job, *store_job;
} spread[] = {
    {ENV("RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4", "GROUP_RANK=1",
         "GROUP_WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=1"),
     5, 1, 4, 1, 2, "run  a:1 0 node 1", ""},
    {ENV("RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "DDP_JOB_ID=j"), 1, 1, 2,
     -1, 0, "name j", "name j"},
    {ENV("RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "DDP_JOB_ID=j",
         "DDP_NODE_RANK=3"),
     1, 1, 2, 3, 0, "name j node 3", "name j"},
    {ENV("RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "GROUP_RANK=1",
         "DDP_JOB_ID=j"),
     1, 0, 1, 1, 0, "name j node 1", "name j"},
    {ENV("OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=1",
         "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=7"),
     3, 1, 2, -1, 0, "pmix 7", "pmix 7"},
    {ENV("PMI_RANK=1", "PMI_SIZE=4", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2"), 1, 1, 2, -1, 0, "",
     ""},
    {ENV("SLURM_JOB_ID=8", "SLURM_STEP_ID=0", "SLURM_PROCID=6", "SLURM_STEP_NUM_TASKS=7",
         "SLURM_LOCALID=0", "SLURM_NODEID=3", "SLURM_STEP_TASKS_PER_NODE=2(x3),1",
         "SLURM_STEP_NUM_NODES=4"),
     6, 0, 1, 3, 4, "slurm 8.0  node 3", "slurm 8.0 "},
};

START_TEST(environments_of_several_nodes_are_read)
{
    struct env_who who;
    struct co_error err = {0};
    int code = env_read(get, (void *)spread[_i].env, &who, &err);
    ck_assert_msg(code == 0, "case %d: %s", _i, err.text);
    ck_assert_int_eq(who.rank, spread[_i].rank);
    ck_assert_int_eq(who.local_rank, spread[_i].local_rank);
    ck_assert_int_eq(who.local_world_size, spread[_i].local_world_size);
    ck_assert_int_eq(who.node_rank, spread[_i].node_rank);
    ck_assert_int_eq(who.n_nodes, spread[_i].n_nodes);
    ck_assert_str_eq(who.job, spread[_i].job);
    ck_assert_str_eq(who.store_job, spread[_i].store_job);
}
END_TEST

START_TEST(the_memory_node_of_a_rank_is_found_in_the_list)
{
    static const struct {
        const char *list;
        int local_rank, node;
    } rows[] = {
        {NULL, 0, -1},
        {"", 0, -1},
        {"3", 0, 3},
        {"3", 1, -1},
        {"0,0,1,1", 1, 0},
        {"0,0,1,1", 3, 1},
        {"0,1", 2, -1},
        {"-1,0", 0, -1},
        {"-1,0", 1, 0},
        {"x,1", 0, -1},
        {"x,1", 1, 1},
        {",1", 0, -1},
        {",1", 1, 1},
        {"1 ,2", 0, -1},
        {"1,", 1, -1},
        {"99999999999", 0, -1},
        {"000000000001", 0, -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ck_assert_int_eq(env_memory_node(rows[i].list, rows[i].local_rank), rows[i].node);
}
END_TEST

TEST_SUITE(env)
{
    Suite *suite = suite_create("env");
    TCase *tcase = tcase_create("all");
    tcase_add_loop_test(tcase, the_environment_of_each_launcher_is_read, 0,
                        sizeof good / sizeof *good);
    tcase_add_loop_test(tcase, environments_of_several_nodes_are_read, 0,
                        sizeof spread / sizeof *spread);
    tcase_add_loop_test(tcase, missing_or_conflicting_variables_are_named, 0,
                        sizeof bad / sizeof *bad);
    tcase_add_test(tcase, the_memory_node_of_a_rank_is_found_in_the_list);
    suite_add_tcase(suite, tcase);
    return suite;
}
