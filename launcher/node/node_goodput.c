#include "node_goodput.h"

#include "launcher/job/job_spec.h"

#include "common/clock.h"
#include "common/error.h"
#include "rendezvous/membership/member.h"
#include "segments/rank_status.h"

#include <errno.h>
#include <stdlib.h>

struct node_goodput {
    struct goodput goodput;
    enum supervisor_state was; /* the supervisor's, when it was last looked at */
    bool has_begun;
};

enum { NOTHING = GOODPUT_N_EVENTS };

/* The job begins after the features are made. */
static struct goodput *begun(const struct node_view *n)
{
    struct node_goodput *p = n->parts->goodput;
    if (!p->has_begun)
        goodput_begin(&p->goodput, n->begun_ms);
    p->has_begun = true;
    return &p->goodput;
}

static void feed(const struct node_view *n, enum goodput_event_type type, uint64_t at_ms)
{
    const uint64_t now_ms = co_now_ms();
    const struct goodput_event e = {
        .type = type, .now_ms = now_ms, .at_ms = at_ms < now_ms ? at_ms : now_ms};
    goodput_step(begun(n), &e);
}

/* The first and the last step that any rank has completed in this generation. Only while they run:
 * what ranks complete while others are already being stopped is lost. */
static void look_at_steps(const struct node_view *n)
{
    uint64_t first_ns = UINT64_MAX, last_ns = 0;
    if (n->parts->goodput->was != SUPERVISOR_RUNNING || n->gen->memory == NULL)
        return;
    for (int i = 0; i < n->spec->n_local; i++) {
        struct progress p;
        uint64_t digest;
        if (!generation_read_progress(n->gen, i, &p, &digest) || p.step_ns == 0)
            continue;
        first_ns = p.first_ns < first_ns ? p.first_ns : first_ns;
        last_ns = p.step_ns > last_ns ? p.step_ns : last_ns;
    }
    if (last_ns == 0)
        return;
    feed(n, GOODPUT_EV_STEP, first_ns / 1000000);
    feed(n, GOODPUT_EV_STEP, last_ns / 1000000);
}

/* Ranks that are stopped because the job, or this node's part of it, is over. */
static bool is_over(const struct supervisor *s)
{
    return supervisor_get_verdict(s)->is_final || supervisor_stop_signal(s) != 0 ||
           supervisor_timed_out(s);
}

/* returns   NOTHING for what changes no cause */
static int event_of(const struct supervisor *s, enum supervisor_state from,
                    enum supervisor_state to)
{
    switch (to) {
    case SUPERVISOR_STARTING:
        return GOODPUT_EV_START;
    case SUPERVISOR_RUNNING:
        return GOODPUT_EV_RUN;
    case SUPERVISOR_RECOVERING:
    case SUPERVISOR_PARKED:
        return GOODPUT_EV_RECOVER;
    case SUPERVISOR_AWAITING:
        return GOODPUT_EV_BREAK;
    case SUPERVISOR_WAITING:
        return NOTHING;
    default:
        break;
    }
    if (is_over(s))
        return GOODPUT_EV_END;
    if (from != SUPERVISOR_RUNNING && from != SUPERVISOR_STARTING && from != SUPERVISOR_RECOVERING)
        return NOTHING; /* they are being stopped already */
    return supervisor_get_verdict(s)->outcome == OUTCOME_WELL ? GOODPUT_EV_DONE : GOODPUT_EV_BREAK;
}

static void goodput_on_step(const struct node_view *n)
{
    struct node_goodput *p = n->parts->goodput;
    const enum supervisor_state from = p->was, to = supervisor_get_state(n->supervisor);
    if (from == to)
        return;
    look_at_steps(n);
    p->was = to;
    const int type = event_of(n->supervisor, from, to);
    if (type != NOTHING)
        feed(n, (enum goodput_event_type)type, 0);
}

static void goodput_on_end(const struct node_view *n, bool lives)
{
    const uint64_t now_ms = co_now_ms();
    if (lives)
        look_at_steps(n);
    const struct goodput_sums sums = node_goodput_read(n, now_ms);
    events_goodput(n->events, n->io->generation, &sums);
}

void node_goodput_note_hang(const struct node_view *n, uint64_t since_ms)
{
    look_at_steps(n);
    feed(n, GOODPUT_EV_HANG, since_ms);
}

void node_goodput_note_save(const struct node_view *n)
{
    look_at_steps(n);
    feed(n, GOODPUT_EV_SAVE, 0);
}

/* Also while ranks live on between two generations. */
void node_goodput_note_member(const struct node_view *n, const struct member *member)
{
    const enum supervisor_state state = supervisor_get_state(n->supervisor);
    const enum member_state waits = member_get_state(member);
    if ((state != SUPERVISOR_WAITING && state != SUPERVISOR_PARKED) ||
        (waits != MEMBER_JOINING && waits != MEMBER_WAITING && waits != MEMBER_PARKED))
        return;
    const struct message_progress *p = member_get_progress(member);
    const bool is_few = waits != MEMBER_JOINING && p != NULL && p->wait == MESSAGE_WAIT_NODES;
    if (begun(n)->state == GOODPUT_NODES && !is_few && state == SUPERVISOR_PARKED)
        feed(n, GOODPUT_EV_RECOVER, 0);
    else
        feed(n, is_few ? GOODPUT_EV_FEW_NODES : GOODPUT_EV_GATHER, 0);
}

struct goodput_sums node_goodput_read(const struct node_view *n, uint64_t now_ms)
{
    struct goodput_sums sums;
    if (supervisor_get_state(n->supervisor) == SUPERVISOR_RUNNING)
        look_at_steps(n);
    goodput_read(begun(n), now_ms, &sums);
    return sums;
}

static int goodput_open(const struct node_view *n, struct co_error *err)
{
    struct node_goodput *p = calloc(1, sizeof *p);
    if (p == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    p->was = supervisor_get_state(n->supervisor);
    n->parts->goodput = p;
    return 0;
}

static void goodput_close(const struct node_view *n)
{
    free(n->parts->goodput);
    n->parts->goodput = NULL;
}

const struct node_feature node_goodput_feature = {.open = goodput_open,
                                                  .on_step = goodput_on_step,
                                                  .on_end = goodput_on_end,
                                                  .close = goodput_close};
