#include "check_plan.h"

size_t check_plan_peers(size_t n_nodes, size_t node, size_t *ret)
{
    size_t n = 0;
    bool is_all = n_nodes <= CHECK_PEERS_MAX + 1;
    for (size_t distance = 1; distance < n_nodes; distance = is_all ? distance + 1 : 2 * distance)
        ret[n++] = (node + distance) % n_nodes;
    return n;
}

/* Places around a table: an even number, of which the last stays while the others rotate. With an
 * odd number of nodes one place is empty. */
static size_t n_places(size_t n_nodes)
{
    return n_nodes + n_nodes % 2;
}

size_t check_plan_rounds(size_t n_nodes)
{
    size_t all = n_nodes > 1 ? n_places(n_nodes) - 1 : 0;
    return all < CHECK_ROUNDS_MAX ? all : CHECK_ROUNDS_MAX;
}

bool check_plan_pair(size_t n_nodes, size_t round, size_t k, size_t *ret_a, size_t *ret_b)
{
    size_t places = n_places(n_nodes), cycle = places - 1;
    if (n_nodes < 2 || k >= places / 2)
        return false;
    if (cycle > CHECK_ROUNDS_MAX) /* spread over all */
        round = round * cycle / CHECK_ROUNDS_MAX;
    size_t x = k == 0 ? cycle : (round + k) % cycle;
    size_t y = (round + cycle - k) % cycle;
    size_t low = x < y ? x : y, high = x < y ? y : x;
    *ret_a = low;
    *ret_b = high < n_nodes ? high : low;
    return true;
}
