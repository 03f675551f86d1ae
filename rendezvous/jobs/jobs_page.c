#include "jobs_page.h"

#include "common/utf8.h"
#include "jobs.h"
#include "rendezvous/channel/seal.h"
#include "rendezvous/server/page.h"
#include "rendezvous/server/server.h"

#include <inttypes.h>
#include <string.h>

struct jobs_print {
    struct page page;
    uint64_t n_items;

    /* over all jobs */
    uint32_t n_in[ROSTER_N_STATES];
    uint64_t n_nodes;
};

/* --- JSON --- */

/* A run id may be any bytes. */
static void print_string(struct page *p, const char *text)
{
    page_append(p, "\"", 1);
    while (*text != '\0') {
        size_t n = co_utf8_length(text, strnlen(text, 4));
        uint8_t c = (uint8_t)*text;
        if (n == 0)
            page_append(p, "?", 1);
        else if (c < ' ' || c == '"' || c == '\\')
            page_print(p, "\\u%04x", (unsigned)c);
        else
            page_append(p, text, n);
        text += n > 0 ? n : 1;
    }
    page_append(p, "\"", 1);
}

static void print_number(struct page *p, const char *name, uint32_t number, uint32_t none)
{
    if (number == none)
        page_print(p, ", \"%s\": null", name);
    else
        page_print(p, ", \"%s\": %" PRIu32, name, number);
}

static void print_job(void *arg, const char *run_id, const struct roster *r)
{
    struct jobs_print *jp = arg;
    struct page *p = &jp->page;
    const struct message_verdict *verdict = roster_get_verdict(r);
    page_print(p, "%s\n  {\"id\": ", jp->n_items++ > 0 ? "," : "");
    print_string(p, run_id);
    page_print(p, ", \"state\": \"%s\"", roster_state_name(roster_get_state(r)));
    print_number(p, "generation", roster_generation(r), MESSAGE_NO_GENERATION);
    page_print(p, ", \"restarts\": %" PRIu32 ", \"nodes\": %" PRIu32, roster_n_restarts(r),
               roster_n_nodes(r));
    print_number(p, "exit_code", verdict != NULL ? verdict->exit_code : UINT32_MAX, UINT32_MAX);
    page_print(p, ", \"why\": ");
    print_string(p, roster_change(r));
    page_print(p, "}");
}

int jobs_page_status(const struct jobs *j, struct co_buf *page)
{
    struct jobs_print jp = {.page.out = page};
    struct page *p = &jp.page;
    struct jobs_figures f;
    jobs_get_figures(j, &f);
    page_print(p,
               ",\n \"nodes\": {\"connected\": %" PRIu32 ", \"limit\": %" PRIu32
               ", \"refused\": %" PRIu64 "},\n \"jobs_limit\": %" PRIu32 ", \"jobs\": [",
               f.n_conns, f.max_conns, f.n_refused, f.max_jobs);
    jobs_each(j, print_job, &jp);
    page_print(p, "]");
    return p->rc;
}

/* --- Prometheus --- */

static void count_job(void *arg, const char *run_id, const struct roster *r)
{
    struct jobs_print *jp = arg;
    (void)run_id;
    jp->n_in[roster_get_state(r)]++;
    jp->n_nodes += roster_n_nodes(r);
}

int jobs_page_metrics(const struct jobs *j, struct co_buf *page)
{
    struct jobs_print jp = {.page.out = page};
    struct page *p = &jp.page;
    struct jobs_figures f;
    jobs_get_figures(j, &f);
    jobs_each(j, count_job, &jp);
    page_metric_head(p, "jobs", "gauge", "Jobs by state.");
    for (int state = 0; state < ROSTER_N_STATES; state++)
        page_print(p, "ddp_rendezvous_jobs{state=\"%s\"} %" PRIu32 "\n",
                   roster_state_name((enum roster_state)state), jp.n_in[state]);
    page_metric(p, "jobs_limit", "gauge", "Maximum number of jobs.", f.max_jobs);
    page_metric(p, "jobs_total", "counter", "Jobs started.", f.n_made);
    page_metric(p, "nodes", "gauge", "Nodes of all jobs.", jp.n_nodes);
    page_metric(p, "node_connections", "gauge", "Connections of nodes.", f.n_conns);
    page_metric(p, "node_connections_limit", "gauge", "Maximum number of these connections.",
                f.max_conns);
    page_metric(p, "nodes_refused_total", "counter",
                "Nodes refused, and connections of nodes that broke the protocol.", f.n_refused);
    page_metric(p, "node_buffer_bytes", "gauge", "Memory used by messages of nodes in transit.",
                f.n_buffer_bytes);
    page_metric(p, "node_buffer_bytes_limit", "gauge", "Maximum of that memory; 0: no limit.",
                f.max_buffer_bytes);
    return p->rc;
}

/* --- on a server --- */

static bool is_key(void *arg, const char *text, size_t len)
{
    const struct jobs_pages *p = arg;
    return seal_key_opens_pages(p->key, text, len);
}

static int on_metrics(void *arg, struct co_buf *page)
{
    const struct jobs_pages *p = arg;
    const struct jobs *j = p->get_jobs(p->arg);
    return j != NULL ? jobs_page_metrics(j, page) : 0;
}

static int on_status(void *arg, struct co_buf *page)
{
    const struct jobs_pages *p = arg;
    const struct jobs *j = p->get_jobs(p->arg);
    return j != NULL ? jobs_page_status(j, page) : 0;
}

void jobs_pages_fill(struct jobs_pages *p, struct server_opts *opts)
{
    opts->pages = (struct server_pages){.is_key = p->key != NULL ? is_key : NULL,
                                        .on_metrics = on_metrics,
                                        .on_status = on_status,
                                        .arg = p};
}
