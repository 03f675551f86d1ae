#include "close_group.h"

#include "local_roster.h"

#include "rendezvous/jobs/channel_link.h"
#include "rendezvous/jobs/jobs.h"
#include "rendezvous/server/server.h"

#include <stddef.h>

void close_group_expect(struct close_group *p)
{
    p->n_closing++;
}

void close_group_on_closed(void *arg)
{
    struct close_group *p = arg;
    p->n_closing--;
    if (p->n_closing == 0 && p->on_gone != NULL)
        p->on_gone(p->arg); /* p is part of what goes */
}

void close_group_end(struct close_group *p, void (*on_gone)(void *arg), void *arg)
{
    p->on_gone = on_gone;
    p->arg = arg;
}

void close_group_close_server(struct close_group *p, struct server **server)
{
    if (*server == NULL)
        return;
    close_group_expect(p);
    server_close(*server, close_group_on_closed, p);
    *server = NULL;
}

void close_group_close_jobs(struct close_group *p, struct jobs **jobs)
{
    if (*jobs == NULL)
        return;
    close_group_expect(p);
    jobs_close(*jobs, close_group_on_closed, p);
    *jobs = NULL;
}

void close_group_close_link(struct close_group *p, struct channel_link **link)
{
    if (*link == NULL)
        return;
    close_group_expect(p);
    channel_link_close(*link, close_group_on_closed, p);
    *link = NULL;
}

void close_group_close_own(struct close_group *p, struct local_roster **own)
{
    if (*own == NULL)
        return;
    close_group_expect(p);
    local_roster_close(*own, close_group_on_closed, p);
    *own = NULL;
}

static void on_timer_closed(uv_handle_t *handle)
{
    close_group_on_closed(handle->data);
}

void close_group_close_timer(struct close_group *p, uv_timer_t *timer)
{
    close_group_expect(p);
    timer->data = p;
    uv_close((uv_handle_t *)timer, on_timer_closed);
}
