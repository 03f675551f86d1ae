/* rank_argv.h - the job's words -> one rank's. Pure.
 *
 * As torchrun, in each word behind the first $local_rank and ${local_rank} stand for the local
 * rank, $$ for $, and any other $ for itself. */
#ifndef DDP_LAUNCHER_RANK_ARGV_H
#define DDP_LAUNCHER_RANK_ARGV_H

struct co_error;
struct job_spec;

/* The rank's argv.
 *
 * ret_argv  NULL-terminated, one block, owned by the caller; NULL if spec->argv serves all ranks
 *           as it is, which is the usual case and costs nothing
 * returns   0, -ENOMEM */
int rank_argv_make(const struct job_spec *spec, int local_rank, char ***ret_argv,
                   struct co_error *err);

#endif
