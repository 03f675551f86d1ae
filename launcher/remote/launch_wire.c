/* Lines that a node prints (launch_find_line(), launch_print_line()), orders (launch_put_order(),
 * launch_take_order()) and signals. An order is a list of records, each a letter and a text; the
 * table `texts` has those that occur once. Read launch_put_order() first. */
#include "launch_wire.h"

#include "common/error.h"
#include "common/parse.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARK "ddprun-launch "

/* --- lines of the node --- */

static const char *const line_starts[] = {
    [LAUNCH_UP] = MARK, [LAUNCH_READY] = MARK "ready\n", [LAUNCH_WANTS] = MARK "wants "};

static int read_up(const char *text, size_t len, char *from, struct co_error *err)
{
    char line[LAUNCH_FROM_BYTES + 16];
    int protocol = 0, n = 0;
    snprintf(line, sizeof line, "%.*s", len < sizeof line ? (int)len : 0, text);
    if (sscanf(line, "%9d %n", &protocol, &n) < 1 || n == 0 || protocol != LAUNCH_PROTOCOL)
        return co_fail(err, -EPROTO,
                       "ddprun there has another version; install the same one on all hosts");
    const char *address = line + n;
    size_t n_figures = strspn(address, "0123456789abcdefABCDEF.:%-");
    if (address[0] == '\0' || address[n_figures] != '\0' || n_figures >= LAUNCH_FROM_BYTES)
        return co_fail(err, -EPROTO, "protocol error: ddprun there sent an invalid address '%.60s'",
                       address);
    strcpy(from, strcmp(address, "-") == 0 ? "" : address);
    return 0;
}

static int read_wants(const char *text, size_t len, char *machine, struct co_error *err)
{
    char name[LAUNCH_FROM_BYTES];
    snprintf(name, sizeof name, "%.*s", len < sizeof name ? (int)len : 0, text);
    size_t n = strspn(name, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-");
    if (n == 0 || name[n] != '\0')
        return co_fail(err, -EPROTO,
                       "the host reported no machine architecture, so ddprun cannot be sent; "
                       "install ddprun there");
    strcpy(machine, name);
    return 0;
}

int launch_find_line(enum launch_line which, const uint8_t *bytes, size_t len, size_t *ret_used,
                     char *from, struct co_error *err)
{
    const char *text = (const char *)bytes, *end = text + len;
    const char *start =
        len > 0 ? memmem(text, len, line_starts[which], strlen(line_starts[which])) : NULL;
    const char *newline = start != NULL ? memchr(start, '\n', (size_t)(end - start)) : NULL;
    if (newline == NULL)
        return len <= LAUNCH_CHATTER_MAX_BYTES
                   ? 0
                   : co_fail(err, -E2BIG,
                             "unexpected output from the remote shell; make sure that login "
                             "scripts print nothing in non-interactive shells");
    *ret_used = (size_t)(newline + 1 - text);
    if (which == LAUNCH_READY)
        return 1;
    start += strlen(line_starts[which]);
    int rc =
        (which == LAUNCH_UP ? read_up : read_wants)(start, (size_t)(newline - start), from, err);
    return rc < 0 ? rc : 1;
}

int launch_print_line(enum launch_line which, const char *from, char *to, size_t n)
{
    if (which == LAUNCH_READY)
        return snprintf(to, n, "%s", line_starts[LAUNCH_READY]);
    if (which == LAUNCH_WANTS)
        return snprintf(to, n, "%s%s\n", line_starts[LAUNCH_WANTS], from);
    return snprintf(to, n, MARK "%d %s\n", LAUNCH_PROTOCOL, *from != '\0' ? from : "-");
}

/* --- the order --- */

enum tag {
    TAG_DIR = 'd',
    TAG_TOKEN = 't',
    TAG_NAME = 'n',
    TAG_RUN_ID = 'i',
    TAG_NODES = 'w',
    TAG_HOST = 'h',
    TAG_PORT = 'p',
    TAG_N_RANKS = 'l',
    TAG_ARG = 'a',
    TAG_ENV = 'e',
    TAG_GO = 'g',
    TAG_SIGNAL = 's',
};

/* The texts of which there is one. */
static const struct {
    enum tag tag;
    size_t at; /* in struct launch_order */
    const char *what;
} texts[] = {
    {TAG_DIR, offsetof(struct launch_order, dir), "directory"},
    {TAG_TOKEN, offsetof(struct launch_order, token), "token"},
    {TAG_NAME, offsetof(struct launch_order, name), "name"},
    {TAG_RUN_ID, offsetof(struct launch_order, run_id), "run id"},
    {TAG_NODES, offsetof(struct launch_order, nodes), "number of nodes"},
    {TAG_HOST, offsetof(struct launch_order, host), "host"},
};
enum { N_TEXTS = sizeof texts / sizeof *texts };

static int put_record(struct co_buf *to, enum tag tag, const char *text)
{
    const char c = (char)tag;
    return co_buf_append(to, &c, 1) ?: co_buf_append(to, text, strlen(text) + 1);
}

static int put_number(struct co_buf *to, enum tag tag, uint32_t number)
{
    char text[16];
    snprintf(text, sizeof text, "%" PRIu32, number);
    return put_record(to, tag, text);
}

static int put_all(struct co_buf *to, enum tag tag, char *const *words)
{
    int rc = 0;
    for (; rc == 0 && *words != NULL; words++)
        rc = put_record(to, tag, *words);
    return rc;
}

int launch_put_order(const struct launch_order *order, struct co_buf *to)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < N_TEXTS; i++)
        rc =
            put_record(to, texts[i].tag, *(const char *const *)((const char *)order + texts[i].at));
    return rc
        ?: put_number(to, TAG_PORT, order->port)
        ?: put_number(to, TAG_N_RANKS, order->n_ranks)
        ?: put_all(to, TAG_ENV, order->env)
        ?: put_all(to, TAG_ARG, order->argv)
        ?: put_record(to, TAG_GO, "");
}

ssize_t launch_order_len(const uint8_t *bytes, size_t len)
{
    size_t at = 0; /* bytes is NULL if nothing was read: no pointer is made of it */
    while (at < len) {
        const uint8_t *nul = memchr(bytes + at, '\0', len - at);
        if (nul == NULL)
            break;
        if (bytes[at] == TAG_GO)
            return nul + 1 - bytes;
        at = (size_t)(nul + 1 - bytes);
    }
    return len <= LAUNCH_ORDER_MAX_BYTES ? 0 : -E2BIG;
}

static int take_text(char tag, const char *text, struct launch_order *o, struct co_error *err)
{
    for (size_t i = 0; i < N_TEXTS; i++) {
        const char **to = (const char **)((char *)o + texts[i].at);
        if ((char)texts[i].tag != tag)
            continue;
        if (*to != NULL)
            return co_fail(err, -EPROTO,
                           "protocol error: the launch request has two %ss; use the same ddprun "
                           "version on all hosts",
                           texts[i].what);
        *to = text;
        return 0;
    }
    return co_fail(err, -EPROTO,
                   "protocol error: the launch request has an unknown part '%c'; use the same "
                   "ddprun version on all hosts",
                   tag > ' ' && tag <= '~' ? tag : '?');
}

static int take_number(char tag, const char *text, struct launch_order *o, struct co_error *err)
{
    int64_t n, max = tag == TAG_PORT ? UINT16_MAX : INT32_MAX;
    int rc = co_parse_int("the launch request", text, 0, max, &n, err);
    if (rc < 0)
        return err != NULL ? err->code = -EPROTO : -EPROTO;
    if (tag == TAG_PORT)
        o->port = (uint16_t)n;
    else
        o->n_ranks = (uint32_t)n;
    return 0;
}

static int take_record(char *record, struct launch_order *o, struct co_error *err)
{
    char tag = record[0], *text = record + 1;
    switch (tag) {
    case TAG_ARG:
        o->argv[o->n_argv++] = text;
        return 0;
    case TAG_ENV:
        if (strchr(text, '=') == NULL || *text == '=')
            return co_fail(err, -EPROTO,
                           "protocol error: the launch request has an invalid variable");
        o->env[o->n_env++] = text;
        return 0;
    case TAG_PORT:
    case TAG_N_RANKS:
        return take_number(tag, text, o, err);
    default:
        return take_text(tag, text, o, err);
    }
}

static int check_order(const struct launch_order *o, struct co_error *err)
{
    for (size_t i = 0; i < N_TEXTS; i++)
        if (*(const char *const *)((const char *)o + texts[i].at) == NULL)
            return co_fail(err, -EPROTO,
                           "protocol error: the launch request has no %s; use the same ddprun "
                           "version on all hosts",
                           texts[i].what);
    if (o->n_argv == 0 || o->port == 0 || o->dir[0] != '/' || o->name[0] == '\0' ||
        o->run_id[0] == '\0')
        return co_fail(
            err, -EPROTO,
            "protocol error: the launch request lacks a command, port, directory, name or run id");
    return 0;
}

static size_t count_records(const char *bytes, size_t len, char tag)
{
    size_t n = 0;
    for (const char *at = bytes; at < bytes + len; at += strlen(at) + 1)
        n += *at == tag;
    return n;
}

int launch_take_order(char *bytes, size_t len, struct launch_order *ret, struct co_error *err)
{
    struct launch_order o = {0};
    if (len == 0 || bytes[len - 1] != '\0')
        return co_fail(err, -EPROTO, "protocol error: invalid launch request");
    size_t n_argv = count_records(bytes, len, TAG_ARG), n_env = count_records(bytes, len, TAG_ENV);
    if (n_argv > LAUNCH_ORDER_MAX_WORDS || n_env > LAUNCH_ORDER_MAX_WORDS)
        return co_fail(err, -EPROTO, "protocol error: the launch request has more than %d words",
                       LAUNCH_ORDER_MAX_WORDS);
    o.argv = calloc(n_argv + 1, sizeof *o.argv);
    o.env = calloc(n_env + 1, sizeof *o.env);
    int rc = o.argv == NULL || o.env == NULL ? co_fail(err, -ENOMEM, "out of memory") : 0;
    for (char *at = bytes; rc == 0 && at < bytes + len && *at != TAG_GO; at += strlen(at) + 1)
        rc = take_record(at, &o, err);
    if (rc == 0)
        rc = check_order(&o, err);
    if (rc < 0) {
        launch_order_fini(&o);
        return rc;
    }
    *ret = o;
    return 0;
}

void launch_order_fini(struct launch_order *order)
{
    free(order->argv);
    free(order->env);
    *order = (struct launch_order){0};
}

/* --- signals --- */

int launch_put_signal(int sig, struct co_buf *to)
{
    return put_number(to, TAG_SIGNAL, (uint32_t)sig);
}

int launch_take_signal(struct co_buf *from)
{
    const char *record = (const char *)co_buf_bytes(from);
    size_t len = co_buf_len(from);
    int64_t sig;
    if (len == 0 || memchr(record, '\0', len) == NULL)
        return len < LAUNCH_SIGNAL_BYTES ? 0 : -EPROTO;
    if (*record != TAG_SIGNAL ||
        co_parse_int("a signal", record + 1, 1, LAUNCH_ALL_SAVED, &sig, NULL) < 0)
        return -EPROTO;
    co_buf_consume(from, strlen(record) + 1);
    return (int)sig;
}
