/* ddprun - start and monitor the ranks of a distributed job, report why it ended. */
#include "launcher/generation/step_store.h"
#include "launcher/health/domain.h"
#include "launcher/hosts/schedulers.h"
#include "launcher/job/env_names.h"
#include "launcher/job/job_spec.h"
#include "launcher/job/rank_argv.h"
#include "launcher/job/worker_env.h"
#include "launcher/membership/endpoint.h"
#include "launcher/membership/etcd_link.h"
#include "launcher/membership/failover_link.h"
#include "launcher/membership/pmi_rendezvous.h"
#include "launcher/membership/secret.h"
#include "launcher/membership/solo_link.h"
#include "launcher/node/node.h"
#include "launcher/options/cli.h"
#include "launcher/platform/binding.h"
#include "launcher/platform/exec_error.h"
#include "launcher/platform/gpus.h"
#include "launcher/platform/linkage.h"
#include "launcher/platform/own_addresses.h"
#include "launcher/platform/title.h"
#include "launcher/remote/launch_channel.h"
#include "launcher/remote/payload.h"
#include "launcher/remote/remote.h"
#include "launcher/reporting/dry_run.h"

#include "common/error.h"
#include "common/parse.h"
#include "common/scope.h"
#include "common/secret_memory.h"

#include <ddp/env.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#ifndef DDPRUN_VERSION
#error "the build gives the version"
#endif

enum {
    EXIT_USAGE = 2,
    EXIT_UNAVAILABLE = 69,
    EXIT_INTERNAL = 70,
    EXIT_CONFIG = 78,
    EXIT_CANNOT = 126,
    EXIT_NO_FILE = 127
};

/* Open /dev/null, also at those of the descriptors 0 to 2 that our parent has closed: a pipe of
 * ours must not end up there. returns a descriptor above 2, or -errno */
static int open_null(void)
{
    int fd;
    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd < 0)
        return -errno;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
}

/* Die of the signal that stopped the job, as the process that waits for us expects: a shell ends
 * its script. The first process of a container cannot: the kernel protects it from signals. */
static void die_of(int sig)
{
    if (getpid() == 1)
        return;
    const struct rlimit no_core = {0, 0};
    sigset_t set;
    setrlimit(RLIMIT_CORE, &no_core); /* SIGQUIT: the ranks' cores are of interest, not ours */
    signal(sig, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, sig);
    raise(sig);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static int usage_code(int rc)
{
    switch (rc) {
    case -ENOENT:
        return EXIT_NO_FILE;
    case -EACCES:
        return EXIT_CANNOT;
    case -EINVAL:
    case -ERANGE:
        return EXIT_USAGE;
    case -EHOSTUNREACH:
        return EXIT_UNAVAILABLE;
    default:
        return EXIT_INTERNAL;
    }
}

__attribute__((format(printf, 2, 3))) static void say(enum co_severity severity, const char *format,
                                                      ...)
{
    char text[CO_ERROR_TEXT_BYTES + 64];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "ddprun: %s: %s\n", co_severity_name(severity), text);
}

/* returns code */
static int print_error(const struct co_error *err, int code)
{
    say(CO_ERROR, "%s", err->text);
    return code;
}

static int show(const struct job_spec *spec)
{
    struct co_error err;
    int rc = spec->remote != NULL ? remote_show(spec, stdout, &err)
                                  : dry_run_print(spec, environ, stdout, &err);
    if (rc == 0)
        return fflush(stdout) == 0 ? 0 : EXIT_INTERNAL;
    return print_error(&err, EXIT_INTERNAL);
}

static void print_notes(const char *notes)
{
    for (const char *line = notes; line != NULL && *line != '\0'; line += strcspn(line, "\n") + 1)
        say(CO_WARNING, "%.*s", (int)strcspn(line, "\n"), line);
}

/* returns   0; else what to exit with */
static int judge_secret(const struct job_spec *spec, int rc, char *note, const struct co_error *err)
{
    if (rc < 0)
        say(CO_ERROR, "%s", err->text);
    else if (note != NULL)
        say(CO_WARNING, "%s", note);
    free(note);
    return rc == 0             ? 0
           : spec->as_torchrun ? 1
           : rc == -EACCES     ? SECRET_EXIT_NO_ACCESS
                               : EXIT_INTERNAL;
}

/* The hosts that this ddprun starts get a token from it, and check encryption themselves. */
static int find_secret(struct job_spec *spec)
{
    struct co_error err;
    char *note = NULL;
    int rc = 0, code = 0;
    if (spec->remote != NULL)
        return 0;
    if (spec->world.has_others && spec->world.key == NULL) {
        rc = secret_find(&spec->world, &note, &err);
        code = judge_secret(spec, rc, note, &err);
    }
    if (code != 0)
        return code;
    rc = secret_check_encryption(spec, &note, &err);
    return judge_secret(spec, rc, note, &err);
}

/* Costs nothing without --segment. returns 0; else what to exit with */
static int find_domain(struct job_spec *spec)
{
    struct job_world *w = &spec->world;
    char name[MESSAGE_NAME_BYTES], domain[MESSAGE_DOMAIN_BYTES];
    struct co_error err;
    if (w->segment == 0 || spec->remote != NULL)
        return 0;
    own_name_find(w->node_name, name);
    int rc = domain_find(w->domain_rule, name,
                         spec->gpus != NULL ? spec->gpus : gpus_visible_here(), domain, &err);
    if (rc < 0)
        return print_error(&err, rc == -ENOENT || rc == -EINVAL ? EXIT_CONFIG : EXIT_INTERNAL);
    w->domain = strdup(domain);
    if (w->domain != NULL)
        return 0;
    say(CO_ERROR, "out of memory");
    return EXIT_INTERNAL;
}

static int run_job(struct job_spec *spec, int null_fd)
{
    struct node_end end = {0};
    struct co_error err;
    const struct roster_link_ops *link = !spec->world.has_others    ? &solo_link_ops
                                         : spec->world.etcd != NULL ? &etcd_link_ops
                                         : spec->world.failover     ? &failover_link_ops
                                                                    : &endpoint_link_ops;
    int code = find_secret(spec);
    co_secret_env_drop();
    if (code == 0)
        code = find_domain(spec);
    if (code != 0)
        return code;
    int rc = spec->remote != NULL ? remote_run(spec, null_fd, &end, &err)
                                  : node_run(spec, link, null_fd, &end, &err);
    if (rc < 0)
        return print_error(&err, rc == -EADDRINUSE || rc == -ELIBACC || rc == -ELIBBAD
                                     ? EXIT_UNAVAILABLE
                                     : EXIT_INTERNAL);
    if (end.die_of != 0)
        die_of(end.die_of);
    return end.exit_code;
}

/* What -x sets; if a launching ddprun assigned our place, it has sent that as well. */
static int set_exports(const char *const *exports)
{
    for (; *exports != NULL; exports++) {
        char *name = strndup(*exports, strcspn(*exports, "="));
        const char *equals = strchr(*exports, '=');
        int rc = name == NULL ? -1 : equals != NULL ? setenv(name, equals + 1, 1) : 0;
        free(name);
        if (rc < 0) {
            say(CO_ERROR, "out of memory");
            return EXIT_INTERNAL;
        }
    }
    return 0;
}

/* Costs nothing without --bind-to and --report-bindings. returns 0; else what to exit with */
static int place_ranks(struct job_spec *spec)
{
    const struct binding_request request = {.bind = spec->bind,
                                            .n_ranks = spec->n_local,
                                            .visible = spec->gpus != NULL ? spec->gpus
                                                                          : gpus_visible_here()};
    struct binding *binding;
    struct co_error err;
    char line[BINDING_LINE_BYTES];
    if (spec->bind == PLACEMENT_NONE && !spec->report_bindings)
        return 0;
    int rc = binding_find(&request, &binding, &err);
    if (rc < 0)
        return print_error(&err, usage_code(rc));
    job_spec_set_binding(spec, binding);
    for (int i = 0; spec->report_bindings && i < spec->n_local; i++)
        say(CO_NOTE, "%srank %d: %s%s", spec->world.has_others ? "local " : "", i,
            binding->is_bound ? "bound to " : "not bound: ",
            binding_print(binding, i, line, sizeof line));
    return 0;
}

/* The launching ddprun has shown the notes already. */
static int do_launched(struct launch_channel *channel, struct job_spec *spec, int null_fd)
{
    struct co_error err;
    spec->world.launch_fd = channel->fd;
    if (launch_make_key(channel, &spec->world, &err) < 0)
        return print_error(&err, EXIT_INTERNAL);
    int code = place_ranks(spec);
    if (code != 0)
        return code;
    launch_say_ready();
    return run_job(spec, null_fd);
}

static void print_refused(void *arg, const char *text)
{
    (void)arg;
    say(CO_WARNING, "store: %s", text);
}

/* returns   0; else what to exit with */
static int serve_store(const struct job_spec *spec, uint16_t port)
{
    const struct step_store_opts opts = {.host = spec->task->master_addr,
                                         .port = port,
                                         .allow = spec->world.store_allow,
                                         .on_refused = print_refused};
    struct co_error err;
    int rc = step_store_start(&opts, &err);
    if (rc < 0)
        say(CO_ERROR, "%s%s", err.text,
            rc == -EADDRINUSE ? "; use --master-port PORT, the same on all ranks" : "");
    return rc == 0 ? 0 : rc == -EADDRINUSE ? EXIT_UNAVAILABLE : EXIT_INTERNAL;
}

/* Execute the program with the environment of the rank that Slurm has started us as: then only
 * Slurm supervises the ranks. The store, if it is ddprun's, is served by a process next to rank 0.
 *
 * returns   only if that failed: the exit status */
static int become_rank(const struct job_spec *spec)
{
    const struct slurm_task *task = spec->task;
    const uint16_t port = spec->master_port != 0 ? spec->master_port : task->master_port;
    const struct generation_place place = {.world_size = (int)task->world_size,
                                           .local_world_size = (int)task->local_world_size,
                                           .node_rank = (int)task->node_rank,
                                           .n_nodes = (int)task->n_nodes,
                                           .master_addr = task->master_addr,
                                           .master_port = port,
                                           .agent_store =
                                               job_spec_agent_store(spec, task->world_size),
                                           .node_fd = -1,
                                           .checkpoint_fd = -1,
                                           .pmi_fd = -1,
                                           .progress_fd = -1};
    const struct rank_place rank = {
        .rank = (int)task->rank, .local_rank = (int)task->local_rank, .error_file = ""};
    struct rank_values values;
    struct worker_env *common = NULL;
    co_autofree char **env = NULL;
    co_autofree char **argv = NULL;
    struct co_error err;
    if (spec->encrypt && place.n_nodes > 1 && getenv(DDP_ENV_ENCRYPT_KEY_FILE) == NULL) {
        say(CO_ERROR,
            "--encrypt with a Slurm task per rank has no token: set " DDP_ENV_ENCRYPT_KEY_FILE
            " to a file with the key, the same on all nodes");
        return SECRET_EXIT_NO_ACCESS;
    }
    if (spec->memory_checkpoint_bytes > 0)
        say(CO_WARNING, "--memory-checkpoints has no effect with a Slurm task per rank: no ddprun "
                        "holds the memory; start one task per node");
    int code = place.agent_store && rank.rank == 0 ? serve_store(spec, port) : 0;
    if (code != 0)
        return code;
    rank_values_fill(&values, spec, &place, &rank);
    int rc = worker_env_create(spec, &place, environ, &common, &err)
        ?: worker_env_make(common, &rank, &env, &err)
        ?: rank_argv_make(spec, &values, &argv, &err);
    if (rc == 0) {
        const char *path = rank_argv_path(spec, &values);
        execve(path, argv != NULL ? argv : spec->argv, env);
        rc = exec_error_explain(path, errno, &err);
    }
    worker_env_destroy(common);
    return print_error(&err, usage_code(rc));
}

/* A misspelled one has no effect, and nothing else reports it. */
static void warn_of_variables(void)
{
    for (char *const *variable = environ; *variable != NULL; variable++) {
        const char *meant = env_names_nearest(*variable);
        if (meant != NULL)
            say(CO_WARNING, "unknown environment variable %.*s: did you mean %s?",
                (int)strcspn(*variable, "="), *variable, meant);
    }
}

static int do_alone(struct job_spec *spec, int null_fd)
{
    int code = spec->remote == NULL ? set_exports(spec->exports) : 0;
    print_notes(spec->notes);
    warn_of_variables();
    if (code == 0 && spec->remote == NULL)
        code = place_ranks(spec);
    if (code != 0)
        return code;
    if (spec->dry_run)
        return show(spec);
    return spec->task != NULL ? become_rank(spec) : run_job(spec, null_fd);
}

/* We may be called by a path, which determines which Python is meant. A relative path leads
 * elsewhere after -C, and on other hosts.
 *
 * ret_name    owned by the caller: that path from the root on
 * ret_words   owned by the caller: argv with it; NULL: argv is as it should be */
static void fix_own_path(int argc, char **argv, char **ret_name, char ***ret_words)
{
    if (argc < 1 || argv[0][0] == '/' || strchr(argv[0], '/') == NULL)
        return;
    co_autofree char *here = getcwd(NULL, 0);
    co_autofree char **words = calloc((size_t)argc + 1, sizeof *words);
    if (here == NULL || words == NULL || (*ret_name = co_format("%s/%s", here, argv[0])) == NULL)
        return;
    memcpy(words, argv, (size_t)argc * sizeof *words);
    words[0] = *ret_name;
    *ret_words = co_take(&words);
}

/* launch channel   NULL: not started through one */
static int run_arguments(int argc, char **argv, struct launch_channel *channel, int null_fd)
{
    struct host_env world = host_env_real;
    struct job_spec spec = {0};
    struct co_error err;
    enum cli_wish wish;
    co_autofree char *name = NULL;
    co_autofree char **words = NULL;

    world.meet_by_pmi = pmi_rendezvous_join;
    world.assignment = channel != NULL ? &channel->assignment : NULL;
    fix_own_path(argc, argv, &name, &words);
    int rc = cli_parse(argc, words != NULL ? words : argv, &world, &wish, &spec, &err);
    if (rc < 0)
        return print_error(&err, usage_code(rc));
    if (wish == CLI_HELP)
        cli_print_help(argc, argv, stdout);
    if (wish == CLI_COMPLETION)
        cli_print_completion(argc, argv, stdout);
    if (wish == CLI_VERSION)
        printf("ddprun %s\n", DDPRUN_VERSION);
    if (wish != CLI_RUN)
        return fflush(stdout) == 0 ? 0 : EXIT_INTERNAL;
    int code = channel != NULL ? do_launched(channel, &spec, null_fd) : do_alone(&spec, null_fd);
    job_spec_fini(&spec);
    return code;
}

/* A ddprun that was sent marks its file as in use until it ends. returns -1: it was not sent */
static int hold_program(char path[PATH_MAX])
{
    ssize_t n = linkage_is_static() ? readlink("/proc/self/exe", path, PATH_MAX - 1) : -1;
    if (n < 0)
        return -1;
    path[n] = '\0';
    return payload_cache_hold(path);
}

static int do_as_launch_tells(int null_fd)
{
    char program[PATH_MAX];
    struct launch_channel channel;
    struct co_error err;
    const int held_fd = hold_program(program);
    int rc = launch_open(null_fd, &channel, &err);
    if (rc == 0 && held_fd >= 0)
        payload_cache_tidy(program, held_fd);
    if (rc < 0)
        return print_error(&err, EXIT_INTERNAL);
    int code = run_arguments((int)channel.order.n_argv, channel.order.argv, &channel, null_fd);
    launch_close(&channel);
    return code;
}

int main(int argc, char **argv)
{
    if (co_secret_env_take(DDP_ENV_TOKEN) < 0) {
        say(CO_ERROR, "out of memory");
        return EXIT_INTERNAL;
    }
    linkage_init();
    title_init(argc, argv);
    int null_fd = open_null();
    if (null_fd < 0) {
        say(CO_ERROR, "cannot open /dev/null: %s", strerror(-null_fd));
        return EXIT_INTERNAL;
    }
    if (launch_is_asked_for_terms(argc, argv))
        return puts(launch_terms()) >= 0 && fflush(stdout) == 0 ? 0 : EXIT_INTERNAL;
    if (launch_is_asked_for(argc, argv))
        return do_as_launch_tells(null_fd);
    int code = run_arguments(argc, argv, NULL, null_fd);
    if (cli_is_torchrun(argc > 0 ? argv[0] : NULL) && code != 0 && code != EXIT_USAGE)
        return 1; /* scripts that were written for torchrun know no others */
    return code;
}
