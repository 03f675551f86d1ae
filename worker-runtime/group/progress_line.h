/* progress_line.h - the text of a progress report. Pure. */
#ifndef DDP_WORKER_RUNTIME_GROUP_PROGRESS_LINE_H
#define DDP_WORKER_RUNTIME_GROUP_PROGRESS_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROGRESS_LINE_BYTES 320

struct progress_line {
    const char *title, *what; /* what: after the numbers; "": nothing */
    uint64_t done, total;     /* total 0: not known */
    uint64_t passed_ms;       /* since the beginning */
    bool has_bar;
};

/* "epoch 3 [=====>    ]  512/1024  50 %  12.3/s  42 s left  loss 0.25", without a newline. Control
 * characters become '?'. Returns text. */
const char *progress_line(const struct progress_line *l, char text[PROGRESS_LINE_BYTES]);

#endif
