/* check_rules.c - the rules: what is wrong with the nodes, and what to try next.
 *
 * Read check_rules() first: it judges each node by itself, then against the others, then its
 * measured pairs. Each rule adds findings, a text and a hint, in the order of the nodes. A value
 * that a node did not report breaks no rule. */
#include "check_report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct judge {
    struct check_report *report;
    const char *version;
    size_t room;
    bool failed; /* out of memory */
};

__attribute__((format(printf, 6, 7))) static void find(struct judge *j, size_t node,
                                                       enum check_field field, bool is_failure,
                                                       const char *hint, const char *format, ...)
{
    struct check_report *r = j->report;
    if (r->n_findings == j->room) {
        size_t room = j->room > 0 ? 2 * j->room : 16;
        struct check_finding *more = realloc(r->findings, room * sizeof *more);
        if (more == NULL) {
            j->failed = true;
            return;
        }
        r->findings = more;
        j->room = room;
    }
    struct check_finding *f = &r->findings[r->n_findings++];
    *f = (struct check_finding){
        .node = node, .field = field, .is_failure = is_failure, .hint = hint};
    va_list args;
    va_start(args, format);
    vsnprintf(f->text, sizeof f->text, format, args);
    va_end(args);
}

static const bool fails = true, warns = false;

/* --- one node by itself --- */

static void judge_reach(struct judge *j, size_t i)
{
    const struct check_node *n = &j->report->nodes[i];
    if (n->why[0] == '\0')
        return;
    if (n->is_up)
        find(j, i, CHECK_REACH, fails, "use a longer --timeout if the machine is very busy", "%s",
             n->why);
    else
        find(j, i, CHECK_REACH, fails,
             "log in as ddprun does (`ssh -oBatchMode=yes HOST true`), and check that ddpctl is "
             "installed there at the same path",
             "cannot be reached: %s", n->why);
}

static void judge_version(struct judge *j, size_t i)
{
    static const char hint[] = "install the same ddprun on all nodes, at the same path";
    const struct check_facts *f = &j->report->nodes[i].facts;
    if (f->version[0] == '\0')
        find(j, i, CHECK_VERSION, fails, hint, "no ddprun: %s", f->no_version);
    else if (strcmp(f->version, j->version) != 0)
        find(j, i, CHECK_VERSION, fails, hint, "its ddprun is %s, but this node's is %s",
             f->version, j->version);
}

static void judge_clock(struct judge *j, size_t i)
{
    const struct check_node *n = &j->report->nodes[i];
    uint64_t off = (uint64_t)(n->offset_ns < 0 ? -n->offset_ns : n->offset_ns);
    if (n->has_clock && off > n->error_ns && off - n->error_ns > CHECK_CLOCK_MAX_NS)
        find(j, i, CHECK_CLOCK, fails, "set it with chrony or another NTP daemon",
             "its clock is %.3f s %s than the clock of this node (uncertainty %.3f s)",
             (double)off / 1e9, n->offset_ns < 0 ? "earlier" : "later", (double)n->error_ns / 1e9);
}

static void judge_limits(struct judge *j, size_t i)
{
    const struct check_facts *f = &j->report->nodes[i].facts;
    if (f->nofile_hard < CHECK_NOFILE_MIN)
        find(j, i, CHECK_NOFILE, fails,
             "raise it in /etc/security/limits.conf, or with LimitNOFILE= in sshd's unit",
             "the limit of open files is only %" PRIu64, f->nofile_hard);
    if (f->memlock < CHECK_MEMLOCK_MIN && f->n_rdma != CHECK_UNKNOWN && f->n_rdma > 0)
        find(j, i, CHECK_MEMLOCK, fails,
             "set ulimit -l unlimited in /etc/security/limits.conf, or with LimitMEMLOCK= in "
             "sshd's unit",
             "the limit of locked memory is only %" PRIu64 " KiB, and RDMA locks its buffers",
             f->memlock >> 10);
    if (f->somaxconn < CHECK_BACKLOG_MIN)
        find(j, i, CHECK_BACKLOG, warns, "sysctl -w net.core.somaxconn=4096",
             "the kernel queues only %" PRIu64
             " connections: simultaneous ones beyond that are delayed",
             f->somaxconn);
}

static void judge_shm(struct judge *j, size_t i)
{
    static const char hint[] = "remount it with more: mount -o remount,size=50% /dev/shm; for a "
                               "container use --shm-size, or an emptyDir of medium Memory";
    const struct check_facts *f = &j->report->nodes[i].facts;
    if (f->no_shm[0] != '\0')
        find(j, i, CHECK_SHM, fails, "mount a tmpfs there that every user can write to",
             "/dev/shm cannot be used: %s", f->no_shm);
    else if (f->shm_free < CHECK_SHM_FREE_MIN)
        find(j, i, CHECK_SHM, fails, "look for leftover files: ls -l /dev/shm",
             "/dev/shm has %" PRIu64 " of %" PRIu64 " MiB free", f->shm_free >> 20,
             f->shm_bytes >> 20);
    else if (f->shm_bytes < CHECK_SHM_MIN)
        find(j, i, CHECK_SHM, warns, hint,
             "/dev/shm has only %" PRIu64 " MiB, which data loaders fill quickly",
             f->shm_bytes >> 20);
}

static void judge_names(struct judge *j, size_t i)
{
    static const char hint[] = "add the node's address and name to /etc/hosts or DNS";
    const struct check_facts *f = &j->report->nodes[i].facts;
    bool is_bad = f->forward == CHECK_NAME_FOREIGN || f->forward == CHECK_NAME_NONE ||
                  f->forward == CHECK_NAME_LATE;
    if (is_bad)
        find(
            j, i, CHECK_NAMES, fails, hint, "its own name, %s, resolves to %s%s", f->host,
            f->forward == CHECK_NAME_FOREIGN ? "another machine: " : "no address: ", f->forward_to);
    else if (f->forward == CHECK_NAME_LOOPBACK && j->report->n_nodes > 1)
        find(j, i, CHECK_NAMES, warns, hint,
             "its own name, %s, resolves to %s, which no other node can reach", f->host,
             f->forward_to);
    if (f->reverse == CHECK_NAME_FOREIGN)
        find(j, i, CHECK_NAMES, fails, hint, "its address resolves to %s, which is another machine",
             f->reverse_to);
    else if ((f->reverse == CHECK_NAME_NONE || f->reverse == CHECK_NAME_LATE) &&
             j->report->n_nodes > 1)
        find(j, i, CHECK_NAMES, warns, hint, "its address does not resolve to a name: %s",
             f->reverse_to);
}

static void judge_gpus(struct judge *j, size_t i)
{
    const struct check_facts *f = &j->report->nodes[i].facts;
    if (f->gpu_trouble[0] != '\0')
        find(j, i, CHECK_GPUS, fails, "run nvidia-smi there; `dmesg | grep -i xid` may show why",
             "the driver does not list its GPUs: %s", f->gpu_trouble);
    for (size_t k = 0; k < f->n_described; k++)
        if (f->gpus[k].ecc_errors != CHECK_UNKNOWN && f->gpus[k].ecc_errors > 0)
            find(j, i, CHECK_GPUS, fails,
                 "reset or replace it; exclude it with CUDA_VISIBLE_DEVICES until then",
                 "GPU %zu has %" PRIu64 " uncorrectable memory errors", k, f->gpus[k].ecc_errors);
}

static void judge_ports(struct judge *j, size_t i)
{
    const struct check_facts *f = &j->report->nodes[i].facts;
    bool is_known = f->last_port != CHECK_UNKNOWN && f->first_port != CHECK_UNKNOWN;
    if (j->report->nodes[i].address[0] == '\0' && j->report->n_nodes > 1)
        find(j, i, CHECK_PORTS, fails, "check ip -brief address on that node",
             "it has no address that other nodes could reach%s%s",
             j->report->interface != NULL ? " on the interface " : "",
             j->report->interface != NULL ? j->report->interface : "");
    if (f->no_port[0] != '\0')
        find(j, i, CHECK_PORTS, fails, "run ss -tan to see which process uses the ports",
             "it cannot listen: %s", f->no_port);
    else if (is_known && f->last_port < f->first_port + CHECK_PORTS_MIN)
        find(j, i, CHECK_PORTS, warns, "sysctl -w net.ipv4.ip_local_port_range='32768 60999'",
             "the kernel assigns ports from %" PRIu64 " to %" PRIu64 " only", f->first_port,
             f->last_port);
}

/* --- nodes compared with each other --- */

static const char *reach_hint(enum check_reach reach)
{
    switch (reach) {
    case CHECK_REACH_SILENT:
        return "a firewall seems to drop it: nodes of a job need the ports of "
               "net.ipv4.ip_local_port_range open to each other; --interface picks another network";
    case CHECK_REACH_REFUSED:
    case CHECK_REACH_UNREACHABLE:
        return "a firewall may refuse it, or the address is on another network: --interface picks "
               "one";
    case CHECK_REACH_WRONG_SERVICE:
        return "two machines may have this address, or a proxy between them answers";
    case CHECK_REACH_OK:
    case CHECK_REACH_OTHER:
    default:
        return NULL;
    }
}

/* One line for all nodes to which the same happened. */
static void judge_links_of(struct judge *j, size_t to, enum check_reach reach)
{
    static const char *const what[CHECK_N_REACHES] = {
        [CHECK_REACH_REFUSED] = "is refused",
        [CHECK_REACH_SILENT] = "gets no answer",
        [CHECK_REACH_UNREACHABLE] = "has no route",
        [CHECK_REACH_WRONG_SERVICE] = "is answered by another program",
        [CHECK_REACH_OTHER] = "fails",
    };
    const struct check_report *r = j->report;
    char names[160] = "";
    size_t n = 0, len = 0;
    for (size_t i = 0; i < r->n_links; i++) {
        if (r->links[i].to != to || r->links[i].reach != reach)
            continue;
        if (len < sizeof names - 1)
            len += (size_t)snprintf(names + len, sizeof names - len, "%s%s", n > 0 ? ", " : "",
                                    r->nodes[r->links[i].from].name);
        n++;
    }
    if (n > 0)
        find(j, to, CHECK_PORTS, fails, reach_hint(reach),
             "a connection to its port %" PRIu64 " at %s %s, from %zu node%s: %s%s",
             r->nodes[to].facts.port, r->nodes[to].address, what[reach], n, n == 1 ? "" : "s",
             names, len >= sizeof names ? "..." : "");
}

/* A node without a token gets a finding that names the first node with one. */
static void judge_token(struct judge *j, size_t i)
{
    static const char hint[] = "copy ~/.config/ddprun/token to all nodes, with mode 0600; jobs "
                               "started with ddprun -H use their own";
    const struct check_report *r = j->report;
    const struct check_node *first = NULL;
    for (size_t k = 0; k < r->n_nodes && first == NULL; k++)
        if (r->nodes[k].has_facts && r->nodes[k].facts.token_id[0] != '\0')
            first = &r->nodes[k];
    const struct check_facts *f = &r->nodes[i].facts;
    if (f->no_token[0] != '\0')
        find(j, i, CHECK_TOKEN, fails, hint, "cannot use its token: %s", f->no_token);
    else if (first != NULL && f->token_id[0] == '\0')
        find(j, i, CHECK_TOKEN, fails, hint, "it has no token, but %s has one", first->name);
    else if (first != NULL && strcmp(f->token_id, first->facts.token_id) != 0)
        find(j, i, CHECK_TOKEN, fails, hint, "it has another token than %s", first->name);
}

static void judge_likeness(struct judge *j, size_t i)
{
    const struct check_report *r = j->report;
    const struct check_facts *f = &r->nodes[i].facts, *first = NULL;
    uint64_t most = 0;
    for (size_t k = 0; k < r->n_nodes; k++) {
        const struct check_facts *other = &r->nodes[k].facts;
        if (!r->nodes[k].has_facts || other->n_gpus == CHECK_UNKNOWN)
            continue;
        most = other->n_gpus > most ? other->n_gpus : most;
        if (first == NULL && other->n_gpus > 0)
            first = other;
    }
    if (f->n_gpus < most)
        find(j, i, CHECK_GPUS, warns, "run nvidia-smi -L and `dmesg | grep -i xid` on that node",
             "it has %" PRIu64 " GPU%s, and others have %" PRIu64, f->n_gpus,
             f->n_gpus == 1 ? "" : "s", most);
    if (first == NULL || f->n_gpus == 0 || f->n_gpus == CHECK_UNKNOWN)
        return;
    if (strcmp(f->driver, first->driver) != 0)
        find(j, i, CHECK_GPUS, warns, "install the same driver on all nodes",
             "its driver is %s, but %s has %s", f->driver, first->host, first->driver);
    if (strcmp(f->nccl, first->nccl) != 0)
        find(j, i, CHECK_GPUS, warns, "install the same NCCL on all nodes",
             "its NCCL is %s, but %s has %s", f->nccl[0] != '\0' ? f->nccl : "not there",
             first->host, first->nccl[0] != '\0' ? first->nccl : "none");
}

/* --- pairs --- */

static uint64_t slower(const struct check_pair *p)
{
    return p->forth < p->back ? p->forth : p->back;
}

static int u64_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* returns   the median of the speeds of the measured pairs; 0: none was measured */
static uint64_t median_speed(struct judge *j)
{
    const struct check_report *r = j->report;
    uint64_t *all = calloc(r->n_pairs + 1, sizeof *all), median = 0;
    size_t n = 0;
    for (size_t i = 0; all != NULL && i < r->n_pairs; i++)
        if (r->pairs[i].why[0] == '\0')
            all[n++] = slower(&r->pairs[i]);
    if (n > 0) {
        qsort(all, n, sizeof *all, u64_compare);
        median = all[n / 2];
    }
    j->failed |= all == NULL;
    free(all);
    return median;
}

/* A finding about a pair belongs to its first node. */
static void judge_pairs(struct judge *j, size_t node, uint64_t median)
{
    const struct check_report *r = j->report;
    for (size_t i = 0; i < r->n_pairs; i++) {
        const struct check_pair *p = &r->pairs[i];
        const char *other = r->nodes[p->b].name;
        if (p->a != node)
            continue;
        if (p->why[0] != '\0')
            find(j, node, CHECK_NET, fails, NULL, "the network to %s was not measured: %s", other,
                 p->why);
        else if (slower(p) < median / CHECK_SLOW_PAIR_PART)
            find(j, node, CHECK_NET, warns,
                 "check the cable, the switch port and the ethtool statistics of both nodes",
                 "the bandwidth to %s is %.1f MB/s, but the median of all pairs is %.1f MB/s",
                 other, (double)slower(p) / 1e6, (double)median / 1e6);
    }
}

int check_rules(struct check_report *r, const char *version)
{
    static void (*const each[])(struct judge * j, size_t i) = {
        judge_version, judge_clock, judge_limits, judge_shm,     judge_names,
        judge_ports,   judge_token, judge_gpus,   judge_likeness};
    struct judge j = {.report = r, .version = version};
    uint64_t median = median_speed(&j);
    for (size_t i = 0; i < r->n_nodes; i++) {
        judge_reach(&j, i);
        for (size_t k = 0; r->nodes[i].has_facts && k < sizeof each / sizeof *each; k++)
            each[k](&j, i);
        for (int reach = CHECK_REACH_OK + 1; reach < CHECK_N_REACHES; reach++)
            judge_links_of(&j, i, (enum check_reach)reach);
        judge_pairs(&j, i, median);
    }
    return j.failed ? -ENOMEM : 0;
}
