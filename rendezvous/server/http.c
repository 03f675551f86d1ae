#include "http.h"

#include "common/buf.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* A run of characters that another object owns. */
struct text {
    const char *at;
    size_t len;
};

static bool is_token_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static bool is_token(struct text t)
{
    for (size_t i = 0; i < t.len; i++)
        if (!is_token_char(t.at[i]))
            return false;
    return t.len > 0;
}

static bool is_word(struct text t, const char *word)
{
    return t.len == strlen(word) && strncasecmp(t.at, word, t.len) == 0;
}

/* What precedes `end` goes to *ret_part, and *rest begins after it.
 * returns   whether `end` was found; else *ret_part is all there was */
static bool text_split(struct text *rest, char end, struct text *ret_part)
{
    const char *found = rest->len > 0 ? memchr(rest->at, end, rest->len) : NULL;
    size_t n = found != NULL ? (size_t)(found - rest->at) : rest->len;
    *ret_part = (struct text){rest->at, n};
    n += found != NULL;
    rest->at += n;
    rest->len -= n;
    return found != NULL;
}

static struct text trim(struct text t)
{
    while (t.len > 0 && (*t.at == ' ' || *t.at == '\t')) {
        t.at++;
        t.len--;
    }
    while (t.len > 0 && (t.at[t.len - 1] == ' ' || t.at[t.len - 1] == '\t'))
        t.len--;
    return t;
}

/* --- the request line --- */

/* A path, or a URL as it is sent to a proxy. */
static bool read_target(struct text target, struct http_request *r)
{
    struct text path;
    if (target.len > 7 && strncasecmp(target.at, "http://", 7) == 0) {
        struct text authority;
        struct text rest = {target.at + 7, target.len - 7};
        r->host = rest.at; /* counts instead of the field */
        if (text_split(&rest, '/', &authority))
            target = (struct text){rest.at - 1, rest.len + 1};
        else
            target = (struct text){"/", 1};
        r->host_len = authority.len;
    }
    if (target.len == 0 || *target.at != '/')
        return false;
    text_split(&target, '?', &path);
    r->path = path.at;
    r->path_len = path.len;
    return true;
}

/* returns   0 or the status of the reply; *ret_minor is 0 of HTTP/1.0 */
static int read_request_line(struct text line, struct http_request *r, int *ret_minor)
{
    struct text method, target;
    if (!text_split(&line, ' ', &method) || !text_split(&line, ' ', &target) || !is_token(method) ||
        line.len != 8 || strncmp(line.at, "HTTP/", 5) != 0 || line.at[6] != '.')
        return 400;
    if (line.at[5] < '0' || line.at[5] > '9' || line.at[7] < '0' || line.at[7] > '9')
        return 400;
    if (line.at[5] != '1')
        return 505;
    *ret_minor = line.at[7] - '0';
    r->keep_alive = *ret_minor > 0;
    r->is_head = method.len == 4 && strncmp(method.at, "HEAD", 4) == 0;
    if (!r->is_head && (method.len != 3 || strncmp(method.at, "GET", 3) != 0))
        return 405;
    return read_target(target, r) ? 0 : 400;
}

/* --- fields --- */

static void read_connection(struct text value, struct http_request *r)
{
    bool more;
    do {
        struct text option;
        more = text_split(&value, ',', &option);
        option = trim(option);
        if (is_word(option, "close"))
            r->keep_alive = false;
        else if (is_word(option, "keep-alive"))
            r->keep_alive = true;
    } while (more);
}

static void read_host(struct text value, struct http_request *r, int *n_hosts)
{
    if ((*n_hosts)++ > 0 || r->host != NULL)
        return;
    r->host = value.at;
    r->host_len = value.len;
}

/* Other schemes are ignored. returns 0 or 400 */
static int read_authorization(struct text value, struct http_request *r)
{
    struct text scheme;
    text_split(&value, ' ', &scheme);
    if (!is_word(scheme, "Bearer"))
        return 0;
    if (r->bearer != NULL)
        return 400;
    value = trim(value);
    r->bearer = value.at;
    r->bearer_len = value.len;
    return 0;
}

static bool is_zero(struct text value)
{
    for (size_t i = 0; i < value.len; i++)
        if (value.at[i] != '0')
            return false;
    return value.len > 0;
}

/* returns   0 or 400 */
static int read_field(struct text line, struct http_request *r, int *n_hosts)
{
    struct text name;
    if (!text_split(&line, ':', &name) || !is_token(name)) /* blanks in front: a folded line */
        return 400;
    struct text value = trim(line);
    if (is_word(name, "Host"))
        read_host(value, r, n_hosts);
    else if (is_word(name, "Connection"))
        read_connection(value, r);
    else if (is_word(name, "Authorization"))
        return read_authorization(value, r);
    else if (is_word(name, "Transfer-Encoding") ||
             (is_word(name, "Content-Length") && !is_zero(value)))
        return 400; /* where the next request begins would be a matter of opinion */
    return 0;
}

/* --- the head --- */

/* Nothing but text, blanks and line ends: what hides a NUL or a lone CR is not read. */
static bool is_clean(struct text head)
{
    for (size_t i = 0; i < head.len; i++) {
        unsigned char c = (unsigned char)head.at[i];
        if (c == '\r' ? i + 1 == head.len || head.at[i + 1] != '\n'
                      : c != '\n' && c != '\t' && (c < ' ' || c == 127))
            return false;
    }
    return true;
}

static struct text take_line(struct text *head)
{
    struct text line;
    text_split(head, '\n', &line);
    if (line.len > 0 && line.at[line.len - 1] == '\r')
        line.len--;
    return line;
}

static int read_head(struct text head, struct http_request *r)
{
    int minor = 0, n_hosts = 0;
    if (!is_clean(head))
        return 400;
    int status = read_request_line(take_line(&head), r, &minor);
    if (status == 400 || status == 505)
        return status;
    for (struct text line = take_line(&head); line.len > 0; line = take_line(&head))
        if (read_field(line, r, &n_hosts) != 0)
            return status != 0 ? status
                               : 400; /* a POST has a body, and the reply states that it is a
                                         POST */
    if (n_hosts > 1 || (minor > 0 && n_hosts == 0))
        return 400;
    return status;
}

/* returns   the length of the head, 0 while its end has not come */
static size_t find_end(const uint8_t *bytes, size_t len, size_t *at)
{
    for (; *at < len; (*at)++) {
        if (bytes[*at] != '\n')
            continue;
        size_t next = *at + 1;
        if (next < len && bytes[next] == '\r')
            next++;
        if (next >= len)
            return 0;
        if (bytes[next] == '\n')
            return next + 1;
    }
    return 0;
}

bool http_next(const uint8_t *bytes, size_t len, size_t *at, struct http_request *ret)
{
    size_t head_len = find_end(bytes, len, at);
    if (head_len == 0 && len < HTTP_MAX_HEAD_BYTES)
        return false;
    *ret = (struct http_request){.len_bytes = head_len};
    if (head_len == 0 || head_len > HTTP_MAX_HEAD_BYTES)
        ret->status = 431;
    else
        ret->status = read_head((struct text){(const char *)bytes, head_len}, ret);
    if (ret->status != 0)
        ret->keep_alive = false; /* what follows may be the rest of it */
    return true;
}

/* --- the host --- */

static bool is_host_char(char c, bool is_address)
{
    const bool is_hex = (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') || (c >= '0' && c <= '9');
    if (is_address)
        return is_hex || c == ':' || c == '.';
    return is_hex || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' ||
           c == '.';
}

static bool is_port(struct text t)
{
    for (size_t i = 0; i < t.len; i++)
        if (t.at[i] < '0' || t.at[i] > '9')
            return false;
    return true;
}

int http_host(const struct http_request *r, char ret[HTTP_HOST_BYTES])
{
    struct text rest = {r->host, r->host_len}, host;
    if (rest.at == NULL)
        return -ENOENT;
    const bool is_address = rest.len > 0 && *rest.at == '[';
    if (is_address) {
        rest = (struct text){rest.at + 1, rest.len - 1};
        if (!text_split(&rest, ']', &host) || (rest.len > 0 && *rest.at != ':'))
            return -EINVAL;
        rest.at += rest.len > 0;
        rest.len -= rest.len > 0;
    } else {
        text_split(&rest, ':', &host);
        host.len -= host.len > 0 && host.at[host.len - 1] == '.';
    }
    if (!is_port(rest) || host.len == 0 || host.len >= HTTP_HOST_BYTES)
        return -EINVAL;
    for (size_t i = 0; i < host.len; i++)
        if (!is_host_char(host.at[i], is_address))
            return -EINVAL;
    memcpy(ret, host.at, host.len);
    ret[host.len] = '\0';
    return 0;
}

/* --- replies --- */

static const char *reason_of(int status)
{
    switch (status) {
    case 200:
        return "OK";
    case 400:
        return "Bad Request";
    case 401:
        return "Unauthorized";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 421:
        return "Misdirected Request";
    case 431:
        return "Request Header Fields Too Large";
    case 503:
        return "Service Unavailable";
    case 505:
        return "HTTP Version Not Supported";
    default:
        return "Internal Server Error";
    }
}

int http_reply(struct co_buf *out, const struct http_request *r, int status, const char *type,
               const struct co_buf *body)
{
    char head[512], line[64];
    int line_len = snprintf(line, sizeof line, "%d %s\n", status, reason_of(status));
    size_t body_len = body != NULL ? co_buf_len(body) : (size_t)line_len;
    int head_len = snprintf(head, sizeof head,
                            "HTTP/1.1 %d %s\r\n"
                            "Content-Type: %s\r\n"
                            "Content-Length: %zu\r\n"
                            "Cache-Control: no-store\r\n"
                            "%s"
                            "Connection: %s\r\n"
                            "\r\n",
                            status, reason_of(status), type, body_len,
                            status == 405   ? "Allow: GET, HEAD\r\n"
                            : status == 401 ? "WWW-Authenticate: Bearer\r\n"
                                            : "",
                            r->keep_alive ? "keep-alive" : "close");
    int rc = co_buf_append(out, head, (size_t)head_len);
    if (rc < 0 || r->is_head)
        return rc;
    return body != NULL ? co_buf_append(out, co_buf_bytes(body), body_len)
                        : co_buf_append(out, line, body_len);
}
