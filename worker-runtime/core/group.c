/* group.c - what every group has: the number of each rank, what belongs to it, memory. */
#include "group.h"

#include "backend.h"
#include "common/error.h"
#include "process.h"
#include "segments/control.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* --- children --------------------------------------------------------------------------------- */

void group_adopt(struct ddp_group *g, struct group_child *child)
{
    child->next = g->children;
    child->link = &g->children;
    if (child->next != NULL)
        child->next->link = &child->next;
    g->children = child;
}

void group_disown(struct group_child *child)
{
    if (child->link == NULL)
        return;
    *child->link = child->next;
    if (child->next != NULL)
        child->next->link = child->link;
    child->link = NULL;
    child->next = NULL;
}

void group_destroy_children(struct ddp_group *g)
{
    while (g->children != NULL) {
        struct group_child *child = g->children;
        group_disown(child);
        child->destroy(child);
    }
}

/* --- checks ----------------------------------------------------------------------------------- */

int group_check(const char *name, const struct ddp_group *g)
{
    if (g == NULL)
        return rt_fail_null(name, "group");
    rt_set_apart(g->is_apart);
    if (process_is_forked() && g->backend != NULL)
        return rt_fail(DDP_EINVAL,
                       "%s: this process was forked from the one that joined; call it in that one",
                       name);
    return DDP_OK;
}

int group_check_here(const struct ddp_group *g, struct co_error *err)
{
    if (g == NULL)
        return co_fail(err, -EINVAL, "the group is NULL");
    return process_is_forked()
               ? co_fail(
                     err, -EINVAL,
                     "this process was forked from the one that joined; call libddp in that one")
               : 0;
}

int group_check_alone(const struct ddp_group *g, struct co_error *err)
{
    const struct control *c = g->world->control;
    if (c == NULL || control_abort_get(c).cause == CONTROL_OK)
        return 0;
    return co_fail(err, -ECONNRESET, "the job continues in another generation");
}

/* --- the timeout ------------------------------------------------------------------------------ */

int ddp_set_timeout(struct ddp_group *g, uint64_t timeout_ms)
{
    int rc = group_check("ddp_set_timeout", g);
    if (rc != DDP_OK)
        return rc;
    if (timeout_ms == 0)
        return rt_fail(DDP_EINVAL,
                       "ddp_set_timeout: invalid value 0 for timeout_ms: expected 1 or more");
    g->timeout_ms = timeout_ms;
    g->call_timeout_ms = timeout_ms;
    return DDP_OK;
}

/* --- asking ----------------------------------------------------------------------------------- */

int ddp_rank(const struct ddp_group *g)
{
    return g != NULL ? g->rank : rt_fail_null("ddp_rank", "group");
}

int ddp_world_size(const struct ddp_group *g)
{
    return g != NULL ? g->world_size : rt_fail_null("ddp_world_size", "group");
}

int ddp_local_rank(const struct ddp_group *g)
{
    return g != NULL ? g->local_rank : rt_fail_null("ddp_local_rank", "group");
}

int ddp_local_world_size(const struct ddp_group *g)
{
    return g != NULL ? g->local_world_size : rt_fail_null("ddp_local_world_size", "group");
}

int ddp_node_rank(const struct ddp_group *g)
{
    return g != NULL ? g->node_rank : rt_fail_null("ddp_node_rank", "group");
}

int ddp_n_nodes(const struct ddp_group *g)
{
    return g != NULL ? g->n_nodes : rt_fail_null("ddp_n_nodes", "group");
}

uint64_t ddp_generation(const struct ddp_group *g)
{
    return g != NULL ? g->world->generation : 0;
}

/* The finalizer of splitmix64: every bit of what goes in changes half of those that come out. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

uint64_t ddp_seed(const struct ddp_group *g, uint64_t base)
{
    const uint64_t step = UINT64_C(0x9e3779b97f4a7c15); /* odd: no two ranks get the same value */
    return g != NULL ? mix(mix(base) + step * ((uint64_t)g->rank + 1)) : 0;
}

/* --- memory ----------------------------------------------------------------------------------- */

/* A world that may become larger has its memory where it will be shared then. */
static int alloc_alone(const struct ddp_group *g, size_t bytes, void **ret, struct co_error *err)
{
    void *p;
    if (g->world->alone != NULL)
        return process_alloc(bytes, ret, err);
    if (posix_memalign(&p, 64, bytes > 0 ? bytes : 1) != 0)
        return co_fail(err, -ENOMEM, "out of memory for %zu bytes", bytes);
    memset(p, 0, bytes);
    *ret = p;
    return 0;
}

/* Memory is the same for all groups, also for one of a single rank. */
static struct backend *memory_of(const struct ddp_group *g)
{
    return g->backend != NULL ? g->backend : g->world->group.backend;
}

int ddp_alloc(struct ddp_group *g, size_t bytes, void **ret_ptr)
{
    struct co_error err = {0};
    int code = group_check_here(g, &err);
    if (code == 0 && ret_ptr == NULL)
        code = co_fail(&err, -EINVAL, "ret_ptr is NULL");
    if (code == 0) {
        struct backend *b = memory_of(g);
        code = b == NULL ? alloc_alone(g, bytes, ret_ptr, &err)
                         : b->ops->alloc(b, bytes, ret_ptr, &err);
    }
    return rt_return_from("ddp_alloc", code, &err);
}

void ddp_free(struct ddp_group *g, void *ptr)
{
    if (g == NULL || ptr == NULL || process_is_forked())
        return;
    struct backend *b = memory_of(g);
    if (b != NULL)
        b->ops->free(b, ptr);
    else if (!process_free(ptr)) /* allocated in an earlier world, which had more ranks */
        free(ptr);
}
