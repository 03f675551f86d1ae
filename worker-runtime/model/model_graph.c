/* model_graph.c - steps in a CUDA graph: whether one goes there, and its end after each launch.
 *
 * The averages of such a step are in the graph. Its end, in which the ranks agree that it counts,
 * is ddp_model_replayed(). docs/design/nccl.md, "Graphs", has the states that a step goes
 * through. */
#include "model_priv.h"

#include "worker-runtime/device/device.h"
#include <ddp/collective.h>
#include <inttypes.h>
#include <stdio.h>

/* --- where a step goes ------------------------------------------------------------------------ */

/* None of it goes into the graph, nor any more of it. No other rank is notified: none waits for
 * this one before a launch. */
static int refuse_step(struct ddp_model *m, int rc)
{
    m->step = MODEL_STEP_REFUSED;
    model_keep_failure(m, rc, false);
    return model_tell_failure(m);
}

static int begin_capture(struct ddp_model *m)
{
    if (m->opts.weighted)
        return refuse_step(m, rt_fail(DDP_EUNSUPPORTED,
                                      "a step of a weighted model cannot be captured, because "
                                      "its weight changes with each step"));
    if (m->n_steps == 0)
        return refuse_step(
            m, rt_fail(DDP_EINVAL,
                       "the first step of a model cannot be captured, because it determines the "
                       "order of the buckets: run one step without capture first"));
    m->step = MODEL_STEP_CAPTURED;
    return 0;
}

static int compare_step(struct ddp_model *m, bool is_capturing)
{
    if (is_capturing == (m->step == MODEL_STEP_CAPTURED))
        return 0;
    if (is_capturing) /* peers wait for this rank's buckets, which go out after the capture */
        return model_misuse(m, "the step began before its stream captured a graph: end the "
                               "capture, then the step, which fails");
    return refuse_step(m, rt_fail(DDP_EINVAL, "the capture of the step's graph ended before "
                                              "ddp_model_sync(): no graph was captured"));
}

int model_graph_look(struct ddp_model *m)
{
    bool is_capturing = false;
    if (!model_is_on_device(m))
        return 0;
    if (m->step == MODEL_STEP_REFUSED)
        return model_tell_failure(m);
    int rc = device_is_capturing(m->g, m->opts.stream, &is_capturing);
    if (rc != 0)
        return m->step == MODEL_STEP_PLAIN ? model_keep_failure(m, rc, false) : refuse_step(m, rc);
    if (m->step != MODEL_STEP_NONE)
        return compare_step(m, is_capturing);
    if (is_capturing)
        return begin_capture(m);
    m->step = MODEL_STEP_PLAIN;
    return 0;
}

int model_graph_enter(struct ddp_model *m)
{
    const bool is_known = m->step == MODEL_STEP_PLAIN || m->step == MODEL_STEP_CAPTURED;
    return is_known ? 0 : model_graph_look(m);
}

/* --- the end of a step after a launch --------------------------------------------------------- */

int model_graph_check_outside(struct ddp_model *m, const char *name)
{
    bool is_capturing = false;
    if (!model_is_on_device(m))
        return 0;
    int rc = device_is_capturing(m->g, m->opts.stream, &is_capturing);
    if (rc != 0)
        return rt_fail(rc, "%s: %s", name, ddp_last_error());
    if (is_capturing || m->step == MODEL_STEP_CAPTURED || m->step == MODEL_STEP_REFUSED)
        return rt_fail(DDP_EINVAL, "%s cannot be called while a graph is captured", name);
    return 0;
}

/* Kernels of ranks that replay wait for those that do not: NCCL would not report that. */
static int fail_apart(struct ddp_model *m, const uint32_t says[2])
{
    char text[256];
    snprintf(
        text, sizeof(text),
        "rank %" PRIu32 " replays this step from a graph, but rank %" PRIu32
        " does not (ddp_model_sync() or ddp_join()): NCCL requires the same calls on all ranks",
        says[0] - 1, says[1] - 1);
    device_tell_mismatch(m->g, text);
    return rt_fail(DDP_EMISMATCH, "%s", text);
}

int model_graph_meet(struct ddp_model *m, bool replays)
{
    const uint32_t own = (uint32_t)m->g->rank + 1;
    uint32_t says[2] = {replays ? own : 0, replays ? 0 : own};
    int rc = ddp_all_reduce(m->g, says, says, 2, DDP_UINT32, DDP_MAX, NULL);
    if (rc != 0)
        return rc;
    return says[0] != 0 && says[1] != 0 ? fail_apart(m, says) : 0;
}

/* The group is broken: also end the launch, for the program may wait for it. rc has been reported;
 * returns it, or DDP_ERESPAWN */
static int end_launch(struct ddp_model *m, int rc)
{
    char text[CO_ERROR_TEXT_BYTES];
    snprintf(text, sizeof(text), "%s", ddp_last_error());
    if (model_device_averages(m) && device_wait(m->g, m->opts.stream) == DDP_ERESPAWN)
        return DDP_ERESPAWN;
    return rt_fail(rc, "%s", text);
}

/* A launch that was forgotten fails the step, but breaks nothing. */
int model_graph_wait(struct ddp_model *m)
{
    int rc = model_graph_meet(m, true);
    rc = rc == 0 ? model_device_wait_replay(m) : end_launch(m, rc);
    if (rc == 0)
        return 0;
    model_keep_failure(m, rc, rc != DDP_EINVAL);
    return rc != DDP_EINVAL ? rc : 0;
}
