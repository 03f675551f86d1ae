/* main.c - ddp-rendezvous: a store's server, the jobs on the same port, their addresses, and
 * signals.
 *
 * Stays in the foreground, needs no directory and no privilege, and leaves no files. Read main(),
 * daemon_serve() and daemon_start() first: they read the options (daemon_cli.h), watch signals,
 * find the token, create the jobs and the server, and open the sockets. Only then do they print the
 * ports. A signal closes everything, and the loop ends. */
#include "common/error.h"
#include "common/listener.h"
#include "common/parse.h"
#include "common/scope.h"
#include "common/secret_memory.h"
#include "common/whole.h"
#include "daemon_cli.h"
#include "rendezvous/channel/seal.h"
#include "rendezvous/channel/token.h"
#include "rendezvous/jobs/jobs.h"
#include "rendezvous/jobs/jobs_page.h"
#include "rendezvous/membership/lease.h"
#include "rendezvous/net/address.h"
#include "rendezvous/server/page.h"
#include "rendezvous/server/server.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#ifndef DDPRUN_VERSION
#error "the build gives the version"
#endif

enum daemon_exit {
    DAEMON_EXIT_OK = 0,
    DAEMON_EXIT_USAGE = 2,
    DAEMON_EXIT_UNAVAILABLE = 69,   /* an address cannot be had */
    DAEMON_EXIT_INTERNAL = 70,      /* out of memory or descriptors */
    DAEMON_EXIT_CANNOT_CREATE = 73, /* the port file */
    DAEMON_EXIT_NO_ACCESS = 77,     /* no token, or one that is not to be trusted */
};

enum {
    FIRST_INHERITED_FD = 3, /* sd_listen_fds(3) */
    MAX_ADDRESSES = DAEMON_MAX_BINDS,
    DEFAULT_MAX_CLIENTS = 65536,
    DEFAULT_MAX_NODES = 65536,
    FDS_BESIDE_CLIENTS = 128, /* listeners, HTTP, the loop's own */
    N_SIGNALS = 3,
};

struct daemon {
    const struct daemon_spec *spec;
    uv_loop_t loop;
    uv_signal_t signals[N_SIGNALS];
    struct server *server; /* NULL: not made, or closed */
    struct jobs *jobs;     /* NULL: none are managed, or closed */
    struct seal_key *key;  /* NULL: no token */
    struct jobs_pages pages;
    uint32_t max_clients, max_nodes;
    size_t n_bound;
    struct sockaddr_storage bound[MAX_ADDRESSES];
    bool has_port_file;
};

/* In one write, so that lines of several programs do not mix. */
__attribute__((format(printf, 2, 3))) static void tell_line(enum co_severity severity,
                                                            const char *format, ...)
{
    char line[CO_ERROR_TEXT_BYTES + 64], text[CO_ERROR_TEXT_BYTES + 96];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    snprintf(text, sizeof text, "ddp-rendezvous: %s: %s\n", co_severity_name(severity), line);
    fputs(text, stderr);
}

static void on_refused(void *arg, const char *text)
{
    (void)arg;
    tell_line(CO_WARNING, "%s", text);
}

/* --- jobs --- */

static void on_control(void *arg, int fd, const uint8_t *bytes, size_t len)
{
    struct daemon *d = arg;
    jobs_adopt(d->jobs, fd, bytes, len);
}

static struct jobs *get_jobs(void *arg)
{
    return ((struct daemon *)arg)->jobs;
}

static void on_changed(void *arg, const char *run_id, const struct roster *r,
                       enum roster_state from)
{
    (void)arg;
    tell_line(CO_NOTE, "job '%.200s': %s -> %s: %.600s", run_id, roster_state_name(from),
              roster_state_name(roster_get_state(r)), roster_change(r));
}

/* Some may be late before a lease is over. */
static uint64_t keep_alive_ms(uint64_t lease_ms)
{
    return lease_ms < LEASE_MS ? lease_ms / (LEASE_MS / LEASE_KEEP_ALIVE_MS) : LEASE_KEEP_ALIVE_MS;
}

static int open_jobs(struct daemon *d, struct co_error *err)
{
    const struct daemon_spec *spec = d->spec;
    const struct jobs_opts opts = {
        .keys = d->key,
        .n_keys = d->key != NULL ? 1 : 0,
        .limits = {.keep_alive_ms = keep_alive_ms(spec->lease_ms), .lease_ms = spec->lease_ms},
        .max_jobs = spec->max_jobs,
        .max_conns = d->max_nodes,
        .max_buffer_bytes = spec->max_node_bytes,
        .mid_frame_ms = spec->mid_frame_ms,
        .on_note = on_refused,
        .on_changed = spec->verbose ? on_changed : NULL,
        .arg = d,
    };
    return spec->no_jobs ? 0 : jobs_create(&d->loop, &opts, &d->jobs, err);
}

/* --- the end --- */

static void tell_figures(struct daemon *d)
{
    struct stats stats;
    uint64_t n_requests = 0;
    server_get_stats(d->server, &stats);
    for (int op = 0; op < WIRE_N_OPS; op++)
        n_requests += stats.n_requests[op];
    tell_line(CO_NOTE,
              "%" PRIu64 " connections, %" PRIu64 " refused, %" PRIu64 " requests, %" PRIu64
              " keys after %" PRIu64 " s",
              stats.n_connections, stats.n_refused, n_requests, stats.n_keys,
              stats.uptime_ms / 1000);
}

static void close_all(struct daemon *d)
{
    for (int i = 0; i < N_SIGNALS; i++)
        if (!uv_is_closing((uv_handle_t *)&d->signals[i]))
            uv_close((uv_handle_t *)&d->signals[i], NULL);
    if (d->server != NULL)
        server_close(d->server, NULL, NULL);
    if (d->jobs != NULL)
        jobs_close(d->jobs, NULL, NULL);
    d->server = NULL;
    d->jobs = NULL;
}

static void on_signal(uv_signal_t *handle, int sig)
{
    struct daemon *d = handle->data;
    if (d->spec->verbose) {
        tell_line(CO_NOTE, "stopped by signal %d (%s)", sig, strsignal(sig));
        tell_figures(d);
    }
    close_all(d);
}

/* --- descriptors --- */

/* asked      0: not set
 * possible   the largest value that the system can provide */
static uint32_t fit_limit(const char *what, uint32_t asked, uint32_t usual, uint64_t possible,
                          uint64_t limit)
{
    uint32_t wanted = asked != 0 ? asked : usual;
    if (possible >= wanted)
        return wanted;
    if (asked != 0)
        tell_line(CO_WARNING,
                  "limited to %ju %s instead of %u: the limit of open files is %ju; raise it with "
                  "ulimit -n",
                  (uintmax_t)possible, what, wanted, (uintmax_t)limit);
    return (uint32_t)possible;
}

/* Each client and each node is a descriptor: take as many as we may have, and promise no more. */
static void fit_descriptors(struct daemon *d)
{
    const struct daemon_spec *spec = d->spec;
    const uint64_t limit = co_raise_file_limit();
    uint64_t room = limit > FDS_BESIDE_CLIENTS ? limit - FDS_BESIDE_CLIENTS : 1;
    if (!spec->no_jobs) {
        d->max_nodes =
            fit_limit("nodes", spec->max_nodes, DEFAULT_MAX_NODES, (room + 1) / 2, limit);
        room = room > d->max_nodes ? room - d->max_nodes : 1;
    }
    d->max_clients = fit_limit("clients", spec->max_clients, DEFAULT_MAX_CLIENTS, room, limit);
}

/* How many sockets a service manager has left open for us, from FIRST_INHERITED_FD on. */
static int count_inherited(void)
{
    const char *pid_text = getenv("LISTEN_PID");
    const char *n_text = getenv("LISTEN_FDS");
    int64_t pid, n;
    if (pid_text == NULL || n_text == NULL ||
        co_parse_int("LISTEN_PID", pid_text, 1, INT32_MAX, &pid, NULL) < 0 || pid != getpid() ||
        co_parse_int("LISTEN_FDS", n_text, 0, INT32_MAX, &n, NULL) < 0)
        return 0;
    return (int)n;
}

/* --- the beginning --- */

/* The token by which nodes are authenticated. It is searched for where ddprun does
 * (rendezvous/channel/token.h).
 *
 * file       --token-file; NULL: not given
 * ret_key    seal_key_destroy() it, if there is one
 * returns    1; 0: no token exists, and err has how to get one
 *            -EACCES   it cannot be read, is not to be trusted, or is not a token
 *            -ENOSYS   libsodium does not work here */
static int find_token(const char *file, struct seal_key **ret_key, struct co_error *err)
{
    const struct token_places places = {
        .file = file,
        .variable = co_secret_env_get(),
        .variable_by = TOKEN_VARIABLE,
        .config = getenv("XDG_CONFIG_HOME"),
        .home = getenv("HOME"),
        .make = TOKEN_MAKE_IF_SHARED,
    };
    struct token token;
    int rc = token_find(&places, &token, err);
    if (rc == 0)
        rc = seal_key_create(token.bytes, token.len, ret_key, err);
    else if (rc != -ENOENT || file != NULL)
        rc = -EACCES;
    token_wipe(&token);
    return rc == -ENOENT ? 0 : rc < 0 ? rc : 1;
}

static int listen_at(struct daemon *d, const char *host, uint16_t port, struct co_error *err)
{
    if (d->n_bound == MAX_ADDRESSES)
        return co_fail(err, -EINVAL, "more than %d addresses", MAX_ADDRESSES);
    int rc = server_listen(d->server, host, port, &d->bound[d->n_bound], err);
    d->n_bound += rc == 0;
    return rc;
}

static int listen_everywhere(struct daemon *d, struct co_error *err)
{
    const struct daemon_spec *spec = d->spec;
    int n_inherited = count_inherited();
    int rc = 0;
    if (n_inherited > MAX_ADDRESSES)
        return co_fail(err, -EINVAL,
                       "invalid value '%d' for LISTEN_FDS: expected at most %d sockets",
                       n_inherited, MAX_ADDRESSES);
    for (int i = 0; rc == 0 && i < n_inherited; i++) {
        rc = server_adopt(d->server, FIRST_INHERITED_FD + i, &d->bound[d->n_bound], err);
        d->n_bound += rc == 0;
    }
    for (size_t i = 0; rc == 0 && i < spec->n_binds; i++)
        rc = listen_at(d, spec->binds[i].host, spec->binds[i].port, err);
    if (rc == 0 && d->n_bound == 0)
        rc = listen_at(d, "127.0.0.1", DAEMON_PORT, err);
    return rc;
}

/* Write it whole, for any process that waits for the file. */
static int write_port_file(struct daemon *d, struct co_error *err)
{
    char text[DAEMON_MAX_BINDS * sizeof "65535\n"] = "";
    size_t n = 0;
    for (size_t i = 0; i < d->n_bound; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%u\n", address_port(&d->bound[i]));
    if (co_write_whole(d->spec->port_file, text, n, err) < 0)
        return co_fail_in(err, "--port-file");
    d->has_port_file = true;
    return 0;
}

/* Open to peers other than those that the kernel identifies as ours. */
static bool is_open(const struct daemon *d)
{
    bool is_open = d->spec->allow.n > 0;
    for (size_t i = 0; i < d->n_bound; i++)
        is_open = is_open || !address_is_loopback(&d->bound[i]);
    return is_open;
}

/* err   why there is no token, if there is not */
static int require_token(const struct daemon *d, struct co_error *err)
{
    if (d->jobs == NULL || d->key != NULL || !is_open(d))
        return 0;
    return co_fail(err, -EACCES,
                   "refusing to manage jobs without a token on addresses that other users can "
                   "reach: %s; use --no-jobs to serve only the store",
                   err->text);
}

static void tell_addresses(struct daemon *d)
{
    bool is_public = false;
    char text[ADDRESS_TEXT_BYTES];
    for (size_t i = 0; i < d->n_bound; i++) {
        address_print(&d->bound[i], text);
        tell_line(CO_NOTE, "serving on %s", text);
        is_public = is_public || !address_is_loopback(&d->bound[i]);
    }
    if (is_public && d->spec->allow.n == 0)
        tell_line(CO_WARNING, "the store is open to every machine that can reach these addresses; "
                              "restrict it with --allow ADDR/BITS");
}

static void watch_signals(struct daemon *d)
{
    static const int signals[N_SIGNALS] = {SIGTERM, SIGINT, SIGHUP};
    for (int i = 0; i < N_SIGNALS; i++) {
        uv_signal_init(&d->loop, &d->signals[i]);
        d->signals[i].data = d;
        uv_signal_start(&d->signals[i], on_signal, signals[i]);
    }
}

static int open_server(struct daemon *d, struct co_error *err)
{
    const struct daemon_spec *spec = d->spec;
    struct server_opts opts = {
        .max_clients = d->max_clients,
        .max_bytes = spec->max_bytes,
        .max_buffer_bytes = spec->max_buffer_bytes,
        .max_value_bytes = spec->max_value_bytes,
        .mid_frame_ms = spec->mid_frame_ms,
        .allow = spec->allow.n > 0 ? &spec->allow : NULL,
        .http = true,
        .version = DDPRUN_VERSION,
        .on_control = d->jobs != NULL ? on_control : NULL,
        .hosts = spec->http_hosts,
        .host_advice = "start ddp-rendezvous with --http-host",
        .on_refused = on_refused,
        .arg = d,
    };
    d->pages = (struct jobs_pages){.key = d->key, .get_jobs = get_jobs, .arg = d};
    jobs_pages_fill(&d->pages, &opts);
    return server_create(&d->loop, &opts, &d->server, err);
}

static void tell_limits(struct daemon *d)
{
    const struct daemon_spec *spec = d->spec;
    struct jobs_figures f;
    tell_line(CO_NOTE,
              "limits: %u clients, %" PRIu64 " MiB of keys and values, %" PRIu64
              " MiB in transit, %" PRIu64 " MiB per value",
              d->max_clients, spec->max_bytes >> 20, spec->max_buffer_bytes >> 20,
              spec->max_value_bytes >> 20);
    if (d->jobs == NULL)
        return;
    jobs_get_figures(d->jobs, &f);
    tell_line(CO_NOTE, "limits: %u jobs, %u nodes, %" PRIu64 " MiB of messages; nodes %s",
              f.max_jobs, f.max_conns, f.max_buffer_bytes >> 20,
              d->key != NULL ? "must authenticate with the token"
                             : "must belong to this user; connections are not encrypted");
}

/* The ports are not published before everything is certain to work.
 *
 * err   why there is no token, if there is not */
static enum daemon_exit open_all(struct daemon *d, struct co_error *err)
{
    int rc;
    if (open_jobs(d, err) < 0 || open_server(d, err) < 0)
        return DAEMON_EXIT_INTERNAL;
    if ((rc = listen_everywhere(d, err)) < 0)
        return rc == -ENOMEM ? DAEMON_EXIT_INTERNAL : DAEMON_EXIT_UNAVAILABLE;
    if (require_token(d, err) < 0)
        return DAEMON_EXIT_NO_ACCESS;
    if (d->spec->port_file != NULL && write_port_file(d, err) < 0)
        return DAEMON_EXIT_CANNOT_CREATE;
    return DAEMON_EXIT_OK;
}

static enum daemon_exit daemon_start(struct daemon *d)
{
    struct co_error err = {0};
    int rc = d->spec->no_jobs ? 0 : find_token(d->spec->token_file, &d->key, &err);
    co_secret_env_drop();
    if (rc < 0) {
        tell_line(CO_ERROR, "%s", err.text);
        return rc == -EACCES ? DAEMON_EXIT_NO_ACCESS : DAEMON_EXIT_INTERNAL;
    }
    fit_descriptors(d);
    enum daemon_exit code = open_all(d, &err);
    if (code != DAEMON_EXIT_OK) {
        tell_line(CO_ERROR, "%s", err.text);
        return code;
    }
    if (d->spec->verbose)
        tell_limits(d);
    tell_addresses(d);
    return DAEMON_EXIT_OK;
}

/* Until SIGTERM, SIGINT or SIGHUP. */
static enum daemon_exit daemon_serve(const struct daemon_spec *spec)
{
    struct daemon d = {.spec = spec};
    int rc = uv_loop_init(&d.loop);
    if (rc < 0) {
        tell_line(CO_ERROR, "cannot create the event loop: %s", uv_strerror(rc));
        return DAEMON_EXIT_INTERNAL;
    }
    signal(SIGPIPE, SIG_IGN);
    watch_signals(&d); /* before anybody can know of us */
    enum daemon_exit code = daemon_start(&d);
    if (code != DAEMON_EXIT_OK)
        close_all(&d);
    uv_run(&d.loop, UV_RUN_DEFAULT);
    uv_loop_close(&d.loop);
    seal_key_destroy(d.key);
    if (d.has_port_file && co_may_replace(spec->port_file))
        unlink(spec->port_file);
    return code;
}

int main(int argc, char **argv)
{
    struct daemon_spec spec;
    struct co_error err = {0};
    enum daemon_wish wish;
    if (co_secret_env_take(TOKEN_VARIABLE) < 0) {
        tell_line(CO_ERROR, "out of memory");
        return DAEMON_EXIT_INTERNAL;
    }
    if (daemon_cli_parse(argc, argv, &wish, &spec, &err) < 0) {
        tell_line(CO_ERROR, "%s", err.text);
        return DAEMON_EXIT_USAGE;
    }
    if (wish == DAEMON_HELP || wish == DAEMON_HELP_BRIEF)
        daemon_cli_print_help(wish == DAEMON_HELP_BRIEF, stdout);
    else if (wish == DAEMON_VERSION)
        printf("ddp-rendezvous %s\n", DDPRUN_VERSION);
    else
        return daemon_serve(&spec);
    return fflush(stdout) == 0 ? DAEMON_EXIT_OK : DAEMON_EXIT_INTERNAL;
}
