/* Numbers in small files, and the cause that counters and log give together. */
#include "launcher/diagnosis/oom.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

START_TEST(a_field_is_the_number_after_its_whole_name)
{
    static const char events[] = "low 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 7\n";
    ck_assert_uint_eq(oom_parse_field(events, "low"), 0);
    ck_assert_uint_eq(oom_parse_field(events, "oom"), 3);
    ck_assert_uint_eq(oom_parse_field(events, "oom_kill"), 2);
    ck_assert_uint_eq(oom_parse_field(events, "oom_group_kill"), 7);
    ck_assert_uint_eq(oom_parse_field(events, "kill"), OOM_UNKNOWN);
    ck_assert_uint_eq(oom_parse_field(events, "o"), OOM_UNKNOWN);
    ck_assert_uint_eq(oom_parse_field("MemFree: 1 kB\nMemTotal:   24684084 kB\n", "MemTotal"),
                      UINT64_C(24684084) * 1024);
}
END_TEST

static const char *const no_fields[] = {
    "",
    "\n",
    "\n\n",
    "oom_kill",
    "oom_kill\n",
    "oom_kill ",
    "oom_kill x",
    "oom_kill -1",
    "oom_kill\n5",
    "oom_kill 99999999999999999999",
    "oom_kill: 9999999999999999999 kB",
};

START_TEST(a_missing_field_is_unknown)
{
    ck_assert_uint_eq(oom_parse_field(no_fields[_i], "oom_kill"), OOM_UNKNOWN);
}
END_TEST

START_TEST(an_unlimited_group_has_an_unknown_limit)
{
    ck_assert_uint_eq(oom_parse_bytes("0\n"), 0);
    ck_assert_uint_eq(oom_parse_bytes("67108864\n"), 67108864);
    ck_assert_uint_eq(oom_parse_bytes("max\n"), OOM_UNKNOWN);
    ck_assert_uint_eq(oom_parse_bytes("9223372036854771712\n"), OOM_UNKNOWN);
    ck_assert_uint_eq(oom_parse_bytes("18446744073709551616\n"), OOM_UNKNOWN);
    ck_assert_uint_eq(oom_parse_bytes("-1\n"), OOM_UNKNOWN);
    ck_assert_uint_eq(oom_parse_bytes(""), OOM_UNKNOWN);
}
END_TEST

/* --- Findings --- */

static struct oom_groups before, after;
static struct oom_log kernel_log;
static struct oom_case c;
static struct oom_finding f;

/* Ranks in /a/b; /a has a limit. One OOM kill since their start. */
static void set_up(void)
{
    before = (struct oom_groups){
        .version = 2,
        .n_levels = 2,
        .path = "/a/b",
        .levels = {{.n_path = 4, .kills = 4, .hits = 1, .limit_bytes = OOM_UNKNOWN},
                   {.n_path = 2, .kills = 9, .hits = 7, .limit_bytes = OOM_UNKNOWN}},
    };
    after = before;
    after.levels[0].kills = 5;
    after.levels[1].kills = 10;
    after.levels[1].hits = 8;
    after.levels[1].limit_bytes = 1000;
    after.levels[1].peak_bytes = 999;
    kernel_log = (struct oom_log){0};
    c = (struct oom_case){.before = &before, .after = &after, .pid = 7, .killed = true};
}

static void log_victim(pid_t pid, const char *group, enum oom_scope scope, const char *limit_group)
{
    struct oom_victim *v = &kernel_log.victims[kernel_log.n_victims++];
    *v = (struct oom_victim){.pid = pid, .name = "x", .scope = scope};
    strcpy(v->process_group, group);
    strcpy(v->limit_group, limit_group);
    c.log = &kernel_log;
}

static void find(enum oom_blame blame, uint64_t n_kills, enum oom_scope scope, const char *group)
{
    oom_find(&c, &f);
    ck_assert_int_eq(f.blame, blame);
    ck_assert_uint_eq(f.n_kills, n_kills);
    ck_assert_int_eq(f.scope, scope);
    ck_assert_str_eq(f.group, group);
}

START_TEST(a_rise_and_a_sigkill_mean_a_killed_rank)
{
    find(OOM_BLAME_RANK, 1, OOM_SCOPE_GROUP, "/a");
    ck_assert_uint_eq(f.limit_bytes, 1000);
    ck_assert_uint_eq(f.peak_bytes, 999);
    ck_assert_int_eq(f.victim.pid, 0);
}
END_TEST

START_TEST(a_rise_without_a_sigkill_means_another_process)
{
    c.killed = false;
    find(OOM_BLAME_OTHER, 1, OOM_SCOPE_GROUP, "/a");
}
END_TEST

START_TEST(without_a_rise_no_process_was_killed)
{
    after.levels[0].kills = 4; /* that /a counts one more is a matter of others in it */
    find(OOM_BLAME_NONE, 0, OOM_SCOPE_UNKNOWN, "");
    ck_assert(!oom_wants_log(&c));
    after.levels[0].kills = 3; /* a counter that falls is a new group of the same name */
    find(OOM_BLAME_NONE, 0, OOM_SCOPE_UNKNOWN, "");
}
END_TEST

START_TEST(without_a_baseline_an_oom_kill_is_only_possible)
{
    c.before = NULL;
    find(OOM_BLAME_PERHAPS, 5, OOM_SCOPE_GROUP, "/a");
    c.killed = false;
    find(OOM_BLAME_NONE, 5, OOM_SCOPE_UNKNOWN, "");
}
END_TEST

START_TEST(a_baseline_of_other_groups_does_not_count)
{
    strcpy(before.path, "/a/c");
    find(OOM_BLAME_PERHAPS, 5, OOM_SCOPE_GROUP, "/a");
    set_up();
    before.n_levels = 1;
    find(OOM_BLAME_PERHAPS, 5, OOM_SCOPE_GROUP, "/a");
}
END_TEST

START_TEST(the_log_counts_more_than_the_counters)
{
    log_victim(7, "/elsewhere", OOM_SCOPE_NODE, "");
    after = (struct oom_groups){0}; /* none count */
    ck_assert(oom_wants_log(&c));
    find(OOM_BLAME_RANK, OOM_UNKNOWN, OOM_SCOPE_NODE, "");
    ck_assert_int_eq(f.victim.pid, 7);
    c.killed = false;
    ck_assert(!oom_wants_log(&c));
    c.killed = true;
    c.pid = 8;
    find(OOM_BLAME_NONE, OOM_UNKNOWN, OOM_SCOPE_UNKNOWN, "");
}
END_TEST

START_TEST(the_log_names_the_group_whose_limit_was_hit)
{
    after.levels[0].hits = 2; /* this limit was hit without a kill */
    after.levels[0].limit_bytes = 500;
    find(OOM_BLAME_RANK, 1, OOM_SCOPE_GROUP, "/a/b");
    log_victim(7, "/a/b", OOM_SCOPE_GROUP, "/a");
    find(OOM_BLAME_RANK, 1, OOM_SCOPE_GROUP, "/a");
    ck_assert_uint_eq(f.limit_bytes, 1000);
    strcpy(kernel_log.victims[0].limit_group, "/not-ours");
    find(OOM_BLAME_RANK, 1, OOM_SCOPE_GROUP, "/not-ours");
    ck_assert_uint_eq(f.limit_bytes, OOM_UNKNOWN);
    kernel_log.victims[0].limit_group[0] = '\0';
    find(OOM_BLAME_RANK, 1, OOM_SCOPE_GROUP, "/a/b");
}
END_TEST

START_TEST(a_rank_that_the_complete_log_does_not_name_was_not_oom_killed)
{
    log_victim(8, "/a/b/c", OOM_SCOPE_GROUP, "/a");
    find(OOM_BLAME_OTHER, 1, OOM_SCOPE_GROUP, "/a");
    ck_assert_int_eq(f.victim.pid, 8);
    after.levels[0].kills = 6; /* one of two: the log has lost lines */
    find(OOM_BLAME_RANK, 2, OOM_SCOPE_GROUP, "/a");
    ck_assert_int_eq(f.victim.pid, 0);
}
END_TEST

START_TEST(without_hit_counts_a_peak_at_the_limit_counts_as_a_hit)
{
    after.levels[1].hits = before.levels[1].hits;
    after.levels[1].no_swap = true;
    after.levels[1].limit_bytes = 6400;
    after.levels[1].peak_bytes = 6300;
    find(OOM_BLAME_RANK, 1, OOM_SCOPE_GROUP, "/a");
    after.levels[1].peak_bytes = 6299;
    find(OOM_BLAME_RANK, 1, OOM_SCOPE_UNKNOWN, "");
    after.levels[1].peak_bytes = OOM_UNKNOWN;
    find(OOM_BLAME_RANK, 1, OOM_SCOPE_UNKNOWN, "");
    after.levels[1].peak_bytes = 6400;
    after.levels[1].no_swap = false;
    find(OOM_BLAME_RANK, 1, OOM_SCOPE_UNKNOWN, "");
}
END_TEST

START_TEST(without_a_hit_limit_the_group_is_unknown)
{
    after.levels[1].limit_bytes = OOM_UNKNOWN;
    find(OOM_BLAME_RANK, 1, OOM_SCOPE_UNKNOWN, "");
    set_up();
    after.levels[1].hits = 7;
    find(OOM_BLAME_RANK, 1, OOM_SCOPE_UNKNOWN, "");
    after.levels[1].hits = OOM_UNKNOWN;
    find(OOM_BLAME_RANK, 1, OOM_SCOPE_UNKNOWN, "");
}
END_TEST

TEST_SUITE(oom)
{
    Suite *suite = suite_create("oom");
    TCase *t = tcase_create("numbers");
    tcase_add_test(t, a_field_is_the_number_after_its_whole_name);
    tcase_add_loop_test(t, a_missing_field_is_unknown, 0, sizeof no_fields / sizeof *no_fields);
    tcase_add_test(t, an_unlimited_group_has_an_unknown_limit);
    suite_add_tcase(suite, t);
    t = tcase_create("findings");
    tcase_add_checked_fixture(t, set_up, NULL);
    tcase_add_test(t, a_rise_and_a_sigkill_mean_a_killed_rank);
    tcase_add_test(t, a_rise_without_a_sigkill_means_another_process);
    tcase_add_test(t, without_a_rise_no_process_was_killed);
    tcase_add_test(t, without_a_baseline_an_oom_kill_is_only_possible);
    tcase_add_test(t, a_baseline_of_other_groups_does_not_count);
    tcase_add_test(t, the_log_counts_more_than_the_counters);
    tcase_add_test(t, the_log_names_the_group_whose_limit_was_hit);
    tcase_add_test(t, a_rank_that_the_complete_log_does_not_name_was_not_oom_killed);
    tcase_add_test(t, without_hit_counts_a_peak_at_the_limit_counts_as_a_hit);
    tcase_add_test(t, without_a_hit_limit_the_group_is_unknown);
    suite_add_tcase(suite, t);
    return suite;
}
