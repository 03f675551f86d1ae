/* wrap.h - --wrap: a command in front of some ranks' own, a debugger or a profiler. Pure. */
#ifndef DDP_LAUNCHER_JOB_WRAP_H
#define DDP_LAUNCHER_JOB_WRAP_H

#include <stdbool.h>

struct co_error;

#define WRAP_RANGES_MAX 32
#define WRAP_WORDS_MAX  64

struct wrap {
    int n_ranges; /* 0: all ranks */
    struct {
        int first, last;
    } ranges[WRAP_RANGES_MAX];       /* numbers in the job */
    char *path;                      /* what is executed; filled in and owned by the caller */
    int n_words;                     /* >= 1 */
    char *words[WRAP_WORDS_MAX + 1]; /* NULL-terminated; in text */
    char text[];
};

/* "COMMAND", or "RANKS:COMMAND" with RANKS as 0,2,4-7. COMMAND is split into words as a shell does
 * it: blanks between them, '' and "" and \ for blanks inside.
 *
 * what      named in messages
 * ret       one block, to free()
 * returns   0; -EINVAL: no command, a quote that does not end, too many words or ranges; -ENOMEM */
int wrap_parse(const char *what, const char *text, struct wrap **ret, struct co_error *err);

/* The greatest rank that is named; -1: none is. */
int wrap_last_rank(const struct wrap *w);

/* Is it this rank's? NULL: nobody's */
bool wrap_covers(const struct wrap *w, int rank);

#endif
