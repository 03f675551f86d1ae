/* program.h - the words after the options -> what is executed.
 *
 * ddprun NAME.py, ddprun NAME of a text file that is not executable and names no other interpreter
 * in its first line, of a directory with a __main__.py, or of a zip archive: `python -u`.
 * Everything else is executed, searched in PATH when it has no '/'. The Python is $PYTHON_EXEC,
 * else the one next to ddprun, if ddprun was called by its path in a Python environment, else
 * $VIRTUAL_ENV's, else $CONDA_PREFIX's, else python3 or python of PATH. */
#ifndef DDP_LAUNCHER_JOB_PROGRAM_H
#define DDP_LAUNCHER_JOB_PROGRAM_H

struct host_env;
struct co_error;
struct job_spec;

enum program_rule {
    PROGRAM_BY_FILE,  /* as described above */
    PROGRAM_MODULE,   /* -m: `python -u -m` */
    PROGRAM_SCRIPT,   /* torchrun: always `python -u` */
    PROGRAM_RUN_PATH, /* --run-path: `python -u`, and runpy.run_path() of the script in it */
    PROGRAM_EXEC      /* --no-python: always execute it */
};

/* Fill spec's path, argv and shown, which must be NULL, n_program_words, has_templates and
 * fills_braces; spec->templates and spec->called_as are read. A `--` right after what Python runs,
 * or under the name torchrun after any program, is dropped, as torchrun's parser does.
 *
 * words     the program (or module) and its arguments, NULL-terminated, at least one
 * returns   0
 *           -ENOENT   no such program, or no Python for it: exit 127. If a file of that name is in
 *                     the current directory, the text mentions it
 *           -EACCES   a directory, no execute permission, not readable for Python: exit 126
 *           -ENOMEM */
int program_make(enum program_rule rule, char *const *words, const struct host_env *world,
                 struct job_spec *spec, struct co_error *err);

/* A program to execute, searched in PATH when it has no '/'.
 *
 * ret_path  owned by the caller
 * returns   0, -ENOENT, -EACCES, -ENOMEM: as program_make() */
int program_find(const char *name, const struct host_env *world, char **ret_path,
                 struct co_error *err);

#endif
