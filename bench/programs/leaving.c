/* leaving.c - how long a call of rank 0 takes to end when rank 1 leaves, for which it waits.
 *
 *     leaving CALL DELAY_MS
 *
 * CALL is recv, or all_reduce. Rank 1 leaves DELAY_MS after all ranks have joined. Ranks 0 and 1
 * print a time of CLOCK_MONOTONIC in microseconds: when the call had ended, and when rank 1 began
 * to leave. */
#include "timing.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    struct ddp_group *g;
    float x = 0;
    int rc = 0;
    double at_us = 0;
    if (argc != 3)
        return 2;
    check(ddp_init(NULL, &g), "init");
    check(ddp_barrier(g), "barrier");
    if (ddp_rank(g) == 1) {
        poll(NULL, 0, atoi(argv[2]));
        at_us = now_us();
    } else if (ddp_rank(g) == 0) {
        rc = strcmp(argv[1], "recv") == 0
                 ? ddp_recv(g, &x, 1, DDP_FLOAT32, 1, 0, NULL)
                 : ddp_all_reduce(g, &x, &x, 1, DDP_FLOAT32, DDP_SUM, NULL);
        at_us = now_us();
        if (rc != DDP_EPEER)
            return 3;
    }
    ddp_finalize(g);
    if (at_us > 0)
        printf("%.0f\n", at_us);
    return 0;
}
