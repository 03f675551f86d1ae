/* check_gpus.h - what nvidia-smi and the driver's files say of a node's GPUs. Pure: their text
 * comes in, which is from outside. */
#ifndef DDP_CTL_CHECK_CHECK_GPUS_H
#define DDP_CTL_CHECK_CHECK_GPUS_H

#include "check_facts.h"

/* What check_gpus_read() understands. NULL-terminated. */
extern const char *const check_gpus_words[];

/* Read what nvidia-smi answered: a line "NAME, DRIVER, ERRORS" for each GPU, where ERRORS may be
 * words such as "[N/A]". Lines of another form are left out.
 *
 * facts     gpus, n_described and driver are set
 * returns   how many GPUs are described, also those for which there is no room */
size_t check_gpus_read(const char *text, struct check_facts *facts);

/* /proc/driver/nvidia/version: "NVRM version: ... Kernel Module  535.104.05  Sat ..."; "" where it
 * is something else. */
void check_gpus_read_version(const char *text, char *to, size_t n);

/* ncclGetVersion()'s number as people write it: 21805 is 2.18.5, and 2708 2.7.8. */
void check_gpus_print_nccl(int version, char *to, size_t n);

#endif
