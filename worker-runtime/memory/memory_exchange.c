/* memory_exchange.c - three kinds of messages: the entry, the bytes in pieces, and a digest of
 * them.
 *
 * A piece is read from the slot, sent, and written to the other's slot, so that neither side needs
 * more memory than two pieces. A rank that cannot write what it receives still receives all of it:
 * both sides remain in step, and the group whole. */
#include "memory_exchange.h"

#include "common/error.h"
#include "worker-runtime/core/group.h"

#include <ddp/collective.h>
#include <errno.h>
#include <string.h>

enum { PIECE_BYTES = MEMORY_PIECE_BYTES, TAG = 0 };

struct exchange {
    struct ddp_group *g;
    struct memory_slots *s;
    const struct memory_exchange *what;
    uint8_t *piece_out, *piece_in;
    int code; /* of this rank's part */
    struct co_error *err;
};

/* Both at once: two ranks that sent first would wait for each other. A count of 0: nothing. */
static int move_bytes(const struct exchange *x, const void *out, size_t n_out, void *in,
                      size_t n_in)
{
    struct ddp_request *sent = NULL, *received = NULL;
    int rc = 0;
    if (n_in > 0)
        rc = ddp_irecv(x->g, in, n_in, DDP_UINT8, x->what->from, TAG, NULL, &received);
    if (rc == 0 && n_out > 0)
        rc = ddp_isend(x->g, out, n_out, DDP_UINT8, x->what->to, TAG, NULL, &sent);
    const int of_send = ddp_wait(sent);
    const int of_receive = ddp_wait(received);
    return rc != 0 ? rc : of_send != 0 ? of_send : of_receive;
}

static void note(struct exchange *x, int code, const char *what)
{
    if (code != 0 && x->code == 0)
        x->code = co_fail(x->err, code, "%s: %s", what, strerror(-code));
}

static bool is_expected(const struct exchange *x, const struct memory_save *save)
{
    return memory_slots_accept(x->s, save) && memory_id_same(save->id, x->what->id) &&
           save->rank == x->what->rank;
}

static size_t piece_of(uint64_t bytes, uint64_t at)
{
    const uint64_t left = at < bytes ? bytes - at : 0;
    return left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
}

/* out, in   the saves; of what is not sent or received they have no bytes */
static int move_all(struct exchange *x, const struct memory_save *out, const struct memory_save *in)
{
    uint64_t digest_out = out->bytes, digest_in = in->bytes, theirs = 0;
    int rc = 0;
    for (uint64_t at = 0; rc == 0 && (at < out->bytes || at < in->bytes); at += PIECE_BYTES) {
        const size_t n_out = piece_of(out->bytes, at), n_in = piece_of(in->bytes, at);
        if (n_out > 0) {
            note(x, memory_slots_get(x->s, x->what->from_slot, at, x->piece_out, n_out),
                 "cannot read the state in memory");
            digest_out = memory_digest(digest_out, x->piece_out, n_out);
        }
        rc = move_bytes(x, x->piece_out, n_out, x->piece_in, n_in);
        if (rc == 0 && n_in > 0) {
            digest_in = memory_digest(digest_in, x->piece_in, n_in);
            note(x, memory_slots_put(x->s, x->what->to_slot, at, x->piece_in, n_in),
                 "cannot keep the state of another rank in memory");
        }
    }
    if (rc == 0)
        rc = move_bytes(x, &digest_out, x->what->to >= 0 ? sizeof digest_out : 0, &theirs,
                        x->what->from >= 0 ? sizeof theirs : 0);
    if (rc == 0 && x->what->from >= 0 && theirs != digest_in)
        note(x, -EBADMSG, "the state of another rank was damaged on the way");
    return rc;
}

static int run(struct exchange *x)
{
    struct memory_save out = {0}, in = {0};
    if (x->what->to >= 0)
        out = x->s->saves[x->what->from_slot];
    if (x->what->from >= 0)
        note(x, memory_slots_free(x->s, x->what->to_slot, NULL), "cannot free a slot");
    int rc = move_bytes(x, &out, x->what->to >= 0 ? sizeof out : 0, &in,
                        x->what->from >= 0 ? sizeof in : 0);
    if (rc == 0 && x->what->from >= 0 && !is_expected(x, &in))
        rc = rt_fail(DDP_EMISMATCH, "rank %d sent a state that was not asked for", x->what->from);
    if (rc == 0)
        rc = move_all(x, &out, &in);
    if (rc == 0 && x->code == 0 && x->what->from >= 0)
        x->code = memory_slots_set(x->s, x->what->to_slot, &in, x->err);
    return rc;
}

int memory_exchange(struct ddp_group *g, struct memory_slots *s, const struct memory_exchange *what,
                    uint8_t *pieces, int *ret_code, struct co_error *err)
{
    struct exchange x = {.g = g,
                         .s = s,
                         .what = what,
                         .piece_out = pieces,
                         .piece_in = pieces + PIECE_BYTES,
                         .err = err};
    const int rc = run(&x);
    *ret_code = x.code;
    return rc;
}
