/* randperm.c - see randperm.h.
 *
 * The generator is the Mersenne Twister of Matsumoto and Nishimura (1998), mt19937: 624 words of
 * state, refilled all at once, each word scrambled ("tempered") as it is drawn. */
#include "randperm.h"

#define MT_WORDS  624
#define MT_SHIFT  397 /* a new word is made of itself, its neighbor, and the word that far on */
#define MT_MATRIX 0x9908b0dfu

struct mt {
    uint32_t word[MT_WORDS];
    unsigned used; /* MT_WORDS: refill before the next draw */
};

static void mt_seed(struct mt *mt, uint32_t seed)
{
    mt->word[0] = seed;
    for (uint32_t i = 1; i < MT_WORDS; i++) {
        uint32_t before = mt->word[i - 1];
        mt->word[i] = 1812433253u * (before ^ (before >> 30)) + i;
    }
    mt->used = MT_WORDS;
}

/* Top bit of one word, the rest of the next, multiplied by the matrix. */
static uint32_t mt_twist(uint32_t word, uint32_t next)
{
    uint32_t mixed = (word & 0x80000000u) | (next & 0x7fffffffu);
    return (mixed >> 1) ^ (-(mixed & 1u) & MT_MATRIX);
}

static void mt_refill(struct mt *mt)
{
    uint32_t *w = mt->word;
    unsigned i = 0;
    for (; i < MT_WORDS - MT_SHIFT; i++)
        w[i] = w[i + MT_SHIFT] ^ mt_twist(w[i], w[i + 1]);
    for (; i < MT_WORDS - 1; i++)
        w[i] = w[i + MT_SHIFT - MT_WORDS] ^ mt_twist(w[i], w[i + 1]);
    w[i] = w[MT_SHIFT - 1] ^ mt_twist(w[i], w[0]);
    mt->used = 0;
}

static uint32_t mt_draw(struct mt *mt)
{
    if (mt->used == MT_WORDS)
        mt_refill(mt);
    uint32_t x = mt->word[mt->used++];
    x ^= x >> 11;
    x ^= (x << 7) & 0x9d2c5680u;
    x ^= (x << 15) & 0xefc60000u;
    return x ^ (x >> 18);
}

/* Shuffle forwards: each place swaps with itself or one further on. The last has no choice left,
 * and takes no draw. */
void randperm_fill_narrow(uint32_t *perm, uint32_t n, uint64_t seed)
{
    struct mt mt;
    mt_seed(&mt, (uint32_t)seed);
    for (uint32_t i = 0; i < n; i++)
        perm[i] = i;
    for (uint32_t i = 0; i + 1 < n; i++) {
        uint32_t other = i + mt_draw(&mt) % (n - i);
        uint32_t kept = perm[i];
        perm[i] = perm[other];
        perm[other] = kept;
    }
}

/* Inside out: number i goes to a place up to i, the number that was there moves to the end. The
 * first number also takes a draw. */
void randperm_fill_wide(uint32_t *perm, uint32_t n, uint64_t seed)
{
    struct mt mt;
    mt_seed(&mt, (uint32_t)seed);
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t high = mt_draw(&mt); /* drawn first: C does not order operands */
        const uint32_t place = (uint32_t)((high << 32 | mt_draw(&mt)) % ((uint64_t)i + 1));
        perm[i] = i; /* first, for place == i, where the old value is not set yet */
        perm[i] = perm[place];
        perm[place] = i;
    }
}

void randperm_fill(uint32_t *perm, uint32_t n, uint64_t seed)
{
    if (n < RANDPERM_WIDE_FROM)
        randperm_fill_narrow(perm, n, seed);
    else
        randperm_fill_wide(perm, n, seed);
}
