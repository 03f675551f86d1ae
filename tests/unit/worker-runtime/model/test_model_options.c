/* test_model_options.c - what ddp_model_opts asks for. */
#include "tests/unit/worker-runtime/model_ranks.h"
#include "worker-runtime/group/trace.h"

enum { COUNT = 100 };

/* --- where gradients lie ---------------------------------------------------------------------- */

static void average_one_array(struct ddp_group *g, void *arg)
{
    const bool with_a_gap_on_rank_1 = *(bool *)arg;
    const bool has_gap = with_a_gap_on_rank_1 && ddp_rank(g) == 1;
    static float array[8 * COUNT + 1];
    struct small s;
    small_init(&s, 8, COUNT, DDP_FLOAT32);
    for (size_t i = 0; i < 8; i++)
        s.t[i].grad = array + i * COUNT + (has_gap && i == 7 ? 1 : 0);
    small_create(&s, g, &(struct ddp_model_opts){.bucket_bytes = 2 * COUNT * sizeof(float)});
    rank_expect(small_stats(&s).n_buckets == 4);
    rank_expect(small_stats(&s).n_in_place == (with_a_gap_on_rank_1 ? 3 : 4));
    for (int step = 0; step < 3; step++) {
        small_backward(&s, ddp_rank(g), step);
        small_say_all(&s);
        rank_expect(ddp_model_sync(s.m) == 0);
        small_expect_sums(&s, 2, step, 0.5, 0);
    }
    small_fini(&s);
}

START_TEST(gradients_in_one_array_are_averaged_in_place)
{
    ranks_run(2, average_one_array, &(bool){false});
}
END_TEST

START_TEST(if_one_rank_has_a_gap_all_ranks_copy_that_bucket)
{
    ranks_run(2, average_one_array, &(bool){true});
}
END_TEST

static void average_in_the_library(struct ddp_group *g, void *arg)
{
    struct small s;
    (void)arg;
    small_init(&s, 8, COUNT + 1, DDP_FLOAT64);
    small_create(&s, g, &(struct ddp_model_opts){.bucket_bytes = 2 * COUNT * sizeof(double)});
    rank_expect(small_stats(&s).n_in_place == small_stats(&s).n_buckets);
    for (size_t i = 0; i < 8; i++)
        rank_expect((uintptr_t)s.t[i].grad % 64 == 0);
    small_backward(&s, ddp_rank(g), 0);
    rank_expect(ddp_model_sync(s.m) == 0);
    small_expect_sums(&s, 3, 0, 1.0 / 3, 1e-14);
    small_fini(&s);
}

START_TEST(library_gradients_are_never_copied)
{
    ranks_run(3, average_in_the_library, NULL);
}
END_TEST

/* --- how they are averaged -------------------------------------------------------------------- */

struct remote_shell {
    struct ddp_model_opts opts;
    enum ddp_dtype dtype;
    double tolerance;
};

static const struct remote_shell ways[] = {
    {{.compress = DDP_COMPRESS_FLOAT16}, DDP_FLOAT32, 0},
    {{.compress = DDP_COMPRESS_BFLOAT16}, DDP_FLOAT32, 0.07}, /* 8 bits of 20 or so */
    {{.compress = DDP_COMPRESS_FLOAT16}, DDP_FLOAT64, 0},
    {{.compress = DDP_COMPRESS_FLOAT16}, DDP_BFLOAT16, 0.07}, /* nothing to compress */
    {{.always_fp32 = true}, DDP_FLOAT16, 0},
    {{.always_fp32 = true}, DDP_BFLOAT16, 0.07},
    {{.predivide_factor = 4}, DDP_FLOAT32, 0},
    {{.predivide_factor = 2}, DDP_FLOAT64, 0},
    {{.message_size = 250}, DDP_FLOAT32, 0},
    {{.delay_allreduce = true, .bucket_bytes = 700}, DDP_FLOAT32, 0},
    {{.check_finite = true, .allow_unused = true}, DDP_FLOAT32, 0},
};

static void average_in_a_way(struct ddp_group *g, void *arg)
{
    const struct remote_shell *way = arg;
    struct small s;
    small_init(&s, 8, COUNT, way->dtype);
    small_create(&s, g, &way->opts);
    if (way->opts.message_size > 0)
        rank_expect(small_stats(&s).n_buckets == 3);
    for (int step = 0; step < 2; step++) {
        small_backward(&s, ddp_rank(g), step);
        small_say_all(&s);
        rank_expect(ddp_model_sync(s.m) == 0);
        small_expect_sums(&s, 4, step, 0.25, way->tolerance);
        if (way->opts.delay_allreduce)
            rank_expect(small_stats(&s).n_overlapped == 0);
    }
    small_fini(&s);
}

START_TEST(each_way_to_average_gives_the_average)
{
    ranks_run(4, average_in_a_way, (void *)&ways[_i]);
}
END_TEST

static void compress_too_large_values(struct ddp_group *g, void *arg)
{
    struct small s;
    (void)arg;
    small_init(&s, 2, COUNT, DDP_FLOAT32);
    small_create(&s, g, &(struct ddp_model_opts){.compress = DDP_COMPRESS_FLOAT16});
    for (size_t k = 0; k < COUNT; k++) {
        small_set(&s.t[0], k, 60000);
        small_set(&s.t[1], k, k == 3 ? 70000 : 1);
    }
    rank_expect(ddp_model_sync(s.m) == 0);
    rank_expect(small_get(&s.t[0], 5) == 60000); /* their sum would not be a float16 */
    rank_expect(small_get(&s.t[1], 2) == 1 && isinf(small_get(&s.t[1], 3)));
    small_fini(&s);
}

START_TEST(compressed_averages_overflow_only_where_a_value_does)
{
    ranks_run(3, compress_too_large_values, NULL);
}
END_TEST

/* --- a program's own way ---------------------------------------------------------------------- */

struct hooked {
    size_t n_calls;
    size_t fails_at; /* the call that fails, on rank 1 */
};

static int double_the_sum(struct ddp_group *g, const struct ddp_bucket *b, void *arg)
{
    struct hooked *h = arg;
    float *data = b->data;
    rank_expect(b->index == h->n_calls % b->n_buckets && b->dtype == DDP_FLOAT32);
    rank_expect(b->stream == NULL);
    h->n_calls++;
    int rc = ddp_all_reduce(g, data, data, b->count, b->dtype, DDP_SUM, NULL);
    for (size_t k = 0; k < b->count; k++)
        data[k] *= 2;
    return rc != 0 ? rc : h->n_calls == h->fails_at && ddp_rank(g) == 1 ? DDP_EUNSUPPORTED : 0;
}

static void average_by_a_hook(struct ddp_group *g, void *arg)
{
    struct hooked h = {.fails_at = 6}; /* in the second step, of four buckets each */
    struct small s;
    (void)arg;
    small_init(&s, 8, COUNT, DDP_FLOAT32);
    small_create(&s, g,
                 &(struct ddp_model_opts){.bucket_bytes = 2 * COUNT * sizeof(float),
                                          .hook = double_the_sum,
                                          .hook_arg = &h});
    for (int step = 0; step < 3; step++) {
        small_backward(&s, ddp_rank(g), step);
        small_say_all(&s);
        int rc = ddp_model_sync(s.m);
        rank_expect(h.n_calls == 4 * (size_t)(step + 1));
        if (step == 1 && ddp_world_size(g) > 1) {
            rank_expect(rc == (ddp_rank(g) == 1 ? DDP_EUNSUPPORTED : DDP_EMISMATCH));
            rank_expect_text(ddp_rank(g) == 1 ? "hook of gradient bucket 2 of 4" : "rank 1 could");
            continue;
        }
        rank_expect(rc == 0);
        small_expect_sums(&s, ddp_world_size(g), step, 2, 0);
    }
    small_fini(&s);
}

START_TEST(a_hook_averages_each_bucket_and_fails_a_step_on_all_ranks)
{
    ranks_run(_i, average_by_a_hook, NULL);
}
END_TEST

/* --- what is not finite ----------------------------------------------------------------------- */

static void meet_a_nan(struct ddp_group *g, void *arg)
{
    const struct ddp_model_opts opts = {.check_finite = true, .bucket_bytes = 900};
    struct small s;
    (void)arg;
    small_init(&s, 5, COUNT, DDP_FLOAT32);
    small_create(&s, g, &opts);
    small_backward(&s, ddp_rank(g), 0);
    if (ddp_rank(g) == 1)
        small_set(&s.t[3], 17, NAN);
    small_say_all(&s);
    rank_expect(ddp_model_sync(s.m) == DDP_ENOTFINITE); /* on all ranks */
    rank_expect_text("ddp_model_sync: gradient 3 't3' is not finite: element 17 of its average is "
                     "nan; rank 1 computed");

    small_backward(&s, ddp_rank(g), 1);
    small_set(&s.t[0], 5, 3e38);
    rank_expect(ddp_model_sync(s.m) == 0); /* an average of large numbers is large, not infinite */
    rank_expect(fabs(small_get(&s.t[0], 5) / 3e38 - 1) < 1e-6);

    small_backward(&s, ddp_rank(g), 2);
    rank_expect(ddp_model_sync(s.m) == 0);
    small_expect_sums(&s, 3, 2, 1.0 / 3, 1e-6);
    rank_expect(small_stats(&s).n_steps == 2); /* the first one counts on no rank */
    small_fini(&s);
}

START_TEST(a_nan_fails_the_step_on_all_ranks_and_its_rank_is_named)
{
    ranks_run(3, meet_a_nan, NULL);
}
END_TEST

static void overflow_together(struct ddp_group *g, void *arg)
{
    const struct ddp_model_opts opts = {.check_finite = true, .compress = DDP_COMPRESS_FLOAT16};
    struct small s;
    (void)arg;
    small_init(&s, 2, COUNT, DDP_FLOAT32);
    small_create(&s, g, &opts);
    small_set(&s.t[1], 4, 1e5);
    rank_expect(ddp_model_sync(s.m) == DDP_ENOTFINITE);
    rank_expect_text("ddp_model_sync: gradient 1 't1' is not finite: element 4 of its average is "
                     "inf; each rank's own gradient was finite");
    small_fini(&s);
}

START_TEST(an_average_that_overflows_is_reported_as_overflow)
{
    ranks_run(2, overflow_together, NULL);
}
END_TEST

/* --- unused gradients ------------------------------------------------------------------------- */

static void use_some(struct ddp_group *g, void *arg)
{
    const struct ddp_model_opts opts = {.allow_unused = true, .bucket_bytes = 900};
    struct small s;
    (void)arg;
    small_init(&s, 5, COUNT, DDP_FLOAT32);
    small_create(&s, g, &opts);
    for (int step = 0; step < 3; step++) { /* 0 is used by all, 1 and 2 by a rank each, 4 in turn */
        small_backward(&s, ddp_rank(g), step);
        rank_expect(ddp_model_ready(s.m, 0) == 0);
        rank_expect(ddp_model_ready(s.m, ddp_rank(g) == 0 ? 1 : 2) == 0);
        if (step == 1)
            rank_expect(ddp_model_ready(s.m, 4) == 0);
        rank_expect(ddp_model_sync(s.m) == 0);
        rank_expect(ddp_model_is_used(s.m, 0) && ddp_model_is_used(s.m, 1) &&
                    ddp_model_is_used(s.m, 2) && !ddp_model_is_used(s.m, 3));
        rank_expect(ddp_model_is_used(s.m, 4) == (step == 1));
        rank_expect(!ddp_model_is_used(s.m, 5)); /* gradient 5 does not exist */
        for (size_t k = 0; k < COUNT; k++) {
            rank_expect(small_get(&s.t[1], k) == small_value(0, step, 1, k) / 2);
            rank_expect(small_get(&s.t[2], k) == small_value(1, step, 2, k) / 2);
            rank_expect(small_get(&s.t[3], k) == 0);
        }
    }
    small_fini(&s);
}

START_TEST(gradients_that_a_rank_does_not_use_count_as_zeros)
{
    ranks_run(2, use_some, NULL);
}
END_TEST

/* --- buffers ---------------------------------------------------------------------------------- */

static void keep_buffers(struct ddp_group *g, void *arg)
{
    int64_t n_seen[3] = {ddp_rank(g), 1, 2};
    float mean[5] = {(float)ddp_rank(g)};
    struct ddp_tensor buffers[] = {
        {.name = "n_seen", .param = n_seen, .count = 3, .dtype = DDP_INT64},
        {.name = "mean", .param = mean, .count = 5, .dtype = DDP_FLOAT32},
    };
    struct small s;
    (void)arg;
    small_init(&s, 2, COUNT, DDP_FLOAT32);
    small_create(&s, g, &(struct ddp_model_opts){.buffers = buffers, .n_buffers = 2});
    rank_expect(n_seen[0] == 0 && mean[0] == 0); /* rank 0's */
    for (int step = 1; step < 4; step++) {
        n_seen[0] = 100 * step + ddp_rank(g);
        mean[4] = (float)(step + 10 * ddp_rank(g));
        rank_expect(ddp_model_sync(s.m) == 0);
        rank_expect(n_seen[0] == 100 * step && mean[4] == (float)step);
    }
    small_fini(&s);
}

START_TEST(buffers_equal_those_of_rank_0_after_each_step)
{
    ranks_run(3, keep_buffers, NULL);
}
END_TEST

/* --- weights ---------------------------------------------------------------------------------- */

static void weigh(struct ddp_group *g, void *arg)
{
    struct small s;
    (void)arg;
    small_init(&s, 4, COUNT, DDP_FLOAT64);
    small_create(&s, g, &(struct ddp_model_opts){.weighted = true, .bucket_bytes = 900});
    for (int step = 0; step < 3; step++) {
        small_backward(&s, ddp_rank(g), step);
        if (step > 0)
            rank_expect(ddp_model_weight(s.m, ddp_rank(g) == 0 ? 3 : 1 + 8 * (step == 2)) == 0);
        small_say_all(&s);
        rank_expect(ddp_model_weight(s.m, 2) == DDP_EINVAL); /* too late */
        rank_expect(ddp_model_sync(s.m) == 0);
        const double w = step == 0 ? 0.5 : step == 1 ? 0.75 : 0.25;
        for (size_t k = 0; k < COUNT; k++)
            rank_expect(fabs(small_get(&s.t[2], k) - (small_value(0, step, 2, k) * w +
                                                      small_value(1, step, 2, k) * (1 - w))) <
                        1e-14);
    }
    rank_expect(ddp_model_weight(s.m, -1) == DDP_EINVAL);
    rank_expect(ddp_model_weight(s.m, NAN) == DDP_EINVAL);
    rank_expect(ddp_model_weight(s.m, INFINITY) == DDP_EINVAL);
    small_fini(&s);
    small_init(&s, 1, COUNT, DDP_FLOAT64);
    small_create(&s, g, NULL);
    rank_expect(ddp_model_weight(s.m, 1) == DDP_EINVAL); /* it is not that kind of model */
    small_fini(&s);
}

START_TEST(weights_count_the_samples_of_each_rank)
{
    ranks_run(2, weigh, NULL);
}
END_TEST

/* --- clipping --------------------------------------------------------------------------------- */

static void clip(struct ddp_group *g, void *arg)
{
    struct small s;
    double norm;
    (void)arg;
    small_init(&s, 2, 2, DDP_FLOAT64);
    small_create(&s, g, NULL);
    double *a = s.t[0].grad, *b = s.t[1].grad;
    a[0] = 3, a[1] = 0, b[0] = 0, b[1] = 4;
    rank_expect(ddp_model_sync(s.m) == 0);
    rank_expect(ddp_model_clip(s.m, 6, &norm) == 0 && norm == 5 && a[0] == 3 && b[1] == 4);
    rank_expect(ddp_model_clip(s.m, 1, NULL) == 0);
    rank_expect(fabs(a[0] - 3 / 5.000001) < 1e-15 && fabs(b[1] - 4 / 5.000001) < 1e-15);
    b[1] = INFINITY;
    rank_expect(ddp_model_clip(s.m, 1, &norm) == 0 && isinf(norm) && a[0] > 0.59);
    rank_expect(ddp_model_clip(s.m, 0, &norm) == DDP_EINVAL);
    rank_expect(ddp_model_clip(s.m, NAN, &norm) == DDP_EINVAL);
    a[0] = a[1] = b[0] = b[1] = 1;
    small_say_all(&s);
    rank_expect(ddp_model_clip(s.m, 1, &norm) == DDP_EINVAL); /* they are on their way */
    rank_expect(ddp_model_sync(s.m) == 0);
    small_fini(&s);
}

START_TEST(clipping_scales_the_norm_of_all_gradients_together)
{
    ranks_run(1 + _i, clip, NULL);
}
END_TEST

/* --- refusals --------------------------------------------------------------------------------- */

static int no_hook(struct ddp_group *g, const struct ddp_bucket *b, void *arg)
{
    (void)g, (void)b, (void)arg;
    return 0;
}

static int32_t a_buffer[2];
static struct ddp_tensor nameless = {.param = a_buffer, .count = 1, .dtype = DDP_INT32};
static struct ddp_tensor crooked = {
    .name = "c", .param = (char *)a_buffer + 1, .count = 1, .dtype = DDP_INT32};
static const struct {
    struct ddp_model_opts opts;
    const char *text;
} refused[] = {
    {{.predivide_factor = -1}, "invalid value -1 for predivide_factor"},
    {{.predivide_factor = NAN}, "invalid value nan for predivide_factor"},
    {{.predivide_factor = INFINITY}, "invalid value inf for predivide_factor"},
    {{.predivide_factor = 2, .weighted = true}, "cannot be used together"},
    {{.compress = (enum ddp_compress)4},
     "invalid value 4 for compress: expected one of enum ddp_compress"},
    {{.hook = no_hook, .compress = DDP_COMPRESS_FLOAT16}, "hook cannot be used together with"},
    {{.hook = no_hook, .weighted = true}, "hook cannot be used together with"},
    {{.keep_buffers = true, .stream = &nameless},
     "keep_buffers and stream cannot be used together"},
    {{.n_constants = 1}, "constants is NULL, but n_constants is 1"},
    {{.constants = &nameless, .n_constants = 1}, "constant 0 has no name"},
    {{.n_buffers = 2}, "buffers is NULL, but n_buffers is 2"},
    {{.buffers = &nameless, .n_buffers = 1}, "buffer 0 has no name"},
    {{.buffers = &crooked, .n_buffers = 1}, "not aligned"},
};

static void give_bad_options(struct ddp_group *g, void *arg)
{
    const int i = *(int *)arg;
    struct ddp_model *m = NULL;
    struct small s;
    small_init(&s, 1, COUNT, DDP_FLOAT32);
    const bool is_bad = ddp_rank(g) == 1;
    int rc = ddp_model_create(g, s.t, 1, is_bad ? &refused[i].opts : NULL, &m);
    rank_expect(rc == (is_bad ? DDP_EINVAL : DDP_EMISMATCH));
    rank_expect_text(is_bad ? refused[i].text : "rank 1 failed: check its own message");
    rank_expect(m == NULL && s.t[0].grad == NULL);
    rank_expect(ddp_barrier(g) == 0);
    small_fini(&s);
}

START_TEST(options_out_of_bounds_are_refused_and_no_rank_waits)
{
    ranks_run(2, give_bad_options, &_i);
}
END_TEST

/* --- the timeline ----------------------------------------------------------------------------- */

START_TEST(the_rank_precedes_the_last_suffix_of_a_trace)
{
    static const struct {
        const char *asked_for, *path;
    } cases[] = {{"t.json", "t.7.json"},   {"t", "t.7"},
                 {"/a.b/t", "/a.b/t.7"},   {"/a.b/t.x.json", "/a.b/t.x.7.json"},
                 {".hidden", ".hidden.7"}, {"a/.hidden.json", "a/.hidden.7.json"}};
    char path[64];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert(trace_path(cases[i].asked_for, 7, path, sizeof(path)));
        ck_assert_str_eq(path, cases[i].path);
    }
    ck_assert(!trace_path("12345678.json", 7, path, 15));
    ck_assert(trace_path("12345678.json", 7, path, 16));
}
END_TEST

static void train_with_a_trace(struct ddp_group *g, void *arg)
{
    struct small s;
    (void)arg;
    for (int i = 0; i < 2; i++) { /* two models, one timeline */
        small_init(&s, 4, COUNT, DDP_FLOAT32);
        small_create(&s, g, &(struct ddp_model_opts){.bucket_bytes = 2 * COUNT * sizeof(float)});
        small_say_all(&s);
        rank_expect(ddp_model_sync(s.m) == 0);
        small_fini(&s);
    }
}

static size_t count(const char *text, const char *part)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++)
        n++;
    return n;
}

START_TEST(each_rank_writes_a_timeline_of_its_buckets)
{
    char dir[] = "/tmp/trace-XXXXXX", path[64], text[16384];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/t.json", dir);
    setenv("DDP_TRACE", path, 1);
    ranks_run(2, train_with_a_trace, NULL);
    unsetenv("DDP_TRACE");
    for (int rank = 0; rank < 2; rank++) {
        snprintf(path, sizeof(path), "%s/t.%d.json", dir, rank);
        FILE *f = fopen(path, "r");
        ck_assert_ptr_nonnull(f);
        size_t n = fread(text, 1, sizeof(text) - 1, f);
        text[n] = '\0';
        fclose(f);
        unlink(path);
        ck_assert_int_eq(strncmp(text, "[\n{", 3), 0);
        ck_assert_str_eq(text + n - 4, "}\n]\n");
        ck_assert_uint_eq(count(text, "\"ph\":\"b\""), 4); /* 2 buckets, 2 models */
        ck_assert_uint_eq(count(text, "\"ph\":\"e\""), 4);
        ck_assert_uint_eq(count(text, "\"name\":\"sync\""), 2);
        ck_assert_uint_eq(count(text, "\"name\":\"backward\""), 2);
        ck_assert_uint_eq(count(text, "{\"ph\""), count(text, "}\n") + count(text, "},\n"));
    }
    rmdir(dir);
}
END_TEST

static void train_for_long(struct ddp_group *g, void *arg)
{
    struct small s;
    (void)arg;
    small_init(&s, 1, COUNT, DDP_FLOAT32);
    small_create(&s, g, NULL);
    for (unsigned step = 0; step < TRACE_MOST_EVENTS / 3 + 100; step++) /* of 3 events each */
        rank_expect(ddp_model_sync(s.m) == 0);
    small_fini(&s);
}

START_TEST(a_trace_has_a_limit_and_records_it)
{
    static const char end[] = "\"the trace ends here: it is limited to 200000 events\"}\n]\n";
    char dir[] = "/tmp/trace-XXXXXX", path[64], text[sizeof(end)] = "";
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/t", dir);
    setenv("DDP_TRACE", path, 1);
    ranks_run(1, train_for_long, NULL);
    unsetenv("DDP_TRACE");
    snprintf(path, sizeof(path), "%s/t.0", dir);
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fseek(f, -(long)(sizeof(end) - 1), SEEK_END), 0);
    ck_assert_uint_eq(fread(text, 1, sizeof(end) - 1, f), sizeof(end) - 1);
    ck_assert_str_eq(text, end);
    ck_assert_int_lt(ftell(f), 64 << 20);
    fclose(f);
    unlink(path);
    rmdir(dir);
}
END_TEST

static void have_no_place_for_a_trace(struct ddp_group *g, void *arg)
{
    struct ddp_model *m = NULL;
    struct small s;
    (void)arg;
    small_init(&s, 1, COUNT, DDP_FLOAT32);
    if (ddp_rank(g) == 0)
        unsetenv("DDP_TRACE");
    int rc = ddp_model_create(g, s.t, 1, NULL, &m);
    rank_expect(rc == (ddp_rank(g) == 0 ? DDP_EMISMATCH : DDP_ESYSTEM));
    rank_expect_text(ddp_rank(g) == 0
                         ? "rank 1 failed"
                         : "DDP_TRACE: cannot write '/nowhere/t.1.json': No such file");
    small_fini(&s);
}

START_TEST(a_trace_that_cannot_be_written_is_reported_at_the_start)
{
    setenv("DDP_TRACE", "/nowhere/t.json", 1);
    ranks_run(2, have_no_place_for_a_trace, NULL);
    unsetenv("DDP_TRACE");
}
END_TEST

static void write_to_a_full_disk(struct ddp_group *g, void *arg)
{
    struct small s;
    (void)arg;
    small_init(&s, 4, COUNT, DDP_FLOAT32);
    small_create(&s, g, NULL);
    for (int step = 0; step < 200; step++) { /* more than a buffer of the C library holds */
        small_say_all(&s);
        rank_expect(ddp_model_sync(s.m) == 0);
    }
    small_fini(&s);
}

START_TEST(a_full_disk_ends_the_trace_and_not_the_training)
{
    char dir[] = "/tmp/trace-XXXXXX", path[64];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/t.0.json", dir);
    ck_assert_int_eq(symlink("/dev/full", path), 0);
    snprintf(path, sizeof(path), "%s/t.json", dir);
    setenv("DDP_TRACE", path, 1);
    ranks_run(1, write_to_a_full_disk, NULL);
    unsetenv("DDP_TRACE");
    snprintf(path, sizeof(path), "%s/t.0.json", dir);
    unlink(path);
    rmdir(dir);
}
END_TEST

TEST_SUITE(model_options)
{
    Suite *s = suite_create("model options");
    TCase *t = tcase_create("options");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, gradients_in_one_array_are_averaged_in_place);
    tcase_add_test(t, if_one_rank_has_a_gap_all_ranks_copy_that_bucket);
    tcase_add_test(t, library_gradients_are_never_copied);
    tcase_add_loop_test(t, each_way_to_average_gives_the_average, 0,
                        sizeof(ways) / sizeof(ways[0]));
    tcase_add_test(t, compressed_averages_overflow_only_where_a_value_does);
    tcase_add_loop_test(t, a_hook_averages_each_bucket_and_fails_a_step_on_all_ranks, 1, 4);
    tcase_add_test(t, a_nan_fails_the_step_on_all_ranks_and_its_rank_is_named);
    tcase_add_test(t, an_average_that_overflows_is_reported_as_overflow);
    tcase_add_test(t, gradients_that_a_rank_does_not_use_count_as_zeros);
    tcase_add_test(t, buffers_equal_those_of_rank_0_after_each_step);
    tcase_add_test(t, weights_count_the_samples_of_each_rank);
    tcase_add_loop_test(t, clipping_scales_the_norm_of_all_gradients_together, 0, 2);
    tcase_add_loop_test(t, options_out_of_bounds_are_refused_and_no_rank_waits, 0,
                        sizeof(refused) / sizeof(refused[0]));
    suite_add_tcase(s, t);
    t = tcase_create("timeline");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, the_rank_precedes_the_last_suffix_of_a_trace);
    tcase_add_test(t, each_rank_writes_a_timeline_of_its_buckets);
    tcase_add_test(t, a_trace_that_cannot_be_written_is_reported_at_the_start);
    tcase_add_test(t, a_trace_has_a_limit_and_records_it);
    tcase_add_test(t, a_full_disk_ends_the_trace_and_not_the_training);
    suite_add_tcase(s, t);
    return s;
}
