/* node_report.h - the file of --report, at the end of the job: this node's part of it goes to the
 * process that writes it, or this one writes it (rendezvous/jobs/results.h).
 *
 * Nothing of the job runs any more meanwhile, and the terminal has its report. A node that waits
 * for the results of others ends when they are in, after the time that a node may take to stop its
 * ranks, or when another signal stops it. */
#ifndef DDP_LAUNCHER_NODE_NODE_REPORT_H
#define DDP_LAUNCHER_NODE_NODE_REPORT_H

#include "launcher/reporting/node_result.h"

#include <stdbool.h>
#include <stdint.h>

struct message;
struct node_feature;
struct node_view;

extern const struct node_feature node_report_feature;

/* The link to the coordinator. */
struct node_report_link {
    void (*send)(void *arg, const struct message *m);
    bool (*is_up)(const void *arg);
    void (*hang_up)(void *arg); /* if it was kept up after the member's end */
    void *arg;
    uint64_t stop_ms; /* a node stops its ranks within */
};

/* Before the first of the calls below. */
void node_report_set_link(const struct node_view *n, const struct node_report_link *link);

/* Whether this node may write the job's report. */
bool node_report_may_write(const struct node_view *n);

/* A RESULT came from the coordinator. */
void node_report_hear(const struct node_view *n, const struct message *m);

/* The link to it has ended. */
void node_report_lose_link(const struct node_view *n);

/* Whether the link is needed after the member's end: the coordinator has asked. */
bool node_report_needs_link(const struct node_view *n);

/* Where to put this node's result once it is known; NULL: no process wants it. */
struct node_result *node_report_result(const struct node_view *n);

/* The report exists, and all else is reported. on_done is called from the loop, or before this
 * returns. */
void node_report_finish(const struct node_view *n, void (*on_done)(void *arg), void *arg);

/* The loop has ended: what was waited for does not come any more. */
void node_report_end(const struct node_view *n);

#endif
