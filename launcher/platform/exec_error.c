#include "exec_error.h"

#include "common/error.h"
#include "common/scope.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The file's first line, as far as it fits; "" if it can't be read or is not text. */
static void read_first_line(const char *path, char *line, size_t size)
{
    line[0] = '\0';
    co_autoclose_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ssize_t n = fd < 0 ? -1 : read(fd, line, size - 1);
    line[n > 0 ? n : 0] = '\0';
    line[strcspn(line, "\n")] = '\0';
}

/* execve fails with ENOENT and EACCES for the interpreter as it does for the file itself. */
static int explain_interpreter(const char *path, const char *line, int error, struct co_error *err)
{
    const char *name = line + 2 + strspn(line + 2, " \t");
    int n = (int)strcspn(name, " \t");
    if (n > 0 && name[n - 1] == '\r')
        return co_fail(
            err, -ENOENT,
            "cannot execute '%.400s': its first line ends in CR LF, so that its interpreter would "
            "be '%.*s\\r'; save it with LF line ends (sed -i 's/\\r$//' FILE)",
            path, n - 1, name);
    if (error == ENOENT)
        return co_fail(
            err, -ENOENT,
            "cannot execute '%.400s': its first line names the interpreter '%.*s', which "
            "cannot be found; install it, or correct the line",
            path, n, name);
    return co_fail(err, -EACCES,
                   "cannot execute '%.400s': its first line names the interpreter '%.*s', which is "
                   "not executable; use chmod +x on it",
                   path, n, name);
}

int exec_error_explain(const char *path, int error, struct co_error *err)
{
    char line[256]; /* the kernel reads as much */
    struct stat file;
    if (stat(path, &file) < 0)
        return co_fail(err, error == EACCES ? -EACCES : -ENOENT, "cannot execute '%.400s': %s",
                       path, strerror(errno));
    if (S_ISDIR(file.st_mode))
        return co_fail(err, -EACCES, "'%.400s' is a directory, not a program; give the file to run",
                       path);
    read_first_line(path, line, sizeof line);
    bool named = strncmp(line, "#!", 2) == 0;
    bool executable = access(path, X_OK) == 0;
    if (named && executable && (error == ENOENT || error == EACCES || error == ENOTDIR))
        return explain_interpreter(path, line, error == EACCES ? EACCES : ENOENT, err);
    switch (error) {
    case ENOENT:
        return co_fail(err, -ENOENT,
                       "cannot execute '%.400s': its dynamic loader is missing; build it on this "
                       "system, or install the loader",
                       path);
    case EACCES:
        return co_fail(err, -EACCES, "cannot execute '%.400s': %s", path,
                       executable ? "permission denied" : "no execute permission; use chmod +x");
    case ENOEXEC:
        return co_fail(
            err, -EACCES, "cannot execute '%.400s': %s", path,
            strncmp(line, "\177ELF", 4) == 0
                ? "it was built for another machine architecture; build it for this one"
                : "it is not a binary program, and has no first line such as #!/bin/sh; add one");
    case E2BIG:
        return co_fail(
            err, -EACCES,
            "cannot execute '%.400s': its arguments and environment are too long; pass long "
            "lists in a file",
            path);
    default:
        return co_fail(err, -EACCES, "cannot execute '%.400s': %s", path, strerror(error));
    }
}
