#include "remote_command.h"

#include "launcher/hosts/host_list.h"
#include "launcher/hosts/way.h"
#include "launcher/job/program.h"
#include "launcher/job/remote_spec.h"
#include "launcher/platform/cli_world.h"
#include "leash.h"
#include "parcel.h"

#include "common/error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct way way_of(const struct remote_spec *r)
{
    return (struct way){.by_srun = r->by_srun, .command = r->command, .reach_ms = r->reach_ms};
}

/* The login shell there becomes sh, which becomes ddprun: nothing is left between it and ssh. */
static int make_words(const struct remote_spec *r, const struct host *host, const char *program,
                      const struct parcel *parcel, char ***ret, struct co_error *err)
{
    const struct way way = way_of(r);
    const char *words[1 + PARCEL_N_ARGUMENTS] = {leash_word, NULL};
    if (host == NULL)
        return way_make(&way, NULL, "ddprun", words, ret, err);
    if (parcel == NULL)
        return way_make(&way, host, program, words, ret, err);
    words[0] = "sh";
    parcel_arguments(parcel, r->send == REMOTE_SEND_ALWAYS ? "" : program, leash_terms(),
                     words + 1);
    return way_make(&way, host, "exec", words, ret, err);
}

int remote_command_make(const struct remote_spec *r, const struct host *host, const char *program,
                        const struct parcel *parcel, char **ret_path, char ***ret_words,
                        struct co_error *err)
{
    char *path = NULL, **words = NULL;
    int rc = make_words(r, host, program, parcel, &words, err);
    if (rc == 0 && host != NULL)
        rc = program_find(words[0], &cli_real_world, &path, err);
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
    const struct way way = way_of(r);
    return way_is_here(&way, host);
}
