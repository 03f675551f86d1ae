#include "wrap.h"

#include "common/error.h"
#include "common/scope.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { RANK_DIGITS = 7 };

static const char rank_chars[] = "0123456789,-";

/* Take a number from *at. returns -1: there is none */
static int take_rank(const char **at)
{
    size_t n = strspn(*at, "0123456789");
    int rank = n > 0 && n <= RANK_DIGITS ? atoi(*at) : -1;
    *at += n;
    return rank;
}

/* Ranks, up to the colon. */
static int parse_ranges(const char *what, const char *text, struct wrap *w, struct co_error *err)
{
    for (const char *at = text;; at++) {
        if (w->n_ranges == WRAP_RANGES_MAX)
            return co_fail(err, -EINVAL, "%s '%.200s' has more than %d ranges of ranks", what, text,
                           WRAP_RANGES_MAX);
        int first = take_rank(&at);
        int last = first;
        if (*at == '-') {
            at++;
            last = take_rank(&at);
        }
        if (first < 0 || last < first || (*at != ',' && *at != ':'))
            return co_fail(err, -EINVAL,
                           "%s '%.200s' begins with no list of ranks: try 0,2,4-7:", what, text);
        w->ranges[w->n_ranges].first = first;
        w->ranges[w->n_ranges++].last = last;
        if (*at == ':')
            return 0;
    }
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n';
}

/* Copy the word that begins at *at, without its quotes. returns the end of the copy; NULL: a quote
 * does not end */
static char *take_word(const char **at, char *to)
{
    char quote = '\0';
    const char *c = *at;
    for (; *c != '\0' && (quote != '\0' || !is_blank(*c)); c++) {
        if (*c == quote)
            quote = '\0';
        else if (quote == '\0' && (*c == '\'' || *c == '"'))
            quote = *c;
        else if (*c == '\\' && quote != '\'' && c[1] != '\0')
            *to++ = *++c;
        else
            *to++ = *c;
    }
    *at = c;
    *to++ = '\0';
    return quote == '\0' ? to : NULL;
}

static int split(const char *what, const char *command, struct wrap *w, struct co_error *err)
{
    char *to = w->text;
    for (const char *at = command;;) {
        while (is_blank(*at))
            at++;
        if (*at == '\0')
            break;
        if (w->n_words == WRAP_WORDS_MAX)
            return co_fail(err, -EINVAL, "%s: more than %d words", what, WRAP_WORDS_MAX);
        w->words[w->n_words++] = to;
        to = take_word(&at, to);
        if (to == NULL)
            return co_fail(err, -EINVAL, "%s '%.200s': a quote does not end", what, command);
    }
    if (w->n_words == 0 || w->words[0][0] == '\0')
        return co_fail(err, -EINVAL, "%s names no command", what);
    return 0;
}

int wrap_parse(const char *what, const char *text, struct wrap **ret, struct co_error *err)
{
    co_autofree struct wrap *w = calloc(1, sizeof *w + strlen(text) + 1);
    if (w == NULL)
        return co_fail(err, -ENOMEM, "no memory for %s", what);
    size_t n_ranks = strspn(text, rank_chars);
    bool has_ranks = text[n_ranks] == ':';
    int rc = has_ranks ? parse_ranges(what, text, w, err) : 0;
    if (rc == 0)
        rc = split(what, has_ranks ? text + n_ranks + 1 : text, w, err);
    if (rc == 0)
        *ret = co_take(&w);
    return rc;
}

int wrap_last_rank(const struct wrap *w)
{
    int last = -1;
    for (int i = 0; i < w->n_ranges; i++)
        last = w->ranges[i].last > last ? w->ranges[i].last : last;
    return last;
}

bool wrap_covers(const struct wrap *w, int rank)
{
    if (w == NULL || w->n_ranges == 0)
        return w != NULL;
    for (int i = 0; i < w->n_ranges; i++)
        if (rank >= w->ranges[i].first && rank <= w->ranges[i].last)
            return true;
    return false;
}
