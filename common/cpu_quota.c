#include "cpu_quota.h"

#include "cgroup.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { QUOTA_TEXT_BYTES = 128, QUOTA_MAX_DIGITS = 13 };

static const int64_t quota_max_us = 1000000000000;
static const int64_t period_max_us = 1000000; /* the kernel's own bound */

/* Take a number of 1 to max, and the white space after it, from *at. */
static bool take_number(const char **at, int64_t max, int64_t *ret)
{
    size_t n = strspn(*at, "0123456789");
    if (n == 0 || n > QUOTA_MAX_DIGITS)
        return false;
    *ret = strtoll(*at, NULL, 10);
    *at += n;
    bool ends = **at == '\0' || **at == ' ' || **at == '\n';
    *at += strspn(*at, " \n");
    return ends && *ret >= 1 && *ret <= max;
}

int co_cpu_quota_parse(const char *text, struct co_cpu_quota *ret)
{
    struct co_cpu_quota q;
    size_t n_word = strcspn(text, " \n");
    if ((n_word == 3 && memcmp(text, "max", 3) == 0) || (n_word == 2 && memcmp(text, "-1", 2) == 0))
        return -ENOENT;
    if (!take_number(&text, quota_max_us, &q.quota_us) ||
        !take_number(&text, period_max_us, &q.period_us) || *text != '\0')
        return -EINVAL;
    *ret = q;
    return 0;
}

/* The files of one group as co_cpu_quota_parse() wants them. */
static int read_text(const struct co_cgroup *g, char *text, size_t size)
{
    if (g->version == 2)
        return co_cgroup_read(g, "cpu.max", text, size);
    int n = co_cgroup_read(g, "cpu.cfs_quota_us", text, size);
    if (n < 0)
        return n;
    return co_cgroup_read(g, "cpu.cfs_period_us", text + n, size - (size_t)n);
}

static bool is_tighter(const struct co_cpu_quota *a, const struct co_cpu_quota *b)
{
    return a->quota_us * b->period_us < b->quota_us * a->period_us; /* at most 10^18 */
}

int co_cpu_quota_read(const char *root, struct co_cpu_quota *ret)
{
    struct co_cgroup g;
    struct co_cpu_quota q;
    char text[QUOTA_TEXT_BYTES];
    bool found = false;
    int rc = co_cgroup_find(root, "cpu", &g);
    if (rc < 0)
        return rc;
    do {
        if (read_text(&g, text, sizeof text) < 0 || co_cpu_quota_parse(text, &q) < 0)
            continue;
        if (!found || is_tighter(&q, ret))
            *ret = q;
        found = true;
    } while (co_cgroup_up(&g));
    return found ? 0 : -ENOENT;
}
