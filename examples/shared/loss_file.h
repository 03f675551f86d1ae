/* loss_file.h - the loss of each step in a file, a line each. */
#ifndef DDP_EXAMPLES_SHARED_LOSS_FILE_H
#define DDP_EXAMPLES_SHARED_LOSS_FILE_H

#include <stdbool.h>
#include <stdio.h>

struct failure;

struct loss_file { /* zeroed: none */
    FILE *file;
    const char *path; /* borrowed */
};

/* Open it, if it is not open.
 *
 * goes_on   what is in the file stays, and new lines come after it
 * returns   0, or -1; the text names the file */
int loss_file_open(struct loss_file *l, const char *path, bool goes_on, struct failure *why);

void loss_file_add(struct loss_file *l, double loss); /* nothing, if it is not open */

/* A loss file that could not be written completely is not a loss file.
 * returns   as above; of a zeroed one 0 */
int loss_file_close(struct loss_file *l, struct failure *why);

#endif
