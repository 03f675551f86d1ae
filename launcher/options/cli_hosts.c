/* The options about hosts on which the job is to be started, and the place of a node that was
 * started so. */
#include "cli_draft.h"
#include "launcher/hosts/node_assignment.h"
#include "launcher/job/job_spec.h"

#include "common/error.h"
#include "common/parse.h"
#include "common/scope.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REACH_MS 30000

/* --- variables --- */

static int check_export(const char *by, const char *text, struct co_error *err)
{
    size_t n = strcspn(text, "=");
    bool is_name = n > 0 && (isalpha((unsigned char)*text) || *text == '_');
    for (size_t i = 0; i < n; i++)
        is_name = is_name && (isalnum((unsigned char)text[i]) || text[i] == '_');
    return is_name ? 0
                   : co_fail(err, -EINVAL, "%s '%.200s' is neither NAME nor NAME=VALUE", by, text);
}

int cli_set_exports(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    spec->exports = calloc(d->n_exports + 1, sizeof *spec->exports);
    if (spec->exports == NULL)
        return co_fail(err, -ENOMEM, "no memory for variables");
    for (size_t i = 0; i < d->n_exports; i++) {
        int rc = check_export(d->given[OPTION_EXPORT].by, d->exports[i], err);
        if (rc < 0)
            return rc;
        spec->exports[i] = d->exports[i];
    }
    return 0;
}

int cli_set_wdir(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_WDIR];
    if (g->value == NULL)
        return 0;
    if (*g->value == '\0')
        return co_fail(err, -EINVAL, "%s needs the name of a folder", g->by);
    spec->wdir = strdup(g->value);
    return spec->wdir != NULL ? 0 : co_fail(err, -ENOMEM, "no memory for %s", g->by);
}

/* --- hosts --- */

static int read_hosts(const struct draft *d, struct host_list *to, struct co_error *err)
{
    const struct given *list = &d->given[OPTION_HOSTS];
    const struct given *file = &d->given[OPTION_HOSTFILE];
    co_autofree char *text = NULL;
    size_t len = 0;
    if (d->found != NULL) {
        *to = *d->found;
        *d->found = (struct host_list){0};
        return 0;
    }
    if (list->value != NULL && file->value != NULL)
        return co_fail(err, -EINVAL, "%s and %s contradict each other", list->by, file->by);
    if (list->value != NULL)
        return host_list_add(to, list->by, list->value, err);
    int rc = d->world->read_file(d->world->arg, file->value, HOST_FILE_MAX_BYTES, &text, &len);
    if (rc < 0)
        return co_fail(err, rc == -ENOMEM ? rc : -EINVAL, "%s: cannot read '%.300s': %s", file->by,
                       file->value, strerror(-rc));
    return host_list_add_file(to, file->value, text, len, err);
}

/* Hosts without ranks take no part. */
static void drop_idle(struct remote_spec *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->hosts.n; i++)
        if (r->shares[i] != 0) {
            r->hosts.hosts[n] = r->hosts.hosts[i];
            r->shares[n++] = r->shares[i];
        }
    r->hosts.n = n;
}

/* Their number is that of the nodes, each of which may be another kind of machine: only numbers
 * mean the same on all. */
static int share_ranks(const struct draft *d, struct remote_spec *r, struct co_error *err)
{
    const struct given *np = &d->given[OPTION_NP], *per_node = &d->given[OPTION_NPROC_PER_NODE];
    int64_t n = 0, each = 0;
    int rc = 0;
    if (np->value != NULL)
        rc = co_parse_int(np->by, np->value, 1, (int64_t)JOB_RANKS_MAX * HOST_LIST_MAX, &n, err);
    if (rc == 0 && per_node->value != NULL && isdigit((unsigned char)*per_node->value))
        rc = co_parse_int(per_node->by, per_node->value, 1, JOB_RANKS_MAX, &each, err);
    if (rc < 0)
        return rc;
    r->shares = calloc(r->hosts.n, sizeof *r->shares);
    if (r->shares == NULL)
        return co_fail(err, -ENOMEM, "no memory for %zu hosts", r->hosts.n);
    rc = host_list_share(&r->hosts, (uint32_t)n, (uint32_t)each, r->shares, err);
    if (rc < 0)
        co_fail_in(err, "%s",
                   np->value != NULL  ? np->by
                   : d->found != NULL ? "the job's manager"
                                      : d->given[OPTION_HOSTS].by);
    else if (per_node->value != NULL && each == 0 && n == 0)
        memset(r->shares, 0xff, r->hosts.n * sizeof *r->shares); /* auto, gpu, cpu */
    else
        drop_idle(r);
    return rc;
}

static int set_command(const struct given *g, struct remote_spec *r, struct co_error *err)
{
    if (g->value == NULL)
        return 0;
    r->command = co_parse_words(g->value);
    if (r->command == NULL)
        return co_fail(err, -ENOMEM, "no memory for %s", g->by);
    return r->command[0] != NULL ? 0 : co_fail(err, -EINVAL, "%s needs a command", g->by);
}

/* Slurm's nodes see the same files, most of them. */
static int set_send(const struct draft *d, struct remote_spec *r, struct co_error *err)
{
    static const char *const words[] = {"auto", "never", "always", NULL};
    static const enum remote_send meanings[] = {REMOTE_SEND_AUTO, REMOTE_SEND_NEVER,
                                                REMOTE_SEND_ALWAYS};
    const struct given *g = &d->given[OPTION_BCAST];
    int at = 0;
    int rc = cli_choice(g, words, &at, err);
    if (rc == 0 && r->by_srun && meanings[at] == REMOTE_SEND_ALWAYS)
        return co_fail(err, -EINVAL,
                       "%s always: it can be sent by ssh only, and these hosts are "
                       "reached by srun",
                       g->by);
    r->send = r->by_srun ? REMOTE_SEND_NEVER : meanings[at];
    return rc;
}

/* Where and how nodes meet is settled: here, by ddprun's own means. */
static int refuse_meeting(const struct draft *d, struct co_error *err)
{
    static const enum cli_option places[] = {OPTION_RDZV_ENDPOINT, OPTION_NODE_RANK,
                                             OPTION_MASTER_ADDR, OPTION_LOCAL_ADDR,
                                             OPTION_STANDALONE};
    const struct given *hosts =
        &d->given[d->given[OPTION_HOSTS].value != NULL ? OPTION_HOSTS : OPTION_HOSTFILE];
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const struct given *g = &d->given[places[i]];
        if (g->value != NULL && !g->from_env)
            return co_fail(err, -EINVAL,
                           "%s and %s contradict each other: this ddprun tells the hosts where to "
                           "meet and who they are",
                           hosts->by, g->by);
    }
    return 0;
}

bool cli_has_hosts(const struct draft *d)
{
    return d->found != NULL || d->given[OPTION_HOSTS].value != NULL ||
           d->given[OPTION_HOSTFILE].value != NULL;
}

int cli_set_hosts(const struct draft *d, char *const *argv, struct job_spec *spec,
                  struct co_error *err)
{
    struct remote_spec *r = spec->remote = calloc(1, sizeof *spec->remote);
    if (r == NULL)
        return co_fail(err, -ENOMEM, "no memory for hosts");
    r->argv = argv;
    r->by_srun = d->found_by_srun;
    r->reach_ms = REACH_MS;
    int rc = refuse_meeting(d, err);
    if (rc == 0)
        rc = read_hosts(d, &r->hosts, err);
    if (rc == 0)
        rc = share_ranks(d, r, err);
    if (rc == 0)
        rc = set_command(&d->given[OPTION_SSH_COMMAND], r, err);
    if (rc == 0)
        rc = cli_time(d, OPTION_CONNECT_TIMEOUT, false, &r->reach_ms, err);
    if (rc == 0)
        rc = set_send(d, r, err);
    if (rc < 0)
        return rc;
    spec->n_local = 1;
    for (size_t i = 0; i < r->hosts.n; i++) {
        int n = r->shares[i] == UINT32_MAX ? JOB_RANKS_MAX : (int)r->shares[i];
        spec->n_local = n > spec->n_local ? n : spec->n_local;
    }
    return 0;
}

/* --- the place of a node --- */

static void forget(struct draft *d, const enum cli_option *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        d->given[ids[i]] = (struct given){0};
}

void cli_take_assignment(struct draft *d, const struct node_assignment *assignment)
{
    static const enum cli_option settled[] = {OPTION_STANDALONE, OPTION_NODE_RANK,
                                              OPTION_MASTER_ADDR};
    static const enum cli_option done[] = {
        OPTION_HOSTS,           OPTION_HOSTFILE,   OPTION_WDIR,
        OPTION_SSH_COMMAND,     OPTION_LOCAL_ADDR, OPTION_TOKEN_FILE,
        OPTION_CONNECT_TIMEOUT, OPTION_BCAST,      OPTION_EXPORT};
    const struct {
        enum cli_option id;
        const char *value;
    } told[] = {
        {OPTION_NNODES, assignment->nodes},           {OPTION_NODE_RANK, assignment->node_rank},
        {OPTION_NPROC_PER_NODE, assignment->n_ranks}, {OPTION_RDZV_BACKEND, "c10d"},
        {OPTION_RDZV_ENDPOINT, assignment->endpoint}, {OPTION_RDZV_ID, assignment->run_id}};
    forget(d, settled, sizeof settled / sizeof *settled);
    if (assignment->is_whole) {
        forget(d, done, sizeof done / sizeof *done);
        d->n_exports = 0; /* they are in the environment already */
    }
    if (assignment->n_ranks != NULL)
        d->given[OPTION_NP] = (struct given){0};
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        if (told[i].value != NULL) {
            struct given *g = &d->given[told[i].id];
            *g = (struct given){.value = told[i].value};
            snprintf(g->by, sizeof g->by, "%s", assignment->by);
        }
    d->assignment = assignment;
}

int cli_keep_assignment(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    spec->world.host = d->assignment->has_roster ? JOB_HOST_HERE : JOB_HOST_ELSEWHERE;
    if (d->assignment->name == NULL)
        return 0;
    spec->world.node_name = strdup(d->assignment->name);
    return spec->world.node_name != NULL ? 0 : co_fail(err, -ENOMEM, "no memory for a name");
}
