/* generation.h - what one generation of ranks has for itself, and the next one anew: the store and
 * its port, the shared memory's broker. */
#ifndef DDP_LAUNCHER_GENERATION_H
#define DDP_LAUNCHER_GENERATION_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct co_error;
struct job_spec;
struct node_memory;
struct server;

struct generation {
    struct node_memory *memory; /* both owned */
    struct server *store;       /* NULL: none */
    uint16_t master_port;
    bool agent_store;
};

struct generation_notes { /* whom to tell; called from the loop */
    void (*on_store_refused)(void *arg, const char *text);
    void (*on_memory_note)(void *arg, const char *text);
    void *arg;
};

/* Make one. A store that has no fixed port gets one that no living generation has: keys of the
 * ranks before are out of reach.
 *
 * ret       generation_close() it, after a failure, too
 * returns   0, -EADDRINUSE (a fixed port is taken), -ENOMEM, -errno */
int generation_open(const struct job_spec *spec, uv_loop_t *loop,
                    const struct generation_notes *notes, struct generation *ret,
                    struct co_error *err);

/* Put a new one in the place of an old one whose ranks are gone. After a failure there may be no
 * store.
 *
 * returns   as generation_open() */
int generation_renew(const struct job_spec *spec, uv_loop_t *loop,
                     const struct generation_notes *notes, struct generation *g,
                     struct co_error *err);

void generation_close(struct generation *g); /* a zeroed one is fine; frees from the loop */

#endif
