/* cli_words.h - a command line of a test, parsed in a fake world. */
#ifndef DDP_TESTS_SUPPORT_CLI_WORDS_H
#define DDP_TESTS_SUPPORT_CLI_WORDS_H

#include "common/error.h"
#include "launcher/job/job_spec.h"
#include "launcher/options/cli.h"

/* Like cli_parse(). Discards the previous contents of spec and err.
 *
 * words   NULL-terminated, the program's name first */
static inline int cli_words_parse(const char *const *words, const struct host_env *world,
                                  enum cli_wish *ret_wish, struct job_spec *spec,
                                  struct co_error *err)
{
    int argc = 0;
    while (words[argc] != NULL)
        argc++;
    job_spec_fini(spec);
    err->text[0] = '\0';
    return cli_parse(argc, (char **)words, world, ret_wish, spec, err);
}

#endif
