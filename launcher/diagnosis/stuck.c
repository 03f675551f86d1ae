#include "stuck.h"

#include "common/process.h"
#include "common/process_where.h"
#include "common/scope.h"
#include "hang_report.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOUNTINFO_BYTES = 1 << 18 };

/* --- texts ------------------------------------------------------------------------------------ */

int stuck_parse_fd(const char *text)
{
    static const int with_fd[] = {SYS_read,      SYS_write,     SYS_pread64,   SYS_pwrite64,
                                  SYS_readv,     SYS_writev,    SYS_fsync,     SYS_fdatasync,
                                  SYS_ftruncate, SYS_fallocate, SYS_ioctl,     SYS_close,
                                  SYS_lseek,     SYS_fstat,     SYS_getdents64};
    const int number = co_process_parse_syscall(text);
    unsigned long long fd;
    if (sscanf(text, "%*d 0x%llx", &fd) != 1 || fd > INT_MAX)
        return -1;
    for (size_t i = 0; i < sizeof with_fd / sizeof *with_fd; i++)
        if (with_fd[i] == number)
            return (int)fd;
    return -1;
}

/* Blanks in it are written as \040, and so on. In place. */
static void decode(char *text)
{
    char *to = text;
    for (const char *at = text; *at != '\0'; to++) {
        unsigned code;
        const bool is_code = at[0] == '\\' && sscanf(at + 1, "%3o", &code) == 1;
        *to = is_code ? (char)code : *at;
        at += is_code ? 4 : 1;
    }
    *to = '\0';
}

static bool is_below(const char *path, const char *point)
{
    const size_t n = strlen(point);
    return strcmp(point, "/") == 0 ||
           (strncmp(path, point, n) == 0 && (path[n] == '/' || path[n] == '\0'));
}

void stuck_find_mount(const char *mountinfo, const char *path, char ret[STUCK_MOUNT_BYTES])
{
    char point[PATH_MAX], type[64], source[128];
    size_t longest = 0;
    ret[0] = '\0';
    for (const char *line = mountinfo; *line != '\0';) {
        const char *end = strchrnul(line, '\n');
        const char *rest = memmem(line, (size_t)(end - line), " - ", 3);
        if (rest != NULL && sscanf(line, "%*d %*d %*s %*s %4095s", point) == 1 &&
            sscanf(rest, " - %63s %127s", type, source) == 2) {
            decode(point);
            if (is_below(path, point) && strlen(point) >= longest) { /* later ones lie on top */
                longest = strlen(point);
                snprintf(ret, STUCK_MOUNT_BYTES, "%.100s, %s of %.80s", point, type, source);
            }
        }
        line = end + (*end == '\n');
    }
}

/* --- a process -------------------------------------------------------------------------------- */

static bool read_link(pid_t pid, const char *name, char path[PATH_MAX])
{
    char link[64];
    snprintf(link, sizeof link, "/proc/%d/%s", (int)pid, name);
    const ssize_t n = readlink(link, path, PATH_MAX - 1);
    path[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* The file of its call; else where it works, which a call with a path most likely is about. */
static bool find_path(pid_t pid, const char *syscall_text, char path[PATH_MAX])
{
    char name[32];
    const int fd = stuck_parse_fd(syscall_text);
    snprintf(name, sizeof name, "fd/%d", fd);
    return (fd >= 0 && read_link(pid, name, path)) || read_link(pid, "cwd", path);
}

static void add_mount(const char *path, char *to, size_t size)
{
    char mount[STUCK_MOUNT_BYTES];
    co_autofree char *text = calloc(1, MOUNTINFO_BYTES);
    if (text == NULL || co_process_read(getpid(), "mountinfo", text, MOUNTINFO_BYTES) <= 0)
        return;
    stuck_find_mount(text, path, mount);
    if (mount[0] != '\0')
        snprintf(to, size, " (%s)", mount);
}

bool stuck_describe(pid_t pid, const pid_t parents[2], char ret[STUCK_TEXT_BYTES])
{
    struct co_process process;
    struct hang_proc proc;
    char text[256] = "", state[HANG_PLACE_BYTES + 64], path[PATH_MAX], mount[320] = "";
    if (co_process_look(pid, &process, NULL) < 0 || process.state == 'Z' || process.state == 'X' ||
        (process.parent != parents[0] && process.parent != parents[1]))
        return false;
    hang_proc_read(pid, &proc);
    co_process_read(pid, "syscall", text, sizeof text);
    const char *name = co_process_syscall_name(co_process_parse_syscall(text));
    const bool has_path = find_path(pid, text, path);
    if (has_path && path[0] == '/')
        add_mount(path, mount, sizeof mount);
    snprintf(ret, STUCK_TEXT_BYTES, "%s%s%s%s%.400s%s", hang_proc_text(&proc, state, sizeof state),
             name != NULL ? ", system call " : "", name != NULL ? name : "",
             has_path ? ", on " : "", has_path ? path : "", mount);
    return true;
}
