#include "cpu_tuning.h"

#include "common/error.h"
#include "common/hash.h"
#include "common/parse.h"
#include "common/scope.h"

#include <ddp/env.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* For two ranks: what `ddp-perf --tune` measured on two cores of an AMD EPYC, with Linux 6.18; to
 * read across processes took two to three times as long there as to stage, up to 64 MiB. More ranks
 * than cores were measured, too: `cma` is theirs, with 3 ranks; with 4 it was `never`. Their
 * `one_shot` (128K and more) comes of taking turns on a core, and is not taken over. */
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
};

const struct cpu_tuning *cpu_tuning_for(const struct cpu_tunings *t, unsigned n)
{
    unsigned i = 0;
    while (i + 1 < t->n_rows && t->row[i].n_ranks < n)
        i++;
    return &t->row[i].tuning;
}

/* --- reading ---------------------------------------------------------------------------------- */

enum { MOST_WORD = 64 };
#define MOST_SIZE ((uint64_t)1 << 40)

static const struct key {
    const char *name;
    size_t offset; /* in struct cpu_tuning */
    uint64_t min, max;
    bool may_be_never;
} keys[] = {
    {"one_shot", offsetof(struct cpu_tuning, one_shot_bytes), 0, MOST_SIZE, false},
    {"piece", offsetof(struct cpu_tuning, piece_bytes), CPU_TUNING_LEAST_PIECE,
     CPU_TUNING_MOST_PIECE, false},
    {"cma", offsetof(struct cpu_tuning, cma_bytes), 0, MOST_SIZE, true},
    {"cma_sum", offsetof(struct cpu_tuning, cma_sum_bytes), 0, MOST_SIZE, true},
};
enum { N_KEYS = sizeof keys / sizeof *keys };

struct reader {
    const char *at, *end; /* what is left of the text */
    unsigned line;        /* from 1 */
    struct cpu_tunings table;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static bool ends_row(char c)
{
    return c == '\n' || c == ';' || c == '#';
}

/* Skip blanks. returns whether the row goes on */
static bool row_goes_on(struct reader *r)
{
    while (r->at < r->end && is_blank(*r->at))
        r->at++;
    return r->at < r->end && !ends_row(*r->at);
}

/* Go behind the end of the row, and of the comment there. */
static void end_row(struct reader *r)
{
    if (r->at < r->end && *r->at == '#')
        while (r->at < r->end && *r->at != '\n')
            r->at++;
    if (r->at < r->end)
        r->line += *r->at++ == '\n';
}

/* Up to a blank, or the end of the row. A colon ends a word, and is part of it. */
static int take_word(struct reader *r, char word[MOST_WORD], struct co_error *err)
{
    size_t n = 0;
    while (r->at < r->end && !is_blank(*r->at) && !ends_row(*r->at)) {
        if (n == MOST_WORD - 1 || *r->at == '\0')
            return co_fail(err, -EINVAL,
                           "line %u: a word of more than %d characters, or with a "
                           "NUL in it",
                           r->line, MOST_WORD - 1);
        word[n++] = *r->at++;
        if (word[n - 1] == ':')
            break;
    }
    word[n] = '\0';
    return 0;
}

static int set_key(struct reader *r, struct cpu_tuning *t, char *word, unsigned *seen,
                   struct co_error *err)
{
    char *value = strchr(word, '=');
    if (value == NULL)
        return co_fail(err, -EINVAL, "line %u: '%s' is not KEY=SIZE", r->line, word);
    *value++ = '\0';
    for (unsigned k = 0; k < N_KEYS; k++) {
        if (strcmp(word, keys[k].name) != 0)
            continue;
        if (*seen & 1u << k)
            return co_fail(err, -EINVAL, "line %u: %s is there twice", r->line, word);
        *seen |= 1u << k;
        uint64_t bytes = CPU_TUNING_NEVER;
        if (!(keys[k].may_be_never && strcmp(value, "never") == 0) &&
            co_parse_size(word, value, keys[k].min, keys[k].max, &bytes, err) < 0) {
            co_fail_in(err, "line %u", r->line);
            return -EINVAL;
        }
        *(size_t *)((char *)t + keys[k].offset) = bytes;
        return 0;
    }
    return co_fail(err, -EINVAL, "line %u: '%s' is none of one_shot, piece, cma, cma_sum", r->line,
                   word);
}

/* "ranks N:", and make room for the row. */
static int begin_row(struct reader *r, struct cpu_tuning_row **ret, struct co_error *err)
{
    struct cpu_tunings *t = &r->table;
    const unsigned last = t->n_rows > 0 ? t->row[t->n_rows - 1].n_ranks : 0;
    char word[MOST_WORD], number[MOST_WORD];
    int64_t n;
    int code = take_word(r, word, err);
    if (code == 0 && !row_goes_on(r))
        number[0] = '\0';
    else if (code == 0)
        code = take_word(r, number, err);
    if (code != 0)
        return code;
    const size_t length = strlen(number);
    if (strcmp(word, "ranks") != 0 || length < 2 || number[length - 1] != ':')
        return co_fail(err, -EINVAL, "line %u: a row begins with 'ranks N:', not '%s %s'", r->line,
                       word, number);
    number[length - 1] = '\0';
    if (co_parse_int("ranks", number, last + 1, CPU_TUNING_MOST_RANKS, &n, err) < 0) {
        co_fail_in(err, "line %u", r->line);
        return -EINVAL;
    }
    if (t->n_rows == CPU_TUNING_MAX_ROWS)
        return co_fail(err, -EINVAL, "line %u: more than %d rows", r->line, CPU_TUNING_MAX_ROWS);
    *ret = &t->row[t->n_rows++];
    **ret =
        (struct cpu_tuning_row){(unsigned)n, *cpu_tuning_for(&cpu_tunings_default, (unsigned)n)};
    return 0;
}

static int read_row(struct reader *r, struct co_error *err)
{
    struct cpu_tuning_row *row = NULL;
    char word[MOST_WORD];
    unsigned seen = 0;
    int code = begin_row(r, &row, err);
    while (code == 0 && row_goes_on(r)) {
        code = take_word(r, word, err);
        if (code == 0)
            code = set_key(r, &row->tuning, word, &seen, err);
    }
    return code;
}

int cpu_tuning_parse(const char *text, size_t length, struct cpu_tunings *ret, struct co_error *err)
{
    struct reader r = {.at = text, .end = text + length, .line = 1};
    if (length > CPU_TUNING_MAX_TEXT)
        return co_fail(err, -EINVAL, "the table has more than %d bytes", CPU_TUNING_MAX_TEXT);
    while (r.at < r.end) {
        if (row_goes_on(&r)) {
            int code = read_row(&r, err);
            if (code != 0)
                return code;
        }
        end_row(&r);
    }
    if (r.table.n_rows == 0)
        return co_fail(err, -EINVAL, "the table has no row 'ranks N: ...'");
    *ret = r.table;
    return 0;
}

uint64_t cpu_tuning_digest(const struct cpu_tunings *t)
{
    uint64_t hash = CO_HASH_START;
    for (unsigned i = 0; i < t->n_rows; i++) {
        const struct cpu_tuning *c = &t->row[i].tuning;
        const uint64_t numbers[] = {t->row[i].n_ranks, c->one_shot_bytes, c->piece_bytes,
                                    c->cma_bytes, c->cma_sum_bytes};
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
            hash = co_hash_number(hash, numbers[k]);
    }
    return hash;
}

/* --- DDP_TUNING ------------------------------------------------------------------------------- */

static int read_file(const char *path, struct cpu_tunings *ret, struct co_error *err)
{
    co_autoclose FILE *in = fopen(path, "re");
    co_autofree char *text = malloc(CPU_TUNING_MAX_TEXT + 1);
    if (in == NULL)
        return co_fail(err, -ENOEXEC, "cannot open '%s': %s", path, strerror(errno));
    if (text == NULL)
        return co_fail(err, -ENOMEM, "no memory for '%s'", path);
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
