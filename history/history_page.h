/* history_page.h - a job's history as one HTML page that needs nothing else: no font, no picture
 * from anywhere, and no script, except that the page of a running job has one of its own.
 *
 * It reads no clock and no file: all it shows is in the history. A timeline with a lane for each
 * rank, the times of steps, what failed, and what happened. Everything from outside is escaped
 * (escape.h). */
#ifndef DDP_HISTORY_HISTORY_PAGE_H
#define DDP_HISTORY_HISTORY_PAGE_H

#include <stdio.h>

struct history;

enum {
    HISTORY_PAGE_LANES = 2048, /* ranks that have one; the page reports how many have none */
    HISTORY_PAGE_BARS = 20000,
    HISTORY_PAGE_LINES = 5000, /* of a table */
    HISTORY_PAGE_POINTS = 4000,
};

/* What a running job shows besides its events. */
struct history_live {
    void (*print)(void *arg, FILE *out); /* whole elements, after the summary */
    void *arg;
};

/* h         after history_finish()
 * version   of this program
 * live      the page renews itself, by a script that it contains; NULL: the page of a file
 * returns   0; -ENOMEM; -EIO: out also has the error */
int history_page_print(const struct history *h, const char *version,
                       const struct history_live *live, FILE *out);

#endif
