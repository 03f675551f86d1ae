/* dry_run.h - show what would be started, for --dry-run. */
#ifndef DDP_LAUNCHER_REPORTING_DRY_RUN_H
#define DDP_LAUNCHER_REPORTING_DRY_RUN_H

#include <stdio.h>

struct co_error;
struct job_spec;

/* For each rank, a line with its command, quoted for a shell, and indented lines with the variables
 * that its environment has and ours lacks, and with those that are removed. Values that are known
 * only later, such as a free port, or when all nodes have joined, are in angle brackets.
 *
 * parent    our environment
 * returns   0, -ENOMEM */
int dry_run_print(const struct job_spec *spec, char *const *parent, FILE *out,
                  struct co_error *err);

/* A word as a shell reads it back: 'as it is' unless it needs no quotes. */
void dry_run_print_word(const char *word, FILE *out);

#endif
