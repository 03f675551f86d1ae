/* oom_report.h - a finding about the OOM killer: for programs, and in words, with what to try next.
 *
 *       out of memory: killed by the kernel's OOM killer
 *         limit of control group /batch/job7: 64.0 MiB (peak 64.0 MiB); 1 OOM kill since the start
 *         pid 1459 (python3) held 31.8 MiB, 6.5 MiB of files and 0 B of shared memory
 *         try: a higher limit (memory.max), fewer ranks or data loader workers, a smaller batch */
#ifndef DDP_LAUNCHER_DIAGNOSIS_OOM_REPORT_H
#define DDP_LAUNCHER_DIAGNOSIS_OOM_REPORT_H

#include <jansson.h>
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

/* A finding about the OOM killer for programs: in report.json, and an event.
 *
 *     blame         "rank": the OOM killer ended the rank; "other": a process of its control group,
 *                   while it ran; "perhaps": not known, since it ended too early
 *     kills         in the ranks' control group since their start ("perhaps": since it was made)
 *     scope         "group": a control group's limit was reached; "node": the node's memory was
 *                   used up
 *     cgroup        of "group": its path
 *     limit_bytes, peak_bytes, usage_bytes    its figures
 *     node_bytes    memory of the node
 *     victim        of the kernel log: pid, rank (of "other", if it was one), name, anon_bytes,
 *                   file_bytes, shmem_bytes
 *
 * What is not known is null.
 *
 * returns   an object to json_decref(); json_null() for OOM_BLAME_NONE; NULL: out of memory */
json_t *oom_json_make(const struct oom_finding *f);

#endif
