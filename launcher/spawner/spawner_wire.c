#include "spawner_wire.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

int spawner_wire_send(int sock, const void *packet, size_t n_bytes, const int *fds, size_t n_fds)
{
    union { /* aligned as CMSG_* needs it */
        char bytes[CMSG_SPACE(SPAWNER_MAX_FDS * sizeof(int))];
        struct cmsghdr head;
    } control;
    struct iovec data = {.iov_base = (void *)packet, .iov_len = n_bytes};
    struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1};
    if (n_fds > 0) {
        memset(&control, 0, sizeof control);
        m.msg_control = control.bytes;
        m.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
    }
    return sendmsg(sock, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}
