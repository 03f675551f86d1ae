#include "daemon_token.h"

#include "common/error.h"
#include "rendezvous/channel/token.h"

#include <errno.h>
#include <stdlib.h>

#define VARIABLE "DDP_TOKEN" /* include/ddp/env.h has it for ddprun */

int daemon_token_find(const char *file, struct seal_key *ret_key, struct co_error *err)
{
    const struct token_places places = {
        .file = file,
        .variable = getenv(VARIABLE),
        .variable_by = VARIABLE,
        .config = getenv("XDG_CONFIG_HOME"),
        .home = getenv("HOME"),
        .make = TOKEN_MAKE_IF_SHARED,
    };
    struct token token;
    int rc = token_find(&places, &token, err);
    unsetenv(VARIABLE);
    if (rc == 0)
        rc = seal_key_init(ret_key, token.bytes, token.len, err);
    else if (rc != -ENOENT || file != NULL)
        rc = -EACCES;
    token_wipe(&token);
    return rc == -ENOENT ? 0 : rc < 0 ? rc : 1;
}
