/* cli.h - ddprun's command line to a job_spec.
 *
 * Knows torchrun's spellings (common/options.h) and the variables that stand for them (PET_*: the
 * command line wins); everything from the program on belongs to the program. Looks into the
 * environment and the file system only through host_env. */
#ifndef DDP_LAUNCHER_OPTIONS_CLI_H
#define DDP_LAUNCHER_OPTIONS_CLI_H

#include "launcher/platform/host_env.h"

#include <stdbool.h>
#include <stdio.h>

struct co_error;
struct job_spec;

#define CLI_NAME_MAX 256 /* bytes of --rdzv-id and --role */

enum cli_wish { CLI_RUN, CLI_HELP, CLI_VERSION, CLI_COMPLETION };

/* argv as main() got it. Its first word's last part decides whether we are torchrun.
 *
 * ret_wish   CLI_RUN: *ret_spec is filled, job_spec_fini() frees it.
 *            CLI_HELP, CLI_VERSION, CLI_COMPLETION: print that and exit 0
 * returns    0
 *            -EINVAL   wrong usage: exit 2. The text names the option and the closest existing one
 *            -ENOENT   no such program: exit 127
 *            -EACCES   not executable, a directory: exit 126
 *            -ENOMEM
 *            -EIO      no random bytes for a run id
 *            -EHOSTUNREACH   the rendezvous through PMI failed: exit 69 */
int cli_parse(int argc, char **argv, const struct host_env *world, enum cli_wish *ret_wish,
              struct job_spec *ret_spec, struct co_error *err);

/* Is this argv[0] (NULL: empty) torchrun's name? For the exit status: torchrun knows 2 for wrong
 * usage and 1 for all else. */
bool cli_is_torchrun(const char *name);

/* Is this a topic of --help? NULL, all topics, is one.
 *
 * returns   0; -EINVAL: no, the text names the topics */
int cli_check_topic(const char *topic, struct co_error *err);

/* Print the help that the first help option of this command line asks for. argv as cli_parse(),
 * which has accepted it. torchrun has no topics: under its name they are ignored. */
void cli_print_help(int argc, char **argv, FILE *out);

/* Print the completion that --print-completion asks for, of a program with the name of argv[0].
 * argv as cli_parse(), which has accepted it. */
void cli_print_completion(int argc, char **argv, FILE *out);

#endif
