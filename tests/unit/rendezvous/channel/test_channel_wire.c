/* Each message to bytes and back; every bound; the bad inputs of tests/data/control/bad, each of
 * which has the bytes (input) and the error text (error). */
#include "rendezvous/channel/channel_wire.h"

#include "common/buf.h"
#include "common/error.h"
#include "common/scope.h"
#include "tests/support/cases.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct channel_wire_scratch scratch;
static struct co_buf out;
static struct co_error err;

static const struct message_address addresses[] = {
    {4, {10, 0, 0, 1}},
    {6, {0x20, 0x01, 0x0d, 0xb8, [15] = 1}},
};

static const struct message_progress progress = {
    .wait = MESSAGE_WAIT_NODES,
    .n_here = 6,
    .n_wanted = 8,
    .elapsed_ms = 12000,
    .left_ms = UINT64_MAX,
    .n_all_names = 2,
    .n_names = 2,
    .names = {"node5", "node6"},
};

static struct message_hello make_hello(void)
{
    return (struct message_hello){
        .instance = {1, 2, 3, [15] = 0xff},
        .run_id = "job 7/\xc3\xa9",
        .name = "node7",
        .node_rank = MESSAGE_NO_RANK,
        .n_local = 8,
        .resumes = MESSAGE_NO_GENERATION,
        .keeps_rank_0 = true,
        .reports = true,
        .stop_ms = 45000,
        .sent_ms = UINT64_MAX,
        .n_addresses = 2,
        .addresses = addresses,
        .terms = {.min_nodes = 2,
                  .max_nodes = MESSAGE_MAX_NODES,
                  .window_ms = 3000,
                  .start_timeout_ms = 600000,
                  .rejoin_timeout_ms = 600000,
                  .max_restarts = MESSAGE_MAX_RESTARTS,
                  .restart_window_ms = 1,
                  .no_restart_on = {[4] = 0x80},
                  .admit_at = MESSAGE_ADMIT_AT_CHECKPOINT,
                  .admit_timeout_ms = 600000,
                  .exclude_after = 3,
                  .exclude_window_ms = 86400000,
                  .no_progress = 5},
        .was = {.is_known = true,
                .generation = 7,
                .place = {.n_nodes = 3,
                          .node_index = 2,
                          .world_size = 24,
                          .first_rank = 16,
                          .n_local = 8,
                          .term = MESSAGE_MAX_TERM,
                          .agent_store = true,
                          .host = "node1",
                          .port = 4242}},
    };
}

static const struct message_result_rank result_ranks[] = {
    {.rank = 16, .pid = INT32_MAX, .has_ended = true, .status = 0x8b, .duration_ms = 8044},
    {.rank = 17, .local_rank = 1, .pid = 7, .has_ended = true, .stopped_by = 15, .lost_peer = true},
    {.rank = 18,
     .local_rank = 2,
     .pid = 8,
     .has_ended = true,
     .stopped_by = 15,
     .was_failing = true},
};

static const struct message_figures_rank figures_ranks[] = {
    {.rank = INT32_MAX,
     .pid = INT32_MAX,
     .phase = MESSAGE_PHASE_RUNS,
     .restarts = UINT32_MAX,
     .age_ms = MESSAGE_MAX_MS,
     .has_steps = true,
     .steps = MESSAGE_MAX_STEPS,
     .own_ns = UINT64_MAX,
     .silent_ms = MESSAGE_MAX_MS},
    {.rank = 17, .phase = MESSAGE_PHASE_ENDED, .status = UINT16_MAX, .silent_ms = 7},
};

/* One of each type. */
static struct message make(enum message_type type)
{
    struct message m = {.type = type, .generation = 3};
    switch (type) {
    case MESSAGE_HELLO:
        m.hello = make_hello();
        break;
    case MESSAGE_KEEP_ALIVE:
        m.keep_alive.sent_ms = 123456789012345;
        break;
    case MESSAGE_READY:
        m.ready = (struct message_ready){"fe80::1", 29500, true, true};
        break;
    case MESSAGE_FAILED:
        m.failed = (struct message_failed){.rank = 17,
                                           .exit_code = 139,
                                           .final = true,
                                           .text = "killed by SIGSEGV (core dumped)",
                                           .consequence = true,
                                           .recovers = true};
        break;
    case MESSAGE_STOPPED:
        m.stopped = (struct message_stopped){.n_local = 7, .steps = MESSAGE_MAX_STEPS};
        break;
    case MESSAGE_LEAVE:
        m.leave.text = "SIGTERM";
        break;
    case MESSAGE_END:
    case MESSAGE_VERDICT:
        m.verdict = (struct message_verdict){MESSAGE_RANK_FAILED, 139, 17, "node7", "a text", 2};
        break;
    case MESSAGE_WELCOME:
        m.welcome = (struct message_welcome){12, 1000, 3000, true, "", true};
        break;
    case MESSAGE_REFUSED:
        m.refused = (struct message_refused){MESSAGE_REFUSED_NODE_RANK, true, "taken"};
        break;
    case MESSAGE_SEALED:
        m.sealed = (struct message_place){4, 3, 32, 24, 8, 2, 5, false, true, "node1", 41234};
        break;
    case MESSAGE_MEMBERS:
        m.members = (struct message_members){10, 8, 2, addresses};
        break;
    case MESSAGE_STOP:
        m.stop = (struct message_stop){MESSAGE_WHY_RESTART, "node7 joins"};
        break;
    case MESSAGE_LEASE:
        m.lease = (struct message_lease){12, &progress};
        break;
    case MESSAGE_RESULT:
        m.result = (struct message_result){.kind = MESSAGE_RESULT_RANKS,
                                           .node_index = 1,
                                           .host = "node 2",
                                           .cause = "{\"error\":\"caf\xc3\xa9\"}",
                                           .n_ranks = 2,
                                           .ranks = result_ranks};
        break;
    case MESSAGE_FIGURES:
        m.figures = (struct message_figures){.kind = MESSAGE_FIGURES_RANKS,
                                             .node_index = 1,
                                             .host = "node2",
                                             .n_ranks = 2,
                                             .ranks = figures_ranks};
        break;
    case MESSAGE_HEALTH:
        m.health = (struct message_health){MESSAGE_UNFIT, "node7", "gpu: GPU 3 needs a reset"};
        break;
    case MESSAGE_HEARTBEAT:
        m.heartbeat = (struct message_heartbeat){{1, 2, 255}, "job 7", 500};
        break;
    default:
        break;
    }
    return m;
}

static void encode(const struct message *m)
{
    co_buf_consume(&out, co_buf_len(&out));
    ck_assert_msg(channel_wire_encode(m, &out, &err) == 0, "%s", err.text);
}

static int decode(size_t len, struct message *ret)
{
    /* exactly as long, so that a sanitizer sees every byte read too far */
    co_autofree uint8_t *bytes = malloc(len > 0 ? len : 1);
    static struct message_text_store {
        uint8_t bytes[CHANNEL_WIRE_MAX_BYTES + 8];
    } kept;
    ck_assert_ptr_nonnull(bytes);
    if (len > 0)
        memcpy(bytes, co_buf_bytes(&out), len);
    int rc = channel_wire_decode(bytes, len, &scratch, ret, &err);
    if (rc == 0) { /* once more, from where the texts stay */
        memcpy(kept.bytes, co_buf_bytes(&out), len);
        rc = channel_wire_decode(kept.bytes, len, &scratch, ret, &err);
    }
    return rc;
}

static void assert_refused(const struct message *m, const char *why)
{
    size_t before = co_buf_len(&out);
    ck_assert_int_eq(channel_wire_encode(m, &out, &err), -EINVAL);
    ck_assert_msg(strstr(err.text, why) != NULL, "'%s' instead of '%s'", err.text, why);
    ck_assert_uint_eq(co_buf_len(&out), before);
}

START_TEST(each_message_survives_a_round_trip)
{
    for (int type = 0; type < MESSAGE_N_TYPES; type++) {
        struct message m = make((enum message_type)type), back;
        encode(&m);
        size_t len = co_buf_len(&out);
        co_autofree uint8_t *bytes = malloc(len);
        ck_assert_ptr_nonnull(bytes);
        memcpy(bytes, co_buf_bytes(&out), len);
        ck_assert_msg(decode(len, &back) == 0, "%d: %s", type, err.text);
        ck_assert_int_eq(back.type, m.type);
        ck_assert_uint_eq(back.generation, 3);
        encode(&back);
        ck_assert_uint_eq(co_buf_len(&out), len);
        ck_assert_mem_eq(co_buf_bytes(&out), bytes, len);
    }
}
END_TEST

START_TEST(the_health_of_a_node_has_bounds)
{
    char text[MESSAGE_HEALTH_BYTES + 1];
    struct message m = make(MESSAGE_HEALTH), back;
    encode(&m);
    ck_assert_int_eq(decode(co_buf_len(&out), &back), 0);
    ck_assert_int_eq(back.health.fitness, MESSAGE_UNFIT);
    ck_assert_str_eq(back.health.node, "node7");
    ck_assert_str_eq(back.health.text, "gpu: GPU 3 needs a reset");
    m.health.text = "";
    assert_refused(&m, "the reason has 0 bytes");
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    m.health.text = text;
    assert_refused(&m, "the reason has 200 bytes");
    m.health.text = "two\nlines";
    assert_refused(&m, "invalid characters");
    m = make(MESSAGE_HELLO);
    m.hello.check_ms = 1;
    assert_refused(&m, "the time of a check");
    m.hello.checks = true;
    encode(&m);
    ck_assert_int_eq(decode(co_buf_len(&out), &back), 0);
    ck_assert(back.hello.checks);
    ck_assert_uint_eq(back.hello.check_ms, 1);
}
END_TEST

START_TEST(the_domain_of_a_node_has_bounds)
{
    char text[MESSAGE_DOMAIN_BYTES + 1];
    struct message m = make(MESSAGE_HELLO), back;
    encode(&m); /* no domain */
    ck_assert_int_eq(decode(co_buf_len(&out), &back), 0);
    ck_assert_str_eq(back.hello.domain, "");
    m.hello.domain = "rack7";
    assert_refused(&m, "the domain has 1 bytes: expected 0 to 0");
    m.hello.terms.segment = 2;
    encode(&m);
    ck_assert_int_eq(decode(co_buf_len(&out), &back), 0);
    ck_assert_uint_eq(back.hello.terms.segment, 2);
    ck_assert_str_eq(back.hello.domain, "rack7");
    m.hello.domain = NULL;
    assert_refused(&m, "the domain has 0 bytes: expected 1 to 127");
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    m.hello.domain = text;
    assert_refused(&m, "the domain has 128 bytes: expected 1 to 127");
    m.hello.domain = "rack 7";
    assert_refused(&m, "the domain contains invalid characters");
    m = make(MESSAGE_HELLO);
    m.hello.terms.segment = MESSAGE_MAX_NODES + 1;
    assert_refused(&m, "for the size of a segment");
}
END_TEST

START_TEST(a_hello_keeps_its_fields)
{
    struct message m = make(MESSAGE_HELLO), back;
    encode(&m);
    ck_assert_int_eq(decode(co_buf_len(&out), &back), 0);
    ck_assert_str_eq(back.hello.run_id, m.hello.run_id);
    ck_assert_str_eq(back.hello.name, "node7");
    ck_assert_int_eq(back.hello.node_rank, -1);
    ck_assert_uint_eq(back.hello.n_addresses, 2);
    ck_assert_mem_eq(back.hello.addresses, addresses, sizeof addresses);
    ck_assert_mem_eq(&back.hello.terms, &m.hello.terms, sizeof m.hello.terms);
    ck_assert(back.hello.was.is_known);
    ck_assert_uint_eq(back.hello.was.generation, 7);
    ck_assert_uint_eq(back.hello.was.place.node_index, 2);
    ck_assert_str_eq(back.hello.was.place.host, "node1");
}
END_TEST

START_TEST(a_place_has_how_ranks_reach_the_store)
{
    for (int i = 0; i < 3; i++) {
        struct message m = make(MESSAGE_SEALED), back;
        m.sealed.agent_store = i > 0;
        m.sealed.relayed = i > 1;
        encode(&m);
        ck_assert_int_eq(decode(co_buf_len(&out), &back), 0);
        ck_assert_int_eq(back.sealed.agent_store, i > 0);
        ck_assert_int_eq(back.sealed.relayed, i > 1);
    }
}
END_TEST

START_TEST(a_lease_keeps_the_progress_of_the_wait)
{
    struct message m = make(MESSAGE_LEASE), back;
    encode(&m);
    ck_assert_int_eq(decode(co_buf_len(&out), &back), 0);
    ck_assert_uint_eq(back.lease.progress->n_here, 6);
    ck_assert_str_eq(back.lease.progress->names[1], "node6");
    m.lease.progress = NULL;
    encode(&m);
    ck_assert_int_eq(decode(co_buf_len(&out), &back), 0);
    ck_assert_ptr_null(back.lease.progress);
}
END_TEST

START_TEST(each_truncated_message_is_refused)
{
    for (int type = 0; type < MESSAGE_N_TYPES; type++) {
        struct message m = make((enum message_type)type), back;
        encode(&m);
        for (size_t len = 0; len < co_buf_len(&out); len++)
            ck_assert_int_eq(decode(len, &back), -EPROTO);
        ck_assert_int_eq(co_buf_append(&out, "", 1), 0);
        ck_assert_int_eq(decode(co_buf_len(&out), &back), -EPROTO);
        ck_assert_ptr_nonnull(strstr(err.text, "1 bytes are left over"));
    }
}
END_TEST

START_TEST(the_longest_list_of_members_fits)
{
    static struct message_address many[MESSAGE_MAX_MEMBERS + 1];
    struct message m = make(MESSAGE_MEMBERS), back;
    for (size_t i = 0; i < sizeof many / sizeof *many; i++)
        many[i].family = 4;
    m.members = (struct message_members){MESSAGE_MAX_MEMBERS + 1, 0, MESSAGE_MAX_MEMBERS, many};
    encode(&m);
    ck_assert_uint_le(co_buf_len(&out), CHANNEL_WIRE_MAX_BYTES);
    ck_assert_int_eq(decode(co_buf_len(&out), &back), 0);
    ck_assert_uint_eq(back.members.n, MESSAGE_MAX_MEMBERS);
    m.members.n++;
    assert_refused(&m, "invalid value 2049 for the number of addresses");
}
END_TEST

START_TEST(the_longest_result_fits)
{
    static struct message_result_rank many[MESSAGE_MAX_LOCAL + 1];
    static char cause[MESSAGE_CAUSE_BYTES + 1], host[MESSAGE_HOST_BYTES];
    struct message m = make(MESSAGE_RESULT), back;
    memset(cause, 'x', MESSAGE_CAUSE_BYTES - 1);
    memset(host, 'h', sizeof host - 1);
    m.result.host = host;
    m.result.cause = cause;
    m.result.n_ranks = MESSAGE_MAX_LOCAL;
    m.result.ranks = many;
    encode(&m);
    ck_assert_uint_le(co_buf_len(&out), CHANNEL_WIRE_MAX_BYTES);
    ck_assert_int_eq(decode(co_buf_len(&out), &back), 0);
    ck_assert_uint_eq(back.result.n_ranks, MESSAGE_MAX_LOCAL);
    ck_assert_str_eq(back.result.cause, cause);
    m.result.n_ranks++;
    assert_refused(&m, "invalid value 1025 for the number of ranks");
    m.result.n_ranks = 0;
    cause[MESSAGE_CAUSE_BYTES - 1] = 'x';
    assert_refused(&m, "the cause has 24576 bytes: expected 0 to 24575");
    m.result.cause = "two\nlines";
    assert_refused(&m, "the cause contains invalid characters");
}
END_TEST

/* The coordinator's have no more fields. */
START_TEST(a_requested_result_names_the_node_that_writes)
{
    struct message m = {.type = MESSAGE_RESULT,
                        .generation = MESSAGE_NO_GENERATION,
                        .result = {.kind = MESSAGE_RESULT_ASKED, .writes = true, .stays = true}};
    struct message back;
    encode(&m);
    ck_assert_int_eq(decode(co_buf_len(&out), &back), 0);
    ck_assert(back.result.kind == MESSAGE_RESULT_ASKED && back.result.writes && back.result.stays);
    m.result = (struct message_result){.kind = MESSAGE_RESULT_ALL};
    encode(&m);
    ck_assert_int_eq(decode(co_buf_len(&out), &back), 0);
    ck_assert_int_eq(back.result.kind, MESSAGE_RESULT_ALL);
    m.result.kind = MESSAGE_RESULT_ALL + 1;
    assert_refused(&m, "invalid value 3 for the kind");
}
END_TEST

START_TEST(a_result_keeps_its_fields)
{
    struct message m = make(MESSAGE_RESULT), back;
    encode(&m);
    ck_assert_int_eq(decode(co_buf_len(&out), &back), 0);
    ck_assert_str_eq(back.result.host, "node 2");
    ck_assert_str_eq(back.result.cause, m.result.cause);
    ck_assert_uint_eq(back.result.node_index, 1);
    for (size_t i = 0; i < 2; i++) {
        const struct message_result_rank *a = &back.result.ranks[i], *b = &result_ranks[i];
        ck_assert(a->rank == b->rank && a->local_rank == b->local_rank && a->pid == b->pid &&
                  a->has_ended == b->has_ended && a->status == b->status &&
                  a->stopped_by == b->stopped_by && a->lost_peer == b->lost_peer &&
                  a->was_failing == b->was_failing && a->duration_ms == b->duration_ms);
    }
}
END_TEST

START_TEST(figures_keep_their_fields)
{
    struct message m = make(MESSAGE_FIGURES), back;
    encode(&m);
    ck_assert_int_eq(decode(co_buf_len(&out), &back), 0);
    ck_assert_uint_eq(back.figures.node_index, 1);
    ck_assert_str_eq(back.figures.host, "node2");
    ck_assert_uint_eq(back.figures.n_ranks, 2);
    for (size_t i = 0; i < 2; i++) {
        const struct message_figures_rank *a = &back.figures.ranks[i], *b = &figures_ranks[i];
        ck_assert(a->rank == b->rank && a->pid == b->pid && a->phase == b->phase &&
                  a->status == b->status && a->restarts == b->restarts && a->age_ms == b->age_ms &&
                  a->has_steps == b->has_steps && a->steps == b->steps && a->own_ns == b->own_ns &&
                  a->silent_ms == b->silent_ms);
    }
    m.figures = (struct message_figures){.kind = MESSAGE_FIGURES_ASKED};
    encode(&m);
    ck_assert_uint_eq(co_buf_len(&out), 6); /* it has no more fields */
    ck_assert_int_eq(decode(co_buf_len(&out), &back), 0);
    ck_assert_int_eq(back.figures.kind, MESSAGE_FIGURES_ASKED);
}
END_TEST

START_TEST(the_figures_of_the_largest_node_fit)
{
    static struct message_figures_rank many[MESSAGE_MAX_LOCAL + 1];
    struct message m = make(MESSAGE_FIGURES), back;
    m.figures.n_ranks = MESSAGE_MAX_LOCAL;
    m.figures.ranks = many;
    encode(&m);
    ck_assert_uint_le(co_buf_len(&out), CHANNEL_WIRE_MAX_BYTES);
    ck_assert_int_eq(decode(co_buf_len(&out), &back), 0);
    ck_assert_uint_eq(back.figures.n_ranks, MESSAGE_MAX_LOCAL);
    m.figures.n_ranks++;
    assert_refused(&m, "invalid value 1025 for the number of ranks");
    m = make(MESSAGE_FIGURES);
    m.figures.host = "two\nlines";
    assert_refused(&m, "the host contains invalid characters");
}
END_TEST

START_TEST(a_message_above_a_bound_is_not_sent)
{
    char long_name[MESSAGE_NAME_BYTES + 1];
    memset(long_name, 'x', sizeof long_name);
    long_name[MESSAGE_NAME_BYTES] = '\0';
    struct message m = make(MESSAGE_HELLO);
    m.hello.name = long_name;
    assert_refused(&m, "the name has 128 bytes: expected 1 to 127");
    m.hello.name = "";
    assert_refused(&m, "the name has 0 bytes");
    m.hello.name = "two words";
    assert_refused(&m, "the name contains invalid characters");
    m = make(MESSAGE_HELLO);
    m.hello.run_id = "a\nb";
    assert_refused(&m, "the run id contains invalid characters");
    m = make(MESSAGE_HELLO);
    m.hello.n_local = MESSAGE_MAX_LOCAL + 1;
    assert_refused(&m, "invalid value 1025 for the number of ranks");
    m = make(MESSAGE_HELLO);
    m.hello.terms.min_nodes = 3;
    m.hello.terms.max_nodes = 2;
    assert_refused(&m, "invalid value 2 for the maximum of nodes: expected 3");
    m = make(MESSAGE_FAILED);
    m.failed.exit_code = 0;
    assert_refused(&m, "FAILED: invalid value 0 for the exit status");
    m = make(MESSAGE_READY);
    m.ready.port = 0;
    assert_refused(&m, "invalid value 0 for the port");
    m = make(MESSAGE_SEALED);
    m.sealed.node_index = 4;
    assert_refused(&m, "invalid value 4 for the node's index: expected 0 to 3");
    m = make(MESSAGE_SEALED);
    m.sealed.term = (uint64_t)MESSAGE_MAX_TERM + 1;
    assert_refused(&m, " for the term");
    m = make(MESSAGE_SEALED);
    m.sealed.n_local = m.sealed.world_size - m.sealed.first_rank + 1;
    assert_refused(&m, " for the number of ranks");
    m.sealed.world_size = 2 * MESSAGE_MAX_LOCAL;
    m.sealed.first_rank = 0;
    m.sealed.n_local = MESSAGE_MAX_LOCAL + 1;
    assert_refused(&m, "invalid value 1025 for the number of ranks: expected 1 to 1024");
}
END_TEST

/* The text of a rank's message appears on other users' terminals. */
START_TEST(texts_are_cut_and_cleaned_before_they_are_sent)
{
    char text[2 * MESSAGE_TEXT_BYTES];
    struct message m = make(MESSAGE_FAILED), back;
    m.failed.text = "red \x1b[31m, bell \a, new\nline, C1 \xc2\x9b, \xc3\xa9t\xc3\xa9";
    encode(&m);
    ck_assert_int_eq(decode(co_buf_len(&out), &back), 0);
    ck_assert_str_eq(back.failed.text, "red ?[31m, bell ?, new?line, C1 ??, \xc3\xa9t\xc3\xa9");
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    m.failed.text = text;
    encode(&m);
    ck_assert_int_eq(decode(co_buf_len(&out), &back), 0);
    ck_assert_uint_eq(strlen(back.failed.text), MESSAGE_TEXT_BYTES - 1);
}
END_TEST

START_TEST(names_are_printable)
{
    static const char *const wrong[] = {"a b", "caf\xc3\xa9", "\x1b[0m"};
    struct message m = make(MESSAGE_HELLO);
    m.hello.name = "node7.example";
    encode(&m);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        m.hello.name = wrong[i];
        assert_refused(&m, "the name contains invalid characters");
    }
}
END_TEST

/* --- Bad input from files --- */

static void check_case(const char *path)
{
    static char input[2 * CHANNEL_WIRE_MAX_BYTES];
    char expected[512];
    struct message m;
    size_t len = cases_read(path, "input", input, sizeof input);
    cases_read_line(path, "error", expected, sizeof expected);
    co_autofree uint8_t *bytes = malloc(len > 0 ? len : 1);
    ck_assert_ptr_nonnull(bytes);
    memcpy(bytes, input, len);
    ck_assert_msg(channel_wire_decode(bytes, len, &scratch, &m, &err) == -EPROTO,
                  "%s was taken for a message", path);
    ck_assert_msg(strcmp(err.text, expected) == 0, "%s: '%s' instead of '%s'", path, err.text,
                  expected);
}

START_TEST(bad_input_is_refused_with_its_reason)
{
    ck_assert_int_ge(cases_each("control/bad", check_case), 20);
}
END_TEST

static void tear_down(void)
{
    co_buf_fini(&out);
}

TEST_SUITE(channel_wire)
{
    Suite *suite = suite_create("channel_wire");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, NULL, tear_down);
    tcase_add_test(all, each_message_survives_a_round_trip);
    tcase_add_test(all, the_domain_of_a_node_has_bounds);
    tcase_add_test(all, a_hello_keeps_its_fields);
    tcase_add_test(all, the_health_of_a_node_has_bounds);
    tcase_add_test(all, a_place_has_how_ranks_reach_the_store);
    tcase_add_test(all, a_lease_keeps_the_progress_of_the_wait);
    tcase_add_test(all, each_truncated_message_is_refused);
    tcase_add_test(all, the_longest_list_of_members_fits);
    tcase_add_test(all, the_longest_result_fits);
    tcase_add_test(all, a_requested_result_names_the_node_that_writes);
    tcase_add_test(all, a_result_keeps_its_fields);
    tcase_add_test(all, figures_keep_their_fields);
    tcase_add_test(all, the_figures_of_the_largest_node_fit);
    tcase_add_test(all, a_message_above_a_bound_is_not_sent);
    tcase_add_test(all, texts_are_cut_and_cleaned_before_they_are_sent);
    tcase_add_test(all, names_are_printable);
    tcase_add_test(all, bad_input_is_refused_with_its_reason);
    suite_add_tcase(suite, all);
    return suite;
}
