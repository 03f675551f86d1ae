/* plain_rank - ranks without a ddp_model, as those of a framework: they average by a collective of
 * their own, report steps with ddp_step_done(), and pass on their state themselves:
 *
 *     plain_rank STEPS MS [HANG_AT]
 *
 * They write the lines of recovery_rank.c. Before step HANG_AT rank 1 of the first generation stops
 * working. Where RECOVERY_UNTIL names a file, no step begins once that exists. */
#include <ddp/ddp.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct state {
    uint64_t step;
    double weight;
};

struct job {
    uint64_t n_steps, hang_at;
    long step_ms;
    struct state state;
};

static int put(const struct job *job, struct ddp_group *g)
{
    char line[192];
    uint64_t bits;
    memcpy(&bits, &job->state.weight, sizeof bits);
    int n = snprintf(
        line, sizeof line,
        "step %" PRIu64 " %016" PRIx64 " 0 generation %" PRIu64 " pid %d rank %d world %d took 0\n",
        job->state.step, bits, ddp_generation(g), getpid(), ddp_rank(g), ddp_world_size(g));
    return write(STDOUT_FILENO, line, (size_t)n) == n ? 0 : -1;
}

/* The lowest rank with the most steps has what all continue with. */
static int share(struct job *job, struct ddp_group *g)
{
    uint64_t most;
    int rc = ddp_all_reduce(g, &job->state.step, &most, 1, DDP_UINT64, DDP_MAX, NULL);
    int32_t source = rc == 0 && job->state.step == most ? ddp_rank(g) : INT32_MAX;
    if (rc == 0)
        rc = ddp_all_reduce(g, &source, &source, 1, DDP_INT32, DDP_MIN, NULL);
    struct state theirs = job->state;
    if (rc == 0)
        rc = ddp_broadcast_bytes(g, &theirs, sizeof theirs, source);
    if (rc == 0)
        job->state = theirs;
    return rc;
}

static int step(struct job *job, struct ddp_group *g)
{
    const struct timespec t = {.tv_nsec = job->step_ms * 1000000};
    double gradient = job->state.weight - 1.0 / (1.0 + ddp_rank(g));
    if (job->state.step + 1 == job->hang_at && ddp_generation(g) == 0 && ddp_rank(g) == 1)
        for (;;)
            pause();
    nanosleep(&t, NULL);
    int rc = ddp_all_reduce(g, &gradient, &gradient, 1, DDP_FLOAT64, DDP_AVG, NULL);
    if (rc != 0)
        return rc;
    job->state.weight -= 0.01 * gradient;
    job->state.step++;
    rc = ddp_step_done(g);
    return rc != 0 ? rc : put(job, g);
}

/* On all ranks in the same step. */
static int look_for_end(struct ddp_group *g, bool *ret_ends)
{
    const char *path = getenv("RECOVERY_UNTIL");
    int32_t seen = path != NULL && access(path, F_OK) == 0;
    int rc = path != NULL ? ddp_all_reduce(g, &seen, &seen, 1, DDP_INT32, DDP_MAX, NULL) : 0;
    *ret_ends = seen != 0;
    return rc;
}

static int train(struct ddp_group *g, void *arg)
{
    struct job *job = arg;
    bool ends;
    int waits, rc = share(job, g);
    while (rc == 0 && job->state.step < job->n_steps && (rc = look_for_end(g, &ends)) == 0 &&
           !ends) {
        rc = step(job, g);
        if (rc == 0)
            rc = ddp_checkpoint_requested(g, &waits);
        if (rc == 0 && waits)
            rc = ddp_checkpoint_done(g);
    }
    return rc;
}

int main(int argc, char **argv)
{
    struct job job = {0};
    if (argc < 3)
        return 90;
    job.n_steps = strtoull(argv[1], NULL, 10);
    job.step_ms = strtol(argv[2], NULL, 10);
    job.hang_at = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    if (ddp_run(train, &job) != 0)
        ddp_fatal("ddp_run");
    return 0;
}
