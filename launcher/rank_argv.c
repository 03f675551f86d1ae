#include "rank_argv.h"

#include "job_spec.h"
#include "worker_env.h"

#include "common/error.h"

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
    if (!spec->fills_braces)
        return false;
    char **word = spec->argv + spec->n_program_words;
    while (*word != NULL && rank_argv_template(*word) != which)
        word++;
    return *word != NULL;
}

static void set_number(struct rank_values *v, enum rank_template which, int64_t number)
{
    snprintf(v->numbers[which], RANK_NUMBER_BYTES, "%" PRId64, number);
    v->of[which] = v->numbers[which];
}

void rank_values_fill(struct rank_values *v, const struct job_spec *spec,
                      const struct generation_place *place, const struct rank_place *rank)
{
    snprintf(v->local_rank, sizeof v->local_rank, "%d", rank->local_rank);
    set_number(v, TEMPLATE_RANK, rank->rank);
    set_number(v, TEMPLATE_LOCAL_RANK, spec->virtual_local_rank ? 0 : rank->local_rank);
    set_number(v, TEMPLATE_WORLD_SIZE, place->world_size);
    set_number(v, TEMPLATE_LOCAL_WORLD_SIZE, place->local_world_size);
    set_number(v, TEMPLATE_NODE_RANK, place->node_rank);
    set_number(v, TEMPLATE_NNODES, place->n_nodes);
    v->of[TEMPLATE_MASTER_ADDR] = place->master_addr;
    v->of[TEMPLATE_MASTER_IP] = place->master_ip != NULL ? place->master_ip : place->master_addr;
    set_number(v, TEMPLATE_MASTER_PORT, place->master_port);
    v->of[TEMPLATE_RUN_ID] = spec->run_id;
    set_number(v, TEMPLATE_GENERATION, place->generation);
}

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

/* Fill in what a '$' stands for. `to` NULL: only measure. returns the word's length */
static size_t fill_dollars(const char *word, const char *local_rank, char *to)
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

/* The job's word number i for this rank. `to` NULL: only measure. returns its length */
static size_t fill(const struct job_spec *spec, int i, const struct rank_values *v, char *to)
{
    const char *word = spec->argv[i];
    enum rank_template which = N_TEMPLATES;
    if (spec->fills_braces && i >= spec->n_program_words)
        which = rank_argv_template(word);
    if (i > 0 && which == N_TEMPLATES)
        return fill_dollars(word, v->local_rank, to);
    if (which != N_TEMPLATES)
        word = v->of[which];
    if (to != NULL) /* as it is: also the program's own name, which is no template */
        strcpy(to, word);
    return strlen(word);
}

int rank_argv_make(const struct job_spec *spec, const struct rank_values *values, char ***ret_argv,
                   struct co_error *err)
{
    *ret_argv = NULL;
    if (!spec->has_templates && spec->local_rank_arg == NULL)
        return 0;
    size_t n = 2; /* the argument in front, the NULL behind */
    size_t bytes = spec->local_rank_arg != NULL
                       ? strlen(spec->local_rank_arg) + 1 + sizeof values->local_rank
                       : 0;
    for (int i = 0; spec->argv[i] != NULL; i++, n++)
        bytes += fill(spec, i, values, NULL) + 1;
    char **argv = malloc(n * sizeof *argv + bytes);
    if (argv == NULL)
        return co_fail(err, -ENOMEM, "no memory for the arguments of rank %s",
                       values->of[TEMPLATE_RANK]);

    char **to = argv;
    char *text = (char *)(argv + n);
    for (int i = 0; spec->argv[i] != NULL || i == spec->n_program_words; i++) {
        if (i == spec->n_program_words && spec->local_rank_arg != NULL) {
            *to++ = text;
            text += sprintf(text, "%s=%s", spec->local_rank_arg, values->local_rank) + 1;
        }
        if (spec->argv[i] == NULL)
            break;
        *to++ = text;
        text += fill(spec, i, values, text) + 1;
    }
    *to = NULL;
    *ret_argv = argv;
    return 0;
}
