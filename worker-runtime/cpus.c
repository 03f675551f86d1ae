#include "cpus.h"

#include "common/scope.h"

#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cpus_get_mask(struct cpus_mask *ret)
{
    *ret = (struct cpus_mask){0};
    if (sched_getaffinity(0, sizeof *ret, (cpu_set_t *)ret) != 0)
        *ret = (struct cpus_mask){0};
}

unsigned cpus_count(const struct cpus_mask *mask)
{
    unsigned n = 0;
    for (size_t i = 0; i < sizeof mask->word / sizeof *mask->word; i++)
        n += (unsigned)__builtin_popcountll(mask->word[i]);
    return n;
}

unsigned cpus_parse_max(const char *text)
{
    char *end;
    long long quota = strtoll(text, &end, 10);
    if (end == text || quota <= 0)
        return UINT_MAX;
    long long period = strtoll(end, &end, 10);
    if (period <= 0 || quota / period >= INT_MAX)
        return UINT_MAX;
    return (unsigned)((quota + period - 1) / period);
}

static bool read_text(const char *path, char *text, size_t size)
{
    co_autoclose FILE *f = fopen(path, "re");
    if (f == NULL)
        return false;
    size_t n = fread(text, 1, size - 1, f);
    text[n] = '\0';
    return n > 0;
}

/* The tightest cpu.max from a cgroup up to the root. */
static unsigned quota_v2(char *cgroup)
{
    unsigned least = UINT_MAX;
    for (;;) {
        char path[PATH_MAX], text[64];
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", cgroup);
        if (read_text(path, text, sizeof text) && cpus_parse_max(text) < least)
            least = cpus_parse_max(text);
        char *slash = strrchr(cgroup, '/');
        if (slash == NULL)
            return least;
        *slash = '\0';
    }
}

static unsigned quota_v1(const char *cgroup)
{
    char path[PATH_MAX], quota[32], period[32], text[80];
    snprintf(path, sizeof path, "/sys/fs/cgroup/cpu%s/cpu.cfs_quota_us", cgroup);
    if (!read_text(path, quota, sizeof quota))
        return UINT_MAX;
    snprintf(path, sizeof path, "/sys/fs/cgroup/cpu%s/cpu.cfs_period_us", cgroup);
    if (!read_text(path, period, sizeof period))
        return UINT_MAX;
    snprintf(text, sizeof text, "%lld %lld", atoll(quota), atoll(period));
    return cpus_parse_max(text);
}

unsigned cpus_quota(void)
{
    co_autoclose FILE *f = fopen("/proc/self/cgroup", "re");
    unsigned least = UINT_MAX;
    char line[PATH_MAX / 2];
    while (f != NULL && fgets(line, sizeof line, f) != NULL) { /* "0::/a/b" or "4:cpu,cpuacct:/a" */
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *cgroup = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (cgroup == NULL)
            continue;
        *cgroup++ = '\0';
        unsigned quota = UINT_MAX;
        if (controllers[1] == '\0')
            quota = quota_v2(cgroup);
        else if (strstr(controllers, "cpu") != NULL)
            quota = quota_v1(cgroup);
        if (quota < least)
            least = quota;
    }
    return least;
}
