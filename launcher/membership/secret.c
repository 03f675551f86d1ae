#include "secret.h"

#include "launcher/job/job_spec.h"

#include "common/error.h"
#include "common/secret_memory.h"
#include "rendezvous/channel/token.h"
#include "rendezvous/net/address.h"
#include "segments/data_secret.h"

#include <ddp/env.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int secret_check_encryption(const struct job_spec *spec, char **ret_note, struct co_error *err)
{
    *ret_note = NULL;
    if (!spec->encrypt || !spec->world.has_others)
        return 0;
    if (spec->world.key == NULL)
        return co_fail(
            err, -EACCES,
            "--encrypt requires a token: the keys of the ranks are derived from it; "
            "create one with '(umask 077; openssl rand -hex 32 > token)', copy it to all "
            "nodes, and use --token-file token");
    if (!spec->is_python)
        return 0;
    *ret_note = strdup("--encrypt encrypts the connections of libddp, also of torch's backend ddp; "
                       "what ranks send by torch's gloo or nccl is not encrypted");
    return *ret_note != NULL ? 0 : co_fail(err, -ENOMEM, "out of memory");
}

int secret_share(const struct job_world *w, const char *run_id, int *ret_fd, struct co_error *err)
{
    uint8_t secret[DATA_SECRET_BYTES];
    seal_key_derive(w->key, "ddp data 1", run_id, strlen(run_id), secret);
    const int rc = data_secret_make(secret, ret_fd, err);
    explicit_bzero(secret, sizeof secret);
    return rc;
}
