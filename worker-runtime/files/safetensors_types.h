/* safetensors_types.h - element types of .safetensors files, and which of them are ours. Pure. */
#ifndef DDP_WORKER_RUNTIME_FILES_SAFETENSORS_TYPES_H
#define DDP_WORKER_RUNTIME_FILES_SAFETENSORS_TYPES_H

#include <ddp/types.h>

struct safetensors_type {
    const char *name;
    size_t bytes;
    int dtype; /* enum ddp_dtype; -1: none of ours */
};

const struct safetensors_type *safetensors_type_find(const char *name); /* NULL: unknown */
const struct safetensors_type *safetensors_type_of(int dtype);          /* NULL: none */

#endif
