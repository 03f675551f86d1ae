/* check_gpus.h - reads the facts about a node's GPUs from the output of nvidia-smi and the driver's
 * files. Pure: the text is an argument, and untrusted. */
#ifndef DDP_CTL_CHECK_CHECK_GPUS_H
#define DDP_CTL_CHECK_CHECK_GPUS_H

#include "check_facts.h"

/* What check_gpus_read() understands. NULL-terminated. */
extern const char *const check_gpus_words[];

/* Read the answer of nvidia-smi: a line "NAME, DRIVER, ERRORS" for each GPU, where ERRORS may be
 * words such as "[N/A]". Lines of another form are left out.
 *
 * facts     gpus, n_described and driver are set
 * returns   how many GPUs are described, including those that do not fit in `gpus` */
size_t check_gpus_read(const char *text, struct check_facts *facts);

/* /proc/driver/nvidia/version: "NVRM version: ... Kernel Module  535.104.05  Sat ..."; "" where it
 * is something else. */
void check_gpus_read_version(const char *text, char *to, size_t n);

/* ncclGetVersion()'s number as people write it: 21805 is 2.18.5, and 2708 2.7.8. */
void check_gpus_print_nccl(int version, char *to, size_t n);

#endif
