/* Two ends of a control channel talk through buffers that the test may spoil. */
#include "rendezvous/channel/seal.h"

#include "common/buf.h"
#include "common/error.h"
#include "common/parse.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define TOKEN "0123456789abcdef0123456789abcdef" /* of digits: not stretched */

static struct seal_key key, other_key;
static struct seal *node, *roster;
static struct co_error err;

static void set_up(void)
{
    ck_assert_int_eq(seal_key_init(&key, TOKEN, 32, &err), 0);
    ck_assert_int_eq(seal_key_init(&other_key, "00" TOKEN, 34, &err), 0);
    node = roster = NULL;
}

static void tear_down(void)
{
    seal_destroy(node);
    seal_destroy(roster);
    seal_key_fini(&key);
    seal_key_fini(&other_key);
}

static void create(const struct seal_key *of_node, const struct seal_key *of_roster, size_t n_keys)
{
    ck_assert_int_eq(seal_create_node(of_node, 1, 2, &node, &err), 0);
    ck_assert_int_eq(seal_create_roster(of_roster, n_keys, 1, 3, &roster, &err), 0);
}

/* Carry all that one end has to the other, which takes it in pieces of so many bytes. returns the
 * last result that was not SEAL_MORE, or SEAL_MORE; frames are appended to *frames */
static int carry(struct seal *from, struct seal *to, size_t piece, struct co_buf *frames)
{
    struct co_buf *out = seal_output(from);
    size_t at = 0, end = 0, n_used, frame_len, len = co_buf_len(out);
    int last = SEAL_MORE;
    uint8_t *bytes = malloc(len + 1);
    ck_assert_ptr_nonnull(bytes);
    memcpy(bytes, co_buf_bytes(out), len);
    co_buf_consume(out, len);
    while (end < len && last >= 0) {
        end = end + piece < len ? end + piece : len;
        const uint8_t *frame;
        int rc;
        while ((rc = seal_feed(to, bytes + at, end - at, &n_used, &frame, &frame_len, &err)) > 0) {
            at += n_used;
            last = rc;
            if (rc == SEAL_FRAME && frames != NULL)
                ck_assert_int_eq(co_buf_append(frames, frame, frame_len), 0);
        }
        at += n_used;
        last = rc < 0 ? rc : last;
    }
    ck_assert(last < 0 || at == len);
    free(bytes);
    return last;
}

static void shake_hands(size_t piece)
{
    carry(node, roster, piece, NULL);
    ck_assert_int_eq(carry(roster, node, piece, NULL), SEAL_OPENED);
    carry(node, roster, piece, NULL);
}

static void assert_talk(struct seal *from, struct seal *to, size_t piece, const char *text)
{
    struct co_buf frames = {0};
    ck_assert_int_eq(seal_put(from, text, strlen(text), &err), 0);
    ck_assert_int_eq(seal_put(from, "!", 1, &err), 0);
    ck_assert_int_eq(carry(from, to, piece, &frames), SEAL_FRAME);
    ck_assert_uint_eq(co_buf_len(&frames), strlen(text) + 1);
    ck_assert_mem_eq(co_buf_bytes(&frames), text, strlen(text));
    co_buf_fini(&frames);
}

START_TEST(the_page_key_is_a_digest_of_the_token)
{
    static const char token[] = "0123456789abcdef0123456789abcdef";
    /* { printf 'ddp pages 1\n'; printf TOKEN; } | sha256sum */
    static const char page[] = "97dd334e1f362e33a1463dade50571c960dbd7ff5dce511d28939a8f56c4900d";
    struct seal_key k;
    struct co_error e;
    ck_assert_int_eq(seal_key_init(&k, token, sizeof token - 1, &e), 0);
    ck_assert(seal_key_opens_pages(&k, page, sizeof page - 1));
    ck_assert(!seal_key_opens_pages(&k, page, sizeof page - 2));
    ck_assert(!seal_key_opens_pages(&k, page, 0));
    ck_assert(!seal_key_opens_pages(&k, token, sizeof token - 1));
    seal_key_fini(&k);
}
END_TEST

START_TEST(a_password_has_no_page_key)
{
    static const char zeros[SEAL_PAGE_KEY_BYTES];
    /* { printf 'ddp pages 1\n'; printf 'correct horse battery'; } | sha256sum */
    static const char page[] = "f10dd78b80d34c77e5850a532f7c1c4f7a26d2c8788016c76f2c3b32d4457370";
    static const char token[] = "correct horse battery";
    struct seal_key k;
    struct co_error e;
    ck_assert_int_eq(seal_key_init(&k, token, sizeof token - 1, &e), 0);
    ck_assert(!seal_key_opens_pages(&k, page, sizeof page - 1));
    ck_assert(!seal_key_opens_pages(&k, zeros, sizeof zeros));
    seal_key_fini(&k);
}
END_TEST

START_TEST(ends_with_one_token_exchange_frames_in_any_pieces)
{
    const struct seal_key keys[2] = {other_key, key};
    for (size_t piece = 1; piece < 200; piece = piece * 2 + 1) {
        create(&key, keys, 2);
        shake_hands(piece);
        ck_assert(seal_is_sealed(node) && seal_is_sealed(roster));
        ck_assert_int_eq(seal_version(node), 2);
        ck_assert_int_eq(seal_version(roster), 2);
        assert_talk(node, roster, piece, "from the node");
        assert_talk(roster, node, piece, "from the roster");
        ck_assert(!seal_is_mid_frame(node));
        seal_destroy(node);
        seal_destroy(roster);
    }
    node = roster = NULL;
}
END_TEST

START_TEST(without_tokens_frames_are_not_encrypted)
{
    create(NULL, NULL, 0);
    shake_hands(7);
    ck_assert(!seal_is_sealed(node) && !seal_is_sealed(roster));
    assert_talk(node, roster, 3, "from the node");
    ck_assert_int_eq(seal_put(node, "seen", 4, &err), 0);
    ck_assert_ptr_nonnull(
        memmem(co_buf_bytes(seal_output(node)), co_buf_len(seal_output(node)), "seen", 4));
}
END_TEST

START_TEST(encrypted_frames_cannot_be_read)
{
    create(&key, &key, 1);
    shake_hands(1000);
    ck_assert_int_eq(seal_put(node, "seen", 4, &err), 0);
    ck_assert_ptr_null(
        memmem(co_buf_bytes(seal_output(node)), co_buf_len(seal_output(node)), "seen", 4));
}
END_TEST

static void assert_refused(const char *at_roster, const char *at_node)
{
    ck_assert_int_eq(carry(node, roster, 1000, NULL), -EACCES);
    ck_assert_str_eq(err.text, at_roster);
    ck_assert_int_eq(carry(roster, node, 1000, NULL), -EACCES);
    ck_assert_msg(strstr(err.text, at_node) == err.text, "%s", err.text);
    ck_assert_ptr_nonnull(strstr(err.text, "DDP_TOKEN"));
    ck_assert_int_eq(seal_put(node, "x", 1, &err), -ENOTCONN);
}

START_TEST(a_different_token_is_refused_and_both_ends_report_it)
{
    create(&other_key, &key, 1);
    assert_refused("the peer has a different token: give all nodes the same token",
                   "this node's token differs from the rendezvous endpoint's");
}
END_TEST

START_TEST(a_token_at_one_end_only_is_refused)
{
    create(NULL, &key, 1);
    assert_refused(
        "the peer has no token, and this side requires one: give all nodes the same token",
        "the rendezvous endpoint requires a token and this");
    seal_destroy(node);
    seal_destroy(roster);
    create(&key, NULL, 0);
    assert_refused("the peer has a token, and this side has none: give all nodes the same token",
                   "this node has a token and the rendezvous");
}
END_TEST

/* A peer that has seen the key's id, but not the key. */
START_TEST(an_id_without_its_key_proves_nothing)
{
    struct seal_key pretended = other_key;
    memcpy(pretended.id, key.id, sizeof key.id);
    create(&pretended, &key, 1);
    carry(node, roster, 1000, NULL);
    ck_assert_int_eq(carry(roster, node, 1000, NULL), -EACCES);
    ck_assert_str_eq(err.text, "the peer does not know the token whose ID it sent");

    seal_destroy(node);
    seal_destroy(roster);
    create(&key, &pretended, 1);
    carry(node, roster, 1000, NULL);
    ck_assert_int_eq(carry(roster, node, 1000, NULL), -EACCES);
}
END_TEST

/* The roster's end also checks: a node that skips its own check gets no further. */
START_TEST(a_wrong_proof_of_a_node_is_refused)
{
    create(&key, &key, 1);
    carry(node, roster, 1000, NULL);
    carry(roster, node, 1000, NULL);
    ((uint8_t *)(uintptr_t)co_buf_bytes(seal_output(node)))[5] ^= 1;
    ck_assert_int_eq(carry(node, roster, 1000, NULL), -EACCES);
}
END_TEST

START_TEST(versions_without_overlap_are_refused_and_named)
{
    ck_assert_int_eq(seal_create_node(&key, 4, 6, &node, &err), 0);
    ck_assert_int_eq(seal_create_roster(&key, 1, 1, 3, &roster, &err), 0);
    ck_assert_int_eq(carry(node, roster, 1000, NULL), -EPROTO);
    ck_assert_int_eq(carry(roster, node, 1000, NULL), -EPROTO);
    ck_assert_msg(strstr(err.text, "versions 1 to 3") != NULL, "%s", err.text);
}
END_TEST

/* returns what the roster's end makes of the bytes that the node has put, spoilt by the test */
static int feed_rest(void)
{
    struct co_buf frames = {0};
    int rc = carry(node, roster, 100000, &frames);
    co_buf_fini(&frames);
    return rc;
}

static uint8_t *sealed_bytes(void)
{
    return (uint8_t *)(uintptr_t)co_buf_bytes(seal_output(node));
}

START_TEST(a_changed_frame_does_not_open)
{
    for (size_t at = 4; at < 4 + 5 + 17; at++) {
        create(&key, &key, 1);
        shake_hands(1000);
        ck_assert_int_eq(seal_put(node, "hello", 5, &err), 0);
        sealed_bytes()[at] ^= 0x40;
        ck_assert_int_eq(feed_rest(), -EBADMSG);
        ck_assert_int_eq(feed_rest(), SEAL_MORE); /* nothing to carry */
        seal_destroy(node);
        seal_destroy(roster);
    }
    node = roster = NULL;
}
END_TEST

START_TEST(a_repeated_frame_does_not_open)
{
    create(&key, &key, 1);
    shake_hands(1000);
    ck_assert_int_eq(seal_put(node, "hello", 5, &err), 0);
    size_t len = co_buf_len(seal_output(node));
    uint8_t copy[64];
    memcpy(copy, sealed_bytes(), len);
    ck_assert_int_eq(feed_rest(), SEAL_FRAME);
    ck_assert_int_eq(co_buf_append(seal_output(node), copy, len), 0);
    ck_assert_int_eq(feed_rest(), -EBADMSG);
}
END_TEST

START_TEST(a_missing_frame_is_detected_at_the_next_one)
{
    create(&key, &key, 1);
    shake_hands(1000);
    ck_assert_int_eq(seal_put(node, "hello", 5, &err), 0);
    co_buf_consume(seal_output(node), co_buf_len(seal_output(node)));
    ck_assert_int_eq(seal_put(node, "again", 5, &err), 0);
    ck_assert_int_eq(feed_rest(), -EBADMSG);
}
END_TEST

START_TEST(a_frame_of_another_connection_does_not_open)
{
    create(&key, &key, 1);
    shake_hands(1000);
    struct seal *first = node;
    struct seal *first_roster = roster;
    create(&key, &key, 1);
    shake_hands(1000);
    ck_assert_int_eq(seal_put(first, "hello", 5, &err), 0);
    ck_assert_int_eq(carry(first, roster, 1000, NULL), -EBADMSG);
    seal_destroy(first);
    seal_destroy(first_roster);
}
END_TEST

START_TEST(an_incomplete_frame_is_waited_for)
{
    create(&key, &key, 1);
    shake_hands(1000);
    ck_assert_int_eq(seal_put(node, "hello", 5, &err), 0);
    size_t len = co_buf_len(seal_output(node)), n_used, frame_len;
    const uint8_t *frame;
    for (size_t n = 1; n < len; n++) {
        ck_assert_int_eq(seal_feed(roster, sealed_bytes(), n, &n_used, &frame, &frame_len, &err),
                         SEAL_MORE);
        ck_assert_uint_eq(n_used, 0);
        ck_assert(seal_is_mid_frame(roster));
    }
}
END_TEST

static int feed_length(struct seal *to, uint32_t length)
{
    uint8_t bytes[8] = {(uint8_t)length, (uint8_t)(length >> 8), (uint8_t)(length >> 16),
                        (uint8_t)(length >> 24)};
    size_t n_used, frame_len;
    const uint8_t *frame;
    return seal_feed(to, bytes, sizeof bytes, &n_used, &frame, &frame_len, &err);
}

START_TEST(a_length_over_the_bound_is_not_waited_for)
{
    create(&key, &key, 1);
    shake_hands(1000);
    ck_assert_int_eq(feed_length(roster, SEAL_MAX_FRAME_BYTES + 17), SEAL_MORE);
    ck_assert_int_eq(feed_length(roster, SEAL_MAX_FRAME_BYTES + 18), -EPROTO);
    ck_assert_int_eq(feed_length(node, 17), -EPROTO);  /* an empty one */
    ck_assert_int_eq(feed_length(node, 100), -EPROTO); /* broken for good */
}
END_TEST

START_TEST(the_longest_frame_passes_and_a_longer_one_is_refused)
{
    char *text = malloc(SEAL_MAX_FRAME_BYTES + 1);
    struct co_buf frames = {0};
    ck_assert_ptr_nonnull(text);
    memset(text, 'x', SEAL_MAX_FRAME_BYTES + 1);
    create(&key, &key, 1);
    shake_hands(1000);
    ck_assert_int_eq(seal_put(node, text, SEAL_MAX_FRAME_BYTES, &err), 0);
    ck_assert_int_eq(carry(node, roster, 1000, &frames), SEAL_FRAME);
    ck_assert_uint_eq(co_buf_len(&frames), SEAL_MAX_FRAME_BYTES);
    ck_assert_int_eq(seal_put(node, text, SEAL_MAX_FRAME_BYTES + 1, &err), -EINVAL);
    ck_assert_int_eq(seal_put(node, text, 0, &err), -EINVAL);
    co_buf_fini(&frames);
    free(text);
}
END_TEST

START_TEST(other_protocols_are_detected_at_their_first_byte)
{
    ck_assert_int_eq(seal_is_greeting((const uint8_t *)"GET ", 4), 0);
    ck_assert_int_eq(seal_is_greeting((const uint8_t *)"\0", 1), 0);
    ck_assert_int_eq(seal_is_greeting((const uint8_t *)"DD", 2), -EAGAIN);
    ck_assert_int_eq(seal_is_greeting((const uint8_t *)"DDP1", 4), 1);
    ck_assert_int_eq(seal_is_greeting((const uint8_t *)"DDP2", 4), 0);

    size_t n_used, frame_len;
    const uint8_t *frame;
    create(&key, &key, 1);
    ck_assert_int_eq(seal_feed(roster, (const uint8_t *)"GET / HTTP/1.0\r\n", 16, &n_used, &frame,
                               &frame_len, &err),
                     -EPROTO);
    /* shorter than an answer, which would never be complete */
    ck_assert_int_eq(
        seal_feed(node, (const uint8_t *)"220 mail.example", 16, &n_used, &frame, &frame_len, &err),
        -EPROTO);
    ck_assert_str_eq(err.text, "unexpected answer: the program that listens there is not ddprun or "
                               "ddp-rendezvous; check the port of --rdzv-endpoint");
}
END_TEST

/* --- the example of docs/design/membership.md --- */

/* The bytes of a line of the example, or its text. */
static size_t example(const char *name, uint8_t *ret, size_t size)
{
    char line[512];
    const char *page = getenv("MEMBERSHIP_PAGE");
    FILE *f = fopen(page != NULL ? page : "", "re");
    const size_t len = strlen(name);
    ck_assert_msg(f != NULL, "MEMBERSHIP_PAGE does not name the page");
    while (fgets(line, sizeof line, f) != NULL &&
           (strncmp(line, name, len) != 0 || strspn(line + len, " ") != 22 - len)) {
    }
    ck_assert_msg(!feof(f), "%s has no line '%s'", page, name);
    fclose(f);
    char *value = line + 22;
    value[strcspn(value, "\n")] = '\0';
    size_t n = strlen(value);
    if (strstr(name, "token") == NULL) {
        n /= 2;
        ck_assert_uint_le(n, size);
        ck_assert_int_eq(co_parse_hex(value, ret, n), 0);
    } else {
        memcpy(ret, value, n + 1);
    }
    return n;
}

static void assert_example(const char *name, const uint8_t *bytes, size_t n)
{
    uint8_t expected[256];
    ck_assert_uint_eq(example(name, expected, sizeof expected), n);
    ck_assert_msg(memcmp(expected, bytes, n) == 0, "%s", name);
}

/* The n-th request for random bytes gets bytes n. */
static uint8_t n_draws;

static void draw(void *to, size_t n)
{
    memset(to, ++n_draws, n);
}

static const char *draw_name(void)
{
    return "counted";
}

static uint32_t draw_number(void)
{
    return 0;
}

static struct randombytes_implementation counted = {
    .implementation_name = draw_name, .random = draw_number, .buf = draw};

static const uint8_t *output(struct seal *s, size_t n)
{
    ck_assert_uint_eq(co_buf_len(seal_output(s)), n);
    return co_buf_bytes(seal_output(s));
}

START_TEST(the_handshake_is_the_one_of_the_design)
{
    uint8_t token[128];
    const size_t len = example("token", token, sizeof token);
    randombytes_set_implementation(&counted);
    seal_key_fini(&key);
    ck_assert_int_eq(seal_key_init(&key, token, len, &err), 0);
    assert_example("secret", key.secret, sizeof key.secret);
    assert_example("key id", key.id, sizeof key.id);
    ck_assert_int_eq(seal_create_node(&key, 6, 6, &node, &err), 0);
    ck_assert_int_eq(seal_create_roster(&key, 1, 6, 6, &roster, &err), 0);
    assert_example("greeting", output(node, 48), 48);
    carry(node, roster, 1000, NULL);
    assert_example("answer", output(roster, 96), 40);
    assert_example("proof of the roster", output(roster, 96) + 40, 32);
    ck_assert_int_eq(carry(roster, node, 1000, NULL), SEAL_OPENED);
    assert_example("proof of the node", output(node, 56), 32);
    ck_assert_int_eq(carry(node, roster, 1000, NULL), SEAL_OPENED);
    ck_assert_int_eq(seal_put(node, "hello", 5, &err), 0);
    assert_example("frame", output(node, 26), 26);
}
END_TEST

START_TEST(a_token_that_may_be_a_password_is_stretched)
{
    uint8_t token[128];
    const size_t len = example("stretched token", token, sizeof token);
    seal_key_fini(&key);
    ck_assert_int_eq(seal_key_init(&key, token, len, &err), 0);
    assert_example("stretched secret", key.secret, sizeof key.secret);
    assert_example("stretched key id", key.id, sizeof key.id);
}
END_TEST

/* ddprun must not take longer to start where a token needs no stretching, and has no 64 MiB under
 * a limit for memory. */
__attribute__((weak)) void __asan_init(void);

START_TEST(hexadecimal_digits_are_not_stretched)
{
    if (__asan_init != NULL)
        return; /* its allocator aborts without address space */
    static const char *const digits = "0123456789abcdefABCDEF0123456789";
    struct rlimit limit, old;
    struct seal_key k;
    ck_assert_int_eq(getrlimit(RLIMIT_AS, &old), 0);
    limit = old;
    limit.rlim_cur = 0;
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
    const int rc[] = {seal_key_init(&k, digits, 32, &err), seal_key_init(&k, digits, 31, &err)};
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &old), 0);
    ck_assert_int_eq(rc[0], 0);
    ck_assert_int_eq(rc[1], -ENOMEM);
    ck_assert_ptr_nonnull(strstr(err.text, "32 or more hexadecimal digits"));
    seal_key_fini(&k);
}
END_TEST

START_TEST(a_key_of_its_own_is_left_out_of_core_dumps)
{
    struct seal_key *k;
    char line[256];
    bool is_in_it = false, is_left_out = false;
    ck_assert_int_eq(seal_key_create(TOKEN, 32, &k, &err), 0);
    ck_assert_mem_eq(k, &key, sizeof key);
    FILE *f = fopen("/proc/self/smaps", "re");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof line, f) != NULL) {
        unsigned long start, end;
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            is_in_it = start <= (uintptr_t)k && (uintptr_t)k < end;
        else if (is_in_it && strncmp(line, "VmFlags:", 8) == 0)
            is_left_out = strstr(line, " dd") != NULL && strstr(line, " wf") != NULL;
    }
    fclose(f);
    ck_assert(is_left_out);
    seal_key_destroy(k);
    seal_key_destroy(NULL);
}
END_TEST

START_TEST(tokens_have_bounds)
{
    static const char text[SEAL_TOKEN_MAX_BYTES + 1];
    struct seal_key k;
    ck_assert_int_eq(seal_key_init(&k, text, SEAL_TOKEN_MIN_BYTES - 1, &err), -EINVAL);
    ck_assert_int_eq(seal_key_init(&k, text, SEAL_TOKEN_MAX_BYTES + 1, &err), -EINVAL);
    ck_assert_int_eq(seal_key_init(&k, text, SEAL_TOKEN_MAX_BYTES, &err), 0);
    seal_key_fini(&k);
    seal_destroy(NULL);
}
END_TEST

TEST_SUITE(seal)
{
    Suite *suite = suite_create("seal");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, set_up, tear_down);
    tcase_add_test(all, the_page_key_is_a_digest_of_the_token);
    tcase_add_test(all, a_password_has_no_page_key);
    tcase_add_test(all, ends_with_one_token_exchange_frames_in_any_pieces);
    tcase_add_test(all, without_tokens_frames_are_not_encrypted);
    tcase_add_test(all, encrypted_frames_cannot_be_read);
    tcase_add_test(all, a_different_token_is_refused_and_both_ends_report_it);
    tcase_add_test(all, a_token_at_one_end_only_is_refused);
    tcase_add_test(all, an_id_without_its_key_proves_nothing);
    tcase_add_test(all, a_wrong_proof_of_a_node_is_refused);
    tcase_add_test(all, versions_without_overlap_are_refused_and_named);
    tcase_add_test(all, a_changed_frame_does_not_open);
    tcase_add_test(all, a_repeated_frame_does_not_open);
    tcase_add_test(all, a_missing_frame_is_detected_at_the_next_one);
    tcase_add_test(all, a_frame_of_another_connection_does_not_open);
    tcase_add_test(all, an_incomplete_frame_is_waited_for);
    tcase_add_test(all, a_length_over_the_bound_is_not_waited_for);
    tcase_add_test(all, the_longest_frame_passes_and_a_longer_one_is_refused);
    tcase_add_test(all, other_protocols_are_detected_at_their_first_byte);
    tcase_add_test(all, the_handshake_is_the_one_of_the_design);
    tcase_add_test(all, a_token_that_may_be_a_password_is_stretched);
    tcase_add_test(all, hexadecimal_digits_are_not_stretched);
    tcase_add_test(all, a_key_of_its_own_is_left_out_of_core_dumps);
    tcase_add_test(all, tokens_have_bounds);
    suite_add_tcase(suite, all);
    return suite;
}
