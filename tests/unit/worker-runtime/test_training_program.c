/* Runs the training program of the design, started by hand, and compares what it learned. */
#include "tests/support/ranks.h"
#include <check.h>
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

static void be_program(int rank, int n, unsigned job)
{
    char path[PATH_MAX];
    if (n > 0)
        ranks_set_environment(rank, n, job);
    setenv("TRAINING_NET_OUT", out_path(rank, path), 1);
    const char *program = getenv("TRAINING_PROGRAM");
    execl(program, program, (char *)NULL);
    perror(program);
    _exit(127);
}

/* n == 0: one process with nothing in its environment */
static void run_program(int n)
{
    pid_t pid[N_RANKS];
    int n_processes = n > 0 ? n : 1;
    unsigned job = ranks_new_job();
    for (int rank = 0; rank < n_processes; rank++) {
        pid[rank] = fork();
        ck_assert_int_ge(pid[rank], 0);
        if (pid[rank] == 0)
            be_program(rank, n, job);
    }
    for (int rank = 0; rank < n_processes; rank++) {
        int status;
        ck_assert_int_eq(waitpid(pid[rank], &status, 0), pid[rank]);
        ck_assert_msg(status == 0, "rank %d of %d ended with wait status %#x", rank, n,
                      (unsigned)status);
    }
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
    run_program(0);
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

int main(void)
{
    if (mkdtemp(directory) == NULL) {
        perror(directory);
        return 1;
    }
    Suite *s = suite_create("training program");
    TCase *t = tcase_create("by hand");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, the_result_is_the_same_on_1_2_and_4_ranks);
    tcase_add_test(t, two_runs_give_the_same_bits);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    rmdir(directory); /* empty unless a test failed: then its files are there to be looked at */
    return failed != 0;
}
