/* etcd_record.h - what is written down of a generation, between a roster and the elector. Pure. */
#ifndef DDP_LAUNCHER_MEMBERSHIP_ETCD_RECORD_H
#define DDP_LAUNCHER_MEMBERSHIP_ETCD_RECORD_H

#include "rendezvous/election/elector.h"
#include "rendezvous/membership/roster.h"

#include <stdbool.h>

/* A roster has changed its state. The end of the job is written down, and a generation that begins,
 * unless the node of the roster leaves.
 *
 * returns   whether this is one of them, and *ret has it; else *ret is as it was */
bool etcd_record_take(const struct roster *r, bool leaves, struct elector_record *ret);

/* Whether the record is of the generation that the roster continues. */
bool etcd_record_is_continued(const struct elector_record *e, const struct roster *r);

/* Which member the node of the roster is: the next coordinator need not wait for it if this process
 * has ended.
 *
 * own       the roster's local node
 * at        where this process listens
 * returns   whether that is news */
bool etcd_record_note_host(struct elector_record *e, const struct roster_node_view *own,
                           const struct elector_address *at);

/* What a roster that continues from there needs to know. */
struct roster_past etcd_record_past(const struct elector_record *r);

#endif
