/* pmix_plugin.c - libpmix's server, as a plug-in of ddprun.
 *
 * Read server_open() and server_begin() first. libpmix is initialized once and kept for the life of
 * the process: to initialize it again aborts the process in versions before 4.2.6. Each generation
 * is a namespace of its own. pmix_keys.c makes what is known about it, pmix_upcalls.c records what
 * ranks do.
 *
 * Registrations have no callback, which makes libpmix wait for its own thread and answer at
 * once. */
#include "pmix_priv.h"

#include "common/error.h"
#include "common/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { SELECT_FDS = 1024, OPENED_BY_LIBPMIX = 24 /* about ten were seen */ };

static bool is_done(pmix_status_t status)
{
    return status == PMIX_SUCCESS || status == PMIX_OPERATION_SUCCEEDED;
}

static int fail_pmix(const struct pmix_plugin_server *s, pmix_status_t status, const char *what,
                     struct co_error *err)
{
    return co_fail(err, status == PMIX_ERR_NOMEM ? -ENOMEM : -EIO, "libpmix %s %s: %s", s->version,
                   what, PMIx_Error_string(status));
}

/* --- checks of libpmix --- */

/* Structures of libpmix differ between major versions. */
static int check_version(struct pmix_plugin_server *s, struct pmix_names_version *ret,
                         struct co_error *err)
{
    if (pmix_names_read_version(PMIx_Get_version(), ret) < 0)
        return co_fail(err, -ELIBBAD, "cannot read the version of libpmix: '%.100s'",
                       PMIx_Get_version());
    snprintf(s->version, sizeof s->version, "%d.%d.%d", ret->major, ret->minor, ret->release);
    if (ret->major != PMIX_VERSION_MAJOR)
        return co_fail(err, -ELIBBAD,
                       "ddprun-pmix.so was built with libpmix %d, and this is libpmix %s: install "
                       "libpmix %d, or build ddprun with this one",
                       (int)PMIX_VERSION_MAJOR, s->version, (int)PMIX_VERSION_MAJOR);
    return 0;
}

/* Its listening socket gets one of the lowest free numbers, and select(2) takes 1024. */
static int check_files(const struct pmix_plugin_server *s, const struct pmix_names_version *v,
                       struct co_error *err)
{
    if (!pmix_names_uses_select(v))
        return 0;
    const int lowest = fcntl(s->event_fd, F_DUPFD_CLOEXEC, 0);
    if (lowest >= 0)
        close(lowest);
    return lowest >= 0 && lowest < SELECT_FDS - OPENED_BY_LIBPMIX
               ? 0
               : co_fail(err, -EMFILE,
                         "too many open files for libpmix %s, which cannot use a socket with a "
                         "number of 1024 or more: start ddprun with fewer, or install libpmix "
                         "4.2.6 or later",
                         s->version);
}

/* --- the server --- */

static int init_library(struct pmix_plugin_server *s, const struct pmix_plugin_config *c,
                        struct co_error *err)
{
    pmix_info_t info[4];
    const bool no = false;
    const size_t n = sizeof info / sizeof *info;
    sigset_t all, before;
    PMIX_INFO_LOAD(&info[0], PMIX_SERVER_TMPDIR, c->directory, PMIX_STRING);
    PMIX_INFO_LOAD(&info[1], PMIX_SYSTEM_TMPDIR, c->directory, PMIX_STRING);
    PMIX_INFO_LOAD(&info[2], PMIX_HOSTNAME, c->node_name, PMIX_STRING);
    PMIX_INFO_LOAD(&info[3], PMIX_SERVER_TOOL_SUPPORT, &no, PMIX_BOOL);
    sigfillset(&all); /* its threads inherit the mask: signals are ddprun's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const pmix_status_t status = PMIx_server_init(pmix_upcalls_module(s), info, n);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    for (size_t i = 0; i < n; i++)
        PMIX_INFO_DESTRUCT(&info[i]);
    return status == PMIX_SUCCESS ? 0 : fail_pmix(s, status, "cannot start its server", err);
}

static void server_free(struct pmix_plugin_server *s)
{
    if (s->event_fd >= 0)
        close(s->event_fd);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static int server_open(const struct pmix_plugin_config *config, struct pmix_plugin_server **ret,
                       struct co_error *err)
{
    struct pmix_names_version version;
    struct pmix_plugin_server *s = calloc(1, sizeof *s);
    if (s == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    pthread_mutex_init(&s->lock, NULL);
    s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = s->event_fd >= 0 ? check_version(s, &version, err)
                              : co_fail(err, -errno, "cannot make an event: %s", strerror(errno));
    if (rc == 0)
        rc = check_files(s, &version, err);
    if (rc == 0)
        rc = init_library(s, config, err);
    if (rc < 0) {
        server_free(s);
        return rc;
    }
    *ret = s;
    return 0;
}

/* --- a generation --- */

static void take_job(struct pmix_plugin_server *s, const struct pmix_plugin_job *job,
                     struct pmix_plugin_rank *ranks)
{
    uint32_t first_rank = 0;
    for (uint32_t i = 0; i < job->node; i++)
        first_rank += job->nodes[i].n_ranks;
    pthread_mutex_lock(&s->lock);
    PMIX_LOAD_NSPACE(s->nspace, job->nspace);
    s->first_rank = first_rank;
    s->n_local = job->nodes[job->node].n_ranks;
    s->ranks = ranks;
    s->last_fence = 0;
    s->answers_aborts = false;
    s->has_job = true;
    pthread_mutex_unlock(&s->lock);
}

static int register_space(struct pmix_plugin_server *s, const struct pmix_plugin_job *job,
                          struct co_error *err)
{
    struct pmix_keys keys;
    int rc = pmix_keys_fill(&keys, job, err);
    if (rc < 0)
        return rc;
    const pmix_status_t status =
        PMIx_server_register_nspace(s->nspace, (int)s->n_local, keys.of, keys.n, NULL, NULL);
    pmix_keys_fini(&keys);
    return is_done(status) ? 0 : fail_pmix(s, status, "does not take the job", err);
}

/* Strings that setup_fork() makes are the same for each rank, except PMIX_RANK. */
static int register_ranks(struct pmix_plugin_server *s, struct co_error *err)
{
    pmix_proc_t p;
    pmix_status_t status = PMIX_SUCCESS;
    for (uint32_t i = 0; is_done(status) && i < s->n_local; i++) {
        PMIX_LOAD_PROCID(&p, s->nspace, s->first_rank + i);
        status = PMIx_server_register_client(&p, getuid(), getgid(), NULL, NULL, NULL);
    }
    PMIX_LOAD_PROCID(&p, s->nspace, s->first_rank);
    if (is_done(status))
        status = PMIx_server_setup_fork(&p, &s->variables);
    return is_done(status) ? 0 : fail_pmix(s, status, "does not take a rank", err);
}

static void server_end(struct pmix_plugin_server *s);

static int server_begin(struct pmix_plugin_server *s, const struct pmix_plugin_job *job,
                        struct co_error *err)
{
    struct pmix_plugin_rank *ranks = calloc(job->nodes[job->node].n_ranks, sizeof *ranks);
    if (ranks == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    take_job(s, job, ranks);
    int rc = register_space(s, job, err);
    if (rc == 0)
        rc = register_ranks(s, err);
    if (rc < 0)
        server_end(s);
    return rc;
}

static char *const *variables(const struct pmix_plugin_server *s)
{
    return s->variables;
}

static struct pmix_plugin_rank server_look(struct pmix_plugin_server *s, int local_rank)
{
    struct pmix_plugin_rank rank = {0};
    pthread_mutex_lock(&s->lock);
    if (s->has_job && local_rank >= 0 && (uint32_t)local_rank < s->n_local)
        rank = s->ranks[local_rank];
    pthread_mutex_unlock(&s->lock);
    return rank;
}

static int server_fd(const struct pmix_plugin_server *s)
{
    return s->event_fd;
}

static void server_drain(struct pmix_plugin_server *s)
{
    eventfd_t n;
    eventfd_read(s->event_fd, &n);
}

static const char *library(const struct pmix_plugin_server *s)
{
    return s->version;
}

/* --- fences --- */

static bool take_fence(struct pmix_plugin_server *s, struct pmix_plugin_fence *ret)
{
    pthread_mutex_lock(&s->lock);
    struct pmix_priv_fence *f = s->fences;
    while (f != NULL && f->is_taken)
        f = f->next;
    if (f != NULL) {
        f->is_taken = true;
        *ret = f->lent;
    }
    pthread_mutex_unlock(&s->lock);
    return f != NULL;
}

static void answer_fence(struct pmix_priv_fence *f, uint8_t *bytes, size_t len, bool failed)
{
    f->on_done(failed ? PMIX_ERR_LOST_CONNECTION : PMIX_SUCCESS, (char *)bytes, len, f->arg, free,
               bytes);
    free(f->bytes);
    free(f);
}

static void end_fence(struct pmix_plugin_server *s, uint64_t id, uint8_t *bytes, size_t len,
                      bool failed)
{
    struct pmix_priv_fence **at = &s->fences;
    pthread_mutex_lock(&s->lock);
    while (*at != NULL && (*at)->lent.id != id)
        at = &(*at)->next;
    struct pmix_priv_fence *f = *at;
    if (f != NULL) {
        *at = f->next;
        s->n_fences--;
    }
    pthread_mutex_unlock(&s->lock);
    if (f != NULL)
        answer_fence(f, bytes, len, failed);
    else
        free(bytes);
}

static void answer_aborts(struct pmix_plugin_server *s)
{
    pthread_mutex_lock(&s->lock);
    struct pmix_priv_abort *left = s->aborts;
    s->aborts = NULL;
    s->answers_aborts = true;
    pthread_mutex_unlock(&s->lock);
    while (left != NULL) {
        struct pmix_priv_abort *next = left->next;
        left->on_done(PMIX_SUCCESS, left->arg);
        free(left);
        left = next;
    }
}

static void server_end(struct pmix_plugin_server *s)
{
    pmix_nspace_t nspace;
    pthread_mutex_lock(&s->lock);
    const bool had_job = s->has_job;
    struct pmix_priv_fence *left = s->fences;
    PMIX_LOAD_NSPACE(nspace, s->nspace);
    s->has_job = false;
    s->fences = NULL;
    s->n_fences = 0;
    free(s->ranks);
    s->ranks = NULL;
    pthread_mutex_unlock(&s->lock);
    if (!had_job)
        return;
    answer_aborts(s); /* else libpmix keeps them, and the fences */
    while (left != NULL) {
        struct pmix_priv_fence *next = left->next;
        answer_fence(left, NULL, 0, true);
        left = next;
    }
    PMIx_server_deregister_nspace(nspace, NULL, NULL);
    if (s->variables != NULL)
        PMIX_ARGV_FREE(s->variables);
    s->variables = NULL;
}

static void server_close(struct pmix_plugin_server *s)
{
    if (s == NULL)
        return;
    server_end(s);
    PMIx_server_finalize();
    server_free(s);
}

__attribute__((visibility("default"))) extern const struct pmix_plugin ddprun_pmix_plugin;

const struct pmix_plugin ddprun_pmix_plugin = {
    .version = PMIX_PLUGIN_VERSION,
    .open = server_open,
    .begin = server_begin,
    .variables = variables,
    .fd = server_fd,
    .drain = server_drain,
    .look = server_look,
    .take_fence = take_fence,
    .end_fence = end_fence,
    .answer_aborts = answer_aborts,
    .end = server_end,
    .library = library,
    .close = server_close,
};
