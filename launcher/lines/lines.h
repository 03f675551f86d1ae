/* lines.h - bytes of one stream -> whole lines, each with a prefix. Pure.
 *
 * A line that is longer than LINES_BYTES comes in pieces of that size. Of one that was drawn over
 * by carriage returns, as progress bars are, only the newest drawing is left: the frame. */
#ifndef DDP_LAUNCHER_LINES_LINES_H
#define DDP_LAUNCHER_LINES_LINES_H

#include <stdbool.h>
#include <stddef.h>

#define LINES_BYTES      65536
#define LINES_PREFIX_MAX 512 /* bytes of a prefix */

struct lines {
    char *buf; /* owned; LINES_BYTES, or NULL while nothing came */
    size_t start, end;
    bool in_line; /* a piece of a long line was taken: what comes next belongs to it */
    bool is_bar;  /* the line that is not over was drawn over, or is about to be */
};

void lines_fini(struct lines *l); /* a zeroed one is an empty one */

/* Where to put the bytes that come next.
 *
 * ret_n     how many fit: more than 0 if all whole lines were taken
 * returns   the place; NULL: out of memory */
char *lines_room(struct lines *l, size_t *ret_n);

/* n bytes were put there. */
void lines_add(struct lines *l, size_t n);

/* The newest frame of the line that is not over, if it is a bar's; lent until anything is added or
 * taken. returns its bytes; 0: no frame */
size_t lines_frame(const struct lines *l, const char **ret);

/* The next whole lines, each after the prefix; at the stream's end, or for a long line, a piece.
 *
 * prefix    n_prefix bytes, at most LINES_PREFIX_MAX
 * to        to_bytes, at least LINES_BYTES + LINES_PREFIX_MAX
 * at_end    nothing will be added: the last line needs no newline
 * returns   bytes put there; 0: no whole line */
size_t lines_take(struct lines *l, const char *prefix, size_t n_prefix, char *to, size_t to_bytes,
                  bool at_end);

/* Is there anything lines_take() would take? */
bool lines_has_some(const struct lines *l, bool at_end);

/* --- progress bars ---
 *
 * A bar draws its line again and again, each time after a carriage return. With a label in front of
 * each line, and several ranks, a drawing must fit into one row, or it cannot be drawn over. */

#define BAR_COLUMNS_MAX 1024

/* What a drawing may take: a label, for each column a character of four bytes, a few colors. */
#define BAR_BYTES 8192

/* Takes a drawn bar away, for what is written in its place. */
#define BAR_ERASE "\r\033[K"

/* prefix    n_prefix bytes in front of it; the colors in it take no columns, nor do those of the
 *           frame
 * columns   of the terminal; 0: not known, taken for 80
 * to        BAR_BYTES; what does not fit there or into the row is left out
 * returns   bytes put there; no newline is among them */
size_t lines_draw_bar(const char *prefix, size_t n_prefix, const char *frame, size_t n_frame,
                      int columns, char *to);

/* --- the last lines --- */

/* The last lines of a stream, for the report. Pure.
 *
 * A ring of the last bytes, allocated with the first one. */

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
 * longer than the ring. Only the last drawing of a line that was drawn over by carriage returns is
 * left; bytes that are not text become '?', except tabs and the ESC of escape sequences.
 *
 * returns   a string to free(); NULL: nothing came, or out of memory */
char *tail_copy(const struct tail *t);

/* What followed the first `from` bytes, as far as it is kept, unchanged. A `from` larger than the
 * total returns everything: another rank's bytes were counted.
 *
 * ret_from   which byte the first one is
 * ret_n      how many
 * returns    bytes to free(); NULL: none, or out of memory */
char *tail_since(const struct tail *t, size_t from, size_t *ret_from, size_t *ret_n);

#endif
