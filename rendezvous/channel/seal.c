/* seal.c - the handshake, then frames.
 *
 * Read seal_feed() first: bytes_take() gives the bytes to the function of the state,
 * take_greeting() and take_proof() at the roster's end, take_answer() at the node's end, then
 * take_frame(). Both ends hash the handshake, and derive() makes a key for each direction from the
 * token and that hash, so a proof or a frame of another connection does not fit.
 *
 * Invariant: with a token, no frame is returned before the peer has proved that it knows the token.
 * Every length is checked against a bound before memory is reserved for it. */
#include "seal.h"

#include "rendezvous/store/wire.h"

#include "common/error.h"
#include "common/scope.h"
#include "common/secret_memory.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

enum {
    NONCE_BYTES = 32,
    PROOF_BYTES = 32,
    STREAM_KEY_BYTES = crypto_secretstream_xchacha20poly1305_KEYBYTES,
    STREAM_HEADER_BYTES = crypto_secretstream_xchacha20poly1305_HEADERBYTES,
    SEALING_BYTES = crypto_secretstream_xchacha20poly1305_ABYTES,
    ANSWER_BYTES = 8 + NONCE_BYTES, /* in the clear; when sealed, it continues with: */
    OPENING_BYTES = PROOF_BYTES + STREAM_HEADER_BYTES,
    LENGTH_BYTES = 4,
};

static const uint8_t magic[4] = {'D', 'D', 'P', '1'};

enum status {
    STATUS_WELL,
    STATUS_NO_VERSION,
    STATUS_NEEDS_TOKEN,
    STATUS_OTHER_TOKEN,
    STATUS_NO_TOKEN_HERE,
};

enum phase {
    AWAITS_GREETING, /* the roster's end */
    AWAITS_ANSWER,   /* the node's end */
    AWAITS_PROOF,    /* the roster's end, sealed */
    OPEN,
    BROKEN
};

struct seal {
    bool is_node, is_sealed, is_mid_frame;
    enum phase phase;
    uint8_t min_version, max_version, version;
    const struct seal_key *keys; /* borrowed; the roster's end: those it may be */
    size_t n_keys;
    const struct seal_key *key;                       /* borrowed, until the streams are made */
    uint8_t said[SEAL_GREETING_BYTES + ANSWER_BYTES]; /* by both, up to the nonces */
    crypto_secretstream_xchacha20poly1305_state push, pull;
    struct co_buf out, frame;
};

/* --- Keys --- */

static const char secret_label[] = "ddp control token 1";
static const char id_label[] = "ddp control key id 1";
static const char stretch_salt[] = "ddp token argon2";

enum { STRETCH_PASSES = 2, STRETCH_BYTES = 64 << 20, RANDOM_MIN_DIGITS = 32 };

_Static_assert(sizeof stretch_salt - 1 == crypto_pwhash_argon2id_SALTBYTES, "one salt");

/* Whether guesses are hopeless anyway: the tokens that ddprun makes, and those of openssl. The rule
 * must not change, since nodes that judge one token differently have different keys. */
static bool looks_random(const uint8_t *token, size_t len)
{
    bool is_hex = len >= RANDOM_MIN_DIGITS;
    for (size_t i = 0; is_hex && i < len; i++)
        is_hex = (token[i] >= '0' && token[i] <= '9') || (token[i] >= 'a' && token[i] <= 'f') ||
                 (token[i] >= 'A' && token[i] <= 'F');
    return is_hex;
}

/* Make each guess at a token cost what this costs. One salt for all jobs: the key ID is needed
 * before the peer's job is known. */
static int stretch(const void *token, size_t len, uint8_t ret[32], struct co_error *err)
{
    if (crypto_pwhash_argon2id(ret, 32, token, len, (const uint8_t *)stretch_salt, STRETCH_PASSES,
                               STRETCH_BYTES, crypto_pwhash_argon2id_ALG_ARGON2ID13) == 0)
        return 0;
    return co_fail(err, -ENOMEM,
                   "cannot derive a key from the token: out of memory (%d MiB); a token of %d or "
                   "more hexadecimal digits needs no such memory",
                   STRETCH_BYTES >> 20, RANDOM_MIN_DIGITS);
}

static void digest_token(const void *bytes, size_t len, uint8_t ret[32])
{
    crypto_generichash(ret, 32, bytes, len, (const uint8_t *)secret_label, sizeof secret_label - 1);
}

static void make_page_key(struct seal_key *k, const void *token, size_t len)
{
    crypto_hash_sha256_state hash;
    uint8_t digest[crypto_hash_sha256_BYTES];
    char hex[sizeof k->page + 1];
    crypto_hash_sha256_init(&hash);
    crypto_hash_sha256_update(&hash, (const uint8_t *)SEAL_PAGE_LABEL, sizeof SEAL_PAGE_LABEL - 1);
    crypto_hash_sha256_update(&hash, token, len);
    crypto_hash_sha256_final(&hash, digest);
    sodium_memzero(&hash, sizeof hash);
    sodium_bin2hex(hex, sizeof hex, digest, sizeof digest);
    memcpy(k->page, hex, sizeof k->page);
}

int seal_key_init(struct seal_key *k, const void *token, size_t len, struct co_error *err)
{
    uint8_t stretched[32], id[crypto_generichash_BYTES_MIN];
    int rc = 0;
    if (len < SEAL_TOKEN_MIN_BYTES || len > SEAL_TOKEN_MAX_BYTES)
        return co_fail(err, -EINVAL, "a token must have %d to %d bytes, not %zu",
                       SEAL_TOKEN_MIN_BYTES, SEAL_TOKEN_MAX_BYTES, len);
    if (sodium_init() < 0)
        return co_fail(err, -ENOSYS, "libsodium cannot be initialized on this machine");
    memset(k->page, 0, sizeof k->page);
    if (looks_random(token, len)) {
        digest_token(token, len, k->secret);
        make_page_key(k, token, len);
    } else if ((rc = stretch(token, len, stretched, err)) == 0) {
        digest_token(stretched, sizeof stretched, k->secret);
    }
    sodium_memzero(stretched, sizeof stretched);
    if (rc < 0)
        return rc;
    crypto_generichash(id, sizeof id, (const uint8_t *)id_label, sizeof id_label - 1, k->secret,
                       sizeof k->secret);
    memcpy(k->id, id, sizeof k->id);
    return 0;
}

bool seal_key_opens_pages(const struct seal_key *k, const char *text, size_t len)
{
    return len == sizeof k->page && k->page[0] != '\0' &&
           sodium_memcmp(k->page, text, sizeof k->page) == 0;
}

void seal_key_derive(const struct seal_key *k, const char *label, const void *context, size_t len,
                     uint8_t ret[32])
{
    crypto_generichash_state hash;
    crypto_generichash_init(&hash, k->secret, sizeof k->secret, 32);
    crypto_generichash_update(&hash, (const uint8_t *)label, strlen(label) + 1);
    crypto_generichash_update(&hash, context, len);
    crypto_generichash_final(&hash, ret, 32);
    sodium_memzero(&hash, sizeof hash);
}

void seal_key_fini(struct seal_key *k)
{
    sodium_memzero(k, sizeof *k);
}

int seal_key_create(const void *token, size_t len, struct seal_key **ret_key, struct co_error *err)
{
    struct seal_key *k = co_secret_alloc(sizeof *k);
    int rc = k == NULL ? co_fail(err, -ENOMEM, "out of memory") : seal_key_init(k, token, len, err);
    if (rc < 0)
        seal_key_destroy(k);
    else
        *ret_key = k;
    return rc;
}

void seal_key_destroy(struct seal_key *k)
{
    co_secret_free(k, sizeof *k);
}

/* A value that only an owner of the secret can derive from the handshake; a label for each use. */
static void derive(const struct seal *s, const char *label, uint8_t ret[32])
{
    crypto_generichash_state hash;
    crypto_generichash_init(&hash, s->key->secret, sizeof s->key->secret, 32);
    crypto_generichash_update(&hash, (const uint8_t *)label, strlen(label) + 1);
    crypto_generichash_update(&hash, s->said, sizeof s->said);
    crypto_generichash_final(&hash, ret, 32);
    sodium_memzero(&hash, sizeof hash);
}

static const char *proof_label(bool of_node)
{
    return of_node ? "proof of the node" : "proof of the roster";
}

static const char *stream_label(bool of_node)
{
    return of_node ? "frames of the node" : "frames of the roster";
}

/* --- Output --- */

static int append(struct seal *s, const void *bytes, size_t n, struct co_error *err)
{
    return co_buf_append(&s->out, bytes, n) < 0 ? co_fail(err, -ENOMEM, "out of memory") : 0;
}

/* Our proof, and the header of the stream that follows it. */
static int put_opening(struct seal *s, struct co_error *err)
{
    uint8_t opening[OPENING_BYTES], key[STREAM_KEY_BYTES];
    derive(s, proof_label(s->is_node), opening);
    derive(s, stream_label(s->is_node), key);
    crypto_secretstream_xchacha20poly1305_init_push(&s->push, opening + PROOF_BYTES, key);
    sodium_memzero(key, sizeof key);
    return append(s, opening, sizeof opening, err);
}

/* The other end's. */
static int take_opening(struct seal *s, const uint8_t opening[OPENING_BYTES], struct co_error *err)
{
    uint8_t proof[PROOF_BYTES], key[STREAM_KEY_BYTES];
    derive(s, proof_label(!s->is_node), proof);
    if (sodium_memcmp(proof, opening, sizeof proof) != 0)
        return co_fail(err, -EACCES, "the peer does not know the token whose ID it sent");
    derive(s, stream_label(!s->is_node), key);
    int rc = crypto_secretstream_xchacha20poly1305_init_pull(&s->pull, opening + PROOF_BYTES, key);
    sodium_memzero(key, sizeof key);
    return rc != 0 ? co_fail(err, -EBADMSG, "invalid header of the encrypted stream") : 0;
}

static int become_open(struct seal *s)
{
    s->keys = s->key = NULL;
    s->phase = OPEN;
    return SEAL_OPENED;
}

/* --- The node's end --- */

static int put_greeting(struct seal *s, struct co_error *err)
{
    uint8_t *greeting = s->said;
    memcpy(greeting, magic, sizeof magic);
    greeting[4] = s->min_version;
    greeting[5] = s->max_version;
    greeting[6] = s->key != NULL;
    if (s->key != NULL)
        memcpy(greeting + 8, s->key->id, sizeof s->key->id);
    randombytes_buf(greeting + 16, NONCE_BYTES);
    return append(s, greeting, SEAL_GREETING_BYTES, err);
}

static int explain_status(const struct seal *s, const uint8_t *answer, struct co_error *err)
{
    switch (answer[5]) {
    case STATUS_NO_VERSION:
        return co_fail(err, -EPROTO,
                       "the peer speaks versions %d to %d of the control channel, this node %d to "
                       "%d: use the same version of ddprun on all nodes",
                       answer[6], answer[7], s->min_version, s->max_version);
    case STATUS_NEEDS_TOKEN:
        return co_fail(
            err, -EACCES,
            "the rendezvous endpoint requires a token and this node has none: give this node the "
            "same token with --token-file, DDP_TOKEN, or ~/.config/ddprun/token");
    case STATUS_OTHER_TOKEN:
        return co_fail(err, -EACCES,
                       "this node's token differs from the rendezvous endpoint's: give both the "
                       "same token with --token-file, DDP_TOKEN, or ~/.config/ddprun/token");
    case STATUS_NO_TOKEN_HERE:
        return co_fail(
            err, -EACCES,
            "this node has a token and the rendezvous endpoint has none: give the endpoint the "
            "same token with --token-file, DDP_TOKEN, or ~/.config/ddprun/token");
    default:
        return co_fail(err, -EPROTO, "the peer refuses the handshake with status %d", answer[5]);
    }
}

static int check_answer(struct seal *s, const uint8_t *answer, struct co_error *err)
{
    if (answer[5] != STATUS_WELL)
        return explain_status(s, answer, err);
    if (answer[4] < s->min_version || answer[4] > s->max_version)
        return co_fail(
            err, -EPROTO,
            "the peer chose version %d of the control channel, which this node did not offer",
            answer[4]);
    return 0;
}

/* returns as seal_feed() */
static int take_answer(struct seal *s, const uint8_t *bytes, size_t len, size_t *ret_used,
                       struct co_error *err)
{
    if (len > 0 && seal_is_greeting(bytes, len) == 0) /* the rest of an answer would never come */
        return co_fail(err, -EPROTO,
                       "unexpected answer: the program that listens there is not ddprun or "
                       "ddp-rendezvous; check the port of --rdzv-endpoint");
    if (len < ANSWER_BYTES)
        return SEAL_MORE;
    int rc = check_answer(s, bytes, err);
    if (rc < 0)
        return rc;
    size_t n = ANSWER_BYTES + (s->key != NULL ? OPENING_BYTES : 0);
    if (len < n)
        return SEAL_MORE;
    *ret_used = n;
    s->version = bytes[4];
    s->is_sealed = s->key != NULL;
    memcpy(s->said + SEAL_GREETING_BYTES, bytes, ANSWER_BYTES);
    if (s->is_sealed)
        rc = take_opening(s, bytes + ANSWER_BYTES, err);
    if (rc == 0 && s->is_sealed)
        rc = put_opening(s, err);
    return rc < 0 ? rc : become_open(s);
}

/* --- The roster's end --- */

static enum status greeting_judge(struct seal *s, const uint8_t *greeting)
{
    uint8_t theirs = greeting[5];
    s->version = theirs < s->max_version ? theirs : s->max_version;
    s->is_sealed = greeting[6] == 1;
    if (s->version < s->min_version || s->version < greeting[4])
        return STATUS_NO_VERSION;
    if (!s->is_sealed)
        return s->n_keys > 0 ? STATUS_NEEDS_TOKEN : STATUS_WELL;
    for (size_t i = 0; i < s->n_keys; i++) {
        if (sodium_memcmp(s->keys[i].id, greeting + 8, sizeof s->keys[i].id) == 0) {
            s->key = &s->keys[i];
            return STATUS_WELL;
        }
    }
    return s->n_keys > 0 ? STATUS_OTHER_TOKEN : STATUS_NO_TOKEN_HERE;
}

/* For the roster's terminal; the node hears the same from its own end. */
static int explain_refusal(enum status status, struct co_error *err)
{
    switch (status) {
    case STATUS_NO_VERSION:
        return co_fail(err, -EPROTO,
                       "the peer speaks no common version of the control channel: use the same "
                       "version of ddprun on all nodes");
    case STATUS_NEEDS_TOKEN:
        return co_fail(
            err, -EACCES,
            "the peer has no token, and this side requires one: give all nodes the same token");
    case STATUS_NO_TOKEN_HERE:
        return co_fail(
            err, -EACCES,
            "the peer has a token, and this side has none: give all nodes the same token");
    default:
        return co_fail(err, -EACCES,
                       "the peer has a different token: give all nodes the same token");
    }
}

static bool is_greeting(const uint8_t *g)
{
    static const uint8_t no_id[8];
    return memcmp(g, magic, sizeof magic) == 0 && g[4] >= 1 && g[4] <= g[5] && g[6] <= 1 &&
           g[7] == 0 && (g[6] == 1 || memcmp(g + 8, no_id, sizeof no_id) == 0);
}

static int put_answer(struct seal *s, enum status status, struct co_error *err)
{
    uint8_t *answer = s->said + SEAL_GREETING_BYTES;
    memcpy(answer, magic, sizeof magic);
    answer[4] = status == STATUS_WELL ? s->version : 0;
    answer[5] = (uint8_t)status;
    answer[6] = s->min_version;
    answer[7] = s->max_version;
    if (status == STATUS_WELL)
        randombytes_buf(answer + 8, NONCE_BYTES);
    int rc = append(s, answer, ANSWER_BYTES, err);
    if (rc == 0 && status != STATUS_WELL)
        rc = explain_refusal(status, err);
    if (rc == 0 && s->is_sealed)
        rc = put_opening(s, err);
    return rc;
}

static int take_greeting(struct seal *s, const uint8_t *bytes, size_t len, size_t *ret_used,
                         struct co_error *err)
{
    if (seal_is_greeting(bytes, len < sizeof magic ? len : sizeof magic) == 0)
        return co_fail(err, -EPROTO, "unexpected peer: not ddprun");
    if (len < SEAL_GREETING_BYTES)
        return SEAL_MORE;
    if (!is_greeting(bytes))
        return co_fail(err, -EPROTO, "malformed handshake");
    *ret_used = SEAL_GREETING_BYTES;
    memcpy(s->said, bytes, SEAL_GREETING_BYTES);
    int rc = put_answer(s, greeting_judge(s, bytes), err);
    if (rc < 0)
        return rc;
    if (!s->is_sealed)
        return become_open(s);
    s->phase = AWAITS_PROOF;
    return SEAL_MORE;
}

static int take_proof(struct seal *s, const uint8_t *bytes, size_t len, size_t *ret_used,
                      struct co_error *err)
{
    if (len < OPENING_BYTES)
        return SEAL_MORE;
    *ret_used = OPENING_BYTES;
    int rc = take_opening(s, bytes, err);
    return rc < 0 ? rc : become_open(s);
}

/* --- Frames --- */

static int open_frame(struct seal *s, const uint8_t *sealed, size_t len, const uint8_t **ret,
                      size_t *ret_len, struct co_error *err)
{
    uint8_t tag;
    co_buf_consume(&s->frame, co_buf_len(&s->frame));
    uint8_t *room = co_buf_room(&s->frame, len - SEALING_BYTES);
    if (room == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    if (crypto_secretstream_xchacha20poly1305_pull(&s->pull, room, NULL, &tag, sealed, len, NULL,
                                                   0) != 0)
        return co_fail(
            err, -EBADMSG,
            "a frame was modified, lost, or repeated in transit, or encrypted with another key");
    co_buf_added(&s->frame, len - SEALING_BYTES);
    *ret = room;
    *ret_len = len - SEALING_BYTES;
    return SEAL_FRAME;
}

static int take_frame(struct seal *s, const uint8_t *bytes, size_t len, size_t *ret_used,
                      const uint8_t **ret, size_t *ret_len, struct co_error *err)
{
    size_t sealing = s->is_sealed ? SEALING_BYTES : 0;
    if (len < LENGTH_BYTES)
        return SEAL_MORE;
    size_t n = wire_get_u32(bytes);
    if (n <= sealing || n > SEAL_MAX_FRAME_BYTES + sealing)
        return co_fail(err, -EPROTO, "a frame of %zu bytes: expected %zu to %zu", n, sealing + 1,
                       SEAL_MAX_FRAME_BYTES + sealing);
    if (len - LENGTH_BYTES < n)
        return SEAL_MORE;
    *ret_used = LENGTH_BYTES + n;
    bytes += LENGTH_BYTES;
    if (s->is_sealed)
        return open_frame(s, bytes, n, ret, ret_len, err);
    *ret = bytes;
    *ret_len = n;
    return SEAL_FRAME;
}

int seal_put(struct seal *s, const void *frame, size_t len, struct co_error *err)
{
    if (s->phase != OPEN)
        return co_fail(err, -ENOTCONN, "the peer has not authenticated yet");
    if (len == 0 || len > SEAL_MAX_FRAME_BYTES)
        return co_fail(err, -EINVAL, "a frame must have 1 to %d bytes, not %zu",
                       SEAL_MAX_FRAME_BYTES, len);
    size_t n = len + (s->is_sealed ? SEALING_BYTES : 0);
    uint8_t *room = co_buf_room(&s->out, LENGTH_BYTES + n);
    if (room == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    wire_put_u32(room, (uint32_t)n);
    if (s->is_sealed)
        crypto_secretstream_xchacha20poly1305_push(&s->push, room + LENGTH_BYTES, NULL, frame, len,
                                                   NULL, 0, 0);
    else
        memcpy(room + LENGTH_BYTES, frame, len);
    co_buf_added(&s->out, LENGTH_BYTES + n);
    return 0;
}

/* --- Both ends --- */

int seal_is_greeting(const uint8_t *bytes, size_t len)
{
    size_t n = len < sizeof magic ? len : sizeof magic;
    if (memcmp(bytes, magic, n) != 0)
        return 0;
    return n == sizeof magic ? 1 : -EAGAIN;
}

uint8_t seal_greeting_version(const uint8_t *bytes, size_t len)
{
    return len > 5 ? bytes[5] : 0;
}

/* The handshake in order of phases. The roster's end: AWAITS_GREETING, then AWAITS_PROOF if both
 * have a token, then OPEN. The node's end: AWAITS_ANSWER, then OPEN. Each proof covers the
 * greeting and the answer of this connection with both nonces, so that neither a replayed nor a
 * changed greeting passes. */
static int bytes_take(struct seal *s, const uint8_t *bytes, size_t len, size_t *ret_used,
                      const uint8_t **ret_frame, size_t *ret_frame_len, struct co_error *err)
{
    switch (s->phase) {
    case AWAITS_GREETING:
        return take_greeting(s, bytes, len, ret_used, err);
    case AWAITS_ANSWER:
        return take_answer(s, bytes, len, ret_used, err);
    case AWAITS_PROOF:
        return take_proof(s, bytes, len, ret_used, err);
    case OPEN:
        return take_frame(s, bytes, len, ret_used, ret_frame, ret_frame_len, err);
    default:
        return co_fail(err, -EPROTO, "the connection is broken");
    }
}

/* Takes as many steps of the handshake as the bytes hold, and at most one frame, which is lent
 * until the next call. An error is final: every later call fails. */
int seal_feed(struct seal *s, const uint8_t *bytes, size_t len, size_t *ret_used,
              const uint8_t **ret_frame, size_t *ret_frame_len, struct co_error *err)
{
    int rc = SEAL_MORE;
    size_t n = 1;
    *ret_used = 0;
    while (rc == SEAL_MORE && n > 0 && *ret_used < len) { /* also the bytes after a greeting */
        n = 0;
        rc = bytes_take(s, bytes + *ret_used, len - *ret_used, &n, ret_frame, ret_frame_len, err);
        *ret_used += n;
    }
    s->is_mid_frame = rc == SEAL_MORE && *ret_used < len;
    if (rc < 0)
        s->phase = BROKEN;
    return rc;
}

void seal_trim(struct seal *s)
{
    co_buf_fini(&s->frame);
}

struct co_buf *seal_output(struct seal *s)
{
    return &s->out;
}

bool seal_is_sealed(const struct seal *s)
{
    return s->is_sealed;
}

uint8_t seal_version(const struct seal *s)
{
    return s->version;
}

bool seal_is_mid_frame(const struct seal *s)
{
    return s->is_mid_frame || s->phase != OPEN;
}

co_define_auto(seal, seal_destroy)

static int create(uint8_t min_version, uint8_t max_version, struct seal **ret, struct co_error *err)
{
    if (sodium_init() < 0)
        return co_fail(err, -ENOSYS, "libsodium cannot be initialized on this machine");
    struct seal *s = calloc(1, sizeof *s);
    if (s == NULL)
        return co_fail(err, -ENOMEM, "out of memory");
    s->min_version = min_version;
    s->max_version = max_version;
    *ret = s;
    return 0;
}

int seal_create_node(const struct seal_key *key, uint8_t min_version, uint8_t max_version,
                     struct seal **ret_seal, struct co_error *err)
{
    co_auto(seal) s = NULL;
    int rc = create(min_version, max_version, &s, err);
    if (rc < 0)
        return rc;
    s->is_node = true;
    s->key = key;
    s->phase = AWAITS_ANSWER;
    rc = put_greeting(s, err);
    if (rc == 0)
        *ret_seal = co_take(&s);
    return rc;
}

int seal_create_roster(const struct seal_key *keys, size_t n_keys, uint8_t min_version,
                       uint8_t max_version, struct seal **ret_seal, struct co_error *err)
{
    struct seal *s = NULL;
    int rc = create(min_version, max_version, &s, err);
    if (rc < 0)
        return rc;
    s->keys = keys;
    s->n_keys = n_keys;
    *ret_seal = s;
    return 0;
}

void seal_destroy(struct seal *s)
{
    if (s == NULL)
        return;
    co_buf_fini(&s->out);
    co_buf_fini(&s->frame);
    sodium_memzero(s, sizeof *s);
    free(s);
}
