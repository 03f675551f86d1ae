/* Events where the disk is full: RLIMIT_FSIZE stands for it, which lets as many bytes in. */
#include "launcher/diagnosis/oom.h"
#include "launcher/reporting/events.h"
#include "launcher/supervisor/supervisor.h"
#include "rendezvous/membership/roster.h"
#include "tests/support/suite.h"

#include <check.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static char path[64];
static struct events e;
static int n_notes;
static char note[400];

static void on_note(void *arg, const char *text)
{
    ck_assert_ptr_eq(arg, &n_notes);
    snprintf(note, sizeof note, "%s", text);
    n_notes++;
}

static void set_room(rlim_t bytes)
{
    struct rlimit limit = {bytes, RLIM_INFINITY};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void set_up(void)
{
    signal(SIGXFSZ, SIG_IGN); /* write() fails instead, with what comes before the limit written */
    strcpy(path, "/tmp/ddp-test-events-XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    n_notes = 0;
    ck_assert_int_eq(events_open(&e, path, "job7", on_note, &n_notes, NULL), 0);
}

static void tear_down(void)
{
    set_room(RLIM_INFINITY);
    events_close(&e);
    unlink(path);
}

static long size(void)
{
    FILE *in = fopen(path, "re");
    ck_assert_int_eq(fseek(in, 0, SEEK_END), 0);
    long n = ftell(in);
    fclose(in);
    return n;
}

/* The lines of the file: 'e' for an event, 't' for a torn one. */
static const char *lines(void)
{
    static char kinds[64];
    char line[1024];
    size_t n = 0;
    FILE *in = fopen(path, "re");
    while (fgets(line, sizeof line, in) != NULL && n < sizeof kinds - 1) {
        json_t *json = json_loads(line, 0, NULL);
        ck_assert_msg(strchr(line, '\n') != NULL, "the last line has no end");
        kinds[n++] = json != NULL ? 'e' : 't';
        json_decref(json);
    }
    kinds[n] = '\0';
    fclose(in);
    return kinds;
}

START_TEST(a_full_disk_is_reported_once_and_the_rest_is_written)
{
    events_save(&e, 0, "asked");
    long one = size();
    set_room((rlim_t)(2 * one - one / 2)); /* for one and a half */
    events_save(&e, 0, "asked");
    events_save(&e, 0, "asked");
    ck_assert_int_eq(size(), 2 * one - one / 2);
    ck_assert_int_eq(n_notes, 1);
    ck_assert_ptr_nonnull(strstr(note, path));
    ck_assert_ptr_nonnull(strstr(note, "No space left on device"));
    set_room(RLIM_INFINITY);
    events_save(&e, 0, "asked");
    events_save(&e, 0, "asked");
    ck_assert_str_eq(lines(), "etee");
    ck_assert_int_eq(n_notes, 1);
}
END_TEST

START_TEST(a_failed_write_leaves_no_partial_line)
{
    events_save(&e, 0, "asked");
    set_room((rlim_t)size());
    events_save(&e, 0, "asked");
    ck_assert_int_eq(n_notes, 1);
    set_room(RLIM_INFINITY);
    events_save(&e, 0, "asked");
    ck_assert_str_eq(lines(), "ee");
}
END_TEST

/* Of a generation that failed without a rank of this node. */
START_TEST(a_restart_for_no_rank_has_null)
{
    const struct roster_restart restart = {.why = MESSAGE_WHY_FAILURE};
    struct supervisor *s =
        supervisor_create(&(struct supervisor_limits){.n_ranks = 1, .window = 1});
    ck_assert_int_lt(supervisor_get_verdict(s)->rank, 0);
    events_restart(&e, s, &restart);
    supervisor_destroy(s);
    json_t *line = json_load_file(path, 0, NULL);
    ck_assert_ptr_nonnull(line);
    ck_assert(json_is_null(json_object_get(line, "rank")));
    json_decref(line);
}
END_TEST

/* With several nodes local rank 1 is another rank of the job. */
START_TEST(the_rank_of_oom_is_the_rank_in_the_job)
{
    struct supervisor_orders o;
    struct supervisor *s =
        supervisor_create(&(struct supervisor_limits){.n_ranks = 2, .window = 2});
    supervisor_step(s, &(struct supervisor_event){SUPERVISOR_EV_NEXT, .n_ranks = 2}, &o);
    for (int i = 0; i < 2; i++)
        supervisor_step(
            s, &(struct supervisor_event){SUPERVISOR_EV_STARTED, .rank = i, .pid = 100 + i}, &o);
    supervisor_step(s,
                    &(struct supervisor_event){SUPERVISOR_EV_EXITED, .rank = 1, .status = SIGKILL,
                                               .empty = true},
                    &o);
    ck_assert_int_eq(supervisor_get_verdict(s)->rank, 1);
    e.first_rank = 8;
    events_oom(&e, s, &(struct oom_finding){.blame = OOM_BLAME_RANK, .victim_rank = -1});
    supervisor_destroy(s);
    json_t *line = json_load_file(path, 0, NULL);
    ck_assert_ptr_nonnull(line);
    ck_assert_int_eq(json_integer_value(json_object_get(line, "rank")), 9);
    ck_assert_int_eq(json_integer_value(json_object_get(line, "lrank")), 1);
    ck_assert_int_eq(json_integer_value(json_object_get(line, "pid")), 101);
    json_decref(line);
}
END_TEST

START_TEST(without_a_file_nothing_is_written_or_reported)
{
    struct events none;
    ck_assert_int_eq(events_open(&none, NULL, "job7", on_note, &n_notes, NULL), 0);
    events_save(&none, 0, "asked");
    events_close(&none);
    ck_assert_int_eq(n_notes, 0);
}
END_TEST

TEST_SUITE(events)
{
    Suite *suite = suite_create("events");
    TCase *t = tcase_create("events");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, a_full_disk_is_reported_once_and_the_rest_is_written);
    tcase_add_test(t, a_failed_write_leaves_no_partial_line);
    tcase_add_test(t, a_restart_for_no_rank_has_null);
    tcase_add_test(t, the_rank_of_oom_is_the_rank_in_the_job);
    tcase_add_test(t, without_a_file_nothing_is_written_or_reported);
    suite_add_tcase(suite, t);
    return suite;
}
