/* remote_shell.h - the way to a host: the words by which a program is started there, by ssh, by a
 * command of the user instead of ssh, or by a Slurm step; and the message of a way that has
 * failed. */
#ifndef DDP_LAUNCHER_HOSTS_REMOTE_SHELL_H
#define DDP_LAUNCHER_HOSTS_REMOTE_SHELL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;
struct host;

enum {
    WAY_AT_ONCE = 32, /* hosts that are being reached at a time */
};

struct remote_shell {
    bool by_srun;         /* each host by a step of its own in Slurm's allocation */
    char *const *command; /* borrowed; words in front of the host; NULL: ssh, as usual */
    uint64_t reach_ms;    /* so long ssh may take to connect */
    bool starts_late;     /* hosts may start after this ddprun: pods */
};

/* ssh must not ask questions, since no one could answer, and must end when the host is gone. A
 * command of the user gets the same host and command as arguments, and no options. Over ssh a shell
 * reads the words: they are quoted for it where they have to be.
 *
 * host        NULL: this machine, without ssh: the program itself
 * arguments   NULL-terminated, at most WAY_ARGUMENTS_MAX
 * ret_words   to execute, NULL-terminated, the first to be searched in PATH unless there is a '/'
 *             in it; one free()
 * returns     0; -ENAMETOOLONG: more than WAY_TEXT_BYTES, with the quotes; -ENOMEM */
enum { WAY_ARGUMENTS_MAX = 9, WAY_TEXT_BYTES = 16384 };
int remote_shell_make(const struct remote_shell *w, const struct host *host, const char *program,
                      const char *const *arguments, char ***ret_words, struct co_error *err);

/* Is this host the machine we are on, by its name or address? No name is looked up. One that is to
 * be reached as another user or at a port of its own is not, and none of Slurm's is. */
bool remote_shell_is_here(const struct remote_shell *w, const struct host *host);

/* What a way wrote to standard error before it ended: the last meaningful line, with '?' for what
 * would move a cursor.
 *
 * own   a program's name and ": ", which is left out in front
 * to    n bytes; "" without one */
void remote_shell_complaint(const char *text, size_t len, const char *own, char *to, size_t n);

/* Whether ssh ended because it did not find the host, or no connection was possible: the host may
 * not have started yet.
 *
 * status      as waitpid() has it
 * complaint   of remote_shell_complaint() */
bool remote_shell_was_unreached(int status, const char *complaint);

/* Whether ssh lost the connection, or its program on the host was killed. */
bool remote_shell_was_lost(int status);

#endif
