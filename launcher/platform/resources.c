#include "resources.h"

#include "gpus.h"

#include "common/cpu_quota.h"
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

/* Quotas are rounded down: ranks or threads beyond the whole CPUs have all of them throttled, and
 * each step waits for the slowest. */
int resources_n_cpus(const char *root, int affinity)
{
    int n = affinity > 0 ? affinity : resources_affinity();
    struct co_cpu_quota quota;
    if (co_cpu_quota_read(root, &quota) < 0)
        return n;
    int64_t n_whole = co_cpu_quota_floor(&quota);
    n_whole = n_whole < 1 ? 1 : n_whole;
    return n < n_whole ? n : (int)n_whole;
}

static bool is_gpu_node(const char *name)
{
    return strncmp(name, "nvidia", 6) == 0 && name[6] != '\0' &&
           name[6 + strspn(name + 6, "0123456789")] == '\0';
}

static bool is_visible_entry(const char *name)
{
    return name[0] != '.';
}

static int count_entries(const char *root, const char *dir, bool (*is_one)(const char *name))
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s%s", root, dir);
    co_autoclose_dir DIR *d = opendir(path);
    int n = 0;
    for (struct dirent *e; d != NULL && n < GPUS_MAX && (e = readdir(d)) != NULL;)
        n += is_one(e->d_name);
    return n;
}

int resources_n_gpus(const char *root, const char *visible)
{
    int there = count_entries(root, "/dev", is_gpu_node);
    if (there == 0)
        there = count_entries(root, "/proc/driver/nvidia/gpus", is_visible_entry);
    if (there == 0)
        there = gpus_n_others(root);
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
