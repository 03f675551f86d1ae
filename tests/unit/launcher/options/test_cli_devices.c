/* The command line's part about devices and CPUs. */
#include "common/error.h"
#include "launcher/job/job_spec.h"
#include "launcher/options/cli.h"
#include "tests/support/cli_words.h"
#include "tests/support/fake_host_env.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct fake_host_env fake;
static struct host_env world;
static struct job_spec spec;
static struct co_error err;

static void set_up(void)
{
    fake = fake_host_env_usual;
    fake.n_gpus = 8;
    world = fake_host_env_make(&fake);
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

#define PARSE(...) parse((const char *[]){__VA_ARGS__, "train.py", NULL})
#define JOB(...)   ck_assert_msg(PARSE(__VA_ARGS__) == 0, "%s", err.text)
#define REFUSED(message, ...)                                                                      \
    do {                                                                                           \
        ck_assert_int_eq(PARSE(__VA_ARGS__), -EINVAL);                                             \
        ck_assert_str_eq(err.text, message);                                                       \
    } while (0)

#define WITH_ENV(...)                                                                              \
    fake.env = (const char *[])                                                                    \
    {                                                                                              \
        "PATH=/usr/bin", __VA_ARGS__, NULL                                                         \
    }

START_TEST(each_named_gpu_has_a_rank)
{
    JOB("ddprun", "--gpus", "2,4,7");
    ck_assert_str_eq(spec.gpus, "2,4,7");
    ck_assert_int_eq(spec.n_local, 3);
    JOB("ddprun", "--gpus", "5, 0", "-p", "gpu");
    ck_assert_int_eq(spec.n_local, 2);
    JOB("ddprun", "--gpus=1,2,3", "-p", "auto");
    ck_assert_int_eq(spec.n_local, 3);
    JOB("ddprun", "--gpus=1,2,3", "-n", "2");
    ck_assert_int_eq(spec.n_local, 2);
    JOB("torchrun", "--gpus=1,2,3");
    ck_assert_int_eq(spec.n_local, 3);
    JOB("ddprun");
    ck_assert_ptr_null(spec.gpus);
    ck_assert_int_eq(spec.n_local, 8);
}
END_TEST

START_TEST(missing_gpus_are_refused)
{
    REFUSED("invalid value '2,8' for --gpus: no GPU '8'; this node has 8 GPUs, and their numbers "
            "start at 0",
            "ddprun", "--gpus", "2,8");
    REFUSED("invalid value '' for --gpus: no GPU ''; this node has 8 GPUs, and their numbers start "
            "at 0",
            "ddprun", "--gpus=");
    REFUSED("invalid value '1,,2' for --gpus: no GPU ''; this node has 8 GPUs, and their numbers "
            "start at 0",
            "ddprun", "--gpus", "1,,2");
    REFUSED("invalid value 'a' for --gpus: no GPU 'a'; this node has 8 GPUs, and their numbers "
            "start at 0",
            "ddprun", "--gpus", "a");
    REFUSED("invalid value 'GPU-1 2' for --gpus: no GPU 'GPU-1 2'; this node has 8 GPUs, and their "
            "numbers start at 0",
            "ddprun", "--gpus", "GPU-1 2");
    REFUSED("invalid value '1,2,1' for --gpus: a GPU is listed twice", "ddprun", "--gpus", "1,2,1");
    REFUSED("--gpus 1,2: 2 GPUs for 3 ranks; list at least one GPU per rank", "ddprun", "-n", "3",
            "--gpus", "1,2");
    fake.n_gpus = 1;
    REFUSED("invalid value '1' for --gpus: no GPU '1'; this node has 1 GPU, and their numbers "
            "start at 0",
            "ddprun", "--gpus", "1");
}
END_TEST

START_TEST(gpus_outside_of_the_allocation_are_refused)
{
    WITH_ENV("CUDA_VISIBLE_DEVICES=4, 5,GPU-ab-12");
    fake.n_gpus = 3; /* what is visible */
    JOB("ddprun", "--gpus", "5,4");
    ck_assert_str_eq(spec.gpus, "5,4");
    JOB("ddprun", "--gpus", "GPU-ab-12");
    REFUSED("--gpus: GPU '0' is not in CUDA_VISIBLE_DEVICES=4, 5,GPU-ab-12", "ddprun", "--gpus",
            "0");
    REFUSED("--gpus: GPU 'GPU-ab' is not in CUDA_VISIBLE_DEVICES=4, 5,GPU-ab-12", "ddprun",
            "--gpus", "GPU-ab");
}
END_TEST

START_TEST(a_virtual_local_rank_has_an_entry)
{
    WITH_ENV("CUDA_VISIBLE_DEVICES=3,4");
    REFUSED("--virtual-local-rank: CUDA_VISIBLE_DEVICES has 2 entries for 3 ranks; set at least "
            "one entry per rank",
            "ddprun", "-n", "3", "--virtual-local-rank");
    WITH_ENV("CUDA_VISIBLE_DEVICES=3,4", "HIP_VISIBLE_DEVICES=4");
    REFUSED("--virtual-local-rank: HIP_VISIBLE_DEVICES has 1 entries for 2 ranks; set at least one "
            "entry per rank",
            "ddprun", "-n", "2", "--virtual-local-rank");
    REFUSED("--gpus: GPU '3' is not in HIP_VISIBLE_DEVICES=4", "ddprun", "--gpus", "3");
    JOB("ddprun", "--virtual-local-rank", "--gpus", "4");
    ck_assert(spec.virtual_local_rank);
    ck_assert_str_eq(spec.gpus, "4");
}
END_TEST

START_TEST(torchruns_names_of_bindings_are_accepted)
{
    static const struct {
        const char *option, *word;
        enum placement_bind bind;
    } cases[] = {
        {"--bind-to", "none", PLACEMENT_NONE},
        {"--bind-to", "core", PLACEMENT_CORE},
        {"--bind-to", "cache", PLACEMENT_CACHE},
        {"--bind-to", "numa", PLACEMENT_NUMA},
        {"--bind-to", "socket", PLACEMENT_SOCKET},
        {"--numa-binding", "exclusive", PLACEMENT_CORE},
        {"--numa_binding", "core-complex", PLACEMENT_CACHE},
        {"--numa-binding", "node", PLACEMENT_NUMA},
        {"--numa-binding", "socket", PLACEMENT_SOCKET},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        JOB("torchrun", cases[i].option, cases[i].word);
        ck_assert_int_eq(spec.bind, cases[i].bind);
        ck_assert(!spec.report_bindings);
    }
    JOB("ddprun", "--bind-to", "numa", "--numa-binding", "node", "--report-bindings");
    ck_assert_int_eq(spec.bind, PLACEMENT_NUMA);
    ck_assert(spec.report_bindings);
    JOB("ddprun");
    ck_assert_int_eq(spec.bind, PLACEMENT_NONE);
}
END_TEST

TEST_SUITE(cli_devices)
{
    Suite *suite = suite_create("cli_devices");
    TCase *c = tcase_create("cli_devices");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, each_named_gpu_has_a_rank);
    tcase_add_test(c, missing_gpus_are_refused);
    tcase_add_test(c, gpus_outside_of_the_allocation_are_refused);
    tcase_add_test(c, a_virtual_local_rank_has_an_entry);
    tcase_add_test(c, torchruns_names_of_bindings_are_accepted);
    suite_add_tcase(suite, c);
    return suite;
}
