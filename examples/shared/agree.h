/* agree.h - all ranks go on, or none does. */
#ifndef DDP_EXAMPLES_SHARED_AGREE_H
#define DDP_EXAMPLES_SHARED_AGREE_H

#include <stdbool.h>

struct ddp_group;
struct failure;

/* rc is what this rank's part came to. The first rank that failed says why, and ends at once; the
 * others wait for that, so that who started us blames the right one.
 *
 * program    its name, for the message
 * ret_told   set where another rank has told the user
 * returns    0; else a status of ddp/error.h */
int agree(struct ddp_group *g, const char *program, int rc, const struct failure *why,
          bool *ret_told);

#endif
