/* progress.h - how far a training is: a bar on rank 0's terminal, or a line now and then.
 *
 * Apart from these calls only ddp_log0() and ddp_fatal() print. */
#ifndef DDP_PROGRESS_H
#define DDP_PROGRESS_H

#include <ddp/group.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ddp_progress; /* opaque */

/* Begin. On rank 0 it goes to stderr: a bar that is drawn over again, ten times a second at most,
 * where that is a terminal; else a line every 5 seconds at most. Other ranks print nothing.
 *
 * title          "epoch 3", for instance; copied, cut to 63 bytes
 * total          steps in all; 0: not known
 * ret_progress   belongs to the group, which destroys it at ddp_finalize()
 * returns        0; DDP_EINVAL an argument is NULL; DDP_ENOMEM */
int ddp_progress_create(struct ddp_group *g, const char *title, uint64_t total,
                        struct ddp_progress **ret_progress);

/* `done` steps are over. Costs a look at the clock, unless something is printed.
 *
 * format   what follows the numbers, for example "loss 0.25"; NULL: nothing. Cut to 127
 *          bytes, control characters become '?' */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
void ddp_progress_update(struct ddp_progress *p, uint64_t done, const char *format, ...);

/* Print how it stands once more, and end the line. NULL is fine. */
void ddp_progress_destroy(struct ddp_progress *p);

#ifdef __cplusplus
}
#endif
#endif
