/* post_mortem.h - after a generation that failed: gather what is known, make the report, write the
 * events, pass the root cause on to the process that started us. */
#ifndef DDP_LAUNCHER_REPORTING_POST_MORTEM_H
#define DDP_LAUNCHER_REPORTING_POST_MORTEM_H

#include "launcher/supervisor/goodput.h"

#include <stdint.h>
#include <sys/types.h>

struct co_error;
struct events;
struct hang_finding;
struct job_spec;
struct oom_watch;
struct rank_io;
struct node_result;
struct node_result_place;
struct report_job;
struct roster_restart;
struct supervisor;

struct post_mortem { /* all borrowed */
    const struct job_spec *spec;
    const struct supervisor *supervisor;
    struct events *events;
    struct oom_watch *oom; /* it has noted the failure, if there was one */
    const struct rank_io *io;
    const char *runtime_dir;
    const struct hang_finding *hang; /* the root cause was ended for it; NULL: not */
    pid_t spawner;                   /* whose children the ranks are; 0: it is gone */
    uint64_t begun_ms, now_ms;
    struct goodput_sums goodput;          /* until now_ms */
    const struct report_job *job;         /* NULL: this node was alone */
    const struct roster_restart *restart; /* what follows; NULL: nothing, the job is over */
    struct node_result *result; /* made for the file of --report; NULL: none is to be made */
    const struct node_result_place *place; /* with result */
};

/* Writes the root cause to the file TORCHELASTIC_ERROR_FILE names, if a rank failed. Nothing here
 * can fail the job any further: errors of this function are a line of the report.
 *
 * returns   the report, to free(); NULL: nothing to report, or out of memory */
char *post_mortem(const struct post_mortem *p);

#endif
