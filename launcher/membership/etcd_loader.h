/* etcd_loader.h - finds and loads ddprun-etcd.so, when the rendezvous back end is etcd. */
#ifndef DDP_LAUNCHER_MEMBERSHIP_ETCD_LOADER_H
#define DDP_LAUNCHER_MEMBERSHIP_ETCD_LOADER_H

struct co_error;
struct etcd_plugin;

/* From $DDP_PLUGIN_DIR, if that is set; else from where it was installed, as seen from this
 * program. It stays for the life of the process: libraries that it needs cannot all be unloaded.
 *
 * returns   0
 *           -ELIBACC   it is not there, or needs a library that is not; err has how to get it
 *           -ELIBBAD   it was made for another version of ddprun */
int etcd_load(const struct etcd_plugin **ret, struct co_error *err);

#endif
