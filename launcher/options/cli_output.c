/* The options about the ranks' input and output, and about what is reported about the job. */
#include "cli_draft.h"
#include "launcher/job/job_spec.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/host_names.h"

#include "common/error.h"
#include "common/parse.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_SIZE_MIN 4096
#define LOG_SIZE_MAX (UINT64_C(1) << 50)

/* The texts that are kept as they are. */
static int set_output_texts(const struct draft *d, struct output_spec *s, struct co_error *err)
{
    const struct given *dir = &d->given[OPTION_LOG_DIR];
    const struct given *label = &d->given[OPTION_LABEL];
    const struct given *prefix = &d->given[OPTION_LINE_PREFIX];
    const bool is_given = prefix->value != NULL && *prefix->value != '\0';
    const char *line_prefix =
        is_given ? prefix->value : host_env_get(d->world, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
    int rc = 0;
    if (label->value != NULL)
        rc = output_spec_check_label(label->by, label->value, err)
                 ?: cli_copy(label->value, &s->label, err);
    if (rc == 0 && dir->value != NULL && *dir->value != '\0') {
        s->log_dir_null = strcmp(dir->value, "/dev/null") == 0;
        rc = cli_copy(dir->value, &s->log_dir, err);
    }
    if (rc == 0 && line_prefix != NULL)
        rc = cli_copy(line_prefix, &s->line_prefix, err);
    for (int i = 0; rc == 0 && i < 2; i++) {
        const struct given *words = &d->given[OPTION_STDOUT_FILTERS + i];
        if (words->value != NULL && *words->value != '\0' &&
            (s->filters[i] = output_spec_split(words->value)) == NULL)
            rc = co_fail(err, -ENOMEM, "out of memory");
    }
    return rc;
}

/* "100M" or "100M,5" */
static int set_log_turn(const struct draft *d, struct log_turn *turn, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_LOG_ROTATE];
    char size[24];
    int64_t n_kept = 1;
    if (g->value == NULL)
        return 0;
    size_t len = strcspn(g->value, ",");
    snprintf(size, sizeof size, "%.*s", len < sizeof size ? (int)len : 0, g->value);
    int rc = co_parse_size(g->by, size, LOG_SIZE_MIN, LOG_SIZE_MAX, &turn->max_bytes, err);
    if (rc == 0 && g->value[len] == ',')
        rc = co_parse_int(g->by, g->value + len + 1, 0, LOG_KEPT_MAX, &n_kept, err);
    turn->n_kept = (int)n_kept;
    return rc;
}

static int set_streams(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *redirects = &d->given[OPTION_REDIRECTS];
    const struct given *tees = &d->given[OPTION_TEE];
    const struct given *shown = &d->given[OPTION_LOCAL_RANKS_FILTER];
    const struct given *in = &d->given[OPTION_STDIN];
    struct output_spec *s = &spec->output;
    int64_t stdin_rank = 0;
    int rc = set_output_texts(d, s, err);
    if (rc == 0 && redirects->value != NULL)
        rc = output_spec_parse_streams(redirects->by, redirects->value, spec->n_local, s->redirects,
                                       err);
    if (rc == 0 && tees->value != NULL)
        rc = output_spec_parse_streams(tees->by, tees->value, spec->n_local, s->tees, err);
    if (rc == 0 && shown->value != NULL)
        rc = output_spec_parse_ranks(shown->by, shown->value, spec->n_local, s->hidden, err);
    if (rc == 0 && in->value != NULL && strcmp(in->value, "all") == 0)
        return co_fail(err, -EINVAL,
                       "invalid value 'all' for %s: expected none or one local rank, since several "
                       "ranks cannot read one input",
                       in->by);
    if (rc == 0 && in->value != NULL && strcmp(in->value, "none") == 0)
        stdin_rank = -1;
    else if (rc == 0 && in->value != NULL)
        rc = co_parse_int(in->by, in->value, 0, spec->n_local - 1, &stdin_rank, err);
    s->stdin_asked = in->value != NULL;
    s->stdin_rank = (int)stdin_rank;
    return rc;
}

static int refuse_logs_specs(const struct draft *d, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_LOGS_SPECS];
    if (g->value == NULL || strcmp(g->value, "default") == 0)
        return 0;
    return co_fail(err, -EINVAL,
                   "%s '%.200s' names a Python class, which ddprun does not load; use -r, -t, "
                   "--log-dir and --local-ranks-filter",
                   g->by, g->value);
}

static int set_http_hosts(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_HTTP_HOST];
    if (g->value == NULL)
        return 0;
    return host_names_check(g->by, g->value, err) ?: cli_copy(g->value, &spec->http_hosts, err);
}

/* "8080", "0.0.0.0:8080", "[::1]:0" */
static int set_http(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_HTTP];
    const char *port = g->value != NULL ? strrchr(g->value, ':') : NULL;
    int64_t number = 0;
    if (g->value == NULL)
        return 0;
    const size_t host_len = port != NULL ? (size_t)(port - g->value) : 0;
    const bool in_brackets = host_len > 2 && g->value[0] == '[' && g->value[host_len - 1] == ']';
    int rc = co_parse_int(g->by, port != NULL ? port + 1 : g->value, 0, UINT16_MAX, &number, err);
    if (rc < 0)
        return rc;
    struct http_spec *http = calloc(1, sizeof *http);
    spec->http = http;
    if (http == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    http->port = (uint16_t)number;
    http->is_weak = g->from_env;
    struct sockaddr_storage address;
    if (host_len == 0 && port == NULL)
        snprintf(http->host, sizeof http->host, "localhost");
    else
        snprintf(http->host, sizeof http->host, "%.*s", (int)(host_len - 2 * in_brackets),
                 g->value + in_brackets);
    if (host_len < sizeof http->host &&
        (strcmp(http->host, "localhost") == 0 || address_parse(http->host, 0, &address) == 0))
        return 0;
    return co_fail(err, -EINVAL,
                   "invalid value '%.100s' for %s: expected PORT or ADDR:PORT, with localhost or a "
                   "numeric address (0.0.0.0: all addresses; [ADDR] for IPv6)",
                   g->value, g->by);
}

static int set_trainjob_steps(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_TRAINJOB_PROGRESS];
    int64_t n;
    int rc = g->value != NULL ? co_parse_int(g->by, g->value, 1, INT64_MAX, &n, err) : 0;
    if (rc == 0 && g->value != NULL)
        spec->trainjob_steps = (uint64_t)n;
    return rc;
}

static int set_worker_server(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    static const char *const choices[] = {[WORKER_SERVER_AUTO] = "auto",
                                          [WORKER_SERVER_ON] = "on",
                                          [WORKER_SERVER_OFF] = "off",
                                          NULL};
    const struct given *g = &d->given[OPTION_WORKER_SERVER];
    int choice = WORKER_SERVER_AUTO;
    int rc = cli_choice(g, choices, &choice, err);
    spec->worker_server = (enum worker_server_choice)choice;
    if (rc == 0 && choice == WORKER_SERVER_ON && d->given[OPTION_WARM].value != NULL)
        return co_fail(err, -EINVAL, "%s on and %s cannot be used together", g->by,
                       d->given[OPTION_WARM].by);
    return rc;
}

int cli_set_output(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    static const char *const handlers[] = {"null", "console", NULL};
    static const char *const colors[] = {[OUTPUT_COLOR_AUTO] = "auto",
                                         [OUTPUT_COLOR_ALWAYS] = "always",
                                         [OUTPUT_COLOR_NEVER] = "never",
                                         NULL};
    static const struct cli_field fields[] = {
        {OPTION_FOLD, CLI_TIME, offsetof(struct job_spec, output.fold_ms)},
        {OPTION_COLOR, CLI_CHOICE, offsetof(struct job_spec, output.color), colors},
        {OPTION_EVENTS, CLI_FILE, offsetof(struct job_spec, events)},
        {OPTION_REPORT, CLI_FILE, offsetof(struct job_spec, report)},
        {OPTION_ON_FAILURE_DUMP, CLI_FILE, offsetof(struct job_spec, failure_dump)},
    };
    const char *term = d->world->get_env(d->world->arg, "TERM");
    int handler = 0;
    int rc = refuse_logs_specs(d, err)
        ?: set_streams(d, spec, err)
        ?: set_log_turn(d, &spec->output.log_turn, err)
        ?: set_http(d, spec, err)
        ?: set_http_hosts(d, spec, err)
        ?: set_trainjob_steps(d, spec, err)
        ?: set_worker_server(d, spec, err)
        ?: cli_set_fields(d, fields, CLI_N(fields), spec, err)
        ?: cli_choice(&d->given[OPTION_EVENT_LOG_HANDLER], handlers, &handler, err);
    /* NO_COLOR counts if it holds anything at all: no-color.org has it so, and many programs do */
    if (spec->output.color == OUTPUT_COLOR_AUTO &&
        (host_env_get(d->world, "NO_COLOR") != NULL || (term != NULL && strcmp(term, "dumb") == 0)))
        spec->output.color = OUTPUT_COLOR_NEVER;
    spec->event_log = handler == 1;
    return rc;
}
