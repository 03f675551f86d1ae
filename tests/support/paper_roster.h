/* paper_roster.h - a link to the roster for tests: a test double of what lies between a node and
 * its roster. The roster is the real one, in this process; the job's other nodes are real members
 * whose ranks exist on paper only, and do what a FIFO tells them.
 *
 * PAPER_COMMANDS names the FIFO, with a command a line:
 *
 *     start NAME        a node of that name comes (four at most)
 *     done NAME         its ranks have ended well
 *     fail NAME CODE    its first rank has failed with this exit code
 *     leave NAME        it goes
 *     kill NAME         it is gone
 *     deaf              nothing reaches the process's own node any more, nor comes from it
 *
 * PAPER_LEASE_MS is the lease, with a heartbeat in each fifth of it; 3000 without it. */
#ifndef DDP_TESTS_SUPPORT_PAPER_ROSTER_H
#define DDP_TESTS_SUPPORT_PAPER_ROSTER_H

#include "launcher/membership/roster_link.h"

extern const struct roster_link_ops paper_roster_link;

#endif
