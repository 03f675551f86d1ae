/* pmix_loader.h - finds and loads ddprun-pmix.so, for Open MPI programs. */
#ifndef DDP_LAUNCHER_GENERATION_PMIX_LOADER_H
#define DDP_LAUNCHER_GENERATION_PMIX_LOADER_H

struct co_error;
struct pmix_plugin;

/* From $DDP_PLUGIN_DIR, if that is set; else from where it was installed, as seen from this
 * program. It stays for the life of the process.
 *
 * returns   0
 *           -ELIBACC   it is not there, or needs a library that is not; err has how to get it
 *           -ELIBBAD   it was made for another version of ddprun */
int pmix_load(const struct pmix_plugin **ret, struct co_error *err);

#endif
