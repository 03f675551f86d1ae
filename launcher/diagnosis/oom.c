/* oom_find() compares the counters from before the generation with those after a failure:
 * blame_of() decides, from the log (oom_log_*()) if it names the rank, else from the number of
 * kills; find_place() finds which limit was reached. The rest of the file reads numbers and
 * records. Read oom_find() first, then blame_of().
 *
 * Invariant: what is not known is OOM_UNKNOWN and never counts as zero, so that a missing file or
 * counter leads to no blame. */
#include "oom.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DIGITS = 19 };

/* Version 1 shows the largest number of whole pages where there is no limit. */
static const uint64_t no_limit_bytes = UINT64_C(1) << 62;

static uint64_t number_at(const char *text)
{
    size_t n = strspn(text, "0123456789");
    return n > 0 && n <= MAX_DIGITS ? strtoull(text, NULL, 10) : OOM_UNKNOWN;
}

uint64_t oom_parse_field(const char *text, const char *name)
{
    size_t n = strlen(name);
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n")) {
        line += *line == '\n';
        if (strncmp(line, name, n) != 0 || (line[n] != ' ' && line[n] != ':'))
            continue;
        const char *at = line + n + strspn(line + n, ": ");
        uint64_t value = number_at(at);
        bool in_kib = strncmp(at + strspn(at, "0123456789"), " kB", 3) == 0;
        if (!in_kib || value == OOM_UNKNOWN)
            return value;
        return value <= UINT64_MAX >> 10 ? value << 10 : OOM_UNKNOWN;
    }
    return OOM_UNKNOWN;
}

uint64_t oom_parse_bytes(const char *text)
{
    uint64_t value = number_at(text);
    return value < no_limit_bytes ? value : OOM_UNKNOWN;
}

/* Were both taken of the same groups? ddprun may have been moved meanwhile. */
static bool are_alike(const struct oom_groups *a, const struct oom_groups *b)
{
    return a->version == b->version && a->n_levels == b->n_levels && strcmp(a->path, b->path) == 0;
}

static const struct oom_groups *baseline(const struct oom_case *c)
{
    return c->before != NULL && are_alike(c->before, c->after) ? c->before : NULL;
}

static uint64_t rise(uint64_t from, uint64_t to)
{
    if (from == OOM_UNKNOWN || to == OOM_UNKNOWN)
        return OOM_UNKNOWN;
    return to > from ? to - from : 0;
}

/* Of the ranks' own group; without a baseline: since it was made. */
static uint64_t count_kills(const struct oom_case *c)
{
    if (c->after->n_levels == 0)
        return OOM_UNKNOWN;
    const struct oom_groups *before = baseline(c);
    return rise(before != NULL ? before->levels[0].kills : 0, c->after->levels[0].kills);
}

bool oom_wants_log(const struct oom_case *c)
{
    uint64_t n_kills = count_kills(c);
    return n_kills == OOM_UNKNOWN ? c->killed : n_kills > 0;
}

static void path_of(const struct oom_groups *g, const struct oom_level *level, char *to)
{
    snprintf(to, OOM_GROUP_BYTES, "%.*s", level->n_path > 0 ? (int)level->n_path : 1,
             level->n_path > 0 ? g->path : "/");
}

static enum oom_blame blame_of(const struct oom_case *c, uint64_t n_kills)
{
    char own[OOM_GROUP_BYTES];
    if (c->log != NULL && oom_log_find_pid(c->log, c->pid) != NULL)
        return OOM_BLAME_RANK;
    if (n_kills == 0 || n_kills == OOM_UNKNOWN)
        return OOM_BLAME_NONE;
    if (baseline(c) == NULL)
        return c->killed ? OOM_BLAME_PERHAPS : OOM_BLAME_NONE;
    path_of(c->after, &c->after->levels[0], own);
    bool all_known = c->log != NULL && oom_log_count_in(c->log, own) >= n_kills;
    return c->killed && !all_known ? OOM_BLAME_RANK : OOM_BLAME_OTHER;
}

static const struct oom_victim *victim_of(const struct oom_case *c, enum oom_blame blame)
{
    char own[OOM_GROUP_BYTES];
    if (c->log == NULL)
        return NULL;
    if (blame == OOM_BLAME_RANK)
        return oom_log_find_pid(c->log, c->pid);
    if (blame != OOM_BLAME_OTHER)
        return NULL;
    path_of(c->after, &c->after->levels[0], own);
    return oom_log_find_in(c->log, own);
}

/* The level of a path; NULL: none. */
static const struct oom_level *level_named(const struct oom_groups *g, const char *path)
{
    char own[OOM_GROUP_BYTES];
    for (int i = 0; i < g->n_levels; i++) {
        path_of(g, &g->levels[i], own);
        if (strcmp(own, path) == 0)
            return &g->levels[i];
    }
    return NULL;
}

/* Since the kernel charges memory in batches, a peak may stay a little below its limit. */
static bool is_at_limit(const struct oom_level *level)
{
    return level->peak_bytes != OOM_UNKNOWN &&
           level->peak_bytes >= level->limit_bytes - level->limit_bytes / 64;
}

/* The lowest level whose limit was hit: with version 2 that is the one, since all levels above
 * count its hits as well. Where hits may go uncounted, a peak at the limit stands for one. NULL: no
 * such level. */
static const struct oom_level *level_hit(const struct oom_case *c)
{
    const struct oom_groups *before = baseline(c);
    for (int i = 0; i < c->after->n_levels; i++) {
        const struct oom_level *level = &c->after->levels[i];
        uint64_t n_hits = rise(before != NULL ? before->levels[i].hits : 0, level->hits);
        bool was_hit = n_hits != OOM_UNKNOWN && n_hits > 0;
        if (level->limit_bytes != OOM_UNKNOWN &&
            (was_hit || (level->no_swap && is_at_limit(level))))
            return level;
    }
    return NULL;
}

static void set_level(const struct oom_case *c, const struct oom_level *level,
                      struct oom_finding *f)
{
    f->scope = OOM_SCOPE_GROUP;
    path_of(c->after, level, f->group);
    f->limit_bytes = level->limit_bytes;
    f->peak_bytes = level->peak_bytes;
    f->usage_bytes = level->usage_bytes;
}

/* Whose memory ran out: the log knows, else the counters do. */
static void find_place(const struct oom_case *c, struct oom_finding *f)
{
    const struct oom_level *level = NULL;
    f->scope = f->victim.scope;
    if (f->victim.limit_group[0] != '\0' && f->scope == OOM_SCOPE_GROUP) {
        snprintf(f->group, sizeof f->group, "%s", f->victim.limit_group);
        level = level_named(c->after, f->group);
    } else if (f->scope != OOM_SCOPE_NODE) {
        level = level_hit(c);
    }
    if (level != NULL)
        set_level(c, level, f);
}

void oom_find(const struct oom_case *c, struct oom_finding *ret)
{
    *ret = (struct oom_finding){.n_kills = count_kills(c),
                                .version = c->after->version,
                                .limit_bytes = OOM_UNKNOWN,
                                .peak_bytes = OOM_UNKNOWN,
                                .usage_bytes = OOM_UNKNOWN,
                                .node_bytes = OOM_UNKNOWN,
                                .victim_rank = -1};
    ret->blame = blame_of(c, ret->n_kills);
    const struct oom_victim *victim = victim_of(c, ret->blame);
    if (victim != NULL)
        ret->victim = *victim;
    if (ret->blame != OOM_BLAME_NONE)
        find_place(c, ret);
}

/* --- the kernel log --- */

enum { RECORD_BYTES = 2048 }; /* of a record that is looked at: the kernel's own bound of a line */

/* The text after "PRIORITY,NUMBER,TIME,FLAGS;", if the kernel wrote it: its facility is 0, so that
 * the priority is the level alone. NULL: another process wrote it, or it continues the record
 * before. */
static const char *kernels_text(const char *record)
{
    const char *text = strchr(record, ';');
    if (text == NULL || record[0] < '0' || record[0] > '7' || record[1] != ',')
        return NULL;
    return text + 1;
}

/* The number after a key. returns false if it is missing or out of bounds */
static bool number_behind(const char *text, const char *key, uint64_t max, uint64_t *ret)
{
    const char *at = strstr(text, key);
    if (at == NULL)
        return false;
    at += strlen(key);
    size_t n = strspn(at, "0123456789");
    if (n == 0 || n > 18)
        return false;
    *ret = strtoull(at, NULL, 10);
    return *ret <= max;
}

/* What stands between a key and an end, cut to size; "" if they are not there. */
static void copy_between(const char *text, const char *key, const char *end, char *to, size_t size)
{
    const char *from = strstr(text, key);
    to[0] = '\0';
    if (from == NULL)
        return;
    from += strlen(key);
    const char *until = strstr(from, end);
    if (until == NULL)
        return;
    size_t n = (size_t)(until - from);
    n = n < size - 1 ? n : size - 1;
    memcpy(to, from, n);
    to[n] = '\0';
}

static unsigned n_kept(const struct oom_log *log)
{
    return log->n_victims < OOM_LOG_VICTIMS ? log->n_victims : OOM_LOG_VICTIMS;
}

/* The victim that was seen `age` victims ago; 0: the last one. */
static unsigned slot_of(const struct oom_log *log, unsigned age)
{
    return (log->n_victims - 1 - age) % OOM_LOG_VICTIMS;
}

/* The last victim of a number; -1: none. */
static int find_slot(const struct oom_log *log, pid_t pid)
{
    for (unsigned age = 0; age < n_kept(log); age++)
        if (log->victims[slot_of(log, age)].pid == pid)
            return (int)slot_of(log, age);
    return -1;
}

static struct oom_victim *add_victim(struct oom_log *log, pid_t pid)
{
    struct oom_victim *v = &log->victims[log->n_victims++ % OOM_LOG_VICTIMS];
    *v = (struct oom_victim){.pid = pid};
    return v;
}

/* "oom-kill:": a victim was chosen. Its name may hold anything, so look for the pid after it. */
static void add_choice(struct oom_log *log, const char *text)
{
    const char *pid_at = NULL;
    for (const char *at = text; (at = strstr(at, ",pid=")) != NULL; at++)
        pid_at = at;
    uint64_t pid;
    if (pid_at == NULL || !number_behind(pid_at, ",pid=", INT32_MAX, &pid))
        return;
    struct oom_victim *v = add_victim(log, (pid_t)pid);
    bool by_limit = strstr(text, "constraint=CONSTRAINT_MEMCG,") != NULL;
    v->scope = by_limit ? OOM_SCOPE_GROUP : OOM_SCOPE_NODE;
    copy_between(text, ",oom_memcg=", ",task_memcg=", v->limit_group, sizeof v->limit_group);
    copy_between(text, ",task_memcg=", ",task=", v->process_group, sizeof v->process_group);
}

static uint64_t bytes_behind(const char *text, const char *key)
{
    uint64_t kib;
    return number_behind(text, key, UINT64_MAX >> 10, &kib) ? kib << 10 : 0;
}

/* Old kernels write only "Killed process". */
static enum oom_scope scope_of(const char *text)
{
    if (strncmp(text, "Memory cgroup out of memory", 27) == 0)
        return OOM_SCOPE_GROUP;
    return strncmp(text, "Out of memory", 13) == 0 ? OOM_SCOPE_NODE : OOM_SCOPE_UNKNOWN;
}

/* "Killed process": its figures. */
static void add_figures(struct oom_log *log, const char *text, const char *killed)
{
    uint64_t pid;
    if (!number_behind(killed, "Killed process ", INT32_MAX, &pid))
        return;
    const char *figures = strstr(killed, ") total-vm:");
    if (figures == NULL)
        return;
    int slot = find_slot(log, (pid_t)pid);
    bool was_chosen = slot >= 0 && log->victims[slot].name[0] == '\0';
    struct oom_victim *v = was_chosen ? &log->victims[slot] : add_victim(log, (pid_t)pid);
    if (!was_chosen)
        v->scope = scope_of(text);
    copy_between(killed, " (", ") total-vm:", v->name, sizeof v->name);
    v->anon_bytes = bytes_behind(figures, " anon-rss:");
    v->file_bytes = bytes_behind(figures, " file-rss:");
    v->shmem_bytes = bytes_behind(figures, " shmem-rss:");
}

static void add_record(struct oom_log *log, const char *record)
{
    const char *text = kernels_text(record);
    if (text == NULL)
        return;
    const char *killed = strstr(text, "Killed process ");
    if (strncmp(text, "oom-kill:", 9) == 0)
        add_choice(log, text);
    else if (killed != NULL)
        add_figures(log, text, killed);
}

void oom_log_add(struct oom_log *log, const char *bytes, size_t n)
{
    char record[RECORD_BYTES];
    const char *end = bytes + n;
    while (bytes < end) {
        const char *newline = memchr(bytes, '\n', (size_t)(end - bytes));
        size_t len = (size_t)((newline != NULL ? newline : end) - bytes);
        size_t n_used = len < sizeof record - 1 ? len : sizeof record - 1;
        memcpy(record, bytes, n_used);
        record[n_used] = '\0';
        add_record(log, record);
        bytes += len + (newline != NULL);
    }
}

const struct oom_victim *oom_log_find_pid(const struct oom_log *log, pid_t pid)
{
    int slot = find_slot(log, pid);
    return slot >= 0 ? &log->victims[slot] : NULL;
}

static bool is_in(const struct oom_victim *v, const char *group)
{
    size_t n = strcmp(group, "/") == 0 ? 0 : strlen(group);
    return v->process_group[0] == '/' && strncmp(v->process_group, group, n) == 0 &&
           (n == 0 || v->process_group[n] == '/' || v->process_group[n] == '\0');
}

const struct oom_victim *oom_log_find_in(const struct oom_log *log, const char *group)
{
    for (unsigned age = 0; age < n_kept(log); age++)
        if (is_in(&log->victims[slot_of(log, age)], group))
            return &log->victims[slot_of(log, age)];
    return NULL;
}

unsigned oom_log_count_in(const struct oom_log *log, const char *group)
{
    unsigned n = 0;
    for (unsigned slot = 0; slot < n_kept(log); slot++)
        n += is_in(&log->victims[slot], group);
    return n;
}
