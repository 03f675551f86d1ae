/* http.h - the little of HTTP that a probe or a scraper needs: heads of requests in, heads of
 * replies out.
 *
 * Pure. Serves GET and HEAD, HTTP/1.0 and 1.1, connections that are kept; no bodies in requests, no
 * ranges, no encodings. Lines may end in CR LF or LF; what else RFC 9112 leaves open to two
 * readings is answered with 400. */
#ifndef DDP_RENDEZVOUS_SERVER_HTTP_H
#define DDP_RENDEZVOUS_SERVER_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct co_buf;

enum { HTTP_MAX_HEAD_BYTES = 8192 }; /* request line, fields and the empty line */

/* A complete head, or the reason to answer with an error and close. */
struct http_request {
    size_t len_bytes; /* all of it, the empty line included; 0 if it was not found */
    int status;       /* 0: well-formed; else what to answer: 400, 405, 431, 505 */
    bool is_head;     /* the reply goes without its body */
    bool keep_alive;  /* the client will ask again */
    const char *path; /* lent from the bytes, not terminated; without "?query" */
    size_t path_len;
    const char *bearer; /* of "Authorization: Bearer", lent like the path; NULL: none */
    size_t bearer_len;
    const char *host; /* the one that the client means, with its port: of the URL, else of "Host";
                         lent like the path; NULL: none, which only HTTP/1.0 allows */
    size_t host_len;
};

/* Look for a complete head at the beginning of these bytes.
 *
 * at        where the search begins and, when false is returned, where it is to continue; 0 at
 *           first
 * returns   whether *ret was filled; false: more bytes are needed */
bool http_next(const uint8_t *bytes, size_t len, size_t *at, struct http_request *ret);

enum { HTTP_HOST_BYTES = 254 }; /* a name of the DNS has 253 characters at most */

/* Copy the host of a request without port, brackets, and the dot that may end a name. A browser
 * sends the name of the URL that it shows, also if that name leads somewhere else by now (DNS
 * rebinding): what is open to a browser must look at it.
 *
 * returns   0; -ENOENT: the request names none; -EINVAL: neither a name of letters, digits, '-',
 *           '_' and dots nor an address in brackets, or too long */
int http_host(const struct http_request *r, char ret[HTTP_HOST_BYTES]);

/* Append a reply: head and, unless the request was HEAD, body.
 *
 * status    200, or one of those above, 401, 404, 421, 500 or 503
 * body      NULL: "404 Not Found" and a newline
 * returns   0, -ENOMEM */
int http_reply(struct co_buf *out, const struct http_request *r, int status, const char *type,
               const struct co_buf *body);

#endif
