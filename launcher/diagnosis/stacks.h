/* stacks.h - where ranks are, all at about one time: for `ddpctl stack`, and before hung ranks are
 * ended.
 *
 * /proc is read at once. Then, for the ranks that run:
 *   0. a rank with torch's worker server is asked for its stack and its calls (torch_query.h).
 *      If it does not answer, it is a rank like any other
 *   1. if a signal is given, or the rank has named one (progress_lines.h), it is sent to those that
 *      have a handler for it, and what they write to stderr until they are quiet is their stack
 *      (faulthandler.register() of Python). A user that gives a signal has to know what its handler
 *      does
 *   2. a rank without a stack by then is examined by py-spy (Python), else by gdb, if they are in
 *      PATH, two ranks at a time. Both stop the process for a moment. A process that is stopped or
 *      traced, or that waits in the kernel where no signal reaches it, is left alone: a tool would
 *      wait for it. gdb takes long to read the symbols of a large library (libtorch): if a tool has
 *      not ended after 7/10 of its time, gdb gets the rest without the symbols of shared libraries
 *
 * ddprun's loop runs meanwhile. */
#ifndef DDP_LAUNCHER_DIAGNOSIS_STACKS_H
#define DDP_LAUNCHER_DIAGNOSIS_STACKS_H

#include "stack.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct co_error;
struct flights;
struct output;
struct ras_query;
struct stack_tool; /* opaque */
struct stacks;     /* opaque; a collection under way */

enum {
    STACKS_TOTAL_MS = 60000,
    STACKS_TOOL_MS = 20000,     /* of one rank */
    STACKS_TOOL_HANG_MS = 5000, /* the same, where the others wait for its end */
    STACKS_QUIET_MS = 300
};

struct stacks_rank { /* one that runs */
    int local_rank;
    int rank; /* the job's number */
    pid_t pid;
    const struct progress *progress; /* what libddp reports now; lent; NULL: nothing */
    const char *stderr_path; /* where its stderr goes if not through `output`; borrowed for the
                                call; NULL: it does */
    const char *server; /* the socket of torch's worker server in it; borrowed for the call; NULL:
                           none */
    int signal;         /* that this one has named; 0: none. That of the options counts first */
    bool no_tool;       /* it is only asked by a signal */
};

struct stacks_opts {
    pid_t parent;                /* of the ranks: only its children get a signal */
    const struct output *output; /* borrowed until it is done */
    int signal;                  /* 0: none */
    bool has_tools;              /* py-spy and gdb may be run */
    uint64_t tool_ms;            /* for each rank: <= STACKS_TOOL_MS */
    uint64_t total_ms;           /* for all of it: tool_ms to STACKS_TOTAL_MS */
    struct flights *flights;     /* torch's dumps, also waited for; taken over on success; NULL:
                                  * none */
    struct ras_query *ras;       /* the same of NCCL's answer */

    /* Called once, from the loop: n stacks, in the order of the ranks, and the rest, all lent.
     * The collection may not be used afterwards. */
    void (*on_done)(void *arg, const struct stack *list, int n, const struct flights *flights,
                    const struct ras_query *ras);
    void *arg;
};

/* ranks     borrowed for the call
 * returns   0, -ENOMEM; on_done() is not called then */
int stacks_begin(uv_loop_t *loop, const struct stacks_opts *opts, const struct stacks_rank *ranks,
                 int n, struct stacks **ret, struct co_error *err);

/* End the collection now: it calls on_done(), before it returns, with what it has found so far. */
void stacks_finish(struct stacks *s);

/* They are no longer needed. NULL is fine. */
void stacks_cancel(struct stacks *s);

/* --- a debugger that looks at a rank --- */

/* Run it, keep its output, make sure that it ends. It is a child of ddprun, in a session of its
 * own, and is killed when ddprun dies; ddprun's loop runs meanwhile. */

struct stack_tool_opts {
    const char *path;    /* of the program */
    char *const *argv;   /* borrowed for the call */
    pid_t target;        /* the process that it looks at. It gets SIGCONT where the tool does not
                            succeed: a debugger that dies may leave it stopped. 0: none */
    size_t max_bytes;    /* of its output; the rest is not kept, or ... */
    bool keeps_end;      /* ... what came before the last so many bytes */
    uint64_t timeout_ms; /* it is killed then */
    /* It has ended, with a status of waitpid(). Lent: what it wrote, stdout and stderr, followed by
     * a NUL. The tool may not be used afterwards */
    void (*on_done)(void *arg, const char *text, int status, bool timed_out);
    void *arg;
};

/* returns   0, -ENOMEM, -errno: on_done() is not called then. A tool that cannot be executed ends
 *           without output */
int stack_tool_begin(uv_loop_t *loop, const struct stack_tool_opts *opts, struct stack_tool **ret,
                     struct co_error *err);

/* Kill it; on_done() is not called. It is reaped from the loop, which it holds for 2 s at most.
 * NULL is fine. */
void stack_tool_cancel(struct stack_tool *t);

/* Where a program is, by PATH.
 *
 * returns   a path to free(); NULL: nowhere */
char *stack_tool_find(const char *name);

#endif
