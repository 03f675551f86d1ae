#include "common/error.h"
#include "rendezvous/store/store.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct store *s;
static struct co_error err;

enum { MAX_WOKEN = 16 };
static struct store_waiter *woken[MAX_WOKEN];
static int n_woken;

static void on_wake(struct store_waiter *w, void *arg)
{
    ck_assert_ptr_eq(arg, &n_woken);
    ck_assert_int_lt(n_woken, MAX_WOKEN);
    woken[n_woken++] = w;
}

static void create(uint64_t max_bytes, uint64_t max_names)
{
    struct store_limits limits = {max_bytes, max_names};
    n_woken = 0;
    ck_assert_int_eq(store_create(&limits, 42, on_wake, &n_woken, &s, &err), 0);
}

static void set_up(void)
{
    create(1 << 20, 1000);
}

static void tear_down(void)
{
    store_destroy(s);
}

static struct wire_bytes text(const char *from)
{
    return (struct wire_bytes){(const uint8_t *)from, strlen(from)};
}

static void set(const char *key, const char *value)
{
    ck_assert_msg(store_set(s, text(key), text(value), &err) == 0, "%s", err.text);
}

static void assert_value(const char *key, const char *value)
{
    struct wire_bytes found;
    ck_assert(store_get(s, text(key), &found));
    ck_assert_uint_eq(found.len, strlen(value));
    ck_assert(found.len == 0 || memcmp(found.at, value, found.len) == 0);
}

static void wait_for(struct store_waiter *w, const char *name)
{
    ck_assert_int_eq(store_wait_begin(s, w, 1, &err), 0);
    ck_assert_int_eq(store_wait_add(s, w, text(name), &err), 0);
}

START_TEST(values_grow_shrink_and_are_returned_completely)
{
    char *large = malloc(100001);
    ck_assert_ptr_nonnull(large);
    memset(large, 'x', 100000);
    large[100000] = '\0';
    set("k", "small");
    set("k", large);
    assert_value("k", large);
    uint64_t n_bytes_large = store_n_bytes(s);
    set("k", "small again");
    assert_value("k", "small again");
    ck_assert_uint_lt(store_n_bytes(s), n_bytes_large / 2); /* the store returned the memory */
    set("k", "");
    assert_value("k", "");
    ck_assert_uint_eq(store_n_keys(s), 1);
    free(large);
}
END_TEST

START_TEST(ten_thousand_keys_keep_their_own_values)
{
    store_destroy(s);
    create(16 << 20, 20000);
    uint64_t n_bytes_empty = store_n_bytes(s);
    char key[32], value[32];
    for (int i = 0; i < 10000; i++) {
        snprintf(key, sizeof key, "/key/%d", i);
        snprintf(value, sizeof value, "value %d", i);
        set(key, value);
    }
    ck_assert_uint_eq(store_n_keys(s), 10000);
    for (int i = 0; i < 10000; i++) {
        snprintf(key, sizeof key, "/key/%d", i);
        snprintf(value, sizeof value, "value %d", i);
        assert_value(key, value);
        ck_assert(store_delete(s, text(key)));
        ck_assert(!store_delete(s, text(key)));
    }
    ck_assert_uint_eq(store_n_keys(s), 0);
    ck_assert_uint_lt(store_n_bytes(s), n_bytes_empty + (256 << 10)); /* only the table has grown */
}
END_TEST

START_TEST(keys_may_hold_any_bytes)
{
    struct wire_bytes with_nul = {(const uint8_t *)"a\0b", 3};
    struct wire_bytes value;
    ck_assert_int_eq(store_set(s, with_nul, text("1"), &err), 0);
    ck_assert(!store_get(s, text("a"), &value));
    ck_assert(store_get(s, with_nul, &value));
    set("", "the empty key");
    assert_value("", "the empty key");
}
END_TEST

START_TEST(a_value_that_does_not_fit_changes_nothing)
{
    store_destroy(s);
    create(4096, 1000);
    char large[4096];
    memset(large, 'x', sizeof large);
    struct wire_bytes too_large = {(const uint8_t *)large, sizeof large};
    set("k", "v");
    uint64_t n_bytes = store_n_bytes(s);
    ck_assert_int_eq(store_set(s, text("k"), too_large, &err), -ENOSPC);
    ck_assert_ptr_nonnull(strstr(err.text, "the store is full"));
    ck_assert_int_eq(store_set(s, text("new"), too_large, &err), -ENOSPC);
    ck_assert_int_eq(store_append(s, text("k"), too_large, &err), -ENOSPC);
    ck_assert_int_eq(store_append(s, text("new"), too_large, &err), -ENOSPC);
    ck_assert_int_eq(store_queue_push(s, text("new"), too_large, &err), -ENOSPC);
    ck_assert_int_eq(store_set(s, too_large, text("v"), &err), -ENOSPC);
    assert_value("k", "v");
    ck_assert_uint_eq(store_n_keys(s), 1);
    ck_assert_uint_eq(store_n_bytes(s), n_bytes);
}
END_TEST

START_TEST(names_are_bounded_including_those_waited_for)
{
    store_destroy(s);
    create(1 << 20, 3);
    struct store_waiter w = {0};
    set("a", "");
    set("b", "");
    wait_for(&w, "c");
    ck_assert_int_eq(store_set(s, text("d"), text(""), &err), -ENOSPC);
    ck_assert_ptr_nonnull(strstr(err.text, "3 keys"));
    struct store_waiter other = {0};
    ck_assert_int_eq(store_wait_begin(s, &other, 1, &err), 0);
    ck_assert_int_eq(store_wait_add(s, &other, text("d"), &err), -ENOSPC);
    ck_assert_uint_eq(other.n_missing, 0);
    set("c", "");
    ck_assert_int_eq(n_woken, 1);
    ck_assert(store_delete(s, text("a")));
    set("d", "");
}
END_TEST

START_TEST(waiting_uses_memory_that_is_returned)
{
    uint64_t n_bytes = store_n_bytes(s);
    struct store_waiter w = {0};
    ck_assert_int_eq(store_wait_begin(s, &w, 100, &err), 0);
    char name[16];
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "n%d", i);
        ck_assert_int_eq(store_wait_add(s, &w, text(name), &err), 0);
    }
    ck_assert_uint_eq(w.n_missing, 100);
    ck_assert_uint_gt(store_n_bytes(s), n_bytes + 100 * sizeof(struct store_link));
    store_wait_end(s, &w);
    ck_assert_uint_le(store_n_bytes(s), n_bytes + 2048); /* the table */
    ck_assert_int_eq(n_woken, 0);

    store_destroy(s);
    create(4096, 1000);
    ck_assert_int_eq(store_wait_begin(s, &w, 1000, &err), -ENOSPC);
    ck_assert_uint_eq(w.n_missing, 0);
}
END_TEST

START_TEST(waiters_wake_in_order_of_arrival)
{
    struct store_waiter w[3] = {0};
    for (int i = 0; i < 3; i++)
        wait_for(&w[i], "k");
    set("other", "");
    ck_assert_int_eq(n_woken, 0);
    set("k", "");
    ck_assert_int_eq(n_woken, 3);
    for (int i = 0; i < 3; i++)
        ck_assert_ptr_eq(woken[i], &w[i]);
    set("k", "again");
    ck_assert_int_eq(n_woken, 3);
}
END_TEST

START_TEST(a_waiter_that_left_is_not_woken)
{
    struct store_waiter w[3] = {0};
    for (int i = 0; i < 3; i++)
        wait_for(&w[i], "k");
    store_wait_end(s, &w[1]);
    store_wait_end(s, &w[1]);
    set("k", "");
    ck_assert_int_eq(n_woken, 2);
    ck_assert_ptr_eq(woken[0], &w[0]);
    ck_assert_ptr_eq(woken[1], &w[2]);
}
END_TEST

START_TEST(a_barrier_is_not_a_wait_for_the_key)
{
    struct store_waiter at_barrier = {0}, at_key = {0}, last = {0};
    wait_for(&at_key, "b");
    ck_assert_int_eq(store_barrier(s, &at_barrier, text("b"), 2, &err), 0);
    ck_assert_uint_eq(at_barrier.n_missing, 1);
    ck_assert_int_eq(n_woken, 1);
    ck_assert_ptr_eq(woken[0], &at_key);
    set("b", "1"); /* setting is not arriving */
    ck_assert_int_eq(n_woken, 1);
    ck_assert_int_eq(store_barrier(s, &last, text("b"), 2, &err), 0);
    ck_assert_uint_eq(last.n_missing, 0);
    ck_assert_int_eq(n_woken, 2);
    ck_assert_ptr_eq(woken[1], &at_barrier);
}
END_TEST

START_TEST(a_barrier_outlives_its_deleted_counter)
{
    struct store_waiter w = {0};
    ck_assert_int_eq(store_barrier(s, &w, text("b"), 2, &err), 0);
    ck_assert(store_delete(s, text("b")));
    ck_assert(!store_has(s, text("b")));
    store_wait_end(s, &w);
    set("b", "text");
    ck_assert_int_eq(store_barrier(s, &w, text("b"), 2, &err), -EINVAL);
    ck_assert_uint_eq(w.n_missing, 0);
}
END_TEST

START_TEST(counters_refuse_text)
{
    static const struct {
        const char *value;
        int rc;
        int64_t sum;
    } cases[] = {
        {"", -EINVAL, 0},
        {"abc", -EINVAL, 0},
        {"-", -EINVAL, 0},
        {" ", -EINVAL, 0},
        {"+-1", -EINVAL, 0},
        {"9223372036854775808", -ERANGE, 0},
        {"-9223372036854775809", -ERANGE, 0},
        {"99999999999999999999999999", -ERANGE, 0},
        {"-9223372036854775808", 0, INT64_MIN + 1},
        {"9223372036854775807", 0, INT64_MIN},
        {"\t\n\v\f\r 007x", 0, 8},
        {"-1 2", 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t sum = 0;
        set("n", cases[i].value);
        ck_assert_int_eq(store_add(s, text("n"), 1, &sum, &err), cases[i].rc);
        ck_assert_int_eq(sum, cases[i].sum);
        if (cases[i].rc != 0)
            assert_value("n", cases[i].value);
    }
}
END_TEST

START_TEST(queues_keep_order_and_return_memory)
{
    uint64_t n_bytes = store_n_bytes(s);
    char item[16];
    struct wire_bytes front;
    for (int i = 0; i < 100; i++) {
        snprintf(item, sizeof item, "item %d", i);
        ck_assert_int_eq(store_queue_push(s, text("q"), text(item), &err), 0);
    }
    ck_assert_uint_eq(store_queue_len(s, text("q")), 100);
    ck_assert_uint_eq(store_n_keys(s), 0);
    for (int i = 0; i < 100; i++) {
        snprintf(item, sizeof item, "item %d", i);
        ck_assert(store_queue_front(s, text("q"), &front));
        ck_assert_uint_eq(front.len, strlen(item));
        ck_assert_mem_eq(front.at, item, front.len);
        store_queue_drop(s, text("q"));
    }
    ck_assert(!store_queue_front(s, text("q"), &front));
    store_queue_drop(s, text("q"));
    ck_assert_uint_eq(store_n_bytes(s), n_bytes);
}
END_TEST

START_TEST(appending_many_pieces_copies_little)
{
    for (int i = 0; i < 5000; i++)
        ck_assert_int_eq(store_append(s, text("log"), text("0123456789"), &err), 0);
    struct wire_bytes value;
    ck_assert(store_get(s, text("log"), &value));
    ck_assert_uint_eq(value.len, 50000);
    for (size_t i = 0; i < value.len; i++)
        ck_assert_int_eq(value.at[i], '0' + (int)(i % 10));
}
END_TEST

TEST_SUITE(store)
{
    Suite *suite = suite_create("store");
    TCase *tc = tcase_create("store");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, values_grow_shrink_and_are_returned_completely);
    tcase_add_test(tc, ten_thousand_keys_keep_their_own_values);
    tcase_add_test(tc, keys_may_hold_any_bytes);
    tcase_add_test(tc, a_value_that_does_not_fit_changes_nothing);
    tcase_add_test(tc, names_are_bounded_including_those_waited_for);
    tcase_add_test(tc, waiting_uses_memory_that_is_returned);
    tcase_add_test(tc, waiters_wake_in_order_of_arrival);
    tcase_add_test(tc, a_waiter_that_left_is_not_woken);
    tcase_add_test(tc, a_barrier_is_not_a_wait_for_the_key);
    tcase_add_test(tc, a_barrier_outlives_its_deleted_counter);
    tcase_add_test(tc, counters_refuse_text);
    tcase_add_test(tc, queues_keep_order_and_return_memory);
    tcase_add_test(tc, appending_many_pieces_copies_little);
    suite_add_tcase(suite, tc);
    return suite;
}
