/* progress_lines.h - the lines by which a program in any language reports its steps:
 *
 *     step 37
 *     step 37 wait_ms 12.5
 *     stack_signal 64
 *
 * 37 steps of the training are complete, counted from its very beginning, also before a restart;
 * and for 12.5 ms of the last one the program waited for other ranks. A number that is not larger
 * than the last one shows that the program lives, and counts no step. The last line: this process
 * writes its stack to stderr when it gets that signal. Pure. */
#ifndef DDP_LAUNCHER_GENERATION_PROGRESS_LINES_H
#define DDP_LAUNCHER_GENERATION_PROGRESS_LINES_H

#include "segments/rank_status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PROGRESS_LINE_BYTES = 64 }; /* of a line at most, its end included; a longer one is bad */

struct progress_lines { /* of one rank; zeroed: nothing was reported yet */
    struct progress progress;
    uint64_t n_lines; /* good ones */
    uint64_t n_bad;
    int stack_signal; /* 0: none was named */
    char line[PROGRESS_LINE_BYTES];
    size_t len;
    bool skips; /* what arrives belongs to a line that is too long */
};

/* Take what the rank has written. Lines that come together share their time evenly.
 *
 * now_ns   CLOCK_MONOTONIC */
void progress_lines_feed(struct progress_lines *p, const char *bytes, size_t n, uint64_t now_ns);

/* The rank continues in another generation. */
void progress_lines_renew(struct progress_lines *p);

#endif
