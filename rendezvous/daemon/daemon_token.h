/* daemon_token.h - by what token the daemon knows the nodes of its jobs. */
#ifndef DDP_RENDEZVOUS_DAEMON_DAEMON_TOKEN_H
#define DDP_RENDEZVOUS_DAEMON_DAEMON_TOKEN_H

#include "rendezvous/channel/seal.h"

#include <stdbool.h>

/* Look for it where ddprun does (rendezvous/channel/token.h). DDP_TOKEN is wiped.
 *
 * file       --token-file; NULL: not given
 * ret_key    seal_key_fini() it, if there is one
 * returns    1; 0: there is none, and err has how to get one
 *            -EACCES   it cannot be read, is not to be trusted, or is no token
 *            -ENOSYS   libsodium does not work here */
int daemon_token_find(const char *file, struct seal_key *ret_key, struct co_error *err);

#endif
