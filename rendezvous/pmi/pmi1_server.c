/* pmi1_server.c - answers the ranks of a node, and exchanges what they put with other nodes.
 *
 * Read pmi1_server_feed() and run_line() first: each line is one command, looked up in `commands`,
 * and its function appends the answer to the rank's output. A barrier has no answer until
 * pmi1_server_release(). */
#include "pmi1_server.h"

#include "common/buf.h"
#include "common/error.h"
#include "rendezvous/store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct client {
    struct pmi1_rank rank;
    struct co_buf in, out; /* owned */
    bool in_spawn;         /* between mcmd=spawn and endcmd */
    bool wants_mapping;    /* waits for an answer to that */
};

struct pmi1_server {
    struct pmi1_place place;
    struct store *kvs;  /* owned */
    struct co_buf puts; /* owned; for other nodes */
    bool knows_nodes;
    int n_in_barrier;
    struct client clients[];
};

static struct wire_bytes text_bytes(const char *text)
{
    return (struct wire_bytes){(const uint8_t *)text, strlen(text)};
}

/* --- answers ---------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static int answer_line(struct client *c, const char *format,
                                                             ...)
{
    char line[PMI1_LINE_BYTES];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (co_buf_len(&c->out) + (size_t)n > PMI1_MAX_OUT_BYTES)
        return -ENOSPC;
    return co_buf_append(&c->out, line, (size_t)n); /* all that is printed here fits */
}

static int answer_key(const struct pmi1_server *s, struct client *c, struct wire_bytes key)
{
    struct wire_bytes value;
    if (!store_get(s->kvs, key, &value))
        return answer_line(c, "cmd=get_result rc=-1 msg=key_%.*s_not_found value=unknown\n",
                           (int)key.len, (const char *)key.at);
    return answer_line(c, "cmd=get_result rc=0 msg=success value=%.*s\n", (int)value.len,
                       (const char *)value.at);
}

/* --- what ranks ask --------------------------------------------------------------------------- */

struct question {
    struct pmi1_server *s;
    struct client *c;
    const struct pmi1_line *line;
    struct co_error *err;
};

static int do_init(const struct question *q)
{
    int version;
    int rc = pmi1_find_int(q->line, "pmi_version", 0, INT_MAX, &version, q->err);
    if (rc < 0)
        return rc;
    if (version == 1)
        q->c->rank.state = PMI1_INSIDE;
    return answer_line(q->c, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=%d\n",
                       version == 1 ? 0 : -1);
}

static int do_get_maxes(const struct question *q)
{
    return answer_line(q->c, "cmd=maxes kvsname_max=%d keylen_max=%d vallen_max=%d rc=0\n",
                       PMI1_KVSNAME_BYTES, PMI1_KEY_BYTES, PMI1_VALUE_BYTES);
}

static int do_get_appnum(const struct question *q)
{
    const int *appnum = q->s->place.appnum;
    return answer_line(q->c, "cmd=appnum appnum=%d rc=0\n",
                       appnum != NULL ? appnum[q->c - q->s->clients] : 0);
}

static int do_get_my_kvsname(const struct question *q)
{
    return answer_line(q->c, "cmd=my_kvsname kvsname=%s rc=0\n", q->s->place.name);
}

static int do_get_universe_size(const struct question *q)
{
    return answer_line(q->c, "cmd=universe_size size=%d rc=0\n", q->s->place.world_size);
}

static int refuse_put(struct client *c, const char *why)
{
    return answer_line(c, "cmd=put_result rc=-1 msg=%s\n", why);
}

/* ret    for the line of a put to other nodes, of n bytes; NULL: the job has no other nodes */
static int find_room(struct pmi1_server *s, size_t n, uint8_t **ret)
{
    *ret = NULL;
    if (s->place.n_nodes == 1)
        return 0;
    if (co_buf_len(&s->puts) + n > PMI1_MAX_PUTS_BYTES)
        return -ENOSPC;
    *ret = co_buf_room(&s->puts, n);
    return *ret != NULL ? 0 : -ENOMEM;
}

/* Here and for the others, or nowhere. */
static int keep(struct pmi1_server *s, struct wire_bytes key, struct wire_bytes value)
{
    const size_t n = key.len + 1 + value.len + 1;
    uint8_t *room;
    int rc = find_room(s, n, &room);
    if (rc == 0)
        rc = store_set(s->kvs, key, value, NULL);
    if (rc < 0 || room == NULL)
        return rc;
    memcpy(room, key.at, key.len);
    room[key.len] = '=';
    memcpy(room + key.len + 1, value.at, value.len);
    room[n - 1] = '\n';
    co_buf_added(&s->puts, n);
    return 0;
}

/* Visible to the ranks of this node at once, to others after the next barrier: no rank may count on
 * either before that. */
static int do_put(const struct question *q)
{
    struct wire_bytes key, value;
    if (!pmi1_find(q->line, "key", &key) || !pmi1_find(q->line, "value", &value))
        return co_fail(q->err, -EPROTO, "PMI: a put without key or value");
    if (!pmi1_says(q->line, "kvsname", q->s->place.name))
        return refuse_put(q->c, "no_such_kvsname");
    if (key.len == 0 || key.len >= PMI1_KEY_BYTES || value.len >= PMI1_VALUE_BYTES ||
        memchr(key.at, '=', key.len) != NULL)
        return refuse_put(q->c, "bad_key_or_value");
    int rc = keep(q->s, key, value);
    if (rc == -ENOSPC)
        return refuse_put(q->c, "too_many_keys");
    return rc < 0 ? rc : answer_line(q->c, "cmd=put_result rc=0 msg=success\n");
}

static int do_get(const struct question *q)
{
    struct wire_bytes key;
    if (!pmi1_find(q->line, "key", &key))
        return co_fail(q->err, -EPROTO, "PMI: a get without key");
    if (!pmi1_says(q->line, "kvsname", q->s->place.name))
        return answer_line(q->c, "cmd=get_result rc=-1 msg=no_such_kvsname value=unknown\n");
    if (key.len >= PMI1_KEY_BYTES)
        return answer_line(q->c, "cmd=get_result rc=-1 msg=key_too_long value=unknown\n");
    if (!q->s->knows_nodes && pmi1_says(q->line, "key", PMI1_MAPPING_KEY)) {
        q->c->wants_mapping = true;
        return 0;
    }
    return answer_key(q->s, q->c, key);
}

static int do_barrier_in(const struct question *q)
{
    if (q->c->rank.in_barrier)
        return co_fail(q->err, -EPROTO, "PMI: a rank entered the barrier twice");
    q->c->rank.in_barrier = true;
    q->s->n_in_barrier++;
    return 0;
}

static int do_finalize(const struct question *q)
{
    q->c->rank.state = PMI1_FINALIZED;
    return answer_line(q->c, "cmd=finalize_ack rc=0\n");
}

/* Not answered: a rank that sends this exits. */
static int do_abort(const struct question *q)
{
    int rc = pmi1_find_int(q->line, "exitcode", INT_MIN, INT_MAX, &q->c->rank.exit_code, q->err);
    if (rc == 0)
        q->c->rank.aborted = true;
    return rc;
}

#define NOT_HERE "not_supported_by_ddprun"

static int do_publish(const struct question *q)
{
    return answer_line(q->c, "cmd=publish_result rc=-1 msg=" NOT_HERE "\n");
}

static int do_unpublish(const struct question *q)
{
    return answer_line(q->c, "cmd=unpublish_result rc=-1 msg=" NOT_HERE "\n");
}

static int do_lookup(const struct question *q)
{
    return answer_line(q->c, "cmd=lookup_result rc=-1 msg=" NOT_HERE "\n");
}

static const struct command {
    const char *name;
    int (*run)(const struct question *q);
} commands[] = {
    {"init", do_init},
    {"get_maxes", do_get_maxes},
    {"get_appnum", do_get_appnum},
    {"get_my_kvsname", do_get_my_kvsname},
    {"get_universe_size", do_get_universe_size},
    {"put", do_put},
    {"get", do_get},
    {"barrier_in", do_barrier_in},
    {"finalize", do_finalize},
    {"abort", do_abort},
    {"publish_name", do_publish},
    {"unpublish_name", do_unpublish},
    {"lookup_name", do_lookup},
};

/* A request to spawn is many lines; what they ask for does not matter. */
static int skip_spawn(struct client *c, const struct pmi1_line *line)
{
    struct wire_bytes end;
    if (!pmi1_find(line, "endcmd", &end))
        return 0;
    c->in_spawn = false;
    c->rank.asked_to_spawn = true;
    return answer_line(c, "cmd=spawn_result rc=-1 msg=" NOT_HERE "\n");
}

static int run_line(struct pmi1_server *s, struct client *c, const uint8_t *bytes, size_t len,
                    struct co_error *err)
{
    struct pmi1_line line;
    int rc = pmi1_parse(bytes, len, &line, err);
    if (rc < 0)
        return rc;
    if (c->in_spawn)
        return skip_spawn(c, &line);
    if (pmi1_says(&line, "mcmd", "spawn")) {
        c->in_spawn = true;
        return 0;
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (pmi1_says(&line, "cmd", commands[i].name))
            return commands[i].run(&(struct question){s, c, &line, err});
    return co_fail(err, -EPROTO, "PMI: unknown command '%.*s'", (int)(len < 60 ? len : 60),
                   (const char *)bytes);
}

int pmi1_server_feed(struct pmi1_server *s, int local_rank, const uint8_t *bytes, size_t len,
                     struct co_error *err)
{
    struct client *c = &s->clients[local_rank];
    size_t n_line;
    int rc = co_buf_append(&c->in, bytes, len);
    while (rc == 0) {
        const size_t n_here = co_buf_len(&c->in);
        rc = pmi1_next_line(co_buf_bytes(&c->in), n_here, &n_line, err);
        if (rc < 0)
            break;
        rc = run_line(s, c, co_buf_bytes(&c->in), n_line, err);
        co_buf_consume(&c->in, n_line + 1);
    }
    if (rc == -EAGAIN)
        return 0;
    if (rc == -ENOSPC)
        return co_fail(err, rc, "PMI: the rank does not read the answers");
    return rc == -ENOMEM ? co_fail(err, rc, "out of memory") : rc;
}

struct co_buf *pmi1_server_out(struct pmi1_server *s, int local_rank)
{
    return &s->clients[local_rank].out;
}

/* --- nodes ------------------------------------------------------------------------------------ */

int pmi1_print_mapping(const uint32_t *n_ranks, int n_nodes, char *text, size_t n)
{
    size_t at = (size_t)snprintf(text, n, "(vector");
    for (int first = 0; first < n_nodes && at < n;) {
        int end = first + 1;
        while (end < n_nodes && n_ranks[end] == n_ranks[first])
            end++;
        at += (size_t)snprintf(text + at, n - at, ",(%d,%d,%" PRIu32 ")", first, end - first,
                               n_ranks[first]);
        first = end;
    }
    if (at < n)
        at += (size_t)snprintf(text + at, n - at, ")");
    return at < n ? 0 : -ENOSPC;
}

static int answer_mapping(struct pmi1_server *s)
{
    int rc = 0;
    s->knows_nodes = true;
    for (int i = 0; rc == 0 && i < s->place.n_local; i++)
        if (s->clients[i].wants_mapping) {
            s->clients[i].wants_mapping = false;
            rc = answer_key(s, &s->clients[i], text_bytes(PMI1_MAPPING_KEY));
        }
    return rc;
}

/* One that does not fit is as none: MPICH then asks each rank for its host's name. */
int pmi1_server_set_nodes(struct pmi1_server *s, const uint32_t *n_ranks, int n_nodes,
                          struct co_error *err)
{
    char text[PMI1_VALUE_BYTES];
    uint64_t world_size = 0;
    for (int i = 0; i < n_nodes; i++)
        world_size += n_ranks[i];
    if (world_size != (uint64_t)s->place.world_size)
        return co_fail(err, -EINVAL,
                       "PMI: the nodes have %" PRIu64 " ranks in total, but the job has %d",
                       world_size, s->place.world_size);
    int rc = 0;
    if (pmi1_print_mapping(n_ranks, n_nodes, text, sizeof text) == 0)
        rc = store_set(s->kvs, text_bytes(PMI1_MAPPING_KEY), text_bytes(text), err);
    return rc < 0 ? rc : answer_mapping(s);
}

/* --- barriers --------------------------------------------------------------------------------- */

bool pmi1_server_is_gathered(const struct pmi1_server *s)
{
    return s->n_in_barrier == s->place.n_local;
}

int pmi1_server_take_puts(struct pmi1_server *s, struct co_buf *out)
{
    const size_t n = co_buf_len(&s->puts);
    if (n == 0)
        return 0;
    int rc = co_buf_append(out, co_buf_bytes(&s->puts), n);
    if (rc == 0)
        co_buf_consume(&s->puts, n);
    return rc;
}

int pmi1_server_learn(struct pmi1_server *s, const uint8_t *bytes, size_t len, struct co_error *err)
{
    struct pmi1_line line;
    size_t n_line;
    while (len > 0) {
        if (pmi1_next_line(bytes, len, &n_line, err) < 0)
            return co_fail(err, -EPROTO, "PMI: the keys of another node are truncated");
        int rc = pmi1_parse(bytes, n_line, &line, err);
        if (rc < 0)
            return rc;
        if (line.n != 1 || line.words[0].name.len >= PMI1_KEY_BYTES ||
            line.words[0].value.len >= PMI1_VALUE_BYTES)
            return co_fail(err, -EPROTO, "PMI: invalid key or value from another node");
        rc = store_set(s->kvs, line.words[0].name, line.words[0].value, err);
        if (rc < 0)
            return rc;
        bytes += n_line + 1;
        len -= n_line + 1;
    }
    return 0;
}

int pmi1_server_release(struct pmi1_server *s)
{
    int rc = 0;
    for (int i = 0; i < s->place.n_local; i++) {
        struct client *c = &s->clients[i];
        if (!c->rank.in_barrier)
            continue;
        c->rank.in_barrier = false;
        s->n_in_barrier--;
        const int answered = answer_line(c, "cmd=barrier_out rc=0\n");
        rc = rc == 0 ? answered : rc;
    }
    return rc;
}

/* --- the whole -------------------------------------------------------------------------------- */

const struct pmi1_rank *pmi1_server_get_rank(const struct pmi1_server *s, int local_rank)
{
    return &s->clients[local_rank].rank;
}

int pmi1_server_create(const struct pmi1_place *place, struct pmi1_server **ret,
                       struct co_error *err)
{
    const struct store_limits limits = {
        .max_bytes = place->max_kvs_bytes != 0 ? place->max_kvs_bytes : PMI1_MAX_KVS_BYTES,
        .max_names = PMI1_MAX_KEYS};
    const uint32_t n_local = (uint32_t)place->n_local;
    struct pmi1_server *s = calloc(1, sizeof *s + (size_t)place->n_local * sizeof s->clients[0]);
    if (s == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    s->place = *place;
    int rc = store_create(&limits, place->seed, NULL, NULL, &s->kvs, err); /* no waiters */
    if (rc == 0 && place->n_nodes == 1)
        rc = pmi1_server_set_nodes(s, &n_local, 1, err);
    if (rc < 0) {
        pmi1_server_destroy(s);
        return rc;
    }
    *ret = s;
    return 0;
}

void pmi1_server_destroy(struct pmi1_server *s)
{
    if (s == NULL)
        return;
    for (int i = 0; i < s->place.n_local; i++) {
        co_buf_fini(&s->clients[i].in);
        co_buf_fini(&s->clients[i].out);
    }
    store_destroy(s->kvs);
    co_buf_fini(&s->puts);
    free(s);
}
