/* title.h - what ps, pkill and killall see of this process: its name and its command line. */
#ifndef DDP_LAUNCHER_PLATFORM_TITLE_H
#define DDP_LAUNCHER_PLATFORM_TITLE_H

/* Remember where the command line lies. argv is main()'s own; without this call only the name is
 * changed by the next one. */
void title_init(int argc, char **argv);

/* Show another name, of which 15 bytes are kept, and the same as command line, as far as it fits.
 * For a process that no longer needs argv: its strings are overwritten. */
void title_set(const char *name);

#endif
