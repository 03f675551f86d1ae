/* console.h - the job's socket: who may ask this ddprun what goes on, and tell it what to do.
 *
 * A client sends a line (console/job_request.h), gets a line, and may send the next one then. What
 * clients do costs ddprun no more than that: at most CONSOLE_MAX_CLIENTS are heard at a time, the
 * others wait in the socket's queue; one that is silent for CONSOLE_IDLE_MS, or does not take its
 * answer for so long, is dropped; a line that is no request is answered with an error, a longer one
 * than any request by the end of the connection. Only our own user and root are heard. */
#ifndef DDP_LAUNCHER_NODE_CONSOLE_H
#define DDP_LAUNCHER_NODE_CONSOLE_H

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

/* folder    ddprun's own; the socket in it goes with the folder
 * returns   0, -ENOMEM, -errno */
int console_open(uv_loop_t *loop, const char *folder, const struct console_opts *opts,
                 struct console **ret, struct co_error *err);

/* text   one line without its newline, to free(), given up here; NULL: there was no memory for
 *        it, which ends the connection. The client may not be used afterwards */
void console_answer(struct console_client *client, char *text);

/* Answer that it cannot be done, and why. */
void console_refuse(struct console_client *client, const char *why);

/* Nobody is heard any more; on_gone() is not called. Frees it when the loop has closed its handles;
 * NULL is fine. */
void console_close(struct console *c);

#endif
