/* cpu_tuning.h - from which size on which algorithm is the fastest inside of a node, and the
 * numbers by which one is chosen between nodes. Pure, except for the file that cpu_tuning_read()
 * reads.
 *
 * All ranks of a node must have the same table, since each chooses for itself by which algorithm a
 * call goes: node_join() compares digests. */
#ifndef DDP_WORKER_RUNTIME_SHM_CPU_TUNING_H
#define DDP_WORKER_RUNTIME_SHM_CPU_TUNING_H

#include "worker-runtime/cost/cost.h"

#include <stddef.h>
#include <stdint.h>

struct co_error;

struct cpu_tuning {
    size_t
        one_shot_bytes;   /* up to this, of all that a rank reads, every rank computes everything */
    size_t piece_bytes;   /* that go through a mailbox at a time */
    size_t cma_bytes;     /* from this on, of an `in`, plain memory is read across processes rather
                              than staged */
    size_t cma_sum_bytes; /* the same for all_reduce and reduce_scatter, which staging serves
                              better */
};

enum {
    CPU_TUNING_MAX_ROWS = 32,
    CPU_TUNING_MAX_TEXT = 64 * 1024, /* bytes of a table */
    CPU_TUNING_LEAST_PIECE = 4 * 1024,
    CPU_TUNING_MOST_PIECE = 128 * 1024, /* a buffer of a mailbox */
    CPU_TUNING_MOST_RANKS = 1024,
};
#define CPU_TUNING_NEVER SIZE_MAX

struct cpu_tunings {
    unsigned n_rows; /* 1 or more */
    struct cpu_tuning_row {
        unsigned n_ranks; /* for groups of up to so many ranks on a node; the last row also for
                             larger ones */
        struct cpu_tuning tuning;
    } row[CPU_TUNING_MAX_ROWS];  /* n_ranks increases */
    struct cost_network network; /* those of rank 0 count for all nodes */
};

extern const struct cpu_tunings cpu_tunings_default;

/* Lend the row for a group of n ranks. */
const struct cpu_tuning *cpu_tuning_for(const struct cpu_tunings *t, unsigned n);

/* Read a table: lines, or parts between semicolons, of
 *
 *     ranks N: one_shot=SIZE piece=SIZE cma=SIZE|never cma_sum=SIZE|never
 *     network: latency_ns=NUMBER message_ns=NUMBER byte_ps=NUMBER sum_ps=NUMBER
 *
 * the first in increasing order of N, the second at most once; without one of them the defaults
 * hold. What a row leaves out is as by default, for N ranks. `#` begins a comment, which lasts to
 * the end of the line.
 *
 * text      `length` bytes of anything
 * returns   0; -EINVAL: the text of err names the line, and what is wrong there; -ENOMEM */
int cpu_tuning_parse(const char *text, size_t length, struct cpu_tunings *ret,
                     struct co_error *err);

/* The table that DDP_TUNING gives.
 *
 * value     of the variable: the path of a file if there is a '/' in it, else the table itself;
 *           NULL or empty: the default
 * returns   0; -ENOEXEC: it is not a table, or the file cannot be read */
int cpu_tuning_read(const char *value, struct cpu_tunings *ret, struct co_error *err);

/* Distinguishes tables. */
uint64_t cpu_tuning_digest(const struct cpu_tunings *t);

#endif
