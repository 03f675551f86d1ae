#include "tests/unit/worker-runtime/ranks.h"
#include "worker-runtime/model/model_priv.h"

#include <pthread.h>

START_TEST(a_decided_step_counts_for_a_rank_that_failed_in_it)
{
    _Atomic uint64_t word = 0;
    ck_assert(model_commit_decide(&word, 1));
    ck_assert(model_commit_decide(&word, 1)); /* the next rank decides the same */
    ck_assert(model_commit_decide(&word, 5)); /* steps between them failed on all ranks */
    ck_assert(model_commit_give_up(&word, 5));
    ck_assert(model_commit_decide(&word, 5));
}
END_TEST

START_TEST(an_abandoned_step_counts_on_no_rank)
{
    _Atomic uint64_t word = 0;
    ck_assert(model_commit_decide(&word, 1));
    ck_assert(!model_commit_give_up(&word, 2));
    ck_assert(!model_commit_decide(&word, 2));
    ck_assert(!model_commit_give_up(&word, 2));
    ck_assert(model_commit_give_up(&word, 1)); /* the one before does */
    ck_assert(!model_commit_decide(&word, 3));
}
END_TEST

enum { N_THREADS = 4, N_ROUNDS = 3000 };

struct race {
    _Atomic uint64_t word;
    pthread_barrier_t start, end;
    bool says[N_THREADS];
};

struct racer {
    struct race *race;
    int me;
};

static void *decide_or_give_up(void *arg)
{
    const struct racer *racer = arg;
    struct race *race = racer->race;
    for (int round = 0; round < N_ROUNDS; round++) {
        pthread_barrier_wait(&race->start);
        race->says[racer->me] = (racer->me + round) % 2 == 0 ? model_commit_decide(&race->word, 7)
                                                             : model_commit_give_up(&race->word, 7);
        pthread_barrier_wait(&race->end);
    }
    return NULL;
}

START_TEST(all_ranks_get_the_same_answer_in_any_order)
{
    static struct race race;
    struct racer racer[N_THREADS];
    pthread_t thread[N_THREADS];
    pthread_barrier_init(&race.start, NULL, N_THREADS + 1);
    pthread_barrier_init(&race.end, NULL, N_THREADS + 1);
    for (int i = 0; i < N_THREADS; i++) {
        racer[i] = (struct racer){&race, i};
        ck_assert_int_eq(pthread_create(&thread[i], NULL, decide_or_give_up, &racer[i]), 0);
    }
    for (int round = 0; round < N_ROUNDS; round++) {
        atomic_store(&race.word, 6 << 1);
        pthread_barrier_wait(&race.start);
        pthread_barrier_wait(&race.end);
        for (int i = 1; i < N_THREADS; i++)
            ck_assert_msg(race.says[i] == race.says[0], "round %d: thread %d", round, i);
    }
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(thread[i], NULL);
}
END_TEST

TEST_SUITE(model_commit)
{
    Suite *s = suite_create("model_commit");
    TCase *t = tcase_create("commit");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_decided_step_counts_for_a_rank_that_failed_in_it);
    tcase_add_test(t, an_abandoned_step_counts_on_no_rank);
    tcase_add_test(t, all_ranks_get_the_same_answer_in_any_order);
    suite_add_tcase(s, t);
    return s;
}
