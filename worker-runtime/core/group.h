/* group.h - inside of a group, for the files of this room.
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

struct backend;
struct co_error;
struct ddp_init_opts;
struct recovery;
struct requests;
struct control_line;
struct device_link;
struct node;
struct rank_status_place;
struct store_link;
struct trace;

/* Something that belongs to a group and goes with it: first member of ddp_model and ddp_sampler. */
struct group_child {
    struct group_child *next, **link; /* intrusive list; link == NULL: not in a group */
    void (*destroy)(struct group_child *child);
};

struct ddp_group {
    struct group_child child; /* of the world, where this group was split off */
    struct ddp_group *world;  /* itself, of the world */
    int rank, world_size;
    int local_rank, local_world_size;
    int node_rank, n_nodes;
    uint64_t generation;
    uint64_t timeout_ms;
    bool progress_thread;    /* asynchronous calls are made by a thread */
    bool is_apart;           /* of threads, or joined by name: nothing to do with the job that the
                                process is in */
    struct backend *backend; /* owned; NULL: a world of 1 */
    struct node *alone; /* owned; of a world of 1 that may become larger; NULL: there is none */
    const struct control *control; /* of a world that another generation may follow: its node's,
                                      borrowed; else NULL */
    struct device_link *device;    /* owned; NULL until the first call with a stream */
    struct requests *requests;     /* owned; NULL until the first asynchronous call */
    struct control_line *line;     /* this rank's own in the control segment; NULL: it has none */
    struct rank_status_place
        *place;           /* where it says in which call of the group it is; NULL: nowhere */
    uint32_t n_calls;     /* calls that were entered: the same on all ranks */
    uint16_t mark;        /* tells this group from others, the same on all ranks */
    int step_fd;          /* where a rank without a line tells its first step; -1: nowhere */
    char store_host[256]; /* of the world: where its store is; "": as the environment says */
    uint16_t store_port;
    struct store_link *store;  /* one of the children; NULL until the first ddp_store_ call */
    struct recovery *recovery; /* of the world, borrowed; NULL: it does not outlive a peer */
    struct trace *trace;       /* of the world: one of its children; NULL: there is none */
    bool knows_pending;        /* of the world: the last step's exchange has said whether ... */
    bool pending;              /* ... a node waits to join; see checkpoint_request.h */
    uint64_t n_exchanges;      /* at ends of steps: the same on all ranks */
    struct group_child *children;
};

void group_adopt(struct ddp_group *g, struct group_child *child);
void group_disown(struct group_child *child);

/* The communicator of this group, or of any other one of its world that has one. NULL: none has. */
const struct device_link *group_any_device(const struct ddp_group *g);

/* As ddp_init() and ddp_finalize(), for who may come back: with what `recovery` wants, and without
 * leaving the job for good.
 *
 * opts      not NULL
 * returns   0; -ECANCELED no generation follows the one that broke; -ECONNRESET another rank died
 *           meanwhile; else as ddp_init(), as -errno */
int group_enter(const struct ddp_init_opts *opts, struct recovery *recovery,
                struct ddp_group **ret_world, struct co_error *err);
void group_leave(struct ddp_group *world);

/* What the environment says of time-outs and the progress thread where `opts` leaves it open.
 * returns   0, -ENOEXEC */
int group_read_options(const struct ddp_init_opts *opts, struct ddp_group *g, struct co_error *err);

/* Destroy a world that this process has not entered: one of its threads. NULL is fine. */
void group_close(struct ddp_group *world);

/* Whether the generation is over for a rank without others, who hears so from no call.
 * returns   0; -ECONNRESET */
int group_check_alone(const struct ddp_group *g, struct co_error *err);

/* A step of training is complete: let ddprun know.
 *
 * began_ns   when the call began that ends it (common/clock.h) */
void group_count_step(struct ddp_group *g, uint64_t began_ns);

/* --- status.c: from inside to outside ------------------------------------------------------- */

/* Keep the text as this thread's last error and return the public status. All public calls end with
 * one of these. */
__attribute__((format(printf, 2, 3))) int rt_fail(int status, const char *format, ...);

/* What a group that has lost a rank returns: DDP_EPEER; DDP_RETRY where ddp_run() can go on. */
int rt_broken(void);

/* Whether this thread's calls are on a group that is apart: then a rank that is gone is none of the
 * job's: ddprun does not hear of it, and no generation follows. returns what was said before */
bool rt_set_apart(bool is_apart);

/* Convert -errno and its text: -EINVAL DDP_EINVAL, -ENOMEM DDP_ENOMEM, -ETIMEDOUT DDP_ETIMEOUT,
 * -ECONNRESET rt_broken() (a rank died or left), -ENOTRECOVERABLE DDP_EPEER, -EPROTO DDP_EMISMATCH,
 * -ENOTSUP DDP_EUNSUPPORTED, -ENOEXEC DDP_EENV, -EOWNERDEAD
 * DDP_ERESPAWN, everything else DDP_ESYSTEM. 0 gives 0. */
int rt_return(int code, const struct co_error *err);

#endif
