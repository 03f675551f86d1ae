/* cost.c - the formulas of the model. In integers, so that all ranks choose the same algorithm on
 * every machine. Within the limits of cost.h no term exceeds 2^62. */
#include "cost.h"

bool cost_network_is_valid(const struct cost_network *net)
{
    return net->latency_ns <= COST_LATENCY_NS_MOST && net->message_ns <= COST_MESSAGE_NS_MOST &&
           net->byte_ps <= COST_BYTE_PS_MOST && net->sum_ps <= COST_BYTE_PS_MOST;
}

unsigned cost_doubling_steps(unsigned n)
{
    unsigned steps = 0;
    while (n > 1u << steps)
        steps++;
    return steps;
}

struct cost_step cost_doubling_step(unsigned n, unsigned node, unsigned k)
{
    const unsigned have = 1u << k, missing = n - have;
    return (struct cost_step){.to = (node + n - have) % n,
                              .from = (node + have) % n,
                              .n_have = have,
                              .n_more = have < missing ? have : missing};
}

unsigned cost_passed_blocks(unsigned n, unsigned k)
{
    const unsigned period = 2u << k, rest = n % period;
    return n / period * (period / 2) + (rest > period / 2 ? rest - period / 2 : 0);
}

/* A stage in which a node sends `messages` messages, of `bytes` bytes in total. */
static uint64_t stage(const struct cost_network *net, uint64_t messages, uint64_t bytes)
{
    return (net->latency_ns + messages * net->message_ns) * 1000u + bytes * net->byte_ps;
}

static uint64_t whole(unsigned n, uint64_t bytes, const struct cost_network *net)
{
    return stage(net, n - 1, (n - 1) * bytes) + n * bytes * net->sum_ps;
}

/* In each step a node sends a message to each of its two peers: an exchange has two directions. */
static uint64_t doubling(unsigned n, uint64_t bytes, const struct cost_network *net)
{
    uint64_t all = n * bytes * net->sum_ps;
    for (unsigned k = 0; k < cost_doubling_steps(n); k++) {
        const struct cost_step s = cost_doubling_step(n, 0, k);
        all += stage(net, s.to == s.from ? 1 : 2, s.n_more * bytes);
    }
    return all;
}

/* A step packs and unpacks what it passes on; the vector is copied to the blocks and back. A copied
 * byte costs as much as a summed one. */
static uint64_t passing(unsigned n, uint64_t bytes, const struct cost_network *net)
{
    const uint64_t part = (bytes + n - 1) / n;
    uint64_t all = 3 * bytes * net->sum_ps;
    for (unsigned k = 0; k < cost_doubling_steps(n); k++) {
        const struct cost_step s = cost_doubling_step(n, 0, k);
        const unsigned messages = s.to == s.from ? 1 : 2;
        const uint64_t passed = cost_passed_blocks(n, k) * part;
        all += stage(net, messages, passed) + 2 * passed * net->sum_ps;
        all += stage(net, messages, s.n_more * part);
    }
    return all;
}

static uint64_t parts(unsigned n, uint64_t bytes, const struct cost_network *net)
{
    return 2 * stage(net, n - 1, bytes - bytes / n) + bytes * net->sum_ps;
}

static uint64_t ring(unsigned n, uint64_t bytes, const struct cost_network *net)
{
    return 2 * (n - 1) * stage(net, 1, bytes / n) + bytes * net->sum_ps;
}

static uint64_t halving(unsigned n, uint64_t bytes, const struct cost_network *net)
{
    const unsigned steps = cost_doubling_steps(n);
    return 2 * steps * stage(net, 1, 0) + 2 * (bytes - bytes / n) * net->byte_ps +
           bytes * net->sum_ps;
}

static uint64_t tree(unsigned n, uint64_t bytes, const struct cost_network *net)
{
    const unsigned steps = cost_doubling_steps(n);
    return 2 * steps * stage(net, 1, bytes) + steps * bytes * net->sum_ps;
}

uint64_t cost_of(enum cost_algo algo, unsigned n, size_t bytes, const struct cost_network *net)
{
    switch (algo) {
    case COST_WHOLE:
        return whole(n, bytes, net);
    case COST_DOUBLING:
        return doubling(n, bytes, net);
    case COST_PASSING:
        return passing(n, bytes, net);
    case COST_PARTS:
        return parts(n, bytes, net);
    case COST_RING:
        return ring(n, bytes, net);
    case COST_HALVING:
        return halving(n, bytes, net);
    default:
        return tree(n, bytes, net);
    }
}

bool cost_fits_memory(enum cost_algo algo, unsigned n, size_t bytes)
{
    if (algo == COST_WHOLE || algo == COST_DOUBLING)
        return bytes <= COST_MEMORY_MOST / n;
    return algo != COST_PASSING || bytes <= COST_MEMORY_MOST / 2;
}

enum cost_algo cost_choose(unsigned n, size_t bytes, const struct cost_network *net)
{
    enum cost_algo best = COST_PARTS;
    if (n < 2 || n > COST_NODES_MOST || bytes > COST_BYTES_MOST)
        return COST_PARTS;
    uint64_t least = cost_of(COST_PARTS, n, bytes, net);
    for (int i = COST_PASSING; i >= COST_WHOLE; i--) {
        const enum cost_algo algo = (enum cost_algo)i;
        if (!cost_fits_memory(algo, n, bytes))
            continue;
        const uint64_t cost = cost_of(algo, n, bytes, net);
        if (cost <= least) {
            best = algo;
            least = cost;
        }
    }
    return best;
}
