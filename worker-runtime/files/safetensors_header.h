/* safetensors_header.h - the header of a .safetensors file: text to tensors, and back. Pure.
 *
 * The text is JSON, of which this format needs objects, texts, whole numbers and lists of them:
 * everything else is refused. What is accepted is complete: every tensor's place has as many bytes
 * as its type and shape require, and the places cover the data without gap or overlap. */
#ifndef DDP_WORKER_RUNTIME_FILES_SAFETENSORS_HEADER_H
#define DDP_WORKER_RUNTIME_FILES_SAFETENSORS_HEADER_H

#include <ddp/safetensors.h>

struct co_error;
struct whole_file;

struct safetensors_header {
    struct ddp_safetensors_tensor *tensors; /* owned; in the order of their places; no data yet */
    size_t n;
    struct ddp_safetensors_text *texts; /* owned; of the metadata, in the order of the file */
    size_t n_texts;
    char *strings; /* owned; what the names above lie in */
};

/* text, size   the header, without its length before it
 * data_bytes   how many bytes come after it
 * returns      0, -EINVAL (the text names the error and its byte), -ENOMEM */
int safetensors_header_parse(const char *text, size_t size, uint64_t data_bytes,
                             struct safetensors_header *ret, struct co_error *err);
void safetensors_header_fini(struct safetensors_header *h); /* a zeroed one is fine */

/* Check tensors and texts, and write the header of a file that has them in this order, padded so
 * that the data begin at a multiple of 8 bytes.
 *
 * ret_text   free() it
 * ret_data   bytes of all tensors together
 * returns    0, -EINVAL, -ENOMEM */
int safetensors_header_format(const struct ddp_safetensors_tensor *tensors, size_t n,
                              const struct ddp_safetensors_text *texts, size_t n_texts,
                              char **ret_text, size_t *ret_size, uint64_t *ret_data,
                              struct co_error *err);

/* Bytes of a tensor, from dtype and shape.
 * returns   0, -EINVAL (bad dtype, more dimensions than allowed, more bytes than memory can
 *           hold) */
int safetensors_bytes(const struct ddp_safetensors_tensor *t, size_t *ret_bytes,
                      struct co_error *err);

/* --- safetensors_file.c: errors are -errno and a text ----------------------------------------- */

/* returns   0, -EINVAL, -ENOMEM, -errno; the text names the file */
int safetensors_open(const char *path, struct ddp_safetensors **ret, struct co_error *err);

/* All bytes of the file. */
const void *safetensors_mapped(const struct ddp_safetensors *f, size_t *ret_bytes);

/* Write all of a file, but do not give it its name.
 *
 * f         opened here; the caller commits or discards it, even after a failure */
int safetensors_begin(struct whole_file *f, const char *path,
                      const struct ddp_safetensors_tensor *tensors, size_t n,
                      const struct ddp_safetensors_text *texts, size_t n_texts,
                      struct co_error *err);

#endif
