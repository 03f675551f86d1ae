/* The words of one rank. put_all() writes them twice: once to measure (words NULL), once into the
 * block. Each word goes through fill_word(), which replaces a whole word that is a template or
 * fills in what a '$' stands for; words of --wrap go through fill_wrap(). Read put_all() first,
 * then fill_word(). */
#include "rank_argv.h"

#include "job_spec.h"
#include "worker_env.h"

#include "common/error.h"
#include "common/scope.h"

#include <ctype.h>
#include <ddp/env.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *word, *variable;
} templates[N_TEMPLATES] = {
    [TEMPLATE_RANK] = {"{rank}", DDP_ENV_RANK},
    [TEMPLATE_LOCAL_RANK] = {"{local_rank}", DDP_ENV_LOCAL_RANK},
    [TEMPLATE_WORLD_SIZE] = {"{world_size}", DDP_ENV_WORLD_SIZE},
    [TEMPLATE_LOCAL_WORLD_SIZE] = {"{local_world_size}", DDP_ENV_LOCAL_WORLD_SIZE},
    [TEMPLATE_NODE_RANK] = {"{node_rank}", DDP_ENV_GROUP_RANK},
    [TEMPLATE_NNODES] = {"{nnodes}", DDP_ENV_GROUP_WORLD_SIZE},
    [TEMPLATE_MASTER_ADDR] = {"{master_addr}", DDP_ENV_MASTER_ADDR},
    [TEMPLATE_MASTER_IP] = {"{master_ip}", DDP_ENV_MASTER_ADDR},
    [TEMPLATE_MASTER_PORT] = {"{master_port}", DDP_ENV_MASTER_PORT},
    [TEMPLATE_RUN_ID] = {"{run_id}", DDP_ENV_RUN_ID},
    [TEMPLATE_GENERATION] = {"{generation}", DDP_ENV_GENERATION},
};

enum rank_template rank_argv_template(const char *word)
{
    int i = 0;
    if (word[0] != '{')
        return N_TEMPLATES;
    while (i < N_TEMPLATES && strcmp(templates[i].word, word) != 0)
        i++;
    return (enum rank_template)i;
}

const char *rank_argv_variable(enum rank_template which)
{
    return templates[which].variable;
}

bool rank_argv_uses(const struct job_spec *spec, enum rank_template which)
{
    for (int i = 0; spec->wrap != NULL && i < spec->wrap->n_words; i++)
        if (strstr(spec->wrap->words[i], templates[which].word) != NULL)
            return true;
    for (int rank = 0; rank < spec->n_local; rank = mpmd_end(spec->more, rank)) {
        struct job_program p = job_spec_program(spec, rank);
        for (char *const *word = p.argv + p.n_program_words; p.fills_braces && *word != NULL;
             word++)
            if (rank_argv_template(*word) == which)
                return true;
    }
    return false;
}

static void set_value(struct rank_values *v, enum rank_template which, int64_t number)
{
    snprintf(v->numbers[which], RANK_NUMBER_BYTES, "%" PRId64, number);
    v->of[which] = v->numbers[which];
}

void rank_values_fill(struct rank_values *v, const struct job_spec *spec,
                      const struct generation_place *place, const struct rank_place *rank)
{
    v->rank = rank->rank;
    v->local = rank->local_rank;
    snprintf(v->local_rank, sizeof v->local_rank, "%d", rank->local_rank);
    set_value(v, TEMPLATE_RANK, rank->rank);
    set_value(v, TEMPLATE_LOCAL_RANK, spec->virtual_local_rank ? 0 : rank->local_rank);
    set_value(v, TEMPLATE_WORLD_SIZE, place->world_size);
    set_value(v, TEMPLATE_LOCAL_WORLD_SIZE, place->local_world_size);
    set_value(v, TEMPLATE_NODE_RANK, place->node_rank);
    set_value(v, TEMPLATE_NNODES, place->n_nodes);
    v->of[TEMPLATE_MASTER_ADDR] = place->master_addr;
    v->of[TEMPLATE_MASTER_IP] = place->master_ip != NULL ? place->master_ip : place->master_addr;
    set_value(v, TEMPLATE_MASTER_PORT, place->master_port);
    v->of[TEMPLATE_RUN_ID] = spec->run_id;
    set_value(v, TEMPLATE_GENERATION, place->generation);
    v->as_torchrun = spec->as_torchrun;
}

/* Is the '$' at `at` that of the local rank? returns how long it is; 0: no */
static size_t match_local_rank(const char *at)
{
    static const char braced[] = "${local_rank}";
    static const char bare[] = "$local_rank";
    if (strncmp(at, braced, sizeof braced - 1) == 0)
        return sizeof braced - 1;
    if (strncmp(at, bare, sizeof bare - 1) == 0 && at[sizeof bare - 1] != '_' &&
        !isalnum((unsigned char)at[sizeof bare - 1]))
        return sizeof bare - 1;
    return 0;
}

/* Is the first '$' of the two at `at` dropped? torchrun drops it from each pair, as Python's
 * string.Template does. ddprun keeps "$$", the process ID of a shell, unless the second '$' would
 * stand for the local rank otherwise. */
static bool is_escape(const char *at, bool as_torchrun)
{
    return at[0] == '$' && at[1] == '$' && (as_torchrun || match_local_rank(at + 1) > 0);
}

bool rank_argv_has_dollar(const char *word, bool as_torchrun)
{
    const char *at = strchr(word, '$');
    while (at != NULL && match_local_rank(at) == 0 && !is_escape(at, as_torchrun))
        at = strchr(at + 1, '$');
    return at != NULL;
}

/* Fill in what a '$' stands for. `to` NULL: only measure. returns the word's length */
static size_t fill_dollars(const char *word, const char *local_rank, bool as_torchrun, char *to)
{
    size_t n = 0;
    size_t rank_len = strlen(local_rank);
    for (const char *c = word; *c != '\0';) {
        size_t len = *c == '$' ? match_local_rank(c) : 0;
        if (len > 0) {
            if (to != NULL)
                memcpy(to + n, local_rank, rank_len);
            n += rank_len;
            c += len;
            continue;
        }
        c += is_escape(c, as_torchrun);
        if (to != NULL)
            to[n] = *c;
        n++;
        c++;
    }
    if (to != NULL)
        to[n] = '\0';
    return n;
}

/* The job's word number i for this rank. `to` NULL: only measure. returns its length */
static size_t fill_word(const struct job_program *p, int i, const struct rank_values *v, char *to)
{
    const char *word = p->argv[i];
    enum rank_template which = N_TEMPLATES;
    if (p->fills_braces && i >= p->n_program_words)
        which = rank_argv_template(word);
    if (i > 0 && which == N_TEMPLATES)
        return fill_dollars(word, v->local_rank, v->as_torchrun, to);
    if (which != N_TEMPLATES)
        word = v->of[which];
    if (to != NULL) /* as it is: also the program's own name, which is not a template */
        strcpy(to, word);
    return strlen(word);
}

/* A word of the wrapping command: it is written for us, so braces mean templates anywhere. */
static size_t fill_wrap(const char *word, const struct rank_values *v, char *to)
{
    size_t n = 0;
    for (const char *c = word; *c != '\0'; c++) {
        size_t len = *c == '{' ? strcspn(c, "}") + 1 : 0;
        int which = 0;
        while (which < N_TEMPLATES && (len != strlen(templates[which].word) ||
                                       strncmp(templates[which].word, c, len) != 0))
            which++;
        const char *text = which < N_TEMPLATES ? v->of[which] : c;
        size_t n_text = which < N_TEMPLATES ? strlen(text) : 1;
        if (to != NULL)
            memcpy(to + n, text, n_text);
        n += n_text;
        c += which < N_TEMPLATES ? len - 1 : 0;
    }
    if (to != NULL)
        to[n] = '\0';
    return n;
}

const char *rank_argv_path(const struct job_spec *spec, const struct rank_values *values)
{
    return wrap_covers(spec->wrap, values->rank) ? spec->wrap->path
                                                 : job_spec_program(spec, values->local).path;
}

struct writer {
    char **words; /* NULL: only measure */
    char *text;
    size_t n, bytes;
};

/* Where the next word goes. NULL: only measure */
static char *begin_word(struct writer *w)
{
    if (w->words != NULL)
        w->words[w->n] = w->text + w->bytes;
    w->n++;
    return w->words != NULL ? w->text + w->bytes : NULL;
}

static void put_local_rank(struct writer *w, const struct job_spec *spec,
                           const struct rank_values *v)
{
    char *to = begin_word(w);
    size_t n = strlen(spec->local_rank_arg) + 1 + strlen(v->local_rank) + 1;
    if (to != NULL)
        snprintf(to, n, "%s=%s", spec->local_rank_arg, v->local_rank);
    w->bytes += n;
}

static void put_all(struct writer *w, const struct job_spec *spec, const struct rank_values *v)
{
    struct job_program p = job_spec_program(spec, v->local);
    int i = 0;
    if (wrap_covers(spec->wrap, v->rank)) { /* in front of what is executed, by its path */
        for (char *const *word = spec->wrap->words; *word != NULL; word++)
            w->bytes += fill_wrap(*word, v, begin_word(w)) + 1;
        char *to = begin_word(w);
        if (to != NULL)
            strcpy(to, p.path);
        w->bytes += strlen(p.path) + 1;
        i = 1;
    }
    for (;; i++) {
        if (i == p.n_program_words && spec->local_rank_arg != NULL)
            put_local_rank(w, spec, v);
        if (p.argv[i] == NULL)
            return;
        w->bytes += fill_word(&p, i, v, begin_word(w)) + 1;
    }
}

int rank_argv_make(const struct job_spec *spec, const struct rank_values *values, char ***ret_argv,
                   struct co_error *err)
{
    *ret_argv = NULL;
    if (!job_spec_program(spec, values->local).has_templates && spec->local_rank_arg == NULL &&
        !wrap_covers(spec->wrap, values->rank))
        return 0;
    struct writer measure = {0};
    put_all(&measure, spec, values);
    char **argv = malloc((measure.n + 1) * sizeof *argv + measure.bytes);
    if (argv == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    struct writer writer = {.words = argv, .text = (char *)(argv + measure.n + 1)};
    put_all(&writer, spec, values);
    argv[measure.n] = NULL;
    *ret_argv = argv;
    return 0;
}

/* --- --wrap --- */

enum { RANK_DIGITS = 7 };

static const char rank_chars[] = "0123456789,-";

/* Take a number from *at. returns -1: no number */
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
            return co_fail(err, -EINVAL,
                           "invalid value '%.200s' for %s: expected at most %d ranges of ranks",
                           text, what, WRAP_RANGES_MAX);
        int first = take_rank(&at);
        int last = first;
        if (*at == '-') {
            at++;
            last = take_rank(&at);
        }
        if (first < 0 || last < first || (*at != ',' && *at != ':'))
            return co_fail(err, -EINVAL,
                           "invalid value '%.200s' for %s: expected a list of ranks such as "
                           "0,2,4-7: before the command",
                           text, what);
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

static int split_command(const char *what, const char *command, struct wrap *w,
                         struct co_error *err)
{
    char *to = w->text;
    for (const char *at = command;;) {
        while (is_blank(*at))
            at++;
        if (*at == '\0')
            break;
        if (w->n_words == WRAP_WORDS_MAX)
            return co_fail(err, -EINVAL, "%s: too many words: at most %d are allowed", what,
                           WRAP_WORDS_MAX);
        w->words[w->n_words++] = to;
        to = take_word(&at, to);
        if (to == NULL)
            return co_fail(err, -EINVAL, "invalid value '%.200s' for %s: unterminated quote",
                           command, what);
    }
    if (w->n_words == 0 || w->words[0][0] == '\0')
        return co_fail(err, -EINVAL, "%s requires a command", what);
    return 0;
}

int wrap_parse(const char *what, const char *text, struct wrap **ret, struct co_error *err)
{
    co_autofree struct wrap *w = calloc(1, sizeof *w + strlen(text) + 1);
    if (w == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    size_t n_ranks = strspn(text, rank_chars);
    bool has_ranks = text[n_ranks] == ':';
    int rc = (has_ranks ? parse_ranges(what, text, w, err) : 0)
                 ?: split_command(what, has_ranks ? text + n_ranks + 1 : text, w, err);
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
