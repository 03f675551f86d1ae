/* generation.h - what one generation of ranks has for itself, and the next one again: the store and
 * its port, the shared memory's broker, the sockets by which it is asked to save its state.
 *
 * A node that is alone opens store and broker together. In a job of several nodes each has the
 * broker of its own ranks, and one of them the store, which is opened before anybody starts
 * ranks. */
#ifndef DDP_LAUNCHER_GENERATION_GENERATION_H
#define DDP_LAUNCHER_GENERATION_GENERATION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

struct allow_list;
struct broker_world;
struct checkpoint_request;
struct co_error;
struct job_spec;
struct message_address;
struct node_memory;
struct server;

struct generation {
    struct node_memory *memory;                    /* all owned */
    struct checkpoint_request *checkpoint_request; /* NULL: nobody asks the ranks to save */
    struct server *store;                          /* NULL: none */
    struct allow_list *allow;                      /* who uses it from elsewhere; NULL: nobody */
    uint16_t master_port;
    bool agent_store;
};

struct generation_callbacks { /* whom to tell; called from the loop */
    void (*on_store_refused)(void *arg, const char *text);
    void (*on_memory_note)(void *arg, const char *text);
    void (*on_joined)(void *arg, int rank, bool recovers);  /* node_memory.h */
    void (*on_asked)(void *arg, int rank);                  /* likewise */
    void (*on_death)(void *arg);                            /* likewise */
    void (*on_wait)(void *arg, int rank, const char *text); /* likewise */
    void (*on_saved)(void *arg);                            /* checkpoint_request_all_saved() */
    void (*on_control)(void *arg, int fd, const uint8_t *bytes, size_t len); /* of struct
                                          server_opts; NULL, but where the store shares its port */
    void *arg;
};

/* Make one, which has that number among those of the job. A store that has no fixed port gets one
 * that no living generation has: keys of the ranks before are out of reach.
 *
 * ret       generation_close() it, after a failure, too
 * returns   0, -EADDRINUSE (a fixed port is taken), -ENOMEM, -errno */
int generation_open(const struct job_spec *spec, uint32_t number, uv_loop_t *loop,
                    const struct generation_callbacks *callbacks, struct generation *ret,
                    struct co_error *err);

/* Put a new one in the place of an old one whose ranks are gone. After a failure there may be no
 * store.
 *
 * returns   as generation_open() */
int generation_renew(const struct job_spec *spec, uint32_t number, uv_loop_t *loop,
                     const struct generation_callbacks *callbacks, struct generation *g,
                     struct co_error *err);

/* A new broker and new sockets, for the next ranks. The store stays.
 *
 * returns   0, -ENOMEM: the old ones are left */
int generation_renew_ranks(const struct job_spec *spec, uint32_t number, uv_loop_t *loop,
                           const struct generation_callbacks *callbacks, struct generation *g,
                           struct co_error *err);

/* While ranks live, make what they and those that take the places of others need: new shared
 * memory, in which all of them meet. The store stays.
 *
 * world     where this node's ranks are in it; borrowed for the call
 * returns   0, -ENOMEM, -errno: the old memory is left */
int generation_recover(struct generation *g, uint32_t number, const struct broker_world *world,
                       struct co_error *err);

struct generation_reach { /* all borrowed for the call */
    const char *host;     /* by which others reach this node. In figures: the store listens there
                             only, if that is an address of this machine */
    const struct message_address *allowed; /* whence they come */
    uint32_t n_allowed;
    uint32_t world_size;
};

/* Open the store for several nodes; there is none open. A world of 1 gets a free port without a
 * store, as alone.
 *
 * returns   as generation_open() */
int generation_open_store(const struct job_spec *spec, const struct generation_reach *reach,
                          uv_loop_t *loop, const struct generation_callbacks *callbacks,
                          struct generation *g, struct co_error *err);

/* At once: nobody is connected any more, the port is free. Fine if there is none. */
void generation_close_store(struct generation *g);

void generation_close(struct generation *g); /* a zeroed one is fine; frees from the loop */

/* --- when ranks came to the store --- */

/* Of programs that say nothing themselves, a connection to the store is the first sign of life,
 * once they have imported what they import.
 *
 * The store knows since when each of its connections is there, the kernel which socket is at the
 * other end, and /proc whose that is: the rank's, or that of a process that it has started. So it
 * is known only while the connection is open, which torch's stay as long as their process group,
 * and only where rank and store are on one machine. */

enum {
    ARRIVALS_CONNECTIONS = 16384, /* more are not looked at */
    ARRIVALS_PROCESSES = 64,      /* of each rank */
};

struct arrival {
    pid_t pid;        /* of the rank; 0: it is not looked for */
    uint64_t came_ms; /* CLOCK_MONOTONIC, of its first connection; 0: not known */
};

/* Find those that are not known yet. Without memory they stay so. */
void store_arrivals_find(struct server *store, struct arrival *list, int n);

#endif
