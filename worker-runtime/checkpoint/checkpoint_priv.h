/* checkpoint_priv.h - inside of checkpoints, for checkpoint.c, checkpoint_save.c and
 * checkpoint_load.c. */
#ifndef DDP_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_PRIV_H
#define DDP_WORKER_RUNTIME_CHECKPOINT_CHECKPOINT_PRIV_H

#include "common/error.h"
#include "worker-runtime/core/group.h"

#include <ddp/checkpoint.h>
#include <pthread.h>

struct checkpoint_image { /* the state of a step as it is written: on rank 0 */
    int64_t step;
    struct ddp_safetensors_tensor *tensors; /* n of them, owned */
    char **names;  /* owned, and what they point to; NULL: the tensors' are the caller's */
    void **copies; /* owned; of a tensor whose data is the caller's: NULL */
    size_t n;
};

struct ddp_checkpoint {
    struct group_child child; /* first member */
    struct ddp_group *group;  /* borrowed */
    char *directory;          /* owned */
    int keep_last;
    bool async;

    bool is_writing; /* the thread has not been joined */
    pthread_t thread;
    struct checkpoint_image image; /* the thread's, while it writes */
    int code;                      /* how it ended; the thread's result, the same */
    struct co_error err;
};

/* Wait for the thread, if there is one, and take what it came to. */
int checkpoint_join(struct ddp_checkpoint *c, struct co_error *err);

void checkpoint_image_fini(struct checkpoint_image *image); /* a zeroed one is fine */

/* Have the image written by a thread, or by this one. The image is taken over.
 * returns   0, -errno; checkpoint_join() returns a thread's failure */
int checkpoint_write(struct ddp_checkpoint *c, struct checkpoint_image *image,
                     struct co_error *err);

/* A tensor as an item describes it, without data, and its elements.
 * returns   0, -EINVAL (bad type, shape, NULL, a part beyond the tensor) */
int checkpoint_describe(const struct ddp_checkpoint_item *item,
                        struct ddp_safetensors_tensor *ret_tensor, size_t *ret_elements,
                        struct co_error *err);

/* What a load and a save begin with: wait for the thread, and compare all items. A load's step is
 * 0.
 *
 * returns      0; DDP_EMISMATCH on all ranks: they describe different items; the status of a rank
 *              that has failed; else as ddp_all_reduce() */
int checkpoint_agree_on_items(const char *name, struct ddp_checkpoint *c, int64_t step,
                              const struct ddp_checkpoint_item *items, size_t n);

struct checkpoint_part { /* of a sharded item: as it travels */
    uint64_t first, count;
};

#endif
