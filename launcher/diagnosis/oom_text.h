/* oom_text.h - a finding about the OOM killer in words, with what to try next.
 *
 *       out of memory: killed by the kernel's OOM killer
 *         limit of control group /batch/job7: 64.0 MiB (peak 64.0 MiB); 1 OOM kill since the start
 *         pid 1459 (python3) held 31.8 MiB, 6.5 MiB of files and 0 B of shared memory
 *         try: a higher limit (memory.max), fewer ranks or data loader workers, a smaller batch */
#ifndef DDP_LAUNCHER_DIAGNOSIS_OOM_TEXT_H
#define DDP_LAUNCHER_DIAGNOSIS_OOM_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct oom_finding;

/* Nothing for OOM_BLAME_NONE. */
void oom_text_print(FILE *out, const struct oom_finding *f);

/* "out of memory at the limit of /batch/job7, 64.0 MiB"; "" for OOM_BLAME_NONE. returns buf */
char *oom_text_brief(const struct oom_finding *f, char *buf, size_t n);

/* "0 B", "1023 B", "1.0 KiB", "63.9 MiB": rounded down, so that what is below a limit looks so.
 * returns buf */
char *oom_text_bytes(uint64_t bytes, char *buf, size_t n);

#endif
