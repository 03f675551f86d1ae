/* checkpointer - ranks that make steps with libddp until a node waits to join, report that they
 * have saved, and continue until they are stopped. In the next generation they exit with 0.
 *
 * Each writes a line into the FIFO that TEST_FIFO names: "RANK saved" once, "RANK of SIZE" in the
 * next generation. */
#include <ddp/ddp.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void tell(FILE *fifo, const struct ddp_group *g, const char *format, int number)
{
    fprintf(fifo, "%d ", ddp_rank(g));
    fprintf(fifo, format, number);
    fputc('\n', fifo);
    fflush(fifo); /* one write: lines of several ranks stay whole */
}

static int make_steps(struct ddp_group *g, FILE *fifo)
{
    int rc = 0, waits = 0;
    while (rc == 0) {
        int32_t sum = 1;
        rc = ddp_all_reduce(g, &sum, &sum, 1, DDP_INT32, DDP_SUM, NULL);
        if (rc == 0)
            rc = ddp_checkpoint_requested(g, &waits);
        if (rc == 0 && waits) {
            tell(fifo, g, "saved", 0); /* first: a rank that has saved may be stopped */
            rc = ddp_barrier(g);       /* a checkpoint is complete when all have saved */
            if (rc == 0)
                rc = ddp_checkpoint_done(g);
        }
        usleep(1000); /* a step takes time, and leaves CPU time to others */
    }
    return rc;
}

int main(void)
{
    struct ddp_group *g;
    FILE *fifo = fopen(getenv("TEST_FIFO"), "we");
    if (fifo == NULL || ddp_init(NULL, &g) != 0)
        return 90;
    if (ddp_generation(g) == 0 && make_steps(g, fifo) != 0)
        ddp_fatal("scaler");
    tell(fifo, g, "of %d", ddp_world_size(g));
    ddp_finalize(g);
    return 0;
}
