/* safetensors_out.h - writes tensors as a .safetensors file, which Python reads with the package of
 * that name: 8 bytes length of the header (little-endian), the header (JSON), the tensors' bytes.
 *
 * Expects a little-endian machine. */
#ifndef DDP_EXAMPLES_SAFETENSORS_OUT_H
#define DDP_EXAMPLES_SAFETENSORS_OUT_H

#include <stddef.h>

struct failure;

enum { SAFETENSORS_MAX_DIMS = 4 };

struct safetensors_tensor {
    const char *name;  /* plain ASCII without quotes and backslashes */
    const char *dtype; /* "F32", "F64", "I64", ... */
    size_t element_bytes;
    size_t n_dims; /* 0: a single number */
    size_t shape[SAFETENSORS_MAX_DIMS];
    const void *data; /* borrowed */
};

/* Write the file, whole or not at all.
 *
 * returns   0, or -1; the text names the file */
int safetensors_write(const char *path, const struct safetensors_tensor *tensors, size_t n,
                      struct failure *why);

#endif
