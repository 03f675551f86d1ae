/* summer - ranks that sum large vectors and check each element, until a file exists.
 *
 *     summer FILE COUNT
 *
 * Rank 0 prints "round N" after each sum. */
#include <ddp/ddp.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { VALUES = 1021 }; /* all sums are exact */

static float value(int rank, size_t i, int round)
{
    return (float)((i * 7 + (size_t)round * 13 + (size_t)rank * 31) % VALUES);
}

static int check(const float *x, size_t count, int n_ranks, int round)
{
    for (size_t i = 1; i < count; i++) {
        float expected = 0;
        for (int r = 0; r < n_ranks; r++)
            expected += value(r, i, round);
        if (x[i] != expected) {
            fprintf(stderr, "round %d: element %zu is %g instead of %g\n", round, i, (double)x[i],
                    (double)expected);
            return 6;
        }
    }
    return 0;
}

/* Element 0 counts the ranks that have seen the file. */
static int run(struct ddp_group *g, const char *file, float *x, size_t count)
{
    for (int round = 1;; round++) {
        char line[32];
        x[0] = ddp_rank(g) == 0 && access(file, F_OK) == 0;
        for (size_t i = 1; i < count; i++)
            x[i] = value(ddp_rank(g), i, round);
        if (ddp_all_reduce(g, x, x, count, DDP_FLOAT32, DDP_SUM, NULL) != 0) {
            fprintf(stderr, "%s\n", ddp_last_error());
            return 5;
        }
        const int code = check(x, count, ddp_world_size(g), round);
        if (code != 0 || x[0] != 0)
            return code;
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
