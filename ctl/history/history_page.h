/* history_page.h - a job's history as one HTML page that needs nothing else: no script, no font, no
 * picture from anywhere.
 *
 * It reads no clock and no file: all it shows is in the history. A timeline with a lane for each
 * rank, the times of steps, what failed, and what happened. Everything from outside is escaped
 * (escape.h). */
#ifndef DDP_CTL_HISTORY_HISTORY_PAGE_H
#define DDP_CTL_HISTORY_HISTORY_PAGE_H

#include <stdio.h>

struct history;

enum {
    HISTORY_PAGE_LANES = 2048, /* ranks that have one; the page reports how many have none */
    HISTORY_PAGE_BARS = 20000,
    HISTORY_PAGE_LINES = 5000, /* of a table */
    HISTORY_PAGE_POINTS = 4000,
};

/* h         after history_finish()
 * version   of this program
 * returns   0; -EIO: out also has the error */
int history_page_print(const struct history *h, const char *version, FILE *out);

#endif
