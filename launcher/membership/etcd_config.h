/* etcd_config.h - what a job's options mean for a rendezvous through etcd: how the plug-in
 * connects, the times that the elector and a roster keep, and where a roster is reached. */
#ifndef DDP_LAUNCHER_MEMBERSHIP_ETCD_CONFIG_H
#define DDP_LAUNCHER_MEMBERSHIP_ETCD_CONFIG_H

#include "launcher/job/job_spec.h"

#include "rendezvous/etcd/etcd_plugin.h"
#include "rendezvous/membership/roster.h"

struct co_error;
struct job_spec;
struct job_world;

/* Reads the file with the password, if one was named.
 *
 * password   where the config has it; to be wiped when it is no longer needed, also after a failure
 * ret        its texts are those of spec, and `password`
 * returns    0; -errno, -EIO: the password cannot be read */
int etcd_config_make(const struct job_spec *spec, char password[ETCD_SETTING_BYTES],
                     struct etcd_config *ret, struct co_error *err);

/* leader_ttl_s   of the lease by which a node has the roster, as etcd has given it */
struct roster_limits etcd_config_limits(const struct job_world *w, uint32_t leader_ttl_s);

/* Where a roster on this node listens. */
const char *etcd_config_listen_where(const struct job_world *w);

/* ... and the host by which others reach it.
 *
 * own   the numeric address by which this node reaches etcd */
void etcd_config_find_host(const struct job_world *w, const char *own,
                           char ret[ELECTOR_HOST_BYTES]);

#endif
