/* resources.h - how many CPUs and GPUs a job on this node may use.
 *
 * Counts only; which rank gets which is not decided here. Links no CUDA and opens no device: the
 * files that the kernel and the driver show are enough, and waking a GPU would cost seconds. */
#ifndef DDP_LAUNCHER_PLATFORM_RESOURCES_H
#define DDP_LAUNCHER_PLATFORM_RESOURCES_H

/* CPUs that we are allowed: our affinity mask, and no more than the CPU quota of our cgroup and
 * those above it (whole CPUs, rounded down). cgroup v1 and v2 at their usual place, /sys/fs/cgroup.
 *
 * root      put in front of each path; "" except in tests
 * affinity  CPUs in the affinity mask; 0: ask the kernel
 * returns   >= 1 */
int resources_n_cpus(const char *root, int affinity);

/* CPUs in our affinity mask, >= 1: one system call, where the quota costs a tenth of a
 * millisecond. */
int resources_affinity(void);

/* NVIDIA GPUs: one per /dev/nvidiaN; if there are no such files (they are made on first use), one
 * per entry of /proc/driver/nvidia/gpus; else gpus_n_others().
 *
 * root      as above
 * visible   of gpus_visible(), read as CUDA does: it ends at the first entry that names no GPU,
 *           and one named twice means none at all. NULL: all
 * returns   >= 0 */
int resources_n_gpus(const char *root, const char *visible);

#endif
