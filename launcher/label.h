/* label.h - what a rank's lines begin with: "n1:3: ". Pure.
 *
 * A format is text with names in braces: {host} {rank} {local_rank} {role} {generation}; {{ and }}
 * are braces themselves. */
#ifndef DDP_LAUNCHER_LABEL_H
#define DDP_LAUNCHER_LABEL_H

#include <stdint.h>

struct co_error;

#define LABEL_DEFAULT  "{host}:{rank}: "
#define LABEL_TORCHRUN "[{role}{local_rank}]:"
#define LABEL_MAX      512 /* bytes of a format */

struct label_values {
    const char *host;
    const char *role;
    int rank, local_rank;
    uint32_t generation;
};

/* A format's meaning for one rank and generation.
 *
 * ret      owned by the caller; NULL: only look whether the format is right (values may be NULL)
 * returns  0
 *          -EINVAL   an unknown name, a single brace, a control character, or too long
 *          -ENOMEM */
int label_make(const char *format, const struct label_values *values, char **ret,
               struct co_error *err);

/* A template in torchrun's language (${role_name} ${rank} ${local_rank}, $$; other names stay as
 * they are) as a format.
 *
 * ret      owned by the caller
 * returns  0, -EINVAL (a control character, or too long), -ENOMEM */
int label_from_template(const char *text, char **ret, struct co_error *err);

#endif
