#include "remote_command.h"

#include "cli_world.h"
#include "host_list.h"
#include "leash.h"
#include "program.h"
#include "remote_spec.h"
#include "way.h"

#include "common/error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct way way_of(const struct remote_spec *r)
{
    return (struct way){.by_srun = r->by_srun, .command = r->command, .reach_ms = r->reach_ms};
}

int remote_command_make(const struct remote_spec *r, const struct host *host, const char *program,
                        char **ret_path, char ***ret_words, struct co_error *err)
{
    const char *const arguments[] = {leash_word, NULL};
    const struct way way = way_of(r);
    char *path = NULL, **words = NULL;
    int rc = way_make(&way, host, host != NULL ? program : "ddprun", arguments, &words, err);
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
