/* small_promises.h - what docs/design/membership.md promises, looked at in each state of a small
 * world: one rank in a place, one generation at a time, one verdict, no step lost, none counted
 * twice. */
#ifndef TESTS_SIM_SMALL_PROMISES_H
#define TESTS_SIM_SMALL_PROMISES_H

#include "small_world.h"

enum { OWN_CODE = 7, CONSEQUENCE_CODE = 1 }; /* with which ranks fail */

/* Something has to hold. What did not, first of all, is kept. */
void promise(bool holds, const char *what);
const char *promise_broken(void); /* NULL: none */

void promise_at_sealing(const struct world *w);
void promise_of_verdict(const struct world *w);
void promise_of_budget(const struct world *w);

/* The roster sends n this. Ranks that live on are not killed because another roster took over. */
void promise_of_move(const struct world *w, const struct node *n, const struct message *m);

/* n's ranks are about to start, as many as n_given. */
void promise_of_number(const struct node *n, uint32_t n_given);

/* n's ranks continue, or have just connected to those of its generation. */
void promise_of_generations(const struct world *w, const struct node *n);
void promise_no_step_is_lost(const struct world *w, const struct node *n);
void promise_of_history(const struct world *w, const struct node *n);

#endif
