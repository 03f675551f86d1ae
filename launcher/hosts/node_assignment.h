/* node_assignment.h - this node's place in a job, as whoever started ddprun tells it: it takes the
 * place of options. */
#ifndef DDP_LAUNCHER_HOSTS_NODE_ASSIGNMENT_H
#define DDP_LAUNCHER_HOSTS_NODE_ASSIGNMENT_H

#include <stdbool.h>

/* Texts are borrowed until the job_spec is made. */
struct node_assignment {
    const char *by;        /* who says it, for messages */
    const char *name;      /* the node's */
    const char *nodes;     /* as of --nnodes */
    const char *node_rank; /* as of --node-rank; NULL: names decide */
    const char *n_ranks;   /* as of -p; NULL: as the options say, or the node */
    const char *endpoint;  /* HOST:PORT, where the roster is */
    const char *run_id;
    bool has_roster; /* the nodes meet in this process */
    bool is_whole;   /* the folder, the environment and the secret were told, too */
};

#endif
