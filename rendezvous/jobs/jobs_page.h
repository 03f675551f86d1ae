/* jobs_page.h - a daemon's jobs in figures, as Prometheus and as JSON have them. */
#ifndef DDP_RENDEZVOUS_JOBS_JOBS_PAGE_H
#define DDP_RENDEZVOUS_JOBS_JOBS_PAGE_H

struct co_buf;
struct jobs;

/* Append to a page of a server (server.h). Some lines in /metrics, whatever the jobs are; in
 * /status a member "jobs", with less than 8 KiB for each of them. returns 0, -ENOMEM */
int jobs_page_metrics(const struct jobs *j, struct co_buf *page);
int jobs_page_status(const struct jobs *j, struct co_buf *page);

#endif
