/* cli_draft.h - what the parts of the command line's parser share: words as they were given,
 * not yet understood. Only cli*.c include this. */
#ifndef DDP_LAUNCHER_OPTIONS_CLI_DRAFT_H
#define DDP_LAUNCHER_OPTIONS_CLI_DRAFT_H

#include "cli.h"
#include "cli_table.h"
#include "launcher/hosts/pmi_bootstrap.h"
#include "launcher/hosts/schedulers.h"
#include "launcher/job/job_spec.h"
#include "launcher/platform/host_env.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;
struct job_spec;

struct node_assignment;

enum { CLI_EXPORTS_MAX = 1000 }; /* CO_OPTIONS_MAX are allowed together */

/* What was given for an option, and by what, for messages. */
struct given {
    const char *value; /* borrowed from argv or the environment; NULL: not given */
    bool from_env;
    char by[CO_OPTION_NAME_MAX + 8]; /* "-n", "--np", "PET_NNODES" */
};

struct draft {
    const struct host_env *world;
    struct given given[N_CLI_OPTIONS];    /* by option; a flag's value is "1" */
    const char *exports[CLI_EXPORTS_MAX]; /* of each -x; borrowed from argv */
    size_t n_exports;
    const struct node_assignment *assignment; /* borrowed; this node's assigned place; NULL: none */
    struct host_list *found; /* borrowed; a manager's hosts, which may be taken; NULL: none */
    bool found_by_srun, found_late; /* as of struct manager */
    bool standalone;                /* --standalone; known when the managers have been asked */
    int verbose;
    int n_programs; /* with ':' between them; their words, NULL-terminated: the first one's, and of
                       the others from the ':' on */
    char **programs[JOB_PROGRAMS_MAX];
};

/* --- cli_value.c --- */

/* A flag's variable holds a number, and 0 means no: PET_STANDALONE=0.
 *
 * returns   0, -EINVAL, -ERANGE */
int cli_flag(const struct draft *d, enum cli_option id, bool *ret, struct co_error *err);

/* One of some words.
 *
 * words     NULL-terminated; at least two
 * ret_at    its index; untouched if the option is not given
 * returns   0, -EINVAL */
int cli_choice(const struct given *g, const char *const *words, int *ret_at, struct co_error *err);

/* A name that goes into environments, messages and names of files: 256 bytes at most, no control
 * characters.
 *
 * returns   0, -EINVAL */
int cli_check_name(const struct given *g, struct co_error *err);

/* A line for spec->notes. returns 0, -ENOMEM */
__attribute__((format(printf, 3, 4))) int cli_note(struct job_spec *spec, struct co_error *err,
                                                   const char *format, ...);

/* A time, if it is given.
 *
 * returns   0, -EINVAL (also 0, unless that is allowed), -ERANGE */
int cli_time(const struct draft *d, enum cli_option id, bool allow_zero, uint64_t *ret_ms,
             struct co_error *err);

/* A copy of the text replaces what `to` points to.
 *
 * returns   0, -ENOMEM */
int cli_copy(const char *text, char **to, struct co_error *err);

/* An option that only fills a field of the job_spec. Not given, it leaves the default there. */
enum cli_field_kind {
    CLI_FLAG,      /* a bool */
    CLI_TIME,      /* a uint64_t, in ms */
    CLI_TIME_OR_0, /* the same; 0 is allowed */
    CLI_CHOICE,    /* an enum, the number of one of `words` */
    CLI_FILE,      /* a char *, owned, not empty */
};

struct cli_field {
    enum cli_option id;
    enum cli_field_kind kind;
    size_t at;                /* offsetof(struct job_spec, ...) */
    const char *const *words; /* NULL-terminated */
};

#define CLI_N(fields) (sizeof(fields) / sizeof *(fields))

/* returns   as the functions above */
int cli_set_fields(const struct draft *d, const struct cli_field *fields, size_t n,
                   struct job_spec *spec, struct co_error *err);

/* The environment's values, as if they stood in front of the command line. */
void cli_read_environment(struct draft *d);

/* Options up to the first word that is not one.
 *
 * argv      its first word is skipped
 * ret_at    the index of the first word after them
 * returns   0, -EINVAL */
int cli_read_options(struct draft *d, int argc, char **argv, enum cli_wish *ret_wish, int *ret_at,
                     struct co_error *err);

/* Programs are cut at words that are a ':', except under the name torchrun: in the copy, a NULL
 * follows each program, and all but the first begin with their ':'.
 *
 * words     from the first program on; n of them
 * ret_copy  to free()
 * returns   0, -EINVAL: too many; -ENOMEM */
int cli_cut_programs(struct draft *d, char *const *words, int n, bool as_torchrun, char ***ret_copy,
                     struct co_error *err);

/* --- cli_programs.c --- */

/* What words execute, and how: spec's program. returns 0, -EINVAL, and as program_make() */
int cli_set_program(const struct draft *d, char *const *words, struct job_spec *spec,
                    struct co_error *err);

/* The programs after the first: their ranks are added to n_local, after its own. Their words are
 * parsed later, when our place is known.
 *
 * returns   0, -EINVAL, -ERANGE, and as program_make() */
int cli_count_programs(const struct draft *d, struct job_spec *spec, struct co_error *err);
int cli_make_programs(const struct draft *d, struct job_spec *spec, struct co_error *err);

/* --- cli_mpi.c --- */

/* Does ddprun serve PMI-1 or PMIx? Refuses a program whose ranks would not find each other. The
 * spec has all else.
 *
 * returns   0, -EINVAL */
int cli_set_mpi(const struct draft *d, struct job_spec *spec, struct co_error *err);

/* --- cli_devices.c --- */

/* The GPUs that ranks may have: those of --gpus, checked, else all. returns 0, -EINVAL */
int cli_count_gpus(const struct draft *d, int *ret_n, struct co_error *err);

/* --- cli_hosts.c --- */

bool cli_has_hosts(const struct draft *d);

/* The hosts to start nodes on, instead of ranks.
 *
 * argv      of the whole command line; borrowed by spec
 * returns   as the parts below; -EINVAL also for a host file that cannot be read */
int cli_set_hosts(const struct draft *d, char *const *argv, struct job_spec *spec,
                  struct co_error *err);
int cli_set_exports(const struct draft *d, struct job_spec *spec, struct co_error *err);
int cli_set_wdir(const struct draft *d, struct job_spec *spec, struct co_error *err);

/* The assignment overrides all that was given; then its part of the job_spec. */
void cli_take_assignment(struct draft *d, const struct node_assignment *assignment);
int cli_keep_assignment(const struct draft *d, struct job_spec *spec, struct co_error *err);

struct cli_schedulers { /* what they have set; zeroed: nothing. Must not be moved */
    struct manager manager;
    struct pmi_bootstrap pmi;
};

/* The settings of a manager replace options, unless options specify where the nodes are.
 *
 * m         cli_managers_fini() it when the spec is made, also after a failure
 * returns   0, -EINVAL, -ERANGE, -ENOMEM, -EHOSTUNREACH */
int cli_ask_managers(struct draft *d, struct cli_schedulers *m, struct job_spec *spec,
                     struct co_error *err);
void cli_managers_fini(struct cli_schedulers *m);

/* --- the other parts --- */

struct cli_conf; /* cli_conf.c */

/* In this order: each fills its fields of spec, and the last two read
 * n_local. cli_set_meeting() reads how many nodes there are.
 * conf      what cli_read_conf() has read
 *
 * returns   0, -EINVAL, -ERANGE (a number out of bounds), -ENOMEM, and -errno of the world */
int cli_set_nodes(const struct draft *d, struct job_spec *spec, struct co_error *err);
int cli_set_devices(const struct draft *d, struct job_spec *spec, struct co_error *err);
int cli_set_meeting(const struct draft *d, const struct cli_conf *conf, struct job_spec *spec,
                    struct co_error *err);
int cli_set_terms(const struct draft *d, const struct cli_conf *conf, bool is_static,
                  struct job_spec *spec, struct co_error *err); /* by cli_set_meeting() */
int cli_set_output(const struct draft *d, struct job_spec *spec, struct co_error *err);
int cli_set_end(const struct draft *d, struct job_spec *spec, struct co_error *err);

/* --- cli_health.c --- */

int cli_set_health(const struct draft *d, struct job_spec *spec, struct co_error *err);

/* Are there the ranks that --wrap names? When their number is known. returns 0, -EINVAL */
int cli_check_wrap(const struct draft *d, const struct job_spec *spec, struct co_error *err);

/* A standby is started before it has a number: is there anything in what it is started with that
 * depends on one? When all else is known.
 *
 * returns   0, -EINVAL */
int cli_check_standby(const struct draft *d, const struct job_spec *spec, struct co_error *err);

/* --- cli_endpoints.c --- */

/* A name or an address that goes to other nodes: 1 to max printable characters without blanks.
 *
 * by        the option, for messages
 * returns   0, -EINVAL */
int cli_check_host(const char *by, const char *host, size_t max, struct co_error *err);

/* HOST[:PORT][,...] of --rdzv-endpoint: where the job begins, and where else a node may ask which
 * process coordinates. ret_n is 0 if nothing is given.
 *
 * port      the default
 * returns   0, -EINVAL: an entry is empty, malformed or listed twice, or there are too
 *           many */
int cli_read_endpoints(const struct given *g, uint16_t port,
                       struct job_endpoint ret[JOB_MAX_ENDPOINTS], uint32_t *ret_n,
                       struct co_error *err);

/* --- cli_conf.c --- */

/* --rdzv-conf: torchrun's settings of the rendezvous, "KEY=VALUE,KEY=VALUE". A setting that ddprun
 * supports has a field, the rest of torchrun's is checked only for its form, and a key that
 * torchrun does not read either is kept for a note: torchrun reports nothing, and a misspelled
 * setting has no effect there. */
enum { CLI_CONF_KEY_BYTES = 64 };

enum cli_conf_host { CLI_CONF_HOST_UNSAID, CLI_CONF_HOST_YES, CLI_CONF_HOST_NO };
enum cli_conf_word { CLI_CONF_WORD_UNSAID, CLI_CONF_WORD_YES, CLI_CONF_WORD_NO };
enum cli_conf_failover {
    CLI_CONF_FAILOVER_UNSAID,
    CLI_CONF_FAILOVER_OFF,
    CLI_CONF_FAILOVER_MAJORITY,
    CLI_CONF_FAILOVER_ALONE,
};

struct cli_conf {                     /* 0: not given, unless noted otherwise */
    uint64_t join_timeout_ms;         /* c10d: until the first generation */
    uint64_t timeout_ms;              /* static: the same */
    uint64_t last_call_timeout_ms;    /* c10d: the join window */
    bool has_last_call_timeout;       /* it may be 0 */
    uint64_t keep_alive_interval_ms;  /* c10d: between keep-alives */
    uint32_t keep_alive_max_attempt;  /* and how many may be missed, 2 or more */
    enum cli_conf_host is_host;       /* c10d: is this node the endpoint's? */
    enum cli_conf_failover failover;  /* c10d */
    uint64_t host_timeout_ms;         /* 0: unsaid, or off */
    enum cli_conf_word endpoint_once; /* c10d: its ddprun is not started again */
    struct etcd_settings etcd;
    char unknown[CLI_CONF_KEY_BYTES]; /* the first unknown key; empty: none */
};

/* what      the option's name, for messages
 * text      blanks around keys and values do not count; of a key given twice the last value does
 * returns   0; -EINVAL, -ERANGE: the text names the setting */
int cli_conf_parse(const char *what, const char *text, struct cli_conf *ret, struct co_error *err);

/* The same of --rdzv-conf, if it is given. */
int cli_read_conf(const struct draft *d, struct cli_conf *ret, struct co_error *err);

/* Whether another node replaces a lost coordinator; reads how many restarts there are, and what
 * cli_set_meeting() has set. */
int cli_set_failover(const struct draft *d, const struct cli_conf *conf, struct job_spec *spec,
                     struct co_error *err);

#endif
