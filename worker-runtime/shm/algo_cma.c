/* algo_cma.c - memory of other processes by process_vm_readv(2): one copy where staging takes two,
 * for ordinary memory. All ranks only read: a rank that continues late could otherwise write into
 * memory that its owner has long been using for something else.
 *
 * The system may forbid it (Yama, seccomp, another user namespace), so all ranks try once, and use
 * it only if it works between any two of them. */
#include "cpu.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

enum { SCRATCH_BYTES = 512 * 1024, SMALLEST_PIECE = 4096 }; /* together they stay in the L2 cache */

int cma_read(uint32_t pid, void *to, uint64_t from, size_t bytes)
{
    uint8_t *at = to;
    while (bytes > 0) {
        struct iovec local = {at, bytes}, remote = {(void *)(uintptr_t)from, bytes};
        ssize_t n = process_vm_readv((pid_t)pid, &local, 1, &remote, 1, 0);
        if (n <= 0)
            return n < 0 ? -errno : -EFAULT;
        at += n;
        from += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return 0;
}

/* --- finding out ------------------------------------------------------------------------------ */

static uint64_t probe_value(uint32_t pid, unsigned rank)
{
    return UINT64_C(0x6464702d636d6131) ^ (uint64_t)pid << 20 ^ rank;
}

/* If Yama restricts ptrace() to ancestors: permit the descendants of the process that started this
 * rank to read it. The other ranks usually are such descendants. */
static void permit_siblings(void)
{
    char mode = '0';
    int fd = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (read(fd, &mode, 1) == 1 && mode == '1')
        prctl(PR_SET_PTRACER, (unsigned long)getppid(), 0, 0, 0);
    close(fd);
}

void cma_init(struct cpu *c)
{
    c->pid = (uint32_t)getpid();
    c->cma_probe = probe_value(c->pid, c->rank);
    if (c->may_cma)
        permit_siblings();
}

static size_t piece_bytes(const struct cpu *c)
{
    size_t bytes = SCRATCH_BYTES / c->n & ~(size_t)63;
    return bytes > SMALLEST_PIECE ? bytes : SMALLEST_PIECE;
}

bool cma_can_read(uint32_t pid, uint64_t probe, unsigned rank)
{
    uint64_t value = 0;
    return cma_read(pid, &value, probe, sizeof value) == 0 && value == probe_value(pid, rank);
}

static _Atomic uint32_t *verdict_of(const struct cpu *c, unsigned rank)
{
    return (_Atomic uint32_t *)(c->shm->member[rank].mailbox + VERDICT_AT);
}

void cma_ask(struct cpu *c)
{
    bool works = c->may_cma;
    if (works && c->scratch == NULL)
        c->scratch = aligned_alloc(64, c->n * piece_bytes(c));
    works = works && c->scratch != NULL;
    for (unsigned r = 0; works && r < c->n; r++)
        works = cma_can_read(cpu_place(c, r)->pid, cpu_place(c, r)->probe, r);
    atomic_store(verdict_of(c, c->rank), works);
    c->cma = CMA_ASKED;
}

void cma_agree(struct cpu *c)
{
    c->cma = CMA_ON;
    for (unsigned r = 0; r < c->n; r++)
        if (atomic_load(verdict_of(c, r)) == 0)
            c->cma = CMA_OFF;
}

bool cma_is_worth_it(const struct cpu *c)
{
    const struct layout *l = &c->job.layout;
    const size_t least = call_is_reduction(l->kind) ? c->tuning.cma_sum_bytes : c->tuning.cma_bytes;
    /* in a reduce only the root has space for the result */
    return c->cma != CMA_OFF && l->kind != CALL_REDUCE &&
           l->most * l->size >= least / layout_n_blocks(l);
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Read from the address that a rank published; false: the group is broken. */
static bool memory_fetch(struct cpu *c, unsigned rank, bool from_out, size_t offset, void *to,
                         size_t bytes)
{
    const struct transport_shm_place *place = cpu_place(c, rank);
    const unsigned local_rank = c->shm->member[rank].local_rank;
    const uint64_t at = (from_out ? place->out : place->in) + offset;
    if (bytes == 0)
        return true;
    if (from_out ? place->has_out : place->has_in)
        memcpy(to, c->user[rank] + at, bytes);
    else if (cma_read(place->pid, to, at, bytes) != 0 &&
             control_look(c->shm->control, local_rank) != CONTROL_DEAD)
        shm_abort_tell(c->shm, CONTROL_UNREADABLE, local_rank, 0);
    return !transport_shm_is_broken(c->shm);
}

/* Slice `s` of the elements from element `first` on in every rank's `in`, summed up. */
static bool sum_piece(struct cpu *c, size_t first, struct slice s, uint8_t *out)
{
    const size_t size = c->job.layout.size;
    for (unsigned r = 0; r < c->n; r++) {
        const size_t offset = (first + s.first) * size;
        uint8_t *scratch = c->scratch + r * piece_bytes(c);
        c->in[r] = r == c->rank ? c->job.in + offset : scratch;
        if (r != c->rank && !memory_fetch(c, r, false, offset, scratch, s.count * size))
            return false;
    }
    c->out[0] = out + s.first * size;
    cpu_kernel(c, 1, s.count);
    return true;
}

static bool sum_block(struct cpu *c, struct slice block, uint8_t *out)
{
    const size_t most = piece_bytes(c) / c->job.layout.size;
    for (size_t i = 0;; i++) {
        struct slice piece = slice_piece(block.count, most, i);
        if (piece.count == 0)
            return true;
        if (!sum_piece(c, block.first, piece, out))
            return false;
    }
}

static bool fetch_block(struct cpu *c, unsigned rank, bool from_out, struct slice from, uint8_t *to)
{
    const size_t size = c->job.layout.size;
    for (size_t i = 0;; i++) {
        struct slice piece = slice_piece(from.count, PIECE_BYTES / size, i);
        if (piece.count == 0)
            return true;
        if (!memory_fetch(c, rank, from_out, (from.first + piece.first) * size,
                          to + piece.first * size, piece.count * size))
            return false;
    }
}

static bool collect_from(struct cpu *c, unsigned rank)
{
    const size_t size = c->job.layout.size;
    const struct slice from = cpu_in_of(c, rank), to = layout_out(&c->job.layout, rank);
    uint8_t *out = c->job.out + to.first * size;
    if (rank != c->rank)
        return fetch_block(c, rank, false, from, out);
    if (from.count > 0)
        cpu_copy(out, c->job.in + from.first * size, from.count * size);
    return true;
}

bool cma_collect(struct cpu *c)
{
    const struct layout *l = &c->job.layout;
    if (!layout_gets(l, c->rank))
        return true;
    if (!layout_collects(l))
        return collect_from(c, (unsigned)l->root);
    for (unsigned k = 0; k < c->n; k++) /* not all of them at the same rank's memory */
        if (!collect_from(c, (c->rank + k) % c->n))
            return false;
    return true;
}

/* The parts of an all_reduce that others have worked out. */
static bool collect_parts(struct cpu *c)
{
    const struct layout *l = &c->job.layout;
    for (unsigned k = 1; k < c->n; k++) {
        const unsigned r = (c->rank + k) % c->n;
        const struct slice part = slice_of(l->count, l->size, r, c->n);
        if (!fetch_block(c, r, true, part, c->job.out + part.first * l->size))
            return false;
    }
    return true;
}

static bool work_out(struct cpu *c, size_t stage)
{
    const struct layout *l = &c->job.layout;
    if (stage == 1)
        return collect_parts(c);
    if (l->kind == CALL_REDUCE_SCATTER)
        return sum_block(c, layout_in_of(l, c->rank), c->job.out);
    if (l->kind != CALL_ALL_REDUCE)
        return cma_collect(c);
    const struct slice part = slice_of(l->count, l->size, c->rank, c->n);
    return sum_block(c, part, c->job.out + part.first * l->size);
}

int algo_cma(struct cpu *c, size_t stage, struct co_error *err)
{
    const struct layout *l = &c->job.layout;
    const size_t n_stages = l->kind == CALL_ALL_REDUCE ? 2 : 1;
    if (stage == n_stages) {
        cpu_hear_found(c);
        return ALGO_DONE;
    }
    bool ok = transport_shm_touch_begin(c->shm, false) && work_out(c, stage);
    transport_shm_touch_end(c->shm);
    if (!ok)
        return transport_shm_fail(c->shm, err);
    cpu_tell_found(c);
    transport_shm_arrive(c->shm);
    return layout_gives(l, c->rank) || l->kind == CALL_ALL_REDUCE ? ALGO_STEP : ALGO_DONE;
}
