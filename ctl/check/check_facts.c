#include "check_facts.h"

#include "common/error.h"
#include "ctl/base/table.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* One table for both directions: what is written is what is read. */
enum kind { TEXT, NUMBER, NAME };

struct row {
    const char *key;
    enum kind kind;
    size_t at, size;
};

#define ROW(its_kind, key)                                                                         \
    {                                                                                              \
#key, its_kind, offsetof(struct check_facts, key), sizeof((struct check_facts *)0)->key    \
    }

static const struct row rows[] = {
    ROW(TEXT, host),        ROW(TEXT, version),       ROW(TEXT, no_version),
    ROW(NUMBER, nofile),    ROW(NUMBER, nofile_hard), ROW(NUMBER, memlock),
    ROW(NUMBER, somaxconn), ROW(NUMBER, n_rdma),      ROW(NUMBER, shm_bytes),
    ROW(NUMBER, shm_free),  ROW(TEXT, no_shm),        ROW(NUMBER, first_port),
    ROW(NUMBER, last_port), ROW(NUMBER, port),        ROW(TEXT, no_port),
    ROW(NAME, forward),     ROW(TEXT, forward_to),    ROW(NAME, reverse),
    ROW(TEXT, reverse_to),  ROW(TEXT, token_id),      ROW(TEXT, no_token),
    ROW(NUMBER, n_gpus),    ROW(TEXT, driver),        ROW(TEXT, gpu_trouble),
    ROW(TEXT, nccl),
};

enum { N_ROWS = sizeof rows / sizeof *rows };

/* How the facts' names for enum check_name are spelled. */
static const char *const name_words[CHECK_N_NAMES] = {
    [CHECK_NAME_OWN] = "own",         [CHECK_NAME_LOOPBACK] = "loopback",
    [CHECK_NAME_FOREIGN] = "foreign", [CHECK_NAME_NONE] = "none",
    [CHECK_NAME_LATE] = "late",       [CHECK_NAME_SKIPPED] = "skipped",
};

/* --- to JSON --- */

/* JSON's integers are signed: what has no number is a word, or null. */
static json_t *number_to_json(uint64_t n)
{
    return n == CHECK_UNLIMITED                  ? json_string("unlimited")
           : n == CHECK_UNKNOWN || n > INT64_MAX ? json_null()
                                                 : json_integer((json_int_t)n);
}

/* The text of a program or a file may not be UTF-8, but JSON must be. */
static json_t *text_to_json(const char *text)
{
    char plain[CHECK_NAME_BYTES];
    json_t *json = json_string(text);
    if (json != NULL)
        return json;
    snprintf(plain, sizeof plain, "%s", text);
    for (char *c = plain; *c != '\0'; c++)
        *c = (char)((unsigned char)*c < 128 ? *c : '?');
    return json_string(plain);
}

static json_t *row_to_json(const struct row *row, const char *at)
{
    if (row->kind == TEXT)
        return text_to_json(at);
    if (row->kind == NUMBER)
        return number_to_json(*(const uint64_t *)(const void *)at);
    return json_string(name_words[*(const enum check_name *)(const void *)at]);
}

static json_t *addresses_to_json(const struct check_facts *f)
{
    json_t *list = json_array();
    for (size_t i = 0; list != NULL && i < f->n_addresses; i++)
        json_array_append_new(list, json_pack("{s:o, s:o}", "interface",
                                              text_to_json(f->addresses[i].interface), "address",
                                              text_to_json(f->addresses[i].text)));
    return list;
}

static json_t *gpus_to_json(const struct check_facts *f)
{
    json_t *list = json_array();
    for (size_t i = 0; list != NULL && i < f->n_described; i++)
        json_array_append_new(list, json_pack("{s:o, s:o}", "name", text_to_json(f->gpus[i].name),
                                              "ecc_errors", number_to_json(f->gpus[i].ecc_errors)));
    return list;
}

json_t *check_facts_to_json(const struct check_facts *facts)
{
    json_t *json = json_object();
    int rc = json != NULL ? 0 : -1;
    for (size_t i = 0; rc == 0 && i < N_ROWS; i++)
        rc = json_object_set_new(json, rows[i].key,
                                 row_to_json(&rows[i], (const char *)facts + rows[i].at));
    if (rc == 0)
        rc = json_object_set_new(json, "addresses", addresses_to_json(facts));
    if (rc == 0)
        rc = json_object_set_new(json, "gpus", gpus_to_json(facts));
    if (rc == 0)
        return json;
    json_decref(json);
    return NULL;
}

/* --- from JSON --- */

static int wrong(const char *key, struct co_error *err)
{
    return co_fail(err, -EPROTO,
                   "unexpected reply: invalid '%s'; use the same ddpctl version on all nodes", key);
}

static int read_text(const json_t *json, const char *key, char *to, size_t size,
                     struct co_error *err)
{
    to[0] = '\0';
    if (json == NULL || json_is_null(json))
        return 0;
    if (!json_is_string(json))
        return wrong(key, err);
    snprintf(to, size, "%s", json_string_value(json));
    table_plain(to);
    return 0;
}

static int read_number(const json_t *json, const char *key, uint64_t *to, struct co_error *err)
{
    const char *word = json_string_value(json);
    *to = CHECK_UNKNOWN;
    if (json == NULL || json_is_null(json))
        return 0;
    if (word != NULL && strcmp(word, "unlimited") == 0)
        *to = CHECK_UNLIMITED;
    else if (json_is_integer(json) && json_integer_value(json) >= 0)
        *to = (uint64_t)json_integer_value(json);
    else
        return wrong(key, err);
    return 0;
}

static int read_name(const json_t *json, const char *key, enum check_name *to, struct co_error *err)
{
    const char *word = json_string_value(json);
    *to = CHECK_NAME_SKIPPED;
    if (json == NULL)
        return 0;
    for (int i = 0; word != NULL && i < CHECK_N_NAMES; i++)
        if (strcmp(word, name_words[i]) == 0) {
            *to = (enum check_name)i;
            return 0;
        }
    return wrong(key, err);
}

static int read_row(const struct row *row, const json_t *json, char *at, struct co_error *err)
{
    if (row->kind == TEXT)
        return read_text(json, row->key, at, row->size, err);
    if (row->kind == NUMBER)
        return read_number(json, row->key, (uint64_t *)(void *)at, err);
    return read_name(json, row->key, (enum check_name *)(void *)at, err);
}

static int read_addresses(const json_t *list, struct check_facts *f, struct co_error *err)
{
    int rc = list == NULL || json_is_array(list) ? 0 : wrong("addresses", err);
    for (size_t i = 0; rc == 0 && i < json_array_size(list) && i < CHECK_ADDRESSES_MAX; i++) {
        struct check_address *a = &f->addresses[i];
        const json_t *one = json_array_get(list, i);
        rc = read_text(json_object_get(one, "interface"), "interface", a->interface,
                       sizeof a->interface, err);
        if (rc == 0)
            rc =
                read_text(json_object_get(one, "address"), "address", a->text, sizeof a->text, err);
        f->n_addresses = i + 1;
    }
    return rc;
}

static int read_gpus(const json_t *list, struct check_facts *f, struct co_error *err)
{
    int rc = list == NULL || json_is_array(list) ? 0 : wrong("gpus", err);
    for (size_t i = 0; rc == 0 && i < json_array_size(list) && i < CHECK_GPUS_MAX; i++) {
        struct check_gpu *g = &f->gpus[i];
        const json_t *one = json_array_get(list, i);
        rc = read_text(json_object_get(one, "name"), "name", g->name, sizeof g->name, err);
        if (rc == 0)
            rc = read_number(json_object_get(one, "ecc_errors"), "ecc_errors", &g->ecc_errors, err);
        f->n_described = i + 1;
    }
    return rc;
}

int check_facts_from_json(const json_t *json, struct check_facts *ret, struct co_error *err)
{
    struct check_facts facts = {.n_addresses = 0};
    int rc =
        json_is_object(json) ? 0 : co_fail(err, -EPROTO, "unexpected reply: not a JSON object");
    for (size_t i = 0; rc == 0 && i < N_ROWS; i++)
        rc = read_row(&rows[i], json_object_get(json, rows[i].key), (char *)&facts + rows[i].at,
                      err);
    if (rc == 0)
        rc = read_addresses(json_object_get(json, "addresses"), &facts, err);
    if (rc == 0)
        rc = read_gpus(json_object_get(json, "gpus"), &facts, err);
    if (rc == 0 && facts.port > UINT16_MAX && facts.port != CHECK_UNKNOWN)
        rc = wrong("port", err);
    if (rc == 0)
        *ret = facts;
    return rc;
}
