/* torch_reply.h - an HTTP reply of torch's worker server. Pure. */
#ifndef DDP_LAUNCHER_TORCH_TORCH_REPLY_H
#define DDP_LAUNCHER_TORCH_TORCH_REPLY_H

#include <stdbool.h>
#include <stddef.h>

enum {
    TORCH_REPLY_HEAD_BYTES = 8192, /* a longer head is refused */
    TORCH_REPLY_BODY_BYTES = 4 << 20,
};

struct torch_reply {
    int status;       /* 200 */
    const char *body; /* lent by the bytes */
    size_t len;
};

/* bytes     what has arrived so far
 * is_over   nothing more comes. A body without a length ends here
 * returns   1: *ret is filled; 0: more has to come; -EPROTO: not such a reply, or cut off, or in
 *           pieces (Transfer-Encoding), which the server does not send; -E2BIG */
int torch_reply_parse(const char *bytes, size_t n, bool is_over, struct torch_reply *ret);

#endif
