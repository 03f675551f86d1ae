#include "perf_tune.h"

#include "common/error.h"
#include "perf_crossover.h"
#include "perf_ranks.h"
#include "perf_run.h"

#include <ddp/env.h>
#include <ddp/error.h>
#include <ddp/group.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MOST_SIZES = 16, MOST_WAYS = 4, ROUNDS = 5 };

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* --- timing one table ------------------------------------------------------------------------- */

struct task { /* what a job of ranks is to time */
    struct perf_spec spec;
    size_t size[MOST_SIZES];
    size_t n_sizes;
};

struct job { /* shared with the ranks */
    struct task task;
    double us[MOST_SIZES]; /* rank 0's answers */
};

static int rank_main(void *arg)
{
    struct job *job = arg;
    struct ddp_group *g;
    if (ddp_init(NULL, &g) != 0) {
        fprintf(stderr, "ddp-perf: error: %s\n", ddp_last_error());
        return PERF_EXIT_FAILED;
    }
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < job->task.n_sizes; i++) {
        struct perf_times t;
        rc = perf_run_one(g, &job->task.spec, job->task.size[i], &t);
        if (rc == 0 && ddp_rank(g) == 0)
            job->us[i] = t.mean_us;
    }
    if (rc != 0)
        fprintf(stderr, "ddp-perf: error: %s\n", ddp_last_error());
    ddp_finalize(g);
    return rc == 0 ? PERF_EXIT_OK : PERF_EXIT_FAILED;
}

struct tuner {
    unsigned n;            /* ranks */
    unsigned n_iterations; /* 0: as many as suit the size */
    struct job *job;       /* shared memory */
    unsigned n_jobs;       /* so far */
    struct co_error *err;
};

/* Time a task with a row of the table. Where us[] has better times already they stay. */
static int time_with(struct tuner *t, const struct task *task, const char *row, double *us)
{
    char table[200];
    snprintf(table, sizeof table, "ranks %u: %s", t->n, row);
    setenv(DDP_ENV_TUNING, table, 1);
    t->job->task = *task;
    t->job->task.spec.n_iterations = t->n_iterations;
    int status = perf_ranks_run(t->n, t->n_jobs++, rank_main, t->job, t->err);
    if (status != 0)
        return status < 0 ? status
                          : co_fail(t->err, -EIO, "ranks failed with DDP_TUNING='%s'", table);
    for (size_t i = 0; i < task->n_sizes; i++)
        us[i] = us[i] == 0 || t->job->us[i] < us[i] ? t->job->us[i] : us[i];
    return 0;
}

/* Time a task with each of some rows, in turns.
 *
 * us   us[way * n_sizes + size], zeroed */
static int time_ways(struct tuner *t, const struct task *task, const char *const *rows,
                     size_t n_ways, double *us)
{
    int code = 0;
    for (int round = 0; code == 0 && round < ROUNDS; round++)
        for (size_t w = 0; code == 0 && w < n_ways; w++)
            code = time_with(t, task, rows[w], us + w * task->n_sizes);
    return code;
}

static struct task make_task(enum perf_collective collective, enum perf_buffer buffer, size_t least,
                             size_t most, size_t factor)
{
    struct task task = {.spec = {.collective = collective,
                                 .dtype = DDP_FLOAT32,
                                 .op = DDP_SUM,
                                 .buffer = buffer,
                                 .rewrite = true,
                                 .n_warmups = 3}};
    for (size_t size = least; size <= most && task.n_sizes < MOST_SIZES; size *= factor)
        task.size[task.n_sizes++] = size;
    return task;
}

/* --- thresholds ------------------------------------------------------------------------------- */

/* Up to which size all ranks had better do everything: of both kinds of memory together, since the
 * choice falls before a rank knows about the others' memory. */
static int tune_one_shot(struct tuner *t, size_t *ret_bytes)
{
    static const char *const rows[] = {"one_shot=1T", "one_shot=0"};
    double us[2 * MOST_SIZES] = {0}, plain[2 * MOST_SIZES] = {0};
    const struct task task = make_task(PERF_ALL_REDUCE, PERF_SEGMENT, 256, 128 * KIB, 2);
    struct task plain_task = task;
    plain_task.spec.buffer = PERF_PLAIN;
    int code = time_ways(t, &task, rows, 2, us);
    if (code == 0)
        code = time_ways(t, &plain_task, rows, 2, plain);
    for (size_t i = 0; i < 2 * task.n_sizes; i++)
        us[i] += plain[i];
    const size_t n = perf_crossover_up_to(us, us + task.n_sizes, task.n_sizes);
    *ret_bytes = n > 0 ? t->n * task.size[n - 1] : 0;
    return code;
}

static int tune_piece(struct tuner *t, size_t *ret_bytes)
{
    static const char *const rows[MOST_WAYS] = {"piece=128K", "piece=64K", "piece=32K",
                                                "piece=16K"};
    double us[MOST_WAYS * MOST_SIZES] = {0};
    const struct task task = make_task(PERF_ALL_REDUCE, PERF_PLAIN, 256 * KIB, 16 * MIB, 4);
    int code = time_ways(t, &task, rows, MOST_WAYS, us);
    *ret_bytes = (128 * KIB) >> perf_crossover_best(us, MOST_WAYS, task.n_sizes);
    return code;
}

/* From which size of an `in` on it is better to read other ranks' memory by system call.
 *
 * ret_bytes   0: never */
static int tune_cma(struct tuner *t, const struct task *task, const char *const rows[2],
                    size_t *ret_bytes)
{
    double us[2 * MOST_SIZES] = {0};
    int code = time_ways(t, task, rows, 2, us);
    const size_t i = perf_crossover_from(us, us + task->n_sizes, task->n_sizes);
    *ret_bytes = i < task->n_sizes ? task->size[i] : 0;
    return code;
}

static const char *size_or_never(size_t bytes, char text[PERF_CROSSOVER_SIZE_BYTES])
{
    return bytes == 0 ? "never" : perf_crossover_size(bytes, text);
}

static int tune_row(struct tuner *t, FILE *out)
{
    static const char *const copy_rows[] = {"cma=never", "cma=0"};
    static const char *const sum_rows[] = {"cma_sum=never", "cma_sum=0"};
    const struct task copy = make_task(PERF_BROADCAST, PERF_PLAIN, 64 * KIB, 16 * MIB, 4);
    const struct task sum = make_task(PERF_ALL_REDUCE, PERF_PLAIN, 256 * KIB, 64 * MIB, 4);
    char one_shot_text[PERF_CROSSOVER_SIZE_BYTES], piece_text[PERF_CROSSOVER_SIZE_BYTES];
    char cma_text[PERF_CROSSOVER_SIZE_BYTES], cma_sum_text[PERF_CROSSOVER_SIZE_BYTES];
    size_t one_shot = 0, piece = 0, cma = 0, cma_sum = 0;
    int code = tune_one_shot(t, &one_shot);
    if (code == 0)
        code = tune_piece(t, &piece);
    if (code == 0)
        code = tune_cma(t, &copy, copy_rows, &cma);
    if (code == 0)
        code = tune_cma(t, &sum, sum_rows, &cma_sum);
    if (code != 0)
        return code;
    fprintf(out, "ranks %u: one_shot=%s piece=%s cma=%s cma_sum=%s\n", t->n,
            perf_crossover_size(one_shot, one_shot_text), perf_crossover_size(piece, piece_text),
            size_or_never(cma, cma_text), size_or_never(cma_sum, cma_sum_text));
    return fflush(out) == 0
               ? 0
               : co_fail(t->err, -errno, "cannot write the tuning table: %s", strerror(errno));
}

int perf_tune(unsigned n_ranks, unsigned n_iterations, FILE *out, struct co_error *err)
{
    struct tuner t = {.n_iterations = n_iterations, .err = err};
    double load[2] = {0};
    t.job = mmap(NULL, sizeof *t.job, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (t.job == MAP_FAILED)
        return co_fail(err, -errno, "out of memory");
    getloadavg(load, 1);
    int code = 0;
    for (unsigned n = 2; code == 0 && n <= n_ranks;
         n = n < n_ranks && 2 * n > n_ranks ? n_ranks : 2 * n) {
        t.n = n;
        code = tune_row(&t, out);
    }
    getloadavg(load + 1, 1);
    if (code == 0)
        fprintf(out,
                "# load average %.2f before, %.2f after: other work on the machine spoils this\n",
                load[0], load[1]);
    munmap(t.job, sizeof *t.job);
    return code;
}
