/* Checkpoints of real ranks: saved by some, taken up by others. */
#include "tests/support/test_dir.h"
#include "tests/unit/worker-runtime/nodes.h"
#include "tests/unit/worker-runtime/ranks.h"
#include "worker-runtime/checkpoint/checkpoint_dir.h"

#include <check.h>
#include <ddp/checkpoint.h>
#include <ddp/collective.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    N = 100003,
    WEIGHTS = 50
}; /* elements of the sharded item, which no number of ranks divides */

/* --- a state whose content every rank knows --------------------------------------------------- */

struct state {
    float weights[WEIGHTS];
    double *moments; /* this rank's part of N */
    int64_t first, end;
    int64_t step;
    struct ddp_checkpoint_item items[3];
};

static void state_init(struct state *s, struct ddp_group *g)
{
    ddp_shard_range(g, N, &s->first, &s->end);
    const size_t count = (size_t)(s->end - s->first);
    s->moments = calloc(count + 1, sizeof *s->moments);
    s->items[0] = (struct ddp_checkpoint_item){.name = "weights",
                                               .dtype = DDP_FLOAT32,
                                               .n_dims = 2,
                                               .shape = {10, WEIGHTS / 10},
                                               .data = s->weights};
    s->items[1] = (struct ddp_checkpoint_item){.name = "moments",
                                               .dtype = DDP_FLOAT64,
                                               .n_dims = 1,
                                               .shape = {N},
                                               .data = s->moments,
                                               .is_sharded = true,
                                               .first = (size_t)s->first,
                                               .count = count};
    s->items[2] =
        (struct ddp_checkpoint_item){.name = "step", .dtype = DDP_INT64, .data = &s->step};
}

static void state_fill(struct state *s, int64_t step)
{
    for (int i = 0; i < WEIGHTS; i++)
        s->weights[i] = (float)(i * step);
    for (int64_t i = s->first; i < s->end; i++)
        s->moments[i - s->first] = (double)i + (double)step / 1000;
    s->step = step;
}

static void state_expect(const struct state *s, int rank, int64_t step)
{
    for (int i = 0; i < WEIGHTS; i++)
        RANK_CHECK(rank, s->weights[i] == (float)(i * step), "weight %d", i);
    for (int64_t i = s->first; i < s->end; i++)
        RANK_CHECK(rank, s->moments[i - s->first] == (double)i + (double)step / 1000, "moment %lld",
                   (long long)i);
    RANK_CHECK(rank, s->step == step, "step %lld", (long long)s->step);
}

static struct ddp_checkpoint *open_in(struct ddp_group *g, const char *directory, int keep,
                                      bool async)
{
    struct ddp_checkpoint *c;
    struct ddp_checkpoint_opts opts = {.directory = directory, .keep_last = keep, .async = async};
    RANK_CHECK(ddp_rank(g), ddp_checkpoint_open(g, &opts, &c) == 0, "open");
    return c;
}

/* --- other numbers of ranks ------------------------------------------------------------------- */

struct leg { /* of a training: what it finds, and what it leaves */
    int64_t from, to;
    bool async;
};

static int go_on(int rank, void *arg)
{
    const struct leg *leg = arg;
    struct ddp_group *g = rank_init(rank, 20000);
    struct ddp_checkpoint *c = open_in(g, test_dir, 0, leg->async);
    struct state s = {0};
    int64_t latest;
    state_init(&s, g);
    RANK_CHECK(rank, ddp_checkpoint_latest(c, &latest) == 0 && latest == leg->from, "latest %lld",
               (long long)latest);
    if (latest >= 0) {
        RANK_CHECK(rank, ddp_checkpoint_load(c, latest, s.items, 3) == 0, "load");
        state_expect(&s, rank, latest);
    }
    for (int64_t step = latest + 1; step <= leg->to; step++) {
        state_fill(&s, step);
        RANK_CHECK(rank, ddp_checkpoint_save(c, step, s.items, 3) == 0, "save");
    }
    state_fill(&s, 999); /* not what an asynchronous one is to write */
    RANK_CHECK(rank, ddp_checkpoint_wait(c) == 0, "wait");
    ddp_finalize(g);
    free(s.moments);
    return 0;
}

START_TEST(any_number_of_ranks_loads_a_state)
{
    static const int n_ranks[] = {2, 3, 1, 4, 2};
    for (int i = 0; i < 5; i++) {
        struct leg leg = {.from = 2 * i - 1, .to = 2 * i + 1, .async = _i == 1};
        struct ranks r;
        ranks_start(&r, n_ranks[i], go_on, &leg);
        ranks_expect_success(&r);
    }
}
END_TEST

/* One rank of each node reads; ranks are not in the order of the nodes. */
START_TEST(several_nodes_load_a_state)
{
    static const struct nodes nodes[] = {
        {.n = 2, .n_ranks = 3, .size = {2, 1}},
        {.n = 2, .n_ranks = 4, .size = {1, 3}, .dealt = true},
        {.n = 3, .n_ranks = 3, .size = {1, 1, 1}},
    };
    struct store_process store;
    store_start(&store);
    for (int i = 0; i < 3; i++) {
        struct leg leg = {.from = 2 * i - 1, .to = 2 * i + 1};
        struct ranks r;
        nodes_start(&r, &nodes[i], go_on, &leg);
        ranks_expect_success(&r);
    }
    store_stop(&store);
}
END_TEST

/* --- what is kept ----------------------------------------------------------------------------- */

static int keep_two(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 20000);
    struct ddp_checkpoint *c = open_in(g, test_dir, 2, true);
    struct state s = {0};
    state_init(&s, g);
    static const int64_t steps[] = {10, 20, 30, 30, 5};
    for (int i = 0; i < 5; i++) {
        state_fill(&s, steps[i]);
        RANK_CHECK(rank, ddp_checkpoint_save(c, steps[i], s.items, 3) == 0, "save");
    }
    RANK_CHECK(rank, ddp_checkpoint_wait(c) == 0, "wait");
    RANK_CHECK(rank, ddp_checkpoint_load(c, 5, s.items, 3) == 0, "the last one saved is kept");
    state_expect(&s, rank, 5);
    RANK_CHECK(rank, ddp_checkpoint_load(c, 10, s.items, 3) == DDP_EINVAL, "an old one is gone");
    ddp_checkpoint_close(c);
    ddp_finalize(g);
    free(s.moments);
    return 0;
}

START_TEST(the_last_checkpoints_are_kept)
{
    int64_t *steps;
    size_t n;
    struct ranks r;
    ranks_start(&r, 2, keep_two, NULL);
    ranks_expect_success(&r);
    ck_assert_int_eq(checkpoint_dir_list(test_dir, &steps, &n, NULL), 0);
    ck_assert_uint_eq(n, 3);
    ck_assert(steps[0] == 5 && steps[1] == 20 && steps[2] == 30);
    free(steps);
}
END_TEST

/* --- what is refused -------------------------------------------------------------------------- */

static int refuse(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 20000);
    struct ddp_checkpoint *c = open_in(g, test_dir, 0, false);
    struct state s = {0};
    state_init(&s, g);
    state_fill(&s, 7);
#define REFUSED(call, status, part)                                                                \
    RANK_CHECK(rank, (call) == (status) && strstr(ddp_last_error(), part) != NULL, "%s", part)

    REFUSED(ddp_checkpoint_save(c, -1, s.items, 3), DDP_EINVAL,
            "rank 0: ddp_checkpoint_save: step -1 is negative");
    REFUSED(ddp_checkpoint_load(c, 7, s.items, 3), DDP_EINVAL, "No such file");
    s.items[1].first += rank == 1;
    REFUSED(ddp_checkpoint_save(c, 7, s.items, 3), DDP_EINVAL,
            "rank 1: ddp_checkpoint_save: item 'moments' has 100003 elements: cannot take 50001 "
            "from offset 50003");
    s.items[1].count -= rank == 1;
    REFUSED(ddp_checkpoint_save(c, 7, s.items, 3), DDP_EINVAL,
            "the part of rank 1 starts at 50003, expected 50002");
    s.items[1].first -= rank == 1;
    REFUSED(ddp_checkpoint_save(c, 7, s.items, 3), DDP_EINVAL,
            "the parts of all ranks have 100002 of 100003");
    s.items[1].count += rank == 1;
    s.items[2].name = rank == 1 ? "stop" : "step";
    REFUSED(ddp_checkpoint_save(c, 7, s.items, 3), DDP_EMISMATCH, "the ranks' items differ");
    s.items[2].name = "weights";
    REFUSED(ddp_checkpoint_save(c, 7, s.items, 3), DDP_EINVAL, "duplicate tensor name 'weights'");
    s.items[2].name = "step";
    s.items[0].data = rank == 1 ? NULL : s.weights;
    REFUSED(ddp_checkpoint_save(c, 7, s.items, 3), DDP_EINVAL, "'weights' has data NULL");
    s.items[0].data = s.weights;
    RANK_CHECK(rank, ddp_checkpoint_save(c, 7, s.items, 3) == 0, "the group is whole");

    s.items[2].dtype = DDP_INT32;
    REFUSED(ddp_checkpoint_load(c, 7, s.items, 3), DDP_EINVAL,
            "item 'step' is I64 [] in the checkpoint, but the program passes type 2 and shape []");
    s.items[2].dtype = DDP_INT64;
    s.items[0].shape[0] = 5;
    s.items[0].shape[1] = 10;
    REFUSED(ddp_checkpoint_load(c, 7, s.items, 3), DDP_EINVAL,
            "'weights' is F32 [10, 5] in the checkpoint");
    s.items[0].name = "bias";
    REFUSED(ddp_checkpoint_load(c, 7, s.items, 3), DDP_EINVAL,
            "the checkpoint has no item 'bias'; pass the items that were saved");
    RANK_CHECK(rank, ddp_checkpoint_load(c, 7, s.items + 1, 2) == 0, "some of the items");
    state_expect(&s, rank, 7);
    ddp_finalize(g);
    free(s.moments);
    return 0;
}

START_TEST(an_invalid_state_is_refused_on_all_ranks)
{
    struct ranks r;
    ranks_start(&r, 2, refuse, NULL);
    ranks_expect_success(&r);
}
END_TEST

START_TEST(directories_that_cannot_be_used_are_refused)
{
    struct ddp_group *g;
    struct ddp_checkpoint *c;
    char path[WHOLE_FILE_MAX_PATH + 10];
    ck_assert_int_eq(ddp_init(NULL, &g), 0);
    ck_assert_int_eq(ddp_checkpoint_open(g, &(struct ddp_checkpoint_opts){.directory = ""}, &c),
                     DDP_EINVAL);
    ck_assert_int_eq(
        ddp_checkpoint_open(
            g, &(struct ddp_checkpoint_opts){.directory = test_dir, .keep_last = -1}, &c),
        DDP_EINVAL);
    snprintf(path, sizeof path, "%s/no/such", test_dir);
    ck_assert_int_eq(ddp_checkpoint_open(g, &(struct ddp_checkpoint_opts){.directory = path}, &c),
                     DDP_ESYSTEM);
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    ck_assert_int_eq(ddp_checkpoint_open(g, &(struct ddp_checkpoint_opts){.directory = path}, &c),
                     DDP_EINVAL);
    ddp_finalize(g);
}
END_TEST

/* --- what is damaged, or half written --------------------------------------------------------- */

static struct ddp_group *alone(struct ddp_checkpoint **c, struct state *s)
{
    struct ddp_group *g;
    ck_assert_int_eq(ddp_init(NULL, &g), 0);
    *c = open_in(g, test_dir, 0, false);
    *s = (struct state){0};
    state_init(s, g);
    return g;
}

static void damage(const char *path, off_t at)
{
    char byte;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 1;
    ck_assert(pwrite(fd, &byte, 1, at) == 1);
    close(fd);
}

START_TEST(a_damaged_checkpoint_is_not_loaded)
{
    struct ddp_checkpoint *c;
    struct state s;
    char path[WHOLE_FILE_MAX_PATH];
    struct ddp_group *g = alone(&c, &s);
    state_fill(&s, 3);
    ck_assert_int_eq(ddp_checkpoint_save(c, 3, s.items, 3), 0);
    checkpoint_dir_path(test_dir, 3, false, path, NULL);

    damage(path, 400000); /* in a tensor */
    ck_assert_int_eq(ddp_checkpoint_load(c, 3, s.items, 3), DDP_EINVAL);
    ck_assert_ptr_nonnull(strstr(ddp_last_error(), "its digest differs from its manifest"));
    ck_assert_int_eq(truncate(path, 400000), 0);
    ck_assert_int_eq(ddp_checkpoint_load(c, 3, s.items, 3), DDP_EINVAL);
    ck_assert_ptr_nonnull(strstr(ddp_last_error(), "the file has"));
    ck_assert_int_eq(ddp_checkpoint_save(c, 3, s.items, 3), 0);
    ck_assert_int_eq(ddp_checkpoint_load(c, 3, s.items, 3), 0);

    checkpoint_dir_path(test_dir, 3, true, path, NULL);
    damage(path, 20); /* now it names another step */
    ck_assert_int_eq(ddp_checkpoint_load(c, 3, s.items, 3), DDP_EINVAL);
    ck_assert_ptr_nonnull(strstr(ddp_last_error(), "manifest"));
    ddp_finalize(g);
    free(s.moments);
}
END_TEST

START_TEST(leftovers_of_a_killed_job_are_not_a_checkpoint)
{
    static const char *const left[] = {
        "step-000000000009.safetensors",          /* no manifest yet */
        "step-000000000009.safetensors.tmp-12.0", /* half written */
        "step-000000000009.manifest.tmp-12.1",    /* also half written */
        "step-9.manifest",
        "step-00000000000x.manifest",
        "notes.txt",
        "my.safetensors.tmp-1.0",
    };
    struct ddp_checkpoint *c;
    struct state s;
    char path[256];
    int64_t step;
    for (unsigned i = 0; i < sizeof left / sizeof left[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", test_dir, left[i]);
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        ck_assert_int_ge(fd, 0);
        close(fd);
    }
    struct ddp_group *g = alone(&c, &s);
    ck_assert_int_eq(ddp_checkpoint_latest(c, &step), 0);
    ck_assert_int_eq(step, -1);
    for (unsigned i = 0; i < sizeof left / sizeof left[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", test_dir, left[i]);
        ck_assert_msg((access(path, F_OK) == 0) == (i != 1 && i != 2), "%s", left[i]);
    }
    ddp_finalize(g);
    free(s.moments);
}
END_TEST

START_TEST(only_valid_manifests_are_read)
{
    static const char *const bad[] = {
        "",
        "ddp checkpoint 1\n",
        "ddp checkpoint 2\nstep 1\nbytes 2\ndigest 0000000000000003\n",
        "ddp checkpoint 1\nstep 1\nbytes 2\ndigest 3\n",
        "ddp checkpoint 1\nstep 01\nbytes 2\ndigest 0000000000000003\n",
        "ddp checkpoint 1\nstep -1\nbytes 2\ndigest 0000000000000003\n",
        "ddp checkpoint 1\nstep 1\nbytes -2\ndigest 0000000000000003\n",
        "ddp checkpoint 1\nstep 1 bytes 2 digest 0000000000000003\n",
        "ddp checkpoint 1\nstep 1\nbytes 2\ndigest 0000000000000003\nmore\n",
        "ddp checkpoint 1\nstep 99999999999999999999\nbytes 2\ndigest 0000000000000003\n",
    };
    const struct checkpoint_manifest m = {.step = INT64_MAX, .bytes = UINT64_MAX, .digest = 1};
    struct checkpoint_manifest again;
    char text[CHECKPOINT_MANIFEST_BYTES];
    size_t n = checkpoint_manifest_format(&m, text);
    ck_assert_int_eq(checkpoint_manifest_parse(text, n, &again, NULL), 0);
    ck_assert_mem_eq(&m, &again, sizeof m);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_msg(checkpoint_manifest_parse(bad[i], strlen(bad[i]), &again, NULL) < 0, "%s",
                      bad[i]);
}
END_TEST

/* --- killed at any moment --------------------------------------------------------------------- */

static int save_for_ever(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 20000);
    struct ddp_checkpoint *c = open_in(g, test_dir, 1, true);
    struct state s = {0};
    state_init(&s, g);
    for (int64_t step = 0;; step++) {
        state_fill(&s, step);
        RANK_CHECK(rank, ddp_checkpoint_save(c, step, s.items, 3) == 0, "save");
    }
}

static int expect_whole(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 20000);
    struct ddp_checkpoint *c = open_in(g, test_dir, 0, false);
    struct state s = {0};
    int64_t step;
    state_init(&s, g);
    RANK_CHECK(rank, ddp_checkpoint_latest(c, &step) == 0 && step >= 0, "latest");
    RANK_CHECK(rank, ddp_checkpoint_load(c, step, s.items, 3) == 0, "load");
    state_expect(&s, rank, step);
    ddp_finalize(g);
    free(s.moments);
    return 0;
}

START_TEST(a_job_that_is_killed_leaves_a_whole_checkpoint)
{
    struct ranks r;
    uint64_t deadline_ms = co_deadline_ms(60000);
    int64_t *steps = NULL;
    size_t n = 0;
    ranks_start(&r, 1, save_for_ever, NULL);
    while ((n == 0 || steps[n - 1] < 2 + 3 * _i) && co_left_ms(deadline_ms) > 0) {
        free(steps);
        steps = NULL;
        usleep(100 + 370 * (unsigned)_i); /* another moment each time; the deadline is above */
        ck_assert_int_eq(checkpoint_dir_list(test_dir, &steps, &n, NULL), 0);
    }
    free(steps);
    kill(r.pid[0], SIGKILL);
    ranks_wait(&r);
    ranks_start(&r, 2, expect_whole, NULL);
    ranks_expect_success(&r);
}
END_TEST

TEST_SUITE(checkpoint)
{
    Suite *s = suite_create("checkpoint");
    TCase *t = tcase_create("checkpoints");
    tcase_add_checked_fixture(t, test_dir_make, test_dir_remove);
    tcase_set_timeout(t, 180);
    tcase_add_loop_test(t, any_number_of_ranks_loads_a_state, 0, 2);
    tcase_add_test(t, several_nodes_load_a_state);
    tcase_add_test(t, the_last_checkpoints_are_kept);
    tcase_add_test(t, an_invalid_state_is_refused_on_all_ranks);
    tcase_add_test(t, directories_that_cannot_be_used_are_refused);
    tcase_add_test(t, a_damaged_checkpoint_is_not_loaded);
    tcase_add_test(t, leftovers_of_a_killed_job_are_not_a_checkpoint);
    tcase_add_test(t, only_valid_manifests_are_read);
    tcase_add_loop_test(t, a_job_that_is_killed_leaves_a_whole_checkpoint, 0, 5);
    suite_add_tcase(s, t);
    return s;
}
