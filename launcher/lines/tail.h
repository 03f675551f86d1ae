/* tail.h - the last lines of a stream, for the report. Pure.
 *
 * A ring of the last bytes, allocated with the first one. */
#ifndef DDP_LAUNCHER_LINES_TAIL_H
#define DDP_LAUNCHER_LINES_TAIL_H

#include <stddef.h>

#define TAIL_BYTES 16384
#define TAIL_LINES 40

struct tail {
    char *ring;   /* owned; TAIL_BYTES, or NULL while nothing came */
    size_t total; /* bytes that ever came */
};

void tail_fini(struct tail *t); /* a zeroed tail is an empty one */

/* Without memory nothing is kept. */
void tail_add(struct tail *t, const char *bytes, size_t n);

/* The last lines, at most TAIL_LINES, each ended by a newline: whole ones unless a single line is
 * longer than the ring. Of a line that was drawn over by carriage returns only the last drawing is
 * left; bytes that are no text become '?', but for escape sequences' ESC and tabs.
 *
 * returns   a string to free(); NULL: nothing came, or no memory */
char *tail_copy(const struct tail *t);

/* What came behind the first `from` bytes, as far as it is kept, unchanged. More than ever came
 * means all: another rank's bytes were counted.
 *
 * ret_from   which byte the first one is
 * ret_n      how many
 * returns    bytes to free(); NULL: none, or no memory */
char *tail_since(const struct tail *t, size_t from, size_t *ret_from, size_t *ret_n);

#endif
