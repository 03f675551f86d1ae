/* remote.h - a job on other hosts: a ddprun that starts others and is no node itself.
 *
 * It reaches each host by ssh, some of them at a time, tells the ddpruns there what to do by their
 * launch channels (launch_wire.h), passes signals to them and what their ranks write to the
 * terminal. The roster at which they meet is in this process. The way to a host is a process below
 * our spawner, so that none is left when this ddprun dies, of whatever; the node at its other end
 * sees its launch channel end then, and the roster gone. */
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
 * returns   0 ret_end says how it ended; -errno: nothing was started */
int remote_run(struct job_spec *spec, int null_fd, struct node_end *ret_end, struct co_error *err);

/* A line for each host, of --dry-run: how many ranks, and by what command.
 *
 * returns   0, -errno */
int remote_show(const struct job_spec *spec, FILE *out, struct co_error *err);

#endif
