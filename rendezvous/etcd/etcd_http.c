#include "etcd_http.h"

#include "rendezvous/election/etcd_wire.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/error.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ADDRESS_BYTES = 64, URL_BYTES = 512 };

struct etcd_http {
    struct etcd_host host;
    struct etcd_http_callbacks callbacks;
    CURLM *multi;
    CURL *easy;
    bool is_out;
    struct curl_slist *headers; /* owned; of the request that is out */
    struct co_buf body;         /* of the same request; a password may be in it */
    char base[URL_BYTES];
    uint64_t alarm_ms;
    char why[CURL_ERROR_SIZE];
    char own[ADDRESS_BYTES];
    size_t len;
    char answer[ETCD_WIRE_MAX_ANSWER + 1];
};

/* --- What libcurl asks of us --- */

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *of_socket)
{
    struct etcd_http *h = arg;
    (void)easy;
    (void)of_socket;
    int events = what == CURL_POLL_IN      ? ETCD_READABLE
                 : what == CURL_POLL_OUT   ? ETCD_WRITABLE
                 : what == CURL_POLL_INOUT ? ETCD_READABLE | ETCD_WRITABLE
                                           : 0;
    h->host.watch(h->host.arg, fd, events);
    return 0;
}

static int on_timeout(CURLM *multi, long timeout_ms, void *arg)
{
    struct etcd_http *h = arg;
    (void)multi;
    h->alarm_ms = timeout_ms < 0 ? CO_NEVER_MS : co_now_ms() + (uint64_t)timeout_ms;
    return 0;
}

/* An answer that does not fit is none. */
static size_t on_bytes(char *bytes, size_t size, size_t n, void *arg)
{
    struct etcd_http *h = arg;
    size_t len = size * n;
    if (len > ETCD_WIRE_MAX_ANSWER - h->len)
        return 0;
    memcpy(h->answer + h->len, bytes, len);
    h->len += len;
    return len;
}

/* --- A request --- */

static void give_up(struct etcd_http *h)
{
    if (h->is_out)
        curl_multi_remove_handle(h->multi, h->easy);
    curl_slist_free_all(h->headers);
    h->headers = NULL;
    co_buf_fini(&h->body);
    h->is_out = false;
    h->len = 0;
}

static void note_own_address(struct etcd_http *h)
{
    const char *own = NULL;
    if (curl_easy_getinfo(h->easy, CURLINFO_LOCAL_IP, &own) == CURLE_OK && own != NULL &&
        *own != '\0')
        snprintf(h->own, sizeof h->own, "%s", own);
}

static void transfer_finish(struct etcd_http *h, CURLcode code)
{
    char why[sizeof h->why + 64];
    size_t len = h->len;
    long status = 0;
    if (code == CURLE_OK)
        curl_easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &status);
    note_own_address(h);
    snprintf(why, sizeof why, "%s", h->why[0] != '\0' ? h->why : curl_easy_strerror(code));
    give_up(h);
    h->answer[len] = '\0';
    if (status != 0)
        h->callbacks.on_done(h->callbacks.arg, (int)status, h->answer, len);
    else
        h->callbacks.on_done(h->callbacks.arg, 0, why, strlen(why));
}

/* At most one is out; what follows it may be out when this returns. */
static void transfer_poll(struct etcd_http *h)
{
    int n_left;
    CURLMsg *m;
    while ((m = curl_multi_info_read(h->multi, &n_left)) != NULL)
        if (m->msg == CURLMSG_DONE && h->is_out) {
            transfer_finish(h, m->data.result);
            return;
        }
}

/* returns 0, -ENOMEM */
static int add_header(struct etcd_http *h, const char *line)
{
    struct curl_slist *longer = curl_slist_append(h->headers, line);
    if (longer == NULL)
        return -ENOMEM;
    h->headers = longer;
    return 0;
}

int etcd_http_post(struct etcd_http *h, const char *path, const char *token, const void *body,
                   size_t len, uint64_t timeout_ms)
{
    char url[URL_BYTES + 64], line[ETCD_WIRE_TOKEN_BYTES + 32];
    give_up(h);
    snprintf(url, sizeof url, "%s%s", h->base, path);
    snprintf(line, sizeof line, "Authorization: %s", token);
    if (co_buf_append(&h->body, body, len) < 0 ||
        add_header(h, "Content-Type: application/json") < 0 || add_header(h, "Expect:") < 0 ||
        (*token != '\0' && add_header(h, line) < 0))
        return -ENOMEM;
    h->why[0] = '\0';
    if (curl_easy_setopt(h->easy, CURLOPT_URL, url) != CURLE_OK ||
        curl_easy_setopt(h->easy, CURLOPT_HTTPHEADER, h->headers) != CURLE_OK ||
        curl_easy_setopt(h->easy, CURLOPT_POSTFIELDSIZE, (long)len) != CURLE_OK ||
        curl_easy_setopt(h->easy, CURLOPT_POSTFIELDS, co_buf_bytes(&h->body)) != CURLE_OK ||
        curl_easy_setopt(h->easy, CURLOPT_TIMEOUT_MS, (long)timeout_ms) != CURLE_OK ||
        curl_multi_add_handle(h->multi, h->easy) != CURLM_OK)
        return -ENOMEM;
    h->is_out = true;
    return 0;
}

void etcd_http_ready(struct etcd_http *h, int fd, int events)
{
    int n_running, mask = (events & ETCD_READABLE ? CURL_CSELECT_IN : 0) |
                          (events & ETCD_WRITABLE ? CURL_CSELECT_OUT : 0);
    curl_multi_socket_action(h->multi, fd, mask, &n_running);
    transfer_poll(h);
}

void etcd_http_alarm(struct etcd_http *h)
{
    int n_running;
    if (h->alarm_ms == CO_NEVER_MS || co_now_ms() < h->alarm_ms)
        return;
    h->alarm_ms = CO_NEVER_MS;
    curl_multi_socket_action(h->multi, CURL_SOCKET_TIMEOUT, 0, &n_running);
    transfer_poll(h);
}

uint64_t etcd_http_deadline_ms(const struct etcd_http *h)
{
    return h->alarm_ms;
}

const char *etcd_http_own_address(const struct etcd_http *h)
{
    return h->own;
}

/* --- Beginning and end --- */

static bool set_text(CURL *easy, CURLoption option, const char *text)
{
    return text == NULL || curl_easy_setopt(easy, option, text) == CURLE_OK;
}

static bool set_up(struct etcd_http *h, const struct etcd_config *c)
{
    CURL *easy = h->easy;
    return curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_NOPROXY, "*") == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, c->is_https ? "https" : "http") ==
               CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, h->why) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_bytes) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEDATA, h) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L) == CURLE_OK &&
           set_text(easy, CURLOPT_CAINFO, c->ca_cert) && set_text(easy, CURLOPT_SSLCERT, c->cert) &&
           set_text(easy, CURLOPT_SSLKEY, c->key) &&
           curl_multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, on_socket) == CURLM_OK &&
           curl_multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h) == CURLM_OK &&
           curl_multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, on_timeout) == CURLM_OK &&
           curl_multi_setopt(h->multi, CURLMOPT_TIMERDATA, h) == CURLM_OK;
}

int etcd_http_open(const struct etcd_config *config, const struct etcd_host *host,
                   const struct etcd_http_callbacks *callbacks, struct etcd_http **ret,
                   struct co_error *err)
{
    struct etcd_http *h = calloc(1, sizeof *h);
    bool is_v6 = strchr(config->host, ':') != NULL;
    if (h == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    h->host = *host;
    h->callbacks = *callbacks;
    h->body.has_secrets = true;
    h->alarm_ms = CO_NEVER_MS;
    int n = snprintf(h->base, sizeof h->base, "%s://%s%s%s:%u", config->is_https ? "https" : "http",
                     is_v6 ? "[" : "", config->host, is_v6 ? "]" : "", config->port);
    if (curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK) {
        h->multi = curl_multi_init();
        h->easy = curl_easy_init();
    }
    if (h->multi == NULL || h->easy == NULL || n >= (int)sizeof h->base || !set_up(h, config)) {
        etcd_http_close(h);
        return co_fail(err, -EINVAL,
                       "libcurl %s does not support the options that the etcd client needs",
                       curl_version_info(CURLVERSION_NOW)->version);
    }
    *ret = h;
    return 0;
}

void etcd_http_close(struct etcd_http *h)
{
    if (h == NULL)
        return;
    give_up(h);
    curl_easy_cleanup(h->easy);
    curl_multi_cleanup(h->multi); /* reports its sockets once more: watch() is still valid */
    curl_global_cleanup();
    free(h);
}
