/* backend_cpu.c - which algorithm, and what each rank does in it.
 *
 * Four shapes, the same for all collectives (docs/collectives.md):
 *   note       the data rides on the call's note
 *   one-shot   through the mailboxes, one meeting, everybody reads everything
 *   direct     in place, where all buffers lie in user segments
 *   staged     through the mailboxes piece by piece, else
 * The choice depends on the call's signature and on the notes, so that all ranks choose the same.
 * Results do not depend on the choice: the kernels fold the ranks in their order, element by
 * element. */
#include "backend_cpu.h"

#include "backend.h"
#include "common/error.h"
#include "reduce.h"
#include "slices.h"
#include "user_segment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_BUFFERS = 3,              /* of each mailbox: one is filled, one worked on, one read */
    BUFFER_BYTES = 128 * 1024,  /* of all ranks together they should stay in the caches */
    ONE_SHOT_BYTES = 16 * 1024, /* of all ranks together, which everybody reads */
    PIECE_BYTES = 512 * 1024,   /* between two looks at the abort word */
};
_Static_assert(N_BUFFERS *BUFFER_BYTES <= TRANSPORT_SHM_MAILBOX_BYTES,
               "the buffers fit the mailbox");

struct cpu {
    struct backend backend;
    struct transport_shm *shm;
    struct user_segment *own;
    const struct reduce_kernels *kernels;
    void (*on_destroy)(void *arg);
    void *arg;
    unsigned rank, n;
    uint64_t pieces; /* that went through the mailboxes: says whose turn a buffer is */
    uint8_t **user;  /* n */
    const void **in; /* n: arguments of a kernel */
    void **out;      /* n */
};

struct job { /* a collective in progress, as its caller gave it */
    struct call call;
    const uint8_t *in;
    uint8_t *out;
    size_t size;  /* of an element */
    size_t bytes; /* count elements */
};

static struct cpu *cpu_of(struct backend *b)
{
    return (struct cpu *)b;
}

static struct job job_of(enum call_kind kind, const void *in, void *out, size_t count,
                         enum ddp_dtype dtype, enum ddp_op op, int root)
{
    size_t size = ddp_dtype_size(dtype);
    return (struct job){
        .call = {.kind = (uint8_t)kind,
                 .dtype = (uint8_t)dtype,
                 .op = (uint8_t)op,
                 .root = root,
                 .count = count},
        .in = in,
        .out = out,
        .size = size,
        .bytes = count * size,
    };
}

static bool is_root(const struct cpu *c, const struct job *j)
{
    return j->call.root == (int)c->rank;
}

static bool gives(const struct cpu *c, const struct job *j)
{
    return j->call.kind != CALL_BROADCAST || is_root(c, j);
}

static bool gets(const struct cpu *c, const struct job *j)
{
    return j->call.kind != CALL_REDUCE || is_root(c, j);
}

static bool is_reduction(const struct job *j)
{
    return j->call.kind == CALL_ALL_REDUCE || j->call.kind == CALL_REDUCE;
}

static void copy(void *to, const void *from, size_t bytes)
{
    if (to != from && bytes > 0)
        memcpy(to, from, bytes);
}

/* Fold c->in[0 .. n) into c->out[0 .. n_out). */
static void run_kernel(const struct cpu *c, const struct job *j, unsigned n_out, size_t count)
{
    if (count > 0)
        c->kernels->fn[j->call.dtype][j->call.op](c->in, c->n, c->out, n_out, count);
}

/* Make this rank's result of a whole job whose inputs lie at c->in[]. */
static void finish_from_inputs(struct cpu *c, const struct job *j)
{
    if (!gets(c, j) || j->bytes == 0)
        return;
    if (is_reduction(j)) {
        c->out[0] = j->out;
        run_kernel(c, j, 1, j->call.count);
    } else if (j->call.kind == CALL_BROADCAST) {
        copy(j->out, c->in[j->call.root], j->bytes);
    } else if (j->call.kind == CALL_ALL_GATHER) {
        for (unsigned r = 0; r < c->n; r++)
            copy(j->out + r * j->bytes, c->in[r], j->bytes);
    }
}

/* --- note, one-shot --------------------------------------------------------------------------- */

static int run_note(struct cpu *c, const struct job *j, struct co_error *err)
{
    union transport_shm_note *note;
    int code = transport_shm_open(c->shm, &j->call, &note, err);
    if (code != 0)
        return code;
    if (gives(c, j))
        copy(note->bytes, j->in, j->bytes);
    code = transport_shm_meet(c->shm, err);
    if (code != 0)
        return code;
    for (unsigned r = 0; r < c->n; r++)
        c->in[r] = transport_shm_note(c->shm, r)->bytes;
    finish_from_inputs(c, j);
    return 0;
}

static uint8_t *buffer_of(const struct cpu *c, unsigned rank, uint64_t piece)
{
    return transport_shm_mailbox(c->shm, rank) + piece % N_BUFFERS * BUFFER_BYTES;
}

/* The buffer is free: its last readers were done before they met this rank in the call before. */
static int run_one_shot(struct cpu *c, const struct job *j, struct co_error *err)
{
    union transport_shm_note *note;
    uint64_t piece = c->pieces++;
    int code = transport_shm_open(c->shm, &j->call, &note, err);
    if (code != 0)
        return code;
    if (gives(c, j))
        copy(buffer_of(c, c->rank, piece), j->in, j->bytes);
    code = transport_shm_meet(c->shm, err);
    if (code != 0)
        return code;
    for (unsigned r = 0; r < c->n; r++)
        c->in[r] = buffer_of(c, r, piece);
    finish_from_inputs(c, j);
    return 0;
}

/* --- direct ----------------------------------------------------------------------------------- */

static const uint8_t *in_of(const struct cpu *c, unsigned rank)
{
    return c->user[rank] + transport_shm_note(c->shm, rank)->place.in;
}

static uint8_t *out_of(const struct cpu *c, unsigned rank)
{
    return c->user[rank] + transport_shm_note(c->shm, rank)->place.out;
}

/* Piece `i` of this rank's part of a reduction: from everybody's `in` to everybody's `out`, which
 * for a reduce is root's alone. Returns false behind the last one. */
static bool reduce_piece(struct cpu *c, const struct job *j, size_t i)
{
    struct slice part = slice_of(j->call.count, j->size, c->rank, c->n);
    struct slice piece = slice_piece(part.count, PIECE_BYTES / j->size, i);
    size_t offset = (part.first + piece.first) * j->size;
    unsigned n_out = 0;
    for (unsigned r = 0; r < c->n; r++) {
        c->in[r] = in_of(c, r) + offset;
        if (j->call.kind == CALL_ALL_REDUCE || j->call.root == (int)r)
            c->out[n_out++] = out_of(c, r) + offset;
    }
    run_kernel(c, j, n_out, piece.count);
    return piece.count > 0;
}

/* Piece `i` of what this rank fetches from others: from root, or from each in turn. */
static bool fetch_piece(struct cpu *c, const struct job *j, size_t i)
{
    struct slice piece = slice_piece(j->bytes, PIECE_BYTES, i);
    if (j->call.kind == CALL_BROADCAST) {
        unsigned root = (unsigned)j->call.root;
        copy(j->out + piece.first, (is_root(c, j) ? j->in : in_of(c, root)) + piece.first,
             piece.count);
        return piece.count > 0;
    }
    for (unsigned k = 0; k < c->n; k++) {
        unsigned r = (c->rank + k) % c->n; /* not all of them at the same rank's memory */
        copy(j->out + r * j->bytes + piece.first,
             (r == c->rank ? j->in : in_of(c, r)) + piece.first, piece.count);
    }
    return piece.count > 0;
}

static int run_direct(struct cpu *c, const struct job *j, struct co_error *err)
{
    bool ok = transport_shm_touch_begin(c->shm), more = true;
    for (size_t i = 0; ok && more; i++) {
        more = is_reduction(j) ? reduce_piece(c, j, i) : fetch_piece(c, j, i);
        ok = transport_shm_touch_more(c->shm);
    }
    transport_shm_touch_end(c->shm);
    if (!ok)
        return transport_shm_fail(c->shm, err);
    /* Who gave its memory to others waits until they have done with it; who gave none may go. */
    if (is_reduction(j) || gives(c, j))
        return transport_shm_step(c->shm, err);
    transport_shm_step_no_wait(c->shm);
    return 0;
}

/* --- staged ----------------------------------------------------------------------------------- */

/* What happens to piece `i` of a staged job, numbered `piece` since the start of the group. In each
 * step a rank fills the buffer of one piece, works on the one before, and reads the one before
 * that: three buffers, so no two ranks are at the same one for different ends. */
static void stage_fill(struct cpu *c, const struct job *j, uint64_t piece, struct slice s)
{
    if (gives(c, j))
        copy(buffer_of(c, c->rank, piece), j->in + s.first * j->size, s.count * j->size);
}

/* This rank's part of the sum replaces the same part of its own buffer, which nobody else reads for
 * the sum. */
static void stage_reduce(struct cpu *c, const struct job *j, uint64_t piece, struct slice s)
{
    struct slice part = slice_of(s.count, j->size, c->rank, c->n);
    for (unsigned r = 0; r < c->n; r++)
        c->in[r] = buffer_of(c, r, piece) + part.first * j->size;
    c->out[0] = buffer_of(c, c->rank, piece) + part.first * j->size;
    run_kernel(c, j, 1, part.count);
}

static void stage_read(struct cpu *c, const struct job *j, uint64_t piece, struct slice s)
{
    if (!gets(c, j))
        return;
    uint8_t *out = j->out + s.first * j->size;
    if (j->call.kind == CALL_BROADCAST) {
        const uint8_t *from =
            is_root(c, j) ? j->in + s.first * j->size : buffer_of(c, (unsigned)j->call.root, piece);
        copy(out, from, s.count * j->size);
        return;
    }
    for (unsigned r = 0; r < c->n; r++) {
        if (j->call.kind == CALL_ALL_GATHER) {
            const uint8_t *from = r == c->rank ? j->in + s.first * j->size : buffer_of(c, r, piece);
            copy(out + r * j->bytes, from, s.count * j->size);
        } else {
            struct slice part = slice_of(s.count, j->size, r, c->n);
            copy(out + part.first * j->size, buffer_of(c, r, piece) + part.first * j->size,
                 part.count * j->size);
        }
    }
}

static int run_staged(struct cpu *c, const struct job *j, struct co_error *err)
{
    const size_t most = BUFFER_BYTES / j->size;
    const size_t n_pieces = j->call.count / most + (j->call.count % most != 0);
    const size_t lag = is_reduction(j) ? 2 : 1; /* steps from filling a buffer to reading it */
    const uint64_t first = c->pieces;
    c->pieces += n_pieces;
    for (size_t step = 0; step < n_pieces + lag; step++) {
        if (step > 0) {
            int code = transport_shm_step(c->shm, err);
            if (code != 0)
                return code;
        }
        if (step < n_pieces)
            stage_fill(c, j, first + step, slice_piece(j->call.count, most, step));
        if (lag == 2 && step >= 1 && step - 1 < n_pieces)
            stage_reduce(c, j, first + step - 1, slice_piece(j->call.count, most, step - 1));
        if (step >= lag)
            stage_read(c, j, first + step - lag, slice_piece(j->call.count, most, step - lag));
    }
    return 0;
}

/* --- the choice ------------------------------------------------------------------------------- */

/* Whether everybody has its memory where the others can reach it. */
static bool can_be_direct(const struct cpu *c, const struct job *j)
{
    for (unsigned r = 0; r < c->n; r++) {
        const struct transport_shm_place *place = &transport_shm_note(c->shm, r)->place;
        bool root = j->call.root == (int)r;
        bool needs_in = j->call.kind != CALL_BROADCAST || root;
        bool needs_out = j->call.kind == CALL_ALL_REDUCE || (j->call.kind == CALL_REDUCE && root);
        if ((needs_in && !place->has_in) || (needs_out && !place->has_out))
            return false;
    }
    return true;
}

static int run_large(struct cpu *c, const struct job *j, struct co_error *err)
{
    union transport_shm_note *note;
    int code = transport_shm_open(c->shm, &j->call, &note, err);
    if (code != 0)
        return code;
    struct transport_shm_place place = {0};
    place.has_in = gives(c, j) && user_segment_find(c->own, j->in, j->bytes, &place.in);
    place.has_out = gets(c, j) && user_segment_find(c->own, j->out, j->bytes, &place.out);
    note->place = place;
    code = transport_shm_meet(c->shm, err);
    if (code != 0)
        return code;
    return can_be_direct(c, j) ? run_direct(c, j, err) : run_staged(c, j, err);
}

static int run(struct backend *b, const struct job *j, struct co_error *err)
{
    struct cpu *c = cpu_of(b);
    int code;
    if (j->bytes <= TRANSPORT_SHM_NOTE_BYTES)
        code = run_note(c, j, err);
    else if (j->bytes <= ONE_SHOT_BYTES / c->n)
        code = run_one_shot(c, j, err);
    else
        code = run_large(c, j, err);
    if (code != 0 && transport_shm_must_withdraw(c->shm)) {
        struct co_error why;
        if (user_segment_withdraw(c->own, &why) != 0)
            return co_fail(err, code, "%s; %s", err != NULL ? err->text : "", why.text);
    }
    return code;
}

static int cpu_all_reduce(struct backend *b, const void *in, void *out, size_t count,
                          enum ddp_dtype dtype, enum ddp_op op, void *stream, struct co_error *err)
{
    (void)stream;
    struct job j = job_of(CALL_ALL_REDUCE, in, out, count, dtype, op, 0);
    return run(b, &j, err);
}

static int cpu_reduce(struct backend *b, const void *in, void *out, size_t count,
                      enum ddp_dtype dtype, enum ddp_op op, int root, void *stream,
                      struct co_error *err)
{
    (void)stream;
    struct job j = job_of(CALL_REDUCE, in, out, count, dtype, op, root);
    return run(b, &j, err);
}

static int cpu_broadcast(struct backend *b, const void *in, void *out, size_t count,
                         enum ddp_dtype dtype, int root, void *stream, struct co_error *err)
{
    (void)stream;
    struct job j = job_of(CALL_BROADCAST, in, out, count, dtype, DDP_SUM, root);
    return run(b, &j, err);
}

static int cpu_all_gather(struct backend *b, const void *in, void *out, size_t count,
                          enum ddp_dtype dtype, void *stream, struct co_error *err)
{
    (void)stream;
    struct job j = job_of(CALL_ALL_GATHER, in, out, count, dtype, DDP_SUM, 0);
    return run(b, &j, err);
}

static int cpu_barrier(struct backend *b, struct co_error *err)
{
    struct job j = {.call.kind = CALL_BARRIER};
    return run(b, &j, err);
}

static int cpu_alloc(struct backend *b, size_t bytes, void **ret, struct co_error *err)
{
    return user_segment_alloc(cpu_of(b)->own, bytes, ret, err);
}

static void cpu_free(struct backend *b, void *ptr)
{
    user_segment_free(cpu_of(b)->own, ptr);
}

static void cpu_destroy(struct backend *b)
{
    struct cpu *c = cpu_of(b);
    transport_shm_destroy(c->shm);
    if (c->on_destroy != NULL)
        c->on_destroy(c->arg);
    free(c->user);
    free(c->in);
    free(c->out);
    free(c);
}

int backend_cpu_create(const struct backend_cpu_opts *opts, struct backend **ret,
                       struct co_error *err)
{
    static const struct backend_ops ops = {
        .name = "cpu",
        .all_reduce = cpu_all_reduce,
        .reduce = cpu_reduce,
        .broadcast = cpu_broadcast,
        .all_gather = cpu_all_gather,
        .barrier = cpu_barrier,
        .alloc = cpu_alloc,
        .free = cpu_free,
        .destroy = cpu_destroy,
    };
    unsigned n = transport_shm_n_ranks(opts->shm);
    struct cpu *c = calloc(1, sizeof *c);
    uint8_t **user = calloc(n, sizeof *user);
    const void **in = calloc(n, sizeof *in);
    void **out = calloc(n, sizeof *out);
    if (c == NULL || user == NULL || in == NULL || out == NULL) {
        free(c);
        free(user);
        free(in);
        free(out);
        return co_fail(err, -ENOMEM, "no memory for a back end of %u ranks", n);
    }
    memcpy(user, opts->user, n * sizeof *user);
    *c = (struct cpu){.backend.ops = &ops,
                      .shm = opts->shm,
                      .own = opts->own,
                      .kernels = opts->kernels,
                      .on_destroy = opts->on_destroy,
                      .arg = opts->arg,
                      .rank = transport_shm_rank(opts->shm),
                      .n = n,
                      .user = user,
                      .in = in,
                      .out = out};
    *ret = &c->backend;
    return 0;
}
