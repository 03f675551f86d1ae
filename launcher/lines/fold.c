/* Lines are held in a ring, numbered from `first` to `end` in the order in which they came.
 * fold_add() lets a line join one that is held, if the text is the same and the rank has not
 * written anything later (next_of); else it is held itself. fold_take() hands out the oldest when
 * all ranks have written it, when its time is over, or when the ring is full. Read fold_add()
 * first, then fold_take(). */
#include "fold.h"

#include "common/clock.h"
#include "common/hash.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct held {
    struct fold_line line; /* its text is owned */
    uint64_t hash;
    uint64_t due_ms;
};

struct fold {
    int n_ranks;
    uint64_t hold_ms;
    uint64_t first, end; /* of those that are held: numbers that only grow */
    size_t n_bytes;
    struct fold_line taken; /* what was lent */
    struct held held[FOLD_LINES];
    uint64_t next_of[]; /* by rank: its next line may join those from this number on */
};

struct fold *fold_create(int n_ranks, uint64_t hold_ms)
{
    struct fold *f = calloc(1, sizeof *f + (size_t)n_ranks * sizeof f->next_of[0]);
    if (f == NULL)
        return NULL;
    f->n_ranks = n_ranks;
    f->hold_ms = hold_ms;
    return f;
}

static struct held *held_at(struct fold *f, uint64_t number)
{
    return &f->held[number % FOLD_LINES];
}

void fold_destroy(struct fold *f)
{
    if (f == NULL)
        return;
    for (uint64_t i = f->first; i < f->end; i++)
        free(held_at(f, i)->line.text);
    free(f->taken.text);
    free(f);
}

static bool is_over(const struct fold *f)
{
    return f->end - f->first >= FOLD_LINES || f->n_bytes > FOLD_BYTES;
}

/* returns f->end: none */
static uint64_t find_same(struct fold *f, int rank, const char *text, size_t n, uint64_t hash)
{
    uint64_t i = f->next_of[rank] > f->first ? f->next_of[rank] : f->first;
    for (; i < f->end; i++) {
        const struct held *h = held_at(f, i);
        if (h->hash == hash && h->line.n == n && memcmp(h->line.text, text, n) == 0)
            break;
    }
    return i;
}

static int hold(struct fold *f, const char *text, size_t n, uint64_t hash, uint64_t now_ms)
{
    char *copy = malloc(n + 1);
    if (copy == NULL || f->end - f->first == FOLD_LINES) {
        free(copy);
        return -ENOMEM;
    }
    memcpy(copy, text, n);
    *held_at(f, f->end++) =
        (struct held){.line = {.text = copy, .n = n}, .hash = hash, .due_ms = now_ms + f->hold_ms};
    f->n_bytes += n;
    return 0;
}

int fold_add(struct fold *f, int rank, const char *text, size_t n, uint64_t now_ms)
{
    uint64_t hash = co_hash_bytes(CO_HASH_START, text, n);
    uint64_t number = find_same(f, rank, text, n, hash);
    if (number == f->end) {
        int rc = hold(f, text, n, hash, now_ms);
        if (rc < 0)
            return rc;
    }
    struct fold_line *line = &held_at(f, number)->line;
    line->ranks[rank / 64] |= UINT64_C(1) << rank % 64;
    line->n_ranks++;
    f->next_of[rank] = number + 1;
    return 0;
}

const struct fold_line *fold_take(struct fold *f, uint64_t now_ms, bool all)
{
    const struct held *h = held_at(f, f->first);
    if (f->first == f->end ||
        (!all && h->line.n_ranks < f->n_ranks && now_ms < h->due_ms && !is_over(f)))
        return NULL;
    free(f->taken.text);
    f->taken = h->line;
    f->n_bytes -= h->line.n;
    f->first++;
    return &f->taken;
}

uint64_t fold_due_ms(const struct fold *f)
{
    return f->first < f->end ? f->held[f->first % FOLD_LINES].due_ms : CO_NEVER_MS;
}

static bool has(const struct fold_line *line, int rank)
{
    return rank < FOLD_RANKS_MAX && (line->ranks[rank / 64] >> rank % 64 & 1) != 0;
}

char *fold_print_ranks(const struct fold_line *line, int first, char *to, size_t n)
{
    static const char more[] = "...";
    size_t len = 0;
    to[0] = '\0';
    for (int i = 0; i < FOLD_RANKS_MAX; i++) {
        char range[32];
        int last = i;
        if (!has(line, i))
            continue;
        while (has(line, last + 1))
            last++;
        const char *comma = len > 0 ? "," : "";
        int need = snprintf(range, sizeof range, last > i ? "%s%d-%d" : "%s%d", comma, first + i,
                            first + last);
        if (len + (size_t)need + sizeof more > n) {
            snprintf(to + len, n - len, "%s", more);
            return to;
        }
        strcpy(to + len, range);
        len += (size_t)need;
        i = last;
    }
    return to;
}
