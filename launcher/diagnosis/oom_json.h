/* oom_json.h - a finding about the OOM killer for programs: in report.json, and an event.
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
 * What is not known is null. */
#ifndef DDP_LAUNCHER_DIAGNOSIS_OOM_JSON_H
#define DDP_LAUNCHER_DIAGNOSIS_OOM_JSON_H

#include <jansson.h>

struct oom_finding;

/* returns   an object to json_decref(); json_null() for OOM_BLAME_NONE; NULL: no memory */
json_t *oom_json_make(const struct oom_finding *f);

#endif
