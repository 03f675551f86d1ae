#include "local_link.h"

#include "wire.h"

#include "common/error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 4 };

void local_link_fini(struct local_link *l)
{
    for (int to = 0; to < 2; to++)
        co_buf_fini(&l->waiting[to]);
    free(l->taken);
    free(l->scratch);
    *l = (struct local_link){0};
}

int local_link_put(struct local_link *l, enum local_link_end to, const struct message *m,
                   struct co_error *err)
{
    struct co_buf *b = &l->waiting[to];
    static const uint8_t no_length[LENGTH_BYTES];
    size_t before = co_buf_len(b);
    if (co_buf_append(b, no_length, sizeof no_length) < 0)
        return co_fail(err, -ENOMEM, "no memory for a message");
    int rc = control_wire_encode(m, b, err);
    if (rc < 0) {
        b->end -= LENGTH_BYTES;
        return rc;
    }
    wire_put_u32(b->data + b->start + before, (uint32_t)(co_buf_len(b) - before - LENGTH_BYTES));
    return 0;
}

static int reserve(struct local_link *l, struct co_error *err)
{
    if (l->taken == NULL)
        l->taken = malloc(CONTROL_WIRE_MAX_BYTES);
    if (l->scratch == NULL)
        l->scratch = malloc(sizeof *l->scratch);
    return l->taken == NULL || l->scratch == NULL ? co_fail(err, -ENOMEM, "no memory for a message")
                                                  : 0;
}

int local_link_take(struct local_link *l, enum local_link_end to, struct message *ret,
                    struct co_error *err)
{
    struct co_buf *b = &l->waiting[to];
    if (co_buf_len(b) == 0)
        return 0;
    int rc = reserve(l, err);
    if (rc < 0)
        return rc;
    size_t len = wire_get_u32(co_buf_bytes(b));
    memcpy(l->taken, co_buf_bytes(b) + LENGTH_BYTES, len);
    co_buf_consume(b, LENGTH_BYTES + len);
    rc = control_wire_decode(l->taken, len, l->scratch, ret, err);
    return rc < 0 ? rc : 1;
}
