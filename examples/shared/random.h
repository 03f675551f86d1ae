/* random.h - a small generator of random numbers: SplitMix64. The same numbers everywhere. */
#ifndef DDP_EXAMPLES_SHARED_RANDOM_H
#define DDP_EXAMPLES_SHARED_RANDOM_H

#include <stdint.h>

struct random {
    uint64_t state; /* the seed, at first; any value */
};

static inline uint64_t random_bits(struct random *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* low <= number < high */
static inline double random_uniform(struct random *r, double low, double high)
{
    return low + (high - low) * ((double)(random_bits(r) >> 11) * 0x1p-53);
}

/* About normal, mean 0, variance 1: the sum of four uniform numbers. Needs no logarithm, whose last
 * bits differ between C libraries. */
static inline double random_normal(struct random *r)
{
    double sum = 0;

    for (int i = 0; i < 4; i++)
        sum += random_uniform(r, -1, 1);
    return sum * 0.8660254037844386; /* the sum's variance is 4/3 */
}

#endif
