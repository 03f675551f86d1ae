/* top_screen.h - a terminal that is drawn over: its other screen, keys as they are pressed, its
 * size.
 *
 * Plain escape sequences that every terminal of today understands, tmux and screen among them.
 * Whatever ends the program but SIGKILL puts the terminal back. One at a time in a process. */
#ifndef DDP_CTL_TOP_TOP_SCREEN_H
#define DDP_CTL_TOP_TOP_SCREEN_H

#include <stdbool.h>
#include <stdint.h>

struct co_error;

/* stdin and stdout are the terminal's.
 *
 * returns   0, -ENOTTY, -errno */
int top_screen_open(struct co_error *err);
void top_screen_close(void); /* fine if it is not open */

void top_screen_size(int *ret_width, int *ret_height);

/* Draw these lines in place of those before. returns whether the terminal takes them */
bool top_screen_draw(const char *lines);

enum { TOP_KEY_NONE = -1, TOP_KEY_END = -2 }; /* END: by a signal, or the terminal is gone */

/* Wait for a key, a new size or a signal. returns a character, or one of these */
int top_screen_wait(uint64_t ms);

#endif
