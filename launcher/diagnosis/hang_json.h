/* hang_json.h - what hang.h has found, for programs: in --events and --report. */
#ifndef DDP_LAUNCHER_DIAGNOSIS_HANG_JSON_H
#define DDP_LAUNCHER_DIAGNOSIS_HANG_JSON_H

#include "launcher/supervisor/rank_numbers.h"

#include <jansson.h>

struct hang_finding;

/* {"kind": "missing", "stopped": false, "still_ms": 30100, "waiting": [0, 2, 3],
 *  "waiting_ms": 30050, "call": {"op": "all_reduce", "number": 812, "bytes": 4194304,
 *  "dtype": "float32", "group": 0}, "last": {...}}
 * kind: "missing", "not_joined", "all_wait", "silent"; call, last: null where there is none;
 * waiting: at most 16 of them
 *
 * numbers   the job's, of this node's ranks
 * returns   given up; NULL without memory */
json_t *hang_json_make(const struct hang_finding *f, struct rank_numbers numbers);

#endif
