#include "pmi1_client.h"

#include "common/clock.h"
#include "common/error.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int await(const struct pmi1_client *c, short events, uint64_t deadline_ms,
                 struct co_error *err)
{
    struct pollfd p = {.fd = c->fd, .events = events};
    for (;;) {
        const int left_ms = co_left_ms(deadline_ms);
        const int n = poll(&p, 1, left_ms);
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return co_fail(err, -errno, "PMI: %s", strerror(errno));
        if (n == 0 && left_ms >= 0 && co_left_ms(deadline_ms) == 0)
            return co_fail(err, -ETIMEDOUT, "PMI: timed out waiting for an answer");
    }
}

/* Requests are short: if a socket has no space for one, no process reads at its other end. A closed
 * other end is also an answer: no signal is to end the program that asks. */
static int send_line(struct pmi1_client *c, const char *line, size_t n, uint64_t deadline_ms,
                     struct co_error *err)
{
    while (n > 0) {
        int rc = await(c, POLLOUT, deadline_ms, err);
        if (rc < 0)
            return rc;
        ssize_t n_sent = send(c->fd, line, n, MSG_NOSIGNAL);
        if (n_sent < 0 && errno != EINTR && errno != EAGAIN)
            return co_fail(err, -errno, "PMI: %s", strerror(errno));
        line += n_sent > 0 ? n_sent : 0;
        n -= n_sent > 0 ? (size_t)n_sent : 0;
    }
    return 0;
}

static int receive_line(struct pmi1_client *c, uint64_t deadline_ms, size_t *ret_len,
                        struct co_error *err)
{
    int rc;
    while ((rc = pmi1_next_line(c->in, c->n_in, ret_len, err)) == -EAGAIN) {
        rc = await(c, POLLIN, deadline_ms, err);
        if (rc < 0)
            return rc;
        ssize_t n = read(c->fd, c->in + c->n_in, sizeof c->in - c->n_in);
        if (n == 0)
            return co_fail(err, -EPIPE, "PMI: the launcher closed the connection");
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return co_fail(err, -errno, "PMI: %s", strerror(errno));
        c->n_in += n > 0 ? (size_t)n : 0;
    }
    return rc;
}

/* Ask, and take the answer apart, which is lent until forget().
 *
 * reply     the command that answers */
__attribute__((format(printf, 6, 7))) static int ask(struct pmi1_client *c, const char *reply,
                                                     struct pmi1_line *ret, uint64_t deadline_ms,
                                                     struct co_error *err, const char *format, ...)
{
    char line[PMI1_LINE_BYTES];
    size_t n_reply = 0;
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    int rc = send_line(c, line, (size_t)n, deadline_ms, err);
    if (rc == 0)
        rc = receive_line(c, deadline_ms, &n_reply, err);
    if (rc == 0)
        rc = pmi1_parse(c->in, n_reply, ret, err);
    if (rc == 0 && !pmi1_says(ret, "cmd", reply))
        rc = co_fail(err, -EPROTO, "PMI: invalid answer '%.*s' to '%.40s'",
                     (int)(n_reply < 60 ? n_reply : 60), (const char *)c->in, format);
    return rc;
}

static void forget(struct pmi1_client *c)
{
    const uint8_t *newline = memchr(c->in, '\n', c->n_in);
    const size_t n = newline != NULL ? (size_t)(newline - c->in) + 1 : c->n_in;
    memmove(c->in, c->in + n, c->n_in - n);
    c->n_in -= n;
}

/* An answer without rc is a good one: some managers leave it out. */
static bool is_refused(const struct pmi1_line *line)
{
    struct wire_bytes rc;
    return pmi1_find(line, "rc", &rc) && !pmi1_says(line, "rc", "0");
}

static int refusal_report(const struct pmi1_line *line, const char *what, struct co_error *err)
{
    struct wire_bytes text = {(const uint8_t *)"", 0};
    pmi1_find(line, "msg", &text);
    return co_fail(err, -EPROTO, "PMI: the launcher refused %s: %.*s", what,
                   (int)(text.len < 100 ? text.len : 100), (const char *)text.at);
}

static int copy_value(struct wire_bytes value, char *to, size_t n, struct co_error *err)
{
    if (value.len >= n)
        return co_fail(err, -ENOSPC, "PMI: a value of %zu bytes is too long", value.len);
    memcpy(to, value.at, value.len);
    to[value.len] = '\0';
    return 0;
}

int pmi1_client_open(struct pmi1_client *c, int fd, uint64_t deadline_ms, struct co_error *err)
{
    struct pmi1_line line;
    struct wire_bytes name;
    *c = (struct pmi1_client){.fd = fd};
    int rc = ask(c, "response_to_init", &line, deadline_ms, err,
                 "cmd=init pmi_version=1 pmi_subversion=1\n");
    if (rc == 0 && is_refused(&line))
        rc = refusal_report(&line, "PMI-1", err);
    forget(c);
    if (rc == 0)
        rc = ask(c, "my_kvsname", &line, deadline_ms, err, "cmd=get_my_kvsname\n");
    if (rc == 0 && !pmi1_find(&line, "kvsname", &name))
        rc = co_fail(err, -EPROTO, "PMI: the key space has no name");
    if (rc == 0)
        rc = copy_value(name, c->name, sizeof c->name, err);
    forget(c);
    return rc;
}

int pmi1_client_put(struct pmi1_client *c, const char *key, const char *value, uint64_t deadline_ms,
                    struct co_error *err)
{
    struct pmi1_line line;
    if (strlen(key) >= PMI1_KEY_BYTES || strlen(value) >= PMI1_VALUE_BYTES)
        return co_fail(err, -EINVAL, "PMI: a key has at most %d bytes, a value %d",
                       PMI1_KEY_BYTES - 1, PMI1_VALUE_BYTES - 1);
    int rc = ask(c, "put_result", &line, deadline_ms, err, "cmd=put kvsname=%s key=%s value=%s\n",
                 c->name, key, value);
    if (rc == 0 && is_refused(&line))
        rc = refusal_report(&line, key, err);
    forget(c);
    return rc;
}

int pmi1_client_barrier(struct pmi1_client *c, uint64_t deadline_ms, struct co_error *err)
{
    struct pmi1_line line;
    int rc = ask(c, "barrier_out", &line, deadline_ms, err, "cmd=barrier_in\n");
    if (rc == 0 && is_refused(&line))
        rc = refusal_report(&line, "the barrier", err);
    forget(c);
    return rc;
}

int pmi1_client_get(struct pmi1_client *c, const char *key, char *value, size_t n,
                    uint64_t deadline_ms, struct co_error *err)
{
    struct pmi1_line line;
    struct wire_bytes found;
    int rc =
        ask(c, "get_result", &line, deadline_ms, err, "cmd=get kvsname=%s key=%s\n", c->name, key);
    if (rc == 0 && (is_refused(&line) || !pmi1_find(&line, "value", &found)))
        rc = co_fail(err, -ENOENT, "PMI: no such key: '%.60s'", key);
    if (rc == 0)
        rc = copy_value(found, value, n, err);
    forget(c);
    return rc;
}

int pmi1_client_finalize(struct pmi1_client *c, uint64_t deadline_ms, struct co_error *err)
{
    struct pmi1_line line;
    int rc = ask(c, "finalize_ack", &line, deadline_ms, err, "cmd=finalize\n");
    forget(c);
    return rc;
}
