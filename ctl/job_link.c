#include "job_link.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/error.h"
#include "console/job_request.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

enum { READ_BYTES = 64 << 10 };

int job_link_say(int fd, const struct job_request *r, struct co_error *err)
{
    char line[JOB_REQUEST_BYTES];
    size_t len = job_request_write(r, line);
    /* a request fits any socket's buffer: all of it goes, or nothing */
    if (send(fd, line, len, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)len)
        return co_fail(err, errno == EAGAIN ? -EAGAIN : -EPIPE, "the job is not there any more");
    return 0;
}

static int await_bytes(int fd, uint64_t deadline_ms, struct co_error *err)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int n;
    while ((n = poll(&p, 1, co_left_ms(deadline_ms))) < 0 && errno == EINTR) {
    }
    if (n == 0)
        return co_fail(err, -ETIMEDOUT,
                       "ddprun does not answer: it may be stopped, or its machine be very busy");
    return n < 0 ? co_fail(err, -errno, "cannot wait for an answer: %s", strerror(errno)) : 0;
}

/* returns   1 more came; 0 nothing yet; as job_link_hear() */
static int read_some(int fd, struct co_buf *in, struct co_error *err)
{
    uint8_t *room = co_buf_room(in, READ_BYTES);
    if (room == NULL)
        return co_fail(err, -ENOMEM, "no memory for an answer");
    ssize_t n = recv(fd, room, READ_BYTES, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        return co_fail(err, -EPIPE, "the job has ended");
    co_buf_added(in, (size_t)n);
    if (co_buf_len(in) > JOB_ANSWER_BYTES_MAX)
        return co_fail(err, -EPROTO, "an answer of more than %zu bytes", JOB_ANSWER_BYTES_MAX);
    return 1;
}

static bool is_whole(const struct co_buf *in)
{
    size_t len = co_buf_len(in);
    return len > 0 && co_buf_bytes(in)[len - 1] == '\n';
}

static int understand(const struct co_buf *in, json_t **ret_answer, struct co_error *err)
{
    json_error_t trouble;
    json_t *answer = json_loadb((const char *)co_buf_bytes(in), co_buf_len(in), 0, &trouble);
    const char *error = json_string_value(json_object_get(answer, "error"));
    int rc = 0;
    if (error != NULL)
        rc = co_fail(err, -EBADE, "%.900s", error);
    else if (json_integer_value(json_object_get(answer, "v")) != 1)
        rc = co_fail(err, -EPROTO, "what the job answers is not understood: another version?");
    if (rc < 0)
        json_decref(answer);
    else
        *ret_answer = answer;
    return rc;
}

int job_link_hear(int fd, uint64_t deadline_ms, json_t **ret_answer, struct co_error *err)
{
    struct co_buf in = {0};
    int rc = 0;
    while (rc >= 0 && !is_whole(&in)) {
        rc = await_bytes(fd, deadline_ms, err);
        if (rc == 0)
            rc = read_some(fd, &in, err);
    }
    if (rc >= 0)
        rc = understand(&in, ret_answer, err);
    co_buf_fini(&in);
    return rc;
}

int job_link_ask(int fd, const struct job_request *r, uint64_t deadline_ms, json_t **ret_answer,
                 struct co_error *err)
{
    int rc = job_link_say(fd, r, err);
    return rc == 0 ? job_link_hear(fd, deadline_ms, ret_answer, err) : rc;
}
