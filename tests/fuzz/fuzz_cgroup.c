/* Any bytes as a list of control groups, and as a CPU quota. */
#include "common/cgroup.h"
#include "common/cpu_quota.h"
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

static void list(const char *text, size_t n, const char *controller)
{
    struct co_cgroup_entry e;
    if (!co_cgroup_parse(text, controller, &e))
        return;
    if (e.path < text || e.path_len == 0 || e.path + e.path_len > text + n || e.path[0] != '/' ||
        memchr(e.path, '\n', e.path_len) != NULL)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *text = calloc(1, n + 1);
    if (text == NULL)
        return 0;
    memcpy(text, data, n);
    list(text, n, "cpu");
    list(text, n, "memory");
    struct co_cpu_quota q;
    if (co_cpu_quota_parse(text, &q) == 0 &&
        (q.quota_us < 1 || q.period_us < 1 || co_cpu_quota_ceil(&q) < co_cpu_quota_floor(&q)))
        abort();
    free(text);
    return 0;
}
