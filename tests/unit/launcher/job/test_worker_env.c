/* The environment that a worker gets, compared whole. */
#include "launcher/job/job_spec.h"
#include "launcher/job/worker_env.h"
#include "launcher/platform/binding.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct job_spec spec;
static struct generation_place place;
static struct rank_place rank;

static void set_up(void)
{
    spec = (struct job_spec){.n_local = 2,
                             .run_id = "job7",
                             .role = "default",
                             .omp_threads = 4,
                             .signals_to_handle = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"};
    place = (struct generation_place){
        .world_size = 2,
        .local_world_size = 2,
        .node_rank = 0,
        .n_nodes = 1,
        .generation = 0,
        .master_addr = "127.0.0.1",
        .master_port = 45629,
        .agent_store = true,
        .node_fd = 7,
        .checkpoint_fd = -1,
        .pmi_fd = -1,
        .progress_fd = -1,
    };
    rank = (struct rank_place){.rank = 1, .local_rank = 1, .error_file = "/tmp/ddp/1/error.json"};
}

/* The worker's environment, a variable a line, in its order. */
static const char *make(const char *const *parent)
{
    static char text[1 << 16];
    struct worker_env *common;
    char **env;
    ck_assert_int_eq(worker_env_create(&spec, &place, (char *const *)parent, &common, NULL), 0);
    ck_assert_int_eq(worker_env_make(common, &rank, &env, NULL), 0);
    text[0] = '\0';
    for (char **v = env; *v != NULL; v++) {
        strcat(text, *v);
        strcat(text, "\n");
    }
    free(env);
    worker_env_destroy(common);
    return text;
}

#define MAKE(...) make((const char *const[]){__VA_ARGS__, NULL})

/* How many lines begin with this? */
static int count(const char *text, const char *start)
{
    int n = 0;
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1)
        n += strncmp(line, start, strlen(start)) == 0;
    return n;
}

START_TEST(a_worker_has_the_variables_of_torchrun_and_ddprun)
{
    ck_assert_str_eq(MAKE("HOME=/root", "PATH=/bin"), "HOME=/root\n"
                                                      "PATH=/bin\n"
                                                      "RANK=1\n"
                                                      "WORLD_SIZE=2\n"
                                                      "LOCAL_RANK=1\n"
                                                      "LOCAL_WORLD_SIZE=2\n"
                                                      "GROUP_RANK=0\n"
                                                      "GROUP_WORLD_SIZE=1\n"
                                                      "ROLE_NAME=default\n"
                                                      "ROLE_RANK=1\n"
                                                      "ROLE_WORLD_SIZE=2\n"
                                                      "MASTER_ADDR=127.0.0.1\n"
                                                      "MASTER_PORT=45629\n"
                                                      "TORCHELASTIC_RESTART_COUNT=0\n"
                                                      "TORCHELASTIC_MAX_RESTARTS=0\n"
                                                      "TORCHELASTIC_RUN_ID=job7\n"
                                                      "TORCHELASTIC_USE_AGENT_STORE=True\n"
                                                      "TORCHELASTIC_ERROR_FILE="
                                                      "/tmp/ddp/1/error.json\n"
                                                      "TORCHELASTIC_SIGNALS_TO_HANDLE="
                                                      "SIGTERM,SIGINT,SIGHUP,SIGQUIT\n"
                                                      "TORCH_NCCL_ASYNC_ERROR_HANDLING=1\n"
                                                      "OMP_NUM_THREADS=4\n"
                                                      "DDP_GENERATION=0\n"
                                                      "DDP_TERM=1\n"
                                                      "DDP_NODE_FD=7\n");
}
END_TEST

START_TEST(every_place_has_its_own_values)
{
    rank = (struct rank_place){.rank = 13, .local_rank = 5, .error_file = ""};
    place = (struct generation_place){
        .world_size = 24,
        .local_world_size = 8,
        .node_rank = 1,
        .n_nodes = 3,
        .generation = 4294967295u,
        .term = INT64_MAX,
        .master_addr = "node7",
        .master_port = 65535,
        .agent_store = false,
        .node_fd = -1,
        .checkpoint_fd = -1,
        .pmi_fd = -1,
        .progress_fd = -1,
    };
    spec.role = "";
    spec.omp_threads = 0;
    ck_assert_str_eq(make((const char *const[]){NULL}),
                     "RANK=13\nWORLD_SIZE=24\nLOCAL_RANK=5\nLOCAL_WORLD_SIZE=8\nGROUP_RANK=1\n"
                     "GROUP_WORLD_SIZE=3\nROLE_NAME=\nROLE_RANK=13\nROLE_WORLD_SIZE=24\n"
                     "MASTER_ADDR=node7\nMASTER_PORT=65535\nTORCHELASTIC_RESTART_COUNT=4294967295\n"
                     "TORCHELASTIC_MAX_RESTARTS=0\nTORCHELASTIC_RUN_ID=job7\n"
                     "TORCHELASTIC_USE_AGENT_STORE=False\nTORCHELASTIC_ERROR_FILE=\n"
                     "TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT\n"
                     "TORCH_NCCL_ASYNC_ERROR_HANDLING=1\nDDP_GENERATION=4294967295\n"
                     "DDP_TERM=9223372036854775807\n");
}
END_TEST

START_TEST(the_host_of_a_relayed_store_has_a_variable)
{
    ck_assert_int_eq(count(MAKE("DDP_MASTER_HOST=outer"), "DDP_MASTER_HOST"), 0);
    place.master_host = "node7";
    const char *text = MAKE("DDP_MASTER_HOST=outer");
    ck_assert_int_eq(count(text, "DDP_MASTER_HOST="), 1);
    ck_assert_int_eq(count(text, "DDP_MASTER_HOST=node7\n"), 1);
}
END_TEST

START_TEST(inherited_values_of_these_variables_are_replaced)
{
    const char *text = MAKE("RANK=7", "WORLD_SIZE=9", "MASTER_PORT=1", "TORCHELASTIC_RUN_ID=outer",
                            "DDP_NODE_FD=3", "RANK=8", "DDP_GENERATION=5", "DDP_TERM=9",
                            "ROLE_NAME=x", "RANKS=2", "RAN=1", "MY_RANK=3", "LOCAL=1");
    ck_assert_int_eq(count(text, "RANK="), 1);
    ck_assert_int_eq(count(text, "RANK=1\n"), 1);
    ck_assert_int_eq(count(text, "WORLD_SIZE=2\n"), 1);
    ck_assert_int_eq(count(text, "WORLD_SIZE="), 1);
    ck_assert_int_eq(count(text, "MASTER_PORT="), 1);
    ck_assert_int_eq(count(text, "TORCHELASTIC_RUN_ID=job7\n"), 1);
    ck_assert_int_eq(count(text, "TORCHELASTIC_RUN_ID="), 1);
    ck_assert_int_eq(count(text, "DDP_NODE_FD="), 1);
    ck_assert_int_eq(count(text, "DDP_GENERATION="), 1);
    ck_assert_int_eq(count(text, "DDP_TERM="), 1);
    ck_assert_int_eq(count(text, "DDP_TERM=1\n"), 1);
    ck_assert_int_eq(count(text, "RANKS=2\n"), 1);
    ck_assert_int_eq(count(text, "RAN=1\n"), 1);
    ck_assert_int_eq(count(text, "MY_RANK=3\n"), 1);
    ck_assert_int_eq(count(text, "LOCAL=1\n"), 1);
}
END_TEST

START_TEST(the_descriptor_of_an_outer_ddprun_is_not_passed_on)
{
    place.node_fd = -1;
    const char *text = MAKE("DDP_NODE_FD=3", "A=b", "DDP_CHECKPOINT_FD=4",
                            "DDP_CHECKPOINT_SIGNAL=23", "DDP_PROGRESS_FD=6");
    ck_assert_int_eq(count(text, "DDP_NODE_FD"), 0);
    ck_assert_int_eq(count(text, "DDP_PROGRESS_FD"), 0);
    ck_assert_int_eq(count(text, "DDP_SCALE_"), 0);
}
END_TEST

START_TEST(files_may_outlive_a_rank)
{
    ck_assert_int_eq(count(MAKE("DDP_NODE_DIR=/outer"), "DDP_NODE_DIR"), 0);
    place.node_dir = "/run/job";
    ck_assert_int_eq(count(MAKE("DDP_NODE_DIR=/outer"), "DDP_NODE_DIR="), 1);
    ck_assert_int_eq(count(MAKE("A=b"), "DDP_NODE_DIR=/run/job\n"), 1);
}
END_TEST

START_TEST(nccls_ras_has_an_address_on_request)
{
    ck_assert_int_eq(count(MAKE("A=b"), "NCCL_RAS_ADDR"), 0);
    place.ras_port = 65535;
    ck_assert_int_eq(count(MAKE("A=b"), "NCCL_RAS_ADDR=127.0.0.1:65535\n"), 1);
    ck_assert_int_eq(count(MAKE("NCCL_RAS_ADDR=localhost:1"), "NCCL_RAS_ADDR=localhost:1\n"), 1);
    place.ras_port = 0;
}
END_TEST

START_TEST(a_worker_may_set_timers)
{
    ck_assert_int_eq(count(MAKE("TORCHELASTIC_TIMER_FILE=a"), "TORCHELASTIC_TIMER_FILE=a\n"), 1);
    place.timer_file = "/run/timers";
    const char *text = MAKE("TORCHELASTIC_TIMER_FILE=a");
    ck_assert_int_eq(count(text, "TORCHELASTIC_TIMER_FILE="), 1);
    ck_assert_int_eq(count(text, "TORCHELASTIC_TIMER_FILE=/run/timers\n"), 1);
    place.timer_file = NULL;
}
END_TEST

START_TEST(a_worker_may_report_its_steps)
{
    place.progress_fd = 6;
    const char *text = MAKE("DDP_PROGRESS_FD=9");
    ck_assert_int_eq(count(text, "DDP_PROGRESS_FD="), 1);
    ck_assert_int_eq(count(text, "DDP_PROGRESS_FD=6\n"), 1);
}
END_TEST

START_TEST(a_worker_may_keep_checkpoints_in_memory)
{
    ck_assert_int_eq(count(MAKE("DDP_MEMORY_FD=9"), "DDP_MEMORY_FD"), 0);
    place.memory_fd = 8;
    const char *text = MAKE("DDP_MEMORY_FD=9");
    ck_assert_int_eq(count(text, "DDP_MEMORY_FD="), 1);
    ck_assert_int_eq(count(text, "DDP_MEMORY_FD=8\n"), 1);
    place.memory_fd = 0;
}
END_TEST

START_TEST(an_elastic_worker_gets_the_checkpoint_variables)
{
    place.checkpoint_fd = 4;
    const char *text = MAKE("DDP_CHECKPOINT_FD=9");
    ck_assert_int_eq(count(text, "DDP_CHECKPOINT_FD="), 1);
    ck_assert_int_eq(count(text, "DDP_CHECKPOINT_FD=4\n"), 1);
    ck_assert_int_eq(count(text, "DDP_CHECKPOINT_SIGNAL=23\n"), 1); /* SIGURG */
}
END_TEST

START_TEST(the_secret_of_the_node_is_removed)
{
    const char *text = MAKE("DDP_TOKEN=0123456789abcdef", "DDP_TOKENS=x", "MY_DDP_TOKEN=y");
    ck_assert_int_eq(count(text, "0123456789abcdef"), 0);
    ck_assert_int_eq(count(text, "DDP_TOKENS=x\n"), 1);
    ck_assert_int_eq(count(text, "MY_DDP_TOKEN=y\n"), 1);
}
END_TEST

START_TEST(variables_of_other_launchers_are_removed)
{
    const char *text = MAKE("PMI_RANK=1", "PMI_FD=5", "PMIX_NAMESPACE=x", "OMPI_COMM_WORLD_SIZE=4",
                            "MV2_COMM_WORLD_RANK=0", "HYDI_CONTROL_FD=3", "HYDRA_X=1",
                            "MPI_LOCALNRANKS=2", "MPI_LOCALRANKID=1", "MPI_HOME=/usr", "PMIC=1",
                            "OMPICC=gcc", "XPMI_RANK=1", "SLURM_JOB_ID=4");
    ck_assert_int_eq(count(text, "PMI_"), 0);
    ck_assert_int_eq(count(text, "PMIX_"), 0);
    ck_assert_int_eq(count(text, "OMPI_"), 0);
    ck_assert_int_eq(count(text, "MV2_"), 0);
    ck_assert_int_eq(count(text, "HYD"), 0);
    ck_assert_int_eq(count(text, "MPI_LOCAL"), 0);
    ck_assert_int_eq(count(text, "MPI_HOME=/usr\n"), 1);
    ck_assert_int_eq(count(text, "PMIC=1\n"), 1);
    ck_assert_int_eq(count(text, "OMPICC=gcc\n"), 1);
    ck_assert_int_eq(count(text, "XPMI_RANK=1\n"), 1);
    ck_assert_int_eq(count(text, "SLURM_JOB_ID=4\n"), 1);
}
END_TEST

START_TEST(open_mpi_ranks_get_its_parameters_and_those_of_pmix)
{
    static const struct worker_variable variables[] = {
        {"PMIX_NAMESPACE", "ddp-1-0", false},
        {"OMPI_MCA_mpi_oversubscribe", "1", true},
        {"OMPI_MCA_schizo", "^orte", false},
    };
    spec.mpi = MPI_BY_PMIX;
    place.variables = variables;
    place.n_variables = sizeof variables / sizeof *variables;
    const char *text = MAKE("OMPI_MCA_btl=self,tcp", "PMIX_MCA_gds=hash", "PMIX_NAMESPACE=x",
                            "PMIX_RANK=7", "OMPI_MCA_schizo=slurm", "OMPI_MCA_orte_jobid=4",
                            "OMPI_MCA_ess=env", "OMPI_MCA_pmix=^s1", "OMPI_MCA_pmix_verbose=1",
                            "OMPI_COMM_WORLD_RANK=7", "OMPI_COMMAND=x", "PMI_RANK=1");
    static const char *const there[] = {
        "OMPI_MCA_btl=self,tcp\n",        "PMIX_MCA_gds=hash\n",
        "PMIX_NAMESPACE=ddp-1-0\n",       "PMIX_RANK=1\n",
        "OMPI_MCA_schizo=^orte\n",        "OMPI_MCA_mpi_oversubscribe=1\n",
        "OMPI_MCA_pmix_verbose=1\n",      "OMPI_COMM_WORLD_RANK=1\n",
        "OMPI_COMM_WORLD_LOCAL_RANK=1\n", "OMPI_COMM_WORLD_NODE_RANK=1\n"};
    for (size_t i = 0; i < sizeof there / sizeof *there; i++)
        ck_assert_msg(count(text, there[i]) == 1, "%s", there[i]);
    static const char *const gone[] = {"OMPI_MCA_orte", "OMPI_MCA_ess",
                                       "OMPI_MCA_pmix=", "OMPI_COMMAND", "PMI_"};
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        ck_assert_msg(count(text, gone[i]) == 0, "%s", gone[i]);
    ck_assert_int_eq(count(text, "PMIX_NAMESPACE"), 1);
    ck_assert_int_eq(count(MAKE("OMPI_MCA_mpi_oversubscribe=0"), "OMPI_MCA_mpi_oversubscribe=0\n"),
                     1);
}
END_TEST

START_TEST(values_of_the_user_are_kept)
{
    const char *text = MAKE("OMP_NUM_THREADS=9", "TORCH_NCCL_ASYNC_ERROR_HANDLING=");
    ck_assert_int_eq(count(text, "OMP_NUM_THREADS=9\n"), 1);
    ck_assert_int_eq(count(text, "OMP_NUM_THREADS="), 1);
    ck_assert_int_eq(count(text, "TORCH_NCCL_ASYNC_ERROR_HANDLING=\n"), 1);
    ck_assert_int_eq(count(text, "TORCH_NCCL_ASYNC_ERROR_HANDLING="), 1);
    spec.omp_threads = 0;
    ck_assert_int_eq(count(MAKE("OMP_NUM_THREADS=9"), "OMP_NUM_THREADS=9\n"), 1);
}
END_TEST

START_TEST(requested_options_are_passed_as_variables)
{
    spec.max_restarts = 3;
    spec.signals_to_handle = "SIGUSR1,SIGNONE";
    const char *text = MAKE("TORCHELASTIC_MAX_RESTARTS=9");
    ck_assert_int_eq(count(text, "TORCHELASTIC_MAX_RESTARTS="), 1);
    ck_assert_int_eq(count(text, "TORCHELASTIC_MAX_RESTARTS=3\n"), 1);
    ck_assert_int_eq(count(text, "TORCHELASTIC_SIGNALS_TO_HANDLE=SIGUSR1,SIGNONE\n"), 1);
}
END_TEST

START_TEST(a_virtual_local_rank_sees_one_device)
{
    static const struct {
        int local_rank;
        const char *parent, *expected;
    } cases[] = {
        {3, "A=b", "CUDA_VISIBLE_DEVICES=3\n"},
        {0, "CUDA_VISIBLE_DEVICES=4,5", "CUDA_VISIBLE_DEVICES=4\n"},
        {1, "CUDA_VISIBLE_DEVICES=4,5", "CUDA_VISIBLE_DEVICES=5\n"},
        {1, "CUDA_VISIBLE_DEVICES=4, GPU-8a1c-4 ,6", "CUDA_VISIBLE_DEVICES=GPU-8a1c-4\n"},
        {0, "CUDA_VISIBLE_DEVICES=", "CUDA_VISIBLE_DEVICES=\n"},
        {2, "CUDA_VISIBLE_DEVICES=4", "CUDA_VISIBLE_DEVICES=\n"}, /* cli.c refuses this one */
    };
    spec.virtual_local_rank = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rank.local_rank = cases[i].local_rank;
        const char *text = MAKE(cases[i].parent);
        ck_assert_int_eq(count(text, "LOCAL_RANK=0\n"), 1);
        ck_assert_int_eq(count(text, "CUDA_VISIBLE_DEVICES="), 1);
        ck_assert_msg(count(text, cases[i].expected) == 1, "%s: %s", cases[i].parent, text);
    }
    spec.virtual_local_rank = false;
    ck_assert_int_eq(count(MAKE("CUDA_VISIBLE_DEVICES=4,5"), "CUDA_VISIBLE_DEVICES=4,5\n"), 1);
}
END_TEST

START_TEST(hip_has_the_same_devices_if_ddprun_has_its_list)
{
    spec.virtual_local_rank = true;
    rank.local_rank = 1;
    const char *text = MAKE("CUDA_VISIBLE_DEVICES=4,5", "HIP_VISIBLE_DEVICES=6, 7");
    ck_assert_int_eq(count(text, "CUDA_VISIBLE_DEVICES=7\n"), 1);
    ck_assert_int_eq(count(text, "HIP_VISIBLE_DEVICES=7\n"), 1);
    ck_assert_int_eq(count(text, "CUDA_VISIBLE_DEVICES="), 1);
    ck_assert_int_eq(count(text, "HIP_VISIBLE_DEVICES="), 1);
    text = MAKE("CUDA_VISIBLE_DEVICES=4,5", "HIP_VISIBLE_DEVICES=");
    ck_assert_int_eq(count(text, "CUDA_VISIBLE_DEVICES=5\n"), 1);
    ck_assert_int_eq(count(text, "HIP_VISIBLE_DEVICES=\n"), 1);
    spec.virtual_local_rank = false;
    spec.gpus = "7,2";
    text = MAKE("HIP_VISIBLE_DEVICES=2,7,9");
    ck_assert_int_eq(count(text, "HIP_VISIBLE_DEVICES=7,2\n"), 1);
    ck_assert_int_eq(count(text, "CUDA_VISIBLE_DEVICES=7,2\n"), 1);
    ck_assert_int_eq(count(MAKE("A=b"), "HIP_VISIBLE_DEVICES"), 0);
}
END_TEST

START_TEST(ranks_see_only_the_chosen_gpus)
{
    spec.gpus = "7,2";
    const char *text = MAKE("CUDA_VISIBLE_DEVICES=2,7,9");
    ck_assert_int_eq(count(text, "CUDA_VISIBLE_DEVICES="), 1);
    ck_assert_int_eq(count(text, "CUDA_VISIBLE_DEVICES=7,2\n"), 1);
    spec.virtual_local_rank = true;
    ck_assert_int_eq(count(MAKE("CUDA_VISIBLE_DEVICES=2,7,9"), "CUDA_VISIBLE_DEVICES=2\n"), 1);
}
END_TEST

START_TEST(bound_ranks_know_the_places_of_all)
{
    struct binding binding = {.is_bound = true, .node_list = "0,1"};
    ck_assert_int_eq(count(MAKE("DDP_NUMA_NODES=5"), "DDP_NUMA_NODES="), 0); /* another job's */
    spec.binding = &binding;
    ck_assert_int_eq(count(MAKE("DDP_NUMA_NODES=5"), "DDP_NUMA_NODES=0,1\n"), 1);
    binding.is_bound = false;
    ck_assert_int_eq(count(MAKE("A=b"), "DDP_NUMA_NODES="), 0);
}
END_TEST

START_TEST(a_requested_number_of_threads_is_set)
{
    spec.omp_asked = true;
    const char *text = MAKE("OMP_NUM_THREADS=9");
    ck_assert_int_eq(count(text, "OMP_NUM_THREADS="), 1);
    ck_assert_int_eq(count(text, "OMP_NUM_THREADS=4\n"), 1);
}
END_TEST

START_TEST(odd_variables_pass_unchanged)
{
    const char *expected = "\n=\nNOTHING\nA=\nA=1\nA=2\nB=c=d\nRANK=1\n"; /* RANK has no value */
    const char *text = MAKE("", "=", "NOTHING", "A=", "A=1", "A=2", "B=c=d", "RANK");
    ck_assert_int_eq(strncmp(text, expected, strlen(expected)), 0);
    ck_assert_int_eq(count(text, "RANK\n"), 0);
}
END_TEST

START_TEST(large_environments_are_copied_completely)
{
    enum { N = 3000 };
    static char variables[N][24];
    static const char *parent[N + 1];
    for (int i = 0; i < N; i++) {
        snprintf(variables[i], sizeof variables[i], "VARIABLE_%d=%d", i, i);
        parent[i] = variables[i];
    }
    struct worker_env *common;
    char **env;
    ck_assert_int_eq(worker_env_create(&spec, &place, (char *const *)parent, &common, NULL), 0);
    ck_assert_int_eq(worker_env_make(common, &rank, &env, NULL), 0);
    for (int i = 0; i < N; i++) {
        ck_assert_str_eq(env[i], variables[i]);
        ck_assert_ptr_ne(env[i], variables[i]);
    }
    ck_assert_str_eq(env[N], "RANK=1");
    free(env);
    worker_env_destroy(common);
}
END_TEST

START_TEST(ranks_share_all_but_their_own_variables)
{
    static const char *const own[] = {
        "RANK=", "LOCAL_RANK=", "ROLE_RANK=", "TORCHELASTIC_ERROR_FILE=", "CUDA_VISIBLE_DEVICES="};
    const struct rank_place other = {.rank = 2, .local_rank = 0, .error_file = "/e"};
    char *const parent[] = {(char *)"A=b", (char *)"CUDA_VISIBLE_DEVICES=4,5", NULL};
    struct worker_env *common;
    char **a, **b;
    int n_own = 0;
    spec.virtual_local_rank = true;
    ck_assert_int_eq(worker_env_create(&spec, &place, parent, &common, NULL), 0);
    ck_assert_int_eq(worker_env_make(common, &rank, &a, NULL), 0);
    ck_assert_int_eq(worker_env_make(common, &other, &b, NULL), 0);
    for (int i = 0; a[i] != NULL; i++) {
        bool is_own = false;
        for (size_t k = 0; k < sizeof own / sizeof *own; k++)
            is_own |= strncmp(a[i], own[k], strlen(own[k])) == 0;
        ck_assert_msg((a[i] != b[i]) == is_own, "%s beside %s", a[i], b[i]);
        n_own += is_own;
    }
    ck_assert_int_eq(n_own, 5);
    free(a);
    free(b);
    worker_env_destroy(common);
    worker_env_destroy(NULL);
}
END_TEST

/* A file of the source tree, whole, in a buffer of its own. */
static char *read_source(const char *name, char *text, size_t size)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/../../%s", getenv("TEST_DATA"), name);
    FILE *in = fopen(path, "re");
    ck_assert_msg(in != NULL, "%s", path);
    text[fread(text, 1, size - 1, in)] = '\0';
    fclose(in);
    return text;
}

START_TEST(the_manual_page_has_the_variables_of_the_header_and_no_others)
{
    static char header[1 << 15], page[1 << 15];
    char name[64], entry[80];
    int n_header = 0, n_page = 0;
    read_source("include/ddp/env.h", header, sizeof header);
    read_source("man/ddprun-environment.7", page, sizeof page);
    char *schedulers = strstr(page, "\n.Sh SCHEDULER VARIABLES");
    ck_assert_ptr_nonnull(schedulers);
    *schedulers = '\0'; /* those are not in the header */
    for (const char *at = header; (at = strstr(at, "#define DDP_ENV_")) != NULL; at++) {
        if (strncmp(at, "#define DDP_ENV_H\n", 18) == 0)
            continue;
        ck_assert_int_eq(sscanf(strchr(at, '"'), "\"%60[A-Z_]\"", name), 1);
        snprintf(entry, sizeof entry, ".It Ev %s\n", name);
        ck_assert_msg(strstr(page, entry) != NULL, "%s is not in ddprun-environment(7)", name);
        n_header++;
    }
    for (const char *at = page; (at = strstr(at, "\n.It Ev ")) != NULL; at++)
        n_page++;
    ck_assert_int_eq(n_page, n_header);
    ck_assert_int_ge(n_page, 20);
}
END_TEST

START_TEST(a_standby_has_no_number_and_knows_that_it_waits)
{
    char *parent[] = {(char *)"A=b", (char *)"RANK=7", (char *)"DDP_STANDBY=1", NULL};
    struct worker_env *e;
    char **env, text[4096] = "\n";
    place.node_fd = 3;
    place.node_dir = "/run/job";
    ck_assert_int_eq(worker_env_create(&spec, &place, parent, &e, NULL), 0);
    ck_assert_int_eq(worker_env_make_standby(e, 12345, &env, NULL), 0);
    for (char **v = env; *v != NULL; v++) {
        strcat(text, *v);
        strcat(text, "\n");
    }
    ck_assert_ptr_nonnull(strstr(text, "\nA=b\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nDDP_STANDBY=12345\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nDDP_NODE_FD=3\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nDDP_NODE_DIR=/run/job\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nLOCAL_WORLD_SIZE="));
    static const char *const own[] = {"RANK", "LOCAL_RANK", "ROLE_RANK", "TORCHELASTIC_ERROR_FILE"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        char line[64];
        snprintf(line, sizeof line, "\n%s=", own[i]);
        ck_assert_msg(strstr(text, line) == NULL, "%s", own[i]);
    }
    free(env);
    worker_env_destroy(e);
    ck_assert_int_eq(count(MAKE("DDP_STANDBY=1"), "DDP_STANDBY"), 0); /* a rank is none */
}
END_TEST

TEST_SUITE(worker_env)
{
    Suite *suite = suite_create("worker_env");
    TCase *c = tcase_create("worker_env");
    tcase_add_checked_fixture(c, set_up, NULL);
    tcase_add_test(c, a_worker_has_the_variables_of_torchrun_and_ddprun);
    tcase_add_test(c, every_place_has_its_own_values);
    tcase_add_test(c, the_host_of_a_relayed_store_has_a_variable);
    tcase_add_test(c, inherited_values_of_these_variables_are_replaced);
    tcase_add_test(c, the_descriptor_of_an_outer_ddprun_is_not_passed_on);
    tcase_add_test(c, nccls_ras_has_an_address_on_request);
    tcase_add_test(c, a_worker_may_set_timers);
    tcase_add_test(c, a_worker_may_report_its_steps);
    tcase_add_test(c, a_worker_may_keep_checkpoints_in_memory);
    tcase_add_test(c, an_elastic_worker_gets_the_checkpoint_variables);
    tcase_add_test(c, the_secret_of_the_node_is_removed);
    tcase_add_test(c, variables_of_other_launchers_are_removed);
    tcase_add_test(c, open_mpi_ranks_get_its_parameters_and_those_of_pmix);
    tcase_add_test(c, values_of_the_user_are_kept);
    tcase_add_test(c, requested_options_are_passed_as_variables);
    tcase_add_test(c, a_virtual_local_rank_sees_one_device);
    tcase_add_test(c, hip_has_the_same_devices_if_ddprun_has_its_list);
    tcase_add_test(c, ranks_see_only_the_chosen_gpus);
    tcase_add_test(c, bound_ranks_know_the_places_of_all);
    tcase_add_test(c, a_requested_number_of_threads_is_set);
    tcase_add_test(c, odd_variables_pass_unchanged);
    tcase_add_test(c, large_environments_are_copied_completely);
    tcase_add_test(c, ranks_share_all_but_their_own_variables);
    tcase_add_test(c, the_manual_page_has_the_variables_of_the_header_and_no_others);
    tcase_add_test(c, files_may_outlive_a_rank);
    tcase_add_test(c, a_standby_has_no_number_and_knows_that_it_waits);
    suite_add_tcase(suite, c);
    return suite;
}
