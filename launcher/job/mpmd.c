#include "mpmd.h"

#include "common/error.h"
#include "common/parse.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>

int mpmd_add(struct mpmd **more, int first_rank, const struct job_program *program,
             struct co_error *err)
{
    if (*more == NULL)
        *more = calloc(1, sizeof **more);
    struct mpmd *m = *more;
    if (m == NULL)
        return co_fail(err, -ENOMEM, "no memory for another program");
    if (m->n == JOB_PROGRAMS_MAX - 1)
        return co_fail(err, -EINVAL, "more than %d programs", JOB_PROGRAMS_MAX);
    m->of[m->n].first_rank = first_rank;
    m->of[m->n++].program = *program;
    return 0;
}

int mpmd_join(struct mpmd *m, char *const *first, struct co_error *err)
{
    char *const colon[] = {(char *)":", NULL};
    char *const *lists[2 * JOB_PROGRAMS_MAX] = {first};
    size_t n = 1;
    for (int i = 0; i < m->n; i++) {
        lists[n++] = colon;
        lists[n++] = m->of[i].program.argv;
    }
    char **words = co_join_words(lists, n);
    if (words == NULL)
        return co_fail(err, -ENOMEM, "no memory for the words of %d programs", m->n + 1);
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
