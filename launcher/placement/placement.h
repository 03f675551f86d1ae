/* placement.h - which CPUs each rank of a node runs on. Pure: the machine, the CPUs that are
 * allowed and where the devices are come in as arguments.
 *
 * Each rank has a home, the memory node that it shares with its device. Ranks without a device, or
 * with one that is as near to all nodes, get their homes by number: as many of them on a node as it
 * has part of the cores, neighbors together. What they are bound to there is the wish. */
#ifndef DDP_LAUNCHER_PLACEMENT_PLACEMENT_H
#define DDP_LAUNCHER_PLACEMENT_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;

/* --- sets of CPUs, as the kernel numbers them --- */

#define CPU_SET_CPUS 8192 /* of a machine; the kernel's own bound */

struct cpu_set { /* bit by bit, in the form of sched_setaffinity(2); zeroed: empty */
    uint64_t word[CPU_SET_CPUS / 64];
};

static inline void cpu_set_add(struct cpu_set *s, unsigned cpu) /* cpu < CPU_SET_CPUS */
{
    s->word[cpu / 64] |= UINT64_C(1) << cpu % 64;
}

static inline bool cpu_set_has(const struct cpu_set *s, unsigned cpu)
{
    return cpu < CPU_SET_CPUS && (s->word[cpu / 64] >> cpu % 64 & 1) != 0;
}

size_t cpu_set_count(const struct cpu_set *s);

/* As the kernel writes it: "0-3,8,10-11"; "" for the empty set.
 *
 * n         bytes at `to`, at least 1: text that does not fit is cut after a number, followed by
 *           "..." if that fits
 * returns   to */
char *cpu_set_print(const struct cpu_set *s, char *to, size_t n);

/* The same read back; a line's end may follow, and "" is the empty set.
 *
 * returns   0; -EINVAL: no such list, or a CPU out of bounds */
int cpu_set_parse(const char *text, struct cpu_set *ret);

/* --- placement --- */

struct topology_cpu { /* what it is part of, each counted from 0 through the machine */
    uint32_t cpu;     /* the kernel's number: < CPU_SET_CPUS */
    uint32_t core;
    uint32_t cache; /* the largest that it shares with other cores; its core without such a cache */
    uint32_t node;  /* of memory: the kernel's number. A CPU that several are as near to has the
                       first of them; 0 on a machine that has none */
    uint32_t socket;
};

struct topology {
    size_t n_cpus;              /* >= 1 */
    struct topology_cpu cpus[]; /* neighbors are next to each other: by socket, node, cache, core */
};

/* torchrun's names for --numa-binding follow those of --bind-to. */
enum placement_bind {
    PLACEMENT_NONE,  /* to all that is allowed: no rank is bound */
    PLACEMENT_CORE,  /* exclusive: the home's cores are shared out, each with all its threads; the
                        first ranks of a home have the ones that are left over */
    PLACEMENT_CACHE, /* core-complex: one of the home's caches each, those with more CPUs first;
                        from the first again where there are more ranks */
    PLACEMENT_NUMA,  /* node: to the home's CPUs */
    PLACEMENT_SOCKET /* socket: to the CPUs of the home's socket */
};

/* --bind-to's, by enum placement_bind; then NULL */
extern const char *const placement_bind_words[];

struct placement_wish { /* all borrowed */
    enum placement_bind bind;
    int n_ranks;                       /* >= 1 */
    const struct cpu_set *allowed;     /* no rank gets another one */
    const struct cpu_set *const *near; /* for each rank: the CPUs that are near to its device; NULL:
                                        * no device, or not known. NULL: for no rank */
};

#define PLACEMENT_NOWHERE (-1) /* on more than one */

struct placement_rank {
    struct cpu_set cpus;
    uint32_t n_cores;
    int32_t node; /* memory node, the kernel's number; or PLACEMENT_NOWHERE */
    int32_t socket;
};

/* ret       n_ranks of them
 * returns   0
 *           -ENODEV   none of the allowed CPUs is in the topology
 *           -ERANGE   PLACEMENT_CORE: more ranks than cores at a rank's home; the text has the
 *                     place
 *           -ENOMEM */
int placement_make(const struct topology *topology, const struct placement_wish *wish,
                   struct placement_rank *ret, struct co_error *err);

#endif
