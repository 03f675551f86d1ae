/* payload_cache.h - the ddpruns that were sent to a host (payload.h), seen from there: which are in
 * use, and which may go. They lie where launcher/remote/payload/receive.sh has put them:
 *
 *     SHELF/VERSION-DIGEST/ddprun
 *
 * Each one notes when it was started last, by the time of its file, and holds a lock on that while
 * it runs; so hosts that share the shelf know of each other's. Nothing here fails: what cannot be
 * done is left for another start. */
#ifndef DDP_LAUNCHER_REMOTE_PAYLOAD_CACHE_H
#define DDP_LAUNCHER_REMOTE_PAYLOAD_CACHE_H

#define PAYLOAD_SHELF_KEEPS  3              /* that were started last, ours among them ... */
#define PAYLOAD_SHELF_IDLE_S (24 * 60 * 60) /* ... and those started since then */

/* Note that this program is in use, if it was sent.
 *
 * program   its path; absolute
 * returns   a descriptor, close-on-exec, which says so until it is closed; -1: it was not sent */
int payload_cache_hold(const char *program);

/* Remove what nobody runs, but for those that are kept. One that runs on this host stays, whether
 * it holds its lock or not.
 *
 * program   as above
 * held_fd   what it holds */
void payload_cache_tidy(const char *program, int held_fd);

#endif
