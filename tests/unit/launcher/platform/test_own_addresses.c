/* What is promised of this machine's addresses, whichever they are. */
#include "launcher/platform/own_addresses.h"
#include "tests/support/suite.h"

#include <check.h>
#include <string.h>

START_TEST(own_addresses_are_different_and_not_loopback)
{
    struct message_address list[MESSAGE_MAX_ADDRESSES];
    static const uint8_t v6_loopback[16] = {[15] = 1};
    static const uint8_t zeros[16];
    size_t n = own_addresses_find(list);
    ck_assert_uint_le(n, MESSAGE_MAX_ADDRESSES);
    for (size_t i = 0; i < n; i++) {
        ck_assert(list[i].family == 4 || list[i].family == 6);
        if (list[i].family == 4) {
            ck_assert_uint_ne(list[i].bytes[0], 127);
            ck_assert_mem_eq(list[i].bytes + 4, zeros, 12);
        } else {
            ck_assert_mem_ne(list[i].bytes, v6_loopback, 16);
        }
        for (size_t j = 0; j < i; j++)
            ck_assert_mem_ne(&list[i], &list[j], sizeof list[i]);
    }
}
END_TEST

START_TEST(link_local_addresses_are_last)
{
    struct message_address list[MESSAGE_MAX_ADDRESSES];
    size_t n = own_addresses_find(list);
    bool seen = false;
    for (size_t i = 0; i < n; i++) {
        bool is_local = list[i].family == 4
                            ? list[i].bytes[0] == 169 && list[i].bytes[1] == 254
                            : list[i].bytes[0] == 0xfe && (list[i].bytes[1] & 0xc0) == 0x80;
        ck_assert(is_local || !seen);
        seen |= is_local;
    }
}
END_TEST

TEST_SUITE(own_addresses)
{
    Suite *suite = suite_create("own_addresses");
    TCase *c = tcase_create("own_addresses");
    tcase_add_test(c, own_addresses_are_different_and_not_loopback);
    tcase_add_test(c, link_local_addresses_are_last);
    suite_add_tcase(suite, c);
    return suite;
}
