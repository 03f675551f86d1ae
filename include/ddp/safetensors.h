/* safetensors.h - tensors in a file that Python's package of that name, and torch with it, read and
 * write.
 *
 * A file is 8 bytes with the length of the header, little-endian; the header, JSON: of each tensor
 * the name, type, shape and place, and texts about the whole; then the tensors' bytes, without
 * gaps. Files from anywhere may be opened: all of the header is checked before anything is
 * believed. Little-endian machines only. No group is needed: what the ranks of a job do together
 * with files is in checkpoint.h. */
#ifndef DDP_SAFETENSORS_H
#define DDP_SAFETENSORS_H

#include <ddp/types.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DDP_SAFETENSORS_MAX_DIMS = 8,
    DDP_SAFETENSORS_MAX_NAME = 1024,        /* bytes of a name, or of a key of the metadata */
    DDP_SAFETENSORS_MAX_TENSORS = 1 << 20,  /* of a file */
    DDP_SAFETENSORS_MAX_METADATA = 1 << 16, /* keys */
    DDP_SAFETENSORS_MAX_HEADER = 100000000  /* bytes: the limit of the format */
};

struct ddp_safetensors_tensor {
    const char *name;
    const char *type; /* as in the file: "F32". Not looked at when writing */
    int dtype;        /* enum ddp_dtype; reading: -1 for a type of the format that libddp does not
                         support (I16, U16, BOOL, F8_E4M3, F8_E5M2, C64) */
    unsigned n_dims;  /* 0: a single number */
    size_t shape[DDP_SAFETENSORS_MAX_DIMS];
    size_t bytes;     /* of all elements. Not looked at when writing */
    const void *data; /* reading: lent, lies in the mapped file, aligned as the file has it; NULL
                          where there are no bytes */
};

struct ddp_safetensors_text { /* of the metadata */
    const char *key, *value;
};

struct ddp_safetensors; /* an open file; opaque */

/* Open a file and check its header. The file is mapped: a process that shortens it meanwhile kills
 * this one (SIGBUS) when it reads there. Writers that replace files, as all of libddp's do, are
 * harmless.
 *
 * ret_file   ddp_safetensors_close() it
 * returns    0
 *            DDP_EINVAL   no such file, or it is damaged: the text names file and reason
 *            DDP_ENOMEM, DDP_ESYSTEM */
int ddp_safetensors_open(const char *path, struct ddp_safetensors **ret_file);
void ddp_safetensors_close(struct ddp_safetensors *f); /* NULL is fine */

/* Tensor i, in the order of their places in the file; lent until the file is closed.
 * returns   NULL from the count on, or without that name */
size_t ddp_safetensors_count(const struct ddp_safetensors *f);
const struct ddp_safetensors_tensor *ddp_safetensors_get(const struct ddp_safetensors *f, size_t i);
const struct ddp_safetensors_tensor *ddp_safetensors_find(const struct ddp_safetensors *f,
                                                          const char *name);

/* The text for a key of the metadata, lent in the same way; NULL: no such key. */
const char *ddp_safetensors_text(const struct ddp_safetensors *f, const char *key);

/* Write a file, whole or not at all: under another name in the same directory, synced to the disk,
 * then renamed, and the directory synced. The file that had the name before stays until then.
 * Tensors lie in the order given.
 *
 * tensors   n of them, names differ; name, dtype, n_dims, shape and data are used
 * texts     n_texts of them, keys differ; UTF-8, as names are
 * returns   0
 *           DDP_EINVAL    a name is empty, longer than allowed, duplicate or not UTF-8; bad dtype;
 *                         a header beyond the bounds
 *           DDP_ENOMEM
 *           DDP_ESYSTEM   the disk is full, for instance; the text names the file */
int ddp_safetensors_write(const char *path, const struct ddp_safetensors_tensor *tensors, size_t n,
                          const struct ddp_safetensors_text *texts, size_t n_texts);

#ifdef __cplusplus
}
#endif
#endif
