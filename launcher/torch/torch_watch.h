/* torch_watch.h - when each rank has called its last collective, as torch's flight recorder
 * reports: the progress of scripts that report none themselves.
 *
 * The caller asks a rank now and then, and looks at the answers later; nothing blocks. */
#ifndef DDP_LAUNCHER_TORCH_TORCH_WATCH_H
#define DDP_LAUNCHER_TORCH_TORCH_WATCH_H

#include <stdbool.h>
#include <stdint.h>

struct torch_watch; /* opaque */

/* returns   NULL without memory */
struct torch_watch *torch_watch_create(int n_ranks);
void torch_watch_destroy(struct torch_watch *w); /* NULL is fine */

/* The ranks are others now. */
void torch_watch_renew(struct torch_watch *w);

/* Ask a rank, unless it is being asked. path: of the socket; copied */
void torch_watch_ask(struct torch_watch *w, int rank, const char *path, uint64_t now_ms);

/* Take the answers that have arrived. now_ns: since 1970, by the clock of the ranks */
void torch_watch_look(struct torch_watch *w, uint64_t now_ms, uint64_t now_ns);

/* Whether answers are awaited. */
bool torch_watch_is_busy(const struct torch_watch *w);

/* When the rank has called its last collective that is known; 0: none is. */
uint64_t torch_watch_moved_ms(const struct torch_watch *w, int rank);

#endif
