/* secret.h - by what key this node speaks to the others: which of the places for a token counts
 * (rendezvous/channel/token.h), and whether the job may do without.
 *
 * Looks into the environment and the home directory. */
#ifndef DDP_LAUNCHER_MEMBERSHIP_SECRET_H
#define DDP_LAUNCHER_MEMBERSHIP_SECRET_H

struct co_error;
struct job_world;

struct job_spec;

enum { SECRET_EXIT_NO_ACCESS = 77 };

/* Find the token of a job of several nodes and make a key of it. Called once. DDP_TOKEN was
 * taken out of the environment (common/secret_memory.h), and is dropped.
 *
 * w          its key is set, or left NULL: not encrypted
 * ret_note   a line for the terminal, owned by the caller; NULL: none
 * returns    0
 *            -EACCES   a token is required but missing; or it cannot be trusted, or cannot be read:
 *                      exit with SECRET_EXIT_NO_ACCESS
 *            -ENOMEM, -ENOSYS */
int secret_find(struct job_world *w, char **ret_note, struct co_error *err);

/* Whether the ranks of a job can encrypt: with several nodes that takes a token, after
 * secret_find().
 *
 * ret_note   as above: what is not encrypted
 * returns    0; -EACCES no token; -ENOMEM */
int secret_check_encryption(const struct job_spec *spec, char **ret_note, struct co_error *err);

/* The secret from which the ranks of a job derive their keys, of the token and the name of the job.
 *
 * ret_fd     of data_secret.h; the caller's
 * returns    0, -errno */
int secret_share(const struct job_world *w, const char *run_id, int *ret_fd, struct co_error *err);

#endif
