/* From the words after the options to what is executed. program_make() decides by rule and by the
 * kind of file whether it is a script for Python (make_script()), a program in PATH
 * (make_searched()) or a path (make_exec()); make_python() looks for an interpreter in the order
 * that torchrun has (find_python()); settle() writes the answer into the job_spec. Read
 * program_make() first. */
#include "program.h"

#include "common/error.h"
#include "common/parse.h"
#include "common/scope.h"
#include "job_spec.h"
#include "launcher/platform/host_env.h"
#include "rank_argv.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin" /* where PATH is unset */

static int no_memory(struct co_error *err)
{
    return co_fail(err, -ENOMEM, "out of memory");
}

/* Search PATH as a shell does.
 *
 * returns   0, -ENOENT, -EACCES (only files that may not be executed), -ENOMEM; no text */
static int find_in_path(const struct host_env *world, const char *name, char **ret_path)
{
    const char *path = world->get_env(world->arg, "PATH");
    bool forbidden = false;
    if (path == NULL)
        path = DEFAULT_PATH;
    for (const char *dir = path;; dir++) {
        int n = (int)strcspn(dir, ":");
        co_autofree char *candidate = co_format("%.*s/%s", n > 0 ? n : 1, n > 0 ? dir : ".", name);
        if (candidate == NULL)
            return -ENOMEM;
        enum file_kind kind = world->look_at(world->arg, candidate);
        if (kind == FILE_EXECUTABLE) {
            *ret_path = co_take(&candidate);
            return 0;
        }
        forbidden = forbidden || kind == FILE_TEXT || kind == FILE_SCRIPT || kind == FILE_BINARY ||
                    kind == FILE_UNREADABLE;
        dir += n;
        if (*dir == '\0')
            return forbidden ? -EACCES : -ENOENT;
    }
}

static int look_below(const struct host_env *world, const char *dir, size_t len, const char *name,
                      enum file_kind *ret_kind, char **ret_path)
{
    *ret_path = co_format("%.*s/%s", (int)len, dir, name);
    if (*ret_path == NULL)
        return -ENOMEM;
    *ret_kind = world->look_at(world->arg, *ret_path);
    return 0;
}

static int find_python_in(const struct host_env *world, const char *dir, size_t len,
                          char **ret_path)
{
    static const char *const names[] = {"python3", "python"};
    for (int i = 0; i < 2; i++) {
        co_autofree char *candidate = NULL;
        enum file_kind kind;
        int rc = look_below(world, dir, len, names[i], &kind, &candidate);
        if (rc < 0)
            return rc;
        if (kind == FILE_EXECUTABLE) {
            *ret_path = co_take(&candidate);
            return 0;
        }
    }
    return -ENOENT;
}

/* An environment's own python, if it has one. */
static int find_python_of(const struct host_env *world, const char *variable, char **ret_path)
{
    const char *prefix = host_env_get(world, variable);
    if (prefix == NULL)
        return -ENOENT;
    co_autofree char *bin = co_format("%s/bin", prefix);
    return bin != NULL ? find_python_in(world, bin, strlen(bin), ret_path) : -ENOMEM;
}

/* That of the environment in whose bin ddprun is, if it was called by its path there: torchrun is
 * called so where no environment is active, and means that one. */
static int find_python_beside(const struct host_env *world, const char *called_as, char **ret_path)
{
    static const char *const marks[] = {"../pyvenv.cfg", "../conda-meta"};
    const char *slash = called_as != NULL ? strrchr(called_as, '/') : NULL;
    for (int i = 0; slash != NULL && i < 2; i++) {
        const size_t len = (size_t)(slash - called_as);
        co_autofree char *mark = NULL;
        enum file_kind kind;
        int rc = look_below(world, called_as, len, marks[i], &kind, &mark);
        if (rc < 0)
            return rc;
        if (kind != FILE_MISSING)
            return find_python_in(world, called_as, len, ret_path);
    }
    return -ENOENT;
}

static int find_python(const struct host_env *world, const char *script, const char *called_as,
                       char **ret_path, struct co_error *err)
{
    const char *asked = host_env_get(world, "PYTHON_EXEC");
    int rc = -ENOENT;
    if (asked != NULL && strchr(asked, '/') != NULL) {
        if (world->look_at(world->arg, asked) == FILE_EXECUTABLE) {
            *ret_path = strdup(asked);
            return *ret_path != NULL ? 0 : no_memory(err);
        }
    } else if (asked != NULL) {
        rc = find_in_path(world, asked, ret_path);
    } else {
        rc = find_python_beside(world, called_as, ret_path);
        if (rc == -ENOENT)
            rc = find_python_of(world, "VIRTUAL_ENV", ret_path);
        if (rc == -ENOENT)
            rc = find_python_of(world, "CONDA_PREFIX", ret_path);
        if (rc == -ENOENT)
            rc = find_in_path(world, "python3", ret_path);
        if (rc == -ENOENT || rc == -EACCES)
            rc = find_in_path(world, "python", ret_path);
    }
    if (rc == 0)
        return 0;
    if (rc == -ENOMEM)
        return no_memory(err);
    if (asked != NULL)
        return co_fail(err, -ENOENT,
                       "PYTHON_EXEC is '%.200s', which is not an executable program; set it to the "
                       "path of a Python",
                       asked);
    return co_fail(err, -ENOENT,
                   "no Python found to run '%.200s': python3 is not in PATH; install it, activate "
                   "an environment, or set PYTHON_EXEC",
                   script);
}

/* What is executed is known: write it down.
 *
 * first     what executes the program; program: as it is called there */
static int settle(char **path, char *const *first, char *program, char *const *words,
                  struct job_spec *spec, struct co_error *err)
{
    char *const named[] = {program, NULL};
    co_autofree char **argv = co_join_words((char *const *const[]){first, named, words + 1}, 3);
    co_autofree char *name = strdup(words[0]);
    if (argv == NULL || name == NULL)
        return no_memory(err);
    int n = (int)co_count_words(first) + 1;
    bool is_executed = n == 1 && !spec->as_torchrun;
    if (!is_executed && argv[n] != NULL && strcmp(argv[n], "--") == 0)
        for (char **word = argv + n; *word != NULL; word++)
            word[0] = word[1];
    spec->n_program_words = n;
    spec->fills_braces =
        spec->templates == TEMPLATES_YES || (spec->templates == TEMPLATES_AUTO && is_executed);
    for (char **word = argv + 1; argv[0] != NULL && *word != NULL; word++)
        if (rank_argv_has_dollar(*word, spec->as_torchrun) ||
            (spec->fills_braces && rank_argv_template(*word) != N_TEMPLATES))
            spec->has_templates = true;
    spec->path = co_take(path);
    spec->argv = co_take(&argv);
    spec->shown = co_take(&name);
    return 0;
}

/* What runpy.run_path() needs around it: sys.argv as the script shall see it. No '$' in here. */
static const char run_path_code[] =
    "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')";

static int make_python(enum program_rule rule, char *const *words, const struct host_env *world,
                       struct job_spec *spec, struct co_error *err)
{
    co_autofree char *python = NULL;
    int rc = find_python(world, words[0], spec->called_as, &python, err);
    if (rc < 0)
        return rc;
    const char *first[] = {python, "-u", NULL, NULL, NULL};
    if (rule == PROGRAM_MODULE) {
        first[2] = "-m";
    } else if (rule == PROGRAM_RUN_PATH) {
        first[2] = "-c";
        first[3] = run_path_code;
    }
    /* "-x.py" would be an option of Python's */
    co_autofree char *here = co_format("./%s", words[0]);
    if (here == NULL)
        return no_memory(err);
    spec->is_python = true;
    return settle(&python, (char *const *)first,
                  rule == PROGRAM_SCRIPT && words[0][0] == '-' ? here : words[0], words, spec, err);
}

static int make_exec(char *const *words, char **path, struct job_spec *spec, struct co_error *err)
{
    return settle(path, (char *const[]){NULL}, words[0], words, spec, err);
}

/* A file that exists and is not for us. */
static int fail_forbidden(const char *name, enum file_kind kind, struct co_error *err)
{
    const char *here = strchr(name, '/') == NULL ? "./" : "";
    switch (kind) {
    case FILE_DIRECTORY:
        return co_fail(err, -EACCES, "'%.400s' is a directory, not a program; give the file to run",
                       name);
    case FILE_SPECIAL:
        return co_fail(err, -EACCES,
                       "'%.400s' is a device or a pipe, not a program; give the file to run", name);
    case FILE_UNREADABLE:
        return co_fail(err, -EACCES,
                       "no permission to read or execute '%.400s'; check its mode and those of its "
                       "directories",
                       name);
    case FILE_PYTHON_APP:
        return co_fail(err, -EACCES, "'%.400s' is a Python script; leave out --no-python", name);
    case FILE_BINARY:
        return co_fail(err, -EACCES,
                       "'%.400s' is a binary file without the permission to execute it: try chmod "
                       "+x %s%.400s",
                       name, here, name);
    default:
        return co_fail(err, -EACCES, "'%.400s' is not executable: try chmod +x %s%.400s", name,
                       here, name);
    }
}

static int make_script(enum program_rule rule, char *const *words, const struct host_env *world,
                       struct job_spec *spec, struct co_error *err)
{
    enum file_kind kind = world->look_at(world->arg, words[0]);
    if (kind == FILE_MISSING && strchr(words[0], '$') == NULL) /* else each rank has its own */
        return co_fail(err, -ENOENT, "no such script: '%.400s'; check its path", words[0]);
    if (kind == FILE_UNREADABLE)
        return fail_forbidden(words[0], kind, err);
    return make_python(rule, words, world, spec, err);
}

static bool is_for_python(enum file_kind kind)
{
    return kind == FILE_TEXT || kind == FILE_PYTHON_APP;
}

/* A name without '/'. */
static int make_searched(enum program_rule rule, char *const *words, const struct host_env *world,
                         struct job_spec *spec, struct co_error *err)
{
    const char *name = words[0];
    co_autofree char *path = NULL;
    int rc = *name == '\0' ? -ENOENT : find_in_path(world, name, &path);
    if (rc == 0)
        return make_exec(words, &path, spec, err);
    if (rc == -ENOMEM)
        return no_memory(err);
    enum file_kind here = *name == '\0' ? FILE_MISSING : world->look_at(world->arg, name);
    if (is_for_python(here) && rule == PROGRAM_BY_FILE)
        return make_python(PROGRAM_SCRIPT, words, world, spec, err);
    if (here == FILE_EXECUTABLE)
        return co_fail(err, -ENOENT,
                       "no program '%.400s' in PATH, but it exists in this directory: try ./%.400s",
                       name, name);
    if (here != FILE_MISSING)
        return fail_forbidden(name, here, err);
    if (rc == -EACCES)
        return co_fail(err, -EACCES, "the only '%.400s' in PATH is not executable; use chmod +x",
                       name);
    return co_fail(err, -ENOENT,
                   "no program '%.400s' in PATH; give its path, or add its directory to PATH",
                   name);
}

int program_make(enum program_rule rule, char *const *words, const struct host_env *world,
                 struct job_spec *spec, struct co_error *err)
{
    const char *name = words[0];
    if (rule == PROGRAM_MODULE)
        return make_python(rule, words, world, spec, err);
    if (rule == PROGRAM_SCRIPT || rule == PROGRAM_RUN_PATH)
        return make_script(rule, words, world, spec, err);
    size_t len = strlen(name);
    if (rule == PROGRAM_BY_FILE && len > 3 && strcmp(name + len - 3, ".py") == 0) {
        enum file_kind kind = world->look_at(world->arg, name);
        if (kind == FILE_DIRECTORY || kind == FILE_SPECIAL)
            return fail_forbidden(name, kind, err);
        return make_script(PROGRAM_SCRIPT, words, world, spec, err);
    }
    if (strchr(name, '/') == NULL)
        return make_searched(rule, words, world, spec, err);

    enum file_kind kind = world->look_at(world->arg, name);
    if (kind == FILE_MISSING)
        return co_fail(err, -ENOENT, "no such program: '%.400s'; check its path", name);
    if (is_for_python(kind) && rule == PROGRAM_BY_FILE)
        return make_python(PROGRAM_SCRIPT, words, world, spec, err);
    if (kind != FILE_EXECUTABLE)
        return fail_forbidden(name, kind, err);
    co_autofree char *path = strdup(name);
    if (path == NULL)
        return no_memory(err);
    return make_exec(words, &path, spec, err);
}

int program_find(const char *name, const struct host_env *world, char **ret_path,
                 struct co_error *err)
{
    bool is_searched = strchr(name, '/') == NULL;
    enum file_kind kind = is_searched ? FILE_MISSING : world->look_at(world->arg, name);
    int rc = is_searched               ? find_in_path(world, name, ret_path)
             : kind == FILE_EXECUTABLE ? 0
             : kind == FILE_MISSING    ? -ENOENT
                                       : -EACCES;
    if (rc == -EACCES)
        return co_fail(err, rc, "'%.200s' is not executable; use chmod +x", name);
    if (rc == -ENOENT)
        return co_fail(err, rc, "no program '%.200s'%s", name, is_searched ? " in PATH" : "");
    if (rc == 0 && !is_searched)
        *ret_path = strdup(name);
    return rc == 0 && *ret_path != NULL ? 0 : no_memory(err);
}
