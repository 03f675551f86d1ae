#include "replay.h"

#include "common/error.h"

#include <errno.h>
#include <inttypes.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

struct death { /* of a rank */
    uint32_t rank, node;
    unsigned line;
    int status;
    bool is_cause; /* of its generation's end; else a consequence, or the job's own */
    bool has_step;
    bool is_done; /* it was repeated */
    uint64_t step;
};

struct place {                 /* of a node */
    bool is_taken, is_stopped; /* its ranks were told to stop: what ends from then on is no cause */
    bool goes;                 /* it is not in the next generation */
    bool has_ended;            /* it has told the job's end */
    bool is_done;              /* its part was repeated */
    unsigned line;
    uint32_t node; /* its number */
    uint64_t stay;
    uint32_t first_rank, n_local;
    enum replay_why why;
    int sig;
    uint32_t blamed; /* of a FAILURE */
};

/* A file may tell of many nodes and ranks, and of each more than once: nothing is looked for in
 * a list. Trees are sorted, and not hashed, for whoever wrote the file may have chosen the
 * numbers. */
struct place_key {
    uint32_t node;
    size_t at; /* in the list of places */
};

struct beginning { /* of a rank */
    uint32_t rank;
    unsigned line;
};

struct list {
    void *items; /* owned */
    size_t n, cap;
};

struct generation {
    unsigned line; /* 0: nothing tells of it */
    uint32_t n_nodes, world;
    bool has_before, has_after, lives;
    uint64_t before, after;
    uint32_t n_joining;
    bool holds;
    uint64_t hold;
    bool knows_follow;  /* its ranks, or some, live on, and have met in a later generation ... */
    uint64_t follow;    /* ... which began behind this step */
    struct list places; /* struct place, of nodes that have told something */
    void *by_node;      /* a tree of place_key, owned; of the places */
    struct list deaths; /* struct death, in the order of their records */
    struct list began;  /* struct beginning */
};

struct replay {
    struct list generations; /* struct generation, by their number */
    size_t n_records;
    bool has_ended, has_steps, is_single;
    uint32_t n_single; /* ranks of a job of one node */
};

/* Room for one more. returns where; NULL without memory */
static void *append(struct list *l, size_t bytes)
{
    if (l->n == l->cap) {
        size_t cap = l->cap > 0 ? 2 * l->cap : 4;
        void *items = realloc(l->items, cap * bytes);
        if (items == NULL)
            return NULL;
        l->items = items;
        l->cap = cap;
    }
    void *at = (char *)l->items + l->n++ * bytes;
    memset(at, 0, bytes);
    return at;
}

static int compare_keys(const void *a, const void *b)
{
    const uint32_t x = ((const struct place_key *)a)->node, y = ((const struct place_key *)b)->node;
    return (x > y) - (x < y);
}

static struct place *find_place(const struct generation *g, uint32_t node)
{
    const struct place_key key = {.node = node};
    void *const *found = tfind(&key, &g->by_node, compare_keys);
    struct place *all = g->places.items;
    return found != NULL ? &all[(*(struct place_key *const *)found)->at] : NULL;
}

static bool add_key(struct generation *g, uint32_t node, size_t at)
{
    struct place_key *key = malloc(sizeof *key);
    if (key == NULL)
        return false;
    *key = (struct place_key){.node = node, .at = at};
    if (tsearch(key, &g->by_node, compare_keys) != NULL)
        return true;
    free(key);
    return false;
}

/* The one that is there, or a new one. NULL without memory */
static struct place *place_of(struct generation *g, uint32_t node)
{
    struct place *p = find_place(g, node);
    if (p != NULL)
        return p;
    p = append(&g->places, sizeof *p);
    if (p == NULL)
        return NULL;
    p->node = node;
    if (add_key(g, node, g->places.n - 1))
        return p;
    g->places.n--;
    return NULL;
}

struct replay *replay_create(void)
{
    return calloc(1, sizeof(struct replay));
}

/* NULL: nothing tells of it */
static struct generation *generation_at(const struct replay *r, uint32_t number)
{
    struct generation *all = r->generations.items;
    return number < r->generations.n && all[number].line > 0 ? &all[number] : NULL;
}

void replay_destroy(struct replay *r)
{
    struct generation *all = r != NULL ? r->generations.items : NULL;
    for (size_t i = 0; r != NULL && i < r->generations.n; i++) {
        free(all[i].places.items);
        tdestroy(all[i].by_node, free);
        free(all[i].deaths.items);
        free(all[i].began.items);
    }
    free(all);
    free(r);
}

/* --- Records --- */

static int no_memory(struct co_error *err)
{
    return co_fail(err, -ENOMEM, "no memory for a job's history");
}

static int refuse_bounds(const struct replay_record *w, struct co_error *err)
{
    return co_fail(err, -EINVAL, "%u: a number is out of bounds", w->line);
}

static bool is_within(const struct replay_record *w)
{
    return w->generation < REPLAY_MAX_GENERATIONS && w->node < REPLAY_MAX_NODES &&
           w->rank < REPLAY_MAX_RANK && w->before <= REPLAY_MAX_STEPS &&
           w->after <= REPLAY_MAX_STEPS;
}

static int add_start(struct replay *r, const struct replay_record *w)
{
    r->n_single = w->world;
    return 0;
}

static int add_rank(struct generation *g, const struct replay_record *w, struct co_error *err)
{
    struct beginning *next = append(&g->began, sizeof *next);
    if (next == NULL)
        return no_memory(err);
    *next = (struct beginning){.rank = w->rank, .line = w->line};
    return 0;
}

static int check_place(const struct generation *g, const struct replay_record *w,
                       struct co_error *err)
{
    if (w->n_nodes < 1 || w->n_nodes > REPLAY_MAX_NODES || w->node >= w->n_nodes || w->world < 1 ||
        w->world > REPLAY_MAX_RANK || w->n_local < 1 || w->n_local > REPLAY_MAX_LOCAL ||
        w->first_rank > w->world || w->n_local > w->world - w->first_rank)
        return refuse_bounds(w, err);
    if (g->n_nodes != 0 && (g->n_nodes != w->n_nodes || g->world != w->world))
        return co_fail(err, -EINVAL,
                       "%u: generation %" PRIu32 " has %" PRIu32 " nodes and %" PRIu32
                       " ranks here, and line %u says otherwise",
                       w->line, w->generation, w->n_nodes, w->world, g->line);
    return 0;
}

static int add_place(struct generation *g, const struct replay_record *w, struct co_error *err)
{
    int rc = check_place(g, w, err);
    struct place *p = rc == 0 ? place_of(g, w->node) : NULL;
    if (rc < 0)
        return rc;
    if (p == NULL)
        return no_memory(err);
    if (p->is_taken)
        return co_fail(err, -EINVAL,
                       "%u: generation %" PRIu32 " has a node %" PRIu32
                       " already, in line %u: the file has more than one run",
                       w->line, w->generation, w->node, p->line);
    *p = (struct place){.is_taken = true,
                        .line = w->line,
                        .node = w->node,
                        .stay = w->stay,
                        .first_rank = w->first_rank,
                        .n_local = w->n_local};
    g->n_nodes = w->n_nodes;
    g->world = w->world;
    return 0;
}

static int add_death(struct generation *g, const struct replay_record *w, struct co_error *err)
{
    struct place *p = place_of(g, w->node);
    struct death *d = p != NULL && w->status != 0 ? append(&g->deaths, sizeof *d) : NULL;
    if (w->status == 0 && p != NULL)
        return 0;
    if (d == NULL)
        return no_memory(err);
    *d = (struct death){.rank = w->rank,
                        .node = w->node,
                        .line = w->line,
                        .status = w->status,
                        .is_cause = !p->is_stopped && !w->lost_peer,
                        .has_step = w->is_known,
                        .step = w->after};
    return 0;
}

/* The first one counts: others follow from it. */
static int add_stop(struct generation *g, const struct replay_record *w, struct co_error *err)
{
    struct place *p = place_of(g, w->node);
    if (p == NULL)
        return no_memory(err);
    if (!p->is_stopped) {
        p->is_stopped = true;
        p->why = w->why;
        p->sig = w->sig;
        p->blamed = w->rank;
    }
    return 0;
}

/* What a node has not heard of, another one may know: the most counts. */
static int add_steps(struct replay *r, struct generation *g, const struct replay_record *w)
{
    g->has_before |= w->is_known;
    if (w->is_known && w->before > g->before)
        g->before = w->before;
    g->has_after = r->has_steps = true;
    if (w->after > g->after)
        g->after = w->after;
    g->lives |= w->lives;
    return 0;
}

static int add_end(struct replay *r, struct generation *g, const struct replay_record *w,
                   struct co_error *err)
{
    struct place *p = place_of(g, w->node);
    if (p == NULL)
        return no_memory(err);
    r->has_ended = p->has_ended = true;
    return 0;
}

int replay_add(struct replay *r, const struct replay_record *w, struct co_error *err)
{
    if (!is_within(w) || r->n_records == REPLAY_MAX_RECORDS)
        return refuse_bounds(w, err);
    struct generation *g = NULL;
    while (r->generations.n <= w->generation)
        if (append(&r->generations, sizeof *g) == NULL)
            return no_memory(err);
    g = (struct generation *)r->generations.items + w->generation;
    r->n_records++;
    if (g->line == 0)
        g->line = w->line;
    switch (w->type) {
    case REPLAY_START:
        return add_start(r, w);
    case REPLAY_BEGAN:
        return add_rank(g, w, err);
    case REPLAY_PLACE:
        return add_place(g, w, err);
    case REPLAY_EXIT:
        return add_death(g, w, err);
    case REPLAY_STOP:
        return add_stop(g, w, err);
    case REPLAY_STEPS:
        return add_steps(r, g, w);
    case REPLAY_END:
        break;
    }
    return add_end(r, g, w, err);
}

/* --- What they mean --- */

static bool is_last(const struct replay *r, uint32_t number)
{
    return number + 1 == r->generations.n;
}

static int compare_stays(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

struct stays { /* the ddpruns of a generation, sorted */
    uint64_t *of;
    size_t n;
};

/* returns   false: no memory; else free() them */
static bool find_stays(const struct generation *g, struct stays *ret)
{
    const struct place *all = g->places.items;
    *ret = (struct stays){.of = malloc((g->places.n + 1) * sizeof *ret->of)};
    for (size_t i = 0; ret->of != NULL && i < g->places.n; i++)
        if (all[i].is_taken)
            ret->of[ret->n++] = all[i].stay;
    if (ret->n > 0)
        qsort(ret->of, ret->n, sizeof *ret->of, compare_stays);
    return ret->of != NULL;
}

static bool is_in(const struct stays *s, uint64_t stay)
{
    return bsearch(&stay, s->of, s->n, sizeof stay, compare_stays) != NULL;
}

/* Behind a generation some places go, and others come: also those who died before they could tell.
 *
 * returns   0, -ENOMEM */
static int find_moves(struct generation *g, const struct generation *next, struct co_error *err)
{
    struct stays before, after;
    struct place *all = g->places.items;
    const bool has_before = find_stays(g, &before), has_after = find_stays(next, &after);
    uint32_t n_stay = 0;
    for (size_t i = 0; has_before && has_after && i < g->places.n; i++)
        all[i].goes = all[i].is_taken && !is_in(&after, all[i].stay);
    for (size_t i = 0; has_before && has_after && i < after.n; i++)
        n_stay += is_in(&before, after.of[i]);
    g->n_joining = next->n_nodes - n_stay;
    free(before.of);
    free(after.of);
    return has_before && has_after ? 0 : no_memory(err);
}

/* Behind the last generation is the job's end, which who was killed did not tell. */
static int find_who_goes(const struct replay *r, struct generation *g,
                         const struct generation *next, struct co_error *err)
{
    struct place *all = g->places.items;
    if (next != NULL)
        return find_moves(g, next, err);
    for (size_t i = 0; i < g->places.n; i++)
        all[i].goes = all[i].why == REPLAY_WHY_SIGNAL ||
                      (all[i].is_taken && r->has_ended && !all[i].has_ended);
    return 0;
}

static int compare_beginnings(const void *a, const void *b)
{
    const struct beginning *x = a, *y = b;
    return x->rank != y->rank ? (x->rank > y->rank) - (x->rank < y->rank)
                              : (x->line > y->line) - (x->line < y->line);
}

/* Of several that began twice the first in the file. */
static int check_beginnings(struct generation *g, uint32_t number, struct co_error *err)
{
    struct beginning *all = g->began.items;
    const struct beginning *second = NULL;
    if (g->began.n > 0)
        qsort(all, g->began.n, sizeof *all, compare_beginnings);
    for (size_t i = 1; i < g->began.n; i++)
        if (all[i].rank == all[i - 1].rank && (second == NULL || all[i].line < second->line))
            second = &all[i];
    if (second == NULL)
        return 0;
    return co_fail(err, -EINVAL,
                   "%u: rank %" PRIu32 " starts a second time in generation %" PRIu32
                   ": the file has more than one run",
                   second->line, second->rank, number);
}

static uint32_t n_taken(const struct generation *g)
{
    const struct place *all = g->places.items;
    uint32_t n = 0;
    for (size_t i = 0; i < g->places.n; i++)
        n += all[i].is_taken;
    return n;
}

/* A rank that goes with its node is not the cause; one that its node blames is. */
static void judge_deaths(struct generation *g)
{
    struct death *d = g->deaths.items;
    for (size_t i = 0; i < g->deaths.n; i++) {
        const struct place *p = find_place(g, d[i].node);
        d[i].is_cause |= p->why == REPLAY_WHY_FAILURE && p->blamed == d[i].rank;
        d[i].is_cause &= !p->goes;
    }
}

static bool has_cause(const struct generation *g)
{
    const struct place *p = g->places.items;
    const struct death *d = g->deaths.items;
    bool any = g->n_joining > 0 || n_taken(g) < g->n_nodes;
    for (size_t i = 0; i < g->places.n; i++)
        any |= p[i].goes || p[i].why == REPLAY_WHY_RESTART;
    for (size_t i = 0; i < g->deaths.n; i++)
        any |= d[i].is_cause;
    return any;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* As far as anybody has come, as far as that is known. */
static uint64_t most_steps(const struct generation *g, const struct generation *before)
{
    const struct death *d = g->deaths.items;
    uint64_t most = larger(g->before, g->after);
    for (size_t i = 0; i < g->deaths.n; i++)
        if (d[i].is_cause && d[i].has_step)
            most = larger(most, d[i].step);
    if (before != NULL && before->lives && before->holds) /* of one whose ranks never met */
        most = larger(most, before->hold);
    return most;
}

/* Where ranks live on, what counted is what the next ones began with: a step that only the dead had
 * completed is none. */
static uint64_t find_end(const struct replay *r, uint32_t number)
{
    const struct generation *all = r->generations.items;
    if (all[number].knows_follow)
        return all[number].follow;
    return most_steps(&all[number], number > 0 ? &all[number - 1] : NULL);
}

/* From the last one on, since ranks may live through several before they meet. */
static void find_followers(struct replay *r)
{
    struct generation *all = r->generations.items;
    for (size_t i = r->generations.n; i-- > 1;) {
        struct generation *g = &all[i - 1];
        const struct generation *next = &all[i];
        g->knows_follow = g->lives && (next->has_before || next->knows_follow);
        g->follow = next->has_before ? next->before : next->follow;
    }
}

static int check_nodes(const struct generation *g, uint32_t number, struct co_error *err)
{
    const uint32_t n = n_taken(g);
    if (n == g->n_nodes || !g->has_after || g->after == g->before)
        return 0; /* a node may have died before it could tell that it took part */
    return co_fail(err, -EINVAL,
                   "%u: generation %" PRIu32 " has %" PRIu32
                   " nodes, and the file tells of %" PRIu32
                   ": put the events of all nodes into one",
                   g->line, number, g->n_nodes, n);
}

static int finish_generation(struct replay *r, uint32_t number, struct co_error *err)
{
    struct generation *g = generation_at(r, number);
    const struct generation *next = generation_at(r, number + 1);
    if (g == NULL)
        return co_fail(err, -EINVAL, "1: nothing tells of generation %" PRIu32, number);
    int rc = check_beginnings(g, number, err);
    if (rc == 0 && !r->is_single)
        rc = check_nodes(g, number, err);
    if (rc == 0)
        rc = find_who_goes(r, g, next, err);
    if (rc < 0)
        return rc;
    judge_deaths(g);
    g->holds = has_cause(g);
    if (!g->holds && !is_last(r, number))
        return co_fail(err, -EINVAL, "%u: nothing tells why generation %" PRIu32 " ended", g->line,
                       number);
    if (g->holds && !r->has_steps)
        return co_fail(err, -EINVAL,
                       "%u: no rank has told its steps: only what happened to programs of libddp "
                       "can be repeated",
                       g->line);
    if (g->holds)
        g->hold = find_end(r, number);
    return 0;
}

static void note_single(struct replay *r)
{
    struct generation *all = r->generations.items;
    r->is_single = true;
    for (size_t i = 0; i < r->generations.n; i++)
        r->is_single &= n_taken(&all[i]) == 0;
    for (size_t i = 0; r->is_single && i < r->generations.n; i++)
        all[i].world = i == 0 ? r->n_single : 0; /* it may have shrunk */
}

int replay_finish(struct replay *r, struct co_error *err)
{
    int rc = r->generations.n > 0 ? 0 : co_fail(err, -EINVAL, "1: there are no events of a job");
    note_single(r);
    find_followers(r);
    for (uint32_t i = 0; rc == 0 && i < r->generations.n; i++)
        rc = finish_generation(r, i, err);
    return rc;
}

/* --- Asking --- */

uint32_t replay_n_generations(const struct replay *r)
{
    return (uint32_t)r->generations.n;
}

bool replay_get(const struct replay *r, uint32_t number, struct replay_shape *ret)
{
    const struct generation *g = generation_at(r, number);
    if (g == NULL)
        return false;
    *ret = (struct replay_shape){.line = g->line,
                                 .n_nodes = r->is_single ? 1 : g->n_nodes,
                                 .world = g->world,
                                 .has_before = g->has_before,
                                 .before = g->before,
                                 .n_joining = g->n_joining};
    return true;
}

bool replay_find_hold(const struct replay *r, uint32_t number, uint64_t *ret_steps)
{
    const struct generation *g = generation_at(r, number);
    if (g == NULL || !g->holds)
        return false;
    *ret_steps = g->hold;
    return true;
}

/* --- Doing --- */

/* All that run wait, and some do. */
static bool all_wait(const struct replay_view *v)
{
    bool any = false;
    for (uint32_t i = 0; i < v->n_local; i++) {
        if (v->runs[i] && !v->held[i])
            return false;
        any |= v->runs[i];
    }
    return any;
}

static size_t kill_ranks(struct generation *g, const struct replay_view *v,
                         struct replay_action *ret)
{
    struct death *d = g->deaths.items;
    size_t n = 0;
    for (size_t i = 0; i < g->deaths.n && n < REPLAY_MAX_DEEDS; i++) {
        const uint32_t local = d[i].rank - v->first_rank; /* or far above n_local */
        if (!d[i].is_cause || d[i].is_done || local >= v->n_local || !v->held[local])
            continue;
        d[i].is_done = true;
        ret[n++] =
            (struct replay_action){.type = REPLAY_KILL, .rank = local, .status = d[i].status};
    }
    return n;
}

/* What this node has to do besides. returns whether there is something */
static bool find_part(const struct generation *g, const struct place *p,
                      const struct replay_view *v, struct replay_action *ret)
{
    *ret = (struct replay_action){.type = REPLAY_DIE};
    if (p == NULL || (g->n_nodes > 0 && !p->is_taken))
        return g->n_nodes > 0; /* it has left no trace */
    if (p->why == REPLAY_WHY_SIGNAL)
        *ret = (struct replay_action){.type = REPLAY_SIGNAL, .sig = p->sig};
    else if (p->why == REPLAY_WHY_RESTART)
        ret->type = REPLAY_RESTART;
    else if (!p->goes && v->node == 0 && g->n_joining > 0)
        *ret = (struct replay_action){.type = REPLAY_AWAIT, .n_nodes = g->n_joining};
    return p->goes || ret->type != REPLAY_DIE;
}

size_t replay_look(struct replay *r, const struct replay_view *v, struct replay_action *ret)
{
    struct generation *g = generation_at(r, v->generation);
    if (g == NULL || !g->holds)
        return 0;
    size_t n = kill_ranks(g, v, ret);
    struct place *p = n == 0 && all_wait(v) ? place_of(g, v->node) : NULL;
    if (p == NULL || p->is_done || !find_part(g, p, v, ret))
        return n;
    p->is_done = true;
    return 1;
}
