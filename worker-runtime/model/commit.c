#include "commit.h"

enum { BROKEN = 1 };

static uint64_t step_of(uint64_t word)
{
    return word >> 1;
}

bool commit_decide(_Atomic uint64_t *word, uint64_t step)
{
    uint64_t is = atomic_load(word);
    while (step_of(is) < step && (is & BROKEN) == 0)
        if (atomic_compare_exchange_weak(word, &is, step << 1))
            return true;
    return step_of(is) >= step;
}

bool commit_give_up(_Atomic uint64_t *word, uint64_t step)
{
    return step_of(atomic_fetch_or(word, BROKEN)) >= step;
}
