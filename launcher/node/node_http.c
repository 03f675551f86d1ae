/* node_http.c - the server of rendezvous/server without a store, and its pages. What the browser
 * gets is the history of the job: this file feeds it with the lines that --events would have, and
 * keeps the last lines of the rank that failed last, which its successor writes over. */
#include "node_http.h"

#include "history/history.h"
#include "history/history_page.h"
#include "launcher/generation/listen.h"
#include "launcher/job/job_spec.h"
#include "launcher/reporting/live_page.h"
#include "launcher/reporting/metrics.h"
#include "node_status.h"

#include "common/buf.h"
#include "common/error.h"
#include "common/scope.h"
#include "rendezvous/channel/seal.h"
#include "rendezvous/net/address.h"
#include "rendezvous/server/http.h"
#include "rendezvous/server/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_NEWCOMERS = 64, /* connections that have sent nothing; and as many that have */
    MAX_EVENTS = 20000, /* later ones are counted; some MB at most */
};

struct node_http {
    const struct node_view *n;
    struct server *server;
    struct history history;
    bool is_lossy; /* out of memory: events are missing */
    char address[ADDRESS_TEXT_BYTES];
    char *tail; /* owned; of the rank that failed last; NULL: none */
    int tail_rank;
    uint32_t tail_generation;
    bool has_waited; /* the supervisor, when it was last looked at: for the next generation */
};

/* --- What happened --- */

static void on_line(void *arg, const char *line, size_t len)
{
    struct node_http *p = arg;
    if (history_add(&p->history, line, len) < 0)
        p->is_lossy = true;
}

static void keep_tail(struct node_http *p, int rank)
{
    const struct node_view *n = p->n;
    if (rank < 0 || rank_io_bypasses(n->io, rank))
        return;
    free(p->tail);
    p->tail = rank_io_tail(n->io, rank);
    p->tail_rank = rank_number(node_numbers(n), rank);
    p->tail_generation = n->io->generation;
}

/* A rank is about to be replaced, or dropped. */
static void http_on_end(const struct node_view *n, bool lives)
{
    if (n->parts->http != NULL && lives)
        keep_tail(n->parts->http, supervisor_get_replacement(n->supervisor)->rank);
}

/* A rank has ended the generation, and its last output is in. */
static void http_on_step(const struct node_view *n)
{
    struct node_http *p = n->parts->http;
    const struct supervisor_verdict *v = supervisor_get_verdict(n->supervisor);
    const bool waits = supervisor_get_state(n->supervisor) == SUPERVISOR_WAITING;
    if (p == NULL)
        return;
    if (waits && !p->has_waited && v->outcome == OUTCOME_RANK_FAILED)
        keep_tail(p, v->rank);
    p->has_waited = waits;
}

/* --- Pages --- */

struct live {
    const struct status *status;
    struct live_failure failure;
};

static void print_live(void *arg, FILE *out)
{
    const struct live *l = arg;
    live_page_print(l->status, &l->failure, out);
}

static int print_page(struct node_http *p, const struct status *s, FILE *out)
{
    struct live live = {
        .status = s,
        .failure = {.tail = p->tail, .rank = p->tail_rank, .generation = p->tail_generation}};
    const struct history_live opts = {.print = print_live, .arg = &live};
    struct history_goodput *g = &p->history.goodput;
    /* by the clock of the events, and without its jumps since the first of them */
    history_set_now(&p->history, p->history.first_s + (double)(s->now_ms - s->begun_ms) / 1000);
    *g = (struct history_goodput){.is_known = true,
                                  .by_steps = s->goodput->is_counted,
                                  .total_s = (double)s->goodput->total_ms / 1000,
                                  .ratio = goodput_ratio(s->goodput)};
    for (int i = 0; i < GOODPUT_N_STATES && i < HISTORY_MAX_CAUSES; i++) {
        snprintf(g->causes[g->n_causes].name, sizeof g->causes[0].name, "%s",
                 goodput_name((enum goodput_state)i));
        g->causes[g->n_causes++].s = (double)s->goodput->sum_ms[i] / 1000;
    }
    int rc = history_finish(&p->history);
    return rc < 0 ? rc : history_page_print(&p->history, DDPRUN_VERSION, &opts, out);
}

static int print_json(struct node_http *p, const struct status *s, FILE *out)
{
    (void)p;
    co_autofree char *text = status_json_make(s);
    if (text == NULL)
        return -ENOMEM;
    fprintf(out, "%s\n", text);
    return 0;
}

static int print_metrics(struct node_http *p, const struct status *s, FILE *out)
{
    (void)p;
    metrics_print(s, out);
    return 0;
}

static const struct {
    const char *path, *type;
    int (*print)(struct node_http *p, const struct status *s, FILE *out);
} pages[] = {
    {"/", "text/html; charset=utf-8", print_page},
    {"/status", "application/json", print_json},
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", print_metrics},
};

static bool is_path(const struct http_request *r, const char *path)
{
    return r->path_len == strlen(path) && memcmp(r->path, path, r->path_len) == 0;
}

/* returns   0, -ENOMEM */
static int fill(struct node_http *p, size_t page, struct co_buf *body)
{
    struct node_status_data data;
    co_autofree char *text = NULL;
    size_t len = 0;
    if (node_status_collect(p->n, &data) < 0)
        return -ENOMEM;
    FILE *out = open_memstream(&text, &len);
    int rc = out != NULL ? pages[page].print(p, &data.status, out) : -ENOMEM;
    if (out != NULL && fclose(out) != 0)
        rc = -ENOMEM;
    node_status_release(&data);
    return rc < 0 ? -ENOMEM : co_buf_append(body, text, len);
}

static int on_page(void *arg, const struct http_request *r, int access, struct co_buf *body,
                   const char **ret_type)
{
    struct node_http *p = arg;
    if (is_path(r, "/healthz"))
        return co_buf_append(body, "ok\n", 3);
    if (is_path(r, "/readyz"))
        return supervisor_get_state(p->n->supervisor) != SUPERVISOR_RUNNING
                   ? -EAGAIN
                   : co_buf_append(body, "ok\n", 3);
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        if (!is_path(r, pages[i].path))
            continue;
        if (access < 0)
            return access;
        *ret_type = pages[i].type;
        return fill(p, i, body);
    }
    return -ENOENT;
}

static bool is_key(void *arg, const char *text, size_t len)
{
    const struct node_http *p = arg;
    return seal_key_opens_pages(p->n->spec->world.key, text, len);
}

static void on_refused(void *arg, const char *text)
{
    const struct node_http *p = arg;
    if (p->n->spec->verbose > 0)
        node_say(p->n, CO_NOTE, "http: %s", text);
}

/* --- Beginning and end --- */

static int listen_at(struct node_http *p, struct co_error *err)
{
    const struct http_spec *spec = p->n->spec->http;
    const struct server_opts opts = {
        .no_store = true,
        .http = true,
        .max_clients = MAX_NEWCOMERS,
        .version = DDPRUN_VERSION,
        .hosts = p->n->spec->http_hosts,
        .host_advice = JOB_HTTP_HOST_ADVICE,
        .pages = {.is_key = p->n->spec->world.key != NULL ? is_key : NULL,
                  .on_page = on_page,
                  .arg = p},
        .on_refused = on_refused,
        .arg = p};
    int rc = server_create(p->n->loop, &opts, &p->server, err)
                 ?: listen_for(p->server, spec->host, spec->port, err);
    if (rc < 0)
        return co_fail_in(err, "cannot serve the pages of --http");
    const bool is_v6 = strchr(spec->host, ':') != NULL;
    snprintf(p->address, sizeof p->address, "%s%.45s%s:%u", is_v6 ? "[" : "", spec->host,
             is_v6 ? "]" : "", (unsigned)server_port(p->server));
    if (spec->port == 0 || p->n->spec->verbose > 0)
        node_say(p->n, CO_NOTE, "serving http://%s/", p->address);
    return 0;
}

static int http_open(const struct node_view *n, struct co_error *err)
{
    if (n->spec->http == NULL)
        return 0;
    struct node_http *p = calloc(1, sizeof *p);
    if (p == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    p->n = n;
    history_init(&p->history, n->spec->run_id);
    p->history.max_events = MAX_EVENTS;
    n->parts->http = p;
    int rc = listen_at(p, err);
    if (rc < 0 && n->spec->http->is_weak) { /* of a variable: the job does not depend on it */
        node_say(n, CO_WARNING, "%s", err->text);
        rc = 0;
    }
    if (rc == 0)
        events_set_reader(n->events, on_line, p);
    if (p->address[0] != '\0')
        n->parts->http_address = p->address;
    return rc;
}

static void on_closed(void *arg)
{
    struct node_http *p = arg;
    history_fini(&p->history);
    free(p->tail);
    free(p);
}

static void http_close(const struct node_view *n)
{
    struct node_http *p = n->parts->http;
    n->parts->http = NULL;
    n->parts->http_address = NULL;
    if (p == NULL)
        return;
    events_set_reader(n->events, NULL, NULL);
    if (p->server != NULL)
        server_close(p->server, on_closed, p);
    else
        on_closed(p);
}

const struct node_feature node_http_feature = {
    .open = http_open, .on_step = http_on_step, .on_end = http_on_end, .close = http_close};
