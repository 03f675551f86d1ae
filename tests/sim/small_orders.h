/* small_orders.h - the roster and the members of a small world are fed, and what they order is
 * carried out: messages are on their way, connections close, ranks start and end. */
#ifndef TESTS_SIM_SMALL_ORDERS_H
#define TESTS_SIM_SMALL_ORDERS_H

#include "small_world.h"

void feed_roster(struct world *w, struct roster_input in);
void feed_node(struct world *w, struct node *n, struct member_input in);
void carry_out_node(struct world *w, struct node *n, const struct member_orders *o);

/* Does a node check its health in this state? */
bool may_check(enum member_state state);

/* Put on a connection to that end; and free its place once neither end receives from it. */
void post(struct link *l, enum direction to, struct mail mail);
void free_if_over(struct link *l);
void close_end(struct link *l, enum direction heard); /* the other end is notified */

/* Ranks that were connected to n's ranks detect that these have ended. */
void break_peers(struct world *w, const struct node *n);
void end_ranks(struct world *w, struct node *n);
void end_node(struct world *w, struct node *n); /* its ddprun, with its ranks */

#endif
