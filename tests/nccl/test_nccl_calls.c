/* Calls of NCCL that never return, and which threads wait for them: the plug-in through its own
 * interface, over the double, with one rank and a job of the test's. No assertion is on time: what
 * would wait forever is ended by the test's own limit.
 *
 * Covers: worker-runtime/nccl, worker-runtime/device */
#include "gpu_ranks.h"

#include "double/double.h"

#include "common/error.h"
#include "worker-runtime/device/device_plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

enum { BYTES = 1 << 16 };

static const struct device_plugin *plugin;
static struct device *device;
static atomic_bool is_broken; /* the job */
static char gpu_log[PATH_MAX];

static int on_look(void *arg, struct co_error *err)
{
    (void)arg;
    return atomic_load(&is_broken) ? co_fail(err, -ECONNRESET, "a rank has died") : 0;
}

static bool on_tell(void *arg, int code, const char *text)
{
    (void)arg, (void)code, (void)text;
    return !atomic_exchange(&is_broken, true);
}

/* In the test's own process, which CK_FORK gives it. */
static void open_plugin(const char *faults)
{
    struct co_error err;
    const struct device_opts opts = {.local_rank = 1, .abort_timeout_ms = 2000};
    setenv("NCCL_DOUBLE_FAULTS", faults, 1);
    snprintf(gpu_log, sizeof gpu_log, "%.*s/log", (int)sizeof gpu_log - 8, gpu_dir);
    setenv("NCCL_DOUBLE_LOG", gpu_log, 1);
    void *library = dlopen(DEVICE_PLUGIN_FILE, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(library != NULL, "%s", dlerror());
    plugin = dlsym(library, DEVICE_PLUGIN_SYMBOL);
    ck_assert_int_eq(plugin->open(&opts, &device, &err), 0);
}

static struct device_group *make_group(bool may_be_kept)
{
    struct co_error err;
    struct device_group *g;
    uint8_t id[DEVICE_ID_BYTES];
    ck_assert_int_eq(plugin->make_id(device, id, &err), 0);
    const struct device_make how = {.way = DEVICE_NEW,
                                    .n = 1,
                                    .ids = id,
                                    .n_ids = 1,
                                    .tag = 1,
                                    .may_be_kept = may_be_kept,
                                    .timeout_ms = 60000,
                                    .job = {.look = on_look, .tell = on_tell}};
    ck_assert_msg(plugin->make(device, &how, &g, &err) == 0, "%s", err.text);
    return g;
}

static void *alloc(cudaStream_t stream)
{
    struct co_error err;
    void *at;
    ck_assert_int_eq(plugin->alloc(device, BYTES, true, stream, &at, &err), 0);
    return at;
}

static unsigned count_in_log(const char *call)
{
    char line[256];
    unsigned n = 0;
    FILE *f = fopen(gpu_log, "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        n += strstr(line, call) != NULL;
    if (f != NULL)
        fclose(f);
    return n;
}

static void wait_for_log(const char *call)
{
    const uint64_t deadline_ms = co_deadline_ms(60000);
    while (count_in_log(call) == 0) {
        ck_assert_msg(co_left_ms(deadline_ms) != 0, "%s was not called", call);
        usleep(500); /* between two looks */
    }
}

static void *free_it(void *at)
{
    plugin->free(device, at);
    return NULL;
}

/* Another thread gives back memory of g, and blocks in ncclCommDeregister(). */
static pthread_t begin_free(struct device_group *g, cudaStream_t stream)
{
    struct co_error err;
    pthread_t thread;
    void *at = alloc(stream);
    ck_assert_msg(plugin->enlist(g, at, &err) == 0, "%s", err.text);
    ck_assert_int_eq(pthread_create(&thread, NULL, free_it, at), 0);
    wait_for_log("ncclCommDeregister");
    return thread;
}

/* Of a job that is broken: what a call on g returns that looks at it, which not every one does. */
static int look_until_broken(struct device_group *g)
{
    const uint64_t deadline_ms = co_deadline_ms(60000);
    struct co_error err;
    void *comm;
    int code = 0;
    while (code == 0 && co_left_ms(deadline_ms) != 0)
        code = plugin->comm(g, &comm, &err);
    return code;
}

START_TEST(breaking_a_group_does_not_wait_for_a_deregistration)
{
    struct co_error err;
    cudaStream_t stream;
    open_plugin("deregister_hang");
    struct device_group *g = make_group(true);
    ck_assert_int_eq(cudaStreamCreate(&stream), cudaSuccess);
    const pthread_t thread = begin_free(g, stream);
    atomic_store(&is_broken, true);
    ck_assert_int_eq(look_until_broken(g), -ECONNRESET);
    ck_assert_int_eq(count_in_log("ncclCommRevoke"), 1);
    pthread_join(thread, NULL); /* given up, its memory with it */
    ck_assert_int_eq(count_in_log("ncclMemFree"), 0);
    plugin->close(g);
    ck_assert_int_eq(plugin->check(device, &err), -EOWNERDEAD);
    gpu_expect_no_report();
}
END_TEST

START_TEST(an_abort_waits_for_a_deregistration_until_its_timeout)
{
    cudaStream_t stream;
    open_plugin("deregister_hang;revoke_error");
    struct device_group *g = make_group(true);
    ck_assert_int_eq(cudaStreamCreate(&stream), cudaSuccess);
    const pthread_t thread = begin_free(g, stream);
    atomic_store(&is_broken, true);
    ck_assert_int_eq(look_until_broken(g), -EOWNERDEAD);
    ck_assert_int_eq(count_in_log("ncclCommAbort"), 0);
    pthread_join(thread, NULL);
    plugin->close(g);
    gpu_expect_no_report();
}
END_TEST

START_TEST(a_registration_that_hangs_breaks_the_group)
{
    struct co_error err;
    cudaStream_t stream;
    open_plugin("register_hang");
    struct device_group *g = make_group(false);
    ck_assert_int_eq(cudaStreamCreate(&stream), cudaSuccess);
    void *at = alloc(stream);
    ck_assert_int_eq(plugin->enlist(g, at, &err), -EOWNERDEAD);
    ck_assert_ptr_nonnull(strstr(err.text, "this process must be replaced"));
    plugin->close(g);
    gpu_expect_no_report();
}
END_TEST

START_TEST(a_revoked_communicator_ends_without_registered_memory)
{
    struct co_error err;
    cudaStream_t stream;
    open_plugin("");
    struct device_group *g = make_group(false);
    ck_assert_int_eq(cudaStreamCreate(&stream), cudaSuccess);
    void *at = alloc(stream);
    ck_assert_msg(plugin->enlist(g, at, &err) == 0, "%s", err.text);
    atomic_store(&is_broken, true);
    ck_assert_int_eq(look_until_broken(g), -ECONNRESET);
    ck_assert_int_eq(count_in_log("ncclCommDeregister"), 0);
    plugin->close(g);
    ck_assert_int_eq(count_in_log("ncclCommDeregister"), 1);
    ck_assert_int_eq(count_in_log("ncclCommAbort"), 1);
    plugin->free(device, at);
    ck_assert_int_eq(plugin->check(device, &err), 0);
    gpu_expect_no_report();
}
END_TEST

START_TEST(a_revoke_that_hangs_does_not_block_other_communicators)
{
    open_plugin("revoke_hang@1");
    struct device_group *g = make_group(false), *other = make_group(false);
    atomic_store(&is_broken, true);
    ck_assert_int_eq(look_until_broken(g), -ECONNRESET);
    ck_assert_int_eq(count_in_log("ncclCommRevoke"), 2);
    ck_assert_int_eq(count_in_log("ncclCommAbort"), 1);
    plugin->close(g);
    plugin->close(other);
    ck_assert_int_eq(count_in_log("ncclCommAbort"), 2);
    gpu_expect_no_report();
}
END_TEST

struct stray { /* a call that a thread makes which has not chosen a device */
    struct device_group *g;
    cudaStream_t stream;
    float *at;
    int code;
};

static void *average_by_thread(void *arg)
{
    struct co_error err;
    struct stray *s = arg;
    const struct device_piece piece = {s->at, BYTES / sizeof *s->at};
    const struct device_average a = {.piece = &piece,
                                     .n = 1,
                                     .dtype = DDP_FLOAT32,
                                     .is_sum = true,
                                     .before = 1,
                                     .after = 0.5,
                                     .stream = s->stream};
    s->code = plugin->average(s->g, &a, &err);
    return NULL;
}

static void *reduce_by_thread(void *arg)
{
    struct co_error err;
    struct stray *s = arg;
    const struct collective c = {.kind = CALL_ALL_REDUCE,
                                 .in = s->at,
                                 .out = s->at,
                                 .count = BYTES / sizeof *s->at,
                                 .dtype = DDP_FLOAT32,
                                 .stream = cudaStreamPerThread};
    s->code = plugin->run(s->g, &c, &err);
    return NULL;
}

static void *normalise_by_thread(void *arg)
{
    struct co_error err;
    struct stray *s = arg;
    double *work = (double *)(void *)s->at;
    const struct device_layer layer = {.channels = 1,
                                       .dtype = DDP_FLOAT64,
                                       .running_mean = work,
                                       .running_var = work + 1,
                                       .mean = work + 2,
                                       .invstd = work + 3};
    s->code = plugin->norm(device, DEVICE_NORM_RECALL, &layer, s->stream, &err);
    return NULL;
}

static void *clip_by_thread(void *arg)
{
    struct co_error err;
    struct stray *s = arg;
    const struct ddp_tensor tensor = {.count = 1, .dtype = DDP_FLOAT32};
    uint8_t *const grad = (uint8_t *)(s->at + BYTES / sizeof *s->at - 1);
    const struct device_clip clip = {.tensor = &tensor,
                                     .grad = &grad,
                                     .n = 1,
                                     .max_norm = 1,
                                     .work = s->at,
                                     .stream = s->stream};
    s->code = plugin->clip(device, &clip, &err);
    return NULL;
}

START_TEST(a_thread_without_a_device_uses_the_ranks_device)
{
    static void *(*const calls[])(void *arg) = {average_by_thread, reduce_by_thread,
                                                normalise_by_thread, clip_by_thread};
    struct co_error err;
    pthread_t thread;
    open_plugin("");
    struct stray s = {.g = make_group(false)};
    ck_assert_int_eq(plugin->load_kernels(device, 60000, &err), 0);
    ck_assert_int_eq(cudaStreamCreate(&s.stream), cudaSuccess);
    s.at = alloc(s.stream);
    ck_assert_int_eq(plugin->wait(s.g, s.stream, 0, &err), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, calls[_i], &s), 0);
    pthread_join(thread, NULL);
    ck_assert_int_eq(s.code, 0);
    ck_assert_int_eq(plugin->wait_averages(s.g, 0, &err), 0);
    ck_assert_int_eq(plugin->wait(s.g, s.stream, 0, &err), 0);
    plugin->close(s.g);
    plugin->free(device, s.at);
    gpu_expect_no_report();
}
END_TEST

START_TEST(an_unusable_device_has_no_index)
{
    struct co_error err;
    int index = -7;
    open_plugin("");
    setenv("NCCL_DOUBLE_DEVICES", "1", 1); /* the rank's, of number 1, is gone */
    ck_assert_int_eq(plugin->use(device, &index, &err), -EIO);
    ck_assert_int_eq(index, -7);
}
END_TEST

START_TEST(an_operation_that_does_not_exist_is_refused)
{
    struct co_error err;
    open_plugin("");
    struct device_group *g = make_group(false);
    float one = 1;
    for (int op = DDP_BAND; op < 64; op++) {
        const struct collective what = {.kind = CALL_ALL_REDUCE,
                                        .dtype = DDP_FLOAT32,
                                        .op = (enum ddp_op)op,
                                        .in = &one,
                                        .out = &one,
                                        .count = 1};
        ck_assert_int_eq(plugin->run(g, &what, &err), -ENOTSUP);
    }
    plugin->close(g);
}
END_TEST

START_TEST(a_failed_exchange_in_place_gives_its_copy_back)
{
    struct co_error err;
    open_plugin("");
    struct device_group *g = make_group(false);
    void *at = alloc(cudaStreamPerThread);
    const unsigned n_blocks = double_count_blocks();
    const struct collective what = {.kind = CALL_ALL_TO_ALL,
                                    .dtype = DDP_FLOAT32,
                                    .in = at,
                                    .out = at,
                                    .count = BYTES / sizeof(float),
                                    .stream = cudaStreamPerThread};
    ck_assert_int_eq(setenv("NCCL_DOUBLE_NO_STREAMS", "1", 1), 0);
    ck_assert_int_ne(plugin->run(g, &what, &err), 0);
    ck_assert_int_eq(cudaStreamSynchronize(cudaStreamPerThread), cudaSuccess);
    ck_assert_uint_eq(double_count_blocks(), n_blocks);
    plugin->close(g);
    plugin->free(device, at);
    gpu_expect_no_report();
}
END_TEST

static const char job_key[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

START_TEST(nccl_gets_the_key_of_the_job_once_and_before_its_first_communicator)
{
    struct co_error err;
    open_plugin("");
    ck_assert_int_eq(plugin->encrypt(device, job_key, &err), 0);
    struct device_group *g = make_group(false);
    ck_assert_int_eq(plugin->encrypt(device, job_key, &err), 0); /* of a later generation */
    ck_assert_uint_eq(count_in_log("ncclSetEncryption"), 1);
    plugin->close(g);
    gpu_expect_no_report();
}
END_TEST

START_TEST(an_nccl_that_has_a_communicator_in_the_clear_is_refused)
{
    struct co_error err;
    open_plugin("");
    struct device_group *g = make_group(false);
    ck_assert_int_eq(plugin->encrypt(device, job_key, &err), -ENOTSUP);
    ck_assert_ptr_nonnull(strstr(err.text, "this process has a communicator that does not"));
    ck_assert_uint_eq(count_in_log("ncclSetEncryption"), 0);
    plugin->close(g);
}
END_TEST

START_TEST(an_nccl_without_tls_is_refused_with_the_reason)
{
    struct co_error err;
    open_plugin("");
    ck_assert_int_eq(setenv("NCCL_DOUBLE_NO_TLS", "1", 1), 0);
    ck_assert_int_eq(plugin->encrypt(device, job_key, &err), -ENOTSUP);
    ck_assert_ptr_nonnull(strstr(err.text, "refuses to encrypt, as DDP_ENCRYPT=1 requires: it "
                                           "needs a build with TLS, and OpenSSL 3"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("nccl_calls");
    TCase *t = tcase_create("calls");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, gpu_set_up, gpu_tear_down);
    tcase_add_test(t, breaking_a_group_does_not_wait_for_a_deregistration);
    tcase_add_test(t, an_abort_waits_for_a_deregistration_until_its_timeout);
    tcase_add_test(t, a_registration_that_hangs_breaks_the_group);
    tcase_add_test(t, a_revoked_communicator_ends_without_registered_memory);
    tcase_add_test(t, a_revoke_that_hangs_does_not_block_other_communicators);
    tcase_add_test(t, an_unusable_device_has_no_index);
    tcase_add_test(t, an_operation_that_does_not_exist_is_refused);
    tcase_add_test(t, a_failed_exchange_in_place_gives_its_copy_back);
    tcase_add_test(t, nccl_gets_the_key_of_the_job_once_and_before_its_first_communicator);
    tcase_add_test(t, an_nccl_that_has_a_communicator_in_the_clear_is_refused);
    tcase_add_test(t, an_nccl_without_tls_is_refused_with_the_reason);
    tcase_add_loop_test(t, a_thread_without_a_device_uses_the_ranks_device, 0, 4);
    suite_add_tcase(s, t);
    return run_suite(s);
}
