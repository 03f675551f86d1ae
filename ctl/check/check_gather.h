/* check_gather.h - what this machine has, for `ddpctl check`: limits, memory, ports, ddprun, token,
 * GPUs. Names are check_names.h's. */
#ifndef DDP_CTL_CHECK_GATHER_H
#define DDP_CTL_CHECK_GATHER_H

#include "check_facts.h"

/* Files of the kernel: somaxconn, the range of ports, devices of RDMA.
 *
 * root   put in front of each path; "" but for tests */
void check_gather_files(const char *root, struct check_facts *facts);

/* Limits of this process, which are those of whoever logs in here. */
void check_gather_limits(struct check_facts *facts);

/* Room in a folder for shared memory, and whether something can be written there. */
void check_gather_shm(const char *path, struct check_facts *facts);

/* The version that `ddprun` says it is. */
void check_gather_version(const char *ddprun, uint64_t timeout_ms, struct check_facts *facts);

/* The token as ddprun would find it here; none is made. */
void check_gather_token(struct check_facts *facts);

/* GPUs: how many device files there are, what nvidia-smi says, NCCL as the loader finds it. */
void check_gather_gpus(uint64_t timeout_ms, struct check_facts *facts);

#endif
