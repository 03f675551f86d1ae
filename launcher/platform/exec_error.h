/* exec_error.h - why execve(2) failed, from its errno and a look at the file: a missing interpreter
 * of a '#!' line is not a missing file. */
#ifndef DDP_LAUNCHER_PLATFORM_EXEC_ERROR_H
#define DDP_LAUNCHER_PLATFORM_EXEC_ERROR_H

struct co_error;

/* error     the positive errno of execve
 * returns   -ENOENT: exit 127; -EACCES: exit 126. err has one line that names the path */
int exec_error_explain(const char *path, int error, struct co_error *err);

#endif
