/* test_null.c - every exported call is given NULL for its handles and pointers: an error with the
 * call's name, or the value that its header states, and no crash. The names are compared with
 * libddp.map. */
#include "tests/unit/worker-runtime/ranks.h"

/* A world of 1; for the second row of a call, which gives it a handle and no pointers. */
static struct ddp_group *g;

static struct ddp_group *world(void)
{
    ck_assert_msg(ddp_init(NULL, &g) == 0, "%s", ddp_last_error());
    return g;
}

static float memory[4];
static struct ddp_tensor tensor = {
    .name = "t", .param = memory, .grad = memory + 2, .count = 1, .dtype = DDP_FLOAT32};

static struct ddp_model *model(void)
{
    struct ddp_model *m = NULL;
    ck_assert_msg(ddp_model_create(world(), &tensor, 1, NULL, &m) == 0, "%s", ddp_last_error());
    return m;
}

static struct ddp_sampler *sampler(void)
{
    struct ddp_sampler *s = NULL;
    const struct ddp_sampler_opts opts = {.n = 4};
    ck_assert_msg(ddp_sampler_create(world(), &opts, &s) == 0, "%s", ddp_last_error());
    return s;
}

static struct ddp_scaler scaler(void)
{
    struct ddp_scaler s;
    ck_assert_int_eq(ddp_scaler_init(&s, NULL), 0);
    return s;
}
#define SCALER (&(struct ddp_scaler[]){scaler()}[0])

static struct ddp_zero *zero(void)
{
    struct ddp_zero *z = NULL;
    const struct ddp_zero_opts opts = {.lr = 1};
    ck_assert_msg(ddp_zero_create(world(), &tensor, 1, &opts, &z) == 0, "%s", ddp_last_error());
    return z;
}

static struct ddp_syncbn *syncbn(void)
{
    struct ddp_syncbn *bn = NULL;
    const struct ddp_syncbn_opts opts = {
        .channels = 1, .dtype = DDP_FLOAT32, .running_mean = memory, .running_var = memory};
    ck_assert_msg(ddp_syncbn_create(world(), &opts, &bn) == 0, "%s", ddp_last_error());
    return bn;
}
#define SHAPE(outer_, inner_) (&(struct ddp_syncbn_shape){(outer_), (inner_)})

static struct ddp_progress *progress(void)
{
    struct ddp_progress *p = NULL;
    ck_assert_msg(ddp_progress_create(world(), "", 1, &p) == 0, "%s", ddp_last_error());
    return p;
}

static struct ddp_request *request(void)
{
    struct ddp_request *r = NULL;
    ck_assert_msg(ddp_ibarrier(world(), &r) == 0, "%s", ddp_last_error());
    return r;
}

enum { N = 3 };
static size_t counts[] = {N};
static int do_nothing(struct ddp_group *w, void *arg)
{
    (void)arg;
    return w != NULL ? 0 : -1;
}

/* --- the rows --------------------------------------------------------------------------------- */

struct visit {
    int wanted;       /* the row to call; -1: none */
    const char *name; /* of a call, or NULL; has_row: whether it has a row */
    bool has_row;
    int n; /* rows so far */
};

static bool comes_to(struct visit *v, const char *name)
{
    v->has_row |= v->name != NULL && strcmp(v->name, name) == 0;
    return v->n++ == v->wanted;
}

static void check_failure(const char *name, const char *call, int rc)
{
    const char *text = ddp_last_error();
    const size_t n = strlen(name);
    ck_assert_msg(rc == DDP_EINVAL, "%s returns %d", call, rc);
    ck_assert_msg(strncmp(text, name, n) == 0 && text[n] == ':' && text[n + 1] == ' ',
                  "%s says '%s'", call, text);
}

/* DDP_EINVAL, and the text begins with the name. */
#define FAILS(name, ...)                                                                           \
    if (comes_to(v, #name))                                                                        \
    check_failure(#name, #name "(" #__VA_ARGS__ ")", name(__VA_ARGS__))
/* That value. */
#define GIVES(name, value, ...)                                                                    \
    if (comes_to(v, #name))                                                                        \
    ck_assert_msg(name(__VA_ARGS__) == (value), #name "(" #__VA_ARGS__ ")")
/* Nothing, and there is nothing to return. */
#define RETURNS(name, ...)                                                                         \
    if (comes_to(v, #name))                                                                        \
    name(__VA_ARGS__)

static void visit_rows(struct visit *v)
{
    FAILS(ddp_all_gather, NULL, NULL, NULL, N, DDP_FLOAT32, NULL);
    FAILS(ddp_all_gather, world(), NULL, NULL, N, DDP_FLOAT32, NULL);
    FAILS(ddp_all_gather_v, NULL, NULL, NULL, counts, DDP_FLOAT32, NULL);
    FAILS(ddp_all_gather_v, world(), memory, memory, NULL, DDP_FLOAT32, NULL);
    FAILS(ddp_all_reduce, NULL, NULL, NULL, N, DDP_FLOAT32, DDP_SUM, NULL);
    FAILS(ddp_all_reduce, world(), NULL, memory, N, DDP_FLOAT32, DDP_SUM, NULL);
    FAILS(ddp_all_reduce, world(), memory, NULL, N, DDP_FLOAT32, DDP_SUM, NULL);
    FAILS(ddp_all_reduce_checked, NULL, NULL, NULL, N, DDP_FLOAT32, DDP_SUM, NULL, NULL);
    FAILS(ddp_all_reduce_checked, world(), memory, memory, N, DDP_FLOAT32, DDP_SUM, NULL, NULL);
    FAILS(ddp_all_to_all, NULL, NULL, NULL, N, DDP_FLOAT32, NULL);
    FAILS(ddp_all_to_all, world(), NULL, NULL, N, DDP_FLOAT32, NULL);
    FAILS(ddp_all_to_all_v, NULL, NULL, counts, NULL, counts, DDP_FLOAT32, NULL);
    FAILS(ddp_all_to_all_v, world(), NULL, NULL, NULL, NULL, DDP_FLOAT32, NULL);
    FAILS(ddp_alloc, NULL, 1, &(void *){NULL});
    FAILS(ddp_alloc, world(), 1, NULL);
    FAILS(ddp_barrier, NULL);
    FAILS(ddp_broadcast, NULL, NULL, NULL, N, DDP_FLOAT32, 0, NULL);
    FAILS(ddp_broadcast, world(), NULL, NULL, N, DDP_FLOAT32, 0, NULL);
    FAILS(ddp_broadcast_bytes, NULL, NULL, 1, 0);
    FAILS(ddp_broadcast_bytes, world(), NULL, 1, 0);
    FAILS(ddp_cast, NULL, DDP_FLOAT32, NULL, DDP_FLOAT32, 1);
    FAILS(ddp_cast, memory, DDP_FLOAT32, memory, DDP_FLOAT32, SIZE_MAX);
    RETURNS(ddp_checkpoint_close, NULL);
    FAILS(ddp_checkpoint_done, NULL);
    FAILS(ddp_checkpoint_latest, NULL, NULL);
    FAILS(ddp_checkpoint_load, NULL, 0, NULL, 1);
    FAILS(ddp_checkpoint_open, NULL, NULL, NULL);
    FAILS(ddp_checkpoint_open, world(), NULL, NULL);
    FAILS(ddp_checkpoint_open, world(), &(struct ddp_checkpoint_opts){.directory = NULL},
          &(struct ddp_checkpoint *){NULL});
    FAILS(ddp_checkpoint_requested, NULL, NULL);
    FAILS(ddp_checkpoint_requested, world(), NULL);
    FAILS(ddp_checkpoint_save, NULL, 0, NULL, 1);
    FAILS(ddp_checkpoint_wait, NULL);
    GIVES(ddp_completed_steps, 0, NULL);
    FAILS(ddp_memory_alloc, NULL, 1, NULL);
    RETURNS(ddp_memory_close, NULL);
    FAILS(ddp_memory_found, NULL, NULL);
    RETURNS(ddp_memory_free, NULL);
    FAILS(ddp_memory_item_bytes, NULL, 0, NULL);
    FAILS(ddp_memory_load, NULL, NULL, 1);
    FAILS(ddp_memory_open, NULL, NULL);
    FAILS(ddp_memory_open, world(), NULL);
    FAILS(ddp_memory_read, NULL, 0, NULL, 1);
    FAILS(ddp_memory_save, NULL, 0, NULL, 1);
    FAILS(ddp_memory_wait, NULL);
    RETURNS(ddp_dataset_close, NULL);
    GIVES(ddp_dataset_count, 0, NULL);
    GIVES(ddp_dataset_dtype, DDP_FLOAT32, NULL);
    FAILS(ddp_dataset_read, NULL, NULL, 1, NULL);
    GIVES(ddp_dataset_sample_bytes, 0, NULL);
    GIVES(ddp_dataset_shape, 0, NULL, NULL);
    FAILS(ddp_device, NULL, NULL);
    FAILS(ddp_device, world(), NULL);
    GIVES(ddp_dtype_size, 0, (enum ddp_dtype)99);
    FAILS(ddp_end_wait_retry, NULL);
    GIVES(ddp_fail, DDP_EPROGRAM, NULL);
    RETURNS(ddp_finalize, NULL);
    RETURNS(ddp_free, NULL, NULL);
    RETURNS(ddp_free, NULL, memory);
    FAILS(ddp_gather, NULL, NULL, NULL, N, DDP_FLOAT32, 0, NULL);
    FAILS(ddp_gather, world(), NULL, NULL, N, DDP_FLOAT32, 0, NULL);
    FAILS(ddp_gather_v, NULL, NULL, NULL, counts, DDP_FLOAT32, 0, NULL);
    FAILS(ddp_gather_v, world(), NULL, NULL, NULL, DDP_FLOAT32, 0, NULL);
    GIVES(ddp_generation, 0, NULL);
    RETURNS(ddp_group_destroy, NULL);
    RETURNS(ddp_group_destroy, world());
    FAILS(ddp_group_join, NULL, NULL, NULL);
    FAILS(ddp_group_join, &(struct ddp_rank_info){.name = NULL}, NULL, &(struct ddp_group *){NULL});
    FAILS(ddp_group_split, NULL, 0, 0, NULL);
    FAILS(ddp_group_split, world(), 0, 0, NULL);
    FAILS(ddp_iall_gather, NULL, NULL, NULL, N, DDP_FLOAT32, NULL, NULL);
    FAILS(ddp_iall_gather, world(), memory, memory, N, DDP_FLOAT32, NULL, NULL);
    FAILS(ddp_iall_gather_v, NULL, NULL, NULL, counts, DDP_FLOAT32, NULL, NULL);
    FAILS(ddp_iall_gather_v, world(), memory, memory, NULL, DDP_FLOAT32, NULL, NULL);
    FAILS(ddp_iall_reduce, NULL, NULL, NULL, N, DDP_FLOAT32, DDP_SUM, NULL, NULL);
    FAILS(ddp_iall_reduce, world(), memory, memory, N, DDP_FLOAT32, DDP_SUM, NULL, NULL);
    FAILS(ddp_iall_reduce_checked, NULL, NULL, NULL, N, DDP_FLOAT32, DDP_SUM, NULL, NULL, NULL);
    FAILS(ddp_iall_reduce_checked, world(), memory, memory, N, DDP_FLOAT32, DDP_SUM, NULL, NULL,
          NULL);
    FAILS(ddp_iall_to_all, NULL, NULL, NULL, N, DDP_FLOAT32, NULL, NULL);
    FAILS(ddp_iall_to_all, world(), memory, memory, N, DDP_FLOAT32, NULL, NULL);
    FAILS(ddp_iall_to_all_v, NULL, NULL, counts, NULL, counts, DDP_FLOAT32, NULL, NULL);
    FAILS(ddp_iall_to_all_v, world(), NULL, NULL, NULL, NULL, DDP_FLOAT32, NULL, NULL);
    FAILS(ddp_ibarrier, NULL, NULL);
    FAILS(ddp_ibarrier, world(), NULL);
    FAILS(ddp_ibroadcast, NULL, NULL, NULL, N, DDP_FLOAT32, 0, NULL, NULL);
    FAILS(ddp_ibroadcast, world(), memory, memory, N, DDP_FLOAT32, 0, NULL, NULL);
    FAILS(ddp_idx_open, NULL, NULL);
    FAILS(ddp_igather, NULL, NULL, NULL, N, DDP_FLOAT32, 0, NULL, NULL);
    FAILS(ddp_igather, world(), memory, memory, N, DDP_FLOAT32, 0, NULL, NULL);
    FAILS(ddp_igather_v, NULL, NULL, NULL, counts, DDP_FLOAT32, 0, NULL, NULL);
    FAILS(ddp_igather_v, world(), memory, memory, NULL, DDP_FLOAT32, 0, NULL, NULL);
    FAILS(ddp_init, NULL, NULL);
    FAILS(ddp_irecv, NULL, NULL, N, DDP_FLOAT32, 0, 0, NULL, NULL);
    FAILS(ddp_irecv, world(), NULL, N, DDP_FLOAT32, 1, 0, NULL, NULL);
    FAILS(ddp_ireduce, NULL, NULL, NULL, N, DDP_FLOAT32, DDP_SUM, 0, NULL, NULL);
    FAILS(ddp_ireduce, world(), memory, memory, N, DDP_FLOAT32, DDP_SUM, 0, NULL, NULL);
    FAILS(ddp_ireduce_scatter, NULL, NULL, NULL, N, DDP_FLOAT32, DDP_SUM, NULL, NULL);
    FAILS(ddp_ireduce_scatter, world(), memory, memory, N, DDP_FLOAT32, DDP_SUM, NULL, NULL);
    FAILS(ddp_ireduce_scatter_v, NULL, NULL, NULL, counts, DDP_FLOAT32, DDP_SUM, NULL, NULL);
    FAILS(ddp_ireduce_scatter_v, world(), memory, memory, NULL, DDP_FLOAT32, DDP_SUM, NULL, NULL);
    FAILS(ddp_iscatter, NULL, NULL, NULL, N, DDP_FLOAT32, 0, NULL, NULL);
    FAILS(ddp_iscatter, world(), memory, memory, N, DDP_FLOAT32, 0, NULL, NULL);
    FAILS(ddp_iscatter_v, NULL, NULL, NULL, counts, DDP_FLOAT32, 0, NULL, NULL);
    FAILS(ddp_iscatter_v, world(), memory, memory, NULL, DDP_FLOAT32, 0, NULL, NULL);
    FAILS(ddp_isend, NULL, NULL, N, DDP_FLOAT32, 0, 0, NULL, NULL);
    FAILS(ddp_isend, world(), NULL, N, DDP_FLOAT32, 1, 0, NULL, NULL);
    FAILS(ddp_join, NULL);
    GIVES(ddp_loader_consumed, 0, NULL);
    FAILS(ddp_loader_create, NULL, NULL, NULL);
    FAILS(ddp_loader_create, sampler(), NULL, NULL);
    FAILS(ddp_loader_create, sampler(), &(struct ddp_loader_opts){.batch = 1, .n_datasets = 1},
          &(struct ddp_loader *){NULL});
    RETURNS(ddp_loader_destroy, NULL);
    FAILS(ddp_loader_next, NULL, NULL);
    RETURNS(ddp_loader_reset, NULL);
    GIVES(ddp_local_rank, DDP_EINVAL, NULL);
    GIVES(ddp_local_world_size, DDP_EINVAL, NULL);
    RETURNS(ddp_log0, NULL, "%d", 1);
    FAILS(ddp_mean, NULL, NULL, 1);
    FAILS(ddp_mean, world(), NULL, 3);
    FAILS(ddp_mixed_create, NULL, NULL, 0, NULL, NULL);
    FAILS(ddp_mixed_create, &(struct ddp_precision){.param = DDP_FLOAT32}, &tensor, 1, NULL, NULL);
    RETURNS(ddp_mixed_destroy, NULL);
    RETURNS(ddp_mixed_give_params, NULL);
    FAILS(ddp_mixed_take_gradients, NULL, NULL, NULL);
    GIVES(ddp_mixed_tensors, NULL, NULL);
    FAILS(ddp_model_accumulate, NULL, true);
    FAILS(ddp_model_clip, NULL, 1, NULL);
    FAILS(ddp_model_create, NULL, NULL, 1, NULL, NULL);
    FAILS(ddp_model_create, world(), NULL, 1, NULL, &(struct ddp_model *){NULL});
    FAILS(ddp_model_create, world(), &(struct ddp_tensor){.name = NULL}, 1, NULL,
          &(struct ddp_model *){NULL});
    RETURNS(ddp_model_destroy, NULL);
    GIVES(ddp_model_found_inf, false, NULL);
    RETURNS(ddp_model_get_stats, NULL, NULL);
    RETURNS(ddp_model_get_stats, model(), NULL);
    GIVES(ddp_model_is_used, false, NULL, 0);
    FAILS(ddp_model_outer, NULL, 0, NULL, NULL);
    FAILS(ddp_model_outer, model(), 0, NULL, NULL);
    FAILS(ddp_model_outer_loaded, NULL);
    FAILS(ddp_model_outer_loaded, model());
    FAILS(ddp_model_outer_step, NULL, false);
    FAILS(ddp_model_ready, NULL, 0);
    FAILS(ddp_model_ready_range, NULL, 0, 1);
    FAILS(ddp_model_ready_range, model(), 1, SIZE_MAX);
    FAILS(ddp_model_ready_range, model(), SIZE_MAX, 2);
    FAILS(ddp_model_replayed, NULL);
    FAILS(ddp_model_sync, NULL);
    FAILS(ddp_model_weight, NULL, 1);
    FAILS(ddp_monitored_barrier, NULL, 0);
    GIVES(ddp_n_nodes, DDP_EINVAL, NULL);
    FAILS(ddp_nccl_comm, NULL, NULL);
    FAILS(ddp_nccl_comm, world(), NULL);
    GIVES(ddp_node_rank, DDP_EINVAL, NULL);
    FAILS(ddp_pipeline_create, NULL, NULL, NULL);
    FAILS(ddp_pipeline_create, world(), NULL, &(struct ddp_pipeline *){NULL});
    RETURNS(ddp_pipeline_destroy, NULL);
    FAILS(ddp_pipeline_groups, NULL, 1, NULL, NULL);
    FAILS(ddp_pipeline_groups, world(), 1, NULL, NULL);
    FAILS(ddp_pipeline_step, NULL);
    FAILS(ddp_precision_init, NULL, DDP_O0, DDP_FLOAT16);
    RETURNS(ddp_precision_scaler, NULL, NULL);
    FAILS(ddp_progress_create, NULL, NULL, 0, NULL);
    FAILS(ddp_progress_create, world(), NULL, 0, NULL);
    RETURNS(ddp_progress_destroy, NULL);
    RETURNS(ddp_progress_update, NULL, 1, NULL);
    RETURNS(ddp_progress_update, progress(), 1, NULL);
    GIVES(ddp_rank, DDP_EINVAL, NULL);
    FAILS(ddp_recv, NULL, NULL, N, DDP_FLOAT32, 0, 0, NULL);
    FAILS(ddp_reduce, NULL, NULL, NULL, N, DDP_FLOAT32, DDP_SUM, 0, NULL);
    FAILS(ddp_reduce, world(), NULL, NULL, N, DDP_FLOAT32, DDP_SUM, 0, NULL);
    FAILS(ddp_reduce_scatter, NULL, NULL, NULL, N, DDP_FLOAT32, DDP_SUM, NULL);
    FAILS(ddp_reduce_scatter, world(), NULL, NULL, N, DDP_FLOAT32, DDP_SUM, NULL);
    FAILS(ddp_reduce_scatter_v, NULL, NULL, NULL, counts, DDP_FLOAT32, DDP_SUM, NULL);
    FAILS(ddp_reduce_scatter_v, world(), memory, memory, NULL, DDP_FLOAT32, DDP_SUM, NULL);
    FAILS(ddp_run, NULL, NULL);
    RETURNS(ddp_safetensors_close, NULL);
    GIVES(ddp_safetensors_count, 0, NULL);
    GIVES(ddp_safetensors_find, NULL, NULL, NULL);
    GIVES(ddp_safetensors_get, NULL, NULL, 0);
    FAILS(ddp_safetensors_open, NULL, NULL);
    GIVES(ddp_safetensors_text, NULL, NULL, NULL);
    FAILS(ddp_safetensors_write, NULL, NULL, 1, NULL, 1);
    GIVES(ddp_sampler_consumed, 0, NULL);
    FAILS(ddp_sampler_create, NULL, NULL, NULL);
    FAILS(ddp_sampler_create, world(), NULL, NULL);
    RETURNS(ddp_sampler_destroy, NULL);
    GIVES(ddp_sampler_epoch, -1, NULL);
    GIVES(ddp_sampler_length, 0, NULL);
    GIVES(ddp_sampler_next, 0, NULL, 1, NULL);
    GIVES(ddp_sampler_next, 0, sampler(), 1, NULL);
    GIVES(ddp_sampler_next_epoch, false, NULL, 1);
    FAILS(ddp_sampler_resume, NULL, 0, 0);
    FAILS(ddp_sampler_resume, sampler(), 0, -1);
    RETURNS(ddp_sampler_set_epoch, NULL, 0);
    FAILS(ddp_sampler_verify, NULL, NULL);
    FAILS(ddp_sampler_verify, sampler(), NULL);
    FAILS(ddp_scaler_agree, NULL, NULL);
    FAILS(ddp_scaler_agree, NULL, &(int){0});
    FAILS(ddp_scaler_init, NULL, NULL);
    FAILS(ddp_scaler_init, SCALER, &(struct ddp_scaler_opts){.growth_factor = -1});
    FAILS(ddp_scaler_load, NULL, NULL);
    FAILS(ddp_scaler_load, SCALER, NULL);
    RETURNS(ddp_scaler_save, NULL, NULL);
    RETURNS(ddp_scaler_save, SCALER, NULL);
    FAILS(ddp_scaler_unscale, NULL, NULL, 1, NULL);
    FAILS(ddp_scaler_unscale, SCALER, NULL, 1, &(int){0});
    RETURNS(ddp_scaler_update, NULL, 0);
    FAILS(ddp_scatter, NULL, NULL, NULL, N, DDP_FLOAT32, 0, NULL);
    FAILS(ddp_scatter, world(), NULL, NULL, N, DDP_FLOAT32, 0, NULL);
    FAILS(ddp_scatter_v, NULL, NULL, NULL, counts, DDP_FLOAT32, 0, NULL);
    FAILS(ddp_scatter_v, world(), memory, memory, NULL, DDP_FLOAT32, 0, NULL);
    GIVES(ddp_seed, 0, NULL, 1);
    FAILS(ddp_send, NULL, NULL, N, DDP_FLOAT32, 0, 0, NULL);
    FAILS(ddp_set_timeout, NULL, 1);
    FAILS(ddp_set_timeout, world(), 0);
    RETURNS(ddp_shard_range, NULL, 4, NULL, NULL);
    RETURNS(ddp_shard_range, world(), 4, NULL, NULL);
    FAILS(ddp_spawn, NULL, 2, NULL);
    FAILS(ddp_spawn, do_nothing, 0, NULL);
    FAILS(ddp_spawn_threads, NULL, 2, NULL);
    FAILS(ddp_spawn_threads, do_nothing, 0, NULL);
    FAILS(ddp_state_add, NULL, NULL, NULL, 1);
    FAILS(ddp_state_add, world(), "a", NULL, 1);
    FAILS(ddp_state_add_callbacks, NULL, NULL, NULL, NULL, NULL);
    FAILS(ddp_state_add_callbacks, world(), "a", NULL, NULL, NULL);
    FAILS(ddp_step_done, NULL);
    FAILS(ddp_store_add, NULL, NULL, 1, NULL);
    FAILS(ddp_store_add, world(), NULL, 1, NULL);
    FAILS(ddp_store_address, NULL, NULL, 0, NULL);
    FAILS(ddp_store_address, world(), NULL, 0, NULL);
    FAILS(ddp_store_get, NULL, NULL, NULL, 0, NULL, 0);
    FAILS(ddp_store_get, world(), NULL, NULL, 0, NULL, 0);
    FAILS(ddp_store_set, NULL, NULL, NULL, 1);
    FAILS(ddp_store_set, world(), NULL, NULL, 0);
    FAILS(ddp_store_wait, NULL, NULL, 0);
    FAILS(ddp_store_wait, world(), NULL, 0);
    FAILS(ddp_stream_wait, NULL, NULL, 0);
    FAILS(ddp_stream_wait, world(), NULL, 0);
    FAILS(ddp_syncbn_backward, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    FAILS(ddp_syncbn_backward, syncbn(), SHAPE(2, 1), NULL, NULL, NULL, NULL, NULL);
    FAILS(ddp_syncbn_create, NULL, NULL, NULL);
    FAILS(ddp_syncbn_create, world(), NULL, NULL);
    RETURNS(ddp_syncbn_destroy, NULL);
    FAILS(ddp_syncbn_forward, NULL, NULL, NULL, NULL);
    FAILS(ddp_syncbn_forward, syncbn(), SHAPE(2, 1), NULL, NULL);
    FAILS(ddp_syncbn_forward, syncbn(), SHAPE(SIZE_MAX / 2, 2), memory, memory);
    FAILS(ddp_syncbn_infer, NULL, NULL, NULL, NULL);
    FAILS(ddp_syncbn_infer, syncbn(), NULL, NULL, NULL);
    FAILS(ddp_syncbn_infer, syncbn(), SHAPE(SIZE_MAX / 2, 3), memory, memory);
    FAILS(ddp_syncbn_merge, NULL, NULL, NULL, NULL, 1);
    FAILS(ddp_syncbn_merge, world(), NULL, NULL, NULL, 1);
    FAILS(ddp_test, NULL, NULL);
    FAILS(ddp_test, request(), NULL);
    FAILS(ddp_tokens_open, NULL, NULL, NULL);
    GIVES(ddp_wait, 0, NULL);
    FAILS(ddp_wait_retry, NULL, 0);
    GIVES(ddp_world_size, DDP_EINVAL, NULL);
    FAILS(ddp_zero_create, NULL, NULL, 1, NULL, NULL);
    FAILS(ddp_zero_create, world(), NULL, 1, NULL, &(struct ddp_zero *){NULL});
    RETURNS(ddp_zero_destroy, NULL);
    RETURNS(ddp_zero_get_stats, NULL, NULL);
    RETURNS(ddp_zero_get_stats, zero(), NULL);
    FAILS(ddp_zero_items, NULL, NULL, NULL, NULL);
    FAILS(ddp_zero_items, zero(), NULL, NULL, NULL);
    FAILS(ddp_zero_loaded, NULL);
    FAILS(ddp_zero_set_lr, NULL, 1);
    FAILS(ddp_zero_step, NULL, NULL, NULL);
}

/* Calls that are given no pointer, or end the process. */
static const char *const elsewhere[] = {"ddp_fatal", "ddp_last_error", "ddp_strerror"};

START_TEST(a_call_with_null_fails_or_returns_the_documented_value)
{
    struct visit v = {.wanted = _i};
    visit_rows(&v);
    ddp_finalize(g);
}
END_TEST

START_TEST(each_exported_call_has_a_row)
{
    FILE *map = fopen(getenv("LIBDDP_MAP"), "re");
    char line[128], name[128];
    int n = 0;
    ck_assert_ptr_nonnull(map);
    while (fgets(line, sizeof line, map) != NULL) {
        if (sscanf(line, " %127[a-z0-9_];", name) != 1 || strncmp(name, "ddp_", 4) != 0)
            continue;
        struct visit v = {.wanted = -1, .name = name};
        visit_rows(&v);
        for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
            v.has_row |= strcmp(elsewhere[i], name) == 0;
        ck_assert_msg(v.has_row, "%s of libddp.map has no row", name);
        n++;
    }
    fclose(map);
    ck_assert_int_gt(n, 100);
}
END_TEST

START_TEST(fatal_takes_null_and_exits_with_1)
{
    ddp_fatal(NULL);
}
END_TEST

TEST_SUITE(null)
{
    struct visit all = {.wanted = -1};
    Suite *s = suite_create("null");
    TCase *c = tcase_create("null");
    unsetenv("WORLD_SIZE");
    visit_rows(&all);
    tcase_add_loop_test(c, a_call_with_null_fails_or_returns_the_documented_value, 0, all.n);
    tcase_add_test(c, each_exported_call_has_a_row);
    tcase_add_exit_test(c, fatal_takes_null_and_exits_with_1, EXIT_FAILURE);
    suite_add_tcase(s, c);
    return s;
}
