/* digits.h - draws digits, so that the example has something to learn where no data set is at hand.
 *
 * A digit is a few strokes. Each image bends, slants, turns, scales and shifts them its own way,
 * draws them with a pen of random width and blackness, adds a stray stroke or two and noise. A
 * linear classifier gets about three of four right, the network of convnet.h 99 of 100. */
#ifndef DDP_EXAMPLES_MNIST_DIGITS_H
#define DDP_EXAMPLES_MNIST_DIGITS_H

#include <stddef.h>
#include <stdint.h>

enum { DIGITS_SIDE = 28 }; /* pixels of an image's side */

/* Draw image `index` of the endless series that `seed` names. Depends on these two alone: the same
 * bytes on every machine, in any order.
 *
 * pixels    DIGITS_SIDE rows of DIGITS_SIDE, 0 (paper) .. 255 (ink)
 * returns   the digit, 0 .. 9 */
uint8_t digits_draw(uint64_t seed, uint64_t index, uint8_t *pixels);

#endif
