#include "daemon.h"

#include "common/error.h"
#include "common/parse.h"
#include "common/scope.h"
#include "daemon_cli.h"
#include "rendezvous/address.h"
#include "rendezvous/server.h"
#include "rendezvous/stats.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uv.h>

enum {
    FIRST_INHERITED_FD = 3, /* sd_listen_fds(3) */
    MAX_ADDRESSES = DAEMON_MAX_BINDS,
    DEFAULT_MAX_CLIENTS = 65536,
    FDS_BESIDE_CLIENTS = 128, /* listeners, HTTP, the loop's own */
    N_SIGNALS = 3,
};

struct daemon {
    const struct daemon_spec *spec;
    void (*tell)(const char *line);
    uv_loop_t loop;
    uv_signal_t signals[N_SIGNALS];
    struct server *server; /* NULL: not made, or closed */
    size_t n_bound;
    struct sockaddr_storage bound[MAX_ADDRESSES];
    bool has_port_file;
};

__attribute__((format(printf, 2, 3))) static void tell(struct daemon *d, const char *format, ...)
{
    char line[CO_ERROR_TEXT_BYTES + 64];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    d->tell(line);
}

static void on_refused(void *arg, const char *text)
{
    tell(arg, "%s", text);
}

/* --- the end --- */

static void tell_figures(struct daemon *d)
{
    struct stats stats;
    uint64_t n_requests = 0;
    server_get_stats(d->server, &stats);
    for (int op = 0; op < WIRE_N_OPS; op++)
        n_requests += stats.n_requests[op];
    tell(d,
         "%" PRIu64 " connections, %" PRIu64 " refused, %" PRIu64 " requests, %" PRIu64
         " keys after %" PRIu64 " s",
         stats.n_connections, stats.n_refused, n_requests, stats.n_keys, stats.uptime_ms / 1000);
}

static void close_all(struct daemon *d)
{
    for (int i = 0; i < N_SIGNALS; i++)
        if (!uv_is_closing((uv_handle_t *)&d->signals[i]))
            uv_close((uv_handle_t *)&d->signals[i], NULL);
    if (d->server != NULL)
        server_close(d->server, NULL, NULL);
    d->server = NULL;
}

static void on_signal(uv_signal_t *handle, int sig)
{
    struct daemon *d = handle->data;
    if (d->spec->verbose) {
        tell(d, "stopped by signal %d (%s)", sig, strsignal(sig));
        tell_figures(d);
    }
    close_all(d);
}

/* --- descriptors --- */

/* Each client is a descriptor: take as many as we may have, and promise no more. */
static uint32_t fit_clients(struct daemon *d)
{
    uint32_t asked = d->spec->max_clients;
    uint32_t wanted = asked != 0 ? asked : DEFAULT_MAX_CLIENTS;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return wanted;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        getrlimit(RLIMIT_NOFILE, &limit);
    rlim_t room = limit.rlim_cur > FDS_BESIDE_CLIENTS ? limit.rlim_cur - FDS_BESIDE_CLIENTS : 1;
    if (room >= wanted)
        return wanted;
    if (asked != 0)
        tell(d, "at most %ju clients, not %u: the limit of open files is %ju", (uintmax_t)room,
             wanted, (uintmax_t)limit.rlim_cur);
    return (uint32_t)room;
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
        return co_fail(err, -EINVAL, "LISTEN_FDS tells of %d sockets, and %d are the most",
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

/* Under another name first, so that whoever waits for the file finds it whole. */
static int write_port_file(struct daemon *d, struct co_error *err)
{
    const char *path = d->spec->port_file;
    co_autofree char *draft = NULL;
    if (asprintf(&draft, "%s.%d", path, (int)getpid()) < 0) {
        draft = NULL;
        return co_fail(err, -ENOMEM, "no memory for a file name");
    }
    FILE *out = fopen(draft, "wxe");
    int rc = out != NULL ? 0 : -errno;
    for (size_t i = 0; rc == 0 && i < d->n_bound; i++)
        if (fprintf(out, "%u\n", address_port(&d->bound[i])) < 0)
            rc = -EIO;
    if (out != NULL && fclose(out) != 0 && rc == 0)
        rc = -errno;
    if (rc == 0 && rename(draft, path) < 0)
        rc = -errno;
    if (rc < 0) {
        if (out != NULL)
            unlink(draft);
        return co_fail(err, rc, "cannot write the ports to '%s': %s", path, strerror(-rc));
    }
    d->has_port_file = true;
    return 0;
}

static void tell_addresses(struct daemon *d)
{
    bool is_open = false;
    char text[ADDRESS_TEXT_BYTES];
    for (size_t i = 0; i < d->n_bound; i++) {
        address_print(&d->bound[i], text);
        tell(d, "serving on %s", text);
        is_open = is_open || !address_is_loopback(&d->bound[i]);
    }
    if (is_open && d->spec->allow.n == 0)
        tell(d, "warning: every machine that can reach these addresses is served; name those "
                "that may be with --allow ADDR/BITS");
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

static enum daemon_exit start(struct daemon *d, const char *version)
{
    const struct daemon_spec *spec = d->spec;
    struct co_error err = {0};
    struct server_opts opts = {
        .max_clients = fit_clients(d),
        .max_bytes = spec->max_bytes,
        .max_buffer_bytes = spec->max_buffer_bytes,
        .max_value_bytes = spec->max_value_bytes,
        .mid_frame_ms = spec->mid_frame_ms,
        .allow = spec->allow.n > 0 ? &spec->allow : NULL,
        .http = true,
        .version = version,
        .on_refused = on_refused,
        .arg = d,
    };
    enum daemon_exit code = DAEMON_EXIT_OK;
    int rc = server_create(&d->loop, &opts, &d->server, &err);
    if (rc < 0)
        code = DAEMON_EXIT_INTERNAL;
    else if ((rc = listen_everywhere(d, &err)) < 0)
        code = rc == -ENOMEM ? DAEMON_EXIT_INTERNAL : DAEMON_EXIT_UNAVAILABLE;
    else if (spec->port_file != NULL && (rc = write_port_file(d, &err)) < 0)
        code = DAEMON_EXIT_CANNOT_CREATE;
    if (rc < 0) {
        tell(d, "%s", err.text);
        return code;
    }
    if (spec->verbose)
        tell(d,
             "at most %u clients, %" PRIu64 " MiB of keys and values, %" PRIu64
             " MiB on their way, %" PRIu64 " MiB a value",
             opts.max_clients, spec->max_bytes >> 20, spec->max_buffer_bytes >> 20,
             spec->max_value_bytes >> 20);
    tell_addresses(d);
    return DAEMON_EXIT_OK;
}

enum daemon_exit daemon_run(const struct daemon_spec *spec, const char *version,
                            void (*tell_line)(const char *line))
{
    struct daemon d = {.spec = spec, .tell = tell_line};
    int rc = uv_loop_init(&d.loop);
    if (rc < 0) {
        tell(&d, "no event loop: %s", uv_strerror(rc));
        return DAEMON_EXIT_INTERNAL;
    }
    signal(SIGPIPE, SIG_IGN);
    watch_signals(&d); /* before anybody can know of us */
    enum daemon_exit code = start(&d, version);
    if (code != DAEMON_EXIT_OK)
        close_all(&d);
    uv_run(&d.loop, UV_RUN_DEFAULT);
    uv_loop_close(&d.loop);
    if (d.has_port_file)
        unlink(spec->port_file);
    return code;
}
