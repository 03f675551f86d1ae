#include "cli.h"
#include "cli_draft.h"
#include "job_spec.h"

#include "common/error.h"
#include "common/parse.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where nodes have numbers, the only one has 0. */
static int check_node_rank(const struct draft *d, bool standalone, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_NODE_RANK];
    const struct given *backend = &d->given[OPTION_RDZV_BACKEND];
    int64_t rank = 0;
    if (g->value == NULL)
        return 0;
    int rc = co_parse_int(g->by, g->value, 0, INT32_MAX, &rank, err);
    bool counts = !standalone && (backend->value == NULL || strcmp(backend->value, "static") == 0);
    if (rc == 0 && rank > 0 && counts)
        return co_fail(err, -EINVAL,
                       "%s %s: this version of ddprun runs on one node only, whose number is 0",
                       g->by, g->value);
    return rc;
}

int cli_check_nodes(const struct draft *d, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_NNODES];
    int64_t min, max;
    char first[24];
    bool standalone;
    int rc = cli_flag(d, OPTION_STANDALONE, &standalone, err);
    if (rc == 0)
        rc = check_node_rank(d, standalone, err);
    if (rc < 0 || g->value == NULL)
        return rc;
    size_t n = strcspn(g->value, ":");
    snprintf(first, sizeof first, "%.*s", n < sizeof first ? (int)n : 0, g->value);
    const char *second = g->value[n] == ':' ? g->value + n + 1 : first;
    if (co_parse_int(g->by, first, 1, INT32_MAX, &min, NULL) < 0 ||
        co_parse_int(g->by, second, 1, INT32_MAX, &max, NULL) < 0)
        return co_fail(err, -EINVAL, "%s '%.200s' is neither a number from 1 on nor MIN:MAX", g->by,
                       g->value);
    if (min > max)
        return co_fail(err, -EINVAL, "%s '%s': the minimum is above the maximum", g->by, g->value);
    if (max > 1 && standalone)
        return co_fail(err, -EINVAL,
                       "%s %s and %s contradict each other: a standalone job has one "
                       "node",
                       g->by, g->value, d->given[OPTION_STANDALONE].by);
    if (max > 1)
        return co_fail(err, -EINVAL, "%s '%s': this version of ddprun runs on one node only", g->by,
                       g->value);
    return 0;
}

/* A random UUID (version 4), as torchrun makes them. */
static int make_run_id(const struct cli_world *world, char **ret_id, struct co_error *err)
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
    *ret_id = strdup(id);
    return *ret_id != NULL ? 0 : co_fail(err, -ENOMEM, "no memory for a run id");
}

static int set_names(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *id = &d->given[OPTION_RDZV_ID];
    const struct given *role = &d->given[OPTION_ROLE];
    int rc = id->value != NULL ? cli_check_name(id, err) : 0;
    if (rc == 0 && role->value != NULL)
        rc = cli_check_name(role, err);
    if (rc < 0)
        return rc;
    if (id->value != NULL && *id->value == '\0')
        return co_fail(err, -EINVAL, "%s is empty: give the job a name, or leave it out", id->by);
    spec->role = strdup(role->value != NULL ? role->value : "default");
    if (spec->role == NULL)
        return co_fail(err, -ENOMEM, "no memory for the role's name");
    bool standalone;
    rc = cli_flag(d, OPTION_STANDALONE, &standalone, err);
    if (rc < 0)
        return rc;
    if (id->value == NULL && (!spec->as_torchrun || standalone))
        return make_run_id(d->world, &spec->run_id, err);
    spec->run_id = strdup(id->value != NULL ? id->value : "none");
    return spec->run_id != NULL ? 0 : co_fail(err, -ENOMEM, "no memory for the run id");
}

/* The store listens on the loopback interface, so that another name of this node would not lead to
 * it. */
static int set_master_addr(struct job_spec *spec, const char *asked, struct co_error *err)
{
    free(spec->master_addr);
    spec->master_addr = strdup(strcmp(asked, "localhost") == 0 ? asked : "127.0.0.1");
    return spec->master_addr != NULL ? 0
                                     : co_fail(err, -ENOMEM, "no memory for the master's address");
}

/* How nodes meet, as far as it concerns one. Its host is this node whatever it is called: names
 * that another node would need are not looked up. */
static int set_endpoint(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    enum { STATIC, C10D, ETCD, ETCD_V2 };
    static const char *const backends[] = {"static", "c10d", "etcd", "etcd-v2", NULL};
    const struct given *endpoint = &d->given[OPTION_RDZV_ENDPOINT];
    int backend = STATIC;
    bool standalone;
    int rc = cli_choice(&d->given[OPTION_RDZV_BACKEND], backends, &backend, err);
    if (rc == 0)
        rc = cli_flag(d, OPTION_STANDALONE, &standalone, err);
    if (rc < 0)
        return rc;
    if (standalone)
        backend = C10D; /* as torchrun, which forgets the given one */
    spec->backend = strdup(backends[backend]);
    if (spec->backend == NULL)
        return co_fail(err, -ENOMEM, "no memory for the backend's name");

    char host[CLI_NAME_MAX + 1];
    uint16_t port = 0;
    if (endpoint->value == NULL || *endpoint->value == '\0')
        return 0;
    rc = cli_check_name(endpoint, err);
    if (rc == 0)
        rc = co_parse_endpoint(endpoint->by, endpoint->value, host, sizeof host, &port, err);
    if (rc < 0 || backend != STATIC)
        return rc;
    spec->master_port = port;
    return set_master_addr(spec, host, err);
}

/* "KEY=VALUE,KEY=VALUE": nothing in it concerns one node, but a mistake is told as one. */
static int check_conf(const struct draft *d, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_RDZV_CONF];
    if (g->value == NULL || g->value[strspn(g->value, " ")] == '\0')
        return 0;
    for (const char *at = g->value;; at++) {
        size_t n = strcspn(at, ",");
        size_t key = strcspn(at, "=");
        if (key == 0 || key + 1 >= n)
            return co_fail(err, -EINVAL, "%s '%.200s': '%.*s' is no KEY=VALUE", g->by, g->value,
                           n < 60 ? (int)n : 60, at);
        at += n;
        if (*at == '\0')
            return 0;
    }
}

static int set_store(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    static const char *const choices[] = {
        [STORE_AUTO] = "auto", [STORE_AGENT] = "agent", [STORE_WORKER] = "worker", NULL};
    const struct given *addr = &d->given[OPTION_MASTER_ADDR];
    const struct given *port = &d->given[OPTION_MASTER_PORT];
    int choice = STORE_AUTO;
    int64_t number = 0;

    int rc = addr->value != NULL ? cli_check_name(addr, err) : 0;
    if (rc == 0)
        rc = set_master_addr(spec, addr->value != NULL ? addr->value : "", err);
    if (rc == 0 && port->value != NULL)
        rc = co_parse_int(port->by, port->value, 0, UINT16_MAX, &number, err);
    if (rc == 0)
        rc = cli_choice(&d->given[OPTION_STORE], choices, &choice, err);
    if (rc < 0)
        return rc;
    spec->master_port = (uint16_t)number;
    spec->store = (enum store_choice)choice;
    return 0;
}

int cli_set_meeting(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    int rc = set_names(d, spec, err);
    if (rc == 0)
        rc = set_store(d, spec, err);
    if (rc == 0)
        rc = set_endpoint(d, spec, err); /* wins over --master-addr and --master-port */
    if (rc == 0)
        rc = check_conf(d, err);
    if (rc == 0 && d->given[OPTION_LOCAL_ADDR].value != NULL)
        rc = cli_check_name(&d->given[OPTION_LOCAL_ADDR], err);
    return rc;
}
