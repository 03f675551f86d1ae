#include "pmi_rendezvous.h"

#include "launcher/hosts/pmi_bootstrap.h"
#include "launcher/platform/own_addresses.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/parse.h"
#include "common/scope.h"
#include "common/secret_memory.h"
#include "rendezvous/net/address.h"
#include "rendezvous/pmi/pmi1_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* The happy path: node 0 listens, and puts its addresses; after a barrier the others try all of its
 * addresses at once, and put which of them they reach; after a second one all choose the same, and
 * node 0 closes its listener, so that its roster can listen there. A node that connects in between
 * tries again.
 *
 * If node 0 fails, the others read the reason instead of the addresses; if another node fails, it
 * exits, and the process that started it ends all. */

enum {
    MEET_MS = 600000,
    PROBE_MS = 5000, /* for an address that does not answer */
    BACKLOG = 4096,
};

#define KEY "ddprun-rendezvous"

/* --- node 0 --- */

/* At all addresses, since it is not known yet which one others reach. */
static int open_listener(uint16_t *ret_port, struct co_error *err)
{
    const int yes = 1, no = 0;
    struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    struct sockaddr_in any_v4 = {.sin_family = AF_INET};
    struct sockaddr_storage bound;
    socklen_t len = sizeof bound;
    bool is_v6 = true;
    co_autoclose_fd int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) { /* a kernel without */
        is_v6 = false;
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    }
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) < 0 ||
        (is_v6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) < 0) ||
        bind(fd, is_v6 ? (struct sockaddr *)&any : (struct sockaddr *)&any_v4,
             is_v6 ? sizeof any : sizeof any_v4) < 0 ||
        listen(fd, BACKLOG) < 0 || getsockname(fd, (struct sockaddr *)&bound, &len) < 0)
        return co_fail(err, -errno, "cannot listen for other nodes: %s", strerror(errno));
    *ret_port = address_port(&bound);
    return co_take_fd(&fd);
}

/* Those that only count on their own wire mean nothing to others. Without any the job is on this
 * machine. */
static void find_addresses(struct pmi_bootstrap_meeting *m)
{
    struct message_address own[MESSAGE_MAX_ADDRESSES];
    size_t n = own_addresses_find(own);
    for (size_t i = 0; i < n && m->n_addresses < PMI_BOOTSTRAP_ADDRESSES_MAX; i++) {
        struct in6_addr v6;
        memcpy(&v6, own[i].bytes, sizeof v6);
        if (own[i].family == 6 && IN6_IS_ADDR_LINKLOCAL(&v6))
            continue;
        if (inet_ntop(own[i].family == 4 ? AF_INET : AF_INET6, own[i].bytes,
                      m->address[m->n_addresses], INET6_ADDRSTRLEN) != NULL)
            m->n_addresses++;
    }
    if (m->n_addresses == 0)
        snprintf(m->address[m->n_addresses++], INET6_ADDRSTRLEN, "127.0.0.1");
}

static int make_secret(struct pmi_bootstrap_meeting *m, struct co_error *err)
{
    uint8_t token[PMI_BOOTSTRAP_TOKEN_BYTES / 2], id[8];
    if (getrandom(token, sizeof token, 0) != (ssize_t)sizeof token ||
        getrandom(id, sizeof id, 0) != (ssize_t)sizeof id)
        return co_fail(err, -EIO, "cannot get random bytes for a token");
    co_print_hex(token, sizeof token, m->token);
    co_print_hex(id, sizeof id, stpcpy(m->run_id, "pmi-"));
    explicit_bzero(token, sizeof token);
    return 0;
}

/* returns   0, whatever it had to put; what PMI fails of */
static int tell(struct pmi1_client *c, int *ret_listener, uint64_t deadline_ms,
                struct co_error *err)
{
    struct pmi_bootstrap_meeting m = {0};
    char text[PMI1_VALUE_BYTES];
    struct co_error why;
    int rc = make_secret(&m, &why);
    if (rc == 0) {
        find_addresses(&m);
        *ret_listener = open_listener(&m.port, &why);
        rc = *ret_listener;
    }
    if (rc < 0)
        pmi1_print_failure(&why, text);
    else
        pmi_bootstrap_print(&m, text, sizeof text);
    rc = pmi1_client_put(c, KEY, text, deadline_ms, err);
    explicit_bzero(text, sizeof text);
    explicit_bzero(&m, sizeof m);
    return rc;
}

/* --- the others --- */

static int start_probe(const char *address, uint16_t port)
{
    struct sockaddr_storage to;
    if (address_parse(address, port, &to) < 0)
        return -1;
    int fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const socklen_t len =
        to.ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, len) < 0 && errno != EINPROGRESS) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static bool has_connected(int fd)
{
    int error = 0;
    socklen_t len = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0;
}

/* All at once: one that leads nowhere must not hold up those that answer.
 *
 * returns   a bit for each that was reached */
static unsigned probe(const struct pmi_bootstrap_meeting *m)
{
    struct pollfd fds[PMI_BOOTSTRAP_ADDRESSES_MAX];
    const uint64_t deadline_ms = co_deadline_ms(PROBE_MS);
    unsigned reached = 0;
    size_t n_open = 0;
    for (size_t i = 0; i < m->n_addresses; i++) {
        fds[i] = (struct pollfd){.fd = start_probe(m->address[i], m->port), .events = POLLOUT};
        n_open += fds[i].fd >= 0;
    }
    while (n_open > 0 && co_left_ms(deadline_ms) > 0 &&
           (poll(fds, m->n_addresses, co_left_ms(deadline_ms)) >= 0 || errno == EINTR))
        for (size_t i = 0; i < m->n_addresses; i++) {
            if (fds[i].fd < 0 || fds[i].revents == 0)
                continue;
            reached |= has_connected(fds[i].fd) ? 1u << i : 0;
            close(fds[i].fd);
            fds[i].fd = -1;
            n_open--;
        }
    for (size_t i = 0; i < m->n_addresses; i++)
        if (fds[i].fd >= 0)
            close(fds[i].fd);
    return reached;
}

/* --- all --- */

/* returns   the first address that all nodes but 0 reach, by number; -errno */
static int choose(struct pmi1_client *c, const struct pmi_place *p,
                  const struct pmi_bootstrap_meeting *m, uint64_t deadline_ms, struct co_error *err)
{
    unsigned reached = (1u << m->n_addresses) - 1;
    for (uint32_t rank = 1; rank < p->size; rank++) {
        char key[32], value[16];
        unsigned theirs;
        snprintf(key, sizeof key, KEY "-%u", rank);
        int rc = pmi1_client_get(c, key, value, sizeof value, deadline_ms, err);
        if (rc < 0)
            return rc;
        if (sscanf(value, "%9u", &theirs) != 1)
            return co_fail(err, -EPROTO, "node %u published invalid data through PMI", rank);
        reached &= theirs;
        if (reached == 0)
            return co_fail(err, -EHOSTUNREACH,
                           "node 0 has no address that all other nodes can reach: tried %s%s on "
                           "node %u; use --rdzv-endpoint and --node-rank",
                           m->address[0], m->n_addresses > 1 ? " and others" : "", rank);
    }
    return __builtin_ctz(reached);
}

static int agree(struct pmi1_client *c, const struct pmi_place *p,
                 struct pmi_bootstrap_meeting *ret, int *ret_chosen, uint64_t deadline_ms,
                 struct co_error *err)
{
    char text[PMI1_VALUE_BYTES], key[32], value[16];
    int rc = pmi1_client_barrier(c, deadline_ms, err)
                 ?: pmi1_client_get(c, KEY, text, sizeof text, deadline_ms, err);
    if (rc == 0) {
        pmi1_restore_failure(text);
        rc = pmi_bootstrap_read(text, ret, err);
    }
    explicit_bzero(text, sizeof text);
    if (rc == 0 && p->rank > 0) {
        snprintf(key, sizeof key, KEY "-%u", p->rank);
        snprintf(value, sizeof value, "%u", probe(ret));
        rc = pmi1_client_put(c, key, value, deadline_ms, err);
    }
    rc = rc ?: pmi1_client_barrier(c, deadline_ms, err) ?: choose(c, p, ret, deadline_ms, err);
    if (rc < 0)
        return rc;
    *ret_chosen = rc;
    return pmi1_client_finalize(c, deadline_ms, err);
}

int pmi_rendezvous_join(const struct pmi_place *place, struct pmi_bootstrap *ret,
                        struct co_error *err)
{
    const uint64_t deadline_ms = co_deadline_ms(MEET_MS);
    struct pmi_bootstrap_meeting m;
    struct pmi1_client c;
    co_autoclose_fd int listener = -1;
    int chosen = 0;
    fcntl(place->fd, F_SETFD, FD_CLOEXEC); /* it is not for the ranks */
    int rc = pmi1_client_open(&c, place->fd, deadline_ms, err);
    if (rc == 0 && place->rank == 0)
        rc = tell(&c, &listener, deadline_ms, err);
    if (rc == 0)
        rc = agree(&c, place, &m, &chosen, deadline_ms, err);
    if (rc < 0) {
        co_fail_in(err, "rendezvous through PMI");
        return err != NULL ? err->code = -EHOSTUNREACH : -EHOSTUNREACH;
    }
    const char *address = m.address[chosen];
    snprintf(ret->nodes, sizeof ret->nodes, "%u", place->size);
    snprintf(ret->node_rank, sizeof ret->node_rank, "%u", place->rank);
    snprintf(ret->run_id, sizeof ret->run_id, "%s", m.run_id);
    snprintf(ret->endpoint, sizeof ret->endpoint,
             strchr(address, ':') != NULL ? "[%s]:%u" : "%s:%u", address, m.port);
    ret->assignment = (struct node_assignment){.by = "PMI_FD",
                                               .nodes = ret->nodes,
                                               .node_rank = ret->node_rank,
                                               .endpoint = ret->endpoint,
                                               .run_id = ret->run_id,
                                               .has_roster = place->rank == 0};
    rc = co_secret_env_put(m.token);
    explicit_bzero(&m, sizeof m);
    return rc == 0 ? 0 : co_fail(err, -ENOMEM, "out of memory");
}
