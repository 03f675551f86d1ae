/* node_pmi.h - this node's part in PMI-1 (--mpi): a pmi_host.h for each generation, and what it
 * says in the supervisor's words. */
#ifndef DDP_LAUNCHER_NODE_NODE_PMI_H
#define DDP_LAUNCHER_NODE_NODE_PMI_H

struct co_error;
struct node_view;
struct node_pmi; /* opaque */
struct supervisor_event;

/* n         borrowed
 * ret       untouched if the job has none
 * returns   0, -ENOMEM */
int node_pmi_open(const struct node_view *n, struct node_pmi **ret, struct co_error *err);

/* A generation begins, whose place is known; the one before has no ranks any more. n->start has
 * what its ranks connect to then. NULL is fine.
 *
 * returns   0; -errno: it cannot, and the terminal says why */
int node_pmi_renew(struct node_pmi *p);

/* A rank has ended (EXITED): how that counts, and whether another one's abort was the cause. NULL
 * is fine. */
void node_pmi_judge(struct node_pmi *p, struct supervisor_event *e);

void node_pmi_close(struct node_pmi *p); /* NULL is fine; frees from the loop */

#endif
