/* cpu_tuning.c - the table of sizes: the default, the reader of DDP_TUNING, and the row of a group.
 * cpu_tuning_parse() cuts a copy of the text into lines, rows and words; begin_row() and find_key()
 * check each. */
#include "cpu_tuning.h"

#include "common/error.h"
#include "common/hash.h"
#include "common/parse.h"
#include "common/scope.h"

#include <ddp/env.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* For two ranks: what `ddp-perf --tune` measured on two cores of an AMD EPYC, with Linux 6.18; to
 * read across processes took two to three times as long there as to stage, up to 64 MiB. Also
 * measured were more ranks than cores: `cma` is theirs, with 3 ranks; with 4 it was `never`. Their
 * `one_shot` (128K and more) results from ranks that share a core in turns, and is not adopted. */
const struct cpu_tunings cpu_tunings_default = {
    .n_rows = 2,
    .row = {{2,
             {.one_shot_bytes = 32 << 10,
              .piece_bytes = CPU_TUNING_MOST_PIECE,
              .cma_bytes = CPU_TUNING_NEVER,
              .cma_sum_bytes = CPU_TUNING_NEVER}},
            {CPU_TUNING_MOST_RANKS,
             {.one_shot_bytes = 16 << 10,
              .piece_bytes = CPU_TUNING_MOST_PIECE,
              .cma_bytes = 16 << 20,
              .cma_sum_bytes = CPU_TUNING_NEVER}}},
    .network = COST_NETWORK_DEFAULT,
};

const struct cpu_tuning *cpu_tuning_for(const struct cpu_tunings *t, unsigned n)
{
    unsigned i = 0;
    while (i + 1 < t->n_rows && t->row[i].n_ranks < n)
        i++;
    return &t->row[i].tuning;
}

/* --- reading: a copy of the text is cut up in place ------------------------------------------- */

#define BLANKS    " \t\r"
#define MOST_SIZE ((uint64_t)1 << 40)
enum { MOST_WORD = 63 };

struct key {
    const char *name;
    size_t offset; /* in struct cpu_tuning, or struct cost_network */
    uint64_t min, max;
    bool may_be_never;
};

enum { N_KEYS = 4 };

struct keys {                  /* of a row */
    const char *value, *names; /* for messages */
    struct key key[N_KEYS];
};

static const struct keys of_ranks = {
    "SIZE",
    "one_shot, piece, cma or cma_sum",
    {{"one_shot", offsetof(struct cpu_tuning, one_shot_bytes), 0, MOST_SIZE, false},
     {"piece", offsetof(struct cpu_tuning, piece_bytes), CPU_TUNING_LEAST_PIECE,
      CPU_TUNING_MOST_PIECE, false},
     {"cma", offsetof(struct cpu_tuning, cma_bytes), 0, MOST_SIZE, true},
     {"cma_sum", offsetof(struct cpu_tuning, cma_sum_bytes), 0, MOST_SIZE, true}}};

static const struct keys of_network = {
    "NUMBER",
    "latency_ns, message_ns, byte_ps or sum_ps",
    {{"latency_ns", offsetof(struct cost_network, latency_ns), 0, COST_LATENCY_NS_MOST, false},
     {"message_ns", offsetof(struct cost_network, message_ns), 0, COST_MESSAGE_NS_MOST, false},
     {"byte_ps", offsetof(struct cost_network, byte_ps), 0, COST_BYTE_PS_MOST, false},
     {"sum_ps", offsetof(struct cost_network, sum_ps), 0, COST_BYTE_PS_MOST, false}}};

/* Cut "KEY=VALUE" into its parts.
 *
 * seen      a bit for each key that the row has given so far
 * returns   the key; NULL: err has the reason */
static const struct key *find_key(const struct keys *keys, char *word, char **ret_value,
                                  unsigned *seen, struct co_error *err)
{
    *ret_value = word;
    if (strlen(word) > MOST_WORD) {
        co_fail(err, -EINVAL, "a word exceeds %d characters", MOST_WORD);
        return NULL;
    }
    const char *name = strsep(ret_value, "=");
    if (*ret_value == NULL) {
        co_fail(err, -EINVAL, "'%s' is not KEY=%s", name, keys->value);
        return NULL;
    }
    for (unsigned k = 0; k < N_KEYS; k++) {
        if (strcmp(name, keys->key[k].name) != 0)
            continue;
        if (*seen & 1u << k) {
            co_fail(err, -EINVAL, "duplicate key %s", name);
            return NULL;
        }
        *seen |= 1u << k;
        return &keys->key[k];
    }
    co_fail(err, -EINVAL, "invalid key '%s': expected %s", name, keys->names);
    return NULL;
}

static int set_number(struct cost_network *net, char *word, unsigned *seen, struct co_error *err)
{
    char *value;
    int64_t n;
    const struct key *key = find_key(&of_network, word, &value, seen, err);
    if (key == NULL ||
        co_parse_int(key->name, value, (int64_t)key->min, (int64_t)key->max, &n, err) < 0)
        return -EINVAL;
    *(uint32_t *)((char *)net + key->offset) = (uint32_t)n;
    return 0;
}

static int set_size(struct cpu_tuning *t, char *word, unsigned *seen, struct co_error *err)
{
    char *value;
    uint64_t bytes = CPU_TUNING_NEVER;
    const struct key *key = find_key(&of_ranks, word, &value, seen, err);
    if (key == NULL)
        return -EINVAL;
    const bool is_never = key->may_be_never && strcmp(value, "never") == 0;
    if (!is_never && co_parse_size(key->name, value, key->min, key->max, &bytes, err) < 0)
        return -EINVAL;
    *(size_t *)((char *)t + key->offset) = bytes;
    return 0;
}

/* "ranks N", directly before its colon, and make space for the row. */
static int begin_row(struct cpu_tunings *t, char *head, bool has_colon, struct cpu_tuning_row **ret,
                     struct co_error *err)
{
    const char *const end = head + strlen(head);
    const unsigned last = t->n_rows > 0 ? t->row[t->n_rows - 1].n_ranks : 0;
    char *rest;
    const char *word = strtok_r(head, BLANKS, &rest), *number = strtok_r(NULL, BLANKS, &rest);
    int64_t n;
    if (!has_colon || number == NULL || strcmp(word, "ranks") != 0 ||
        number + strlen(number) != end)
        return co_fail(
            err, -EINVAL,
            "invalid row: expected it to start with 'ranks N:' or 'network:', not '%.*s %.*s'",
            MOST_WORD, word != NULL ? word : "", MOST_WORD, number != NULL ? number : "");
    if (co_parse_int("ranks", number, last + 1, CPU_TUNING_MOST_RANKS, &n, err) < 0)
        return -EINVAL;
    if (t->n_rows == CPU_TUNING_MAX_ROWS)
        return co_fail(err, -EINVAL, "more than %d rows", CPU_TUNING_MAX_ROWS);
    *ret = &t->row[t->n_rows++];
    **ret =
        (struct cpu_tuning_row){(unsigned)n, *cpu_tuning_for(&cpu_tunings_default, (unsigned)n)};
    return 0;
}

/* has_network: the table has given that row */
static int read_row(struct cpu_tunings *t, char *text, bool *has_network, struct co_error *err)
{
    struct cpu_tuning_row *row = NULL;
    unsigned seen = 0;
    text += strspn(text, BLANKS);
    if (text[0] == '\0')
        return 0;
    char *rest = text, *head = strsep(&rest, ":");
    const bool is_network = rest != NULL && strcmp(head, "network") == 0;
    int code = 0;
    if (is_network && *has_network)
        code = co_fail(err, -EINVAL, "duplicate row 'network'");
    else if (!is_network)
        code = begin_row(t, head, rest != NULL, &row, err);
    *has_network |= is_network;
    for (char *word; code == 0 && (word = strsep(&rest, BLANKS)) != NULL;)
        if (word[0] != '\0')
            code = is_network ? set_number(&t->network, word, &seen, err)
                              : set_size(&row->tuning, word, &seen, err);
    return code;
}

int cpu_tuning_parse(const char *text, size_t length, struct cpu_tunings *ret, struct co_error *err)
{
    struct cpu_tunings table = {.network = COST_NETWORK_DEFAULT};
    bool has_network = false;
    if (length > CPU_TUNING_MAX_TEXT)
        return co_fail(err, -EINVAL, "the table has more than %d bytes", CPU_TUNING_MAX_TEXT);
    if (memchr(text, '\0', length) != NULL)
        return co_fail(err, -EINVAL, "the table contains a zero byte");
    co_autofree char *copy = malloc(length + 1);
    if (copy == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    memcpy(copy, text, length);
    copy[length] = '\0';
    char *rest = copy, *line;
    for (unsigned number = 1; (line = strsep(&rest, "\n")) != NULL; number++) {
        line[strcspn(line, "#")] = '\0';
        for (char *row; (row = strsep(&line, ";")) != NULL;) {
            if (read_row(&table, row, &has_network, err) == 0)
                continue;
            co_fail_in(err, "line %u", number);
            return -EINVAL;
        }
    }
    if (table.n_rows == 0 && !has_network)
        return co_fail(err, -EINVAL, "the table has no row");
    if (table.n_rows == 0) {
        const struct cost_network network = table.network;
        table = cpu_tunings_default;
        table.network = network;
    }
    *ret = table;
    return 0;
}

uint64_t cpu_tuning_digest(const struct cpu_tunings *t)
{
    uint64_t hash = CO_HASH_START;
    for (unsigned i = 0; i < t->n_rows; i++) {
        const struct cpu_tuning *c = &t->row[i].tuning;
        const uint64_t values[] = {t->row[i].n_ranks, c->one_shot_bytes, c->piece_bytes,
                                   c->cma_bytes, c->cma_sum_bytes};
        for (size_t k = 0; k < sizeof values / sizeof *values; k++)
            hash = co_hash_number(hash, values[k]);
    }
    hash = co_hash_number(hash, t->network.latency_ns);
    hash = co_hash_number(hash, t->network.message_ns);
    hash = co_hash_number(hash, t->network.byte_ps);
    return co_hash_number(hash, t->network.sum_ps);
}

/* --- DDP_TUNING ------------------------------------------------------------------------------- */

static int read_file(const char *path, struct cpu_tunings *ret, struct co_error *err)
{
    co_autoclose FILE *in = fopen(path, "re");
    co_autofree char *text = malloc(CPU_TUNING_MAX_TEXT + 1);
    if (in == NULL)
        return co_fail(err, -ENOEXEC, "cannot open '%s': %s", path, strerror(errno));
    if (text == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    const size_t length = fread(text, 1, CPU_TUNING_MAX_TEXT + 1, in); /* one too many shows */
    if (ferror(in))
        return co_fail(err, -ENOEXEC, "cannot read '%s'", path);
    return cpu_tuning_parse(text, length, ret, err) < 0 ? co_fail_in(err, "'%s'", path) : 0;
}

int cpu_tuning_read(const char *value, struct cpu_tunings *ret, struct co_error *err)
{
    struct cpu_tunings table = cpu_tunings_default;
    int code = 0;
    if (value != NULL && value[0] != '\0')
        code = strchr(value, '/') != NULL ? read_file(value, &table, err)
                                          : cpu_tuning_parse(value, strlen(value), &table, err);
    if (code != 0) {
        co_fail_in(err, "%s", DDP_ENV_TUNING);
        return code == -ENOMEM ? code : -ENOEXEC;
    }
    *ret = table;
    return 0;
}
