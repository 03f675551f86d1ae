/* bigram.h - how well the held-out text is foretold by counting which character follows which: what
 * a network has to beat. */
#ifndef DDP_EXAMPLES_CHARGPT_BIGRAM_H
#define DDP_EXAMPLES_CHARGPT_BIGRAM_H

struct text;

/* Count pairs in the part of the text to learn from, and predict each held-out character, except
 * the first of a block, from the one before it. Pairs that were never seen also get a small count:
 * the one that makes the result best, which favors this model.
 *
 * returns   mean of -log(probability), in nats; 0 if nothing is held out */
double bigram_held_out(const struct text *t);

#endif
