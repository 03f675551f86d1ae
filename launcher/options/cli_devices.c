/* The options about devices and CPUs. */
#include "cli_draft.h"
#include "launcher/job/job_spec.h"
#include "launcher/platform/gpus.h"

#include "common/error.h"
#include "common/parse.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* An entry of a list of devices: up to its comma, without blanks around it. */
struct entry {
    const char *at;
    size_t len;
};

/* Take the next entry from *list. returns false: the list is over */
static bool take_entry(const char **list, struct entry *ret)
{
    if (*list == NULL)
        return false;
    size_t len = strcspn(*list, ",");
    const char *next = (*list)[len] == ',' ? *list + len + 1 : NULL;
    size_t blanks = strspn(*list, " ");
    *ret = (struct entry){*list + blanks, len > blanks ? len - blanks : 0};
    while (ret->len > 0 && ret->at[ret->len - 1] == ' ')
        ret->len--;
    *list = next;
    return true;
}

static bool is_in(const char *list, const struct entry *wanted)
{
    struct entry e;
    while (take_entry(&list, &e))
        if (e.len == wanted->len && memcmp(e.at, wanted->at, e.len) == 0)
            return true;
    return false;
}

/* A number below n_there, or the name of a device or of a part of one. */
static bool is_device(const struct entry *e, int n_there)
{
    static const char name_chars[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                     "0123456789-/";
    char digits[8];
    int64_t number;
    if (e->len > 4 && (strncmp(e->at, "GPU-", 4) == 0 || strncmp(e->at, "MIG-", 4) == 0))
        return strspn(e->at, name_chars) >= e->len;
    if (e->len == 0 || e->len >= sizeof digits)
        return false;
    memcpy(digits, e->at, e->len);
    digits[e->len] = '\0';
    return co_parse_int("GPU", digits, 0, n_there - 1, &number, NULL) == 0;
}

/* Devices outside of the given list belong to another process. */
static int check_device(const struct draft *d, const struct given *g, const struct entry *e,
                        int n_there, struct co_error *err)
{
    int len = e->len < 80 ? (int)e->len : 80;
    const char *name;
    const char *visible = gpus_visible(d->world->get_env, d->world->arg, &name);
    if (visible != NULL && !is_in(visible, e))
        return co_fail(err, -EINVAL, "%s: GPU '%.*s' is not in %s=%.200s", g->by, len, e->at, name,
                       visible);
    if (!is_device(e, visible != NULL ? GPUS_MAX : n_there))
        return co_fail(err, -EINVAL,
                       "invalid value '%.200s' for %s: no GPU '%.*s'; this node has %d GPU%s, and "
                       "their numbers start at 0",
                       g->value, g->by, len, e->at, n_there, n_there == 1 ? "" : "s");
    return 0;
}

int cli_count_gpus(const struct draft *d, int *ret_n, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_GPUS];
    const char *list = g->value;
    struct entry e;
    int n_there = d->world->n_gpus(d->world->arg);
    int n = 0;
    if (g->value != NULL && n_there == 0)
        return co_fail(err, -EINVAL, "%s: no GPU found on this node; check nvidia-smi or rocm-smi",
                       g->by);
    while (take_entry(&list, &e)) {
        int rc = check_device(d, g, &e, n_there, err);
        if (rc < 0)
            return rc;
        if (list != NULL && is_in(list, &e))
            return co_fail(err, -EINVAL, "invalid value '%.200s' for %s: a GPU is listed twice",
                           g->value, g->by);
        n++;
    }
    *ret_n = g->value != NULL ? n : n_there;
    return 0;
}

static int count_entries(const char *list)
{
    struct entry e;
    int n = 0;
    while (take_entry(&list, &e))
        n++;
    return n;
}

static int set_gpus(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    const struct given *g = &d->given[OPTION_GPUS];
    if (g->value == NULL)
        return 0;
    int n = count_entries(g->value); /* cli_count_gpus() has looked at them */
    if (n < spec->n_local)
        return co_fail(err, -EINVAL,
                       "%s %.200s: %d GPU%s for %d ranks; list at least one GPU per rank", g->by,
                       g->value, n, n == 1 ? "" : "s", spec->n_local);
    return cli_copy(g->value, &spec->gpus, err);
}

/* Which device a rank gets is not looked at here, only that there is an entry for each. */
static int check_virtual(const struct draft *d, const struct job_spec *spec, struct co_error *err)
{
    const char *name;
    const char *visible = gpus_visible(d->world->get_env, d->world->arg, &name);
    if (!spec->virtual_local_rank || visible == NULL || spec->gpus != NULL)
        return 0;
    int n = count_entries(visible);
    if (n < spec->n_local)
        return co_fail(err, -EINVAL,
                       "%s: %s has %d entries for %d ranks; set at least one entry per rank",
                       d->given[OPTION_VIRTUAL_LOCAL_RANK].by, name, n, spec->n_local);
    return 0;
}

static int set_bind(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    static const char *const torch_words[] = {"node", "socket", "exclusive", "core-complex", NULL};
    static const enum placement_bind of_torch[] = {PLACEMENT_NUMA, PLACEMENT_SOCKET, PLACEMENT_CORE,
                                                   PLACEMENT_CACHE};
    const struct given *to = &d->given[OPTION_BIND_TO];
    const struct given *numa = &d->given[OPTION_NUMA_BINDING];
    int bind = PLACEMENT_NONE, mode = 0;
    int rc = cli_choice(to, placement_bind_words, &bind, err)
                 ?: cli_choice(numa, torch_words, &mode, err);
    if (rc < 0)
        return rc;
    if (numa->value != NULL && to->value != NULL && bind != (int)of_torch[mode])
        return co_fail(err, -EINVAL, "%s %s and %s %s cannot be used together", to->by, to->value,
                       numa->by, numa->value);
    spec->bind = numa->value != NULL ? of_torch[mode] : (enum placement_bind)bind;
    return 0;
}

int cli_set_devices(const struct draft *d, struct job_spec *spec, struct co_error *err)
{
    return set_gpus(d, spec, err)
        ?: cli_flag(d, OPTION_VIRTUAL_LOCAL_RANK, &spec->virtual_local_rank, err)
        ?: check_virtual(d, spec, err)
        ?: set_bind(d, spec, err)
        ?: cli_flag(d, OPTION_REPORT_BINDINGS, &spec->report_bindings, err);
}
