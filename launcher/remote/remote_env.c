#include "remote_env.h"

#include <ddp/env.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Names, and with a '*' what names begin with. */
static const char *const staying[] = {
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "MAIL",
    "PWD",
    "OLDPWD",
    "SHLVL",
    "_",
    "TERM",
    "HOSTNAME",
    "HOST",
    "TMPDIR",
    "TEMP",
    "TMP",
    "DISPLAY",
    "XAUTHORITY",
    "WAYLAND_DISPLAY",
    "KRB5CCNAME",
    "TMUX",
    "TMUX_PANE",
    "STY",
    "WINDOWID",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "NOTIFY_SOCKET",
    "BASH_FUNC_*",
    "SSH_*",
    "XDG_*",
    "DBUS_*",
    "SLURM*",
    "SLURMD_*",
    "PMI_*",
    "PMIX_*",
    "OMPI_*",
    "HYD*",
    "MV2_*",
    "MPI_LOCAL*",
    DDP_ENV_TOKEN,
    "DDPRUN_SSH",
    "CUDA_VISIBLE_DEVICES",
    DDP_ENV_NODE_FD,
    DDP_ENV_CHECKPOINT_FD,
};

static bool stays(const char *variable)
{
    size_t len = strcspn(variable, "=");
    for (size_t i = 0; i < sizeof staying / sizeof *staying; i++) {
        size_t n = strcspn(staying[i], "*");
        bool is_prefix = staying[i][n] == '*';
        if (strncmp(variable, staying[i], n) == 0 && (is_prefix ? len >= n : len == n))
            return true;
    }
    return false;
}

static bool has_name(const char *variable, const char *of)
{
    size_t n = strcspn(of, "=");
    return strncmp(variable, of, n) == 0 && variable[n] == '=';
}

static bool is_exported(const char *variable, const char *const *exports)
{
    for (; *exports != NULL; exports++)
        if (has_name(variable, *exports))
            return true;
    return false;
}

int remote_env_make(char *const *environment, const char *const *exports, char ***ret)
{
    size_t n = 0;
    for (char *const *v = environment; *v != NULL; v++)
        n++;
    for (const char *const *e = exports; *e != NULL; e++)
        n++;
    char **list = malloc((n + 1) * sizeof *list);
    if (list == NULL)
        return -ENOMEM;
    n = 0;
    for (char *const *v = environment; *v != NULL; v++)
        if (strchr(*v, '=') != NULL && **v != '=' && (!stays(*v) || is_exported(*v, exports)))
            list[n++] = *v;
    for (const char *const *e = exports; *e != NULL; e++)
        if (strchr(*e, '=') != NULL)
            list[n++] = (char *)*e; /* behind the others: the last one counts */
    list[n] = NULL;
    *ret = list;
    return 0;
}
