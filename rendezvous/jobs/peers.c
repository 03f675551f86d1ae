/* peers.c - the node at the other end of a link: found, and written to. */
#include "jobs_priv.h"

struct peer *jobs_find_peer(const struct jobs *j, uint64_t link)
{
    uint64_t slot = link & ((1u << SLOT_BITS) - 1);
    struct peer *p = slot < j->n_slots ? j->peers[slot] : NULL;
    return p != NULL && p->link == link ? p : NULL;
}

void jobs_send(struct peer *p, const struct message *m)
{
    if (p->conn != NULL)
        channel_conn_send(p->conn, m);
    else
        channel_pipe_send(&p->jobs->pipe, CHANNEL_PIPE_ROSTER, m);
}
