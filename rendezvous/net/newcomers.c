#include "newcomers.h"

#include "address.h"
#include "common/hash.h"

#include <stddef.h>

enum { V6_NETWORK_BYTES = 8 };

static uint32_t network_of(const struct newcomers *all, const struct sockaddr_storage *from)
{
    struct in6_addr address = address_as_v6(from);
    size_t n = IN6_IS_ADDR_V4MAPPED(&address) ? sizeof address : V6_NETWORK_BYTES;
    uint64_t hash = co_hash_bytes(co_hash_number(CO_HASH_START, all->seed), &address, n);
    hash = (hash ^ hash >> 33) * UINT64_C(0xff51afd7ed558ccd); /* FNV's last byte moves few bits */
    return (uint32_t)(hash >> 56) % NEWCOMERS_N_NETWORKS;
}

void newcomers_add(struct newcomers *all, struct newcomer *c, const struct sockaddr_storage *from)
{
    uint32_t network = network_of(all, from);
    struct newcomer *newest = all->networks[network].newest;
    *c = (struct newcomer){.older = newest, .number = ++all->n_ever, .network = network};
    *(newest != NULL ? &newest->newer : &all->networks[network].oldest) = c;
    all->networks[network].newest = c;
    all->networks[network].n++;
}

void newcomers_remove(struct newcomers *all, struct newcomer *c)
{
    if (c->number == 0)
        return;
    *(c->older != NULL ? &c->older->newer : &all->networks[c->network].oldest) = c->newer;
    *(c->newer != NULL ? &c->newer->older : &all->networks[c->network].newest) = c->older;
    all->networks[c->network].n--;
    *c = (struct newcomer){0};
}

struct newcomer *newcomers_choose(const struct newcomers *all)
{
    struct newcomer *chosen = NULL;
    uint32_t most = 0;
    for (uint32_t i = 0; i < NEWCOMERS_N_NETWORKS; i++) {
        struct newcomer *oldest = all->networks[i].oldest;
        uint32_t n = all->networks[i].n;
        if (n > most || (n > 0 && n == most && oldest->number < chosen->number)) {
            chosen = oldest;
            most = n;
        }
    }
    return chosen;
}
