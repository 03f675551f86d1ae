#include "agree.h"

#include <ddp/ddp.h>
#include <stdio.h>
#include <stdlib.h>

#include "failure.h"

int agree(struct ddp_group *g, const char *program, int rc, const struct failure *why,
          bool *ret_reported)
{
    int32_t failed = rc < 0 ? ddp_rank(g) : ddp_world_size(g);
    int status = ddp_all_reduce(g, &failed, &failed, 1, DDP_INT32, DDP_MIN, NULL);

    if (status != 0 || failed == ddp_world_size(g))
        return status;
    if (failed == ddp_rank(g)) {
        fprintf(stderr, "%s: %s\n", program, why->text);
        exit(EXIT_FAILURE);
    }
    ddp_barrier(g); /* ends when that rank does */
    *ret_reported = true;
    return DDP_EPEER;
}
