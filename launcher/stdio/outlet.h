/* outlet.h - a sink, and the bytes that wait until it takes them.
 *
 * Whoever writes looks first whether the outlet is full, and keeps its bytes to itself while it is:
 * so that little waits here. Bytes that nobody else can keep are taken all the same. */
#ifndef DDP_LAUNCHER_STDIO_OUTLET_H
#define DDP_LAUNCHER_STDIO_OUTLET_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

struct outlet; /* opaque */

/* fd        borrowed; looked at with the first byte: a quiet job needs no outlet
 * on_room   from the loop: what waited is out, the outlet was full and is not any more
 * returns   NULL without memory */
struct outlet *outlet_create(uv_loop_t *loop, int fd, void (*on_room)(void *arg), void *arg);

/* Forget what waits. Frees o when the loop has closed its handle; NULL is fine. */
void outlet_close(struct outlet *o);

/* Does anything wait? */
bool outlet_is_full(const struct outlet *o);

/* Pass bytes on behind those that wait. A sink that can't be waited for, or for which nothing can
 * be kept for want of memory, is given up: it swallows all from then on. */
void outlet_write(struct outlet *o, const char *bytes, size_t n);

#endif
