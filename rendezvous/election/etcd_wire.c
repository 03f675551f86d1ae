#include "etcd_wire.h"

#include "common/buf.h"
#include "common/error.h"
#include "common/parse.h"
#include "common/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <sodium.h>
#include <stdarg.h>
#include <string.h>

enum {
    VERSION = 1, /* of what is under our keys */
    NUMBER_BYTES = 24,
    HTTP_OK = 200,
    HTTP_UNAUTHORIZED = 401,
    CODE_NOT_FOUND = 5, /* of gRPC */
    CODE_UNAUTHENTICATED = 16,
};

/* A number of 64 bits as the gateway has it. */
struct number {
    char text[NUMBER_BYTES];
};

static struct number number_of(int64_t value)
{
    struct number n;
    snprintf(n.text, sizeof n.text, "%" PRId64, value);
    return n;
}

/* --- Keys and values --- */

static int make_key(char *to, const char *prefix, const char *run_id, const char *what)
{
    int n = snprintf(to, ETCD_WIRE_KEY_BYTES, "%s/%s/%s", prefix, run_id, what);
    return n < ETCD_WIRE_KEY_BYTES ? 0 : -ENAMETOOLONG;
}

int etcd_wire_keys(const char *prefix, const char *run_id, struct etcd_wire_keys *ret)
{
    int rc = make_key(ret->leader, prefix, run_id, "leader");
    return rc < 0 ? rc : make_key(ret->record, prefix, run_id, "record");
}

static json_t *base64_json(const char *plain, size_t n)
{
    char text[sodium_base64_ENCODED_LEN(ETCD_WIRE_VALUE_BYTES,
                                        sodium_base64_VARIANT_ORIGINAL)]; /* a key is shorter */
    return json_string(sodium_bin2base64(text, sizeof text, (const unsigned char *)plain, n,
                                         sodium_base64_VARIANT_ORIGINAL));
}

/* Decode what is under `name`. returns how many bytes there are; -1: not base64, or more than
 * max */
static ssize_t read_base64(const json_t *kv, const char *name, char *ret, size_t max)
{
    const json_t *text = json_object_get(kv, name);
    size_t n;
    if (!json_is_string(text) ||
        sodium_base642bin((unsigned char *)ret, max, json_string_value(text),
                          json_string_length(text), NULL, &n, NULL,
                          sodium_base64_VARIANT_ORIGINAL) != 0)
        return -1;
    return (ssize_t)n;
}

static json_t *key_json(const char *key)
{
    return base64_json(key, strlen(key));
}

/* Takes the reference; returns the value as base64, NULL without memory. */
static json_t *value_json(json_t *value)
{
    char plain[ETCD_WIRE_VALUE_BYTES];
    size_t n = value != NULL ? json_dumpb(value, plain, sizeof plain, JSON_COMPACT) : 0;
    json_decref(value);
    if (n == 0 || n > sizeof plain)
        return NULL;
    return base64_json(plain, n);
}

static json_t *address_json(const struct elector_address *a)
{
    return value_json(json_pack("{s:i,s:s,s:i}", "v", VERSION, "host", a->host, "port", a->port));
}

static json_t *excluded_json(const struct elector_record *r)
{
    json_t *list = json_array();
    for (uint8_t i = 0; list != NULL && i < r->n_excluded; i++)
        if (json_array_append_new(list, json_pack("{s:s,s:i}", "name", r->excluded[i].name,
                                                  "exit_code", r->excluded[i].exit_code)) < 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *missing_json(const struct elector_before *b)
{
    json_t *list = json_array();
    for (uint8_t i = 0; list != NULL && i < b->n_missing; i++)
        if (json_array_append_new(list, json_integer(b->missing[i])) < 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *before_json(const struct elector_before *b)
{
    if (b->generation == ELECTOR_NO_GENERATION)
        return json_null();
    return json_pack("{s:I,s:I,s:o}", "generation", (json_int_t)b->generation, "nodes",
                     (json_int_t)b->n_nodes, "missing", missing_json(b));
}

static json_t *host_json(const struct elector_host *h)
{
    if (h->at.port == 0)
        return json_null();
    return json_pack("{s:I,s:s,s:i}", "node", (json_int_t)h->node, "host", h->at.host, "port",
                     h->at.port);
}

static json_t *record_json(const struct elector_record *r)
{
    return value_json(json_pack(
        "{s:i,s:I,s:I,s:I,s:I,s:I,s:b,s:i,s:o,s:o,s:o}", "v", VERSION, "generation",
        (json_int_t)r->generation, "nodes", (json_int_t)r->n_nodes, "ranks",
        (json_int_t)r->world_size, "restarts", (json_int_t)r->n_restarts, "gone",
        (json_int_t)r->gone, "over", r->is_over, "exit_code", r->exit_code, "excluded",
        excluded_json(r), "before", before_json(&r->before), "host", host_json(&r->host)));
}

/* --- Requests; a NULL for want of memory also makes json_pack() fail --- */

static json_t *op_get(const char *key)
{
    return json_pack("{s:{s:o}}", "request_range", "key", key_json(key));
}

static json_t *op_put(const char *key, json_t *value, int64_t lease)
{
    return json_pack("{s:{s:o,s:o,s:s}}", "request_put", "key", key_json(key), "value", value,
                     "lease", number_of(lease).text);
}

static json_t *drop(const char *key)
{
    return json_pack("{s:{s:o}}", "request_delete_range", "key", key_json(key));
}

/* create_revision   0: no leader's key exists */
static json_t *if_leader_is(const struct etcd_wire_keys *keys, int64_t create_revision)
{
    return json_pack("{s:o,s:s,s:s,s:s}", "key", key_json(keys->leader), "target", "CREATE",
                     "result", "EQUAL", "create_revision", number_of(create_revision).text);
}

static json_t *read_json(const struct etcd_wire_keys *keys)
{
    return json_pack("{s:[oo]}", "success", op_get(keys->leader), op_get(keys->record));
}

static json_t *claim_json(const struct etcd_wire_keys *keys, const struct elector_request *ask)
{
    return json_pack("{s:[o],s:[ooo],s:[oo]}", "compare", if_leader_is(keys, 0), "success",
                     op_put(keys->leader, address_json(&ask->address), ask->lease),
                     op_get(keys->leader), op_get(keys->record), "failure", op_get(keys->leader),
                     op_get(keys->record));
}

static json_t *write_json(const struct etcd_wire_keys *keys, const struct elector_request *ask)
{
    return json_pack("{s:[o],s:[o]}", "compare", if_leader_is(keys, ask->create_revision),
                     "success", op_put(keys->record, record_json(&ask->record), ask->lease));
}

static json_t *give_up_json(const struct etcd_wire_keys *keys, const struct elector_request *ask)
{
    json_t *record = ask->has_record ? op_put(keys->record, record_json(&ask->record), ask->lease)
                                     : drop(keys->record);
    return json_pack("{s:[o],s:[oo]}", "compare", if_leader_is(keys, ask->create_revision),
                     "success", record, drop(keys->leader));
}

static json_t *body_of(const struct etcd_wire_keys *keys, const struct elector_request *ask)
{
    switch (ask->type) {
    case ELECTOR_READ:
        return read_json(keys);
    case ELECTOR_GRANT:
        return json_pack("{s:s}", "TTL", number_of(ask->ttl_s).text);
    case ELECTOR_CLAIM:
        return claim_json(keys, ask);
    case ELECTOR_KEEP:
        return json_pack("{s:s}", "ID", number_of(ask->lease).text);
    case ELECTOR_WRITE:
        return write_json(keys, ask);
    default:
        return give_up_json(keys, ask);
    }
}

/* Takes the reference. returns 0, -ENOMEM */
static int append_json(struct co_buf *body, json_t *json)
{
    size_t n = json != NULL ? json_dumpb(json, NULL, 0, JSON_COMPACT) : 0;
    char *room = n > 0 ? (char *)co_buf_room(body, n) : NULL;
    if (room != NULL) {
        json_dumpb(json, room, n, JSON_COMPACT);
        co_buf_added(body, n);
    }
    json_decref(json);
    return room != NULL ? 0 : -ENOMEM;
}

const char *etcd_wire_encode(const struct etcd_wire_keys *keys, const struct elector_request *ask,
                             struct co_buf *body)
{
    if (append_json(body, body_of(keys, ask)) < 0)
        return NULL;
    return ask->type == ELECTOR_GRANT  ? "/v3/lease/grant"
           : ask->type == ELECTOR_KEEP ? "/v3/lease/keepalive"
                                       : "/v3/kv/txn";
}

const char *etcd_wire_encode_login(const char *user, const char *password, struct co_buf *body)
{
    json_t *text = json_string(password);
    json_t *json = json_pack("{s:s,s:O}", "name", user, "password", text);
    int rc = append_json(body, json);
    if (text != NULL)
        explicit_bzero((char *)json_string_value(text), json_string_length(text));
    json_decref(text);
    return rc < 0 ? NULL : "/v3/auth/authenticate";
}

/* --- Answers --- */

__attribute__((format(printf, 2, 3))) static void fail(struct elector_answer *ret,
                                                       const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(ret->text, sizeof ret->text, format, args);
    va_end(args);
    co_utf8_clean(ret->text, strlen(ret->text)); /* it may go to a terminal */
    ret->failed = true;
}

/* An absent one is 0, as the gateway has it. returns 0; -EPROTO: it is none, or negative */
static int read_number(const json_t *object, const char *name, int64_t *ret)
{
    const json_t *value = json_object_get(object, name);
    int64_t number = 0;
    if (json_is_integer(value))
        number = json_integer_value(value);
    else if (value != NULL &&
             (!json_is_string(value) ||
              co_parse_int(name, json_string_value(value), 0, INT64_MAX, &number, NULL) < 0))
        return -EPROTO;
    if (number < 0)
        return -EPROTO;
    *ret = number;
    return 0;
}

static int read_range(const json_t *object, const char *name, int64_t min, int64_t max,
                      int64_t *ret)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_integer(value) || json_integer_value(value) < min ||
        json_integer_value(value) > max)
        return -EPROTO;
    *ret = json_integer_value(value);
    return 0;
}

/* The JSON that is under one of our keys. NULL: it is none */
static json_t *read_value(const json_t *kv)
{
    char plain[ETCD_WIRE_VALUE_BYTES];
    ssize_t n = read_base64(kv, "value", plain, sizeof plain);
    int64_t version;
    if (n < 0)
        return NULL;
    json_t *value = json_loadb(plain, (size_t)n, JSON_REJECT_DUPLICATES, NULL);
    if (value != NULL && read_range(value, "v", VERSION, VERSION, &version) == 0)
        return value;
    json_decref(value);
    return NULL;
}

/* bytes   how many it may have, with the NUL */
static bool is_name(const char *text, size_t bytes)
{
    size_t len = text != NULL ? strnlen(text, bytes) : 0;
    for (size_t i = 0; i < len; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return false;
    return len > 0 && len < bytes;
}

static int read_address(const json_t *value, struct elector_address *ret)
{
    const char *host = json_string_value(json_object_get(value, "host"));
    int64_t port;
    if (!is_name(host, ELECTOR_HOST_BYTES) || read_range(value, "port", 1, UINT16_MAX, &port) < 0)
        return -EPROTO;
    snprintf(ret->host, sizeof ret->host, "%s", host);
    ret->port = (uint16_t)port;
    return 0;
}

/* An older ddprun has written no list. */
static int read_excluded(const json_t *list, struct elector_record *ret)
{
    size_t i;
    const json_t *item;
    if (list != NULL && (!json_is_array(list) || json_array_size(list) > ELECTOR_EXCLUDED_MAX))
        return -EPROTO;
    json_array_foreach(list, i, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        int64_t code;
        if (!is_name(name, ELECTOR_NAME_BYTES) ||
            read_range(item, "exit_code", 0, UINT8_MAX, &code) < 0)
            return -EPROTO;
        struct elector_excluded *x = &ret->excluded[ret->n_excluded++];
        snprintf(x->name, sizeof x->name, "%s", name);
        x->exit_code = (uint8_t)code;
    }
    return 0;
}

/* An older ddprun has written nothing of it. */
static int read_before(const json_t *value, uint32_t generation, struct elector_before *ret)
{
    const json_t *list = json_object_get(value, "missing"), *item;
    int64_t before, nodes;
    size_t i;
    *ret = (struct elector_before){.generation = ELECTOR_NO_GENERATION};
    if (value == NULL || json_is_null(value))
        return 0;
    if (read_range(value, "generation", 0, (int64_t)generation - 1, &before) < 0 ||
        read_range(value, "nodes", 1, UINT32_MAX, &nodes) < 0 || !json_is_array(list) ||
        json_array_size(list) > ELECTOR_MISSING_MAX)
        return -EPROTO;
    json_array_foreach(list, i, item)
    {
        const json_int_t index = json_is_integer(item) ? json_integer_value(item) : -1;
        if (index < 0 || index >= nodes)
            return -EPROTO;
        ret->missing[ret->n_missing++] = (uint32_t)index;
    }
    ret->generation = (uint32_t)before;
    ret->n_nodes = (uint32_t)nodes;
    return 0;
}

/* The same. */
static int read_host(const json_t *value, uint32_t n_nodes, struct elector_host *ret)
{
    int64_t node;
    if (value == NULL || json_is_null(value))
        return 0;
    if (read_range(value, "node", 0, (int64_t)n_nodes - 1, &node) < 0)
        return -EPROTO;
    ret->node = (uint32_t)node;
    return read_address(value, &ret->at);
}

static int read_record(const json_t *value, struct elector_record *ret)
{
    int64_t generation, nodes, ranks, restarts, gone, code;
    if (read_range(value, "generation", 0, UINT32_MAX - 1, &generation) < 0 ||
        read_range(value, "nodes", 1, UINT32_MAX, &nodes) < 0 ||
        read_range(value, "ranks", nodes, INT32_MAX, &ranks) < 0 ||
        read_range(value, "restarts", 0, UINT32_MAX, &restarts) < 0 ||
        read_range(value, "gone", -1, INT32_MAX, &gone) < 0 ||
        read_range(value, "exit_code", 0, UINT8_MAX, &code) < 0 ||
        !json_is_boolean(json_object_get(value, "over")))
        return -EPROTO;
    *ret = (struct elector_record){.generation = (uint32_t)generation,
                                   .n_nodes = (uint32_t)nodes,
                                   .world_size = (uint32_t)ranks,
                                   .n_restarts = (uint32_t)restarts,
                                   .gone = (int32_t)gone,
                                   .is_over = json_is_true(json_object_get(value, "over")),
                                   .exit_code = (uint8_t)code};
    int rc = read_excluded(json_object_get(value, "excluded"), ret);
    if (rc == 0)
        rc = read_before(json_object_get(value, "before"), ret->generation, &ret->before);
    return rc == 0 ? read_host(json_object_get(value, "host"), ret->n_nodes, &ret->host) : rc;
}

static int take_leader(const json_t *kv, const json_t *value, struct elector_answer *ret)
{
    ret->has_leader = true;
    return read_number(kv, "create_revision", &ret->leader_create_revision) < 0 ||
                   read_number(kv, "lease", &ret->leader_lease) < 0 ||
                   read_address(value, &ret->leader) < 0
               ? -EPROTO
               : 0;
}

static int take_record(const json_t *kv, const json_t *value, struct elector_answer *ret)
{
    ret->has_record = true;
    return read_number(kv, "mod_revision", &ret->record_mod_revision) < 0 ||
                   read_number(kv, "lease", &ret->record_lease) < 0 ||
                   read_record(value, &ret->record) < 0
               ? -EPROTO
               : 0;
}

/* returns   0; -EPROTO: the key of another program, or of another version */
static int take_kv(const struct etcd_wire_keys *keys, const json_t *kv, struct elector_answer *ret)
{
    char key[ETCD_WIRE_KEY_BYTES];
    ssize_t n = read_base64(kv, "key", key, sizeof key - 1);
    if (n < 0)
        return -EPROTO;
    key[n] = '\0';
    json_t *value = read_value(kv);
    int rc = value == NULL                    ? -EPROTO
             : strcmp(key, keys->leader) == 0 ? take_leader(kv, value, ret)
             : strcmp(key, keys->record) == 0 ? take_record(kv, value, ret)
                                              : -EPROTO;
    json_decref(value);
    return rc;
}

/* Of a transaction that reads. */
static void take_kvs(const struct etcd_wire_keys *keys, const json_t *json,
                     struct elector_answer *ret)
{
    size_t i, at;
    const json_t *response, *kv;
    json_array_foreach(json_object_get(json, "responses"), i, response)
    {
        const json_t *range = json_object_get(response, "response_range");
        json_array_foreach(json_object_get(range, "kvs"), at, kv)
        {
            if (take_kv(keys, kv, ret) < 0) {
                fail(ret,
                     "the etcd keys under '%s' were not written by this version of ddprun: use the "
                     "same version on all nodes, or another --rdzv-id",
                     keys->leader);
                return;
            }
        }
    }
}

/* A lease that etcd does not know has no TTL. */
static void take_lease(const json_t *json, struct elector_answer *ret)
{
    int64_t ttl;
    if (read_number(json, "ID", &ret->lease) < 0 || read_number(json, "TTL", &ttl) < 0 ||
        ttl > UINT32_MAX)
        fail(ret, "invalid answer of etcd about a lease");
    else
        ret->ttl_s = (uint32_t)ttl;
}

static void take_answer(const struct etcd_wire_keys *keys, const struct elector_request *ask,
                        const json_t *json, struct elector_answer *ret)
{
    const json_t *header = json_object_get(json, "header");
    if (!json_is_object(header) || read_number(header, "revision", &ret->revision) < 0) {
        fail(ret, "invalid answer of etcd: no revision");
        return;
    }
    ret->succeeded = json_is_true(json_object_get(json, "succeeded"));
    if (ask->type == ELECTOR_READ || ask->type == ELECTOR_CLAIM)
        take_kvs(keys, json, ret);
    else if (ask->type == ELECTOR_GRANT || ask->type == ELECTOR_KEEP)
        take_lease(json, ret);
}

/* The text of an error, in each of the gateway's forms; "": none */
static const char *error_of(const json_t *json, int64_t *ret_code)
{
    const json_t *error = json_object_get(json, "error");
    const json_t *from = json_is_object(error) ? error : json;
    const char *text = json_string_value(json_object_get(from, "message"));
    const char *name = json_is_object(error) ? "grpc_code" : "code";
    if (error == NULL || read_number(from, name, ret_code) < 0)
        *ret_code = 0;
    if (error == NULL)
        return "";
    if (text == NULL)
        text = json_string_value(error);
    return text != NULL ? text : "unspecified error";
}

void etcd_wire_decode(const struct etcd_wire_keys *keys, const struct elector_request *ask,
                      int status, const char *text, size_t len, struct elector_answer *ret)
{
    int64_t code = 0;
    *ret = (struct elector_answer){0};
    /* a stream, as the renewals of a lease are, has a line for each answer */
    json_t *json =
        len <= ETCD_WIRE_MAX_ANSWER ? json_loadb(text, len, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    const json_t *result = json_object_get(json, "result");
    const char *error = error_of(json, &code);
    if (!json_is_object(json)) {
        fail(ret, "invalid answer: HTTP status %d without JSON; is --rdzv-endpoint an etcd server?",
             status);
    } else if (error[0] != '\0' || status != HTTP_OK) {
        fail(ret, "etcd: %.300s (HTTP status %d)", error, status);
        ret->lacks_lease = code == CODE_NOT_FOUND;
    } else {
        take_answer(keys, ask, result != NULL ? result : json, ret);
    }
    json_decref(json);
}

/* --- Users --- */

bool etcd_wire_wants_login(int status, const char *text, size_t len)
{
    int64_t code = 0;
    json_t *json =
        len <= ETCD_WIRE_MAX_ANSWER ? json_loadb(text, len, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    error_of(json, &code);
    json_decref(json);
    return status == HTTP_UNAUTHORIZED || code == CODE_UNAUTHENTICATED;
}

int etcd_wire_decode_login(int status, const char *text, size_t len,
                           char token[ETCD_WIRE_TOKEN_BYTES], struct co_error *err)
{
    int64_t code;
    int rc = 0;
    json_t *json = len <= ETCD_WIRE_MAX_ANSWER ? json_loadb(text, len, 0, NULL) : NULL;
    const char *found = json_string_value(json_object_get(json, "token"));
    size_t n = found != NULL ? strlen(found) : 0;
    bool is_plain = n > 0 && n < ETCD_WIRE_TOKEN_BYTES && strpbrk(found, "\r\n") == NULL;
    char why[ELECTOR_TEXT_BYTES];
    if (is_plain) {
        snprintf(token, ETCD_WIRE_TOKEN_BYTES, "%s", found);
    } else {
        snprintf(why, sizeof why, "%.300s", error_of(json, &code));
        co_utf8_clean(why, strlen(why));
        rc = co_fail(
            err, -EPROTO,
            "etcd denies access: %s (HTTP status %d); check user and password in --rdzv-conf", why,
            status);
    }
    json_decref(json);
    return rc;
}
