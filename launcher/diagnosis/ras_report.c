#include "ras_report.h"

#include "common/error.h"
#include "common/scope.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMED_COMMS = 8, NAMED_RANKS = 8 }; /* that are printed; JSON has four times as many */

static const char *const op_names[RAS_OPS] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter",
                                              "AllReduce"};

/* --- reading ---------------------------------------------------------------------------------- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* Is this the place of the missing comma: after `"nvml_dev": 3`, before another member? */
static size_t find_gap(const char *text, size_t len, size_t from)
{
    static const char name[] = "\"nvml_dev\":";
    const char *at = memmem(text + from, len - from, name, sizeof name - 1);
    if (at == NULL)
        return 0;
    size_t i = (size_t)(at - text) + sizeof name - 1;
    while (i < len && (is_blank(text[i]) || text[i] == '-' || (text[i] >= '0' && text[i] <= '9')))
        i++;
    return i;
}

/* returns   text with a comma in each gap, owned by the caller; NULL: out of memory */
static char *mend(const char *text, size_t len, size_t *ret_len)
{
    size_t n_gaps = 0;
    for (size_t at = 0; (at = find_gap(text, len, at)) != 0;)
        n_gaps += at < len && text[at] == '"';
    char *mended = malloc(len + n_gaps + 1);
    if (mended == NULL)
        return NULL;
    size_t done = 0, n = 0;
    for (size_t at = 0; (at = find_gap(text, len, at)) != 0;) {
        memcpy(mended + n, text + done, at - done);
        n += at - done;
        done = at;
        if (at < len && text[at] == '"')
            mended[n++] = ',';
    }
    memcpy(mended + n, text + done, len - done);
    *ret_len = n + len - done;
    return mended;
}

/* Control characters would reach a terminal. */
static void copy_text(const json_t *from, char to[RAS_TEXT_BYTES])
{
    const char *text = json_string_value(from);
    snprintf(to, RAS_TEXT_BYTES, "%s", text != NULL ? text : "unknown");
    for (char *c = to; *c != '\0'; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}

static int64_t get_number(const json_t *object, const char *name, int64_t none)
{
    const json_t *value = json_object_get(object, name);
    return json_is_integer(value) ? json_integer_value(value) : none;
}

static int get_int(const json_t *object, const char *name, int none)
{
    const int64_t value = get_number(object, name, none);
    return value >= INT32_MIN && value <= INT32_MAX ? (int)value : none;
}

static void read_rank(const json_t *json, bool is_missing, struct ras_rank *ret)
{
    const json_t *status = json_object_get(json, "status");
    const json_t *counts = json_object_get(json, "collective_counts");
    *ret = (struct ras_rank){.rank = get_int(json, "rank", -1),
                             .job_rank = -1,
                             .pid = get_int(json, "pid", -1),
                             .is_missing = is_missing,
                             .is_dead = json_is_true(json_object_get(status, "considered_dead")),
                             .async_error = get_int(status, "async_error", 0),
                             .init_state = get_int(status, "init_state", 0),
                             .aborts = json_is_true(json_object_get(status, "abort_flag"))};
    copy_text(json_object_get(json, "host"), ret->host);
    for (int i = 0; i < RAS_OPS; i++) {
        const int64_t count = get_number(counts, op_names[i], 0);
        ret->counts[i] = count > 0 ? (uint64_t)count : 0;
    }
}

static int read_comm(const json_t *json, struct ras_comm *ret)
{
    const json_t *ranks = json_object_get(json, "ranks");
    const json_t *missing = json_object_get(json, "missing_ranks");
    const size_t n_ranks = json_array_size(ranks), n_missing = json_array_size(missing);
    const int size = get_int(json, "size", 0);
    *ret = (struct ras_comm){.size = size > 0 ? (uint32_t)size : 0,
                             .ranks = calloc(n_ranks + n_missing + 1, sizeof *ret->ranks)};
    if (ret->ranks == NULL)
        return -ENOMEM;
    copy_text(json_object_get(json, "hash"), ret->hash);
    for (size_t i = 0; i < n_ranks; i++)
        read_rank(json_array_get(ranks, i), false, &ret->ranks[ret->n++]);
    for (size_t i = 0; i < n_missing; i++)
        read_rank(json_array_get(missing, i), true, &ret->ranks[ret->n++]);
    return 0;
}

static int read_comms(const json_t *list, struct ras_report *ret)
{
    const size_t n = json_array_size(list);
    ret->comms = calloc(n + 1, sizeof *ret->comms);
    if (ret->comms == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++, ret->n++)
        if (read_comm(json_array_get(list, i), &ret->comms[i]) < 0)
            return -ENOMEM;
    return 0;
}

int ras_report_parse(const char *text, size_t len, struct ras_report *ret, struct co_error *err)
{
    struct ras_report report = {0};
    json_error_t error;
    size_t n;
    if (len > RAS_MAX_BYTES)
        return co_fail(err, -E2BIG, "its answer has more than %d MiB", RAS_MAX_BYTES >> 20);
    co_autofree char *mended = mend(text, len, &n);
    if (mended == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    json_t *json = json_loadb(mended, n, 0, &error);
    if (json == NULL)
        return co_fail(err, -EPROTO, "its answer is not JSON: line %d: %.100s", error.line,
                       error.text);
    const json_t *list = json_object_get(json, "communicators");
    int rc = !json_is_array(list) || json_array_size(list) > RAS_MAX_COMMS
                 ? co_fail(err, -EPROTO, "its answer has no list of communicators")
                 : read_comms(list, &report);
    if (rc == 0)
        copy_text(json_object_get(json, "nccl_version"), report.version);
    json_decref(json);
    if (rc < 0)
        ras_report_fini(&report);
    else
        *ret = report;
    return rc == -ENOMEM ? co_fail(err, rc, "out of memory") : rc;
}

void ras_report_fini(struct ras_report *r)
{
    for (size_t i = 0; i < r->n; i++)
        free(r->comms[i].ranks);
    free(r->comms);
    *r = (struct ras_report){0};
}

/* --- what it means ---------------------------------------------------------------------------- */

size_t ras_report_resolve(struct ras_report *r,
                          int (*rank_of)(void *arg, const char *host, pid_t pid), void *arg)
{
    size_t n_known = 0;
    for (size_t i = 0; i < r->n; i++)
        for (size_t j = 0; j < r->comms[i].n; j++) {
            struct ras_rank *rank = &r->comms[i].ranks[j];
            rank->job_rank = rank->pid > 0 ? rank_of(arg, rank->host, rank->pid) : -1;
            n_known += rank->job_rank >= 0;
        }
    return n_known;
}

static void find_most(const struct ras_comm *c, uint64_t most[RAS_OPS])
{
    memset(most, 0, RAS_OPS * sizeof *most);
    for (size_t i = 0; i < c->n; i++)
        for (int op = 0; op < RAS_OPS; op++)
            if (c->ranks[i].counts[op] > most[op])
                most[op] = c->ranks[i].counts[op];
}

/* returns whether it has started fewer collectives of a kind than another rank */
static bool has_fewer(const uint64_t most[RAS_OPS], const struct ras_rank *rank, int *ret_op)
{
    uint64_t widest = 0;
    *ret_op = 0;
    for (int op = 0; op < RAS_OPS; op++)
        if (!rank->is_missing && most[op] - rank->counts[op] > widest) {
            widest = most[op] - rank->counts[op];
            *ret_op = op;
        }
    return widest > 0;
}

static bool differs(const struct ras_comm *c)
{
    uint64_t most[RAS_OPS];
    int op;
    find_most(c, most);
    for (size_t i = 0; i < c->n; i++)
        if (has_fewer(most, &c->ranks[i], &op))
            return true;
    return false;
}

bool ras_report_differs(const struct ras_report *r)
{
    for (size_t i = 0; i < r->n; i++)
        if (differs(&r->comms[i]))
            return true;
    return false;
}

/* The same one of another report, where the order is most likely the same. NULL: not there */
static const struct ras_comm *find_comm(const struct ras_report *r, const struct ras_comm *c,
                                        size_t guess)
{
    for (size_t i = 0; i < r->n; i++) {
        const struct ras_comm *other = &r->comms[(guess + i) % r->n];
        if (other->size == c->size && strcmp(other->hash, c->hash) == 0)
            return other;
    }
    return NULL;
}

static const struct ras_rank *find_rank(const struct ras_comm *c, int rank, size_t guess)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->ranks[(guess + i) % c->n].rank == rank)
            return &c->ranks[(guess + i) % c->n];
    return NULL;
}

/* Also if it is not known: a rank that did not answer then. */
static bool has_moved(const struct ras_comm *now, const struct ras_comm *before)
{
    for (size_t i = 0; i < now->n; i++) {
        const struct ras_rank *rank = &now->ranks[i];
        if (rank->is_missing)
            continue;
        const struct ras_rank *old = find_rank(before, rank->rank, i);
        if (old == NULL || old->is_missing ||
            memcmp(old->counts, rank->counts, sizeof rank->counts) != 0)
            return true;
    }
    return false;
}

void ras_report_compare(struct ras_report *r, const struct ras_report *before, uint64_t apart_ms)
{
    r->apart_ms = apart_ms;
    for (size_t i = 0; i < r->n; i++) {
        const struct ras_comm *old = find_comm(before, &r->comms[i], i);
        r->comms[i].moves = old == NULL || has_moved(&r->comms[i], old);
    }
}

static bool lags(const struct ras_report *r, const struct ras_comm *c, const uint64_t most[RAS_OPS],
                 const struct ras_rank *rank, int *ret_op)
{
    return r->apart_ms > 0 && !c->moves && has_fewer(most, rank, ret_op);
}

struct ras_sums ras_report_count(const struct ras_report *r)
{
    struct ras_sums sums = {.n_comms = r->n};
    uint64_t most[RAS_OPS];
    int op;
    for (size_t i = 0; i < r->n; i++) {
        const struct ras_comm *c = &r->comms[i];
        find_most(c, most);
        for (size_t j = 0; j < c->n; j++) {
            sums.n_missing += c->ranks[j].is_missing;
            sums.n_errors += c->ranks[j].async_error != 0;
            sums.n_lagging += lags(r, c, most, &c->ranks[j], &op);
        }
    }
    return sums;
}

/* --- in words --------------------------------------------------------------------------------- */

/* "rank 3 (pid 4711)", or as the communicator knows it: "its rank 3 (pid 4711 on 10.0.0.7)" */
static void print_name(const struct ras_rank *rank, FILE *out)
{
    if (rank->job_rank >= 0)
        fprintf(out, "rank %d (pid %d)", rank->job_rank, (int)rank->pid);
    else if (rank->pid > 0)
        fprintf(out, "its rank %d (pid %d on %s)", rank->rank, (int)rank->pid, rank->host);
    else
        fprintf(out, "its rank %d", rank->rank);
}

/* In words also what may lag. */
static bool is_odd_rank(const struct ras_comm *c, const struct ras_rank *rank,
                        const uint64_t most[RAS_OPS])
{
    int op;
    return rank->is_missing || rank->async_error != 0 || rank->aborts ||
           (!c->moves && has_fewer(most, rank, &op));
}

static void print_rank(const struct ras_report *r, const struct ras_comm *c,
                       const struct ras_rank *rank, const uint64_t most[RAS_OPS], FILE *out)
{
    const char *before = " ";
    int op;
    fputs("    ", out);
    print_name(rank, out);
    if (rank->is_missing)
        fprintf(out, " does not answer%s", rank->is_dead ? ": NCCL considers it dead" : "");
    if (!c->moves && has_fewer(most, rank, &op)) {
        fprintf(out, " %s: it has started %" PRIu64 " %s, others %" PRIu64,
                r->apart_ms > 0 ? "lags" : "may lag", rank->counts[op], op_names[op], most[op]);
        before = ", and ";
    }
    if (rank->async_error != 0) {
        fprintf(out, "%shas reported NCCL error %d", before, rank->async_error);
        before = ", and ";
    }
    if (rank->aborts)
        fprintf(out, "%saborts the communicator", before);
    fputc('\n', out);
}

static size_t count_odd(const struct ras_comm *c)
{
    uint64_t most[RAS_OPS];
    size_t n = 0;
    find_most(c, most);
    for (size_t i = 0; i < c->n; i++)
        n += is_odd_rank(c, &c->ranks[i], most);
    return n;
}

static void print_comm(const struct ras_report *r, const struct ras_comm *c, FILE *out)
{
    uint64_t most[RAS_OPS];
    size_t n_named = 0;
    find_most(c, most);
    fprintf(out, "  communicator %s of %" PRIu32 " ranks:\n", c->hash, c->size);
    for (size_t i = 0; i < c->n && n_named < NAMED_RANKS; i++)
        if (is_odd_rank(c, &c->ranks[i], most)) {
            print_rank(r, c, &c->ranks[i], most, out);
            n_named++;
        }
    const size_t n_odd = count_odd(c);
    if (n_odd > n_named)
        fprintf(out, "    and %zu more\n", n_odd - n_named);
}

void ras_report_print(const struct ras_report *r, FILE *out)
{
    size_t n_odd = 0;
    for (size_t i = 0; i < r->n; i++)
        n_odd += count_odd(&r->comms[i]) > 0;
    fprintf(out, "NCCL %s: %zu communicator%s", r->version, r->n, r->n == 1 ? "" : "s");
    if (n_odd == 0) {
        fprintf(out, "; no rank lags: %s\n",
                r->n == 0               ? "all have started the same collectives, none"
                : ras_report_differs(r) ? "they start collectives"
                                        : "all have started the same collectives, and may wait "
                                          "inside of one or outside of NCCL");
        return;
    }
    fputs("\n", out);
    size_t n_named = 0;
    for (size_t i = 0; i < r->n && n_named < NAMED_COMMS; i++)
        if (count_odd(&r->comms[i]) > 0) {
            print_comm(r, &r->comms[i], out);
            n_named++;
        }
    if (n_odd > n_named)
        fprintf(out, "  and %zu more communicators with such ranks\n", n_odd - n_named);
}

/* --- for programs ----------------------------------------------------------------------------- */

static json_t *make_rank(const struct ras_rank *rank)
{
    return json_pack("{s:i,s:o,s:s,s:o}", "rank", rank->rank, "job_rank",
                     rank->job_rank >= 0 ? json_integer(rank->job_rank) : json_null(), "host",
                     rank->host, "pid", rank->pid > 0 ? json_integer(rank->pid) : json_null());
}

static void add_rank(json_t *list, json_t *rank)
{
    if (json_array_size(list) < 4 * NAMED_RANKS)
        json_array_append_new(list, rank);
    else
        json_decref(rank);
}

static json_t *make_comm(const struct ras_report *r, const struct ras_comm *c)
{
    json_t *lagging = json_array(), *missing = json_array(), *errors = json_array();
    uint64_t most[RAS_OPS];
    int op;
    find_most(c, most);
    for (size_t i = 0; i < c->n; i++) {
        const struct ras_rank *rank = &c->ranks[i];
        json_t *json = make_rank(rank);
        if (rank->is_missing) {
            json_object_set_new(json, "dead", json_boolean(rank->is_dead));
            add_rank(missing, json);
        } else if (rank->async_error != 0) {
            json_object_set_new(json, "async_error", json_integer(rank->async_error));
            add_rank(errors, json);
        } else if (lags(r, c, most, rank, &op)) {
            json_object_set_new(json, "op", json_string(op_names[op]));
            json_object_set_new(json, "count", json_integer((json_int_t)rank->counts[op]));
            json_object_set_new(json, "most", json_integer((json_int_t)most[op]));
            add_rank(lagging, json);
        } else {
            json_decref(json);
        }
    }
    return json_pack("{s:s,s:I,s:I,s:o,s:o,s:o}", "hash", c->hash, "size", (json_int_t)c->size,
                     "ranks", (json_int_t)c->n, "lagging", lagging, "missing", missing, "errors",
                     errors);
}

/* Those with odd ranks first: the rest may be cut. */
json_t *ras_report_json_make(const struct ras_report *r)
{
    json_t *comms = json_array();
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < r->n && json_array_size(comms) < 4 * NAMED_COMMS; i++)
            if ((count_odd(&r->comms[i]) == 0) == (pass == 1))
                json_array_append_new(comms, make_comm(r, &r->comms[i]));
    return json_pack("{s:s,s:o,s:I,s:o}", "nccl", r->version, "apart_ms",
                     r->apart_ms > 0 ? json_integer((json_int_t)r->apart_ms) : json_null(), "count",
                     (json_int_t)r->n, "communicators", comms);
}
