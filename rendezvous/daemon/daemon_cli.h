/* daemon_cli.h - ddp-rendezvous's command line.
 *
 * Pure: words in, a daemon_spec out. */
#ifndef DDP_RENDEZVOUS_DAEMON_DAEMON_CLI_H
#define DDP_RENDEZVOUS_DAEMON_DAEMON_CLI_H

#include "common/options.h"
#include "rendezvous/net/allow.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct co_error;

#define DAEMON_PORT 29400 /* where torchrun looks for a c10d endpoint that names none */

enum {
    DAEMON_MAX_BINDS = 16,
    DAEMON_HOST_BYTES = 64, /* a numeric address with its zone */
};

enum daemon_option {
    DAEMON_OPTION_BIND = 1,
    DAEMON_OPTION_PORT_FILE,
    DAEMON_OPTION_ALLOW,
    DAEMON_OPTION_HTTP_HOST,
    DAEMON_OPTION_TOKEN_FILE,
    DAEMON_OPTION_LEASE,
    DAEMON_OPTION_NO_JOBS,
    DAEMON_OPTION_MAX_MEMORY,
    DAEMON_OPTION_MAX_VALUE,
    DAEMON_OPTION_MAX_CLIENTS,
    DAEMON_OPTION_MAX_JOBS,
    DAEMON_OPTION_MAX_NODES,
    DAEMON_OPTION_MID_FRAME_TIMEOUT,
    DAEMON_OPTION_VERBOSE,
    DAEMON_OPTION_HELP,
    DAEMON_OPTION_VERSION,
};

extern const struct co_option daemon_cli_table[];

enum daemon_wish {
    DAEMON_RUN,
    DAEMON_HELP,       /* --help */
    DAEMON_HELP_BRIEF, /* -h */
    DAEMON_VERSION,
};

/* What was asked for, checked. */
struct daemon_spec {
    size_t n_binds; /* 0: inherited sockets, or 127.0.0.1 and DAEMON_PORT */
    struct daemon_bind {
        char host[DAEMON_HOST_BYTES]; /* a numeric address */
        uint16_t port;                /* 0: any free one */
    } binds[DAEMON_MAX_BINDS];
    const char *port_file;     /* part of argv; NULL: none */
    struct allow_list allow;   /* empty: no list was given */
    const char *http_hosts;    /* part of argv; as host_names.h has them; NULL: not given */
    uint64_t max_bytes;        /* of what is stored */
    uint64_t max_buffer_bytes; /* of what is on its way; both together are --max-memory */
    uint64_t max_value_bytes;
    uint64_t max_node_bytes; /* of nodes' messages in transit, in addition to --max-memory */
    uint32_t max_clients;    /* 0: not given */
    uint32_t max_jobs;       /* 0: not given */
    uint32_t max_nodes;      /* 0: not given */
    bool no_jobs;            /* the store only */
    const char *token_file;  /* part of argv; NULL: not given */
    uint64_t mid_frame_ms;
    uint64_t lease_ms;
    bool verbose;
};

/* returns   0; *ret_spec is written with DAEMON_RUN only. -EINVAL: wrong usage */
int daemon_cli_parse(int argc, char **argv, enum daemon_wish *ret_wish,
                     struct daemon_spec *ret_spec, struct co_error *err);

/* is_brief   as for -h, the common options */
void daemon_cli_print_help(bool is_brief, FILE *out);

#endif
