#include "rank_argv.h"

#include "job_spec.h"

#include "common/error.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool continues_name(char c)
{
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* Is the '$' at `at` that of the local rank? returns how long it is; 0: no */
static size_t match_local_rank(const char *at)
{
    static const char braced[] = "${local_rank}";
    static const char bare[] = "$local_rank";
    if (strncmp(at, braced, sizeof braced - 1) == 0)
        return sizeof braced - 1;
    if (strncmp(at, bare, sizeof bare - 1) == 0 && !continues_name(at[sizeof bare - 1]))
        return sizeof bare - 1;
    return 0;
}

/* Fill a word in. `to` NULL: only measure. returns its length */
static size_t fill(const char *word, const char *rank, char *to)
{
    size_t n = 0;
    size_t rank_len = strlen(rank);
    for (const char *c = word; *c != '\0';) {
        size_t len = *c == '$' ? match_local_rank(c) : 0;
        if (len > 0) {
            if (to != NULL)
                memcpy(to + n, rank, rank_len);
            n += rank_len;
            c += len;
            continue;
        }
        c += *c == '$' && c[1] == '$';
        if (to != NULL)
            to[n] = *c;
        n++;
        c++;
    }
    if (to != NULL)
        to[n] = '\0';
    return n;
}

int rank_argv_make(const struct job_spec *spec, int local_rank, char ***ret_argv,
                   struct co_error *err)
{
    *ret_argv = NULL;
    if (!spec->has_templates && spec->local_rank_arg == NULL)
        return 0;
    char rank[12];
    snprintf(rank, sizeof rank, "%d", local_rank);

    size_t n = 2; /* the argument in front, the NULL behind */
    size_t bytes =
        spec->local_rank_arg != NULL ? strlen(spec->local_rank_arg) + 1 + sizeof rank : 0;
    for (char **word = spec->argv; *word != NULL; word++, n++)
        bytes += (word == spec->argv ? strlen(*word) : fill(*word, rank, NULL)) + 1;
    char **argv = malloc(n * sizeof *argv + bytes);
    if (argv == NULL)
        return co_fail(err, -ENOMEM, "no memory for the arguments of rank %d", local_rank);

    char **to = argv;
    char *text = (char *)(argv + n);
    for (int i = 0; spec->argv[i] != NULL || i == spec->n_program_words; i++) {
        if (i == spec->n_program_words && spec->local_rank_arg != NULL) {
            *to++ = text;
            text += sprintf(text, "%s=%s", spec->local_rank_arg, rank) + 1;
        }
        if (spec->argv[i] == NULL)
            break;
        *to++ = text;
        if (i == 0) /* the program's own name is no template */
            text = stpcpy(text, spec->argv[i]) + 1;
        else
            text += fill(spec->argv[i], rank, text) + 1;
    }
    *to = NULL;
    *ret_argv = argv;
    return 0;
}
