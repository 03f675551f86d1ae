#include "common/error.h"
#include "tests/support/suite.h"
#include "worker-runtime/core/user_segment.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES ((uint64_t)1 << 30)

static struct user_segment *s;

static void set_up(void)
{
    struct co_error err;
    ck_assert_msg(user_segment_create(BYTES, &s, &err) == 0, "%s", err.text);
}

static void tear_down(void)
{
    user_segment_destroy(s);
}

static uint8_t *alloc(size_t bytes)
{
    void *p = NULL;
    struct co_error err;
    ck_assert_msg(user_segment_alloc(s, bytes, &p, &err) == 0, "%s", err.text);
    return p;
}

static bool is_zero(const uint8_t *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (p[i] != 0)
            return false;
    return true;
}

static uint64_t pages_used(void)
{
    struct stat st;
    ck_assert_int_eq(fstat(user_segment_fd(s), &st), 0);
    return (uint64_t)st.st_blocks * 512 / 4096;
}

START_TEST(memory_is_aligned_zeroed_and_known_by_offset)
{
    uint64_t offset;
    for (size_t bytes = 0; bytes < 20000; bytes += 777) {
        uint8_t *p = alloc(bytes);
        ck_assert_uint_eq((uintptr_t)p % (bytes >= 4096 ? 4096 : 64), 0);
        ck_assert(is_zero(p, bytes));
        ck_assert(user_segment_find(s, p, bytes, &offset));
        ck_assert_ptr_eq(user_segment_base(s) + offset, p);
        memset(p, 0xff, bytes);
    }
    ck_assert(!user_segment_find(s, &offset, 8, &offset));
    ck_assert(!user_segment_find(s, user_segment_base(s) + BYTES - 8, 9, &offset));
    ck_assert(user_segment_find(s, user_segment_base(s) + BYTES - 8, 8, &offset));
    ck_assert(!user_segment_find(s, user_segment_base(s) - 1, 1, &offset));
}
END_TEST

START_TEST(freed_memory_returns_its_pages_and_is_zeroed_again)
{
    uint64_t before = pages_used();
    uint8_t *small = alloc(100), *large = alloc(10 << 20);
    memset(small, 1, 100);
    memset(large, 1, 10 << 20);
    ck_assert_uint_ge(pages_used(), before + 2560);
    ck_assert_int_eq(user_segment_free(s, large), 0);
    ck_assert_uint_le(pages_used(), before + 1);
    ck_assert_int_eq(user_segment_free(s, small), 0);
    uint8_t *again = alloc(200);
    ck_assert_ptr_eq(again, small);
    ck_assert(is_zero(again, 200));
    ck_assert(is_zero(alloc(10 << 20), 10 << 20));
}
END_TEST

START_TEST(all_of_it_can_be_used_and_freed_in_any_order)
{
    enum { N = 64 };
    uint8_t *p[N];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++) {
            p[i] = alloc(BYTES / N);
            p[i][0] = p[i][BYTES / N - 1] = (uint8_t)(i + 1);
        }
        void *none = NULL;
        struct co_error err;
        ck_assert_int_eq(user_segment_alloc(s, 1, &none, &err), -ENOMEM);
        ck_assert_ptr_nonnull(strstr(err.text, "DDP_SEGMENT_BYTES"));
        ck_assert_ptr_null(none);
        for (int i = 0; i < N; i++)
            ck_assert(p[i][0] == i + 1 && p[i][BYTES / N - 1] == i + 1);
        for (int i = 0; i < N; i++) /* 5 and 64 have no common divisor: each once */
            ck_assert_int_eq(user_segment_free(s, p[(i * 5 + round) % N]), 0);
    }
    ck_assert_ptr_eq(alloc(BYTES), user_segment_base(s));
}
END_TEST

START_TEST(an_invalid_block_is_not_freed)
{
    uint8_t *p = alloc(1000);
    int local;
    ck_assert_int_eq(user_segment_free(s, p + 64), -EINVAL);
    ck_assert_int_eq(user_segment_free(s, &local), -EINVAL);
    ck_assert_int_eq(user_segment_free(s, NULL), -EINVAL);
    ck_assert_int_eq(user_segment_free(s, p), 0);
    ck_assert_int_eq(user_segment_free(s, p), -EINVAL);
}
END_TEST

START_TEST(a_request_beyond_the_segment_is_refused)
{
    void *p = NULL;
    ck_assert_int_eq(user_segment_alloc(s, BYTES + 1, &p, NULL), -ENOMEM);
    ck_assert_int_eq(user_segment_alloc(s, SIZE_MAX, &p, NULL), -ENOMEM);
}
END_TEST

START_TEST(a_peer_sees_the_same_bytes)
{
    uint8_t *peer, *p = alloc(5000);
    ck_assert_int_eq(user_segment_map_peer(user_segment_fd(s), BYTES, &peer, NULL), 0);
    p[4999] = 7;
    ck_assert_int_eq(peer[p - user_segment_base(s) + 4999], 7);
    peer[p - user_segment_base(s)] = 9;
    ck_assert_int_eq(p[0], 9);
    user_segment_unmap_peer(peer, BYTES);
}
END_TEST

START_TEST(a_peers_segment_must_be_sealed_and_of_the_announced_size)
{
    uint8_t *peer;
    struct co_error err;
    int fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_eq(ftruncate(fd, 8192), 0);
    ck_assert_int_eq(user_segment_map_peer(fd, 8192, &peer, &err), -EPROTO);
    ck_assert_ptr_nonnull(strstr(err.text, "not sealed"));
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    ck_assert_int_eq(user_segment_map_peer(fd, 8193, &peer, &err), -EPROTO);
    ck_assert_int_eq(user_segment_map_peer(fd, 0, &peer, &err), -EPROTO);
    ck_assert_int_eq(user_segment_map_peer(fd, 8192, &peer, &err), 0);
    user_segment_unmap_peer(peer, 8192);
    close(fd);
}
END_TEST

START_TEST(withdrawn_memory_keeps_its_content_despite_peers)
{
    uint8_t *peer, *small = alloc(64), *large = alloc(100000);
    uint64_t offset;
    ck_assert_int_eq(user_segment_map_peer(user_segment_fd(s), BYTES, &peer, NULL), 0);
    memset(small, 3, 64);
    memset(large, 4, 100000);
    ck_assert_int_eq(user_segment_withdraw(s, NULL), 0);
    memset(peer + (small - user_segment_base(s)), 9, 64);
    memset(peer + (large - user_segment_base(s)), 9, 100000);
    ck_assert(small[0] == 3 && small[63] == 3 && large[0] == 4 && large[99999] == 4);
    ck_assert(!user_segment_find(s, large, 1, &offset));
    ck_assert_int_eq(user_segment_withdraw(s, NULL), 0);
    ck_assert_int_eq(user_segment_free(s, large), 0);
    ck_assert(is_zero(alloc(100000), 100000));
    user_segment_unmap_peer(peer, BYTES);
}
END_TEST

START_TEST(a_forked_child_can_read_its_parents_memory)
{
    uint8_t *p = alloc(100);
    p[50] = 5;
    pid_t pid = fork();
    if (pid == 0)
        _exit(p[50] == 5 ? 0 : 1);
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}
END_TEST

static const struct {
    const char *text;
    uint64_t bytes; /* 0: refused */
} sizes[] = {
    {"1048576", 1 << 20},
    {"1M", 1 << 20},
    {"1024K", 1 << 20},
    {"8G", (uint64_t)8 << 30},
    {"2T", (uint64_t)2 << 40},
    {"64T", (uint64_t)16 << 40}, /* four ranks share the address space */
    {"0", 0},
    {"-1", 0},
    {"1MB", 0},
    {"x", 0},
    {" 1M", 0},
    {"1 M", 0},
    {"65T", 0},
    {"99999999999999999999999", 0},
    {"18446744073709551615T", 0},
    {"1023K", 0},
};

START_TEST(a_size_is_read_within_its_bounds)
{
    struct co_error err = {0};
    uint64_t bytes = 0;
    int code = user_segment_size(sizes[_i].text, 4, &bytes, &err);
    if (sizes[_i].bytes == 0) {
        ck_assert_int_eq(code, -ENOEXEC);
        ck_assert_ptr_nonnull(strstr(err.text, "DDP_SEGMENT_BYTES"));
        return;
    }
    ck_assert_msg(code == 0, "%s", err.text);
    ck_assert_uint_eq(bytes, sizes[_i].bytes);
}
END_TEST

START_TEST(the_default_size_respects_memory_and_limits)
{
    uint64_t bytes;
    ck_assert_int_eq(user_segment_size(NULL, 2, &bytes, NULL), 0);
    ck_assert_uint_ge(bytes, (uint64_t)sysconf(_SC_PHYS_PAGES) * 4096);
    struct rlimit limit;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = 123 << 20;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert_int_eq(user_segment_size("8G", 2, &bytes, NULL), 0);
    ck_assert_uint_eq(bytes, 123 << 20);
    ck_assert_int_eq(user_segment_size("", 1000, &bytes, NULL), 0);
    ck_assert_uint_le(bytes, 123 << 20);
}
END_TEST

START_TEST(touched_memory_is_present_and_zero)
{
    const uint64_t wanted = 3 << 20;
    user_segment_touch(s, 0);
    user_segment_touch(s, wanted);
    if (pages_used() == 0) /* a system that cannot */
        return;
    ck_assert_uint_ge(pages_used(), wanted / 4096);
    ck_assert_uint_lt(pages_used(), 2 * wanted / 4096 + 512); /* pages may be huge */
    ck_assert(is_zero(alloc(wanted), wanted));
}
END_TEST

START_TEST(under_valgrind_a_segment_is_small_unless_a_size_is_given)
{
    uint64_t bytes;
    setenv("LD_PRELOAD", "/a/b.so:/usr/libexec/valgrind/vgpreload_core-amd64-linux.so", 1);
    ck_assert_int_eq(user_segment_size(NULL, 2, &bytes, NULL), 0);
    ck_assert_uint_eq(bytes, USER_SEGMENT_VALGRIND_BYTES);
    ck_assert_int_eq(user_segment_size("8G", 2, &bytes, NULL), 0);
    ck_assert_uint_eq(bytes, (uint64_t)8 << 30);
    setenv("LD_PRELOAD", "/a/b.so", 1);
    ck_assert_int_eq(user_segment_size(NULL, 2, &bytes, NULL), 0);
    ck_assert_uint_gt(bytes, USER_SEGMENT_VALGRIND_BYTES);
    unsetenv("LD_PRELOAD");
}
END_TEST

TEST_SUITE(user_segment)
{
    Suite *suite = suite_create("user_segment");
    TCase *tcase = tcase_create("segment"), *size = tcase_create("size");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, memory_is_aligned_zeroed_and_known_by_offset);
    tcase_add_test(tcase, freed_memory_returns_its_pages_and_is_zeroed_again);
    tcase_add_test(tcase, all_of_it_can_be_used_and_freed_in_any_order);
    tcase_add_test(tcase, an_invalid_block_is_not_freed);
    tcase_add_test(tcase, a_request_beyond_the_segment_is_refused);
    tcase_add_test(tcase, a_peer_sees_the_same_bytes);
    tcase_add_test(tcase, a_peers_segment_must_be_sealed_and_of_the_announced_size);
    tcase_add_test(tcase, withdrawn_memory_keeps_its_content_despite_peers);
    tcase_add_test(tcase, a_forked_child_can_read_its_parents_memory);
    tcase_add_test(tcase, touched_memory_is_present_and_zero);
    tcase_add_loop_test(size, a_size_is_read_within_its_bounds, 0, sizeof sizes / sizeof *sizes);
    tcase_add_test(size, the_default_size_respects_memory_and_limits);
    suite_add_tcase(suite, tcase);
    tcase_add_test(size, under_valgrind_a_segment_is_small_unless_a_size_is_given);
    suite_add_tcase(suite, size);
    return suite;
}
