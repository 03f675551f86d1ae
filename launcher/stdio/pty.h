/* pty.h - a pseudo-terminal for a rank, so that it writes as to the terminal we have. */
#ifndef DDP_LAUNCHER_STDIO_PTY_H
#define DDP_LAUNCHER_STDIO_PTY_H

/* Open one: raw, not a controlling terminal of any process, as large as the terminal `like`. Both
 * ends are close-on-exec, ours does not block.
 *
 * returns   0, -errno: none are available, or no more */
int pty_open(int like, int *ret_ours, int *ret_rank);

/* Make it as large as `like` is now. */
void pty_resize(int ours, int like);

/* The columns of a terminal. returns 0: it is none, or does not know */
int pty_columns(int fd);

#endif
