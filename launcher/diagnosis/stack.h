/* stack.h - where a rank is: what was found out about it, in words and as JSON.
 *
 * Pure.
 *
 *     rank 1 (pid 4711, python3): sleeps in futex_wait_queue, system call futex
 *       Thread 0x7f... (most recent call first):
 *         ... */
#ifndef DDP_LAUNCHER_DIAGNOSIS_STACK_H
#define DDP_LAUNCHER_DIAGNOSIS_STACK_H

#include "common/process_where.h"
#include "segments/rank_status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

struct torch_trace;

enum stack_source {
    STACK_NONE,   /* not available: `note` has the reason */
    STACK_SIGNAL, /* the rank wrote it to its stderr when it was sent a signal */
    STACK_PY_SPY,
    STACK_GDB,
    STACK_TORCH, /* torch's worker server */
};

enum { STACK_NOTE_BYTES = 256 };

struct stack {
    int rank; /* the job's number */
    pid_t pid;
    bool is_there; /* else it has ended meanwhile; the rest is empty */
    bool is_python;
    struct co_process process;
    struct co_process_where where;
    bool has_progress; /* it has joined others by libddp, or reports its steps: */
    struct progress progress;
    struct torch_trace *trace; /* owned; what torch's flight recorder has; NULL: not known */
    enum stack_source source;
    char *text;                  /* owned; whole lines; NULL: none */
    char note[STACK_NOTE_BYTES]; /* why there is no more; "": no reason */
};

void stack_fini(struct stack *s); /* a zeroed one is fine */

/* Keep the threads and their frames of what gdb wrote. In place.
 *
 * ret_trouble   without any: the last line that it wrote, as its reason; lent
 * returns       whether there are any */
bool stack_keep_frames(char *text, const char **ret_trouble);

/* Some lines about it. */
void stack_print(const struct stack *s, FILE *out);

/* {"rank", "pid", "state" (R, S, D, T, ...), "name", "threads", "wchan", "syscall", "tracer",
 * "kernel" (a list), "source" ("signal", "py-spy", "gdb", "torch"), "stack", "note", "steps",
 * "calls" (of libddp, the last one of each group: "op", "number", "bytes", "dtype", "group",
 * "state": "outside", "begun", "waits"), "torch_calls" (torch_trace.h)}; null if absent. returns
 * one owned by the caller; NULL: out of memory */
json_t *stack_json_make(const struct stack *s);

/* For which rank do others wait at this moment? What hang.h reports after a while, `ddpctl stack`
 * has to report at once: the call in which most ranks wait, and which ranks could have reached it
 * and have not. A rank that is only a little late looks the same as one that never reaches it.
 *
 * "rank 1 is missing in all_reduce #812 (4 MiB, float32): ranks 0 and 2 wait in it", a line for
 * each; nothing if no rank waits, or no rank of this node is missing. The same for torch's calls
 * (torch_trace.h). */
void stack_print_missing(const struct stack *list, int n, FILE *out);

/* By torch's calls alone: the lines, and the rank as an index in the list; -1: none, or several. */
void stack_print_missing_in_torch(const struct stack *list, int n, FILE *out);
int stack_find_missing(const struct stack *list, int n);

#endif
