#include "ranks.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum stage { STAGE_HELLO, STAGE_COUNT, STAGE_WAIT, STAGE_GET, STAGE_DONE };

struct rank {
    uint8_t stage, n_kept;
    uint8_t count[8]; /* the first bytes of the reply */
    uint32_t round, n_got;
    uint32_t n_missing;
};

static const char *const names[] = {"join", "barrier", "gather"};

void ranks_init(struct ranks *r, unsigned n, unsigned n_barriers, unsigned n_gets)
{
    *r = (struct ranks){.n = n,
                        .n_barriers = n_barriers,
                        .n_gets = n_gets < n ? n_gets : n,
                        .list = calloc(n, sizeof *r->list),
                        .begun_ns = load_now_ns()};
    if (r->list == NULL)
        load_die("no memory");
}

/* --- requests --- */

/* No run finds keys of another run on the same server. */
__attribute__((format(printf, 2, 3))) static const char *key_of(char key[48], const char *format,
                                                                ...)
{
    va_list args;
    va_start(args, format);
    const int n = snprintf(key, 48, "/%d/", (int)getpid());
    vsnprintf(key + n, (size_t)(48 - n), format, args);
    va_end(args);
    return key;
}

/* m has this request alone, so far. */
static void await(struct ranks *r, struct rank *rank, enum stage stage, size_t n_reply)
{
    rank->stage = (uint8_t)stage;
    rank->n_missing = (uint32_t)n_reply;
    rank->n_kept = 0;
    r->n_requests++;
}

static void put_count(struct ranks *r, struct rank *rank, struct load_message *m)
{
    char key[48];
    const size_t before = m->reply_bytes;
    load_put_add(m, LOAD_TCPSTORE, key_of(key, "n/%d/%u", r->phase, rank->round));
    await(r, rank, STAGE_COUNT, m->reply_bytes - before);
}

/* The last one that is counted opens the door. */
static void put_wait(struct ranks *r, struct rank *rank, struct load_message *m)
{
    char key[48];
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | rank->count[i];
    key_of(key, "door/%d/%u", r->phase, rank->round);
    if (n == r->n)
        load_put_set(m, LOAD_TCPSTORE, key);
    const size_t before = m->reply_bytes;
    load_put_wait(m, key);
    await(r, rank, STAGE_WAIT, m->reply_bytes - before);
}

static void put_get(struct ranks *r, struct rank *rank, struct load_message *m)
{
    char key[48];
    const size_t before = m->reply_bytes;
    load_put_get(m, LOAD_TCPSTORE, key_of(key, "of/%u", rank->n_got++));
    await(r, rank, STAGE_GET, m->reply_bytes - before);
}

void ranks_begin(struct ranks *r, unsigned i, struct load_message *m)
{
    struct rank *rank = &r->list[i];
    char key[48];
    rank->round = 0;
    if (r->phase == RANKS_JOIN) {
        load_put_hello(m, LOAD_TCPSTORE);
        await(r, rank, STAGE_HELLO, m->reply_bytes);
        return;
    }
    if (r->phase == RANKS_GATHER)
        load_put_set(m, LOAD_TCPSTORE, key_of(key, "of/%u", i));
    put_count(r, rank, m);
}

/* --- replies --- */

/* A reply is complete. returns   whether another request follows */
static bool put_next(struct ranks *r, struct rank *rank, struct load_message *m)
{
    if (rank->stage == STAGE_HELLO) {
        put_count(r, rank, m);
    } else if (rank->stage == STAGE_COUNT) {
        put_wait(r, rank, m);
    } else if (r->phase == RANKS_BARRIER && ++rank->round < r->n_barriers) {
        put_count(r, rank, m);
    } else if (r->phase == RANKS_GATHER && rank->n_got < r->n_gets) {
        put_get(r, rank, m);
    } else {
        rank->stage = STAGE_DONE;
        r->n_done++;
        return false;
    }
    return true;
}

bool ranks_receive(struct ranks *r, unsigned i, const uint8_t *bytes, size_t len,
                   struct load_message *m)
{
    struct rank *rank = &r->list[i];
    if (len > rank->n_missing)
        load_die("the server answered %zu bytes, %u were due", len, (unsigned)rank->n_missing);
    rank->n_missing -= (uint32_t)len;
    for (size_t k = 0; k < len && rank->n_kept < sizeof rank->count; k++)
        rank->count[rank->n_kept++] = bytes[k];
    return rank->n_missing == 0 && put_next(r, rank, m);
}

size_t ranks_n_missing(const struct ranks *r, unsigned i)
{
    return r->list[i].n_missing;
}

bool ranks_next_phase(struct ranks *r)
{
    char line[16];
    printf("phase %s requests %" PRIu64 " seconds %.4f\n", names[r->phase], r->n_requests,
           (double)(load_now_ns() - r->begun_ns) * 1e-9);
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL)
        return false;
    do
        r->phase++;
    while ((r->phase == RANKS_BARRIER && r->n_barriers == 0) ||
           (r->phase == RANKS_GATHER && r->n_gets == 0));
    r->n_done = 0;
    r->n_requests = 0;
    r->begun_ns = load_now_ns();
    return r->phase < RANKS_OVER;
}
