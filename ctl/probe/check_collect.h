/* check_collect.h - what this machine has, for `ddpctl check`: limits, memory, ports, ddprun,
 * token, GPUs. Names are check_resolve.h's. */
#ifndef DDP_CTL_PROBE_CHECK_COLLECT_H
#define DDP_CTL_PROBE_CHECK_COLLECT_H

#include "ctl/check/check_facts.h"

/* Files of the kernel: somaxconn, the range of ports, devices of RDMA.
 *
 * root   put in front of each path; "" except in tests */
void check_collect_files(const char *root, struct check_facts *facts);

/* The wall clock, whose difference between nodes `ddpctl check` reports. ns since 1970 */
int64_t check_collect_clock_ns(void);

/* Limits of this process, which are those of a login of this user here. */
void check_collect_limits(struct check_facts *facts);

/* Free space in a directory for shared memory, and whether a file can be written there. */
void check_collect_shm(const char *path, struct check_facts *facts);

/* The version that `ddprun` reports. */
void check_collect_version(const char *ddprun, uint64_t timeout_ms, struct check_facts *facts);

/* The token as ddprun would find it here; none is made. */
void check_collect_token(struct check_facts *facts);

/* GPUs: the number of device files, the answer of nvidia-smi, NCCL as the loader finds it. */
void check_collect_gpus(uint64_t timeout_ms, struct check_facts *facts);

#endif
