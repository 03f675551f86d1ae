/* cli.h - ddprun's command line to a job_spec.
 *
 * Knows torchrun's spellings: dashes and underscores, unambiguous prefixes, --opt=V and --opt V, -n 4
 * and -n4; everything from the program on belongs to the program. Looks into the environment and the
 * file system only through cli_world, so that tests can be whole. */
#ifndef DDP_LAUNCHER_CLI_H
#define DDP_LAUNCHER_CLI_H

#include <stdio.h>

struct co_error;
struct job_spec;

struct cli_world {
    const char *(*get_env)(void *arg, const char *name);
    int (*n_gpus)(void *arg);         /* GPUs of this node, CUDA_VISIBLE_DEVICES respected */
    int (*n_allowed_cpus)(void *arg); /* by affinity and cgroup quota, >= 1 */
    void *arg;
};

extern const struct cli_world cli_real_world;

enum cli_wish { CLI_RUN, CLI_HELP, CLI_VERSION };

/* argv as main() got it.
 *
 * ret_wish   CLI_RUN: *ret_spec is filled. CLI_HELP, CLI_VERSION: print that and exit 0
 * returns    0
 *            -EINVAL   wrong usage: exit 2. The text names the option and the nearest one there is
 *            -ENOENT   no such program: exit 127
 *            -EACCES   not executable, a directory: exit 126
 *            -ENOMEM */
int cli_parse(int argc, char **argv, const struct cli_world *world, enum cli_wish *ret_wish,
              struct job_spec *ret_spec, struct co_error *err);

void cli_print_help(FILE *out);

#endif
