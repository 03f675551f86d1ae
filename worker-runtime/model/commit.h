/* commit.h - have all ranks of a node agree on the last step of training that counts.
 *
 * A step ends with an exchange in which all ranks meet. When a rank dies in the middle of it, some
 * of the others have met it and some have not: one would go on with the step's gradients, another
 * would throw them away. So the answer is written into one word that all of them share:
 *
 *     bit 0       the group is broken: no further step is decided
 *     bits 1-63   the last step that counts
 *
 * Who has come through the exchange decides for the step, who has failed in it gives up; both by
 * compare-and-swap, so the first one settles it for everybody. Between nodes answers can differ, by
 * one step: then the highest one wins.
 *
 * Pure: one word, no waiting. Steps are counted from 1, and decided in their order. */
#ifndef DDP_WORKER_RUNTIME_MODEL_COMMIT_H
#define DDP_WORKER_RUNTIME_MODEL_COMMIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* This rank has come through the exchange of `step`. returns whether the step counts */
bool commit_decide(_Atomic uint64_t *word, uint64_t step);

/* This rank has failed in the exchange of `step`, or before. returns whether it counts all the
 * same, since another rank had decided so */
bool commit_give_up(_Atomic uint64_t *word, uint64_t step);

#endif
