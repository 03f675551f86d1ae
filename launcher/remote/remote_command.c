#include "remote_command.h"

#include "launch_channel.h"
#include "launcher/hosts/host_list.h"
#include "launcher/hosts/remote_shell.h"
#include "launcher/job/job_spec.h"
#include "launcher/job/program.h"
#include "launcher/platform/host_env.h"
#include "payload.h"

#include "common/error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct remote_shell remote_shell_of(const struct remote_spec *r)
{
    return (struct remote_shell){
        .by_srun = r->by_srun, .command = r->command, .reach_ms = r->reach_ms};
}

/* The login shell there becomes sh, which becomes ddprun: nothing is left between it and ssh. */
static int make_words(const struct remote_spec *r, const struct host *host, const char *program,
                      const struct payload *payload, char ***ret, struct co_error *err)
{
    const struct remote_shell way = remote_shell_of(r);
    const char *words[1 + PAYLOAD_N_ARGUMENTS] = {launch_word, NULL};
    if (host == NULL)
        return remote_shell_make(&way, NULL, "ddprun", words, ret, err);
    if (payload == NULL)
        return remote_shell_make(&way, host, program, words, ret, err);
    words[0] = "sh";
    payload_arguments(payload, r->send == REMOTE_SEND_ALWAYS ? "" : program, launch_terms(),
                      words + 1);
    return remote_shell_make(&way, host, "exec", words, ret, err);
}

int remote_command_make(const struct remote_spec *r, const struct host *host, const char *program,
                        const struct payload *payload, char **ret_path, char ***ret_words,
                        struct co_error *err)
{
    char *path = NULL, **words = NULL;
    int rc = make_words(r, host, program, payload, &words, err);
    if (rc == 0 && host != NULL)
        rc = program_find(words[0], &host_env_real, &path, err);
    else if (rc == 0 && (path = strdup(program)) == NULL)
        rc = co_fail(err, -ENOMEM, "no memory for a command");
    if (rc < 0) {
        free(words);
        return rc;
    }
    *ret_path = path;
    *ret_words = words;
    return 0;
}

bool remote_command_is_here(const struct remote_spec *r, const struct host *host)
{
    const struct remote_shell way = remote_shell_of(r);
    return remote_shell_is_here(&way, host);
}
