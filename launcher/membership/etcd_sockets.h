/* etcd_sockets.h - the plug-in's sockets and its alarm in ddprun's loop. */
#ifndef DDP_LAUNCHER_MEMBERSHIP_ETCD_SOCKETS_H
#define DDP_LAUNCHER_MEMBERSHIP_ETCD_SOCKETS_H

#include <stdint.h>
#include <uv.h>

struct etcd_sockets; /* opaque */

struct etcd_socket_callbacks {
    void (*on_ready)(void *arg, int fd, int events); /* of etcd_plugin.h */
    void (*on_alarm)(void *arg);
    void *arg;
};

/* returns   NULL: out of memory */
struct etcd_sockets *etcd_sockets_open(uv_loop_t *loop,
                                       const struct etcd_socket_callbacks *callbacks);

/* As struct etcd_host has it. A socket that cannot be watched, for lack of memory, is ignored: its
 * request times out. */
void etcd_sockets_watch(struct etcd_sockets *s, int fd, int events);
void etcd_sockets_set_alarm(struct etcd_sockets *s, uint64_t at_ms);

/* No notes any more; on_closed is called from the loop. */
void etcd_sockets_close(struct etcd_sockets *s, void (*on_closed)(void *arg), void *arg);

#endif
