/* Which GPU is where, in trees of files like the kernel's and the driver's. */
#include "launcher/platform/gpus.h"
#include "tests/support/file_tree.h"
#include "tests/support/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char root[FILE_TREE_BYTES];
static struct gpus *gpus;

static void set_up(void)
{
    file_tree_make(root);
    gpus = NULL;
}

static void tear_down(void)
{
    free(gpus);
    file_tree_remove(root);
}

static void put_gpu(const char *bus_id, int minor, const char *uuid, const char *near)
{
    char name[200], text[400];
    snprintf(name, sizeof name, "/proc/driver/nvidia/gpus/%s/information", bus_id);
    snprintf(text, sizeof text,
             "Model: \t\t NVIDIA H200\nIRQ:   \t\t 120\nGPU UUID: \t %s\nBus Location: \t %s\n"
             "Device Minor: \t %d\nGPU Excluded:\t No\n",
             uuid, bus_id, minor);
    file_tree_put(root, name, text);
    snprintf(name, sizeof name, "/sys/bus/pci/devices/%s/local_cpulist", bus_id);
    if (near != NULL)
        file_tree_put(root, name, near);
}

static void put_node_of_four(void)
{
    put_gpu("0000:c1:00.0", 3, "GPU-dddd", "64-127\n");
    put_gpu("0000:3b:00.0", 0, "GPU-aaaa", "0-63\n");
    put_gpu("0000:5e:00.0", 1, "GPU-bbbb", "0-63\n");
    put_gpu("0000:9a:00.0", 2, "GPU-cccc", "64-127\n");
}

static const char *bus_of(const char *visible, int i)
{
    const struct gpu *g = gpus_get(gpus, visible, i);
    return g != NULL ? g->bus_id : "none";
}

START_TEST(a_node_without_a_driver_has_no_gpus)
{
    ck_assert_int_eq(gpus_find(root, &gpus), 0);
    ck_assert_uint_eq(gpus->n, 0);
    ck_assert_str_eq(bus_of(NULL, 0), "none");
    ck_assert_str_eq(bus_of("0", 0), "none");
}
END_TEST

START_TEST(devices_are_in_bus_order)
{
    char near[40];
    put_node_of_four();
    ck_assert_int_eq(gpus_find(root, &gpus), 0);
    ck_assert_uint_eq(gpus->n, 4);
    ck_assert_str_eq(bus_of(NULL, 0), "0000:3b:00.0");
    ck_assert_str_eq(bus_of(NULL, 3), "0000:c1:00.0");
    ck_assert_str_eq(bus_of(NULL, 4), "none");
    ck_assert_str_eq(cpu_set_print(&gpus->gpu[2].near, near, sizeof near), "64-127");
}
END_TEST

START_TEST(the_visible_list_assigns_devices)
{
    put_node_of_four();
    ck_assert_int_eq(gpus_find(root, &gpus), 0);
    ck_assert_str_eq(bus_of("2,0", 0), "0000:9a:00.0");
    ck_assert_str_eq(bus_of("2, 0", 1), "0000:3b:00.0");
    ck_assert_str_eq(bus_of("2,0", 2), "none");
    ck_assert_str_eq(bus_of("GPU-cccc,GPU-aa", 1), "0000:3b:00.0");
    ck_assert_str_eq(bus_of("GPU-cccc", 0), "0000:9a:00.0");
    ck_assert_str_eq(bus_of("GPU-", 0), "none"); /* all of them begin so */
    ck_assert_str_eq(bus_of("MIG-cccc,4,-1,,x", 0), "none");
    for (int i = 0; i < 6; i++)
        ck_assert_str_eq(bus_of("MIG-cccc,4,-1,,x", i), "none");
    ck_assert_str_eq(bus_of("", 0), "none");
    ck_assert_str_eq(bus_of("99999999999999999999", 0), "none");
}
END_TEST

START_TEST(a_container_has_the_gpus_of_its_device_files)
{
    put_node_of_four();
    file_tree_put(root, "/dev/nvidiactl", "");
    file_tree_put(root, "/dev/nvidia1", "");
    file_tree_put(root, "/dev/nvidia3", "");
    ck_assert_int_eq(gpus_find(root, &gpus), 0);
    ck_assert_uint_eq(gpus->n, 2);
    ck_assert_str_eq(bus_of(NULL, 0), "0000:5e:00.0");
    ck_assert_str_eq(bus_of(NULL, 1), "0000:c1:00.0");
}
END_TEST

START_TEST(empty_or_invalid_files_leave_the_place_unknown)
{
    put_gpu("0000:3b:00.0", 0, "GPU-aaaa", NULL);
    put_gpu("0000:5e:00.0", 1, "GPU-bbbb", "nonsense\n");
    file_tree_put(root, "/proc/driver/nvidia/gpus/0000:9A:00.0/other", "");
    file_tree_put(root, "/sys/bus/pci/devices/0000:9a:00.0/local_cpulist", "4\n");
    file_tree_put(root, "/proc/driver/nvidia/gpus/a-name-that-is-no-bus-address/x", "");
    ck_assert_int_eq(gpus_find(root, &gpus), 0);
    ck_assert_uint_eq(gpus->n, 3);
    ck_assert_uint_eq(cpu_set_count(&gpus->gpu[0].near), 0);
    ck_assert_uint_eq(cpu_set_count(&gpus->gpu[1].near), 0);
    ck_assert_str_eq(gpus->gpu[2].bus_id, "0000:9a:00.0");
    ck_assert_uint_eq(cpu_set_count(&gpus->gpu[2].near), 1);
    ck_assert_str_eq(gpus->gpu[2].uuid, "");
}
END_TEST

static void put_accelerator(int minor, const char *driver, const char *class, const char *bus_id,
                            const char *near)
{
    char name[200], text[200];
    snprintf(name, sizeof name, "/dev/dri/renderD%d", minor);
    file_tree_put(root, name, "");
    snprintf(name, sizeof name, "/sys/class/drm/renderD%d/device/uevent", minor);
    snprintf(text, sizeof text, "DRIVER=%s\nPCI_CLASS=%s\nPCI_ID=1002:74A1\nPCI_SLOT_NAME=%s\n",
             driver, class, bus_id);
    file_tree_put(root, name, text);
    snprintf(name, sizeof name, "/sys/bus/pci/devices/%s/local_cpulist", bus_id);
    file_tree_put(root, name, near);
}

START_TEST(accelerators_of_other_vendors_are_drm_devices_without_a_display)
{
    char near[40];
    put_accelerator(130, "amdgpu", "120000", "0000:c1:00.0", "64-127\n");
    put_accelerator(128, "xe", "38000", "0000:3b:00.0", "0-63\n");
    put_accelerator(129, "amdgpu", "30000", "0000:00:02.0", "0\n"); /* a desktop's */
    file_tree_put(root, "/sys/class/drm/card0/device/uevent", "PCI_CLASS=38000\n");
    file_tree_put(root, "/sys/class/drm/renderD131/device/uevent", /* without a device file */
                  "PCI_CLASS=38000\nPCI_SLOT_NAME=0000:5e:00.0\n");
    file_tree_put(root, "/dev/dri/renderD132", "");
    file_tree_put(root, "/sys/class/drm/renderD132/device/uevent", "PCI_CLASS=\nPCI_SLOT_NAME=\n");
    ck_assert_int_eq(gpus_n_others(root), 2);
    ck_assert_int_eq(gpus_find(root, &gpus), 0);
    ck_assert_uint_eq(gpus->n, 2);
    ck_assert_str_eq(bus_of(NULL, 0), "0000:3b:00.0");
    ck_assert_str_eq(bus_of("1,0", 0), "0000:c1:00.0");
    ck_assert_str_eq(cpu_set_print(&gpus->gpu[1].near, near, sizeof near), "64-127");
    put_gpu("0000:9a:00.0", 0, "GPU-aaaa", NULL);
    free(gpus);
    ck_assert_int_eq(gpus_find(root, &gpus), 0);
    ck_assert_uint_eq(gpus->n, 1);
}
END_TEST

static const char *get_of(void *arg, const char *name)
{
    const char *const *variables = arg; /* of HIP, of CUDA */
    return variables[strcmp(name, "HIP_VISIBLE_DEVICES") != 0];
}

START_TEST(the_list_of_hip_comes_first_unless_it_is_empty)
{
    static const struct {
        const char *variables[2], *list, *name;
    } cases[] = {
        {{"3,4", "1,2"}, "3,4", "HIP_VISIBLE_DEVICES"},
        {{"", "1,2"}, "1,2", "CUDA_VISIBLE_DEVICES"},
        {{NULL, ""}, "", "CUDA_VISIBLE_DEVICES"},
        {{NULL, NULL}, NULL, "CUDA_VISIBLE_DEVICES"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *name;
        const char *list = gpus_visible(get_of, (void *)cases[i].variables, &name);
        ck_assert_pstr_eq(list, cases[i].list);
        ck_assert_str_eq(name, cases[i].name);
    }
}
END_TEST

TEST_SUITE(gpus)
{
    Suite *suite = suite_create("gpus");
    TCase *c = tcase_create("gpus");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, a_node_without_a_driver_has_no_gpus);
    tcase_add_test(c, devices_are_in_bus_order);
    tcase_add_test(c, the_visible_list_assigns_devices);
    tcase_add_test(c, a_container_has_the_gpus_of_its_device_files);
    tcase_add_test(c, empty_or_invalid_files_leave_the_place_unknown);
    tcase_add_test(c, accelerators_of_other_vendors_are_drm_devices_without_a_display);
    tcase_add_test(c, the_list_of_hip_comes_first_unless_it_is_empty);
    suite_add_tcase(suite, c);
    return suite;
}
