/* deaths.c - how long after kill -9 of a rank the other ranks' calls return, in the middle of each
 * collective. No ddprun runs that could help: the ranks detect the death by themselves.
 *
 *     deaths RANKS KILLS
 *
 * The collectives take turns. Each collective and size has a line: name, bytes, kind of memory,
 * then the shortest, the median and the longest time from the kill to a return, of all survivors,
 * in microseconds. */
#include "timing.h"

#include <ddp/ddp.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_RANKS = 32, MAX_KILLS = 1000, VICTIM = 1, WARM_CALLS = 5, LONGEST_DELAY_US = 2000 };

struct scene { /* what the ranks do when the rank is killed */
    const char *collective;
    size_t bytes;
    int in_segment;
    int n_ranks;
    int ready, returned; /* pipes: a byte from each rank; a double from each survivor */
};

/* --- a rank ----------------------------------------------------------------------------------- */

static int call(const struct scene *s, struct ddp_group *g, float *in, float *out)
{
    const size_t all = s->bytes / sizeof *in, each = all / (size_t)s->n_ranks;
    const char *name = s->collective;

    if (strcmp(name, "all_reduce") == 0)
        return ddp_all_reduce(g, in, out, all, DDP_FLOAT32, DDP_SUM, NULL);
    if (strcmp(name, "reduce") == 0)
        return ddp_reduce(g, in, out, all, DDP_FLOAT32, DDP_SUM, 0, NULL);
    if (strcmp(name, "reduce_scatter") == 0)
        return ddp_reduce_scatter(g, in, out, each, DDP_FLOAT32, DDP_SUM, NULL);
    if (strcmp(name, "broadcast") == 0)
        return ddp_broadcast(g, in, out, all, DDP_FLOAT32, 0, NULL);
    if (strcmp(name, "all_gather") == 0)
        return ddp_all_gather(g, in, out, each, DDP_FLOAT32, NULL);
    if (strcmp(name, "gather") == 0)
        return ddp_gather(g, in, out, each, DDP_FLOAT32, 0, NULL);
    if (strcmp(name, "scatter") == 0)
        return ddp_scatter(g, in, out, each, DDP_FLOAT32, 0, NULL);
    if (strcmp(name, "all_to_all") == 0)
        return ddp_all_to_all(g, in, out, each, DDP_FLOAT32, NULL);
    return ddp_barrier(g);
}

static void *memory(const struct scene *s, struct ddp_group *g)
{
    void *p = NULL;

    if (s->in_segment && ddp_alloc(g, s->bytes, &p) != 0)
        ddp_fatal("alloc");
    if (!s->in_segment && (p = calloc(1, s->bytes)) == NULL)
        ddp_fatal("calloc");
    return p;
}

static void run_rank(const struct scene *s)
{
    struct ddp_group *g;
    int rc = 0;

    if (ddp_init(NULL, &g) != 0)
        ddp_fatal("init");
    float *in = memory(s, g), *out = memory(s, g);
    for (int i = 0; rc == 0; i++) {
        if (i == WARM_CALLS && write(s->ready, "", 1) != 1)
            _exit(1);
        rc = call(s, g, in, out);
    }
    const double returned_us = now_us();
    if (rc != DDP_EPEER || strstr(ddp_last_error(), "rank 1 died") == NULL)
        ddp_fatal("not told of the death");
    _exit(write(s->returned, &returned_us, sizeof returned_us) != sizeof returned_us);
}

/* --- all ranks -------------------------------------------------------------------------------- */

static pid_t start_rank(const struct scene *s, int rank, int job)
{
    char text[64];
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    snprintf(text, sizeof text, "%d", rank);
    setenv("RANK", text, 1);
    snprintf(text, sizeof text, "%d", s->n_ranks);
    setenv("WORLD_SIZE", text, 1);
    snprintf(text, sizeof text, "deaths %d %d", getppid(), job);
    setenv("DDP_JOB_ID", text, 1);
    run_rank(s);
    return -1;
}

static int read_all(int fd, void *to, size_t bytes)
{
    for (size_t got = 0; got < bytes;) {
        ssize_t n = read(fd, (char *)to + got, bytes - got);
        if (n <= 0)
            return -1;
        got += (size_t)n;
    }
    return 0;
}

/* Kills a rank of a new job. Fills in n_ranks - 1 times, or returns -1. */
static int kill_one(struct scene *s, int job, double *us)
{
    int ready[2], returned[2], rc;
    pid_t pid[MAX_RANKS] = {0};
    char bytes[MAX_RANKS];

    if (pipe(ready) != 0 || pipe(returned) != 0)
        return -1;
    s->ready = ready[1];
    s->returned = returned[1];
    for (int r = 0; r < s->n_ranks; r++)
        pid[r] = start_rank(s, r, job);
    close(ready[1]); /* only the ranks hold it: a read ends when all of them have exited */
    close(returned[1]);
    rc = read_all(ready[0], bytes, (size_t)s->n_ranks);
    usleep((useconds_t)(rand() % LONGEST_DELAY_US)); /* anywhere in a call */
    const double killed_us = now_us();
    kill(pid[VICTIM], SIGKILL);
    if (rc == 0)
        rc = read_all(returned[0], us, (size_t)(s->n_ranks - 1) * sizeof *us);
    for (int r = 0; r < s->n_ranks; r++)
        waitpid(pid[r], NULL, 0);
    for (int r = 0; rc == 0 && r < s->n_ranks - 1; r++)
        us[r] -= killed_us;
    close(ready[0]);
    close(returned[0]);
    return rc;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const struct scene *s, double *us, int n)
{
    qsort(us, (size_t)n, sizeof *us, compare);
    printf("%s %zu %s %.0f %.0f %.0f\n", s->collective, s->bytes,
           s->in_segment ? "segment" : "plain", us[0], us[n / 2], us[n - 1]);
}

/* Kills a rank in each scene, n_kills times. us: MAX_KILLS * MAX_RANKS elements for each scene */
static int run_scenes(struct scene *scenes, int n_scenes, int n_kills, double *us)
{
    const int n_survivors = scenes[0].n_ranks - 1;
    int job = 0;

    for (int k = 0; k < n_kills; k++)
        for (int i = 0; i < n_scenes; i++)
            if (kill_one(&scenes[i], job++,
                         us + ((size_t)i * MAX_KILLS * MAX_RANKS) +
                             (size_t)k * (size_t)n_survivors) != 0) {
                fprintf(stderr, "deaths: %s of %zu bytes failed\n", scenes[i].collective,
                        scenes[i].bytes);
                return -1;
            }
    for (int i = 0; i < n_scenes; i++)
        report(&scenes[i], us + (size_t)i * MAX_KILLS * MAX_RANKS, n_kills * n_survivors);
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const collectives[] = {"all_reduce", "reduce",     "reduce_scatter",
                                              "broadcast",  "all_gather", "gather",
                                              "scatter",    "all_to_all", "barrier"};
    static const struct scene kinds[] = {
        {.bytes = 64}, {.bytes = 256 << 10}, {.bytes = 4 << 20, .in_segment = 1}};
    enum { N_COLLECTIVES = sizeof collectives / sizeof *collectives, N_KINDS = 3 };
    struct scene scenes[N_COLLECTIVES * N_KINDS];
    const int n_ranks = argc == 3 ? atoi(argv[1]) : 0, n_kills = argc == 3 ? atoi(argv[2]) : 0;
    int n_scenes = 0, rc;

    if (n_ranks < 2 || n_ranks > MAX_RANKS || n_kills < 1 || n_kills > MAX_KILLS) {
        fputs("usage: deaths RANKS KILLS\n", stderr);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    for (int c = 0; c < N_COLLECTIVES; c++)
        for (int i = 0; i < N_KINDS; i++) {
            if (strcmp(collectives[c], "barrier") == 0 && i > 0)
                continue;
            scenes[n_scenes] = kinds[i];
            scenes[n_scenes].collective = collectives[c];
            scenes[n_scenes++].n_ranks = n_ranks;
        }
    double *us = calloc((size_t)n_scenes * MAX_KILLS * MAX_RANKS, sizeof *us);
    if (us == NULL)
        return 1;
    rc = run_scenes(scenes, n_scenes, n_kills, us);
    free(us);
    return rc == 0 ? 0 : 1;
}
