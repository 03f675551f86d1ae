/* recovery.h - the supervisor's part about ranks that live on when others end
 * (docs/design/recovery.md): the conditions and actions of its table that have to do with them.
 * Writes no state. */
#ifndef DDP_LAUNCHER_SUPERVISOR_RECOVERY_H
#define DDP_LAUNCHER_SUPERVISOR_RECOVERY_H

#include "supervisor.h"

/* --- Conditions --- */

/* All that were called to the generation have joined it, and those restarted are started. */
bool recovery_all_joined(const struct supervisor *s, const struct supervisor_event *e);

/* EXITED: the others may live on until it is known what follows. */
bool recovery_outlive(const struct supervisor *s, const struct supervisor_event *e);

/* A rank waits for another generation, and all could continue in one. */
bool recovery_is_parted(const struct supervisor *s, const struct supervisor_event *e);

/* ORDER_STOP: the ranks may live on instead. */
bool recovery_may_park(const struct supervisor *s, const struct supervisor_event *e);

/* ORDER_STOP, when they do already: it is the generation that ends, not the job. */
bool recovery_stay_parked(const struct supervisor *s, const struct supervisor_event *e);

/* PARKED: how many ranks would be in the next generation. */
int recovery_n_next(const struct supervisor *s);

/* --- Actions --- */

/* The ranks take part in the generation no more. */
void recovery_park(struct supervisor *s, const struct supervisor_event *e,
                   struct supervisor_orders *o);

/* The same, and one has failed. */
void recovery_park_others(struct supervisor *s, const struct supervisor_event *e,
                          struct supervisor_orders *o);

/* The parked ranks are called to the next generation. Those that have ended begin again, or
 * are left out: then only as many begin again as it was made for. */
void recovery_go_on(struct supervisor *s, const struct supervisor_event *e,
                    struct supervisor_orders *o);

/* An answer has arrived: one more start is possible. */
void recovery_start_more(struct supervisor *s, const struct supervisor_event *e,
                         struct supervisor_orders *o);

/* Ranks of this node wait for the next generation, and no order came within the deadline: only
 * these ranks lost their peers. This is a failure of the generation. */
void recovery_part(struct supervisor *s, const struct supervisor_event *e,
                   struct supervisor_orders *o);

/* All ranks run. If one of them already asks for the next generation, another node has lost a rank;
 * the roster's order is due within recovery_ms, the deadline that this sets (see
 * recovery_part()). */
void recovery_settle(struct supervisor *s, const struct supervisor_event *e,
                     struct supervisor_orders *o);

/* A rank that does not come keeps all others waiting: it is what has failed. */
void recovery_blame_late(struct supervisor *s, const struct supervisor_event *e,
                         struct supervisor_orders *o);

/* Parked ranks are stopped after all; why, is known, or an order. */
void recovery_stop_parked(struct supervisor *s, const struct supervisor_event *e,
                          struct supervisor_orders *o);

#endif
