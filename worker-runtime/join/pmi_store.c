/* pmi_store.c - rank 0 serves a store, and publishes its address by PMI.
 *
 * pmi_store_find() runs on all ranks: rank 0 opens a store and puts its addresses into the
 * key-value space of PMI, publish_endpoint(); after a barrier each rank reads it,
 * receive_endpoint().
 * pmi_store_connect() tries the addresses one after the other. */
#include "pmi_store.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/parse.h"
#include "common/scope.h"
#include "env.h"
#include "rendezvous/client/client.h"
#include "rendezvous/pmi/pmi1_client.h"
#include "store_host.h"
#include "worker-runtime/interfaces/net_interface.h"

#include <arpa/inet.h>
#include <ddp/env.h>
#include <dlfcn.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
    MOST_ADDRESSES = 12,
    WORD_TEXT_BYTES = 2 * STORE_HOST_WORD_BYTES + 1,
    ATTEMPT_MS = 2000, /* an address that leads nowhere is left after this */
    PAUSE_MS = 50,
};

#define KEY "ddp-store"

static struct endpoint { /* of this process */
    bool is_known;
    size_t n_addresses;
    char addresses[MOST_ADDRESSES][INET6_ADDRSTRLEN];
    uint16_t port;
    uint8_t word[STORE_HOST_WORD_BYTES];
    struct store_host *host; /* rank 0: for the life of the process */
} endpoint;

bool pmi_store_is_for(const struct env_who *who)
{
    const char *host;
    uint16_t port;
    return who->pmi_fd >= 0 && env_find_store(who->store_host, 0, &host, &port, NULL) == 0;
}

bool pmi_store_is_known(void)
{
    return endpoint.is_known;
}

/* --- rank 0 ----------------------------------------------------------------------------------- */

static bool is_useful(const struct net_interface_rule *rule, const struct ifaddrs *i, int family)
{
    if (i->ifa_addr == NULL || i->ifa_addr->sa_family != family || (i->ifa_flags & IFF_UP) == 0 ||
        (i->ifa_flags & IFF_LOOPBACK) != 0 || !net_interface_rule_allows(rule, i->ifa_name))
        return false;
    return family == AF_INET ||
           !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)i->ifa_addr)->sin6_addr);
}

static void add_address(struct endpoint *m, int family, const void *bytes)
{
    if (m->n_addresses < MOST_ADDRESSES &&
        inet_ntop(family, bytes, m->addresses[m->n_addresses], INET6_ADDRSTRLEN) != NULL)
        m->n_addresses++;
}

static void add_addresses(struct endpoint *m, const struct net_interface_rule *rule,
                          const struct ifaddrs *list, int family)
{
    for (const struct ifaddrs *i = list; i != NULL; i = i->ifa_next) {
        if (!is_useful(rule, i, family))
            continue;
        const struct sockaddr *a = i->ifa_addr;
        add_address(m, family,
                    family == AF_INET ? (const void *)&((const struct sockaddr_in *)a)->sin_addr
                                      : (const void *)&((const struct sockaddr_in6 *)a)->sin6_addr);
    }
}

/* The address of the first interface that the user names. */
static int find_named(struct endpoint *m, const struct net_interface_rule *rule,
                      struct net_address *ret_listen, struct co_error *err)
{
    const struct net_address none = {0};
    co_autofree struct net_interface *list = NULL;
    unsigned n;
    int rc = net_interface_list(&list, &n, err);
    if (rc == 0)
        rc = net_interface_choose_first(rule, list, n, &none, ret_listen, err);
    if (rc == 0)
        add_address(m, ret_listen->family, ret_listen->bytes);
    return rc;
}

/* All addresses of this machine by which others may reach it; of one family, since a socket listens
 * for one. Without any the job is on this machine. ret_listen   for store_host_open() */
static int find_addresses(struct endpoint *m, struct net_address *ret_listen, struct co_error *err)
{
    struct net_interface_rule rule;
    struct ifaddrs *list;
    const int rc = net_interface_rule_parse(getenv(DDP_ENV_SOCKET_IFNAME), &rule, err);
    if (rc != 0)
        return rc;
    if (rule.n > 0 && !rule.excludes)
        return find_named(m, &rule, ret_listen, err);
    if (getifaddrs(&list) != 0)
        return co_fail(err, -errno, "cannot list the network interfaces: %s", strerror(errno));
    *ret_listen = (struct net_address){.family = AF_INET, .bytes = {127, 0, 0, 1}};
    add_addresses(m, &rule, list, AF_INET);
    if (m->n_addresses == 0) {
        add_addresses(m, &rule, list, AF_INET6);
        if (m->n_addresses > 0)
            *ret_listen = (struct net_address){.family = AF_INET6, .bytes = {[15] = 1}};
    }
    freeifaddrs(list);
    if (m->n_addresses == 0)
        add_address(m, AF_INET, ret_listen->bytes);
    return 0;
}

static int serve_store(struct endpoint *m, const struct env_who *who, struct co_error *err)
{
    struct net_address listen;
    int rc = find_addresses(m, &listen, err);
    if (rc == 0 && getrandom(m->word, sizeof m->word, 0) != (ssize_t)sizeof m->word)
        rc = co_fail(err, -EIO, "cannot get random bytes for the job's key");
    if (rc == 0)
        rc = store_host_open(&listen, &m->port, m->word, (unsigned)who->world_size * 2, &m->host,
                             err);
    return rc;
}

/* "PORT;WORD;ADDRESS,ADDRESS": no blanks. */
static void print_endpoint(const struct endpoint *m, char text[PMI1_VALUE_BYTES])
{
    char word[WORD_TEXT_BYTES];
    co_print_hex(m->word, sizeof m->word, word);
    size_t at = (size_t)snprintf(text, PMI1_VALUE_BYTES, "%u;%s;", m->port, word);
    for (size_t i = 0; i < m->n_addresses; i++)
        at += (size_t)snprintf(text + at, PMI1_VALUE_BYTES - at, "%s%s", i > 0 ? "," : "",
                               m->addresses[i]);
}

/* --- what rank 0 has published ---------------------------------------------------------------- */

static bool parse_endpoint(char *text, struct endpoint *m)
{
    char *word, *addresses, *rest = text;
    int64_t port;
    const char *number = strsep(&rest, ";");
    word = strsep(&rest, ";");
    addresses = strsep(&rest, ";");
    if (addresses == NULL || rest != NULL ||
        co_parse_int("port", number, 1, UINT16_MAX, &port, NULL) < 0 ||
        co_parse_hex(word, m->word, sizeof m->word) < 0)
        return false;
    m->port = (uint16_t)port;
    for (char *a; (a = strsep(&addresses, ",")) != NULL;) {
        if (m->n_addresses == MOST_ADDRESSES || a[0] == '\0' || strlen(a) >= INET6_ADDRSTRLEN)
            return false;
        memcpy(m->addresses[m->n_addresses++], a, strlen(a) + 1);
    }
    return true;
}

/* --- all ranks -------------------------------------------------------------------------------- */

static int publish_endpoint(const struct env_who *who, struct pmi1_client *c, struct endpoint *m,
                            uint64_t deadline_ms, struct co_error *err)
{
    char text[PMI1_VALUE_BYTES];
    struct co_error why;
    if (serve_store(m, who, &why) == 0)
        print_endpoint(m, text);
    else
        pmi1_print_failure(&why, text);
    return pmi1_client_put(c, KEY, text, deadline_ms, err);
}

static int receive_endpoint(struct pmi1_client *c, struct endpoint *m, uint64_t deadline_ms,
                            struct co_error *err)
{
    char text[PMI1_VALUE_BYTES];
    int rc = pmi1_client_get(c, KEY, text, sizeof text, deadline_ms, err);
    if (rc < 0)
        return rc;
    pmi1_restore_failure(text);
    if (text[0] == '!')
        return co_fail(err, -EIO, "rank 0 cannot serve a store: %.400s", text + 1);
    m->n_addresses = 0;
    return parse_endpoint(text, m)
               ? 0
               : co_fail(err, -EPROTO,
                         "invalid PMI value from rank 0 for the address of its store");
}

static int exchange_endpoint(const struct env_who *who, struct endpoint *m, uint64_t deadline_ms,
                             struct co_error *err)
{
    struct pmi1_client c;
    int rc = pmi1_client_open(&c, who->pmi_fd, deadline_ms, err);
    if (rc == 0 && who->rank == 0)
        rc = publish_endpoint(who, &c, m, deadline_ms, err);
    if (rc == 0)
        rc = pmi1_client_barrier(&c, deadline_ms, err);
    if (rc == 0)
        rc = receive_endpoint(&c, m, deadline_ms, err);
    if (rc == 0)
        rc = pmi1_client_finalize(&c, deadline_ms, err);
    return rc;
}

int pmi_store_find(const struct env_who *who, uint64_t deadline_ms, struct co_error *err)
{
    struct endpoint m = {.is_known = true};
    if (endpoint.is_known)
        return 0;
    if (dlsym(RTLD_DEFAULT, "MPI_Init") != NULL)
        return co_fail(err, -ENOTSUP,
                       "the job's store: this program uses an MPI library, which owns PMI_FD: set "
                       "%s and %s on all ranks to the address and port of a ddp-rendezvous",
                       DDP_ENV_MASTER_ADDR, DDP_ENV_MASTER_PORT);
    int rc = exchange_endpoint(who, &m, deadline_ms, err);
    if (rc < 0) {
        store_host_close(m.host);
        return rc;
    }
    endpoint = m;
    return 0;
}

int pmi_store_connect(uint64_t deadline_ms, struct store_client **ret, struct co_error *err)
{
    int rc = -ETIMEDOUT;
    do {
        for (size_t i = 0; i < endpoint.n_addresses; i++) {
            const uint64_t soon_ms = co_deadline_ms(ATTEMPT_MS);
            rc = client_connect_by_word(endpoint.addresses[i], endpoint.port, endpoint.word,
                                        sizeof endpoint.word,
                                        soon_ms < deadline_ms ? soon_ms : deadline_ms, ret, err);
            if (rc == 0 || rc == -ENOMEM)
                return rc;
        }
        poll(NULL, 0, PAUSE_MS);
    } while (co_left_ms(deadline_ms) != 0);
    return rc;
}
