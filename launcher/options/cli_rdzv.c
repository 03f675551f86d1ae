/* The options about the job's name, and where its ranks find each other. */
#include "cli.h"
#include "cli_draft.h"
#include "launcher/job/job_spec.h"

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

static int copy(char **to, const char *text, struct co_error *err)
{
    free(*to);
    *to = strdup(text);
    return *to != NULL ? 0 : co_fail(err, -ENOMEM, "no memory for the options");
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
    return copy(ret_id, id, err);
}

static int check_run_id(const struct given *id, bool guided, struct co_error *err)
{
    int rc = cli_check_name(id, err);
    if (rc < 0)
        return rc;
    if (*id->value == '\0')
        return co_fail(err, -EINVAL, "%s is empty: give the job a name, or leave it out", id->by);
    if (guided && strlen(id->value) >= MESSAGE_RUN_ID_BYTES)
        return co_fail(err, -EINVAL, "%s is longer than %d bytes", id->by,
                       MESSAGE_RUN_ID_BYTES - 1);
    return 0;
}

/* Nodes know by it that they belong together. At a node that is known to be the job's own there is
 * no other job, and torchrun's name for all that have none does. */
static int set_run_id(const struct draft *d, enum backend backend, struct job_spec *spec,
                      struct co_error *err)
{
    const struct given *id = &d->given[OPTION_RDZV_ID];
    const struct given *nodes = &d->given[OPTION_NNODES];
    bool standalone;
    int rc = cli_flag(d, OPTION_STANDALONE, &standalone, err);
    if (rc == 0 && id->value != NULL)
        rc = check_run_id(id, spec->world.guided, err);
    if (rc < 0)
        return rc;
    if (id->value != NULL)
        return copy(&spec->run_id, id->value, err);
    if (spec->remote != NULL)
        return make_run_id(d->world, &spec->run_id, err);
    if (spec->as_torchrun && !standalone)
        return copy(&spec->run_id, "none", err);
    if (!spec->world.guided)
        return make_run_id(d->world, &spec->run_id, err);
    if (backend == STATIC)
        return copy(&spec->run_id, "none", err);
    return co_fail(err, -EINVAL,
                   "%s %s: the job needs a name, the same on all nodes, so that no node of another "
                   "job is taken for one of this: --rdzv-id NAME",
                   nodes->by, nodes->value);
}

static int set_role(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *role = &d->given[OPTION_ROLE];
    int rc = role->value != NULL ? cli_check_name(role, err) : 0;
    return rc < 0 ? rc : copy(&spec->role, role->value != NULL ? role->value : "default", err);
}

/* --- the store --- */

static int set_store_allow(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_STORE_ALLOW];
    if (g->value == NULL)
        return 0;
    struct allow_list *list = spec->world.store_allow = calloc(1, sizeof *list);
    if (list == NULL)
        return co_fail(err, -ENOMEM, "no memory for %s", g->by);
    for (const char *at = g->value; at != NULL;) {
        char net[ALLOW_TEXT_BYTES];
        size_t len = strcspn(at, ",");
        snprintf(net, sizeof net, "%.*s", len < sizeof net ? (int)len : 20, at);
        int rc = len < sizeof net ? allow_add(list, net, err)
                                  : co_fail(err, -EINVAL, "'%s...' is no ADDR or ADDR/BITS", net);
        if (rc < 0) {
            co_fail_in(err, "%s", g->by);
            return -EINVAL;
        }
        at = at[len] == ',' ? at + len + 1 : NULL;
    }
    return 0;
}

static int set_store(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    static const char *const choices[] = {
        [STORE_AUTO] = "auto", [STORE_AGENT] = "agent", [STORE_WORKER] = "worker", NULL};
    const struct given *port = &d->given[OPTION_MASTER_PORT];
    int choice = STORE_AUTO;
    int64_t number = 0;
    int rc = 0;
    if (port->value != NULL)
        rc = co_parse_int(port->by, port->value, 0, UINT16_MAX, &number, err);
    if (rc == 0)
        rc = cli_choice(&d->given[OPTION_STORE], choices, &choice, err);
    if (rc < 0)
        return rc;
    spec->master_port = (uint16_t)number;
    spec->store = (enum store_choice)choice;
    return set_store_allow(d, spec, err);
}

/* --- how nodes meet --- */

/* torchrun's is static. But static needs somebody who says which node has rank 0, and who says
 * nothing about that, and where to meet, wants that found out. */
static int choose_backend(const struct draft *d, struct job_spec *spec, enum backend *ret,
                          struct co_error *err)
{
    int backend = STATIC;
    bool standalone;
    int rc = cli_choice(&d->given[OPTION_RDZV_BACKEND], backends, &backend, err);
    if (rc == 0)
        rc = cli_flag(d, OPTION_STANDALONE, &standalone, err);
    if (rc < 0)
        return rc;
    bool is_given = d->given[OPTION_RDZV_BACKEND].value != NULL;
    bool has_master = d->given[OPTION_NODE_RANK].value != NULL ||
                      d->given[OPTION_MASTER_ADDR].value != NULL ||
                      d->given[OPTION_MASTER_PORT].value != NULL;
    if (spec->remote != NULL && is_given && backend != C10D)
        return co_fail(err, -EINVAL, "%s %s: nodes that this ddprun starts meet by c10d",
                       d->given[OPTION_RDZV_BACKEND].by, backends[backend]);
    if (standalone || spec->remote != NULL)
        backend = C10D; /* as torchrun, which forgets the given one */
    else if (!is_given && spec->world.guided && !spec->as_torchrun && !has_master)
        backend = C10D;
    *ret = (enum backend)backend;
    return copy(&spec->backend, backends[backend], err);
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
    int rc = read_endpoint(d, host, &port, err);
    if (rc < 0)
        return rc;
    bool from_endpoint = backend == STATIC && host[0] != '\0';
    const char *asked = from_endpoint ? host : addr->value != NULL ? addr->value : "";
    if (from_endpoint)
        spec->master_port = port; /* wins over --master-port */
    return copy(&spec->master_addr, strcmp(asked, "localhost") == 0 ? asked : "127.0.0.1", err);
}

/* A name or an address that goes to other nodes. */
static int check_host(const char *by, const char *host, size_t max, struct co_error *err)
{
    size_t len = strnlen(host, max + 1);
    for (const char *c = host; *c != '\0'; c++)
        if (*c <= ' ' || *c > '~')
            return co_fail(err, -EINVAL, "%s '%.200s' is no name or address of a node", by, host);
    if (len == 0 || len > max)
        return co_fail(err, -EINVAL, "%s: a name or address has 1 to %zu characters", by, max);
    return 0;
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
    int rc = check_host(by, host, MESSAGE_HOST_BYTES - 1, err);
    if (rc < 0)
        return rc;
    if (port == 0)
        return co_fail(err, -EINVAL,
                       "%s: nodes cannot meet at port 0, which means any free one: give a number",
                       by);
    w->endpoint_port = port;
    rc = copy(&w->endpoint_host, host, err);
    return rc < 0 || backend != STATIC ? rc : copy(&spec->master_addr, host, err);
}

/* The node with rank 0 is known from the beginning, and is where nodes meet: the port that is given
 * for the store is that of the meeting, too. */
static int set_static(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *addr = &d->given[OPTION_MASTER_ADDR];
    const struct given *master_port = &d->given[OPTION_MASTER_PORT];
    struct job_world *w = &spec->world;
    char host[CLI_NAME_MAX + 1];
    uint16_t port = master_port->value != NULL ? spec->master_port : STATIC_PORT;
    int rc = addr->value != NULL ? cli_check_name(addr, err) : 0;
    if (rc == 0)
        rc = read_endpoint(d, host, &port, err);
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

static int set_c10d(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *nodes = &d->given[OPTION_NNODES];
    const struct given *addr = &d->given[OPTION_MASTER_ADDR];
    char host[CLI_NAME_MAX + 1];
    uint16_t port = C10D_PORT;
    int rc = read_endpoint(d, host, &port, err);
    if (rc < 0)
        return rc;
    if (host[0] == '\0' && !spec->as_torchrun)
        return co_fail(err, -EINVAL,
                       "%s %s: where do the nodes meet? --rdzv-endpoint HOST[:PORT], the same on "
                       "all of them, names one of them or a ddp-rendezvous",
                       nodes->by, nodes->value);
    if (addr->value != NULL && (rc = cli_note(spec, err,
                                              "%s is for --rdzv-backend static: ignored, since "
                                              "whichever node has rank 0 tells its address",
                                              addr->by)) < 0)
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
        return co_fail(err, -EINVAL, "%s %s: where is etcd? --rdzv-endpoint HOST[:PORT]", nodes->by,
                       nodes->value);
    spec->world.etcd = calloc(1, sizeof *spec->world.etcd);
    if (spec->world.etcd == NULL)
        return co_fail(err, -ENOMEM, "no memory for the options");
    return set_endpoint(d, backend, host, port, spec, err);
}

/* This process is where they meet, at any port that is free: both are told to those it starts. */
static int set_here(struct job_spec *spec, struct co_error *err)
{
    spec->world.host = JOB_HOST_HERE;
    return copy(&spec->world.endpoint_host, "::", err);
}

static int set_guided(const struct draft *d, enum backend backend, struct job_spec *spec,
                      struct co_error *err)
{
    if (spec->remote != NULL)
        return set_here(spec, err);
    if (backend == STATIC)
        return set_static(d, spec, err);
    return backend == C10D ? set_c10d(d, spec, err) : set_etcd(d, backend, spec, err);
}

static int set_local_addr(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_LOCAL_ADDR];
    struct job_world *w = &spec->world;
    if (g->value == NULL)
        return 0;
    int rc = cli_check_name(g, err);
    if (rc < 0 || !w->guided)
        return rc;
    rc = check_host(g->by, g->value, MESSAGE_NAME_BYTES - 1, err);
    if (rc == 0)
        rc = copy(&w->local_addr, g->value, err);
    return rc < 0 ? rc : copy(&w->node_name, g->value, err);
}

int cli_set_meeting(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    enum backend backend = STATIC;
    const struct given *addr = &d->given[OPTION_MASTER_ADDR];
    int rc = addr->value != NULL ? cli_check_name(addr, err) : 0;
    if (rc == 0)
        rc = set_role(d, spec, err);
    if (rc == 0)
        rc = set_store(d, spec, err);
    if (rc == 0)
        rc = choose_backend(d, spec, &backend, err);
    if (rc == 0)
        rc = spec->world.guided ? set_guided(d, backend, spec, err)
                                : set_alone(d, backend, spec, err);
    if (rc == 0)
        rc = set_run_id(d, backend, spec, err);
    if (rc == 0)
        rc = set_local_addr(d, spec, err);
    return rc < 0 ? rc : cli_set_terms(d, backend == STATIC, spec, err);
}
