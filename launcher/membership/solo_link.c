/* solo_link.c - the roster is stepped within send(), and its messages wait in a short queue until
 * the node asks for it: deliver(). So neither machine is called from within its own step. A queued
 * message still lends its texts from the roster, which may have written newer ones into the same
 * memory meanwhile; it never frees them. */
#include "solo_link.h"

#include "launcher/job/job_spec.h"
#include "rendezvous/membership/roster.h"

#include "common/clock.h"
#include "common/error.h"

#include <errno.h>
#include <stdlib.h>

enum {
    LINK = 1,       /* the only one */
    MAX_QUEUED = 16 /* the roster sends at most a few messages before they are taken */
};

/* Nothing of it is a deadline here: all is in one process, and as late as the other. */
#define LONG_MS (MESSAGE_MAX_MS - 1)

struct solo_link {
    uv_loop_t *loop;
    struct roster_link_callbacks callbacks;
    struct roster *roster; /* owned */
    uv_timer_t timer;      /* a pause before a restart */
    bool goes_up;          /* and that is not reported yet */
    bool is_up;
    struct message queue[MAX_QUEUED]; /* from `first` on */
    int first, n;
    bool is_over_full; /* more was sent: handled as a broken link, and both sides send it again */
};

static void on_timer(uv_timer_t *timer);

/* Of the roster's deadlines only that of a pause, and those of checks, are for this node. */
static void set_timer(struct solo_link *l, uint64_t now_ms)
{
    const uint64_t deadline_ms = roster_deadline_ms(l->roster);
    const uint64_t wait_ms = deadline_ms > now_ms ? deadline_ms - now_ms : 0;
    if (wait_ms >= LONG_MS / 2) {
        uv_timer_stop(&l->timer);
        return;
    }
    uv_update_time(l->loop);
    uv_timer_start(&l->timer, on_timer, wait_ms, 0);
}

static void step(struct solo_link *l, struct roster_input *in)
{
    struct roster_actions actions;
    in->now_ms = co_now_ms();
    in->link = LINK;
    in->local = true;
    roster_step(l->roster, in, &actions);
    for (size_t i = 0; i < actions.n; i++) {
        if (actions.items[i].type != ROSTER_SEND)
            continue;
        if (l->n < MAX_QUEUED)
            l->queue[(l->first + l->n++) % MAX_QUEUED] = actions.items[i].message;
        else
            l->is_over_full = true;
    }
    set_timer(l, in->now_ms);
}

static void on_timer(uv_timer_t *timer)
{
    step(timer->data, &(struct roster_input){.type = ROSTER_TIME});
}

static int link_open(uv_loop_t *loop, const struct job_spec *spec,
                     const struct roster_link_callbacks *callbacks, void **ret,
                     struct co_error *err)
{
    const struct roster_limits limits = {.keep_alive_ms = LONG_MS,
                                         .lease_ms = MESSAGE_MAX_MS,
                                         .ready_ms = LONG_MS,
                                         .slack_ms = LONG_MS};
    struct message_terms terms;
    struct solo_link *l = calloc(1, sizeof *l);
    if (l == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    job_spec_terms(spec, &terms);
    if (!job_spec_checks(spec)) /* else it is the time to become fit */
        terms.start_timeout_ms = LONG_MS;
    int rc = roster_create(&limits, &terms, NULL, 0, co_now_ms(), &l->roster, err);
    if (rc < 0) {
        free(l);
        return rc;
    }
    l->loop = loop;
    l->callbacks = *callbacks;
    uv_timer_init(loop, &l->timer);
    l->timer.data = l;
    *ret = l;
    return 0;
}

static void link_connect(void *link)
{
    struct solo_link *l = link;
    l->goes_up = true;
}

static void link_send(void *link, const struct message *m)
{
    struct solo_link *l = link;
    if (l->is_up)
        step(l, &(struct roster_input){.type = ROSTER_MESSAGE, .message = m});
}

static void link_disconnect(void *link)
{
    struct solo_link *l = link;
    l->goes_up = l->is_up = l->is_over_full = false;
    l->n = 0;
}

static void break_link(struct solo_link *l)
{
    l->is_up = false;
    step(l, &(struct roster_input){.type = ROSTER_GONE});
    l->is_over_full = false;
    l->n = 0;
    l->callbacks.on_down(l->callbacks.arg,
                         "the coordinator sent more messages than this node can hold", 0, false);
}

static bool link_deliver(void *link)
{
    struct solo_link *l = link;
    if (l->is_over_full) {
        break_link(l);
        return true;
    }
    if (l->goes_up) {
        l->goes_up = false;
        l->is_up = true;
        l->callbacks.on_up(l->callbacks.arg, true);
        return true;
    }
    if (l->n == 0)
        return false;
    const struct message m = l->queue[l->first];
    l->first = (l->first + 1) % MAX_QUEUED;
    l->n--;
    l->callbacks.on_message(l->callbacks.arg, &m);
    return true;
}

static const struct roster_restart *link_restart(const void *link)
{
    return roster_get_restart(((const struct solo_link *)link)->roster);
}

static void link_hurry(void *link)
{
    step(link, &(struct roster_input){.type = ROSTER_HURRY});
}

static void on_closed(uv_handle_t *handle)
{
    struct solo_link *l = handle->data;
    roster_destroy(l->roster);
    free(l);
}

static void link_close(void *link)
{
    struct solo_link *l = link;
    uv_close((uv_handle_t *)&l->timer, on_closed);
}

const struct roster_link_ops solo_link_ops = {
    .open = link_open,
    .connect = link_connect,
    .send = link_send,
    .disconnect = link_disconnect,
    .deliver = link_deliver,
    .restart = link_restart,
    .hurry = link_hurry,
    .close = link_close,
};
