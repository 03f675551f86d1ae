/* check_report.h - what `ddpctl check` has found out about the nodes, and what is wrong with it:
 * plain data, the rules, a table for people and an object for programs. Pure. */
#ifndef DDP_CTL_CHECK_CHECK_REPORT_H
#define DDP_CTL_CHECK_CHECK_REPORT_H

#include "check_facts.h"

#include "launcher/health/health_checks.h"

#include <stdio.h>

enum { CHECK_WHY_BYTES = 400 };

/* The limits of the rules. */
#define CHECK_NOFILE_MIN   1024
#define CHECK_BACKLOG_MIN  128
#define CHECK_PORTS_MIN    1000
#define CHECK_MEMLOCK_MIN  ((uint64_t)64 << 20) /* where there is RDMA */
#define CHECK_SHM_MIN      ((uint64_t)65 << 20) /* a container's usual 64 MiB are too few ... */
#define CHECK_SHM_FREE_MIN ((uint64_t)16 << 20) /* ... and these are none */
#define CHECK_CLOCK_MAX_NS (HEALTH_CLOCK_MAX_MS * INT64_C(1000000))
#define CHECK_SLOW_PAIR_PART                                                                       \
    3 /* of a pair that is as fast as the others: a third of their median */

/* The columns of the table. */
enum check_field {
    CHECK_REACH,
    CHECK_VERSION,
    CHECK_CLOCK,
    CHECK_NOFILE,
    CHECK_MEMLOCK,
    CHECK_BACKLOG,
    CHECK_SHM,
    CHECK_NAMES,
    CHECK_PORTS,
    CHECK_TOKEN,
    CHECK_GPUS,
    CHECK_NET,
    CHECK_N_FIELDS,
};
extern const char *const check_field_words[CHECK_N_FIELDS];

struct check_node {
    const char *name;          /* borrowed; as it was asked for */
    bool is_up;                /* a ddpctl there has answered ... */
    uint64_t reach_ms;         /* ... after so long */
    char why[CHECK_WHY_BYTES]; /* it failed, then or later; "": it did not */
    bool has_clock;
    int64_t offset_ns; /* its clock is ahead of ours, by this ... */
    uint64_t error_ns; /* ... more or less: half of the shortest round trip */
    bool has_facts;
    struct check_facts facts;
    char address[INET6_ADDRSTRLEN]; /* by which others reach it; "": it has none */
};

/* The result of a connection to a node's port. */
enum check_reach {
    CHECK_REACH_OK,
    CHECK_REACH_REFUSED,
    CHECK_REACH_SILENT,        /* no answer in time */
    CHECK_REACH_UNREACHABLE,   /* no route, or a machine on the route rejects the connection */
    CHECK_REACH_WRONG_SERVICE, /* another program answers there */
    CHECK_REACH_OTHER,
    CHECK_N_REACHES,
};
extern const char *const check_reach_words[CHECK_N_REACHES];

struct check_link { /* one node's connection to another one's port */
    size_t from, to;
    enum check_reach reach;
};

struct check_pair { /* --net */
    size_t a, b;
    char why[CHECK_TEXT_BYTES]; /* it was not measured; "": it was */
    uint64_t rtt_min_ns, rtt_median_ns;
    uint64_t forth, back; /* bytes per second, from a to b and from b to a */
};

struct check_finding {
    size_t node;
    enum check_field field;
    bool is_failure; /* else a warning */
    char text[CHECK_WHY_BYTES];
    const char *hint; /* what to try next; NULL: the text has it */
};

struct check_report {
    struct check_node *nodes; /* owned, as all lists here */
    size_t n_nodes;
    struct check_link *links;
    size_t n_links;
    struct check_pair *pairs;
    size_t n_pairs;
    bool has_net;          /* pairs were asked for */
    const char *interface; /* borrowed; whose addresses were asked for; NULL: any */
    struct check_finding *findings;
    size_t n_findings;
};

/* Allocate n nodes. returns 0, -ENOMEM; check_report_fini() in any case */
int check_report_init(struct check_report *r, size_t n);
void check_report_fini(struct check_report *r);

/* Fill the findings, in the order of the nodes, and in that of the fields for each.
 *
 * version   that nodes should have
 * returns   0, -ENOMEM */
int check_rules(struct check_report *r, const char *version);

bool check_has_failed(const struct check_report *r);

/* A row per node, with '!' after what has failed and '?' after what may be wrong, then a line per
 * finding, then the sum. returns 0, -ENOMEM */
int check_text_print(const struct check_report *r, FILE *out);

/* All of it as an object. returns NULL without memory */
json_t *check_report_to_json(const struct check_report *r);

#endif
