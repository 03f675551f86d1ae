#include "bigram.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "text.h"

enum { CHARACTERS = 256 };

struct counts {
    uint32_t pair[CHARACTERS][CHARACTERS];
    uint32_t first[CHARACTERS]; /* sums of the rows */
};

static void count(const struct text *t, struct counts *c)
{
    memset(c, 0, sizeof(*c));
    for (size_t i = 0, n = text_count(t, 2); i < n; i++) {
        const uint8_t *two = text_at(t, 2, i);
        c->pair[two[0]][two[1]]++;
        c->first[two[0]]++;
    }
}

static double surprise(const struct text *t, const struct counts *c, double extra)
{
    const size_t n = text_count_held_out(t);
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        const uint8_t *block = text_held_out(t, i);
        for (size_t k = 1; k < TEXT_BLOCK; k++)
            sum -= log((c->pair[block[k - 1]][block[k]] + extra) /
                       (c->first[block[k - 1]] + extra * CHARACTERS));
    }
    return n > 0 ? sum / (double)(n * (TEXT_BLOCK - 1)) : 0;
}

double bigram_held_out(const struct text *t)
{
    static struct counts c; /* a quarter of a MiB: not on the stack */
    double best = INFINITY;

    count(t, &c);
    for (double extra = 1; extra > 1e-4; extra /= 2) {
        const double sum = surprise(t, &c, extra);
        best = sum < best ? sum : best;
    }
    return best;
}
