/* Runs the training program of the design, started by hand, and compares what it learned. */
#include "tests/unit/worker-runtime/ranks.h"

#include <check.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_PARAMS 31
#define N_RANKS  4

static char directory[] = "/tmp/test_training_program.XXXXXX";

static const char *out_path(int rank, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/%d", directory, rank);
    return path;
}

static int be_program(int rank, void *arg)
{
    char path[PATH_MAX];
    const bool *is_by_hand = arg;
    if (!*is_by_hand) {
        unsetenv("RANK");
        unsetenv("WORLD_SIZE");
        unsetenv("DDP_JOB_ID");
    }
    setenv("TRAINING_NET_OUT", out_path(rank, path), 1);
    const char *program = getenv("TRAINING_PROGRAM");
    execl(program, program, (char *)NULL);
    perror(program);
    return 127;
}

static void run_program(int n)
{
    struct ranks r;
    ranks_start(&r, n, be_program, &(bool){true});
    ranks_expect_success(&r);
}

/* With nothing in its environment. */
static void run_program_alone(void)
{
    struct ranks r;
    ranks_start(&r, 1, be_program, &(bool){false});
    ranks_expect_success(&r);
}

static void read_params(int rank, double params[N_PARAMS])
{
    char path[PATH_MAX];
    FILE *in = fopen(out_path(rank, path), "re");
    ck_assert_ptr_nonnull(in);
    for (int k = 0; k < N_PARAMS; k++)
        ck_assert_int_eq(fscanf(in, "%la", &params[k]), 1);
    fclose(in);
    ck_assert_int_eq(unlink(path), 0);
}

START_TEST(the_result_is_the_same_on_1_2_and_4_ranks)
{
    double alone[N_PARAMS], params[N_PARAMS], of_rank_0[N_PARAMS];
    run_program_alone();
    read_params(0, alone);
    ck_assert_double_gt(alone[N_PARAMS - 1], 1.0); /* the bias came most of the way to 2.5 */
    for (int n = 1; n <= N_RANKS; n *= 2) {
        run_program(n);
        for (int rank = 0; rank < n; rank++) {
            read_params(rank, params);
            if (rank == 0)
                memcpy(of_rank_0, params, sizeof(params));
            ck_assert_mem_eq(params, of_rank_0, sizeof(params));
            for (int k = 0; k < N_PARAMS; k++)
                ck_assert_double_lt(fabs(params[k] - alone[k]), 1e-9 * (1 + fabs(alone[k])));
        }
    }
}
END_TEST

START_TEST(two_runs_give_the_same_bits)
{
    double first[N_PARAMS], second[N_PARAMS], ignored[N_PARAMS];
    run_program(2);
    read_params(0, first);
    read_params(1, ignored);
    run_program(2);
    read_params(0, second);
    read_params(1, ignored);
    ck_assert_mem_eq(first, second, sizeof(first));
}
END_TEST

static void make_directory(void)
{
    ck_assert_msg(getenv("TRAINING_PROGRAM") != NULL,
                  "TRAINING_PROGRAM must name the program to test");
    ck_assert_msg(mkdtemp(directory) != NULL, "%s: %s", directory, strerror(errno));
}

static void remove_directory(void)
{
    rmdir(directory); /* empty unless a test failed: then its files are kept */
}

TEST_SUITE(training_program)
{
    Suite *s = suite_create("training program");
    TCase *t = tcase_create("by hand");
    tcase_set_timeout(t, 60);
    tcase_add_unchecked_fixture(t, make_directory, remove_directory);
    tcase_add_test(t, the_result_is_the_same_on_1_2_and_4_ranks);
    tcase_add_test(t, two_runs_give_the_same_bits);
    suite_add_tcase(s, t);
    return s;
}
