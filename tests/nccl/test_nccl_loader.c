/* Loaders whose batches go to GPUs: over the double, which checks the order of all copies and
 * kernels, and does not overtake a stream that stands still.
 *
 * Covers: worker-runtime/nccl, worker-runtime/device */
#include "gpu_ranks.h"

#include "double/double.h"

#include <ddp/loader.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { SAMPLES = 90, SAMPLE_BYTES = 700, BATCH = 8, EPOCHS = 2, MOST_BATCHES = 64 };

struct seen { /* what a kernel found in a batch */
    size_t n;
    uint8_t images[BATCH][SAMPLE_BYTES], labels[BATCH];
};

struct input {
    struct ddp_dataset *images, *labels;
    struct ddp_sampler *sampler;
    struct ddp_loader *loader;
    cudaStream_t stream;
    struct seen *seen; /* MOST_BATCHES */
    int64_t index[MOST_BATCHES][BATCH];
    size_t n_batches;
};

static uint8_t pixel_of(int64_t sample, size_t k)
{
    return (uint8_t)(sample * 7 + (int64_t)k);
}

/* --- the files -------------------------------------------------------------------------------- */

static const char *path_of(const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%.*s/%s", (int)sizeof path - 32, gpu_dir, name);
    return path;
}

static void write_files(void)
{
    static const uint8_t head[] = {
        0, 0, 8, 2, 0, 0, 0, SAMPLES, 0, 0, SAMPLE_BYTES >> 8, SAMPLE_BYTES & 255};
    static const uint8_t label_head[] = {0, 0, 8, 1, 0, 0, 0, SAMPLES};
    FILE *images = fopen(path_of("images"), "we"), *labels = fopen(path_of("labels"), "we");
    ck_assert(images != NULL && labels != NULL);
    fwrite(head, 1, sizeof head, images);
    fwrite(label_head, 1, sizeof label_head, labels);
    for (int i = 0; i < SAMPLES; i++) {
        for (size_t k = 0; k < SAMPLE_BYTES; k++)
            fputc(pixel_of(i, k), images);
        fputc(i, labels);
    }
    ck_assert(fclose(images) == 0 && fclose(labels) == 0);
}

static void set_up(void)
{
    gpu_set_up();
    write_files();
}

/* --- a rank's loader -------------------------------------------------------------------------- */

/* Several ranks share their shuffling state under a shared mutex: ThreadSanitizer knows only the
 * mutexes of one process. */
static void open_input(int rank, struct ddp_group *g, struct input *in, unsigned depth)
{
    const struct ddp_sampler_opts order = {
        .n = SAMPLES, .seed = 3, .shuffle = ddp_world_size(g) == 1};
    *in = (struct input){.seen = calloc(MOST_BATCHES, sizeof *in->seen)};
    RANK_CHECK(rank, in->seen != NULL, "memory");
    RANK_CHECK(rank, ddp_idx_open(path_of("images"), &in->images) == 0, "images");
    RANK_CHECK(rank, ddp_idx_open(path_of("labels"), &in->labels) == 0, "labels");
    RANK_CHECK(rank, ddp_sampler_create(g, &order, &in->sampler) == 0, "sampler");
    GPU_CHECK(rank, cudaStreamCreate(&in->stream));
    const struct ddp_loader_opts opts = {.datasets = {in->images, in->labels},
                                         .n_datasets = 2,
                                         .batch = BATCH,
                                         .depth = depth,
                                         .stream = in->stream};
    RANK_CHECK(rank, ddp_loader_create(in->sampler, &opts, &in->loader) == 0, "loader");
}

static void close_input(struct input *in)
{
    ddp_loader_destroy(in->loader);
    ddp_sampler_destroy(in->sampler);
    ddp_dataset_close(in->images);
    ddp_dataset_close(in->labels);
    free(in->seen);
}

struct look { /* of a kernel */
    struct seen *to;
    const void *images, *labels;
    size_t n;
};

static void do_look(void *arg)
{
    const struct look *l = arg;
    memcpy(l->to->images, l->images, l->n * SAMPLE_BYTES);
    memcpy(l->to->labels, l->labels, l->n);
    l->to->n = l->n;
}

/* A kernel of the double that reads the batch, put on a stream. */
static void use(int rank, struct input *in, const struct ddp_batch *b, cudaStream_t stream)
{
    const struct look l = {&in->seen[in->n_batches], b->data[0], b->data[1], b->n};
    const struct double_range read[] = {{b->data[0], b->n * SAMPLE_BYTES, false},
                                        {b->data[1], b->n, false}};
    RANK_CHECK(rank, in->n_batches < MOST_BATCHES, "batches");
    memcpy(in->index[in->n_batches++], b->index, b->n * sizeof *b->index);
    GPU_CHECK(rank, double_queue(stream, "a kernel", do_look, &l, sizeof l, read, 2));
}

/* The kernels have found the files' samples. */
static void expect_seen(int rank, const struct input *in, size_t from)
{
    for (size_t i = from; i < in->n_batches; i++)
        for (size_t s = 0; s < in->seen[i].n; s++) {
            const int64_t sample = in->index[i][s];
            RANK_CHECK(rank, in->seen[i].labels[s] == sample, "batch %zu, sample %zu", i, s);
            for (size_t k = 0; k < SAMPLE_BYTES; k++)
                RANK_CHECK(rank, in->seen[i].images[s][k] == pixel_of(sample, k),
                           "batch %zu, sample %zu, byte %zu", i, s, k);
        }
}

static void next(int rank, struct input *in, struct ddp_batch *b)
{
    RANK_CHECK(rank, ddp_loader_next(in->loader, b) == 0, "next");
}

static void run_alone(rank_fn *fn, void *arg)
{
    struct ranks r;
    ranks_start(&r, 1, fn, arg);
    ranks_expect_success(&r);
}

/* --- order ------------------------------------------------------------------------------------ */

static int run_epochs(int rank, void *arg)
{
    struct input in;
    struct ddp_batch b;
    struct ddp_group *g = gpu_rank_init(rank);
    open_input(rank, g, &in, *(unsigned *)arg);
    while (ddp_sampler_next_epoch(in.sampler, EPOCHS))
        for (next(rank, &in, &b); b.n > 0; next(rank, &in, &b))
            use(rank, &in, &b, in.stream);
    RANK_CHECK(rank, in.n_batches == EPOCHS * ((SAMPLES + BATCH - 1) / BATCH), "%zu", in.n_batches);
    GPU_CHECK(rank, cudaStreamSynchronize(in.stream));
    expect_seen(rank, &in, 0);
    close_input(&in);
    GPU_CHECK(rank, cudaGetLastError());
    ddp_finalize(g);
    return 0;
}

START_TEST(batches_are_on_the_gpu_when_the_stream_reaches_them)
{
    unsigned depths[] = {0, 1, 7};
    gpu_expect_ranks(1, run_epochs, &depths[_i]);
}
END_TEST

static atomic_bool gate_is_open;

static void wait_at_gate(void *arg)
{
    (void)arg;
    while (!atomic_load(&gate_is_open))
        usleep(200); /* between two looks; the test opens it in any case */
}

/* With the stream at rest nothing more than two rounds of places can be taken: each is used once,
 * and a second batch lies in its pinned memory. */
static int run_standstill(int rank, void *arg)
{
    enum { DEPTH = 2, PLACES = DEPTH + 1 };
    struct input in;
    struct ddp_batch b;
    struct ddp_group *g = gpu_rank_init(rank);
    (void)arg;
    open_input(rank, g, &in, DEPTH);
    ddp_sampler_set_epoch(in.sampler, 0);
    GPU_CHECK(rank, double_queue(in.stream, "a gate", wait_at_gate, "", 1, NULL, 0));
    for (int i = 0; i < 2 * PLACES; i++) {
        next(rank, &in, &b);
        use(rank, &in, &b, in.stream);
    }
    atomic_store(&gate_is_open, true);
    for (next(rank, &in, &b); b.n > 0; next(rank, &in, &b))
        use(rank, &in, &b, in.stream);
    GPU_CHECK(rank, cudaStreamSynchronize(in.stream));
    expect_seen(rank, &in, 0);
    ddp_finalize(g); /* takes the loader with it */
    return 0;
}

START_TEST(the_loader_does_not_overtake_a_stalled_stream)
{
    gpu_expect_ranks(1, run_standstill, NULL);
}
END_TEST

/* Until the loader's thread has asked for a copy that is not done, and has been answered: it asks
 * once more. */
static void await_query(int rank)
{
    const uint64_t end_ms = co_deadline_ms(60000);
    const unsigned before = double_count_queries();
    while (double_count_queries() < before + 2 && co_left_ms(end_ms) > 0)
        usleep(200); /* between two looks */
    RANK_CHECK(rank, double_count_queries() >= before + 2, "nobody asks");
}

/* As above; and a graph is captured while the loader's thread requests a copy that is blocked. */
static int run_capture(int rank, void *arg)
{
    enum { DEPTH = 2, PLACES = DEPTH + 1 };
    struct input in;
    struct ddp_batch b;
    cudaStream_t other;
    cudaGraph_t graph;
    struct ddp_group *g = gpu_rank_init(rank);
    (void)arg;
    open_input(rank, g, &in, DEPTH);
    GPU_CHECK(rank, cudaStreamCreate(&other));
    ddp_sampler_set_epoch(in.sampler, 0);
    GPU_CHECK(rank, double_queue(in.stream, "a gate", wait_at_gate, "", 1, NULL, 0));
    for (int i = 0; i < 2 * PLACES; i++) {
        next(rank, &in, &b);
        use(rank, &in, &b, in.stream);
    }
    GPU_CHECK(rank, cudaStreamBeginCapture(other, cudaStreamCaptureModeGlobal));
    await_query(rank);
    GPU_CHECK(rank, cudaStreamEndCapture(other, &graph));
    GPU_CHECK(rank, cudaGraphDestroy(graph));
    atomic_store(&gate_is_open, true);
    for (next(rank, &in, &b); b.n > 0; next(rank, &in, &b))
        use(rank, &in, &b, in.stream);
    GPU_CHECK(rank, cudaStreamSynchronize(in.stream));
    expect_seen(rank, &in, 0);
    ddp_finalize(g);
    return 0;
}

START_TEST(a_graph_may_be_captured_while_batches_are_read_ahead)
{
    gpu_expect_ranks(1, run_capture, NULL);
}
END_TEST

/* Batches keep arriving while another stream, unknown to the loader, uses one. */
static int run_beside(int rank, void *arg)
{
    const bool orders = *(bool *)arg;
    struct input in;
    struct ddp_batch b;
    cudaStream_t other;
    cudaEvent_t event;
    struct ddp_group *g = gpu_rank_init(rank);
    open_input(rank, g, &in, 1);
    GPU_CHECK(rank, cudaStreamCreate(&other));
    GPU_CHECK(rank, cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    ddp_sampler_set_epoch(in.sampler, 0);
    for (next(rank, &in, &b); b.n > 0; next(rank, &in, &b)) {
        GPU_CHECK(rank, cudaEventRecord(event, in.stream));
        GPU_CHECK(rank, cudaStreamWaitEvent(other, event, 0));
        use(rank, &in, &b, other);
        if (!orders)
            continue;
        GPU_CHECK(rank, cudaEventRecord(event, other));
        GPU_CHECK(rank, cudaStreamWaitEvent(in.stream, event, 0));
    }
    GPU_CHECK(rank, cudaStreamSynchronize(other));
    ddp_finalize(g);
    return 0;
}

START_TEST(another_stream_may_use_a_batch_if_the_loaders_waits_for_it)
{
    bool orders = true;
    gpu_expect_ranks(1, run_beside, &orders);
}
END_TEST

#ifndef __SANITIZE_THREAD__ /* which finds it first: the double's streams are threads */
START_TEST(the_double_finds_a_stream_that_nothing_waits_for)
{
    bool orders = false;
    run_alone(run_beside, &orders);
    ck_assert_msg(strncmp(strstr(gpu_first_report(), "race: "), "race: cudaMemcpyAsync",
                          strlen("race: cudaMemcpyAsync")) == 0,
                  "%s", gpu_first_report());
}
END_TEST
#endif

static int run_reset(int rank, void *arg)
{
    struct input in;
    struct ddp_batch b;
    struct ddp_group *g = gpu_rank_init(rank);
    (void)arg;
    open_input(rank, g, &in, 3);
    for (int i = 0; i < 3; i++) {
        ddp_sampler_set_epoch(in.sampler, i);
        ddp_loader_reset(in.loader);
        next(rank, &in, &b);
        use(rank, &in, &b, in.stream);
        next(rank, &in, &b);
        use(rank, &in, &b, in.stream);
    }
    RANK_CHECK(rank, ddp_loader_consumed(in.loader) == 2 * BATCH, "consumed");
    GPU_CHECK(rank, cudaStreamSynchronize(in.stream));
    expect_seen(rank, &in, 0);
    close_input(&in);
    ddp_finalize(g);
    return 0;
}

START_TEST(batches_read_ahead_can_be_discarded)
{
    gpu_expect_ranks(1, run_reset, NULL);
}
END_TEST

/* --- failures --------------------------------------------------------------------------------- */

static int run_refused(int rank, void *arg)
{
    struct ddp_dataset *images;
    struct ddp_sampler *s;
    struct ddp_loader *l = NULL;
    const struct ddp_sampler_opts order = {.n = SAMPLES};
    struct ddp_group *g = rank_init(rank, 60000);
    RANK_CHECK(rank, ddp_idx_open(path_of("images"), &images) == 0, "images");
    RANK_CHECK(rank, ddp_sampler_create(g, &order, &s) == 0, "sampler");
    const struct ddp_loader_opts opts = {
        .datasets = {images}, .n_datasets = 1, .batch = BATCH, .stream = cudaStreamPerThread};
    RANK_CHECK(rank, ddp_loader_create(s, &opts, &l) == DDP_EUNSUPPORTED && l == NULL, "no GPU");
    RANK_CHECK(rank, strstr(ddp_last_error(), arg) != NULL, "it says so");
    ddp_finalize(g);
    return 0;
}

START_TEST(without_a_gpu_a_gpu_loader_is_refused_with_the_reason)
{
    setenv("NCCL_DOUBLE_DEVICES", "no driver", 1);
    run_alone(run_refused, (void *)"cannot load the CUDA driver");
    unsetenv("NCCL_DOUBLE_DEVICES");
    setenv("DDP_BACKEND", "cpu", 1);
    run_alone(run_refused, (void *)"DDP_BACKEND=cpu");
    unsetenv("DDP_BACKEND");
}
END_TEST

static int run_cuda_failure(int rank, void *arg)
{
    struct input in;
    struct ddp_batch b;
    struct ddp_group *g = gpu_rank_init(rank);
    (void)arg;
    open_input(rank, g, &in, 1);
    ddp_sampler_set_epoch(in.sampler, 0);
    next(rank, &in, &b);
    double_fail_stream(in.stream);
    RANK_CHECK(rank, ddp_loader_next(in.loader, &b) == DDP_ESYSTEM, "the stream has failed");
    RANK_CHECK(rank, strstr(ddp_last_error(), "unspecified launch failure") != NULL, "which way");
    RANK_CHECK(rank, ddp_loader_next(in.loader, &b) == DDP_ESYSTEM, "and so it stays");
    close_input(&in);
    ddp_finalize(g);
    return 0;
}

START_TEST(a_cuda_error_is_returned_and_ends_the_loader)
{
    run_alone(run_cuda_failure, NULL);
}
END_TEST

static int run_short_file(int rank, void *arg)
{
    struct input in;
    struct ddp_batch b;
    struct ddp_group *g = gpu_rank_init(rank);
    (void)arg;
    open_input(rank, g, &in, 1);
    ddp_sampler_set_epoch(in.sampler, 0);
    RANK_CHECK(rank, truncate(path_of("images"), 12) == 0, "truncate");
    RANK_CHECK(rank, ddp_loader_next(in.loader, &b) == DDP_ESYSTEM, "the file is short");
    RANK_CHECK(rank, strstr(ddp_last_error(), "the file was truncated after it was opened") != NULL,
               "it is named");
    ddp_finalize(g);
    return 0;
}

START_TEST(a_file_that_shrinks_is_an_error)
{
    run_alone(run_short_file, NULL);
}
END_TEST

enum { GONE = 9 };

struct death {       /* all ranks map it */
    bool is_in_part; /* in a group that was split off, before the world had a communicator */
    atomic_bool asks;
};

/* Rank 0's stream waits in a collective for rank 1, and the loader for that stream. Rank 1 dies
 * when rank 0 asks for the batch that it will not get. */
static int run_peer_dies(int rank, void *arg)
{
    enum { PLACES = 2 };
    struct death *death = arg;
    struct input in;
    struct ddp_batch b;
    float *sum;
    struct ddp_group *g = gpu_rank_init(rank), *part = g;
    open_input(rank, g, &in, PLACES - 1);
    if (death->is_in_part)
        RANK_CHECK(rank, ddp_group_split(g, 0, rank, &part) == 0, "split");
    GPU_CHECK(rank, cudaMalloc((void **)&sum, sizeof *sum));
    GPU_CHECK(rank, cudaMemsetAsync(sum, 0, sizeof *sum, in.stream));
    RANK_CHECK(rank, ddp_all_reduce(part, sum, sum, 1, DDP_FLOAT32, DDP_SUM, in.stream) == 0,
               "sum");
    RANK_CHECK(rank, ddp_stream_wait(part, in.stream, 0) == 0, "wait");
    while (rank == 1 && !atomic_load(&death->asks))
        usleep(200); /* between two looks; the test has a deadline */
    if (rank == 1)
        raise(SIGKILL);
    RANK_CHECK(rank, ddp_all_reduce(part, sum, sum, 1, DDP_FLOAT32, DDP_SUM, in.stream) == 0,
               "sum");
    ddp_sampler_set_epoch(in.sampler, 0);
    for (int i = 0; i < 2 * PLACES; i++)
        next(rank, &in, &b);
    atomic_store(&death->asks, true);
    RANK_CHECK(rank, ddp_loader_next(in.loader, &b) == DDP_EPEER, "a peer is gone");
    ddp_finalize(g);
    return GONE;
}

START_TEST(a_death_ends_the_wait_for_a_batch)
{
    struct death *death =
        mmap(NULL, sizeof *death, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(death, MAP_FAILED);
    death->is_in_part = _i;
    gpu_expect_death(2, run_peer_dies, death, SIGKILL, W_EXITCODE(GONE, 0));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("nccl_loader");
    TCase *t = tcase_create("order");
    tcase_add_checked_fixture(t, set_up, gpu_tear_down);
    tcase_set_timeout(t, 150);
    tcase_add_loop_test(t, batches_are_on_the_gpu_when_the_stream_reaches_them, 0, 3);
    tcase_add_test(t, the_loader_does_not_overtake_a_stalled_stream);
    tcase_add_test(t, a_graph_may_be_captured_while_batches_are_read_ahead);
    tcase_add_test(t, another_stream_may_use_a_batch_if_the_loaders_waits_for_it);
#ifndef __SANITIZE_THREAD__
    tcase_add_test(t, the_double_finds_a_stream_that_nothing_waits_for);
#endif
    tcase_add_test(t, batches_read_ahead_can_be_discarded);
    suite_add_tcase(s, t);
    t = tcase_create("failures");
    tcase_add_checked_fixture(t, set_up, gpu_tear_down);
    tcase_set_timeout(t, 150);
    tcase_add_test(t, without_a_gpu_a_gpu_loader_is_refused_with_the_reason);
    tcase_add_test(t, a_cuda_error_is_returned_and_ends_the_loader);
    tcase_add_test(t, a_file_that_shrinks_is_an_error);
    tcase_add_loop_test(t, a_death_ends_the_wait_for_a_batch, 0, 2);
    suite_add_tcase(s, t);
    return run_suite(s);
}
