#include "check_collect.h"

#include "check_run.h"
#include "ctl/check/check_gpus.h"
#include "ctl/check/check_wire.h"

#include "common/error.h"
#include "common/parse.h"
#include "common/scope.h"
#include "common/secret_memory.h"
#include "launcher/platform/resources.h"
#include "rendezvous/channel/seal.h"
#include "rendezvous/channel/token.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <time.h>

enum { FILE_BYTES = 512, ANSWER_BYTES = 16384 };

/* --- files of the kernel --- */

/* The first line, without its end; "" where it cannot be read. */
static void read_line(const char *root, const char *name, char text[FILE_BYTES])
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s%s", root, name);
    co_autoclose_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, FILE_BYTES - 1);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
}

static uint64_t to_number(const char *text)
{
    int64_t n;
    return co_parse_int("", text, 0, INT64_MAX, &n, NULL) == 0 ? (uint64_t)n : CHECK_UNKNOWN;
}

static uint64_t count_entries(const char *root, const char *name)
{
    char path[PATH_MAX];
    uint64_t n = 0;
    snprintf(path, sizeof path, "%s%s", root, name);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;)
        n += e->d_name[0] != '.';
    if (dir != NULL)
        closedir(dir);
    return n;
}

void check_collect_files(const char *root, struct check_facts *f)
{
    char text[FILE_BYTES];
    read_line(root, "/proc/sys/net/core/somaxconn", text);
    f->somaxconn = to_number(text);
    read_line(root, "/proc/sys/net/ipv4/ip_local_port_range", text);
    char *rest = NULL, *first = strtok_r(text, " \t", &rest), *last = strtok_r(NULL, " \t", &rest);
    f->first_port = first != NULL ? to_number(first) : CHECK_UNKNOWN;
    f->last_port = last != NULL ? to_number(last) : CHECK_UNKNOWN;
    f->n_rdma = count_entries(root, "/sys/class/infiniband");
}

/* --- the clock, limits and memory --- */

int64_t check_collect_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static uint64_t limit_of(rlim_t n)
{
    return n == RLIM_INFINITY ? CHECK_UNLIMITED : (uint64_t)n;
}

void check_collect_limits(struct check_facts *f)
{
    struct rlimit limit;
    f->nofile = f->nofile_hard = f->memlock = CHECK_UNKNOWN;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        f->nofile = limit_of(limit.rlim_cur);
        f->nofile_hard = limit_of(limit.rlim_max);
    }
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0)
        f->memlock = limit_of(limit.rlim_cur);
}

void check_collect_shm(const char *path, struct check_facts *f)
{
    struct statvfs room;
    char name[PATH_MAX];
    f->shm_bytes = f->shm_free = CHECK_UNKNOWN;
    f->no_shm[0] = '\0';
    if (statvfs(path, &room) < 0) {
        snprintf(f->no_shm, sizeof f->no_shm, "%s", strerror(errno));
        return;
    }
    f->shm_bytes = (uint64_t)room.f_blocks * room.f_frsize;
    f->shm_free = (uint64_t)room.f_bavail * room.f_frsize;
    snprintf(name, sizeof name, "%s/ddpctl-check-XXXXXX", path);
    int fd = mkostemp(name, O_CLOEXEC);
    if (fd < 0) {
        snprintf(f->no_shm, sizeof f->no_shm, "%s", strerror(errno));
        return;
    }
    unlink(name);
    close(fd);
}

/* --- ddprun and the token --- */

void check_collect_version(const char *ddprun, uint64_t timeout_ms, struct check_facts *f)
{
    static const char before[] = "ddprun ";
    const char *const words[] = {ddprun, "--version", NULL};
    char text[FILE_BYTES];
    struct co_error err = {0};
    f->version[0] = f->no_version[0] = '\0';
    if (check_run(words, timeout_ms, text, sizeof text, &err) < 0) {
        snprintf(f->no_version, sizeof f->no_version, "%s", err.text);
        return;
    }
    text[strcspn(text, "\n")] = '\0';
    if (strncmp(text, before, sizeof before - 1) == 0)
        snprintf(f->version, sizeof f->version, "%s", text + sizeof before - 1);
    else
        snprintf(f->no_version, sizeof f->no_version, "%.100s printed '%.60s'", ddprun, text);
}

void check_collect_token(struct check_facts *f)
{
    const struct token_places places = {.variable = co_secret_env_get(),
                                        .variable_by = TOKEN_VARIABLE,
                                        .config = getenv("XDG_CONFIG_HOME"),
                                        .home = getenv("HOME"),
                                        .make = TOKEN_MAKE_NEVER};
    struct token token;
    struct seal_key key = {.id = {0}};
    struct co_error err = {0};
    f->token_id[0] = f->no_token[0] = '\0';
    int rc = token_find(&places, &token, &err);
    if (rc == 0)
        rc = seal_key_init(&key, token.bytes, token.len, &err);
    if (rc == 0)
        co_print_hex(key.id, sizeof key.id, f->token_id);
    else if (rc != -ENOENT)
        snprintf(f->no_token, sizeof f->no_token, "%s", err.text);
    token_wipe(&token);
    seal_key_fini(&key);
}

/* --- GPUs --- */

/* Without nvidia-smi the version is in the driver's own file. */
static void read_driver(struct check_facts *f)
{
    char text[FILE_BYTES];
    read_line("", "/proc/driver/nvidia/version", text);
    check_gpus_read_version(text, f->driver, sizeof f->driver);
}

/* On a machine without GPUs a failure of nvidia-smi is not a finding. */
static void ask_driver(uint64_t timeout_ms, struct check_facts *f)
{
    co_autofree char *text = malloc(ANSWER_BYTES);
    struct co_error err = {0};
    if (text == NULL)
        return;
    int rc = check_run(check_gpus_words, timeout_ms, text, ANSWER_BYTES, &err);
    uint64_t n = rc == 0 ? check_gpus_read(text, f) : 0;
    if (n > f->n_gpus)
        f->n_gpus = n;
    if (rc < 0 && rc != -ENOENT && f->n_gpus > 0)
        snprintf(f->gpu_trouble, sizeof f->gpu_trouble, "%s", err.text);
    else if (rc == 0 && n < f->n_gpus)
        snprintf(f->gpu_trouble, sizeof f->gpu_trouble,
                 "the node has %d GPUs, but nvidia-smi lists %d", (int)f->n_gpus, (int)n);
}

static void ask_nccl(struct check_facts *f)
{
    int version = 0;
    void *library = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
    int (*get_version)(int *) =
        library != NULL ? (int (*)(int *))(uintptr_t)dlsym(library, "ncclGetVersion") : NULL;
    if (get_version != NULL && get_version(&version) == 0)
        check_gpus_print_nccl(version, f->nccl, sizeof f->nccl);
    if (library != NULL)
        dlclose(library);
}

void check_collect_gpus(uint64_t timeout_ms, struct check_facts *f)
{
    f->gpu_trouble[0] = f->driver[0] = f->nccl[0] = '\0';
    f->n_described = 0;
    f->n_gpus = (uint64_t)resources_n_gpus("", NULL);
    ask_driver(timeout_ms, f);
    if (f->driver[0] == '\0')
        read_driver(f);
    ask_nccl(f);
}
