/* runtime_dir.h - the job's own directory for small files, readable by its owner only.
 *
 * RANK.json, the error file of a rank, the socket for ddpctl and the file that identifies its host
 * (console/job_directory.h), what --warm needs (warm.h), and a directory of libpmix's and of Open
 * MPI's files (pmix_host.h). */
#ifndef DDP_LAUNCHER_SPAWNER_RUNTIME_DIR_H
#define DDP_LAUNCHER_SPAWNER_RUNTIME_DIR_H

#include "console/job_directory.h"

#include <stddef.h>

struct co_error;

/* Where it may be, chosen before it is made: the process that removes it when its maker is killed
 * knows the names first. */
struct runtime_dir_names {
    char *paths[JOB_DIRECTORY_MAX_PARENTS]; /* owned; absolute, in order; none of them exists yet */
    size_t n;
};

/* One in each of job_directory_parents().
 *
 * returns   0; -ENOMEM; -EIO without random bytes; -ENAMETOOLONG, if all of them are.
 *           runtime_dir_forget_names() in any case */
int runtime_dir_choose(struct runtime_dir_names *ret, struct co_error *err);
void runtime_dir_forget_names(struct runtime_dir_names *names); /* zeroed ones are fine */

/* Make it, mode 0700, under the first name that can be made, and in a directory in which no other
 * user can rename it: one of ours or of root's, sticky if others can write to it.
 *
 * ret_dir   lent by names
 * returns   0, -errno (the text names the last place tried) */
int runtime_dir_make(const struct runtime_dir_names *names, const char **ret_dir,
                     struct co_error *err);

/* Also make the one in /dev/shm, for files that processes map, or lend `dir`, the first one, if
 * that is there already or no directory can be made there. Removed as the first one is, if ddprun
 * is killed; else the caller co_tree_remove()s it. */
const char *runtime_dir_make_shared(const struct runtime_dir_names *names, const char *dir);

/* Remove it and all in it. Safe to call when it is gone already, and for NULL. */
void runtime_dir_remove(const char *dir);

/* The same, whichever was made, if any. names   NULL: nothing */
void runtime_dir_remove_any(const struct runtime_dir_names *names);

/* Remove the error files of ranks that are gone. */
void runtime_dir_forget_ranks(const char *dir);

/* The path of rank's error file, into buf. returns buf */
char *runtime_dir_error_file(const char *dir, int rank, char *buf, size_t n);

#endif
