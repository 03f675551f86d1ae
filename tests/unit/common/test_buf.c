/* Bytes in at the end, out at the front. */
#include "common/buf.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

START_TEST(bytes_are_read_as_they_were_written)
{
    struct co_buf b = {0};
    ck_assert_uint_eq(co_buf_len(&b), 0);
    ck_assert_int_eq(co_buf_append(&b, "hello ", 6), 0);
    ck_assert_int_eq(co_buf_append(&b, "world", 5), 0);
    ck_assert_int_eq(co_buf_append(&b, NULL, 0), 0);
    ck_assert_uint_eq(co_buf_len(&b), 11);
    ck_assert_mem_eq(co_buf_bytes(&b), "hello world", 11);
    co_buf_consume(&b, 6);
    ck_assert_uint_eq(co_buf_len(&b), 5);
    ck_assert_mem_eq(co_buf_bytes(&b), "world", 5);
    co_buf_fini(&b);
    ck_assert_uint_eq(co_buf_len(&b), 0);
    co_buf_fini(&b);
}
END_TEST

START_TEST(lent_space_counts_only_as_far_as_it_was_written)
{
    struct co_buf b = {0};
    uint8_t *room = co_buf_room(&b, 100);
    ck_assert_ptr_nonnull(room);
    memcpy(room, "abc", 3);
    co_buf_added(&b, 3);
    ck_assert_uint_eq(co_buf_len(&b), 3);
    ck_assert_mem_eq(co_buf_bytes(&b), "abc", 3);
    co_buf_fini(&b);
}
END_TEST

START_TEST(an_emptied_buffer_restarts_at_its_start)
{
    struct co_buf b = {0};
    co_buf_append(&b, "abc", 3);
    co_buf_consume(&b, 3);
    ck_assert_uint_eq(b.start, 0);
    ck_assert_uint_eq(b.end, 0);
    co_buf_fini(&b);
}
END_TEST

START_TEST(a_stream_passes_through_in_bounded_memory)
{
    struct co_buf b = {0};
    uint32_t next_in = 0, next_out = 0;
    for (int i = 0; i < 20000; i++) { /* a little remains in it all the time */
        for (int j = 0; j < 3; j++, next_in++)
            ck_assert_int_eq(co_buf_append(&b, &next_in, sizeof next_in), 0);
        for (int j = 0; j < (i < 10 ? 2 : 3); j++, next_out++) {
            ck_assert_mem_eq(co_buf_bytes(&b), &next_out, sizeof next_out);
            co_buf_consume(&b, sizeof next_out);
        }
    }
    ck_assert_uint_eq(co_buf_len(&b), (next_in - next_out) * sizeof next_in);
    ck_assert_uint_le(b.cap, 1024);
    co_buf_fini(&b);
}
END_TEST

START_TEST(an_empty_buffer_has_space_for_zero_bytes)
{
    struct co_buf b = {0};
    ck_assert_ptr_nonnull(co_buf_room(&b, 0)); /* NULL: out of memory */
    co_buf_fini(&b);
}
END_TEST

START_TEST(growing_keeps_the_content)
{
    struct co_buf b = {0};
    for (int i = 0; i < 5000; i++) {
        uint8_t byte = (uint8_t)(i * 7);
        ck_assert_int_eq(co_buf_append(&b, &byte, 1), 0);
    }
    co_buf_consume(&b, 1000);
    ck_assert_ptr_nonnull(co_buf_room(&b, 100000));
    ck_assert_uint_eq(co_buf_len(&b), 4000);
    for (int i = 0; i < 4000; i++)
        ck_assert_uint_eq(co_buf_bytes(&b)[i], (uint8_t)((i + 1000) * 7));
    co_buf_fini(&b);
}
END_TEST

START_TEST(impossible_sizes_are_refused_and_do_no_harm)
{
    struct co_buf b = {0};
    co_buf_append(&b, "abc", 3);
    ck_assert_ptr_null(co_buf_room(&b, SIZE_MAX));
    ck_assert_ptr_null(co_buf_room(&b, SIZE_MAX - 2));
    ck_assert_int_eq(co_buf_append(&b, "x", SIZE_MAX / 2), -ENOMEM);
    ck_assert_uint_eq(co_buf_len(&b), 3);
    ck_assert_mem_eq(co_buf_bytes(&b), "abc", 3);
    co_buf_fini(&b);
}
END_TEST

START_TEST(a_socket_is_read_until_it_is_empty_closed_or_full)
{
    struct co_buf b = {0};
    int fds[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    ck_assert(!co_buf_receive(&b, fds[0], 5));
    ck_assert_int_eq(send(fds[1], "hello", 5, 0), 5);
    ck_assert(!co_buf_receive(&b, fds[0], 5));
    ck_assert_mem_eq(co_buf_bytes(&b), "hello", 5);
    ck_assert_int_eq(send(fds[1], "!", 1, 0), 1);
    ck_assert(co_buf_receive(&b, fds[0], 5));
    ck_assert_uint_eq(co_buf_len(&b), 6);
    close(fds[1]);
    ck_assert(co_buf_receive(&b, fds[0], 100));
    ck_assert_uint_eq(co_buf_len(&b), 6);
    close(fds[0]);
    ck_assert(co_buf_receive(&b, -1, 100));
    co_buf_fini(&b);
}
END_TEST

TEST_SUITE(buf)
{
    Suite *suite = suite_create("buf");
    TCase *c = tcase_create("buf");
    tcase_add_test(c, bytes_are_read_as_they_were_written);
    tcase_add_test(c, lent_space_counts_only_as_far_as_it_was_written);
    tcase_add_test(c, an_emptied_buffer_restarts_at_its_start);
    tcase_add_test(c, a_stream_passes_through_in_bounded_memory);
    tcase_add_test(c, an_empty_buffer_has_space_for_zero_bytes);
    tcase_add_test(c, growing_keeps_the_content);
    tcase_add_test(c, impossible_sizes_are_refused_and_do_no_harm);
    tcase_add_test(c, a_socket_is_read_until_it_is_empty_closed_or_full);
    suite_add_tcase(suite, c);
    return suite;
}
