/* run.c - the life of a worker in one call: one generation after the other, as long as ranks that
 * die are replaced. docs/design/recovery.md has the whole. */
#include "checkpoint_request.h"
#include "common/error.h"
#include "group_join.h"
#include "recovery.h"
#include "worker-runtime/core/process.h"
#include "worker-runtime/device/device.h"
#include "worker-runtime/join/standby.h"

#include <errno.h>
#include <stdio.h>

/* Join one generation, and find out whose state counts. */
static int enter_one(struct recovery *r, struct ddp_group **ret_world, struct co_error *err)
{
    static const struct ddp_init_opts defaults;
    struct ddp_group *world;
    if (r->is_inside)
        checkpoint_request_forget(); /* a node that waited has its place now, or asks again */
    int code = group_enter(&defaults, r, &world, err);
    if (code != 0)
        return code;
    int rc = recovery_begin(world);
    if (rc == 0)
        rc = device_begin(world);
    if (rc == 0) {
        *ret_world = world;
        return 0;
    }
    group_leave(world);
    code = rc == DDP_RETRY          ? -ECONNRESET
           : rc == DDP_ETIMEOUT     ? -ETIMEDOUT
           : rc == DDP_EPEER        ? -ENOTRECOVERABLE
           : rc == DDP_ERESPAWN     ? -EOWNERDEAD
           : rc == DDP_EUNSUPPORTED ? -ENOTSUP
                                    : -EIO;
    return co_fail(err, code, "%s", ddp_last_error());
}

/* Join the newest generation. If another rank dies meanwhile, join the next one: each costs ddprun
 * one of a finite number of replacements. */
static int enter_newest(struct recovery *r, struct ddp_group **ret_world, struct co_error *err)
{
    int code;
    while ((code = enter_one(r, ret_world, err)) == -ECONNRESET && r->again.may_follow)
        r->again.wanted = r->again.joined + 1;
    return code;
}

/* A rank is gone. Leave what was shared with it, and come back with another in its place; where
 * there will be none, the reason is what broke the group. */
static int come_back(struct recovery *r, struct ddp_group **world)
{
    struct co_error err = {0};
    char reason[CO_ERROR_TEXT_BYTES];
    snprintf(reason, sizeof reason, "%s", ddp_last_error());
    group_leave(*world);
    *world = NULL;
    int rc = device_check(); /* what was left may have been stuck there */
    if (rc != DDP_OK)
        return rc;
    r->again.wanted = r->again.joined + 1;
    int code = enter_newest(r, world, &err);
    return code == -ECANCELED ? rt_fail(DDP_EPEER, "%s", reason) : rt_return(code, &err);
}

static int train_on(struct recovery *r, int (*train)(struct ddp_group *world, void *arg), void *arg,
                    struct ddp_group **world)
{
    for (;;) {
        group_lend(*world);
        int rc = train(*world, arg);
        if (rc == DDP_RETRY && process_may_go_on()) {
            rc = come_back(r, world);
            if (rc == 0)
                continue;
            return rc;
        }
        return group_check_result("ddp_run", *world, rc);
    }
}

int ddp_run(int (*train)(struct ddp_group *world, void *arg), void *arg)
{
    struct co_error err = {0};
    struct recovery recovery;
    struct ddp_group *world = NULL;
    if (train == NULL)
        return rt_fail_null("ddp_run", "function");
    recovery_init(&recovery);
    int code = standby_wait(&err);
    if (code == 0)
        code = enter_newest(&recovery, &world, &err);
    int rc = rt_return(code, &err);
    if (rc == 0)
        rc = train_on(&recovery, train, arg, &world);
    process_set_may_go_on(false);
    if (world != NULL)
        group_finalize(world);
    else if (recovery.is_inside)
        process_leave(recovery.again.may_follow);
    recovery_fini(&recovery);
    return rc;
}
