#include "fake_host_env.h"

#include <errno.h>
#include <fnmatch.h>
#include <string.h>

static const char *fake_get_env(void *arg, const char *name)
{
    const struct fake_host_env *fake = arg;
    size_t n = strlen(name);
    for (const char *const *v = fake->env; *v != NULL; v++)
        if (strncmp(*v, name, n) == 0 && (*v)[n] == '=')
            return *v + n + 1;
    return NULL;
}

static int fake_n_gpus(void *arg)
{
    return ((const struct fake_host_env *)arg)->n_gpus;
}

static int fake_n_cpus(void *arg)
{
    return ((const struct fake_host_env *)arg)->n_cpus;
}

static enum file_kind fake_look_at(void *arg, const char *path)
{
    const struct fake_host_env *fake = arg;
    if (strncmp(path, "./", 2) == 0)
        path += 2;
    for (const struct fake_file *f = fake->files; f->path != NULL; f++)
        if (strcmp(f->path, path) == 0)
            return f->kind;
    return FILE_MISSING;
}

static int fake_read_file(void *arg, const char *path, size_t max, char **ret_text, size_t *ret_len)
{
    const char *text = ((const struct fake_host_env *)arg)->host_file;
    (void)max;
    if (text == NULL || strcmp(path, "hosts") != 0)
        return -ENOENT;
    *ret_text = strdup(text);
    *ret_len = strlen(text);
    return *ret_text != NULL ? 0 : -ENOMEM;
}

static void fake_each_library(void *arg, const char *path,
                              void (*on_name)(void *on_arg, const char *name), void *on_arg)
{
    const struct fake_host_env *fake = arg;
    const char *library = strcmp(path, "./program") == 0       ? fake->mpi
                          : strcmp(path, "/usr/bin/true") == 0 ? fake->other_mpi
                          : strstr(path, "/mpi4py/") == NULL   ? NULL
                          : strstr(path, "openmpi") != NULL    ? "libmpi.so.40"
                                                               : "libmpi.so.12";
    if (library != NULL) {
        on_name(on_arg, "libc.so.6");
        on_name(on_arg, library);
    }
}

static void fake_each_match(void *arg, const char *pattern,
                            void (*on_path)(void *on_arg, const char *path), void *on_arg)
{
    const struct fake_host_env *fake = arg;
    for (const char *const *m = fake->modules; m != NULL && *m != NULL; m++)
        if (fnmatch(pattern, *m, FNM_PATHNAME) == 0)
            on_path(on_arg, *m);
}

static void fake_own_name(void *arg, char *name, size_t n)
{
    const char *own = ((const struct fake_host_env *)arg)->own_name;
    name[0] = '\0';
    strncat(name, own != NULL ? own : "fake", n - 1);
}

static int fake_enter(void *arg, const char *dir)
{
    (void)arg;
    return strcmp(dir, "/there") == 0 ? 0 : -ENOENT;
}

static int fake_fill_random(void *arg, void *bytes, size_t n)
{
    memset(bytes, 0xab, n);
    return ((const struct fake_host_env *)arg)->random_error;
}

static const char *const usual_env[] = {"PATH=/usr/local/bin:/usr/bin", NULL};
static const struct fake_file usual_files[] = {
    {"/usr/bin/python3", FILE_EXECUTABLE},
    {"/usr/bin/true", FILE_EXECUTABLE},
    {"/usr/bin/both", FILE_EXECUTABLE},
    {"/usr/bin/locked", FILE_TEXT},
    {"/usr/bin/folder", FILE_DIRECTORY},
    /* the current directory */
    {"train.py", FILE_TEXT},
    {"tool.py", FILE_EXECUTABLE},
    {"secret.py", FILE_UNREADABLE},
    {"folder.py", FILE_DIRECTORY},
    {"pipe.py", FILE_SPECIAL},
    {"notes", FILE_TEXT},
    {"run.sh", FILE_SCRIPT},
    {"both", FILE_TEXT},
    {"program", FILE_EXECUTABLE},
    {"blob", FILE_BINARY},
    {"secret", FILE_UNREADABLE},
    {"folder", FILE_DIRECTORY},
    {"app", FILE_PYTHON_APP},
    {"app.py", FILE_PYTHON_APP},
    {"-dash.py", FILE_TEXT},
    {"/dev/null", FILE_SPECIAL},
    {NULL},
};
const struct fake_host_env fake_host_env_usual = {
    .env = usual_env, .files = usual_files, .n_gpus = 0, .n_cpus = 8};

struct host_env fake_host_env_make(const struct fake_host_env *fake)
{
    return (struct host_env){
        .get_env = fake_get_env,
        .n_gpus = fake_n_gpus,
        .n_cpus = fake_n_cpus,
        .n_allowed_cpus = fake_n_cpus,
        .look_at = fake_look_at,
        .read_file = fake_read_file,
        .each_library = fake_each_library,
        .each_match = fake_each_match,
        .own_name = fake_own_name,
        .enter = fake_enter,
        .fill_random = fake_fill_random,
        .arg = (void *)fake,
    };
}
