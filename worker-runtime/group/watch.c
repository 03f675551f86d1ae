/* watch.c - for a rank that communicates by other means than libddp, such as a framework: it
 * reports its steps, and a thread of it learns that the generation is over. */
#include "common/clock.h"
#include "common/error.h"
#include "recovery.h"
#include "segments/control.h"
#include "worker-runtime/core/backend.h"
#include "worker-runtime/core/group.h"

#include <ddp/elastic.h>
#include <errno.h>
#include <poll.h>

enum {
    LOOK_MS = 1000, /* between two looks, where nothing wakes the thread */
    ALONE_MS = 20,  /* of a rank that has no control segment */
};

int ddp_step_done(struct ddp_group *world)
{
    int rc = group_check("ddp_step_done", world);
    if (rc != 0)
        return rc;
    if (!group_is_world(world) || world->is_apart)
        return rt_fail(DDP_EINVAL, "ddp_step_done: the group is not the job's world");
    recovery_count_step(world, co_now_ns());
    return DDP_OK;
}

/* returns 0; what broke the group */
static int look(struct ddp_group *g, struct co_error *err)
{
    struct backend *b = g->backend;
    return b != NULL ? b->ops->look(b, err) : group_check_alone(g, err);
}

static void sleep_once(struct ddp_group *g, uint64_t deadline_ms)
{
    struct world *w = g->world;
    const int left_ms = co_left_ms(deadline_ms);
    const int ms = left_ms >= 0 && left_ms < LOOK_MS ? left_ms : LOOK_MS;
    if (w->segment != NULL)
        control_sleep_until_end(w->segment, (unsigned)g->local_rank, &w->ends_waits, 0,
                                (uint32_t)ms * 1000);
    else
        poll(NULL, 0, ms < ALONE_MS ? ms : ALONE_MS);
}

int ddp_wait_retry(struct ddp_group *world, uint64_t timeout_ms)
{
    struct co_error err = {0};
    const uint64_t deadline_ms = co_deadline_ms(timeout_ms);
    int code = group_check_here(world, &err);
    if (code == 0 && !group_is_world(world))
        code = co_fail(&err, -EINVAL, "the group is not a world");
    if (code != 0)
        return rt_return_from("ddp_wait_retry", code, &err);
    rt_set_apart(world->is_apart);
    while (atomic_load(&world->world->ends_waits) == 0) {
        code = look(world, &err);
        if (code == 0 && co_left_ms(deadline_ms) == 0)
            return rt_fail(DDP_ETIMEOUT, "ddp_wait_retry: the generation has not ended");
        if (code != 0) /* whatever broke it: a rank of another node may have the cause */
            return rt_return_from("ddp_wait_retry", -ECONNRESET, &err);
        sleep_once(world, deadline_ms);
    }
    return DDP_OK;
}

int ddp_end_wait_retry(struct ddp_group *world)
{
    struct co_error err = {0};
    int code = group_check_here(world, &err);
    if (code == 0 && !group_is_world(world))
        code = co_fail(&err, -EINVAL, "the group is not a world");
    if (code != 0)
        return rt_return_from("ddp_end_wait_retry", code, &err);
    atomic_store(&world->world->ends_waits, 1);
    control_stop_sleep(&world->world->ends_waits);
    return DDP_OK;
}
