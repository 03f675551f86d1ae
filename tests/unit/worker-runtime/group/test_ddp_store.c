/* test_ddp_store.c - ddp_store_ calls against the real store, run as a program. */
#include "tests/unit/worker-runtime/ranks.h"
#include "tests/unit/worker-runtime/store_process.h"

#include <errno.h>

static struct store_process server;

static void set_up(void)
{
    store_start(&server);
}

static void stop_server(void)
{
    store_stop(&server);
}

static int run_exchange(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    char text[32] = "";
    size_t length = 99;
    int64_t value = 0;
    if (rank == 1)
        RANK_CHECK(rank, ddp_store_set(g, "greeting", "hello", 5) == DDP_OK, "set");
    RANK_CHECK(rank, ddp_store_get(g, "greeting", text, sizeof text, &length, 60000) == DDP_OK,
               "get");
    RANK_CHECK(rank, length == 5 && strcmp(text, "hello") == 0, "%zu bytes: %s", length, text);
    RANK_CHECK(rank, ddp_store_add(g, "count", rank + 1, &value) == DDP_OK, "add");
    RANK_CHECK(rank, value >= rank + 1 && value <= 6, "%lld", (long long)value);
    RANK_CHECK(rank, ddp_barrier(g) == DDP_OK, "barrier");
    RANK_CHECK(rank, ddp_store_add(g, "count", 0, &value) == DDP_OK && value == 6, "%lld",
               (long long)value);
    if (rank == 2)
        RANK_CHECK(rank, ddp_store_set(g, "last", NULL, 0) == DDP_OK, "an empty value");
    RANK_CHECK(rank, ddp_store_wait(g, "last", 60000) == DDP_OK, "wait");
    RANK_CHECK(rank, ddp_store_get(g, "last", NULL, 0, &length, 60000) == DDP_OK && length == 0,
               "an empty value");
    ddp_finalize(g);
    return 0;
}

START_TEST(ranks_exchange_values_through_the_store)
{
    struct ranks r;
    ranks_start(&r, 3, run_exchange, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_bounds(int rank, void *arg)
{
    enum { VALUE_MAX = 8 << 20 };
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    char key[4098], small[4], *large = calloc(1, VALUE_MAX + 1);
    size_t length = 0;
    memset(key, 'k', sizeof key);
    key[4097] = '\0';
    RANK_CHECK(rank, ddp_store_set(g, key, "x", 1) == DDP_EINVAL, "a key of 4097 bytes");
    RANK_CHECK(rank, ddp_store_set(g, "", "x", 1) == DDP_EINVAL, "an empty key");
    RANK_CHECK(rank, ddp_store_set(g, NULL, "x", 1) == DDP_EINVAL, "no key");
    RANK_CHECK(rank, ddp_store_set(NULL, "k", "x", 1) == DDP_EINVAL, "no group");
    RANK_CHECK(rank, ddp_store_set(g, "k", NULL, 1) == DDP_EINVAL, "no value");
    RANK_CHECK(rank, ddp_store_set(g, "k", large, VALUE_MAX + 1) == DDP_EINVAL, "a long value");
    key[4096] = '\0';
    RANK_CHECK(rank, ddp_store_set(g, key, large, VALUE_MAX) == DDP_OK, "the largest of both");
    RANK_CHECK(rank, ddp_store_get(g, key, small, sizeof small, &length, 60000) == DDP_EINVAL,
               "no room");
    RANK_CHECK(rank, strstr(ddp_last_error(), "8388608 bytes") != NULL, "text");
    RANK_CHECK(rank, ddp_store_wait(g, "never set", 50) == DDP_ETIMEOUT, "wait in vain");
    RANK_CHECK(rank, ddp_store_get(g, "nor this", small, 4, &length, 50) == DDP_ETIMEOUT, "get");
    RANK_CHECK(rank, ddp_store_set(g, "still", "alive", 5) == DDP_OK, "after a timeout");
    free(large);
    ddp_finalize(g);
    return 0;
}

START_TEST(bounds_hold_and_a_timed_out_wait_does_no_harm)
{
    struct ranks r;
    ranks_start(&r, 2, run_bounds, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_bereft(int rank, void *arg)
{
    const int *gate = arg;
    struct ddp_group *g = rank_init(rank, 2000);
    char byte;
    RANK_CHECK(rank, ddp_store_set(g, "k", "x", 1) == DDP_OK, "set");
    RANK_CHECK(rank, write(gate[3], "x", 1) == 1, "report");
    RANK_CHECK(rank, read(gate[0], &byte, 1) == 1, "gate");
    int rc = ddp_store_set(g, "k", "x", 1);
    RANK_CHECK(rank, rc == DDP_ESYSTEM, "got %s", ddp_strerror(rc));
    RANK_CHECK(rank, ddp_barrier(g) == DDP_OK, "collectives need no store");
    ddp_finalize(g);
    return 0;
}

START_TEST(a_lost_store_fails_only_its_own_calls)
{
    int gate[4];
    char bytes[2];
    struct ranks r;
    ck_assert(pipe(gate) == 0 && pipe(gate + 2) == 0);
    ranks_start(&r, 2, run_bereft, gate);
    close(gate[3]); /* the ranks' alone: their end is the end of the file */
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(read(gate[2], &bytes[i], 1), 1);
    stop_server();
    ck_assert_int_eq(write(gate[1], "xx", 2), 2);
    ranks_expect_success(&r);
}
END_TEST

static int run_address(int rank, void *arg)
{
    (void)arg;
    struct ddp_group *g = rank_init(rank, 60000);
    char host[256] = "?";
    const size_t size = strlen(getenv("MASTER_ADDR")) + 1;
    int port = -1;
    RANK_CHECK(rank, ddp_store_address(g, host, size - 1, &port) == DDP_EINVAL, "no room");
    RANK_CHECK(rank, strcmp(host, "?") == 0 && port == -1, "unchanged");
    RANK_CHECK(rank, ddp_store_address(g, host, sizeof host, NULL) == DDP_EINVAL, "no port");
    RANK_CHECK(rank, ddp_store_address(g, host, size, &port) == DDP_OK, "address");
    RANK_CHECK(rank, strcmp(host, getenv("MASTER_ADDR")) == 0, "%s", host);
    RANK_CHECK(rank, port == atoi(getenv("MASTER_PORT")), "%d", port);
    ddp_finalize(g);
    return 0;
}

START_TEST(the_address_of_the_store_is_that_of_the_environment)
{
    struct ranks r;
    ranks_start(&r, 2, run_address, NULL);
    ranks_expect_success(&r);
}
END_TEST

static int run_without(int rank, void *arg)
{
    (void)arg;
    unsetenv("MASTER_PORT");
    struct ddp_group *g = rank_init(rank, 60000);
    char host[256];
    int port;
    RANK_CHECK(rank, ddp_store_set(g, "k", "x", 1) == DDP_EUNSUPPORTED, "set");
    RANK_CHECK(rank, ddp_store_address(g, host, sizeof host, &port) == DDP_EUNSUPPORTED, "address");
    if (ddp_world_size(g) > 1) {
        RANK_CHECK(rank, strstr(ddp_last_error(), "MASTER_PORT") != NULL, "text");
        setenv("MASTER_PORT", "high", 1);
        RANK_CHECK(rank, ddp_store_set(g, "k", "x", 1) == DDP_EENV, "a port that is none");
        RANK_CHECK(rank, strstr(ddp_last_error(), "invalid value 'high' for MASTER_PORT") != NULL,
                   "text");
    }
    ddp_finalize(g);
    return 0;
}

START_TEST(a_job_without_a_store_reports_it)
{
    struct ranks r;
    ranks_start(&r, 1 + _i, run_without, NULL);
    ranks_expect_success(&r);
}
END_TEST

TEST_SUITE(ddp_store)
{
    Suite *suite = suite_create("ddp_store");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 150);
    tcase_add_checked_fixture(tcase, set_up, stop_server);
    tcase_add_test(tcase, ranks_exchange_values_through_the_store);
    tcase_add_test(tcase, bounds_hold_and_a_timed_out_wait_does_no_harm);
    tcase_add_test(tcase, a_lost_store_fails_only_its_own_calls);
    tcase_add_test(tcase, the_address_of_the_store_is_that_of_the_environment);
    tcase_add_loop_test(tcase, a_job_without_a_store_reports_it, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
