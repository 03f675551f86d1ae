/* top_frame.h - what `ddpctl top` shows at one moment, for a terminal of any size.
 *
 * Pure. */
#ifndef DDP_CTL_TOP_TOP_FRAME_H
#define DDP_CTL_TOP_TOP_FRAME_H

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>

enum top_order {
    TOP_BY_RANK,
    TOP_BY_CPU, /* these three: the most first */
    TOP_BY_MEMORY,
    TOP_BY_OWN, /* of a step */
    TOP_N_ORDERS,
};

extern const char *const top_order_names[TOP_N_ORDERS]; /* "rank", "cpu", "memory", "own" */

struct top_view {
    int width, height; /* 0: lines, or their number, have no bound */
    enum top_order order;
    const char *when; /* "12:34:56" */
};

/* A head line, then each job's node with its ranks; if not all fit, the last line reports how many
 * are not shown. Ranks that ended are shown last.
 *
 * statuses   n of them, not NULL; put in order
 * returns    0, -ENOMEM */
int top_frame_print(const struct top_view *view, json_t *const *statuses, size_t n, FILE *out);

/* In order, in place. */
void top_frame_sort(json_t *status, enum top_order order);

#endif
