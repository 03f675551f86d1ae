/* Which protocol the first bytes mean, heads of HTTP requests, and replies. */
#include "common/buf.h"
#include "rendezvous/server/conn.h"
#include "rendezvous/server/http.h"
#include "rendezvous/server/page.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOST "Host: x\r\n"

START_TEST(the_first_bytes_select_the_protocol)
{
    static const struct {
        const char *bytes;
        size_t len;
        enum protocol protocol;
    } cases[] = {
        {"", 0, PROTOCOL_UNDECIDED},
        {"\0", 1, PROTOCOL_STORE},
        {"\0\xce\xf7\x85\x3c", 5, PROTOCOL_STORE},
        {"\x12", 1, PROTOCOL_STORE},
        {"\x16\x03\x01", 3, PROTOCOL_STORE}, /* TLS */
        {"get /", 5, PROTOCOL_STORE},
        {"@", 1, PROTOCOL_STORE},
        {"[", 1, PROTOCOL_STORE},
        {"\xff", 1, PROTOCOL_STORE},
        {"G", 1, PROTOCOL_HTTP},
        {"HEAD /", 6, PROTOCOL_HTTP},
        {"POST /", 6, PROTOCOL_HTTP},
        {"SSH-2.0-x", 9, PROTOCOL_HTTP},
        {"D", 1, PROTOCOL_UNDECIDED},
        {"DD", 2, PROTOCOL_UNDECIDED},
        {"DDP", 3, PROTOCOL_UNDECIDED},
        {"DDP1", 4, PROTOCOL_CONTROL},
        {"DDP1\xff", 5, PROTOCOL_CONTROL},
        {"DDP2", 4, PROTOCOL_HTTP},
        {"DE", 2, PROTOCOL_HTTP}, /* DELETE */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_msg(conn_protocol((const uint8_t *)cases[i].bytes, cases[i].len) ==
                          cases[i].protocol,
                      "'%s'", cases[i].bytes);
}
END_TEST

static bool next(const char *text, struct http_request *ret)
{
    size_t at = 0;
    return http_next((const uint8_t *)text, strlen(text), &at, ret);
}

START_TEST(a_get_is_parsed)
{
    static const struct {
        const char *text, *path;
        bool is_head, keep_alive;
    } cases[] = {
        {"GET / HTTP/1.1\r\n" HOST "\r\n", "/", false, true},
        {"HEAD /metrics HTTP/1.1\r\n" HOST "\r\n", "/metrics", true, true},
        {"GET /status?pretty=1&a=/b HTTP/1.1\r\n" HOST "\r\n", "/status", false, true},
        {"GET http://node7:29400/status HTTP/1.1\r\n" HOST "\r\n", "/status", false, true},
        {"GET HTTP://node7 HTTP/1.1\r\n" HOST "\r\n", "/", false, true},
        {"GET /x HTTP/1.0\r\n\r\n", "/x", false, false},
        {"GET /x HTTP/1.0\r\nconnection: Keep-Alive\r\n\r\n", "/x", false, true},
        {"GET /x HTTP/1.1\r\n" HOST "CONNECTION:close\r\n\r\n", "/x", false, false},
        {"GET /x HTTP/1.1\r\n" HOST "Connection: upgrade , close\t\r\n\r\n", "/x", false, false},
        {"GET /x HTTP/1.2\n" HOST "\n", "/x", false, true},
        {"GET /x HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", "/x", false, true},
        {"GET /x HTTP/1.1\r\n" HOST "Empty:\r\nUser-Agent: caf\xe9/1\r\n\r\n", "/x", false, true},
        {"GET /x HTTP/1.1\r\n" HOST "\r\nGET /next HTTP/1.1", "/x", false, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct http_request r;
        ck_assert_msg(next(cases[i].text, &r), "%s", cases[i].text);
        ck_assert_msg(r.status == 0, "%d: %s", r.status, cases[i].text);
        ck_assert_uint_eq(r.path_len, strlen(cases[i].path));
        ck_assert(memcmp(r.path, cases[i].path, r.path_len) == 0);
        ck_assert_msg(r.is_head == cases[i].is_head, "%s", cases[i].text);
        ck_assert_msg(r.keep_alive == cases[i].keep_alive, "%s", cases[i].text);
    }
}
END_TEST

START_TEST(the_host_of_a_request_has_no_port)
{
    static const struct {
        const char *text;
        int rc;
        const char *host;
    } cases[] = {
        {"GET / HTTP/1.1\r\nHost: node7\r\n\r\n", 0, "node7"},
        {"GET / HTTP/1.1\r\nHost:Node7.Example.Org.:8080\r\n\r\n", 0, "Node7.Example.Org"},
        {"GET / HTTP/1.1\r\nHost: 10.0.0.1:80\r\n\r\n", 0, "10.0.0.1"},
        {"GET / HTTP/1.1\r\nHost: [fd00::7]:29400\r\n\r\n", 0, "fd00::7"},
        {"GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n", 0, "::1"},
        {"GET / HTTP/1.1\r\nHost: node7:\r\n\r\n", 0, "node7"},
        {"GET http://one:80/x HTTP/1.1\r\nHost: two\r\n\r\n", 0, "one"}, /* as RFC 9112 has it */
        {"GET http://one HTTP/1.1\r\nHost: two\r\n\r\n", 0, "one"},
        {"GET / HTTP/1.0\r\nHost: old\r\n\r\n", 0, "old"},
        {"GET / HTTP/1.0\r\n\r\n", -ENOENT, ""},
        {"GET / HTTP/1.1\r\nHost:\r\n\r\n", -EINVAL, ""},
        {"GET / HTTP/1.1\r\nHost: .\r\n\r\n", -EINVAL, ""},
        {"GET / HTTP/1.1\r\nHost: :80\r\n\r\n", -EINVAL, ""},
        {"GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", -EINVAL, ""},
        {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", -EINVAL, ""},
        {"GET / HTTP/1.1\r\nHost: a,localhost\r\n\r\n", -EINVAL, ""},
        {"GET / HTTP/1.1\r\nHost: evil@localhost\r\n\r\n", -EINVAL, ""},
        {"GET / HTTP/1.1\r\nHost: caf\xe9\r\n\r\n", -EINVAL, ""},
        {"GET / HTTP/1.1\r\nHost: fd00::7\r\n\r\n", -EINVAL, ""},
        {"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", -EINVAL, ""},
        {"GET / HTTP/1.1\r\nHost: []:80\r\n\r\n", -EINVAL, ""},
        {"GET / HTTP/1.1\r\nHost: [::1]80\r\n\r\n", -EINVAL, ""},
        {"GET / HTTP/1.1\r\nHost: [name]\r\n\r\n", -EINVAL, ""},
        {"GET http:///x HTTP/1.1\r\nHost: two\r\n\r\n", -EINVAL, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct http_request r;
        char host[HTTP_HOST_BYTES] = "";
        ck_assert_msg(next(cases[i].text, &r) && r.status == 0, "%s", cases[i].text);
        ck_assert_msg(http_host(&r, host) == cases[i].rc, "%s", cases[i].text);
        ck_assert_msg(strcmp(host, cases[i].host) == 0, "%s: %s", cases[i].text, host);
    }
}
END_TEST

START_TEST(the_host_of_a_request_is_bounded)
{
    char text[512], name[HTTP_HOST_BYTES + 1], host[HTTP_HOST_BYTES];
    struct http_request r;
    for (size_t n = HTTP_HOST_BYTES - 1; n <= HTTP_HOST_BYTES; n++) {
        memset(name, 'a', n);
        name[n] = '\0';
        snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", name);
        ck_assert(next(text, &r) && r.status == 0);
        ck_assert_int_eq(http_host(&r, host), n < HTTP_HOST_BYTES ? 0 : -EINVAL);
    }
}
END_TEST

START_TEST(the_next_request_begins_after_the_empty_line)
{
    static const char first[] = "GET /a HTTP/1.1\r\n" HOST "\r\n";
    static const char both[] = "GET /a HTTP/1.1\r\n" HOST "\r\nGET /b HTTP/1.1\r\n" HOST "\r\n";
    struct http_request r;
    ck_assert(next(both, &r));
    ck_assert_uint_eq(r.len_bytes, sizeof first - 1);
    ck_assert(next(both + r.len_bytes, &r));
    ck_assert(r.path_len == 2 && memcmp(r.path, "/b", 2) == 0);
}
END_TEST

START_TEST(an_invalid_request_has_its_http_status)
{
    static const struct {
        int status;
        const char *text;
    } cases[] = {
        {400, "\r\n\r\n"},
        {400, "GET\r\n\r\n"},
        {400, "GET /\r\n\r\n"}, /* HTTP/0.9 */
        {400, "GET / HTTP/1.1 \r\n" HOST "\r\n"},
        {400, "GET  / HTTP/1.1\r\n" HOST "\r\n"},
        {400, " GET / HTTP/1.1\r\n" HOST "\r\n"},
        {400, "GET / http/1.1\r\n" HOST "\r\n"},
        {400, "GET / HTTP/1\r\n" HOST "\r\n"},
        {400, "GET / HTTP/11.1\r\n" HOST "\r\n"},
        {400, "GET / HTTP/x.1\r\n" HOST "\r\n"},
        {400, "GET x HTTP/1.1\r\n" HOST "\r\n"},
        {400, "GET http:// HTTP/1.1 x\r\n" HOST "\r\n"},
        {400, "GET https://x/ HTTP/1.1\r\n" HOST "\r\n"},
        {400, "G@T / HTTP/1.1\r\n" HOST "\r\n"},
        {400, "SSH-2.0-OpenSSH_9.2\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n\r\n"}, /* no Host */
        {400, "GET / HTTP/1.1\r\n" HOST HOST "\r\n"},
        {400, "GET / HTTP/1.0\r\n" HOST HOST "\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "nothing\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST ": nameless\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "a : b\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST " folded\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "a: \x01\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "a: \x7f\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "a: b\rc: d\r\n\r\n"}, /* a lone CR */
        {400, "GET / HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\nx"},
        {400, "GET / HTTP/1.1\r\n" HOST "Content-Length: -0\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "Content-Length:\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "Transfer-Encoding: identity\r\n\r\n"},
        {405, "POST / HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nhi"},
        {405, "get / HTTP/1.1\r\n" HOST "\r\n"}, /* methods are case-sensitive */
        {405, "DELETE /status HTTP/1.1\r\n" HOST "\r\n"},
        {405, "OPTIONS * HTTP/1.1\r\n" HOST "\r\n"},
        {505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
        {505, "GET / HTTP/0.9\r\n\r\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct http_request r;
        ck_assert_msg(next(cases[i].text, &r), "%s", cases[i].text);
        ck_assert_msg(r.status == cases[i].status, "%d, not %d: %s", r.status, cases[i].status,
                      cases[i].text);
        ck_assert(!r.keep_alive);
    }
}
END_TEST

START_TEST(a_nul_in_the_head_is_refused)
{
    static const char text[] = "GET /\0 HTTP/1.1\r\n" HOST "\r\n";
    struct http_request r;
    size_t at = 0;
    ck_assert(http_next((const uint8_t *)text, sizeof text - 1, &at, &r));
    ck_assert_int_eq(r.status, 400);
}
END_TEST

START_TEST(a_head_may_arrive_byte_by_byte)
{
    static const char text[] = "GET /a HTTP/1.1\r\n" HOST "a: b\r\n\r\n";
    struct http_request r;
    size_t at = 0;
    for (size_t n = 0; n < sizeof text - 1; n++)
        ck_assert(!http_next((const uint8_t *)text, n, &at, &r));
    ck_assert_uint_gt(at, sizeof text - 6); /* what was searched is not searched again */
    ck_assert(http_next((const uint8_t *)text, sizeof text - 1, &at, &r));
    ck_assert_int_eq(r.status, 0);
}
END_TEST

START_TEST(a_head_is_bounded)
{
    uint8_t text[HTTP_MAX_HEAD_BYTES + 100];
    static const char begin[] = "GET / HTTP/1.1\r\n" HOST "a: ";
    struct http_request r;
    size_t at = 0;
    memset(text, 'x', sizeof text);
    memcpy(text, begin, sizeof begin - 1);
    memcpy(text + HTTP_MAX_HEAD_BYTES - 4, "\r\n\r\n", 4);
    ck_assert(http_next(text, sizeof text, &at, &r));
    ck_assert_int_eq(r.status, 0);

    memset(text + HTTP_MAX_HEAD_BYTES - 4, 'x', 4);
    at = 0;
    ck_assert(!http_next(text, HTTP_MAX_HEAD_BYTES - 1, &at, &r));
    ck_assert(http_next(text, HTTP_MAX_HEAD_BYTES, &at, &r));
    ck_assert_int_eq(r.status, 431);

    memcpy(text + HTTP_MAX_HEAD_BYTES - 3, "\r\n\r\n", 4); /* one byte too long */
    at = 0;
    ck_assert(http_next(text, sizeof text, &at, &r));
    ck_assert_int_eq(r.status, 431);
}
END_TEST

static void assert_reply(const struct http_request *r, int status, const char *body_text,
                         const char *expected)
{
    struct co_buf out = {0}, body = {0};
    if (body_text != NULL)
        ck_assert_int_eq(co_buf_append(&body, body_text, strlen(body_text)), 0);
    ck_assert_int_eq(http_reply(&out, r, status, "text/x", body_text != NULL ? &body : NULL), 0);
    ck_assert_uint_eq(co_buf_len(&out), strlen(expected));
    ck_assert(memcmp(co_buf_bytes(&out), expected, strlen(expected)) == 0);
    co_buf_fini(&out);
    co_buf_fini(&body);
}

START_TEST(replies_have_a_head_and_a_body)
{
    struct http_request keep = {.keep_alive = true}, close = {0}, head = {.is_head = true};
    assert_reply(&keep, 200, "ok\n",
                 "HTTP/1.1 200 OK\r\nContent-Type: text/x\r\nContent-Length: 3\r\n"
                 "Cache-Control: no-store\r\nConnection: keep-alive\r\n\r\nok\n");
    assert_reply(&close, 404, NULL,
                 "HTTP/1.1 404 Not Found\r\nContent-Type: text/x\r\nContent-Length: 14\r\n"
                 "Cache-Control: no-store\r\nConnection: close\r\n\r\n404 Not Found\n");
    assert_reply(&close, 405, NULL,
                 "HTTP/1.1 405 Method Not Allowed\r\nContent-Type: text/x\r\n"
                 "Content-Length: 23\r\nCache-Control: no-store\r\nAllow: GET, HEAD\r\n"
                 "Connection: close\r\n\r\n405 Method Not Allowed\n");
    assert_reply(&head, 200, "ok\n",
                 "HTTP/1.1 200 OK\r\nContent-Type: text/x\r\nContent-Length: 3\r\n"
                 "Cache-Control: no-store\r\nConnection: close\r\n\r\n");
}
END_TEST

/* --- the pages --- */

static const struct stats some_stats = {
    .version = "0.1.0",
    .uptime_ms = 12045,
    .n_clients = 3,
    .max_clients = 100,
    .n_connections = 7,
    .n_refused = 2,
    .n_keys = 5,
    .n_store_bytes = 1234,
    .max_store_bytes = (uint64_t)1 << 40,
    .n_buffer_bytes = 99,
    .max_buffer_bytes = 1 << 20,
    .n_requests = {[WIRE_SET] = 11, [WIRE_BARRIER] = 13},
    .n_http_requests = 17,
};

START_TEST(metrics_are_in_prometheus_form)
{
    struct co_buf out = {0};
    ck_assert_int_eq(page_stats_prometheus(&some_stats, &out), 0);
    ck_assert_int_eq(co_buf_append(&out, "", 1), 0);
    const char *text = (const char *)co_buf_bytes(&out);
    static const char *const lines[] = {
        "\nddp_rendezvous_info{version=\"0.1.0\"} 1\n",
        "\nddp_rendezvous_uptime_seconds 12.045\n",
        "\n# TYPE ddp_rendezvous_clients gauge\nddp_rendezvous_clients 3\n",
        "\nddp_rendezvous_refused_total 2\n",
        "\nddp_rendezvous_store_bytes_limit 1099511627776\n",
        "\nddp_rendezvous_requests_total{op=\"SET\"} 11\n",
        "\nddp_rendezvous_requests_total{op=\"GET\"} 0\n",
        "\nddp_rendezvous_requests_total{op=\"BARRIER\"} 13\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        ck_assert_msg(strstr(text, lines[i]) != NULL, "no '%s' in %s", lines[i], text);
    ck_assert_int_eq(text[strlen(text) - 1], '\n');
    co_buf_fini(&out);
}
END_TEST

START_TEST(the_status_is_json)
{
    struct co_buf out = {0}, more = {0};
    json_error_t error;
    ck_assert_int_eq(co_buf_append(&more, ", \"jobs\": [3]", 13), 0);
    ck_assert_int_eq(page_stats_json(&some_stats, _i == 0 ? NULL : &more, &out), 0);
    json_t *json = json_loadb((const char *)co_buf_bytes(&out), co_buf_len(&out),
                              JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(json != NULL, "%s", error.text);
    json_t *requests = json_object_get(json, "requests");
    ck_assert_str_eq(json_string_value(json_object_get(json, "version")), "0.1.0");
    ck_assert(json_real_value(json_object_get(json, "uptime_s")) == 12.045);
    ck_assert_int_eq(json_integer_value(json_object_get(requests, "SET")), 11);
    ck_assert_int_eq(json_integer_value(json_object_get(requests, "http")), 17);
    ck_assert_uint_eq(json_object_size(requests), WIRE_N_OPS + 1);
    ck_assert_int_eq(
        json_integer_value(json_object_get(json_object_get(json, "store"), "limit_bytes")),
        (json_int_t)1 << 40);
    ck_assert_uint_eq(json_array_size(json_object_get(json, "jobs")), _i);
    json_decref(json);
    co_buf_fini(&more);
    co_buf_fini(&out);
}
END_TEST

TEST_SUITE(http)
{
    Suite *suite = suite_create("http");
    TCase *tc = tcase_create("http");
    tcase_add_test(tc, the_first_bytes_select_the_protocol);
    tcase_add_test(tc, a_get_is_parsed);
    tcase_add_test(tc, the_host_of_a_request_has_no_port);
    tcase_add_test(tc, the_host_of_a_request_is_bounded);
    tcase_add_test(tc, the_next_request_begins_after_the_empty_line);
    tcase_add_test(tc, an_invalid_request_has_its_http_status);
    tcase_add_test(tc, a_nul_in_the_head_is_refused);
    tcase_add_test(tc, a_head_may_arrive_byte_by_byte);
    tcase_add_test(tc, a_head_is_bounded);
    tcase_add_test(tc, replies_have_a_head_and_a_body);
    tcase_add_test(tc, metrics_are_in_prometheus_form);
    tcase_add_loop_test(tc, the_status_is_json, 0, 2);
    suite_add_tcase(suite, tc);
    return suite;
}
