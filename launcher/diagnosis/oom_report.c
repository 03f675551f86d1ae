#include "oom_report.h"

#include "launcher/platform/json_value.h"
#include "oom.h"

#include <inttypes.h>
#include <stdbool.h>

enum { FIGURE_BYTES = 32 };

char *oom_text_bytes(uint64_t bytes, char *buf, size_t n)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    if (bytes < 1024) {
        snprintf(buf, n, "%" PRIu64 " B", bytes);
        return buf;
    }
    for (; bytes >= 1024 * 1024; bytes /= 1024)
        unit++;
    snprintf(buf, n, "%" PRIu64 ".%" PRIu64 " %s", bytes / 1024, bytes % 1024 * 10 / 1024,
             units[unit]);
    return buf;
}

static const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

static void print_blame(FILE *out, const struct oom_finding *f)
{
    switch (f->blame) {
    case OOM_BLAME_NONE:
        break;
    case OOM_BLAME_RANK:
        fprintf(out, "  out of memory: killed by the kernel's OOM killer\n");
        break;
    case OOM_BLAME_OTHER:
        fprintf(out,
                "  out of memory: while it ran, the kernel's OOM killer killed %" PRIu64
                " process%s of its control group%s\n",
                f->n_kills, f->n_kills == 1 ? "" : "es",
                f->victim.pid == 0 ? ", possibly a child of this rank" : "");
        break;
    case OOM_BLAME_PERHAPS:
        fprintf(out,
                "  possibly out of memory: its control group counts %" PRIu64
                " OOM kill%s, but it ended before ddprun first read the counter\n",
                f->n_kills, plural(f->n_kills));
        break;
    }
}

static void print_limit(FILE *out, const struct oom_finding *f)
{
    char figure[FIGURE_BYTES];
    if (f->group[0] == '\0') {
        fprintf(out, "    the limit of a control group was reached");
        return;
    }
    fprintf(out, "    limit of control group %s", f->group);
    if (f->limit_bytes != OOM_UNKNOWN)
        fprintf(out, ": %s", oom_text_bytes(f->limit_bytes, figure, sizeof figure));
    if (f->peak_bytes != OOM_UNKNOWN)
        fprintf(out, " (peak %s)", oom_text_bytes(f->peak_bytes, figure, sizeof figure));
    else if (f->usage_bytes != OOM_UNKNOWN)
        fprintf(out, " (%s in use afterwards)",
                oom_text_bytes(f->usage_bytes, figure, sizeof figure));
}

static void print_place(FILE *out, const struct oom_finding *f)
{
    char node[FIGURE_BYTES + 4] = "";
    char figure[FIGURE_BYTES];
    if (f->node_bytes != OOM_UNKNOWN)
        snprintf(node, sizeof node, ", %s,", oom_text_bytes(f->node_bytes, figure, sizeof figure));
    if (f->scope == OOM_SCOPE_GROUP)
        print_limit(out, f);
    else if (f->scope == OOM_SCOPE_NODE)
        fprintf(out, "    the node's memory%s was exhausted", node);
    else
        fprintf(out,
                "    no limit visible from here was reached: either the node's memory%s was "
                "exhausted, or a limit outside this container was reached",
                node);
    if (f->n_kills != OOM_UNKNOWN && f->blame == OOM_BLAME_RANK)
        fprintf(out, "; %" PRIu64 " OOM kill%s since the ranks' start", f->n_kills,
                plural(f->n_kills));
    fprintf(out, "\n");
}

static void print_victim(FILE *out, const struct oom_finding *f)
{
    const struct oom_victim *v = &f->victim;
    char which[FIGURE_BYTES] = "";
    char anon[FIGURE_BYTES];
    char file[FIGURE_BYTES];
    char shmem[FIGURE_BYTES];
    if (v->pid == 0 || v->name[0] == '\0') /* without a name there are no figures */
        return;
    if (f->victim_rank >= 0)
        snprintf(which, sizeof which, ", rank %d,", f->victim_rank);
    fprintf(out, "    pid %d (%s)%s held %s, %s of files and %s of shared memory\n", (int)v->pid,
            v->name, which, oom_text_bytes(v->anon_bytes, anon, sizeof anon),
            oom_text_bytes(v->file_bytes, file, sizeof file),
            oom_text_bytes(v->shmem_bytes, shmem, sizeof shmem));
}

static void print_remedy(FILE *out, const struct oom_finding *f)
{
    bool at_limit = f->scope == OOM_SCOPE_GROUP;
    fprintf(out, "    try: %s%s%sfewer ranks or data loader workers%s, a smaller batch\n",
            at_limit ? "a higher limit (" : "",
            at_limit ? (f->version == 1 ? "memory.limit_in_bytes" : "memory.max") : "",
            at_limit ? "), " : "", at_limit ? "" : " on this node");
}

void oom_text_print(FILE *out, const struct oom_finding *f)
{
    if (f->blame == OOM_BLAME_NONE)
        return;
    print_blame(out, f);
    if (f->blame != OOM_BLAME_PERHAPS || f->scope == OOM_SCOPE_GROUP)
        print_place(out, f);
    print_victim(out, f);
    print_remedy(out, f);
}

char *oom_text_brief(const struct oom_finding *f, char *buf, size_t n)
{
    char figure[FIGURE_BYTES];
    if (f->blame == OOM_BLAME_NONE)
        snprintf(buf, n, "%s", "");
    else if (f->blame == OOM_BLAME_OTHER)
        snprintf(buf, n, "the OOM killer killed another process of its control group");
    else if (f->blame == OOM_BLAME_PERHAPS)
        snprintf(buf, n, "possibly out of memory");
    else if (f->scope == OOM_SCOPE_GROUP && f->limit_bytes != OOM_UNKNOWN)
        snprintf(buf, n, "out of memory at the limit of %s, %s", f->group,
                 oom_text_bytes(f->limit_bytes, figure, sizeof figure));
    else
        snprintf(buf, n, "out of memory%s", f->scope == OOM_SCOPE_NODE ? " on the node" : "");
    return buf;
}

/* --- for programs --- */

static json_t *number(uint64_t value)
{
    return value <= INT64_MAX ? json_integer((json_int_t)value) : json_null();
}

/* A path or a name may hold bytes that are not UTF-8. */
static json_t *text_or_null(const char *text)
{
    return json_value_or_null(text[0] != '\0' ? json_string(text) : NULL);
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
