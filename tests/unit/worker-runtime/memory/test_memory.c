/* test_memory.c - checkpoints in memory of real ranks: what outlives them is the memory of their
 * nodes, which this process holds as ddprun does. */
#include "segments/checkpoint_memory.h"
#include "tests/unit/worker-runtime/nodes.h"

#include <check.h>
#include <ddp/memory.h>
#include <fcntl.h>
#include <sys/stat.h>

enum { N_WORDS = 700001, TAIL = 11 }; /* no multiple of a piece */

static const struct nodes one_node = {.n = 1, .n_ranks = 2, .size = {2}};
static const struct nodes two_nodes = {.n = 2, .n_ranks = 4, .size = {2, 2}};
static const struct nodes uneven = {.n = 2, .n_ranks = 3, .size = {2, 1}};

static struct store_process store;
static int memories[NODES_MAX];

static void set_up(void)
{
    store_start_at(&store, "127.0.0.1");
    for (int i = 0; i < NODES_MAX; i++)
        ck_assert_int_eq(checkpoint_memory_make(4, 8 << 20, &memories[i], NULL), 0);
}

static void tear_down(void)
{
    store_stop(&store);
    for (int i = 0; i < NODES_MAX; i++)
        close(memories[i]);
}

/* A node is gone, and another one in its place. */
static void replace_node(int node)
{
    close(memories[node]);
    ck_assert_int_eq(checkpoint_memory_make(4, 8 << 20, &memories[node], NULL), 0);
}

static void start_job(struct ranks *r, const struct nodes *n, rank_fn *fn, void *arg)
{
    ranks_init(r, n->n_ranks);
    for (int rank = 0; rank < n->n_ranks; rank++) {
        int node, local;
        nodes_place(n, rank, &node, &local);
        set_number("DDP_MEMORY_FD", memories[node]);
        nodes_start_one(r, n, rank, fn, arg);
    }
}

static void run_job(const struct nodes *n, rank_fn *fn, void *arg)
{
    struct ranks r;
    start_job(&r, n, fn, arg);
    ranks_expect_success(&r);
}

/* --- a state whose content every rank knows --------------------------------------------------- */

struct state {
    uint32_t *words;
    uint8_t tail[TAIL];
    struct ddp_memory_item items[3];
};

static void state_init(struct state *s)
{
    s->words = calloc(N_WORDS, sizeof *s->words);
    s->items[0] = (struct ddp_memory_item){s->words, N_WORDS * sizeof *s->words};
    s->items[1] = (struct ddp_memory_item){NULL, 0};
    s->items[2] = (struct ddp_memory_item){s->tail, TAIL};
}

static uint32_t word_of(int rank, int64_t step, size_t i)
{
    return (uint32_t)(i * 2654435761u) ^ (uint32_t)(rank * 7919 + step);
}

static void state_fill(struct state *s, int rank, int64_t step)
{
    for (size_t i = 0; i < N_WORDS; i++)
        s->words[i] = word_of(rank, step, i);
    memset(s->tail, (int)(rank + step), TAIL);
}

static void state_expect(const struct state *s, int rank, int64_t step)
{
    for (size_t i = 0; i < N_WORDS; i++)
        RANK_CHECK(rank, s->words[i] == word_of(rank, step, i), "word %zu of step %lld", i,
                   (long long)step);
    for (size_t i = 0; i < TAIL; i++)
        RANK_CHECK(rank, s->tail[i] == (uint8_t)(rank + step), "tail");
}

/* --- legs of a training ----------------------------------------------------------------------- */

struct leg {
    int64_t finds;        /* the step that is loaded; -1: none */
    int64_t first, last;  /* saved */
    int came_distance[4]; /* for each rank: how far above its number that of the holder is */
    int copy_distance;    /* 0: no copies are made */
    bool dies;            /* at once, without a wait */
};

static struct ddp_memory *open_memory(struct ddp_group *g)
{
    struct ddp_memory *m = NULL;
    RANK_CHECK(ddp_rank(g), ddp_memory_open(g, &m) == DDP_OK, "open");
    return m;
}

static int run_leg(int rank, void *arg)
{
    const struct leg *leg = arg;
    struct ddp_group *g = rank_init(rank, 60000);
    const int n = ddp_world_size(g);
    struct ddp_memory *m = open_memory(g);
    struct ddp_memory_state found;
    struct state s;
    state_init(&s);
    RANK_CHECK(rank, ddp_memory_found(m, &found) == DDP_OK, "found");
    RANK_CHECK(rank, found.step == leg->finds, "found step %lld", (long long)found.step);
    RANK_CHECK(rank, found.came_from == (rank + leg->came_distance[rank]) % n, "from rank %d",
               found.came_from);
    const int copied_to = leg->copy_distance > 0 ? (rank + leg->copy_distance) % n : -1;
    RANK_CHECK(rank, found.copied_to == copied_to, "copied to %d", found.copied_to);
    if (leg->finds >= 0) {
        RANK_CHECK(rank, found.n_items == 3, "%zu items", found.n_items);
        RANK_CHECK(rank, found.bytes == N_WORDS * 4 + TAIL, "%zu bytes", found.bytes);
        RANK_CHECK(rank, ddp_memory_load(m, s.items, 3) == DDP_OK, "load");
        state_expect(&s, rank, leg->finds);
    }
    for (int64_t step = leg->first; step <= leg->last; step++) {
        state_fill(&s, rank, step);
        RANK_CHECK(rank, ddp_memory_save(m, step, s.items, 3) == DDP_OK, "save");
    }
    if (leg->dies) { /* no copy of the last save may be complete yet */
        RANK_CHECK(rank, ddp_barrier(g) == DDP_OK, "barrier");
        kill(getpid(), SIGKILL);
    }
    RANK_CHECK(rank, ddp_memory_wait(m) == DDP_OK, "wait");
    if (rank % 2 == 0) /* else the group closes it */
        ddp_memory_close(m);
    ddp_finalize(g);
    free(s.words);
    return 0;
}

START_TEST(ranks_that_start_again_load_their_states)
{
    const struct nodes *n = _i == 0 ? &one_node : &two_nodes;
    const int distance = _i == 0 ? 0 : 2;
    run_job(n, run_leg, &(struct leg){-1, 1, 1, .copy_distance = distance});
    run_job(n, run_leg, &(struct leg){1, 2, 4, .copy_distance = distance});
    run_job(n, run_leg, &(struct leg){4, 5, 4, .copy_distance = distance});
    run_job(n, run_leg, &(struct leg){4, 2, 2, .copy_distance = distance}); /* the newest counts */
    run_job(n, run_leg, &(struct leg){2, 1, 0, .copy_distance = distance});
}
END_TEST

START_TEST(ranks_that_are_killed_after_a_save_load_it)
{
    struct ranks r;
    const struct nodes *n = _i == 0 ? &one_node : &two_nodes;
    const int distance = _i == 0 ? 0 : 2;
    start_job(&r, n, run_leg, &(struct leg){-1, 1, 3, .copy_distance = distance, .dies = true});
    ranks_wait(&r);
    run_job(n, run_leg, &(struct leg){3, 1, 0, .copy_distance = distance});
}
END_TEST

START_TEST(a_lost_node_gets_its_states_from_the_copies)
{
    const int node = _i;
    struct leg leg = {7, 8, 9, .copy_distance = 2};
    run_job(&two_nodes, run_leg, &(struct leg){-1, 5, 7, .copy_distance = 2});
    replace_node(node);
    leg.came_distance[2 * node] = leg.came_distance[2 * node + 1] = 2;
    run_job(&two_nodes, run_leg, &leg);
    replace_node(1 - node); /* the next saves were copied to the new node */
    struct leg last = {9, 1, 0, .copy_distance = 2};
    last.came_distance[2 - 2 * node] = last.came_distance[3 - 2 * node] = 2;
    run_job(&two_nodes, run_leg, &last);
}
END_TEST

START_TEST(nodes_that_come_back_in_another_order_get_their_states)
{
    run_job(&two_nodes, run_leg, &(struct leg){-1, 1, 2, .copy_distance = 2});
    const int first = memories[0];
    memories[0] = memories[1];
    memories[1] = first;
    /* what a node has as a copy is its own now */
    run_job(&two_nodes, run_leg, &(struct leg){2, 3, 4, .copy_distance = 2});
    run_job(&two_nodes, run_leg, &(struct leg){4, 1, 0, .copy_distance = 2});
}
END_TEST

START_TEST(another_number_of_ranks_finds_nothing)
{
    run_job(&two_nodes, run_leg, &(struct leg){-1, 1, 2, .copy_distance = 2});
    run_job(&one_node, run_leg, &(struct leg){-1, 3, 3});
    run_job(&two_nodes, run_leg, &(struct leg){-1, 4, 4, .copy_distance = 2});
    run_job(&two_nodes, run_leg, &(struct leg){4, 1, 0, .copy_distance = 2});
}
END_TEST

START_TEST(without_a_place_for_copies_states_stay_on_their_nodes)
{
    run_job(&uneven, run_leg, &(struct leg){-1, 1, 2});
    run_job(&uneven, run_leg, &(struct leg){2, 1, 0});
    replace_node(1);
    run_job(&uneven, run_leg, &(struct leg){-1, 1, 0});
}
END_TEST

/* --- memory for the program ------------------------------------------------------------------- */

enum { LENT_AT = 4096, LENT_BYTES = LENT_AT + N_WORDS * 4, MEMORY_SLOTS_MAX = 5 };

/* The words of a state are in memory that ddprun holds, at another place than in a slot. */
static void *work_in_lent(int rank, struct ddp_memory *m, struct state *s)
{
    void *lent = NULL;
    RANK_CHECK(rank, ddp_memory_alloc(m, LENT_BYTES, &lent) == DDP_OK, "%s", ddp_last_error());
    free(s->words);
    s->words = (uint32_t *)((char *)lent + LENT_AT);
    s->items[0].data = s->words;
    return lent;
}

struct lent_leg {
    int64_t finds, first, last;
    int came_distance; /* as in a leg, of the ranks of node 1 */
};

/* Load into such memory, train in it, save from it, and die. */
static int run_lent_leg(int rank, void *arg)
{
    const struct lent_leg *leg = arg;
    struct ddp_group *g = rank_init(rank, 60000);
    const int n = ddp_world_size(g);
    struct ddp_memory *m = open_memory(g);
    struct ddp_memory_state found;
    struct state s;
    state_init(&s);
    work_in_lent(rank, m, &s);
    memset(s.words, 0xee, N_WORDS * sizeof *s.words); /* what was there is of no use */
    RANK_CHECK(rank, ddp_memory_found(m, &found) == DDP_OK && found.step == leg->finds,
               "found step %lld", (long long)found.step);
    const int distance = ddp_node_rank(g) == 1 ? leg->came_distance : 0;
    RANK_CHECK(rank, found.came_from == (rank + distance) % n, "from rank %d", found.came_from);
    if (leg->finds >= 0) {
        RANK_CHECK(rank, ddp_memory_load(m, s.items, 3) == DDP_OK, "load");
        state_expect(&s, rank, leg->finds);
    }
    for (int64_t step = leg->first; step <= leg->last; step++) {
        state_fill(&s, rank, step);
        RANK_CHECK(rank, ddp_memory_save(m, step, s.items, 3) == DDP_OK, "save");
        state_expect(&s, rank, step);
    }
    RANK_CHECK(rank, ddp_memory_wait(m) == DDP_OK, "wait");
    ddp_barrier(g);                                   /* another rank may be dead already */
    memset(s.words, 0xdd, N_WORDS * sizeof *s.words); /* a step that does not end */
    kill(getpid(), SIGKILL);
    return 1;
}

static void run_lent(const struct nodes *n, const struct lent_leg *leg)
{
    struct ranks r;
    start_job(&r, n, run_lent_leg, (void *)leg);
    ranks_wait(&r);
    for (int rank = 0; rank < n->n_ranks; rank++)
        ck_assert_msg(WIFSIGNALED(r.status[rank]), "rank %d failed", rank);
}

START_TEST(ranks_work_in_memory_that_outlives_them)
{
    const struct nodes *n = _i == 0 ? &one_node : &two_nodes;
    run_lent(n, &(struct lent_leg){-1, 1, 3});
    run_lent(n, &(struct lent_leg){3, 4, 5});
    run_lent(n, &(struct lent_leg){5, 6, 6});
    run_lent(n, &(struct lent_leg){6, 7, 10});
    if (_i == 1)
        replace_node(1);
    run_lent(n, &(struct lent_leg){10, 11, 12, .came_distance = 2 * _i});
    run_job(n, run_leg, &(struct leg){12, 13, 14, .copy_distance = 2 * _i});
    run_lent(n, &(struct lent_leg){14, 15, 15});
}
END_TEST

/* Once the pages of a node are there, restarts need no more of them. */
START_TEST(restarts_use_the_same_pages)
{
    struct stat first, last;
    const struct nodes *n = _i == 0 ? &one_node : &two_nodes;
    run_lent(n, &(struct lent_leg){-1, 1, 4});
    run_lent(n, &(struct lent_leg){4, 5, 8});
    ck_assert_int_eq(fstat(memories[0], &first), 0);
    for (int64_t step = 8; step < 20; step += 4)
        run_lent(n, &(struct lent_leg){step, step + 1, step + 4});
    ck_assert_int_eq(fstat(memories[0], &last), 0);
    /* own states, copies, and what the rank works in */
    const int64_t states = 2 * (_i == 0 ? 3 : 5) * (int64_t)(N_WORDS * 4);
    const int64_t rounded = 2 * MEMORY_SLOTS_MAX * 4096; /* a page for each slot */
    ck_assert_int_le((last.st_blocks - first.st_blocks) * 512, rounded);
    ck_assert_int_le(last.st_blocks * 512, states + 3 * rounded);
}
END_TEST

static int ask_wrongly(int rank, void *arg)
{
    struct ddp_group *g = rank_init(rank, 60000);
    struct ddp_memory *m = open_memory(g);
    struct state s;
    void *second = NULL;
    (void)arg;
    state_init(&s);
    RANK_CHECK(rank, ddp_memory_alloc(m, 0, &second) == DDP_EINVAL, "0 bytes");
    RANK_CHECK(rank, ddp_memory_alloc(m, (8 << 20) + 1, &second) == DDP_EINVAL, "too many");
    RANK_CHECK(rank, strstr(ddp_last_error(), "expected 1 to 8388608") != NULL, "text");
    RANK_CHECK(rank, ddp_memory_alloc(m, 1, NULL) == DDP_EINVAL, "NULL");
    void *const lent = work_in_lent(rank, m, &s);
    RANK_CHECK(rank, ddp_memory_alloc(m, 1, &second) == DDP_EUNSUPPORTED, "a second one");
    state_fill(&s, rank, 1);
    RANK_CHECK(rank, ddp_memory_save(m, 1, s.items, 3) == DDP_OK, "save");
    ddp_memory_close(m);
    m = open_memory(g); /* in the same process: what is lent stays */
    RANK_CHECK(rank, ddp_memory_alloc(m, 1, &second) == DDP_EUNSUPPORTED, "still lent");
    for (int64_t step = 2; step < 7; step++) {
        state_fill(&s, rank, step);
        RANK_CHECK(rank, ddp_memory_save(m, step, s.items, 3) == DDP_OK, "save");
        state_expect(&s, rank, step);
    }
    RANK_CHECK(rank, ddp_memory_alloc(m, 1, &second) == DDP_EINVAL, "after a save");
    RANK_CHECK(rank, strstr(ddp_last_error(), "ddp_memory_save() has been called") != NULL, "text");
    ddp_memory_close(m);
    m = open_memory(g);
    ddp_memory_free(lent);
    RANK_CHECK(rank, ddp_memory_alloc(m, 1, &second) == DDP_OK, "again");
    ddp_memory_free(second);
    ddp_finalize(g);
    return 0;
}

START_TEST(memory_that_is_in_use_is_not_given_twice)
{
    run_job(_i == 0 ? &one_node : &two_nodes, ask_wrongly, NULL);
}
END_TEST

/* --- deaths in the midst of it ---------------------------------------------------------------- */

static int save_for_ever(int rank, void *arg)
{
    const int *ends = arg;
    struct ddp_group *g = rank_init(rank, 60000);
    struct ddp_memory *m = open_memory(g);
    struct state s;
    state_init(&s);
    for (int64_t step = 1;; step++) {
        state_fill(&s, rank, step);
        if (ddp_memory_save(m, step, s.items, 3) != DDP_OK)
            return 0; /* another rank is dead */
        RANK_CHECK(rank, write(ends[1], "x", 1) == 1, "report");
    }
}

static int expect_any(int rank, void *arg)
{
    const int64_t *least = arg;
    struct ddp_group *g = rank_init(rank, 60000);
    struct ddp_memory *m = open_memory(g);
    struct ddp_memory_state found;
    struct state s;
    state_init(&s);
    RANK_CHECK(rank, ddp_memory_found(m, &found) == DDP_OK, "found");
    RANK_CHECK(rank, found.step >= *least, "found step %lld", (long long)found.step);
    RANK_CHECK(rank, ddp_memory_load(m, s.items, 3) == DDP_OK, "load");
    state_expect(&s, rank, found.step);
    const double sum = rank_sum(rank, g, (double)found.step);
    RANK_CHECK(rank, sum == (double)(found.step * ddp_world_size(g)), "steps differ");
    ddp_finalize(g);
    return 0;
}

/* Killed at any moment, also with a whole node: all ranks have the same save. */
START_TEST(a_death_at_any_moment_leaves_a_whole_save)
{
    struct ranks r;
    int ends[2];
    char byte;
    const int n_reports = 12 + 3 * _i;
    ck_assert_int_eq(pipe(ends), 0);
    start_job(&r, &two_nodes, save_for_ever, ends);
    close(ends[1]);
    for (int i = 0; i < n_reports; i++)
        ck_assert_int_eq(read(ends[0], &byte, 1), 1);
    usleep(700 * (unsigned)_i); /* another moment each time */
    ranks_kill(&r);
    ranks_wait(&r);
    while (read(ends[0], &byte, 1) == 1)
        ;
    close(ends[0]);
    if (_i % 2 == 1)
        replace_node(_i / 2 % 2);
    int64_t least = n_reports / 4 - 1; /* the copies of the last one may not be complete */
    run_job(&two_nodes, expect_any, &least);
}
END_TEST

/* --- errors ----------------------------------------------------------------------------------- */

static int expect_unsupported(int rank, void *arg)
{
    struct ddp_group *g = rank_init(rank, 60000);
    struct ddp_memory *m = NULL;
    const char *text = arg;
    if (rank == 1)
        unsetenv("DDP_MEMORY_FD");
    RANK_CHECK(rank, ddp_memory_open(g, &m) == DDP_EUNSUPPORTED, "open");
    RANK_CHECK(rank, strcmp(ddp_last_error(), text) == 0, "text");
    RANK_CHECK(rank, m == NULL && ddp_barrier(g) == DDP_OK, "the group is whole");
    ddp_finalize(g);
    return 0;
}

START_TEST(a_rank_without_memory_is_named)
{
    run_job(
        &one_node, expect_unsupported,
        (void
             *)"ddp_memory_open: rank 1: this process cannot keep checkpoints in memory: start the "
               "job with ddprun --memory-checkpoints SIZE");
}
END_TEST

static int expect_mismatch(int rank, void *arg)
{
    struct ddp_group *g = rank_init(rank, 60000);
    struct ddp_memory *m = NULL;
    (void)arg;
    RANK_CHECK(rank, ddp_memory_open(g, &m) == DDP_EMISMATCH, "open");
    RANK_CHECK(rank, strstr(ddp_last_error(), "give all nodes the same value") != NULL, "text");
    ddp_finalize(g);
    return 0;
}

START_TEST(nodes_with_different_sizes_are_refused)
{
    close(memories[1]);
    ck_assert_int_eq(checkpoint_memory_make(4, 4 << 20, &memories[1], NULL), 0);
    run_job(&two_nodes, expect_mismatch, NULL);
}
END_TEST

static int expect_closed(int rank, void *arg)
{
    struct ddp_group *g = rank_init(rank, 60000);
    struct ddp_memory *m = NULL;
    (void)arg;
    if (rank == 0)
        close(atoi(getenv("DDP_MEMORY_FD")));
    RANK_CHECK(rank, ddp_memory_open(g, &m) == DDP_EENV, "open");
    RANK_CHECK(rank, strstr(ddp_last_error(), "rank 0: DDP_MEMORY_FD: descriptor ") != NULL,
               "text");
    ddp_finalize(g);
    return 0;
}

START_TEST(a_closed_descriptor_is_named)
{
    run_job(&one_node, expect_closed, NULL);
}
END_TEST

static int make_mistakes(int rank, void *arg)
{
    struct ddp_group *g = rank_init(rank, 60000);
    struct ddp_memory *m = open_memory(g);
    struct ddp_memory_state found;
    struct state s;
    size_t bytes;
    (void)arg;
    state_init(&s);
    struct ddp_memory_item big = {s.words, (size_t)1 << 40}, null = {NULL, 1};
    RANK_CHECK(rank, ddp_memory_load(m, s.items, 3) == DDP_EINVAL, "nothing is there");
    RANK_CHECK(rank, ddp_memory_save(m, -1, s.items, 3) == DDP_EINVAL, "step");
    RANK_CHECK(rank, ddp_memory_save(m, 1, NULL, 3) == DDP_EINVAL, "items");
    RANK_CHECK(rank, ddp_memory_save(m, 1, rank == 1 ? &null : s.items, 1) == DDP_EINVAL, "NULL");
    RANK_CHECK(rank, strcmp(ddp_last_error(), "ddp_memory_save: rank 1: item 0 has data NULL") == 0,
               "text");
    RANK_CHECK(rank, ddp_memory_save(m, 1, rank == 0 ? &big : s.items, 1) == DDP_EINVAL, "size");
    RANK_CHECK(rank, strstr(ddp_last_error(), "--memory-checkpoints allows 8388608") != NULL,
               "text");
    state_fill(&s, rank, 2);
    RANK_CHECK(rank, ddp_memory_save(m, 2, s.items, 3) == DDP_OK, "a good one after that");
    RANK_CHECK(rank, ddp_memory_load(m, s.items, 3) == DDP_EINVAL, "after a save");
    ddp_memory_close(m);
    m = open_memory(g);
    RANK_CHECK(rank, ddp_memory_found(m, &found) == DDP_OK && found.step == 2, "found");
    RANK_CHECK(rank, ddp_memory_load(m, s.items, 2) == DDP_EINVAL, "number");
    RANK_CHECK(rank, ddp_memory_item_bytes(m, 3, &bytes) == DDP_EINVAL, "item");
    RANK_CHECK(rank, ddp_memory_item_bytes(m, 2, NULL) == DDP_EINVAL, "NULL");
    RANK_CHECK(rank, ddp_memory_item_bytes(m, 2, &bytes) == DDP_OK && bytes == TAIL, "bytes");
    RANK_CHECK(rank, ddp_memory_read(m, 2, s.tail, TAIL - 1) == DDP_EINVAL, "size");
    RANK_CHECK(rank, ddp_memory_read(m, 2, NULL, TAIL) == DDP_EINVAL, "NULL");
    RANK_CHECK(rank, ddp_memory_read(m, 2, s.tail, TAIL) == DDP_OK, "read");
    ddp_memory_close(m);
    ddp_memory_close(NULL);
    RANK_CHECK(rank, ddp_memory_open(NULL, &m) == DDP_EINVAL, "NULL");
    RANK_CHECK(rank, ddp_memory_open(g, NULL) == DDP_EINVAL, "NULL");
    RANK_CHECK(rank, ddp_memory_found(NULL, &found) == DDP_EINVAL, "NULL");
    RANK_CHECK(rank, ddp_memory_save(NULL, 1, NULL, 0) == DDP_EINVAL, "NULL");
    RANK_CHECK(rank, ddp_memory_wait(NULL) == DDP_EINVAL, "NULL");
    RANK_CHECK(rank, ddp_memory_load(NULL, NULL, 0) == DDP_EINVAL, "NULL");
    ddp_finalize(g);
    free(s.words);
    return 0;
}

START_TEST(mistakes_are_named_and_leave_the_group_whole)
{
    run_job(_i == 0 ? &one_node : &two_nodes, make_mistakes, NULL);
}
END_TEST

TEST_SUITE(memory)
{
    Suite *s = suite_create("memory");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_set_timeout(t, 180);
    tcase_add_loop_test(t, ranks_that_start_again_load_their_states, 0, 2);
    tcase_add_loop_test(t, ranks_that_are_killed_after_a_save_load_it, 0, 2);
    tcase_add_loop_test(t, a_lost_node_gets_its_states_from_the_copies, 0, 2);
    tcase_add_test(t, nodes_that_come_back_in_another_order_get_their_states);
    tcase_add_test(t, another_number_of_ranks_finds_nothing);
    tcase_add_test(t, without_a_place_for_copies_states_stay_on_their_nodes);
    tcase_add_loop_test(t, ranks_work_in_memory_that_outlives_them, 0, 2);
    tcase_add_loop_test(t, restarts_use_the_same_pages, 0, 2);
    tcase_add_loop_test(t, memory_that_is_in_use_is_not_given_twice, 0, 2);
    tcase_add_loop_test(t, a_death_at_any_moment_leaves_a_whole_save, 0, 8);
    tcase_add_test(t, a_rank_without_memory_is_named);
    tcase_add_test(t, nodes_with_different_sizes_are_refused);
    tcase_add_test(t, a_closed_descriptor_is_named);
    tcase_add_loop_test(t, mistakes_are_named_and_leave_the_group_whole, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
