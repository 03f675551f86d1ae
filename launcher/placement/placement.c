/* From a machine to a set of CPUs for each rank. placement_make() keeps the allowed CPUs in one row
 * (machine_init()), in which each core, cache and memory node is a range; seat_ranks() gives each
 * rank a home, near its device (find_home()) or by its number (seat_by_number()); bind_rank() turns
 * the home and the kind of binding into CPUs, and describe_place() finds what these have in common.
 * Read seat_ranks() first, then bind_rank().
 *
 * Invariant: the row is sorted as topology_load() sorts it, so that neighbors share as much as
 * possible, and a range of it is all that a rank needs to know. */
#include "placement.h"

#include "common/error.h"
#include "common/scope.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const placement_bind_words[] = {
    [PLACEMENT_NONE] = "none", [PLACEMENT_CORE] = "core",     [PLACEMENT_CACHE] = "cache",
    [PLACEMENT_NUMA] = "numa", [PLACEMENT_SOCKET] = "socket", NULL};

/* The allowed CPUs are in one row, neighbors together, and everything else is a range of it: a
 * core, a cache, a node. */
struct range {
    size_t first, end; /* of `row` */
};

struct home { /* a memory node with CPUs that are allowed */
    struct range cpus;
    struct range cores; /* of `cores` */
    int n_ranks;        /* whose home it is */
};

struct machine { /* the lists in one block each, owned */
    struct topology_cpu *row;
    size_t n_row;
    struct range *cores;
    size_t n_cores;
    struct home *homes;
    size_t n_homes;
};

struct seat {               /* a rank's */
    size_t home, last_home; /* the same, unless there are fewer ranks than homes */
    int number;             /* among the ranks of that home */
};

static bool same_core(const struct topology_cpu *a, const struct topology_cpu *b)
{
    return a->core == b->core && a->node == b->node;
}

static void list_cores_and_homes(struct machine *m)
{
    for (size_t i = 0; i < m->n_row; i++) {
        const struct topology_cpu *cpu = &m->row[i];
        if (i == 0 || !same_core(cpu, cpu - 1))
            m->cores[m->n_cores++].first = i;
        if (i == 0 || cpu->node != cpu[-1].node) {
            m->homes[m->n_homes].cpus.first = i;
            m->homes[m->n_homes++].cores.first = m->n_cores - 1;
        }
        m->cores[m->n_cores - 1].end = i + 1;
        m->homes[m->n_homes - 1].cpus.end = i + 1;
        m->homes[m->n_homes - 1].cores.end = m->n_cores;
    }
}

static int machine_init(struct machine *m, const struct topology *t, const struct cpu_set *allowed,
                        struct co_error *err)
{
    *m = (struct machine){
        .row = calloc(t->n_cpus, sizeof *m->row),
        .cores = calloc(t->n_cpus, sizeof *m->cores),
        .homes = calloc(t->n_cpus, sizeof *m->homes),
    };
    if (m->row == NULL || m->cores == NULL || m->homes == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < t->n_cpus; i++)
        if (cpu_set_has(allowed, t->cpus[i].cpu))
            m->row[m->n_row++] = t->cpus[i];
    if (m->n_row == 0)
        return co_fail(err, -ENODEV, "none of the allowed CPUs exists on this machine");
    list_cores_and_homes(m);
    return 0;
}

static size_t count_near(const struct machine *m, const struct home *h, const struct cpu_set *near)
{
    size_t n = 0;
    for (size_t i = h->cpus.first; i < h->cpus.end; i++)
        n += cpu_set_has(near, m->row[i].cpu);
    return n;
}

/* The home near to a device; if there are several, the one with the fewest ranks so far. returns
 * n_homes: the device is near to none, or to all, which decides nothing */
static size_t find_home(const struct machine *m, const struct cpu_set *near)
{
    size_t found = m->n_homes;
    size_t n_near = 0;
    for (size_t i = 0; near != NULL && i < m->n_homes; i++) {
        if (count_near(m, &m->homes[i], near) == 0)
            continue;
        n_near++;
        if (found == m->n_homes || m->homes[i].n_ranks < m->homes[found].n_ranks)
            found = i;
    }
    return n_near == m->n_homes && n_near > 1 ? m->n_homes : found;
}

/* By number: rank i of n has its home where the i-th of n equal parts of all cores begins; with
 * fewer ranks than homes, as many whole homes as its part of them. */
static void seat_by_number(const struct machine *m, size_t i, size_t n, struct seat *seat)
{
    if (n < m->n_homes) {
        seat->home = i * m->n_homes / n;
        seat->last_home = (i + 1) * m->n_homes / n - 1;
        return;
    }
    size_t core = i * m->n_cores / n;
    seat->home = 0;
    while (m->homes[seat->home].cores.end <= core)
        seat->home++;
    seat->last_home = seat->home;
}

static void seat_ranks(struct machine *m, const struct placement_wish *wish, struct seat *seats)
{
    for (size_t i = 0; i < (size_t)wish->n_ranks; i++) {
        struct seat *seat = &seats[i];
        seat->home = seat->last_home = find_home(m, wish->near != NULL ? wish->near[i] : NULL);
        if (seat->home == m->n_homes)
            seat_by_number(m, i, (size_t)wish->n_ranks, seat);
        seat->number = m->homes[seat->home].n_ranks++;
    }
}

static void add_range(const struct machine *m, struct range cpus, struct placement_rank *to)
{
    for (size_t i = cpus.first; i < cpus.end; i++)
        cpu_set_add(&to->cpus, m->row[i].cpu);
}

/* Part number i of n of a range; the first have what is left over. */
static struct range take_part(struct range whole, size_t i, size_t n)
{
    size_t each = (whole.end - whole.first) / n;
    size_t more = (whole.end - whole.first) % n;
    size_t first = whole.first + i * each + (i < more ? i : more);
    return (struct range){first, first + each + (i < more)};
}

static int bind_to_cores(const struct machine *m, const struct seat *seat,
                         struct placement_rank *to, struct co_error *err)
{
    const struct home *home = &m->homes[seat->home];
    struct range cores = {home->cores.first, m->homes[seat->last_home].cores.end};
    size_t n = cores.end - cores.first;
    if (n < (size_t)home->n_ranks)
        return co_fail(
            err, -ERANGE,
            "NUMA node %u has %zu usable core%s for %d ranks, which is too few; use --bind-to numa",
            m->row[home->cpus.first].node, n, n == 1 ? "" : "s", home->n_ranks);
    struct range own = take_part(cores, (size_t)seat->number, (size_t)home->n_ranks);
    for (size_t i = own.first; i < own.end; i++)
        add_range(m, m->cores[i], to);
    return 0;
}

/* Where the cache of the CPU at `first` ends in the home's part of the row. */
static struct range cache_at(const struct machine *m, const struct home *h, size_t first)
{
    struct range cache = {first, first + 1};
    while (cache.end < h->cpus.end && m->row[cache.end].cache == m->row[first].cache)
        cache.end++;
    return cache;
}

/* The cache that has `number` others before it: those with more CPUs, and of the same size those
 * that come first. */
static struct range find_cache(const struct machine *m, const struct home *h, size_t number)
{
    struct range cache = {h->cpus.first, h->cpus.first};
    for (size_t at = h->cpus.first; at < h->cpus.end; at = cache.end) {
        struct range other;
        size_t n_before = 0;
        cache = cache_at(m, h, at);
        for (size_t i = h->cpus.first; i < h->cpus.end; i = other.end) {
            other = cache_at(m, h, i);
            size_t n = cache.end - cache.first, n_other = other.end - other.first;
            n_before += n_other > n || (n_other == n && other.first < cache.first);
        }
        if (n_before == number)
            break;
    }
    return cache;
}

static void bind_to_cache(const struct machine *m, const struct seat *seat,
                          struct placement_rank *to)
{
    const struct home *home = &m->homes[seat->home];
    size_t n = 0;
    for (size_t i = home->cpus.first; i < home->cpus.end; i = cache_at(m, home, i).end)
        n++;
    add_range(m, find_cache(m, home, (size_t)seat->number % n), to);
}

static int32_t one_or_none(int32_t so_far, bool is_first, uint32_t next)
{
    return is_first || so_far == (int32_t)next ? (int32_t)next : PLACEMENT_NOWHERE;
}

/* What its CPUs have in common. */
static void describe_place(const struct machine *m, struct placement_rank *to)
{
    bool is_first = true;
    const struct topology_cpu *before = NULL;
    for (size_t i = 0; i < m->n_row; i++) {
        const struct topology_cpu *cpu = &m->row[i];
        if (!cpu_set_has(&to->cpus, cpu->cpu))
            continue;
        to->node = one_or_none(to->node, is_first, cpu->node);
        to->socket = one_or_none(to->socket, is_first, cpu->socket);
        to->n_cores += before == NULL || !same_core(before, cpu);
        before = cpu;
        is_first = false;
    }
}

static int bind_rank(const struct machine *m, enum placement_bind bind, const struct seat *seat,
                     struct placement_rank *to, struct co_error *err)
{
    int rc = 0;
    *to = (struct placement_rank){0};
    switch (bind) {
    case PLACEMENT_CORE:
        rc = bind_to_cores(m, seat, to, err);
        break;
    case PLACEMENT_CACHE:
        bind_to_cache(m, seat, to);
        break;
    case PLACEMENT_NUMA:
        add_range(m, m->homes[seat->home].cpus, to);
        break;
    case PLACEMENT_SOCKET:
        for (size_t i = 0; i < m->n_row; i++)
            if (m->row[i].socket == m->row[m->homes[seat->home].cpus.first].socket)
                cpu_set_add(&to->cpus, m->row[i].cpu);
        break;
    case PLACEMENT_NONE:
        add_range(m, (struct range){0, m->n_row}, to);
        break;
    }
    describe_place(m, to);
    return rc;
}

int placement_make(const struct topology *topology, const struct placement_wish *wish,
                   struct placement_rank *ret, struct co_error *err)
{
    struct machine m;
    co_autofree struct seat *seats = calloc((size_t)wish->n_ranks, sizeof *seats);
    int rc = machine_init(&m, topology, wish->allowed, err);
    if (rc == 0 && seats == NULL)
        rc = co_fail(err, -ENOMEM, "out of memory");
    if (rc == 0)
        seat_ranks(&m, wish, seats);
    for (int i = 0; rc == 0 && i < wish->n_ranks; i++)
        rc = bind_rank(&m, wish->bind, &seats[i], &ret[i], err);
    free(m.row);
    free(m.cores);
    free(m.homes);
    return rc;
}

/* --- sets of CPUs --- */

enum { RANGE_BYTES = 16, CPU_DIGITS = 4 };

size_t cpu_set_count(const struct cpu_set *s)
{
    size_t n = 0;
    for (size_t i = 0; i < CPU_SET_CPUS / 64; i++)
        n += (size_t)__builtin_popcountll(s->word[i]);
    return n;
}

/* The next range from `from` on. returns false: no further range */
static bool next_range(const struct cpu_set *s, unsigned from, unsigned *ret_first,
                       unsigned *ret_last)
{
    while (from < CPU_SET_CPUS && !cpu_set_has(s, from))
        from++;
    if (from == CPU_SET_CPUS)
        return false;
    *ret_first = from;
    while (cpu_set_has(s, from + 1))
        from++;
    *ret_last = from;
    return true;
}

char *cpu_set_print(const struct cpu_set *s, char *to, size_t n)
{
    unsigned first, last;
    size_t len = 0;
    to[0] = '\0';
    for (unsigned from = 0; next_range(s, from, &first, &last); from = last + 1) {
        char range[RANGE_BYTES];
        const char *comma = len > 0 ? "," : "";
        int need = first == last ? snprintf(range, sizeof range, "%s%u", comma, first)
                                 : snprintf(range, sizeof range, "%s%u-%u", comma, first, last);
        if (len + (size_t)need + sizeof "..." > n) {
            snprintf(to + len, n - len, "%s", n - len >= sizeof "..." ? "..." : "");
            return to;
        }
        strcpy(to + len, range);
        len += (size_t)need;
    }
    return to;
}

/* Take a number from *at. returns -1: not a number, or too large */
static int take_cpu(const char **at)
{
    size_t n = strspn(*at, "0123456789");
    int cpu = n > 0 && n <= CPU_DIGITS ? atoi(*at) : -1;
    *at += n;
    return cpu < CPU_SET_CPUS ? cpu : -1;
}

int cpu_set_parse(const char *text, struct cpu_set *ret)
{
    struct cpu_set set = {0};
    const char *at = text;
    bool more = *at != '\0' && *at != '\n';
    while (more) {
        int first = take_cpu(&at);
        int last = first;
        if (*at == '-') {
            at++;
            last = take_cpu(&at);
        }
        if (first < 0 || last < first)
            return -EINVAL;
        for (int cpu = first; cpu <= last; cpu++)
            cpu_set_add(&set, (unsigned)cpu);
        more = *at == ',';
        at += more;
    }
    at += *at == '\n';
    if (*at != '\0')
        return -EINVAL;
    *ret = set;
    return 0;
}
