/* token.h - the secret by which the nodes of a job know each other: where it is kept, read, made.
 *
 * It comes from one of three places, the first that has one: a file that was named, a variable of
 * the environment, a file in the home directory. A token is worth something only if all nodes have
 * the same, so one is made only where they will find it: in a home directory that several machines
 * share. It is in memory only until a key is made of it (seal.h). */
#ifndef DDP_RENDEZVOUS_CHANNEL_TOKEN_H
#define DDP_RENDEZVOUS_CHANNEL_TOKEN_H

#include "seal.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_error;

#define TOKEN_VARIABLE "DDP_TOKEN" /* include/ddp/env.h has it for ddprun */

enum { TOKEN_MADE_BYTES = 32 }; /* random ones, in a token that we make; written as hex digits */

struct token {
    size_t len;
    uint8_t bytes[SEAL_TOKEN_MAX_BYTES];
};

enum token_make {
    TOKEN_MAKE_NEVER,
    TOKEN_MAKE_IF_SHARED, /* if the home directory is on a network file system */
    TOKEN_MAKE_ALWAYS,
};

struct token_places {
    const char *file;        /* that was named; NULL: none */
    const char *variable;    /* the variable's value; NULL: none */
    const char *variable_by; /* its name, for messages */
    const char *config;      /* $XDG_CONFIG_HOME; NULL, empty or relative: HOME/.config */
    const char *home;        /* $HOME; NULL, empty or relative: none */
    enum token_make make;
};

/* Find a token, or make one. Blanks and line ends at its end do not belong to it.
 *
 * ret       token_wipe() it, also after a failure
 * returns   0
 *           -ENOENT   no token exists, and none was made: the text has how to get one
 *           -EACCES   a file that cannot be read, or whose directory cannot; one that others can
 *                     read or write (an access control list may name us), or that belongs to
 *                     another user (root's are fine)
 *           -EINVAL   shorter than SEAL_TOKEN_MIN_BYTES, longer than SEAL_TOKEN_MAX_BYTES, or no
 *                     regular file
 *           -errno    the named file cannot be read */
int token_find(const struct token_places *places, struct token *ret, struct co_error *err);

void token_wipe(struct token *t);

/* Open another file with a secret, whose owner and mode are judged like a token's.
 *
 * what      "the token": for messages
 * returns   a descriptor; -EACCES, -EINVAL, -errno as above */
int token_open_file(const char *what, const char *path, struct co_error *err);

#endif
