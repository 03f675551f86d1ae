/* node_figures.h - the first node of a job of several shows on its pages (--http) how the ranks of
 * all nodes are: it asks every NODE_FIGURES_MS through the coordinator (rendezvous/jobs/figures.h),
 * and each other node answers. */
#ifndef DDP_LAUNCHER_NODE_NODE_FIGURES_H
#define DDP_LAUNCHER_NODE_NODE_FIGURES_H

#include "node_view.h"

struct job_figures;
struct message;

extern const struct node_feature node_figures_feature;

enum { NODE_FIGURES_MS = 5000 };

/* A FIGURES came from the coordinator. */
void node_figures_hear(const struct node_view *n, const struct message *m);

/* Lent until the loop runs again; NULL: this node does not show those of others. */
const struct job_figures *node_figures_get(const struct node_view *n);

#endif
