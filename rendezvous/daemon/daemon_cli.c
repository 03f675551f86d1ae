#include "daemon_cli.h"

#include "common/error.h"
#include "common/parse.h"
#include "rendezvous/membership/lease.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/host_names.h"
#include "rendezvous/server/server.h"

#include <errno.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

enum {
    MOST_MAX_CLIENTS = 1000000,
    MOST_MAX_JOBS = 65536,
    MOST_MAX_NODES = 65536,
    DEFAULT_MID_FRAME_MS = 30000,
    MOST_MID_FRAME_MS = 86400000,
    LEAST_LEASE_MS = 500,
    MOST_LEASE_MS = 3600000,
    NODES_SHARE = 8, /* the nodes' messages may use this part of --max-memory in addition */
    VALUE_SHARE = 8, /* of the memory; half of that is for what is on its way, and a buffer may be
                        twice as large as what it holds */
};
#define DEFAULT_MAX_MEMORY (2 * GIB)
#define LEAST_MAX_MEMORY   (VALUE_SHARE * SERVER_MIN_VALUE_BYTES)
#define MOST_MAX_MEMORY    (16384 * GIB)
#define DEFAULT_MAX_VALUE  (64 * MIB)

const struct co_option daemon_cli_table[] = {
    {DAEMON_OPTION_BIND, 'b', "bind", "ADDR[:PORT]", .subject = "Listening",
     .brief = "Listen on this address. Default: 127.0.0.1:29400.",
     .help = "Listen on this numeric address; [ADDR]:PORT for IPv6. May be given several times. "
             "0.0.0.0 is all IPv4 addresses, [::] all of both families. Default port: 29400; 0 is "
             "any free one. Default: the sockets of LISTEN_FDS, else 127.0.0.1:29400."},
    {DAEMON_OPTION_PORT_FILE, 0, "port-file", "FILE", .brief = "Write the ports to FILE.",
     .help = "Write the port of each address to FILE, one per line, when all of them listen. The "
             "file is removed at exit."},
    {DAEMON_OPTION_ALLOW, 0, "allow", "ADDR[/BITS]", .brief = "Serve only these clients.",
     .help = "Serve clients with this address or network; others are refused. May be given "
             "several times. Default: serve all. Processes of the same user on this machine are "
             "always served, those of other users only if a loopback address is allowed."},
    {DAEMON_OPTION_HTTP_HOST, 0, "http-host", "NAME,...",
     .help = "Names by which clients may request /metrics and /status, besides addresses, "
             "localhost, and the name of this machine. *: any name. Other names are refused (DNS "
             "rebinding), unless the request has the page key."},

    {DAEMON_OPTION_TOKEN_FILE, 0, "token-file", "FILE", .subject = "ddprun jobs",
     .brief = "File with the shared secret of the nodes.",
     .help = "File with the shared secret of the nodes, the same on all of them. Default: "
             "DDP_TOKEN, else ~/.config/ddprun/token. Without a secret, jobs are managed only if "
             "no other user can connect: on loopback addresses and without --allow."},
    {DAEMON_OPTION_LEASE, 0, "lease", "TIME", .brief = "Ranks run this long without this process.",
     .help = "How long ranks keep running while this process cannot be reached, and how long a "
             "node may be silent before it is lost: 500ms to 1h. A process that replaces this one "
             "needs the same value. Default: 3s."},
    {DAEMON_OPTION_NO_JOBS, 0, "no-jobs", .brief = "Serve only the store and HTTP.",
     .help = "Manage no jobs: serve only the store and HTTP."},

    {DAEMON_OPTION_MAX_MEMORY, 0, "max-memory", "SIZE", .subject = "Limits",
     .brief = "Memory limit. Default: 2G.",
     .help = "Memory limit, 64M to 16384G: half for keys and values, half for requests and "
             "replies in transit. Default: 2G."},
    {DAEMON_OPTION_MAX_VALUE, 0, "max-value", "SIZE",
     .help = "Longest value in a request: 8M to an eighth of --max-memory, at most 1G. Default: "
             "64M, or that eighth."},
    {DAEMON_OPTION_MAX_CLIENTS, 0, "max-clients", "N",
     .help = "Maximum number of store clients. Default: 65536, or the limit of open files."},
    {DAEMON_OPTION_MAX_JOBS, 0, "max-jobs", "N",
     .help = "Maximum number of jobs at a time. Default: 1024."},
    {DAEMON_OPTION_MAX_NODES, 0, "max-nodes", "N",
     .help = "Maximum number of nodes of all jobs. Default: 65536, or half the limit of open "
             "files."},
    {DAEMON_OPTION_MID_FRAME_TIMEOUT, 0, "mid-frame-timeout", "TIME",
     .help = "Close a connection that does not complete a request or message within TIME: 30, "
             "500ms. Default: 30s."},

    {DAEMON_OPTION_VERBOSE, 'v', "verbose", .subject = "General",
     .brief = "Print what happens to stderr.", .help = "Print what happens to stderr."},
    {DAEMON_OPTION_HELP, 'h', "help", .brief = "Print this text (-h), or all options (--help).",
     .help = "-h: print the common options. --help: print all options."},
    {DAEMON_OPTION_VERSION, 'V', "version", .brief = "Print the version.",
     .help = "Print the version."},
    {0},
};

static int add_bind(struct daemon_spec *spec, const struct co_option_found *found,
                    struct co_error *err)
{
    if (spec->n_binds == DAEMON_MAX_BINDS)
        return co_fail(err, -EINVAL, "%s: more than %d addresses", found->spelled,
                       DAEMON_MAX_BINDS);
    struct daemon_bind *b = &spec->binds[spec->n_binds];
    struct sockaddr_storage address;
    b->port = DAEMON_PORT;
    int rc =
        co_parse_endpoint(found->spelled, found->value, b->host, sizeof b->host, &b->port, err);
    if (rc < 0)
        return rc;
    if (address_parse(b->host, b->port, &address) < 0)
        return co_fail(err, -EINVAL,
                       "invalid value '%.200s' for %s: expected a numeric address, not '%s' (host "
                       "names are not resolved)",
                       found->value, found->spelled, b->host);
    spec->n_binds++;
    return 0;
}

static int add_allowed(struct daemon_spec *spec, const struct co_option_found *found,
                       struct co_error *err)
{
    if (allow_add(&spec->allow, found->value, err) < 0) {
        co_fail_in(err, "%s", found->spelled);
        return -EINVAL;
    }
    return 0;
}

static int set_number(const struct co_option_found *found, uint32_t max, uint32_t *ret,
                      struct co_error *err)
{
    int64_t number;
    int rc = co_parse_int(found->spelled, found->value, 1, max, &number, err);
    if (rc == 0)
        *ret = (uint32_t)number;
    return rc;
}

/* bounds   as text */
static int set_time(const struct co_option_found *found, uint64_t least_ms, uint64_t most_ms,
                    const char *bounds, uint64_t *ret_ms, struct co_error *err)
{
    uint64_t ms;
    int rc = co_parse_duration_ms(found->spelled, found->value, &ms, err);
    if (rc == 0 && (ms < least_ms || ms > most_ms))
        return co_fail(err, -EINVAL, "invalid value '%.200s' for %s: expected %s", found->value,
                       found->spelled, bounds);
    if (rc == 0)
        *ret_ms = ms;
    return rc;
}

/* *max_memory and *max_value stay what they are unless this is their option. */
static int read_option(struct daemon_spec *spec, const struct co_option_found *found,
                       uint64_t *max_memory, uint64_t *max_value, enum daemon_wish *wish,
                       struct co_error *err)
{
    switch ((enum daemon_option)found->option->id) {
    case DAEMON_OPTION_BIND:
        return add_bind(spec, found, err);
    case DAEMON_OPTION_PORT_FILE:
        spec->port_file = found->value;
        return 0;
    case DAEMON_OPTION_ALLOW:
        return add_allowed(spec, found, err);
    case DAEMON_OPTION_HTTP_HOST:
        spec->http_hosts = found->value;
        return host_names_check(found->spelled, found->value, err);
    case DAEMON_OPTION_TOKEN_FILE:
        spec->token_file = found->value;
        return 0;
    case DAEMON_OPTION_NO_JOBS:
        spec->no_jobs = true;
        return 0;
    case DAEMON_OPTION_MAX_JOBS:
        return set_number(found, MOST_MAX_JOBS, &spec->max_jobs, err);
    case DAEMON_OPTION_MAX_NODES:
        return set_number(found, MOST_MAX_NODES, &spec->max_nodes, err);
    case DAEMON_OPTION_MAX_MEMORY:
        return co_parse_size(found->spelled, found->value, LEAST_MAX_MEMORY, MOST_MAX_MEMORY,
                             max_memory, err);
    case DAEMON_OPTION_MAX_VALUE:
        return co_parse_size(found->spelled, found->value, SERVER_MIN_VALUE_BYTES, GIB, max_value,
                             err);
    case DAEMON_OPTION_MAX_CLIENTS:
        return set_number(found, MOST_MAX_CLIENTS, &spec->max_clients, err);
    case DAEMON_OPTION_MID_FRAME_TIMEOUT:
        return set_time(found, 1, MOST_MID_FRAME_MS, "1ms to 24h", &spec->mid_frame_ms, err);
    case DAEMON_OPTION_LEASE:
        return set_time(found, LEAST_LEASE_MS, MOST_LEASE_MS, "500ms to 1h", &spec->lease_ms, err);
    case DAEMON_OPTION_VERBOSE:
        spec->verbose = true;
        return 0;
    case DAEMON_OPTION_HELP:
        *wish = found->spelled[1] == '-' ? DAEMON_HELP : DAEMON_HELP_BRIEF;
        return 0;
    case DAEMON_OPTION_VERSION:
        *wish = DAEMON_VERSION;
        return 0;
    }
    return 0;
}

/* max_value   0: not given */
static int share_memory(struct daemon_spec *spec, uint64_t max_memory, uint64_t max_value,
                        struct co_error *err)
{
    uint64_t most = max_memory / VALUE_SHARE;
    if (max_value > most)
        return co_fail(
            err, -EINVAL,
            "--max-value exceeds an eighth of --max-memory: raise --max-memory to at least %juM",
            (uintmax_t)((max_value * VALUE_SHARE + MIB - 1) / MIB));
    if (max_value == 0)
        max_value = most < DEFAULT_MAX_VALUE ? most : DEFAULT_MAX_VALUE;
    spec->max_value_bytes = max_value;
    spec->max_bytes = max_memory / 2;
    spec->max_buffer_bytes = max_memory - spec->max_bytes;
    spec->max_node_bytes = max_memory / NODES_SHARE;
    return 0;
}

int daemon_cli_parse(int argc, char **argv, enum daemon_wish *ret_wish,
                     struct daemon_spec *ret_spec, struct co_error *err)
{
    struct daemon_spec spec = {.mid_frame_ms = DEFAULT_MID_FRAME_MS, .lease_ms = LEASE_MS};
    uint64_t max_memory = DEFAULT_MAX_MEMORY, max_value = 0;
    enum daemon_wish wish = DAEMON_RUN;
    struct co_option_walk walk;
    struct co_option_found found;
    int rc;
    co_options_start(&walk, daemon_cli_table, argc, argv);
    while ((rc = co_options_next(&walk, &found, err)) > 0 && wish == DAEMON_RUN)
        if (read_option(&spec, &found, &max_memory, &max_value, &wish, err) < 0)
            return -EINVAL;
    if (rc < 0)
        return rc;
    if (wish == DAEMON_RUN && walk.at < argc)
        return co_fail(
            err, -EINVAL,
            "unexpected argument '%.200s': ddp-rendezvous takes options only; see --help",
            argv[walk.at]);
    if (wish == DAEMON_RUN && share_memory(&spec, max_memory, max_value, err) < 0)
        return -EINVAL;
    *ret_wish = wish;
    if (wish == DAEMON_RUN)
        *ret_spec = spec;
    return 0;
}

void daemon_cli_print_help(bool is_brief, FILE *out)
{
    fputs("Usage: ddp-rendezvous [OPTION]...\n"
          "Serve as rendezvous endpoint for ddprun jobs, any number of them, and as a store\n"
          "in the protocol of PyTorch's TCPStore, for torchrun and others. Answers HTTP GET\n"
          "of /healthz, /metrics and /status on the same port. Runs until a signal.\n"
          "\n",
          out);
    if (is_brief) {
        fputs("Common options (--help prints all):\n", out);
        co_options_print_brief(daemon_cli_table, out);
    } else {
        co_options_print_help(daemon_cli_table, out);
        fputs("\n"
              "Exit status:\n"
              "  0   stopped by SIGTERM, SIGINT or SIGHUP\n"
              "  2   wrong usage\n"
              "  69  an address is not available\n"
              "  70  ddp-rendezvous itself failed\n"
              "  73  the port file cannot be written\n"
              "  77  no shared secret, or its file is not safe\n",
              out);
    }
    fputs("\n"
          "Examples:\n"
          "  ddp-rendezvous -b 10.0.0.1 --allow 10.0.0.0/24 --token-file token\n"
          "  ddprun --nnodes 2 -p 8 --rdzv-endpoint 10.0.0.1 --rdzv-id job7 \\\n"
          "          --token-file token train.py    on each of two nodes\n"
          "\n"
          "More in ddp-rendezvous(8).\n",
          out);
}
