/* The options about how many nodes there are and which one this is, the job's name, and where its
 * nodes and ranks find each other. */
#include "cli.h"
#include "cli_draft.h"
#include "launcher/job/job_spec.h"
#include "launcher/platform/domain_rule.h"

#include "common/error.h"
#include "common/parse.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum backend { STATIC, C10D, ETCD, ETCD_V2 };
enum { STATIC_PORT = 29500, C10D_PORT = 29400, ETCD_PORT = 2379 };
static const char *const backends[] = {"static", "c10d", "etcd", "etcd-v2", NULL};

/* --- nodes --- */

/* "4" or "2:4" */
static int parse_nodes(const struct given *g, uint32_t *ret_min, uint32_t *ret_max,
                       struct co_error *err)
{
    char first[24];
    int64_t min, max;
    size_t n = strcspn(g->value, ":");
    snprintf(first, sizeof first, "%.*s", n < sizeof first ? (int)n : 0, g->value);
    const char *second = g->value[n] == ':' ? g->value + n + 1 : first;
    int min_rc = co_parse_int(g->by, first, 1, MESSAGE_MAX_NODES, &min, NULL);
    int max_rc = co_parse_int(g->by, second, 1, MESSAGE_MAX_NODES, &max, NULL);
    if (min_rc < 0 || max_rc < 0)
        return co_fail(err, -EINVAL,
                       "invalid value '%.200s' for %s: expected a number from 1 to %d, or MIN:MAX",
                       g->value, g->by, MESSAGE_MAX_NODES);
    if (min > max)
        return co_fail(err, -EINVAL,
                       "invalid value '%s' for %s: the minimum is greater than the maximum",
                       g->value, g->by);
    *ret_min = (uint32_t)min;
    *ret_max = (uint32_t)max;
    return 0;
}

/* Where nodes have numbers, the only one has 0. */
static int check_only_rank(const struct draft *d, int64_t rank, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_NODE_RANK];
    const struct given *backend = &d->given[OPTION_RDZV_BACKEND];
    bool counts =
        !d->standalone && (backend->value == NULL || strcmp(backend->value, "static") == 0);
    if (rank == 0 || !counts)
        return 0;
    return co_fail(err, -EINVAL,
                   "invalid value '%s' for %s: a job of one node has node rank 0 only; use "
                   "--nnodes for more nodes",
                   g->value, g->by);
}

static int set_node_rank(const struct draft *d, struct job_world *w, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_NODE_RANK];
    int64_t rank = 0;
    w->node_rank = MESSAGE_NO_RANK;
    if (g->value == NULL)
        return 0;
    int rc = co_parse_int(g->by, g->value, 0, INT32_MAX, &rank, err);
    if (rc < 0 || !w->has_others)
        return rc < 0 ? rc : check_only_rank(d, rank, err);
    if (rank >= w->max_nodes + w->spares)
        return co_fail(
            err, -EINVAL,
            "invalid value '%s' for %s: with at most %u nodes, expected a number from 0 to %u",
            g->value, g->by, w->max_nodes + w->spares, w->max_nodes + w->spares - 1);
    w->node_rank = (int32_t)rank;
    return 0;
}

/* The hosts of a list are the active nodes and the spares. */
static int set_spares(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_SPARES];
    struct job_world *w = &spec->world;
    const size_t n_hosts = spec->remote != NULL ? spec->remote->hosts.n : MESSAGE_MAX_NODES;
    int64_t n;
    if (g->value == NULL)
        return 0;
    int rc = co_parse_int(g->by, g->value, 0, MESSAGE_MAX_NODES - 1, &n, err);
    if (rc < 0)
        return rc;
    w->spares = (uint32_t)n;
    if (spec->remote != NULL && d->given[OPTION_NNODES].value == NULL && n_hosts > w->spares)
        w->min_nodes = w->max_nodes = (uint32_t)n_hosts - w->spares;
    if (w->max_nodes + w->spares <= n_hosts)
        return 0;
    return co_fail(err, -EINVAL, "%s %s: with %u active nodes, expected at most %zu spares", g->by,
                   g->value, w->max_nodes, n_hosts > w->max_nodes ? n_hosts - w->max_nodes : 0);
}

static int set_segment(const struct draft *d, struct job_world *w, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_SEGMENT], *domain = &d->given[OPTION_DOMAIN];
    int64_t n;
    if (g->value == NULL && domain->value == NULL)
        return 0;
    if (g->value == NULL)
        return co_fail(err, -EINVAL, "%s requires --segment", domain->by);
    int rc = co_parse_int(g->by, g->value, 1, MESSAGE_MAX_NODES, &n, err);
    if (rc == 0 && domain->value != NULL)
        rc = domain_rule_check(domain->by, domain->value, err);
    if (rc < 0)
        return rc;
    if (w->min_nodes % n != 0 || w->max_nodes % n != 0)
        return co_fail(err, -EINVAL,
                       "%s %s: a job has whole segments only, but this one has %u to %u nodes; use "
                       "--nnodes with multiples of %s",
                       g->by, g->value, w->min_nodes, w->max_nodes, g->value);
    w->segment = (uint32_t)n;
    return cli_copy(domain->value != NULL ? domain->value : "gpu", &w->domain_rule, err);
}

int cli_set_nodes(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_NNODES];
    struct job_world *w = &spec->world;
    w->min_nodes = w->max_nodes = 1;
    int rc = g->value != NULL ? parse_nodes(g, &w->min_nodes, &w->max_nodes, err) : 0;
    if (rc < 0)
        return rc;
    if (spec->remote != NULL && g->value == NULL)
        w->min_nodes = w->max_nodes = (uint32_t)spec->remote->hosts.n;
    else if (spec->remote != NULL && w->max_nodes > spec->remote->hosts.n)
        return co_fail(err, -EINVAL,
                       "%s %s requires more than the %zu hosts given; add hosts or lower %s", g->by,
                       g->value, spec->remote->hosts.n, g->by);
    rc = set_spares(d, spec, err);
    if (rc < 0)
        return rc;
    if (w->max_nodes > 1 && d->standalone)
        return co_fail(err, -EINVAL,
                       "%s %s and %s cannot be used together: a standalone job has one node", g->by,
                       g->value, d->given[OPTION_STANDALONE].by);
    w->has_others = w->max_nodes > 1 || (w->spares > 0 && !d->standalone) || spec->remote != NULL ||
                    d->assignment != NULL;
    rc = set_segment(d, w, err);
    if (!w->has_others)
        w->segment = 0;
    return rc < 0 ? rc : set_node_rank(d, w, err);
}

/* --- names --- */

/* A random UUID (version 4), as torchrun makes them. */
static int make_run_id(const struct host_env *world, char **ret_id, struct co_error *err)
{
    unsigned char b[16];
    int rc = world->fill_random(world->arg, b, sizeof b);
    if (rc < 0)
        return co_fail(err, -EIO, "cannot get random bytes for a run id: %s", strerror(-rc));
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    char id[37];
    char *to = id;
    for (int i = 0; i < 16; i++)
        to += snprintf(to, 4, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", b[i]);
    return cli_copy(id, ret_id, err);
}

/* Nodes know by it that they belong together. At a node that is known to be the job's own there is
 * no other job, and torchrun's name for all that have none does. */
static int set_run_id(const struct draft *d, enum backend backend, struct job_spec *spec,
                      struct co_error *err)
{
    const struct given *id = &d->given[OPTION_RDZV_ID];
    const struct given *nodes = &d->given[OPTION_NNODES];
    int rc = id->value != NULL ? cli_check_name(id, err) : 0;
    if (rc < 0)
        return rc;
    if (id->value != NULL && *id->value == '\0')
        return co_fail(err, -EINVAL, "%s is empty; give the job a name, or leave the option out",
                       id->by);
    if (id->value != NULL && spec->world.has_others && strlen(id->value) >= MESSAGE_RUN_ID_BYTES)
        return co_fail(err, -EINVAL, "%s is too long: expected at most %d bytes", id->by,
                       MESSAGE_RUN_ID_BYTES - 1);
    if (id->value != NULL)
        return cli_copy(id->value, &spec->run_id, err);
    if (spec->remote != NULL)
        return make_run_id(d->world, &spec->run_id, err);
    if (spec->as_torchrun && !d->standalone)
        return cli_copy("none", &spec->run_id, err);
    if (!spec->world.has_others)
        return make_run_id(d->world, &spec->run_id, err);
    if (backend == STATIC)
        return cli_copy("none", &spec->run_id, err);
    return co_fail(err, -EINVAL,
                   "%s %s requires --rdzv-id ID, the same on every node: it keeps nodes of "
                   "different jobs apart",
                   nodes->by, nodes->value);
}

/* --- the store --- */

static int set_store_allow(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_STORE_ALLOW];
    if (g->value == NULL)
        return 0;
    struct allow_list *list = spec->world.store_allow = calloc(1, sizeof *list);
    if (list == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    for (const char *at = g->value; at != NULL;) {
        char net[ALLOW_TEXT_BYTES];
        size_t len = strcspn(at, ",");
        snprintf(net, sizeof net, "%.*s", len < sizeof net ? (int)len : 20, at);
        int rc = len < sizeof net
                     ? allow_add(list, net, err)
                     : co_fail(err, -EINVAL, "'%s...' is not a valid ADDR or ADDR/BITS", net);
        if (rc < 0) {
            co_fail_in(err, "%s", g->by);
            return -EINVAL;
        }
        at = at[len] == ',' ? at + len + 1 : NULL;
    }
    return 0;
}

static int check_relay(const struct draft *d, const struct job_spec *spec, struct co_error *err)
{
    const struct given *relay = &d->given[OPTION_STORE_RELAY];
    const struct given *allow = &d->given[OPTION_STORE_ALLOW];
    if (spec->store_relay == RELAY_OFF)
        return 0;
    if (spec->store == STORE_WORKER)
        return co_fail(err, -EINVAL,
                       "%s on cannot be used with %s worker: ddprun relays only its own store",
                       relay->by, d->given[OPTION_STORE].by);
    if (allow->value != NULL)
        return co_fail(err, -EINVAL,
                       "%s on cannot be used with %s: no other host can reach a relayed store",
                       relay->by, allow->by);
    return 0;
}

static int set_store(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    static const char *const choices[] = {
        [STORE_AUTO] = "auto", [STORE_AGENT] = "agent", [STORE_WORKER] = "worker", NULL};
    static const char *const relay[] = {[RELAY_OFF] = "off", [RELAY_ON] = "on", NULL};
    static const struct cli_field fields[] = {
        {OPTION_STORE, CLI_CHOICE, offsetof(struct job_spec, store), choices},
        {OPTION_STORE_RELAY, CLI_CHOICE, offsetof(struct job_spec, store_relay), relay},
        {OPTION_ENCRYPT, CLI_FLAG, offsetof(struct job_spec, encrypt)},
    };
    const struct given *port = &d->given[OPTION_MASTER_PORT];
    int64_t number = 0;
    int rc = 0;
    if (port->value != NULL)
        rc = co_parse_int(port->by, port->value, 0, UINT16_MAX, &number, err);
    spec->master_port = (uint16_t)number;
    return rc
        ?: cli_set_fields(d, fields, sizeof fields / sizeof *fields, spec, err)
        ?: check_relay(d, spec, err)
        ?: set_store_allow(d, spec, err);
}

/* --- rendezvous of the nodes --- */

/* torchrun's is static. But static needs to know which node has rank 0. A user who specifies
 * neither that nor the rendezvous endpoint wants ddprun to find it out. */
static int choose_backend(const struct draft *d, struct job_spec *spec, enum backend *ret,
                          struct co_error *err)
{
    int backend = STATIC;
    int rc = cli_choice(&d->given[OPTION_RDZV_BACKEND], backends, &backend, err);
    if (rc < 0)
        return rc;
    bool is_given = d->given[OPTION_RDZV_BACKEND].value != NULL;
    bool has_master = d->given[OPTION_NODE_RANK].value != NULL ||
                      d->given[OPTION_MASTER_ADDR].value != NULL ||
                      d->given[OPTION_MASTER_PORT].value != NULL;
    if (spec->remote != NULL && is_given && backend != C10D)
        return co_fail(
            err, -EINVAL,
            "%s %s cannot be used with hosts that this ddprun starts; leave it out, or use c10d",
            d->given[OPTION_RDZV_BACKEND].by, backends[backend]);
    if (d->standalone || spec->remote != NULL)
        backend = C10D; /* as torchrun, which forgets the given one */
    else if (!is_given && spec->world.has_others && !spec->as_torchrun && !has_master)
        backend = C10D;
    *ret = (enum backend)backend;
    return cli_copy(backends[backend], &spec->backend, err);
}

/* HOST[:PORT] of --rdzv-endpoint; *host is empty and *port untouched if that is not given. */
static int read_endpoint(const struct draft *d, char host[CLI_NAME_MAX + 1], uint16_t *port,
                         struct co_error *err)
{
    const struct given *g = &d->given[OPTION_RDZV_ENDPOINT];
    host[0] = '\0';
    if (g->value == NULL || *g->value == '\0')
        return 0;
    int rc = cli_check_name(g, err);
    if (rc == 0 && strchr(g->value, ',') != NULL)
        rc = co_fail(err, -EINVAL,
                     "invalid value '%.200s' for %s: a list of endpoints requires --rdzv-backend "
                     "c10d",
                     g->value, g->by);
    return rc < 0 ? rc : co_parse_endpoint(g->by, g->value, host, CLI_NAME_MAX + 1, port, err);
}

/* Of one node it is this one whatever it is called: names that another node would need are not
 * looked up. The store listens on the loopback interface, so that another name of this node would
 * not lead to it. */
static int set_alone(const struct draft *d, enum backend backend, struct job_spec *spec,
                     struct co_error *err)
{
    const struct given *addr = &d->given[OPTION_MASTER_ADDR];
    char host[CLI_NAME_MAX + 1];
    uint16_t port = 0;
    struct job_endpoint found[JOB_MAX_ENDPOINTS];
    uint32_t n_found;
    int rc = backend == C10D ? cli_read_endpoints(&d->given[OPTION_RDZV_ENDPOINT], C10D_PORT, found,
                                                  &n_found, err)
                             : read_endpoint(d, host, &port, err);
    if (rc < 0)
        return rc;
    bool from_endpoint = backend == STATIC && host[0] != '\0';
    const char *asked = from_endpoint ? host : addr->value != NULL ? addr->value : "";
    if (from_endpoint)
        spec->master_port = port; /* wins over --master-port */
    return cli_copy(strcmp(asked, "localhost") == 0 ? asked : "127.0.0.1", &spec->master_addr, err);
}

static int set_endpoint(const struct draft *d, enum backend backend, const char *host,
                        uint16_t port, struct job_spec *spec, struct co_error *err)
{
    const struct given *endpoint = &d->given[OPTION_RDZV_ENDPOINT];
    const struct given *addr = &d->given[OPTION_MASTER_ADDR];
    struct job_world *w = &spec->world;
    const char *by = endpoint->value != NULL && *endpoint->value != '\0' ? endpoint->by
                     : addr->value != NULL                               ? addr->by
                                                                         : "--master-port";
    int rc = cli_check_host(by, host, MESSAGE_HOST_BYTES - 1, err);
    if (rc < 0)
        return rc;
    if (port == 0)
        return co_fail(err, -EINVAL,
                       "invalid port 0 for %s: the rendezvous port must be the same on every node; "
                       "give a number",
                       by);
    w->endpoint_port = port;
    rc = cli_copy(host, &w->endpoint_host, err);
    return rc < 0 || backend != STATIC ? rc : cli_copy(host, &spec->master_addr, err);
}

/* The node with rank 0 is known from the beginning, and is the rendezvous endpoint: the port that
 * is given for the store is also that of the rendezvous. */
static int set_static(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *addr = &d->given[OPTION_MASTER_ADDR];
    const struct given *master_port = &d->given[OPTION_MASTER_PORT];
    struct job_world *w = &spec->world;
    char host[CLI_NAME_MAX + 1];
    uint16_t port = master_port->value != NULL ? spec->master_port : STATIC_PORT;
    int rc = read_endpoint(d, host, &port, err);
    if (rc < 0)
        return rc;
    if (host[0] == '\0') {
        w->unsaid = addr->value == NULL ? "--master-addr" : NULL;
        snprintf(host, sizeof host, "%s", addr->value != NULL ? addr->value : "127.0.0.1");
    }
    if (w->node_rank == MESSAGE_NO_RANK)
        w->node_rank = 0; /* as torchrun */
    w->keeps_rank_0 = w->node_rank == 0;
    w->host = w->keeps_rank_0 ? JOB_HOST_HERE : JOB_HOST_ELSEWHERE;
    spec->master_port = port;
    return set_endpoint(d, STATIC, host, port, spec, err);
}

static int set_also(const struct job_endpoint *also, uint32_t n, struct job_spec *spec,
                    struct co_error *err)
{
    for (uint32_t i = 0; i < n; i++)
        if (also[i].port == 0)
            return co_fail(err, -EINVAL, "invalid port 0 for --rdzv-endpoint: give a number");
    spec->world.also = calloc(n, sizeof *also);
    if (spec->world.also == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    memcpy(spec->world.also, also, n * sizeof *also);
    spec->world.n_also = n;
    return 0;
}

static int set_c10d(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const enum cli_option several =
        d->given[OPTION_NNODES].value != NULL ? OPTION_NNODES : OPTION_SPARES;
    const struct given *nodes = &d->given[several];
    const struct given *addr = &d->given[OPTION_MASTER_ADDR];
    struct job_endpoint found[JOB_MAX_ENDPOINTS] = {{.host = ""}};
    uint32_t n_found = 0;
    int rc = cli_read_endpoints(&d->given[OPTION_RDZV_ENDPOINT], C10D_PORT, found, &n_found, err);
    if (rc < 0)
        return rc;
    const char *host = found[0].host;
    const uint16_t port = n_found > 0 ? found[0].port : C10D_PORT;
    if (host[0] == '\0' && !spec->as_torchrun)
        return co_fail(err, -EINVAL,
                       "%s %s requires --rdzv-endpoint HOST[:PORT] (a node of the job, or a "
                       "ddp-rendezvous server; the same on every node)",
                       nodes->by, nodes->value);
    if (addr->value != NULL && (rc = cli_note(spec, err,
                                              "%s ignored: it applies to --rdzv-backend static; "
                                              "the node with rank 0 sets MASTER_ADDR",
                                              addr->by)) < 0)
        return rc;
    if (n_found > 1 && (rc = set_also(found + 1, n_found - 1, spec, err)) < 0)
        return rc;
    spec->world.unsaid = host[0] == '\0' ? "--rdzv-endpoint" : NULL;
    return set_endpoint(d, C10D, host[0] != '\0' ? host : "localhost", port, spec, err);
}

/* Both of torchrun's spellings: what they mean there are two ways to use an API that etcd has no
 * more. How to come in there is read with the terms. */
static int set_etcd(const struct draft *d, enum backend backend, struct job_spec *spec,
                    struct co_error *err)
{
    const struct given *nodes = &d->given[OPTION_NNODES];
    char host[CLI_NAME_MAX + 1];
    uint16_t port = ETCD_PORT;
    int rc = read_endpoint(d, host, &port, err);
    if (rc < 0)
        return rc;
    if (host[0] == '\0')
        return co_fail(err, -EINVAL,
                       "%s %s with etcd requires --rdzv-endpoint HOST[:PORT], the address of etcd",
                       nodes->by, nodes->value);
    spec->world.etcd = calloc(1, sizeof *spec->world.etcd);
    if (spec->world.etcd == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    return set_endpoint(d, backend, host, port, spec, err);
}

static int set_backend(const struct draft *d, enum backend backend, struct job_spec *spec,
                       struct co_error *err)
{
    if (spec->remote != NULL) { /* the rendezvous is in this process, at any free port: the ddpruns
                                 * that it starts get both */
        spec->world.host = JOB_HOST_HERE;
        return cli_copy("::", &spec->world.endpoint_host, err);
    }
    return backend == STATIC ? set_static(d, spec, err)
           : backend == C10D ? set_c10d(d, spec, err)
                             : set_etcd(d, backend, spec, err);
}

static int set_local_addr(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_LOCAL_ADDR];
    struct job_world *w = &spec->world;
    if (g->value == NULL)
        return 0;
    int rc = cli_check_name(g, err);
    if (rc < 0 || !w->has_others)
        return rc;
    return cli_check_host(g->by, g->value, MESSAGE_NAME_BYTES - 1, err)
        ?: cli_copy(g->value, &w->local_addr, err)
        ?: cli_copy(g->value, &w->node_name, err);
}

int cli_set_meeting(const struct draft *d, const struct cli_conf *conf, struct job_spec *spec,
                    struct co_error *err)
{
    enum backend backend = STATIC;
    const struct given *addr = &d->given[OPTION_MASTER_ADDR], *role = &d->given[OPTION_ROLE];
    return (addr->value != NULL ? cli_check_name(addr, err) : 0)
        ?: (role->value != NULL ? cli_check_name(role, err) : 0)
        ?: cli_copy(role->value != NULL ? role->value : "default", &spec->role, err)
        ?: set_store(d, spec, err)
        ?: choose_backend(d, spec, &backend, err)
        ?: (spec->world.has_others ? set_backend(d, backend, spec, err)
                               : set_alone(d, backend, spec, err))
        ?: set_run_id(d, backend, spec, err)
        ?: set_local_addr(d, spec, err)
        ?: cli_set_terms(d, conf, backend == STATIC, spec, err);
}
