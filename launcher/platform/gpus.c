#include "gpus.h"

#include "common/scope.h"

#include <ctype.h>
#include <ddp/env.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_BYTES = 8192 };

/* returns false: it cannot be read; else a string of its first bytes is in text */
static bool read_device_file(const char *path, char text[FILE_BYTES])
{
    co_autoclose_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, FILE_BYTES - 1);
    text[n > 0 ? n : 0] = '\0';
    return n >= 0;
}

/* The value after "NAME:" and blanks, cut to n - 1 bytes. returns false: no such line */
static bool find_value(const char *text, const char *name, char *value, size_t n)
{
    const char *at = strstr(text, name);
    if (at == NULL)
        return false;
    at += strlen(name);
    at += strspn(at, " \t");
    snprintf(value, n, "%.*s", (int)strcspn(at, "\n"), at);
    return true;
}

static bool exists(const char *root, const char *minor)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/dev/nvidia%s", root, minor);
    return access(path, F_OK) == 0;
}

/* A container has device files of its own GPUs only, while the driver may show it all of them. If
 * no device files exist, since the driver makes them on first use, no GPU is left out. */
static bool is_own_gpu(const char *root, const char *information)
{
    char minor[12];
    if (!find_value(information, "Device Minor:", minor, sizeof minor) ||
        minor[strspn(minor, "0123456789")] != '\0')
        return true;
    return exists(root, minor) || !exists(root, "ctl");
}

static void find_near(const char *root, struct gpu *g)
{
    char path[PATH_MAX], text[FILE_BYTES];
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/local_cpulist", root, g->bus_id);
    if (!read_device_file(path, text) || cpu_set_parse(text, &g->near) < 0)
        g->near = (struct cpu_set){0};
}

/* returns false: not a device, or not ours */
static bool look_at_device(const char *root, const char *entry, struct gpu *g)
{
    char path[PATH_MAX], information[FILE_BYTES];
    *g = (struct gpu){0};
    if (entry[0] == '.' || strlen(entry) >= sizeof g->bus_id)
        return false;
    for (size_t i = 0; entry[i] != '\0'; i++) /* sysfs writes small letters */
        g->bus_id[i] = (char)tolower((unsigned char)entry[i]);
    snprintf(path, sizeof path, "%s/proc/driver/nvidia/gpus/%s/information", root, entry);
    if (read_device_file(path, information)) {
        if (!is_own_gpu(root, information))
            return false;
        find_value(information, "GPU UUID:", g->uuid, sizeof g->uuid);
    }
    find_near(root, g);
    return true;
}

/* Of classes 0380 and 12xx: "drives no display", and "processing accelerator". */
static bool is_accelerator(const char *class)
{
    size_t len = strspn(class, "0123456789ABCDEFabcdef");
    return (len == 5 && strncmp(class, "380", 3) == 0) ||
           (len == 6 && strncmp(class, "12", 2) == 0);
}

/* returns false: not a device that computes only, or not ours */
static bool look_at_drm(const char *root, const char *entry, struct gpu *g)
{
    char path[PATH_MAX], event[FILE_BYTES], class[8];
    *g = (struct gpu){0};
    if (strncmp(entry, "renderD", 7) != 0 || strlen(entry) > 20)
        return false;
    snprintf(path, sizeof path, "%s/dev/dri/%s", root, entry);
    if (access(path, F_OK) < 0)
        return false;
    snprintf(path, sizeof path, "%s/sys/class/drm/%s/device/uevent", root, entry);
    if (!read_device_file(path, event) || !find_value(event, "PCI_CLASS=", class, sizeof class) ||
        !find_value(event, "PCI_SLOT_NAME=", g->bus_id, sizeof g->bus_id) || !is_accelerator(class))
        return false;
    find_near(root, g);
    return true;
}

/* The devices of the entries of a directory, at most n; to: NULL: only count them. */
static size_t look_through(const char *root, const char *name,
                           bool (*look)(const char *root, const char *entry, struct gpu *g),
                           struct gpu *to, size_t n)
{
    char path[PATH_MAX];
    struct gpu counted;
    size_t found = 0;
    snprintf(path, sizeof path, "%s%s", root, name);
    co_autoclose_dir DIR *dir = opendir(path);
    for (struct dirent *e; dir != NULL && found < n && (e = readdir(dir)) != NULL;)
        found += look(root, e->d_name, to != NULL ? &to[found] : &counted);
    return found;
}

int gpus_n_others(const char *root)
{
    return (int)look_through(root, "/sys/class/drm", look_at_drm, NULL, GPUS_MAX);
}

static int compare_gpus(const void *left, const void *right)
{
    const struct gpu *a = left, *b = right;
    return strcmp(a->bus_id, b->bus_id);
}

int gpus_find(const char *root, struct gpus **ret)
{
    struct gpus *g = calloc(1, sizeof *g + GPUS_MAX * sizeof g->gpu[0]);
    if (g == NULL)
        return -ENOMEM;
    g->n = look_through(root, "/proc/driver/nvidia/gpus", look_at_device, g->gpu, GPUS_MAX);
    if (g->n == 0)
        g->n = look_through(root, "/sys/class/drm", look_at_drm, g->gpu, GPUS_MAX);
    qsort(g->gpu, g->n, sizeof g->gpu[0], compare_gpus);
    *ret = g;
    return 0;
}

static const struct gpu *find_by_uuid(const struct gpus *g, const char *name, size_t len)
{
    for (size_t i = 0; len > 4 && i < g->n; i++)
        if (strncmp(g->gpu[i].uuid, name, len) == 0)
            return &g->gpu[i];
    return NULL;
}

const struct gpu *gpus_get(const struct gpus *g, const char *visible, int i)
{
    if (visible == NULL)
        return (size_t)i < g->n ? &g->gpu[i] : NULL;
    for (; i > 0 && *visible != '\0'; i--) {
        visible += strcspn(visible, ",");
        visible += *visible == ',';
    }
    visible += strspn(visible, " ");
    size_t len = strcspn(visible, ", ");
    size_t n_digits = strspn(visible, "0123456789");
    if (len == 0 || n_digits != len)
        return find_by_uuid(g, visible, len);
    size_t number = strtoul(visible, NULL, 10);
    return number < g->n ? &g->gpu[number] : NULL;
}

const char *gpus_visible(const char *(*get)(void *arg, const char *name), void *arg,
                         const char **ret_name)
{
    const char *hip = get(arg, DDP_ENV_HIP_VISIBLE_DEVICES);
    const bool is_hip = hip != NULL && *hip != '\0';
    if (ret_name != NULL)
        *ret_name = is_hip ? DDP_ENV_HIP_VISIBLE_DEVICES : DDP_ENV_CUDA_VISIBLE_DEVICES;
    return is_hip ? hip : get(arg, DDP_ENV_CUDA_VISIBLE_DEVICES);
}

static const char *get_own(void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

const char *gpus_visible_here(void)
{
    return gpus_visible(get_own, NULL, NULL);
}
