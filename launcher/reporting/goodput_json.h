/* goodput_json.h - the seconds of a job by what they were spent on (goodput.h), for programs.
 *
 *     ratio      the productive part of the time, 0 to 1
 *     now        the cause on which the newest seconds are booked
 *     by_steps   whether steps were reported; else a job counts as productive while all its ranks
 *                run
 *     total_s    since the job's start; the causes add up to it
 *     seconds    start, rendezvous, waiting_for_nodes, productive, checkpoint, hang, restart,
 *                recovery, shutdown */
#ifndef DDP_LAUNCHER_REPORTING_GOODPUT_JSON_H
#define DDP_LAUNCHER_REPORTING_GOODPUT_JSON_H

#include <jansson.h>

struct goodput_sums;

/* sums      NULL: null
 * returns   NULL: out of memory */
json_t *goodput_json_make(const struct goodput_sums *sums);

#endif
