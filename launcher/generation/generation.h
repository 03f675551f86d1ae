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
struct progress;
struct progress_pipes;
struct relay_listener;
struct relay_port;
struct server;

#define GENERATION_LOCAL_HOST "127.0.0.1" /* of struct generation's local_port */

struct generation {
    struct node_memory *memory; /* all owned */
    struct progress_pipes *pipes;
    struct checkpoint_request *checkpoint_request; /* NULL: the ranks are never asked to save */
    struct server *store;                          /* NULL: none */
    struct allow_list *allow;                      /* the addresses that may use it from elsewhere;
                                                    * NULL: none */
    uint16_t master_port;
    bool agent_store;

    /* --store-relay, in a job of several nodes: the store listens on loopback only */
    struct relay_listener *links; /* this node has the store, at master_port; NULL: it has not */
    struct relay_port *relay;     /* another node has it; NULL: not opened */
    uint16_t local_port;          /* on loopback, for the ranks of this node; 0: no relay */
};

struct generation_callbacks { /* called from the loop */
    void (*on_store_refused)(void *arg, const char *text);
    void (*on_memory_note)(void *arg, const char *text);
    void (*on_joined)(void *arg, int rank, bool recovers);  /* node_memory.h */
    void (*on_asked)(void *arg, int rank);                  /* as above */
    void (*on_death)(void *arg);                            /* as above */
    void (*on_wait)(void *arg, int rank, const char *text); /* as above */
    void (*on_saved)(void *arg);                            /* checkpoint_request_all_saved() */
    void (*on_control)(void *arg, int fd, const uint8_t *bytes, size_t len); /* of struct
                                          server_opts; NULL, but where the store shares its port */
    void *arg;
};

/* Make one, which has that number among those of the job. A store that has no fixed port gets one
 * that no living generation has, so that the keys of earlier ranks are out of reach.
 *
 * ret       generation_close() it, also after a failure
 * returns   0, -EADDRINUSE (a fixed port is taken), -ENOMEM, -errno */
int generation_open(const struct job_spec *spec, uint32_t number, uv_loop_t *loop,
                    const struct generation_callbacks *callbacks, struct generation *ret,
                    struct co_error *err);

/* Replace an old one, whose ranks are gone, by a new one. After a failure there may be no store.
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

/* While ranks live, make what they and the replacements of other ranks need: new shared memory for
 * all of them. The store stays.
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
    uint32_t generation; /* its number among those of the job */
};

/* How far a rank is: by libddp (docs/design/progress.md), by its lines (progress_lines.h), or both:
 * then the steps are libddp's, if it counts any.
 *
 * ret_digest   another number when it has moved, if only from one step of a call to the next
 * returns      whether there is anything to read */
bool generation_read_progress(const struct generation *g, int rank, struct progress *ret,
                              uint64_t *ret_digest);

/* The signal on which a rank writes its stack to its stderr, as it has reported; 0: none. */
int generation_stack_signal(const struct generation *g, int rank);

/* The most steps that a rank has completed in this generation; and together with those that were
 * completed before it, among n_local ranks. */
uint64_t generation_most_steps(const struct generation *g, int n_local);
uint64_t generation_total_steps(const struct generation *g, int n_local);

/* Open the store for several nodes; none is open. A world of 1 gets a free port without a store, as
 * in a job of one node. With --store-relay, g->local_port is the store's, and g->master_port is
 * where other nodes connect with generation_open_relay().
 *
 * returns   as generation_open() */
int generation_open_store(const struct job_spec *spec, const struct generation_reach *reach,
                          uv_loop_t *loop, const struct generation_callbacks *callbacks,
                          struct generation *g, struct co_error *err);

/* What the ranks of this node connect to, if the store is relayed: g->local_port on loopback. On
 * the node that has the store, it is the store. An older relay is closed.
 *
 * host, port   of the node with the store, for links
 * returns      0, -ENOMEM, -errno */
int generation_open_relay(const struct job_spec *spec, uint32_t number, const char *host,
                          uint16_t port, uv_loop_t *loop,
                          const struct generation_callbacks *callbacks, struct generation *g,
                          struct co_error *err);

/* A port of this machine that no process uses now.
 *
 * returns   0, -errno */
int generation_find_port(uint16_t *ret_port, struct co_error *err);

/* At once: all connections end, also those to a relay, and the ports are free. */
void generation_close_store(struct generation *g);

void generation_close(struct generation *g); /* a zeroed one is fine; frees from the loop */

/* --- when ranks connected to the store --- */

/* For programs that report nothing themselves, a connection to the store is the first sign of life,
 * after their imports.
 *
 * The store knows when each of its connections was made, the kernel which socket is at the other
 * end, and /proc whose that is: the rank's, or that of a process that it has started. So it is
 * known only while the connection is open (torch's connections stay as long as their process
 * group), and only where rank and store are on one machine. */

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
