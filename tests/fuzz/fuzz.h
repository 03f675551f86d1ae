/* fuzz.h - what each fuzz target has. */
#ifndef DDP_TESTS_FUZZ_FUZZ_H
#define DDP_TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* libFuzzer calls it by this name.
 *
 * returns   0 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An assertion that stays in a release build. */
static inline void require(bool holds)
{
    if (!holds)
        abort();
}

#endif
