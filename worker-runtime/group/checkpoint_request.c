/* checkpoint_request.c - a node waits to join: receiving the request, and reporting that the state
 * is saved. The other end is launcher/generation/checkpoint_request.c. */
#include "checkpoint_request.h"
#include "common/error.h"
#include "worker-runtime/core/group.h"
#include "worker-runtime/join/env.h"

#include <ddp/collective.h>
#include <ddp/elastic.h>
#include <ddp/env.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>

/* The descriptor is asked for when it is needed, as the store is: most programs never do.
 *
 * ret_fd    -1: no node can join */
static int read_fd(int *ret_fd, struct co_error *err)
{
    return env_get_int(DDP_ENV_CHECKPOINT_FD, -1, 0, INT_MAX, ret_fd, err);
}

static int find_fd(const struct ddp_group *g, int *ret_fd, struct co_error *err)
{
    int code = group_check_here(g, err);
    return code == 0 ? read_fd(ret_fd, err) : code;
}

int checkpoint_request_find(const struct ddp_group *g)
{
    int fd = -1;
    return group_is_world(g) && find_fd(g, &fd, NULL) == 0 ? fd : -1;
}

bool checkpoint_request_is_asked(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1 && (p.revents & POLLIN) != 0;
}

void checkpoint_request_forget(void)
{
    char question[64];
    int fd = -1;
    if (read_fd(&fd, NULL) == 0 && fd >= 0)
        while (recv(fd, question, sizeof question, MSG_DONTWAIT) > 0)
            ;
}

int ddp_checkpoint_requested(struct ddp_group *g, int *ret_pending)
{
    struct co_error err = {0};
    int fd = -1;
    int code = find_fd(g, &fd, &err);
    if (code == 0 && ret_pending == NULL)
        code = co_fail(&err, -EINVAL, "ret_requested is NULL");
    if (code != 0)
        return rt_return_from("ddp_checkpoint_requested", code, &err);
    if (fd >= 0 && group_is_world(g) && g->world->knows_pending) {
        g->world->knows_pending = false; /* the next answer is asked for, or a step brings it */
        *ret_pending = g->world->pending;
        return DDP_OK;
    }
    int32_t mine = fd >= 0 && checkpoint_request_is_asked(fd);
    int32_t any = mine;
    int rc = fd >= 0 ? ddp_all_reduce(g, &mine, &any, 1, DDP_INT32, DDP_MAX, NULL) : 0;
    if (rc == 0)
        *ret_pending = any;
    return rc;
}

/* The question goes first, so that it is not asked again. A queue that is full holds an answer that
 * is not read yet. */
int ddp_checkpoint_done(struct ddp_group *g)
{
    struct co_error err = {0};
    char question[64];
    int fd = -1;
    int code = find_fd(g, &fd, &err);
    if (code != 0 || fd < 0)
        return rt_return_from("ddp_checkpoint_done", code, &err);
    if (group_is_world(g))
        g->world->pending = false;
    ssize_t n = recv(fd, question, sizeof question, MSG_DONTWAIT);
    if (n >= 0 || errno == EAGAIN || errno == EINTR)
        n = send(fd, "\n", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN)
        code = co_fail(
            &err, -EIO,
            "cannot report to ddprun through file descriptor %d (%s) that the state is saved: %s",
            fd, DDP_ENV_CHECKPOINT_FD, strerror(errno));
    return rt_return_from("ddp_checkpoint_done", code, &err);
}
