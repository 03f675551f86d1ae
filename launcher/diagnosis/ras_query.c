/* ras_query.c - one connection at a time: connect, send all requests at once, read to the end.
 *
 * Read ras_query_look() first. */
#include "ras_query.h"

#include "common/buf.h"
#include "common/error.h"
#include "common/parse.h"
#include "rendezvous/net/address.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LEG_S "2" /* NCCL waits so long for a process, and once more for late ones */

enum { N_REPLIES = 3, MAX_LINE = 1024 };

static const char requests[] = "CLIENT PROTOCOL 2\nTIMEOUT " LEG_S "\nSET FORMAT json\nSTATUS\n";

struct ras_query {
    struct ras_query_opts opts;
    struct sockaddr_storage address;
    bool is_localhost;
    uint64_t begun_ms, tried_ms; /* of this answer */
    uint64_t first_ms;           /* when the first answer was complete; 0: it is not */
    uint64_t again_ms;           /* when it is to be asked once more; 0: it is not */
    int fd;                      /* -1: none; the query is over, unless again_ms is set */
    int n_tries;
    bool has_sent;
    struct co_buf in;
    struct ras_report report;
    bool has_report;
    char trouble[CO_ERROR_TEXT_BYTES]; /* "": none */
};

/* --- a connection --- */

static void hang_up(struct ras_query *q)
{
    if (q->fd >= 0)
        close(q->fd);
    q->fd = -1;
    co_buf_fini(&q->in);
    q->in = (struct co_buf){0};
}

__attribute__((format(printf, 2, 3))) static void give_up(struct ras_query *q, const char *format,
                                                          ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(q->trouble, sizeof q->trouble, format, args);
    va_end(args);
    hang_up(q);
}

/* returns whether a process listens there */
static bool dial_address(struct ras_query *q)
{
    q->fd = socket(q->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (q->fd >= 0 &&
        connect(q->fd, (struct sockaddr *)&q->address,
                q->address.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                 : sizeof(struct sockaddr_in)) < 0 &&
        errno != EINPROGRESS)
        hang_up(q);
    return q->fd >= 0;
}

/* "localhost" is one of two addresses for NCCL, depending on the machine. */
static void dial(struct ras_query *q, uint64_t now_ms)
{
    hang_up(q);
    q->n_tries++;
    q->tried_ms = now_ms;
    q->has_sent = false;
    if (dial_address(q) || !q->is_localhost)
        return;
    const uint16_t port = address_port(&q->address);
    if (address_parse(q->address.ss_family == AF_INET ? "::1" : "127.0.0.1", port, &q->address) ==
        0)
        dial_address(q);
}

/* Another process may answer, if there is time and a try left. returns whether it is asked */
static bool dial_again(struct ras_query *q, uint64_t now_ms)
{
    if (q->n_tries == RAS_TRIES || now_ms - q->begun_ms >= RAS_TOTAL_MS)
        return false;
    dial(q, now_ms);
    return q->fd >= 0;
}

static void send_requests(struct ras_query *q)
{
    const ssize_t n = send(q->fd, requests, sizeof requests - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n == (ssize_t)sizeof requests - 1)
        q->has_sent = true;
    else if (n >= 0 || (errno != EAGAIN && errno != ENOTCONN))
        hang_up(q); /* refused: no process listens */
}

/* --- the answer --- */

static const char *text_of(const struct ras_query *q)
{
    return (const char *)co_buf_bytes(&q->in);
}

/* Where the report begins, after the replies to the requests before it.
 * returns   NULL: not all of them are there */
static const char *skip_replies(const struct ras_query *q)
{
    const char *at = text_of(q);
    size_t left = co_buf_len(&q->in);
    for (int i = 0; i < N_REPLIES; i++) {
        const char *end = left > 0 ? memchr(at, '\n', left) : NULL;
        if (end == NULL)
            return NULL;
        left -= (size_t)(end + 1 - at);
        at = end + 1;
    }
    return at;
}

static bool begins_with(const struct ras_query *q, const char *word)
{
    const size_t n = strlen(word);
    return co_buf_len(&q->in) >= n && memcmp(text_of(q), word, n) == 0;
}

static bool has_error(const struct ras_query *q, const char *report)
{
    static const char error[] = "ERROR:";
    return memmem(text_of(q), (size_t)(report - text_of(q)), error, sizeof error - 1) != NULL;
}

/* returns whether there is one of this job */
static bool read_report(struct ras_query *q, uint64_t now_ms, struct ras_report *ret)
{
    struct co_error err;
    const char *report = skip_replies(q);
    if (!begins_with(q, "SERVER PROTOCOL ") || report == NULL) {
        give_up(q, "no RAS of NCCL answers at %s", q->opts.address);
        return false;
    }
    if (has_error(q, report)) {
        give_up(q, "this NCCL reports no JSON: expected version 2.28.7 or later");
        return false;
    }
    const size_t len = co_buf_len(&q->in) - (size_t)(report - text_of(q));
    if (ras_report_parse(report, len, ret, &err) < 0) {
        give_up(q, "%s", err.text);
        return false;
    }
    if (q->opts.rank_of == NULL || ras_report_resolve(ret, q->opts.rank_of, q->opts.arg) > 0 ||
        ret->n == 0)
        return true;
    ras_report_fini(ret);
    if (!dial_again(q, now_ms))
        give_up(q, "%s belongs to another job: set NCCL_RAS_ADDR for each job", q->opts.address);
    return false;
}

static void take_report(struct ras_query *q, uint64_t now_ms)
{
    struct ras_report report;
    if (!read_report(q, now_ms, &report))
        return;
    if (q->first_ms != 0)
        ras_report_compare(&report, &q->report, now_ms - q->first_ms);
    else if (ras_report_differs(&report))
        q->again_ms = now_ms + RAS_APART_MS;
    q->first_ms = now_ms;
    ras_report_fini(&q->report);
    q->report = report;
    q->has_report = true;
    hang_up(q);
}

static void ask_again(struct ras_query *q, uint64_t now_ms)
{
    q->again_ms = 0;
    q->begun_ms = now_ms;
    q->n_tries = 0;
    dial(q, now_ms);
}

bool ras_query_look(struct ras_query *q, uint64_t now_ms)
{
    if (q == NULL)
        return false;
    if (q->again_ms != 0 && now_ms >= q->again_ms)
        ask_again(q, now_ms);
    if (q->fd < 0)
        return q->again_ms != 0;
    if (!q->has_sent)
        send_requests(q);
    if (q->fd >= 0 && q->has_sent &&
        co_buf_receive(&q->in, q->fd, RAS_MAX_BYTES + MAX_LINE)) /* the parser refuses more */
        take_report(q, now_ms);
    if (q->fd >= 0 && now_ms - q->begun_ms >= RAS_TOTAL_MS)
        give_up(q, "timed out after %d s waiting for NCCL's RAS at %s", RAS_TOTAL_MS / 1000,
                q->opts.address);
    if (q->fd >= 0 && co_buf_len(&q->in) == 0 && now_ms - q->tried_ms >= RAS_HELLO_MS &&
        !dial_again(q, now_ms) && q->trouble[0] == '\0')
        give_up(q, "no process answers NCCL's RAS at %s: all that do may be stopped",
                q->opts.address);
    return q->fd >= 0 || q->again_ms != 0;
}

/* --- beginning and end --- */

static int find_address(const char *text, struct ras_query *q)
{
    const char *colon = strrchr(text, ':');
    char host[RAS_TEXT_BYTES];
    int64_t port;
    struct co_error err;
    const size_t n = colon != NULL ? (size_t)(colon - text) : 0;
    const bool is_v6 = n > 2 && text[0] == '[' && text[n - 1] == ']';
    if (n == 0 || n >= sizeof host || co_parse_int("", colon + 1, 1, UINT16_MAX, &port, &err) < 0)
        return -EINVAL;
    snprintf(host, sizeof host, "%.*s", (int)(n - 2 * is_v6), text + is_v6);
    q->is_localhost = strcmp(host, "localhost") == 0;
    return address_parse(q->is_localhost ? "127.0.0.1" : host, (uint16_t)port, &q->address);
}

int ras_query_begin(const struct ras_query_opts *opts, uint64_t now_ms, struct ras_query **ret)
{
    struct ras_query *q = calloc(1, sizeof *q);
    if (q == NULL)
        return -ENOMEM;
    *q = (struct ras_query){.opts = *opts, .begun_ms = now_ms, .fd = -1};
    int rc = find_address(opts->address, q);
    q->opts.address = strdup(opts->address);
    if (rc == 0 && q->opts.address == NULL)
        rc = -ENOMEM;
    if (rc < 0) {
        free((char *)q->opts.address);
        free(q);
        return rc;
    }
    dial(q, now_ms);
    *ret = q;
    return 0;
}

void ras_query_destroy(struct ras_query *q)
{
    if (q == NULL)
        return;
    hang_up(q);
    ras_report_fini(&q->report);
    if (q->opts.on_free != NULL)
        q->opts.on_free(q->opts.arg);
    free((char *)q->opts.address);
    free(q);
}

const struct ras_report *ras_query_report(const struct ras_query *q)
{
    return q != NULL && q->has_report ? &q->report : NULL;
}

const char *ras_query_trouble(const struct ras_query *q)
{
    return q != NULL ? q->trouble : "";
}

void ras_query_print(const struct ras_query *q, FILE *out)
{
    if (q == NULL)
        return;
    if (q->has_report)
        ras_report_print(&q->report, out);
    else if (q->trouble[0] != '\0')
        fprintf(out, "NCCL's RAS: %s\n", q->trouble);
}
