/* torch_query.h - ask torch's worker server in one process where the process is: the Python stacks
 * of its threads, and the newest collective of each process group.
 *
 * The server is a thread of C++ that torch starts (torch_hook.h), so it answers while the program
 * waits in a collective, without ptrace. Nothing blocks: the caller looks now and then. */
#ifndef DDP_LAUNCHER_TORCH_TORCH_QUERY_H
#define DDP_LAUNCHER_TORCH_TORCH_QUERY_H

#include <stdbool.h>
#include <stdint.h>

struct torch_query; /* opaque */
struct torch_trace;

enum {
    TORCH_QUERY_MS = 3000
}; /* all of it; a thread that holds Python's lock keeps the server waiting */

/* path        of the server's socket; copied
 * has_stack   the stacks are wanted, and not only the calls
 * returns     0; -ENOMEM; -ENAMETOOLONG */
int torch_query_begin(const char *path, bool has_stack, uint64_t now_ms, struct torch_query **ret);
void torch_query_destroy(struct torch_query *q); /* NULL is fine, here and below */

/* returns whether an answer may still come: look again in a moment */
bool torch_query_look(struct torch_query *q, uint64_t now_ms);

/* No more is awaited. */
void torch_query_end(struct torch_query *q);

/* The stacks, to free(); NULL: none has arrived, or it was taken. */
char *torch_query_take_stack(struct torch_query *q);

/* The calls, to free(); NULL as above. */
struct torch_trace *torch_query_take_trace(struct torch_query *q);

#endif
