/* The options about the ranks' input and output, and about what is told of the job. */
#include "cli_draft.h"
#include "job_spec.h"
#include "label.h"

#include "common/error.h"
#include "common/parse.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

/* The first len bytes as a text of their own; "" if they are too many to be a number. */
static const char *cut(const char *at, size_t len, char *text, size_t size)
{
    snprintf(text, size, "%.*s", len < size ? (int)len : 0, at);
    return text;
}

/* "3", or "0:1,12:3" by local rank; the others have none.
 *
 * streams   JOB_RANKS_MAX of them, zeroed */
static int parse_streams(const struct given *g, uint8_t *streams, struct job_spec *spec,
                         struct co_error *err)
{
    const char *at = g->value;
    int64_t rank;
    if (at == NULL)
        return 0;
    if (at[0] >= '0' && at[0] <= '3' && at[1] == '\0') {
        memset(streams, at[0] - '0', (size_t)spec->n_local);
        return 0;
    }
    for (;; at++) {
        char number[12];
        size_t len = strcspn(at, ",");
        size_t colon = strcspn(at, ":");
        if (colon + 2 != len || at[colon + 1] < '0' || at[colon + 1] > '3' ||
            co_parse_int(g->by, cut(at, colon, number, sizeof number), 0, JOB_RANKS_MAX - 1, &rank,
                         NULL) < 0)
            return co_fail(err, -EINVAL,
                           "%s '%.200s' is neither one of 0, 1, 2 and 3 (nothing, stdout, stderr, "
                           "both) nor a list like 0:3,12:1 by local rank",
                           g->by, g->value);
        if (rank < spec->n_local)
            streams[rank] = (uint8_t)(at[colon + 1] - '0');
        else if (cli_note(spec, err, "%s: there is no local rank %d: ignored", g->by, (int)rank) <
                 0)
            return -ENOMEM;
        at += len;
        if (*at == '\0')
            return 0;
    }
}

static int set_filter(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_LOCAL_RANKS_FILTER];
    bool shown[JOB_RANKS_MAX] = {false};
    int64_t rank;
    if (g->value == NULL || *g->value == '\0')
        return 0;
    for (const char *at = g->value; at != NULL;) {
        char number[12];
        size_t len = strcspn(at, ",");
        if (co_parse_int(g->by, cut(at, len, number, sizeof number), 0, JOB_RANKS_MAX - 1, &rank,
                         NULL) < 0)
            return co_fail(err, -EINVAL, "%s '%.200s' is no list of local ranks like 0,2", g->by,
                           g->value);
        if (rank >= spec->n_local &&
            cli_note(spec, err, "%s: there is no local rank %d: ignored", g->by, (int)rank) < 0)
            return -ENOMEM;
        shown[rank] = true;
        at = at[len] == ',' ? at + len + 1 : NULL;
    }
    for (int i = 0; i < spec->n_local; i++)
        if (!shown[i])
            spec->to_console[i] = 0;
    return 0;
}

static int set_log_dir(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_LOG_DIR];
    char here[PATH_BYTES] = "";
    if (g->value == NULL || *g->value == '\0')
        return 0;
    if (strcmp(g->value, "/dev/null") == 0) {
        spec->no_logs = true;
        return 0;
    }
    int rc = *g->value == '/' ? 0 : d->world->get_cwd(d->world->arg, here, sizeof here);
    if (rc < 0)
        return co_fail(err, -EINVAL, "%s '%.200s': cannot tell the current directory: %s", g->by,
                       g->value, strerror(-rc));
    if (asprintf(&spec->log_dir, "%s%s%s", here, *g->value == '/' ? "" : "/", g->value) < 0) {
        spec->log_dir = NULL;
        return co_fail(err, -ENOMEM, "no memory for %s", g->by);
    }
    return 0;
}

static int set_streams(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    uint8_t redirected[JOB_RANKS_MAX] = {0};
    int rc = parse_streams(&d->given[OPTION_REDIRECTS], redirected, spec, err);
    if (rc == 0)
        rc = parse_streams(&d->given[OPTION_TEE], spec->tee, spec, err);
    if (rc == 0)
        rc = set_log_dir(d, spec, err);
    for (int i = 0; i < spec->n_local; i++) {
        if (spec->no_logs) /* torchrun: -r and -t mean nothing then, all goes to the console */
            redirected[i] = spec->tee[i] = 0;
        spec->to_file[i] = redirected[i] | spec->tee[i];
        spec->to_console[i] = (uint8_t)(STREAM_BOTH & ~(redirected[i] & ~spec->tee[i]));
    }
    return rc == 0 ? set_filter(d, spec, err) : rc;
}

/* "a,b" where ",," is a comma in a text. An empty text is in every line. */
static int set_texts(const struct given *g, char ***ret, struct co_error *err)
{
    if (g->value == NULL)
        return 0;
    size_t n = strlen(g->value);
    char **texts = malloc((n + 2) * sizeof *texts + n + 1);
    if (texts == NULL)
        return co_fail(err, -ENOMEM, "no memory for %s", g->by);
    char **text = texts;
    char *to = (char *)(texts + n + 2);
    *text++ = to;
    for (const char *c = g->value; *c != '\0'; c++) {
        if (*c == ',' && c[1] != ',') {
            *to++ = '\0';
            *text++ = to;
            continue;
        }
        c += *c == ',';
        *to++ = *c;
    }
    *to = '\0';
    *text = NULL;
    *ret = texts;
    return 0;
}

static int copy(const struct given *g, char **ret, struct co_error *err)
{
    if (g->value == NULL)
        return 0;
    if (*g->value == '\0')
        return co_fail(err, -EINVAL, "%s needs the name of a file", g->by);
    *ret = strdup(g->value);
    return *ret != NULL ? 0 : co_fail(err, -ENOMEM, "no memory for %s", g->by);
}

static int set_labels(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    static const char variable[] = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE";
    const struct given *g = &d->given[OPTION_LABEL];
    const char *template = d->world->get_env(d->world->arg, variable);
    int rc = 0;
    if (g->value != NULL) {
        rc = label_make(g->value, NULL, NULL, err);
        if (rc < 0)
            return co_fail_in(err, "%s", g->by);
        spec->label = strdup(g->value);
        spec->tee_label = strdup(g->value);
        if (spec->label == NULL)
            rc = -ENOMEM;
    } else if (template != NULL) {
        rc = label_from_template(template, &spec->tee_label, err);
        if (rc < 0)
            return co_fail_in(err, "%s", variable);
    } else {
        spec->tee_label = strdup(LABEL_TORCHRUN);
    }
    return rc == 0 && spec->tee_label != NULL ? 0 : co_fail(err, -ENOMEM, "no memory for labels");
}

static int set_stdin(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_STDIN];
    int64_t rank = 0;
    if (g->value != NULL && strcmp(g->value, "all") == 0) {
        rank = STDIN_ALL;
    } else if (g->value != NULL && strcmp(g->value, "none") == 0) {
        rank = STDIN_NONE;
    } else if (g->value != NULL) {
        int rc = co_parse_int(g->by, g->value, 0, spec->n_local - 1, &rank, err);
        if (rc == -EINVAL)
            return co_fail(err, rc, "%s '%.200s' is neither a rank nor all nor none", g->by,
                           g->value);
        if (rc < 0)
            return rc;
    }
    spec->stdin_rank = (int)rank;
    return 0;
}

static int refuse_logs_specs(const struct draft *d, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_LOGS_SPECS];
    if (g->value == NULL || strcmp(g->value, "default") == 0)
        return 0;
    return co_fail(err, -EINVAL,
                   "%s '%.200s' names a Python class, and there is no Python in ddprun: -r, -t, "
                   "--log-dir and --local-ranks-filter say what goes where",
                   g->by, g->value);
}

int cli_set_output(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    static const char *const handlers[] = {"null", "console", NULL};
    int handler = 0;
    int rc = refuse_logs_specs(d, err);
    if (rc == 0)
        rc = set_streams(d, spec, err);
    if (rc == 0)
        rc = set_texts(&d->given[OPTION_STDOUT_FILTERS], &spec->stdout_filters, err);
    if (rc == 0)
        rc = set_texts(&d->given[OPTION_STDERR_FILTERS], &spec->stderr_filters, err);
    if (rc == 0)
        rc = set_labels(d, spec, err);
    if (rc == 0)
        rc = set_stdin(d, spec, err);
    if (rc == 0)
        rc = copy(&d->given[OPTION_EVENTS], &spec->events, err);
    if (rc == 0)
        rc = copy(&d->given[OPTION_REPORT], &spec->report, err);
    if (rc == 0)
        rc = cli_choice(&d->given[OPTION_EVENT_LOG_HANDLER], handlers, &handler, err);
    spec->console_events = handler == 1;
    return rc;
}
