/* ras_report.h - what NCCL's RAS reports about a job: its communicators, and how many collectives
 * each of their ranks has started. Pure.
 *
 * A rank that has started fewer collectives of a kind than others of its communicator lags if an
 * earlier report has the same counts: the others wait for it. In a job that makes progress counts
 * differ for a moment at any time. Equal counts mean nothing: the job may compute, or all ranks are
 * inside the same call. Not counted are messages between two ranks, and what CUDA graphs launch.
 *
 * NCCL 2.28.7 to 2.28.9 leave out a comma where a rank is missing; it is put back in. */
#ifndef DDP_LAUNCHER_DIAGNOSIS_RAS_REPORT_H
#define DDP_LAUNCHER_DIAGNOSIS_RAS_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

struct co_error;

enum {
    RAS_OPS = 5,
    RAS_MAX_BYTES = 4 << 20, /* of an answer: some thousand ranks */
    RAS_MAX_COMMS = 4096,
    RAS_TEXT_BYTES = 64, /* of an address, a hash, a version; the rest is cut */
};

struct ras_rank {
    int rank;     /* in the communicator */
    int job_rank; /* -1: not of this node, or not known */
    pid_t pid;    /* in its own namespace; -1: not known */
    char host[RAS_TEXT_BYTES];
    bool is_missing;             /* it did not answer: the rest is not known, except ... */
    bool is_dead;                /* ... is_missing: NCCL has given it up */
    int async_error, init_state; /* ncclResult_t */
    bool aborts;                 /* its communicator is being aborted */
    uint64_t counts[RAS_OPS];    /* collectives that it has started, by kind */
};

struct ras_comm {
    char hash[RAS_TEXT_BYTES];
    uint32_t size;
    size_t n;
    struct ras_rank *ranks; /* owned; those that answered, then those that did not */
    bool moves;             /* of two reports: its counts changed, or it is not in the first one */
};

struct ras_report {
    char version[RAS_TEXT_BYTES]; /* of NCCL */
    size_t n;
    struct ras_comm *comms; /* owned */
    uint64_t apart_ms;      /* from the report that it was compared with; 0: with none */
};

/* text      JSON of NCCL 2.28.7 or later; need not end with a NUL
 * ret       ras_report_fini() it
 * returns   0; -EPROTO: something else; -E2BIG; -ENOMEM */
int ras_report_parse(const char *text, size_t len, struct ras_report *ret, struct co_error *err);
void ras_report_fini(struct ras_report *r); /* a zeroed one is fine */

/* Fill job_rank.
 *
 * rank_of   of a process: the rank that it is, or that it descends from; -1: none of ours
 * returns   how many are known */
size_t ras_report_resolve(struct ras_report *r,
                          int (*rank_of)(void *arg, const char *host, pid_t pid), void *arg);

/* Do counts differ, so that another report is needed? */
bool ras_report_differs(const struct ras_report *r);

/* Compare with a report of the same job that is so much older: fill apart_ms, and moves. */
void ras_report_compare(struct ras_report *r, const struct ras_report *before, uint64_t apart_ms);

struct ras_sums { /* ranks: of communicators, in each of which a process has another one */
    size_t n_comms, n_lagging, n_missing, n_errors;
};

struct ras_sums ras_report_count(const struct ras_report *r);

/* Some lines, and the same as JSON: {"nccl", "apart_ms", "count", "communicators": [{"hash",
 * "size", "ranks", "lagging": [{"rank", "job_rank", "host", "pid", "op", "count", "most"}],
 * "missing": [{..., "dead"}], "errors": [{..., "async_error"}]}]}. Without a comparison, apart_ms
 * is null, the lines state that a rank may lag, and "lagging" is empty. */
void ras_report_print(const struct ras_report *r, FILE *out);
json_t *ras_report_json_make(const struct ras_report *r); /* NULL without memory */

#endif
