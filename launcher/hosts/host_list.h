/* host_list.h - the nodes of a job as users and resource managers write them down: host files and
 * lists of names -> hosts, in the order of the job's nodes. Pure.
 *
 * An entry is [USER@]NAME[:SLOTS] or NAME*SLOTS, where NAME is a name or an address, an IPv6 one in
 * brackets if slots follow it. A name may hold ranges, as srun writes them: n[01-16,20] are n01 to
 * n16 and n20; with several ranges, the last one counts fastest. Entries are separated by commas.
 *
 * A line of a file is such a list, with settings that hold for all of its entries: slots=N,
 * max-slots=N (or max_slots=N) and port=N. '#' begins a comment.
 *
 * A host that is mentioned N times has N slots, as in the files of PBS. If one of the mentions
 * gives a number of slots, further mentions contradict it. */
#ifndef DDP_LAUNCHER_HOSTS_HOST_LIST_H
#define DDP_LAUNCHER_HOSTS_HOST_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;
struct host_env;

/* Bounds. A name becomes that of a node (rendezvous/membership/message.h), the NUL counts. */
enum {
    HOST_LIST_MAX = 1024,
    HOST_NAME_BYTES = 128,
    HOST_USER_BYTES = 64,
    HOST_SLOTS_MAX = 1024,
    HOST_FILE_MAX_BYTES = 1 << 20,
};

struct host {
    char name[HOST_NAME_BYTES]; /* letters, digits and "._:%-"; does not begin with '-' */
    char user[HOST_USER_BYTES]; /* "": not given */
    uint16_t port;              /* its ssh daemon's; 0: not given */
    uint32_t slots;             /* ranks that it can run; 0: not given */
    uint32_t max_slots;         /* it must not have more; 0: not given */
    uint32_t n_mentions;
};

struct host_list {      /* zeroed: empty */
    struct host *hosts; /* owned */
    size_t n;
};

/* Add the hosts of a list in one line, as after -H or in SLURM_JOB_NODELIST.
 *
 * what      where it was given, for messages
 * returns   0
 *           -EINVAL   no host, a bad one, one that contradicts an earlier mention: err names it
 *           -ERANGE   a number out of bounds, more than HOST_LIST_MAX hosts
 *           -ENOMEM
 *           after a failure the list holds some of the hosts */
int host_list_add(struct host_list *l, const char *what, const char *text, struct co_error *err);

/* Add those of a file's text: errors begin with "PATH:LINE: ".
 *
 * returns   as above; -EINVAL also for a file without hosts, with a NUL byte, or longer than
 *           HOST_FILE_MAX_BYTES */
int host_list_add_file(struct host_list *l, const char *path, const char *text, size_t len,
                       struct co_error *err);

/* The same, read by way of host_env.h.
 *
 * by        what names the file, for a message
 * returns   as above; -EINVAL also for a file that cannot be read */
int host_list_read_file(struct host_list *l, const struct host_env *world, const char *by,
                        const char *path, struct co_error *err);

void host_list_fini(struct host_list *l);

/* How many ranks each host gets.
 *
 * n_total    ranks of the job; 0: not given
 * per_node   ranks of each node; 0: not given
 * ret        l->n numbers; 0: the host has none and takes no part. UINT32_MAX: neither the list nor
 *            the options give it; the node finds it out itself
 * returns    0
 *            -EINVAL   too few slots; without given slots, the ranks cannot be shared out evenly; a
 *                      host's max-slots is exceeded */
int host_list_share(const struct host_list *l, uint32_t n_total, uint32_t per_node, uint32_t *ret,
                    struct co_error *err);

/* --- this node's place in a job --- */

/* As the process that started ddprun gives it, in place of options. Texts are borrowed until the
 * job_spec is made. */
struct node_assignment {
    const char *by;        /* its source, for messages */
    const char *name;      /* the node's */
    const char *nodes;     /* as of --nnodes */
    const char *node_rank; /* as of --node-rank; NULL: names decide */
    const char *n_ranks;   /* as of -p; NULL: according to the options, or to the node */
    const char *endpoint;  /* HOST:PORT, where the roster is; with may_move a list */
    const char *run_id;
    bool has_roster; /* the rendezvous is in this process */
    bool is_whole;   /* also gives the directory, the environment and the secret */
    bool may_move;   /* another node may replace the coordinator: `endpoint` is a node of the job,
                        and is started again under this name */
};

#endif
