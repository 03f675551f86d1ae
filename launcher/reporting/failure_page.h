/* failure_page.h - what is known about a generation that failed, as one HTML page: the report,
 * where each rank was and what it wrote last, and what NCCL, torch and the kernel have reported.
 * Pure.
 *
 * The page needs nothing else, and runs no script. Everything from outside is escaped. */
#ifndef DDP_LAUNCHER_REPORTING_FAILURE_PAGE_H
#define DDP_LAUNCHER_REPORTING_FAILURE_PAGE_H

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

struct failure_rank {
    int rank; /* the job's number */
    pid_t pid;
    const char *end;   /* "killed by SIGSEGV (Segmentation fault)" */
    const char *stack; /* of stack_print(), before the ranks were stopped; NULL: not known */
    const char *tail;  /* what it wrote to stderr last; NULL: nothing */
};

struct failure_page { /* all lent; texts that are NULL or empty are left out */
    const char *run_id, *host, *program, *version;
    uint32_t generation;
    int node;
    int64_t at_s;          /* since 1970 */
    const char *report;    /* as ddprun has printed it */
    const char *missing;   /* of stack_print_missing() */
    const char *nccl;      /* of ras_query_print() */
    const char *recorder;  /* of flight_recorder_print() */
    const char *kernel;    /* of kernel_log_print() */
    const char *no_kernel; /* the reason why the log is missing; NULL: it was read */
    const char *no_stacks; /* the reason why stacks are missing; NULL: they were collected */
    const struct failure_rank *ranks;
    int n_ranks,
        cause; /* cause: the rank that failed first, as a number of the job; -1: none here */
};

/* Failures of `out` are its caller's. */
void failure_page_print(const struct failure_page *p, FILE *out);

#endif
