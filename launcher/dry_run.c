#include "dry_run.h"

#include "job_spec.h"
#include "rank_argv.h"
#include "spawn.h"
#include "worker_env.h"

#include "common/error.h"
#include "common/scope.h"

#include <ddp/env.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

void dry_run_print_word(const char *word, FILE *out)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "%+,-./:=@_";
    if (*word != '\0' && word[strspn(word, plain)] == '\0') {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (const char *c = word; *c != '\0'; c++)
        if (*c == '\'')
            fputs("'\\''", out);
        else
            fputc(*c, out);
    fputc('\'', out);
}

static bool has_variable(char *const *env, const char *variable, size_t len)
{
    for (; *env != NULL; env++)
        if (strncmp(*env, variable, len) == 0)
            return true;
    return false;
}

/* "NAME=value" as NAME='value'. */
static void print_variable(const struct job_spec *spec, const char *variable, FILE *out)
{
    static const char port[] = DDP_ENV_MASTER_PORT "=";
    static const char error_file[] = DDP_ENV_ERROR_FILE "=";
    size_t name = strcspn(variable, "=");
    fprintf(out, "    %.*s=", (int)name, variable);
    if (spec->master_port == 0 && strncmp(variable, port, sizeof port - 1) == 0)
        fputs("<free port>", out);
    else if (strncmp(variable, error_file, sizeof error_file - 1) == 0)
        fputs("<a file in the job's folder>", out);
    else if (variable[name] == '=' && variable[name + 1] != '\0')
        dry_run_print_word(variable + name + 1, out);
    fputc('\n', out);
}

static void print_environment(const struct job_spec *spec, char *const *parent, char *const *env,
                              FILE *out)
{
    for (char *const *v = env; *v != NULL; v++)
        if (!has_variable(parent, *v, strlen(*v) + 1))
            print_variable(spec, *v, out);
    for (char *const *v = parent; *v != NULL; v++) {
        size_t name = strcspn(*v, "=");
        if ((*v)[name] == '=' && !has_variable(env, *v, name + 1))
            fprintf(out, "    %.*s is removed\n", (int)name, *v);
    }
}

static int print_rank(const struct job_spec *spec, const struct worker_env *common, int rank,
                      char *const *parent, FILE *out, struct co_error *err)
{
    struct rank_place place = {.rank = rank, .local_rank = rank, .error_file = ""};
    co_autofree char **env = NULL;
    co_autofree char **own = NULL;
    int rc = worker_env_make(common, &place, &env, err);
    if (rc == 0)
        rc = rank_argv_make(spec, rank, &own, err);
    if (rc < 0)
        return rc;
    fprintf(out, "rank %d: ", rank);
    dry_run_print_word(spec->path, out);
    for (char **word = (own != NULL ? own : spec->argv) + 1; *word != NULL; word++) {
        fputc(' ', out);
        dry_run_print_word(*word, out);
    }
    fputc('\n', out);
    print_environment(spec, parent, env, out);
    return 0;
}

int dry_run_print(const struct job_spec *spec, char *const *parent, FILE *out, struct co_error *err)
{
    struct generation_place place = {
        .world_size = spec->n_local,
        .local_world_size = spec->n_local,
        .n_nodes = 1,
        .master_addr = spec->master_addr,
        .master_port = spec->master_port,
        .agent_store = job_spec_agent_store(spec),
        .node_fd = SPAWN_N_FDS - 1,
    };
    struct worker_env *common = NULL;
    int rc = worker_env_create(spec, &place, parent, &common, err);
    for (int rank = 0; rc == 0 && rank < spec->n_local; rank++)
        rc = print_rank(spec, common, rank, parent, out, err);
    worker_env_destroy(common);
    return rc;
}
