/* rank_argv.h - the job's words -> one rank's. Pure.
 *
 * As with torchrun, $local_rank and ${local_rank} in each word after the first stand for the local
 * rank, and any other $ stands for itself. $$local_rank and $${local_rank} stand for the text with
 * one $ less. Under the name torchrun each $$ stands for $; ddprun leaves other $$ unchanged: they
 * are the process ID of a shell.
 *
 * A template is an argument that is nothing but a name in braces: {rank} by itself, not rank={rank}
 * and not {rank} inside a text, since braces mean something to JSON, to shells and to Python. It
 * becomes what the variable of that meaning holds. Other words in braces stay as they are. */
#ifndef DDP_LAUNCHER_JOB_RANK_ARGV_H
#define DDP_LAUNCHER_JOB_RANK_ARGV_H

#include <stdbool.h>

struct co_error;
struct generation_place;
struct job_spec;
struct rank_place;

enum rank_template {
    TEMPLATE_RANK,
    TEMPLATE_LOCAL_RANK,
    TEMPLATE_WORLD_SIZE,
    TEMPLATE_LOCAL_WORLD_SIZE,
    TEMPLATE_NODE_RANK,
    TEMPLATE_NNODES,
    TEMPLATE_MASTER_ADDR,
    TEMPLATE_MASTER_IP,
    TEMPLATE_MASTER_PORT,
    TEMPLATE_RUN_ID,
    TEMPLATE_GENERATION,
    N_TEMPLATES
};

/* Is the whole word a template? returns which; N_TEMPLATES: no */
enum rank_template rank_argv_template(const char *word);

/* Does a '$' in the word stand for the local rank, or is one dropped? */
bool rank_argv_has_dollar(const char *word, bool as_torchrun);

/* The variable of the environment with the same value. Of TEMPLATE_MASTER_IP it is MASTER_ADDR,
 * which may be a name there. */
const char *rank_argv_variable(enum rank_template which);

/* Has the job such an argument, and is it filled in? */
bool rank_argv_uses(const struct job_spec *spec, enum rank_template which);

enum { RANK_NUMBER_BYTES = 12 };

struct rank_values { /* what is filled in */
    int rank, local;
    bool as_torchrun;                   /* what "$$" means */
    char local_rank[RANK_NUMBER_BYTES]; /* for '$', and for spec->local_rank_arg */
    const char *of[N_TEMPLATES];        /* borrowed, or of numbers: don't copy the struct */
    char numbers[N_TEMPLATES][RANK_NUMBER_BYTES];
};

/* {local_rank} is 0 with --virtual-local-rank, as LOCAL_RANK is; '$' has the number on the node. */
void rank_values_fill(struct rank_values *v, const struct job_spec *spec,
                      const struct generation_place *place, const struct rank_place *rank);

/* What it executes: the program, or what is wrapped around it. Lent by spec. */
const char *rank_argv_path(const struct job_spec *spec, const struct rank_values *values);

/* The rank's argv. In the words of spec->wrap templates are filled in wherever they stand.
 *
 * ret_argv  NULL-terminated, one block, owned by the caller; NULL if spec->argv serves all ranks
 *           as it is, which is the usual case and costs nothing
 * returns   0, -ENOMEM */
int rank_argv_make(const struct job_spec *spec, const struct rank_values *values, char ***ret_argv,
                   struct co_error *err);

/* --- --wrap: a command in front of some ranks' own, a debugger or a profiler --- */

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

/* "COMMAND", or "RANKS:COMMAND" with RANKS as 0,2,4-7. COMMAND is split into words like in a shell:
 * words end at blanks, which '', "" or \ can quote.
 *
 * what      named in messages
 * ret       one block, to free()
 * returns   0; -EINVAL: no command, an unclosed quote, more words or ranges than allowed;
 *           -ENOMEM */
int wrap_parse(const char *what, const char *text, struct wrap **ret, struct co_error *err);

/* The greatest rank that is named; -1: none is. */
int wrap_last_rank(const struct wrap *w);

/* Does it apply to this rank? NULL: to none */
bool wrap_covers(const struct wrap *w, int rank);

#endif
