/* endpoint.h - the rendezvous endpoint of a job, seen from one of its nodes: the way to the roster,
 * and the roster itself, if it is to be in this process.
 *
 * Which node has the roster is decided by trying: a node that reaches no roster at the endpoint
 * listens at its port and connects to its name. If that connection arrives at its own listener
 * (self_probe.h), the node is the endpoint. Else it stops listening and tries again later. The
 * kernel gives a port to one process, so one of several nodes on a host gets it and the others
 * join. If a name has several addresses, only one of them, the same for all nodes, can make a node
 * the endpoint, so that two machines that share a name do not both become it.
 *
 * A node that a roster has welcomed no longer becomes the endpoint: the state of the earlier roster
 * is lost with it. */
#ifndef DDP_LAUNCHER_MEMBERSHIP_ENDPOINT_H
#define DDP_LAUNCHER_MEMBERSHIP_ENDPOINT_H

#include "roster_link.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct co_error;
struct endpoint; /* opaque */
struct job_spec;
struct jobs_opts;
struct local_roster;

/* How a node of spec->world finds its roster; without an endpoint_host the job is of this
 * node alone, and no socket is made.
 *
 * spec      borrowed until the loop has closed all of it
 * notes     copied; none is called from within a call of this file
 * returns   0, -ENOMEM */
int endpoint_open(uv_loop_t *loop, const struct job_spec *spec,
                  const struct roster_link_callbacks *callbacks, struct endpoint **ret,
                  struct co_error *err);

/* What another module adds to a roster here, and to the endpoint's port. */
struct endpoint_hooks {
    void (*prepare)(void *arg, struct jobs_opts *opts); /* a roster is about to be made; opts->arg
                                                           is of opts->on_note */
    void (*on_roster)(void *arg, struct local_roster *own); /* it was made; lent */

    /* A roster is to be made here, which begins the job. returns false: not yet, on_down follows.
     * NULL: at once */
    bool (*may_begin)(void *arg);

    /* A connection has come. returns whether it was taken over, with the descriptor */
    bool (*on_control)(void *arg, int fd, const uint8_t *bytes, size_t len);
    void *arg;
};

/* Before the first endpoint_connect(). Copied. */
void endpoint_set_hooks(struct endpoint *e, const struct endpoint_hooks *hooks);

/* The roster here is not the job's any more. The port stays open for hooks. */
void endpoint_drop_roster(struct endpoint *e);

/* Make one attempt to get a link: on_up or on_down follows. An older link is dropped. */
void endpoint_connect(struct endpoint *e);
void endpoint_send(struct endpoint *e, const struct message *m); /* when up; else nothing */
void endpoint_disconnect(struct endpoint *e);                    /* what was sent still goes out */

/* Is the roster in this process? Certain from the first on_up on. */
bool endpoint_is_here(const struct endpoint *e);

/* The numeric address of this node that others get. After on_up.
 *
 * returns   0; -ENOTCONN: none is known, and others reach it by the endpoint's host */
int endpoint_own_address(const struct endpoint *e, char *text, size_t n);

/* The endpoint's listener, for a generation's store that is to have the same port: it must be away
 * while the store listens. As in struct roster_link_ops. */
bool endpoint_lend_port(struct endpoint *e, uint16_t port);
void endpoint_adopt(struct endpoint *e, int fd, const uint8_t *bytes, size_t len);
int endpoint_take_port(struct endpoint *e, struct co_error *err);

/* Disconnect all, after what was sent to them, then free everything, from the loop. Must not be
 * used after this call. */
void endpoint_close(struct endpoint *e);

/* All that as a node's link. */
extern const struct roster_link_ops endpoint_link_ops;

#endif
