/* run.c - the life of a worker in one call. */
#include <ddp/error.h>
#include <ddp/group.h>

#include "group.h"

int ddp_run(int (*train)(struct ddp_group *world, void *arg), void *arg)
{
    if (train == NULL)
        return rt_fail(DDP_EINVAL, "ddp_run: there is no function to run");
    struct ddp_group *world;
    int rc = ddp_init(NULL, &world);
    if (rc != 0)
        return rc;
    rc = train(world, arg);
    ddp_finalize(world);
    if (rc > 0)
        return rt_fail(DDP_EINVAL,
                       "ddp_run: the function returned %d: 0 or a negative status is expected", rc);
    return rc;
}
