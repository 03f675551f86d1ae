/* hang_text.h - what hang.h has found, in words. Pure. */
#ifndef DDP_LAUNCHER_DIAGNOSIS_HANG_TEXT_H
#define DDP_LAUNCHER_DIAGNOSIS_HANG_TEXT_H

#include "launcher/supervisor/rank_numbers.h"

#include <stddef.h>
#include <stdint.h>

struct hang_finding;
struct rank_status_call;

enum { HANG_TEXT_BYTES = 512, HANG_CALL_BYTES = 96 };

/* "rank 1 is missing in all_reduce #812 (4 MiB, float32); ranks 0, 2 and 3 wait in it since 30 s"
 *
 * numbers   the job's, of this node's ranks
 * returns   buf */
char *hang_text(const struct hang_finding *f, struct rank_numbers numbers,
                char buf[HANG_TEXT_BYTES]);

/* "all_reduce #812 (4 MiB, float32)"; of a group of some of the ranks " of group 3fa2" behind it.
 * returns buf */
char *hang_text_call(const struct rank_status_call *call, char buf[HANG_CALL_BYTES]);

#endif
