/* Reading the kernel log's lines about the OOM killer. */
#include "launcher/diagnosis/oom.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct oom_log kernel_log;

static void set_up(void)
{
    kernel_log = (struct oom_log){0};
}

static void add(const char *records)
{
    oom_log_add(&kernel_log, records, strlen(records));
}

#define CHOSEN                                                                                     \
    "6,812,1106524895,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,"            \
    "mems_allowed=0,oom_memcg=/a,task_memcg=/a/b,task=python3,pid=1459,uid=0\n"
#define KILLED                                                                                     \
    "3,813,1106524925,-;Memory cgroup out of memory: Killed process 1459 (python3) "               \
    "total-vm:118968kB, anon-rss:32512kB, file-rss:6644kB, shmem-rss:4kB, UID:0 pgtables:136kB "   \
    "oom_score_adj:0\n"

START_TEST(two_lines_make_a_victim)
{
    add(CHOSEN KILLED);
    ck_assert_uint_eq(kernel_log.n_victims, 1);
    const struct oom_victim *v = oom_log_find_pid(&kernel_log, 1459);
    ck_assert_ptr_nonnull(v);
    ck_assert_str_eq(v->name, "python3");
    ck_assert_str_eq(v->limit_group, "/a");
    ck_assert_str_eq(v->process_group, "/a/b");
    ck_assert_int_eq(v->scope, OOM_SCOPE_GROUP);
    ck_assert_uint_eq(v->anon_bytes, 32512 * 1024);
    ck_assert_uint_eq(v->file_bytes, 6644 * 1024);
    ck_assert_uint_eq(v->shmem_bytes, 4 * 1024);
    ck_assert_ptr_null(oom_log_find_pid(&kernel_log, 145));
}
END_TEST

START_TEST(each_line_alone_gives_its_own_facts)
{
    add(CHOSEN);
    ck_assert_str_eq(oom_log_find_pid(&kernel_log, 1459)->name, "");
    ck_assert_int_eq(oom_log_find_pid(&kernel_log, 1459)->scope, OOM_SCOPE_GROUP);
    set_up();
    add(KILLED);
    ck_assert_str_eq(oom_log_find_pid(&kernel_log, 1459)->name, "python3");
    ck_assert_str_eq(oom_log_find_pid(&kernel_log, 1459)->process_group, "");
    ck_assert_int_eq(oom_log_find_pid(&kernel_log, 1459)->scope, OOM_SCOPE_GROUP);
}
END_TEST

static const struct {
    const char *record;
    enum oom_scope scope;
    int pid;
} scopes[] = {
    {"3,1,1,-;Out of memory: Killed process 7 (x) total-vm:1kB, anon-rss:1kB", OOM_SCOPE_NODE, 7},
    {"3,1,1,-;Out of memory (oom_kill_allocating_task): Killed process 7 (x) total-vm:1kB",
     OOM_SCOPE_NODE, 7},
    {"3,1,1,-;Killed process 7 (x) total-vm:1kB, anon-rss:1kB", OOM_SCOPE_UNKNOWN, 7},
    {"6,1,1,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,"
     "global_oom,task_memcg=/u,task=x,pid=7,uid=0",
     OOM_SCOPE_NODE, 7},
    {"6,1,1,-;oom-kill:constraint=CONSTRAINT_CPUSET,nodemask=0,cpuset=/c,mems_allowed=0,"
     "global_oom,task_memcg=/u,task=x,pid=7,uid=0",
     OOM_SCOPE_NODE, 7},
};

START_TEST(the_scope_is_a_group_or_the_node)
{
    add(scopes[_i].record);
    const struct oom_victim *v = oom_log_find_pid(&kernel_log, scopes[_i].pid);
    ck_assert_ptr_nonnull(v);
    ck_assert_int_eq(v->scope, scopes[_i].scope);
    ck_assert_str_eq(v->limit_group, "");
}
END_TEST

static const char *const no_victims[] = {
    "",
    "\n",
    ";",
    "3,1,1,-;",
    "3,1,1,-;Killed process",
    "3,1,1,-;Killed process ",
    "3,1,1,-;Killed process x (y) total-vm:1kB",
    "3,1,1,-;Killed process 7 (x)",
    "3,1,1,-;Killed process 99999999999 (x) total-vm:1kB",
    "3,1,1,-;Killed process 9999999999999999999999 (x) total-vm:1kB",
    "6,1,1,-;oom-kill:",
    "6,1,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,task=x,pid=,uid=0",
    "6,1,1,-;python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0",
    " SUBSYSTEM=memory; Killed process 7 (x) total-vm:1kB",
    "Killed process 7 (x) total-vm:1kB",
    /* a user process wrote this into /dev/kmsg */
    "12,1,1,-;Out of memory: Killed process 7 (x) total-vm:1kB",
    "14,1,1,-;oom-kill:constraint=CONSTRAINT_NONE,task_memcg=/u,task=x,pid=7,uid=0",
};

START_TEST(other_lines_name_no_victim)
{
    add(no_victims[_i]);
    ck_assert_uint_eq(kernel_log.n_victims, 0);
}
END_TEST

START_TEST(a_name_cannot_pass_for_another_process)
{
    add("6,1,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
        "oom_memcg=/a,task_memcg=/a,task=x,pid=1,uid=0,y,pid=1459,uid=0\n"
        "3,1,1,-;Memory cgroup out of memory: Killed process 1459 (x,pid=1 (y)) z) "
        "total-vm:1kB, anon-rss:5kB, file-rss:6kB, shmem-rss:7kB\n");
    ck_assert_uint_eq(kernel_log.n_victims, 1);
    ck_assert_str_eq(oom_log_find_pid(&kernel_log, 1459)->name, "x,pid=1 (y)) z");
    ck_assert_uint_eq(oom_log_find_pid(&kernel_log, 1459)->anon_bytes, 5 * 1024);
    ck_assert_ptr_null(oom_log_find_pid(&kernel_log, 1));
}
END_TEST

START_TEST(a_group_contains_the_groups_below_it)
{
    add(CHOSEN KILLED);
    ck_assert_ptr_nonnull(oom_log_find_in(&kernel_log, "/a"));
    ck_assert_ptr_nonnull(oom_log_find_in(&kernel_log, "/a/b"));
    ck_assert_ptr_nonnull(oom_log_find_in(&kernel_log, "/"));
    ck_assert_ptr_null(oom_log_find_in(&kernel_log, "/a/b/c"));
    ck_assert_ptr_null(oom_log_find_in(&kernel_log, "/a/"));
    ck_assert_ptr_null(oom_log_find_in(&kernel_log, "/b"));
    ck_assert_uint_eq(oom_log_count_in(&kernel_log, "/a"), 1);
    ck_assert_uint_eq(oom_log_count_in(&kernel_log, "/c"), 0);
    set_up();
    add(KILLED); /* its group is not known */
    ck_assert_ptr_null(oom_log_find_in(&kernel_log, "/"));
}
END_TEST

START_TEST(the_last_victims_are_kept)
{
    for (int i = 1; i <= 3 * OOM_LOG_VICTIMS; i++) {
        char line[200];
        snprintf(line, sizeof line,
                 "3,1,1,-;Out of memory: Killed process %d (x) total-vm:1kB, anon-rss:%dkB\n", i,
                 i);
        add(line);
    }
    ck_assert_uint_eq(kernel_log.n_victims, 3 * OOM_LOG_VICTIMS);
    ck_assert_ptr_null(oom_log_find_pid(&kernel_log, 2 * OOM_LOG_VICTIMS));
    ck_assert_ptr_nonnull(oom_log_find_pid(&kernel_log, 2 * OOM_LOG_VICTIMS + 1));
    add("3,1,1,-;Out of memory: Killed process 48 (x) total-vm:1kB, anon-rss:7kB\n");
    ck_assert_uint_eq(kernel_log.n_victims, 3 * OOM_LOG_VICTIMS + 1);
    ck_assert_uint_eq(oom_log_find_pid(&kernel_log, 48)->anon_bytes,
                      7 * 1024); /* the last of a number */
}
END_TEST

START_TEST(long_lines_and_names_are_cut)
{
    static char line[10000];
    strcpy(line, "6,1,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/");
    memset(line + strlen(line), 'a', 700);
    strcat(line, ",task_memcg=/b,task=x,pid=7,uid=0");
    add(line);
    ck_assert_uint_eq(strlen(oom_log_find_pid(&kernel_log, 7)->limit_group), OOM_GROUP_BYTES - 1);
    ck_assert_str_eq(oom_log_find_pid(&kernel_log, 7)->process_group, "/b");
    set_up();
    memset(line, 'a', sizeof line - 1);
    memcpy(line, "3,1,1,-;Killed process 7 (", 26);
    add(line);
    ck_assert_uint_eq(kernel_log.n_victims, 0);
    add("3,1,1,-;Killed process 7 (x) total-vm:1kB, anon-rss:999999999999999999kB");
    ck_assert_uint_eq(oom_log_find_pid(&kernel_log, 7)->anon_bytes, 0);
}
END_TEST

TEST_SUITE(oom_log)
{
    Suite *suite = suite_create("oom_log");
    TCase *c = tcase_create("oom_log");
    tcase_add_checked_fixture(c, set_up, NULL);
    tcase_add_test(c, two_lines_make_a_victim);
    tcase_add_test(c, each_line_alone_gives_its_own_facts);
    tcase_add_loop_test(c, the_scope_is_a_group_or_the_node, 0, sizeof scopes / sizeof *scopes);
    tcase_add_loop_test(c, other_lines_name_no_victim, 0, sizeof no_victims / sizeof *no_victims);
    tcase_add_test(c, a_name_cannot_pass_for_another_process);
    tcase_add_test(c, a_group_contains_the_groups_below_it);
    tcase_add_test(c, the_last_victims_are_kept);
    tcase_add_test(c, long_lines_and_names_are_cut);
    suite_add_tcase(suite, c);
    return suite;
}
