#include "torch_hook.h"

#include "common/error.h"
#include "common/parse.h"
#include "common/scope.h"
#include "common/whole.h"

#include <ddp/env.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#define SOCKET_PREFIX "torch."

enum { PID_CHARS = 10, MAX_SERVERS = 4096 };

static bool is_variable(const char *variable, const char *name)
{
    const size_t n = strlen(name);
    return strncmp(variable, name, n) == 0 && variable[n] == '=';
}

static int write_archive(struct torch_hook *h, const char *dir, struct co_error *err)
{
    struct sockaddr_un address;
    if (strchr(dir, ':') != NULL)
        return co_fail(err, -EINVAL, "the name of the runtime directory contains ':'");
    if (strlen(dir) + sizeof "/" SOCKET_PREFIX + PID_CHARS > sizeof address.sun_path)
        return co_fail(err, -ENAMETOOLONG, "the name of the runtime directory is too long");
    h->archive = co_format("%s/torch.zip", dir);
    if (h->archive == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    return co_write_whole(h->archive, torch_archive, torch_archive_bytes, err);
}

/* The environment with the two variables that make a Python begin with the module. */
static char **add_variables(const struct torch_hook *h, char *const *environment)
{
    const char *own = NULL;
    size_t n = 0;
    for (; environment[n] != NULL; n++)
        if (own == NULL && is_variable(environment[n], "PYTHONPATH"))
            own = strchr(environment[n], '=') + 1;
    const size_t n_path =
        sizeof "PYTHONPATH=:" + strlen(h->archive) + (own != NULL ? strlen(own) : 0);
    const size_t n_dir = sizeof DDP_ENV_WORKER_SERVER "=" + strlen(h->dir);
    char **env = malloc((n + 3) * sizeof *env + n_path + n_dir);
    if (env == NULL)
        return NULL;
    char **to = env, *text = (char *)(env + n + 3);
    for (char *const *v = environment; *v != NULL; v++)
        if (!is_variable(*v, "PYTHONPATH") && !is_variable(*v, DDP_ENV_WORKER_SERVER))
            *to++ = *v;
    snprintf(text, n_path, "PYTHONPATH=%s%s%s", h->archive, own != NULL ? ":" : "",
             own != NULL ? own : "");
    *to++ = text;
    snprintf(text + n_path, n_dir, DDP_ENV_WORKER_SERVER "=%s", h->dir);
    *to++ = text + n_path;
    *to = NULL;
    return env;
}

int torch_hook_open(struct torch_hook *h, const char *dir, char *const *environment,
                    struct co_error *err)
{
    *h = (struct torch_hook){.dir = dir};
    int rc = write_archive(h, dir, err);
    if (rc == 0 && (h->env = add_variables(h, environment)) == NULL)
        rc = co_fail(err, -ENOMEM, "out of memory");
    if (rc < 0)
        torch_hook_close(h);
    return rc;
}

void torch_hook_close(struct torch_hook *h)
{
    free(h->archive);
    free(h->env);
    *h = (struct torch_hook){0};
}

char *const *torch_hook_environment(const struct torch_hook *h, char *const *environment)
{
    return h->env != NULL ? h->env : environment;
}

/* returns   0: another name */
static pid_t pid_of_name(const char *name)
{
    char *end;
    const size_t n = sizeof SOCKET_PREFIX - 1;
    if (strncmp(name, SOCKET_PREFIX, n) != 0 || name[n] < '1' || name[n] > '9')
        return 0;
    const long pid = strtol(name + n, &end, 10);
    return *end == '\0' && pid <= INT_MAX ? (pid_t)pid : 0;
}

void torch_hook_list(const struct torch_hook *h,
                     void (*on_server)(void *arg, pid_t pid, const char *path), void *arg)
{
    co_autoclose_dir DIR *dir = h->archive != NULL ? opendir(h->dir) : NULL;
    struct dirent *entry;
    char path[PATH_MAX];
    int n = 0;
    while (dir != NULL && n < MAX_SERVERS && (entry = readdir(dir)) != NULL) {
        const pid_t pid = pid_of_name(entry->d_name);
        if (pid == 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", h->dir, entry->d_name);
        on_server(arg, pid, path);
        n++;
    }
}
