/* secret.h - comparing secrets. */
#ifndef DDP_COMMON_SECRET_H
#define DDP_COMMON_SECRET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Takes the same time wherever the two differ: no clock may reveal how much of a guess is right. */
static inline bool co_is_same_secret(const void *secret, const void *guess, size_t n)
{
    const volatile uint8_t *a = (const uint8_t *)secret, *b = (const uint8_t *)guess;
    uint8_t differs = 0;
    for (size_t i = 0; i < n; i++)
        differs |= a[i] ^ b[i];
    return differs == 0;
}

#endif
