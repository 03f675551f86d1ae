#include "health_facts.h"

#include "common/cgroup.h"
#include "common/scope.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { FILE_BYTES = 4096 };

/* returns whether it could be read; else the text is empty */
static bool read_start(const char *path, char text[FILE_BYTES])
{
    co_autoclose_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, FILE_BYTES - 1);
    text[n > 0 ? n : 0] = '\0';
    return n >= 0;
}

/* --- Memory --- */

static uint64_t read_available(const char *root)
{
    char path[PATH_MAX], text[FILE_BYTES];
    uint64_t kib;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    const char *line = read_start(path, text) ? strstr(text, "MemAvailable:") : NULL;
    return line != NULL && sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1 &&
                   kib < UINT64_MAX >> 10
               ? kib << 10
               : HEALTH_UNKNOWN;
}

/* "max", or a number. */
static bool read_number(const struct co_cgroup *g, const char *file, uint64_t *ret)
{
    char text[64];
    return co_cgroup_read(g, file, text, sizeof text) >= 0 && sscanf(text, "%" SCNu64, ret) == 1;
}

/* What the kernel takes back before it kills a process: files in memory that were not used lately
 * count as the group's. */
static uint64_t read_inactive_files(const struct co_cgroup *g)
{
    char text[FILE_BYTES];
    uint64_t bytes;
    const char *line = co_cgroup_read(g, "memory.stat", text, sizeof text) >= 0
                           ? strstr(text, "\ninactive_file ")
                           : NULL;
    return line != NULL && sscanf(line, " inactive_file %" SCNu64, &bytes) == 1 ? bytes : 0;
}

/* What the limits of control groups leave. */
static uint64_t read_left(const char *root)
{
    struct co_cgroup g;
    uint64_t least = HEALTH_UNKNOWN;
    if (co_cgroup_find(root, "memory", &g) < 0 || g.version != 2)
        return least;
    do {
        uint64_t most, used;
        if (read_number(&g, "memory.max", &most) && read_number(&g, "memory.current", &used)) {
            const uint64_t files = read_inactive_files(&g);
            used -= files < used ? files : used;
            const uint64_t left = most > used ? most - used : 0;
            least = left < least ? left : least;
        }
    } while (co_cgroup_up(&g));
    return least;
}

/* --- Disks --- */

/* A directory that does not exist yet is made by the job: then the disk of the nearest one above
 * counts. */
static int stat_disk(const char *path, struct statvfs *ret)
{
    char at[PATH_MAX];
    snprintf(at, sizeof at, "%s", path);
    while (statvfs(at, ret) < 0) {
        char *slash = strrchr(at, '/');
        if (errno != ENOENT || slash == NULL || slash == at)
            return errno;
        *slash = '\0';
    }
    return 0;
}

static struct health_disk_facts read_disk(const char *path)
{
    struct statvfs st;
    struct health_disk_facts d = {.error = stat_disk(path, &st)};
    if (d.error == 0 && (st.f_flag & ST_RDONLY) != 0)
        d.error = EROFS;
    if (d.error == 0)
        d.free_bytes = st.f_blocks == 0 ? HEALTH_UNKNOWN : (uint64_t)st.f_bavail * st.f_frsize;
    return d;
}

static void read_disks(const struct health_checks *c, const char *log_dir, struct health_facts *f)
{
    for (; f->n_disks < c->n_disks; f->n_disks++) {
        const char *path = c->disks[f->n_disks].path != NULL ? c->disks[f->n_disks].path : log_dir;
        if (path != NULL)
            f->disks[f->n_disks] = read_disk(path);
    }
}

/* --- Links --- */

static void add_link(struct health_facts *f, bool is_up, const char *name, const char *port)
{
    struct health_link_facts *l = &f->links[f->n_links];
    if (f->n_links == HEALTH_LINKS_MAX ||
        snprintf(l->name, sizeof l->name, "%s%s%s", name, port[0] != '\0' ? "/" : "", port) >=
            (int)sizeof l->name)
        return;
    l->is_up = is_up;
    f->n_links++;
}

/* Those of a device: bridges, tunnels and the pairs of containers come and go. */
static void look_at_interface(const char *root, const char *name, struct health_facts *f)
{
    char path[PATH_MAX], text[FILE_BYTES];
    snprintf(path, sizeof path, "%s/sys/class/net/%s/device", root, name);
    if (access(path, F_OK) < 0)
        return;
    snprintf(path, sizeof path, "%s/sys/class/net/%s/operstate", root, name);
    if (read_start(path, text) && strncmp(text, "unknown", 7) != 0)
        add_link(f, strncmp(text, "up", 2) == 0, name, "");
}

static void look_at_ports(const char *root, const char *name, struct health_facts *f)
{
    char path[PATH_MAX], text[FILE_BYTES];
    snprintf(path, sizeof path, "%s/sys/class/infiniband/%s/ports", root, name);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        snprintf(path, sizeof path, "%s/sys/class/infiniband/%s/ports/%s/state", root, name,
                 e->d_name);
        if (e->d_name[0] != '.' && read_start(path, text)) /* "4: ACTIVE" */
            add_link(f, text[0] == '4', name, e->d_name);
    }
    if (dir != NULL)
        closedir(dir);
}

static void look_at_all(const char *root, const char *class, struct health_facts *f,
                        void (*look)(const char *root, const char *name, struct health_facts *f))
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/sys/class/%s", root, class);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;)
        if (e->d_name[0] != '.')
            look(root, e->d_name, f);
    if (dir != NULL)
        closedir(dir);
}

/* One that was named may have no device: a bond, a VLAN. */
static void look_at_named(const struct health_checks *c, const char *root, struct health_facts *f)
{
    char path[PATH_MAX], text[FILE_BYTES];
    for (size_t i = 0; i < c->n_links; i++) {
        bool is_known = false;
        for (uint32_t k = 0; k < f->n_links; k++)
            is_known |= strcmp(f->links[k].name, c->links[i]) == 0;
        snprintf(path, sizeof path, "%s/sys/class/net/%s/operstate", root, c->links[i]);
        if (!is_known && read_start(path, text)) /* a loopback and some tunnels: "unknown" */
            add_link(f, strncmp(text, "up", 2) == 0 || strncmp(text, "unknown", 7) == 0,
                     c->links[i], "");
    }
}

void health_facts_read(const struct health_checks *c, const char *root, const char *log_dir,
                       struct health_facts *ret)
{
    *ret = (struct health_facts){.memory_free = HEALTH_UNKNOWN};
    if (c->memory) {
        const uint64_t left = read_left(root);
        ret->memory_free = read_available(root);
        ret->memory_free = left < ret->memory_free ? left : ret->memory_free;
    }
    read_disks(c, log_dir, ret);
    if (!c->network)
        return;
    look_at_all(root, "net", ret, look_at_interface);
    look_at_all(root, "infiniband", ret, look_at_ports);
    look_at_named(c, root, ret);
}
