/* cost_model.c - evaluate the model of an all-reduce between nodes (worker-runtime/cost).
 *
 *     cost_model NODES LATENCY_NS MESSAGE_NS BYTE_PS SUM_PS BYTES...
 *
 * Prints a line for each size: the algorithm that it chooses, and the time of whole, doubling,
 * passing and parts in us. */
#include "worker-runtime/cost/cost.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const names[] = {"whole", "doubling", "passing", "parts"};

int main(int argc, char **argv)
{
    if (argc < 7)
        return 2;
    const unsigned n = (unsigned)atoi(argv[1]);
    const struct cost_network net = {(uint32_t)atoi(argv[2]), (uint32_t)atoi(argv[3]),
                                     (uint32_t)atoi(argv[4]), (uint32_t)atoi(argv[5])};
    if (n < 2 || n > COST_NODES_MOST || !cost_network_is_valid(&net))
        return 2;
    for (int i = 6; i < argc; i++) {
        const size_t bytes = (size_t)atoll(argv[i]);
        if (bytes > COST_BYTES_MOST)
            return 2;
        printf("%s", names[cost_choose(n, bytes, &net)]);
        for (int algo = COST_WHOLE; algo <= COST_PARTS; algo++)
            printf(" %.1f", (double)cost_of((enum cost_algo)algo, n, bytes, &net) / 1e6);
        printf("\n");
    }
    return 0;
}
