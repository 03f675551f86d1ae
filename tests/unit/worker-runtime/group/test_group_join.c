/* test_group_join.c - groups of ranks that a program gives their places. */
#include "common/error.h"
#include "tests/unit/worker-runtime/nodes.h"
#include "worker-runtime/join/env.h"

#include <errno.h>
#include <pthread.h>

static struct store_process store;

static void start_store(void)
{
    store_start(&store);
}

static void stop_store(void)
{
    store_stop(&store);
}

static int place_of(int rank, int n, const char *name, struct ddp_group **ret)
{
    const struct ddp_rank_info place = {.name = name,
                                        .rank = rank,
                                        .world_size = n,
                                        .local_rank = rank,
                                        .local_world_size = n,
                                        .n_nodes = 1};
    const struct ddp_init_opts opts = {.start_timeout_ms = 60000, .timeout_ms = 60000};
    return ddp_group_join(&place, &opts, ret);
}

static struct ddp_group *join(int rank, int number, int n, const char *what)
{
    struct ddp_group *g = NULL;
    char name[128];
    snprintf(name, sizeof name, "%s %s", getenv("DDP_JOB_ID"), what);
    RANK_CHECK(rank, place_of(number, n, name, &g) == DDP_OK, "%s", what);
    return g;
}

/* --- several at a time ------------------------------------------------------------------------ */

static int run_many(int rank, void *arg)
{
    (void)arg;
    static float in[50000], out[50000];
    struct ddp_group *world = rank_init(rank, 60000);
    struct ddp_group *all = join(rank, rank, 4, "all");
    struct ddp_group *pair = join(rank, rank / 2, 2, rank % 2 == 0 ? "even" : "odd");
    struct ddp_group *some = rank < 3 ? join(rank, 2 - rank, 3, "some") : NULL; /* not of all */
    RANK_CHECK(rank, ddp_rank(pair) == rank / 2 && ddp_world_size(pair) == 2, "who");
    for (int i = 0; i < 100; i++) {
        RANK_CHECK(rank, rank_sum(rank, all, rank) == 6, "all %d", i);
        RANK_CHECK(rank, rank_sum(rank, pair, rank) == (rank % 2 == 0 ? 2 : 4), "pair %d", i);
        RANK_CHECK(rank, some == NULL || rank_sum(rank, some, rank) == 3, "some %d", i);
        RANK_CHECK(rank, i % 10 != 0 || rank_sum(rank, world, 1) == 4, "world %d", i);
    }
    for (int i = 0; i < 50000; i++)
        in[i] = (float)(rank + i % 7);
    RANK_CHECK(rank, ddp_all_reduce(all, in, out, 50000, DDP_FLOAT32, DDP_SUM, NULL) == DDP_OK,
               "large");
    for (int i = 0; i < 50000; i++)
        RANK_CHECK(rank, out[i] == (float)(6 + 4 * (i % 7)), "element %d", i);
    ddp_finalize(all);
    RANK_CHECK(rank, rank_sum(rank, pair, 1) == 2, "the others are not of it");
    RANK_CHECK(rank, rank_sum(rank, world, 1) == 4, "the world is not of it");
    ddp_finalize(some);
    ddp_finalize(world);
    RANK_CHECK(rank, rank_sum(rank, pair, 1) == 2, "nor of the world");
    ddp_finalize(pair);
    return 0;
}

START_TEST(a_process_joins_named_groups_besides_the_job)
{
    struct ranks r;
    ranks_start(&r, 4, run_many, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_again(int rank, void *arg)
{
    (void)arg;
    for (int i = 0; i < 30; i++) {
        char what[16];
        snprintf(what, sizeof what, "time %d", i);
        struct ddp_group *g = join(rank, rank, 3, what);
        RANK_CHECK(rank, rank_sum(rank, g, 1) == 3, "time %d", i);
        ddp_finalize(g);
    }
    return 0;
}

START_TEST(groups_are_joined_and_left_repeatedly)
{
    struct ranks r;
    ranks_start(&r, 3, run_again, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_alone(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = join(rank, 0, 1, rank == 0 ? "one" : "two");
    RANK_CHECK(rank, ddp_world_size(g) == 1 && rank_sum(rank, g, 5) == 5, "alone");
    ddp_finalize(g);
    return 0;
}

START_TEST(a_group_of_one_waits_for_no_rank)
{
    struct ranks r;
    ranks_start(&r, 2, run_alone, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_split(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *sub = NULL, *g = join(rank, rank, 4, "all");
    RANK_CHECK(rank, ddp_group_split(g, rank % 2, 0, &sub) == DDP_OK, "split");
    RANK_CHECK(rank, rank_sum(rank, sub, rank) == (rank % 2 == 0 ? 2 : 4), "half");
    ddp_finalize(g); /* with what was split off */
    return 0;
}

START_TEST(a_joined_group_can_be_split)
{
    struct ranks r;
    ranks_start(&r, 4, run_split, NULL);
    ranks_expect_success(&r);
}
END_TEST

/* --- failures --------------------------------------------------------------------------------- */

static int run_death(int rank, void *arg)
{
    (void)arg;
    double x = 1;
    struct ddp_group *all = join(rank, rank, 3, "all");
    struct ddp_group *two = rank < 2 ? join(rank, rank, 2, "two") : NULL;
    if (rank == 2)
        raise(SIGKILL);
    RANK_CHECK(rank,
               ddp_all_reduce(all, &x, &x, 1, DDP_FLOAT64, DDP_SUM, NULL) == DDP_EPEER &&
                   strstr(ddp_last_error(), "rank 2") != NULL,
               "of the dead one");
    RANK_CHECK(rank, rank_sum(rank, two, 1) == 2, "it was not in this one");
    ddp_finalize(two);
    ddp_finalize(all);
    return 0;
}

START_TEST(a_death_breaks_the_groups_of_the_dead_rank_and_no_others)
{
    struct ranks r;
    ranks_start(&r, 3, run_death, NULL);
    ranks_wait(&r);
    ck_assert(WIFEXITED(r.status[0]) && WEXITSTATUS(r.status[0]) == 0);
    ck_assert(WIFEXITED(r.status[1]) && WEXITSTATUS(r.status[1]) == 0);
    ck_assert(WIFSIGNALED(r.status[2]));
}
END_TEST

static int run_fork(int rank, void *arg)
{
    (void)arg;
    int status;
    setenv("DDP_PROGRESS_THREAD", "1", 1);
    struct ddp_group *g = join(rank, rank, 2, "all");
    RANK_CHECK(rank, rank_sum(rank, g, 1) == 2, "its thread is there");
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        const int rc = ddp_barrier(g);
        ddp_finalize(g); /* which waits for no thread: a child has none */
        _exit(rc == DDP_EINVAL ? 0 : 1);
    }
    RANK_CHECK(rank, waitpid(child, &status, 0) == child && status == 0, "child: %#x", status);
    RANK_CHECK(rank, rank_sum(rank, g, 1) == 2, "the parent goes on");
    ddp_finalize(g);
    return 0;
}

START_TEST(a_forked_child_is_in_no_joined_group)
{
    struct ranks r;
    ranks_start(&r, 2, run_fork, NULL);
    ranks_expect_success(&r);
}
END_TEST

START_TEST(a_rank_that_does_not_join_is_named)
{
    const struct ddp_rank_info place = {
        .name = "late", .world_size = 2, .local_world_size = 2, .n_nodes = 1};
    const struct ddp_init_opts opts = {.start_timeout_ms = 300};
    struct ddp_group *g = NULL;
    ck_assert_int_eq(ddp_group_join(&place, &opts, &g), DDP_ETIMEOUT);
    ck_assert_ptr_nonnull(strstr(ddp_last_error(), "timed out waiting for rank 1 of 2 to join"));
    ck_assert_ptr_null(g);
}
END_TEST

/* --- places ----------------------------------------------------------------------------------- */

static const struct ddp_rank_info good = {.name = "n",
                                          .rank = 3,
                                          .world_size = 4,
                                          .local_rank = 1,
                                          .local_world_size = 2,
                                          .node_rank = 1,
                                          .n_nodes = 2,
                                          .store_host = "h",
                                          .store_port = 1};

static const char *refusal_of(const struct ddp_rank_info *place)
{
    static struct co_error err;
    struct env_who who;
    return env_from_info(place, &who, &err) == -EINVAL ? err.text : "";
}

START_TEST(an_inconsistent_place_is_refused_by_name)
{
    static char long_text[ENV_HOST_BYTES + 1];
    struct ddp_rank_info p;
    struct ddp_group *g;
    memset(long_text, 'x', ENV_HOST_BYTES);
#define REFUSED(member, value)                                                                     \
    p = good;                                                                                      \
    p.member = value;                                                                              \
    ck_assert_msg(strstr(refusal_of(&p), #member) != NULL, "%s", refusal_of(&p))
    ck_assert_str_eq(refusal_of(&good), "");
    REFUSED(name, NULL);
    REFUSED(name, "");
    REFUSED(name, long_text);
    REFUSED(rank, -1);
    REFUSED(rank, 4);
    REFUSED(world_size, 0);
    REFUSED(world_size, -5);
    REFUSED(local_rank, 2);
    REFUSED(local_rank, -1);
    REFUSED(local_world_size, 0);
    REFUSED(local_world_size, 5);
    REFUSED(node_rank, 2);
    REFUSED(node_rank, -1);
    REFUSED(n_nodes, 0);
    REFUSED(n_nodes, 5);
    REFUSED(store_host, NULL);
    REFUSED(store_host, "");
    REFUSED(store_host, long_text);
    REFUSED(store_port, 0);
    REFUSED(store_port, 65536);
#undef REFUSED
    p = good;
    p.local_world_size = 4; /* on one node, of two */
    ck_assert_ptr_nonnull(strstr(refusal_of(&p), "n_nodes is 2"));
    p = good;
    p.n_nodes = 1;
    p.node_rank = 0;
    ck_assert_ptr_nonnull(strstr(refusal_of(&p), "n_nodes is 1"));
    p.local_world_size = 4;
    ck_assert_ptr_nonnull(strstr(refusal_of(&p), "local_rank is 1 but rank is 3"));
    ck_assert_int_eq(ddp_group_join(&p, NULL, &g), DDP_EINVAL);
    ck_assert_int_eq(ddp_group_join(NULL, NULL, &g), DDP_EINVAL);
    ck_assert_int_eq(ddp_group_join(&good, NULL, NULL), DDP_EINVAL);
}
END_TEST

START_TEST(group_names_are_compared_to_their_last_byte)
{
    char name[DDP_PLACE_NAME_MAX + 1] = "";
    struct ddp_rank_info p = good;
    struct env_who a, b;
    memset(name, 'x', DDP_PLACE_NAME_MAX);
    p.name = name;
    ck_assert_int_eq(env_from_info(&p, &a, NULL), 0);
    name[DDP_PLACE_NAME_MAX - 1] = 'y';
    ck_assert_int_eq(env_from_info(&p, &b, NULL), 0);
    ck_assert_str_ne(a.job, b.job);
    ck_assert_str_ne(a.store_job, b.store_job);
    p.node_rank = 0;
    ck_assert_int_eq(env_from_info(&p, &a, NULL), 0);
    ck_assert_str_ne(a.job, b.job); /* nodes may be one machine */
    ck_assert_str_eq(a.store_job, b.store_job);
}
END_TEST

/* --- several nodes ---------------------------------------------------------------------------- */

static struct ddp_group *join_nodes(int rank, const char *what, int from, int n)
{
    struct ddp_group *g = NULL;
    char name[128];
    snprintf(name, sizeof name, "%s %s", getenv("DDP_JOB_ID"), what);
    const int first = from > 2 ? from : 2; /* of the second node: two ranks are on the first */
    const int n_first = first - from, node = rank >= 2;
    const struct ddp_rank_info place = {.name = name,
                                        .rank = rank - from,
                                        .world_size = n,
                                        .local_rank = node == 0 ? rank - from : rank - first,
                                        .local_world_size = node == 0 ? n_first : n - n_first,
                                        .node_rank = n_first > 0 ? node : 0,
                                        .n_nodes = n_first > 0 ? 2 : 1,
                                        .store_host = getenv("MASTER_ADDR"),
                                        .store_port = atoi(getenv("MASTER_PORT"))};
    const struct ddp_init_opts opts = {.start_timeout_ms = 60000, .timeout_ms = 60000};
    RANK_CHECK(rank, ddp_group_join(&place, &opts, &g) == DDP_OK, "%s", what);
    return g;
}

static int run_on_nodes(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *all = join_nodes(rank, "all", 0, 5);
    struct ddp_group *some = rank >= 1 ? join_nodes(rank, "some", 1, 4) : NULL;
    struct ddp_group *last = rank >= 2 ? join_nodes(rank, "last", 2, 3) : NULL;
    struct ddp_group *more = rank >= 1 ? join_nodes(rank, "more", 1, 4) : NULL;
    RANK_CHECK(rank, ddp_n_nodes(all) == 2 && ddp_node_rank(all) == (rank >= 2), "nodes");
    for (int i = 0; i < 20; i++) {
        RANK_CHECK(rank, rank_sum(rank, all, rank) == 10, "all %d", i);
        RANK_CHECK(rank, some == NULL || rank_sum(rank, some, rank) == 10, "some %d", i);
        RANK_CHECK(rank, last == NULL || rank_sum(rank, last, rank) == 9, "last %d", i);
        RANK_CHECK(rank, more == NULL || rank_sum(rank, more, 1) == 4, "more %d", i);
    }
    char value[8] = "";
    size_t length = 0;
    RANK_CHECK(rank, ddp_store_set(all, getenv("DDP_JOB_ID"), "here", 4) == DDP_OK, "set");
    RANK_CHECK(rank,
               ddp_store_get(all, getenv("DDP_JOB_ID"), value, sizeof value, &length, 60000) ==
                       DDP_OK &&
                   length == 4 && strcmp(value, "here") == 0,
               "%s", value);
    ddp_finalize(some);
    ddp_finalize(more);
    ddp_finalize(last);
    RANK_CHECK(rank, ddp_barrier(all) == DDP_OK, "barrier");
    ddp_finalize(all);
    return 0;
}

START_TEST(joined_groups_span_nodes_through_their_store)
{
    struct ranks r;
    ranks_start(&r, 5, run_on_nodes, NULL);
    ranks_expect_success(&r);
}
END_TEST

/* --- a thread that makes asynchronous calls --------------------------------------------------- */

enum { CALLS = 300 };

struct waiter { /* a thread that waits for what another one began */
    int rank;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct ddp_request *request[CALLS];
    int n_begun;
    float out[CALLS][64];
};

static void *wait_for_all(void *arg)
{
    struct waiter *w = arg;
    for (int i = 0; i < CALLS; i++) {
        pthread_mutex_lock(&w->lock);
        while (w->n_begun <= i)
            pthread_cond_wait(&w->changed, &w->lock);
        pthread_mutex_unlock(&w->lock);
        RANK_CHECK(w->rank, ddp_wait(w->request[i]) == DDP_OK, "wait %d", i);
        RANK_CHECK(w->rank, w->out[i][63] == (float)(3 + 3 * i), "call %d", i);
    }
    return NULL;
}

static int run_waiter(int rank, void *arg)
{
    (void)arg;
    static struct waiter w = {.lock = PTHREAD_MUTEX_INITIALIZER,
                              .changed = PTHREAD_COND_INITIALIZER};
    static float in[CALLS][64];
    pthread_t thread;
    setenv("DDP_PROGRESS_THREAD", "1", 1);
    struct ddp_group *g = join(rank, rank, 3, "all");
    w.rank = rank;
    RANK_CHECK(rank, pthread_create(&thread, NULL, wait_for_all, &w) == 0, "thread");
    for (int i = 0; i < CALLS; i++) {
        for (int k = 0; k < 64; k++)
            in[i][k] = (float)(rank + i);
        struct ddp_request *r;
        RANK_CHECK(
            rank, ddp_iall_reduce(g, in[i], w.out[i], 64, DDP_FLOAT32, DDP_SUM, NULL, &r) == DDP_OK,
            "begin");
        pthread_mutex_lock(&w.lock);
        w.request[i] = r;
        w.n_begun = i + 1;
        pthread_cond_broadcast(&w.changed);
        pthread_mutex_unlock(&w.lock);
        /* after the queued calls, or, with an empty queue, without the thread */
        RANK_CHECK(rank, i % 3 != 0 || rank_sum(rank, g, rank) == 3, "blocking %d", i);
    }
    pthread_join(thread, NULL);
    for (int i = 0; i < 100; i++)
        RANK_CHECK(rank, rank_sum(rank, g, rank) == 3, "with an empty queue %d", i);
    ddp_finalize(g);
    return 0;
}

START_TEST(another_thread_waits_for_calls_while_this_one_makes_more)
{
    struct ranks r;
    ranks_start(&r, 3, run_waiter, NULL);
    ranks_expect_success(&r);
}
END_TEST

TEST_SUITE(group_join)
{
    Suite *suite = suite_create("group_join");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 200);
    tcase_add_unchecked_fixture(tcase, start_store, stop_store);
    tcase_add_test(tcase, a_process_joins_named_groups_besides_the_job);
    tcase_add_test(tcase, groups_are_joined_and_left_repeatedly);
    tcase_add_test(tcase, a_group_of_one_waits_for_no_rank);
    tcase_add_test(tcase, a_joined_group_can_be_split);
    tcase_add_test(tcase, a_death_breaks_the_groups_of_the_dead_rank_and_no_others);
    tcase_add_test(tcase, a_forked_child_is_in_no_joined_group);
    tcase_add_test(tcase, a_rank_that_does_not_join_is_named);
    tcase_add_test(tcase, an_inconsistent_place_is_refused_by_name);
    tcase_add_test(tcase, group_names_are_compared_to_their_last_byte);
    tcase_add_test(tcase, joined_groups_span_nodes_through_their_store);
    tcase_add_test(tcase, another_thread_waits_for_calls_while_this_one_makes_more);
    suite_add_tcase(suite, tcase);
    return suite;
}
