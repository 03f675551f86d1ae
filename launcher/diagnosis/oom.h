/* oom.h - did the kernel's OOM killer end a rank? The answer comes from the counters of its control
 * groups and the kernel log. Pure; oom_watch.h reads them.
 *
 * Words:
 *   level   the control group of the ranks that counts memory, level 0, or one above it
 *   kill    the OOM killer ended a process of a level; with cgroup v2 also of one below it
 *   hit     an allocation reached the limit of a level: v2 counts those that failed, at the level
 *           and at all above; v1 also those for which memory could be freed */
#ifndef DDP_LAUNCHER_DIAGNOSIS_OOM_H
#define DDP_LAUNCHER_DIAGNOSIS_OOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* --- the kernel log --- */

/* What the kernel log reports about the processes that its OOM killer ended. Pure.
 *
 *     6,812,1106524895,-;oom-kill:constraint=CONSTRAINT_MEMCG,...,oom_memcg=/a,task_memcg=/a/b,
 *         task=python3,pid=1459,uid=0
 *     3,813,1106524925,-;Memory cgroup out of memory: Killed process 1459 (python3)
 *         total-vm:118968kB, anon-rss:32512kB, file-rss:6644kB, shmem-rss:0kB, UID:0 ...
 *
 * The kernel limits the rate of the first line, and kernels before 4.20 do not write it. Lines that
 * the kernel did not write itself, but a process wrote into /dev/kmsg, are skipped: any process
 * with that permission could name any other process. */

enum {
    OOM_LOG_VICTIMS = 16,  /* the last ones are kept */
    OOM_GROUP_BYTES = 512, /* of a control group's path, with its end; longer ones are cut */
    OOM_NAME_BYTES = 64    /* of a process; 15 characters, some of them as \xNN */
};

enum oom_scope { OOM_SCOPE_UNKNOWN, OOM_SCOPE_GROUP, OOM_SCOPE_NODE }; /* whose memory ran out */

struct oom_victim {
    pid_t pid;                         /* as the node counts, outside of containers */
    char name[OOM_NAME_BYTES];         /* "" until its second line is seen */
    uint64_t anon_bytes;               /* memory of its own ... */
    uint64_t file_bytes;               /* ... of files that it had mapped ... */
    uint64_t shmem_bytes;              /* ... and shared */
    enum oom_scope scope;              /* OOM_SCOPE_GROUP: a control group reached its limit ... */
    char limit_group[OOM_GROUP_BYTES]; /* ... which; "" if it is not known */
    char process_group[OOM_GROUP_BYTES]; /* where the process was; "" if it is not known */
};

struct oom_log {        /* zeroed: nothing read yet */
    unsigned n_victims; /* ever; the last of them are at their number modulo OOM_LOG_VICTIMS */
    struct oom_victim victims[OOM_LOG_VICTIMS];
};

/* Take whole records, each ended by a newline or by the end of the bytes. */
void oom_log_add(struct oom_log *log, const char *bytes, size_t n);

/* The last victim of a number, or the last one in a control group or below it; borrowed, NULL: no
 * such victim. */
const struct oom_victim *oom_log_find_pid(const struct oom_log *log, pid_t pid);
const struct oom_victim *oom_log_find_in(const struct oom_log *log, const char *group);

/* How many of the victims that are kept were in a control group or below it. */
unsigned oom_log_count_in(const struct oom_log *log, const char *group);

/* --- the finding --- */

#define OOM_UNKNOWN UINT64_MAX /* a number that cannot be had, a limit that is none */

enum { OOM_LEVELS_MAX = 16 }; /* more are not looked at */

struct oom_level {
    size_t n_path;                                 /* its path: so much of oom_groups.path */
    uint64_t kills, hits;                          /* since it was made */
    uint64_t limit_bytes, peak_bytes, usage_bytes; /* peak: also since it was made */
    bool no_swap; /* v1: memory and swap together have no higher limit than memory alone. New
                     kernels do not count its hits */
};

struct oom_groups { /* zeroed: none */
    int version;    /* of the control groups: 1, 2 */
    int n_levels;
    char path[OOM_GROUP_BYTES]; /* of level 0; "" is the top */
    struct oom_level levels[OOM_LEVELS_MAX];
};

/* The number after a name in a text of lines "NAME NUMBER" or "NAME: NUMBER kB" (converted to
 * bytes), OOM_UNKNOWN if it is missing. */
uint64_t oom_parse_field(const char *text, const char *name);

/* The number that a text is; "max" and what version 1 shows for no limit are OOM_UNKNOWN. */
uint64_t oom_parse_bytes(const char *text);

enum oom_blame {
    OOM_BLAME_NONE,    /* nothing hints at the OOM killer */
    OOM_BLAME_PERHAPS, /* the rank died of SIGKILL before anybody looked at the counters; they are
                          not zero, which may be older */
    OOM_BLAME_OTHER,   /* it ended another process of the ranks' control group, while they ran */
    OOM_BLAME_RANK     /* it ended the rank */
};

/* What is known. */
struct oom_case {
    const struct oom_groups *before; /* when the ranks were started; NULL: not read */
    const struct oom_groups *after;  /* at the failure */
    const struct oom_log *log;       /* of the time between; NULL: it cannot be read */
    pid_t pid;                       /* of the rank that failed */
    bool killed;                     /* it died of SIGKILL, which ddprun had not sent */
};

struct oom_finding {
    enum oom_blame blame;
    int version; /* of the control groups */

    /* In the ranks' group since their start; PERHAPS: since it was made. OOM_UNKNOWN: only the log
     * has it. */
    uint64_t n_kills;

    /* OOM_SCOPE_UNKNOWN: no limit that is seen from here was reached. OOM_SCOPE_GROUP: that of
     * `group`, "/" for the top, "" if it is not known, with its figures, if those are. */
    enum oom_scope scope;
    char group[OOM_GROUP_BYTES];
    uint64_t limit_bytes, peak_bytes, usage_bytes;

    struct oom_victim victim; /* pid 0: the log has none */

    /* Filled by the caller: */
    uint64_t node_bytes; /* the node's memory */
    int victim_rank;     /* OOM_BLAME_OTHER: the victim was this rank; -1: it was none */
};

/* Should the log be read? It takes time, and is of no use where the counters have not moved. */
bool oom_wants_log(const struct oom_case *c);

/* Judge it. Never fails: what cannot be determined is OOM_BLAME_NONE, and not known. */
void oom_find(const struct oom_case *c, struct oom_finding *ret);

#endif
