#include "parts.h"

#include "own_roster.h"

#include "rendezvous/jobs/control_link.h"
#include "rendezvous/jobs/jobs.h"
#include "rendezvous/server/server.h"

#include <stddef.h>

void parts_expect(struct parts *p)
{
    p->n_closing++;
}

void parts_on_closed(void *arg)
{
    struct parts *p = arg;
    p->n_closing--;
    if (p->n_closing == 0 && p->on_gone != NULL)
        p->on_gone(p->arg); /* p is part of what goes */
}

void parts_end(struct parts *p, void (*on_gone)(void *arg), void *arg)
{
    p->on_gone = on_gone;
    p->arg = arg;
}

void parts_close_server(struct parts *p, struct server **server)
{
    if (*server == NULL)
        return;
    parts_expect(p);
    server_close(*server, parts_on_closed, p);
    *server = NULL;
}

void parts_close_jobs(struct parts *p, struct jobs **jobs)
{
    if (*jobs == NULL)
        return;
    parts_expect(p);
    jobs_close(*jobs, parts_on_closed, p);
    *jobs = NULL;
}

void parts_close_link(struct parts *p, struct control_link **link)
{
    if (*link == NULL)
        return;
    parts_expect(p);
    control_link_close(*link, parts_on_closed, p);
    *link = NULL;
}

void parts_close_own(struct parts *p, struct own_roster **own)
{
    if (*own == NULL)
        return;
    parts_expect(p);
    own_roster_close(*own, parts_on_closed, p);
    *own = NULL;
}

static void on_timer_closed(uv_handle_t *handle)
{
    parts_on_closed(handle->data);
}

void parts_close_timer(struct parts *p, uv_timer_t *timer)
{
    parts_expect(p);
    timer->data = p;
    uv_close((uv_handle_t *)timer, on_timer_closed);
}
