/* Passing stderr on: all of it, in order, without ever waiting for the reader. */
#include "launcher/stdio/output.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RANKS = 3 };

static const struct output_way unchanged = {.to = OUTPUT_TO_STDERR, .log_fd = -1, .filter_fd = -1};
static uv_loop_t loop;
static struct output *o;
static int rank_fd[RANKS]; /* where a rank would write */
static int sink_fd, reader_fd;
static bool drained;

static void on_drained(void *arg)
{
    (void)arg;
    drained = true;
}

static void open_on(int to_fd)
{
    sink_fd = to_fd;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(output_create(&loop, RANKS, (const int[2]){to_fd, to_fd}, &o, NULL), 0);
    for (int i = 0; i < RANKS; i++) {
        int pair[2];
        ck_assert_int_eq(pipe2(pair, O_CLOEXEC), 0);
        ck_assert_int_eq(output_add(o, i, OUTPUT_TO_STDERR, pair[0], false, &unchanged), 0);
        rank_fd[i] = pair[1];
        fcntl(rank_fd[i], F_SETFL, O_NONBLOCK);
    }
    drained = false;
}

static void open_on_pipe(void)
{
    int pair[2];
    ck_assert_int_eq(pipe2(pair, O_CLOEXEC), 0);
    reader_fd = pair[0];
    fcntl(reader_fd, F_SETFL, O_NONBLOCK);
    open_on(pair[1]);
}

static void close_all(void)
{
    for (int i = 0; i < RANKS; i++)
        close(rank_fd[i]);
    output_close(o);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0); /* no handle is left */
    close(sink_fd);
    if (reader_fd >= 0)
        close(reader_fd);
    reader_fd = -1;
}

static void put(int rank, const char *text)
{
    ck_assert_int_eq(write(rank_fd[rank], text, strlen(text)), (ssize_t)strlen(text));
}

/* Fills a rank's pipe and the buffers after it. returns how many bytes that took */
static size_t put_until_full(int rank, char c)
{
    char block[4096];
    size_t total = 0;
    memset(block, c, sizeof block);
    for (int idle = 0; idle < 3;) { /* full, though the loop had its turns */
        ssize_t n = write(rank_fd[rank], block, sizeof block);
        ck_assert(n > 0 || errno == EAGAIN);
        if (n > 0)
            total += (size_t)n;
        else
            idle++;
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    return total;
}

static void check_read(const char *expected)
{
    char text[4096];
    ssize_t n = read(reader_fd, text, sizeof text - 1);
    ck_assert_int_ge(n, 0);
    text[n] = '\0';
    ck_assert_str_eq(text, expected);
}

START_TEST(bytes_are_passed_on_and_kept)
{
    open_on_pipe();
    put(1, "one\ntwo");
    uv_run(&loop, UV_RUN_NOWAIT);
    check_read("one\ntwo");
    output_say(o, "ddprun: here\n");
    check_read("ddprun: here\n");
    char *tail = output_tail(o, 1);
    ck_assert_str_eq(tail, "one\ntwo\n");
    free(tail);
    ck_assert_ptr_null(output_tail(o, 0));
    close_all();
}
END_TEST

START_TEST(the_next_output_erases_a_drawn_line)
{
    open_on_pipe();
    output_draw(o, "");
    ck_assert_int_eq(read(reader_fd, &(char){0}, 1), -1);
    output_draw(o, "one");
    output_draw(o, "two");
    output_say(o, "said\n");
    output_say(o, "more\n");
    check_read("one\r\033[Ktwo\r\033[Ksaid\nmore\n");
    output_draw(o, "three");
    output_draw(o, "");
    output_draw(o, "");
    check_read("three\r\033[K");
    close_all();
}
END_TEST

START_TEST(draining_empties_the_pipes)
{
    open_on_pipe();
    put(0, "a");
    put(1, "b");
    put(2, "c");
    output_drain(o, on_drained, NULL);
    ck_assert(drained);
    check_read("abc");
    close_all();
}
END_TEST

START_TEST(a_full_sink_blocks_writers_and_loses_nothing)
{
    open_on_pipe();
    size_t sent = put_until_full(0, 'x');
    ck_assert_uint_gt(sent, 2 * OUTPUT_CHUNK); /* both pipes and what waits inside */
    ck_assert_uint_le(sent, 4 * OUTPUT_CHUNK);
    put(1, "yyy"); /* another rank's pipe takes what fits */
    output_say(o, "dropped, since there is no room\n");
    output_drain(o, on_drained, NULL);
    ck_assert(!drained);

    size_t n_x = 0, n_y = 0;
    static char text[1 << 16];
    for (ssize_t n; n_x + n_y < sent + 3;) {
        uv_run(&loop, UV_RUN_NOWAIT);
        while ((n = read(reader_fd, text, sizeof text)) > 0) {
            for (ssize_t i = 0; i < n; i++) {
                n_x += text[i] == 'x';
                n_y += text[i] == 'y';
                ck_assert(text[i] == 'x' || text[i] == 'y');
            }
        }
    }
    uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert(drained);
    ck_assert_uint_eq(n_x, sent);
    ck_assert_uint_eq(n_y, 3);
    close_all();
}
END_TEST

START_TEST(closing_with_a_full_sink_does_not_wait)
{
    open_on_pipe();
    put_until_full(0, 'x');
    put_until_full(2, 'z');
    close_all();
}
END_TEST

START_TEST(the_mode_of_the_sink_is_not_changed)
{
    open_on_pipe();
    put_until_full(0, 'x');
    ck_assert_int_eq(fcntl(sink_fd, F_GETFL) & O_NONBLOCK, 0);
    close_all();
}
END_TEST

START_TEST(output_to_a_sink_without_a_reader_is_dropped)
{
    open_on_pipe();
    close(reader_fd);
    reader_fd = -1;
    for (int i = 0; i < 100; i++) {
        put(0, "gone\n");
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    output_drain(o, on_drained, NULL);
    ck_assert(drained);
    close_all();
}
END_TEST

START_TEST(a_full_disk_blocks_no_rank_and_loses_output)
{
    static const char bytes[16384] = {'x'};
    reader_fd = -1;
    open_on(open("/dev/full", O_WRONLY | O_CLOEXEC));
    ck_assert_ptr_null(output_error(o));
    for (int i = 0; i < 64; i++) {
        ck_assert_int_eq(write(rank_fd[0], bytes, sizeof bytes), sizeof bytes);
        uv_run(&loop, UV_RUN_NOWAIT);
        ck_assert(i > 0 || !output_has_loss(o)); /* some is kept */
    }
    ck_assert(output_has_loss(o));
    ck_assert_str_eq(output_error(o), "cannot write standard error: No space left on device");
    output_drain(o, on_drained, NULL);
    ck_assert(drained);
    close_all();
}
END_TEST

START_TEST(output_that_a_full_disk_has_not_taken_at_the_end_is_lost)
{
    reader_fd = -1;
    open_on(open("/dev/full", O_WRONLY | O_CLOEXEC));
    put(0, "x\n");
    uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert(!output_has_loss(o));
    output_drain(o, on_drained, NULL);
    ck_assert(drained && output_has_loss(o));
    close_all();
}
END_TEST

START_TEST(a_socket_is_written_without_waiting)
{
    int pair[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    reader_fd = pair[0];
    open_on(pair[1]);
    put(0, "hello");
    uv_run(&loop, UV_RUN_NOWAIT);
    check_read("hello");
    put_until_full(0, 'x');
    ck_assert_int_eq(fcntl(sink_fd, F_GETFL) & O_NONBLOCK, 0);
    close_all();
}
END_TEST

START_TEST(a_file_is_appended_to)
{
    char path[] = "/tmp/ddp-test-output-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    unlink(path);
    ck_assert_int_eq(write(fd, "before ", 7), 7);
    reader_fd = -1;
    open_on(fd);
    put(0, "after");
    uv_run(&loop, UV_RUN_NOWAIT);
    char text[32] = "";
    ck_assert_int_eq(pread(fd, text, sizeof text - 1, 0), 12);
    ck_assert_str_eq(text, "before after");
    close_all();
}
END_TEST

START_TEST(a_full_sink_does_not_split_a_line)
{
    enum { LINES = 3000 }; /* 21 kB a rank: more than a short turn, less than a pipe */
    char bytes[65536], line[16];
    size_t n_line = 0;
    int n_whole = 0;
    open_on_pipe();
    put_until_full(1, '\n');
    for (int i = 0; i < LINES; i++) {
        put(0, "rank 0\n");
        put(2, "rank 2\n");
    }
    for (int idle = 0; idle < 3; idle++) {
        for (ssize_t n; (n = read(reader_fd, bytes, sizeof bytes)) > 0; idle = 0) {
            for (ssize_t i = 0; i < n; i++) {
                if (bytes[i] != '\n') {
                    ck_assert_uint_lt(n_line, sizeof line - 1);
                    line[n_line++] = bytes[i];
                } else if (n_line > 0) {
                    line[n_line] = '\0';
                    ck_assert_msg(strcmp(line, "rank 0") == 0 || strcmp(line, "rank 2") == 0, "%s",
                                  line);
                    n_whole++;
                    n_line = 0;
                }
            }
        }
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    ck_assert_int_eq(n_whole, 2 * LINES);
    close_all();
}
END_TEST

START_TEST(a_closed_pipe_is_released)
{
    open_on_pipe();
    put(0, "last");
    close(rank_fd[0]);
    rank_fd[0] = -1;
    uv_run(&loop, UV_RUN_NOWAIT);
    uv_run(&loop, UV_RUN_NOWAIT);
    check_read("last");
    output_drain(o, on_drained, NULL);
    ck_assert(drained);
    close_all();
}
END_TEST

START_TEST(output_that_a_blocked_sink_loses_is_reported)
{
    static const char bytes[16384] = {'x'};
    struct rlimit old, none;
    open_on_pipe();
    put(0, "one\n"); /* the sink is opened once more */
    uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
    const int unused = dup(sink_fd);
    close(unused);
    none = (struct rlimit){.rlim_cur = (rlim_t)unused, .rlim_max = old.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    for (int i = 0; i < 100 && !output_has_loss(o); i++) {
        ck_assert_int_ne(write(rank_fd[0], bytes, sizeof bytes), 0);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    ck_assert(output_has_loss(o));
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
    close_all();
}
END_TEST

START_TEST(an_ended_rank_can_be_read_before_the_loop_runs)
{
    open_on_pipe();
    put(0, "Traceback\n");
    put(1, "other\n");
    ck_assert_ptr_null(output_tail(o, 0));
    output_catch_up(o, 0);
    char *tail = output_tail(o, 0);
    ck_assert_str_eq(tail, "Traceback\n");
    free(tail);
    ck_assert_ptr_null(output_tail(o, 1)); /* it waits for its turn */
    close_all();
}
END_TEST

START_TEST(a_restarted_rank_has_new_output)
{
    const struct output_way labelled = {
        .to = OUTPUT_TO_STDERR, .prefix = "p:", .n_prefix = 2, .log_fd = -1, .filter_fd = -1};
    open_on_pipe();
    for (int generation = 0; generation < 2; generation++) {
        int pair[2];
        ck_assert_int_eq(pipe2(pair, O_CLOEXEC), 0);
        put(0, generation == 0 ? "raw\n" : "one\ntwo");
        fcntl(pair[0], F_SETFL, O_NONBLOCK);
        ck_assert_int_eq(output_add(o, 0, OUTPUT_TO_STDERR, pair[0], false, &labelled), 0);
        ck_assert_ptr_null(output_tail(o, 0)); /* that of the next one */
        close(rank_fd[0]);
        rank_fd[0] = pair[1];
    }
    output_say(o, "ddprun: here\n");
    check_read("raw\np:one\np:two\nddprun: here\n"); /* nothing lost, nothing glued */
    close_all();
}
END_TEST

static void add_labelled(int rank, const char *prefix)
{
    const struct output_way labelled = {.to = OUTPUT_TO_STDERR,
                                        .prefix = prefix,
                                        .n_prefix = strlen(prefix),
                                        .log_fd = -1,
                                        .filter_fd = -1};
    int pair[2];
    ck_assert_int_eq(pipe2(pair, O_CLOEXEC), 0);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    ck_assert_int_eq(output_add(o, rank, OUTPUT_TO_STDERR, pair[0], false, &labelled), 0);
    close(rank_fd[rank]);
    rank_fd[rank] = pair[1];
}

/* Read until the loop has done its work, and n_x bytes 'x' have arrived. returns what followed
 * them, in a static buffer */
static const char *read_behind(size_t n_x)
{
    static char text[1 << 16], rest[4096];
    size_t n_rest = 0;
    for (int idle = 0; idle < 3;) { /* nothing more comes, though the loop had its turns */
        uv_run(&loop, UV_RUN_NOWAIT);
        ssize_t n = read(reader_fd, text, sizeof text);
        idle = n > 0 ? 0 : idle + 1;
        for (ssize_t i = 0; i < n; i++) {
            if (n_x > 0) {
                ck_assert_int_eq(text[i], 'x');
                n_x--;
            } else {
                ck_assert_uint_lt(n_rest, sizeof rest - 1);
                rest[n_rest++] = text[i];
            }
        }
    }
    ck_assert_uint_eq(n_x, 0);
    rest[n_rest] = '\0';
    return rest;
}

START_TEST(a_full_sink_loses_no_output_of_replaced_ranks)
{
    open_on_pipe();
    add_labelled(1, "p:");
    add_labelled(2, "r:");
    size_t sent = put_until_full(0, 'x');
    put(1, "one\ntwo");
    put(2, "one\n");
    output_retire(o, on_drained, NULL);
    ck_assert(drained); /* whatever the sink does */
    char *tail = output_tail(o, 1);
    ck_assert_str_eq(tail, "one\ntwo\n");
    free(tail);
    output_report(o, "ddprun: again\n");
    output_say(o, "dropped, since there is no room\n");

    add_labelled(1, "q:");
    put(1, "three\n");
    uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_str_eq(read_behind(sent), "p:one\np:two\nr:one\nddprun: again\nq:three\n");
    close_all();
}
END_TEST

START_TEST(only_the_last_lines_of_one_generation_are_kept)
{
    open_on_pipe();
    size_t sent = put_until_full(0, 'x');
    output_retire(o, on_drained, NULL);
    ck_assert(drained);
    drained = false;
    add_labelled(0, "p:");
    put(0, "one\n");
    output_retire(o, on_drained, NULL);
    uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert(!drained); /* it waits for the sink, as its rank would */
    ck_assert_str_eq(read_behind(sent), "p:one\n");
    ck_assert(drained);
    close_all();
}
END_TEST

/* Whatever is read of rank 0 is written to its pipe, as by a process that outlives it and never
 * stops writing. */
static void open_circle(void)
{
    reader_fd = -1;
    open_on(eventfd(0, EFD_CLOEXEC)); /* replaced before the first write */
    ck_assert_int_eq(dup3(rank_fd[0], sink_fd, O_CLOEXEC), sink_fd);
}

START_TEST(draining_ends_while_a_process_that_outlives_its_rank_writes)
{
    open_circle();
    put(0, "a line\n");
    output_drain(o, on_drained, NULL);
    ck_assert(drained);
    ck_assert_uint_le(output_written(o, 0), 2 * OUTPUT_CHUNK);
    close_all();
}
END_TEST

START_TEST(labeled_output_is_drained_while_a_process_that_outlives_its_rank_writes)
{
    open_circle();
    add_labelled(0, "p:");
    ck_assert_int_eq(dup3(rank_fd[0], sink_fd, O_CLOEXEC), sink_fd);
    put(0, "a line\n");
    output_drain(o, on_drained, NULL);
    ck_assert(drained);
    ck_assert_uint_le(output_written(o, 0), 2 * OUTPUT_CHUNK);
    close_all();
}
END_TEST

START_TEST(a_process_that_outlives_its_rank_does_not_hold_up_the_next_generation)
{
    open_circle();
    put(0, "a line\n");
    output_retire(o, on_drained, NULL);
    ck_assert(drained);
    ck_assert_uint_le(output_written(o, 0), 2 * OUTPUT_CHUNK);
    close_all();
}
END_TEST

START_TEST(all_that_a_large_pipe_holds_is_drained)
{
    enum { BYTES = 4 * OUTPUT_CHUNK };
    static char text[BYTES];
    FILE *file = tmpfile();
    ck_assert_ptr_nonnull(file);
    reader_fd = -1;
    open_on(dup(fileno(file)));
    ck_assert_int_ge(fcntl(rank_fd[0], F_SETPIPE_SZ, BYTES), BYTES);
    memset(text, 'x', sizeof text);
    ck_assert_int_eq(write(rank_fd[0], text, sizeof text), sizeof text);
    output_drain(o, on_drained, NULL);
    ck_assert(drained);
    ck_assert_int_eq(lseek(sink_fd, 0, SEEK_CUR), BYTES);
    close_all();
    fclose(file);
}
END_TEST

TEST_SUITE(output)
{
    signal(SIGPIPE, SIG_IGN); /* as ddprun does */
    Suite *suite = suite_create("output");
    TCase *c = tcase_create("output");
    tcase_set_timeout(c, 30);
    tcase_add_test(c, bytes_are_passed_on_and_kept);
    tcase_add_test(c, the_next_output_erases_a_drawn_line);
    tcase_add_test(c, draining_empties_the_pipes);
    tcase_add_test(c, a_full_sink_blocks_writers_and_loses_nothing);
    tcase_add_test(c, closing_with_a_full_sink_does_not_wait);
    tcase_add_test(c, the_mode_of_the_sink_is_not_changed);
    tcase_add_test(c, output_to_a_sink_without_a_reader_is_dropped);
    tcase_add_test(c, a_full_disk_blocks_no_rank_and_loses_output);
    tcase_add_test(c, output_that_a_full_disk_has_not_taken_at_the_end_is_lost);
    tcase_add_test(c, a_socket_is_written_without_waiting);
    tcase_add_test(c, a_file_is_appended_to);
    tcase_add_test(c, a_full_sink_does_not_split_a_line);
    tcase_add_test(c, a_closed_pipe_is_released);
    tcase_add_test(c, output_that_a_blocked_sink_loses_is_reported);
    tcase_add_test(c, an_ended_rank_can_be_read_before_the_loop_runs);
    tcase_add_test(c, a_restarted_rank_has_new_output);
    tcase_add_test(c, a_full_sink_loses_no_output_of_replaced_ranks);
    tcase_add_test(c, only_the_last_lines_of_one_generation_are_kept);
    tcase_add_test(c, draining_ends_while_a_process_that_outlives_its_rank_writes);
    tcase_add_test(c, labeled_output_is_drained_while_a_process_that_outlives_its_rank_writes);
    tcase_add_test(c, a_process_that_outlives_its_rank_does_not_hold_up_the_next_generation);
    tcase_add_test(c, all_that_a_large_pipe_holds_is_drained);
    suite_add_tcase(suite, c);
    return suite;
}
