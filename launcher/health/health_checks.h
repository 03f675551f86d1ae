/* health_checks.h - which facts about a node are checked before it takes part in a generation, the
 * facts, and the rules. Pure.
 *
 * A rule finds a node unhealthy only if a fact that it knows breaks it; what could not be read
 * breaks none. docs/design/health.md has the rules, and which are on by default. */
#ifndef DDP_LAUNCHER_HEALTH_HEALTH_CHECKS_H
#define DDP_LAUNCHER_HEALTH_HEALTH_CHECKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;

enum {
    HEALTH_TEXT_BYTES = 200, /* of a reason; less than this */
    HEALTH_DISKS_MAX = 8,
    HEALTH_LINKS_MAX = 64,
    HEALTH_LINK_BYTES = 40, /* "ib0", "mlx5_0/1" */
    HEALTH_GPUS_MAX = 64,
    HEALTH_FABRIC_BYTES = 64, /* a UUID, and a number */
};

#define HEALTH_UNKNOWN       UINT64_MAX
#define HEALTH_MEMORY_MIN    ((uint64_t)256 << 20)
#define HEALTH_DISK_MIN      ((uint64_t)16 << 20)
#define HEALTH_CLOCK_MAX_MS  1000
#define HEALTH_GPU_KEPT_MAX  ((uint64_t)512 << 20) /* of a GPU's memory, that no process uses */
#define HEALTH_GPU_N_ACTIONS 6                     /* NVML's recovery actions that are known */

/* --- What is checked --- */

struct health_disk {
    char *path; /* owned; NULL: that of the log files */
    uint64_t free_min;
};

struct health_checks { /* zeroed: nothing */
    bool memory, clock, network, gpu;
    uint64_t memory_min, clock_max_ms;
    struct health_disk disks[HEALTH_DISKS_MAX];
    size_t n_disks;
    char (*links)[HEALTH_LINK_BYTES]; /* owned; those that must be up, by name */
    size_t n_links;
};

/* "gpu,disk=/ckpt:2G,memory=8G,clock=500ms,network=ib0", "default" (gpu,disk), "all", "none".
 *
 * what      what the list is called in messages
 * ret       to health_checks_fini(), also after a failure
 * returns   0; -EINVAL; -ENOMEM */
int health_checks_parse(const char *what, const char *list, struct health_checks *ret,
                        struct co_error *err);
void health_checks_fini(struct health_checks *c);
bool health_checks_any(const struct health_checks *c);

/* --- The facts --- */

struct health_disk_facts {
    int error; /* why it cannot be read or written; 0 */
    uint64_t free_bytes;
};

struct health_link_facts {
    char name[HEALTH_LINK_BYTES];
    bool is_up;
};

/* Of a GPU that this job may use. */
struct health_gpu_facts {
    int error;           /* NVML's, of the device itself; 0: it answers */
    uint32_t action;     /* NVML's recovery action; 0: none, or the driver has no such field */
    uint32_t xid;        /* the last one that needs a reset; 0: none while this ddprun ran */
    uint64_t ecc_errors; /* uncorrected ones since the driver was loaded */
    uint64_t used_bytes; /* of its memory */
    uint32_t n_processes;
};

struct health_facts { /* plain data: it travels as it is */
    uint64_t memory_free;
    uint32_t n_disks, n_links, n_gpus;
    struct health_disk_facts disks[HEALTH_DISKS_MAX]; /* as in the checks */
    struct health_link_facts links[HEALTH_LINKS_MAX];
    struct health_gpu_facts gpus[HEALTH_GPUS_MAX];
    char gpu_trouble[HEALTH_TEXT_BYTES]; /* NVML is there, and fails; "": it does not */

    /* The NVLink domain of all GPUs, "CLUSTERUUID.CLIQUE", if it was asked for; or why it is not
     * known. It breaks no rule. */
    char fabric[HEALTH_FABRIC_BYTES];
    char fabric_trouble[HEALTH_TEXT_BYTES];
};

/* The clock of this node, compared with the coordinator's. */
struct health_clock {
    bool is_known;
    int64_t ahead_ms;  /* of the coordinator's, by this ... */
    uint64_t error_ms; /* ... more or less */
};

/* --- The rules --- */

/* log_dir   for messages; NULL: no log files are written
 * first     the facts of this ddprun's first check; NULL: these are they
 * text      of HEALTH_TEXT_BYTES: the reason, the first rule that is broken
 * returns   whether the node is healthy */
bool health_checks_judge(const struct health_checks *c, const char *log_dir,
                         const struct health_facts *first, const struct health_facts *now,
                         const struct health_clock *clock, char *text);

/* Does this Xid mean that the GPU needs a reset? Most are errors of a program. */
bool health_checks_is_fatal_xid(uint64_t xid);

/* Is memory of a GPU in use, and no process has it? It may be given back soon. */
bool health_checks_keeps_memory(const struct health_facts *first, const struct health_facts *now);

#endif
