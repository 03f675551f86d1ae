#include "oom_json.h"

#include "oom.h"

#include <stdbool.h>

static json_t *number(uint64_t value)
{
    return value <= INT64_MAX ? json_integer((json_int_t)value) : json_null();
}

/* A path or a name may hold bytes that are no UTF-8. */
static json_t *text_or_null(const char *text)
{
    json_t *json = text[0] != '\0' ? json_string(text) : NULL;
    return json != NULL ? json : json_null();
}

static json_t *make_victim(const struct oom_finding *f)
{
    const struct oom_victim *v = &f->victim;
    if (v->pid == 0)
        return json_null();
    bool has_figures = v->name[0] != '\0';
    return json_pack("{s:i,s:o,s:o,s:o,s:o,s:o}", "pid", (int)v->pid, "rank",
                     f->victim_rank >= 0 ? json_integer(f->victim_rank) : json_null(), "name",
                     text_or_null(v->name), "anon_bytes",
                     number(has_figures ? v->anon_bytes : OOM_UNKNOWN), "file_bytes",
                     number(has_figures ? v->file_bytes : OOM_UNKNOWN), "shmem_bytes",
                     number(has_figures ? v->shmem_bytes : OOM_UNKNOWN));
}

json_t *oom_json_make(const struct oom_finding *f)
{
    static const char *const blames[] = {
        [OOM_BLAME_PERHAPS] = "perhaps", [OOM_BLAME_OTHER] = "other", [OOM_BLAME_RANK] = "rank"};
    static const char *const scopes[] = {
        [OOM_SCOPE_UNKNOWN] = "", [OOM_SCOPE_GROUP] = "group", [OOM_SCOPE_NODE] = "node"};
    if (f->blame == OOM_BLAME_NONE)
        return json_null();
    return json_pack("{s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "blame", blames[f->blame], "kills",
                     number(f->n_kills), "scope", text_or_null(scopes[f->scope]), "cgroup",
                     text_or_null(f->group), "limit_bytes", number(f->limit_bytes), "peak_bytes",
                     number(f->peak_bytes), "usage_bytes", number(f->usage_bytes), "node_bytes",
                     number(f->node_bytes), "victim", make_victim(f));
}
