/* remote_command.h - the words by which a ddprun is started on a host. */
#ifndef DDP_LAUNCHER_REMOTE_COMMAND_H
#define DDP_LAUNCHER_REMOTE_COMMAND_H

#include <stdbool.h>

struct co_error;
struct host;
struct remote_spec;

/* ssh is found by PATH. It must ask nothing, since nobody could answer, and end when the host is
 * gone. A command of the user's gets the same host and command behind it, and no options.
 *
 * host        NULL: this machine, without ssh
 * program     ddprun's path there
 * ret_path    owned by the caller: what is executed
 * ret_words   owned by the caller, one free()
 * returns     0, -ENOENT (there is no such command), -ENOMEM */
int remote_command_make(const struct remote_spec *r, const struct host *host, const char *program,
                        char **ret_path, char ***ret_words, struct co_error *err);

/* Is this host the machine we are on, by its name or address? No name is looked up. One that is to
 * be reached as another user or at a port of its own is not, and none of Slurm's is. */
bool remote_command_is_here(const struct remote_spec *r, const struct host *host);

#endif
