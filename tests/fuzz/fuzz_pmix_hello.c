/* fuzz_pmix_hello.c - any bytes as what a node announces of itself. What is accepted is the same
 * when it is announced again. */
#include "fuzz.h"
#include "rendezvous/pmix/pmix_hello.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pmix_hello h, again;
    char text[PMIX_HELLO_BYTES];
    if (pmix_hello_read(data, size, &h, NULL) < 0)
        return 0;
    require(h.n_programs > 0 && h.n_programs <= PMIX_HELLO_PROGRAMS);
    require(h.n_ranks > 0 && h.n_ranks <= PMIX_HELLO_MAX_RANKS);
    const int n = pmix_hello_print(&h, text);
    require(n > 0);
    require(pmix_hello_read((const uint8_t *)text, (size_t)n, &again, NULL) == 0);
    require(memcmp(&h, &again, sizeof h) == 0);
    return 0;
}
