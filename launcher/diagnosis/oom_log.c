#include "oom_log.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { RECORD_BYTES = 2048 }; /* of a record that is looked at: the kernel's own bound of a line */

/* The text behind "PRIORITY,NUMBER,TIME,FLAGS;", if the kernel wrote it: its facility is 0, so that
 * the priority is the level alone. NULL: somebody else did, or it goes on a record before. */
static const char *kernels_text(const char *record)
{
    const char *text = strchr(record, ';');
    if (text == NULL || record[0] < '0' || record[0] > '7' || record[1] != ',')
        return NULL;
    return text + 1;
}

/* The number behind a key. returns false if there is none, or one out of bounds */
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

/* "oom-kill:": a victim was chosen. Its name may hold anything, so look for the pid behind it. */
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

/* Old kernels say no more than "Killed process". */
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
