#include "ctl_commands.h"

#include "ctl/base/table.h"
#include "ctl/check/check_options.h"
#include "ctl/check/check_plan.h"
#include "ctl/check/check_report.h"
#include "ctl/probe/check_collect.h"
#include "ctl/probe/check_hosts.h"
#include "ctl/probe/check_nodes.h"

#include "common/error.h"
#include "common/listener.h"
#include "common/parse.h"
#include "common/scope.h"
#include "launcher/platform/host_env.h"
#include "rendezvous/net/address.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#ifndef DDPRUN_VERSION
#error "the build gives the version"
#endif

/* The happy path, in stages that all nodes pass together: each node is reached, its clock is
 * compared, it reports its facts; then each tries the ports of others; then pairs are measured,
 * round by round. A node that fails is left out of the later stages. Then the rules judge the
 * results, and these are shown. */

enum {
    CLOCK_ROUNDS = 8,
    FACT_PARTS = 3, /* of a node's facts, each of which may take as long as --timeout */
    SLACK_MS = 1000,
};

struct talk {                                          /* with a node */
    char from[INET6_ADDRSTRLEN], to[INET6_ADDRSTRLEN]; /* of the way there */
    int n_clock;                                       /* rounds so far */
    int64_t asked_ns;                                  /* our clock, when this round began */
    size_t peers[CHECK_PEERS_MAX], n_peers;            /* that it was asked to reach */
    size_t partner;                                    /* that it is to measure; itself: none */
};

struct check {
    struct check_task task;
    struct check_hosts hosts;
    struct check_report report;
    struct check_nodes *nodes;
    struct talk *talks;
    char **ssh; /* owned, one block; NULL: ssh */
    char program[PATH_MAX], ddprun[PATH_MAX];
    uint8_t secret[CHECK_SECRET_BYTES];
    size_t n_pairs_room;
    bool failed; /* out of memory */
};

/* --- the clock --- */

/* The node read its clock between two readings of ours. The offset is the difference from the
 * midpoint of these, accurate to half of their distance. The shortest round is the most
 * accurate. */
static void take_time(struct check *c, size_t i, int64_t its_ns)
{
    struct check_node *n = &c->report.nodes[i];
    int64_t now_ns = check_collect_clock_ns(), asked_ns = c->talks[i].asked_ns;
    uint64_t error_ns = now_ns > asked_ns ? (uint64_t)(now_ns - asked_ns + 1) / 2 : 0;
    if (n->has_clock && error_ns >= n->error_ns)
        return;
    n->has_clock = true;
    n->error_ns = error_ns;
    n->offset_ns = its_ns - (asked_ns + (int64_t)error_ns);
}

static json_t *ask_time(struct check *c, size_t i)
{
    c->talks[i].n_clock++;
    c->talks[i].asked_ns = check_collect_clock_ns();
    return json_pack("{s:s}", "do", "time");
}

/* --- facts --- */

static json_t *ask_facts(struct check *c)
{
    char secret[2 * CHECK_SECRET_BYTES + 1];
    co_print_hex(c->secret, sizeof c->secret, secret);
    return json_pack("{s:s, s:s, s:s, s:I}", "do", "facts", "secret", secret, "ddprun", c->ddprun,
                     "timeout_ms", (json_int_t)c->task.timeout_ms);
}

static void take_address(const json_t *hello, const char *key, char to[INET6_ADDRSTRLEN])
{
    const char *text = json_string_value(json_object_get(hello, key));
    struct sockaddr_storage address;
    if (text != NULL && address_parse(text, 0, &address) == 0)
        snprintf(to, INET6_ADDRSTRLEN, "%s", text);
}

static void take_facts(struct check *c, size_t i, const json_t *answer)
{
    struct co_error err = {0};
    struct check_node *n = &c->report.nodes[i];
    if (check_facts_from_json(answer, &n->facts, &err) < 0)
        check_nodes_fail(c->nodes, i, err.text);
    else
        n->has_facts = true;
}

/* Hello, times, facts. */
static json_t *next_of_reach(void *arg, size_t i, const json_t *answer)
{
    struct check *c = arg;
    struct talk *t = &c->talks[i];
    const json_t *time = json_object_get(answer, "time_ns");
    if (t->n_clock == 0) {
        take_address(answer, "from", t->from);
        take_address(answer, "to", t->to);
        return ask_time(c, i);
    }
    if (t->n_clock > CLOCK_ROUNDS) {
        take_facts(c, i, answer);
        return NULL;
    }
    if (!json_is_integer(time) || json_integer_value(time) < 0) { /* so the difference also fits */
        check_nodes_fail(c->nodes, i, "unexpected reply: invalid time");
        return NULL;
    }
    take_time(c, i, json_integer_value(time));
    if (t->n_clock < CLOCK_ROUNDS)
        return ask_time(c, i);
    t->n_clock++;
    return ask_facts(c);
}

/* --- addresses --- */

static const char *address_on(const struct check_facts *f, const char *interface)
{
    const char *v6 = "";
    for (size_t k = 0; k < f->n_addresses; k++) {
        const struct check_address *a = &f->addresses[k];
        if (interface != NULL && strcmp(a->interface, interface) != 0)
            continue;
        if (strchr(a->text, ':') == NULL)
            return a->text;
        v6 = *v6 == '\0' ? a->text : v6;
    }
    return v6;
}

static bool is_of_use(const char *text)
{
    struct sockaddr_storage address;
    return address_parse(text, 0, &address) == 0 && !address_is_loopback(&address);
}

/* The address at which others find the node: on the interface of the options, else the one that ssh
 * used, else, for this machine, the one from which ssh connected. */
static void choose_address(struct check *c, size_t i)
{
    struct check_node *n = &c->report.nodes[i];
    const char *address = "";
    if (c->task.interface == NULL && is_of_use(c->talks[i].to))
        address = c->talks[i].to;
    for (size_t k = 0; c->task.interface == NULL && *address == '\0' && k < c->report.n_nodes; k++)
        if (check_nodes_is_here(c->nodes, i) && is_of_use(c->talks[k].from))
            address = c->talks[k].from;
    if (*address == '\0')
        address = address_on(&n->facts, c->task.interface);
    struct sockaddr_storage parsed;
    if (address_parse(address, 0, &parsed) == 0)
        snprintf(n->address, sizeof n->address, "%s", address);
}

static bool can_be_tried(const struct check *c, size_t i)
{
    const struct check_node *n = &c->report.nodes[i];
    return check_nodes_is_there(c->nodes, i) && n->has_facts && n->address[0] != '\0' &&
           n->facts.port > 0 && n->facts.port <= UINT16_MAX;
}

static json_t *peer_to_json(const struct check *c, size_t i)
{
    const struct check_node *n = &c->report.nodes[i];
    return json_pack("[s, I]", n->address, (json_int_t)n->facts.port);
}

/* --- ports --- */

static json_t *ask_reach(struct check *c, size_t i)
{
    struct talk *t = &c->talks[i];
    size_t all[CHECK_PEERS_MAX], n = check_plan_peers(c->report.n_nodes, i, all);
    json_t *peers = json_array();
    t->n_peers = 0;
    for (size_t k = 0; k < n; k++)
        if (can_be_tried(c, all[k])) {
            json_array_append_new(peers, peer_to_json(c, all[k]));
            t->peers[t->n_peers++] = all[k];
        }
    return json_pack("{s:s, s:o, s:I}", "do", "reach", "peers", peers, "timeout_ms",
                     (json_int_t)c->task.timeout_ms);
}

/* returns CHECK_N_REACHES: an unknown word */
static enum check_reach read_reach(const char *word)
{
    int reach = 0;
    while (reach < CHECK_N_REACHES && (word == NULL || strcmp(word, check_reach_words[reach]) != 0))
        reach++;
    return (enum check_reach)reach;
}

static void take_reach(struct check *c, size_t i, const json_t *answer)
{
    const struct talk *t = &c->talks[i];
    const json_t *words = json_object_get(answer, "reach");
    struct check_report *r = &c->report;
    bool is_right = json_array_size(words) == t->n_peers;
    for (size_t k = 0; is_right && k < t->n_peers; k++) {
        enum check_reach reach = read_reach(json_string_value(json_array_get(words, k)));
        is_right = reach < CHECK_N_REACHES;
        if (is_right)
            r->links[r->n_links++] =
                (struct check_link){.from = i, .to = t->peers[k], .reach = reach};
    }
    if (!is_right)
        check_nodes_fail(c->nodes, i, "unexpected reply: no list of reached nodes");
}

static json_t *next_of_ports(void *arg, size_t i, const json_t *answer)
{
    struct check *c = arg;
    if (answer == NULL)
        return ask_reach(c, i);
    take_reach(c, i, answer);
    return NULL;
}

static void try_ports(struct check *c)
{
    struct check_report *r = &c->report;
    r->links = calloc(r->n_nodes * CHECK_PEERS_MAX, sizeof *r->links);
    if (r->links == NULL) {
        c->failed = true;
        return;
    }
    check_nodes_ask(c->nodes, 2 * c->task.timeout_ms + SLACK_MS, next_of_ports, c);
}

/* --- pairs --- */

/* returns   NULL without memory, which is noted */
static struct check_pair *add_pair(struct check *c, size_t a, size_t b)
{
    struct check_report *r = &c->report;
    if (r->n_pairs == c->n_pairs_room) {
        size_t room = c->n_pairs_room > 0 ? 2 * c->n_pairs_room : 64;
        struct check_pair *more = realloc(r->pairs, room * sizeof *more);
        if (more == NULL) {
            c->failed = true;
            return NULL;
        }
        r->pairs = more;
        c->n_pairs_room = room;
    }
    r->pairs[r->n_pairs] = (struct check_pair){.a = a, .b = b};
    return &r->pairs[r->n_pairs++];
}

static bool take_number(const json_t *answer, const char *key, uint64_t *to)
{
    const json_t *n = json_object_get(answer, key);
    *to = json_is_integer(n) && json_integer_value(n) >= 0 ? (uint64_t)json_integer_value(n) : 0;
    return json_is_integer(n) && json_integer_value(n) >= 0;
}

static void take_pair(struct check *c, size_t i, const json_t *answer)
{
    struct check_pair *p = add_pair(c, i, c->talks[i].partner);
    const char *why = json_string_value(json_object_get(answer, "why"));
    if (p == NULL)
        return;
    bool is_right = take_number(answer, "rtt_min_ns", &p->rtt_min_ns) &&
                    take_number(answer, "rtt_median_ns", &p->rtt_median_ns) &&
                    take_number(answer, "forth", &p->forth) &&
                    take_number(answer, "back", &p->back);
    if (!is_right) {
        snprintf(p->why, sizeof p->why, "%s", why != NULL ? why : "no measurements received");
        table_plain(p->why);
    }
}

static json_t *next_of_pairs(void *arg, size_t i, const json_t *answer)
{
    struct check *c = arg;
    size_t partner = c->talks[i].partner;
    if (answer == NULL && partner != i)
        return json_pack("{s:s, s:o, s:I}", "do", "measure", "peer", peer_to_json(c, partner),
                         "timeout_ms", (json_int_t)c->task.timeout_ms);
    if (answer != NULL)
        take_pair(c, i, answer);
    return NULL;
}

static void measure_round(struct check *c, size_t round)
{
    size_t a, b;
    for (size_t i = 0; i < c->report.n_nodes; i++)
        c->talks[i].partner = i;
    for (size_t k = 0; check_plan_pair(c->report.n_nodes, round, k, &a, &b); k++)
        if (a != b && can_be_tried(c, a) && can_be_tried(c, b))
            c->talks[a].partner = b;
    check_nodes_ask(c->nodes, 2 * c->task.timeout_ms + SLACK_MS, next_of_pairs, c);
}

/* --- all of it --- */

/* Answers arrive in any order; the report is in the order of the nodes. */
static int compare_links(const void *left, const void *right)
{
    const struct check_link *x = left, *y = right;
    return x->from != y->from ? (x->from > y->from) - (x->from < y->from)
                              : (x->to > y->to) - (x->to < y->to);
}

static int compare_pairs(const void *left, const void *right)
{
    const struct check_pair *x = left, *y = right;
    return x->a != y->a ? (x->a > y->a) - (x->a < y->a) : (x->b > y->b) - (x->b < y->b);
}

static void sort_all(struct check_report *r)
{
    if (r->n_links > 0)
        qsort(r->links, r->n_links, sizeof *r->links, compare_links);
    if (r->n_pairs > 0)
        qsort(r->pairs, r->n_pairs, sizeof *r->pairs, compare_pairs);
}

/* Every stage asks all nodes at once and ends when each has answered, failed, or timed out. A stage
 * that needs other nodes uses only those that have answered all stages before it. */
static void look_at_all(struct check *c)
{
    struct check_report *r = &c->report;
    check_nodes_reach(c->nodes, FACT_PARTS * c->task.timeout_ms + SLACK_MS, next_of_reach, c);
    for (size_t i = 0; i < r->n_nodes; i++)
        if (r->nodes[i].has_facts)
            choose_address(c, i);
    if (r->n_nodes > 1)
        try_ports(c);
    for (size_t round = 0; r->has_net && !c->failed && round < check_plan_rounds(r->n_nodes);
         round++)
        measure_round(c, round);
    sort_all(r);
    for (size_t i = 0; i < r->n_nodes; i++) {
        struct check_node *n = &r->nodes[i];
        n->is_up = check_nodes_is_up(c->nodes, i);
        n->reach_ms = check_nodes_reach_ms(c->nodes, i);
        snprintf(n->why, sizeof n->why, "%s", check_nodes_why(c->nodes, i));
    }
}

/* The paths of this ddpctl and of ddprun: in the same directory, or else found as a shell would
 * find it. */
static int find_programs(struct check *c, struct co_error *err)
{
    ssize_t n = readlink("/proc/self/exe", c->program, sizeof c->program - 1);
    if (n < 0)
        return co_fail(err, -errno, "cannot locate this ddpctl: %s", strerror(errno));
    c->program[n] = '\0';
    int folder = (int)(strrchr(c->program, '/') - c->program);
    int len = snprintf(c->ddprun, sizeof c->ddprun, "%.*s/ddprun", folder, c->program);
    if (len < (int)sizeof c->ddprun && access(c->ddprun, X_OK) == 0)
        return 0;
    const char *path = getenv("PATH");
    while (path != NULL && *path != '\0') {
        int n_dir = (int)strcspn(path, ":");
        len = snprintf(c->ddprun, sizeof c->ddprun, "%.*s/ddprun", n_dir, path);
        if (*path == '/' && len < (int)sizeof c->ddprun && access(c->ddprun, X_OK) == 0)
            return 0;
        path += n_dir + (path[n_dir] == ':');
    }
    snprintf(c->ddprun, sizeof c->ddprun, "ddprun");
    return 0;
}

static int set_ssh(struct check *c, struct co_error *err)
{
    const char *text = c->task.ssh_command;
    if (text == NULL)
        text = host_env_get(&host_env_real, "DDPRUN_SSH");
    if (text == NULL)
        return 0;
    c->ssh = co_parse_words(text);
    if (c->ssh == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    return c->ssh[0] != NULL ? 0 : co_fail(err, -EINVAL, "--ssh-command requires a command");
}

static int open_nodes(struct check *c, struct co_error *err)
{
    const struct host_list *list = &c->hosts.list;
    const struct check_nodes_opts opts = {
        .hosts = list->hosts,
        .n = list->n,
        .is_here_only = c->hosts.is_here_only,
        .way = {.by_srun = c->hosts.by_srun, .command = c->ssh, .reach_ms = c->task.timeout_ms},
        .program = c->program};
    c->talks = calloc(list->n, sizeof *c->talks);
    if (c->talks == NULL || check_report_init(&c->report, list->n) < 0)
        return co_fail(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < list->n; i++)
        c->report.nodes[i].name = list->hosts[i].name;
    c->report.has_net = c->task.net && list->n > 1;
    c->report.interface = c->task.interface;
    return check_nodes_open(&opts, &c->nodes, err);
}

static int check_task_prepare(struct check *c, struct co_error *err)
{
    int rc = check_hosts_find(&c->task, &host_env_real, &c->hosts, err);
    if (rc == 0)
        rc = set_ssh(c, err);
    if (rc == 0)
        rc = find_programs(c, err);
    if (rc == 0 && getrandom(c->secret, sizeof c->secret, 0) != (ssize_t)sizeof c->secret)
        rc = co_fail(err, -EIO, "cannot get random bytes: %s", strerror(errno));
    co_raise_file_limit(); /* three descriptors a node */
    return rc < 0 ? rc : open_nodes(c, err);
}

/* Write errors are found at the end, by ctl_flush(). returns 0, -ENOMEM */
static int print_json(const struct check_report *r)
{
    json_t *json = check_report_to_json(r);
    co_autofree char *text = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    if (text == NULL)
        return -ENOMEM;
    printf("%s\n", text);
    return 0;
}

static enum ctl_exit show(struct check *c)
{
    if (c->failed || check_rules(&c->report, DDPRUN_VERSION) < 0 ||
        (c->task.json ? print_json(&c->report) : check_text_print(&c->report, stdout)) < 0)
        return CTL_EXIT_INTERNAL;
    return check_has_failed(&c->report) ? CTL_EXIT_UNAVAILABLE : CTL_EXIT_OK;
}

static void check_fini(struct check *c)
{
    check_nodes_close(c->nodes);
    check_report_fini(&c->report);
    check_hosts_fini(&c->hosts);
    free(c->talks);
    free(c->ssh);
}

static enum ctl_exit check_task_run(struct check *c)
{
    struct co_error err = {0};
    int rc = check_task_prepare(c, &err);
    enum ctl_exit code = rc == -ENOMEM ? CTL_EXIT_INTERNAL : CTL_EXIT_USAGE;
    if (rc < 0)
        return ctl_fail(code, &err);
    signal(SIGPIPE, SIG_IGN); /* a node that is gone is reported, and does not end this process */
    look_at_all(c);
    signal(SIGPIPE, SIG_DFL);
    code = show(c);
    if (code == CTL_EXIT_INTERNAL)
        ctl_tell(CO_ERROR, "out of memory");
    return code;
}

enum ctl_exit ctl_check(int argc, char **argv)
{
    struct check c = {.failed = false};
    struct co_error err = {0};
    if (check_options_parse(argc, argv, &c.task, &err) < 0)
        return ctl_fail(CTL_EXIT_USAGE, &err);
    if (c.task.is_help) {
        check_options_print_help(stdout);
        return ctl_flush(CTL_EXIT_OK);
    }
    enum ctl_exit code = check_task_run(&c);
    check_fini(&c);
    return ctl_flush(code);
}
