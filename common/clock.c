#include "clock.h"

#include <limits.h>
#include <time.h>

uint64_t co_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t co_now_ms(void)
{
    return co_now_ns() / 1000000u;
}

uint64_t co_deadline_ms(uint64_t timeout_ms)
{
    uint64_t now = co_now_ms();
    return timeout_ms > CO_NEVER_MS - now ? CO_NEVER_MS : now + timeout_ms;
}

int co_left_ms(uint64_t deadline_ms)
{
    if (deadline_ms == CO_NEVER_MS)
        return -1;
    uint64_t now = co_now_ms();
    if (now >= deadline_ms)
        return 0;
    return deadline_ms - now > INT_MAX ? INT_MAX : (int)(deadline_ms - now);
}
