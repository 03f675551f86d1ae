#include "torch_reply.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* "HTTP/1.1 200 OK"
 * returns   -1: another line */
static int parse_status(const char *line, size_t n)
{
    static const char begin[] = "HTTP/1.";
    const size_t at = sizeof begin - 1;
    if (n < at + 5 || memcmp(line, begin, at) != 0 || line[at + 1] != ' ')
        return -1;
    int status = 0;
    for (size_t i = at + 2; i < at + 5; i++) {
        if (line[i] < '0' || line[i] > '9')
            return -1;
        status = 10 * status + (line[i] - '0');
    }
    return status;
}

/* The value of a field; NULL: it is another one. */
static const char *field(const char *line, size_t n, const char *name, size_t *ret_n)
{
    const size_t n_name = strlen(name);
    if (n <= n_name || line[n_name] != ':' || strncasecmp(line, name, n_name) != 0)
        return NULL;
    const char *value = line + n_name + 1, *end = line + n;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    *ret_n = (size_t)(end - value);
    return value;
}

/* returns   -1: not a length; above the limit: SIZE_MAX */
static int parse_length(const char *text, size_t n, size_t *ret)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        len = len > TORCH_REPLY_BODY_BYTES ? len : 10 * len + (size_t)(text[i] - '0');
    }
    *ret = len;
    return n > 0 ? 0 : -1;
}

/* The lines after the first one.
 *
 * ret_len   SIZE_MAX: the body ends with the connection */
static int parse_fields(const char *at, const char *end, size_t *ret_len)
{
    *ret_len = SIZE_MAX;
    while (at < end) {
        const char *line_end = memmem(at, (size_t)(end - at), "\r\n", 2);
        const size_t n = (size_t)((line_end != NULL ? line_end : end) - at);
        size_t n_value;
        const char *value = field(at, n, "Content-Length", &n_value);
        if (value != NULL && parse_length(value, n_value, ret_len) < 0)
            return -EPROTO;
        if (field(at, n, "Transfer-Encoding", &n_value) != NULL)
            return -EPROTO;
        at += n + 2;
    }
    return 0;
}

int torch_reply_parse(const char *bytes, size_t n, bool is_over, struct torch_reply *ret)
{
    const char *head_end = memmem(bytes, n, "\r\n\r\n", 4);
    if (head_end == NULL)
        return is_over || n > TORCH_REPLY_HEAD_BYTES ? -EPROTO : 0;
    const char *line_end = memmem(bytes, n, "\r\n", 2);
    const int status = parse_status(bytes, (size_t)(line_end - bytes));
    const char *body = head_end + 4;
    const size_t n_here = n - (size_t)(body - bytes);
    size_t len = SIZE_MAX;
    if (status < 0 || head_end - bytes > TORCH_REPLY_HEAD_BYTES)
        return -EPROTO;
    if (line_end < head_end && parse_fields(line_end + 2, head_end, &len) < 0)
        return -EPROTO;
    if ((len != SIZE_MAX && len > TORCH_REPLY_BODY_BYTES) || n_here > TORCH_REPLY_BODY_BYTES)
        return -E2BIG;
    if (len == SIZE_MAX ? !is_over : n_here < len)
        return is_over ? -EPROTO : 0;
    *ret =
        (struct torch_reply){.status = status, .body = body, .len = len != SIZE_MAX ? len : n_here};
    return 1;
}
