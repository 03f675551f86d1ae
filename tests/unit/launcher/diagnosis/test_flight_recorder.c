/* Dumps of torch's flight recorder. The test is torch: it has the pipes, and writes the files. */
#include "common/error.h"
#include "launcher/diagnosis/flight_recorder.h"
#include "tests/support/file_tree.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[FILE_TREE_BYTES];
static char gathered[FILE_TREE_BYTES + 16];
static struct flight_recorder_names names;
static struct flights *f;
static uint64_t now_ms;

static void set_up(void)
{
    file_tree_make(root);
    snprintf(gathered, sizeof gathered, "%s/gathered", root);
    snprintf(names.pipe, sizeof names.pipe, "%s/pipe_", root);
    snprintf(names.file, sizeof names.file, "%s/dump_", root);
    now_ms = 1000000;
    f = NULL;
}

static void tear_down(void)
{
    flight_recorder_destroy(f);
    file_tree_remove(root);
}

static const char *path_of(const char *name)
{
    static char path[FILE_TREE_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return path;
}

static int make_pipe(const char *name)
{
    ck_assert_int_eq(mkfifo(path_of(name), 0600), 0);
    int fd = open(path_of(name), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    return fd;
}

static void write_file(const char *name, const char *text)
{
    FILE *out = fopen(path_of(name), "a");
    ck_assert_ptr_nonnull(out);
    fputs(text, out);
    fclose(out);
}

static const char *read_file(const char *name)
{
    static char text[256];
    FILE *in = fopen(path_of(name), "r");
    size_t n = in != NULL ? fread(text, 1, sizeof text - 1, in) : 0;
    text[n] = '\0';
    if (in != NULL)
        fclose(in);
    return in != NULL ? text : "none";
}

static void begin(int n, const char *dir)
{
    static const int ranks[] = {4, 5, 6};
    struct co_error err;
    ck_assert_int_eq(flight_recorder_ask(&names, ranks, n, dir, now_ms, &f, &err), 0);
}

static bool look_after(uint64_t ms)
{
    now_ms += ms;
    return flight_recorder_look(f, now_ms);
}

static void assert_told(const char *wanted)
{
    char *text;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    flight_recorder_print(f, out);
    fclose(out);
    ck_assert_str_eq(text, wanted);
    free(text);
}

static const char *text_of(const char *format)
{
    static char text[4 * FILE_TREE_BYTES];
    snprintf(text, sizeof text, format, root);
    return text;
}

/* --- names --- */

static const char *only_pipe(const char *variable)
{
    return strcmp(variable, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE") == 0 ? "/p/x"
           : strcmp(variable, "HOME") == 0                          ? "/home/u"
                                                                    : NULL;
}

static const char *old_name(const char *variable)
{
    return strcmp(variable, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE") == 0 ? "/t/old"
           : strcmp(variable, "XDG_CACHE_HOME") == 0                ? "/cache"
                                                                    : only_pipe(variable);
}

static const char *new_name(const char *variable)
{
    return strcmp(variable, "TORCH_FR_DUMP_TEMP_FILE") == 0 ? "/t/new" : old_name(variable);
}

static const char *only_cache(const char *variable)
{
    return strcmp(variable, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE") == 0 ? "" : old_name(variable);
}

static const char *no_pipe(const char *variable)
{
    return strcmp(variable, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE") == 0 ? "" : new_name(variable);
}

static const char *no_home(const char *variable)
{
    return strcmp(variable, "HOME") == 0 ? NULL : only_pipe(variable);
}

static const char *long_name(const char *variable)
{
    static char path[PATH_MAX - 16];
    memset(path, 'x', sizeof path - 1);
    return strcmp(variable, "TORCH_FR_DUMP_TEMP_FILE") == 0 ? path : only_pipe(variable);
}

START_TEST(file_names_are_those_of_torch)
{
    struct flight_recorder_names found;
    flight_recorder_find_names(&found, only_pipe);
    ck_assert_str_eq(found.pipe, "/p/x");
    ck_assert_str_eq(found.file, "/home/u/.cache/torch/comm_lib_trace_rank_");
    ck_assert(!found.is_chosen);
    flight_recorder_find_names(&found, only_cache);
    ck_assert_str_eq(found.file, "/cache/torch/comm_lib_trace_rank_");
    flight_recorder_find_names(&found, old_name);
    ck_assert_str_eq(found.file, "/t/old");
    flight_recorder_find_names(&found, new_name);
    ck_assert_str_eq(found.file, "/t/new");
    ck_assert(found.is_chosen);
    flight_recorder_find_names(&found, no_pipe);
    ck_assert_str_eq(found.pipe, "");
    ck_assert(found.is_chosen);
    flight_recorder_find_names(&found, long_name);
    ck_assert_str_eq(found.pipe, "");
    ck_assert(!found.is_chosen);
    flight_recorder_find_names(&found, no_home);
    ck_assert_str_eq(found.file, "");
    ck_assert_str_eq(found.pipe, "");
}
END_TEST

/* --- dumps --- */

START_TEST(a_dump_is_collected_when_it_stops_growing)
{
    char byte;
    int pipe = make_pipe("pipe_4.pipe");
    begin(1, gathered);
    ck_assert_int_eq(read(pipe, &byte, 1), 1);
    ck_assert(look_after(50));
    write_file("dump_4", "the first half, ");
    ck_assert(look_after(50));
    ck_assert(look_after(FLIGHTS_QUIET_MS - 1));
    write_file("dump_4", "the second");
    ck_assert(look_after(50));
    ck_assert(look_after(FLIGHTS_QUIET_MS - 1));
    ck_assert(!look_after(1));
    ck_assert_str_eq(read_file("gathered/rank_4"), "the first half, the second");
    assert_told(text_of("torch's flight recorder:\n  dumps of 1 rank; to compare them, run\n    "
                        "python -m torch.distributed.flight_recorder.fr_trace %s/gathered\n"));
    close(pipe);
}
END_TEST

START_TEST(an_old_dump_is_ignored_and_without_a_directory_none_is_moved)
{
    int pipe = make_pipe("pipe_4.pipe");
    write_file("dump_4", "old");
    begin(1, NULL);
    ck_assert(look_after(FLIGHTS_QUIET_MS));
    write_file("dump_4", ", new");
    ck_assert(look_after(50));
    ck_assert(!look_after(FLIGHTS_QUIET_MS));
    assert_told(text_of("torch's flight recorder:\n  rank 4: %s/dump_4\n"));
    close(pipe);
}
END_TEST

START_TEST(a_rank_that_does_not_answer_is_named_in_time)
{
    int pipe = make_pipe("pipe_4.pipe");
    ck_assert_int_eq(mkfifo(path_of("pipe_5.pipe"), 0600), 0); /* no process reads it */
    begin(3, gathered);
    ck_assert(look_after(FLIGHTS_WAIT_MS - 1));
    ck_assert(!look_after(1));
    assert_told(
        "torch's flight recorder:\n  rank 4: it wrote no dump\n  rank 5: no NCCL process group is "
        "listening on its pipe\n  rank 6: no NCCL process group is listening on its pipe\n");
    json_t *list = flight_recorder_json_make(f);
    ck_assert_uint_eq(json_array_size(list), 3);
    ck_assert(json_is_null(json_object_get(json_array_get(list, 0), "file")));
    json_decref(list);
    close(pipe);
}
END_TEST

START_TEST(a_file_that_is_not_a_pipe_is_not_written)
{
    int pipe = make_pipe("other");
    write_file("pipe_4.pipe", "a file");
    ck_assert_int_eq(symlink(path_of("other"), text_of("%s/pipe_5.pipe")), 0);
    begin(2, gathered);
    ck_assert(!look_after(0));
    ck_assert_str_eq(read_file("pipe_4.pipe"), "a file");
    char byte;
    ck_assert_int_lt(read(pipe, &byte, 1), 1);
    assert_told("torch's flight recorder:\n  rank 4: cannot write to its pipe\n  rank 5: cannot "
                "write to its pipe\n");
    close(pipe);
}
END_TEST

START_TEST(a_link_and_a_file_of_another_user_are_not_copied)
{
    int pipes[] = {make_pipe("pipe_4.pipe"), make_pipe("pipe_5.pipe")};
    if (geteuid() != 0)
        fprintf(stderr, "skipped in part: only root can give a file to another user\n");
    begin(2, gathered);
    write_file("secret", "text");
    ck_assert_int_eq(symlink(path_of("secret"), text_of("%s/dump_4")), 0);
    write_file("dump_5", "text");
    ck_assert_int_eq(
        geteuid() == 0 ? chown(path_of("dump_5"), 65534, 65534) : unlink(path_of("dump_5")), 0);
    ck_assert(look_after(50));
    ck_assert(look_after(FLIGHTS_QUIET_MS));
    ck_assert(!look_after(FLIGHTS_WAIT_MS));
    ck_assert_str_eq(read_file("gathered/rank_4"), "none");
    ck_assert_str_eq(read_file("gathered/rank_5"), "none");
    assert_told("torch's flight recorder:\n  rank 4: it wrote no dump\n  rank 5: it wrote no "
                "dump\n");
    close(pipes[0]);
    close(pipes[1]);
}
END_TEST

START_TEST(no_copy_is_written_through_a_link)
{
    int pipe = make_pipe("pipe_4.pipe");
    begin(1, gathered);
    write_file("dump_4", "text");
    write_file("secret", "secret");
    ck_assert_int_eq(mkdir(gathered, 0700), 0);
    ck_assert_int_eq(symlink(path_of("secret"), text_of("%s/gathered/rank_4")), 0);
    ck_assert(look_after(50));
    ck_assert(!look_after(FLIGHTS_QUIET_MS));
    ck_assert_str_eq(read_file("secret"), "secret");
    assert_told(text_of("torch's flight recorder:\n  rank 4: %s/dump_4\n"));
    close(pipe);
}
END_TEST

START_TEST(a_directory_that_cannot_be_made_loses_no_dump)
{
    int pipe = make_pipe("pipe_4.pipe");
    begin(1, "/proc/none/such");
    write_file("dump_4", "text");
    ck_assert(look_after(50));
    ck_assert(!look_after(FLIGHTS_QUIET_MS));
    assert_told(text_of("torch's flight recorder:\n  rank 4: %s/dump_4\n"));
    close(pipe);
}
END_TEST

START_TEST(a_dump_already_in_the_directory_is_not_copied)
{
    int pipe = make_pipe("pipe_4.pipe");
    snprintf(names.file, sizeof names.file, "%s/rank_", gathered);
    ck_assert_int_eq(mkdir(gathered, 0700), 0);
    begin(1, gathered);
    write_file("gathered/rank_4", "text");
    ck_assert(look_after(50));
    ck_assert(!look_after(FLIGHTS_QUIET_MS));
    ck_assert_str_eq(read_file("gathered/rank_4"), "text");
    assert_told(text_of("torch's flight recorder:\n  dumps of 1 rank; to compare them, run\n    "
                        "python -m torch.distributed.flight_recorder.fr_trace %s/gathered\n"));
    close(pipe);
}
END_TEST

START_TEST(an_incomplete_copy_is_removed)
{
    static const int ranks[] = {4, 5};
    struct co_error err;
    struct rlimit usual, small;
    ck_assert_int_eq(flight_recorder_watch(&names, ranks, 2, gathered, &f, &err), 0);
    write_file("dump_4", "more than there is room for");
    write_file("dump_5", "text");
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &usual), 0);
    small = (struct rlimit){.rlim_cur = 8, .rlim_max = usual.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0); /* as of a disk that is full */
    flight_recorder_take(f);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &usual), 0);
    ck_assert_str_eq(read_file("gathered/rank_4"), "none");
    ck_assert_str_eq(read_file("gathered/rank_5"), "text");
}
END_TEST

START_TEST(torchs_own_dumps_are_collected_after_the_ranks_end)
{
    static const int ranks[] = {4, 5, 6};
    struct co_error err;
    write_file("dump_5", "of the job before");
    ck_assert_int_eq(flight_recorder_watch(&names, ranks, 3, gathered, &f, &err), 0);
    assert_told("");
    write_file("dump_4", "new");
    write_file("dump_6", "");
    flight_recorder_take(f);
    ck_assert_str_eq(read_file("gathered/rank_4"), "new");
    ck_assert_str_eq(read_file("gathered/rank_5"), "none");
    assert_told(text_of("torch's flight recorder:\n  dumps of 1 rank; to compare them, run\n    "
                        "python -m torch.distributed.flight_recorder.fr_trace %s/gathered\n"));
}
END_TEST

TEST_SUITE(flight_recorder)
{
    Suite *suite = suite_create("flights");
    TCase *tc = tcase_create("flights");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, file_names_are_those_of_torch);
    tcase_add_test(tc, a_dump_is_collected_when_it_stops_growing);
    tcase_add_test(tc, an_old_dump_is_ignored_and_without_a_directory_none_is_moved);
    tcase_add_test(tc, a_rank_that_does_not_answer_is_named_in_time);
    tcase_add_test(tc, a_file_that_is_not_a_pipe_is_not_written);
    tcase_add_test(tc, a_link_and_a_file_of_another_user_are_not_copied);
    tcase_add_test(tc, no_copy_is_written_through_a_link);
    tcase_add_test(tc, a_directory_that_cannot_be_made_loses_no_dump);
    tcase_add_test(tc, a_dump_already_in_the_directory_is_not_copied);
    tcase_add_test(tc, an_incomplete_copy_is_removed);
    tcase_add_test(tc, torchs_own_dumps_are_collected_after_the_ranks_end);
    suite_add_tcase(suite, tc);
    return suite;
}
