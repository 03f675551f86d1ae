/* Finding control groups: in texts of /proc/PID/cgroup, and in the trees of tests/data/cgroup,
 * which are test doubles of /proc and /sys. */
#include "common/cgroup.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *text, *controller;
    const char *found; /* "VERSION PATH" */
} lists[] = {
    {"0::/a/b\n", "cpu", "2 /a/b"},
    {"0::/", "memory", "2 /"},
    {"4:cpuset:/s\n3:cpuacct,cpu:/c\n0::/u\n", "cpu", "1 /c"},
    {"4:cpuset:/s\n3:cpu,cpuacct:/c\n0::/u\n", "cpuacct", "1 /c"},
    {"0::/u\n2:memory:/m\n", "memory", "1 /m"}, /* in any order */
    {"4:cpuset:/s\n0::/u\n", "cpu", "2 /u"},
    {"9:name=systemd:/x\n4:cpuset:/s\n", "cpu", ""},
    {"2:memory:/with:colon and blank\n", "memory", "1 /with:colon and blank"},
    {"", "cpu", ""},
    {"\n\n", "cpu", ""},
    {":\n::\n0:\n0::\n0::relative\n1:cpu\n1:cpu:\n", "cpu", ""},
    {"nonsense\n0::/a\n", "cpu", "2 /a"},
    {"1:,cpu,:/a\n", "cpu", "1 /a"},
};

START_TEST(the_controllers_line_counts_or_else_the_line_of_version_2)
{
    struct co_cgroup_entry e;
    char found[64] = "";
    if (co_cgroup_parse(lists[_i].text, lists[_i].controller, &e))
        snprintf(found, sizeof found, "%d %.*s", e.version, (int)e.path_len, e.path);
    ck_assert_str_eq(found, lists[_i].found);
}
END_TEST

static const char *fixture(const char *name)
{
    static char root[512];
    snprintf(root, sizeof root, "%s/cgroup/%s", getenv("TEST_DATA"), name);
    return root;
}

/* All that is passed on the way up: "path (beginning of file); ..." */
static const char *climb(struct co_cgroup *g, const char *file)
{
    static char trace[512];
    char text[64];
    trace[0] = '\0';
    do {
        int n = co_cgroup_read(g, file, text, sizeof text);
        snprintf(trace + strlen(trace), sizeof trace - strlen(trace), "%s (%.*s); ",
                 co_cgroup_path(g), n < 0 ? 1 : (int)strcspn(text, "\n"), n < 0 ? "-" : text);
    } while (co_cgroup_up(g));
    return trace;
}

START_TEST(the_way_up_ends_at_the_mount_point)
{
    struct co_cgroup g;
    ck_assert_int_eq(co_cgroup_find(fixture("v2"), "cpu", &g), 0);
    ck_assert_int_eq(g.version, 2);
    ck_assert_str_eq(climb(&g, "cpu.max"),
                     "/job.slice/run.scope (800000 100000); /job.slice (250000 100000); / (-); ");
    ck_assert(!co_cgroup_up(&g));
    ck_assert_int_eq(co_cgroup_find(fixture("v1"), "cpu", &g), 0);
    ck_assert_int_eq(g.version, 1);
    ck_assert_str_eq(climb(&g, "cpu.cfs_quota_us"), "/batch/job7 (-1); /batch (150000); / (-); ");
}
END_TEST

START_TEST(a_containers_groups_are_found_below_the_path_of_the_host)
{
    struct co_cgroup g;
    ck_assert_int_eq(co_cgroup_find(fixture("v1-container"), "cpu", &g), 0);
    ck_assert_str_eq(climb(&g, "cpu.cfs_quota_us"), "/docker/4f5e (-); /docker (-); / (50000); ");
}
END_TEST

/* --- In a directory that each test writes --- */

static char root[] = "/tmp/ddp-test-cgroup-XXXXXX";

static void set_up(void)
{
    char dir[64];
    ck_assert_ptr_nonnull(mkdtemp(root));
    snprintf(dir, sizeof dir, "%s/proc", root);
    ck_assert_int_eq(mkdir(dir, 0755), 0);
    snprintf(dir, sizeof dir, "%s/proc/self", root);
    ck_assert_int_eq(mkdir(dir, 0755), 0);
}

static const char *list_path(void)
{
    static char path[64];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    return path;
}

static void put_list(const char *text)
{
    FILE *out = fopen(list_path(), "w");
    ck_assert_ptr_nonnull(out);
    fputs(text, out);
    fclose(out);
}

static void tear_down(void)
{
    char dir[64];
    unlink(list_path());
    snprintf(dir, sizeof dir, "%s/proc/self", root);
    ck_assert_int_eq(rmdir(dir), 0);
    snprintf(dir, sizeof dir, "%s/proc", root);
    ck_assert_int_eq(rmdir(dir), 0);
    ck_assert_int_eq(rmdir(root), 0);
    strcpy(root + strlen(root) - 6, "XXXXXX");
}

START_TEST(without_a_list_or_a_line_there_is_no_group)
{
    struct co_cgroup g;
    ck_assert_int_eq(co_cgroup_find(root, "cpu", &g), -ENOENT);
    put_list("");
    ck_assert_int_eq(co_cgroup_find(root, "cpu", &g), -ENOENT);
    put_list("4:cpuset:/\n");
    ck_assert_int_eq(co_cgroup_find(root, "cpu", &g), -ENOENT);
}
END_TEST

START_TEST(a_path_that_leads_out_of_the_namespace_is_the_top)
{
    struct co_cgroup g;
    put_list("0::/../../outside\n");
    ck_assert_int_eq(co_cgroup_find(root, "cpu", &g), 0);
    ck_assert_str_eq(co_cgroup_path(&g), "/");
    ck_assert(!co_cgroup_up(&g));
}
END_TEST

START_TEST(names_that_are_too_long_are_errors)
{
    static char list[2 * CO_CGROUP_DIR_BYTES];
    static char longest[CO_CGROUP_DIR_BYTES];
    struct co_cgroup g;
    char text[8];
    memset(list, '/', sizeof list - 1);
    memcpy(list, "0::", 3);
    put_list(list);
    ck_assert_int_eq(co_cgroup_find(root, "cpu", &g), -ENAMETOOLONG);
    size_t n_mount = strlen(root) + strlen("/sys/fs/cgroup");
    list[3 + CO_CGROUP_DIR_BYTES - n_mount] = '\0';
    put_list(list);
    ck_assert_int_eq(co_cgroup_find(root, "cpu", &g), -ENAMETOOLONG);
    list[3 + CO_CGROUP_DIR_BYTES - n_mount - 1] = '\0';
    put_list(list);
    ck_assert_int_eq(co_cgroup_find(root, "cpu", &g), 0);
    ck_assert_uint_eq(strlen(g.dir), CO_CGROUP_DIR_BYTES - 1);
    ck_assert_int_eq(co_cgroup_read(&g, "cpu.max", text, sizeof text), -ENAMETOOLONG);
    memset(longest, 'x', sizeof longest - 1);
    ck_assert_int_eq(co_cgroup_find(longest, "cpu", &g), -ENAMETOOLONG);
}
END_TEST

START_TEST(a_file_is_cut_to_the_requested_size)
{
    struct co_cgroup g;
    char text[8];
    ck_assert_int_eq(co_cgroup_find(fixture("v2"), "cpu", &g), 0);
    ck_assert_int_eq(co_cgroup_read(&g, "cpu.max", text, sizeof text), 7);
    ck_assert_str_eq(text, "800000 ");
    ck_assert_int_eq(co_cgroup_read(&g, "nothing", text, sizeof text), -ENOENT);
    ck_assert_str_eq(text, "800000 ");
    ck_assert_int_eq(co_cgroup_read(&g, ".", text, sizeof text), -EISDIR);
}
END_TEST

START_TEST(the_real_group_is_a_directory_somewhere_on_the_way_up)
{
    struct co_cgroup g;
    int rc = co_cgroup_find("", "memory", &g);
    if (rc == -ENOENT)
        return; /* a kernel without control groups */
    ck_assert_int_eq(rc, 0);
    struct stat st;
    bool there = false;
    do
        there = there || (stat(g.dir, &st) == 0 && S_ISDIR(st.st_mode));
    while (co_cgroup_up(&g));
    /* A chroot or a container may have the directory with nothing mounted there. */
    ck_assert(there || (access("/sys/fs/cgroup/cgroup.procs", F_OK) != 0 && /* version 2 */
                        access("/sys/fs/cgroup/memory", F_OK) != 0));       /* version 1 */
}
END_TEST

TEST_SUITE(cgroup)
{
    Suite *suite = suite_create("cgroup");
    TCase *c = tcase_create("list");
    tcase_add_loop_test(c, the_controllers_line_counts_or_else_the_line_of_version_2, 0,
                        sizeof lists / sizeof *lists);
    suite_add_tcase(suite, c);
    c = tcase_create("way up");
    tcase_add_test(c, the_way_up_ends_at_the_mount_point);
    tcase_add_test(c, a_containers_groups_are_found_below_the_path_of_the_host);
    tcase_add_test(c, a_file_is_cut_to_the_requested_size);
    tcase_add_test(c, the_real_group_is_a_directory_somewhere_on_the_way_up);
    suite_add_tcase(suite, c);
    c = tcase_create("bounds");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, without_a_list_or_a_line_there_is_no_group);
    tcase_add_test(c, a_path_that_leads_out_of_the_namespace_is_the_top);
    tcase_add_test(c, names_that_are_too_long_are_errors);
    suite_add_tcase(suite, c);
    return suite;
}
