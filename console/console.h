/* console.h - the job's socket: requests to this ddprun for its state, and orders.
 *
 * A client sends a line (console/job_request.h), gets a line, and may send the next one then. What
 * clients do costs ddprun no more than that: at most CONSOLE_MAX_CLIENTS are served at a time, the
 * others wait in the socket's queue; one that is silent for CONSOLE_IDLE_MS, or does not take its
 * answer for so long, is dropped; a line that is not a request is answered with an error; a line
 * longer than any request ends the connection. Only our own user and root are served. */
#ifndef DDP_CONSOLE_CONSOLE_H
#define DDP_CONSOLE_CONSOLE_H

#include <stdint.h>
#include <uv.h>

struct co_error;
struct console;        /* opaque */
struct console_client; /* opaque; one that waits for its answer */
struct job_request;

enum { CONSOLE_MAX_CLIENTS = 16, CONSOLE_IDLE_MS = 30000 };

struct console_opts {
    uint64_t idle_ms; /* 0: CONSOLE_IDLE_MS */

    /* A request: it gets one console_answer(), from within this call or later. */
    void (*on_request)(void *arg, struct console_client *client, const struct job_request *r);

    /* A client that waits for its answer has gone, and cannot be answered any more. NULL: all are
     * answered at once */
    void (*on_gone)(void *arg, struct console_client *client);
    void *arg;
};

/* dir       of this ddprun; the socket in it is removed with it
 * returns   0, -ENOMEM, -errno */
int console_open(uv_loop_t *loop, const char *dir, const struct console_opts *opts,
                 struct console **ret, struct co_error *err);

/* text   one line without its newline, to free(); ownership passes to this function; NULL: out of
 *        memory, which ends the connection. The client may not be used afterwards */
void console_answer(struct console_client *client, char *text);

/* Answer that it cannot be done, and why. */
void console_refuse(struct console_client *client, const char *why);

/* No client is served any more; on_gone() is not called. Frees it when the loop has closed its
 * handles; NULL is fine. */
void console_close(struct console *c);

#endif
