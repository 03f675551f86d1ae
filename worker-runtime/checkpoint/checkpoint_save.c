/* checkpoint_save.c - from the ranks' items to one image of the state on rank 0. */
#include "checkpoint_priv.h"
#include "common/scope.h"
#include "worker-runtime/core/collective.h"

#include <ddp/collective.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* --- the image on rank 0 ---------------------------------------------------------------------- */

/* Names and space for the data; whatever fails on rank 0 fails before the ranks send. */
static int make_image(const struct ddp_checkpoint *c, const struct ddp_checkpoint_item *items,
                      size_t n, struct checkpoint_image *image, struct co_error *err)
{
    size_t elements;
    image->tensors = calloc(n + 1, sizeof *image->tensors);
    image->names = calloc(n + 1, sizeof *image->names);
    image->copies = calloc(n + 1, sizeof *image->copies);
    if (image->tensors == NULL || image->names == NULL || image->copies == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    for (image->n = 0; image->n < n; image->n++) {
        const struct ddp_checkpoint_item *it = &items[image->n];
        struct ddp_safetensors_tensor *t = &image->tensors[image->n];
        checkpoint_describe(it, t, &elements, NULL); /* checked before */
        t->data = it->data;
        t->name = image->names[image->n] = strdup(it->name);
        if (t->bytes > 0 && (it->is_sharded || c->async)) {
            image->copies[image->n] = malloc(t->bytes);
            t->data = image->copies[image->n];
        }
        if (t->name == NULL || (t->bytes > 0 && t->data == NULL)) {
            image->n++; /* so that what there is of it is freed */
            return co_fail(err, -ENOMEM, "out of memory for %zu bytes of item '%.100s'", t->bytes,
                           it->name);
        }
    }
    return 0;
}

/* --- shards ----------------------------------------------------------------------------------- */

/* The parts follow each other and cover the tensor. All ranks look at the same ones. */
static int check_parts(const struct ddp_checkpoint_item *it, const struct checkpoint_part *parts,
                       int n_ranks, size_t elements, size_t *counts)
{
    uint64_t next = 0;
    for (int r = 0; r < n_ranks; r++) {
        if (parts[r].first != next)
            return rt_fail(
                DDP_EINVAL,
                "ddp_checkpoint_save: item '%.100s': the part of rank %d starts at %" PRIu64
                ", expected %" PRIu64,
                it->name, r, parts[r].first, next);
        counts[r] = (size_t)parts[r].count;
        next += parts[r].count;
    }
    if (next != elements)
        return rt_fail(DDP_EINVAL,
                       "ddp_checkpoint_save: item '%.100s': the parts of all ranks have %" PRIu64
                       " of %zu elements",
                       it->name, next, elements);
    return DDP_OK;
}

/* parts, counts   world_size of them
 * whole           rank 0's */
static int gather_parts(struct ddp_group *g, const struct ddp_checkpoint_item *it, size_t elements,
                        struct checkpoint_part *parts, size_t *counts, void *whole)
{
    const struct checkpoint_part own = {it->first, it->count};
    int rc = ddp_all_gather(g, &own, parts, 2, DDP_UINT64, NULL);
    if (rc == 0)
        rc = check_parts(it, parts, g->world_size, elements, counts);
    if (rc == 0)
        rc = ddp_gather_v(g, it->data, whole, counts, it->dtype, 0, NULL);
    return rc;
}

/* Bring what is not on rank 0 there, and copy what the caller may change. */
static int fill_image(struct ddp_checkpoint *c, const struct ddp_checkpoint_item *items, size_t n,
                      struct checkpoint_image *image)
{
    struct ddp_group *g = c->group;
    struct co_error err = {0};
    co_autofree struct checkpoint_part *parts = calloc((size_t)g->world_size, sizeof *parts);
    co_autofree size_t *counts = calloc((size_t)g->world_size, sizeof *counts);
    int rc = collective_agree(g, parts == NULL || counts == NULL ? -ENOMEM : 0, &err);
    for (size_t i = 0; i < n && rc == 0; i++) {
        void *to = g->rank == 0 ? image->copies[i] : NULL;
        struct ddp_safetensors_tensor t;
        size_t elements;
        checkpoint_describe(&items[i], &t, &elements, NULL);
        if (items[i].is_sharded)
            rc = gather_parts(g, &items[i], elements, parts, counts, to);
        else if (to != NULL)
            memcpy(to, items[i].data, t.bytes);
    }
    return rc;
}

static int save_items(struct ddp_checkpoint *c, int64_t step,
                      const struct ddp_checkpoint_item *items, size_t n,
                      struct checkpoint_image *image)
{
    struct ddp_group *g = c->group;
    struct co_error err = {0};
    int rc = checkpoint_agree_on_items("ddp_checkpoint_save", c, step, items, n);
    if (rc != 0)
        return rc;
    image->step = step;
    int code = g->rank == 0 ? make_image(c, items, n, image, &err) : 0;
    if ((rc = collective_agree(g, code, &err)) != 0 || (rc = fill_image(c, items, n, image)) != 0)
        return rc;
    code = g->rank == 0 ? checkpoint_write(c, image, &err) : 0;
    return collective_agree(g, code, &err);
}

int ddp_checkpoint_save(struct ddp_checkpoint *c, int64_t step,
                        const struct ddp_checkpoint_item *items, size_t n)
{
    struct checkpoint_image image = {0};
    if (c == NULL)
        return rt_fail(DDP_EINVAL, "ddp_checkpoint_save: the checkpoint is NULL");
    int rc = save_items(c, step, items, n, &image);
    checkpoint_image_fini(&image);
    return rc;
}
