/* job_spec.h - what was asked of ddprun, checked: the answer of cli.h, the input of all else.
 *
 * Plain data. Made by cli_parse(), freed by job_spec_fini(). Texts and lists marked "owned" belong
 * to it. Ranks here are local ranks. */
#ifndef DDP_LAUNCHER_JOB_JOB_SPEC_H
#define DDP_LAUNCHER_JOB_JOB_SPEC_H

#include "launcher/health/health_checks.h"
#include "launcher/hosts/host_list.h"
#include "launcher/hosts/remote_shell.h"
#include "launcher/placement/placement.h"
#include "output_spec.h"

#include "rendezvous/membership/message.h"
#include "rendezvous/net/allow.h"

#include <stdbool.h>
#include <stdint.h>

struct binding;
struct co_error;
struct seal_key;
struct slurm_task;
struct wrap;

#define JOB_RANKS_MAX 1024 /* of one node */

/* What one rank may save in memory, as segments/checkpoint_memory.h allows it. */
#define MEMORY_CHECKPOINT_MIN ((uint64_t)1 << 12)
#define MEMORY_CHECKPOINT_MAX ((uint64_t)1 << 40)

#define JOB_FAILURE_DUMP_MS 10000 /* for so long, failed jobs run on for --on-failure-dump */

/* Bytes of NAME=VALUE: the kernel's MAX_ARG_STRLEN, 32 pages of 4 KiB, without the NUL. */
#define JOB_VARIABLE_MAX 131071

enum store_choice {
    STORE_AUTO,  /* a world of 1: none; else in ddprun */
    STORE_AGENT, /* in ddprun */
    STORE_WORKER /* rank 0 of the script hosts it, as it would without a launcher */
};

enum store_relay_choice { RELAY_OFF, RELAY_ON };

enum failure_action { FAILURE_REPLACES, FAILURE_SHRINKS, FAILURE_RESTARTS, FAILURE_ABORTS };

enum warm_choice { WARM_NEVER, WARM_RESTARTS, WARM_START };

/* torch's worker server in ranks: AUTO is where it may be needed. Not with warm ranks. */
enum worker_server_choice { WORKER_SERVER_AUTO, WORKER_SERVER_ON, WORKER_SERVER_OFF };

/* Is an argument {rank} filled in? */
enum template_rule {
    TEMPLATES_AUTO, /* of a program that is executed; not of Python scripts, not as torchrun */
    TEMPLATES_YES,
    TEMPLATES_NO
};

enum signal_scope { SCOPE_PROCESS, SCOPE_GROUP };

/* In whose process is the roster? */
enum job_host {
    JOB_HOST_FOUND_OUT, /* this one's, if the endpoint leads here and no other process has it */
    JOB_HOST_HERE,      /* this one's, wherever the endpoint seems to lead */
    JOB_HOST_ELSEWHERE, /* another one's */
};

/* How a node connects to etcd: what --rdzv-conf contains about it. */
enum { ETCD_SETTING_BYTES = 256 }; /* size of each text, with the NUL */

struct etcd_settings { /* an empty text: not given */
    bool is_https;
    char ca_cert[ETCD_SETTING_BYTES], cert[ETCD_SETTING_BYTES], key[ETCD_SETTING_BYTES]; /* files */
    char user[ETCD_SETTING_BYTES];
    char password[ETCD_SETTING_BYTES];
    char password_file[ETCD_SETTING_BYTES]; /* whose first line is it */
    char prefix[ETCD_SETTING_BYTES];        /* prefix of all keys, without a slash at its end */
};

/* What a node checks before it takes part in a generation. Nothing: it is always fit. */
struct health_spec {
    char *command;                /* owned; --health-check; NULL: none */
    uint64_t timeout_ms;          /* of a check */
    struct health_checks builtin; /* owned */
};

/* --http */
struct http_spec {
    char host[64]; /* "localhost": both loopback addresses; or a numeric address */
    uint16_t port; /* 0: any free one */
    bool is_weak;  /* of a variable: a job that cannot serve it runs without */
};

/* For server_opts.host_advice. */
#define JOB_HTTP_HOST_ADVICE "start the job with --http-host"

/* Where a process of the job may also be asked which one coordinates. */
struct job_endpoint {
    char host[MESSAGE_HOST_BYTES];
    uint16_t port; /* not 0 */
};

enum { JOB_MAX_ENDPOINTS = 16 }; /* of a list, the first one included */

/* How this node finds the others. Zeroed: it is alone, with a roster in its own process. */
struct job_world {
    bool has_others;    /* other nodes may join (docs/design/membership.md) */
    uint32_t min_nodes; /* 1 <= min <= max <= MESSAGE_MAX_NODES; max may be 1 */
    uint32_t max_nodes;
    uint64_t window_ms;         /* wait for late nodes once min_nodes have joined */
    uint64_t start_timeout_ms;  /* to find the roster, and for nodes to come; > 0 */
    uint64_t rejoin_timeout_ms; /* when too few are left */
    uint64_t seek_ms; /* with `failover`: a node without a coordinator looks for one so long */
    uint64_t failover_timeout_ms; /* ranks run on so long without a daemon that is being replaced */
    enum message_admit_at admit_at;
    uint64_t admit_timeout_ms;  /* SCALE_AT_CHECKPOINT: wait so long for it; 0: for good */
    uint32_t exclude_after;     /* a node is done without after so many failures; 0: none is ... */
    uint64_t exclude_window_ms; /* ... in so many last ms; 0: ever */
    uint32_t spares;            /* nodes that wait for a place, besides max_nodes */
    uint32_t segment;    /* only whole groups of so many nodes of one domain take part; 0: any */
    char *domain_rule;   /* owned; which domain this is: domain_rule.h; NULL without segments */
    char *domain;        /* owned; the domain itself; NULL: unknown yet */
    int32_t node_rank;   /* --node-rank; MESSAGE_NO_RANK: none */
    char *node_name;     /* owned; in messages, and for the order of ranks: printable ASCII without
                            blanks, not empty. NULL: the host's name up to its first dot */
    char *local_addr;    /* owned; a name or address by which other nodes reach this one; NULL: the
                            address by which it reaches the roster */
    char *endpoint_host; /* owned; where the roster is looked for: a name or an address */
    uint16_t endpoint_port;    /* not 0 */
    struct job_endpoint *also; /* owned; with `failover`: n_also more endpoints */
    uint32_t n_also;
    const char *unsaid;         /* this option was not given, so endpoint_host is this machine;
                                 * static. NULL: it was given */
    struct etcd_settings *etcd; /* owned; etcd is used, and decides which node has the roster; NULL:
                                 * no etcd */
    bool failover;         /* c10d: another node replaces a coordinator that is lost or leaves */
    bool failover_alone;   /* ... also the last one of two nodes, without an answer of the other */
    bool endpoint_once;    /* ... since no process at the endpoint begins the job a second time; */
    bool endpoint_guessed; /* that was not given */
    uint64_t host_timeout_ms; /* with `failover`: a node whose host does not answer for so long is
                                 lost; 0: its lease decides */
    bool comes_again; /* something starts this node again under its name and --node-rank, perhaps
                       * before the process before has ended */
    enum job_host host;
    uint64_t keep_alive_ms; /* for a roster in this process, and how long a lease is; 0: the
                            * default */
    uint64_t lease_ms;      /* more than keep_alive_ms; both are 0, or none is */
    char *token_file;       /* owned; --token-file; NULL: none */
    struct seal_key *key;   /* owned; of a token, set by secret_find(); NULL: in the clear */
    bool require_token;     /* no token, no job */
    struct allow_list *store_allow; /* owned; the addresses that may also use the store; NULL:
                                     * none */
    bool keeps_rank_0;              /* MASTER_ADDR is this node's, by the command line */
    bool ends_job; /* it has started the others: a signal to it ends the whole job */
    int launch_fd; /* borrowed; from the ddprun that started this one, which also prints what
                    * concerns the whole job (launch_wire.h); 0: none */
};

/* --bcast: is the program sent to hosts that are reached by ssh? */
enum remote_send {
    REMOTE_SEND_AUTO,   /* where no compatible ddprun is installed, if one can be sent */
    REMOTE_SEND_NEVER,  /* ddprun has the same path as here */
    REMOTE_SEND_ALWAYS, /* what is installed there does not count */
};

struct remote_spec {         /* the hosts that this ddprun starts others on */
    struct host_list hosts;  /* owned; those that take part */
    uint32_t *shares;        /* owned; ranks by host; UINT32_MAX: the host finds out itself */
    struct remote_shell way; /* its command is owned, one block; a host that has not answered after
                              * reach_ms (> 0) is abandoned */
    enum remote_send send;
    char *const *argv; /* borrowed; ours, which the others also read; NULL-terminated */
};

/* --- several programs in one job: those of the ranks after the first program's --- */

#define JOB_PROGRAMS_MAX 32 /* the first one included */

/* What a rank executes: lent by the job. */
struct job_program {
    const char *path;
    char *const *argv; /* NULL-terminated */
    const char *shown;
    int n_program_words;
    bool has_templates, fills_braces;
};

struct mpmd {
    int n; /* >= 1 */
    struct {
        int first_rank;             /* on this node; up to the next one's */
        struct job_program program; /* its texts are owned */
    } of[JOB_PROGRAMS_MAX - 1];
    char **words; /* owned, one block: those of all programs, ":" between them; NULL until they are
                * joined */
};

/* How a job ended: that of node_run(), or of remote_run(). */
struct node_end {
    int exit_code; /* what the job's end means; under the name torchrun 1 for any failure */
    int die_of;    /* the signal that stopped us, of which we should die now; 0: none */
};

/* What ddprun serves. */
enum mpi_choice {
    MPI_BY_NOTHING,
    MPI_BY_PMI1,
    MPI_BY_PMIX,
};

struct job_spec {
    bool as_torchrun;      /* started under the name torchrun: its defaults and its exit status 1 */
    const char *called_as; /* argv[0]; borrowed, and used to read the command line only */
    bool dry_run;          /* show what would be started, start nothing */
    int verbose;           /* -v: 1, -vv: 2 */
    char *notes;           /* owned; warnings about the command line, whole lines; NULL: none */

    /* ranks and the environment */
    int n_local;       /* ranks on this node, 1 .. JOB_RANKS_MAX */
    char *run_id;      /* owned; never empty; no control characters, but '/' may be in it */
    char *role;        /* owned; "default"; may be empty */
    char *backend;     /* owned; --rdzv-backend as it was given, for events; "static" */
    char *master_addr; /* owned; with one node a name of the loopback: "127.0.0.1", or "localhost"
                        * if requested; with several what was given, NULL: rank 0's node decides */
    uint16_t master_port; /* of the store; 0: any free one */
    enum store_choice store;
    enum store_relay_choice store_relay; /* of several nodes; what the node with rank 0 has */
    bool encrypt;    /* ranks on several nodes encrypt what they send each other */
    int omp_threads; /* OMP_NUM_THREADS for workers that have none; 0: leave it alone */
    bool omp_asked;  /* by --omp: an OMP_NUM_THREADS that is there already is replaced */
    enum placement_bind bind;
    bool report_bindings;
    struct binding *binding; /* owned; set by job_spec_set_binding(); NULL: not requested */
    char *gpus;              /* owned; --gpus: CUDA_VISIBLE_DEVICES for the ranks; NULL: ours */
    bool virtual_local_rank; /* each rank has LOCAL_RANK 0 and one device in CUDA_VISIBLE_DEVICES */

    struct job_world world;

    struct remote_spec *remote; /* owned; this ddprun starts others, and no ranks itself; n_local is
                                   the most that one of them has, the program is not looked at.
                                   NULL: it is a node */
    struct slurm_task
        *task;            /* owned; this ddprun becomes a rank that Slurm has started; NULL: no */
    const char **exports; /* owned, NULL-terminated; NAME or NAME=VALUE of argv, for the ranks */
    char *wdir;           /* owned; where to start; NULL: here */

    /* the program: see rank_argv.h for what one rank gets */
    char *path;  /* owned; what is executed: absolute, or as it was given if it holds a '/' */
    char **argv; /* owned, one block, NULL-terminated; argv[0] as the program shall see it */
    char *shown; /* owned; the program's name for messages: the script, the module, the program */
    int n_program_words;   /* argv up to here is the program, the rest are its arguments */
    bool is_python;        /* path is a Python that we chose, argv has what it runs */
    enum warm_choice warm; /* may ranks be forked from a parent that has imported what they need? */
    bool has_templates;    /* ranks have other arguments: see rank_argv.h */
    enum template_rule templates;
    bool fills_braces;    /* {rank} and the like are filled in: what `templates` comes to */
    struct mpmd *more;    /* owned; the programs of other ranks; NULL: all have this */
    enum mpi_choice mpi;  /* how the ranks of an MPI program find each other */
    struct wrap *wrap;    /* owned, and its path; in front of some ranks' words; NULL: no rank's */
    char *local_rank_arg; /* owned; "--local_rank": NAME=<n> becomes the first argument; NULL: no */

    /* restarts and the end */
    int max_restarts;           /* failures of ranks that start all ranks again; 0: none */
    uint64_t restart_window_ms; /* count only failures of so many last ms; 0: of the whole job */
    enum failure_action on_failure; /* ABORTS: max_restarts is 0, and no failure is free */
    uint64_t recovery_ms; /* REPLACES, SHRINKS: from a failure until all others have noticed it */
    uint64_t hang_timeout_ms;    /* a rank that does not move so long is ended; 0: never */
    bool hang_learns;            /* that is the longest; hang.h finds a shorter one */
    uint64_t uninterruptible_ms; /* one that the kernel keeps asleep so long is ended; 0: never */
    char *timer_file;            /* owned; torch's timers are served at this path, "": at one of
                                  * ours; NULL: not served */
    int n_standby;               /* processes that wait for a rank that fails */
    uint64_t memory_checkpoint_bytes; /* of the largest state that a rank saves in memory; 0: none
                                         is saved there */
    bool restart_after_progress; /* a failure after progress is not counted; restart_policy.h */
    uint32_t no_progress;        /* end after so many generations without a new step; 0: never */
    uint64_t output_after_ms;    /* what a rank writes so long after its start is progress */
    bool no_restart_on[256];     /* by the exit status that the failure means for ddprun (a rank's,
                                  * or 128 + its signal): the job ends at once */
    uint64_t timeout_ms;         /* stop the job so long after its start, exit 124; 0: never */
    uint64_t grace_ms;           /* after a signal: from forwarding it to SIGKILL */
    uint64_t on_term_ms;         /* before that: to save their state; 0: they are not asked */
    struct health_spec health;   /* owned */
    uint64_t failure_grace_ms;   /* after a failed rank: from SIGTERM to SIGKILL */
    uint64_t stop_signals; /* bit N: signal N, passed on, ends the job. TERM, INT, HUP and QUIT
                                    always; never KILL, STOP, CHLD, CONT, WINCH, nor a fault's */
    bool under_slurm; /* which may send a signal to each process of a step, and more than once */
    char *signals_to_handle;        /* owned; TORCHELASTIC_SIGNALS_TO_HANDLE, as it was given */
    enum signal_scope signal_scope; /* which processes get the first signal: a rank's main process,
                                     * or its process group */

    struct output_spec output; /* owned; where the ranks' output is sent, and which rank reads our
                                * stdin */

    /* seeing */
    char *events;            /* owned; --events, a path for JSON lines; NULL: none */
    bool event_log;          /* --event-log-handler console: torchrun's records on stderr */
    struct http_spec *http;  /* owned; NULL: none */
    uint64_t trainjob_steps; /* --trainjob-progress: of the whole training; 0: nothing is posted */
    char *http_hosts;        /* owned; --http-host, as host_names.h has it; NULL: not given */
    char *report;            /* owned; --report, a path for the report as JSON; NULL: none */
    char *failure_dump;      /* owned; --on-failure-dump, a directory; NULL: none */
    enum worker_server_choice worker_server;
};

/* Of the rank with this local number. */
struct job_program job_spec_program(const struct job_spec *spec, int local_rank);

/* All words, with ":" between programs; lent. */
char *const *job_spec_words(const struct job_spec *spec);

/* Does ddprun serve the store of a generation of so many ranks? */
bool job_spec_agent_store(const struct job_spec *spec, uint32_t world_size);

/* May ranks live on when others fail, or when nodes join and leave? */
bool job_spec_recovers(const struct job_spec *spec);

/* Does this node check its health? */
bool job_spec_checks(const struct job_spec *spec);

/* May the ranks be asked to save their state? The same on all nodes of a job, whatever else differs
 * between nodes: the ranks agree on the answer together. */
bool job_spec_asks(const struct job_spec *spec);

/* What the whole job agrees to. */
void job_spec_terms(const struct job_spec *spec, struct message_terms *ret);

/* Take the binding of the ranks, and lower an OMP_NUM_THREADS that no option requested to what each
 * rank has. */
void job_spec_set_binding(struct job_spec *spec, struct binding *binding);

void job_spec_fini(struct job_spec *spec); /* a zeroed one is fine; it is zeroed afterwards */

/* --- several programs --- */

/* Add the program of the ranks from first_rank on, more than any before. Made with the first.
 *
 * program   its texts are taken over, unless that fails
 * returns   0; -EINVAL: too many; -ENOMEM */
int mpmd_add(struct mpmd **more, int first_rank, const struct job_program *program,
             struct co_error *err);

/* Make `words`; first are those of the job's first program. returns 0, -ENOMEM */
int mpmd_join(struct mpmd *m, char *const *first, struct co_error *err);

/* The first rank of the next program. returns INT_MAX: no next program */
int mpmd_end(const struct mpmd *m, int local_rank);

#endif
