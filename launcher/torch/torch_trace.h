/* torch_trace.h - what torch's flight recorder of a rank reports: the newest collective of each
 * process group. Pure.
 *
 * A rank lags if others wait in a collective of a group that it has not called yet. torch counts
 * the collectives of a group in the order of their calls, the same on all ranks; messages between
 * two ranks are not counted. */
#ifndef DDP_LAUNCHER_TORCH_TORCH_TRACE_H
#define DDP_LAUNCHER_TORCH_TORCH_TRACE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct co_error;

enum {
    TORCH_GROUPS_MAX = 64, /* of a rank; further ones are left out */
    TORCH_TEXT_BYTES = 64, /* of a name; the rest is cut */
};

struct torch_call {
    char group[TORCH_TEXT_BYTES]; /* its name, the same on all of its ranks: "0" */
    char about[TORCH_TEXT_BYTES]; /* its description: "default_pg" */
    char op[TORCH_TEXT_BYTES];    /* "gloo:all_reduce" */
    uint64_t number;              /* from 1 */
    uint64_t created_ns;          /* since 1970; 0: not known */
    bool waits;                   /* it has not ended */
};

struct torch_trace { /* zeroed: empty */
    size_t n;
    struct torch_call calls[TORCH_GROUPS_MAX]; /* the newest one of each group */
};

/* Add a dump, as the worker server's handlers fr_trace_json and dump_nccl_trace_json return it:
 * both may have groups.
 *
 * returns   0; -EPROTO: something else; -ENOMEM */
int torch_trace_add(struct torch_trace *t, const char *text, size_t len, struct co_error *err);

/* All collectives that the rank has called: a number that grows while it makes progress. And when
 * it has called the last one, since 1970; 0: not known. */
uint64_t torch_trace_total(const struct torch_trace *t);
uint64_t torch_trace_newest_ns(const struct torch_trace *t);

/* --- of several ranks --- */

struct torch_rank {
    int rank;                        /* the job's number */
    const struct torch_trace *trace; /* lent; NULL: not known, the rank is left out */
};

/* For which rank do others wait?
 *
 * returns   its index in the list; -1: for none, or for several */
int torch_trace_find_missing(const struct torch_rank *list, int n);

/* "rank 1 is missing in gloo:all_reduce #38 of process group 0 (default_pg): ranks 0 and 2 wait in
 * it", a line for each group in which a rank of the list is missing. */
void torch_trace_print_missing(const struct torch_rank *list, int n, FILE *out);

/* "gloo:all_reduce #38 of process group 0 (default_pg), waits", for each group after a blank and a
 * semicolon; nothing without groups. */
void torch_trace_print(const struct torch_trace *t, FILE *out);

/* [{"group", "description", "op", "number", "waits"}]. returns given up; NULL without memory */
json_t *torch_trace_json_make(const struct torch_trace *t);

#endif
