#include "ranks.h"

#include <check.h>
#include <ddp/ddp.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEADLINE_MS 30000 /* of joins and collectives: a hang ends as a failed test */

unsigned ranks_new_job(void)
{
    static unsigned n_jobs;
    return ++n_jobs;
}

void ranks_set_environment(int rank, int n, unsigned job)
{
    char text[64];
    snprintf(text, sizeof(text), "%d", rank);
    setenv("RANK", text, 1);
    snprintf(text, sizeof(text), "%d", n);
    setenv("WORLD_SIZE", text, 1);
    snprintf(text, sizeof(text), "test-%d-%u", (int)getppid(), job);
    setenv("DDP_JOB", text, 1);
}

static _Noreturn void be_rank(int rank, int n, unsigned job,
                              void (*body)(struct ddp_group *g, void *arg), void *arg)
{
    struct ddp_group *g = NULL;
    ranks_set_environment(rank, n, job);
    rank_expect(ddp_init(&(struct ddp_init_opts){DEADLINE_MS, DEADLINE_MS}, &g) == 0);
    rank_expect(ddp_rank(g) == rank && ddp_world_size(g) == n);
    body(g, arg);
    ddp_finalize(g);
    exit(0); /* not _exit(): the leak checker speaks at exit */
}

void ranks_run(int n, void (*body)(struct ddp_group *g, void *arg), void *arg, int *ret_status)
{
    pid_t pid[RANKS_MAX];
    unsigned job = ranks_new_job();
    ck_assert_int_le(n, RANKS_MAX);
    for (int rank = 0; rank < n; rank++) {
        pid[rank] = fork();
        ck_assert_int_ge(pid[rank], 0);
        if (pid[rank] == 0)
            be_rank(rank, n, job, body, arg);
    }
    for (int rank = 0; rank < n; rank++) {
        int status;
        ck_assert_int_eq(waitpid(pid[rank], &status, 0), pid[rank]);
        if (ret_status != NULL)
            ret_status[rank] = status;
        else
            ck_assert_msg(status == 0, "rank %d of %d ended with wait status %#x", rank, n,
                          (unsigned)status);
    }
}
