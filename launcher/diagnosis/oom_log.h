/* oom_log.h - what the kernel log says of the processes that its OOM killer ended. Pure.
 *
 *     6,812,1106524895,-;oom-kill:constraint=CONSTRAINT_MEMCG,...,oom_memcg=/a,task_memcg=/a/b,
 *         task=python3,pid=1459,uid=0
 *     3,813,1106524925,-;Memory cgroup out of memory: Killed process 1459 (python3)
 *         total-vm:118968kB, anon-rss:32512kB, file-rss:6644kB, shmem-rss:0kB, UID:0 ...
 *
 * The first line is rationed, and kernels before 4.20 do not write it. Lines that were not written
 * by the kernel itself, but into /dev/kmsg, are passed over: anybody who may do that could name any
 * process. */
#ifndef DDP_LAUNCHER_DIAGNOSIS_OOM_LOG_H
#define DDP_LAUNCHER_DIAGNOSIS_OOM_LOG_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

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

/* The last victim of a number, or the last one in a control group or below it; borrowed, NULL if
 * there is none. */
const struct oom_victim *oom_log_find_pid(const struct oom_log *log, pid_t pid);
const struct oom_victim *oom_log_find_in(const struct oom_log *log, const char *group);

/* How many of the victims that are kept were in a control group or below it. */
unsigned oom_log_count_in(const struct oom_log *log, const char *group);

#endif
