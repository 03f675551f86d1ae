/* replay_read.h - a file of events (events.h) becomes a history (replay.h).
 *
 * The file may have come from anywhere: lines of several nodes, one behind the other or mixed,
 * of one run of one job. Lines that nothing has to be known of are passed over. */
#ifndef DDP_LAUNCHER_REPORTING_REPLAY_READ_H
#define DDP_LAUNCHER_REPORTING_REPLAY_READ_H

#include <stddef.h>
#include <stdio.h>

struct co_error;
struct replay;

enum {
    REPLAY_LINE_BYTES = 1 << 20, /* without the newline */
    REPLAY_FILE_BYTES = 1 << 27,
};

/* Read lines until the end.
 *
 * name      of the file, for messages, which begin with "NAME:LINE: "
 * ret       owned by the caller; finished
 * returns   0, -EINVAL (a line is no event, what they tell is no history, or it is longer than
 *           REPLAY_FILE_BYTES; the text says which line), -EIO (it cannot be read to its end),
 *           -ENOMEM */
int replay_read(FILE *in, const char *name, struct replay **ret, struct co_error *err);

#endif
