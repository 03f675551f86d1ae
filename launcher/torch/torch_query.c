/* A query asks for one page after the other, each over a connection of its own: torch_query_look()
 * sends the request (send_request()), reads until the reply is whole, keeps it
 * (take_reply()), and goes to the next page. The deadline is that of all pages; what has arrived
 * before it is kept. */
#include "torch_query.h"

#include "torch_reply.h"
#include "torch_trace.h"

#include "common/buf.h"
#include "common/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { HTTP_OK = 200 };

enum page { PAGE_STACKS, PAGE_TRACE, PAGE_NCCL, N_PAGES };

/* gloo and other back ends have their flight recorder in the second one, NCCL in the third, which a
 * torch without CUDA does not have. */
static const char *const names[N_PAGES] = {[PAGE_STACKS] = "dump_traceback",
                                           [PAGE_TRACE] = "fr_trace_json",
                                           [PAGE_NCCL] = "dump_nccl_trace_json"};

struct torch_query {
    struct sockaddr_un address;
    uint64_t end_ms;
    enum page page; /* N_PAGES: the query is over */
    int fd;         /* -1: not connected */
    bool has_sent;
    struct co_buf in;
    char *stack;               /* owned; NULL: none */
    struct torch_trace *trace; /* as above */
};

int torch_query_begin(const char *path, bool has_stack, uint64_t now_ms, struct torch_query **ret)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return -ENAMETOOLONG;
    struct torch_query *q = calloc(1, sizeof *q);
    if (q == NULL)
        return -ENOMEM;
    strcpy(address.sun_path, path);
    *q = (struct torch_query){.address = address,
                              .end_ms = now_ms + TORCH_QUERY_MS,
                              .page = has_stack ? PAGE_STACKS : PAGE_TRACE,
                              .fd = -1};
    *ret = q;
    return 0;
}

static void hang_up(struct torch_query *q)
{
    if (q->fd >= 0)
        close(q->fd);
    q->fd = -1;
    q->has_sent = false;
    co_buf_fini(&q->in);
    q->in = (struct co_buf){0};
}

void torch_query_end(struct torch_query *q)
{
    if (q == NULL)
        return;
    hang_up(q);
    q->page = N_PAGES;
}

void torch_query_destroy(struct torch_query *q)
{
    if (q == NULL)
        return;
    hang_up(q);
    free(q->stack);
    free(q->trace);
    free(q);
}

/* A full queue of the socket is tried again. returns whether it may work later */
static bool dial(struct torch_query *q)
{
    q->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (q->fd >= 0 && connect(q->fd, (const struct sockaddr *)&q->address, sizeof q->address) == 0)
        return true;
    const bool is_full = errno == EAGAIN;
    hang_up(q);
    return is_full;
}

/* returns whether the connection is good */
static bool send_request(struct torch_query *q)
{
    char text[160];
    const int n = snprintf(text, sizeof text,
                           "POST /handler/%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
                           "Connection: close\r\n\r\n",
                           names[q->page]);
    q->has_sent = true;
    return send(q->fd, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) == n;
}

static void take_trace(struct torch_query *q, const struct torch_reply *reply)
{
    struct co_error err;
    if (q->trace == NULL)
        q->trace = calloc(1, sizeof *q->trace);
    if (q->trace != NULL)
        torch_trace_add(q->trace, reply->body, reply->len, &err);
}

/* The thread of the server comes first, and has no frame. */
static char *take_stack(const struct torch_reply *reply)
{
    static const char none[] = "\n  <no Python frame>\n\n";
    char *text = strndup(reply->body, reply->len);
    const char *end = text != NULL ? strstr(text, none) : NULL;
    if (end != NULL && memchr(text, '\n', (size_t)(end - text)) == NULL)
        memmove(text, end + sizeof none - 1, strlen(end + sizeof none - 1) + 1);
    return text;
}

static void take_reply(struct torch_query *q, const struct torch_reply *reply)
{
    if (reply->status != HTTP_OK)
        return;
    if (q->page == PAGE_STACKS)
        q->stack = take_stack(reply);
    else
        take_trace(q, reply);
}

/* returns whether the page is over */
static bool look_at_page(struct torch_query *q)
{
    struct torch_reply reply;
    if (q->fd < 0 && !dial(q))
        return true;
    if (q->fd < 0) /* later */
        return false;
    if (!q->has_sent && !send_request(q))
        return true;
    /* the parser refuses a reply that is too long */
    const bool is_over =
        co_buf_receive(&q->in, q->fd, TORCH_REPLY_HEAD_BYTES + TORCH_REPLY_BODY_BYTES);
    const int rc =
        torch_reply_parse((const char *)co_buf_bytes(&q->in), co_buf_len(&q->in), is_over, &reply);
    if (rc == 1)
        take_reply(q, &reply);
    return rc != 0;
}

bool torch_query_look(struct torch_query *q, uint64_t now_ms)
{
    if (q == NULL || q->page == N_PAGES)
        return false;
    if (now_ms >= q->end_ms) {
        torch_query_end(q);
        return false;
    }
    while (q->page != N_PAGES && look_at_page(q)) {
        hang_up(q);
        q->page++;
    }
    return q->page != N_PAGES;
}

char *torch_query_take_stack(struct torch_query *q)
{
    char *stack = q != NULL ? q->stack : NULL;
    if (q != NULL)
        q->stack = NULL;
    return stack;
}

struct torch_trace *torch_query_take_trace(struct torch_query *q)
{
    struct torch_trace *trace = q != NULL ? q->trace : NULL;
    if (q != NULL)
        q->trace = NULL;
    return trace;
}
