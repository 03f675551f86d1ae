/* The files that oom.c judges. oom_watch_begin() reads the counters of all levels and opens the
 * log at its end; oom_watch_note_failure() reads the counters again, once, as soon as a rank has
 * failed, before the control group is used by others; oom_watch_find() reads the log and asks
 * oom_find(). Read read_groups() first. */
#include "oom_watch.h"

#include "common/cgroup.h"
#include "common/scope.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    FILE_BYTES = 4096,        /* of a small file */
    RECORD_BYTES = 16 * 1024, /* of the log; the kernel's longest are half of it */
    MAX_RECORDS = 1 << 16     /* more do not fit into the kernel's buffer */
};

/* The first namespace of process numbers has this one; others are numbered differently. */
static const char first_pid_namespace[] = "pid:[4026531836]";

/* Names of files and fields by the version of control groups. */
static const struct names {
    const char *kills_file, *kills_field;
    const char *hits_file, *hits_field; /* NULL: the whole file is the number */
    const char *limit_file, *peak_file, *usage_file;
    const char *swap_hits_file, *swap_limit_file; /* of memory and swap together; NULL: none */
} names_of_version[] = {
    [1] = {.kills_file = "memory.oom_control",
           .kills_field = "oom_kill",
           .hits_file = "memory.failcnt",
           .limit_file = "memory.limit_in_bytes",
           .peak_file = "memory.max_usage_in_bytes",
           .usage_file = "memory.usage_in_bytes",
           .swap_hits_file = "memory.memsw.failcnt",
           .swap_limit_file = "memory.memsw.limit_in_bytes"},
    [2] = {.kills_file = "memory.events",
           .kills_field = "oom_kill",
           .hits_file = "memory.events",
           .hits_field = "oom",
           .limit_file = "memory.max",
           .peak_file = "memory.peak",
           .usage_file = "memory.current"},
};

static uint64_t read_counter(const struct co_cgroup *g, const char *file, const char *field)
{
    char text[FILE_BYTES];
    if (co_cgroup_read(g, file, text, sizeof text) < 0)
        return OOM_UNKNOWN;
    return field != NULL ? oom_parse_field(text, field) : oom_parse_bytes(text);
}

/* Version 1 counts hits of the limit on memory and swap together apart. */
static uint64_t read_hits(const struct co_cgroup *g, const struct names *n)
{
    uint64_t hits = read_counter(g, n->hits_file, n->hits_field);
    uint64_t more = OOM_UNKNOWN;
    if (n->swap_hits_file != NULL)
        more = read_counter(g, n->swap_hits_file, NULL);
    if (hits == OOM_UNKNOWN || more == OOM_UNKNOWN)
        return hits;
    return hits + more; /* each is below 2^62 */
}

static void read_figures(const struct co_cgroup *g, const struct names *n, struct oom_level *ret)
{
    ret->limit_bytes = read_counter(g, n->limit_file, NULL);
    ret->peak_bytes = read_counter(g, n->peak_file, NULL);
    ret->usage_bytes = read_counter(g, n->usage_file, NULL);
    if (n->swap_limit_file != NULL && ret->limit_bytes != OOM_UNKNOWN)
        ret->no_swap = read_counter(g, n->swap_limit_file, NULL) <= ret->limit_bytes;
}

/* returns false if memory is not counted at this level: version 2's top, or a directory that is not
 * there */
static bool read_level(const struct co_cgroup *g, bool with_figures, struct oom_level *ret)
{
    const struct names *n = &names_of_version[g->version];
    *ret = (struct oom_level){.n_path = strlen(g->dir + g->n_mount),
                              .kills = read_counter(g, n->kills_file, n->kills_field),
                              .limit_bytes = OOM_UNKNOWN,
                              .peak_bytes = OOM_UNKNOWN,
                              .usage_bytes = OOM_UNKNOWN};
    ret->hits = read_hits(g, n);
    if (ret->kills == OOM_UNKNOWN && ret->hits == OOM_UNKNOWN)
        return false;
    if (with_figures)
        read_figures(g, n, ret);
    return true;
}

static void read_groups(const char *root, bool with_figures, struct oom_groups *ret)
{
    struct co_cgroup g;
    *ret = (struct oom_groups){0};
    if (co_cgroup_find(root, "memory", &g) < 0)
        return;
    ret->version = g.version;
    do {
        struct oom_level *level = &ret->levels[ret->n_levels];
        if (!read_level(&g, with_figures, level))
            continue;
        if (ret->n_levels == 0)
            snprintf(ret->path, sizeof ret->path, "%s", g.dir + g.n_mount);
        if (level->n_path > strlen(ret->path))
            level->n_path = strlen(ret->path); /* it was cut */
        ret->n_levels++;
    } while (ret->n_levels < OOM_LEVELS_MAX && co_cgroup_up(&g));
}

/* The node's memory. */
static uint64_t read_node_bytes(const char *root)
{
    char path[CO_CGROUP_DIR_BYTES];
    char text[FILE_BYTES];
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    co_autoclose FILE *in = fopen(path, "re");
    size_t n = in != NULL ? fread(text, 1, sizeof text - 1, in) : 0;
    text[n] = '\0';
    return oom_parse_field(text, "MemTotal");
}

/* --- The log --- */

/* Whether process numbers in the log are those that we know. */
static bool has_nodes_pids(const char *root)
{
    char path[CO_CGROUP_DIR_BYTES];
    char name[sizeof first_pid_namespace];
    snprintf(path, sizeof path, "%s/proc/self/ns/pid", root);
    ssize_t n = readlink(path, name, sizeof name);
    return n == (ssize_t)sizeof name - 1 && memcmp(name, first_pid_namespace, (size_t)n) == 0;
}

/* Have what is logged from now on. */
static void open_log(struct oom_watch *w)
{
    char path[CO_CGROUP_DIR_BYTES];
    snprintf(path, sizeof path, "%s/dev/kmsg", w->root);
    if (w->log_fd < 0 && has_nodes_pids(w->root))
        w->log_fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (w->log_fd >= 0 && lseek(w->log_fd, 0, SEEK_END) < 0)
        co_close_fd(&w->log_fd);
}

/* A read gives one record; EPIPE means that some were overwritten before we read them. */
static void read_log(int fd, struct oom_log *log)
{
    char record[RECORD_BYTES];
    for (int i = 0; i < MAX_RECORDS; i++) {
        ssize_t n = read(fd, record, sizeof record);
        if (n > 0)
            oom_log_add(log, record, (size_t)n);
        else if (n == 0 || (errno != EPIPE && errno != EINTR))
            return;
    }
}

/* --- */

void oom_watch_init(struct oom_watch *w, const char *root)
{
    *w = (struct oom_watch){.root = root, .log_fd = -1};
}

void oom_watch_close(struct oom_watch *w)
{
    co_close_fd(&w->log_fd);
}

void oom_watch_begin(struct oom_watch *w)
{
    if (w->has_before || w->has_failure)
        return;
    read_groups(w->root, false, &w->before);
    open_log(w);
    w->has_before = true;
}

void oom_watch_note_failure(struct oom_watch *w)
{
    if (w->has_failure)
        return;
    read_groups(w->root, true, &w->failure);
    w->has_failure = true;
}

void oom_watch_renew(struct oom_watch *w)
{
    w->has_before = false;
    w->has_failure = false;
    oom_watch_begin(w);
}

void oom_watch_find(struct oom_watch *w, pid_t pid, bool killed, struct oom_finding *ret)
{
    struct oom_log log = {0};
    struct oom_case c = {.before = w->has_before ? &w->before : NULL,
                         .after = &w->failure,
                         .pid = pid,
                         .killed = killed};
    *ret = (struct oom_finding){0};
    if (!w->has_failure)
        return;
    if (w->log_fd >= 0 && oom_wants_log(&c)) {
        read_log(w->log_fd, &log);
        c.log = &log;
    }
    oom_find(&c, ret);
    if (ret->blame != OOM_BLAME_NONE)
        ret->node_bytes = read_node_bytes(w->root);
}

const char *oom_watch_group(const struct oom_watch *w)
{
    if (!w->has_before || w->before.n_levels == 0)
        return "";
    return w->before.path[0] != '\0' ? w->before.path : "/";
}
