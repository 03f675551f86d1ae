#include "common/error.h"
#include "rendezvous/seal.h"

#include <check.h>
#include <errno.h>
#include <string.h>

static const char token[] = "a token of sixteen bytes and more";
static const char other_token[] = "another token, as long as that";
static struct seal_key key, other_key;
static struct seal *node, *roster;
static struct co_error err;

static void setup(void)
{
    ck_assert_int_eq(seal_key_init(&key, token, strlen(token), &err), 0);
    ck_assert_int_eq(seal_key_init(&other_key, other_token, strlen(other_token), &err), 0);
    node = roster = NULL;
}

static void teardown(void)
{
    seal_destroy(node);
    seal_destroy(roster);
}

static void make(const struct seal_key *nodes, const struct seal_key *rosters, size_t n_keys)
{
    ck_assert_int_eq(seal_create_node(nodes, 1, 3, &node, &err), 0);
    ck_assert_int_eq(seal_create_roster(rosters, n_keys, 2, 4, &roster, &err), 0);
}

/* Let `to` look at what `from` has to say, `step` bytes more each time; each byte that was not taken
 * is kept. Returns the last result; frames are not expected. */
static int pour(struct seal *from, struct seal *to, size_t step)
{
    struct co_buf *bytes = seal_output(from);
    const uint8_t *frame;
    size_t n_used, len, shown = 0;
    int rc = SEAL_MORE;
    while (shown < co_buf_len(bytes) && rc == SEAL_MORE) {
        shown += step < co_buf_len(bytes) - shown ? step : co_buf_len(bytes) - shown;
        rc = seal_feed(to, co_buf_bytes(bytes), shown, &n_used, &frame, &len, &err);
        co_buf_consume(bytes, n_used);
        shown -= n_used;
    }
    ck_assert_int_ne(rc, SEAL_FRAME);
    return rc;
}

static void open_both(size_t step)
{
    bool is_sealed = co_buf_bytes(seal_output(node))[6] != 0;
    ck_assert_int_eq(pour(node, roster, step), is_sealed ? SEAL_MORE : SEAL_OPENED);
    ck_assert_int_eq(pour(roster, node, step), SEAL_OPENED);
    if (is_sealed)
        ck_assert_int_eq(pour(node, roster, step), SEAL_OPENED);
    ck_assert_int_eq(seal_is_sealed(node), is_sealed);
    ck_assert_int_eq(seal_is_sealed(roster), is_sealed);
    ck_assert_uint_eq(seal_version(node), 3); /* the highest that both speak */
    ck_assert_uint_eq(seal_version(roster), 3);
}

/* Put a frame in at one end and expect it at the other. */
static void expect_through(struct seal *from, struct seal *to, const void *bytes, size_t len)
{
    struct co_buf *out = seal_output(from);
    const uint8_t *frame;
    size_t n_used, frame_len;
    ck_assert_int_eq(seal_put(from, bytes, len, &err), 0);
    for (size_t cut = 0; cut < co_buf_len(out); cut += 1 + cut) {
        ck_assert_int_eq(seal_feed(to, co_buf_bytes(out), cut, &n_used, &frame, &frame_len, &err),
                         SEAL_MORE);
        ck_assert_uint_eq(n_used, 0);
        ck_assert_int_eq(seal_is_mid_frame(to), cut > 0);
    }
    ck_assert_int_eq(
        seal_feed(to, co_buf_bytes(out), co_buf_len(out), &n_used, &frame, &frame_len, &err),
        SEAL_FRAME);
    ck_assert_uint_eq(n_used, co_buf_len(out));
    ck_assert_uint_eq(frame_len, len);
    ck_assert_mem_eq(frame, bytes, len);
    ck_assert(!seal_is_mid_frame(to));
    co_buf_consume(out, n_used);
}

START_TEST(frames_go_through_sealed_and_in_the_clear)
{
    static uint8_t longest[SEAL_MAX_FRAME_BYTES];
    for (size_t i = 0; i < sizeof longest; i++)
        longest[i] = (uint8_t)(i * 7);
    make(_i == 0 ? &key : NULL, &key, _i == 0 ? 1 : 0);
    open_both(_i == 0 ? 1 : 1000);
    expect_through(node, roster, "a", 1);
    expect_through(node, roster, longest, sizeof longest);
    expect_through(roster, node, longest, 1000);
    expect_through(node, roster, "again", 5);
    expect_through(roster, node, "a", 1);
}
END_TEST

START_TEST(a_sealed_frame_shows_nothing_of_what_is_in_it)
{
    static const char secret[] = "what nobody shall read";
    make(&key, &key, 1);
    open_both(1000);
    ck_assert_int_eq(seal_put(node, secret, sizeof secret, &err), 0);
    ck_assert_ptr_null(memmem(co_buf_bytes(seal_output(node)), co_buf_len(seal_output(node)),
                              "nobody", strlen("nobody")));
}
END_TEST

START_TEST(the_roster_finds_the_token_among_its_own)
{
    const struct seal_key keys[] = {other_key, key};
    make(&key, keys, 2);
    open_both(1000);
    expect_through(node, roster, "hello", 5);
}
END_TEST

/* At both ends, with a text that tells what to do. */
START_TEST(tokens_that_differ_are_told)
{
    static const struct {
        bool node_has, node_has_other, roster_has;
        const char *to_roster, *to_node;
    } cases[] = {
        {true, true, true, "its token is another one", "not the one that is needed there"},
        {false, false, true, "it has no token", "a token is needed there"},
        {true, false, false, "this end has none", "there is none there"},
    };
    make(cases[_i].node_has ? (cases[_i].node_has_other ? &other_key : &key) : NULL, &key,
         cases[_i].roster_has);
    ck_assert_int_eq(pour(node, roster, 1000), -EACCES);
    ck_assert_ptr_nonnull(strstr(err.text, cases[_i].to_roster));
    ck_assert_int_eq(pour(roster, node, 1000), -EACCES);
    ck_assert_ptr_nonnull(strstr(err.text, cases[_i].to_node));
}
END_TEST

/* One that knows the id of a token, as whoever has seen a greeting does, but not the token. */
START_TEST(an_impostor_at_either_end_is_found_out)
{
    struct seal_key impostor = other_key;
    memcpy(impostor.id, key.id, sizeof key.id);
    make(_i == 0 ? &impostor : &key, _i == 0 ? &key : &impostor, 1);
    ck_assert_int_eq(pour(node, roster, 1000), SEAL_MORE);
    ck_assert_int_eq(pour(roster, node, 1000), -EACCES);
    ck_assert_ptr_nonnull(strstr(err.text, "does not have our token"));
    ck_assert_uint_eq(co_buf_len(seal_output(node)), 0); /* it proved nothing to that one */
}
END_TEST

START_TEST(a_recorded_conversation_cannot_be_repeated)
{
    uint8_t recorded[200];
    make(&key, &key, 1);
    size_t n = co_buf_len(seal_output(node));
    memcpy(recorded, co_buf_bytes(seal_output(node)), n);
    ck_assert_int_eq(pour(node, roster, 1000), SEAL_MORE);
    ck_assert_int_eq(pour(roster, node, 1000), SEAL_OPENED);
    size_t n_proof = co_buf_len(seal_output(node));
    memcpy(recorded + n, co_buf_bytes(seal_output(node)), n_proof);

    struct seal *again;
    const uint8_t *frame;
    size_t n_used, len;
    ck_assert_int_eq(seal_create_roster(&key, 1, 2, 4, &again, &err), 0);
    ck_assert_int_eq(seal_feed(again, recorded, n, &n_used, &frame, &len, &err), SEAL_MORE);
    ck_assert_int_eq(seal_feed(again, recorded + n, n_proof, &n_used, &frame, &len, &err), -EACCES);
    seal_destroy(again);
}
END_TEST

/* A frame changed, left out, repeated, or in another order; also its length. */
START_TEST(a_frame_that_was_touched_does_not_open)
{
    uint8_t a[64], b[64];
    const uint8_t *frame;
    size_t n_used, len;
    make(&key, &key, 1);
    open_both(1000);
    struct co_buf *out = seal_output(node);
    ck_assert_int_eq(seal_put(node, "first", 5, &err), 0);
    size_t n = co_buf_len(out);
    memcpy(a, co_buf_bytes(out), n);
    co_buf_consume(out, n);
    ck_assert_int_eq(seal_put(node, "other", 5, &err), 0);
    memcpy(b, co_buf_bytes(out), n);

    if (_i == 0) { /* repeated */
        ck_assert_int_eq(seal_feed(roster, a, n, &n_used, &frame, &len, &err), SEAL_FRAME);
        ck_assert_int_eq(seal_feed(roster, a, n, &n_used, &frame, &len, &err), -EBADMSG);
    } else if (_i == 1) { /* the first one left out */
        ck_assert_int_eq(seal_feed(roster, b, n, &n_used, &frame, &len, &err), -EBADMSG);
    } else { /* each byte behind the length, one bit of it */
        a[4 + (size_t)(_i - 2)] ^= 1;
        ck_assert_int_eq(seal_feed(roster, a, n, &n_used, &frame, &len, &err), -EBADMSG);
    }
    ck_assert_int_eq(seal_feed(roster, b, n, &n_used, &frame, &len, &err), -EPROTO); /* broken */
}
END_TEST

START_TEST(lengths_are_looked_at_before_they_are_believed)
{
    static const uint8_t empty[4] = {0}, huge[4] = {1, 0, 1, 0}, endless[4] = {255, 255, 255, 255};
    static const uint8_t *const bad[] = {empty, huge, endless};
    const uint8_t *frame;
    size_t n_used, len;
    make(NULL, NULL, 0);
    open_both(1000);
    ck_assert_int_eq(seal_feed(roster, bad[_i], 4, &n_used, &frame, &len, &err), -EPROTO);
}
END_TEST

START_TEST(versions_that_do_not_meet_are_told_to_both)
{
    ck_assert_int_eq(seal_create_node(NULL, 5, 9, &node, &err), 0);
    ck_assert_int_eq(seal_create_roster(NULL, 0, 2, 4, &roster, &err), 0);
    ck_assert_int_eq(pour(node, roster, 1000), -EPROTO);
    ck_assert_ptr_nonnull(strstr(err.text, "versions 5 to 9"));
    ck_assert_int_eq(pour(roster, node, 1000), -EPROTO);
    ck_assert_ptr_nonnull(strstr(err.text, "versions 2 to 4"));
}
END_TEST

START_TEST(something_else_at_the_other_end_is_told_at_once)
{
    const uint8_t *frame;
    size_t n_used, len;
    make(&key, &key, 1);
    ck_assert_int_eq(
        seal_feed(node, (const uint8_t *)"HTTP/1.1 400", 12, &n_used, &frame, &len, &err), -EPROTO);
    ck_assert_int_eq(pour(node, roster, 1000), SEAL_MORE);
    uint8_t wrong[SEAL_GREETING_BYTES] = "DDP1";
    struct seal *another;
    ck_assert_int_eq(seal_create_roster(NULL, 0, 1, 1, &another, &err), 0);
    ck_assert_int_eq(seal_feed(another, wrong, sizeof wrong, &n_used, &frame, &len, &err), -EPROTO);
    seal_destroy(another);
}
END_TEST

START_TEST(greetings_are_told_by_their_first_bytes)
{
    ck_assert_int_eq(seal_is_greeting((const uint8_t *)"DDP1", 4), 1);
    ck_assert_int_eq(seal_is_greeting((const uint8_t *)"DDP1...", 7), 1);
    ck_assert_int_eq(seal_is_greeting((const uint8_t *)"DD", 2), -EAGAIN);
    ck_assert_int_eq(seal_is_greeting((const uint8_t *)"DELETE", 6), 0);
    ck_assert_int_eq(seal_is_greeting((const uint8_t *)"G", 1), 0);
}
END_TEST

START_TEST(a_token_has_bounds)
{
    static uint8_t long_token[SEAL_TOKEN_MAX_BYTES + 1];
    struct seal_key k;
    ck_assert_int_eq(seal_key_init(&k, token, SEAL_TOKEN_MIN_BYTES - 1, &err), -EINVAL);
    ck_assert_int_eq(seal_key_init(&k, token, SEAL_TOKEN_MIN_BYTES, &err), 0);
    ck_assert_int_eq(seal_key_init(&k, long_token, SEAL_TOKEN_MAX_BYTES, &err), 0);
    ck_assert_int_eq(seal_key_init(&k, long_token, SEAL_TOKEN_MAX_BYTES + 1, &err), -EINVAL);
    seal_key_fini(&k);
}
END_TEST

START_TEST(nothing_is_sent_before_both_have_proved_themselves)
{
    make(&key, &key, 1);
    ck_assert_int_eq(seal_put(node, "a", 1, &err), -ENOTCONN);
    ck_assert_int_eq(pour(node, roster, 1000), SEAL_MORE);
    ck_assert_int_eq(seal_put(roster, "a", 1, &err), -ENOTCONN);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("seal");
    TCase *t = tcase_create("seal");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, frames_go_through_sealed_and_in_the_clear, 0, 2);
    tcase_add_test(t, a_sealed_frame_shows_nothing_of_what_is_in_it);
    tcase_add_test(t, the_roster_finds_the_token_among_its_own);
    tcase_add_loop_test(t, tokens_that_differ_are_told, 0, 3);
    tcase_add_loop_test(t, an_impostor_at_either_end_is_found_out, 0, 2);
    tcase_add_test(t, a_recorded_conversation_cannot_be_repeated);
    tcase_add_loop_test(t, a_frame_that_was_touched_does_not_open, 0, 2 + 5 + 17);
    tcase_add_loop_test(t, lengths_are_looked_at_before_they_are_believed, 0, 3);
    tcase_add_test(t, versions_that_do_not_meet_are_told_to_both);
    tcase_add_test(t, something_else_at_the_other_end_is_told_at_once);
    tcase_add_test(t, greetings_are_told_by_their_first_bytes);
    tcase_add_test(t, a_token_has_bounds);
    tcase_add_test(t, nothing_is_sent_before_both_have_proved_themselves);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed > 0;
}
