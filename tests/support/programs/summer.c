/* summer - ranks that sum large vectors, send messages to each other, and check each element, until
 * a file exists.
 *
 *     summer FILE COUNT
 *
 * Rank 0 prints "round N" after each round: a sum of COUNT elements, one of FEW, and a message of
 * as many to the next rank. */
#include <ddp/ddp.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    VALUES = 1021, /* all sums are exact */
    FEW = 3000,
};

static float value(int rank, size_t i, int round)
{
    return (float)((i * 7 + (size_t)round * 13 + (size_t)rank * 31) % VALUES);
}

/* They are the sums of n_ranks ranks from `first` on. */
static int check(const float *x, size_t count, int first, int n_ranks, int round)
{
    for (size_t i = 1; i < count; i++) {
        float expected = 0;
        for (int r = first; r < first + n_ranks; r++)
            expected += value(r, i, round);
        if (x[i] != expected) {
            fprintf(stderr, "round %d: element %zu is %g instead of %g\n", round, i, (double)x[i],
                    (double)expected);
            return 6;
        }
    }
    return 0;
}

static void fill(struct ddp_group *g, float *x, size_t count, int round)
{
    for (size_t i = 1; i < count; i++)
        x[i] = value(ddp_rank(g), i, round);
}

static int fail(void)
{
    fprintf(stderr, "%s\n", ddp_last_error());
    return 5;
}

static int do_little(struct ddp_group *g, int round)
{
    const int n = ddp_world_size(g), next = (ddp_rank(g) + 1) % n,
              before = (ddp_rank(g) + n - 1) % n;
    static float x[FEW], y[FEW];
    struct ddp_request *sent, *received;
    fill(g, x, FEW, round);
    if (ddp_isend(g, x, FEW, DDP_FLOAT32, next, round, NULL, &sent) != 0 ||
        ddp_irecv(g, y, FEW, DDP_FLOAT32, before, round, NULL, &received) != 0 ||
        ddp_wait(sent) != 0 || ddp_wait(received) != 0 ||
        ddp_all_reduce(g, x, x, FEW, DDP_FLOAT32, DDP_SUM, NULL) != 0)
        return fail();
    const int code = check(y, FEW, before, 1, round);
    return code != 0 ? code : check(x, FEW, 0, n, round);
}

/* Element 0 counts the ranks that have seen the file. */
static int run(struct ddp_group *g, const char *file, float *x, size_t count)
{
    for (int round = 1;; round++) {
        char line[32];
        x[0] = ddp_rank(g) == 0 && access(file, F_OK) == 0;
        fill(g, x, count, round);
        if (ddp_all_reduce(g, x, x, count, DDP_FLOAT32, DDP_SUM, NULL) != 0)
            return fail();
        const int code = check(x, count, 0, ddp_world_size(g), round);
        if (code != 0 || x[0] != 0)
            return code;
        const int little = do_little(g, round);
        if (little != 0)
            return little;
        const int length = snprintf(line, sizeof line, "round %d\n", round);
        if (ddp_rank(g) == 0 && write(STDOUT_FILENO, line, (size_t)length) != length)
            return 7;
    }
}

int main(int argc, char **argv)
{
    struct ddp_group *g;
    if (argc != 3 || ddp_init(NULL, &g) != 0) {
        fprintf(stderr, "%s\n", ddp_last_error());
        return 90;
    }
    const size_t count = strtoul(argv[2], NULL, 10);
    float *x = malloc((count + 1) * sizeof *x);
    if (x == NULL)
        return 91;
    const int code = run(g, argv[1], x, count);
    free(x);
    if (code == 0)
        ddp_finalize(g);
    return code;
}
