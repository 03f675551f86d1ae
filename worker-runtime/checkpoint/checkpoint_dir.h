/* checkpoint_dir.h - the files of a checkpoint directory: their names, the contents of a manifest,
 * which of them exist. Knows one process only; checkpoint.h is what the ranks do together. */
#ifndef DDP_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_DIR_H
#define DDP_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_DIR_H

#include "worker-runtime/files/whole_file.h"

#include <ddp/safetensors.h>
#include <stdbool.h>

/* --- manifests. Pure -------------------------------------------------------------------------- */

struct checkpoint_manifest {
    int64_t step;   /* 0 or more */
    uint64_t bytes; /* of the file of tensors */
    uint64_t digest;
};

enum { CHECKPOINT_MANIFEST_BYTES = 256 };

/* Write it, and return its length. */
size_t checkpoint_manifest_format(const struct checkpoint_manifest *m,
                                  char text[CHECKPOINT_MANIFEST_BYTES]);

/* Understand what checkpoint_manifest_format() wrote, and nothing else.
 * returns   0, -EINVAL */
int checkpoint_manifest_parse(const char *text, size_t size, struct checkpoint_manifest *ret,
                              struct co_error *err);

/* --- the directory ---------------------------------------------------------------------------- */

/* The name of a step's file; `manifest` or the tensors. returns 0, -EINVAL too long */
int checkpoint_dir_path(const char *directory, int64_t step, bool manifest,
                        char path[WHOLE_FILE_MAX_PATH], struct co_error *err);

/* Make it if it is missing, and remove what is half written.
 * returns   0, -EINVAL, -errno */
int checkpoint_dir_prepare(const char *directory, struct co_error *err);

/* The steps that have a manifest, ascending.
 *
 * ret_steps   free() it; NULL: none
 * returns     0, -ENOMEM, -errno */
int checkpoint_dir_list(const char *directory, int64_t **ret_steps, size_t *ret_n,
                        struct co_error *err);

/* Write a checkpoint: the tensors, then the manifest. Then remove all but the `keep_last` highest
 * steps, this one apart; 0: none.
 * returns   0, -EINVAL, -ENOMEM, -errno */
int checkpoint_dir_write(const char *directory, int64_t step, int keep_last,
                         const struct ddp_safetensors_tensor *tensors, size_t n,
                         struct co_error *err);

/* Open the tensors of a step, all of which are compared with the manifest.
 * returns   0, -EINVAL (no such step; damaged), -ENOMEM, -errno */
int checkpoint_dir_open(const char *directory, int64_t step, struct ddp_safetensors **ret,
                        struct co_error *err);

#endif
