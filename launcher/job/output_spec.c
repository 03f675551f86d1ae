#include "output_spec.h"

#include "common/error.h"
#include "common/parse.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void output_spec_fini(struct output_spec *s)
{
    free(s->log_dir);
    free(s->label);
    free(s->line_prefix);
    free(s->filters[0]);
    free(s->filters[1]);
}

/* A rank's number of n characters. returns -1: it is none */
static int rank_in(const char *text, size_t n)
{
    char digits[8];
    int64_t rank;
    if (n == 0 || n >= sizeof digits)
        return -1;
    memcpy(digits, text, n);
    digits[n] = '\0';
    if (co_parse_int("rank", digits, 0, OUTPUT_SPEC_RANKS_MAX - 1, &rank, NULL) < 0)
        return -1;
    return (int)rank;
}

static bool is_value(char c)
{
    return c >= '0' && c <= '3';
}

int output_spec_parse_streams(const char *what, const char *text, int n_ranks, uint8_t *ret,
                              struct co_error *err)
{
    if (is_value(text[0]) && text[1] == '\0') {
        memset(ret, text[0] - '0', (size_t)n_ranks);
        return 0;
    }
    memset(ret, 0, (size_t)n_ranks);
    for (const char *at = text;; at++) {
        size_t n = strcspn(at, ":,");
        int rank = rank_in(at, n);
        if (rank < 0 || at[n] != ':' || !is_value(at[n + 1]) ||
            (at[n + 2] != ',' && at[n + 2] != '\0'))
            return co_fail(err, -EINVAL,
                           "invalid value '%.200s' for %s: expected 0 (none), 1 (stdout), 2 "
                           "(stderr), 3 (both) or RANK:[0-3],...",
                           text, what);
        if (rank < n_ranks) /* torchrun also accepts higher numbers, because such ranks may exist
                             * later */
            ret[rank] = (uint8_t)(at[n + 1] - '0');
        at += n + 2;
        if (*at == '\0')
            return 0;
    }
}

int output_spec_parse_ranks(const char *what, const char *text, int n_ranks, bool *ret_hidden,
                            struct co_error *err)
{
    for (int i = 0; i < n_ranks; i++)
        ret_hidden[i] = *text != '\0';
    for (const char *at = text; *at != '\0';) {
        size_t n = strcspn(at, ",");
        int rank = rank_in(at, n);
        if (rank < 0 || (at[n] == ',' && at[n + 1] == '\0'))
            return co_fail(err, -EINVAL,
                           "invalid value '%.200s' for %s: expected local ranks such as 0,2", text,
                           what);
        if (rank < n_ranks)
            ret_hidden[rank] = false;
        at += n + (at[n] == ',');
    }
    return 0;
}

char **output_spec_split(const char *text)
{
    size_t n = strlen(text);
    size_t n_words_max = n / 2 + 2; /* a word and a comma each */
    char **words = calloc(1, n_words_max * sizeof *words + n + 2);
    if (words == NULL)
        return NULL;
    char *to = (char *)(words + n_words_max);
    size_t n_words = 0;
    const char *word = to;
    for (const char *c = text;; c++) {
        if (*c == ',' && c[1] == ',') {
            *to++ = ',';
            c++;
        } else if (*c == ',' || *c == '\0') {
            if (to > word) {
                *to++ = '\0';
                words[n_words++] = (char *)word;
                word = to;
            }
            if (*c == '\0')
                return words;
        } else {
            *to++ = *c;
        }
    }
}

/* Labels have those before role_name. */
static const char *const words[] = {"host",       "rank",      "local_rank",
                                    "generation", "role_name", "hostname"};
enum { WORD_HOST, WORD_RANK, WORD_LOCAL_RANK, WORD_GENERATION, WORD_ROLE, WORD_HOSTNAME, N_WORDS };

/* returns N_WORDS: none */
static int word_at(const char *name, size_t n)
{
    int i = 0;
    while (i < N_WORDS && (strlen(words[i]) != n || memcmp(words[i], name, n) != 0))
        i++;
    return i;
}

int output_spec_check_label(const char *what, const char *format, struct co_error *err)
{
    for (const char *c = format; *c != '\0'; c++) {
        if ((*c == '{' || *c == '}') && c[1] == *c) {
            c++;
        } else if (*c == '}') {
            return co_fail(err, -EINVAL,
                           "invalid value '%.200s' for %s: '}' without '{'; write }} for a brace",
                           format, what);
        } else if (*c == '{') {
            size_t n = strcspn(c + 1, "}");
            if (c[1 + n] == '\0' || word_at(c + 1, n) >= WORD_ROLE)
                return co_fail(err, -EINVAL,
                               "invalid value '%.200s' for %s: unknown field '{%.*s}'; use {host}, "
                               "{rank}, {local_rank} or {generation}, and {{ for a brace",
                               format, what, n < 40 ? (int)n : 40, c + 1);
            c += 1 + n;
        } else if ((unsigned char)*c < ' ' && *c != '\t' && *c != '\033') {
            return co_fail(err, -EINVAL, "%s contains a control character; remove it", what);
        }
    }
    return 0;
}

static char *put_text(char *to, const char *end, const char *text)
{
    while (*text != '\0' && to < end)
        *to++ = *text++;
    return to;
}

static char *put_word(char *to, const char *end, int word, const struct output_label *of)
{
    char number[16];
    if (word == WORD_HOST || word == WORD_HOSTNAME)
        return put_text(to, end, word == WORD_HOST ? of->host : of->hostname);
    if (word == WORD_ROLE)
        return put_text(to, end, of->role);
    if (word == WORD_RANK && of->ranks != NULL)
        return put_text(to, end, of->ranks);
    if (word == WORD_LOCAL_RANK && of->local_ranks != NULL)
        return put_text(to, end, of->local_ranks);
    if (word == WORD_GENERATION)
        snprintf(number, sizeof number, "%" PRIu32, of->generation);
    else
        snprintf(number, sizeof number, "%d", word == WORD_RANK ? of->rank : of->local_rank);
    return put_text(to, end, number);
}

size_t output_spec_label(const char *format, const struct output_label *of, char *to, size_t n)
{
    const char *end = to + n;
    char *out = to;
    for (const char *c = format; *c != '\0' && out < end; c++) {
        size_t n_name = *c == '{' ? strcspn(c + 1, "}") : 0;
        if (*c == '{' && c[1] != '{') {
            out = put_word(out, end, word_at(c + 1, n_name), of);
            c += 1 + n_name;
        } else {
            *out++ = *c;
            if (*c == '{' || *c == '}')
                c++;
        }
    }
    return (size_t)(out - to);
}

size_t output_spec_colored_label(const char *format, const struct output_label *of, char *to,
                                 size_t n)
{
    static const char off[] = "\033[0m";
    static const int colors[] = {36, 32, 33, 35, 34, 96, 92, 93, 95, 94}; /* red is for trouble */
    char on[8];
    size_t n_on = (size_t)snprintf(on, sizeof on, "\033[%dm",
                                   colors[(size_t)of->rank % (sizeof colors / sizeof *colors)]);
    if (n < n_on + sizeof off)
        return output_spec_label(format, of, to, n);
    size_t n_label = output_spec_label(format, of, to + n_on, n - n_on - (sizeof off - 1));
    if (n_label == 0)
        return 0;
    memcpy(to, on, n_on);
    memcpy(to + n_on + n_label, off, sizeof off - 1);
    return n_on + n_label + sizeof off - 1;
}

size_t output_spec_template(const char *format, const struct output_label *of, char *to, size_t n)
{
    const char *end = to + n;
    char *out = to;
    for (const char *c = format; *c != '\0' && out < end; c++) {
        if (*c == '$' && c[1] == '$') {
            c++;
        } else if (*c == '$') {
            const char *name = c[1] == '{' ? c + 2 : c + 1;
            size_t n_name = 0;
            while (name[n_name] == '_' || isalnum((unsigned char)name[n_name]))
                n_name++;
            int word = word_at(name, n_name);
            bool known = word == WORD_RANK || word == WORD_LOCAL_RANK || word == WORD_ROLE ||
                         word == WORD_HOSTNAME;
            if (known && (c[1] != '{' || name[n_name] == '}')) {
                out = put_word(out, end, word, of);
                c = name + n_name - (c[1] != '{');
                continue;
            }
        }
        *out++ = *c;
    }
    return (size_t)(out - to);
}
