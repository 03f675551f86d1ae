#include "mpmd.h"

#include "common/error.h"
#include "common/scope.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

int mpmd_add(struct mpmd **more, int first_rank, struct job_spec *from, struct co_error *err)
{
    if (*more == NULL)
        *more = calloc(1, sizeof **more);
    struct mpmd *m = *more;
    if (m == NULL)
        return co_fail(err, -ENOMEM, "no memory for another program");
    if (m->n == JOB_PROGRAMS_MAX - 1)
        return co_fail(err, -EINVAL, "more than %d programs", JOB_PROGRAMS_MAX);
    m->of[m->n].first_rank = first_rank;
    m->of[m->n].program = job_spec_program(from, 0);
    m->n++;
    from->path = from->shown = NULL;
    from->argv = NULL;
    return 0;
}

static size_t count_words(char *const *words, size_t *bytes)
{
    size_t n = 0;
    for (; words[n] != NULL; n++)
        *bytes += strlen(words[n]) + 1;
    return n;
}

struct joined {
    char **words;
    char *text;
};

static void put(struct joined *j, const char *word)
{
    *j->words++ = j->text;
    j->text = stpcpy(j->text, word) + 1;
}

int mpmd_join(struct mpmd *m, char *const *first, struct co_error *err)
{
    size_t bytes = 0;
    size_t n = count_words(first, &bytes) + 1;
    for (int i = 0; i < m->n; i++, bytes += sizeof ":")
        n += count_words(m->of[i].program.argv, &bytes) + 1;
    char **words = malloc(n * sizeof *words + bytes);
    if (words == NULL)
        return co_fail(err, -ENOMEM, "no memory for the words of %d programs", m->n + 1);
    struct joined j = {.words = words, .text = (char *)(words + n)};
    for (char *const *word = first; *word != NULL; word++)
        put(&j, *word);
    for (int i = 0; i < m->n; i++) {
        put(&j, ":");
        for (char *const *word = m->of[i].program.argv; *word != NULL; word++)
            put(&j, *word);
    }
    *j.words = NULL;
    free(m->words);
    m->words = words;
    return 0;
}

const struct job_program *mpmd_find(const struct mpmd *m, int local_rank)
{
    const struct job_program *found = NULL;
    for (int i = 0; m != NULL && i < m->n && m->of[i].first_rank <= local_rank; i++)
        found = &m->of[i].program;
    return found;
}

int mpmd_end(const struct mpmd *m, int local_rank)
{
    int i = 0;
    while (m != NULL && i < m->n && m->of[i].first_rank <= local_rank)
        i++;
    return m != NULL && i < m->n ? m->of[i].first_rank : INT_MAX;
}

void mpmd_destroy(struct mpmd *m)
{
    if (m == NULL)
        return;
    for (int i = 0; i < m->n; i++) {
        const struct job_program *p = &m->of[i].program;
        free((char *)p->path);
        free((char **)p->argv);
        free((char *)p->shown);
    }
    free(m->words);
    free(m);
}
