/* page.h - what is printed into a page of a server (server.h), as Prometheus or as JSON has it.
 * Pure.
 *
 * After a failure nothing is printed any more, so that a caller looks once, at the end. */
#ifndef DDP_RENDEZVOUS_SERVER_PAGE_H
#define DDP_RENDEZVOUS_SERVER_PAGE_H

#include <stddef.h>
#include <stdint.h>

struct co_buf;

struct page {
    struct co_buf *out; /* borrowed */
    int rc;             /* 0; -ENOMEM: the first failure */
};

void page_append(struct page *p, const char *text, size_t len);

/* At most 511 bytes: what is longer is cut. */
__attribute__((format(printf, 2, 3))) void page_print(struct page *p, const char *format, ...);

/* Prometheus: what a metric is, and that with its only value. Names have "ddp_rendezvous_" put in
 * front. type: "gauge", "counter" */
void page_metric_head(struct page *p, const char *name, const char *type, const char *help);
void page_metric(struct page *p, const char *name, const char *type, const char *help,
                 uint64_t value);

#endif
