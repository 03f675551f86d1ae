/* Ballots as bytes: what goes in comes out, and nothing else comes in. */
#include "rendezvous/quorum/ballot_wire.h"

#include "common/buf.h"
#include "common/error.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <string.h>

static struct co_buf out;
static struct co_error err;
static struct ballot got;
static char run_id[BALLOT_WIRE_RUN_ID_BYTES];

static void set_up(void)
{
    err = (struct co_error){0};
}

static void tear_down(void)
{
    co_buf_fini(&out);
}

static struct ballot write_ballot(void)
{
    return (struct ballot){
        .type = BALLOT_WRITE,
        .job = 77,
        .from = 2,
        .term = {5, 2},
        .index = 3,
        .asked_ms = 123456,
        .has_entry = true,
        .entry = {.record = {.term = {5, 2},
                             .index = 3,
                             .settled = true,
                             .voters = {3, {2, 1, 9}},
                             .before = {2, {1, 2}},
                             .value = 4711},
                  .decided =
                      {.generation = 8,
                       .n_nodes = 3,
                       .world_size = 24,
                       .n_restarts = 2,
                       .gone = -1,
                       .n_excluded = 1,
                       .excluded = {{.name = "node7", .exit_code = 9}},
                       .before = {.generation = 7, .n_nodes = 4, .n_missing = 2, .missing = {0, 3}},
                       .host = {.node = 2, .at = {.host = "10.0.0.2", .port = 29400}}},
                  .n = 2,
                  .voters = {{.id = 1, .at = {.host = "10.0.0.1", .port = 1}},
                             {.id = 9, .at = {.host = "fd00::9", .port = 65535}}}}};
}

static int pass(const struct ballot *b)
{
    co_buf_consume(&out, co_buf_len(&out));
    int rc = ballot_wire_encode(b, "job 7", &out, &err);
    return rc < 0 ? rc
                  : ballot_wire_decode(co_buf_bytes(&out), co_buf_len(&out), &got, run_id, &err);
}

START_TEST(a_record_comes_out_as_it_went_in)
{
    const struct ballot b = write_ballot();
    ck_assert_msg(pass(&b) == 0, "%s", err.text);
    ck_assert_mem_eq(&got, &b, sizeof b);
    ck_assert_str_eq(run_id, "job 7");
}
END_TEST

START_TEST(each_type_comes_out_as_it_went_in)
{
    for (int type = 0; type < BALLOT_N_TYPES; type++) {
        struct ballot b = {.type = (enum ballot_type)type, .job = 1, .from = 2, .term = {3, 4}};
        if (type == BALLOT_OFFER) {
            b.at = (struct elector_address){.host = "a", .port = 7};
            b.order = 6;
            b.alone = true;
        }
        if (type == BALLOT_VOTE) {
            b = write_ballot();
            b.type = BALLOT_VOTE;
            b.asked = BALLOT_CLAIM;
            b.yes = b.is_bound = true;
            b.promised = (struct quorum_term){8, 9};
            b.left_ms = 250;
        }
        ck_assert_msg(pass(&b) == 0, "%s", err.text);
        ck_assert_mem_eq(&got, &b, sizeof b);
    }
}
END_TEST

START_TEST(a_truncated_ballot_is_refused_wherever_it_ends)
{
    const struct ballot b = write_ballot();
    ck_assert_int_eq(pass(&b), 0);
    for (size_t len = 0; len < co_buf_len(&out); len++)
        ck_assert_int_eq(ballot_wire_decode(co_buf_bytes(&out), len, &got, run_id, &err), -EPROTO);
    ck_assert_int_eq(co_buf_append(&out, "x", 1), 0);
    ck_assert_int_eq(ballot_wire_decode(co_buf_bytes(&out), co_buf_len(&out), &got, run_id, &err),
                     -EPROTO);
    ck_assert_str_eq(err.text, "invalid ballot: bytes are left over");
}
END_TEST

START_TEST(what_breaks_a_bound_cannot_be_written)
{
    enum { N_CASES = 16 };
    for (int i = 0; i < N_CASES; i++) {
        struct ballot b = write_ballot();
        struct elector_record *d = &b.entry.decided;
        b.entry.record.voters.n = i == 0 ? 0 : i == 1 ? 6 : 3;
        b.entry.record.before.n = i == 2 ? 0 : 2;
        if (i == 3)
            b.entry.record.voters.ids[2] = 1; /* twice */
        if (i == 4)
            b.entry.record.voters.ids[0] = 0;
        if (i == 5)
            d->n_nodes = 0;
        if (i == 6)
            d->world_size = 2;
        if (i == 7)
            d->gone = -2;
        if (i == 8)
            d->n_excluded = ELECTOR_EXCLUDED_MAX + 1;
        if (i == 9)
            d->excluded[0].name[0] = ' ';
        if (i == 10)
            d->before.generation = 8;
        if (i == 11)
            d->before.missing[1] = 4;
        if (i == 12)
            d->host.node = 3;
        if (i == 13)
            b.entry.voters[0].id = 5; /* in no list */
        if (i == 14)
            b.entry.voters[0].at.host[0] = '\0';
        if (i == 15)
            b.type = BALLOT_KEEP; /* which has no record */
        ck_assert_msg(pass(&b) == -EINVAL, "case %d", i);
        ck_assert_uint_eq(co_buf_len(&out), 0);
    }
}
END_TEST

START_TEST(a_run_id_has_bounds)
{
    const struct ballot b = {.type = BALLOT_READ};
    char longest[BALLOT_WIRE_RUN_ID_BYTES + 1];
    memset(longest, 'j', sizeof longest);
    longest[BALLOT_WIRE_RUN_ID_BYTES] = '\0';
    ck_assert_int_eq(ballot_wire_encode(&b, longest, &out, &err), -EINVAL);
    ck_assert_int_eq(ballot_wire_encode(&b, "", &out, &err), -EINVAL);
    ck_assert_int_eq(ballot_wire_encode(&b, "a\nb", &out, &err), -EINVAL);
    longest[BALLOT_WIRE_RUN_ID_BYTES - 1] = '\0';
    ck_assert_int_eq(ballot_wire_encode(&b, longest, &out, &err), 0);
}
END_TEST

START_TEST(the_longest_ballot_fits)
{
    struct ballot b = write_ballot();
    struct elector_record *d = &b.entry.decided;
    d->n_excluded = ELECTOR_EXCLUDED_MAX;
    for (int i = 0; i < ELECTOR_EXCLUDED_MAX; i++)
        memset(d->excluded[i].name, 'n', ELECTOR_NAME_BYTES - 1);
    memset(d->host.at.host, 'h', ELECTOR_HOST_BYTES - 1);
    /* by fields: an assigned struct may have any bytes between them */
    b.entry.record.voters.n = b.entry.record.before.n = QUORUM_MAX_VOTERS;
    for (uint32_t i = 0; i < QUORUM_MAX_VOTERS; i++) {
        b.entry.record.voters.ids[i] = i + 1;
        b.entry.record.before.ids[i] = QUORUM_MAX_VOTERS + i + 1;
    }
    b.entry.n = QUORUM_MAX_ASKED;
    for (uint32_t i = 0; i < QUORUM_MAX_ASKED; i++) {
        b.entry.voters[i].id = i + 1;
        b.entry.voters[i].at.port = 1;
        memset(b.entry.voters[i].at.host, 'h', ELECTOR_HOST_BYTES - 1);
    }
    ck_assert_msg(pass(&b) == 0, "%s", err.text);
    ck_assert_mem_eq(&got, &b, sizeof b);
}
END_TEST

START_TEST(another_version_is_refused)
{
    const struct ballot b = {.type = BALLOT_READ};
    ck_assert_int_eq(pass(&b), 0);
    ((uint8_t *)co_buf_bytes(&out))[0]++;
    ck_assert_int_eq(ballot_wire_decode(co_buf_bytes(&out), co_buf_len(&out), &got, run_id, &err),
                     -EPROTO);
    ck_assert_str_eq(err.text, "invalid ballot: another version");
}
END_TEST

TEST_SUITE(ballot_wire)
{
    Suite *suite = suite_create("ballot_wire");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, a_record_comes_out_as_it_went_in);
    tcase_add_test(all, each_type_comes_out_as_it_went_in);
    tcase_add_test(all, a_truncated_ballot_is_refused_wherever_it_ends);
    tcase_add_test(all, what_breaks_a_bound_cannot_be_written);
    tcase_add_test(all, a_run_id_has_bounds);
    tcase_add_test(all, the_longest_ballot_fits);
    tcase_add_test(all, another_version_is_refused);
    suite_add_tcase(suite, all);
    return suite;
}
