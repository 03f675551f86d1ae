/* pipeline.c - ddp_pipeline: GPipe's schedule over messages.
 *
 * All receives of a direction are open from its beginning on, and all sends until its end, so that
 * no stage stands still because its neighbor is not there yet. */
#include "common/error.h"
#include "common/scope.h"
#include "worker-runtime/arithmetic/convert.h"
#include "worker-runtime/core/collective.h"
#include "worker-runtime/core/group.h"

#include <ddp/collective.h>
#include <ddp/pipeline.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_MICRO = 4096, FORWARD = 0, BACKWARD = 1 /* tags */ };

struct lane {        /* one direction between two stages: a buffer for each micro-batch */
    uint8_t *memory; /* owned, of ddp_alloc(); NULL: no such neighbor */
    size_t count;    /* elements of a micro-batch */
    struct ddp_request **request; /* owned; n_micro */
};

struct ddp_pipeline {
    struct group_child child; /* first member */
    struct ddp_group *g;
    struct ddp_pipeline_opts opts;
    int stage, n_stages;
    struct lane in, out, d_in, d_out;
    int failure; /* of this stage's functions, in this step */
    char failure_text[CO_ERROR_TEXT_BYTES];
};

int ddp_pipeline_groups(struct ddp_group *g, int n_stages, struct ddp_group **ret_stages,
                        struct ddp_group **ret_replicas)
{
    struct ddp_group *stages;
    if (g == NULL || ret_stages == NULL || ret_replicas == NULL)
        return rt_fail(DDP_EINVAL, "ddp_pipeline_groups: g, ret_stages or ret_replicas is NULL");
    if (n_stages < 1 || ddp_world_size(g) % n_stages != 0)
        return rt_fail(DDP_EINVAL, "ddp_pipeline_groups: %d ranks are not divisible by %d stages",
                       ddp_world_size(g), n_stages);
    int rc = ddp_group_split(g, ddp_rank(g) / n_stages, 0, &stages);
    if (rc != 0)
        return rc;
    rc = ddp_group_split(g, ddp_rank(g) % n_stages, 0, ret_replicas);
    if (rc != 0) {
        ddp_group_destroy(stages);
        return rc;
    }
    *ret_stages = stages;
    return 0;
}

/* --- making one ------------------------------------------------------------------------------- */

static int check_opts(const struct ddp_pipeline_opts *o, struct co_error *err)
{
    const size_t most = SIZE_MAX / 8 / MOST_MICRO;
    if (o->n_micro < 1 || o->n_micro > MOST_MICRO)
        return co_fail(err, -EINVAL, "invalid value %d for n_micro: expected 1 to %d", o->n_micro,
                       MOST_MICRO);
    if (!convert_is_float(o->dtype))
        return co_fail(err, -EINVAL, "invalid value %d for dtype: expected a floating-point type",
                       (int)o->dtype);
    if (o->forward == NULL || o->backward == NULL)
        return co_fail(err, -EINVAL, "forward or backward is NULL");
    if (o->in_count > most || o->out_count > most)
        return co_fail(err, -EINVAL, "invalid in_count %zu or out_count %zu of a micro-batch",
                       o->in_count, o->out_count);
    return 0;
}

static int lane_init(struct ddp_pipeline *p, struct lane *l, size_t count, bool is_there,
                     struct co_error *err)
{
    const size_t n = (size_t)p->opts.n_micro;
    void *memory;
    l->count = count;
    l->request = calloc(n, sizeof(*l->request));
    if (l->request == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    if (!is_there)
        return 0;
    if (ddp_alloc(p->g, n * count * ddp_dtype_size(p->opts.dtype), &memory) != 0)
        return co_fail(err, -ENOMEM, "%s", ddp_last_error());
    l->memory = memory;
    return 0;
}

static int lanes_init(struct ddp_pipeline *p, struct co_error *err)
{
    const bool has_before = p->stage > 0, has_next = p->stage + 1 < p->n_stages;
    int code = lane_init(p, &p->in, p->opts.in_count, has_before, err);
    if (code == 0)
        code = lane_init(p, &p->d_in, p->opts.in_count, has_before, err);
    if (code == 0)
        code = lane_init(p, &p->out, p->opts.out_count, has_next, err);
    if (code == 0)
        code = lane_init(p, &p->d_out, p->opts.out_count, has_next, err);
    return code;
}

/* Whether what each stage sends is what the next one takes: all of them see all numbers. */
static int compare_stages(struct ddp_pipeline *p)
{
    const size_t n = (size_t)p->n_stages;
    const uint64_t own[4] = {(uint64_t)p->opts.n_micro, (uint64_t)p->opts.dtype, p->opts.in_count,
                             p->opts.out_count};
    int rc;
    co_autofree uint64_t(*all)[4] = collective_gather(p->g, own, sizeof own, &rc);
    for (size_t s = 0; rc == 0 && s < n; s++) {
        const uint64_t comes = s > 0 ? all[s - 1][3] : 0;
        if (all[s][0] != all[0][0] || all[s][1] != all[0][1])
            rc = rt_fail(DDP_EMISMATCH,
                         "ddp_pipeline_create: n_micro or dtype of stage %zu differ "
                         "from those of stage 0",
                         s);
        else if (all[s][2] != comes || (s + 1 == n && all[s][3] != 0))
            rc = rt_fail(DDP_EMISMATCH,
                         "ddp_pipeline_create: stage %zu has in_count %zu and out_count %zu, but "
                         "the previous stage sends %zu elements%s",
                         s, (size_t)all[s][2], (size_t)all[s][3], (size_t)comes,
                         s + 1 == n ? ", and the last stage must send none" : "");
    }
    return rc;
}

static void destroy_child(struct group_child *child)
{
    ddp_pipeline_destroy((struct ddp_pipeline *)child);
}

static int open_pipeline(struct ddp_pipeline *p, const struct ddp_pipeline_opts *opts)
{
    struct co_error err = {0};
    int code = opts != NULL ? check_opts(opts, &err) : co_fail(&err, -EINVAL, "opts is NULL");
    if (code == 0) {
        p->opts = *opts;
        code = lanes_init(p, &err);
    }
    if (code != 0)
        co_fail_in(&err, "ddp_pipeline_create");
    int rc = collective_agree(p->g, code, &err);
    return rc == 0 ? compare_stages(p) : rc;
}

co_define_auto(ddp_pipeline, ddp_pipeline_destroy);

int ddp_pipeline_create(struct ddp_group *stages, const struct ddp_pipeline_opts *opts,
                        struct ddp_pipeline **ret_pipeline)
{
    if (stages == NULL || ret_pipeline == NULL)
        return rt_fail(DDP_EINVAL, "ddp_pipeline_create: group or ret_pipeline is NULL");
    co_auto(ddp_pipeline) p = calloc(1, sizeof *p);
    if (p == NULL) {
        struct co_error err = {0};
        return collective_agree(stages, co_fail(&err, -ENOMEM, "out of memory"), &err);
    }
    p->child.destroy = destroy_child;
    p->g = stages;
    p->stage = ddp_rank(stages);
    p->n_stages = ddp_world_size(stages);
    int rc = open_pipeline(p, opts);
    if (rc != 0)
        return rc;
    group_adopt(stages, &p->child);
    *ret_pipeline = co_take(&p);
    return 0;
}

static void lane_fini(struct ddp_pipeline *p, struct lane *l)
{
    ddp_free(p->g, l->memory);
    free(l->request);
}

void ddp_pipeline_destroy(struct ddp_pipeline *p)
{
    if (p == NULL)
        return;
    group_disown(&p->child);
    lane_fini(p, &p->in);
    lane_fini(p, &p->out);
    lane_fini(p, &p->d_in);
    lane_fini(p, &p->d_out);
    free(p);
}

/* --- messages --------------------------------------------------------------------------------- */

static uint8_t *buffer_of(const struct ddp_pipeline *p, const struct lane *l, int micro)
{
    return l->memory == NULL ? NULL
                             : l->memory + (size_t)micro * l->count * ddp_dtype_size(p->opts.dtype);
}

/* Begin to send a micro-batch to a neighbor, or to receive it. */
static int begin_message(struct ddp_pipeline *p, struct lane *l, int micro, bool is_send, int tag)
{
    const int peer = l == &p->in || l == &p->d_in ? p->stage - 1 : p->stage + 1;
    uint8_t *at = buffer_of(p, l, micro);
    struct ddp_request **request = &l->request[micro];
    if (l->memory == NULL)
        return 0;
    return is_send ? ddp_isend(p->g, at, l->count, p->opts.dtype, peer, tag, NULL, request)
                   : ddp_irecv(p->g, at, l->count, p->opts.dtype, peer, tag, NULL, request);
}

static int wait_for(struct lane *l, int micro)
{
    struct ddp_request *request = l->request[micro];
    l->request[micro] = NULL;
    return ddp_wait(request);
}

/* All that is open; the first failure counts. */
static int wait_for_all(struct ddp_pipeline *p, struct lane *l, int rc)
{
    for (int m = 0; m < p->opts.n_micro; m++) {
        int rc_of_one = wait_for(l, m);
        rc = rc != 0 ? rc : rc_of_one;
    }
    return rc;
}

/* --- a step ----------------------------------------------------------------------------------- */

static void keep_failure(struct ddp_pipeline *p, int status)
{
    const bool is_status = status < 0 || status == DDP_RETRY;
    p->failure = is_status ? rt_fail_returned("ddp_pipeline_step: a stage's function", status)
                           : rt_fail(DDP_EINVAL,
                                     "ddp_pipeline_step: a stage's function returned %d: return 0, "
                                     "DDP_RETRY or a negative status",
                                     status);
    snprintf(p->failure_text, sizeof p->failure_text, "%s", ddp_last_error());
}

/* What the program does with a micro-batch. The next stage is waiting: it gets zeros from one that
 * has failed. */
static void call_program(struct ddp_pipeline *p, int micro, int direction)
{
    const struct ddp_pipeline_opts *o = &p->opts;
    const struct lane *to = direction == FORWARD ? &p->out : &p->d_in;
    uint8_t *in = buffer_of(p, &p->in, micro), *result = buffer_of(p, to, micro);
    int rc = p->failure;
    if (rc == 0)
        rc = direction == FORWARD
                 ? o->forward(o->arg, micro, in, result)
                 : o->backward(o->arg, micro, in, buffer_of(p, &p->d_out, micro), result);
    if (rc != 0 && p->failure == 0)
        keep_failure(p, rc);
    if (rc != 0 && result != NULL)
        memset(result, 0, to->count * ddp_dtype_size(o->dtype));
}

/* All micro-batches, forward in rising and backward in falling order. */
static int go_through(struct ddp_pipeline *p, int direction)
{
    struct lane *from = direction == FORWARD ? &p->in : &p->d_out;
    struct lane *to = direction == FORWARD ? &p->out : &p->d_in;
    const int n = p->opts.n_micro;
    int rc = 0;
    for (int k = 0; rc == 0 && k < n; k++)
        rc = begin_message(p, from, direction == FORWARD ? k : n - 1 - k, false, direction);
    for (int k = 0; rc == 0 && k < n; k++) {
        const int micro = direction == FORWARD ? k : n - 1 - k;
        rc = wait_for(from, micro);
        if (rc != 0)
            break;
        call_program(p, micro, direction);
        rc = begin_message(p, to, micro, true, direction);
    }
    return rc;
}

/* All stages have succeeded, or none. */
static int conclude_step(struct ddp_pipeline *p)
{
    int32_t failed = p->failure != 0 ? p->stage + 1 : 0; /* the last one that has, + 1 */
    int rc = ddp_all_reduce(p->g, &failed, &failed, 1, DDP_INT32, DDP_MAX, NULL);
    if (rc != 0)
        return rt_fail(rc, "ddp_pipeline_step: %s", ddp_last_error());
    if (p->failure != 0)
        return rt_fail(p->failure, "%s", p->failure_text);
    if (failed != 0)
        return rt_fail(DDP_EMISMATCH,
                       "ddp_pipeline_step: stage %d failed in this step: check its own message",
                       (int)failed - 1);
    return 0;
}

int ddp_pipeline_step(struct ddp_pipeline *p)
{
    if (p == NULL)
        return rt_fail(DDP_EINVAL, "ddp_pipeline_step: the pipeline is NULL");
    p->failure = 0;
    int rc = go_through(p, FORWARD);
    if (rc == 0)
        rc = go_through(p, BACKWARD);
    struct lane *const lanes[] = {&p->in, &p->out, &p->d_in, &p->d_out};
    for (size_t i = 0; i < sizeof lanes / sizeof *lanes; i++)
        rc = wait_for_all(p, lanes[i], rc);
    return rc == 0 ? conclude_step(p) : rc;
}
