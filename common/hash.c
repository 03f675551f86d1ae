#include "hash.h"

#include "clock.h"

#include <sys/random.h>

uint64_t co_hash_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed)
        seed = co_now_ns() ^ (uint64_t)(uintptr_t)&seed;
    return seed;
}
