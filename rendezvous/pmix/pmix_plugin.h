/* pmix_plugin.h - the interface between ddprun and ddprun-pmix.so.
 *
 * The plug-in is libpmix's server for the ranks of one node. It is loaded only for programs that
 * need it: loading and initializing libpmix takes longer than ddprun takes to start. Both come from
 * one build; the version is checked because an installation may be only half updated.
 *
 * libpmix calls its host from threads of its own. The plug-in records what ranks do there, and
 * ddprun reads it in its own loop: fd() becomes readable, then drain(), look() and take_fence().
 * Nothing is called back.
 *
 *     open()                          once in a process: libpmix cannot be initialized again
 *         begin()                     a generation, which is a namespace of PMIx
 *             variables()             for the environment of its ranks
 *             look(), take_fence(), end_fence(), answer_aborts()
 *         end()
 *     close() */
#ifndef DDP_RENDEZVOUS_PMIX_PMIX_PLUGIN_H
#define DDP_RENDEZVOUS_PMIX_PMIX_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;
struct pmix_plugin_server; /* opaque */

#define PMIX_PLUGIN_VERSION 2
#define PMIX_PLUGIN_SYMBOL  "ddprun_pmix_plugin" /* a struct pmix_plugin */

#define PMIX_PLUGIN_MAX_FENCES 64 /* that ranks have begun, and that are not over */

struct pmix_plugin_config { /* borrowed for the call */
    const char *node_name;  /* unique in the job; of pmix_names.h */
    const char *directory;  /* where libpmix keeps its files: exists, open to this user only */
};

struct pmix_plugin_node {
    const char *name; /* of its config */
    uint32_t n_ranks; /* consecutive, in the order of the nodes */
};

struct pmix_plugin_job { /* borrowed for the call */
    const char *nspace;  /* the same on all nodes; cannot be guessed; of no other generation */
    const struct pmix_plugin_node *nodes;
    uint32_t n_nodes, node;  /* node < n_nodes: this one */
    const int *appnum;       /* the program of each rank of the job; NULL: there is one */
    const char *directory;   /* for files of the ranks; exists. Each gets a directory in it */
    const char *const *cpus; /* of each local rank, as "0-3,8"; NULL: they are not bound */
    bool is_oversubscribed;  /* ranks of this machine outnumber its CPUs */
};

enum pmix_plugin_state {
    PMIX_PLUGIN_SILENT, /* has not called PMIx_Init */
    PMIX_PLUGIN_INSIDE,
    PMIX_PLUGIN_FINALIZED,
};

/* What a rank asked for, and was refused. Bits. */
enum pmix_plugin_refused {
    PMIX_PLUGIN_SPAWN = 1,
    PMIX_PLUGIN_PUBLISH = 2, /* or look up a name */
    PMIX_PLUGIN_CONNECT = 4,
    PMIX_PLUGIN_MODEX = 8, /* data of a single rank of another node */
    PMIX_PLUGIN_FENCE = 16 /* over some of the ranks */
};

struct pmix_plugin_rank {
    enum pmix_plugin_state state;
    bool has_aborted; /* it waits for answer_aborts() */
    int exit_code;    /* has_aborted: as it was given */
    unsigned refused;
};

/* All ranks of this node have entered a fence. */
struct pmix_plugin_fence {
    uint64_t id;          /* counted from 1 in a generation */
    const uint8_t *bytes; /* what they bring; lent until end_fence() or end() */
    size_t len;
};

struct pmix_plugin {
    uint32_t version;

    /* returns   0
     *           -ELIBBAD   libpmix has another major version than the one that this was built with
     *           -EMFILE    so many files are open that this libpmix would abort
     *           -EIO       libpmix cannot start; -ENOMEM */
    int (*open)(const struct pmix_plugin_config *config, struct pmix_plugin_server **ret,
                struct co_error *err);

    /* No generation is under way. returns 0, -EIO, -ENOMEM */
    int (*begin)(struct pmix_plugin_server *s, const struct pmix_plugin_job *job,
                 struct co_error *err);

    /* "NAME=VALUE", NULL-terminated: what ranks need in their environment besides PMIX_RANK, which
     * is the rank in the job. Lent until end(). */
    char *const *(*variables)(const struct pmix_plugin_server *s);

    /* Readable when a rank has done something since drain(). */
    int (*fd)(const struct pmix_plugin_server *s);
    void (*drain)(struct pmix_plugin_server *s);
    struct pmix_plugin_rank (*look)(struct pmix_plugin_server *s, int local_rank);

    /* returns   whether there was a fence that was not taken yet; in the order they came */
    bool (*take_fence)(struct pmix_plugin_server *s, struct pmix_plugin_fence *ret);

    /* Release the ranks from it. bytes: what the ranks of all nodes bring, one after the other,
     * owned by the plug-in from here on; NULL and len 0: nothing. failed: their calls return an
     * error. */
    void (*end_fence)(struct pmix_plugin_server *s, uint64_t id, uint8_t *bytes, size_t len,
                      bool failed);

    /* Let the ranks that have aborted end, and those that abort later in this generation. Until
     * then they wait, with their connections to others. */
    void (*answer_aborts)(struct pmix_plugin_server *s);

    /* Fences that are left fail. Ranks that live can do nothing more. */
    void (*end)(struct pmix_plugin_server *s);

    const char *(*library)(const struct pmix_plugin_server *s); /* libpmix's version: "4.2.2" */
    void (*close)(struct pmix_plugin_server *s);                /* NULL is fine */
};

#endif
