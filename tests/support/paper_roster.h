/* paper_roster.h - a link to the roster for tests: a test double of what lies between a node and
 * its roster. The roster is the real one, in this process; the job's other nodes are real members
 * whose ranks exist on paper only and follow commands from a FIFO.
 *
 * PAPER_COMMANDS names the FIFO, with one command per line:
 *
 *     start NAME        a node with that name joins (four at most)
 *     done NAME         its ranks have exited with 0
 *     fail NAME CODE    its first rank has failed with this exit status
 *     leave NAME        it leaves
 *     kill NAME         it fails
 *     deaf              the process's own node no longer receives or sends messages
 *
 * PAPER_LEASE_MS is the lease, with a keep-alive in each fifth of it; 3000 without it. */
#ifndef DDP_TESTS_SUPPORT_PAPER_ROSTER_H
#define DDP_TESTS_SUPPORT_PAPER_ROSTER_H

#include "launcher/membership/roster_link.h"

extern const struct roster_link_ops paper_roster_link;

#endif
