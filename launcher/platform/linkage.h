/* linkage.h - what depends on how a ddprun was linked. There are two: the one that is installed
 * as a program, with the system's C library, and ddprun-static, which has all in itself, so that
 * it runs on a host where nothing of ours is installed: -H sends it there (payload.h).
 *
 * linkage_shared.c and linkage_static.c are the same functions for the one and for the other;
 * the link decides. */
#ifndef DDP_LAUNCHER_PLATFORM_LINKAGE_H
#define DDP_LAUNCHER_PLATFORM_LINKAGE_H

#include <stdbool.h>

struct co_error;

bool linkage_is_static(void);

/* First of all that main() does. Static: names of hosts are looked up in /etc/hosts and by DNS
 * only. What else nsswitch.conf may name would have to be loaded, and with it a C library that may
 * be another one than that inside. */
void linkage_init(void);

/* Load a library that few jobs need, by dlopen(3): its functions are bound now, and are visible
 * only to the caller.
 *
 * name      as of dlopen(3)
 * ret       to dlclose()
 * returns   0
 *           -ELIBACC   it is missing, or a library that it needs is; err names it. Static: always,
 *                      and err notes that an installed ddprun could */
int linkage_load(const char *name, void **ret, struct co_error *err);

#endif
