/* checkpoint_load.c - from a file to the ranks: the first rank of each node reads it, and
 * distributes it to the other ranks there. */
#include "checkpoint_dir.h"
#include "checkpoint_priv.h"
#include "common/scope.h"
#include "worker-runtime/core/collective.h"

#include <ddp/collective.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum { PIECE_BYTES = 1 << 20 }; /* for each rank, of a sharded item */

static void print_shape(const struct ddp_safetensors_tensor *t, char *text, size_t size)
{
    size_t at = (size_t)snprintf(text, size, "[");
    for (unsigned i = 0; i < t->n_dims && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%zu", i > 0 ? ", " : "", t->shape[i]);
    if (at < size)
        snprintf(text + at, size - at, "]");
}

/* The file has all that is wanted, as it is wanted. */
static int look_up(const struct ddp_safetensors *f, const struct ddp_checkpoint_item *items,
                   size_t n, struct co_error *err)
{
    for (size_t i = 0; i < n; i++) {
        struct ddp_safetensors_tensor want;
        size_t elements;
        checkpoint_describe(&items[i], &want, &elements, NULL);
        const struct ddp_safetensors_tensor *have = ddp_safetensors_find(f, items[i].name);
        if (have == NULL)
            return co_fail(err, -EINVAL,
                           "the checkpoint has no item '%.100s'; pass the items that were saved",
                           items[i].name);
        if (have->dtype != want.dtype || have->n_dims != want.n_dims ||
            memcmp(have->shape, want.shape, want.n_dims * sizeof want.shape[0]) != 0) {
            char has[200], wanted[200];
            print_shape(have, has, sizeof has);
            print_shape(&want, wanted, sizeof wanted);
            return co_fail(err, -EINVAL,
                           "item '%.100s' is %s %s in the checkpoint, but the program passes type "
                           "%d and shape %s",
                           items[i].name, have->type, has, want.dtype, wanted);
        }
    }
    return 0;
}

/* --- dealing out on a node -------------------------------------------------------------------- */

static int load_whole(struct ddp_group *node, const struct ddp_checkpoint_item *it,
                      const struct ddp_safetensors_tensor *from)
{
    struct ddp_safetensors_tensor t;
    size_t elements;
    checkpoint_describe(it, &t, &elements, NULL);
    if (from != NULL && t.bytes > 0)
        memcpy(it->data, from->data, t.bytes);
    return ddp_broadcast(node, it->data, it->data, elements, it->dtype, 0, NULL);
}

struct deal { /* of one sharded item */
    struct ddp_group *node;
    const struct ddp_checkpoint_item *item;
    const struct ddp_safetensors_tensor *from; /* rank 0's; NULL elsewhere */
    struct checkpoint_part *parts;             /* of each rank of the node */
    size_t *counts;                            /* of the piece that is on its way */
    uint8_t *pieces; /* on rank 0; a piece for each rank, one after the other */
};

static size_t piece_of(const struct deal *d)
{
    return PIECE_BYTES / ddp_dtype_size(d->item->dtype);
}

/* Elements from `done` on, of every rank: at most a piece. */
static int deal_piece(const struct deal *d, uint64_t done)
{
    const size_t size = ddp_dtype_size(d->item->dtype), most = piece_of(d);
    uint8_t *to = d->pieces;
    for (int r = 0; r < d->node->world_size; r++) {
        const struct checkpoint_part *p = &d->parts[r];
        const uint64_t left = p->count > done ? p->count - done : 0;
        d->counts[r] = left < most ? (size_t)left : most;
        if (d->from != NULL && d->counts[r] > 0) {
            memcpy(to, (const uint8_t *)d->from->data + (p->first + done) * size,
                   d->counts[r] * size);
            to += d->counts[r] * size;
        }
    }
    uint8_t *own = d->item->data;
    if (own != NULL && d->counts[d->node->rank] > 0)
        own += done * size;
    return ddp_scatter_v(d->node, d->pieces, own, d->counts, d->item->dtype, 0, NULL);
}

static int load_sharded(const struct deal *d)
{
    const struct checkpoint_part own = {d->item->first, d->item->count};
    uint64_t most = 0;
    int rc = ddp_all_gather(d->node, &own, d->parts, 2, DDP_UINT64, NULL);
    for (int r = 0; r < d->node->world_size; r++)
        if (d->parts[r].count > most)
            most = d->parts[r].count;
    for (uint64_t done = 0; done < most && rc == 0; done += piece_of(d))
        rc = deal_piece(d, done);
    return rc;
}

static int deal_out(struct ddp_group *g, struct ddp_group *node, const struct ddp_safetensors *f,
                    const struct ddp_checkpoint_item *items, size_t n)
{
    const size_t n_ranks = (size_t)node->world_size;
    struct co_error err = {0};
    co_autofree struct checkpoint_part *parts = calloc(n_ranks, sizeof *parts);
    co_autofree size_t *counts = calloc(n_ranks, sizeof *counts);
    co_autofree uint8_t *pieces = f != NULL ? malloc(n_ranks * PIECE_BYTES) : NULL;
    const bool lacks = parts == NULL || counts == NULL || (f != NULL && pieces == NULL);
    int rc = collective_agree(g, lacks ? -ENOMEM : 0, &err);
    for (size_t i = 0; i < n && rc == 0; i++) {
        const struct ddp_safetensors_tensor *from =
            f != NULL ? ddp_safetensors_find(f, items[i].name) : NULL;
        const struct deal d = {node, &items[i], from, parts, counts, pieces};
        rc = items[i].is_sharded ? load_sharded(&d) : load_whole(node, &items[i], from);
    }
    return rc;
}

/* --- the whole -------------------------------------------------------------------------------- */

static int load_items(struct ddp_checkpoint *c, int64_t step,
                      const struct ddp_checkpoint_item *items, size_t n, struct ddp_group *node,
                      struct ddp_safetensors **f)
{
    struct ddp_group *g = c->group;
    struct co_error err = {0};
    int code = 0;
    int rc = checkpoint_agree_on_items("ddp_checkpoint_load", c, 0, items, n);
    if (rc != 0)
        return rc;
    if (node->rank == 0) {
        code = checkpoint_dir_open(c->directory, step, f, &err);
        if (code == 0 && (code = look_up(*f, items, n, &err)) != 0)
            co_fail_in(&err, "step %" PRId64 " in '%s'", step, c->directory);
    }
    rc = collective_agree(g, code, &err);
    return rc == 0 ? deal_out(g, node, *f, items, n) : rc;
}

int ddp_checkpoint_load(struct ddp_checkpoint *c, int64_t step,
                        const struct ddp_checkpoint_item *items, size_t n)
{
    struct ddp_safetensors *f = NULL;
    if (c == NULL)
        return rt_fail(DDP_EINVAL, "ddp_checkpoint_load: the checkpoint is NULL");
    struct ddp_group *g = c->group, *node = g; /* the ranks of this node */
    int rc = g->n_nodes > 1 ? ddp_group_split(g, g->node_rank, g->rank, &node) : DDP_OK;
    if (rc != 0)
        return rc;
    rc = load_items(c, step, items, n, node, &f);
    ddp_safetensors_close(f);
    if (node != g)
        ddp_group_destroy(node);
    return rc;
}
