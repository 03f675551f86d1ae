#include "common/error.h"
#include "tests/support/suite.h"
#include "worker-runtime/memory/memory_slots.h"

#include <check.h>
#include <errno.h>
#include <unistd.h>

enum { SLOT_BYTES = 4 << 20, BIG = 3 << 20 };

static struct co_error err;
static int fd;
static uint8_t *big, *got;

static void set_up(void)
{
    err = (struct co_error){0};
    ck_assert_int_eq(checkpoint_memory_make(2, SLOT_BYTES, &fd, NULL), 0);
    big = malloc(BIG);
    got = malloc(BIG);
    for (size_t i = 0; i < BIG; i++)
        big[i] = (uint8_t)(i * 2654435761u >> 13);
}

static void tear_down(void)
{
    close(fd);
    free(big);
    free(got);
}

static struct memory_save new_save(void)
{
    return (struct memory_save){
        .id = {3, 4}, .step = 10, .rank = 1, .world_size = 2, .is_whole = 1};
}

static struct memory_slots open_slots(unsigned local_rank)
{
    struct memory_slots s;
    ck_assert_int_eq(memory_slots_open(fd, local_rank, &s, NULL), 0);
    return s;
}

/* Three items, of which one spans pieces and one is empty. */
static void write_three(struct memory_slots *s, unsigned slot)
{
    struct memory_save save = new_save();
    const struct ddp_memory_item items[] = {{big, BIG}, {NULL, 0}, {big + 5, 7}};
    ck_assert_int_eq(memory_slots_write(s, slot, items, 3, &save, &err), 0);
    ck_assert_int_eq(s->saves[slot].is_whole, 0);
    ck_assert_int_eq(memory_slots_set(s, slot, &save, &err), 0);
}

START_TEST(items_are_read_as_they_were_written)
{
    struct memory_slots s = open_slots(1);
    struct memory_placed *items = NULL;
    write_three(&s, 2);
    s = open_slots(1); /* another process */
    ck_assert_int_eq(s.saves[2].is_whole, 1);
    ck_assert_int_eq(s.saves[2].step, 10);
    ck_assert_uint_eq(s.saves[2].n_items, 3);
    ck_assert_uint_eq(s.saves[2].bytes, BIG + 7 + 3 * 16);
    ck_assert_int_eq(memory_slots_list(&s, 2, &items, &err), 0);
    ck_assert_uint_eq(items[0].bytes, BIG);
    ck_assert_uint_eq(items[1].bytes, 0);
    ck_assert_int_eq(memory_slots_read(&s, 2, &items[0], got, &err), 0);
    ck_assert_mem_eq(got, big, BIG);
    ck_assert_int_eq(memory_slots_read(&s, 2, &items[1], NULL, &err), 0);
    ck_assert_int_eq(memory_slots_read(&s, 2, &items[2], got, &err), 0);
    ck_assert_mem_eq(got, big + 5, 7);
    free(items);
}
END_TEST

START_TEST(ranks_and_slots_are_apart)
{
    struct memory_slots a = open_slots(0), b = open_slots(1);
    struct memory_placed *items = NULL;
    struct memory_save save = new_save();
    write_three(&a, 0);
    for (unsigned slot = 0; slot < MEMORY_SLOTS; slot++) {
        const struct ddp_memory_item item = {big, BIG - slot};
        if (slot > 0)
            ck_assert_int_eq(memory_slots_write(&a, slot, &item, 1, &save, &err), 0);
        ck_assert_int_eq(memory_slots_write(&b, slot, &item, 1, &save, &err), 0);
    }
    ck_assert_int_eq(memory_slots_list(&a, 0, &items, &err), 0);
    ck_assert_int_eq(memory_slots_read(&a, 0, &items[0], got, &err), 0);
    ck_assert_mem_eq(got, big, BIG);
    free(items);
}
END_TEST

START_TEST(many_items_have_a_list_of_several_parts)
{
    enum { N = 1000 };
    struct memory_slots s = open_slots(0);
    struct memory_save save = new_save();
    struct ddp_memory_item items[N];
    struct memory_placed *placed = NULL;
    for (size_t i = 0; i < N; i++)
        items[i] = (struct ddp_memory_item){big + i, i};
    ck_assert_int_eq(memory_slots_write(&s, 0, items, N, &save, &err), 0);
    ck_assert_int_eq(memory_slots_set(&s, 0, &save, &err), 0);
    ck_assert_int_eq(memory_slots_list(&s, 0, &placed, &err), 0);
    for (size_t i = 0; i < N; i++) {
        ck_assert_uint_eq(placed[i].bytes, i);
        ck_assert_int_eq(memory_slots_read(&s, 0, &placed[i], got, &err), 0);
        ck_assert(memcmp(got, big + i, i) == 0);
    }
    free(placed);
}
END_TEST

START_TEST(an_invalid_state_is_refused)
{
    struct memory_slots s = open_slots(0);
    struct memory_save save = new_save();
    const struct ddp_memory_item null = {NULL, 1}, huge = {big, SIZE_MAX},
                                 large = {big, SLOT_BYTES - 15}, fits = {big, 16};
    struct ddp_memory_item two[] = {{big, SIZE_MAX / 2}, {big, SIZE_MAX / 2}};
    ck_assert_int_eq(memory_slots_write(&s, 0, &null, 1, &save, &err), -EINVAL);
    ck_assert_str_eq(err.text, "item 0 has data NULL");
    ck_assert_int_eq(memory_slots_write(&s, 0, &huge, 1, &save, &err), -EINVAL);
    ck_assert_int_eq(memory_slots_write(&s, 0, two, 2, &save, &err), -EINVAL);
    ck_assert_int_eq(memory_slots_write(&s, 0, &large, 1, &save, &err), -EINVAL);
    ck_assert_str_eq(err.text, "the state has 4194305 bytes, but --memory-checkpoints allows "
                               "4194304: use a larger value");
    ck_assert_int_eq(memory_slots_write(&s, 0, &fits, MEMORY_ITEMS_MAX + (size_t)1, &save, &err),
                     -EINVAL);
    ck_assert_int_eq(memory_slots_write(&s, 0, NULL, 0, &save, &err), 0);
}
END_TEST

START_TEST(an_entry_that_was_not_written_whole_is_free)
{
    struct memory_slots s = open_slots(0);
    const uint8_t other = 0xff;
    write_three(&s, 1);
    ck_assert_int_eq(open_slots(0).saves[1].is_whole, 1);
    for (unsigned at = 0; at < sizeof(struct memory_save) + 8; at++) {
        const off_t where = (off_t)checkpoint_memory_entries_at(0) + 128 + at;
        uint8_t was;
        ck_assert_int_eq(pread(fd, &was, 1, where), 1);
        if (was == other)
            continue;
        ck_assert_int_eq(pwrite(fd, &other, 1, where), 1);
        ck_assert_int_eq(open_slots(0).saves[1].is_whole, 0);
        ck_assert_int_eq(pwrite(fd, &was, 1, where), 1);
    }
    ck_assert_int_eq(open_slots(0).saves[1].is_whole, 1);
}
END_TEST

START_TEST(a_damaged_state_is_not_loaded)
{
    struct memory_slots s = open_slots(0);
    struct memory_placed *items = NULL, *again = NULL;
    uint8_t byte;
    write_three(&s, 0);
    ck_assert_int_eq(memory_slots_list(&s, 0, &items, &err), 0);
    const uint64_t places[] = {48, 48 + BIG - 1, 48 + BIG + 6}; /* after the list */
    for (unsigned i = 0; i < 3; i++) {
        const struct memory_placed *item = &items[i < 2 ? 0 : 2];
        ck_assert_int_eq(memory_slots_get(&s, 0, places[i], &byte, 1), 0);
        byte ^= 0x80;
        ck_assert_int_eq(memory_slots_put(&s, 0, places[i], &byte, 1), 0);
        ck_assert_int_eq(memory_slots_read(&s, 0, item, got, &err), -EINVAL);
        byte ^= 0x80;
        ck_assert_int_eq(memory_slots_put(&s, 0, places[i], &byte, 1), 0);
        ck_assert_int_eq(memory_slots_read(&s, 0, item, got, &err), 0);
    }
    for (uint64_t at = 0; at < 48; at++) { /* the list */
        ck_assert_int_eq(memory_slots_get(&s, 0, at, &byte, 1), 0);
        byte ^= 1;
        ck_assert_int_eq(memory_slots_put(&s, 0, at, &byte, 1), 0);
        ck_assert_int_eq(memory_slots_list(&s, 0, &again, &err), -EINVAL);
        byte ^= 1;
        ck_assert_int_eq(memory_slots_put(&s, 0, at, &byte, 1), 0);
    }
    ck_assert_ptr_nonnull(strstr(err.text, "the state of rank 1 in memory is damaged"));
    free(items);
}
END_TEST

START_TEST(impossible_saves_of_other_ranks_are_refused)
{
    const struct memory_slots s = open_slots(0);
    struct memory_save good = new_save(), bad;
    good.bytes = 160;
    good.n_items = 10;
    ck_assert(memory_slots_accept(&s, &good));
    ck_assert(!memory_slots_accept(&s, &(struct memory_save){0}));
    bad = good, bad.is_whole = 2;
    ck_assert(!memory_slots_accept(&s, &bad));
    bad = good, bad.id.serial = 0;
    ck_assert(!memory_slots_accept(&s, &bad));
    bad = good, bad.id.serial = UINT64_MAX;
    ck_assert(!memory_slots_accept(&s, &bad));
    bad = good, bad.step = -1;
    ck_assert(!memory_slots_accept(&s, &bad));
    bad = good, bad.rank = 2;
    ck_assert(!memory_slots_accept(&s, &bad));
    bad = good, bad.n_items = 11;
    ck_assert(!memory_slots_accept(&s, &bad));
    bad = good, bad.n_items = UINT64_MAX / 16 + 2;
    ck_assert(!memory_slots_accept(&s, &bad));
    bad = good, bad.bytes = SLOT_BYTES + 1;
    ck_assert(!memory_slots_accept(&s, &bad));
    bad = good, bad.reserved = 1;
    ck_assert(!memory_slots_accept(&s, &bad));
}
END_TEST

START_TEST(a_rank_without_a_part_of_the_memory_is_refused)
{
    struct memory_slots s;
    ck_assert_int_eq(memory_slots_open(fd, 2, &s, &err), -ERANGE);
    ck_assert_str_eq(err.text, "the memory for checkpoints is for 2 ranks of this node: local rank "
                               "2 has none");
    ck_assert_int_eq(memory_slots_open(-1, 0, &s, &err), -EBADF);
}
END_TEST

START_TEST(a_digest_sees_each_bit)
{
    uint8_t bytes[100] = {0};
    const uint64_t whole = memory_digest(1, bytes, sizeof bytes);
    ck_assert(memory_digest(2, bytes, sizeof bytes) != whole);
    ck_assert(memory_digest(1, bytes, sizeof bytes - 1) != whole);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        ck_assert(memory_digest(1, bytes, sizeof bytes) != whole);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}
END_TEST

TEST_SUITE(memory_slots)
{
    Suite *s = suite_create("memory_slots");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, items_are_read_as_they_were_written);
    tcase_add_test(t, ranks_and_slots_are_apart);
    tcase_add_test(t, many_items_have_a_list_of_several_parts);
    tcase_add_test(t, an_invalid_state_is_refused);
    tcase_add_test(t, an_entry_that_was_not_written_whole_is_free);
    tcase_add_test(t, a_damaged_state_is_not_loaded);
    tcase_add_test(t, impossible_saves_of_other_ranks_are_refused);
    tcase_add_test(t, a_rank_without_a_part_of_the_memory_is_refused);
    tcase_add_test(t, a_digest_sees_each_bit);
    suite_add_tcase(s, t);
    return s;
}
