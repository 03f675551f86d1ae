/* test_zero.c - a sharded optimizer compared with one whose state each rank holds in full. */
#include "tests/unit/worker-runtime/model_ranks.h"
#include "tests/unit/worker-runtime/nodes.h"
#include "worker-runtime/group/recovery.h"

#include <sys/stat.h>

enum { N = 5, STEPS = 100 };

static const size_t counts[N] = {7, 64, 1, 130, 33};

/* Tensors whose gradients are a pull towards 0, other ones on each rank. */
struct net {
    struct ddp_tensor t[N];
    double m[N][130], v[N][130]; /* of the reference */
};

static void net_init(struct net *net, enum ddp_dtype dtype)
{
    static const char *const names[N] = {"a", "b", "c", "d", "e"};
    *net = (struct net){0};
    for (size_t i = 0; i < N; i++) {
        net->t[i] = (struct ddp_tensor){
            .name = names[i], .param = calloc(counts[i], 8), .count = counts[i], .dtype = dtype};
        double start[130];
        for (size_t k = 0; k < counts[i]; k++)
            start[k] = sin((double)(i * 31 + k));
        convert(process_kernels(), net->t[i].param, dtype, start, DDP_FLOAT64, counts[i]);
        if (dtype == DDP_FLOAT64)
            memcpy(net->t[i].param, start, counts[i] * sizeof *start);
    }
}

static void net_fini(struct net *net)
{
    for (size_t i = 0; i < N; i++)
        free(net->t[i].param);
}

/* All ranks' gradients average to 2 p + sin(...), whatever their number. */
static void net_backward(struct net *net, const struct ddp_group *g, int step, double scale)
{
    const int n = ddp_world_size(g), rank = ddp_rank(g);
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < counts[i]; k++) {
            const double p = convert_get(net->t[i].param, net->t[i].dtype, k);
            const double own = (double)(2 * rank - n + 1) * cos((double)(k + (size_t)step));
            small_set(&net->t[i], k, scale * (2 * p + sin((double)(k * 3 + (size_t)step)) + own));
        }
}

/* torch's formulas, in the order of its operations. */
static void reference_step(struct net *net, const struct ddp_zero_opts *o, int number)
{
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < counts[i]; k++) {
            double *p = (double *)net->t[i].param + k, g = ((double *)net->t[i].grad)[k];
            double *m = &net->m[i][k], *v = &net->v[i][k];
            if (o->optimizer == DDP_SGD) {
                g += o->weight_decay * *p;
                *m = o->momentum * *m + g;
                *p -= o->lr * *m;
                continue;
            }
            *p *= 1 - o->lr * o->weight_decay;
            *m = 0.9 * *m + 0.1 * g;
            *v = 0.999 * *v + 0.001 * g * g;
            const double denominator = sqrt(*v) / sqrt(1 - pow(0.999, number)) + 1e-8;
            *p -= o->lr / (1 - pow(0.9, number)) * *m / denominator;
        }
}

static const struct ddp_zero_opts ways[] = {
    {.optimizer = DDP_SGD, .lr = 0.05},
    {.optimizer = DDP_SGD, .lr = 0.02, .momentum = 0.9, .weight_decay = 0.01},
    {.optimizer = DDP_ADAMW, .lr = 0.01, .weight_decay = 0.1},
    {.optimizer = DDP_ADAMW, .lr = 0.01, .max_norm = 0.5, .buddies = true},
};
enum { N_WAYS = sizeof(ways) / sizeof(ways[0]), N_SIZES = 4 };
static const int sizes[N_SIZES] = {1, 2, 3, 4};

static double worst_difference(const struct net *a, const struct net *b)
{
    double worst = 0;
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < counts[i]; k++)
            worst = fmax(worst, fabs(convert_get(a->t[i].param, a->t[i].dtype, k) -
                                     convert_get(b->t[i].param, b->t[i].dtype, k)));
    return worst;
}

static void train_both(struct ddp_group *g, void *arg)
{
    const struct ddp_zero_opts *o = arg;
    static struct net sharded, plain;
    struct ddp_zero *z;
    struct ddp_model *m;
    net_init(&sharded, DDP_FLOAT64);
    net_init(&plain, DDP_FLOAT64);
    if (ddp_rank(g) > 0) /* rank 0's are given to all */
        ((double *)sharded.t[1].param)[3] = 1e6;
    rank_expect(ddp_zero_create(g, sharded.t, N, o, &z) == 0);
    rank_expect(ddp_model_create(g, plain.t, N, NULL, &m) == 0);
    for (int step = 0; step < STEPS; step++) {
        struct ddp_zero_step seen;
        double norm;
        net_backward(&sharded, g, step, 1);
        net_backward(&plain, g, step, 1);
        rank_expect(ddp_zero_step(z, NULL, &seen) == 0);
        rank_expect(ddp_model_sync(m) == 0);
        rank_expect(ddp_model_clip(m, o->max_norm > 0 ? o->max_norm : 1e300, &norm) == 0);
        reference_step(&plain, o, step + 1);
        rank_expect(seen.found_inf == 0 && fabs(seen.norm - norm) < 1e-12 * norm);
    }
    const double worst = worst_difference(&sharded, &plain);
    RANK_CHECK(ddp_rank(g), worst < 1e-9, "the largest difference is %g", worst);
    ddp_model_destroy(m);
    ddp_zero_destroy(z);
    net_fini(&sharded);
    net_fini(&plain);
}

START_TEST(any_number_of_ranks_computes_the_same_as_a_whole_optimizer)
{
    ranks_run(sizes[_i % N_SIZES], train_both, (void *)&ways[_i / N_SIZES]);
}
END_TEST

static const struct nodes grid = {.n = 2, .n_ranks = 3, .size = {2, 1}};

START_TEST(ranks_on_two_nodes_compute_the_same)
{
    struct store_process store;
    struct ranks r;
    store_start(&store);
    nodes_start(&r, &grid, ranks_job_run,
                &(struct ranks_job){.body = train_both, .arg = (void *)&ways[_i]});
    ranks_expect_success(&r);
    store_stop(&store);
}
END_TEST

/* --- 16 bits ---------------------------------------------------------------------------------- */

/* The masters' steps are finer than a 16-bit parameter: without them it would stand still. */
static void train_halves(struct ddp_group *g, void *arg)
{
    const enum ddp_dtype dtype = *(enum ddp_dtype *)arg;
    uint16_t half[20], grad[20];
    struct ddp_tensor t = {.name = "t", .param = half, .grad = grad, .count = 20, .dtype = dtype};
    const struct ddp_zero_opts o = {.optimizer = DDP_SGD, .lr = 1e-5};
    const float one = 1;
    struct ddp_zero *z;
    struct ddp_scaler scaler;
    rank_expect(ddp_scaler_init(&scaler, &(struct ddp_scaler_opts){.init_scale = 1024}) == 0);
    for (size_t k = 0; k < 20; k++)
        convert(process_kernels(), &half[k], dtype, &one, DDP_FLOAT32, 1);
    rank_expect(ddp_zero_create(g, &t, 1, &o, &z) == 0);
    for (int step = 0; step < 2000; step++) {
        const float slope = 1024; /* 1, scaled */
        for (size_t k = 0; k < 20; k++)
            convert(process_kernels(), &grad[k], dtype, &slope, DDP_FLOAT32, 1);
        rank_expect(ddp_zero_step(z, &scaler, NULL) == 0);
    }
    for (size_t k = 0; k < 20; k++)
        rank_expect(fabs(convert_get(half, dtype, k) - 0.98) < 0.005);
}

START_TEST(parameters_of_16_bits_have_masters_of_32)
{
    static const enum ddp_dtype halves[] = {DDP_FLOAT16, DDP_BFLOAT16};
    ranks_run(1 + _i / 2, train_halves, (void *)&halves[_i % 2]);
}
END_TEST

/* --- overflow --------------------------------------------------------------------------------- */

static void overflow(struct ddp_group *g, void *arg)
{
    static struct net net, before;
    struct ddp_zero_step seen;
    struct ddp_zero_stats stats;
    struct ddp_scaler scaler;
    struct ddp_zero *z;
    (void)arg;
    net_init(&net, DDP_FLOAT32);
    net_init(&before, DDP_FLOAT32);
    rank_expect(ddp_scaler_init(&scaler, &(struct ddp_scaler_opts){.init_scale = 8}) == 0);
    rank_expect(ddp_zero_create(g, net.t, N, &ways[2], &z) == 0);
    for (int who = 0; who < ddp_world_size(g); who++) {
        for (size_t i = 0; i < N; i++)
            memcpy(before.t[i].param, net.t[i].param, counts[i] * sizeof(float));
        net_backward(&net, g, who, 8);
        if (ddp_rank(g) == who)
            small_set(&net.t[(size_t)who], 0, who % 2 ? NAN : INFINITY);
        rank_expect(ddp_zero_step(z, &scaler, &seen) == 0);
        ddp_scaler_update(&scaler, seen.found_inf);
        rank_expect(seen.found_inf == 1 && worst_difference(&net, &before) == 0);
    }
    rank_expect(scaler.scale == 8 / (float)(1 << ddp_world_size(g)));
    net_backward(&net, g, 0, (double)scaler.scale);
    rank_expect(ddp_zero_step(z, &scaler, &seen) == 0 && seen.found_inf == 0);
    rank_expect(worst_difference(&net, &before) > 0);
    ddp_zero_get_stats(z, &stats);
    rank_expect(stats.n_steps == 1);
    net_fini(&net);
    net_fini(&before);
}

START_TEST(a_step_that_overflows_in_any_shard_changes_nothing_on_all)
{
    ranks_run(4, overflow, NULL);
}
END_TEST

/* --- memory, checkpoints ---------------------------------------------------------------------- */

static void measure(struct ddp_group *g, void *arg)
{
    static float param[48 * 1024];
    struct ddp_tensor t = {.name = "t", .param = param, .count = 48 * 1024, .dtype = DDP_FLOAT32};
    struct ddp_zero_stats stats;
    struct ddp_zero *z;
    (void)arg;
    rank_expect(ddp_zero_create(g, &t, 1, &ways[2], &z) == 0);
    ddp_zero_get_stats(z, &stats);
    rank_expect(stats.whole_state_bytes == 2 * sizeof param);
    rank_expect(stats.state_bytes * (size_t)ddp_world_size(g) == stats.whole_state_bytes);
    rank_expect(stats.held_bytes == stats.state_bytes); /* no rank is replaced: one version */
}

START_TEST(each_rank_of_n_holds_an_nth_of_the_state)
{
    ranks_run(_i, measure, NULL);
}
END_TEST

struct half_way {
    char folder[64];
    int n_before;
    enum ddp_dtype dtype;
    bool goes_on; /* false: train all steps, and save at the half */
};

/* Parameters are whole items, the state is sharded. */
static size_t describe(struct net *net, struct ddp_zero *z, struct ddp_checkpoint_item *items)
{
    size_t n;
    rank_expect(ddp_zero_items(z, "adam", items, &n) == 0);
    for (size_t i = 0; i < N; i++)
        items[n++] = (struct ddp_checkpoint_item){.name = net->t[i].name,
                                                  .dtype = net->t[i].dtype,
                                                  .n_dims = 1,
                                                  .shape = {counts[i]},
                                                  .data = net->t[i].param};
    return n;
}

static void save_and_go_on(struct ddp_group *g, void *arg)
{
    const struct half_way *h = arg;
    struct ddp_checkpoint_item items[DDP_ZERO_MAX_ITEMS + N];
    struct ddp_checkpoint *c;
    static struct net net;
    struct ddp_zero *z;
    int64_t latest;
    net_init(&net, h->dtype);
    rank_expect(ddp_zero_create(g, net.t, N, &ways[2], &z) == 0);
    rank_expect(ddp_checkpoint_open(g, &(struct ddp_checkpoint_opts){.directory = h->folder}, &c) ==
                0);
    if (h->goes_on) {
        rank_expect(ddp_checkpoint_latest(c, &latest) == 0 && latest == 20);
        rank_expect(ddp_checkpoint_load(c, 10, items, describe(&net, z, items)) == 0);
        rank_expect(ddp_zero_loaded(z) == 0);
    }
    for (int step = h->goes_on ? 10 : 0; step < 20; step++) {
        if (step == 10 && !h->goes_on)
            rank_expect(ddp_checkpoint_save(c, 10, items, describe(&net, z, items)) == 0);
        net_backward(&net, g, step, 1);
        rank_expect(ddp_zero_step(z, NULL, NULL) == 0);
    }
    if (h->goes_on) { /* the same parameters come out */
        static struct net expected;
        struct ddp_zero *other;
        net_init(&expected, h->dtype);
        rank_expect(ddp_zero_create(g, expected.t, N, &ways[2], &other) == 0);
        rank_expect(ddp_checkpoint_load(c, 20, items, describe(&expected, other, items)) == 0);
        const double bound = h->dtype == DDP_FLOAT64 ? 1e-12 : 0.01;
        rank_expect(worst_difference(&net, &expected) < bound);
        net_fini(&expected);
    } else {
        rank_expect(ddp_checkpoint_save(c, 20, items, describe(&net, z, items)) == 0);
    }
    net_fini(&net);
}

static const struct {
    int before, after;
    enum ddp_dtype dtype;
} moves[] = {{3, 2, DDP_FLOAT64}, {1, 4, DDP_FLOAT64}, {4, 3, DDP_FLOAT16}, {2, 1, DDP_BFLOAT16}};

START_TEST(another_number_of_ranks_loads_a_saved_state)
{
    struct half_way h = {.dtype = moves[_i].dtype};
    char command[128];
    strcpy(h.folder, "/tmp/ddp-zero-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(h.folder));
    ranks_run(moves[_i].before, save_and_go_on, &h);
    h.goes_on = true;
    ranks_run(moves[_i].after, save_and_go_on, &h);
    snprintf(command, sizeof command, "rm -r '%s'", h.folder);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

/* Rank 1 makes the calls of a step up to the last one, and leaves. */
static void break_in_the_middle(struct ddp_group *g, void *arg)
{
    float param[32], grad[32] = {0};
    const size_t each[2] = {16, 16};
    struct ddp_tensor t = {
        .name = "t", .param = param, .grad = grad, .count = 32, .dtype = DDP_FLOAT32};
    struct ddp_checkpoint_item items[DDP_ZERO_MAX_ITEMS];
    struct ddp_zero_stats stats;
    struct ddp_zero *z;
    double sums[2] = {0};
    size_t n;
    (void)arg;
    for (size_t i = 0; i < 32; i++)
        param[i] = 1;
    rank_expect(ddp_zero_create(g, &t, 1, &ways[2], &z) == 0);
    rank_expect(ddp_zero_step(z, NULL, NULL) == 0);
    rank_expect(ddp_zero_items(z, "z", items, &n) == 0);
    if (ddp_rank(g) == 1) {
        rank_expect(ddp_reduce_scatter_v(g, grad, grad + 16, each, DDP_FLOAT32, DDP_AVG, NULL) ==
                    0);
        rank_expect(ddp_all_reduce(g, sums, sums, 2, DDP_FLOAT64, DDP_SUM, NULL) == 0);
        return;
    }
    rank_expect(ddp_zero_step(z, NULL, NULL) == DDP_EPEER);
    rank_expect_text("ddp_zero_step: parameters");
    ddp_zero_get_stats(z, &stats);
    rank_expect(stats.n_steps == 1);
    rank_expect(ddp_zero_items(z, "z", items, &n) == DDP_EINVAL);
    rank_expect_text("failed midway");
}

START_TEST(a_state_that_broke_during_a_step_is_not_returned)
{
    ranks_run(2, break_in_the_middle, NULL);
}
END_TEST

/* --- after a death ---------------------------------------------------------------------------- */

/* The world before had 3 ranks. What each element of the state was after step 7: */
static float kept_value(size_t array, size_t element)
{
    return (float)(1000 * array + element);
}

static void fill_shard(struct shard *s, const struct shards_shape *shape, uint64_t step)
{
    const size_t count = shards_count(shape, s->of_rank);
    struct shard_version *v = shard_next(s, step - 1);
    for (size_t k = 0; k < shape->n_arrays; k++)
        for (size_t i = 0; i < count; i++)
            ((float *)(void *)v->memory)[k * count + i] =
                kept_value(k, shards_first(shape, s->of_rank) + i);
    shard_done(v, step, step);
}

/* As ddp_run() leaves it to the next generation: this process was rank `old` of 3, and has
 * completed 7 steps. */
static void keep(struct recovery *r, struct recovery_shards *kept, int old, bool has_buddy)
{
    const struct shards_shape shape = {
        .total = 80, .n_arrays = 2, .element_bytes = sizeof(float), .n_ranks = 3, .rank = old};
    recovery_init(r);
    *kept = (struct recovery_shards){0};
    rank_expect(shards_init(&kept->shards, &shape, 2, has_buddy) == 0);
    fill_shard(&kept->shards.own, &shape, 7);
    if (has_buddy)
        fill_shard(&kept->shards.buddy, &shape, 7);
    kept->shards.step = 7;
    r->again.may_follow = true;
    r->shards = kept;
    r->n_done = r->most_done = 7;
}

struct after {
    int n;      /* ranks that there are now */
    int old[4]; /* their old ranks; -1: a new one */
    bool buddies;
    const char *lost; /* NULL: nothing is */
};

static const struct after afters[] = {
    {.n = 2, .old = {2, 0}, .buddies = true},         /* rank 1 has died; 2 has its copy */
    {.n = 3, .old = {0, -1, 2}, .buddies = true},     /* and was replaced */
    {.n = 4, .old = {-1, 0, 1, -1}, .buddies = true}, /* rank 2 has died, and there are two more */
    {.n = 2, .old = {0, 1}, .lost = "shard of 1 rank (2)"},
    {.n = 2, .old = {-1, 1}, .buddies = true, .lost = "shard of 1 rank (2)"},
};

static void expect_kept(struct ddp_zero *z)
{
    struct ddp_checkpoint_item items[DDP_ZERO_MAX_ITEMS];
    size_t n;
    rank_expect(ddp_zero_items(z, "z", items, &n) == 0 && n == 3);
    rank_expect(*(int64_t *)items[0].data == 7);
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < items[1 + k].count; i++)
            rank_expect(((float *)items[1 + k].data)[i] == kept_value(k, items[1 + k].first + i));
}

static void go_on_after(struct ddp_group *g, void *arg)
{
    const struct after *a = arg;
    const int old = a->old[ddp_rank(g)];
    struct ddp_zero_opts opts = {.optimizer = DDP_ADAMW, .lr = 0.1, .buddies = a->buddies};
    float param[70];
    struct ddp_tensor t = {.name = "t", .param = param, .count = 70, .dtype = DDP_FLOAT32};
    static struct recovery_shards kept; /* ended with the process, not by recovery_fini() */
    struct recovery r;
    struct ddp_zero *z;
    recovery_init(&r);
    if (old >= 0)
        keep(&r, &kept, old, a->buddies);
    r.again.may_follow = true;
    r.most_done = 7;
    r.next_shards = &r.shards;
    g->world->recovery = &r;
    for (size_t i = 0; i < 70; i++)
        param[i] = old >= 0 ? 5 : 0;
    int rc = ddp_zero_create(g, &t, 1, &opts, &z);
    if (a->lost != NULL) {
        rank_expect(rc == DDP_EPEER);
        rank_expect_text(a->lost);
    } else {
        rank_expect(rc == 0 && param[69] == 5);
        expect_kept(z);
        for (size_t i = 0; i < 70; i++)
            ((float *)t.grad)[i] = 1;
        rank_expect(ddp_zero_step(z, NULL, NULL) == 0);
        rank_expect(param[69] < 5);
    }
    shards_fini(&r.shards->shards);
    if (old < 0)
        free(r.shards);
    g->world->recovery = NULL;
}

START_TEST(survivors_continue_with_the_shards_of_the_last_step)
{
    ranks_run(afters[_i].n, go_on_after, (void *)&afters[_i]);
}
END_TEST

/* A skipped step, then a checkpoint; rank 1 dies, and a new one gets the loaded shard. */
static void die_after_a_load(struct ddp_group *g, void *arg)
{
    const struct ddp_zero_opts opts = {.optimizer = DDP_ADAMW, .lr = 0.1, .buddies = true};
    float param[70] = {0};
    struct ddp_tensor t = {.name = "t", .param = param, .count = 70, .dtype = DDP_FLOAT32};
    struct ddp_checkpoint_item items[DDP_ZERO_MAX_ITEMS];
    struct recovery r;
    struct ddp_zero *z;
    size_t n;
    (void)arg;
    recovery_init(&r);
    r.again.may_follow = true;
    g->world->recovery = &r;
    rank_expect(ddp_zero_create(g, &t, 1, &opts, &z) == 0);
    for (size_t i = 0; i < 70; i++)
        ((float *)t.grad)[i] = INFINITY;
    rank_expect(ddp_zero_step(z, NULL, NULL) == 0 && r.n_done == 1);
    rank_expect(ddp_zero_items(z, "z", items, &n) == 0 && n == 3);
    *(int64_t *)items[0].data = 7;
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < items[1 + k].count; i++)
            ((float *)items[1 + k].data)[i] = kept_value(k, items[1 + k].first + i);
    rank_expect(ddp_zero_loaded(z) == 0);
    ddp_zero_destroy(z);
    if (ddp_rank(g) == 1) {
        shards_fini(&r.shards->shards);
        r.n_done = 0;
    }
    r.most_done = 1;
    r.next_shards = &r.shards;
    rank_expect(ddp_zero_create(g, &t, 1, &opts, &z) == 0);
    expect_kept(z);
    ddp_zero_destroy(z);
    recovery_fini(&r);
    g->world->recovery = NULL;
}

START_TEST(a_state_loaded_after_a_skipped_step_outlives_a_rank)
{
    ranks_run(2, die_after_a_load, NULL);
}
END_TEST

/* It has a group of its own for copies, which must not leak, nor be destroyed twice. */
static void end_in_some_order(struct ddp_group *g, void *arg)
{
    const int how = *(const int *)arg;
    const struct ddp_zero_opts opts = {.lr = 0.1, .momentum = 0.9, .buddies = true};
    float param[70] = {0};
    struct ddp_tensor t = {.name = "t", .param = param, .count = 70, .dtype = DDP_FLOAT32};
    struct ddp_group *sub;
    struct recovery r;
    struct ddp_zero *z;
    recovery_init(&r);
    r.again.may_follow = true;
    g->world->recovery = &r;
    rank_expect(ddp_group_split(g, 0, 0, &sub) == 0);
    rank_expect(ddp_zero_create(sub, &t, 1, &opts, &z) == 0);
    rank_expect(ddp_zero_step(z, NULL, NULL) == 0);
    if (how == 1)
        ddp_zero_destroy(z);
    if (how > 0)
        ddp_group_destroy(sub);
    recovery_fini(&r);
    g->world->recovery = NULL; /* with 0 the world's end is that of all of them */
}

START_TEST(it_may_be_destroyed_before_or_with_its_group_or_the_world)
{
    ranks_run(2, end_in_some_order, &_i);
}
END_TEST

/* --- refused ---------------------------------------------------------------------------------- */

static const struct ddp_zero_opts refused[] = {
    {.optimizer = (enum ddp_optimizer)2, .lr = 1},
    {.lr = -1},
    {.lr = NAN},
    {.lr = 1, .momentum = 1},
    {.lr = 1, .beta1 = 1},
    {.lr = 1, .weight_decay = -1},
    {.lr = 1, .max_norm = INFINITY},
};

static void refuse(struct ddp_group *g, void *arg)
{
    const size_t k = *(const size_t *)(const void *)arg;
    static struct net net;
    struct ddp_zero *z;
    struct ddp_zero_opts other = ways[0];
    net_init(&net, DDP_FLOAT32);
    const bool is_bad = ddp_rank(g) == 1; /* the others do not wait for it */
    int rc = ddp_zero_create(g, net.t, N, is_bad ? &refused[k] : &ways[0], &z);
    rank_expect(rc == (is_bad ? DDP_EINVAL : DDP_EMISMATCH));
    other.lr += ddp_rank(g);
    rank_expect(ddp_zero_create(g, net.t, N, &other, &z) == DDP_EMISMATCH);
    rank_expect_text("ddp_zero_opts differ");
    net.t[2].dtype = DDP_FLOAT64;
    rank_expect(ddp_zero_create(g, net.t, N, &ways[0], &z) == DDP_EINVAL);
    rank_expect_text("same floating-point type");
    net.t[2].dtype = DDP_FLOAT32;
    rank_expect(ddp_zero_create(g, net.t, N, &ways[0], &z) == 0); /* the group is whole */
    rank_expect(ddp_zero_set_lr(z, -1) == DDP_EINVAL);
    rank_expect(ddp_zero_items(z, NULL, NULL, NULL) == DDP_EINVAL);
    rank_expect(ddp_zero_step(NULL, NULL, NULL) == DDP_EINVAL);
    ddp_zero_destroy(NULL);
    net_fini(&net);
}

START_TEST(invalid_or_different_options_are_refused_and_no_rank_waits)
{
    size_t k = (size_t)_i;
    ranks_run(2, refuse, &k);
}
END_TEST

TEST_SUITE(zero)
{
    Suite *s = suite_create("zero");
    TCase *t = tcase_create("zero");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, any_number_of_ranks_computes_the_same_as_a_whole_optimizer, 0,
                        N_WAYS * N_SIZES);
    tcase_add_loop_test(t, ranks_on_two_nodes_compute_the_same, 1, 3);
    tcase_add_loop_test(t, parameters_of_16_bits_have_masters_of_32, 0, 4);
    tcase_add_test(t, a_step_that_overflows_in_any_shard_changes_nothing_on_all);
    tcase_add_loop_test(t, each_rank_of_n_holds_an_nth_of_the_state, 1, 5);
    tcase_add_loop_test(t, another_number_of_ranks_loads_a_saved_state, 0,
                        sizeof(moves) / sizeof(moves[0]));
    tcase_add_test(t, a_state_that_broke_during_a_step_is_not_returned);
    tcase_add_loop_test(t, survivors_continue_with_the_shards_of_the_last_step, 0,
                        sizeof(afters) / sizeof(afters[0]));
    tcase_add_test(t, a_state_loaded_after_a_skipped_step_outlives_a_rank);
    tcase_add_loop_test(t, it_may_be_destroyed_before_or_with_its_group_or_the_world, 0, 3);
    tcase_add_loop_test(t, invalid_or_different_options_are_refused_and_no_rank_waits, 0,
                        sizeof(refused) / sizeof(refused[0]));
    suite_add_tcase(s, t);
    return s;
}
