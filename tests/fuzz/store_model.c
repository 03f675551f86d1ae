#include "store_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_QUEUED = 1024 };

/* In the order in which they came: that is the order in which pushes wake. */
struct link {
    int client, name;
    bool at_barrier;
};

struct queued {
    int name;
    struct co_buf bytes;
};

struct model {
    const struct wire_bytes *names;
    uint64_t max_reply_bytes;
    struct {
        bool is_there;
        struct co_buf value;
    } keys[MODEL_NAMES];
    struct queued queued[MAX_QUEUED]; /* of all queues, oldest first */
    int n_queued;
    struct link links[MODEL_CLIENTS * MODEL_ITEMS];
    int n_links;
    int n_missing[MODEL_CLIENTS];
    struct co_buf replies[MODEL_CLIENTS];
};

static void require(bool holds)
{
    if (!holds)
        abort();
}

/* --- replies --- */

static void reply(struct model *m, int client, const void *bytes, size_t len)
{
    require(co_buf_append(&m->replies[client], bytes, len) == 0);
}

static void reply_u8(struct model *m, int client, uint8_t value)
{
    reply(m, client, &value, 1);
}

static void reply_i64(struct model *m, int client, int64_t value)
{
    uint8_t bytes[8];
    wire_put_u64(bytes, (uint64_t)value);
    reply(m, client, bytes, sizeof bytes);
}

static void reply_string(struct model *m, int client, struct wire_bytes value)
{
    reply_i64(m, client, (int64_t)value.len);
    reply(m, client, value.at, value.len);
}

/* --- keys and queues --- */

static struct wire_bytes value_of(const struct model *m, int name)
{
    const struct co_buf *value = &m->keys[name].value; /* empty without a value */
    return (struct wire_bytes){co_buf_bytes(value), co_buf_len(value)};
}

static bool same(struct wire_bytes a, struct wire_bytes b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.at, b.at, a.len) == 0);
}

bool model_has_key(const struct model *m, int name)
{
    return m->keys[name].is_there;
}

int64_t model_n_keys(const struct model *m)
{
    int64_t n = 0;
    for (int i = 0; i < MODEL_NAMES; i++)
        n += m->keys[i].is_there;
    return n;
}

static int queue_len(const struct model *m, int name)
{
    int n = 0;
    for (int i = 0; i < m->n_queued; i++)
        n += m->queued[i].name == name;
    return n;
}

static struct queued *queue_front(struct model *m, int name)
{
    for (int i = 0; i < m->n_queued; i++)
        if (m->queued[i].name == name)
            return &m->queued[i];
    return NULL;
}

static void queue_drop(struct model *m, struct queued *q)
{
    struct queued *end = &m->queued[m->n_queued--];
    co_buf_fini(&q->bytes);
    memmove(q, q + 1, (size_t)(end - (q + 1)) * sizeof *q);
}

static bool is_there(const struct model *m, int name)
{
    return m->keys[name].is_there || queue_len(m, name) > 0;
}

/* --- waiting --- */

static void drop_link(struct model *m, int i)
{
    m->n_links--;
    memmove(&m->links[i], &m->links[i + 1], (size_t)(m->n_links - i) * sizeof m->links[0]);
}

static void end_wait(struct model *m, int client)
{
    for (int i = m->n_links - 1; i >= 0; i--)
        if (m->links[i].client == client)
            drop_link(m, i);
    m->n_missing[client] = 0;
}

static void wait_on(struct model *m, int client, int name, bool at_barrier)
{
    m->links[m->n_links++] = (struct link){client, name, at_barrier};
    m->n_missing[client]++;
}

/* What a name that came into being means to those who wait for it.
 *
 * n_woken   stop after so many have nothing left to wait for */
static void wake(struct model *m, int name, bool at_barrier, int n_woken)
{
    for (int i = 0; i < m->n_links && n_woken > 0;) {
        struct link l = m->links[i];
        if (l.name != name || l.at_barrier != at_barrier) {
            i++;
            continue;
        }
        drop_link(m, i);
        if (--m->n_missing[l.client] == 0) {
            reply_u8(m, l.client, WIRE_STOP_WAITING);
            n_woken--;
        }
    }
}

static void append(struct model *m, int name, struct wire_bytes tail)
{
    bool was_there = m->keys[name].is_there;
    m->keys[name].is_there = true;
    require(co_buf_append(&m->keys[name].value, tail.at, tail.len) == 0);
    if (!was_there)
        wake(m, name, false, MODEL_CLIENTS);
}

static void set(struct model *m, int name, struct wire_bytes value)
{
    co_buf_fini(&m->keys[name].value);
    append(m, name, value);
}

/* --- requests --- */

static bool run_compare_set(struct model *m, int client, const struct model_request *r)
{
    int name = r->names[0];
    struct wire_bytes expected = r->values[0];
    bool is_key = m->keys[name].is_there;
    bool fits = is_key ? same(value_of(m, name), expected) : expected.len == 0;
    struct wire_bytes answer = r->values[1];
    if (!fits)
        answer = is_key ? value_of(m, name) : expected;
    if (8 + answer.len > m->max_reply_bytes)
        return false;
    if (fits)
        set(m, name, r->values[1]);
    reply_string(m, client, answer); /* after the replies that the client may have waited for */
    return true;
}

static bool run_get(struct model *m, int client, const struct model_request *r)
{
    size_t n_bytes = 0;
    for (int i = 0; i < r->n_names; i++)
        n_bytes += 8 + value_of(m, r->names[i]).len;
    if (n_bytes > m->max_reply_bytes)
        return false;
    for (int i = 0; i < r->n_names; i++)
        reply_string(m, client, value_of(m, r->names[i]));
    return true;
}

/* The C library reads the number, up to the first NUL. */
static bool count(struct model *m, int name, int64_t delta, int64_t *ret_sum)
{
    long long old = 0;
    if (m->keys[name].is_there) {
        struct wire_bytes value = value_of(m, name);
        char *text = calloc(1, value.len + 1), *end;
        require(text != NULL);
        if (value.len > 0)
            memcpy(text, value.at, value.len);
        errno = 0;
        old = strtoll(text, &end, 10);
        bool is_number = end != text && errno == 0;
        free(text);
        if (!is_number)
            return false;
    }
    *ret_sum = (int64_t)((uint64_t)old + (uint64_t)delta);
    char sum[24];
    int len = snprintf(sum, sizeof sum, "%lld", (long long)*ret_sum);
    set(m, name, (struct wire_bytes){(const uint8_t *)sum, (size_t)len});
    return true;
}

static bool run_add(struct model *m, int client, const struct model_request *r)
{
    int64_t sum;
    if (!count(m, r->names[0], r->number, &sum))
        return false;
    reply_i64(m, client, sum);
    return true;
}

static bool run_barrier(struct model *m, int client, const struct model_request *r)
{
    int64_t n_here;
    end_wait(m, client);
    if (!count(m, r->names[0], 1, &n_here))
        return false;
    if (n_here < r->number) {
        wait_on(m, client, r->names[0], true);
        return true;
    }
    wake(m, r->names[0], true, MODEL_CLIENTS);
    reply_u8(m, client, WIRE_STOP_WAITING);
    return true;
}

static void run_check(struct model *m, int client, const struct model_request *r)
{
    bool all = true;
    for (int i = 0; i < r->n_names; i++)
        all = all && is_there(m, r->names[i]);
    reply_u8(m, client, all ? WIRE_READY : WIRE_NOT_READY);
}

static void run_wait(struct model *m, int client, const struct model_request *r)
{
    end_wait(m, client);
    for (int i = 0; i < r->n_names; i++)
        if (!is_there(m, r->names[i]))
            wait_on(m, client, r->names[i], false);
    if (m->n_missing[client] == 0)
        reply_u8(m, client, WIRE_STOP_WAITING);
}

static void run_delete(struct model *m, int client, const struct model_request *r)
{
    int name = r->names[0];
    reply_i64(m, client, m->keys[name].is_there);
    m->keys[name].is_there = false;
    co_buf_fini(&m->keys[name].value);
}

static void run_queue_push(struct model *m, const struct model_request *r)
{
    require(m->n_queued < MAX_QUEUED);
    struct queued *q = &m->queued[m->n_queued++];
    *q = (struct queued){.name = r->names[0]};
    require(co_buf_append(&q->bytes, r->values[0].at, r->values[0].len) == 0);
    wake(m, r->names[0], false, 1);
}

static bool run_queue_pop(struct model *m, int client, const struct model_request *r)
{
    struct queued *front = queue_front(m, r->names[0]);
    if (front != NULL && 16 + co_buf_len(&front->bytes) > m->max_reply_bytes)
        return false;
    reply_i64(m, client, queue_len(m, r->names[0]));
    if (front == NULL)
        return true;
    reply_string(m, client,
                 (struct wire_bytes){co_buf_bytes(&front->bytes), co_buf_len(&front->bytes)});
    queue_drop(m, front);
    return true;
}

static bool run_list_keys(struct model *m, int client)
{
    size_t n_bytes = 8;
    for (int i = 0; i < MODEL_NAMES; i++)
        n_bytes += m->keys[i].is_there ? 8 + m->names[i].len : 0;
    if (n_bytes > m->max_reply_bytes)
        return false;
    reply_i64(m, client, model_n_keys(m));
    for (int i = 0; i < MODEL_NAMES; i++)
        if (m->keys[i].is_there)
            reply_string(m, client, m->names[i]);
    return true;
}

static void run_ping(struct model *m, int client, const struct model_request *r)
{
    uint8_t nonce[4];
    wire_put_u32(nonce, (uint32_t)r->number);
    reply(m, client, nonce, sizeof nonce);
}

bool model_run(struct model *m, int client, enum model_client kind, const struct model_request *r)
{
    if (kind == MODEL_CANNOT_CANCEL)
        end_wait(m, client);
    switch (r->op) {
    case WIRE_COMPARE_SET:
        return run_compare_set(m, client, r);
    case WIRE_GET:
    case WIRE_MULTI_GET:
        return run_get(m, client, r);
    case WIRE_ADD:
        return run_add(m, client, r);
    case WIRE_QUEUE_POP:
        return run_queue_pop(m, client, r);
    case WIRE_LIST_KEYS:
        return run_list_keys(m, client);
    case WIRE_BARRIER:
        return run_barrier(m, client, r);
    case WIRE_SET:
    case WIRE_MULTI_SET:
        for (int i = 0; i < r->n_names; i++)
            set(m, r->names[i], r->values[i]);
        break;
    case WIRE_APPEND:
        append(m, r->names[0], r->values[0]);
        break;
    case WIRE_CHECK:
        run_check(m, client, r);
        break;
    case WIRE_WAIT:
        run_wait(m, client, r);
        break;
    case WIRE_GETNUMKEYS:
        reply_i64(m, client, model_n_keys(m));
        break;
    case WIRE_DELETE_KEY:
        run_delete(m, client, r);
        break;
    case WIRE_CANCEL_WAIT:
        end_wait(m, client);
        reply_u8(m, client, WIRE_WAIT_CANCELED);
        break;
    case WIRE_PING:
        run_ping(m, client, r);
        break;
    case WIRE_QUEUE_PUSH:
        run_queue_push(m, r);
        break;
    case WIRE_QUEUE_LEN:
        reply_i64(m, client, queue_len(m, r->names[0]));
        break;
    case WIRE_VALIDATE:
    case WIRE_N_OPS:
        break;
    }
    return true;
}

void model_leave(struct model *m, int client)
{
    end_wait(m, client);
    co_buf_fini(&m->replies[client]);
}

struct co_buf *model_replies(struct model *m, int client)
{
    return &m->replies[client];
}

struct model *model_create(const struct wire_bytes *names, uint64_t max_reply_bytes)
{
    struct model *m = calloc(1, sizeof *m);
    require(m != NULL);
    m->names = names;
    m->max_reply_bytes = max_reply_bytes;
    return m;
}

void model_destroy(struct model *m)
{
    for (int i = 0; i < MODEL_NAMES; i++)
        co_buf_fini(&m->keys[i].value);
    for (int i = 0; i < m->n_queued; i++)
        co_buf_fini(&m->queued[i].bytes);
    for (int i = 0; i < MODEL_CLIENTS; i++)
        co_buf_fini(&m->replies[i]);
    free(m);
}
