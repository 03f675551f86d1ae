#include "agree.h"

#include "common/error.h"
#include "group.h"

#include <ddp/collective.h>
#include <string.h>

struct verdict { /* of the rank that failed, as it travels */
    int32_t code;
    char text[CO_ERROR_TEXT_BYTES];
};

int agree(struct ddp_group *g, int code, const struct co_error *err)
{
    if (g->backend == NULL)
        return rt_return(code, err);
    int64_t first = code != 0 ? g->rank : INT64_MAX;
    int rc = ddp_all_reduce(g, &first, &first, 1, DDP_INT64, DDP_MIN, NULL);
    if (rc != 0 || first == INT64_MAX)
        return rc;

    struct verdict v = {.code = code};
    if (err != NULL && first == g->rank)
        memcpy(v.text, err->text, sizeof v.text);
    if ((rc = ddp_broadcast_bytes(g, &v, sizeof v, (int)first)) != 0)
        return rc;
    v.text[sizeof v.text - 1] = '\0';
    struct co_error told;
    co_fail(&told, v.code, "rank %d: %s", (int)first,
            v.text[0] != '\0' ? v.text : strerror(-v.code));
    return rt_return(v.code, &told);
}
