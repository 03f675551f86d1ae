/* resolve.h - a host's name to addresses, without blocking the caller.
 *
 * The system's resolver blocks, for half a minute if a name server does not answer, and cannot be
 * interrupted. Therefore it works in a thread of its own, which is left alone when its result is
 * not needed any more. A numeric address needs no thread. */
#ifndef DDP_RENDEZVOUS_NET_RESOLVE_H
#define DDP_RENDEZVOUS_NET_RESOLVE_H

#include <sys/socket.h>
#include <uv.h>

struct co_error;
struct resolve; /* opaque: one question */

enum { RESOLVE_MAX_ADDRESSES = 16 }; /* more are left out */

/* Called once, from the loop. The question is closed then.
 *
 * code        0; -ENOENT: no such name; -EAGAIN: no answer now, it may come later; -errno
 * text        why, for code < 0
 * addresses   n of them, with the port; lent for the call */
typedef void (*resolve_done)(void *arg, int code, const char *text,
                             const struct sockaddr_storage *addresses, size_t n);

/* returns   0, -ENOMEM, -errno */
int resolve_start(uv_loop_t *loop, const char *host, uint16_t port, resolve_done on_done, void *arg,
                  struct resolve **ret, struct co_error *err);

/* Not wanted any more: on_done is not called. Not after on_done. */
void resolve_cancel(struct resolve *r);

#endif
