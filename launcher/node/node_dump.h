/* node_dump.h - --on-failure-dump: a directory for each failure of this node's ranks, with where
 * each rank was, what it wrote last, and what NCCL, torch and the kernel have reported, and a page
 * that shows all of it.
 *
 *     DIR/RUN_ID_XXXXXX/attempt_GENERATION/index.html
 *
 * The stacks of the ranks that run are collected before these are stopped: what would stop them, an
 * exit or an order, is held back for JOB_FAILURE_DUMP_MS at most. */
#ifndef DDP_LAUNCHER_NODE_NODE_DUMP_H
#define DDP_LAUNCHER_NODE_NODE_DUMP_H

#include "node_view.h"

#include <stdbool.h>

struct flights;
struct ras_query;
struct stack;

enum { NODE_DUMPS_MAX = 16 }; /* of a job: a crash loop does not fill a disk */

extern const struct node_feature node_dump_feature;

/* A rank has failed, which the supervisor does not know yet.
 *
 * go_on     called once it may know it, if this returns true: from the loop, or from a step
 * returns   whether it has to wait */
bool node_dump_waits(const struct node_view *n, void (*go_on)(void *arg), void *arg);

/* The same for an event that ends the generation. It is copied, and posted later, if this returns
 * true. */
bool node_dump_holds(const struct node_view *n, const struct supervisor_event *e);

/* Whether stacks are being collected: the ranks will be stopped in a moment. */
bool node_dump_is_busy(const struct node_view *n);

/* A rank will be ended for its hanging: whether the stacks of all ranks are wanted, not only its
 * own. They come by the second call, lent. */
bool node_dump_begin(const struct node_view *n);
void node_dump_take(const struct node_view *n, const struct stack *list, int n_stacks,
                    const struct flights *flights, const struct ras_query *ras);

/* A generation has ended; the report about it, as it is printed; NULL: none. */
void node_dump_note_report(const struct node_view *n, const char *report);

/* All else about that generation is reported: write the page, and report where it is. */
void node_dump_finish(const struct node_view *n);

#endif
