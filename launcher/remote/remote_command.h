/* remote_command.h - what is executed to start a ddprun on a host: the way there (remote_shell.h),
 * found in PATH. */
#ifndef DDP_LAUNCHER_REMOTE_REMOTE_COMMAND_H
#define DDP_LAUNCHER_REMOTE_REMOTE_COMMAND_H

#include <stdbool.h>

struct co_error;
struct host;
struct payload;
struct remote_spec;

/* ssh, or what stands in its place, is found by PATH.
 *
 * host        NULL: this machine, without ssh
 * program     ddprun's path there
 * payload      what may be sent there in its place; NULL: nothing may
 * ret_path    owned by the caller: what is executed
 * ret_words   owned by the caller, one free()
 * returns     0, -ENOENT (there is no such command), -ENAMETOOLONG (the path of ours), -ENOMEM */
int remote_command_make(const struct remote_spec *r, const struct host *host, const char *program,
                        const struct payload *payload, char **ret_path, char ***ret_words,
                        struct co_error *err);

/* remote_shell_is_here() */
bool remote_command_is_here(const struct remote_spec *r, const struct host *host);

#endif
