/* stack_tool.h - a debugger that looks at a rank: run it, keep what it says, see that it ends.
 *
 * It is a child of ddprun's own, in a session of its own; ddprun's loop goes on meanwhile. */
#ifndef DDP_LAUNCHER_DIAGNOSIS_STACK_TOOL_H
#define DDP_LAUNCHER_DIAGNOSIS_STACK_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct co_error;
struct stack_tool; /* opaque */

struct stack_tool_opts {
    const char *path;    /* of the program */
    char *const *argv;   /* borrowed for the call */
    size_t max_bytes;    /* of what it says; the rest is not kept */
    uint64_t timeout_ms; /* it is killed then */
    /* It has ended. Lent: what it wrote, stdout and stderr, with a NUL behind it. The tool may not
     * be used afterwards */
    void (*on_done)(void *arg, const char *text, bool timed_out);
    void *arg;
};

/* returns   0, -ENOMEM, -errno: on_done() is not called then. One that cannot be executed says
 *           nothing, and ends */
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
