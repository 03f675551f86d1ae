/* From a job to a parent of its ranks. warm_open() writes the bootstrap into the runtime directory
 * (make_files()) and makes an environment in which a Python starts with it; warm_start_parent()
 * starts the parent with the words and the variables of a rank, less those that differ between
 * ranks (make_image()); warm_on_report() and warm_on_note() take the messages of the spawner and
 * the parent. Read warm_start_parent() first. A parent that fails costs a note: ranks are then
 * executed. */
#include "warm.h"

#include "launcher/job/job_spec.h"
#include "launcher/job/worker_env.h"
#include "launcher/spawner/image.h"
#include "launcher/spawner/prefork.h"
#include "launcher/spawner/spawner.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/parse.h"
#include "common/scope.h"
#include "common/whole.h"

#include <ctype.h>
#include <ddp/env.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { READY_MS = 120 * 1000 }; /* for --warm=start; imports may come from a slow network disk */

/* A Python that ignores PYTHONPATH runs this instead of us, and must not run the script. */
static char guard[] = "raise SystemExit(70)";

/* What differs between ranks or generations: a parent has none of these, and notices code that
 * reads one. */
static const char *const hidden[] = {
    DDP_ENV_RANK,
    DDP_ENV_LOCAL_RANK,
    DDP_ENV_ROLE_RANK,
    DDP_ENV_ERROR_FILE,
    DDP_ENV_WORLD_SIZE,
    DDP_ENV_GROUP_RANK,
    DDP_ENV_GROUP_WORLD_SIZE,
    DDP_ENV_ROLE_WORLD_SIZE,
    DDP_ENV_MASTER_ADDR,
    DDP_ENV_MASTER_PORT,
    DDP_ENV_MASTER_HOST,
    DDP_ENV_RESTART_COUNT,
    DDP_ENV_USE_AGENT_STORE,
    DDP_ENV_GENERATION,
    DDP_ENV_TERM,
    DDP_ENV_NODE_FD,
    DDP_ENV_NODE_DIR,
    DDP_ENV_CHECKPOINT_FD,
    DDP_ENV_PROGRESS_FD,
    DDP_ENV_ENCRYPT_FD,
    DDP_ENV_MEMORY_FD,
    DDP_ENV_CHECKPOINT_SIGNAL,
    DDP_ENV_CUDA_VISIBLE_DEVICES, /* the last two: only with --virtual-local-rank */
    DDP_ENV_HIP_VISIBLE_DEVICES,
};

__attribute__((format(printf, 2, 3))) static void note_problem(const struct warm *w,
                                                               const char *format, ...)
{
    char text[CO_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (w->callbacks.say != NULL)
        w->callbacks.say(w->callbacks.arg, text);
}

static size_t n_hidden(const struct job_spec *spec)
{
    return sizeof hidden / sizeof *hidden - (spec->virtual_local_rank ? 0 : 2);
}

static bool is_variable(const char *variable, const char *name)
{
    size_t n = strlen(name);
    return strncmp(variable, name, n) == 0 && variable[n] == '=';
}

/* --- Preparing --- */

static int write_file(const char *path, const unsigned char *bytes, size_t n, struct co_error *err)
{
    co_autoclose_fd int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return co_fail(err, -errno, "cannot make '%s': %s", path, strerror(errno));
    int rc = co_write_all(fd, bytes, n);
    return rc < 0 ? co_fail(err, rc, "cannot write '%s': %s", path, strerror(-rc)) : 0;
}

/* Why a fork could not replace executing this program; NULL: it could. */
static const char *find_hindrance(const struct job_spec *spec, const char *runtime_dir)
{
    if (!spec->is_python)
        return "ddprun does not start Python for this program";
    if (spec->n_local > PREFORK_MAX)
        return "too many ranks on this node";
    if (spec->more != NULL || spec->wrap != NULL)
        return "not all ranks execute the program itself";
    if (strchr(spec->shown, '$') != NULL)
        return "each rank has its own script";
    if (strpbrk(runtime_dir, ":\n") != NULL)
        return "the name of the runtime directory contains ':'";
    return NULL;
}

static int make_files(struct warm *w, const char *runtime_dir, struct co_error *err)
{
    w->archive = co_format("%s/warm.zip", runtime_dir);
    w->seen = co_format("%s/warm.seen", runtime_dir);
    if (w->archive == NULL || w->seen == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    int rc = write_file(w->archive, warm_archive, warm_archive_bytes, err);
    return rc < 0 ? rc : write_file(w->seen, NULL, 0, err);
}

/* The environment with the two variables that make a Python begin with us, and `role`.
 *
 * returns   to free(), NULL: out of memory */
static char **add_bootstrap(const struct warm *w, char *const *environment, const char *role)
{
    const char *own = NULL;
    size_t n = 0;
    for (; environment[n] != NULL; n++)
        if (own == NULL && is_variable(environment[n], "PYTHONPATH"))
            own = strchr(environment[n], '=') + 1;
    const size_t bytes = sizeof "PYTHONPATH=:" + strlen(w->archive) +
                         (own != NULL ? strlen(own) : 0) + sizeof DDP_ENV_WARM "=" + strlen(role);
    char **env = malloc((n + 3) * sizeof *env + bytes);
    if (env == NULL)
        return NULL;
    char **to = env;
    for (char *const *v = environment; *v != NULL; v++)
        if (!is_variable(*v, "PYTHONPATH") && !is_variable(*v, DDP_ENV_WARM))
            *to++ = *v;
    char *text = (char *)(env + n + 3);
    *to++ = text;
    text += sprintf(text, "PYTHONPATH=%s%s%s", w->archive, own != NULL ? ":" : "",
                    own != NULL ? own : "") +
            1;
    *to++ = text;
    sprintf(text, DDP_ENV_WARM "=%s", role);
    *to = NULL;
    return env;
}

static int prepare_parent(struct warm *w, const char *runtime_dir, char *const *environment,
                          struct co_error *err)
{
    const char *hindrance = find_hindrance(w->spec, runtime_dir);
    if (hindrance != NULL)
        return co_fail(err, -ENOTSUP, "%s", hindrance);
    int rc = make_files(w, runtime_dir, err);
    if (rc < 0)
        return rc;
    co_autofree char *role = co_format("learn:%s:", w->seen);
    w->rank_env = role != NULL ? add_bootstrap(w, environment, role) : NULL;
    return w->rank_env != NULL ? 0 : co_fail(err, -ENOMEM, "out of memory");
}

void warm_open(struct warm *w, const struct job_spec *spec, const char *runtime_dir,
               char *const *environment, const struct warm_callbacks *callbacks)
{
    struct co_error err;
    *w = (struct warm){.notes_fd = -1};
    if (spec->warm == WARM_NEVER)
        return;
    w->spec = spec;
    w->callbacks = *callbacks;
    w->environment = environment;
    if (prepare_parent(w, runtime_dir, environment, &err) == 0)
        return;
    note_problem(w, "not available, starting ranks normally: %s", err.text);
    warm_close(w);
}

void warm_close(struct warm *w)
{
    free(w->archive);
    free(w->seen);
    free(w->rank_env);
    if (w->spec != NULL && w->notes_fd >= 0)
        close(w->notes_fd);
    *w = (struct warm){.notes_fd = -1};
}

char *const *warm_environment(const struct warm *w, char *const *environment)
{
    return w->spec != NULL ? w->rank_env : environment;
}

/* --- The parent --- */

/* What a rank has, except what differs between ranks: only pointers move. */
static void leave_out(const struct job_spec *spec, char **env)
{
    char **to = env;
    for (char **v = env; *v != NULL; v++) {
        size_t i = 0;
        while (i < n_hidden(spec) && !is_variable(*v, hidden[i]))
            i++;
        if (i == n_hidden(spec))
            *to++ = *v;
    }
    *to = NULL;
}

/* "probe:SEEN:N:start:WORDS:RANK,WORLD_SIZE,...:": to free(); NULL: out of memory */
static char *make_role(const struct warm *w)
{
    char names[1024];
    size_t n = 0;
    for (size_t i = 0; i < n_hidden(w->spec); i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i > 0 ? "," : "", hidden[i]);
    return co_format("probe:%s:%d:%s:%zu:%s:", w->seen, w->spec->n_local,
                     w->spec->warm == WARM_START || w->is_ahead ? "start" : "",
                     co_count_words(w->spec->argv), names);
}

/* PYTHON -u -c GUARD and the words of a rank, which the bootstrap executes. */
static int make_image(const struct warm *w, int *ret_fd)
{
    co_autofree char *role = make_role(w);
    char *const first[] = {w->spec->argv[0], (char *)"-u", (char *)"-c", guard, NULL};
    co_autofree char **words = co_join_words((char *const *const[]){first, w->spec->argv}, 2);
    co_autofree char **env = NULL;
    co_autofree char **rank_env = NULL;
    struct worker_env *common = NULL;
    const struct generation_place nowhere = {.local_world_size = w->spec->n_local,
                                             .master_addr = "",
                                             .node_fd = -1,
                                             .checkpoint_fd = -1,
                                             .pmi_fd = -1,
                                             .progress_fd = -1};
    const struct rank_place nobody = {.error_file = ""};
    if (role == NULL || words == NULL)
        return -ENOMEM;
    int rc = worker_env_create(w->spec, &nowhere, w->environment, &common, NULL)
                 ?: worker_env_make(common, &nobody, &rank_env, NULL);
    if (rc == 0) {
        leave_out(w->spec, rank_env);
        env = add_bootstrap(w, rank_env, role);
        const struct image_words worker = {.path = w->spec->path, .argv = words, .env = env};
        rc = env == NULL ? -ENOMEM : image_make(&worker, 1, ret_fd, NULL);
    }
    worker_env_destroy(common);
    return rc;
}

int warm_start_parent(struct warm *w, const struct spawner *spawner)
{
    int pair[2];
    co_autoclose_fd int image_fd = -1;
    if (w->spec == NULL || w->asked)
        return -1;
    w->asked = true;
    int rc = make_image(w, &image_fd);
    if (rc == 0 && pipe2(pair, O_CLOEXEC | O_NONBLOCK) < 0)
        rc = -errno;
    if (rc == 0) {
        w->notes_fd = pair[0];
        rc = spawner_start_parent(spawner, image_fd, pair[1]);
        close(pair[1]);
    }
    w->is_gone = rc < 0;
    if (rc < 0)
        note_problem(w, "not available, starting ranks normally: %s", strerror(-rc));
    return w->notes_fd;
}

/* --- What is heard --- */

static void hear_parent(struct warm *w, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\n') {
            note_problem(w, "%.*s", (int)w->n_line, w->line);
            w->n_line = 0;
        } else if (w->n_line < sizeof w->line) {
            w->line[w->n_line++] = isprint((unsigned char)text[i]) ? text[i] : '?';
        }
    }
}

bool warm_on_note(struct warm *w)
{
    enum { READS = 64 /* as much as a pipe holds: the fork parent may write faster */ };
    char text[1024];
    ssize_t n = 1;
    for (int i = 0; i < READS && (n = read(w->notes_fd, text, sizeof text)) > 0; i++)
        hear_parent(w, text, (size_t)n);
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static void say_way(const struct warm *w, const struct spawner_report *r)
{
    static const char *const why[] = {
        [SPAWNER_NO_SEEDS] = "the fork parent has too few processes ready",
        [SPAWNER_NO_ANSWER] = "the preforked process did not answer and was killed",
    };
    if (r->way == SPAWNER_FORKED)
        note_problem(w, "local rank %d forked, pid %d", r->local_rank, r->pid);
    else if (w->asked && r->way < (int)(sizeof why / sizeof *why) && why[r->way] != NULL)
        note_problem(w, "local rank %d starts normally: %s", r->local_rank, why[r->way]);
}

static void say_gone(const struct warm *w, const struct spawner_report *r)
{
    if (r->pid == 0)
        note_problem(w, "starting ranks normally: the fork parent failed to start");
    else if (WIFSIGNALED(r->status))
        note_problem(w, "starting ranks normally: the fork parent was killed by signal %d",
                     WTERMSIG(r->status));
    else if (WEXITSTATUS(r->status) != 0) /* else it has reported the reason */
        note_problem(w, "starting ranks normally: the fork parent exited with status %d",
                     WEXITSTATUS(r->status));
}

void warm_on_report(struct warm *w, const struct spawner_report *r)
{
    if (w->spec == NULL)
        return;
    if (r->event == SPAWNER_STARTED)
        say_way(w, r);
    if (r->event == SPAWNER_PREFORK_READY)
        w->is_ready = true;
    if (r->event != SPAWNER_PARENT_GONE)
        return;
    w->is_gone = true;
    if (w->notes_fd >= 0) /* its own last words first */
        warm_on_note(w);
    say_gone(w, r);
}

void warm_await(struct warm *w, const struct spawner *spawner, int signal_fd)
{
    uint64_t until_ms = co_deadline_ms(READY_MS);
    int notes_fd = w->notes_fd;
    while (w->spec != NULL && w->asked && !w->is_ready && !w->is_gone) {
        struct spawner_report r;
        struct pollfd p[] = {{.fd = spawner->sock, .events = POLLIN},
                             {.fd = signal_fd, .events = POLLIN},
                             {.fd = notes_fd, .events = POLLIN}};
        int n = poll(p, 3, co_left_ms(until_ms));
        if (n == 0)
            note_problem(
                w, "starting ranks normally: timed out after %d s waiting for the fork parent",
                READY_MS / 1000);
        if (n == 0 || (n < 0 && errno != EINTR) || (n > 0 && p[1].revents != 0))
            return;
        if (n > 0 && p[2].revents != 0 && !warm_on_note(w))
            notes_fd = -1; /* its end; the watcher of the descriptor sees it again */
        if (n <= 0 || p[0].revents == 0)
            continue;
        if (spawner_receive(spawner, &r) != 1)
            return; /* the watcher of the descriptor sees its end again */
        warm_on_report(w, &r);
    }
}
