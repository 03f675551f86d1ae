/* pmi_rendezvous.h - rendezvous of the ddpruns of a job, one for each node, by PMI-1
 * (pmi_bootstrap.h). */
#ifndef DDP_LAUNCHER_MEMBERSHIP_PMI_RENDEZVOUS_H
#define DDP_LAUNCHER_MEMBERSHIP_PMI_RENDEZVOUS_H

struct co_error;
struct pmi_bootstrap;
struct pmi_place;

/* Rendezvous with the others. The secret is kept as if it were DDP_TOKEN
 * (common/secret_memory.h), unless that was given. Takes at most ten minutes, the time limit of a
 * rendezvous.
 *
 * ret       this node's place
 * returns   0
 *           -EHOSTUNREACH   the rendezvous failed: node 0 has no address that all others reach, or
 *                           PMI failed; err has the reason
 *           -ENOMEM */
int pmi_rendezvous_join(const struct pmi_place *place, struct pmi_bootstrap *ret,
                        struct co_error *err);

#endif
