#include "secret.h"


#include "launcher/job/job_spec.h"

#include "common/error.h"
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

static int make_key(struct job_world *w, const struct token *token, struct co_error *err)
{
    w->key = calloc(1, sizeof *w->key);
    if (w->key == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    int rc = seal_key_init(w->key, token->bytes, token->len, err);
    if (rc < 0) {
        free(w->key);
        w->key = NULL;
    }
    return rc;
}

int secret_find(struct job_world *w, char **ret_note, struct co_error *err)
{
    const struct token_places places = {
        .file = w->token_file,
        .variable = getenv(DDP_ENV_TOKEN),
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
    unsetenv(DDP_ENV_TOKEN);
    if (rc == 0)
        rc = make_key(w, &token, err);
    else if (rc == -ENOENT && w->token_file == NULL)
        rc = do_without(w, ret_note, err);
    else
        rc = rc == -ENOMEM ? rc : -EACCES;
    token_wipe(&token);
    return rc;
}
