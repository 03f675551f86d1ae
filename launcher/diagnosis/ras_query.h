/* ras_query.h - ask NCCL's RAS about a job, over the socket that NCCL opens on each node
 * (NCCL_RAS_ADDR; NCCL 2.28.7 or later).
 *
 * One of the node's NCCL processes answers for the whole job. Which one, the kernel chooses: a
 * process that is stopped accepts and sends nothing, so another connection is made after
 * RAS_HELLO_MS; and if jobs share the address, it may be one of another job, so that an answer
 * without a process of ours is asked for again. If ranks have started different numbers of
 * collectives, it is asked once more after RAS_APART_MS: only a rank that then has the same number
 * lags. Nothing blocks: the caller looks now and then. */
#ifndef DDP_LAUNCHER_DIAGNOSIS_RAS_QUERY_H
#define DDP_LAUNCHER_DIAGNOSIS_RAS_QUERY_H

#include "ras_report.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    RAS_HELLO_MS = 1000,
    RAS_TOTAL_MS = 8000, /* for an answer: NCCL collects for 4 s at most, see LEG_S */
    RAS_APART_MS = 1000,
    RAS_TRIES = 4, /* for an answer */
};

struct ras_query; /* opaque */

struct ras_query_opts {
    const char *address; /* "localhost:28028", "127.0.0.1:28028", "[::1]:28028"; copied */
    /* as for ras_report_resolve(); NULL: all answers are ours */
    int (*rank_of)(void *arg, const char *host, pid_t pid);
    void (*on_free)(void *arg); /* the query is destroyed; NULL: nothing to free */
    void *arg;
};

/* returns   0; -EINVAL: no such address, and on_free() is not called; -ENOMEM */
int ras_query_begin(const struct ras_query_opts *opts, uint64_t now_ms, struct ras_query **ret);
void ras_query_destroy(struct ras_query *q); /* NULL is fine, here and below */

/* returns whether an answer may still come: look again in a moment */
bool ras_query_look(struct ras_query *q, uint64_t now_ms);

/* The answer, lent, the second one if there is; NULL if none has arrived. */
const struct ras_report *ras_query_report(const struct ras_query *q);

/* Why it has no answer, or no second one; "": it has, or no process listens. */
const char *ras_query_trouble(const struct ras_query *q);

/* Its report; or why it has none, in a line, except where no process listens: then the job does not
 * use NCCL yet. */
void ras_query_print(const struct ras_query *q, FILE *out);

#endif
