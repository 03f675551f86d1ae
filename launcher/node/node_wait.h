/* node_wait.h - what a node of several waits for, and why: for the terminal and --events.
 *
 * One line, drawn over and over where there is a terminal; elsewhere a new one for each change. The
 * launching ddprun reports for the nodes that it has started. */
#ifndef DDP_LAUNCHER_NODE_NODE_WAIT_H
#define DDP_LAUNCHER_NODE_NODE_WAIT_H

#include "launcher/reporting/wait_line.h"

#include "rendezvous/membership/member.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct node_view;

struct node_wait {
    const struct node_view *node;     /* borrowed */
    const struct member *member;      /* borrowed; set before the first wait begins */
    const char *daemon;               /* borrowed: where the roster is looked for */
    char trouble[MESSAGE_TEXT_BYTES]; /* why there is no link; "" */
    char cause[MESSAGE_TEXT_BYTES];   /* why the last generation ended, if not reported yet; else
                                       * "" */
    uint64_t from_ms;                 /* the wait has begun */
    uv_timer_t timer;
    struct wait_line shown;
    struct wait_text text;
    bool on_terminal;
};

/* daemon   "node1:29400" */
void node_wait_init(struct node_wait *w, const struct node_view *n, const char *daemon);
void node_wait_close(struct node_wait *w); /* what the loop knows of it */

/* The first wait begins: for the roster. */
void node_wait_begin(struct node_wait *w);

/* The member was in that state, and has made a step. */
void node_wait_note(struct node_wait *w, enum member_state from);

/* In words, lent until the next event; NULL: this node does not wait. */
const char *node_wait_text(const struct node_wait *w);

#endif
