#include "roster_order.h"

#include "common/hash.h"
#include "message.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* -1, 0, 1; each argument is read twice */
#define BY(a, b) (((a) > (b)) - ((a) < (b)))

uint64_t roster_order_key(int32_t node_rank, const char *name)
{
    if (node_rank >= 0)
        return (uint64_t)node_rank;
    uint64_t key = co_hash_bytes(CO_HASH_START, name, strlen(name));
    return key | UINT64_C(1) << 63; /* never a node rank's */
}

/* --- Names --- */

static size_t n_digits(const char *s)
{
    size_t n = 0;
    while (isdigit((unsigned char)s[n]))
        n++;
    return n;
}

/* Compare the numbers that both begin with, of any length, and move to the end of the numbers. */
static int compare_numbers(const char **a, const char **b)
{
    size_t len_a = n_digits(*a), len_b = n_digits(*b);
    const char *end_a = *a + len_a, *end_b = *b + len_b;
    while (len_a > 1 && **a == '0') {
        (*a)++;
        len_a--;
    }
    while (len_b > 1 && **b == '0') {
        (*b)++;
        len_b--;
    }
    int by = len_a != len_b ? BY(len_a, len_b) : strncmp(*a, *b, len_a);
    *a = end_a;
    *b = end_b;
    return by;
}

int roster_order_compare(const char *a, const char *b)
{
    const char *p = a, *q = b;
    while (*p != '\0' && *q != '\0') {
        int by;
        if (isdigit((unsigned char)*p) && isdigit((unsigned char)*q)) {
            by = compare_numbers(&p, &q);
        } else {
            by = BY((unsigned char)*p, (unsigned char)*q);
            p++;
            q++;
        }
        if (by != 0)
            return by;
    }
    if (*p != *q)
        return BY((unsigned char)*p, (unsigned char)*q);
    return strcmp(a, b); /* node07 and node7 also differ */
}

/* --- Orders of entries --- */

/* Those without a number come after those with one. */
static int by_number(int32_t a, int32_t b)
{
    if ((a < 0) != (b < 0))
        return a < 0 ? 1 : -1;
    return a < 0 ? 0 : BY(a, b);
}

static int by_first_order(const struct roster_order_entry *a, const struct roster_order_entry *b)
{
    int by = BY(b->keeps_rank_0, a->keeps_rank_0);
    if (by == 0)
        by = by_number(a->node_rank, b->node_rank);
    if (by == 0)
        by = by_number(a->expected, b->expected);
    if (by == 0)
        by = roster_order_compare(a->name, b->name);
    return by != 0 ? by : memcmp(a->instance, b->instance, MESSAGE_INSTANCE_BYTES);
}

/* Survivors in their order, then those of the generation before in theirs, then newcomers in first
 * order. */
static int by_seat_then_first(const void *x, const void *y)
{
    const struct roster_order_entry *a = x, *b = y;
    int by = by_number(a->seat, b->seat);
    if (by == 0)
        by = BY(b->keeps_rank_0, a->keeps_rank_0);
    if (by == 0)
        by = by_number(a->before, b->before);
    return by != 0 ? by : by_first_order(a, b);
}

static int by_claim(const void *x, const void *y)
{
    const struct roster_order_entry *a = x, *b = y;
    int by = BY(b->keeps_rank_0, a->keeps_rank_0);
    if (by == 0)
        by = BY(b->seat >= 0, a->seat >= 0);
    if (by == 0)
        by = BY(b->before >= 0, a->before >= 0);
    if (by == 0)
        by = BY(b->returns, a->returns);
    return by != 0 ? by : BY(a->arrival, b->arrival);
}

static int by_seat(const void *x, const void *y)
{
    const struct roster_order_entry *a = x, *b = y;
    return BY(a->seat, b->seat);
}

/* --- Holes --- */

static int by_key(const void *x, const void *y)
{
    const struct roster_order_seat *a = x, *b = y;
    int by = BY(a->key, b->key);
    return by != 0 ? by : BY(a->index, b->index);
}

static int by_index(const void *x, const void *y)
{
    const struct roster_order_seat *a = x, *b = y;
    return BY(a->index, b->index);
}

/* Keep the seats after the first survivor that are empty. returns how many */
static size_t find_holes(const struct roster_order_entry *survivors, size_t n,
                         struct roster_order_seat *seats, size_t n_seats)
{
    size_t n_holes = 0, next = 0;
    for (size_t i = (size_t)survivors[0].seat; i < n_seats; i++) {
        if (next < n && survivors[next].seat == (int32_t)i)
            next++;
        else
            seats[n_holes++] = seats[i];
    }
    return n_holes;
}

static size_t first_with_key(const struct roster_order_seat *holes, size_t n, uint64_t key)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (holes[mid].key < key)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Which newcomers had a place in the last generation, in another session. */
static void find_returners(struct roster_order_entry *entries, size_t n,
                           struct roster_order_seat *seats, size_t n_seats)
{
    qsort(seats, n_seats, sizeof *seats, by_key);
    for (size_t i = 0; i < n; i++) {
        const size_t at = first_with_key(seats, n_seats, entries[i].key);
        entries[i].returns = at < n_seats && seats[at].key == entries[i].key;
    }
    qsort(seats, n_seats, sizeof *seats, by_index);
}

/* A returning node gets its previous place. The first hole of a key counts how many with it are
 * taken. */
static void seat_returners(struct roster_order_entry *newcomers, size_t n,
                           struct roster_order_seat *holes, size_t n_holes)
{
    qsort(holes, n_holes, sizeof *holes, by_key);
    for (size_t i = 0; i < n; i++) {
        size_t first = first_with_key(holes, n_holes, newcomers[i].key);
        if (first == n_holes)
            continue;
        size_t at = first + holes[first].n_taken;
        if (at >= n_holes || holes[at].key != newcomers[i].key)
            continue;
        holes[first].n_taken++;
        newcomers[i].seat = holes[at].index;
    }
}

/* Drop the holes that returners took. */
static size_t keep_free(struct roster_order_seat *holes, size_t n)
{
    size_t n_free = 0;
    for (size_t first = 0, end; first < n; first = end) {
        for (end = first + 1; end < n && holes[end].key == holes[first].key;)
            end++;
        for (size_t i = first + holes[first].n_taken; i < end; i++)
            holes[n_free++] = holes[i];
    }
    return n_free;
}

/* Newcomers of a domain that had holes fill those first. Both are sorted by domain for that. */
static int by_domain_of_seat(const void *x, const void *y)
{
    const struct roster_order_seat *a = x, *b = y;
    int by = BY(a->domain, b->domain);
    return by != 0 ? by : BY(a->index, b->index);
}

static int by_domain_then_first(const void *x, const void *y)
{
    const struct roster_order_entry *a = x, *b = y;
    int by = BY(a->domain, b->domain);
    return by != 0 ? by : by_seat_then_first(a, b);
}

/* returns how many holes are left, which are the first ones */
static size_t fill_own_holes(struct roster_order_entry *newcomers, size_t n,
                             struct roster_order_seat *holes, size_t n_holes)
{
    size_t n_free = 0, i = 0;
    qsort(holes, n_holes, sizeof *holes, by_domain_of_seat);
    qsort(newcomers, n, sizeof *newcomers, by_domain_then_first);
    for (size_t at = 0; at < n_holes; at++) {
        while (i < n && (newcomers[i].domain < holes[at].domain ||
                         (newcomers[i].domain == holes[at].domain && newcomers[i].seat >= 0)))
            i++;
        if (i < n && newcomers[i].domain == holes[at].domain)
            newcomers[i++].seat = holes[at].index;
        else
            holes[n_free++] = holes[at];
    }
    qsort(newcomers, n, sizeof *newcomers, by_seat_then_first);
    return n_free;
}

/* seats   the first n_holes of them are the holes */
static void seat_newcomers(struct roster_order_entry *newcomers, size_t n,
                           struct roster_order_seat *seats, size_t n_holes, size_t n_seats,
                           bool by_domains)
{
    seat_returners(newcomers, n, seats, n_holes);
    size_t n_free = keep_free(seats, n_holes);
    if (by_domains)
        n_free = fill_own_holes(newcomers, n, seats, n_free);
    qsort(seats, n_free, sizeof *seats, by_index);
    size_t next = 0, behind = n_seats;
    for (size_t i = 0; i < n; i++) {
        if (newcomers[i].seat >= 0)
            continue;
        newcomers[i].seat = next < n_free ? seats[next++].index : (int32_t)behind++;
        newcomers[i].is_added = true;
    }
}

/* --- Segments --- */

static int by_domain_then_claim(const void *x, const void *y)
{
    const struct roster_order_entry *a = x, *b = y;
    int by = BY(a->domain, b->domain);
    return by != 0 ? by : by_claim(a, b);
}

/* That of a segment: survivors count more than any number of others. */
static uint64_t claim_of(const struct roster_order_entry *e, size_t segment)
{
    uint64_t keeps = 0, seats = 0, before = 0, returns = 0;
    for (size_t i = 0; i < segment; i++) {
        keeps += e[i].keeps_rank_0;
        seats += e[i].seat >= 0;
        before += e[i].before >= 0;
        returns += e[i].returns;
    }
    return (keeps > 0 ? UINT64_C(1) << 60 : 0) | seats << 40 | before << 20 | returns;
}

_Static_assert(MESSAGE_MAX_NODES < 1 << 20, "as many fit into a claim");

/* Cut one domain's entries, the best claim first. Those that are left make no segment. */
static size_t cut_domain(struct roster_order_entry *e, size_t n, size_t segment)
{
    const size_t n_whole = n / segment * segment;
    for (size_t at = 0; at < n; at += segment) {
        const bool is_whole = at < n_whole;
        const uint64_t claim = is_whole ? claim_of(e + at, segment) : 0;
        uint64_t since = 0;
        for (size_t i = at; is_whole && i < at + segment; i++)
            since = e[i].arrival > since ? e[i].arrival : since;
        for (size_t i = at; i < n && i < at + segment; i++) {
            e[i].claim = claim;
            e[i].whole_since = is_whole ? since : UINT64_MAX;
            e[i].n_before_it = (uint32_t)i;
        }
    }
    return n_whole;
}

/* Those of whole segments, the best claim first, then the segment that was whole first; then the
 * others. */
static int by_segment(const void *x, const void *y)
{
    const struct roster_order_entry *a = x, *b = y;
    const bool is_whole = a->whole_since != UINT64_MAX;
    int by = BY(b->whole_since != UINT64_MAX, is_whole);
    if (by == 0)
        by = BY(b->claim, a->claim);
    if (by == 0)
        by = BY(a->whole_since, b->whole_since);
    if (by == 0)
        by = BY(a->domain, b->domain);
    return by != 0 ? by : BY(a->n_before_it, b->n_before_it);
}

/* returns how many take part: the first ones */
static size_t choose_segments(struct roster_order_entry *entries, size_t n, size_t max,
                              size_t segment)
{
    size_t n_whole = 0;
    qsort(entries, n, sizeof *entries, by_domain_then_claim);
    for (size_t first = 0, end; first < n; first = end) {
        for (end = first + 1; end < n && entries[end].domain == entries[first].domain;)
            end++;
        n_whole += cut_domain(entries + first, end - first, segment);
    }
    qsort(entries, n, sizeof *entries, by_segment);
    return n_whole < max ? n_whole : max;
}

static int by_domain_then_seat(const void *x, const void *y)
{
    const struct roster_order_entry *a = x, *b = y;
    int by = BY(a->domain, b->domain);
    return by != 0 ? by : BY(a->seat, b->seat);
}

/* A hole of another domain means nothing within this one. */
static int by_block_then_seat(const void *x, const void *y)
{
    const struct roster_order_entry *a = x, *b = y;
    int by = BY(a->block, b->block);
    if (by == 0)
        by = BY(a->seat >= 0 && a->is_added, b->seat >= 0 && b->is_added);
    return by != 0 ? by : BY(a->seat, b->seat);
}

/* The nodes of a domain follow each other. The domain begins where its first survivor is: so
 * survivors keep their order, and rank 0 is with the first of them. */
static void gather_domains(struct roster_order_entry *entries, size_t n)
{
    qsort(entries, n, sizeof *entries, by_domain_then_seat);
    for (size_t first = 0, end; first < n; first = end) {
        int32_t block = entries[first].seat;
        bool survives = entries[first].survives || entries[first].keeps_rank_0;
        for (end = first + 1; end < n && entries[end].domain == entries[first].domain; end++)
            if (!survives && entries[end].survives) {
                block = entries[end].seat;
                survives = true;
            }
        for (size_t i = first; i < end; i++)
            entries[i].block = block;
    }
    qsort(entries, n, sizeof *entries, by_block_then_seat);
}

/* --- All of it --- */

static size_t choose(struct roster_order_entry *entries, size_t n, struct roster_order_seat *seats,
                     size_t n_seats, size_t max, size_t segment)
{
    if (n <= max && segment == 0)
        return n;
    find_returners(entries, n, seats, n_seats);
    if (segment > 0)
        return choose_segments(entries, n, max, segment);
    qsort(entries, n, sizeof *entries, by_claim);
    return max;
}

size_t roster_order_make(struct roster_order_entry *entries, size_t n,
                         struct roster_order_seat *seats, size_t n_seats, size_t max,
                         size_t segment)
{
    n = choose(entries, n, seats, n_seats, max, segment);
    qsort(entries, n, sizeof *entries, by_seat_then_first);
    size_t n_old = 0;
    while (n_old < n && entries[n_old].seat >= 0)
        entries[n_old++].survives = true;
    if (n_old > 0) {
        size_t n_holes = find_holes(entries, n_old, seats, n_seats);
        seat_newcomers(entries + n_old, n - n_old, seats, n_holes, n_seats, segment > 0);
    } else {
        for (size_t i = 0; i < n; i++)
            entries[i].seat = (int32_t)i;
    }
    for (size_t i = 0; i < n; i++)
        if (entries[i].keeps_rank_0)
            entries[i].seat = ROSTER_ORDER_NONE;
    if (segment > 0)
        gather_domains(entries, n);
    else
        qsort(entries, n, sizeof *entries, by_seat);
    return n;
}
