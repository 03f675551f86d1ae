/* test_model_kept.c - what goes from one generation to the next: gradients, kept buffers, and state
 * that callbacks give. The generations are made here, over one group: struct recovery, which is
 * ddp_run()'s, is filled in by hand. */
#include "tests/unit/worker-runtime/model_ranks.h"

#include <pthread.h>
#include <signal.h>

enum { COUNT = 100, N = 4 };

/* --- gradients -------------------------------------------------------------------------------- */

static void make_the_model_again(struct ddp_group *g, void *arg)
{
    const bool forgets = *(bool *)arg; /* the program passes NULL again */
    struct recovery r;
    struct small s;
    void *first[N];
    small_init(&s, N, COUNT + 1, DDP_FLOAT32);
    for (uint64_t generation = 0; generation < 3; generation++) {
        generation_begin(g, &r, generation, false);
        small_create(&s, g, NULL);
        rank_expect(small_stats(&s).n_in_place == small_stats(&s).n_buckets);
        for (size_t i = 0; i < N; i++) {
            if (generation == 0)
                first[i] = s.t[i].grad;
            rank_expect(s.t[i].grad == first[i]);
            rank_expect(small_get(&s.t[i], COUNT) == 0);
        }
        small_backward(&s, ddp_rank(g), (int)generation);
        rank_expect(ddp_model_sync(s.m) == 0);
        small_expect_sums(&s, 2, (int)generation, 0.5, 0);
        ddp_model_destroy(s.m);
        for (size_t i = 0; forgets && i < N; i++)
            s.t[i].grad = NULL;
        if (ddp_rank(g) == 1 && generation == 1) /* as the process that replaces rank 1: its own */
            for (size_t i = 0; i < N; i++)
                s.t[i].grad = NULL;
    }
    s.m = NULL;
    small_fini(&s);
    generation_end(g, &r);
}

START_TEST(the_next_generation_has_its_gradients_at_the_same_addresses)
{
    ranks_run(2, make_the_model_again, &(bool){_i == 1});
}
END_TEST

static void make_another_model(struct ddp_group *g, void *arg)
{
    struct recovery r;
    struct small s, other;
    (void)arg;
    small_init(&s, N, COUNT, DDP_FLOAT32);
    small_init(&other, N, COUNT + 1, DDP_FLOAT32);
    generation_begin(g, &r, 0, false);
    small_create(&s, g, NULL);
    ddp_model_destroy(s.m);
    s.m = NULL;
    generation_begin(g, &r, 0, false);
    small_create(&other, g, NULL);
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < N; k++)
            rank_expect(other.t[i].grad != s.t[k].grad);
    small_backward(&other, ddp_rank(g), 0);
    rank_expect(ddp_model_sync(other.m) == 0);
    small_expect_sums(&other, 2, 0, 0.5, 0);
    small_fini(&other);
    small_fini(&s);
    generation_end(g, &r);
}

START_TEST(another_model_gets_other_gradients)
{
    ranks_run(2, make_another_model, NULL);
}
END_TEST

/* --- buffers ---------------------------------------------------------------------------------- */

static void train_with_a_statistic(struct ddp_group *g, void *arg)
{
    float mean = 7;
    struct ddp_tensor buffer = {.name = "mean", .param = &mean, .count = 1, .dtype = DDP_FLOAT32};
    const struct ddp_model_opts opts = {.buffers = &buffer, .n_buffers = 1, .keep_buffers = true};
    struct recovery r;
    struct small s;
    (void)arg;
    small_init(&s, N, COUNT, DDP_FLOAT32);
    generation_begin(g, &r, 0, false);
    small_create(&s, g, &opts);
    mean = (float)ddp_rank(g) + 1; /* a forward pass */
    rank_expect(ddp_model_sync(s.m) == 0);
    rank_expect(mean == 1);
    mean = 50; /* another, of a step that fails */
    if (ddp_rank(g) == 1)
        rank_expect(ddp_model_ready(s.m, N) == DDP_EINVAL);
    rank_expect(ddp_model_sync(s.m) != 0);
    rank_expect(mean == 1);
    mean = 60; /* a third, in which the generation ends: rank 0 is new in the next one */
    ddp_model_destroy(s.m);
    generation_begin(g, &r, 1, ddp_rank(g) == 0);
    small_create(&s, g, &opts);
    rank_expect(mean == 1);
    small_fini(&s);
    generation_end(g, &r);
}

START_TEST(a_step_that_does_not_count_leaves_kept_buffers_as_they_were)
{
    ranks_run(2, train_with_a_statistic, NULL);
}
END_TEST

static void begin_again_before_a_step(struct ddp_group *g, void *arg)
{
    float mean = 7, fixed[3] = {(float)ddp_rank(g), 0, 5};
    struct ddp_tensor buffer = {.name = "mean", .param = &mean, .count = 1, .dtype = DDP_FLOAT32};
    struct ddp_tensor constant = {
        .name = "fixed", .param = fixed, .count = 3, .dtype = DDP_FLOAT32};
    const struct ddp_model_opts opts = {.buffers = &buffer,
                                        .n_buffers = 1,
                                        .keep_buffers = true,
                                        .constants = &constant,
                                        .n_constants = 1};
    struct recovery r;
    struct small s;
    (void)arg;
    small_init(&s, N, COUNT, DDP_FLOAT32);
    generation_begin(g, &r, 0, false);
    small_create(&s, g, &opts);
    rank_expect(fixed[0] == 0 && fixed[2] == 5); /* rank 0's */
    mean = 8;                                    /* of a checkpoint; a step that fails leaves it */
    if (ddp_rank(g) == 1)
        rank_expect(ddp_model_ready(s.m, N) == DDP_EINVAL);
    rank_expect(ddp_model_sync(s.m) != 0);
    rank_expect(mean == 8);
    mean = 9; /* of a forward pass in which the generation ends */
    fixed[0] = 2;
    ddp_model_destroy(s.m);
    generation_begin(g, &r, 0, false);
    small_create(&s, g, &opts);
    rank_expect(mean == 7 && fixed[0] == 2);
    small_fini(&s);
    generation_end(g, &r);
}

START_TEST(a_generation_without_a_step_leaves_kept_buffers_as_they_began)
{
    ranks_run(2, begin_again_before_a_step, NULL);
}
END_TEST

static void end_at_once(int sig)
{
    (void)sig;
    _exit(0);
}

/* Rank 0 dies when it reads the second half of its buffers. */
static void die_in_the_midst(struct ddp_group *g, void *arg)
{
    enum { BYTES = 32 << 20 };
    const size_t count = BYTES / sizeof(float);
    float *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct ddp_tensor buffer = {
        .name = "map", .param = memory, .count = count, .dtype = DDP_FLOAT32};
    const struct ddp_model_opts opts = {.buffers = &buffer, .n_buffers = 1};
    struct recovery r;
    struct small s;
    (void)arg;
    rank_expect(memory != MAP_FAILED);
    small_init(&s, N, COUNT, DDP_FLOAT32);
    generation_begin(g, &r, 0, false);
    small_create(&s, g, &opts);
    for (size_t k = 0; k < count; k++)
        memory[k] = (float)ddp_rank(g) + 1;
    if (ddp_rank(g) == 0) {
        signal(SIGSEGV, end_at_once);
        rank_expect(mprotect((char *)memory + BYTES / 2, BYTES / 2, PROT_NONE) == 0);
    }
    rank_expect(ddp_model_sync(s.m) == 0); /* the step counts: the gradients had arrived */
    rank_expect(ddp_model_sync(s.m) != 0);
    if (ddp_rank(g) == 0)
        _exit(0);
    for (size_t k = 0; k < count; k++)
        rank_expect(memory[k] == (float)ddp_rank(g) + 1);
    small_fini(&s);
    generation_end(g, &r);
    munmap(memory, BYTES);
}

START_TEST(a_death_while_buffers_are_equalized_leaves_no_parts_of_them)
{
    ranks_run(2, die_in_the_midst, NULL);
}
END_TEST

/* --- state by callbacks ----------------------------------------------------------------------- */

struct momentum {
    char data[64];
    size_t bytes;
    int n_saves, n_loads, save_returns, load_returns;
};

static int save_momentum(void *arg, const void **ret_data, size_t *ret_bytes)
{
    struct momentum *p = arg;
    p->n_saves++;
    *ret_data = p->data;
    *ret_bytes = p->bytes;
    return p->save_returns == DDP_EPROGRAM ? ddp_fail("the disk is full") : p->save_returns;
}

static int load_momentum(void *arg, const void *data, size_t bytes)
{
    struct momentum *p = arg;
    p->n_loads++;
    memcpy(p->data, data, bytes);
    p->bytes = bytes;
    return p->load_returns;
}

struct give {
    size_t bytes; /* that rank 1 has */
    int save_returns, load_returns;
    int own, others; /* what ddp_model_create() returns on the rank that failed, and elsewhere */
    int failing;
    const char *own_text, *other_text;
};

static const struct give gives[] = {
    {.bytes = 5},
    {.bytes = 0},
    {.bytes = 64},
    {.save_returns = DDP_EPROGRAM,
     .failing = 1,
     .own = DDP_EPROGRAM,
     .others = DDP_EMISMATCH,
     .own_text = "the disk is full",
     .other_text = "'momentum' failed on rank 1: check its own message"},
    {.save_returns = 3,
     .failing = 1,
     .own = DDP_EINVAL,
     .others = DDP_EMISMATCH,
     .own_text = "save of 'momentum' returned 3",
     .other_text = "failed on rank 1"},
    {.bytes = 5,
     .load_returns = -50,
     .failing = 2,
     .own = -50,
     .others = DDP_EMISMATCH,
     .own_text = "load of 'momentum' returned -50",
     .other_text = "failed on rank 2"},
};

static void give_to_rank_2(struct ddp_group *g, void *arg)
{
    const struct give *x = arg;
    const bool is_new = ddp_rank(g) == 2;
    struct momentum p = {.bytes = is_new ? 0 : x->bytes,
                         .save_returns = x->save_returns,
                         .load_returns = x->load_returns};
    struct recovery r;
    struct small s;
    if (!is_new)
        memset(p.data, 'a', x->bytes);
    generation_begin(g, &r, 3, false);
    r.n_done = ddp_rank(g) == 1 ? 3 : ddp_rank(g) == 0 ? 2 : 0; /* rank 1 gives, the others take */
    rank_expect(ddp_state_add_callbacks(g, "momentum", save_momentum, load_momentum, &p) == 0);
    small_init(&s, N, COUNT, DDP_FLOAT32);
    const int rc = ddp_model_create(g, s.t, s.n, NULL, &s.m);
    if (x->failing == 0) {
        rank_expect(rc == 0 && p.bytes == x->bytes);
        for (size_t k = 0; k < x->bytes; k++)
            rank_expect(p.data[k] == 'a');
        rank_expect(p.n_saves == (ddp_rank(g) == 1) && p.n_loads == (ddp_rank(g) != 1));
    } else if (ddp_rank(g) == x->failing || (x->load_returns != 0 && ddp_rank(g) == 0)) {
        rank_expect(rc == x->own);
        rank_expect_text(x->own_text);
    } else {
        rank_expect(rc == x->others);
        rank_expect_text(x->load_returns != 0 ? "failed on rank 0" : x->other_text);
    }
    rank_expect(ddp_barrier(g) == 0); /* the group is whole */
    if (rc == 0) {
        rank_expect(ddp_state_add_callbacks(g, "late", save_momentum, load_momentum, &p) ==
                    DDP_EINVAL);
        rank_expect_text("'late' was added too late");
    }
    small_fini(&s);
    generation_end(g, &r);
}

START_TEST(callbacks_give_the_state_to_the_ranks_that_lack_it)
{
    ranks_run(3, give_to_rank_2, (void *)&gives[_i]);
}
END_TEST

static void register_other_kinds(struct ddp_group *g, void *arg)
{
    struct momentum p = {.bytes = 1};
    struct recovery r;
    struct small s;
    (void)arg;
    generation_begin(g, &r, 1, false);
    r.n_done = ddp_rank(g);
    rank_expect((ddp_rank(g) == 0
                     ? ddp_state_add(g, "a", p.data, 1)
                     : ddp_state_add_callbacks(g, "a", save_momentum, load_momentum, &p)) == 0);
    small_init(&s, N, COUNT, DDP_FLOAT32);
    rank_expect(ddp_model_create(g, s.t, s.n, NULL, &s.m) == DDP_EMISMATCH);
    rank_expect_text("the ranks made different calls");
    small_fini(&s);
    generation_end(g, &r);
}

START_TEST(memory_and_callbacks_of_one_name_differ)
{
    ranks_run(2, register_other_kinds, NULL);
}
END_TEST

/* --- threads ---------------------------------------------------------------------------------- */

struct backward {
    struct small *s;
    size_t i;
    int rc;
};

static void *say_one(void *arg)
{
    struct backward *b = arg;
    b->rc = ddp_model_ready(b->s->m, b->i);
    return NULL;
}

static void say_on_other_threads(struct ddp_group *g, void *arg)
{
    struct small s;
    (void)arg;
    small_init(&s, N, COUNT, DDP_FLOAT32);
    small_create(&s, g, &(struct ddp_model_opts){.bucket_bytes = COUNT * sizeof(float)});
    for (int step = 0; step < 3; step++) {
        small_backward(&s, ddp_rank(g), step);
        for (size_t i = N; i-- > 0;) { /* each by a thread of its own, while this one waits */
            struct backward b = {.s = &s, .i = step == 1 && ddp_rank(g) == 1 && i == 0 ? 1 : i};
            pthread_t thread;
            rank_expect(pthread_create(&thread, NULL, say_one, &b) == 0);
            pthread_join(thread, NULL);
            rank_expect(b.rc == (b.i == i ? 0 : DDP_EINVAL));
        }
        const int rc = ddp_model_sync(s.m);
        rank_expect(rc == (step != 1 ? 0 : ddp_rank(g) == 1 ? DDP_EINVAL : DDP_EMISMATCH));
        if (rc == 0)
            small_expect_sums(&s, 2, step, 0.5, 0);
        else if (ddp_rank(g) == 1) /* the text of a call of another thread */
            rank_expect_text("gradient 1 't1' was already marked ready");
    }
    small_fini(&s);
}

START_TEST(gradients_become_ready_on_any_thread)
{
    ranks_run(2, say_on_other_threads, NULL);
}
END_TEST

TEST_SUITE(model_kept)
{
    Suite *s = suite_create("model_kept");
    TCase *t = tcase_create("model_kept");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, the_next_generation_has_its_gradients_at_the_same_addresses, 0, 2);
    tcase_add_test(t, another_model_gets_other_gradients);
    tcase_add_test(t, a_step_that_does_not_count_leaves_kept_buffers_as_they_were);
    tcase_add_test(t, a_generation_without_a_step_leaves_kept_buffers_as_they_began);
    tcase_add_test(t, a_death_while_buffers_are_equalized_leaves_no_parts_of_them);
    tcase_add_loop_test(t, callbacks_give_the_state_to_the_ranks_that_lack_it, 0,
                        sizeof gives / sizeof *gives);
    tcase_add_test(t, memory_and_callbacks_of_one_name_differ);
    tcase_add_test(t, gradients_become_ready_on_any_thread);
    suite_add_tcase(s, t);
    return s;
}
