/* cli_conf.h - --rdzv-conf: torchrun's settings of the meeting, "KEY=VALUE,KEY=VALUE".
 *
 * Pure. Knows what each backend of torchrun reads; what means something here gets its field, the
 * rest of torchrun's is checked for its form only, and a key that torchrun does not read either is
 * kept for a note: torchrun says nothing, and a misspelt setting has no effect there. */
#ifndef DDP_LAUNCHER_OPTIONS_CLI_CONF_H
#define DDP_LAUNCHER_OPTIONS_CLI_CONF_H

#include "launcher/job/job_spec.h"

#include <stdbool.h>
#include <stdint.h>

struct co_error;

enum { CLI_CONF_KEY_BYTES = 64 };

enum cli_conf_host { CLI_CONF_HOST_UNSAID, CLI_CONF_HOST_YES, CLI_CONF_HOST_NO };

struct cli_conf {                    /* 0: not given, unless said otherwise */
    uint64_t join_timeout_ms;        /* c10d: until the first generation */
    uint64_t timeout_ms;             /* static: the same */
    uint64_t last_call_timeout_ms;   /* c10d: the join window */
    bool has_last_call_timeout;      /* it may be 0 */
    uint64_t keep_alive_interval_ms; /* c10d: between heartbeats */
    uint32_t keep_alive_max_attempt; /* and how many may be missed, 2 or more */
    enum cli_conf_host is_host;      /* c10d: is this node the endpoint's? */
    struct etcd_settings etcd;
    char unknown[CLI_CONF_KEY_BYTES]; /* the first key that nobody knows; empty: none */
};

/* what      the option's name, for messages
 * text      blanks around keys and values do not count; of a key given twice the last value does
 * returns   0; -EINVAL, -ERANGE: the text names the setting */
int cli_conf_parse(const char *what, const char *text, struct cli_conf *ret, struct co_error *err);

#endif
