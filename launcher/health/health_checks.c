#include "health_checks.h"

#include "common/error.h"
#include "common/parse.h"
#include "common/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- The list --- */

struct item { /* "NAME", "NAME=VALUE" */
    const char *what;
    char name[16];
    char value[512]; /* "": none */
    bool has_value;
};

static int add_disk(struct health_checks *c, const struct item *it, struct co_error *err)
{
    struct health_disk *d = &c->disks[c->n_disks];
    uint64_t min = HEALTH_DISK_MIN;
    char path[sizeof it->value];
    snprintf(path, sizeof path, "%s", it->value);
    char *colon = strrchr(path, ':');
    if (c->n_disks == HEALTH_DISKS_MAX)
        return co_fail(err, -EINVAL, "too many disks in %s: expected at most %d", it->what,
                       HEALTH_DISKS_MAX);
    if (colon != NULL) {
        *colon = '\0';
        int rc = co_parse_size(it->what, colon + 1, 1, INT64_MAX, &min, err);
        if (rc < 0)
            return rc;
    }
    if (it->has_value && path[0] != '/')
        return co_fail(err, -EINVAL,
                       "invalid value 'disk=%s' for %s: expected disk=DIR or disk=DIR:SIZE with an "
                       "absolute path",
                       it->value, it->what);
    *d = (struct health_disk){.path = it->has_value ? strdup(path) : NULL, .free_min = min};
    if (it->has_value && d->path == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    c->n_disks++;
    return 0;
}

static int add_link(struct health_checks *c, const struct item *it, struct co_error *err)
{
    c->network = true;
    if (!it->has_value)
        return 0;
    if (c->n_links == HEALTH_LINKS_MAX || it->value[0] == '\0' ||
        strlen(it->value) >= HEALTH_LINK_BYTES)
        return co_fail(err, -EINVAL,
                       "invalid value 'network=%.60s' for %s: expected the name of an interface, "
                       "such as ib0 or mlx5_0/1",
                       it->value, it->what);
    void *grown = realloc(c->links, (c->n_links + 1) * sizeof *c->links);
    if (grown == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    c->links = grown;
    snprintf(c->links[c->n_links++], sizeof *c->links, "%s", it->value);
    return 0;
}

static int refuse_value(const struct item *it, struct co_error *err)
{
    return co_fail(err, -EINVAL, "invalid value '%s=%.60s' for %s: %s has no value", it->name,
                   it->value, it->what, it->name);
}

static int set_default(struct health_checks *c, const struct item *it, struct co_error *err)
{
    c->gpu = true;
    return it->has_value ? refuse_value(it, err) : add_disk(c, it, err);
}

static int set_memory(struct health_checks *c, const struct item *it, struct co_error *err)
{
    c->memory = true;
    c->memory_min = HEALTH_MEMORY_MIN;
    return it->has_value ? co_parse_size(it->what, it->value, 1, INT64_MAX, &c->memory_min, err)
                         : 0;
}

static int set_clock(struct health_checks *c, const struct item *it, struct co_error *err)
{
    c->clock = true;
    c->clock_max_ms = HEALTH_CLOCK_MAX_MS;
    return it->has_value ? co_parse_duration_ms(it->what, it->value, &c->clock_max_ms, err) : 0;
}

static int set_gpu(struct health_checks *c, const struct item *it, struct co_error *err)
{
    c->gpu = true;
    return it->has_value ? refuse_value(it, err) : 0;
}

static int set_all(struct health_checks *c, const struct item *it, struct co_error *err)
{
    c->network = true;
    return set_default(c, it, err) ?: set_memory(c, it, err) ?: set_clock(c, it, err);
}

static int set_none(struct health_checks *c, const struct item *it, struct co_error *err)
{
    (void)c;
    return it->has_value ? refuse_value(it, err) : 0;
}

static const struct {
    const char *name;
    int (*set)(struct health_checks *c, const struct item *it, struct co_error *err);
} kinds[] = {
    {"default", set_default}, {"all", set_all},       {"none", set_none},   {"gpu", set_gpu},
    {"disk", add_disk},       {"memory", set_memory}, {"clock", set_clock}, {"network", add_link},
};

static int take_item(struct health_checks *c, const struct item *it, struct co_error *err)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, it->name) == 0)
            return kinds[i].set(c, it, err);
    return co_fail(err, -EINVAL,
                   "invalid value '%s' for %s: expected gpu, disk, memory, clock, network, "
                   "default, all, or none",
                   it->name, it->what);
}

int health_checks_parse(const char *what, const char *list, struct health_checks *ret,
                        struct co_error *err)
{
    int rc = 0;
    *ret = (struct health_checks){.n_disks = 0};
    for (const char *at = list; rc == 0 && at != NULL;) {
        struct item it = {.what = what};
        const size_t len = strcspn(at, ","), n_name = strcspn(at, ",=");
        it.has_value = n_name < len;
        if (it.has_value && len - n_name - 1 >= sizeof it.value)
            return co_fail(err, -EINVAL, "a value in %s is longer than %zu bytes", what,
                           sizeof it.value - 1);
        snprintf(it.name, sizeof it.name, "%.*s", (int)(n_name < 15 ? n_name : 15), at);
        if (it.has_value)
            snprintf(it.value, sizeof it.value, "%.*s", (int)(len - n_name - 1), at + n_name + 1);
        rc = take_item(ret, &it, err);
        at = at[len] == ',' ? at + len + 1 : NULL;
    }
    return rc;
}

void health_checks_fini(struct health_checks *c)
{
    for (size_t i = 0; i < c->n_disks; i++)
        free(c->disks[i].path);
    free(c->links);
    *c = (struct health_checks){.n_disks = 0};
}

bool health_checks_any(const struct health_checks *c)
{
    return c->memory || c->clock || c->network || c->gpu || c->n_disks > 0;
}

/* --- The rules --- */

/* returns false */
__attribute__((format(printf, 2, 3))) static bool find(char *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(text, HEALTH_TEXT_BYTES, format, args);
    va_end(args);
    co_utf8_clean(text, strlen(text));
    return false;
}

static bool judge_memory(const struct health_checks *c, const struct health_facts *f, char *text)
{
    if (!c->memory || f->memory_free == HEALTH_UNKNOWN || f->memory_free >= c->memory_min)
        return true;
    return find(text, "memory: %" PRIu64 " MiB are free, expected %" PRIu64 " MiB",
                f->memory_free >> 20, c->memory_min >> 20);
}

static bool judge_disks(const struct health_checks *c, const char *log_dir,
                        const struct health_facts *f, char *text)
{
    for (size_t i = 0; i < c->n_disks && i < f->n_disks; i++) {
        const struct health_disk_facts *d = &f->disks[i];
        const char *path = c->disks[i].path != NULL ? c->disks[i].path : log_dir;
        if (path == NULL)
            continue;
        if (d->error != 0)
            return find(text, "disk: %.100s: %s", path, strerror(d->error));
        if (d->free_bytes < c->disks[i].free_min)
            return find(text, "disk: %.100s has %" PRIu64 " MiB free, expected %" PRIu64 " MiB",
                        path, d->free_bytes >> 20, c->disks[i].free_min >> 20);
    }
    return true;
}

static bool judge_clock(const struct health_checks *c, const struct health_clock *clock, char *text)
{
    const uint64_t off =
        clock->ahead_ms < 0 ? 0 - (uint64_t)clock->ahead_ms : (uint64_t)clock->ahead_ms;
    if (!c->clock || !clock->is_known || off <= clock->error_ms ||
        off - clock->error_ms <= c->clock_max_ms)
        return true;
    return find(text, "clock: it is %.3f s %s than the coordinator's (uncertainty %.3f s)",
                (double)off / 1e3, clock->ahead_ms < 0 ? "earlier" : "later",
                (double)clock->error_ms / 1e3);
}

static const struct health_link_facts *find_link(const struct health_facts *f, const char *name)
{
    for (uint32_t i = 0; i < f->n_links; i++)
        if (strcmp(f->links[i].name, name) == 0)
            return &f->links[i];
    return NULL;
}

/* Those that were named, and those that were up when this ddprun began: many ports of a machine
 * have no cable. */
static bool judge_links(const struct health_checks *c, const struct health_facts *first,
                        const struct health_facts *now, char *text)
{
    for (size_t i = 0; i < c->n_links; i++) {
        const struct health_link_facts *l = find_link(now, c->links[i]);
        if (l == NULL || !l->is_up)
            return find(text, "network: %s %s", c->links[i], l == NULL ? "is missing" : "is down");
    }
    for (uint32_t i = 0; c->network && first != NULL && i < first->n_links; i++) {
        const struct health_link_facts *l = find_link(now, first->links[i].name);
        if (first->links[i].is_up && (l == NULL || !l->is_up))
            return find(text, "network: %s was up when ddprun started, and is %s",
                        first->links[i].name, l == NULL ? "missing" : "down");
    }
    return true;
}

/* DRAIN_AND_RESET (4) is not here: work on such a GPU is safe, it only has less capacity. */
static const char *const actions[HEALTH_GPU_N_ACTIONS] = {[1] = "a reset",
                                                          [2] = "a reboot of the node",
                                                          [3] = "its peer-to-peer traffic to end",
                                                          [5] = "a reset of its bus"};

static bool keeps_memory(const struct health_gpu_facts *was, const struct health_gpu_facts *is)
{
    return is->n_processes == 0 && is->used_bytes != HEALTH_UNKNOWN &&
           was->used_bytes != HEALTH_UNKNOWN &&
           is->used_bytes > was->used_bytes + HEALTH_GPU_KEPT_MAX;
}

bool health_checks_keeps_memory(const struct health_facts *first, const struct health_facts *now)
{
    for (uint32_t i = 0; first != NULL && i < now->n_gpus && i < first->n_gpus; i++)
        if (keeps_memory(&first->gpus[i], &now->gpus[i]))
            return true;
    return false;
}

static bool judge_gpu(uint32_t i, const struct health_gpu_facts *was,
                      const struct health_gpu_facts *is, char *text)
{
    if (is->error != 0)
        return find(text, "gpu: GPU %" PRIu32 " does not answer (NVML error %d)", i, is->error);
    if (is->action < HEALTH_GPU_N_ACTIONS && actions[is->action] != NULL)
        return find(text, "gpu: GPU %" PRIu32 " needs %s (recovery action %" PRIu32 ")", i,
                    actions[is->action], is->action);
    if (is->xid != 0)
        return find(text, "gpu: GPU %" PRIu32 " had Xid %" PRIu32 ", which needs a reset", i,
                    is->xid);
    if (was == NULL)
        return true;
    if (is->ecc_errors != HEALTH_UNKNOWN && was->ecc_errors != HEALTH_UNKNOWN &&
        is->ecc_errors > was->ecc_errors)
        return find(text,
                    "gpu: GPU %" PRIu32 " had %" PRIu64 " uncorrectable memory errors since ddprun "
                    "started",
                    i, is->ecc_errors - was->ecc_errors);
    if (keeps_memory(was, is))
        return find(text,
                    "gpu: %" PRIu64 " MiB of GPU %" PRIu32 " are in use, but no process has them",
                    (is->used_bytes - was->used_bytes) >> 20, i);
    return true;
}

static bool judge_gpus(const struct health_checks *c, const struct health_facts *first,
                       const struct health_facts *now, char *text)
{
    if (!c->gpu)
        return true;
    if (now->gpu_trouble[0] != '\0')
        return find(text, "gpu: %s", now->gpu_trouble);
    for (uint32_t i = 0; i < now->n_gpus; i++)
        if (!judge_gpu(i, first != NULL && i < first->n_gpus ? &first->gpus[i] : NULL,
                       &now->gpus[i], text))
            return false;
    if (first != NULL && now->n_gpus < first->n_gpus)
        return find(text, "gpu: %" PRIu32 " GPUs, but there were %" PRIu32 " when ddprun started",
                    now->n_gpus, first->n_gpus);
    return true;
}

bool health_checks_judge(const struct health_checks *c, const char *log_dir,
                         const struct health_facts *first, const struct health_facts *now,
                         const struct health_clock *clock, char *text)
{
    return judge_gpus(c, first, now, text) && judge_links(c, first, now, text) &&
           judge_disks(c, log_dir, now, text) && judge_memory(c, now, text) &&
           judge_clock(c, clock, text);
}

/* NVIDIA's catalog names a reset or a reboot for these, whatever the program did. */
bool health_checks_is_fatal_xid(uint64_t xid)
{
    static const uint64_t fatal[] = {46, 48, 62, 64, 79, 95, 119, 120, 140, 143};
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        if (fatal[i] == xid)
            return true;
    return false;
}
