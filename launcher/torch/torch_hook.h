/* torch_hook.h - torch's worker server in ranks that do not start it: a module that Python runs
 * before the script, out of an archive in front of PYTHONPATH (python/sitecustomize.py).
 *
 * As soon as a process has imported torch.distributed, it has the server, at DIR/torch.PID. The
 * script finds no trace of the archive, and a sitecustomize of the user's runs afterwards. A Python
 * that ignores PYTHONPATH (-I, -E, -S) has no server. */
#ifndef DDP_LAUNCHER_TORCH_TORCH_HOOK_H
#define DDP_LAUNCHER_TORCH_TORCH_HOOK_H

#include <stddef.h>
#include <sys/types.h>

struct co_error;

struct torch_hook {
    char *archive;   /* owned; NULL: none is wanted */
    const char *dir; /* borrowed */
    char **env;      /* owned, with the words that are new in it */
};

/* Write the archive into the runtime directory.
 *
 * dir           borrowed until torch_hook_close()
 * environment   as `environ`; its strings are borrowed until then
 * returns       0, -ENOMEM, -ENAMETOOLONG (no socket can be there), -EINVAL (':' in its name),
 *               -errno */
int torch_hook_open(struct torch_hook *h, const char *dir, char *const *environment,
                    struct co_error *err);
void torch_hook_close(struct torch_hook *h); /* a zeroed one is fine */

/* What ranks get as the parent's environment. Without an archive: environment itself. */
char *const *torch_hook_environment(const struct torch_hook *h, char *const *environment);

/* The servers that are there: calls on_server() for each, some thousand at most, with the pid in
 * its name; the process may have ended. */
void torch_hook_list(const struct torch_hook *h,
                     void (*on_server)(void *arg, pid_t pid, const char *path), void *arg);

/* The module in a zip file, as Python imports it. Made by the build. */
extern const unsigned char torch_archive[];
extern const size_t torch_archive_bytes;

#endif
