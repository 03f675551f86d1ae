/* node_console.h - what ddpctl asks of this node, and what is done about it: console.h knows how it
 * is asked, this knows the answers. */
#ifndef DDP_LAUNCHER_NODE_NODE_CONSOLE_H
#define DDP_LAUNCHER_NODE_NODE_CONSOLE_H

struct co_error;
struct node_leave;
struct node_roster;
struct node_view;
struct node_console; /* opaque */

/* The socket is opened from the loop, a moment later: a job that is over by then has none, and
 * ranks that have just begun lose no CPU to it.
 *
 * n, roster, leave   borrowed; leave may be NULL
 * returns   0, -ENOMEM */
int node_console_create(const struct node_view *n, struct node_roster *roster,
                        struct node_leave *leave, struct node_console **ret, struct co_error *err);

/* A rank was started, or has joined the others of its generation. */
void node_console_note_start(struct node_console *nc, int local_rank);
void node_console_note_joined(struct node_console *nc, int local_rank);

/* Closes its handles, of the loop that is run once more before _destroy(). NULL is fine. */
void node_console_close(struct node_console *nc);
void node_console_destroy(struct node_console *nc);

#endif
