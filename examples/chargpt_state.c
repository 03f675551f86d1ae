#include "chargpt_state.h"

#include <stdlib.h>

#include "adamw.h"
#include "gpt.h"

enum { N_BESIDE = 3, N_NUMBERS = sizeof(struct chargpt_position) / sizeof(int64_t) };

/* returns   as many items as there are tensors, and N_BESIDE; free() them. NULL without memory */
static struct ddp_checkpoint_item *describe(const struct gpt *net, const struct adamw *adam,
                                            struct chargpt_position *at)
{
    struct ddp_checkpoint_item *items = calloc(net->n_tensors + N_BESIDE, sizeof(*items)), *it;

    if (items == NULL)
        return NULL;
    for (size_t i = 0; i < net->n_tensors; i++) {
        const struct gpt_tensor *t = &net->tensors[i];
        items[i] = (struct ddp_checkpoint_item){.name = t->name,
                                                .dtype = REAL_DTYPE,
                                                .n_dims = (unsigned)t->n_dims,
                                                .shape = {t->shape[0], t->shape[1]},
                                                .data = net->params + t->first};
    }
    it = items + net->n_tensors;
    it[0] = (struct ddp_checkpoint_item){.name = "adamw.mean",
                                         .dtype = REAL_DTYPE,
                                         .n_dims = 1,
                                         .shape = {adam->n},
                                         .data = adam->mean};
    it[1] = it[0];
    it[1].name = "adamw.square";
    it[1].data = adam->square;
    it[2] = (struct ddp_checkpoint_item){
        .name = "position", .dtype = DDP_INT64, .n_dims = 1, .shape = {N_NUMBERS}, .data = at};
    return items;
}

int chargpt_state_save(struct ddp_checkpoint *c, const struct gpt *net, const struct adamw *adam,
                       const struct chargpt_position *at)
{
    struct chargpt_position copy = *at;
    struct ddp_checkpoint_item *items = describe(net, adam, &copy);
    int rc = items != NULL ? ddp_checkpoint_save(c, at->step, items, net->n_tensors + N_BESIDE)
                           : DDP_ENOMEM;

    free(items);
    return rc;
}

int chargpt_state_load(struct ddp_checkpoint *c, const struct gpt *net, const struct adamw *adam,
                       struct chargpt_position *at, bool *ret_found)
{
    struct ddp_checkpoint_item *items = describe(net, adam, at);
    int64_t step = -1;
    int rc = items != NULL ? ddp_checkpoint_latest(c, &step) : DDP_ENOMEM;

    if (rc == 0 && step >= 0)
        rc = ddp_checkpoint_load(c, step, items, net->n_tensors + N_BESIDE);
    free(items);
    *ret_found = step >= 0;
    return rc;
}
