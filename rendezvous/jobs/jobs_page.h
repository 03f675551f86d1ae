/* jobs_page.h - the jobs of a process in figures, as Prometheus and as JSON have them, and the
 * pages of a server that shows them. */
#ifndef DDP_RENDEZVOUS_JOBS_JOBS_PAGE_H
#define DDP_RENDEZVOUS_JOBS_JOBS_PAGE_H

struct co_buf;
struct jobs;
struct seal_key;
struct server_opts;

/* Append to a page of a server (server.h). Some lines in /metrics, whatever the jobs are; in
 * /status a member "jobs", with less than 8 KiB for each of them. returns 0, -ENOMEM */
int jobs_page_metrics(const struct jobs *j, struct co_buf *page);
int jobs_page_status(const struct jobs *j, struct co_buf *page);

/* --- on a server that answers HTTP --- */

/* Filled in by the server's owner, and kept as long as the server. */
struct jobs_pages {
    const struct seal_key *key; /* whose page key opens them (seal.h); NULL: no token */
    struct jobs *(*get_jobs)(
        void *arg); /* whose pages they are now; NULL: this process has no jobs */
    void *arg;
};

/* Let a server that is to be made have these pages. */
void jobs_pages_fill(struct jobs_pages *p, struct server_opts *opts);

#endif
