/* net_join.c - the nodes of a job find each other.
 *
 * net_join() runs on all ranks. Local rank 0 reaches the store and chooses the address of its
 * node, agree_on_address(); each rank opens its listeners, listen_all(); share_table() puts the
 * report of the node into the store, and gets the table of all ranks, which put_table() makes on
 * the node of rank 0; order_members() makes a map of it. Read net_join(), get_table() and
 * put_table() first.
 *
 * Only local rank 0 uses the store. It hands each result or failure down to its node, hand_down(),
 * so that all ranks of a node return the same. */
#include "net_join.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/scope.h"
#include "data_key.h"
#include "env.h"
#include "env_store.h"
#include "pmi_store.h"
#include "rendezvous/client/client.h"
#include "segments/control.h"
#include "worker-runtime/cipher/cipher.h"
#include "worker-runtime/core/backend.h"
#include "worker-runtime/core/env_value.h"
#include "worker-runtime/core/process.h"
#include "worker-runtime/interfaces/net_interface.h"
#include "worker-runtime/tcp/net_probe.h"

#include <ddp/env.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    KEY_BYTES = 256,
    NAMED = 8,
    CONNECT_LOOK_MS = 50,        /* between two looks at the abort word, at first */
    CONNECT_LOOK_MOST_MS = 2000, /* later: each attempt begins again, and a store may be far away */
    KEY_LOOK_MS = 1000,          /* the store's end is seen at once, its node's may not be */
    VERDICT_MS = 2000,           /* how much longer a node waits, so that rank 0 can report which
                                    ranks are missing */
    MOST_RANKS = 1 << 20,
};

struct hail { /* what local rank 0 sends to its node */
    int32_t code;
    struct net_address address;
    char text[CO_ERROR_TEXT_BYTES];
};

struct report { /* a node's, in the store: this, then a member for each rank */
    uint32_t magic, world_size, n_local;
    struct net_address seen_store; /* where this node sees the store */
};

struct table { /* of the job; in the store: this, then a member for each rank, in rank order */
    uint32_t magic, world_size;
    int32_t code;
    uint8_t cookie[NET_COOKIE_BYTES];
    struct cost_network network;
    char text[240]; /* if code is not 0: why there is no table */
};
#define JOIN_MAGIC 0x4b504444u /* "DDPK" */

struct joining {
    const struct net_join_opts *opts;
    const struct env_who *who; /* of opts */
    uint64_t deadline_ms;
    struct store_client *store; /* of local rank 0 */
    struct net_interface_rule interface_rule;
    struct net_interface *interface; /* n_interfaces, owned; NULL: not looked at yet */
    unsigned n_interfaces;
    struct net_address address;
    struct net_member mine;
    struct net_member *node; /* n_local: of this node's ranks */
    struct net_join *to;     /* being filled; its members by rank, later by position */
};

/* --- among the ranks of this node ------------------------------------------------------------- */

static uint64_t left_ms(const struct joining *j)
{
    const int left = co_left_ms(j->deadline_ms);
    return (left < 0 ? 1u << 30 : (uint64_t)left) + 2 * VERDICT_MS;
}

/* A collective of n bytes each, by the back end of this node. */
static int run_local(const struct joining *j, enum call_kind kind, const void *in, void *out,
                     size_t n, struct co_error *err)
{
    const struct collective what = {.kind = kind,
                                    .dtype = DDP_UINT8,
                                    .in = in,
                                    .out = out,
                                    .count = n,
                                    .goes_on = true, /* the program made no call yet */
                                    .timeout_ms = left_ms(j)};
    return j->opts->local == NULL ? 0 : backend_run(j->opts->local, &what, err);
}

/* From local rank 0 to all. */
static int hand_down(const struct joining *j, void *bytes, size_t n, struct co_error *err)
{
    return run_local(j, CALL_BROADCAST, bytes, bytes, n, err);
}

/* --- where ------------------------------------------------------------------------------------ */

#define STORE_HINT                                                                                 \
    "launch with ddprun or torchrun, use srun --mpi=pmi2, or run ddp-rendezvous and set both "     \
    "variables on all ranks"

static bool is_over(const struct joining *j)
{
    return j->opts->control != NULL && control_abort_get(j->opts->control).cause != CONTROL_OK;
}

static int fail_over(struct co_error *err)
{
    return co_fail(err, -ECONNRESET, "the generation ended before all nodes had joined");
}

/* The deadline of a wait that comes to its end to look at the abort word. */
static uint64_t look_again_ms(uint64_t deadline_ms, int look_ms)
{
    const uint64_t soon_ms = co_deadline_ms(look_ms);
    return soon_ms < deadline_ms ? soon_ms : deadline_ms;
}

/* The store is usually on another node: report to users that there is no path to it. */
static void tell_no_store(const char *why)
{
    char own[HOST_NAME_MAX + 1] = "";
    struct net_links_trouble text;
    gethostname(own, sizeof own - 1);
    snprintf(text.text, sizeof text.text,
             "on %.31s cannot reach the job's store for %d s: %.120s; " NET_LINKS_PATH_HINT, own,
             NET_LINKS_TELL_MS / 1000, why);
    process_tell_wait(text.text);
}

/* The store of a generation that is over is closed, and no process will ever listen there. */
static int connect_store(struct joining *j, const char *host, uint16_t port, struct co_error *err)
{
    const uint64_t begun_ms = co_now_ms();
    int look_ms = j->opts->control != NULL ? CONNECT_LOOK_MS : CONNECT_LOOK_MOST_MS, code;
    bool has_warned = false;
    do {
        code = client_connect(host, port, look_again_ms(j->deadline_ms, look_ms), &j->store, err);
        look_ms = look_ms * 2 < CONNECT_LOOK_MOST_MS ? look_ms * 2 : CONNECT_LOOK_MOST_MS;
        if (code == -ETIMEDOUT && !has_warned && co_now_ms() - begun_ms >= NET_LINKS_TELL_MS) {
            tell_no_store(err->text);
            has_warned = true;
        }
    } while (code == -ETIMEDOUT && !is_over(j) && co_left_ms(j->deadline_ms) != 0);
    if (has_warned)
        process_tell_wait("");
    return code == -ETIMEDOUT && is_over(j) ? fail_over(err) : code;
}

/* As client_get(), which is stopped as a rule by the end of the connection. Only the wait is cut
 * into pieces: a value that is on its way has all the time there is. */
static int await_key(struct joining *j, const char *key, size_t length, uint64_t deadline_ms,
                     uint8_t **ret, size_t *ret_n, struct co_error *err)
{
    int code;
    do
        code = client_wait(j->store, key, length, look_again_ms(deadline_ms, KEY_LOOK_MS), err);
    while (code == -ETIMEDOUT && !is_over(j) && co_left_ms(deadline_ms) != 0);
    if (code == -ETIMEDOUT && is_over(j))
        return fail_over(err);
    return code == 0 ? client_get(j->store, key, length, deadline_ms, ret, ret_n, err) : code;
}

static int reach_store(struct joining *j, struct co_error *err)
{
    struct co_error why;
    const char *host;
    uint16_t port;
    if (pmi_store_is_for(j->who))
        return pmi_store_connect(j->deadline_ms, &j->store, err);
    int code = env_find_store(j->who->store_host, j->who->store_port, &host, &port, err);
    if (code == 0)
        return co_fail(err, -ENOEXEC,
                       "the environment: %d of %d ranks are on this node, but %s and %s are not "
                       "set. With more than one node libddp needs a TCPStore: " STORE_HINT,
                       j->who->local_world_size, j->who->world_size, DDP_ENV_MASTER_ADDR,
                       DDP_ENV_MASTER_PORT);
    if (code < 0)
        return code;
    code = env_store_serve(j->who, port, &why);
    if (code != 0)
        return co_fail(err, code,
                       "%s; rank 0 serves the job's store, because " DDP_ENV_USE_AGENT_STORE
                       " is False",
                       why.text);
    code = connect_store(j, host, port, &why);
    if (code != 0)
        return co_fail(err, code,
                       "%s; check that the job's store runs there (" DDP_ENV_MASTER_ADDR
                       ", " DDP_ENV_MASTER_PORT ") and that this node can reach it",
                       why.text);
    return 0;
}

/* By which address this node reaches the store, and the store's. A connection to ddprun's relay
 * (--store-relay) stays within this node: then they are those of a connection to the node with the
 * store. */
static void find_ends(const struct joining *j, struct net_address *ret_own,
                      struct net_address *ret_store)
{
    const char *host = getenv(DDP_ENV_MASTER_HOST);
    struct sockaddr_storage local, peer;
    if (host != NULL && host[0] != '\0' && net_address_of_route(host, ret_own, ret_store) == 0)
        return;
    client_addresses(j->store, &local, &peer);
    *ret_own = net_address_of(&local);
    *ret_store = net_address_of(&peer);
}

static int look_at_interfaces(struct joining *j, struct co_error *err)
{
    const int code =
        net_interface_rule_parse(getenv(DDP_ENV_SOCKET_IFNAME), &j->interface_rule, err);
    return code != 0 ? code : net_interface_list(&j->interface, &j->n_interfaces, err);
}

static int choose_ends(struct joining *j, const struct net_address *first, struct net_ends *ret,
                       struct co_error *err)
{
    const struct net_interface_user user = {
        .local_rank = (unsigned)j->who->local_rank,
        .memory_node = env_memory_node(getenv(DDP_ENV_NUMA_NODES), j->who->local_rank)};
    return net_interface_choose_ends(&j->interface_rule, j->interface, j->n_interfaces, first,
                                     &user, ret, err);
}

/* All interfaces are looked at here, so that all ranks of the node get the same error. */
static int choose_address(struct joining *j, struct net_address *ret, struct co_error *err)
{
    struct net_address reached_by, store;
    struct net_ends ends;
    int code = look_at_interfaces(j, err);
    find_ends(j, &reached_by, &store);
    if (code == 0)
        code = net_interface_choose_first(&j->interface_rule, j->interface, j->n_interfaces,
                                          &reached_by, ret, err);
    return code != 0 ? code : choose_ends(j, ret, &ends, err);
}

/* Every rank gets what local rank 0 found: the address, or why it has none. */
static int agree_on_address(struct joining *j, struct co_error *err)
{
    struct hail hail = {0};
    struct co_error why = {0};
    if (j->who->local_rank == 0) {
        hail.code = reach_store(j, &why);
        if (hail.code == 0)
            hail.code = choose_address(j, &hail.address, &why);
        snprintf(hail.text, sizeof hail.text, "%s", why.text);
    }
    int code = hand_down(j, &hail, sizeof hail, err);
    if (code != 0)
        return code;
    if (hail.code != 0)
        return co_fail(err, hail.code, "%s", j->who->local_rank == 0 ? why.text : hail.text);
    j->address = hail.address;
    return 0;
}

/* One is the connection that two ranks have anyway. Unless users set the number, each end of this
 * rank has one. */
static void choose_lanes(struct net_member *m)
{
    const char *value = getenv(DDP_ENV_SOCKET_LANES); /* was checked */
    const bool is_set = value != NULL && value[0] != '\0';
    bool is_open = false;
    if (is_set && strcmp(value, ENV_VALUE_LANES_AUTO) == 0)
        m->lanes = net_probe_wish(&is_open);
    else if (is_set)
        m->lanes = (uint16_t)(atoi(value) > 1 ? atoi(value) : 0);
    else
        m->lanes = m->ends.n;
    if (is_open)
        m->ends.flags |= NET_ENDS_PROBED;
    if (m->lanes == 0)
        m->ends = (struct net_ends){0};
    else if (!is_set)
        m->ends.flags |= NET_ENDS_UNCOUNTED;
}

static int listen_all(struct joining *j, struct co_error *err)
{
    j->mine = (struct net_member){.rank = (uint32_t)j->who->rank,
                                  .local_rank = (uint32_t)j->who->local_rank,
                                  .pid = (uint32_t)getpid(),
                                  .address = j->address,
                                  .encrypts = j->to->has_key};
    int code = j->interface == NULL ? look_at_interfaces(j, err) : 0;
    if (code == 0)
        code = choose_ends(j, &j->address, &j->mine.ends, err);
    choose_lanes(&j->mine);
    gethostname(j->mine.host, sizeof j->mine.host - 1);
    for (int i = 0; code == 0 && i < NET_N_CHANNELS; i++)
        code = net_member_listen(&j->mine, &j->mine.port[i], &j->to->listener[i], err);
    return code;
}

/* --- the table -------------------------------------------------------------------------------- */

/* A store may outlive a job: the next one has another name, or the same processes. */
static size_t make_key(const struct joining *j, const char *what, int64_t number,
                       char key[KEY_BYTES])
{
    return (size_t)snprintf(key, KEY_BYTES, "ddp/net/%u/%u/%.160s/%s/%lld", j->who->generation,
                            j->opts->number, j->who->store_job, what, (long long)number);
}

static int put_report(struct joining *j, struct co_error *err)
{
    const unsigned n = (unsigned)j->who->local_world_size;
    const size_t bytes = sizeof(struct report) + n * sizeof *j->node;
    struct net_address own, store;
    char key[KEY_BYTES];
    int64_t number;
    co_autofree struct report *r = calloc(1, bytes);
    if (r == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    find_ends(j, &own, &store);
    *r = (struct report){.magic = JOIN_MAGIC,
                         .world_size = (uint32_t)j->who->world_size,
                         .n_local = n,
                         .seen_store = store};
    memcpy(r + 1, j->node, n * sizeof *j->node);
    size_t length = make_key(j, "nodes", 0, key);
    int code = client_add(j->store, key, length, 1, j->deadline_ms, &number, err);
    if (code == 0) {
        length = make_key(j, "node", number, key);
        code = client_set(j->store, key, length, r, bytes, j->deadline_ms, err);
    }
    return code;
}

/* A node's report, looked at. */
static int read_report(struct joining *j, const uint8_t *bytes, size_t length, uint32_t node,
                       struct net_address *seen_store, struct co_error *err)
{
    struct report r;
    struct net_member m;
    if (length < sizeof r)
        return co_fail(err, -EIO, "a node's report in the store is truncated");
    memcpy(&r, bytes, sizeof r);
    if (r.magic != JOIN_MAGIC || r.n_local < 1 || r.n_local > MOST_RANKS ||
        length != sizeof r + r.n_local * sizeof m)
        return co_fail(err, -EIO,
                       "a node's report in the store is from another version of libddp: use the "
                       "same version on all nodes");
    for (uint32_t i = 0; i < r.n_local; i++) {
        memcpy(&m, bytes + sizeof r + i * sizeof m, sizeof m);
        m.host[sizeof m.host - 1] = '\0';
        if (r.world_size != (uint32_t)j->who->world_size || m.rank >= r.world_size)
            return co_fail(
                err, -ENOEXEC,
                "the environment: rank %u (%s) has a world size of %u, but rank %d has %d; "
                "set WORLD_SIZE to the same number on all nodes",
                m.rank, m.host, r.world_size, j->who->rank, j->who->world_size);
        if (j->to->member[m.rank].address.family != 0)
            return co_fail(err, -ENOEXEC,
                           "the environment: two processes are rank %u, on %s and %s: give each "
                           "process its own RANK",
                           m.rank, j->to->member[m.rank].host, m.host);
        if (!net_address_is_known(&m.address) || !net_ends_is_valid(&m.ends) ||
            m.local_rank >= r.n_local)
            return co_fail(err, -EIO, "rank %u (%s) has no address", m.rank, m.host);
        j->to->member[m.rank] = m;
        j->to->member[m.rank].node = node;
    }
    if (!net_address_is_loopback(&r.seen_store))
        *seen_store = r.seen_store;
    return (int)r.n_local;
}

static int fail_missing(const struct joining *j, struct co_error *err)
{
    char names[NAMED * 12] = "";
    size_t length = 0;
    int n = 0;
    for (int r = 0; r < j->who->world_size; r++)
        if (j->to->member[r].address.family == 0 && n++ < NAMED)
            length += (size_t)snprintf(names + length, sizeof names - length, "%s%d",
                                       length > 0 ? ", " : "", r);
    char more[32] = "";
    if (n > NAMED)
        snprintf(more, sizeof more, " and %d more", n - NAMED);
    return co_fail(
        err, -ETIMEDOUT,
        "timed out waiting for rank %s%s of %d to join; check that all nodes have started", names,
        more, j->who->world_size);
}

/* The node of the store knows itself by an address that only it can reach: others get the one by
 * which they reach the store. */
static void recovery_addresses(struct joining *j, const struct net_address *store)
{
    if (store->family == 0)
        return;
    for (int r = 0; r < j->who->world_size; r++)
        if (net_address_is_loopback(&j->to->member[r].address))
            j->to->member[r].address = *store;
}

static int collect_reports(struct joining *j, struct co_error *err)
{
    struct net_address store = {0};
    char key[KEY_BYTES];
    int n_here = 0;
    for (uint32_t node = 0; n_here < j->who->world_size; node++) {
        co_autofree uint8_t *bytes = NULL;
        size_t length = make_key(j, "node", node + 1, key), n;
        int code = await_key(j, key, length, j->deadline_ms, &bytes, &n, err);
        if (code == -ETIMEDOUT)
            return fail_missing(j, err);
        if (code == 0)
            code = read_report(j, bytes, n, node, &store, err);
        if (code < 0)
            return code;
        n_here += code;
    }
    recovery_addresses(j, &store);
    return 0;
}

/* On rank 0's node: for every rank; also if there is no table, with the reason. */
static int put_table(struct joining *j, struct co_error *err)
{
    struct table t = {.magic = JOIN_MAGIC,
                      .world_size = (uint32_t)j->who->world_size,
                      .network = j->opts->network};
    struct co_error why = {0};
    char key[KEY_BYTES];
    const size_t members = t.world_size * sizeof *j->to->member;
    co_autofree uint8_t *bytes = calloc(1, sizeof t + members);
    if (bytes == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    t.code = collect_reports(j, &why);
    snprintf(t.text, sizeof t.text, "%s", why.text);
    if (t.code == 0 && getrandom(t.cookie, sizeof t.cookie, 0) != sizeof t.cookie)
        return co_fail(err, -EIO, "cannot get random bytes for the job's cookie");
    memcpy(bytes, &t, sizeof t);
    memcpy(bytes + sizeof t, j->to->member, members);
    const size_t length = make_key(j, "table", 0, key);
    const uint64_t deadline_ms = co_deadline_ms(VERDICT_MS); /* even if it is past */
    return client_set(j->store, key, length, bytes, t.code == 0 ? sizeof t + members : sizeof t,
                      deadline_ms, err);
}

/* Local rank 0. Each node puts its report first, also that of rank 0, whose local rank 0 then
 * collects all reports and puts the table, or the reason why it could not be made. All nodes,
 * including this one, read the table from the store: there is one answer for all. Nodes wait longer
 * for it than rank 0 waits for reports, so that they learn which ranks are missing. */
static int get_table(struct joining *j, struct table *ret, struct co_error *err)
{
    char key[KEY_BYTES];
    bool has_rank_0 = false;
    const uint64_t later_ms =
        j->deadline_ms == CO_NEVER_MS ? CO_NEVER_MS : j->deadline_ms + VERDICT_MS;
    co_autofree uint8_t *bytes = NULL;
    size_t n = 0;
    for (int i = 0; i < j->who->local_world_size; i++)
        has_rank_0 = has_rank_0 || j->node[i].rank == 0;
    int code = put_report(j, err);
    if (code == 0 && has_rank_0)
        code = put_table(j, err);
    const size_t length = make_key(j, "table", 0, key);
    if (code == 0)
        code = await_key(j, key, length, later_ms, &bytes, &n, err);
    if (code == -ETIMEDOUT)
        return co_fail(
            err, code,
            "timed out waiting for rank 0 of %d to join; check that all nodes have started",
            j->who->world_size);
    if (code != 0)
        return code;
    const size_t members = (size_t)j->who->world_size * sizeof *j->to->member;
    if (n < sizeof *ret)
        return co_fail(err, -EIO, "the table of ranks in the store is truncated");
    memcpy(ret, bytes, sizeof *ret);
    ret->text[sizeof ret->text - 1] = '\0';
    if (ret->magic != JOIN_MAGIC || ret->code > 0 ||
        (ret->code == 0 &&
         (n != sizeof *ret + members || ret->world_size != (uint32_t)j->who->world_size)))
        return co_fail(err, -EIO,
                       "the table of ranks in the store belongs to another job; use a store of its "
                       "own for each job");
    if (ret->code == 0)
        memcpy(j->to->member, bytes + sizeof *ret, members);
    bool is_whole = cost_network_is_valid(&ret->network);
    for (int r = 0; ret->code == 0 && r < j->who->world_size; r++)
        is_whole = is_whole && net_ends_is_valid(&j->to->member[r].ends);
    return is_whole ? 0 : co_fail(err, -EIO, "the table of ranks in the store is damaged");
}

/* The table is not authenticated, but it names the rank; connections are, and would only be
 * refused. */
static int check_encryption(const struct joining *j, struct co_error *err)
{
    const struct net_member *own = &j->to->member[j->who->rank];
    for (int r = 0; r < j->who->world_size; r++) {
        const struct net_member *other = &j->to->member[r];
        if ((other->encrypts != 0) != j->to->has_key)
            return co_fail(err, -ENOEXEC,
                           "rank %d (%s) %s and rank %d (%s) %s: start ddprun with --encrypt, or "
                           "set " DDP_ENV_ENCRYPT ", on all nodes or on none",
                           r, other->host, other->encrypts != 0 ? "encrypts" : "does not encrypt",
                           j->who->rank, own->host, j->to->has_key ? "encrypts" : "does not");
    }
    return 0;
}

static int share_table(struct joining *j, struct co_error *err)
{
    struct table t = {0};
    struct co_error why = {0};
    if (j->who->local_rank == 0) {
        int code = get_table(j, &t, &why);
        if (code != 0) {
            t.code = code;
            snprintf(t.text, sizeof t.text, "%s", why.text);
        }
    }
    int code = hand_down(j, &t, sizeof t, err);
    if (code == 0 && t.code != 0)
        code = co_fail(err, t.code == -EPIPE ? -EIO : t.code, "%s", t.text);
    if (code == 0)
        code = hand_down(j, j->to->member, (size_t)j->who->world_size * sizeof *j->to->member, err);
    memcpy(j->to->cookie, t.cookie, sizeof j->to->cookie);
    j->to->network = t.network;
    return code != 0 ? code : check_encryption(j, err);
}

/* --- what comes of it ------------------------------------------------------------------------- */

/* From rank order to positions, and nodes by their numbers in the map. */
static int order_members(struct joining *j, struct co_error *err)
{
    const unsigned n = (unsigned)j->who->world_size;
    co_autofree struct net_place *place = calloc(n, sizeof *place);
    struct net_member *ordered = calloc(n, sizeof *ordered);
    int code = place == NULL || ordered == NULL ? co_fail(err, -ENOMEM, "out of memory") : 0;
    for (unsigned r = 0; code == 0 && r < n; r++)
        place[r] = (struct net_place){j->to->member[r].node, j->to->member[r].local_rank};
    if (code == 0)
        code = net_map_init(&j->to->map, place, n, (unsigned)j->who->rank, err);
    if (code != 0) {
        free(ordered);
        return code == -EINVAL ? -ENOEXEC : code;
    }
    for (unsigned p = 0; p < n; p++) {
        ordered[p] = j->to->member[j->to->map.rank_at[p]];
        ordered[p].node = net_map_node_of(&j->to->map, p);
    }
    free(j->to->member);
    j->to->member = ordered;
    return 0;
}

static void name_node(struct joining *j)
{
    const unsigned first = j->to->map.first[j->to->map.node];
    for (int i = 0; i < j->who->local_world_size; i++)
        j->to->world_rank[i] = j->to->map.rank_at[first + (unsigned)i];
    snprintf(j->to->where, sizeof j->to->where, " on node %u (%.31s)", j->to->map.node,
             j->to->member[j->to->map.position].host);
}

static struct net_join *new_join(const struct env_who *who)
{
    struct net_join *to = calloc(1, sizeof *to);
    if (to == NULL)
        return NULL;
    for (int i = 0; i < NET_N_CHANNELS; i++)
        to->listener[i] = -1;
    to->world_rank = calloc((size_t)who->local_world_size, sizeof *to->world_rank);
    to->member = calloc((size_t)who->world_size, sizeof *to->member);
    if (to->world_rank != NULL && to->member != NULL)
        return to;
    net_join_destroy(to);
    return NULL;
}

static int find_key(const struct env_who *who, struct net_join *to, struct co_error *err)
{
    struct data_keys keys;
    const int code = data_key_find(env_getenv, NULL, who->generation, &keys, &to->has_key, err);
    if (code != 0 || !to->has_key)
        return code;
    memcpy(to->key, keys.generation, sizeof to->key);
    process_set_library_key(keys.library);
    cipher_wipe(&keys, sizeof keys);
    return 0;
}

int net_join(const struct net_join_opts *opts, uint64_t deadline_ms, struct net_join **ret,
             struct co_error *err)
{
    const struct env_who *who = opts->who;
    struct net_join *to = who->world_size <= MOST_RANKS ? new_join(who) : NULL;
    co_autofree struct net_member *node = calloc((size_t)who->local_world_size, sizeof *node);
    struct joining state = {
        .opts = opts, .who = who, .deadline_ms = deadline_ms, .node = node, .to = to};
    struct joining *j = &state;
    int code = 0;
    if (to == NULL || node == NULL)
        code = co_fail(err, -ENOMEM, "out of memory");
    if (code == 0)
        code = find_key(who, to, err);
    if (code == 0 && pmi_store_is_for(who))
        code = pmi_store_find(who, deadline_ms, err);
    if (code == 0)
        code = agree_on_address(j, err);
    if (code == 0)
        code = listen_all(j, err);
    if (code == 0) {
        node[0] = j->mine;
        code = run_local(j, CALL_ALL_GATHER, &j->mine, node, sizeof j->mine, err);
    }
    if (code == 0)
        code = share_table(j, err);
    if (code == 0)
        code = order_members(j, err);
    if (code == 0 && who->n_nodes > 0 && (unsigned)who->n_nodes != to->map.n_nodes)
        code = co_fail(
            err, -ENOEXEC,
            "the environment gives %d nodes, but %u joined; check the variables of the nodes",
            who->n_nodes, to->map.n_nodes);
    client_close(j->store);
    free(j->interface);
    if (code != 0) {
        net_join_destroy(to);
        return code;
    }
    name_node(j);
    *ret = to;
    return 0;
}

void net_join_destroy(struct net_join *to)
{
    if (to == NULL)
        return;
    for (int i = 0; i < NET_N_CHANNELS; i++)
        co_close_at(&to->listener[i]);
    cipher_wipe(to->key, sizeof to->key);
    net_map_fini(&to->map);
    free(to->member);
    free(to->world_rank);
    free(to);
}
