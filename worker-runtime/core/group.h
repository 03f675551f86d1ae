/* group.h - inside of a group, for the files of libddp.
 *
 * A group is ranks, a back end that moves bytes between them, and the models and samplers made from
 * it. Inside the library a failure is -errno and a struct co_error; the public functions convert it
 * once, by rt_return(). */
#ifndef DDP_WORKER_RUNTIME_CORE_GROUP_H
#define DDP_WORKER_RUNTIME_CORE_GROUP_H

#include <ddp/error.h>
#include <ddp/group.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;
struct collective;
struct message;

/* Something that belongs to a group and goes with it: first member of ddp_model and ddp_sampler. */
struct group_child {
    struct group_child *next, **link; /* intrusive list; link == NULL: not in a group */
    void (*destroy)(struct group_child *child);
};

struct ddp_group {
    struct group_child child; /* of the world's group, where this one was split off */
    struct world *world;
    int rank, world_size;
    int local_rank, local_world_size;
    int node_rank, n_nodes;
    uint64_t timeout_ms;
    uint64_t call_timeout_ms;   /* of calls since ddp_set_timeout(); 0: the back end's own */
    bool progress_thread;       /* asynchronous calls are made by a thread */
    bool is_apart;              /* made of threads or joined by name: not part of the job that the
                                   process is in */
    struct backend *backend;    /* owned; NULL: a group of 1 */
    struct device_link *device; /* owned; NULL until the first call with a stream */
    struct requests *requests;  /* owned; NULL until the first asynchronous call */
    struct rank_status_place
        *place;               /* where it records in which call of the group it is; NULL: nowhere */
    uint32_t n_calls;         /* calls that were entered: the same on all ranks */
    uint16_t mark;            /* distinguishes this group from others, the same on all ranks */
    uint64_t n_exchanges;     /* at ends of steps: the same on all ranks */
    struct store_link *store; /* one of the children; NULL until the first ddp_store_ call */
    struct group_child *children;
};

/* What the groups of a world share: the group of all ranks, and those that were split off. */
struct world {
    struct ddp_group group; /* first: of all ranks */
    uint64_t generation;
    const struct control *control; /* the node's, borrowed, where another generation may follow;
                                      else NULL */
    struct control *segment; /* the same, also where none may follow: for ddp_wait_retry(); NULL:
                                this rank has none */
    _Atomic uint32_t ends_waits; /* 1: ddp_wait_retry() returns at once */
    struct node *alone; /* owned; where this rank is the only one, and others may come; else NULL */
    struct control_line *line; /* this rank's own in the control segment; NULL: it has none */
    int step_fd;               /* where a rank without a line reports its first step; -1: nowhere */
    char store_host[256];      /* where the store is; "": as in the environment */
    uint16_t store_port;
    struct recovery *recovery; /* borrowed; NULL: it does not outlive a peer */
    bool has_memory;           /* what ddp_state_add() registers has been taken, or would be */
    struct trace *trace;       /* one of the group's children; NULL: none */
    bool knows_pending;        /* the last step's exchange has determined whether ... */
    bool pending;              /* ... a node waits to join; see checkpoint_request.h */
    bool is_lent;       /* to the function of ddp_run() or ddp_spawn(): not its to finalize */
    bool was_finalized; /* that function did so anyway */
    const struct stream_ops *on_stream;
    struct device_link *devices; /* borrowed: a list of those that its groups have */
};

/* Calls in the order of a GPU's stream. A call without a stream does not go through this table.
 * Functions return public statuses. */
struct stream_ops {
    int (*run)(struct ddp_group *g, const struct collective *what);
    /* name   of the public call, for messages */
    int (*message)(const char *name, struct ddp_group *g, const struct message *m, void *stream);
};

static inline bool group_is_world(const struct ddp_group *g)
{
    return g == &g->world->group;
}

void group_adopt(struct ddp_group *g, struct group_child *child);
void group_disown(struct group_child *child);
void group_destroy_children(struct ddp_group *g);

/* Whether this process may call on the group; from now on this thread's failures are of that group.
 *
 * name      of the public call, for messages
 * returns   DDP_OK; DDP_EINVAL */
int group_check(const char *name, const struct ddp_group *g);

/* The same, for calls that have no name yet. returns 0; -EINVAL */
int group_check_here(const struct ddp_group *g, struct co_error *err);

/* Whether the generation is over, for a rank without peers: none of its own calls can find out.
 * returns   0; -ECONNRESET */
int group_check_alone(const struct ddp_group *g, struct co_error *err);

/* --- status.c: from inside to outside ------------------------------------------------------- */

/* Keep the text as this thread's last error and return the public status. All public calls end with
 * one of these. */
__attribute__((format(printf, 2, 3))) int rt_fail(int status, const char *format, ...);

/* "CALL: the WHAT is NULL". returns DDP_EINVAL */
int rt_fail_null(const char *call, const char *what);

/* A function of the program returned a status that is not 0. Where the last failure of this thread
 * is not the reason for it, the text names the status.
 *
 * what      "ddp_run: the function"
 * returns   status */
int rt_fail_returned(const char *what, int status);

/* This thread has had no failure: a forked child inherits the text of its parent's. */
void rt_forget(void);

/* Which rank this process is, for the messages of ddp_fatal(). */
void rt_set_rank(int rank);

/* What a group that has lost a rank returns: DDP_EPEER; DDP_RETRY where ddp_run() can continue. */
int rt_broken(void);

/* Whether this thread's calls are on a group that is apart: then a rank that is gone does not
 * belong to the job: ddprun is not notified of it, and no generation follows. returns the previous
 * value */
bool rt_set_apart(bool is_apart);

/* Convert -errno and its text: -EINVAL DDP_EINVAL, -ENOMEM DDP_ENOMEM, -ETIMEDOUT DDP_ETIMEOUT,
 * -ECONNRESET rt_broken() (a rank died or left), -ENOTRECOVERABLE DDP_EPEER, -EPROTO DDP_EMISMATCH,
 * -ENOTSUP DDP_EUNSUPPORTED, -ENOEXEC DDP_EENV, -EOWNERDEAD
 * DDP_ERESPAWN, everything else DDP_ESYSTEM. 0 gives 0. */
int rt_return(int code, const struct co_error *err);
int rt_return_from(const char *name, int code, struct co_error *err); /* "NAME: " in front */

#endif
