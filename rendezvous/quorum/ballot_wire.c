/* ballot_wire.c - one function for each part of a ballot, for both directions.
 *
 * Read pass_ballot() first. struct pass knows the direction: each pass_...() function either
 * appends its field or reads it, and checks its bounds. So the layout is written down once. The
 * first error stays in p->rc, and all later fields do nothing. */
#include "ballot_wire.h"

#include "common/buf.h"
#include "common/error.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct pass {
    bool writes;
    int rc;
    struct co_error *err;
    struct co_buf *out; /* writing */
    const uint8_t *at;  /* reading */
    size_t left;
};

static void pass_fail(struct pass *p, const char *what)
{
    if (p->rc == 0)
        p->rc = co_fail(p->err, p->writes ? -EINVAL : -EPROTO, "invalid ballot: %s", what);
}

/* --- plain fields --- */

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

static uint64_t pass_number(struct pass *p, uint64_t value, size_t n_bytes, uint64_t min,
                            uint64_t max, const char *what)
{
    uint8_t bytes[8] = {0};
    for (size_t i = 0; i < n_bytes; i++)
        bytes[i] = (uint8_t)(value >> 8 * i);
    pass_bytes(p, bytes, n_bytes);
    if (p->rc != 0)
        return min;
    value = 0;
    for (size_t i = 0; i < n_bytes; i++)
        value |= (uint64_t)bytes[i] << 8 * i;
    if (value < min || value > max)
        pass_fail(p, what);
    return p->rc == 0 ? value : min;
}

static void pass_u64(struct pass *p, uint64_t *value, uint64_t min, const char *what)
{
    *value = pass_number(p, *value, 8, min, UINT64_MAX, what);
}

static void pass_u32(struct pass *p, uint32_t *value, uint64_t min, uint64_t max, const char *what)
{
    *value = (uint32_t)pass_number(p, *value, 4, min, max, what);
}

static void pass_u16(struct pass *p, uint16_t *value, uint64_t min, const char *what)
{
    *value = (uint16_t)pass_number(p, *value, 2, min, UINT16_MAX, what);
}

static void pass_u8(struct pass *p, uint8_t *value, uint64_t max, const char *what)
{
    *value = (uint8_t)pass_number(p, *value, 1, 0, max, what);
}

static void pass_flag(struct pass *p, bool *value)
{
    *value = pass_number(p, *value, 1, 0, 1, "a flag") == 1;
}

/* A text in its place, with a NUL after it. */
static void pass_text(struct pass *p, char *text, size_t bytes, bool may_have_blanks,
                      const char *what)
{
    const uint64_t n = pass_number(p, p->writes ? strnlen(text, bytes) : 0, 2, 1, bytes - 1, what);
    if (p->rc != 0)
        return;
    pass_bytes(p, text, n);
    if (p->rc != 0)
        return;
    for (uint64_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c == 0x7f || c < ' ' || (!may_have_blanks && (c == ' ' || c > '~')))
            pass_fail(p, what);
    }
    text[n] = '\0';
}

/* --- records --- */

static void pass_term(struct pass *p, struct quorum_term *t)
{
    pass_u64(p, &t->number, 0, "a term");
    pass_u64(p, &t->owner, 0, "the owner of a term");
}

static void pass_list(struct pass *p, struct quorum_list *l)
{
    pass_u32(p, &l->n, 1, QUORUM_MAX_VOTERS, "the number of voters");
    for (uint32_t i = 0; i < l->n && p->rc == 0; i++) {
        const uint64_t id = l->ids[i];
        l->ids[i] = 0;
        const uint64_t passed = pass_number(p, id, 8, 1, UINT64_MAX, "the id of a voter");
        if (quorum_list_has(l, passed) && i > 0)
            pass_fail(p, "a voter is listed twice");
        l->ids[i] = passed;
    }
}

static void pass_address(struct pass *p, struct elector_address *a)
{
    pass_text(p, a->host, sizeof a->host, false, "a host");
    pass_u16(p, &a->port, 1, "a port");
}

static void pass_excluded(struct pass *p, struct elector_record *r)
{
    pass_u8(p, &r->n_excluded, ELECTOR_EXCLUDED_MAX, "the number of excluded nodes");
    for (uint8_t i = 0; i < r->n_excluded && p->rc == 0; i++) {
        struct elector_excluded *x = &r->excluded[i];
        pass_text(p, x->name, sizeof x->name, false, "the name of an excluded node");
        pass_u8(p, &x->exit_code, UINT8_MAX, "an exit status");
    }
}

static void pass_before(struct pass *p, struct elector_before *b, uint32_t generation)
{
    bool is_known = b->generation != ELECTOR_NO_GENERATION;
    pass_flag(p, &is_known);
    if (p->rc != 0 || !is_known) {
        if (!p->writes)
            b->generation = ELECTOR_NO_GENERATION;
        return;
    }
    if (generation == 0)
        pass_fail(p, "the generation before the first one");
    pass_u32(p, &b->generation, 0, generation > 0 ? generation - 1 : 0, "the generation before");
    pass_u32(p, &b->n_nodes, 1, UINT32_MAX, "the nodes of the generation before");
    pass_u8(p, &b->n_missing, ELECTOR_MISSING_MAX, "the number of missing nodes");
    for (uint8_t i = 0; i < b->n_missing && p->rc == 0; i++)
        pass_u32(p, &b->missing[i], 0, (uint64_t)b->n_nodes - 1, "a missing node");
}

static void pass_host(struct pass *p, struct elector_host *h, uint32_t n_nodes)
{
    bool is_known = h->at.port != 0;
    pass_flag(p, &is_known);
    if (p->rc != 0 || !is_known)
        return;
    pass_u32(p, &h->node, 0, (uint64_t)n_nodes - 1, "the coordinator's node");
    pass_address(p, &h->at);
}

static void pass_decided(struct pass *p, struct elector_record *r)
{
    uint32_t gone = (uint32_t)(r->gone + 1);
    pass_u32(p, &r->generation, 0, UINT32_MAX - 1, "the generation");
    pass_u32(p, &r->n_nodes, 1, UINT32_MAX, "the number of nodes");
    pass_u32(p, &r->world_size, r->n_nodes, INT32_MAX, "the number of ranks");
    pass_u32(p, &r->n_restarts, 0, UINT32_MAX, "the number of restarts");
    pass_u32(p, &gone, 0, INT32_MAX, "the node that has left");
    r->gone = (int32_t)gone - 1;
    pass_flag(p, &r->is_over);
    pass_u8(p, &r->exit_code, UINT8_MAX, "the exit status");
    pass_excluded(p, r);
    pass_before(p, &r->before, r->generation);
    pass_host(p, &r->host, r->n_nodes);
}

static void pass_record(struct pass *p, struct quorum_record *r)
{
    pass_term(p, &r->term);
    pass_u64(p, &r->index, 0, "the index of a write");
    pass_flag(p, &r->settled);
    pass_list(p, &r->voters);
    pass_list(p, &r->before);
    pass_u64(p, &r->value, 0, "a value");
}

static void pass_voters(struct pass *p, struct ballot_entry *e)
{
    pass_u32(p, &e->n, 0, QUORUM_MAX_ASKED, "the number of addresses");
    for (uint32_t i = 0; i < e->n && p->rc == 0; i++) {
        struct ballot_voter *v = &e->voters[i];
        pass_u64(p, &v->id, 1, "the id of a voter");
        pass_address(p, &v->at);
        if (p->rc == 0 && !quorum_list_has(&e->record.voters, v->id) &&
            !quorum_list_has(&e->record.before, v->id))
            pass_fail(p, "the address of a process that does not vote");
    }
}

static void pass_entry(struct pass *p, struct ballot_entry *e)
{
    pass_record(p, &e->record);
    if (p->rc == 0 && e->record.value != 0)
        pass_decided(p, &e->decided);
    pass_voters(p, e);
}

/* --- ballots --- */

static void pass_answer(struct pass *p, struct ballot *b)
{
    uint8_t asked = (uint8_t)b->asked;
    pass_u8(p, &asked, BALLOT_VOTE - 1, "the question of an answer");
    b->asked = (enum ballot_type)asked;
    pass_flag(p, &b->yes);
    pass_flag(p, &b->is_bound);
    pass_term(p, &b->promised);
    b->left_ms = pass_number(p, b->left_ms, 8, 0, BALLOT_WIRE_MAX_MS, "the rest of a promise");
}

static bool may_have_entry(const struct ballot *b)
{
    return b->type == BALLOT_WRITE || b->type == BALLOT_VOTE;
}

static void pass_ballot(struct pass *p, struct ballot *b, char run_id[BALLOT_WIRE_RUN_ID_BYTES])
{
    uint8_t version = BALLOT_WIRE_VERSION, type = (uint8_t)b->type;
    pass_u8(p, &version, UINT8_MAX, "the version");
    if (version != BALLOT_WIRE_VERSION)
        pass_fail(p, "another version");
    pass_u8(p, &type, BALLOT_N_TYPES - 1, "the type");
    b->type = (enum ballot_type)type;
    pass_text(p, run_id, BALLOT_WIRE_RUN_ID_BYTES, true, "the run id");
    pass_u64(p, &b->job, 0, "the job");
    pass_u64(p, &b->from, 0, "the sender");
    pass_term(p, &b->term);
    pass_u64(p, &b->index, 0, "the index");
    pass_flag(p, &b->settled);
    pass_u64(p, &b->asked_ms, 0, "a time");
    if (p->rc == 0 && b->type == BALLOT_OFFER) {
        pass_address(p, &b->at);
        pass_u32(p, &b->order, 0, UINT32_MAX, "the order");
        pass_flag(p, &b->alone);
    }
    if (p->rc == 0 && b->type == BALLOT_VOTE)
        pass_answer(p, b);
    pass_flag(p, &b->has_entry);
    if (p->rc == 0 && b->has_entry && !may_have_entry(b))
        pass_fail(p, "a record that does not belong there");
    if (p->rc == 0 && b->has_entry)
        pass_entry(p, &b->entry);
}

int ballot_wire_encode(const struct ballot *b, const char *run_id, struct co_buf *out,
                       struct co_error *err)
{
    struct ballot copy = *b;
    char name[BALLOT_WIRE_RUN_ID_BYTES];
    const size_t before = co_buf_len(out), n = strnlen(run_id, sizeof name);
    struct pass p = {.writes = true, .err = err, .out = out};
    if (n == sizeof name)
        pass_fail(&p, "the run id is too long");
    memcpy(name, run_id, n < sizeof name ? n + 1 : 0);
    pass_ballot(&p, &copy, name);
    if (p.rc == 0 && co_buf_len(out) - before > BALLOT_WIRE_MAX_BYTES)
        pass_fail(&p, "it is too long");
    if (p.rc != 0)
        out->end -= co_buf_len(out) - before;
    return p.rc;
}

int ballot_wire_decode(const uint8_t *bytes, size_t len, struct ballot *ret,
                       char run_id[BALLOT_WIRE_RUN_ID_BYTES], struct co_error *err)
{
    struct ballot b = {0};
    char name[BALLOT_WIRE_RUN_ID_BYTES];
    struct pass p = {.at = bytes, .left = len, .err = err};
    if (len > BALLOT_WIRE_MAX_BYTES)
        pass_fail(&p, "it is too long");
    pass_ballot(&p, &b, name);
    if (p.rc == 0 && p.left > 0)
        pass_fail(&p, "bytes are left over");
    if (p.rc != 0)
        return p.rc;
    *ret = b;
    memcpy(run_id, name, sizeof name);
    return 0;
}
