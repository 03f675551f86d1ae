/* test_nodes_threads.c - ranks of two nodes as threads of one process, over the loopback interface,
 * so that the thread sanitizer sees what they share: a node's abort word, watches, and messages
 * that one thread sends during the collectives of another. The suite "tsan" runs this test under
 * it.
 *
 * The ranks do not join through a store: the test makes the table that a store would give them.
 * Where they have two addresses each, lanes are spread over these, and the other connections move
 * from one to the other during collectives and messages. */
#include "common/error.h"
#include "segments/control.h"
#include "tests/unit/worker-runtime/exchange.h"
#include "tests/unit/worker-runtime/ranks.h"
#include "worker-runtime/core/backend.h"
#include "worker-runtime/core/user_segment.h"
#include "worker-runtime/shm/backend_cpu.h"
#include "worker-runtime/tcp/backend_net.h"
#include "worker-runtime/tcp/net_map.h"
#include "worker-runtime/tcp/net_move.h"
#include "worker-runtime/tcp/net_watch.h"
#include "worker-runtime/tcp/p2p_tcp_priv.h"
#include "worker-runtime/tcp/transport_tcp_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>

enum { N_NODES = 2, N_LOCAL = 2, N = N_NODES * N_LOCAL, SEGMENT_BYTES = 8 << 20 };
enum connections { PLAIN, STRIPED, ON_TWO_ADDRESSES }; /* the last two: with lanes */

struct node {
    int fd;
    struct control *control;
    struct user_segment *segment[N_LOCAL];
    uint8_t *user[N_LOCAL];
};

struct job {
    struct node node[N_NODES];
    struct net_member member[N]; /* a rank is its position */
    int listener[N][NET_N_CHANNELS];
    uint8_t cookie[NET_COOKIE_BYTES];
    uint32_t world_rank[N_NODES][N_LOCAL];
    uint64_t timeout_ms;
    enum connections connections;
    atomic_uint progress; /* calls begun by all ranks together */
    atomic_uint n_moved;  /* connections */
    pthread_barrier_t everybody;
};

struct rank {
    struct job *job;
    unsigned rank, local;
    struct node *node;
    pthread_t thread, other; /* other: makes messages */
    struct transport_shm *shm;
    struct backend *local_backend, *backend;
    struct net_watch *watch;
    struct net_map map;
    int (*body)(struct rank *r);
    int result, other_result;
    struct co_error err, other_err;
};

/* --- joining ---------------------------------------------------------------------------------- */

/* Node k has 127.0.1.(1 + 2 k) and the next one. */
static struct net_ends two_ends(unsigned node)
{
    struct net_ends ends = {.n = 2, .flags = NET_ENDS_NAMED};
    for (uint8_t i = 0; i < 2; i++)
        ends.end[i] = (struct net_end){.family = AF_INET,
                                       .prefix = 8,
                                       .rail = i,
                                       .bytes = {127, 0, 1, (uint8_t)(1 + 2 * node + i)}};
    return ends;
}

static void job_init(struct job *job, enum connections connections)
{
    struct sockaddr_in loopback = {.sin_family = AF_INET};
    struct sockaddr_storage storage = {0};
    loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    memcpy(&storage, &loopback, sizeof loopback);
    *job = (struct job){.timeout_ms = 60000, .cookie = "a cookie", .connections = connections};
    ck_assert_int_eq(pthread_barrier_init(&job->everybody, NULL, N), 0);
    for (unsigned k = 0; k < N_NODES; k++) {
        struct node *node = &job->node[k];
        ck_assert_int_eq(control_create(N_LOCAL, 0, &node->fd, &node->control, NULL), 0);
        for (unsigned i = 0; i < N_LOCAL; i++) {
            ck_assert_int_eq(user_segment_create(SEGMENT_BYTES, &node->segment[i], NULL), 0);
            node->user[i] = user_segment_base(node->segment[i]);
            job->world_rank[k][i] = k * N_LOCAL + i;
        }
    }
    for (unsigned r = 0; r < N; r++) {
        struct net_member *m = &job->member[r];
        *m = (struct net_member){.rank = r, .node = r / N_LOCAL, .local_rank = r % N_LOCAL};
        m->address = net_address_of(&storage);
        m->lanes = connections == PLAIN ? 0 : 3;
        if (connections == ON_TWO_ADDRESSES) {
            m->ends = two_ends(m->node);
            m->address = net_ends_address(&m->ends.end[0]);
        }
        snprintf(m->host, sizeof m->host, "here");
        for (int c = 0; c < NET_N_CHANNELS; c++)
            ck_assert_int_eq(
                net_address_listen(&m->address, &m->port[c], &job->listener[r][c], NULL), 0);
    }
}

static void job_fini(struct job *job)
{
    for (unsigned k = 0; k < N_NODES; k++) {
        for (unsigned i = 0; i < N_LOCAL; i++)
            user_segment_destroy(job->node[k].segment[i]);
        control_unmap(job->node[k].control);
        close(job->node[k].fd);
    }
    pthread_barrier_destroy(&job->everybody);
}

static void leave(void *arg)
{
    struct rank *r = arg;
    control_leave(r->node->control, r->local);
}

static int join_node(struct rank *r)
{
    struct transport_shm_opts shm = {.control = r->node->control, .timeout_ms = r->job->timeout_ms};
    int code = control_join(r->node->control, r->local, (uint32_t)getpid());
    if (code == 0)
        code = transport_shm_create_world(&shm, r->local, &r->shm, &r->err);
    struct backend_cpu_opts cpu = {.shm = r->shm,
                                   .own = r->node->segment[r->local],
                                   .user = r->node->user,
                                   .kernels = &reduce_scalar};
    if (code == 0)
        code = backend_cpu_create(&cpu, &r->local_backend, &r->err);
    if (code == 0)
        transport_shm_name_ranks(r->shm, (struct transport_shm_names){
                                             .world_rank = r->job->world_rank[r->rank / N_LOCAL],
                                             .where = " on a node"});
    return code;
}

/* With TEST_ENCRYPT. */
static const uint8_t *key_of_job(void)
{
    static const uint8_t key[NET_KEY_BYTES] = "a key";
    return getenv("TEST_ENCRYPT") != NULL ? key : NULL;
}

static int join_nodes(struct rank *r)
{
    struct job *job = r->job;
    struct net_place place[N];
    struct net_member *member = malloc(sizeof job->member);
    unsigned peer[N_NODES - 1] = {(r->rank + N_LOCAL) % N};
    memcpy(member, job->member, sizeof job->member);
    for (unsigned i = 0; i < N; i++)
        place[i] = (struct net_place){i / N_LOCAL, i % N_LOCAL};
    struct net_watch_opts watch = {.links = {.rank = r->rank,
                                             .n = N,
                                             .member = member,
                                             .channel = NET_WATCH,
                                             .cookie = job->cookie,
                                             .key = key_of_job(),
                                             .listener = job->listener[r->rank][NET_WATCH],
                                             .timeout_ms = job->timeout_ms},
                                   .peer = peer,
                                   .n_peers = N_NODES - 1,
                                   .control = r->node->control,
                                   .local_rank = r->local,
                                   .shm = r->shm};
    int code = net_map_init(&r->map, place, N, r->rank, &r->err);
    if (code == 0)
        code = net_watch_create(&watch, co_deadline_ms(60000), &r->watch, &r->err);
    static const struct net_tuning striped = {.network = COST_NETWORK_DEFAULT,
                                              .pair_bytes = 64 << 10,
                                              .segment_bytes = 16 << 10,
                                              .small_bytes = 32 << 10,
                                              .striped_bytes = 20 << 10,
                                              .stripe_bytes = 12 << 10};
    struct backend_net_opts net = {.local = r->local_backend,
                                   .map = &r->map,
                                   .member = member,
                                   .listener = job->listener[r->rank],
                                   .watch = r->watch,
                                   .line = &r->node->control->line[r->local],
                                   .owns_watch = true,
                                   .own = r->node->segment[r->local],
                                   .kernels = &reduce_scalar,
                                   .tuning = job->connections == PLAIN ? NULL : &striped,
                                   .cookie = job->cookie,
                                   .key = key_of_job(),
                                   .timeout_ms = job->timeout_ms,
                                   .deadline_ms = co_deadline_ms(60000),
                                   .on_destroy = leave,
                                   .arg = r};
    return code != 0 ? code : backend_net_create(&net, &r->backend, &r->err);
}

/* Errors go back as results: the check library's assertions belong to the main thread. */
static void *run_rank(void *arg)
{
    struct rank *r = arg;
    r->result = join_node(r);
    pthread_barrier_wait(&r->job->everybody); /* all have joined, as after ddp_init() */
    if (r->result == 0)
        r->result = join_nodes(r);
    if (r->result == 0)
        r->result = r->body(r);
    if (r->backend != NULL)
        r->backend->ops->destroy(r->backend);
    return NULL;
}

static void job_start(struct job *job, struct rank *ranks, int (*body)(struct rank *r))
{
    for (unsigned i = 0; i < N; i++) {
        ranks[i] = (struct rank){.job = job,
                                 .rank = i,
                                 .local = i % N_LOCAL,
                                 .node = &job->node[i / N_LOCAL],
                                 .body = body};
        ck_assert_int_eq(pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]), 0);
    }
}

static void job_join(struct rank *ranks)
{
    for (unsigned i = 0; i < N; i++)
        ck_assert_int_eq(pthread_join(ranks[i].thread, NULL), 0);
}

/* --- collectives, and messages during them ---------------------------------------------------- */

enum { MOST_BYTES = 400000, MIXTURE = 60, MESSAGES = 40, LONG_COUNT = 30000 };

/* Act as if the system had reported an unreachable peer, on the connections that can be replaced
 * now. The caller has the links to itself. */
static void break_paths(struct rank *r, struct net_links *l)
{
    for (unsigned peer = 0; peer < N; peer++) {
        const struct link *k = &l->link[peer];
        if (k->move == NULL || k->out < 0 || k->is_connecting || k->move->state != NET_MOVE_STAYS)
            continue;
        net_move_received(l, peer, -EHOSTUNREACH);
        atomic_fetch_add(&r->job->n_moved, 1);
    }
}

static void break_data_paths(struct rank *r)
{
    break_paths(r, ((struct net *)r->backend)->tcp->opts.links);
}

static void break_message_paths(struct rank *r)
{
    struct p2p_tcp *messages = atomic_load(&((struct net *)r->backend)->messages);
    if (messages == NULL)
        return;
    pthread_mutex_lock(&messages->mutex);
    break_paths(r, messages->links);
    pthread_mutex_unlock(&messages->mutex);
}

/* Of integers: sums come out the same in any order. */
static int mixture_once(struct rank *r, uint32_t i, uint8_t *in, uint8_t *out)
{
    static const size_t bytes[] = {8, 900, 20000, 132000, MOST_BYTES};
    const uint32_t dice = value_mix(i * 7919u);
    struct exchange x = {.kind = CALL_ALL_REDUCE + dice % (CALL_ALL_TO_ALL - CALL_ALL_REDUCE + 1),
                         .dtype = (dice >> 4) % 2 == 0 ? DDP_INT32 : DDP_UINT8,
                         .op = (enum ddp_op)((dice >> 8) % (DDP_PROD + 1)),
                         .root = (int)((dice >> 12) % N),
                         .salt = i,
                         .n = N,
                         .rank = (int)r->rank};
    x.has_counts = (dice >> 17) % 3 == 0 && exchange_has_form(x.kind, true);
    x.count = bytes[(dice >> 20) % (sizeof bytes / sizeof *bytes)] / ddp_dtype_size(x.dtype);
    if (exchange_deals(&x) || exchange_collects(&x))
        x.count /= N;
    exchange_init(&x);
    exchange_fill(&x, in);
    struct collective what = exchange_collective(&x, in, out);
    int code = backend_run(r->backend, &what, &r->err);
    if (code != 0)
        return code;
    uint8_t *expected = exchange_expected(&x);
    bool same = memcmp(out, expected, exchange_out_count(&x) * ddp_dtype_size(x.dtype)) == 0;
    free(expected);
    return same ? 0 : co_fail(&r->err, -EIO, "exchange %u of kind %d is wrong", i, x.kind);
}

static int message_once(struct rank *r, uint32_t i, int32_t *out, int32_t *in, int32_t *expected)
{
    const struct backend_ops *ops = r->backend->ops;
    const size_t count = i % 4 == 0 ? LONG_COUNT : i * 30;
    const int from = (int)(r->rank + N - 1) % N; /* every other one is on the other node */
    struct co_error errs[2];
    struct message to = {
        .is_send = true, .dtype = DDP_INT32, .tag = 3, .count = count, .data = out};
    struct message got = {.peer = from, .dtype = DDP_INT32, .tag = 3, .count = count, .data = in};
    to.peer = (int)(r->rank + 1) % N;
    to.err = &errs[0];
    got.err = &errs[1];
    values_fill(out, DDP_INT32, i, (int)r->rank, count);
    values_fill(expected, DDP_INT32, i, from, count);
    int code = ops->message_begin(r->backend, &to, &r->other_err);
    if (code == 0)
        code = ops->message_begin(r->backend, &got, &r->other_err);
    if (code != 0)
        return code;
    ops->p2p_shm_advance(r->backend, &got);
    ops->p2p_shm_advance(r->backend, &to);
    if (got.code != 0 || to.code != 0)
        return co_fail(&r->other_err, -EIO, "%s", errs[got.code != 0].text);
    if (memcmp(in, expected, count * sizeof *in) != 0)
        return co_fail(&r->other_err, -EIO, "message %u is wrong", i);
    return 0;
}

static void *run_messages(void *arg)
{
    struct rank *r = arg;
    int32_t *memory = calloc(3, LONG_COUNT * sizeof *memory);
    for (uint32_t i = 0; i < MESSAGES && r->other_result == 0; i++) {
        if (i % 5 == r->rank)
            break_message_paths(r);
        r->other_result = message_once(r, i, memory, memory + LONG_COUNT, memory + 2 * LONG_COUNT);
    }
    free(memory);
    return NULL;
}

static int run_mixture(struct rank *r)
{
    uint8_t *in = malloc(2 * MOST_BYTES), *out = malloc(2 * MOST_BYTES);
    int code = pthread_create(&r->other, NULL, run_messages, r) == 0 ? 0 : -EAGAIN;
    for (uint32_t i = 0; i < MIXTURE && code == 0; i++) {
        if (i % 7 == r->rank)
            break_data_paths(r);
        code = mixture_once(r, i, in, out);
    }
    pthread_join(r->other, NULL);
    free(in);
    free(out);
    return code;
}

START_TEST(every_access_of_ranks_on_two_nodes_is_ordered)
{
    struct job job;
    struct rank ranks[N];
    job_init(&job, (enum connections)_i);
    job_start(&job, ranks, run_mixture);
    job_join(ranks);
    for (unsigned i = 0; i < N; i++) {
        ck_assert_msg(ranks[i].result == 0, "rank %u: %s", i, ranks[i].err.text);
        ck_assert_msg(ranks[i].other_result == 0, "rank %u: %s", i, ranks[i].other_err.text);
    }
    ck_assert_int_eq(atomic_load(&job.n_moved) > 10, _i == ON_TWO_ADDRESSES);
    job_fini(&job);
}
END_TEST

/* --- groups of some of the ranks -------------------------------------------------------------- */

static int sum_once(struct backend *b, int32_t *x, struct co_error *err)
{
    const struct collective sum = {
        .kind = CALL_ALL_REDUCE, .dtype = DDP_INT32, .count = 1, .in = x, .out = x};
    return backend_run(b, &sum, err);
}

/* color   the members are the ranks that pass the same one */
static int split_once(struct rank *r, int color, int32_t expected)
{
    struct backend *sub = NULL;
    int rank, n;
    int32_t x = (int32_t)r->rank + 1;
    int code = r->backend->ops->split(r->backend, color, 0, &sub, &rank, &n, &r->err);
    if (code != 0 || color < 0)
        return code;
    code = sum_once(sub, &x, &r->err);
    if (code == 0 && x != expected)
        code = co_fail(&r->err, -EIO, "the sum of group %d is %d", color, x);
    sub->ops->destroy(sub);
    return code;
}

static int run_splits(struct rank *r)
{
    const int local = (int)r->local, node = (int)(r->rank / N_LOCAL);
    int code = split_once(r, local, 2 * local + 4);   /* one rank of each node */
    code = code ?: split_once(r, node, 4 * node + 3); /* the ranks of a node */
    return code ?: split_once(r, r->rank == 1 ? -1 : 0, 1 + 3 + 4);
}

START_TEST(groups_of_some_ranks_are_made_and_destroyed)
{
    struct job job;
    struct rank ranks[N];
    job_init(&job, PLAIN);
    job_start(&job, ranks, run_splits);
    job_join(ranks);
    for (unsigned i = 0; i < N; i++)
        ck_assert_msg(ranks[i].result == 0, "rank %u: %s", i, ranks[i].err.text);
    job_fini(&job);
}
END_TEST

/* --- leaving ---------------------------------------------------------------------------------- */

static void await_progress(struct job *job, unsigned progress)
{
    while (atomic_load(&job->progress) < progress)
        sched_yield();
}

/* Rank 3 waits for a message from rank 0, of the other node, which leaves without having sent
 * any. */
static int run_leaving(struct rank *r)
{
    int32_t x;
    struct message got = {.dtype = DDP_INT32, .tag = 3, .count = 1, .data = &x, .err = &r->err};
    if (r->rank != N - 1) {
        await_progress(r->job, r->rank == 0 ? 1 : 2);
        return 0;
    }
    int code = r->backend->ops->message_begin(r->backend, &got, &r->err);
    atomic_fetch_add(&r->job->progress, 1);
    if (code == 0)
        r->backend->ops->p2p_shm_advance(r->backend, &got);
    atomic_fetch_add(&r->job->progress, 1);
    return code != 0 ? code : got.code;
}

START_TEST(a_receive_from_a_rank_that_leaves_fails)
{
    struct job job;
    struct rank ranks[N];
    job_init(&job, PLAIN);
    job_start(&job, ranks, run_leaving);
    job_join(ranks);
    ck_assert_int_eq(ranks[N - 1].result, -ECONNRESET);
    ck_assert_msg(strstr(ranks[N - 1].err.text, "left the job while others needed it") != NULL,
                  "%s", ranks[N - 1].err.text);
    job_fini(&job);
}
END_TEST

/* Rank 0 has left. Rank 3 does not watch it, but rank 1 of the same node, which waits in a receive
 * and answers. */
static int run_asking(struct rank *r)
{
    int32_t x;
    struct message got = {
        .peer = N - 1, .dtype = DDP_INT32, .tag = 3, .count = 1, .data = &x, .err = &r->err};
    const uint64_t deadline_ms = co_deadline_ms(60000);
    if (r->rank == 1) {
        int code = r->backend->ops->message_begin(r->backend, &got, &r->err);
        if (code == 0)
            r->backend->ops->p2p_shm_advance(r->backend, &got);
        return 0;
    }
    if (r->rank != N - 1)
        return 0;
    while (control_look(r->job->node[0].control, 0) != CONTROL_LEFT)
        sched_yield();
    net_watch_ask_about(r->watch, 0);
    while (!net_watch_of(r->watch, 0).has_left && co_left_ms(deadline_ms) != 0) {
        net_watch_look(r->watch);
        sched_yield();
    }
    if (!net_watch_of(r->watch, 0).has_left || net_watch_of(r->watch, 1).has_left)
        return -EIO;
    got.peer = 0;
    int code = r->backend->ops->message_begin(r->backend, &got, &r->err);
    if (code == 0)
        r->backend->ops->p2p_shm_advance(r->backend, &got);
    return code != 0 ? code : got.code;
}

START_TEST(a_receive_from_a_rank_that_has_left_names_it)
{
    struct job job;
    struct rank ranks[N];
    job_init(&job, PLAIN);
    job_start(&job, ranks, run_asking);
    job_join(ranks);
    ck_assert_msg(ranks[N - 1].result == -ECONNRESET, "%d %s", ranks[N - 1].result,
                  ranks[N - 1].err.text);
    ck_assert_msg(strstr(ranks[N - 1].err.text, "rank 0 on ") != NULL &&
                      strstr(ranks[N - 1].err.text, "left the job while others needed it") != NULL,
                  "%s", ranks[N - 1].err.text);
    ck_assert_msg(strstr(ranks[N - 1].err.text, "or died") == NULL, "%s", ranks[N - 1].err.text);
    job_fini(&job);
}
END_TEST

/* --- failures --------------------------------------------------------------------------------- */

static int run_until_it_breaks(struct rank *r)
{
    enum { COUNT = 100000 };
    int32_t *x = calloc(COUNT, sizeof *x);
    struct collective sum = {
        .kind = CALL_ALL_REDUCE, .dtype = DDP_INT32, .count = COUNT, .in = x, .out = x};
    int code = 0;
    while (code == 0) {
        atomic_fetch_add(&r->job->progress, 1);
        code = backend_run(r->backend, &sum, &r->err);
        memset(x, 0, COUNT * sizeof *x); /* ours again: a late access would be a race */
    }
    free(x);
    return code;
}

START_TEST(the_break_of_one_node_reaches_the_other)
{
    struct job job;
    struct rank ranks[N];
    job_init(&job, (enum connections)(_i % 3));
    job_start(&job, ranks, run_until_it_breaks);
    while (atomic_load(&job.progress) < 12 + (unsigned)_i) /* in the midst of it, here or there */
        sched_yield();
    control_abort_set(job.node[1].control, (struct control_abort){.cause = CONTROL_JOB_STOPPING});
    job_join(ranks);
    for (unsigned i = 0; i < N; i++) {
        ck_assert_msg(ranks[i].result == -ECONNRESET, "rank %u: %d", i, ranks[i].result);
        ck_assert_ptr_nonnull(strstr(ranks[i].err.text, "ddprun is stopping the job"));
    }
    job_fini(&job);
}
END_TEST

/* Rank 3 stays away: the ranks that wait for it ask, and blame no other rank. */
static int run_without_one(struct rank *r)
{
    int code = 0;
    if (r->rank != N - 1)
        code = backend_run(r->backend, &(struct collective){.kind = CALL_BARRIER}, &r->err);
    pthread_barrier_wait(&r->job->everybody);
    return code;
}

START_TEST(a_rank_that_never_calls_is_blamed_on_all_nodes)
{
    struct job job;
    struct rank ranks[N];
    job_init(&job, PLAIN);
    job.timeout_ms = 1500;
    job_start(&job, ranks, run_without_one);
    job_join(ranks);
    for (unsigned i = 0; i < N - 1; i++) {
        ck_assert_msg(ranks[i].result == -ETIMEDOUT, "rank %u: %d %s", i, ranks[i].result,
                      ranks[i].err.text);
        ck_assert_msg(strstr(ranks[i].err.text, "rank 3 on ") != NULL, "%s", ranks[i].err.text);
    }
    job_fini(&job);
}
END_TEST

TEST_SUITE(nodes_threads)
{
    Suite *suite = suite_create("nodes_threads");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 200);
    tcase_add_loop_test(tcase, every_access_of_ranks_on_two_nodes_is_ordered, 0, 3);
    tcase_add_test(tcase, groups_of_some_ranks_are_made_and_destroyed);
    tcase_add_test(tcase, a_receive_from_a_rank_that_leaves_fails);
    tcase_add_test(tcase, a_receive_from_a_rank_that_has_left_names_it);
    tcase_add_loop_test(tcase, the_break_of_one_node_reaches_the_other, 0, 6);
    tcase_add_test(tcase, a_rank_that_never_calls_is_blamed_on_all_nodes);
    suite_add_tcase(suite, tcase);
    return suite;
}
