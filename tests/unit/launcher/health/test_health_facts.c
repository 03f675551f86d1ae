/* Facts about a machine that is a directory of files. */
#include "launcher/health/health_facts.h"

#include "common/error.h"
#include "tests/support/file_tree.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <string.h>

static char root[FILE_TREE_BYTES];
static struct health_checks c;
static struct health_facts f;

static void set_up(void)
{
    file_tree_make(root);
}

static void tear_down(void)
{
    file_tree_remove(root);
    health_checks_fini(&c);
}

static void look(const char *list, const char *log_dir)
{
    struct co_error err;
    health_checks_fini(&c);
    ck_assert_int_eq(health_checks_parse("x", list, &c, &err), 0);
    health_facts_read(&c, root, log_dir, &f);
}

START_TEST(a_bare_machine_has_no_facts)
{
    look("memory,network", NULL);
    ck_assert_uint_eq(f.memory_free, HEALTH_UNKNOWN);
    ck_assert_uint_eq(f.n_links, 0);
    ck_assert_uint_eq(f.n_disks, 0);
}
END_TEST

START_TEST(memory_is_what_the_machine_and_its_control_groups_leave)
{
    file_tree_put(root, "/proc/meminfo", "MemTotal: 9 kB\nMemAvailable:   2048 kB\n");
    look("memory", NULL);
    ck_assert_uint_eq(f.memory_free, 2048 * 1024);
    file_tree_put(root, "/proc/self/cgroup", "0::/job\n");
    file_tree_put(root, "/sys/fs/cgroup/job/memory.max", "max\n");
    file_tree_put(root, "/sys/fs/cgroup/job/memory.current", "5000\n");
    look("memory", NULL);
    ck_assert_uint_eq(f.memory_free, 2048 * 1024);
    file_tree_put(root, "/sys/fs/cgroup/job/memory.max", "6000\n");
    look("memory", NULL);
    ck_assert_uint_eq(f.memory_free, 1000);
    file_tree_put(root, "/sys/fs/cgroup/job/memory.max", "4000\n");
    look("memory", NULL);
    ck_assert_uint_eq(f.memory_free, 0);
    file_tree_put(root, "/sys/fs/cgroup/job/memory.stat",
                  "anon 900\nfile 4100\ninactive_file 3500\nactive_file 600\n");
    look("memory", NULL);
    ck_assert_uint_eq(f.memory_free, 2500);
    file_tree_put(root, "/sys/fs/cgroup/job/memory.stat", "anon 900\ninactive_file 9000\n");
    look("memory", NULL);
    ck_assert_uint_eq(f.memory_free, 4000);
    file_tree_put(root, "/sys/fs/cgroup/job/memory.stat", "anon 900\ninactive_file x\n");
    look("memory", NULL);
    ck_assert_uint_eq(f.memory_free, 0);
}
END_TEST

START_TEST(a_disk_is_that_of_the_nearest_directory)
{
    char path[FILE_TREE_BYTES + 16];
    snprintf(path, sizeof path, "%s/not/yet", root);
    look("disk", path);
    ck_assert_uint_eq(f.n_disks, 1);
    ck_assert_int_eq(f.disks[0].error, 0);
    ck_assert_uint_gt(f.disks[0].free_bytes, 0);
    file_tree_put(root, "/file", "");
    snprintf(path, sizeof path, "%s/file/x", root);
    look("disk", path);
    ck_assert_int_eq(f.disks[0].error, ENOTDIR);
}
END_TEST

START_TEST(links_are_those_of_devices_and_those_that_were_named)
{
    file_tree_put(root, "/sys/class/net/eth0/operstate", "up\n");
    file_tree_put(root, "/sys/class/net/eth0/device/vendor", "");
    file_tree_put(root, "/sys/class/net/eth1/operstate", "down\n");
    file_tree_put(root, "/sys/class/net/eth1/device/vendor", "");
    file_tree_put(root, "/sys/class/net/docker0/operstate", "down\n");
    file_tree_put(root, "/sys/class/net/bond0/operstate", "up\n");
    file_tree_put(root, "/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
    file_tree_put(root, "/sys/class/infiniband/mlx5_0/ports/2/state", "1: DOWN\n");
    look("network=bond0", NULL);
    ck_assert_uint_eq(f.n_links, 5);
    int n_up = 0;
    for (uint32_t i = 0; i < f.n_links; i++) {
        n_up += f.links[i].is_up;
        ck_assert_str_ne(f.links[i].name, "docker0");
        if (f.links[i].is_up)
            ck_assert(strcmp(f.links[i].name, "eth0") == 0 ||
                      strcmp(f.links[i].name, "bond0") == 0 ||
                      strcmp(f.links[i].name, "mlx5_0/1") == 0);
    }
    ck_assert_int_eq(n_up, 3);
}
END_TEST

TEST_SUITE(health_facts)
{
    Suite *suite = suite_create("health_facts");
    TCase *tc = tcase_create("health_facts");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, a_bare_machine_has_no_facts);
    tcase_add_test(tc, memory_is_what_the_machine_and_its_control_groups_leave);
    tcase_add_test(tc, a_disk_is_that_of_the_nearest_directory);
    tcase_add_test(tc, links_are_those_of_devices_and_those_that_were_named);
    suite_add_tcase(suite, tc);
    return suite;
}
