/* net_secure.c - the hello and the answer of an encrypted connection, and the keys that follow. */
#include "net_secure.h"

#include "common/secret.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

/* A message up to its proof. */
#define SAID_BYTES(message) offsetof(__typeof__(message), proof)

static void prove_hello(const struct net_links *l, const struct hello *h,
                        uint8_t ret[CIPHER_PROOF_BYTES])
{
    cipher_derive(l->key, "ddp hello 1", h, SAID_BYTES(*h), ret, CIPHER_PROOF_BYTES);
}

struct dialog { /* what the keys of a connection are made of; without gaps */
    struct hello hello;
    struct answer answer;
};

static void prove_answer(const struct net_links *l, const struct dialog *d,
                         uint8_t ret[CIPHER_PROOF_BYTES])
{
    cipher_derive(l->key, "ddp answer 1", d, sizeof d->hello + SAID_BYTES(d->answer), ret,
                  CIPHER_PROOF_BYTES);
}

static int fill_salt(uint8_t salt[NET_SALT_BYTES])
{
    return getrandom(salt, NET_SALT_BYTES, 0) == NET_SALT_BYTES ? 0 : -EIO;
}

static int get(struct net_secure **secure)
{
    if (*secure != NULL)
        return 0;
    *secure = calloc(1, sizeof **secure);
    if (*secure == NULL)
        return -ENOMEM;
    (*secure)->sends_by = -1;
    return 0;
}

static void drop(struct net_secure *s, enum net_secure_by by)
{
    cipher_destroy(s->cipher[by].out);
    cipher_destroy(s->cipher[by].in);
    s->cipher[by].out = s->cipher[by].in = NULL;
}

static int make_cipher(const uint8_t key[CIPHER_KEY_BYTES], const char *label, unsigned suite,
                       struct cipher **ret)
{
    uint8_t own[CIPHER_KEY_BYTES];
    cipher_derive(key, label, NULL, 0, own, sizeof own);
    cipher_destroy(*ret);
    *ret = NULL;
    const int code = cipher_create(suite, own, ret);
    cipher_wipe(own, sizeof own);
    return code;
}

/* What the maker of a watch's connection sends: the hello alone makes this key, and the cipher is
 * the one that every rank has. */
static int make_early(const struct net_links *l, const struct hello *h, struct cipher **ret)
{
    uint8_t key[CIPHER_KEY_BYTES];
    cipher_derive(l->key, "ddp early 1", h, sizeof *h, key, sizeof key);
    const int code = make_cipher(key, "ddp to acceptor 1", CIPHER_CHACHA, ret);
    cipher_wipe(key, sizeof key);
    return code;
}

/* to_acceptor   of the rank that connects: what net_secure_offer() has made stays */
static int make_keys(const struct net_links *l, const struct dialog *d, struct cipher **to_acceptor,
                     struct cipher **to_maker)
{
    uint8_t key[CIPHER_KEY_BYTES];
    int code = 0;
    cipher_derive(l->key, "ddp connection 1", d, sizeof *d, key, sizeof key);
    if (*to_acceptor == NULL)
        code = l->opts.channel == NET_WATCH
                   ? make_early(l, &d->hello, to_acceptor)
                   : make_cipher(key, "ddp to acceptor 1", d->answer.suite, to_acceptor);
    if (code == 0)
        code = make_cipher(key, "ddp to maker 1", d->answer.suite, to_maker);
    cipher_wipe(key, sizeof key);
    return code;
}

/* --- the rank that connects ------------------------------------------------------------------- */

int net_secure_offer(const struct net_links *l, struct hello *h, struct net_secure **secure)
{
    if (!l->has_key)
        return 0;
    int code = fill_salt(h->salt);
    if (code == 0 && secure != NULL)
        code = get(secure);
    if (code != 0)
        return code;
    h->suites = cipher_suites();
    prove_hello(l, h, h->proof);
    if (secure == NULL)
        return 0;
    (*secure)->hello = *h;
    (*secure)->awaits = true;
    (*secure)->n_answer = 0;
    return l->opts.channel == NET_WATCH ? make_early(l, h, &(*secure)->cipher[NET_SECURE_OWN].out)
                                        : 0;
}

int net_secure_hear(const struct net_links *l, struct net_secure *s, int fd)
{
    uint8_t proof[CIPHER_PROOF_BYTES];
    const ssize_t n =
        recv(fd, (uint8_t *)&s->answer + s->n_answer, sizeof s->answer - s->n_answer, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return -EAGAIN;
    if (n <= 0)
        return n < 0 ? -errno : -EPIPE;
    s->n_answer += (size_t)n;
    if (s->n_answer < sizeof s->answer)
        return -EAGAIN;
    const struct dialog d = {.hello = s->hello, .answer = s->answer};
    prove_answer(l, &d, proof);
    const bool is_valid = s->answer.magic == ANSWER_MAGIC &&
                          co_is_same_secret(proof, s->answer.proof, sizeof proof) &&
                          cipher_choose(s->answer.suite & s->hello.suites) == s->answer.suite;
    const int code =
        is_valid ? make_keys(l, &d, &s->cipher[NET_SECURE_OWN].out, &s->cipher[NET_SECURE_OWN].in)
                 : -EACCES;
    s->awaits = code != 0;
    return code;
}

/* --- the rank that accepts -------------------------------------------------------------------- */

int net_secure_check(const struct net_links *l, const struct hello *h, struct co_error *why)
{
    uint8_t proof[CIPHER_PROOF_BYTES];
    const uint32_t from = l->opts.member[h->from].rank;
    if (!l->has_key && h->suites == 0)
        return 0;
    if (!l->has_key || h->suites == 0)
        return co_fail(why, -EACCES, "refused a connection: rank %u %s, and this rank %s", from,
                       h->suites != 0 ? "encrypts" : "does not encrypt",
                       h->suites != 0 ? "does not" : "does");
    prove_hello(l, h, proof);
    if (!co_is_same_secret(proof, h->proof, sizeof proof))
        return co_fail(why, -EACCES, "refused a connection: rank %u has another key", from);
    if (cipher_choose(h->suites & cipher_suites()) == 0)
        return co_fail(why, -EACCES, "refused a connection: rank %u has no cipher of this rank's",
                       from);
    return 0;
}

int net_secure_take(const struct net_links *l, const struct hello *h, int fd,
                    struct net_secure **secure)
{
    struct dialog d = {.hello = *h, .answer = {.magic = ANSWER_MAGIC}};
    if (!l->has_key)
        return 0;
    int code = get(secure);
    if (code == 0)
        code = fill_salt(d.answer.salt);
    if (code != 0)
        return code;
    d.answer.suite = cipher_choose(h->suites & cipher_suites());
    prove_answer(l, &d, d.answer.proof);
    drop(*secure, NET_SECURE_PEERS);
    code = make_keys(l, &d, &(*secure)->cipher[NET_SECURE_PEERS].in,
                     &(*secure)->cipher[NET_SECURE_PEERS].out);
    if (code != 0)
        return code;
    const ssize_t n = send(fd, &d.answer, sizeof d.answer, MSG_NOSIGNAL | MSG_DONTWAIT);
    return n == sizeof d.answer ? 0 : -EIO; /* the first bytes always fit an empty buffer */
}

bool net_secure_is_unused(const struct net_secure *s)
{
    return s != NULL && s->sends_by != NET_SECURE_PEERS;
}

/* --- records ---------------------------------------------------------------------------------- */

void net_secure_drop_own(struct net_secure *s)
{
    if (s == NULL)
        return;
    drop(s, NET_SECURE_OWN);
    s->awaits = false;
}

void net_secure_destroy(struct net_secure *s)
{
    if (s == NULL)
        return;
    drop(s, NET_SECURE_OWN);
    drop(s, NET_SECURE_PEERS);
    records_out_fini(&s->out);
    records_in_fini(&s->in);
    free(s);
}

int net_secure_seal(struct net_secure *s, enum net_secure_by by, const struct iovec *v,
                    unsigned n_v)
{
    if (records_is_pending(&s->out))
        return 0;
    if (s->sends_by < 0)
        s->sends_by = s->cipher[by].out != NULL ? (int)by : (int)!by;
    struct cipher *c = s->cipher[s->sends_by].out;
    return c != NULL ? records_seal(&s->out, c, s->sends_by == NET_SECURE_OWN, v, n_v) : -ENOTCONN;
}

ssize_t net_secure_sent(struct net_secure *s, ssize_t n)
{
    if (n <= 0)
        return n;
    const size_t gone = records_went(&s->out, (size_t)n);
    return gone > 0 ? (ssize_t)gone : -EAGAIN;
}

/* What the maker of a connection sends is, here, on the peer's connection. */
ssize_t net_secure_open(struct net_secure *s, const struct iovec *v, unsigned n_v,
                        struct iovec *ret_space)
{
    if (s->has_failed)
        return -EBADMSG;
    const ssize_t n =
        records_open(&s->in, s->cipher[NET_SECURE_PEERS].in, s->cipher[NET_SECURE_OWN].in, v, n_v);
    s->has_failed = n == -EBADMSG;
    const int code = n == -EAGAIN ? records_space(&s->in, ret_space) : 0;
    return code != 0 ? code : n;
}
