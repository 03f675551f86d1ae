/* safetensors_file.h - .safetensors files, inside of the library: errors are -errno and a text.
 * ddp_safetensors_ is these, with a status. */
#ifndef DDP_WORKER_RUNTIME_FILES_SAFETENSORS_FILE_H
#define DDP_WORKER_RUNTIME_FILES_SAFETENSORS_FILE_H

#include <ddp/safetensors.h>

struct co_error;
struct whole_file;

/* returns   0, -EINVAL, -ENOMEM, -errno; the text names the file */
int safetensors_open(const char *path, struct ddp_safetensors **ret, struct co_error *err);

/* All bytes of the file. */
const void *safetensors_mapped(const struct ddp_safetensors *f, size_t *ret_bytes);

/* Write all of a file, but for giving it its name.
 *
 * f         opened here; the caller commits or discards it, however this ends */
int safetensors_begin(struct whole_file *f, const char *path,
                      const struct ddp_safetensors_tensor *tensors, size_t n,
                      const struct ddp_safetensors_text *texts, size_t n_texts,
                      struct co_error *err);

#endif
