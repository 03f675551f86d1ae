#include "place.h"

#include "common/error.h"
#include "env.h"

#include <ddp/group.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { MOST_PORT = 65535 };

static int check_number(const char *name, int value, int min, int max, struct co_error *err)
{
    if (value >= min && value <= max)
        return 0;
    return co_fail(err, -EINVAL, "the place's %s is %d, not %d to %d", name, value, min, max);
}

static int check_ranks(const struct ddp_rank_info *p, struct co_error *err)
{
    if (p->world_size < 1)
        return co_fail(err, -EINVAL, "the place's world_size is %d, not 1 or more", p->world_size);
    int code = check_number("rank", p->rank, 0, p->world_size - 1, err);
    if (code == 0)
        code = check_number("local_world_size", p->local_world_size, 1, p->world_size, err);
    if (code == 0)
        code = check_number("local_rank", p->local_rank, 0, p->local_world_size - 1, err);
    if (code == 0)
        code = check_number("n_nodes", p->n_nodes, 1, p->world_size, err);
    if (code == 0)
        code = check_number("node_rank", p->node_rank, 0, p->n_nodes - 1, err);
    return code;
}

static int check_nodes(const struct ddp_rank_info *p, struct co_error *err)
{
    const bool is_one = p->local_world_size == p->world_size;
    if (is_one != (p->n_nodes == 1))
        return co_fail(err, -EINVAL,
                       "the place's n_nodes is %d where local_world_size is %d and world_size %d",
                       p->n_nodes, p->local_world_size, p->world_size);
    if (is_one && p->local_rank != p->rank)
        return co_fail(err, -EINVAL,
                       "the place's local_rank is %d and rank %d, which must be the same on one "
                       "node",
                       p->local_rank, p->rank);
    if (is_one)
        return 0;
    const size_t length = p->store_host != NULL ? strnlen(p->store_host, ENV_HOST_BYTES) : 0;
    if (length < 1 || length >= ENV_HOST_BYTES)
        return co_fail(err, -EINVAL,
                       "the place's store_host has %zu bytes, not 1 to %d: several nodes find each "
                       "other by a store",
                       length, ENV_HOST_BYTES - 1);
    return check_number("store_port", p->store_port, 1, MOST_PORT, err);
}

int place_read(const struct ddp_rank_info *p, struct env_who *ret, struct co_error *err)
{
    const size_t length = p->name != NULL ? strnlen(p->name, DDP_PLACE_NAME_MAX + 1) : 0;
    if (length < 1 || length > DDP_PLACE_NAME_MAX)
        return co_fail(err, -EINVAL, "the place's name has %zu bytes, not 1 to %d", length,
                       DDP_PLACE_NAME_MAX);
    int code = check_ranks(p, err);
    if (code == 0)
        code = check_nodes(p, err);
    if (code != 0)
        return code;
    *ret = (struct env_who){.starter = "the program",
                            .rank = p->rank,
                            .world_size = p->world_size,
                            .local_rank = p->local_rank,
                            .local_world_size = p->local_world_size,
                            .node_rank = p->node_rank,
                            .n_nodes = p->n_nodes,
                            .node_fd = -1,
                            .pmi_fd = -1,
                            .is_named_once = true};
    snprintf(ret->store_job, sizeof ret->store_job, "group %s", p->name);
    snprintf(ret->job, sizeof ret->job, "group %s node %d", p->name, p->node_rank);
    if (p->n_nodes > 1) {
        snprintf(ret->store_host, sizeof ret->store_host, "%s", p->store_host);
        ret->store_port = (uint16_t)p->store_port;
    }
    return 0;
}
