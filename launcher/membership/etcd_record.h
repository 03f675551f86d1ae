/* etcd_record.h - what is written down of a generation, between a roster and the elector. Pure. */
#ifndef DDP_LAUNCHER_MEMBERSHIP_ETCD_RECORD_H
#define DDP_LAUNCHER_MEMBERSHIP_ETCD_RECORD_H

#include "rendezvous/election/elector.h"
#include "rendezvous/membership/roster.h"

#include <stdbool.h>

/* returns   false: there was no generation yet, and *ret is as it was */
bool etcd_record_of(const struct roster *r, struct elector_record *ret);

/* What a roster that continues from there needs to know. */
struct roster_past etcd_record_past(const struct elector_record *r);

#endif
