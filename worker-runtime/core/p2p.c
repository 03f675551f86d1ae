/* p2p.c - send and receive: checked arguments, then the back end. */
#include "requests.h"

#include <ddp/collective.h>

static int check_message(const char *name, const struct ddp_group *g, const struct message *m)
{
    const size_t size = ddp_dtype_size(m->dtype);
    int rc = group_check(name, g);
    if (rc != DDP_OK)
        return rc;
    if (size == 0)
        return rt_fail(DDP_EINVAL, "%s: invalid value %d for dtype: expected one of enum ddp_dtype",
                       name, (int)m->dtype);
    if (m->peer < 0 || m->peer >= g->world_size || m->peer == g->rank)
        return rt_fail(DDP_EINVAL,
                       "%s: invalid value %d for peer: expected one of the other %d ranks", name,
                       m->peer, g->world_size - 1);
    if (m->tag < 0)
        return rt_fail(DDP_EINVAL, "%s: invalid value %d for tag: expected 0 or more", name,
                       m->tag);
    if (m->count > PTRDIFF_MAX / size)
        return rt_fail(DDP_EINVAL, "%s: %zu elements exceed the address space", name, m->count);
    if (m->count > 0 && m->data == NULL)
        return rt_fail(DDP_EINVAL, "%s: the buffer is NULL, but count is %zu", name, m->count);
    return DDP_OK;
}

static int start_message(const char *name, struct ddp_group *g, const struct message *m,
                         void *stream, struct ddp_request **ret_request)
{
    int rc = check_message(name, g, m);
    if (rc != DDP_OK)
        return rc;
    if (ret_request == NULL)
        return rt_fail(DDP_EINVAL, "%s: ret_request is NULL", name);
    if (stream == NULL)
        return requests_start_message(g, m, ret_request);
    rc = g->world->on_stream->message(name, g, m, stream);
    return rc == DDP_OK ? requests_start_done(g, ret_request) : rc;
}

static int run_message(const char *name, struct ddp_group *g, const struct message *m, void *stream)
{
    struct ddp_request *request;
    int rc = start_message(name, g, m, stream, &request);
    return rc != DDP_OK ? rc : ddp_wait(request);
}

static struct message describe_message(bool is_send, void *data, size_t count, enum ddp_dtype dtype,
                                       int peer, int tag)
{
    return (struct message){
        .is_send = is_send, .dtype = dtype, .peer = peer, .tag = tag, .count = count, .data = data};
}

int ddp_send(struct ddp_group *g, const void *in, size_t count, enum ddp_dtype dtype, int to,
             int tag, void *stream)
{
    struct message m = describe_message(true, (void *)in, count, dtype, to, tag); /* only read */
    return run_message("ddp_send", g, &m, stream);
}

int ddp_recv(struct ddp_group *g, void *out, size_t count, enum ddp_dtype dtype, int from, int tag,
             void *stream)
{
    struct message m = describe_message(false, out, count, dtype, from, tag);
    return run_message("ddp_recv", g, &m, stream);
}

int ddp_isend(struct ddp_group *g, const void *in, size_t count, enum ddp_dtype dtype, int to,
              int tag, void *stream, struct ddp_request **ret_request)
{
    struct message m = describe_message(true, (void *)in, count, dtype, to, tag); /* only read */
    return start_message("ddp_isend", g, &m, stream, ret_request);
}

int ddp_irecv(struct ddp_group *g, void *out, size_t count, enum ddp_dtype dtype, int from, int tag,
              void *stream, struct ddp_request **ret_request)
{
    struct message m = describe_message(false, out, count, dtype, from, tag);
    return start_message("ddp_irecv", g, &m, stream, ret_request);
}
