#include "recovery_shards.h"

#include "recovery.h"
#include "worker-runtime/core/group.h"

#include <errno.h>
#include <stdlib.h>

void recovery_shards_begin(struct recovery *r)
{
    r->next_shards = &r->shards;
}

int recovery_shards_get(struct ddp_group *g, struct recovery_shards **ret)
{
    struct recovery *r = g->world->recovery;
    *ret = NULL;
    if (r == NULL || !r->again.may_follow)
        return 0;
    if (*r->next_shards == NULL)
        *r->next_shards = calloc(1, sizeof **r->next_shards);
    if (*r->next_shards == NULL)
        return -ENOMEM;
    *ret = *r->next_shards;
    r->next_shards = &(*ret)->next;
    return 0;
}

void recovery_shards_fini(struct recovery *r)
{
    while (r->shards != NULL) {
        struct recovery_shards *kept = r->shards;
        r->shards = kept->next;
        shards_fini(&kept->shards);
        free(kept);
    }
    r->next_shards = &r->shards;
}
