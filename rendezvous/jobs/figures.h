/* figures.h - how the ranks of each node are, on the way to the first node of the job, which shows
 * it on its pages.
 *
 * The first node of the generation asks now and then, each other node of it is asked, and answers
 * once. Nothing is kept, and what was not asked for is dropped: a first node that does not ask,
 * because it is stopped or has no pages, gets nothing, and it is asked for at most once in
 * FIGURES_EVERY_MS. */
#ifndef DDP_RENDEZVOUS_JOBS_FIGURES_H
#define DDP_RENDEZVOUS_JOBS_FIGURES_H

#include "jobs_priv.h"

enum { FIGURES_EVERY_MS = 1000 };

/* A FIGURES has come from a node. */
void figures_take(struct peer *p, const struct message *m);

#endif
