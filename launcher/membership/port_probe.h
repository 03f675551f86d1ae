/* port_probe.h - has the process that listened at an address ended?
 *
 * A connection that is refused shows that no process listens there any more: the kernel of the
 * machine runs, and has closed the listener with its process. Silence shows nothing. */
#ifndef DDP_LAUNCHER_MEMBERSHIP_PORT_PROBE_H
#define DDP_LAUNCHER_MEMBERSHIP_PORT_PROBE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct co_error;
struct port_probe; /* opaque */

enum { PORT_PROBE_MS = 1000 }; /* for each address of the host */

/* Called once, from the loop, not after port_probe_close(). The probe closes itself afterwards.
 * is_refused   by each address to which the host's name leads */
typedef void (*port_probe_done)(void *arg, bool is_refused);

/* returns   0, -ENOMEM, -errno */
int port_probe_start(uv_loop_t *loop, const char *host, uint16_t port, port_probe_done on_done,
                     void *arg, struct port_probe **ret, struct co_error *err);

/* Not wanted any more. Not after on_done. */
void port_probe_close(struct port_probe *p);

#endif
