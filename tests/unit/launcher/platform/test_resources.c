/* Counting CPUs and GPUs in trees of files like the kernel's and the driver's. The trees are test
 * doubles of /proc, /sys and /dev, written by each test; one test looks at the real ones. */
#include "launcher/platform/host_env.h"
#include "launcher/platform/resources.h"
#include "tests/support/cases.h"
#include "tests/support/file_tree.h"
#include "tests/support/suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[FILE_TREE_BYTES];

static void set_up(void)
{
    file_tree_make(root);
}

static void tear_down(void)
{
    file_tree_remove(root);
}

static void put(const char *name, const char *content)
{
    file_tree_put(root, name, content);
}

START_TEST(without_a_quota_the_affinity_counts)
{
    ck_assert_int_eq(resources_n_cpus(root, 6), 6);
    put("/proc/self/cgroup", "0::/user.slice\n");
    ck_assert_int_eq(resources_n_cpus(root, 6), 6);
    put("/sys/fs/cgroup/user.slice/cpu.max", "max 100000\n");
    ck_assert_int_eq(resources_n_cpus(root, 6), 6);
}
END_TEST

START_TEST(the_smallest_quota_on_the_way_up_counts)
{
    put("/proc/self/cgroup", "0::/a/b/c\n");
    put("/sys/fs/cgroup/a/b/c/cpu.max", "800000 100000\n");
    put("/sys/fs/cgroup/a/cpu.max", "300000 100000\n");
    ck_assert_int_eq(resources_n_cpus(root, 16), 3);
    ck_assert_int_eq(resources_n_cpus(root, 2), 2);
    put("/sys/fs/cgroup/a/b/c/cpu.max", "250000 100000\n"); /* rounded down */
    ck_assert_int_eq(resources_n_cpus(root, 16), 2);
    put("/sys/fs/cgroup/cpu.max", "50000 100000\n"); /* never below one */
    ck_assert_int_eq(resources_n_cpus(root, 16), 1);
}
END_TEST

/* A case of tests/data/quota: its description, "affinity N", "cpus N", then files, each after a
 * line "= NAME". */
static void check_case(const char *path)
{
    char line[200], name[200] = "", text[400] = "";
    int affinity = 0, cpus = 0;
    tear_down();
    set_up();
    FILE *in = fopen(path, "r");
    ck_assert_ptr_nonnull(in);
    while (fgets(line, sizeof line, in) != NULL) {
        if (strncmp(line, "= ", 2) == 0) {
            snprintf(name, sizeof name, "%.*s", (int)strcspn(line + 2, "\n"), line + 2);
            text[0] = '\0';
        } else if (name[0] == '\0') {
            sscanf(line, "affinity %d", &affinity);
            sscanf(line, "cpus %d", &cpus);
        } else {
            strcat(text, line);
        }
        if (name[0] != '\0')
            put(name, text);
    }
    fclose(in);
    ck_assert(affinity > 0 && cpus > 0);
    ck_assert_msg(resources_n_cpus(root, affinity) == cpus, "%s: %d", path,
                  resources_n_cpus(root, affinity));
}

START_TEST(hostile_quotas_give_the_expected_number)
{
    ck_assert_int_ge(cases_each("quota", check_case), 12);
}
END_TEST

START_TEST(quotas_of_version_1_are_read)
{
    put("/proc/self/cgroup", "12:memory:/docker/x\n4:cpuacct,cpu:/docker/x\n0::/\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n"); /* a container sees its own as root */
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    ck_assert_int_eq(resources_n_cpus(root, 16), 4);
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    ck_assert_int_eq(resources_n_cpus(root, 16), 16);
    put("/proc/self/cgroup", "4:cpuset:/\n3:cpuacct:/\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
    ck_assert_int_eq(resources_n_cpus(root, 16), 16);
}
END_TEST

START_TEST(invalid_files_change_nothing)
{
    static const char *const nonsense[] = {"",      "\n",          "x y\n",      "100000\n",
                                           "0 0\n", "-5 100000\n", "100000 0\n", "max\n"};
    put("/proc/self/cgroup", "nonsense\n::\n:\n0::/a\n");
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
        put("/sys/fs/cgroup/a/cpu.max", nonsense[i]);
        ck_assert_int_eq(resources_n_cpus(root, 16), 16);
    }
    put("/sys/fs/cgroup/a/cpu.max", "9223372036854775807 1\n");
    ck_assert_int_eq(resources_n_cpus(root, 16), 16);
    char line[10000];
    memset(line, '/', sizeof line - 1);
    memcpy(line, "0::", 3);
    line[sizeof line - 1] = '\0';
    put("/proc/self/cgroup", line);
    ck_assert_int_eq(resources_n_cpus(root, 16), 16);
}
END_TEST

START_TEST(device_files_count_as_gpus)
{
    ck_assert_int_eq(resources_n_gpus(root, NULL), 0);
    put("/dev/dri/renderD128", "");
    put("/sys/class/drm/renderD128/device/uevent",
        "DRIVER=amdgpu\nPCI_CLASS=38000\nPCI_SLOT_NAME=0000:c1:00.0\n");
    ck_assert_int_eq(resources_n_gpus(root, NULL), 1);
    ck_assert_int_eq(resources_n_gpus(root, "1"), 0);
    put("/sys/class/drm/renderD128/device/uevent", "");
    put("/dev/nvidiactl", "");
    put("/dev/nvidia-uvm", "");
    put("/dev/nvidia", "");
    put("/dev/nvidia-caps/nvidia-cap1", "");
    ck_assert_int_eq(resources_n_gpus(root, NULL), 0);
    put("/proc/driver/nvidia/gpus/0000:01:00.0/information", "");
    put("/proc/driver/nvidia/gpus/0000:02:00.0/information", "");
    ck_assert_int_eq(resources_n_gpus(root, NULL), 2);
    put("/dev/nvidia0", ""); /* a container has fewer than the driver */
    ck_assert_int_eq(resources_n_gpus(root, NULL), 1);
    put("/dev/nvidia7", "");
    put("/dev/nvidia12", "");
    ck_assert_int_eq(resources_n_gpus(root, NULL), 3);
}
END_TEST

START_TEST(visible_devices_are_read_as_cuda_does)
{
    static const struct {
        const char *visible;
        int n;
    } cases[] = {
        {"0,1", 2},
        {"3", 1},
        {"0, 2", 2},
        {"0,1,2,3", 4},
        {"", 0},
        {"-1", 0},
        {"0,-1,1", 1},
        {"0,4,1", 1},
        {"0,x,1", 1},
        {"1,1", 0},
        {"0,", 1},
        {",0", 0},
        {"NoDevFiles", 0},
        {"GPU-8932f937-d72c", 1},
        {"GPU-8932f937-d72c,GPU-5", 2},
        {"MIG-1,MIG-2,MIG-3,MIG-4,MIG-5", 5},
        {"0,GPU-5", 2},
    };
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "/dev/nvidia%d", i);
        put(name, "");
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_msg(resources_n_gpus(root, cases[i].visible) == cases[i].n, "'%s' gives %d",
                      cases[i].visible, resources_n_gpus(root, cases[i].visible));
}
END_TEST

START_TEST(without_gpus_no_device_is_visible)
{
    ck_assert_int_eq(resources_n_gpus(root, "0,1"), 0);
    ck_assert_int_eq(resources_n_gpus(root, "GPU-5"), 0);
}
END_TEST

START_TEST(a_long_list_of_devices_is_bounded)
{
    char list[20000] = "";
    for (size_t n = 0; n + 7 < sizeof list; n += 6)
        strcpy(list + n, "GPU-1,");
    put("/dev/nvidia0", "");
    ck_assert_int_eq(resources_n_gpus(root, list), 256);
}
END_TEST

START_TEST(the_real_node_has_a_cpu_and_descriptors)
{
    const struct host_env *w = &host_env_real;
    ck_assert_int_ge(w->n_allowed_cpus(w->arg), 1);
    ck_assert_int_ge(w->n_cpus(w->arg), w->n_allowed_cpus(w->arg));
    ck_assert_int_le(w->n_allowed_cpus(w->arg), (int)sysconf(_SC_NPROCESSORS_CONF));
    ck_assert_int_ge(w->n_gpus(w->arg), 0);
    ck_assert_int_eq(setenv("CUDA_VISIBLE_DEVICES", "", 1), 0);
    ck_assert_int_eq(w->n_gpus(w->arg), 0);
    ck_assert_str_eq(w->get_env(w->arg, "CUDA_VISIBLE_DEVICES"), "");

    char path[128];
    ck_assert_int_eq(w->look_at(w->arg, "/bin/sh"), FILE_EXECUTABLE);
    ck_assert_int_eq(w->look_at(w->arg, "/dev/null"), FILE_SPECIAL);
    ck_assert_int_eq(w->look_at(w->arg, root), FILE_DIRECTORY);
    snprintf(path, sizeof path, "%s/file", root);
    ck_assert_int_eq(w->look_at(w->arg, path), FILE_MISSING);
    put("/file", "some text\n");
    ck_assert_int_eq(w->look_at(w->arg, path), FILE_TEXT);
    put("/file", "");
    ck_assert_int_eq(w->look_at(w->arg, path), FILE_TEXT);
    put("/file", "#!/usr/bin/env python3\nimport sh\n");
    ck_assert_int_eq(w->look_at(w->arg, path), FILE_TEXT);
    put("/file", "#!/bin/sh\npython x\n");
    ck_assert_int_eq(w->look_at(w->arg, path), FILE_SCRIPT);
    FILE *out = fopen(path, "w");
    ck_assert_uint_eq(fwrite("\177ELF\0\0", 1, 6, out), 6);
    fclose(out);
    ck_assert_int_eq(w->look_at(w->arg, path), FILE_BINARY);
    put("/file", "PK\3\4 an archive");
    ck_assert_int_eq(w->look_at(w->arg, path), FILE_PYTHON_APP);
    ck_assert_int_eq(chmod(path, 0755), 0);
    ck_assert_int_eq(w->look_at(w->arg, path), FILE_PYTHON_APP);
    out = fopen(path, "w");
    ck_assert_uint_eq(fwrite("#!/usr/bin/python\n\0", 1, 19, out), 19);
    fclose(out);
    ck_assert_int_eq(w->look_at(w->arg, path), FILE_EXECUTABLE);
    ck_assert_int_eq(chmod(path, 0644), 0);
    ck_assert_int_eq(w->look_at(w->arg, path), FILE_PYTHON_APP);
    out = fopen(path, "w");
    ck_assert_uint_eq(fwrite("#!/bin/sh\n\0", 1, 11, out), 11);
    fclose(out);
    ck_assert_int_eq(w->look_at(w->arg, path), FILE_BINARY);
    put("/__main__.py", "");
    ck_assert_int_eq(w->look_at(w->arg, root), FILE_PYTHON_APP);
    ck_assert_int_eq(chmod(path, 0), 0);
    ck_assert_int_eq(w->look_at(w->arg, path), geteuid() == 0 ? FILE_BINARY : FILE_UNREADABLE);
    remove(path);
    ck_assert_int_eq(mkfifo(path, 0777), 0);
    ck_assert_int_eq(w->look_at(w->arg, path), FILE_SPECIAL);
}
END_TEST

TEST_SUITE(resources)
{
    Suite *suite = suite_create("resources");
    TCase *c = tcase_create("resources");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, without_a_quota_the_affinity_counts);
    tcase_add_test(c, the_smallest_quota_on_the_way_up_counts);
    tcase_add_test(c, hostile_quotas_give_the_expected_number);
    tcase_add_test(c, quotas_of_version_1_are_read);
    tcase_add_test(c, invalid_files_change_nothing);
    tcase_add_test(c, device_files_count_as_gpus);
    tcase_add_test(c, visible_devices_are_read_as_cuda_does);
    tcase_add_test(c, without_gpus_no_device_is_visible);
    tcase_add_test(c, a_long_list_of_devices_is_bounded);
    tcase_add_test(c, the_real_node_has_a_cpu_and_descriptors);
    suite_add_tcase(suite, c);
    return suite;
}
