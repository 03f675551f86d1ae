/* agree.h - all ranks continue, or none does. */
#ifndef DDP_EXAMPLES_SHARED_AGREE_H
#define DDP_EXAMPLES_SHARED_AGREE_H

#include <stdbool.h>

struct ddp_group;
struct failure;

/* rc is the result of this rank's part. The first rank that failed reports the reason, and exits at
 * once; its peers wait for that, so that the launcher of the job blames the right rank.
 *
 * program        its name, for the message
 * ret_reported   set if another rank has reported the failure to the user
 * returns        0; else a status of ddp/error.h */
int agree(struct ddp_group *g, const char *program, int rc, const struct failure *why,
          bool *ret_reported);

#endif
