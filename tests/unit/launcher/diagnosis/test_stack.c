/* The text for where a rank is, and the ranks that others wait for. */
#include "launcher/diagnosis/stack.h"
#include "segments/call_kind.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

static const char gdb_said[] = "[Thread debugging using libthread_db enabled]\n"
                               "0x00007f in futex () from libc.so.6\n"
                               "\n"
                               "Thread 1 (Thread 0x7f (LWP 7) \"a\"):\n"
                               "#0  0x00007f in wait () from libc.so.6\n"
                               "No symbol table info available.\n"
                               "#1  0x000055 in main (argc=2) at a.c:7\n"
                               "[Inferior 1 (process 7) detached]";

START_TEST(only_the_frames_of_gdbs_output_are_kept)
{
    char text[sizeof gdb_said + 1];
    const char *trouble;
    strcpy(text, gdb_said);
    ck_assert(stack_keep_frames(text, &trouble));
    ck_assert_str_eq(text, "Thread 1 (Thread 0x7f (LWP 7) \"a\"):\n"
                           "#0  0x00007f in wait () from libc.so.6\n"
                           "#1  0x000055 in main (argc=2) at a.c:7\n");
    strcpy(text, "warning\nptrace: Operation not permitted.\n\n");
    ck_assert(!stack_keep_frames(text, &trouble));
    ck_assert_str_eq(trouble, "ptrace: Operation not permitted.");
    strcpy(text, "");
    ck_assert(!stack_keep_frames(text, &trouble));
    ck_assert_str_eq(trouble, "");
    strcpy(text, "no newline");
    ck_assert(!stack_keep_frames(text, &trouble));
    ck_assert_str_eq(trouble, "no newline");
}
END_TEST

/* The end of a text that was cut in the middle of a frame has no newline to overwrite. */
START_TEST(a_text_that_ends_within_a_frame_is_kept)
{
    char text[] = "#0  cut\0X";
    const char *trouble;
    ck_assert(stack_keep_frames(text, &trouble));
    ck_assert_str_eq(text, "#0  cut");
    ck_assert_int_eq(text[8], 'X');
}
END_TEST

static char *print(const struct stack *s)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    stack_print(s, out);
    fclose(out);
    return text;
}

static void check(const struct stack *s, const char *wanted)
{
    char *text = print(s);
    ck_assert_str_eq(text, wanted);
    free(text);
    json_t *json = stack_json_make(s);
    ck_assert_ptr_nonnull(json);
    text = json_dumps(json, JSON_COMPACT);
    ck_assert_ptr_nonnull(text);
    json_decref(json);
    free(text);
}

static struct stack sleeper(void)
{
    return (struct stack){.rank = 1,
                          .pid = 70,
                          .is_there = true,
                          .process = {.state = 'S', .name = "train"},
                          .where = {.wchan = "futex_wait_queue", .syscall = SYS_futex}};
}

START_TEST(each_state_has_a_text)
{
    struct stack s = sleeper();
    check(&s, "rank 1 (pid 70, train): sleeps in futex_wait_queue, system call futex\n");
    s.process.state = 'R';
    s.where.syscall = -1;
    check(&s, "rank 1 (pid 70, train): runs\n");
    s.process.state = 'T';
    s.where = (struct co_process_where){.wchan = "do_signal_stop", .syscall = 9999};
    check(&s, "rank 1 (pid 70, train): is stopped by a signal in do_signal_stop, system call "
              "9999\n");
    s.process.state = 't';
    s.where = (struct co_process_where){.syscall = -1, .tracer = 99};
    check(&s, "rank 1 (pid 70, train): is stopped by its tracer; process 99 traces it\n");
    s.process.state = 'Z';
    s.where.tracer = 0;
    check(&s, "rank 1 (pid 70, train): has ended\n");
    s.process.state = 'D';
    s.where = (struct co_process_where){.syscall = -1, .kernel = "nfs_wait\nvfs_read\n"};
    check(&s, "rank 1 (pid 70, train): waits in the kernel, where no signal reaches it\n  in the "
              "kernel:\n    nfs_wait\n    vfs_read\n");
    check(&(struct stack){.rank = 1, .pid = 70}, "rank 1 (pid 70): has ended\n");
}
END_TEST

START_TEST(a_stack_is_printed_with_its_note)
{
    struct stack s = sleeper();
    s.text = strdup("Thread 1:\n  File a.py, line 3\nlast");
    s.source = STACK_SIGNAL;
    snprintf(s.note, sizeof s.note, "a note");
    check(&s, "rank 1 (pid 70, train): sleeps in futex_wait_queue, system call futex\n"
              "  Thread 1:\n    File a.py, line 3\n  last\n  note: a note\n");
    stack_fini(&s);
    stack_fini(&s); /* again */
}
END_TEST

/* --- missing ranks --- */

static void set_call(struct stack *s, unsigned i, uint32_t number, uint16_t group,
                     enum rank_status_state state)
{
    s->is_there = s->has_progress = true;
    s->progress.call[i] = (struct rank_status_call){
        .number = number, .group = group, .kind = CALL_ALL_REDUCE, .bytes = 4, .state = state};
    if (s->progress.n_calls <= i)
        s->progress.n_calls = i + 1;
}

static void check_missing(const struct stack *list, int n, const char *wanted)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    stack_print_missing(list, n, out);
    fclose(out);
    ck_assert_int_eq(strncmp(text, wanted, strlen(wanted)), 0);
    ck_assert(strlen(wanted) > 0 || strlen(text) == 0);
    free(text);
}

START_TEST(a_rank_that_has_not_reached_the_call_is_missing)
{
    struct stack list[4] = {{.rank = 4}, {.rank = 5}, {.rank = 6}, {.rank = 7}};
    check_missing(list, 4, "");
    for (int i = 0; i < 4; i++)
        set_call(&list[i], 0, 812, 0, RANK_STATUS_WAITS);
    check_missing(list, 4, ""); /* they are about to continue */
    set_call(&list[1], 0, 811, 0, RANK_STATUS_OUTSIDE);
    check_missing(list, 4, "rank 5 is missing in all_reduce #812 (4 B, ");
    set_call(&list[3], 0, 812, 0, RANK_STATUS_BEGUN);
    check_missing(list, 4, "ranks 5 and 7 are missing in all_reduce #812 (4 B, ");
    list[3].is_there = false; /* an ended rank is reported elsewhere */
    check_missing(list, 4, "rank 5 is missing");
}
END_TEST

START_TEST(a_rank_that_has_completed_the_call_is_not_missing)
{
    struct stack list[2] = {{.rank = 0}, {.rank = 1}};
    set_call(&list[0], 0, 812, 0, RANK_STATUS_WAITS);
    set_call(&list[1], 0, 812, 0, RANK_STATUS_OUTSIDE);
    check_missing(list, 2, "");
    set_call(&list[1], 0, 813, 0, RANK_STATUS_WAITS);
    check_missing(list, 2, "");
}
END_TEST

START_TEST(only_members_of_a_group_can_be_missing_in_it)
{
    struct stack list[3] = {{.rank = 0}, {.rank = 1}, {.rank = 2}};
    for (int i = 0; i < 3; i++)
        set_call(&list[i], 0, 7, 0, RANK_STATUS_OUTSIDE);
    set_call(&list[0], 1, 3, 0x12, RANK_STATUS_WAITS);
    check_missing(list, 3, "");
    set_call(&list[1], 1, 2, 0x12, RANK_STATUS_OUTSIDE);
    check_missing(list, 3, "rank 1 is missing in all_reduce #3 (4 B, ");
}
END_TEST

START_TEST(a_rank_without_a_progress_page_is_not_blamed)
{
    struct stack list[2] = {{.rank = 0}, {.rank = 1, .is_there = true}};
    set_call(&list[0], 0, 1, 0, RANK_STATUS_WAITS);
    check_missing(list, 2, "");
}
END_TEST

TEST_SUITE(stack)
{
    Suite *suite = suite_create("stack");
    TCase *tc = tcase_create("stack");
    tcase_add_test(tc, only_the_frames_of_gdbs_output_are_kept);
    tcase_add_test(tc, a_text_that_ends_within_a_frame_is_kept);
    tcase_add_test(tc, each_state_has_a_text);
    tcase_add_test(tc, a_stack_is_printed_with_its_note);
    tcase_add_test(tc, a_rank_that_has_not_reached_the_call_is_missing);
    tcase_add_test(tc, a_rank_that_has_completed_the_call_is_not_missing);
    tcase_add_test(tc, only_members_of_a_group_can_be_missing_in_it);
    tcase_add_test(tc, a_rank_without_a_progress_page_is_not_blamed);
    suite_add_tcase(suite, tc);
    return suite;
}
