/* memory_saves.c - how long does a save in ddprun's memory take, with one rank of a node or with
 * several at the same time?
 *
 *     ddprun -n RANKS --memory-checkpoints SIZE memory_saves SAVES MIB [CPU]
 *
 * Each rank prints the times of all saves except the first two, which allocate the pages. Rank r
 * runs on CPU r, or on the given one, and, if that is permitted, ahead of other processes while it
 * saves. A save begins at a multiple of 1.5 s of the clock: also those of another job then, whose
 * ranks have a memory of their own. */
#include <ddp/ddp.h>

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PERIOD_NS INT64_C(1500000000)

static int64_t now_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void await_begin(void)
{
    const int64_t at = (now_ns(CLOCK_REALTIME) / PERIOD_NS + 1) * PERIOD_NS;
    const struct timespec t = {at / 1000000000, at % 1000000000};
    clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, NULL);
}

static void hurry(int policy, int priority)
{
    const struct sched_param p = {.sched_priority = priority};
    (void)sched_setscheduler(0, policy, &p);
}

static int save(struct ddp_memory *m, int64_t step, const struct ddp_memory_item *item, int rank)
{
    await_begin();
    hurry(SCHED_FIFO, 1);
    const int64_t begun_ns = now_ns(CLOCK_MONOTONIC);
    const int rc = ddp_memory_save(m, step, item, 1);
    const double took_ms = (double)(now_ns(CLOCK_MONOTONIC) - begun_ns) / 1e6;
    hurry(SCHED_OTHER, 0);
    if (rc == 0 && step > 2)
        printf("rank %d save %d: %.0f ms\n", rank, (int)step, took_ms);
    fflush(stdout);
    return rc;
}

int main(int argc, char **argv)
{
    struct ddp_group *g;
    struct ddp_memory *m;
    struct ddp_memory_state found;
    if (argc < 3 || ddp_init(NULL, &g) != 0)
        return 2;
    const int rank = ddp_rank(g), n_saves = atoi(argv[1]);
    const size_t bytes = (size_t)strtoull(argv[2], NULL, 10) << 20;
    const struct ddp_memory_item item = {malloc(bytes), bytes};
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(argc > 3 ? atoi(argv[3]) : rank, &cpus);
    (void)sched_setaffinity(0, sizeof cpus, &cpus);
    int rc = item.data == NULL ? DDP_ENOMEM : ddp_memory_open(g, &m);
    if (rc == 0) {
        memset(item.data, rank + 1, bytes);
        rc = ddp_memory_found(m, &found);
    }
    for (int64_t step = 1; rc == 0 && step <= n_saves; step++)
        rc = save(m, step, &item, rank);
    if (rc != 0)
        fprintf(stderr, "memory_saves: rank %d: %s\n", rank, ddp_last_error());
    return rc != 0;
}
