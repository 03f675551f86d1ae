/* cli_seat.h - this node's place in a job, as whoever started ddprun tells it: it takes the place
 * of options. */
#ifndef DDP_LAUNCHER_CLI_SEAT_H
#define DDP_LAUNCHER_CLI_SEAT_H

/* Texts are borrowed until the job_spec is made. */
struct cli_seat {
    const char *by;       /* who says it, for messages */
    const char *name;     /* the node's */
    const char *nodes;    /* as of --nnodes */
    const char *n_ranks;  /* as of -p; NULL: as the options say, or the node */
    const char *endpoint; /* HOST:PORT, where the roster is: not in this process */
    const char *run_id;
};

#endif
