#include "secret.h"

#include "launcher/job/job_spec.h"

#include "common/error.h"
#include "common/secret_memory.h"
#include "rendezvous/channel/token.h"
#include "rendezvous/net/address.h"

#include <ddp/env.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* The job continues without a token. With nodes on this machine only, the kernel knows the owner of
 * a connection, so no token is needed. */
static int do_without(const struct job_world *w, char **ret_note, struct co_error *err)
{
    if (w->require_token) {
        co_fail_in(err, "--require-token");
        return err->code = -EACCES;
    }
    if (address_host_is_loopback(w->endpoint_host))
        return 0;
    if (asprintf(ret_note,
                 "this job is not authenticated: any user who can reach %s port %u can join or "
                 "stop it; %s. --require-token makes this an error",
                 w->endpoint_host, (unsigned)w->endpoint_port, err->text) < 0) {
        *ret_note = NULL;
        return co_fail(err, -ENOMEM, "out of memory");
    }
    return 0;
}

int secret_find(struct job_world *w, char **ret_note, struct co_error *err)
{
    co_secret_env_take(DDP_ENV_TOKEN); /* main() has, but -x may have set it since */
    const struct token_places places = {
        .file = w->token_file,
        .variable = co_secret_env_get(),
        .variable_by = DDP_ENV_TOKEN,
        .config = getenv("XDG_CONFIG_HOME"),
        .home = getenv("HOME"),
        .make = TOKEN_MAKE_IF_SHARED,
    };
    struct token token;
    struct co_error local = {0};
    *ret_note = NULL;
    if (err == NULL)
        err = &local;
    int rc = token_find(&places, &token, err);
    co_secret_env_drop();
    if (rc == 0)
        rc = seal_key_create(token.bytes, token.len, &w->key, err);
    else if (rc == -ENOENT && w->token_file == NULL)
        rc = do_without(w, ret_note, err);
    else
        rc = rc == -ENOMEM ? rc : -EACCES;
    token_wipe(&token);
    return rc;
}
