#include "seal.h"

#include "common/error.h"
#include "wire.h"

#include <assert.h>
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define STREAM(name) crypto_secretstream_xchacha20poly1305_##name

enum {
    NONCE_BYTES = 32,
    ANSWER_BYTES = 40, /* without what is sealed only */
    PROOF_BYTES = 32,
    HEADER_BYTES = STREAM(HEADERBYTES),
    SECRET_PART_BYTES = PROOF_BYTES + HEADER_BYTES,
    TRANSCRIPT_BYTES = SEAL_GREETING_BYTES + ANSWER_BYTES,
    LEN_BYTES = 4,
    KEEP_BYTES = 4096, /* an opened frame's buffer larger than this is given back */
};
_Static_assert(STREAM(ABYTES) == 17, "as the header says");

static const uint8_t magic[4] = {'D', 'D', 'P', '1'};

enum status { STATUS_WELL, STATUS_NO_VERSION, STATUS_NEEDED, STATUS_UNKNOWN, STATUS_NONE_HERE };

enum stage {
    STAGE_GREETING, /* the roster's end: of the node */
    STAGE_ANSWER,   /* the node's end: of the roster */
    STAGE_PROOF,    /* the roster's end: of the node's */
    STAGE_OPEN,
    STAGE_BROKEN,
};

struct seal {
    enum stage stage;
    bool is_sealed, is_mid_frame;
    bool has_key; /* the node's end */
    uint8_t min_version, max_version, version;
    struct seal_key key;         /* the node's; the roster's once it is known which */
    const struct seal_key *keys; /* the roster's; borrowed */
    size_t n_keys;
    uint8_t transcript[TRANSCRIPT_BYTES]; /* greeting and answer */
    STREAM(state) out_stream, in_stream;
    struct co_buf out;
    struct co_buf opened; /* the frame that is lent */
};

/* --- keys --- */

int seal_key_init(struct seal_key *k, const void *token, size_t len, struct co_error *err)
{
    static const uint8_t label[] = "ddp token 1";
    uint8_t hash[32];
    if (len < SEAL_TOKEN_MIN_BYTES || len > SEAL_TOKEN_MAX_BYTES)
        return co_fail(err, -EINVAL, "a token of %zu bytes: %d to %d are needed", len,
                       SEAL_TOKEN_MIN_BYTES, SEAL_TOKEN_MAX_BYTES);
    if (sodium_init() < 0)
        return co_fail(err, -ENOSYS, "libsodium cannot be used on this system");
    crypto_generichash(k->secret, sizeof k->secret, token, len, label, sizeof label - 1);
    crypto_generichash(hash, sizeof hash, k->secret, sizeof k->secret, NULL, 0);
    memcpy(k->id, hash, sizeof k->id);
    return 0;
}

void seal_key_fini(struct seal_key *k)
{
    explicit_bzero(k, sizeof *k);
}

/* 32 bytes that only who has the secret can make of what was said, one for each label. */
static void derive(const struct seal *s, const char *label, uint8_t ret[32])
{
    crypto_generichash_state state;
    crypto_generichash_init(&state, s->key.secret, sizeof s->key.secret, 32);
    crypto_generichash_update(&state, s->transcript, sizeof s->transcript);
    crypto_generichash_update(&state, (const uint8_t *)label, strlen(label));
    crypto_generichash_final(&state, ret, 32);
    sodium_memzero(&state, sizeof state);
}

/* This end's proof and the header of its stream, appended to the output. */
static int put_secret_part(struct seal *s, const char *proof_label, const char *stream_label)
{
    uint8_t part[SECRET_PART_BYTES], key[32];
    derive(s, proof_label, part);
    derive(s, stream_label, key);
    STREAM(init_push)(&s->out_stream, part + PROOF_BYTES, key);
    sodium_memzero(key, sizeof key);
    return co_buf_append(&s->out, part, sizeof part);
}

/* The other end's. returns whether the proof is right */
static bool take_secret_part(struct seal *s, const char *proof_label, const char *stream_label,
                             const uint8_t part[SECRET_PART_BYTES])
{
    uint8_t proof[PROOF_BYTES], key[32];
    derive(s, proof_label, proof);
    bool is_right = sodium_memcmp(proof, part, sizeof proof) == 0;
    derive(s, stream_label, key);
    is_right = STREAM(init_pull)(&s->in_stream, part + PROOF_BYTES, key) == 0 && is_right;
    sodium_memzero(key, sizeof key);
    return is_right;
}

#define PROOF_OF_ROSTER  "the roster knows it"
#define PROOF_OF_NODE    "the node knows it"
#define STREAM_TO_NODE   "to the node"
#define STREAM_TO_ROSTER "to the roster"

/* --- greetings --- */

int seal_is_greeting(const uint8_t *bytes, size_t len)
{
    size_t n = len < sizeof magic ? len : sizeof magic;
    if (memcmp(bytes, magic, n) != 0)
        return 0;
    return n == sizeof magic ? 1 : -EAGAIN;
}

static struct seal *create(enum stage stage, uint8_t min_version, uint8_t max_version)
{
    struct seal *s = calloc(1, sizeof *s);
    assert(min_version >= 1 && min_version <= max_version);
    if (s == NULL)
        return NULL;
    s->stage = stage;
    s->min_version = min_version;
    s->max_version = max_version;
    return s;
}

int seal_create_node(const struct seal_key *key, uint8_t min_version, uint8_t max_version,
                     struct seal **ret_seal, struct co_error *err)
{
    if (sodium_init() < 0)
        return co_fail(err, -ENOSYS, "libsodium cannot be used on this system");
    struct seal *s = create(STAGE_ANSWER, min_version, max_version);
    if (s == NULL)
        return co_fail(err, -ENOMEM, "no memory for a control connection");
    uint8_t *greeting = s->transcript;
    memcpy(greeting, magic, sizeof magic);
    greeting[4] = min_version;
    greeting[5] = max_version;
    greeting[6] = key != NULL;
    if (key != NULL) {
        s->has_key = true;
        s->key = *key;
        memcpy(greeting + 8, key->id, sizeof key->id);
    }
    randombytes_buf(greeting + 16, NONCE_BYTES);
    if (co_buf_append(&s->out, greeting, SEAL_GREETING_BYTES) < 0) {
        seal_destroy(s);
        return co_fail(err, -ENOMEM, "no memory for a control connection");
    }
    *ret_seal = s;
    return 0;
}

int seal_create_roster(const struct seal_key *keys, size_t n_keys, uint8_t min_version,
                       uint8_t max_version, struct seal **ret_seal, struct co_error *err)
{
    if (sodium_init() < 0)
        return co_fail(err, -ENOSYS, "libsodium cannot be used on this system");
    struct seal *s = create(STAGE_GREETING, min_version, max_version);
    if (s == NULL)
        return co_fail(err, -ENOMEM, "no memory for a control connection");
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
    co_buf_fini(&s->opened);
    explicit_bzero(s, sizeof *s);
    free(s);
}

/* --- the roster's end --- */

static bool find_key(struct seal *s, const uint8_t id[8])
{
    for (size_t i = 0; i < s->n_keys; i++) {
        if (memcmp(s->keys[i].id, id, sizeof s->keys[i].id) == 0) {
            s->key = s->keys[i];
            return true;
        }
    }
    return false;
}

static enum status judge_greeting(struct seal *s, const uint8_t *greeting)
{
    uint8_t low = greeting[4] > s->min_version ? greeting[4] : s->min_version;
    uint8_t high = greeting[5] < s->max_version ? greeting[5] : s->max_version;
    bool is_sealed = greeting[6] != 0;
    if (low > high)
        return STATUS_NO_VERSION;
    s->version = high;
    if (!is_sealed)
        return s->n_keys == 0 ? STATUS_WELL : STATUS_NEEDED;
    if (s->n_keys == 0)
        return STATUS_NONE_HERE;
    if (!find_key(s, greeting + 8))
        return STATUS_UNKNOWN;
    s->is_sealed = true;
    return STATUS_WELL;
}

static int refuse(const struct seal *s, enum status status, const uint8_t *greeting,
                  struct co_error *err)
{
    switch (status) {
    case STATUS_NO_VERSION:
        return co_fail(err, -EPROTO, "it speaks versions %u to %u, this end %u to %u", greeting[4],
                       greeting[5], s->min_version, s->max_version);
    case STATUS_NEEDED:
        return co_fail(err, -EACCES, "it has no token, and one is needed here");
    case STATUS_UNKNOWN:
        return co_fail(err, -EACCES, "its token is another one than ours");
    default:
        return co_fail(err, -EACCES, "it has a token, this end has none");
    }
}

static int take_greeting(struct seal *s, const uint8_t *greeting, struct co_error *err)
{
    uint8_t *answer = s->transcript + SEAL_GREETING_BYTES;
    if (memcmp(greeting, magic, sizeof magic) != 0 || greeting[4] < 1 || greeting[6] > 1 ||
        greeting[7] != 0)
        return co_fail(err, -EPROTO, "that is no greeting of a node");
    enum status status = judge_greeting(s, greeting);
    memcpy(s->transcript, greeting, SEAL_GREETING_BYTES);
    memcpy(answer, magic, sizeof magic);
    answer[4] = status == STATUS_WELL ? s->version : 0;
    answer[5] = (uint8_t)status;
    answer[6] = s->min_version;
    answer[7] = s->max_version;
    randombytes_buf(answer + 8, NONCE_BYTES);
    int rc = co_buf_append(&s->out, answer, ANSWER_BYTES);
    if (rc == 0 && status == STATUS_WELL && s->is_sealed)
        rc = put_secret_part(s, PROOF_OF_ROSTER, STREAM_TO_NODE);
    if (rc < 0)
        return co_fail(err, rc, "no memory for an answer");
    if (status != STATUS_WELL)
        return refuse(s, status, greeting, err);
    s->stage = s->is_sealed ? STAGE_PROOF : STAGE_OPEN;
    return s->is_sealed ? SEAL_MORE : SEAL_OPENED;
}

static int take_proof(struct seal *s, const uint8_t *part, struct co_error *err)
{
    if (!take_secret_part(s, PROOF_OF_NODE, STREAM_TO_ROSTER, part))
        return co_fail(err, -EACCES, "it does not have the token that it names");
    s->stage = STAGE_OPEN;
    return SEAL_OPENED;
}

/* --- the node's end --- */

static int explain_answer(const struct seal *s, const uint8_t *answer, struct co_error *err)
{
    switch (answer[5]) {
    case STATUS_NO_VERSION:
        return co_fail(err, -EPROTO,
                       "it speaks versions %u to %u of this protocol, we %u to %u: run the same "
                       "ddprun on all nodes",
                       answer[6], answer[7], s->min_version, s->max_version);
    case STATUS_NEEDED:
        return co_fail(
            err, -EACCES,
            "a token is needed there and we have none: give the job's by --token-file or "
            "DDP_TOKEN");
    case STATUS_UNKNOWN:
        return co_fail(err, -EACCES,
                       "our token is not the one that is needed there: give the job's by "
                       "--token-file or DDP_TOKEN");
    case STATUS_NONE_HERE:
        return co_fail(err, -EACCES,
                       "we have a token and there is none there: give the same one on all nodes");
    default:
        return co_fail(err, -EPROTO, "the answer to our greeting makes no sense");
    }
}

/* len has been looked at: the answer is complete, with what is sealed only if it should be there */
static int take_answer(struct seal *s, const uint8_t *answer, struct co_error *err)
{
    if (memcmp(answer, magic, sizeof magic) != 0)
        return co_fail(err, -EPROTO, "something else than a ddprun or ddp-rendezvous answers");
    if (answer[5] != STATUS_WELL)
        return explain_answer(s, answer, err);
    if (answer[4] < s->min_version || answer[4] > s->max_version)
        return co_fail(err, -EPROTO, "the answer to our greeting makes no sense");
    s->version = answer[4];
    memcpy(s->transcript + SEAL_GREETING_BYTES, answer, ANSWER_BYTES);
    if (s->has_key) {
        if (!take_secret_part(s, PROOF_OF_ROSTER, STREAM_TO_NODE, answer + ANSWER_BYTES))
            return co_fail(err, -EACCES, "it does not have our token");
        if (put_secret_part(s, PROOF_OF_NODE, STREAM_TO_ROSTER) < 0)
            return co_fail(err, -ENOMEM, "no memory for a proof");
        s->is_sealed = true;
    }
    s->stage = STAGE_OPEN;
    return SEAL_OPENED;
}

/* How much of an answer there is: one that refuses has no secret part. */
static size_t answer_bytes(const struct seal *s, const uint8_t *bytes, size_t len)
{
    bool is_well = len < 6 || bytes[5] == STATUS_WELL;
    return ANSWER_BYTES + (s->has_key && is_well ? SECRET_PART_BYTES : 0);
}

/* --- frames --- */

static int open_frame(struct seal *s, const uint8_t *bytes, size_t len, const uint8_t **ret_frame,
                      size_t *ret_len, struct co_error *err)
{
    unsigned long long n;
    uint8_t tag;
    const uint8_t *sealed = bytes + LEN_BYTES;
    if (!s->is_sealed) {
        *ret_frame = sealed;
        *ret_len = len;
        return SEAL_FRAME;
    }
    co_buf_consume(&s->opened, co_buf_len(&s->opened));
    if (s->opened.cap > KEEP_BYTES)
        co_buf_fini(&s->opened);
    uint8_t *room = co_buf_room(&s->opened, len);
    if (room == NULL)
        return co_fail(err, -ENOMEM, "no memory for a frame");
    if (STREAM(pull)(&s->in_stream, room, &n, &tag, sealed, len, bytes, LEN_BYTES) != 0)
        return co_fail(err, -EBADMSG,
                       "a frame does not open: it was changed, left out or repeated on its way");
    *ret_frame = room;
    *ret_len = (size_t)n;
    return SEAL_FRAME;
}

static int take_frame(struct seal *s, const uint8_t *bytes, size_t len, size_t *ret_used,
                      const uint8_t **ret_frame, size_t *ret_frame_len, struct co_error *err)
{
    size_t extra = s->is_sealed ? STREAM(ABYTES) : 0;
    if (len < LEN_BYTES)
        return SEAL_MORE;
    size_t n = wire_get_u32(bytes);
    if (n <= extra || n > SEAL_MAX_FRAME_BYTES + extra)
        return co_fail(err, -EPROTO, "a frame of %zu bytes (1 to %d)", n, SEAL_MAX_FRAME_BYTES);
    if (len - LEN_BYTES < n)
        return SEAL_MORE;
    *ret_used = LEN_BYTES + n;
    return open_frame(s, bytes, n, ret_frame, ret_frame_len, err);
}

int seal_put(struct seal *s, const void *frame, size_t len, struct co_error *err)
{
    size_t extra = s->is_sealed ? STREAM(ABYTES) : 0;
    if (s->stage != STAGE_OPEN)
        return co_fail(err, -ENOTCONN, "the other end has not proved itself yet");
    if (len == 0 || len > SEAL_MAX_FRAME_BYTES)
        return co_fail(err, -EINVAL, "a frame of %zu bytes (1 to %d)", len, SEAL_MAX_FRAME_BYTES);
    uint8_t *room = co_buf_room(&s->out, LEN_BYTES + len + extra);
    if (room == NULL)
        return co_fail(err, -ENOMEM, "no memory for a frame");
    wire_put_u32(room, (uint32_t)(len + extra));
    if (s->is_sealed)
        STREAM(push)(&s->out_stream, room + LEN_BYTES, NULL, frame, len, room, LEN_BYTES, 0);
    else
        memcpy(room + LEN_BYTES, frame, len);
    co_buf_added(&s->out, LEN_BYTES + len + extra);
    return 0;
}

/* --- what comes --- */

/* Take a part of fixed size, if it is complete. */
static int take_part(struct seal *s, const uint8_t *bytes, size_t len, size_t n,
                     int (*take)(struct seal *s, const uint8_t *part, struct co_error *err),
                     size_t *ret_used, struct co_error *err)
{
    if (len < n)
        return SEAL_MORE;
    *ret_used = n;
    return take(s, bytes, err);
}

int seal_feed(struct seal *s, const uint8_t *bytes, size_t len, size_t *ret_used,
              const uint8_t **ret_frame, size_t *ret_frame_len, struct co_error *err)
{
    int rc;
    *ret_used = 0;
    switch (s->stage) {
    case STAGE_GREETING:
        rc = take_part(s, bytes, len, SEAL_GREETING_BYTES, take_greeting, ret_used, err);
        break;
    case STAGE_ANSWER:
        if (len >= sizeof magic && memcmp(bytes, magic, sizeof magic) != 0)
            rc = take_answer(s, bytes, err); /* says that it is none: more may never come */
        else
            rc = take_part(s, bytes, len, answer_bytes(s, bytes, len), take_answer, ret_used, err);
        break;
    case STAGE_PROOF:
        rc = take_part(s, bytes, len, SECRET_PART_BYTES, take_proof, ret_used, err);
        break;
    case STAGE_OPEN:
        rc = take_frame(s, bytes, len, ret_used, ret_frame, ret_frame_len, err);
        break;
    default:
        return co_fail(err, -EPROTO, "the connection is broken");
    }
    if (rc < 0)
        s->stage = STAGE_BROKEN;
    s->is_mid_frame = rc == SEAL_MORE && len > *ret_used;
    return rc;
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
    return s->is_mid_frame;
}
