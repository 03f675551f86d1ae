#include "chargpt_state.h"

#include <stdio.h>
#include <stdlib.h>

#include "../shared/adamw.h"
#include "gpt.h"

enum { N_NUMBERS = sizeof(struct chargpt_position) / sizeof(int64_t) };
enum { NAME_BYTES = 64 };
enum { MOST_BESIDE = DDP_ZERO_MAX_ITEMS + 1 }; /* items that are not tensors of the network */

/* Those of the optimizer, from `it` on. returns how many */
static size_t describe_optimiser(const struct chargpt_optimiser *by, struct ddp_checkpoint_item *it)
{
    const struct adamw *adam = by->whole;
    size_t n = 0;

    if (adam == NULL)
        return ddp_zero_items(by->sharded, "adamw", it, &n) == 0 ? n : 0;
    it[0] = (struct ddp_checkpoint_item){.name = "adamw.mean",
                                         .dtype = REAL_DTYPE,
                                         .n_dims = 1,
                                         .shape = {adam->n},
                                         .data = adam->mean};
    it[1] = it[0];
    it[1].name = "adamw.square";
    it[1].data = adam->square;
    return 2;
}

/* returns   *ret_n items; free() them. NULL without memory */
static struct ddp_checkpoint_item *describe(const struct gpt *net,
                                            const struct chargpt_optimiser *by,
                                            struct chargpt_position *at, size_t *ret_n)
{
    const size_t most = 2 * net->n_tensors + MOST_BESIDE;
    struct ddp_checkpoint_item *items = calloc(most, sizeof(*items) + NAME_BYTES);
    char(*names)[NAME_BYTES] = items != NULL ? (void *)(items + most) : NULL;
    size_t n = 0;

    if (items == NULL)
        return NULL;
    for (size_t i = 0; i < net->n_tensors; i++) {
        const struct gpt_tensor *t = &net->tensors[i];
        struct ddp_checkpoint_item *it = &items[n++];
        *it = (struct ddp_checkpoint_item){.name = t->name,
                                           .dtype = REAL_DTYPE,
                                           .n_dims = (unsigned)t->n_dims,
                                           .shape = {t->shape[0], t->shape[1]},
                                           .data = net->params + t->first};
        if (by->outer == NULL)
            continue;
        items[n] = *it;
        ddp_model_outer(by->outer, i, &it->data, &items[n].data);
        snprintf(names[i], NAME_BYTES, "outer.%s", t->name);
        items[n++].name = names[i];
    }
    n += describe_optimiser(by, items + n);
    items[n++] = (struct ddp_checkpoint_item){
        .name = "position", .dtype = DDP_INT64, .n_dims = 1, .shape = {N_NUMBERS}, .data = at};
    *ret_n = n;
    return items;
}

int chargpt_state_save(struct ddp_checkpoint *c, const struct gpt *net,
                       const struct chargpt_optimiser *by, const struct chargpt_position *at)
{
    struct chargpt_position copy = *at;
    size_t n;
    struct ddp_checkpoint_item *items = describe(net, by, &copy, &n);
    int rc = items != NULL ? ddp_checkpoint_save(c, at->step, items, n) : DDP_ENOMEM;

    free(items);
    return rc;
}

int chargpt_state_load(struct ddp_checkpoint *c, const struct gpt *net,
                       const struct chargpt_optimiser *by, struct chargpt_position *at,
                       bool *ret_found)
{
    size_t n;
    struct ddp_checkpoint_item *items = describe(net, by, at, &n);
    int64_t step = -1;
    int rc = items != NULL ? ddp_checkpoint_latest(c, &step) : DDP_ENOMEM;

    if (rc == 0 && step >= 0)
        rc = ddp_checkpoint_load(c, step, items, n);
    if (rc == 0 && step >= 0 && by->sharded != NULL)
        rc = ddp_zero_loaded(by->sharded);
    if (rc == 0 && step >= 0 && by->outer != NULL)
        rc = ddp_model_outer_loaded(by->outer);
    free(items);
    *ret_found = step >= 0;
    return rc;
}
