/* cgroup.h - the control group of this process and those above it, as directories of small files.
 *
 * Version 1 has a hierarchy for each controller, at /sys/fs/cgroup/CONTROLLER; version 2 has one,
 * at /sys/fs/cgroup. Both may be in use, for different controllers. Other mount points are not
 * searched. What the files mean is for their readers. */
#ifndef DDP_COMMON_CGROUP_H
#define DDP_COMMON_CGROUP_H

#include <stdbool.h>
#include <stddef.h>

#define CO_CGROUP_DIR_BYTES 4096 /* of a directory's name, with its end; the kernel's own bound */

struct co_cgroup {
    int version;    /* 1 or 2 */
    size_t n_mount; /* bytes of dir that are the mount point; the group's path follows */
    char dir[CO_CGROUP_DIR_BYTES];
};

struct co_cgroup_entry { /* a line of /proc/PID/cgroup */
    int version;
    const char *path; /* lent from the text: not ended by a NUL */
    size_t path_len;  /* >= 1: it begins with '/' */
};

/* Pure: the group that a controller puts a process in. A controller belongs to one hierarchy:
 * version 1's if a line names it, else version 2's, which names none.
 *
 * text         of /proc/PID/cgroup, NUL-terminated: "4:cpu,cpuacct:/a", "0::/a/b"
 * controller   "cpu", "memory"
 * returns      whether there is one; *ret is written if so */
bool co_cgroup_parse(const char *text, const char *controller, struct co_cgroup_entry *ret);

/* Our own group. Its directory need not exist: in a container the path may be the host's, and the
 * mount point is the container's group. A walk upward passes through it.
 *
 * root      put in front of /proc and /sys; "" except in tests
 * returns   0
 *           -ENOENT         no control groups, or the controller is in none
 *           -ENAMETOOLONG   its directory's name is longer than the bound
 *           -ENOMEM
 *           -errno          /proc/self/cgroup cannot be read */
int co_cgroup_find(const char *root, const char *controller, struct co_cgroup *ret);

/* Go to the group above. returns false at the top, where nothing changes */
bool co_cgroup_up(struct co_cgroup *g);

/* The group's path in its hierarchy, "/" for the top; lent until g changes. */
const char *co_cgroup_path(const struct co_cgroup *g);

/* The beginning of one of the group's files.
 *
 * text      NUL-terminated, cut to size; written on success only
 * returns   its length; -ENOENT: no such group or file; -ENAMETOOLONG; -errno */
int co_cgroup_read(const struct co_cgroup *g, const char *file, char *text, size_t size);

#endif
