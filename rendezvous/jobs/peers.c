/* peers.c - the node at the other end of a link: found, and written to. */
#include "jobs_priv.h"

#include <time.h>

struct peer *jobs_find_peer(const struct jobs *j, uint64_t link)
{
    uint64_t slot = link & ((1u << SLOT_BITS) - 1);
    struct peer *p = slot < j->n_slots ? j->peers[slot] : NULL;
    return p != NULL && p->link == link ? p : NULL;
}

static uint64_t time_of_day_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void jobs_send(struct peer *p, const struct message *m)
{
    struct message copy;
    if (m->type == MESSAGE_WELCOME) { /* the roster knows no time of day */
        copy = *m;
        copy.welcome.clock_ms = time_of_day_ms();
        m = &copy;
    }
    if (p->conn != NULL)
        channel_conn_send(p->conn, m);
    else
        channel_pipe_send(&p->jobs->pipe, CHANNEL_PIPE_ROSTER, m);
}
