/* runtime_dir.h - the job's own folder for small files, readable by its owner only.
 *
 * Flat: RANK.json, the error file of a rank, the socket by which ddpctl asks and what tells
 * whose it is (console/job_folder.h), what --warm needs (warm.h), and nothing that is not ours. */
#ifndef DDP_LAUNCHER_RUNTIME_DIR_H
#define DDP_LAUNCHER_RUNTIME_DIR_H

#include <stddef.h>

struct co_error;

/* Make it, mode 0700, in the first place that takes it: job_folder_parents().
 *
 * ret_dir   an absolute path, owned by the caller
 * returns   0, -ENOMEM, -errno (the text names the last place tried) */
int runtime_dir_make(char **ret_dir, struct co_error *err);

/* Remove it and the plain files in it. Safe to call when it is gone already, and for NULL. */
void runtime_dir_remove(const char *dir);

/* Remove the error files of ranks that are gone. */
void runtime_dir_forget_ranks(const char *dir);

/* The path of rank's error file, into buf. returns buf */
char *runtime_dir_error_file(const char *dir, int rank, char *buf, size_t n);

#endif
