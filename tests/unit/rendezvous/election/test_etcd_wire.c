/* Requests to etcd byte by byte, its answers as etcd 3.4 gave them, and invalid answers: each has a
 * directory in tests/data/etcd/bad with `input` (the first line: the request and the HTTP status)
 * and `error`. */
#include "rendezvous/election/etcd_wire.h"

#include "common/buf.h"
#include "common/error.h"
#include "tests/support/cases.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct etcd_wire_keys keys;
static struct elector_answer answer;
static char asked[4096];

static void set_up(void)
{
    ck_assert_int_eq(etcd_wire_keys("/p", "job", &keys), 0);
}

static const char *encode(struct elector_request ask)
{
    struct co_buf body = {0};
    const char *path = etcd_wire_encode(&keys, &ask, &body);
    ck_assert_ptr_nonnull(path);
    snprintf(asked, sizeof asked, "%s %.*s", path, (int)co_buf_len(&body),
             (const char *)co_buf_bytes(&body));
    co_buf_fini(&body);
    return asked;
}

static void decode(enum elector_request_type type, int status, const char *text)
{
    const struct elector_request ask = {.type = type};
    etcd_wire_decode(&keys, &ask, status, text, strlen(text), &answer);
}

#define LEADER "L3Avam9iL2xlYWRlcg==" /* /p/job/leader */
#define RECORD "L3Avam9iL3JlY29yZA==" /* /p/job/record */

START_TEST(requests_have_the_form_of_the_gateway)
{
    const struct elector_record r = {
        .generation = 3, .n_nodes = 2, .world_size = 16, .n_restarts = 1, .gone = -1};
    ck_assert_str_eq(encode((struct elector_request){.type = ELECTOR_READ}),
                     "/v3/kv/txn {\"success\":[{\"request_range\":{\"key\":\"" LEADER
                     "\"}},{\"request_range\":{\"key\":\"" RECORD "\"}}]}");
    ck_assert_str_eq(encode((struct elector_request){.type = ELECTOR_GRANT, .ttl_s = 2}),
                     "/v3/lease/grant {\"TTL\":\"2\"}");
    ck_assert_str_eq(encode((struct elector_request){.type = ELECTOR_KEEP, .lease = INT64_MAX}),
                     "/v3/lease/keepalive {\"ID\":\"9223372036854775807\"}");
    encode((struct elector_request){.type = ELECTOR_WRITE,
                                    .lease = 77,
                                    .create_revision = 40,
                                    .has_record = true,
                                    .record = r});
    ck_assert_ptr_nonnull(strstr(asked, "\"create_revision\":\"40\""));
    ck_assert_ptr_nonnull(strstr(asked, "\"lease\":\"77\""));
    encode((struct elector_request){.type = ELECTOR_GIVE_UP, .create_revision = 40});
    ck_assert_ptr_nonnull(strstr(asked, "\"request_delete_range\":{\"key\":\"" RECORD "\"}"));
    ck_assert_ptr_nonnull(strstr(asked, "\"request_delete_range\":{\"key\":\"" LEADER "\"}"));
}
END_TEST

START_TEST(keys_that_are_too_long_are_refused)
{
    char long_id[2000];
    struct etcd_wire_keys k;
    memset(long_id, 'x', sizeof long_id);
    long_id[sizeof long_id - 1] = '\0';
    ck_assert_int_eq(etcd_wire_keys("/p", long_id, &k), -ENAMETOOLONG);
}
END_TEST

#define HEADER                                                                                     \
    "\"header\":{\"cluster_id\":\"1\",\"member_id\":\"2\",\"revision\":\"17\",\"raft_term\":"      \
    "\"2\"}"

START_TEST(both_keys_are_read)
{
    decode(
        ELECTOR_READ, 200,
        "{" HEADER ",\"succeeded\":true,\"responses\":["
        "{\"response_range\":{\"header\":{\"revision\":\"17\"},\"kvs\":[{\"key\":\"" LEADER
        "\",\"create_revision\":\"9\",\"mod_revision\":\"9\",\"version\":\"1\",\"lease\":\"7\","
        "\"value\":\"eyJ2IjoxLCJob3N0IjoiMTAuMC4wLjEiLCJwb3J0Ijo0MTAwMX0=\"}]}},"
        "{\"response_range\":{\"header\":{\"revision\":\"17\"},\"kvs\":[{\"key\":\"" RECORD
        "\",\"create_revision\":\"10\",\"mod_revision\":\"12\",\"version\":\"3\",\"lease\":\"8\","
        "\"value\":\"eyJ2IjoxLCJnZW5lcmF0aW9uIjozLCJub2RlcyI6MiwicmFua3MiOjE2LCJyZXN0YXJ0cyI6"
        "MSwiZ29uZSI6LTEsIm92ZXIiOmZhbHNlLCJleGl0X2NvZGUiOjB9\"}]}}]}");
    ck_assert_msg(!answer.failed, "%s", answer.text);
    ck_assert(answer.has_leader);
    ck_assert_str_eq(answer.leader.host, "10.0.0.1");
    ck_assert_uint_eq(answer.leader.port, 41001);
    ck_assert_int_eq(answer.leader_create_revision, 9);
    ck_assert_int_eq(answer.leader_lease, 7);
    ck_assert(answer.has_record);
    ck_assert_uint_eq(answer.record.generation, 3);
    ck_assert_uint_eq(answer.record.world_size, 16);
    ck_assert_int_eq(answer.record_mod_revision, 12);
    ck_assert_int_eq(answer.record_lease, 8);
    ck_assert_uint_eq(answer.record.n_excluded, 0); /* as older ones have written it */
    ck_assert_uint_eq(answer.record.before.generation, ELECTOR_NO_GENERATION);
    ck_assert_int_eq(answer.revision, 17);
}
END_TEST

/* What is written under a key, in a request, as etcd gives it back. */
static void read_back(const char *request)
{
    static const char before[] = "\"value\":\"";
    char text[16 << 10];
    const char *value = strstr(request, before);
    ck_assert_ptr_nonnull(value);
    value += strlen(before);
    snprintf(text, sizeof text,
             "{" HEADER ",\"responses\":[{\"response_range\":{}},{\"response_range\":{\"kvs\":[{"
             "\"key\":\"" RECORD "\",\"mod_revision\":\"12\",\"value\":\"%.*s\"}]}}]}",
             (int)strcspn(value, "\""), value);
    decode(ELECTOR_READ, 200, text);
}

START_TEST(the_record_keeps_the_excluded_nodes)
{
    struct elector_record r = {.generation = 3,
                               .n_nodes = 2,
                               .world_size = 16,
                               .gone = -1,
                               .n_excluded = 2,
                               .before = {.generation = ELECTOR_NO_GENERATION}};
    snprintf(r.excluded[0].name, sizeof r.excluded[0].name, "n\"2\\");
    r.excluded[0].exit_code = 7;
    memset(r.excluded[1].name, '"', ELECTOR_NAME_BYTES - 1); /* each is two letters in JSON */
    read_back(
        encode((struct elector_request){.type = ELECTOR_WRITE, .has_record = true, .record = r}));
    ck_assert_msg(!answer.failed, "%s", answer.text);
    ck_assert_uint_eq(answer.record.n_excluded, 2);
    ck_assert_str_eq(answer.record.excluded[0].name, "n\"2\\");
    ck_assert_uint_eq(answer.record.excluded[0].exit_code, 7);
    for (r.n_excluded = 2; r.n_excluded < ELECTOR_EXCLUDED_MAX; r.n_excluded++)
        r.excluded[r.n_excluded] = r.excluded[1]; /* the longest that there can be */
    r.excluded[0] = r.excluded[1];
    r.before = (struct elector_before){.generation = 2, .n_nodes = 65536, .n_missing = 8};
    for (int i = 0; i < ELECTOR_MISSING_MAX; i++)
        r.before.missing[i] = 65535;
    read_back(
        encode((struct elector_request){.type = ELECTOR_WRITE, .has_record = true, .record = r}));
    ck_assert_uint_eq(answer.record.n_excluded, ELECTOR_EXCLUDED_MAX);
    ck_assert_str_eq(answer.record.excluded[7].name, r.excluded[1].name);
    ck_assert_uint_eq(answer.record.before.n_missing, ELECTOR_MISSING_MAX);
    ck_assert_uint_eq(answer.record.before.missing[7], 65535);
}
END_TEST

START_TEST(the_record_keeps_the_generation_before)
{
    struct elector_record r = {
        .generation = 3,
        .n_nodes = 2,
        .world_size = 16,
        .gone = -1,
        .before = {.generation = 1, .n_nodes = 4, .n_missing = 2, .missing = {0, 3}}};
    read_back(
        encode((struct elector_request){.type = ELECTOR_WRITE, .has_record = true, .record = r}));
    ck_assert_msg(!answer.failed, "%s", answer.text);
    ck_assert_uint_eq(answer.record.before.generation, 1);
    ck_assert_uint_eq(answer.record.before.n_nodes, 4);
    ck_assert_uint_eq(answer.record.before.n_missing, 2);
    ck_assert_uint_eq(answer.record.before.missing[1], 3);
    r.before = (struct elector_before){.generation = ELECTOR_NO_GENERATION};
    read_back(
        encode((struct elector_request){.type = ELECTOR_WRITE, .has_record = true, .record = r}));
    ck_assert_uint_eq(answer.record.before.generation, ELECTOR_NO_GENERATION);
}
END_TEST

START_TEST(the_record_keeps_the_leaders_node)
{
    struct elector_record r = {.generation = 3,
                               .n_nodes = 2,
                               .world_size = 16,
                               .gone = -1,
                               .before = {.generation = ELECTOR_NO_GENERATION},
                               .host = {.node = 1, .at = {.host = "10.0.0.1", .port = 41001}}};
    read_back(
        encode((struct elector_request){.type = ELECTOR_WRITE, .has_record = true, .record = r}));
    ck_assert_msg(!answer.failed, "%s", answer.text);
    ck_assert_uint_eq(answer.record.host.node, 1);
    ck_assert_str_eq(answer.record.host.at.host, "10.0.0.1");
    ck_assert_uint_eq(answer.record.host.at.port, 41001);
    r.host.at.port = 0;
    read_back(
        encode((struct elector_request){.type = ELECTOR_WRITE, .has_record = true, .record = r}));
    ck_assert_msg(!answer.failed, "%s", answer.text);
    ck_assert_uint_eq(answer.record.host.at.port, 0);
}
END_TEST

START_TEST(missing_fields_are_left_out)
{
    decode(ELECTOR_CLAIM, 200,
           "{" HEADER ",\"responses\":[{\"response_range\":{\"header\":{\"revision\":\"17\"}}},"
           "{\"response_range\":{\"header\":{\"revision\":\"17\"}}}]}");
    ck_assert(!answer.failed && !answer.succeeded && !answer.has_leader && !answer.has_record);
}
END_TEST

START_TEST(leases_are_read_and_expired_ones_have_no_time)
{
    decode(ELECTOR_GRANT, 200, "{" HEADER ",\"ID\":\"2324035530918381829\",\"TTL\":\"2\"}");
    ck_assert(!answer.failed);
    ck_assert_int_eq(answer.lease, 2324035530918381829);
    ck_assert_uint_eq(answer.ttl_s, 2);
    decode(ELECTOR_KEEP, 200, "{\"result\":{" HEADER ",\"ID\":\"1234\",\"TTL\":\"2\"}}\n");
    ck_assert_uint_eq(answer.ttl_s, 2);
    decode(ELECTOR_KEEP, 200, "{\"result\":{" HEADER ",\"ID\":\"1234\"}}\n");
    ck_assert(!answer.failed);
    ck_assert_uint_eq(answer.ttl_s, 0);
}
END_TEST

START_TEST(an_unknown_lease_is_distinguished_from_other_errors)
{
    decode(ELECTOR_WRITE, 404,
           "{\"error\":\"etcdserver: requested lease not found\",\"message\":\"etcdserver: "
           "requested lease not found\",\"code\":5}");
    ck_assert(answer.failed && answer.lacks_lease);
    decode(ELECTOR_WRITE, 503, "{\"error\":\"etcdserver: no leader\",\"code\":14}");
    ck_assert(answer.failed && !answer.lacks_lease);
    ck_assert_str_eq(answer.text, "etcd: etcdserver: no leader (HTTP status 503)");
}
END_TEST

START_TEST(an_expired_token_is_requested_again)
{
    static const char bad[] = "{\"error\":\"etcdserver: invalid auth token\",\"code\":16}";
    ck_assert(etcd_wire_wants_login(401, bad, strlen(bad)));
    ck_assert(etcd_wire_wants_login(200, bad, strlen(bad)));
    ck_assert(!etcd_wire_wants_login(200, "{}", 2));
}
END_TEST

START_TEST(a_token_that_cannot_be_in_a_header_is_refused)
{
    char token[ETCD_WIRE_TOKEN_BYTES];
    struct co_error err;
    static const char good[] = "{" HEADER ",\"token\":\"abc.17\"}";
    static const char bad[] = "{" HEADER ",\"token\":\"abc\\r\\nX: y\"}";
    ck_assert_int_eq(etcd_wire_decode_login(200, good, strlen(good), token, &err), 0);
    ck_assert_str_eq(token, "abc.17");
    ck_assert_int_eq(etcd_wire_decode_login(200, bad, strlen(bad), token, &err), -EPROTO);
    static const char no[] = "{\"error\":\"x\",\"message\":\"etcdserver: authentication failed\"}";
    ck_assert_int_eq(etcd_wire_decode_login(400, no, strlen(no), token, &err), -EPROTO);
    ck_assert_ptr_nonnull(strstr(err.text, "authentication failed"));
}
END_TEST

/* --- bad input --- */

static void check_case(const char *path)
{
    static char input[100000], error[1024];
    static const char *const requests[] = {"READ", "GRANT", "CLAIM", "KEEP", "WRITE", "GIVE_UP"};
    char request[16];
    int status, n_head = 0;
    size_t len = cases_read(path, "input", input, sizeof input);
    cases_read_line(path, "error", error, sizeof error);
    ck_assert_int_eq(sscanf(input, "%15s %d%n", request, &status, &n_head), 2);
    n_head++; /* the line's end */
    for (int type = 0; type < 6; type++) {
        const struct elector_request ask = {.type = (enum elector_request_type)type};
        if (strcmp(requests[type], request) == 0)
            etcd_wire_decode(&keys, &ask, status, input + n_head, len - (size_t)n_head, &answer);
    }
    ck_assert_msg(answer.failed, "%s: it is taken", path);
    ck_assert_msg(strcmp(answer.text, error) == 0, "%s: '%s' instead of '%s'", path, answer.text,
                  error);
}

START_TEST(bad_answers_are_refused_with_their_reason)
{
    ck_assert_int_gt(cases_each("etcd/bad", check_case), 10);
}
END_TEST

TEST_SUITE(etcd_wire)
{
    Suite *suite = suite_create("etcd_wire");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, NULL);
    tcase_add_test(all, requests_have_the_form_of_the_gateway);
    tcase_add_test(all, keys_that_are_too_long_are_refused);
    tcase_add_test(all, both_keys_are_read);
    tcase_add_test(all, the_record_keeps_the_excluded_nodes);
    tcase_add_test(all, the_record_keeps_the_generation_before);
    tcase_add_test(all, the_record_keeps_the_leaders_node);
    tcase_add_test(all, missing_fields_are_left_out);
    tcase_add_test(all, leases_are_read_and_expired_ones_have_no_time);
    tcase_add_test(all, an_unknown_lease_is_distinguished_from_other_errors);
    tcase_add_test(all, an_expired_token_is_requested_again);
    tcase_add_test(all, a_token_that_cannot_be_in_a_header_is_refused);
    tcase_add_test(all, bad_answers_are_refused_with_their_reason);
    suite_add_tcase(suite, all);
    return suite;
}
