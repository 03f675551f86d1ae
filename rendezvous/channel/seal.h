/* seal.h - frames on a control connection: proves the identity of the peer; then sealed, or in the
 * clear.
 *
 * Pure: bytes come in, bytes go out, and the caller carries them. Both ends need the same token; it
 * is never sent. What an owner of the token sealed, no process without the token can read or
 * change; frames that are missing, repeated, out of order or cut short are noticed.
 * docs/design/membership.md has the bytes.
 *
 *     node                                     roster's end
 *     greeting: DDP1, versions, key id, nonce ->
 *                                           <- answer: DDP1, version, status, nonce, proof, header
 *     proof, header, frames                 ->
 *                                           <- frames
 *
 * Without a token at either end frames go in the clear, after the same greeting. A token at one end
 * only is an error at both: no end can be downgraded to frames in the clear.
 *
 * Any observer of a greeting can try guesses at the token offline. A token of 32 or more
 * hexadecimal digits counts as random, as those that ddprun makes; each guess at another one costs
 * Argon2id with 64 MiB. */
#ifndef DDP_RENDEZVOUS_CHANNEL_SEAL_H
#define DDP_RENDEZVOUS_CHANNEL_SEAL_H

#include "common/buf.h"

#include <stdbool.h>

struct co_error;
struct seal; /* opaque: one connection */

enum {
    SEAL_TOKEN_MIN_BYTES = 16,
    SEAL_TOKEN_MAX_BYTES = 4096,
    SEAL_MAX_FRAME_BYTES = 65536, /* of what is inside; sealing adds 17 */
    SEAL_GREETING_BYTES = 48,     /* also the bytes needed to identify the protocol of a
                                     connection */
};

enum { SEAL_PAGE_KEY_BYTES = 64 };

struct seal_key { /* made of a token; wipe it with seal_key_fini() */
    uint8_t id[8];
    uint8_t secret[32];
    char page[SEAL_PAGE_KEY_BYTES]; /* the page key: hex digits, without NUL; zeros: none */
};

/* Takes some 0.1 s, unless the token is of 32 or more hexadecimal digits.
 *
 * returns   0; -EINVAL: too short or too long; -ENOSYS: libsodium does not work here; -ENOMEM */
int seal_key_init(struct seal_key *k, const void *token, size_t len, struct co_error *err);
void seal_key_fini(struct seal_key *k);

/* Is this the page key: the SHA-256, in lower-case hex digits, of SEAL_PAGE_LABEL and the token?
 * It opens the pages of a coordinator, and nothing else: it crosses the network in the clear, and
 * the token cannot be computed from it. A token that is stretched has no page key, since a process
 * that records the key could try guesses at the cost of a SHA-256 each. The time that this takes
 * does not depend on the text. */
#define SEAL_PAGE_LABEL "ddp pages 1\n"
bool seal_key_opens_pages(const struct seal_key *k, const char *text, size_t len);

/* Another secret, for one purpose and one job; the key cannot be computed from it.
 *
 * label     of the purpose; no two have the same */
void seal_key_derive(const struct seal_key *k, const char *label, const void *context, size_t len,
                     uint8_t ret[32]);

/* The same in memory of its own (common/secret_memory.h). returns   as above */
int seal_key_create(const void *token, size_t len, struct seal_key **ret_key, struct co_error *err);
void seal_key_destroy(struct seal_key *k); /* NULL is fine */

/* Do these first bytes of a connection, 1 to 4 of them, begin a greeting? A port may also serve
 * other protocols.
 *
 * returns   1 yes, 0 no, -EAGAIN: so far it may be */
int seal_is_greeting(const uint8_t *bytes, size_t len);

/* The highest version that a greeting offers: which protocol it is for, where a port has several.
 *
 * returns   0: that part has not come yet */
uint8_t seal_greeting_version(const uint8_t *bytes, size_t len);

/* The node's end; its greeting is in seal_output() at once.
 *
 * key       borrowed until SEAL_OPENED or a failure; NULL: none
 * versions  of channel_wire.h that the caller speaks, 1 <= min <= max
 * returns   0, -ENOMEM, -ENOSYS */
int seal_create_node(const struct seal_key *key, uint8_t min_version, uint8_t max_version,
                     struct seal **ret_seal, struct co_error *err);

/* The roster's end: it waits for a greeting.
 *
 * keys      those it may be; borrowed until SEAL_OPENED or a failure. n_keys 0: in the clear */
int seal_create_roster(const struct seal_key *keys, size_t n_keys, uint8_t min_version,
                       uint8_t max_version, struct seal **ret_seal, struct co_error *err);
void seal_destroy(struct seal *s); /* NULL is fine; wipes its keys */

enum seal_result {
    SEAL_MORE = 0,   /* all was taken as far as it goes */
    SEAL_OPENED = 1, /* the other end has proved itself; frames may be put. Returned once */
    SEAL_FRAME = 2,  /* one frame has come */
};

/* Look for the next thing in what was received.
 *
 * bytes       what the last call did not take, and perhaps more
 * ret_used    how many were taken; always written
 * ret_frame   SEAL_FRAME: lent until the next call
 * returns     an enum seal_result; or, and then the connection is unusable (send what
 *             seal_output() has, it informs the other end):
 *             -EPROTO   not this protocol, no version in common, a frame over the bound
 *             -EACCES   another token, or a token at one end only; the text has the reason
 *                       and what to do
 *             -EBADMSG  a frame that was changed, left out, repeated or sealed with another key
 *             -ENOMEM */
int seal_feed(struct seal *s, const uint8_t *bytes, size_t len, size_t *ret_used,
              const uint8_t **ret_frame, size_t *ret_frame_len, struct co_error *err);

/* Put a frame into the output.
 *
 * returns   0; -ENOMEM; -EINVAL: empty or over the bound; -ENOTCONN: before SEAL_OPENED */
int seal_put(struct seal *s, const void *frame, size_t len, struct co_error *err);

/* Give back the memory of a frame that is not read any more. */
void seal_trim(struct seal *s);

/* What is to be sent; the caller consumes it. */
struct co_buf *seal_output(struct seal *s);

bool seal_is_sealed(const struct seal *s);    /* after SEAL_OPENED: not in the clear */
uint8_t seal_version(const struct seal *s);   /* after SEAL_OPENED: of channel_wire.h */
bool seal_is_mid_frame(const struct seal *s); /* a greeting or a frame has begun and is not
                                                  complete: the caller has a deadline for that */

#endif
