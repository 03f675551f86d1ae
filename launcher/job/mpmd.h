/* mpmd.h - several programs in one job: those of the ranks behind the first program's. */
#ifndef DDP_LAUNCHER_JOB_MPMD_H
#define DDP_LAUNCHER_JOB_MPMD_H

#include <stdbool.h>

struct co_error;

#define JOB_PROGRAMS_MAX 32 /* the first one included */

/* What a rank executes: lent by the job. */
struct job_program {
    const char *path;
    char *const *argv; /* NULL-terminated */
    const char *shown;
    int n_program_words;
    bool has_templates, fills_braces;
};

struct mpmd {
    int n; /* >= 1 */
    struct {
        int first_rank;             /* on this node; up to the next one's */
        struct job_program program; /* its texts are owned */
    } of[JOB_PROGRAMS_MAX - 1];
    char **
        words; /* owned, one block: of all programs, ":" between them; NULL until they are joined */
};

/* Add the program of the ranks from first_rank on, more than any before. Made with the first.
 *
 * program   its texts are taken over, unless that fails
 * returns   0; -EINVAL: too many; -ENOMEM */
int mpmd_add(struct mpmd **more, int first_rank, const struct job_program *program,
             struct co_error *err);

/* Make `words`; first are those of the job's first program. returns 0, -ENOMEM */
int mpmd_join(struct mpmd *m, char *const *first, struct co_error *err);

/* A rank's program. returns NULL: it is the job's first */
const struct job_program *mpmd_find(const struct mpmd *m, int local_rank);

/* The first rank of the next program. returns INT_MAX: there is none */
int mpmd_end(const struct mpmd *m, int local_rank);

void mpmd_destroy(struct mpmd *m); /* NULL is fine */

#endif
