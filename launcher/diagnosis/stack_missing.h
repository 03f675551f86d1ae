/* stack_missing.h - for whom do ranks wait, as it looks at one moment?
 *
 * Pure. What hang.h says after a while, `ddpctl stack` has to say at once: the call in which most
 * ranks wait, and who could have come to it and has not. A rank that is only a little late looks
 * the same as one that will never come. */
#ifndef DDP_LAUNCHER_DIAGNOSIS_STACK_MISSING_H
#define DDP_LAUNCHER_DIAGNOSIS_STACK_MISSING_H

#include "segments/rank_status.h"

#include <stddef.h>
#include <stdio.h>

struct stack;

/* "rank 1 is missing in all_reduce #812 (4 MiB, float32): ranks 0 and 2 wait in it", a line for
 * each; nothing where nobody waits, or nobody is missing here. */
void stack_print_missing(const struct stack *list, int n, FILE *out);

#endif
