/* hang.c - which rank do the others wait for?
 *
 * Read hang_blame() first. hang_note() keeps for each rank since when its page and its output are
 * unchanged. find_facts() counts which ranks wait, are missing, or move. If that is one of the
 * three cases of hang.h, find_worst() weighs the evidence against each rank (enum weight) and takes
 * the rank with the most; the finding notes if it is only a guess. */
#include "hang.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { LOOKS = 8, SHORTEST_MS = 10, LONGEST_MS = 500 }; /* within the timeout */
/* The last looks show what a rank does now: before them it may have been importing modules. */
enum { BUSY_LOOKS = 4, BUSY_PERCENT = 25 }; /* of a CPU; less where ranks share one */

struct use { /* of the CPU, as one look shows it */
    bool is_runnable;
    uint64_t at_ms, cpu_ms;
};

struct rank { /* when it was last seen to change */
    bool has_page;
    uint64_t digest;
    uint64_t page_ms, any_ms;    /* its page; that, or its output */
    bool has_moved;              /* since time began again: the first movement takes longer */
    struct use uses[BUSY_LOOKS]; /* the last ones, in a ring */
    unsigned n_uses;             /* all of them */
};

struct hang {
    int n;
    uint64_t timeout_ms; /* the longest one */
    bool learns;
    uint64_t longest_ms; /* that a movement took */
    unsigned n_moves;    /* HANG_LEARN_MOVES at most */
    bool has_others;
    struct rank ranks[];
};

uint64_t hang_interval_ms(uint64_t timeout_ms)
{
    const uint64_t ms = timeout_ms / LOOKS;
    return ms < SHORTEST_MS ? SHORTEST_MS : ms > LONGEST_MS ? LONGEST_MS : ms;
}

struct hang *hang_create(int n_ranks, uint64_t timeout_ms, bool learns)
{
    struct hang *h = calloc(1, sizeof *h + (size_t)n_ranks * sizeof h->ranks[0]);
    if (h == NULL)
        return NULL;
    h->n = n_ranks;
    h->timeout_ms = timeout_ms;
    h->learns = learns;
    return h;
}

uint64_t hang_timeout_ms(const struct hang *h)
{
    uint64_t ms = h->longest_ms * HANG_LEARN_FACTOR;
    if (!h->learns || h->n_moves < HANG_LEARN_MOVES)
        return h->timeout_ms;
    ms = ms > HANG_LEARN_MIN_MS ? ms : HANG_LEARN_MIN_MS;
    return ms < h->timeout_ms ? ms : h->timeout_ms;
}

void hang_destroy(struct hang *h)
{
    free(h);
}

void hang_renew(struct hang *h, bool has_others, uint64_t now_ms)
{
    h->has_others = has_others;
    for (int i = 0; i < h->n; i++)
        h->ranks[i] = (struct rank){.page_ms = now_ms, .any_ms = now_ms};
}

/* --- facts ------------------------------------------------------------------------------------ */

static uint64_t since(uint64_t then_ms, uint64_t now_ms)
{
    return now_ms > then_ms ? now_ms - then_ms : 0;
}

static void note_move(struct hang *h, struct rank *r, uint64_t from_ms, uint64_t to_ms)
{
    if (to_ms <= from_ms)
        return;
    if (r->has_moved && to_ms - from_ms > h->longest_ms)
        h->longest_ms = to_ms - from_ms;
    if (r->has_moved && h->n_moves < HANG_LEARN_MOVES)
        h->n_moves++;
    r->has_moved = true;
}

static void note_rank(struct hang *h, struct rank *r, const struct hang_look *look, uint64_t now_ms)
{
    const uint64_t before_ms = look->has_page ? r->page_ms : r->any_ms;
    if (look->has_page != r->has_page || (look->has_page && look->digest != r->digest))
        r->page_ms = now_ms;
    r->has_page = look->has_page;
    r->digest = look->digest;
    if (r->page_ms > r->any_ms)
        r->any_ms = r->page_ms;
    if (look->output_ms > r->any_ms)
        r->any_ms = look->output_ms;
    note_move(h, r, before_ms, look->has_page ? r->page_ms : r->any_ms);
    r->uses[r->n_uses++ % BUSY_LOOKS] =
        (struct use){.is_runnable = look->is_runnable, .at_ms = now_ms, .cpu_ms = look->cpu_ms};
}

int hang_cpu_percent(const struct hang *h, int rank)
{
    const struct rank *r = &h->ranks[rank];
    if (r->n_uses < BUSY_LOOKS)
        return -1;
    const struct use *from = &r->uses[r->n_uses % BUSY_LOOKS];
    const struct use *to = &r->uses[(r->n_uses - 1) % BUSY_LOOKS];
    const uint64_t ms = since(from->at_ms, to->at_ms);
    const uint64_t percent = ms > 0 ? since(from->cpu_ms, to->cpu_ms) * 100 / ms : 0;
    return from->cpu_ms == 0 ? -1 : percent > INT_MAX ? INT_MAX : (int)percent;
}

/* It computes: it uses a CPU, or its first thread never sleeps, which one that has to wait long for
 * a CPU does not do either. */
static bool is_busy(const struct hang *h, int rank)
{
    const struct rank *r = &h->ranks[rank];
    unsigned n_runnable = 0;
    for (unsigned i = 0; i < BUSY_LOOKS; i++)
        n_runnable += r->uses[i].is_runnable;
    return n_runnable == BUSY_LOOKS || hang_cpu_percent(h, rank) >= BUSY_PERCENT;
}

static bool is_overdue(const struct hang *h, int rank, uint64_t now_ms)
{
    return since(h->ranks[rank].page_ms, now_ms) >= hang_timeout_ms(h);
}

/* Its page also shows in which calls it is. */
static bool has_calls(const struct hang_look *look)
{
    return look->has_page && !look->progress.only_steps;
}

/* How many run, and how many of them have a page with calls. */
static int count_looks(const struct hang *h, const struct hang_look *looks, int *ret_pages)
{
    int n = 0;
    *ret_pages = 0;
    for (int i = 0; i < h->n; i++) {
        n += looks[i].runs;
        *ret_pages += looks[i].runs && has_calls(&looks[i]);
    }
    return n;
}

/* One that has come, and made no call yet, while others have not come: it waits for them. */
static bool is_waiting(const struct hang_look *look, bool all_have_pages)
{
    return look->runs && has_calls(look) &&
           (look->progress.waits || (!all_have_pages && look->progress.n_calls == 0));
}

struct facts {
    int n_running, n_pages;
    int n_waiting;  /* and have done so for the timeout */
    int n_missing;  /* neither wait nor move */
    int n_moving;   /* their pages changed within the timeout */
    bool is_silent; /* no rank that runs did anything within it, as far as can be seen */
};

static struct facts find_facts(const struct hang *h, const struct hang_look *looks, uint64_t now_ms)
{
    struct facts f = {.is_silent = true};
    f.n_running = count_looks(h, looks, &f.n_pages);
    const bool all_have_pages = f.n_pages == f.n_running;
    for (int i = 0; i < h->n; i++) {
        if (!looks[i].runs)
            continue;
        f.is_silent = f.is_silent && since(h->ranks[i].any_ms, now_ms) >= hang_timeout_ms(h);
        if (!is_overdue(h, i, now_ms))
            f.n_moving++;
        else if (is_waiting(&looks[i], all_have_pages))
            f.n_waiting++;
        else
            f.n_missing++;
    }
    return f;
}

static bool some_hang(const struct facts *f)
{
    if (f->n_running == 0)
        return false;
    return (f->n_waiting > 0 && (f->n_missing > 0 || f->n_moving == 0)) || f->is_silent;
}

bool hang_note(struct hang *h, const struct hang_look *looks, uint64_t now_ms)
{
    for (int i = 0; i < h->n; i++)
        if (looks[i].runs)
            note_rank(h, &h->ranks[i], &looks[i], now_ms);
    const struct facts f = find_facts(h, looks, now_ms);
    return some_hang(&f);
}

/* --- the call in which most wait -------------------------------------------------------------- */

static bool same_call(const struct rank_status_call *a, const struct rank_status_call *b)
{
    return a->group == b->group && a->number == b->number && a->kind == b->kind;
}

/* The call in which a rank waits; NULL: not known. */
static const struct rank_status_call *waits_in(const struct hang_look *look)
{
    for (unsigned i = 0; look->has_page && i < look->progress.n_calls; i++)
        if (look->progress.call[i].state == RANK_STATUS_WAITS)
            return &look->progress.call[i];
    return NULL;
}

static int count_in(const struct hang *h, const struct hang_look *looks,
                    const struct rank_status_call *call)
{
    int n = 0;
    for (int i = 0; i < h->n; i++) {
        const struct rank_status_call *own = looks[i].runs ? waits_in(&looks[i]) : NULL;
        n += own != NULL && same_call(own, call);
    }
    return n;
}

static const struct rank_status_call *find_call(const struct hang *h, const struct hang_look *looks)
{
    const struct rank_status_call *most = NULL;
    int n_most = 0;
    for (int i = 0; i < h->n; i++) {
        const struct rank_status_call *own = looks[i].runs ? waits_in(&looks[i]) : NULL;
        const int n = own != NULL ? count_in(h, looks, own) : 0;
        if (n > n_most) {
            most = own;
            n_most = n;
        }
    }
    return most;
}

/* A rank's last call in a group; NULL: it made none. */
static const struct rank_status_call *last_in(const struct hang_look *look, uint16_t group)
{
    for (unsigned i = 0; look->has_page && i < look->progress.n_calls; i++)
        if (look->progress.call[i].group == group)
            return &look->progress.call[i];
    return NULL;
}

/* --- whose fault it is ------------------------------------------------------------------------ */

/* How much speaks against a rank that does not move. Of equals the lowest is it. */
enum weight {
    NOTHING,
    GUESS,   /* no more than against the others */
    HINT,    /* it differs from them, as others may */
    SUSPECT, /* it is not where they are */
    LIKELY,  /* they wait for it, as far as is known */
    STOPPED, /* it cannot move */
};
typedef enum weight weigh(const struct hang *h, const struct hang_look *looks, int rank,
                          const struct rank_status_call *call);

/* Others wait: it is stopped; or one of the group they wait in, as far as is known. */
static enum weight weigh_missing(const struct hang *h, const struct hang_look *looks, int rank,
                                 const struct rank_status_call *call)
{
    const struct hang_look *look = &looks[rank];
    int n_pages;
    if (look->is_stopped)
        return STOPPED;
    if (is_waiting(look, count_looks(h, looks, &n_pages) == n_pages))
        return NOTHING;
    return call == NULL || call->group == 0 || last_in(look, call->group) != NULL ? LIKELY
                                                                                  : SUSPECT;
}

/* All wait: it is stopped, or in another call, the further back the worse. */
static enum weight weigh_waiting(const struct hang *h, const struct hang_look *looks, int rank,
                                 const struct rank_status_call *call)
{
    const struct rank_status_call *own = waits_in(&looks[rank]);
    (void)h;
    if (looks[rank].is_stopped)
        return STOPPED;
    if (call == NULL || (own != NULL && same_call(own, call)))
        return GUESS;
    const struct rank_status_call *last = last_in(&looks[rank], call->group);
    return last != NULL && last->number < call->number ? LIKELY : SUSPECT;
}

/* Do two ranks do the same, as far as the kernel shows? If it does not, they do not count as
 * alike. */
static bool act_alike(const struct hang *h, const struct hang_look *looks, int a, int b)
{
    const bool busy = is_busy(h, a);
    return busy == is_busy(h, b) &&
           (busy || (looks[a].place[0] != '\0' && strcmp(looks[a].place, looks[b].place) == 0));
}

/* How many ranks that run act as this one, itself included. */
static int count_alike(const struct hang *h, const struct hang_look *looks, int rank)
{
    int n = 0;
    for (int i = 0; i < h->n; i++)
        n += looks[i].runs && (i == rank || act_alike(h, looks, rank, i));
    return n;
}

/* returns -1: there is no other */
static int find_other(const struct hang *h, const struct hang_look *looks, int rank)
{
    for (int i = 0; i < h->n; i++)
        if (looks[i].runs && i != rank)
            return i;
    return -1;
}

static enum hang_odd find_odd(const struct hang *h, const struct hang_look *looks, int rank)
{
    if (find_other(h, looks, rank) < 0 || count_alike(h, looks, rank) > 1)
        return HANG_NOT_ODD;
    return is_busy(h, rank) ? HANG_RUNS : looks[rank].place[0] != '\0' ? HANG_SLEEPS : HANG_NOT_ODD;
}

static uint64_t steps_of(const struct hang_look *look)
{
    return look->runs && look->has_page ? look->progress.steps_before + look->progress.steps : 0;
}

static uint64_t most_steps(const struct hang *h, const struct hang_look *looks)
{
    uint64_t most = 0;
    for (int i = 0; i < h->n; i++)
        if (steps_of(&looks[i]) > most)
            most = steps_of(&looks[i]);
    return most;
}

/* No rank reports that it waits. This one is stopped; or it has completed fewer steps than others;
 * or it alone computes, or sleeps elsewhere than all others. With two ranks, each differs from the
 * other: one that waits for a GPU also computes. */
static enum weight weigh_silent(const struct hang *h, const struct hang_look *looks, int rank,
                                const struct rank_status_call *call)
{
    int n_pages;
    (void)call;
    if (looks[rank].is_stopped)
        return STOPPED;
    if (looks[rank].has_page && steps_of(&looks[rank]) < most_steps(h, looks))
        return LIKELY;
    const int n = count_looks(h, looks, &n_pages);
    const enum hang_odd odd = find_odd(h, looks, rank);
    if (odd == HANG_NOT_ODD || (odd == HANG_SLEEPS && n == 2))
        return GUESS;
    const bool is_clear =
        odd == HANG_RUNS || count_alike(h, looks, find_other(h, looks, rank)) == n - 1;
    return is_clear && n > 2 ? SUSPECT : HINT;
}

/* returns the rank with the most evidence against it; -1: none */
static int find_worst(const struct hang *h, const struct hang_look *looks, uint64_t now_ms,
                      weigh *weigh_rank, const struct rank_status_call *call,
                      enum weight *ret_weight, int *ret_alike)
{
    int worst = -1;
    enum weight heaviest = NOTHING;
    *ret_alike = 0;
    for (int i = 0; i < h->n; i++) {
        const bool counts = looks[i].runs && is_overdue(h, i, now_ms);
        const enum weight w = counts ? weigh_rank(h, looks, i, call) : NOTHING;
        if (w > heaviest) {
            worst = i;
            heaviest = w;
            *ret_alike = 0;
        } else if (w == heaviest && w > NOTHING) {
            (*ret_alike)++;
        }
    }
    *ret_weight = heaviest;
    return worst;
}

static void list_waiting(const struct hang *h, const struct hang_look *looks, uint64_t now_ms,
                         bool all_have_pages, struct hang_finding *f)
{
    for (int i = 0; i < h->n; i++) {
        if (i == f->rank || !is_waiting(&looks[i], all_have_pages))
            continue;
        const struct rank_status_call *own = waits_in(&looks[i]);
        if (f->has_call && (own == NULL || !same_call(own, &f->call)))
            continue;
        const uint64_t ms = since(h->ranks[i].page_ms, now_ms);
        f->waiting_ms = ms > f->waiting_ms ? ms : f->waiting_ms;
        if (f->n_waiting < HANG_NAMED)
            f->waiting[f->n_waiting] = i;
        f->n_waiting++;
    }
}

static void tell_calls(const struct hang_look *look, const struct rank_status_call *call,
                       struct hang_finding *f)
{
    const struct rank_status_call *last = call != NULL ? last_in(look, call->group) : NULL;
    if (call == NULL && look->has_page && look->progress.n_calls > 0)
        last = &look->progress.call[0];
    f->has_call = call != NULL;
    f->has_last = last != NULL;
    if (call != NULL)
        f->call = *call;
    if (last != NULL)
        f->last = *last;
}

bool hang_blame(const struct hang *h, const struct hang_look *looks, uint64_t now_ms,
                struct hang_finding *ret)
{
    const struct facts f = find_facts(h, looks, now_ms);
    const bool others_wait = f.n_waiting > 0 && f.n_missing > 0;
    const bool all_wait = f.n_waiting > 0 && f.n_missing == 0 && f.n_moving == 0;
    const struct rank_status_call *call = others_wait || all_wait ? find_call(h, looks) : NULL;
    enum weight weight;
    int n_alike;
    if (!some_hang(&f))
        return false;
    const int rank = find_worst(h, looks, now_ms,
                                others_wait ? weigh_missing
                                : all_wait  ? weigh_waiting
                                            : weigh_silent,
                                call, &weight, &n_alike);
    if (rank < 0 || (h->has_others && !others_wait && !looks[rank].is_stopped))
        return false;
    const bool is_silent = !others_wait && !all_wait;
    const struct rank *r = &h->ranks[rank];
    *ret = (struct hang_finding){
        .kind = is_silent                  ? HANG_SILENT
                : all_wait                 ? HANG_ALL_WAIT
                : !has_calls(&looks[rank]) ? HANG_NOT_JOINED
                                           : HANG_MISSING,
        .rank = rank,
        .is_stopped = looks[rank].is_stopped,
        .is_guess = !others_wait && weight <= HINT && f.n_running > 1,
        .odd = is_silent && weight >= HINT && weight <= SUSPECT ? find_odd(h, looks, rank)
                                                                : HANG_NOT_ODD,
        .has_steps = is_silent && looks[rank].has_page,
        .steps = steps_of(&looks[rank]),
        .most_steps = most_steps(h, looks),
        .still_ms = since(is_silent ? r->any_ms : r->page_ms, now_ms),
        .n_alike = n_alike,
    };
    tell_calls(&looks[rank], call, ret);
    list_waiting(h, looks, now_ms, f.n_pages == f.n_running, ret);
    return true;
}
