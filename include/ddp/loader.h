/* loader.h - samples from files to memory, read ahead by a thread while the program computes.
 *
 * A data set is a file of samples that all look the same: an IDX file (MNIST's format), or tokens
 * of which a sample is a block. A loader takes the samples that a sampler deals to this rank, batch
 * by batch; into memory of the CPU, or of the rank's GPU. Files are read, not mapped: one that
 * shrinks meanwhile is an error and no signal. */
#ifndef DDP_LOADER_H
#define DDP_LOADER_H

#include <ddp/sampler.h>
#include <ddp/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- data sets -------------------------------------------------------------------------------- */

struct ddp_dataset; /* opaque; may be read by several threads at the same time */

enum { DDP_DATASET_MAX_DIMS = 7 };

/* Open an IDX file, plain, with elements of 8 bits, 32-bit integers or floats. The first dimension
 * counts the samples; the others are the shape of one. Integers and floats come out in the
 * machine's byte order.
 *
 * ret_dataset   ddp_dataset_close() it, after the loaders that use it
 * returns       0
 *               DDP_EINVAL   no such file; not an IDX file; of another length than its header
 *                            announces; a sample of more than 1 GiB. The text names file and reason
 *               DDP_ENOMEM, DDP_ESYSTEM */
int ddp_idx_open(const char *path, struct ddp_dataset **ret_dataset);

struct ddp_tokens_opts {
    int64_t block;  /* tokens that a model sees; a sample has one more: inputs are its first
                       `block` tokens, targets its last */
    int64_t stride; /* from the start of a sample to that of the next; 0: block */
    int64_t vocab;  /* a token of this or more is an error when it is read; 0: not looked at */
};

/* Open a file of tokens as llm.c's scripts write it: 256 numbers of 32 bits (20240520, version 1,
 * how many tokens follow), then tokens of 16 bits; or with 20240801 and version 7 tokens of 32
 * bits. Tokens come out as DDP_INT32.
 *
 * returns   as above; DDP_EINVAL also if opts make no sense, or no block fits */
int ddp_tokens_open(const char *path, const struct ddp_tokens_opts *opts,
                    struct ddp_dataset **ret_dataset);

void ddp_dataset_close(struct ddp_dataset *d); /* NULL is fine */

int64_t ddp_dataset_count(const struct ddp_dataset *d);       /* samples */
size_t ddp_dataset_sample_bytes(const struct ddp_dataset *d); /* bytes of one sample as read */
enum ddp_dtype ddp_dataset_dtype(const struct ddp_dataset *d);
/* The shape of a sample; returns the number of dimensions, 0 for a single number. */
unsigned ddp_dataset_shape(const struct ddp_dataset *d, size_t shape[DDP_DATASET_MAX_DIMS]);

/* Read samples index[0 .. n) into `out`, contiguously.
 *
 * returns   0; DDP_EINVAL an index or a token is out of bounds: the text names it; DDP_ESYSTEM the
 *           file cannot be read, or has become shorter */
int ddp_dataset_read(const struct ddp_dataset *d, const int64_t *index, size_t n, void *out);

/* --- loaders ---------------------------------------------------------------------------------- */

struct ddp_loader; /* opaque */

enum { DDP_LOADER_MAX_DATASETS = 8 };

struct ddp_loader_opts {
    struct ddp_dataset *datasets[DDP_LOADER_MAX_DATASETS]; /* which have as many samples as the
                                                              sampler; n_datasets of them, for
                                                              example images and labels. Borrowed */
    size_t n_datasets;
    size_t batch;   /* samples of this rank */
    unsigned depth; /* batches that are read ahead, at most 64; 0: 2 */
    void *stream;   /* batches are memory of this rank's GPU (device.h), and this CUDA stream uses
                       them. They are read into pinned memory, and copied on another stream. NULL:
                       memory of the CPU */
};

struct ddp_batch {
    size_t n;                            /* samples; 0 at the end of the epoch */
    const int64_t *index;                /* theirs, n */
    void *data[DDP_LOADER_MAX_DATASETS]; /* of each data set; aligned to 64 bytes, on a GPU to 256;
                                            may be written */
};

/* Make a loader, which takes what is left of the epochs of a sampler. Not collective. The thread
 * reads files and nothing else: it makes no calls of the library.
 *
 * s            borrowed; only the loader takes samples from it, but the program sets its epochs
 * ret_loader   belongs to the sampler's group, which destroys it at ddp_finalize()
 *              With a stream: also before the stream, which ddp_loader_destroy() waits for
 * cost         memory for depth + 1 batches; with a stream as much of the GPU, and pinned
 * returns      0; DDP_EINVAL (opts; data sets and sampler have different counts), DDP_ENOMEM,
 *              DDP_ESYSTEM (no thread; CUDA failed), DDP_EUNSUPPORTED (a stream, and no GPU: the
 *              text names what is missing) */
int ddp_loader_create(struct ddp_sampler *s, const struct ddp_loader_opts *opts,
                      struct ddp_loader **ret_loader);
void ddp_loader_destroy(struct ddp_loader *l); /* before its sampler; NULL is fine */

/* Take the next batch, waiting for the thread if it is not there yet. When the epoch is over, go to
 * the next one with the sampler, and call again. A program that moves the sampler to another epoch
 * before that loses what was read ahead: call ddp_loader_reset() then.
 *
 * With a stream the call waits for the files only: what is put on the stream after this call finds
 * the batch there, and the batch before it may be overwritten when what was put there before this
 * call is done. Other streams that use a batch are the program's responsibility: the stream has to
 * wait for them before the next call. Not while a graph is captured.
 *
 * ret_batch   lent until the next call
 * returns     0; as ddp_dataset_read(), for the batch that would have come, and from then on;
 *             DDP_EINVAL also: a forked child; DDP_ESYSTEM also: CUDA failed
 *             DDP_EPEER, DDP_RETRY, DDP_ETIMEOUT  with a stream: it waits for a peer that died, or
 *                 does not answer; as a collective */
int ddp_loader_next(struct ddp_loader *l, struct ddp_batch *ret_batch);

/* Forget what was read ahead: after ddp_sampler_set_epoch() or ddp_sampler_resume() in the middle
 * of an epoch. */
void ddp_loader_reset(struct ddp_loader *l);

/* As ddp_sampler_consumed(), but counted up to the batch that was lent last, and not what was read
 * ahead: what a checkpoint needs. */
int64_t ddp_loader_consumed(const struct ddp_loader *l);

#ifdef __cplusplus
}
#endif
#endif
