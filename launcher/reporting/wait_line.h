/* wait_line.h - what a node waits for, in one line: "waiting for 1 of 2 nodes, 12 s of 600 s: n5".
 *
 * Pure. Makes the texts and decides when one is worth showing; the caller shows it. */
#ifndef DDP_LAUNCHER_REPORTING_WAIT_LINE_H
#define DDP_LAUNCHER_REPORTING_WAIT_LINE_H

#include <stdint.h>

struct message_progress;

enum { WAIT_LINE_BYTES = 2048, WAIT_LINE_EVERY_MS = 30000 };

/* A text, and the same without times: what has to change before it is worth a new line. */
struct wait_text {
    char line[WAIT_LINE_BYTES];
    char key[WAIT_LINE_BYTES];
};

/* The roster is looked for.
 *
 * where     "node1:29400"
 * why       what went wrong with the last attempt; "" for nothing */
void wait_text_seek(struct wait_text *t, const char *where, const char *why, uint64_t elapsed_ms,
                    uint64_t left_ms);

/* What the roster waits for, as last reported. */
void wait_text_progress(struct wait_text *t, const struct message_progress *p);

/* No option specifies where the others are: without this option they are searched on this machine
 * only, which two ddpruns may be meant to share. */
void wait_text_unsaid(struct wait_text *t, const char *option);

/* What was shown last; zeroed: nothing. */
struct wait_line {
    char key[WAIT_LINE_BYTES];
    uint64_t shown_ms;
};

enum wait_news {
    WAIT_NOTHING, /* nothing to show */
    WAIT_TIMES,   /* only times have changed: for a terminal */
    WAIT_CHANGED, /* or it is long ago that a line was shown: for all */
};

/* Note this as shown, if it is news for all.
 *
 * t         an empty line: nothing is waited for */
enum wait_news wait_line_look(struct wait_line *w, const struct wait_text *t, uint64_t now_ms);

#endif
