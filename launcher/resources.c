#include "resources.h"

#include "common/scope.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GPUS_MAX = 256 }; /* of a node; more are not counted */

int resources_affinity(void)
{
    /* the kernel refuses a mask with fewer bits than it has CPUs */
    for (int n = CPU_SETSIZE; n <= 1 << 20; n *= 4) {
        cpu_set_t *set = CPU_ALLOC(n);
        if (set == NULL)
            return 1;
        size_t size = CPU_ALLOC_SIZE(n);
        int rc = sched_getaffinity(0, size, set);
        int error = errno;
        int count = rc == 0 ? CPU_COUNT_S(size, set) : 0;
        CPU_FREE(set);
        if (rc == 0)
            return count > 0 ? count : 1;
        if (error != EINVAL)
            return 1;
    }
    return 1;
}

/* A small file's first line. returns false if there is none */
static bool read_line(const char *path, char *line, size_t size)
{
    co_autoclose FILE *in = fopen(path, "re");
    return in != NULL && fgets(line, (int)size, in) != NULL;
}

static int smaller(int a, int64_t quota, int64_t period)
{
    if (quota <= 0 || period <= 0)
        return a;
    int64_t cpus = quota / period;
    return cpus >= a ? a : cpus < 1 ? 1 : (int)cpus;
}

/* v2: "max 100000" or "150000 100000" */
static int limit_v2(const char *dir, int cpus)
{
    char path[PATH_MAX + 32];
    char line[128];
    long long quota, period;
    snprintf(path, sizeof path, "%s/cpu.max", dir);
    if (read_line(path, line, sizeof line) && sscanf(line, "%lld %lld", &quota, &period) == 2)
        return smaller(cpus, quota, period);
    return cpus;
}

/* v1: a file each; a quota of -1 is none */
static int limit_v1(const char *dir, int cpus)
{
    char path[PATH_MAX + 32];
    char quota[64], period[64];
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", dir);
    if (!read_line(path, quota, sizeof quota))
        return cpus;
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", dir);
    if (!read_line(path, period, sizeof period))
        return cpus;
    return smaller(cpus, strtoll(quota, NULL, 10), strtoll(period, NULL, 10));
}

/* The limits of a group and of all above it. In a container the path may name a directory of the
 * host's, which isn't there: then its root has the container's limits, and we get there, too. */
static int limit_upwards(const char *top, const char *group, int cpus,
                         int (*limit)(const char *dir, int cpus))
{
    char dir[PATH_MAX];
    int n_top = snprintf(dir, sizeof dir, "%s", top);
    int n = snprintf(dir, sizeof dir, "%s%s", top, strcmp(group, "/") == 0 ? "" : group);
    if (n < 0 || n >= (int)sizeof dir)
        return cpus;
    for (;;) {
        cpus = limit(dir, cpus);
        char *slash = strrchr(dir + n_top, '/');
        if (slash == NULL)
            return cpus;
        *slash = '\0';
    }
}

/* Is "cpu" in "cpu,cpuacct"? */
static bool has_controller(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list;; at++) {
        size_t len = strcspn(at, ",");
        if (len == n && memcmp(at, name, n) == 0)
            return true;
        at += len;
        if (*at == '\0')
            return false;
    }
}

int resources_n_cpus(const char *root, int affinity)
{
    int cpus = affinity > 0 ? affinity : resources_affinity();
    char path[PATH_MAX];
    char line[PATH_MAX];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    co_autoclose FILE *in = fopen(path, "re");
    /* a line per hierarchy, "7:cpu,cpuacct:/user.slice"; v2's has no controllers: "0::/user.slice"
     */
    while (in != NULL && fgets(line, sizeof line, in) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL)
            continue;
        controllers++;
        *group++ = '\0';
        if (*controllers == '\0') {
            snprintf(path, sizeof path, "%s/sys/fs/cgroup", root);
            cpus = limit_upwards(path, group, cpus, limit_v2);
        } else if (has_controller(controllers, "cpu")) {
            snprintf(path, sizeof path, "%s/sys/fs/cgroup/cpu", root);
            cpus = limit_upwards(path, group, cpus, limit_v1);
        }
    }
    return cpus;
}

static bool is_number(const char *text)
{
    return *text != '\0' && text[strspn(text, "0123456789")] == '\0';
}

static bool is_gpu_node(const char *name)
{
    return strncmp(name, "nvidia", 6) == 0 && is_number(name + 6);
}

static bool is_visible_entry(const char *name)
{
    return name[0] != '.';
}

static int count_entries(const char *root, const char *dir, bool (*is_one)(const char *name))
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s%s", root, dir);
    DIR *d = opendir(path);
    if (d == NULL)
        return 0;
    int n = 0;
    for (struct dirent *e; n < GPUS_MAX && (e = readdir(d)) != NULL;)
        n += is_one(e->d_name);
    closedir(d);
    return n;
}

int resources_n_gpus(const char *root, const char *visible)
{
    int there = count_entries(root, "/dev", is_gpu_node);
    if (there == 0)
        there = count_entries(root, "/proc/driver/nvidia/gpus", is_visible_entry);
    if (visible == NULL || there == 0)
        return there;

    bool seen[GPUS_MAX] = {false};
    int n = 0;
    for (const char *at = visible; n < GPUS_MAX; at++) {
        at += strspn(at, " ");
        if (strncmp(at, "GPU-", 4) != 0 && strncmp(at, "MIG-", 4) != 0) {
            char *end;
            long index = strtol(at, &end, 10);
            if (end == at || index < 0 || index >= there)
                return n;
            if (seen[index])
                return 0;
            seen[index] = true;
        }
        n++;
        at += strcspn(at, ",");
        if (*at == '\0')
            break;
    }
    return n;
}
