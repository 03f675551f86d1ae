/* The trees of tests/data/oom, before and after a kill, in place of the kernel's files: test
 * doubles of /proc, /sys and /dev/kmsg. tests/system/one_node/oom.py has the real ones. */
#include "launcher/diagnosis/oom_watch.h"
#include "tests/support/file_tree.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[FILE_TREE_BYTES];
static struct oom_watch w;
static struct oom_finding f;

static void set_up(void)
{
    file_tree_make(root);
    oom_watch_init(&w, root);
}

static void tear_down(void)
{
    oom_watch_close(&w);
    file_tree_remove(root);
}

/* Let the tree look as it did before or after; files that are open stay the same files. */
static void put(const char *name, const char *when)
{
    char command[1024];
    snprintf(command, sizeof command, "cp -R '%s/oom/%s/%s/.' '%s'", getenv("TEST_DATA"), name,
             when, root);
    ck_assert_int_eq(system(command), 0);
}

/* Process numbers in the log are ours, or those of another namespace. */
static void number_processes(const char *namespace)
{
    char path[64];
    snprintf(path, sizeof path, "%s/proc/self/ns", root);
    ck_assert_int_eq(mkdir(path, 0755), 0);
    strcat(path, "/pid");
    ck_assert_int_eq(symlink(namespace, path), 0);
}

static const struct {
    const char *tree;
    bool same_numbers, killed;
    int pid;
    enum oom_blame blame;
    uint64_t n_kills;
    enum oom_scope scope;
    const char *group;
    uint64_t limit, peak, usage;
    int victim;
} cases[] = {
    {"v2-limit-above", true, true, 4711, OOM_BLAME_RANK, 1, OOM_SCOPE_GROUP, "/job.slice", 67108864,
     67108864, 2097152, 4711},
    {"v2-limit-above", false, true, 4711, OOM_BLAME_RANK, 1, OOM_SCOPE_GROUP, "/job.slice",
     67108864, 67108864, 2097152, 0},
    {"v2-limit-above", true, false, 4700, OOM_BLAME_OTHER, 1, OOM_SCOPE_GROUP, "/job.slice",
     67108864, 67108864, 2097152, 4711},
    {"v2-container", false, true, 7, OOM_BLAME_RANK, 3, OOM_SCOPE_GROUP, "/", 536870912,
     OOM_UNKNOWN, 4096000, 0},
    {"v2-top", true, true, 4711, OOM_BLAME_RANK, OOM_UNKNOWN, OOM_SCOPE_NODE, "", OOM_UNKNOWN,
     OOM_UNKNOWN, OOM_UNKNOWN, 4711},
    {"v2-top", true, true, 4700, OOM_BLAME_NONE, OOM_UNKNOWN, OOM_SCOPE_UNKNOWN, "", OOM_UNKNOWN,
     OOM_UNKNOWN, OOM_UNKNOWN, 0},
    {"v2-top", false, true, 4711, OOM_BLAME_NONE, OOM_UNKNOWN, OOM_SCOPE_UNKNOWN, "", OOM_UNKNOWN,
     OOM_UNKNOWN, OOM_UNKNOWN, 0},
    {"v1-limit-above", false, true, 4711, OOM_BLAME_RANK, 1, OOM_SCOPE_GROUP, "/batch", 134217728,
     134217728, 2097152, 0},
    {"v1-container", false, true, 7, OOM_BLAME_RANK, 1, OOM_SCOPE_GROUP, "/", 268435456, 268435456,
     1048576, 0},
    {"v1-no-swap", false, true, 7, OOM_BLAME_RANK, 1, OOM_SCOPE_GROUP, "/", 268435456, 268435456,
     1048576, 0},
    {"v1-no-limit", false, true, 7, OOM_BLAME_RANK, 1, OOM_SCOPE_UNKNOWN, "", OOM_UNKNOWN,
     OOM_UNKNOWN, OOM_UNKNOWN, 0},
    {"v1-others", true, true, 4711, OOM_BLAME_OTHER, 2, OOM_SCOPE_GROUP, "/batch", 134217728,
     134217728, 2097152, 4802},
};

START_TEST(a_kill_between_start_and_failure_is_found)
{
    put(cases[_i].tree, "before");
    number_processes(cases[_i].same_numbers ? "pid:[4026531836]" : "pid:[4026532200]");
    oom_watch_begin(&w);
    put(cases[_i].tree, "after");
    oom_watch_note_failure(&w);
    oom_watch_find(&w, cases[_i].pid, cases[_i].killed, &f);
    ck_assert_int_eq(f.blame, cases[_i].blame);
    ck_assert_uint_eq(f.n_kills, cases[_i].n_kills);
    ck_assert_int_eq(f.scope, cases[_i].scope);
    ck_assert_str_eq(f.group, cases[_i].group);
    ck_assert_uint_eq(f.limit_bytes, cases[_i].limit);
    ck_assert_uint_eq(f.peak_bytes, cases[_i].peak);
    ck_assert_uint_eq(f.usage_bytes, cases[_i].usage);
    ck_assert_int_eq(f.victim.pid, cases[_i].victim);
    ck_assert_uint_eq(f.node_bytes,
                      cases[_i].blame == OOM_BLAME_NONE ? OOM_UNKNOWN : UINT64_C(24684084) * 1024);
    if (f.victim.pid == 4711 && f.scope == OOM_SCOPE_GROUP)
        ck_assert_uint_eq(f.victim.anon_bytes, 62512 * 1024); /* not that of the older record */
}
END_TEST

START_TEST(older_kills_are_not_attributed_to_this_rank)
{
    put("v2-limit-above", "after");
    number_processes("pid:[4026531836]");
    oom_watch_begin(&w);
    oom_watch_note_failure(&w);
    oom_watch_find(&w, 4711, true, &f);
    ck_assert_int_eq(f.blame, OOM_BLAME_NONE);
}
END_TEST

START_TEST(the_first_failure_counts_until_other_ranks_start)
{
    put("v1-limit-above", "before");
    oom_watch_begin(&w);
    ck_assert_str_eq(oom_watch_group(&w), "/batch/job7");
    oom_watch_note_failure(&w);
    put("v1-limit-above", "after");
    oom_watch_note_failure(&w); /* when the others were stopped */
    oom_watch_begin(&w);        /* late */
    oom_watch_find(&w, 7, true, &f);
    ck_assert_int_eq(f.blame, OOM_BLAME_NONE);

    put("v1-limit-above", "before");
    oom_watch_renew(&w);
    put("v1-limit-above", "after");
    oom_watch_find(&w, 7, true, &f);
    ck_assert_int_eq(f.blame, OOM_BLAME_NONE); /* none was noted */
    oom_watch_note_failure(&w);
    oom_watch_find(&w, 7, true, &f);
    ck_assert_int_eq(f.blame, OOM_BLAME_RANK);

    oom_watch_renew(&w); /* that kill was of the ranks before */
    oom_watch_note_failure(&w);
    oom_watch_find(&w, 7, true, &f);
    ck_assert_int_eq(f.blame, OOM_BLAME_NONE);
}
END_TEST

START_TEST(a_death_before_the_first_reading_is_only_possible)
{
    put("v1-limit-above", "after");
    oom_watch_note_failure(&w);
    oom_watch_find(&w, 7, true, &f);
    ck_assert_int_eq(f.blame, OOM_BLAME_PERHAPS);
    ck_assert_uint_eq(f.n_kills, 5);
    ck_assert_str_eq(oom_watch_group(&w), "");
}
END_TEST

START_TEST(without_files_the_cause_is_unknown)
{
    oom_watch_begin(&w);
    oom_watch_note_failure(&w);
    oom_watch_find(&w, 7, true, &f);
    ck_assert_int_eq(f.blame, OOM_BLAME_NONE);
    ck_assert_str_eq(oom_watch_group(&w), "");
}
END_TEST

START_TEST(a_path_that_is_too_long_is_cut)
{
    char list[2000] = "0::";
    char path[64];
    memset(list + 3, 'a', sizeof list - 4);
    for (size_t i = 3; i < sizeof list - 1; i += 20)
        list[i] = '/';
    put("v2-container", "before"); /* its top is on the way up from anywhere */
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *out = fopen(path, "w");
    ck_assert_ptr_nonnull(out);
    fputs(list, out);
    fclose(out);
    oom_watch_begin(&w);
    ck_assert_str_eq(oom_watch_group(&w), "/");
}
END_TEST

START_TEST(the_real_files_can_be_read)
{
    oom_watch_init(&w, "");
    oom_watch_begin(&w);
    oom_watch_note_failure(&w);
    oom_watch_find(&w, getpid(), true, &f);
    ck_assert_int_ne(f.blame, OOM_BLAME_RANK);
}
END_TEST

TEST_SUITE(oom_watch)
{
    Suite *suite = suite_create("oom_watch");
    TCase *c = tcase_create("oom_watch");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_loop_test(c, a_kill_between_start_and_failure_is_found, 0,
                        sizeof cases / sizeof *cases);
    tcase_add_test(c, older_kills_are_not_attributed_to_this_rank);
    tcase_add_test(c, the_first_failure_counts_until_other_ranks_start);
    tcase_add_test(c, a_death_before_the_first_reading_is_only_possible);
    tcase_add_test(c, without_files_the_cause_is_unknown);
    tcase_add_test(c, a_path_that_is_too_long_is_cut);
    tcase_add_test(c, the_real_files_can_be_read);
    suite_add_tcase(suite, c);
    return suite;
}
