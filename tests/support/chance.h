/* chance.h - random numbers for simulations, the same again for the same seed. */
#ifndef DDP_TESTS_SUPPORT_CHANCE_H
#define DDP_TESTS_SUPPORT_CHANCE_H

#include <stdint.h>

struct chance {
    uint64_t state; /* never 0 */
};

/* The first few numbers of neighboring seeds are similar. */
static inline struct chance chance_from(uint64_t seed)
{
    return (struct chance){seed * 2654435761u + 88172645463325252u};
}

/* 0 .. below - 1, by xorshift64. */
static inline uint64_t chance_draw(struct chance *c, uint64_t below)
{
    c->state ^= c->state << 13;
    c->state ^= c->state >> 7;
    c->state ^= c->state << 17;
    return c->state % below;
}

#endif
