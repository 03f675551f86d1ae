/* resolve.c - look a name up on a thread of its own, since getaddrinfo() blocks.
 *
 * Read resolve_start() first: question_begin() starts the thread, question_run() asks and writes to
 * an eventfd, on_answer() reports from the loop. A numeric address needs no thread.
 * resolve_cancel() cannot end a thread; the last of the two that lets go of the question frees
 * it. */
#include "resolve.h"

#include "address.h"
#include "common/error.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* What the thread and the loop share; the last one to release it frees it. */
struct question {
    _Atomic int n_users;
    int done_fd; /* an eventfd: written once the answer is there */
    uint16_t port;
    int failure; /* of getaddrinfo() */
    int failure_errno;
    size_t n;
    struct sockaddr_storage addresses[RESOLVE_MAX_ADDRESSES];
    char host[];
};

struct resolve {
    uv_poll_t poll;
    struct question *question;
    resolve_done on_done;
    void *arg;
};

static void question_drop(struct question *q)
{
    if (atomic_fetch_sub(&q->n_users, 1) > 1)
        return;
    close(q->done_fd);
    free(q);
}

static void take_address(struct question *q, const struct addrinfo *found)
{
    struct sockaddr_storage *to = &q->addresses[q->n];
    if (q->n == RESOLVE_MAX_ADDRESSES || found->ai_addrlen > sizeof *to)
        return;
    memset(to, 0, sizeof *to);
    memcpy(to, found->ai_addr, found->ai_addrlen);
    if (to->ss_family == AF_INET)
        ((struct sockaddr_in *)to)->sin_port = htons(q->port);
    else
        ((struct sockaddr_in6 *)to)->sin6_port = htons(q->port);
    q->n++;
}

static void *question_run(void *arg)
{
    static const uint64_t one = 1;
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct question *q = arg;
    struct addrinfo *found = NULL;
    q->failure = getaddrinfo(q->host, NULL, &hints, &found);
    q->failure_errno = errno;
    for (const struct addrinfo *a = found; q->failure == 0 && a != NULL; a = a->ai_next)
        if (a->ai_family == AF_INET || a->ai_family == AF_INET6)
            take_address(q, a);
    if (found != NULL)
        freeaddrinfo(found);
    if (write(q->done_fd, &one, sizeof one) < 0)
        q->n = 0; /* cannot be: nothing else is ever written there */
    question_drop(q);
    return NULL;
}

static void on_closed(uv_handle_t *handle)
{
    struct resolve *r = handle->data;
    question_drop(r->question);
    free(r);
}

void resolve_cancel(struct resolve *r)
{
    r->on_done = NULL;
    if (!uv_is_closing((uv_handle_t *)&r->poll))
        uv_close((uv_handle_t *)&r->poll, on_closed);
}

static int code_of(const struct question *q)
{
    switch (q->failure) {
    case 0:
        return q->n > 0 ? 0 : -ENOENT;
    case EAI_AGAIN:
        return -EAGAIN;
    case EAI_MEMORY:
        return -ENOMEM;
    case EAI_SYSTEM:
        return q->failure_errno > 0 ? -q->failure_errno : -EIO;
    default:
        return -ENOENT;
    }
}

static void on_answer(uv_poll_t *poll, int status, int events)
{
    struct resolve *r = poll->data;
    const struct question *q = r->question;
    resolve_done on_done = r->on_done;
    char text[400] = "";
    (void)status;
    (void)events;
    int code = code_of(q);
    if (code < 0)
        snprintf(text, sizeof text, "cannot resolve '%.200s': %s", q->host,
                 q->failure == 0            ? "no address found"
                 : q->failure == EAI_SYSTEM ? strerror(q->failure_errno)
                                            : gai_strerror(q->failure));
    if (on_done != NULL)
        on_done(r->arg, code, text, q->addresses, code == 0 ? q->n : 0);
    resolve_cancel(r);
}

/* A thread for a name, none for a number. */
static int question_begin(struct question *q)
{
    pthread_attr_t attr;
    pthread_t thread;
    atomic_store(&q->n_users, 2);
    if (address_parse(q->host, q->port, &q->addresses[0]) == 0) {
        static const uint64_t one = 1;
        q->n = 1;
        atomic_store(&q->n_users, 1);
        return write(q->done_fd, &one, sizeof one) < 0 ? -errno : 0;
    }
    int rc = pthread_attr_init(&attr);
    if (rc != 0)
        return -rc;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    rc = pthread_create(&thread, &attr, question_run, q);
    pthread_attr_destroy(&attr);
    if (rc != 0)
        atomic_store(&q->n_users, 1);
    return -rc;
}

static int make_question(const char *host, uint16_t port, struct question **ret)
{
    struct question *q = calloc(1, sizeof *q + strlen(host) + 1);
    if (q == NULL)
        return -ENOMEM;
    strcpy(q->host, host);
    q->port = port;
    atomic_init(&q->n_users, 1);
    q->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (q->done_fd < 0) {
        int rc = -errno;
        free(q);
        return rc;
    }
    *ret = q;
    return 0;
}

int resolve_start(uv_loop_t *loop, const char *host, uint16_t port, resolve_done on_done, void *arg,
                  struct resolve **ret, struct co_error *err)
{
    struct question *q = NULL;
    struct resolve *r = calloc(1, sizeof *r);
    int rc = r == NULL ? -ENOMEM : make_question(host, port, &q);
    if (rc < 0) {
        free(r);
        return co_fail(err, rc, "cannot resolve '%.200s': %s", host, strerror(-rc));
    }
    *r = (struct resolve){.question = q, .on_done = on_done, .arg = arg};
    rc = uv_poll_init(loop, &r->poll, q->done_fd);
    if (rc < 0) {
        question_drop(q);
        free(r);
        return co_fail(err, rc, "cannot resolve '%.200s': %s", host, uv_strerror(rc));
    }
    r->poll.data = r;
    rc = question_begin(q);
    if (rc == 0)
        rc = uv_poll_start(&r->poll, UV_READABLE, on_answer);
    if (rc < 0) {
        resolve_cancel(r);
        return co_fail(err, rc, "cannot resolve '%.200s': %s", host, strerror(-rc));
    }
    *ret = r;
    return 0;
}
