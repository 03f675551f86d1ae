#include "options.h"

#include "error.h"
#include "parse.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

enum { HELP_COLUMN = 26, HELP_WIDTH = 80 };

void co_options_start(struct co_option_walk *w, const struct co_option *table, int argc,
                      char **argv)
{
    *w = (struct co_option_walk){.at = 1, .table = table, .argc = argc, .argv = argv};
}

/* Are the first n characters of a spelling those of a name? '_' stands for '-'. */
static bool is_prefix(const char *typed, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (name[i] == '\0' || (typed[i] == '_' ? '-' : typed[i]) != name[i])
            return false;
    return true;
}

static const struct co_option *find_exact(const struct co_option *table, const char *typed,
                                          size_t n)
{
    for (const struct co_option *o = table; o->id != 0; o++)
        if (is_prefix(typed, n, o->name) && o->name[n] == '\0')
            return o;
    return NULL;
}

static int distance_to(const char *typed, size_t n, const char *name, int limit)
{
    char as_named[CO_OPTION_NAME_MAX + 1];
    char cut[CO_OPTION_NAME_MAX + 1]; /* a misspelled prefix is near to the name's beginning */
    for (size_t i = 0; i < n; i++)
        as_named[i] = typed[i] == '_' ? '-' : typed[i];
    as_named[n] = '\0';
    snprintf(cut, n + 1, "%s", name);
    int whole = co_edit_distance(as_named, name, limit);
    int begin = co_edit_distance(as_named, cut, limit);
    return begin < whole ? begin : whole;
}

static int fail_unknown(const struct co_option *table, const char *typed, size_t n,
                        struct co_error *err)
{
    const struct co_option *nearest = NULL;
    if (n > 0 && n <= CO_OPTION_NAME_MAX) {
        /* one edit in a word of three, two (a swap counts as one) in one of four, four in one of
         * twelve */
        int best = n < 4 ? 2 : n < 9 ? 3 : 1 + (int)n / 3;
        for (const struct co_option *o = table; o->id != 0; o++) {
            int d = distance_to(typed, n, o->name, best);
            if (d < best) {
                best = d;
                nearest = o;
            }
        }
    }
    int shown = n < 60 ? (int)n : 60;
    if (nearest == NULL)
        return co_fail(err, -EINVAL, "unknown option '--%.*s'; try --help", shown, typed);
    return co_fail(err, -EINVAL, "unknown option '--%.*s': did you mean '--%s'?", shown, typed,
                   nearest->name);
}

/* Report which options a prefix may mean. A second spelling of the same option counts as another
 * one. */
static int fail_ambiguous(const struct co_option *table, const char *typed, size_t n,
                          struct co_error *err)
{
    char names[256] = "";
    size_t len = 0;
    for (const struct co_option *o = table; o->id != 0 && len < sizeof names; o++)
        if (is_prefix(typed, n, o->name))
            len += (size_t)snprintf(names + len, sizeof names - len, "%s--%s", len > 0 ? ", " : "",
                                    o->name);
    return co_fail(err, -EINVAL, "ambiguous option '--%.*s': use one of %s", (int)n, typed, names);
}

/* The only option, among the weak or the others, that a prefix can mean.
 *
 * returns   how many it can mean; the first one is in *ret_option */
static int find_prefix(const struct co_option *table, const char *typed, size_t n, bool weak,
                       const struct co_option **ret_option)
{
    int n_found = 0;
    for (const struct co_option *o = table; o->id != 0; o++) {
        if (o->weak != weak || !is_prefix(typed, n, o->name))
            continue;
        if (n_found == 0)
            *ret_option = o;
        n_found += n_found == 0 || (*ret_option)->id != o->id;
    }
    return n_found;
}

/* The row that a long spelling means: the exact one, else the only one it is a prefix of. */
static int find_long(const struct co_option *table, const char *typed, size_t n,
                     const struct co_option **ret_option, struct co_error *err)
{
    const struct co_option *found = find_exact(table, typed, n);
    int n_found = found != NULL;
    if (n_found == 0 && n > 0)
        n_found = find_prefix(table, typed, n, false, &found);
    if (n_found == 0 && n > 0)
        n_found = find_prefix(table, typed, n, true, &found);
    if (n_found > 1)
        return fail_ambiguous(table, typed, n, err);
    if (n_found == 0)
        return fail_unknown(table, typed, n, err);
    *ret_option = found;
    return 0;
}

/* A word that has to be an option, so that it can't be the value of the one before: "-x", "--x" and
 * "--", but not "-" nor "-1". */
static bool looks_like_option(const char *word)
{
    return word[0] == '-' && word[1] != '\0' && !(word[1] >= '0' && word[1] <= '9');
}

/* Fill *ret. `attached` is the value in the option's own word; NULL: absent. */
static int take_value(struct co_option_walk *w, const struct co_option *o, const char *attached,
                      struct co_option_found *ret, struct co_error *err)
{
    const char *value = attached;
    if (o->value == NULL) {
        if (attached != NULL)
            return co_fail(err, -EINVAL, "option '%s' does not take a value ('%.60s')", w->spelled,
                           attached);
    } else if (value == NULL && o->optional) {
        if (o->takes_next && w->spelled[1] == '-' && w->at < w->argc &&
            !looks_like_option(w->argv[w->at]))
            value = w->argv[w->at++];
    } else if (value == NULL) {
        if (w->at >= w->argc)
            return co_fail(err, -EINVAL, "option '%s' requires a value: %s", w->spelled, o->value);
        value = w->argv[w->at];
        if (looks_like_option(value))
            return co_fail(err, -EINVAL,
                           "option '%s' requires a value (%s), but '%.60s' looks like an option; "
                           "use --%s=VALUE to pass it",
                           w->spelled, o->value, value, o->name);
        w->at++;
    }
    const int value_max = o->value_max > 0 ? o->value_max : CO_OPTION_VALUE_MAX;
    if (value != NULL && strnlen(value, (size_t)value_max + 1) > (size_t)value_max)
        return co_fail(err, -EINVAL,
                       "the value of option '%s' is too long: expected at most %d bytes",
                       w->spelled, value_max);
    if (++w->n_found > CO_OPTIONS_MAX)
        return co_fail(err, -EINVAL, "too many options: at most %d are allowed", CO_OPTIONS_MAX);
    *ret = (struct co_option_found){.option = o, .spelled = w->spelled, .value = value};
    return 1;
}

static int next_long(struct co_option_walk *w, const char *typed, struct co_option_found *ret,
                     struct co_error *err)
{
    const struct co_option *o = NULL;
    size_t n = strcspn(typed, "=");
    int rc = find_long(w->table, typed, n, &o, err);
    if (rc < 0)
        return rc;
    snprintf(w->spelled, sizeof w->spelled, "--%s", o->name);
    return take_value(w, o, typed[n] == '=' ? typed + n + 1 : NULL, ret, err);
}

static int next_letter(struct co_option_walk *w, struct co_option_found *ret, struct co_error *err)
{
    char letter = *w->letters++;
    const char *rest = *w->letters != '\0' ? w->letters : NULL;
    const struct co_option *o = w->table;
    while (o->id != 0 && o->letter != letter)
        o++;
    if (o->id == 0) /* half a character of a longer encoding is not shown */
        return co_fail(err, -EINVAL, "unknown option '-%.*s'; try --help", letter > 0 ? 1 : 60,
                       w->letters - 1);
    snprintf(w->spelled, sizeof w->spelled, "-%c", letter);
    if (o->value == NULL && rest != NULL && *rest != '=') { /* the next letter is also an option */
        w->letters = rest;
        return take_value(w, o, NULL, ret, err);
    }
    w->letters = NULL;
    return take_value(w, o, rest != NULL && *rest == '=' ? rest + 1 : rest, ret, err);
}

int co_options_next(struct co_option_walk *w, struct co_option_found *ret, struct co_error *err)
{
    if (w->letters != NULL)
        return next_letter(w, ret, err);
    const char *word = w->ended || w->at >= w->argc ? "" : w->argv[w->at];
    if (word[0] != '-' || word[1] == '\0') {
        w->ended = true;
        return 0;
    }
    w->at++;
    if (word[1] != '-') {
        size_t n = strcspn(word + 1, "=");
        const struct co_option *meant = n > 1 ? find_exact(w->table, word + 1, n) : NULL;
        if (meant != NULL) /* else -nnodes would be -n with the value "nodes" */
            return co_fail(err, -EINVAL, "unknown option '-%.*s': did you mean '--%s'?", (int)n,
                           word + 1, meant->name);
        w->letters = word + 1;
        return next_letter(w, ret, err);
    }
    if (word[2] == '\0') {
        w->ended = true;
        return 0;
    }
    return next_long(w, word + 2, ret, err);
}

/* One paragraph of words, from `column` on; further lines begin at HELP_COLUMN. */
static int print_words(const char *text, int column, FILE *out)
{
    while (*(text += strspn(text, " ")) != '\0') {
        int n = (int)strcspn(text, " ");
        if (column > HELP_COLUMN && column + 1 + n > HELP_WIDTH) {
            fprintf(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        }
        if (column > HELP_COLUMN)
            column += fprintf(out, " ");
        column += fprintf(out, "%.*s", n, text);
        text += n;
    }
    return column;
}

static int print_name(const struct co_option *o, FILE *out)
{
    int column = o->letter != 0 ? fprintf(out, "  -%c, --%s", o->letter, o->name)
                                : fprintf(out, "      --%s", o->name);
    if (o->value != NULL)
        column += fprintf(out, !o->optional ? " %s" : o->takes_next ? " [%s]" : "[=%s]", o->value);
    if (column + 2 > HELP_COLUMN) {
        fprintf(out, "\n");
        column = 0;
    }
    return column + fprintf(out, "%*s", HELP_COLUMN - column, "");
}

static void print_option(const struct co_option *o, FILE *out)
{
    int column = print_words(o->help, print_name(o, out), out);
    if (o->env != NULL) {
        char variable[80];
        snprintf(variable, sizeof variable, "[%s]", o->env);
        print_words(variable, column, out);
    }
    fprintf(out, "\n");
}

/* The heading, and the options up to the next one. returns the first row of the next group */
static const struct co_option *print_group(const struct co_option *o, FILE *out)
{
    if (o->subject != NULL)
        fprintf(out, "%s:\n", o->subject);
    do {
        if (o->help != NULL)
            print_option(o, out);
        o++;
    } while (o->id != 0 && o->subject == NULL);
    return o;
}

void co_options_print_help(const struct co_option *table, FILE *out)
{
    for (const struct co_option *o = table; o->id != 0;) {
        fputs(o == table ? "" : "\n", out);
        o = print_group(o, out);
    }
}

bool co_options_print_group(const struct co_option *table, const char *topic, FILE *out)
{
    for (const struct co_option *o = table; o->id != 0; o++) {
        if (o->topic != NULL && strcmp(o->topic, topic) == 0) {
            print_group(o, out);
            return true;
        }
    }
    return false;
}

void co_options_print_brief(const struct co_option *table, FILE *out)
{
    for (const struct co_option *o = table; o->id != 0; o++) {
        if (o->brief != NULL) {
            print_words(o->brief, print_name(o, out), out);
            fprintf(out, "\n");
        }
    }
}

void co_options_print_topics(const struct co_option *table, FILE *out)
{
    for (const struct co_option *o = table; o->id != 0; o++)
        if (o->topic != NULL)
            fprintf(out, "  %-14s %s\n", o->topic, o->subject);
}
