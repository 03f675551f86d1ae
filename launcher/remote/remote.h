/* remote.h - a job on other hosts: a ddprun that starts others and is not a node itself.
 *
 * It reaches each host by ssh, some of them at a time, sends orders to the ddpruns there through
 * their launch channels (launch_wire.h), and passes signals to them and the output of their ranks
 * to the terminal. Their roster is in this process. The way to a host is a descendant of our
 * spawner, so that none is left when this ddprun dies for any reason; the node at its other end
 * then sees that its launch channel ends, and that the roster is gone. */
#ifndef DDP_LAUNCHER_REMOTE_REMOTE_H
#define DDP_LAUNCHER_REMOTE_REMOTE_H

#include <stdio.h>

struct co_error;
struct job_spec;
struct node_end;

enum {
    REMOTE_EXIT_UNREACHABLE = 69,
    REMOTE_EXIT_NODES_GONE = 75,
};

/* Run the job to its end, as node_run().
 *
 * spec      with remote; its world gets a key
 * returns   0 ret_end has the outcome; -errno: nothing was started */
int remote_run(struct job_spec *spec, int null_fd, struct node_end *ret_end, struct co_error *err);

/* A line for each host, of --dry-run: how many ranks, and by what command.
 *
 * returns   0, -errno */
int remote_show(const struct job_spec *spec, FILE *out, struct co_error *err);

#endif
