/* fuzz_pmix_hello.c - any bytes as what a node brings to the first round and to a later one. What
 * is accepted is the same when it is printed and read again. */
#include "fuzz.h"
#include "rendezvous/pmix/pmix_hello.h"

#include <string.h>

static void read_part(const uint8_t *data, size_t size)
{
    struct pmix_part part, again;
    char text[PMIX_PART_GONE_BYTES];
    if (pmix_part_read(data, size, &part) < 0)
        return;
    if (!part.is_gone) {
        require(part.bytes == data + 1 && part.len == size - 1);
        return;
    }
    const int n = pmix_part_print_gone(part.rank, text);
    require(n > 1 && n < (int)sizeof text);
    require(pmix_part_read((const uint8_t *)text, (size_t)n, &again) == 0);
    require(again.is_gone && again.rank == part.rank);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pmix_hello h, again;
    char text[PMIX_HELLO_BYTES];
    read_part(data, size);
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
