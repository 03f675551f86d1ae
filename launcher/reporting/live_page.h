/* live_page.h - the part of a running job's page that is not in its events: what each rank does
 * now, and the last lines of the rank that failed last. history_page.h has the rest. Pure. */
#ifndef DDP_LAUNCHER_REPORTING_LIVE_PAGE_H
#define DDP_LAUNCHER_REPORTING_LIVE_PAGE_H

#include <stdint.h>
#include <stdio.h>

struct status;

struct live_failure { /* the last one on this node */
    const char *tail; /* lent: what the rank wrote to stderr last; NULL: none has failed */
    int rank;
    uint32_t generation;
};

/* Failures of `out` are its caller's. Everything from outside is escaped. */
void live_page_print(const struct status *s, const struct live_failure *failure, FILE *out);

#endif
