#include "node_socket.h"

#include "common/error.h"
#include "common/scope.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

union fd_control { /* space for one descriptor, aligned as the kernel wants it */
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

int node_message_send(int sock, const struct node_message *m, int fd)
{
    struct iovec iov = {.iov_base = (void *)m, .iov_len = sizeof *m};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    union fd_control control = {0};
    if (fd >= 0) {
        msg.msg_control = control.bytes;
        msg.msg_controllen = sizeof control.bytes;
        struct cmsghdr *header = CMSG_FIRSTHDR(&msg);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    ssize_t n;
    do
        n = sendmsg(sock, &msg, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

static int tell(int sock, enum node_message_type type, unsigned local_rank, uint32_t generation,
                const char *text)
{
    struct node_message m = {.magic = NODE_SOCKET_MAGIC,
                             .version = NODE_SOCKET_VERSION,
                             .type = (uint16_t)type,
                             .local_rank = local_rank,
                             .generation = generation};
    memcpy(m.text, text, strnlen(text, sizeof m.text - 1));
    return node_message_send(sock, &m, -1);
}

int node_message_notify(int sock, enum node_message_type type, unsigned local_rank,
                        uint32_t generation)
{
    return tell(sock, type, local_rank, generation, "");
}

int node_message_tell_wait(int sock, unsigned local_rank, uint32_t generation, const char *text)
{
    return tell(sock, NODE_WAIT, local_rank, generation, text);
}

/* Take the first descriptor of a message and close the others: alignment leaves space for a second
 * one, and a peer may send it. */
static int take_fd(struct msghdr *msg)
{
    int taken = -1;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(msg); h != NULL; h = CMSG_NXTHDR(msg, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(h) + i * sizeof fd, sizeof fd);
            if (taken < 0)
                taken = fd;
            else
                close(fd);
        }
    }
    return taken;
}

static int check_message(const struct node_message *m, ssize_t n, struct co_error *err)
{
    if (n != sizeof *m)
        return co_fail(err, -EPROTO, "a message of %zd bytes on the node socket, not %zu", n,
                       sizeof *m);
    if (m->magic != NODE_SOCKET_MAGIC)
        return co_fail(err, -EPROTO, "a message with a wrong magic number on the node socket");
    if (m->version != NODE_SOCKET_VERSION)
        return co_fail(err, -EPROTO,
                       "the node socket speaks version %u, this side %d: use ddprun and libddp of "
                       "the same release",
                       m->version, NODE_SOCKET_VERSION);
    if (m->type < NODE_HELLO || m->type > NODE_WAIT)
        return co_fail(err, -EPROTO, "a message of unknown type %u on the node socket", m->type);
    if (memchr(m->text, '\0', sizeof m->text) == NULL)
        return co_fail(err, -EPROTO, "a message with an unterminated text on the node socket");
    const struct node_place *p = &m->place;
    if ((m->flags & NODE_PLACED) != 0 &&
        (m->local_rank >= m->n_local || m->n_local > p->world_size || p->rank < m->local_rank ||
         p->rank >= p->world_size || p->world_size > INT32_MAX || p->node_rank >= p->n_nodes ||
         p->n_nodes > p->world_size || p->port > UINT16_MAX))
        return co_fail(err, -EPROTO, "an invalid rank assignment on the node socket: rank %u of %u",
                       p->rank, p->world_size);
    return 0;
}

int node_message_receive(int sock, struct node_message *ret, int *ret_fd, struct co_error *err)
{
    struct node_message m;
    struct iovec iov = {.iov_base = &m, .iov_len = sizeof m};
    union fd_control control;
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof control.bytes};
    ssize_t n;
    do
        n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0 &&
        errno == ECONNRESET) /* nothing was written into `control`: there is no descriptor in it */
        return 0;
    if (n < 0)
        return co_fail(err, -errno, "cannot read from the node socket: %s", strerror(errno));
    co_autoclose_fd int fd = take_fd(&msg);
    if (n == 0)
        return 0;
    if (msg.msg_flags & MSG_TRUNC)
        n = sizeof m + 1;
    int code = check_message(&m, n, err);
    if (code != 0)
        return code;
    *ret = m;
    *ret_fd = co_take_fd(&fd);
    return 1;
}
