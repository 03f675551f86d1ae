#include "job_conn.h"

#include "common/clock.h"
#include "common/scope.h"
#include "console/job_request.h"
#include "ctl/base/table.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { READ_BYTES = 64 << 10 };

int job_conn_say(int fd, const struct job_request *r, struct co_error *err)
{
    char line[JOB_REQUEST_BYTES];
    size_t len = job_request_write(r, line);
    /* a request fits any socket's buffer: all of it goes, or nothing */
    if (send(fd, line, len, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)len)
        return co_fail(err, errno == EAGAIN ? -EAGAIN : -EPIPE, "the job has ended");
    return 0;
}

/* returns   1 more came; 0 nothing yet; as struct job_hearing has it */
static int read_some(int fd, struct co_buf *in, struct co_error *err)
{
    uint8_t *room = co_buf_room(in, READ_BYTES);
    if (room == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    ssize_t n = recv(fd, room, READ_BYTES, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        return co_fail(err, -EPIPE, "the job has ended");
    co_buf_added(in, (size_t)n);
    if (co_buf_len(in) > JOB_ANSWER_BYTES_MAX)
        return co_fail(err, -EPROTO, "the reply of the job exceeds %zu bytes",
                       JOB_ANSWER_BYTES_MAX);
    return 1;
}

static bool is_whole(const struct co_buf *in)
{
    size_t len = co_buf_len(in);
    return len > 0 && co_buf_bytes(in)[len - 1] == '\n';
}

/* The text may be that of another user, and is printed to a terminal. */
static int refuse(const char *error, struct co_error *err)
{
    char text[CO_ERROR_TEXT_BYTES];
    snprintf(text, sizeof text, "%.900s", error);
    return co_fail(err, -EBADE, "%s", table_plain(text));
}

static int understand(const struct co_buf *in, json_t **ret_answer, struct co_error *err)
{
    json_error_t trouble;
    json_t *answer = json_loadb((const char *)co_buf_bytes(in), co_buf_len(in), 0, &trouble);
    const char *error = json_string_value(json_object_get(answer, "error"));
    int rc = 0;
    if (error != NULL)
        rc = refuse(error, err);
    else if (json_integer_value(json_object_get(answer, "v")) != 1)
        rc = co_fail(err, -EPROTO,
                     "unexpected reply from the job; use a ddpctl of the same version");
    if (rc < 0)
        json_decref(answer);
    else
        *ret_answer = answer;
    return rc;
}

static void end_hearing(struct job_hearing *h, int rc)
{
    h->is_over = true;
    h->rc = rc;
}

static void hear_some(struct job_hearing *h)
{
    int rc = read_some(h->fd, &h->in, &h->err);
    if (rc < 0)
        end_hearing(h, rc);
    else if (is_whole(&h->in))
        end_hearing(h, understand(&h->in, &h->answer, &h->err));
}

/* returns   0; -ETIMEDOUT, -errno: nothing more is to be heard */
static int await_some(struct job_hearing *list, size_t n, struct pollfd *polls,
                      uint64_t deadline_ms, struct co_error *err)
{
    for (size_t i = 0; i < n; i++) /* poll() ignores a negative one */
        polls[i] = (struct pollfd){.fd = list[i].is_over ? -1 : list[i].fd, .events = POLLIN};
    int n_ready = poll(polls, n, co_left_ms(deadline_ms));
    if (n_ready == 0)
        return co_fail(err, -ETIMEDOUT,
                       "timed out waiting for ddprun: it may be stopped, or its machine very busy; "
                       "try a longer --timeout");
    if (n_ready < 0 && errno != EINTR)
        return co_fail(err, -errno, "cannot wait for a reply: %s", strerror(errno));
    for (size_t i = 0; n_ready > 0 && i < n; i++)
        if (polls[i].revents != 0)
            hear_some(&list[i]);
    return 0;
}

static void end_all(struct job_hearing *list, size_t n, int rc, const struct co_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (list[i].is_over)
            continue;
        list[i].err = *err;
        end_hearing(&list[i], rc);
    }
}

void job_conn_hear(struct job_hearing *list, size_t n, size_t wanted, uint64_t deadline_ms)
{
    struct co_error err = {0};
    co_autofree struct pollfd *polls = calloc(n, sizeof *polls);
    if (polls == NULL)
        end_all(list, n, co_fail(&err, -ENOMEM, "out of memory"), &err);
    while (!list[wanted].is_over) {
        int rc = await_some(list, n, polls, deadline_ms, &err);
        if (rc < 0)
            end_all(list, n, rc, &err);
    }
}

void job_hearing_fini(struct job_hearing *h)
{
    co_buf_fini(&h->in);
    json_decref(h->answer);
    *h = (struct job_hearing){0};
}

int job_conn_hear_one(int fd, uint64_t deadline_ms, json_t **ret_answer, struct co_error *err)
{
    struct job_hearing h = {.fd = fd};
    job_conn_hear(&h, 1, 0, deadline_ms);
    int rc = h.rc;
    if (rc == 0)
        *ret_answer = co_take(&h.answer);
    else if (err != NULL)
        *err = h.err;
    job_hearing_fini(&h);
    return rc;
}

int job_conn_ask(int fd, const struct job_request *r, uint64_t deadline_ms, json_t **ret_answer,
                 struct co_error *err)
{
    int rc = job_conn_say(fd, r, err);
    return rc == 0 ? job_conn_hear_one(fd, deadline_ms, ret_answer, err) : rc;
}
