/* progress_bar.h - the newest state of a progress bar, as it is drawn on a terminal. Pure.
 *
 * A bar draws its line again and again, each time behind a carriage return. With a label in front
 * of each line, and several ranks, what is drawn must fit into one row, or it cannot be drawn
 * over. */
#ifndef DDP_LAUNCHER_STDIO_PROGRESS_BAR_H
#define DDP_LAUNCHER_STDIO_PROGRESS_BAR_H

#include <stddef.h>

#define BAR_COLUMNS_MAX 1024

/* What a drawing may take: a label, for each column a character of four bytes, a few colours. */
#define BAR_BYTES 8192

/* Takes a drawn bar away, for what is written in its place. */
#define BAR_ERASE "\r\033[K"

/* prefix    n_prefix bytes in front of it; the colours in it take no room in the row, nor do those
 *           of the frame
 * columns   of the terminal; 0: not known, taken for 80
 * to        BAR_BYTES; what does not fit there or into the row is left out
 * returns   bytes put there; no newline is among them */
size_t progress_bar_draw(const char *prefix, size_t n_prefix, const char *frame, size_t n_frame,
                         int columns, char *to);

#endif
