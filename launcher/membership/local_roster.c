#include "local_roster.h"

#include "common/error.h"
#include "rendezvous/jobs/channel_link.h"
#include "rendezvous/jobs/jobs.h"

#include <errno.h>
#include <stdlib.h>

struct local_roster {
    struct jobs_opts opts; /* as they were given; no callbacks: it is being closed */
    struct jobs *jobs;
    struct channel_link *link;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

static void on_note(void *arg, const char *text)
{
    const struct local_roster *o = arg;
    if (o->opts.on_note != NULL)
        o->opts.on_note(o->opts.arg, text);
}

static void on_changed(void *arg, const char *run_id, const struct roster *r,
                       enum roster_state from)
{
    const struct local_roster *o = arg;
    if (o->opts.on_changed != NULL)
        o->opts.on_changed(o->opts.arg, run_id, r, from);
}

static void on_heard(void *arg, const struct roster *r)
{
    const struct local_roster *o = arg;
    if (o->opts.on_heard != NULL)
        o->opts.on_heard(o->opts.arg, r);
}

static void on_jobs_closed(void *arg)
{
    struct local_roster *o = arg;
    void (*on_closed)(void *arg) = o->on_closed;
    void *on_closed_arg = o->on_closed_arg;
    free(o);
    if (on_closed != NULL)
        on_closed(on_closed_arg);
}

static void on_link_closed(void *arg)
{
    struct local_roster *o = arg;
    jobs_close(o->jobs, on_jobs_closed, o);
}

int local_roster_create(uv_loop_t *loop, const struct jobs_opts *opts,
                        const struct channel_link_callbacks *callbacks, struct local_roster **ret,
                        struct co_error *err)
{
    struct local_roster *o = calloc(1, sizeof *o);
    if (o == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    o->opts = *opts;
    struct jobs_opts inner = *opts;
    inner.on_note = on_note;
    inner.on_changed = on_changed;
    inner.on_heard = on_heard;
    inner.arg = o;
    int rc = jobs_create(loop, &inner, &o->jobs, err);
    if (rc < 0) {
        free(o);
        return rc;
    }
    rc = channel_link_create_local(loop, o->jobs, callbacks, &o->link, err);
    if (rc < 0) {
        o->opts = (struct jobs_opts){0};
        jobs_close(o->jobs, on_jobs_closed, o);
        return rc;
    }
    *ret = o;
    return 0;
}

struct jobs *local_roster_jobs(const struct local_roster *o)
{
    return o->jobs;
}

struct channel_link *local_roster_link(const struct local_roster *o)
{
    return o->link;
}

void local_roster_close(struct local_roster *o, void (*on_closed)(void *arg), void *arg)
{
    o->on_closed = on_closed;
    o->on_closed_arg = arg;
    o->opts.on_changed = NULL;
    o->opts.on_heard = NULL;
    channel_link_close(o->link, on_link_closed, o);
}
