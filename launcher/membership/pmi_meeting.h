/* pmi_meeting.h - the ddpruns of a job, one for each node, meet by PMI-1 (pmi_bootstrap.h). */
#ifndef DDP_LAUNCHER_MEMBERSHIP_PMI_MEETING_H
#define DDP_LAUNCHER_MEMBERSHIP_PMI_MEETING_H

struct co_error;
struct pmi_bootstrap;
struct pmi_place;

/* Meet the others. The secret goes into the environment (DDP_TOKEN), unless there is one. At most
 * ten minutes, the time that nodes have to come together.
 *
 * ret       of a node that is told its place
 * returns   0
 *           -EHOSTUNREACH   they did not meet: node 0 has no address that all others reach, or PMI
 *                           failed; err says it
 *           -ENOMEM */
int pmi_meeting_join(const struct pmi_place *place, struct pmi_bootstrap *ret,
                     struct co_error *err);

#endif
