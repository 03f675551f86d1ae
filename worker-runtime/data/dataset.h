/* dataset.h - data sets inside of the library: as <ddp/loader.h>, but errors are -errno and a text,
 * so that a loader's thread can keep them. */
#ifndef DDP_WORKER_RUNTIME_DATA_DATASET_H
#define DDP_WORKER_RUNTIME_DATA_DATASET_H

#include <ddp/loader.h>

struct co_error;

/* returns   0, -EINVAL, -ENOMEM, -errno; the text names the file */
int dataset_read(const struct ddp_dataset *d, const int64_t *index, size_t n, void *out,
                 struct co_error *err);

#endif
