/* node.h - a job on one node: libuv around supervisor.h.
 *
 * Owns the spawner, the generation's store, the shared memory's broker, the ranks' stderr; turns
 * what happens into the supervisor's events and carries out its orders. Prints the report. */
#ifndef DDP_LAUNCHER_NODE_NODE_H
#define DDP_LAUNCHER_NODE_NODE_H

struct co_error;
struct roster_link_ops;
struct job_spec;
struct node_end;

/* Run the job to its end. Afterwards nothing of it runs any more. Called once in a process, single-
 * threaded, with descriptors 0 to 2 open; leaves signals blocked that it listened to.
 *
 * link      how it gets to the job's roster
 * null_fd   /dev/null, for reading; borrowed
 * returns   0 the job was begun and has ended; ret_end has the outcome
 *           -EADDRINUSE the store's port is taken; -ENOMEM, -errno: nothing was started */
int node_run(const struct job_spec *spec, const struct roster_link_ops *link, int null_fd,
             struct node_end *ret_end, struct co_error *err);

#endif
