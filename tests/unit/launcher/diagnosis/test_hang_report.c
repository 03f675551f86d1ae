/* The words for a hang, the JSON, and what is read of /proc. */
#include "launcher/diagnosis/hang_report.h"
#include "launcher/supervisor/hang.h"
#include "segments/call_kind.h"
#include "tests/support/suite.h"

#include <check.h>
#include <string.h>
#include <unistd.h>

static struct hang_finding missing(void)
{
    return (struct hang_finding){.kind = HANG_MISSING,
                                 .rank = 1,
                                 .still_ms = 31000,
                                 .n_waiting = 3,
                                 .waiting = {0, 2, 3},
                                 .waiting_ms = 30400,
                                 .has_call = true,
                                 .call = {.number = 812,
                                          .kind = CALL_ALL_REDUCE,
                                          .bytes = 4 << 20,
                                          .state = RANK_STATUS_WAITS},
                                 .has_last = true,
                                 .last = {.number = 811, .kind = CALL_BARRIER}};
}

static const char *text_of(const struct hang_finding *f)
{
    static char buf[HANG_TEXT_BYTES];
    return hang_text(f, (struct rank_numbers){0}, buf);
}

START_TEST(a_missing_rank_is_named_with_the_call_and_the_waiting_ranks)
{
    struct hang_finding f = missing();
    ck_assert_str_eq(text_of(&f),
                     "rank 1 is missing in all_reduce #812 (4 MiB, float32); ranks 0, 2 and 3 have "
                     "waited in it for 30 s; its own last call was barrier #811");
    f.is_stopped = true;
    f.has_last = false;
    f.n_waiting = 1;
    f.waiting_ms = 1250;
    ck_assert_str_eq(text_of(&f), "rank 1 is missing in all_reduce #812 (4 MiB, float32); rank 0 "
                                  "has waited in it for 1.2 s; it is stopped by a signal");
    f.n_alike = 2;
    f.n_waiting = 100;
    ck_assert_ptr_nonnull(strstr(text_of(&f), "as 2 more are; ranks 0, 2, 3, 0,"));
    ck_assert_ptr_nonnull(strstr(text_of(&f), " and 84 more have waited in it"));
}
END_TEST

START_TEST(ranks_are_named_by_their_numbers_in_the_job)
{
    char buf[HANG_TEXT_BYTES];
    struct hang_finding f = missing();
    ck_assert_ptr_nonnull(
        strstr(hang_text(&f, (struct rank_numbers){.first = 8}, buf), "rank 9 is missing"));
    ck_assert_ptr_nonnull(strstr(buf, "ranks 8, 10 and 11"));
}
END_TEST

START_TEST(the_other_kinds_of_hangs_have_texts)
{
    struct hang_finding f = missing();
    f.kind = HANG_NOT_JOINED;
    f.has_call = false;
    ck_assert_str_eq(
        text_of(&f),
        "rank 1 has not joined its peers; ranks 0, 2 and 3 have waited for it for 30 s");
    f = missing();
    f.kind = HANG_ALL_WAIT;
    f.last.state = RANK_STATUS_WAITS;
    ck_assert_str_eq(text_of(&f),
                     "rank 1 is waiting in another call; all other ranks have waited in all_reduce "
                     "#812 (4 MiB, float32) for 31 s; rank 1 is in barrier #811");
    f.last = f.call;
    f.is_guess = true;
    ck_assert_str_eq(text_of(&f),
                     "all ranks have waited in all_reduce #812 (4 MiB, float32) for 31 s; the hung "
                     "rank cannot be identified: ddprun terminates rank 1");
    f = (struct hang_finding){.kind = HANG_SILENT, .rank = 2, .odd = HANG_SLEEPS, .still_ms = 700};
    ck_assert_str_eq(text_of(&f),
                     "no rank made progress for 0.7 s; rank 2 sleeps where no other rank does");
    f.odd = HANG_RUNS;
    ck_assert_str_eq(text_of(&f),
                     "no rank made progress for 0.7 s; rank 2 is the only one running");
    f.is_guess = true;
    ck_assert_str_eq(text_of(&f),
                     "no rank made progress for 0.7 s; rank 2 is the only one running; the hung "
                     "rank cannot be identified: ddprun terminates rank 2");
    f.is_guess = false;
    f.odd = HANG_NOT_ODD;
    f.is_stopped = true;
    ck_assert_str_eq(text_of(&f), "no rank made progress for 0.7 s; rank 2 is stopped by a signal");
}
END_TEST

START_TEST(a_call_is_described_with_its_size_and_group)
{
    char buf[HANG_CALL_BYTES];
    struct rank_status_call c = {.number = 3, .kind = CALL_BROADCAST, .dtype = 1, .bytes = 1000};
    ck_assert_str_eq(hang_text_call(&c, buf), "broadcast #3 (1000 B, float64)");
    c.bytes = 3 << 19;
    c.group = 0x3fa;
    ck_assert_str_eq(hang_text_call(&c, buf), "broadcast #3 (1.5 MiB, float64) of group 03fa");
    c = (struct rank_status_call){
        .number = UINT32_MAX, .kind = 63, .dtype = 31, .bytes = UINT64_MAX, .group = UINT16_MAX};
    ck_assert_str_eq(hang_text_call(&c, buf), "? #4294967295 (16 EiB, ?) of group ffff");
}
END_TEST

START_TEST(the_longest_text_fits)
{
    struct hang_finding f = missing();
    f.n_waiting = 1000;
    for (int i = 0; i < HANG_NAMED; i++)
        f.waiting[i] = 1000000;
    f.call = f.last = (struct rank_status_call){
        .number = UINT32_MAX, .kind = 5, .dtype = 3, .bytes = UINT64_MAX, .group = UINT16_MAX};
    f.n_alike = 1000;
    f.is_stopped = true;
    f.waiting_ms = UINT64_MAX;
    ck_assert_ptr_nonnull(strstr(text_of(&f), "it is stopped by a signal"));
}
END_TEST

START_TEST(timers_and_uninterruptible_sleep_have_texts)
{
    struct hang_finding f = {
        .kind = HANG_TIMER, .rank = 1, .timer = "step 1", .still_ms = 61200, .late_ms = 150};
    ck_assert_str_eq(text_of(&f),
                     "a timer of rank 1 ('step 1') expired 0.1 s ago; it was set 61 s ago");
    json_t *json = hang_json_make(&f, (struct rank_numbers){0});
    ck_assert_str_eq(json_string_value(json_object_get(json, "kind")), "timer");
    ck_assert_str_eq(json_string_value(json_object_get(json, "timer")), "step 1");
    json_decref(json);
    f.timer[0] = '\0';
    ck_assert_str_eq(text_of(&f), "a timer of rank 1 expired 0.1 s ago; it was set 61 s ago");
    f = (struct hang_finding){.kind = HANG_ASLEEP, .rank = 2, .still_ms = 30000};
    ck_assert_str_eq(text_of(&f), "rank 2 has slept uninterruptibly in the kernel for 30 s");
    json = hang_json_make(&f, (struct rank_numbers){0});
    ck_assert_str_eq(json_string_value(json_object_get(json, "kind")), "asleep");
    ck_assert(json_is_null(json_object_get(json, "timer")));
    json_decref(json);
}
END_TEST

START_TEST(the_json_has_the_same_content)
{
    struct hang_finding f = missing();
    json_t *json = hang_json_make(&f, (struct rank_numbers){.first = 10});
    ck_assert_str_eq(json_string_value(json_object_get(json, "kind")), "missing");
    ck_assert_int_eq(json_integer_value(json_array_get(json_object_get(json, "waiting"), 1)), 12);
    json_t *call = json_object_get(json, "call");
    ck_assert_str_eq(json_string_value(json_object_get(call, "op")), "all_reduce");
    ck_assert_int_eq(json_integer_value(json_object_get(call, "bytes")), 4 << 20);
    json_decref(json);
    f.has_call = f.has_last = false;
    json = hang_json_make(&f, (struct rank_numbers){0});
    ck_assert(json_is_null(json_object_get(json, "call")));
    json_decref(json);
}
END_TEST

START_TEST(the_state_of_this_process_is_running)
{
    struct hang_proc p;
    char text[96];
    hang_proc_read(getpid(), &p);
    ck_assert_int_eq(p.state, 'R');
    ck_assert_str_eq(hang_proc_text(&p, text, sizeof text), "runs");
    hang_proc_read(0, &p); /* there is no such process */
    ck_assert_int_eq(p.state, '?');
    p = (struct hang_proc){.state = 'S', .place = "futex_wait"};
    ck_assert_str_eq(hang_proc_text(&p, text, sizeof text), "sleeps in futex_wait");
    p.state = 'T';
    ck_assert_str_eq(hang_proc_text(&p, text, sizeof text), "is stopped");
}
END_TEST

TEST_SUITE(hang_report)
{
    Suite *suite = suite_create("hang_report");
    TCase *tc = tcase_create("texts");
    tcase_add_test(tc, a_missing_rank_is_named_with_the_call_and_the_waiting_ranks);
    tcase_add_test(tc, ranks_are_named_by_their_numbers_in_the_job);
    tcase_add_test(tc, the_other_kinds_of_hangs_have_texts);
    tcase_add_test(tc, a_call_is_described_with_its_size_and_group);
    tcase_add_test(tc, the_longest_text_fits);
    tcase_add_test(tc, timers_and_uninterruptible_sleep_have_texts);
    tcase_add_test(tc, the_json_has_the_same_content);
    tcase_add_test(tc, the_state_of_this_process_is_running);
    suite_add_tcase(suite, tc);
    return suite;
}
