/* channel_wire.c - one function for each message, for both directions.
 *
 * Read channel_wire_decode() and pass_message() first. struct pass knows the direction: each
 * pass_...() function either appends its field to `out`, or reads it and checks its bounds. So the
 * layout of a message is written down once, and encoder and decoder cannot disagree. The first
 * error stays in p->rc, and all later fields do nothing. */
#include "channel_wire.h"

#include "rendezvous/store/wire.h"

#include "common/buf.h"
#include "common/error.h"
#include "common/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* One description of each message serves both ways: a pass either writes the fields it is shown or
 * fills them from bytes, and checks the same bounds. After a failure it does nothing any more. */
struct pass {
    bool writes;
    int rc;
    struct co_error *err;
    struct co_buf *out; /* writing */
    const uint8_t *at;  /* reading */
    size_t left;
    struct channel_wire_scratch *scratch;
    const char *message; /* its name, for errors */
};

__attribute__((format(printf, 2, 3))) static void pass_fail(struct pass *p, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (p->rc == 0)
        p->rc = co_fail(p->err, p->writes ? -EINVAL : -EPROTO, "%s: %s", p->message, text);
}

/* --- Plain fields --- */

/* Bytes as they are, either way. */
static void pass_bytes(struct pass *p, void *bytes, size_t n)
{
    if (p->rc != 0 || n == 0)
        return;
    if (p->writes) {
        if (co_buf_append(p->out, bytes, n) < 0)
            p->rc = co_fail(p->err, -ENOMEM, "out of memory");
    } else if (n > p->left) {
        pass_fail(p, "it is truncated");
    } else {
        memcpy(bytes, p->at, n);
        p->at += n;
        p->left -= n;
    }
}

static uint64_t pass_number(struct pass *p, uint64_t value, size_t n_bytes)
{
    uint8_t bytes[8];
    wire_put_u64(bytes, value);
    pass_bytes(p, bytes, n_bytes);
    if (p->writes || p->rc != 0)
        return value;
    memset(bytes + n_bytes, 0, sizeof bytes - n_bytes);
    return wire_get_u64(bytes);
}

static void check_range(struct pass *p, const char *what, uint64_t value, uint64_t min,
                        uint64_t max)
{
    if (p->rc == 0 && (value < min || value > max))
        pass_fail(p, "invalid value %" PRIu64 " for %s: expected %" PRIu64 " to %" PRIu64, value,
                  what, min, max);
}

static void pass_u8(struct pass *p, const char *what, uint8_t *value, uint8_t min, uint8_t max)
{
    *value = (uint8_t)pass_number(p, *value, 1);
    check_range(p, what, *value, min, max);
}

static void pass_u16(struct pass *p, const char *what, uint16_t *value, uint16_t min, uint16_t max)
{
    *value = (uint16_t)pass_number(p, *value, 2);
    check_range(p, what, *value, min, max);
}

static void pass_u32(struct pass *p, const char *what, uint32_t *value, uint32_t min, uint32_t max)
{
    *value = (uint32_t)pass_number(p, *value, 4);
    check_range(p, what, *value, min, max);
}

static void pass_u64(struct pass *p, const char *what, uint64_t *value, uint64_t min, uint64_t max)
{
    *value = pass_number(p, *value, 8);
    check_range(p, what, *value, min, max);
}

/* -1 for none, or a number. */
static void pass_rank(struct pass *p, const char *what, int32_t *value)
{
    *value = (int32_t)(uint32_t)pass_number(p, (uint32_t)*value, 4);
    if (p->rc == 0 && *value < MESSAGE_NO_RANK)
        pass_fail(p, "%s is %" PRId32, what, *value);
}

static void pass_flag(struct pass *p, const char *what, bool *value)
{
    uint8_t byte = *value;
    pass_u8(p, what, &byte, 0, 1);
    *value = byte == 1;
}

/* returns the value of an enum with n of them */
static int pass_choice(struct pass *p, const char *what, int value, int n)
{
    uint8_t byte = (uint8_t)value;
    pass_u8(p, what, &byte, 0, (uint8_t)(n - 1));
    return byte;
}

/* --- Texts --- */

/* ASCII without blanks. */
static bool is_printable(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (text[i] <= ' ' || text[i] >= 0x7f)
            return false;
    return true;
}

/* As co_utf8_clean() leaves it: UTF-8 without control characters. Blanks are allowed. */
static bool is_clean(const char *text, size_t len)
{
    for (size_t done = 0, n; done < len; done += n) {
        n = co_utf8_length(text + done, len - done);
        if (n == 0 || co_utf8_is_control(text + done, n))
            return false;
    }
    return true;
}

static void write_text(struct pass *p, const char *text, size_t len)
{
    pass_number(p, len, 2);
    pass_bytes(p, (void *)(uintptr_t)text, len); /* only read, when writing */
    pass_number(p, 0, 1);
}

/* Lend the text where it lies. returns it, or "" */
static const char *read_text(struct pass *p, const char *what, size_t max_bytes, size_t *ret_len)
{
    size_t len = pass_number(p, 0, 2);
    const char *text = (const char *)p->at;
    *ret_len = 0;
    if (p->rc != 0)
        return "";
    if (len >= max_bytes) {
        pass_fail(p, "%s has %zu bytes: expected at most %zu", what, len, max_bytes - 1);
    } else if (len + 1 > p->left) {
        pass_fail(p, "it is truncated");
    } else if (strnlen(text, len + 1) != len) {
        pass_fail(p, "%s is not terminated", what);
    } else {
        p->at += len + 1;
        p->left -= len + 1;
        *ret_len = len;
        return text;
    }
    return "";
}

/* A text that is what it is, or an error. */
static void pass_exact(struct pass *p, const char *what, const char **text, size_t max_bytes,
                       size_t min_len, bool (*is_allowed)(const char *text, size_t len))
{
    size_t len = 0;
    if (p->rc != 0)
        return;
    if (!p->writes)
        *text = read_text(p, what, max_bytes, &len);
    else
        len = strnlen(*text, max_bytes);
    if (p->rc == 0 && (len < min_len || len >= max_bytes))
        pass_fail(p, "%s has %zu bytes: expected %zu to %zu", what, len, min_len, max_bytes - 1);
    if (p->rc == 0 && !is_allowed(*text, len))
        pass_fail(p, "%s contains invalid characters", what);
    if (p->writes && p->rc == 0)
        write_text(p, *text, len);
}

static void pass_name(struct pass *p, const char *what, const char **text, size_t max_bytes,
                      bool may_be_empty)
{
    pass_exact(p, what, text, max_bytes, may_be_empty ? 0 : 1, is_printable);
}

/* Text of another program is cut and cleaned here, so that it can be sent at all. */
static void write_clean(struct pass *p, const char *text)
{
    char clean[MESSAGE_TEXT_BYTES];
    size_t len = strnlen(text, sizeof clean - 1);
    memcpy(clean, text, len);
    co_utf8_clean(clean, len);
    write_text(p, clean, len);
}

static void pass_text(struct pass *p, const char *what, const char **text)
{
    size_t len;
    if (p->rc != 0)
        return;
    if (p->writes) {
        write_clean(p, *text);
        return;
    }
    *text = read_text(p, what, MESSAGE_TEXT_BYTES, &len);
    if (p->rc == 0 && !is_clean(*text, len))
        pass_fail(p, "%s contains control characters or bytes that are not UTF-8", what);
}

/* --- Addresses --- */

static void pass_address(struct pass *p, struct message_address *a)
{
    pass_u8(p, "an address's family", &a->family, 4, 6);
    pass_bytes(p, a->bytes, sizeof a->bytes);
    if (p->rc != 0)
        return;
    bool is_well = a->family == 6;
    if (a->family == 4) {
        static const uint8_t none[12];
        is_well = memcmp(a->bytes + 4, none, sizeof none) == 0;
    }
    if (!is_well)
        pass_fail(p, "invalid address family: expected IPv4 or IPv6");
}

static void pass_addresses(struct pass *p, const struct message_address **addresses, size_t *n,
                           uint32_t max)
{
    uint32_t count = (uint32_t)*n;
    pass_u32(p, "the number of addresses", &count, 0, max);
    for (uint32_t i = 0; i < count && p->rc == 0; i++) {
        struct message_address a = {0};
        if (p->writes)
            a = (*addresses)[i];
        pass_address(p, &a);
        if (!p->writes)
            p->scratch->addresses[i] = a;
    }
    if (!p->writes) {
        *addresses = p->scratch->addresses;
        *n = count;
    }
}

/* --- Messages --- */

static void pass_terms(struct pass *p, struct message_terms *t)
{
    pass_u32(p, "the minimum of nodes", &t->min_nodes, 1, MESSAGE_MAX_NODES);
    pass_u32(p, "the maximum of nodes", &t->max_nodes, t->min_nodes, MESSAGE_MAX_NODES);
    pass_u64(p, "the join window", &t->window_ms, 0, MESSAGE_MAX_MS);
    pass_u64(p, "the start timeout", &t->start_timeout_ms, 1, MESSAGE_MAX_MS);
    pass_u64(p, "the rejoin timeout", &t->rejoin_timeout_ms, 0, MESSAGE_MAX_MS);
    pass_u32(p, "the number of restarts", &t->max_restarts, 0, MESSAGE_MAX_RESTARTS);
    pass_u64(p, "the restart window", &t->restart_window_ms, 0, MESSAGE_MAX_MS);
    pass_bytes(p, t->no_restart_on, sizeof t->no_restart_on);
    t->admit_at = (enum message_admit_at)pass_choice(p, "admit-at", (int)t->admit_at, 2);
    pass_u64(p, "the admission timeout", &t->admit_timeout_ms, 0, MESSAGE_MAX_MS);
    pass_u32(p, "the number of failures of a node", &t->exclude_after, 0, MESSAGE_MAX_STRIKES);
    pass_u64(p, "the window of failures of a node", &t->exclude_window_ms, 0, MESSAGE_MAX_MS);
}

/* Which process serves the store, and how ranks reach it. */
static void pass_store(struct pass *p, bool *by_agent, bool *relayed)
{
    enum { BY_RANK_0, BY_AGENT, BY_AGENT_RELAYED, N_STORES };
    const int is = !*by_agent ? BY_RANK_0 : *relayed ? BY_AGENT_RELAYED : BY_AGENT;
    const int store = pass_choice(p, "the store", is, N_STORES);
    *by_agent = store != BY_RANK_0;
    *relayed = store == BY_AGENT_RELAYED;
}

static void pass_place(struct pass *p, struct message_place *s)
{
    pass_u32(p, "the number of nodes", &s->n_nodes, 1, MESSAGE_MAX_NODES);
    pass_u32(p, "the node's index", &s->node_index, 0, s->n_nodes - 1);
    pass_u32(p, "the world size", &s->world_size, s->n_nodes, INT32_MAX);
    pass_u32(p, "the first rank", &s->first_rank, 0, s->world_size - 1);
    const uint32_t n_left = s->world_size - s->first_rank;
    pass_u32(p, "the number of ranks", &s->n_local, 1,
             n_left < MESSAGE_MAX_LOCAL ? n_left : MESSAGE_MAX_LOCAL);
    pass_u32(p, "the number of restarts", &s->n_restarts, 0, MESSAGE_MAX_RESTARTS);
    pass_u64(p, "the term", &s->term, 0, MESSAGE_MAX_TERM);
    pass_flag(p, "leads", &s->leads);
    pass_store(p, &s->agent_store, &s->relayed);
    pass_name(p, "the host", &s->host, MESSAGE_HOST_BYTES, s->leads);
    pass_u16(p, "the port", &s->port, s->leads ? 0 : 1, UINT16_MAX);
}

static void pass_was(struct pass *p, struct message_was *w)
{
    pass_flag(p, "took-part", &w->is_known);
    if (!w->is_known || p->rc != 0)
        return;
    pass_u32(p, "the generation the node was a member of", &w->generation, 0,
             MESSAGE_MAX_GENERATION);
    pass_place(p, &w->place);
}

static void pass_domain(struct pass *p, struct message_hello *h)
{
    const bool is_used = h->terms.segment > 0;
    if (p->writes && h->domain == NULL)
        h->domain = "";
    pass_name(p, "the domain", &h->domain, is_used ? MESSAGE_DOMAIN_BYTES : 1, !is_used);
}

static void pass_hello(struct pass *p, struct message_hello *h)
{
    pass_bytes(p, h->instance, sizeof h->instance);
    pass_exact(p, "the run id", &h->run_id, MESSAGE_RUN_ID_BYTES, 1, is_clean);
    pass_name(p, "the name", &h->name, MESSAGE_NAME_BYTES, false);
    pass_rank(p, "the node rank", &h->node_rank);
    pass_u32(p, "the number of ranks", &h->n_local, 1, MESSAGE_MAX_LOCAL);
    pass_u32(p, "the generation", &h->resumes, 0, MESSAGE_NO_GENERATION);
    pass_flag(p, "keeps-rank-0", &h->keeps_rank_0);
    pass_u64(p, "the time to stop", &h->stop_ms, 0, MESSAGE_MAX_MS);
    pass_u64(p, "the time", &h->sent_ms, 0, UINT64_MAX);
    pass_addresses(p, &h->addresses, &h->n_addresses, MESSAGE_MAX_ADDRESSES);
    pass_terms(p, &h->terms);
    pass_flag(p, "returns", &h->returns);
    pass_was(p, &h->was);
    pass_flag(p, "reports", &h->reports);
    pass_u32(p, "the number of generations without progress", &h->terms.no_progress, 0,
             MESSAGE_MAX_RESTARTS);
    pass_flag(p, "checks", &h->checks);
    pass_u64(p, "the time of a check", &h->check_ms, 0, h->checks ? MESSAGE_MAX_MS : 0);
    pass_u32(p, "the number of spares", &h->terms.spares, 0, MESSAGE_MAX_NODES);
    pass_u32(p, "the size of a segment", &h->terms.segment, 0, h->terms.max_nodes);
    pass_domain(p, h);
}

static void pass_ready(struct pass *p, struct message_ready *r)
{
    pass_name(p, "the host", &r->host, MESSAGE_HOST_BYTES, false);
    pass_u16(p, "the port", &r->port, 1, UINT16_MAX);
    pass_store(p, &r->agent_store, &r->relayed);
}

static void pass_failed(struct pass *p, struct message_failed *f)
{
    pass_u32(p, "the rank", &f->rank, 0, INT32_MAX);
    pass_u8(p, "the exit status", &f->exit_code, 1, UINT8_MAX);
    pass_flag(p, "final", &f->final);
    pass_text(p, "the text", &f->text);
    pass_flag(p, "progressed", &f->progressed);
    pass_flag(p, "a consequence", &f->consequence);
    pass_flag(p, "recovers", &f->recovers);
}

static void pass_stopped(struct pass *p, struct message_stopped *s)
{
    pass_u32(p, "the number of ranks", &s->n_local, 1, MESSAGE_MAX_LOCAL);
    pass_u64(p, "the number of steps", &s->steps, 0, MESSAGE_MAX_STEPS);
}

static void pass_verdict(struct pass *p, struct message_verdict *v)
{
    v->outcome =
        (enum message_outcome)pass_choice(p, "the outcome", (int)v->outcome, MESSAGE_N_OUTCOMES);
    pass_u8(p, "the exit status", &v->exit_code, 0, UINT8_MAX);
    pass_rank(p, "the rank", &v->rank);
    pass_name(p, "the node", &v->node, MESSAGE_NAME_BYTES, true);
    pass_text(p, "the text", &v->text);
    pass_u32(p, "the number of restarts", &v->n_restarts, 0, UINT32_MAX);
}

static void pass_welcome(struct pass *p, struct message_welcome *w)
{
    pass_u64(p, "the time", &w->sent_ms, 0, UINT64_MAX);
    pass_u64(p, "the keep-alive interval", &w->keep_alive_ms, 1, MESSAGE_MAX_MS);
    pass_u64(p, "the lease", &w->lease_ms, 1, MESSAGE_MAX_MS);
    pass_flag(p, "resumed", &w->resumed);
    pass_text(p, "the note", &w->note);
    pass_flag(p, "replaced", &w->replaced);
    pass_flag(p, "elects", &w->elects);
    pass_u64(p, "the time of day", &w->clock_ms, 0, MESSAGE_MAX_CLOCK_MS);
}

static void pass_refused(struct pass *p, struct message_refused *r)
{
    r->why = (enum message_refusal)pass_choice(p, "the reason", (int)r->why,
                                               MESSAGE_REFUSED_NOT_FIRST + 1);
    pass_flag(p, "again", &r->again);
    pass_text(p, "the text", &r->text);
}

static void pass_members(struct pass *p, struct message_members *m)
{
    pass_u32(p, "the number of all addresses", &m->n_all, 0,
             MESSAGE_MAX_NODES * MESSAGE_MAX_ADDRESSES);
    pass_u32(p, "the first address's index", &m->first, 0, m->n_all);
    pass_addresses(p, &m->addresses, &m->n, MESSAGE_MAX_MEMBERS);
    if (p->rc == 0 && m->n > m->n_all - m->first)
        pass_fail(p, "there are more addresses than announced");
}

static void pass_stop(struct pass *p, struct message_stop *s)
{
    s->why = (enum message_why)pass_choice(p, "the reason", (int)s->why, MESSAGE_WHY_RESTART + 1);
    pass_text(p, "the text", &s->text);
}

static void pass_progress(struct pass *p, struct message_progress *g)
{
    g->wait = (enum message_wait)pass_choice(p, "the wait", (int)g->wait, MESSAGE_N_WAITS);
    pass_u32(p, "the number of nodes that have joined", &g->n_here, 0, MESSAGE_MAX_NODES);
    pass_u32(p, "the number of nodes required", &g->n_wanted, 0, MESSAGE_MAX_NODES);
    pass_u64(p, "the time waited", &g->elapsed_ms, 0, UINT64_MAX);
    pass_u64(p, "the time left", &g->left_ms, 0, UINT64_MAX);
    pass_u32(p, "the number of all names", &g->n_all_names, 0, MESSAGE_MAX_NODES);
    pass_u32(p, "the number of names", &g->n_names, 0, MESSAGE_MAX_NAMES);
    for (uint32_t i = 0; i < g->n_names && p->rc == 0; i++)
        pass_name(p, "a name", &g->names[i], MESSAGE_NAME_BYTES, false);
}

static void pass_lease(struct pass *p, struct message_lease *l)
{
    bool waits = l->progress != NULL;
    struct message_progress g = {0};
    pass_u64(p, "the time", &l->sent_ms, 0, UINT64_MAX);
    pass_flag(p, "waits", &waits);
    if (!waits || p->rc != 0)
        return;
    if (p->writes)
        g = *l->progress;
    pass_progress(p, &g);
    if (!p->writes) {
        p->scratch->progress = g;
        l->progress = &p->scratch->progress;
    }
}

static void pass_result_rank(struct pass *p, struct message_result_rank *r)
{
    uint32_t pid = (uint32_t)r->pid;
    pass_u32(p, "a rank", &r->rank, 0, INT32_MAX);
    pass_u16(p, "a local rank", &r->local_rank, 0, MESSAGE_MAX_LOCAL - 1);
    pass_u32(p, "a process id", &pid, 0, INT32_MAX);
    r->pid = (int32_t)pid;
    pass_flag(p, "has-ended", &r->has_ended);
    pass_u16(p, "a wait status", &r->status, 0, UINT16_MAX);
    pass_u8(p, "a signal", &r->stopped_by, 0, 64);
    pass_flag(p, "lost-peer", &r->lost_peer);
    pass_flag(p, "was-failing", &r->was_failing);
    pass_u64(p, "a duration", &r->duration_ms, 0, MESSAGE_MAX_MS);
}

static void pass_result_ranks(struct pass *p, struct message_result *r)
{
    uint32_t n = (uint32_t)r->n_ranks;
    pass_u32(p, "the number of ranks", &n, 0, MESSAGE_MAX_LOCAL);
    for (uint32_t i = 0; i < n && p->rc == 0; i++) {
        struct message_result_rank rank = {0};
        if (p->writes)
            rank = r->ranks[i];
        pass_result_rank(p, &rank);
        if (!p->writes)
            p->scratch->ranks[i] = rank;
    }
    if (!p->writes) {
        r->ranks = p->scratch->ranks;
        r->n_ranks = n;
    }
}

static void pass_result(struct pass *p, struct message_result *r)
{
    r->kind =
        (enum message_result_kind)pass_choice(p, "the kind", (int)r->kind, MESSAGE_RESULT_ALL + 1);
    if (p->rc == 0 && r->kind == MESSAGE_RESULT_ASKED) {
        pass_flag(p, "writes", &r->writes);
        pass_flag(p, "stays", &r->stays);
    }
    if (p->rc != 0 || r->kind != MESSAGE_RESULT_RANKS)
        return;
    pass_u32(p, "the node's index", &r->node_index, 0, MESSAGE_MAX_NODES - 1);
    pass_exact(p, "the host", &r->host, MESSAGE_HOST_BYTES, 0, is_clean);
    pass_exact(p, "the cause", &r->cause, MESSAGE_CAUSE_BYTES, 0, is_clean);
    pass_result_ranks(p, r);
}

static void pass_figures_rank(struct pass *p, struct message_figures_rank *r)
{
    uint32_t pid = (uint32_t)r->pid;
    pass_u32(p, "a rank", &r->rank, 0, INT32_MAX);
    pass_u32(p, "a process id", &pid, 0, INT32_MAX);
    r->pid = (int32_t)pid;
    r->phase = (enum message_phase)pass_choice(p, "a phase", (int)r->phase, MESSAGE_N_PHASES);
    pass_u16(p, "a wait status", &r->status, 0, UINT16_MAX);
    pass_u32(p, "a number of restarts", &r->restarts, 0, UINT32_MAX);
    pass_u64(p, "an age", &r->age_ms, 0, MESSAGE_MAX_MS);
    pass_flag(p, "has-steps", &r->has_steps);
    pass_u64(p, "a number of steps", &r->steps, 0, MESSAGE_MAX_STEPS);
    pass_u64(p, "a duration", &r->own_ns, 0, UINT64_MAX);
    pass_u64(p, "a silence", &r->silent_ms, 0, MESSAGE_MAX_MS);
}

static void pass_figures(struct pass *p, struct message_figures *f)
{
    f->kind = (enum message_figures_kind)pass_choice(p, "the kind", (int)f->kind,
                                                     MESSAGE_FIGURES_RANKS + 1);
    if (p->rc != 0 || f->kind != MESSAGE_FIGURES_RANKS)
        return;
    uint32_t n = (uint32_t)f->n_ranks;
    pass_u32(p, "the node's index", &f->node_index, 0, MESSAGE_MAX_NODES - 1);
    pass_exact(p, "the host", &f->host, MESSAGE_HOST_BYTES, 0, is_clean);
    pass_u32(p, "the number of ranks", &n, 0, MESSAGE_MAX_LOCAL);
    for (uint32_t i = 0; i < n && p->rc == 0; i++) {
        struct message_figures_rank rank = {0};
        if (p->writes)
            rank = f->ranks[i];
        pass_figures_rank(p, &rank);
        if (!p->writes)
            p->scratch->figures[i] = rank;
    }
    if (!p->writes) {
        f->ranks = p->scratch->figures;
        f->n_ranks = n;
    }
}

static void pass_health(struct pass *p, struct message_health *h)
{
    h->fitness =
        (enum message_fitness)pass_choice(p, "the health", (int)h->fitness, MESSAGE_N_FITNESSES);
    pass_name(p, "the node", &h->node, MESSAGE_NAME_BYTES, true);
    pass_exact(p, "the reason", &h->text, MESSAGE_HEALTH_BYTES, h->fitness == MESSAGE_UNFIT ? 1 : 0,
               is_clean);
}

static void pass_heartbeat(struct pass *p, struct message_heartbeat *h)
{
    pass_bytes(p, h->instance, sizeof h->instance);
    pass_exact(p, "the run id", &h->run_id, MESSAGE_RUN_ID_BYTES, 1, is_clean);
    pass_u64(p, "the limit", &h->limit_ms, 1, MESSAGE_MAX_MS);
}

static const char *const names[] = {
#define X(name, meaning) #name,
    MESSAGE_TYPES(X)
#undef X
};

static void pass_body(struct pass *p, struct message *m)
{
    switch (m->type) {
    case MESSAGE_HELLO:
        pass_hello(p, &m->hello);
        break;
    case MESSAGE_KEEP_ALIVE:
        pass_u64(p, "the time", &m->keep_alive.sent_ms, 0, UINT64_MAX);
        break;
    case MESSAGE_READY:
        pass_ready(p, &m->ready);
        break;
    case MESSAGE_FAILED:
        pass_failed(p, &m->failed);
        break;
    case MESSAGE_STOPPED:
        pass_stopped(p, &m->stopped);
        break;
    case MESSAGE_LEAVE:
        pass_text(p, "the text", &m->leave.text);
        break;
    case MESSAGE_END:
    case MESSAGE_VERDICT:
        pass_verdict(p, &m->verdict);
        break;
    case MESSAGE_WELCOME:
        pass_welcome(p, &m->welcome);
        break;
    case MESSAGE_REFUSED:
        pass_refused(p, &m->refused);
        break;
    case MESSAGE_SEALED:
        pass_place(p, &m->sealed);
        break;
    case MESSAGE_MEMBERS:
        pass_members(p, &m->members);
        break;
    case MESSAGE_STOP:
        pass_stop(p, &m->stop);
        break;
    case MESSAGE_LEASE:
        pass_lease(p, &m->lease);
        break;
    case MESSAGE_RESULT:
        pass_result(p, &m->result);
        break;
    case MESSAGE_FIGURES:
        pass_figures(p, &m->figures);
        break;
    case MESSAGE_HEALTH:
        pass_health(p, &m->health);
        break;
    case MESSAGE_HEARTBEAT:
        pass_heartbeat(p, &m->heartbeat);
        break;
    default: /* the type and the generation are the whole message */
        break;
    }
}

static void pass_message(struct pass *p, struct message *m)
{
    uint8_t type = (uint8_t)m->type;
    pass_u8(p, "the type", &type, 0, MESSAGE_N_TYPES - 1);
    if (p->rc != 0)
        return;
    m->type = (enum message_type)type;
    p->message = names[type];
    pass_u32(p, "the generation", &m->generation, 0, MESSAGE_NO_GENERATION);
    pass_body(p, m);
}

int channel_wire_encode(const struct message *m, struct co_buf *out, struct co_error *err)
{
    struct message copy = *m;
    size_t before = co_buf_len(out);
    struct pass p = {.writes = true, .err = err, .out = out, .message = "invalid message"};
    pass_message(&p, &copy);
    if (p.rc == 0 && co_buf_len(out) - before > CHANNEL_WIRE_MAX_BYTES)
        pass_fail(&p, "it is longer than %d bytes", CHANNEL_WIRE_MAX_BYTES);
    if (p.rc != 0)
        out->end -= co_buf_len(out) - before;
    return p.rc;
}

int channel_wire_decode(const uint8_t *bytes, size_t len, struct channel_wire_scratch *scratch,
                        struct message *ret, struct co_error *err)
{
    struct message m = {0};
    struct pass p = {
        .at = bytes, .left = len, .err = err, .scratch = scratch, .message = "invalid message"};
    if (len > CHANNEL_WIRE_MAX_BYTES)
        pass_fail(&p, "it has %zu bytes: expected at most %d", len, CHANNEL_WIRE_MAX_BYTES);
    pass_message(&p, &m);
    if (p.rc == 0 && p.left > 0)
        pass_fail(&p, "%zu bytes are left over", p.left);
    if (p.rc == 0)
        *ret = m;
    return p.rc;
}
