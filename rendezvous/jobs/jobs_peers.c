/* jobs_peers.c - the peers by the number of their link, and messages to them. */
#include "jobs_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SLOT_BITS = 20 }; /* of a link's number: where its peer is */
_Static_assert(JOBS_MAX_CONNS < 1 << SLOT_BITS, "each connection has a slot");

struct peer *jobs_find_peer(const struct jobs *j, uint64_t link)
{
    uint64_t slot = link & ((1u << SLOT_BITS) - 1);
    struct peer *p = slot < j->n_slots ? j->peers[slot] : NULL;
    return p != NULL && p->link == link ? p : NULL;
}

static int find_slot(struct jobs *j, uint32_t *ret_slot)
{
    for (uint32_t i = 0; i < j->n_slots && j->n_peers < j->n_slots; i++) {
        uint32_t slot = (uint32_t)((j->n_links + i) % j->n_slots);
        if (j->peers[slot] == NULL) {
            *ret_slot = slot;
            return 0;
        }
    }
    uint32_t n_slots = j->n_slots == 0 ? 16 : j->n_slots * 2;
    struct peer **peers = realloc(j->peers, n_slots * sizeof *peers);
    if (peers == NULL)
        return -ENOMEM;
    memset(peers + j->n_slots, 0, (n_slots - j->n_slots) * sizeof *peers);
    *ret_slot = j->n_slots;
    j->peers = peers;
    j->n_slots = n_slots;
    return 0;
}

struct peer *jobs_make_peer(struct jobs *j)
{
    uint32_t slot;
    if (find_slot(j, &slot) < 0)
        return NULL;
    struct peer *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    p->jobs = j;
    p->link = ++j->n_links << SLOT_BITS | slot;
    j->peers[slot] = p;
    j->n_peers++;
    return p;
}

void jobs_free_peer(struct peer *p)
{
    struct jobs *j = p->jobs;
    j->peers[p->link & ((1u << SLOT_BITS) - 1)] = NULL;
    j->n_peers--;
    if (j->local == p)
        j->local = NULL;
    free(p);
}

void jobs_send(struct peer *p, const struct message *m)
{
    if (p->conn != NULL)
        channel_conn_send(p->conn, m);
    else
        channel_pipe_send(&p->jobs->pipe, CHANNEL_PIPE_ROSTER, m);
}

void jobs_end_peer(struct peer *p)
{
    if (p->conn != NULL)
        channel_conn_end(p->conn);
    else
        channel_pipe_shut(&p->jobs->pipe, CHANNEL_PIPE_ROSTER);
    jobs_free_peer(p);
}
