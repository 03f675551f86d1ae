/* remote_plan.c - the orders for the hosts of a job, and what of them can be shown without starting
 * anything. */
#include "remote.h"

#include "launch_channel.h"
#include "launcher/hosts/remote_shell.h"
#include "launcher/job/job_spec.h"
#include "launcher/job/program.h"
#include "launcher/platform/host_env.h"
#include "launcher/reporting/dry_run.h"
#include "remote_priv.h"

#include "common/error.h"
#include "common/parse.h"
#include "common/scope.h"
#include "common/secret_memory.h"
#include "rendezvous/channel/seal.h"

#include <ddp/env.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { TOKEN_BYTES = 32 };

/* --- the environment --- */

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
    "K_MPI_JOB_ROLE",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    DDP_ENV_TOKEN,
    "DDPRUN_SSH",
    DDP_ENV_CUDA_VISIBLE_DEVICES,
    DDP_ENV_HIP_VISIBLE_DEVICES,
    DDP_ENV_NODE_FD,
    DDP_ENV_CHECKPOINT_FD,
    DDP_ENV_PROGRESS_FD,
    DDP_ENV_ENCRYPT_FD,
    DDP_ENV_MEMORY_FD,
    DDP_ENV_WORKER_SERVER,
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

static bool is_exported(const char *variable, const char *const *exports)
{
    for (; *exports != NULL; exports++) {
        size_t n = strcspn(*exports, "=");
        if (strncmp(variable, *exports, n) == 0 && variable[n] == '=')
            return true;
    }
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
            list[n++] = (char *)*e; /* after the others: the last one counts */
    list[n] = NULL;
    *ret = list;
    return 0;
}

int remote_shell_env_make(char *const *environment, char ***ret)
{
    static const char *const ours[] = {"SSH_CONNECTION=", "SLURM_LAUNCH_NODE_IPADDR="};
    size_t n = co_count_words(environment);
    char **list = malloc((n + 1) * sizeof *list);
    if (list == NULL)
        return -ENOMEM;
    n = 0;
    for (char *const *v = environment; *v != NULL; v++)
        if (strncmp(*v, ours[0], strlen(ours[0])) != 0 &&
            strncmp(*v, ours[1], strlen(ours[1])) != 0)
            list[n++] = *v;
    list[n] = NULL;
    *ret = list;
    return 0;
}

/* --- the command that starts a ddprun on a host --- */

/* The login shell there becomes sh, which becomes ddprun: nothing is left between it and ssh. */
static int make_command(const struct remote *r, const struct host *host, bool is_shown, char ***ret,
                        struct co_error *err)
{
    const struct remote_spec *s = r->spec->remote;
    const char *words[1 + PAYLOAD_N_ARGUMENTS] = {launch_word, NULL};
    if (host == NULL)
        return remote_shell_make(&s->way, NULL, "ddprun", words, ret, err);
    if (is_shown || s->way.by_srun)
        return remote_shell_make(&s->way, host, r->program, words, ret, err);
    words[0] = "sh";
    payload_arguments(&r->payload, s->send == REMOTE_SEND_ALWAYS ? "" : r->program, launch_terms(),
                      words + 1);
    return remote_shell_make(&s->way, host, "exec", words, ret, err);
}

int remote_command_make(const struct remote *r, const struct host *host, bool is_shown,
                        char **ret_path, char ***ret_words, struct co_error *err)
{
    co_autofree char **words = NULL;
    int rc = make_command(r, host, is_shown, &words, err);
    if (rc == 0 && host != NULL)
        rc = program_find(words[0], &host_env_real, ret_path, err);
    else if (rc == 0 && (*ret_path = strdup(r->program)) == NULL)
        rc = co_fail(err, -ENOMEM, "out of memory");
    if (rc == 0)
        *ret_words = co_take(&words);
    return rc;
}

/* --- what all hosts get --- */

/* A secret of this job alone: a process without it cannot join. */
static int make_token(struct remote *r, struct job_world *w, struct co_error *err)
{
    uint8_t token[TOKEN_BYTES];
    r->token = co_secret_alloc(2 * TOKEN_BYTES + 1);
    if (r->token == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    if (getrandom(token, sizeof token, 0) != (ssize_t)sizeof token)
        return co_fail(err, -EIO, "cannot get random bytes for a token: %s", strerror(errno));
    co_print_hex(token, sizeof token, r->token);
    explicit_bzero(token, sizeof token);
    return seal_key_create(r->token, strlen(r->token), &w->key, err);
}

/* The words that we were started with; on a terminal lines of several ranks have labels, and the
 * nodes cannot see ours. */
static int make_words(struct remote *r, struct co_error *err)
{
    char *const *argv = r->spec->remote->argv;
    bool label = isatty(STDOUT_FILENO) && isatty(STDERR_FILENO) && r->spec->output.label == NULL &&
                 !r->spec->as_torchrun;
    char *const first[] = {argv[0], label ? (char *)"--label" : NULL, NULL};
    r->argv = co_join_words((char *const *const[]){first, argv + 1}, 2);
    return r->argv != NULL ? 0 : co_fail(err, -ENOMEM, "out of memory");
}

static int find_places(struct remote *r, struct co_error *err)
{
    const struct job_spec *spec = r->spec;
    char program[PATH_MAX];
    co_autofree char *here = getcwd(NULL, 0);
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n < 0 || here == NULL)
        return co_fail(err, -errno, "cannot locate this ddprun: %s", strerror(errno));
    program[n] = '\0';
    bool is_absolute = spec->wdir != NULL && spec->wdir[0] == '/';
    r->dir =
        co_format("%s%s%s", is_absolute ? "" : here, is_absolute || spec->wdir == NULL ? "" : "/",
                  spec->wdir != NULL ? spec->wdir : "");
    r->nodes = co_format("%u:%u", spec->world.min_nodes, spec->world.max_nodes);
    r->program = strdup(program);
    return r->dir != NULL && r->nodes != NULL && r->program != NULL
               ? 0
               : co_fail(err, -ENOMEM, "out of memory");
}

/* By default it is optional; one that cannot be used is reported. */
static int find_payload(struct remote *r, struct co_error *err)
{
    struct co_error why;
    enum remote_send send = r->spec->remote->send;
    int rc = send == REMOTE_SEND_NEVER ? 0 : payload_open(&r->payload, &why);
    if (rc == 0)
        return 0;
    if (send == REMOTE_SEND_ALWAYS || rc == -ENOMEM)
        return co_fail(err, rc, "%s", why.text);
    if (rc != -ENOENT)
        snprintf(r->note, sizeof r->note, "cannot send ddprun to hosts: %s", why.text);
    return 0;
}

int remote_plan_make(struct remote *r, struct job_world *world, struct co_error *err)
{
    int rc = find_places(r, err) ?: find_payload(r, err) ?: make_words(r, err);
    if (rc == 0 && (remote_env_make(environ, r->spec->exports, &r->env) < 0 ||
                    remote_shell_env_make(environ, &r->shell_env) < 0))
        rc = co_fail(err, -ENOMEM, "out of memory");
    return rc < 0 ? rc : make_token(r, world, err);
}

void remote_plan_fini(struct remote *r)
{
    void *owned[] = {r->program, r->dir, r->nodes, r->env, r->argv, r->shell_env};
    co_secret_free(r->token, 2 * TOKEN_BYTES + 1);
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free(owned[i]);
    payload_close(&r->payload);
}

/* How it is started where it is installed. The script for other hosts is not shown: users do not
 * type it. */
static void show_host(const struct remote *r, const struct host *h, uint32_t n_ranks,
                      const char *path, char *const *words, FILE *out)
{
    bool may_be_sent = r->payload.bytes != NULL && !remote_shell_is_here(&r->spec->remote->way, h);
    fprintf(out, "%s: ", h->name);
    if (n_ranks != UINT32_MAX)
        fprintf(out, "%u rank%s ", n_ranks, n_ranks == 1 ? "" : "s");
    fputs("in ", out);
    dry_run_print_word(r->dir, out);
    fputs(", by ", out);
    dry_run_print_word(path, out);
    for (char *const *word = words + 1; *word != NULL; word++) {
        fputc(' ', out);
        dry_run_print_word(*word, out);
    }
    if (may_be_sent)
        fputs(r->spec->remote->send == REMOTE_SEND_ALWAYS ? ", sent there"
                                                          : ", sent there if missing",
              out);
    fputc('\n', out);
}

int remote_show(const struct job_spec *spec, FILE *out, struct co_error *err)
{
    struct remote r = {.spec = spec};
    const struct remote_spec *s = spec->remote;
    int rc = find_places(&r, err) ?: find_payload(&r, err);
    if (rc == 0 && r.note[0] != '\0')
        fprintf(out, "%s\n", r.note);
    for (size_t i = 0; rc == 0 && i < s->hosts.n; i++) {
        const struct host *h = &s->hosts.hosts[i];
        co_autofree char *path = NULL;
        co_autofree char **words = NULL;
        rc = remote_command_make(&r, remote_shell_is_here(&s->way, h) ? NULL : h, true, &path,
                                 &words, err);
        if (rc == 0)
            show_host(&r, h, s->shares[i], path, words, out);
    }
    remote_plan_fini(&r);
    return rc;
}
