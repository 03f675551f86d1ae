/* perf_text.h - the table, as nccl-tests print it, or lines of JSON. */
#ifndef DDP_PERF_PERF_TEXT_H
#define DDP_PERF_PERF_TEXT_H

#include "perf_spec.h"

#include <stdio.h>

struct perf_times { /* of a call of one size, in microseconds: the slowest rank's */
    double mean_us, min_us;
    uint64_t wrong; /* elements, of all ranks */
};

struct perf_row { /* of one size */
    uint64_t bytes;
    size_t count;
    bool has_in_place;
    struct perf_times out_of_place, in_place;
};

struct perf_sum { /* of all rows */
    uint64_t wrong;
    double busbw;
    unsigned n;
};

void perf_text_head(FILE *out, const struct perf_spec *spec, unsigned n_ranks, unsigned n_nodes);
void perf_text_row(FILE *out, const struct perf_spec *spec, unsigned n_ranks,
                   const struct perf_row *row, struct perf_sum *sum);
void perf_text_foot(FILE *out, const struct perf_spec *spec, const struct perf_sum *sum);

struct perf_link { /* between two nodes, in microseconds */
    double one;    /* a message, from its sending to its arrival */
    double burst;  /* several that follow each other, and one back */
    double bulk;   /* a long one, with one in the other direction */
};

/* The variable DDP_TUNING with these numbers, within their bounds, as a line of a shell.
 *
 * n_burst      messages of a burst, 2 or more
 * bulk_bytes   of a long message */
void perf_text_network(FILE *out, const struct perf_link *us, unsigned n_burst, size_t bulk_bytes);

#endif
