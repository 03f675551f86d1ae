/* fuzz_http.c - any bytes as the beginning of a connection: which protocol, and if they are taken
 * for HTTP, which requests. How the bytes are cut must not change what is found. */
#include "common/buf.h"
#include "fuzz.h"
#include "rendezvous/server/conn.h"
#include "rendezvous/server/http.h"

#include <errno.h>
#include <string.h>

static void check_request(const struct http_request *r, const uint8_t *bytes, size_t len)
{
    require(r->status == 0 || r->status == 400 || r->status == 405 || r->status == 431 ||
            r->status == 505);
    require(r->len_bytes <= len && (r->len_bytes <= HTTP_MAX_HEAD_BYTES || r->status == 431));
    require(r->status == 431 || r->len_bytes > 0);
    require(r->status == 0 || !r->keep_alive);
    if (r->status != 0)
        return;
    bool is_root = r->path_len == 1 && *r->path == '/'; /* may be a text of the parser's own */
    require(is_root || (r->path >= (const char *)bytes &&
                        r->path + r->path_len <= (const char *)bytes + r->len_bytes));
    require(*r->path == '/' && memchr(r->path, '?', r->path_len) == NULL);
    require(r->bearer == NULL || (r->bearer >= (const char *)bytes &&
                                  r->bearer + r->bearer_len <= (const char *)bytes + r->len_bytes));
    require(r->host == NULL || (r->host >= (const char *)bytes &&
                                r->host + r->host_len <= (const char *)bytes + r->len_bytes));
    char host[HTTP_HOST_BYTES];
    int rc = http_host(r, host);
    require(rc == 0 || rc == -EINVAL || (rc == -ENOENT && r->host == NULL));
    require(rc != 0 || (strlen(host) > 0 && strpbrk(host, "/@[]*, ") == NULL));
    struct co_buf out = {0};
    require(http_reply(&out, r, 404, "text/plain", NULL) == 0);
    co_buf_fini(&out);
}

static void compare_cuts(const uint8_t *bytes, size_t len, bool found, const struct http_request *r)
{
    size_t at = 0;
    struct http_request cut;
    size_t n = 1;
    while (n <= len && !http_next(bytes, n, &at, &cut))
        n++;
    require(found == (n <= len));
    if (found && r->len_bytes > 0 && cut.len_bytes > 0)
        require(cut.len_bytes == r->len_bytes && cut.status == r->status);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum protocol protocol = conn_protocol(data, size);
    for (size_t n = 0; n < size && n < 5; n++) {
        enum protocol early = conn_protocol(data, n);
        require(early == PROTOCOL_UNDECIDED || early == protocol);
    }
    while (size > 0) {
        size_t at = 0;
        struct http_request r;
        bool found = http_next(data, size, &at, &r);
        require(at <= size);
        compare_cuts(data, size, found, &r);
        if (!found)
            return 0;
        check_request(&r, data, size);
        if (!r.keep_alive)
            return 0;
        data += r.len_bytes;
        size -= r.len_bytes;
    }
    return 0;
}
