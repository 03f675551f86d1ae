/* node_status.h - what is known of this node and its ranks now: for ddpctl, and for the pages of
 * --http.
 *
 * The first node of a job of several shows on these pages how the ranks of all nodes are: it asks
 * every NODE_STATUS_ASK_MS through the coordinator (rendezvous/jobs/figures.h), and each other node
 * answers. */
#ifndef DDP_LAUNCHER_NODE_NODE_STATUS_H
#define DDP_LAUNCHER_NODE_NODE_STATUS_H

#include "launcher/reporting/status_json.h"
#include "launcher/supervisor/goodput.h"
#include "launcher/supervisor/pace.h"
#include "node_view.h"

extern const struct node_feature node_status_feature;

/* --trainjob-progress: the first node of a job posts how far the training is to the TrainJob of
 * Kubeflow Trainer that the job belongs to (launcher/trainjob). */
extern const struct node_feature node_trainjob_feature;

enum { NODE_STATUS_ASK_MS = 5000 };

struct node_status_data {
    struct status status; /* lends from the rest, and from the node until the next event */
    struct pace pace;
    struct goodput_sums goodput;
    char host[256];
    struct status_rank *ranks; /* owned, with the tails that their last lines are in: */
    char **tails;
};

/* Costs a look at each rank's page and, if connections came to the store since the last time, one
 * at its peers.
 *
 * ret       filled in place: it is not to be moved. After success, node_status_release() it
 * returns   0, -ENOMEM */
int node_status_collect(const struct node_view *n, struct node_status_data *ret);
void node_status_release(struct node_status_data *d);

#endif
