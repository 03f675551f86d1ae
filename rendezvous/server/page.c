#include "page.h"

#include "common/buf.h"
#include "rendezvous/store/codec.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

void page_append(struct page *p, const char *text, size_t len)
{
    if (p->rc == 0)
        p->rc = co_buf_append(p->out, text, len);
}

void page_print(struct page *p, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    page_append(p, text, len < (int)sizeof text ? (size_t)len : sizeof text - 1);
}

void page_metric_head(struct page *p, const char *name, const char *type, const char *help)
{
    page_print(p, "# HELP ddp_rendezvous_%s %s\n# TYPE ddp_rendezvous_%s %s\n", name, help, name,
               type);
}

void page_metric(struct page *p, const char *name, const char *type, const char *help,
                 uint64_t value)
{
    page_metric_head(p, name, type, help);
    page_print(p, "ddp_rendezvous_%s %" PRIu64 "\n", name, value);
}

/* --- Prometheus --- */

int page_stats_prometheus(const struct stats *s, struct co_buf *out)
{
    struct page p = {.out = out};
    const struct {
        const char *name, *type, *help;
        uint64_t value;
    } metrics[] = {
        {"clients", "gauge", "Connected clients of the store.", s->n_clients},
        {"clients_limit", "gauge", "Maximum number of clients.", s->max_clients},
        {"connections_total", "counter", "Connections accepted.", s->n_connections},
        {"refused_total", "counter",
         "Connections refused, or closed because of invalid input or a limit.", s->n_refused},
        {"keys", "gauge", "Keys in the store.", s->n_keys},
        {"store_bytes", "gauge", "Memory used by keys, values and waiting clients.",
         s->n_store_bytes},
        {"store_bytes_limit", "gauge", "Maximum of that memory.", s->max_store_bytes},
        {"buffer_bytes", "gauge", "Memory used by requests and replies in transit.",
         s->n_buffer_bytes},
        {"buffer_bytes_limit", "gauge", "Maximum of that memory.", s->max_buffer_bytes},
        {"http_requests_total", "counter", "HTTP requests answered, including this one.",
         s->n_http_requests},
    };
    page_metric_head(&p, "info", "gauge", "Version of ddp-rendezvous.");
    page_print(&p, "ddp_rendezvous_info{version=\"%s\"} 1\n", s->version);
    page_metric_head(&p, "uptime_seconds", "gauge", "Time since the start of ddp-rendezvous.");
    page_print(&p, "ddp_rendezvous_uptime_seconds %" PRIu64 ".%03" PRIu64 "\n", s->uptime_ms / 1000,
               s->uptime_ms % 1000);
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
        page_metric(&p, metrics[i].name, metrics[i].type, metrics[i].help, metrics[i].value);
    page_metric_head(&p, "requests_total", "counter", "Completed requests to the store.");
    for (int op = 0; op < WIRE_N_OPS; op++)
        page_print(&p, "ddp_rendezvous_requests_total{op=\"%s\"} %" PRIu64 "\n",
                   codec_op_name((enum wire_op)op), s->n_requests[op]);
    return p.rc;
}

/* --- JSON --- */

int page_stats_json(const struct stats *s, const struct co_buf *more, struct co_buf *out)
{
    struct page p = {.out = out};
    page_print(&p, "{\"version\": \"%s\", \"uptime_s\": %" PRIu64 ".%03" PRIu64 ",\n", s->version,
               s->uptime_ms / 1000, s->uptime_ms % 1000);
    page_print(&p, " \"clients\": {\"connected\": %" PRIu32 ", \"limit\": %" PRIu32 "},\n",
               s->n_clients, s->max_clients);
    page_print(&p, " \"connections\": {\"accepted\": %" PRIu64 ", \"refused\": %" PRIu64 "},\n",
               s->n_connections, s->n_refused);
    page_print(&p,
               " \"store\": {\"keys\": %" PRIu64 ", \"bytes\": %" PRIu64
               ", \"limit_bytes\": %" PRIu64 "},\n",
               s->n_keys, s->n_store_bytes, s->max_store_bytes);
    page_print(&p, " \"buffers\": {\"bytes\": %" PRIu64 ", \"limit_bytes\": %" PRIu64 "},\n",
               s->n_buffer_bytes, s->max_buffer_bytes);
    page_print(&p, " \"requests\": {");
    for (int op = 0; op < WIRE_N_OPS; op++)
        page_print(&p, "\"%s\": %" PRIu64 ", ", codec_op_name((enum wire_op)op), s->n_requests[op]);
    page_print(&p, "\"http\": %" PRIu64 "}", s->n_http_requests);
    if (p.rc == 0 && more != NULL)
        p.rc = co_buf_append(out, co_buf_bytes(more), co_buf_len(more));
    page_print(&p, "}\n");
    return p.rc;
}
