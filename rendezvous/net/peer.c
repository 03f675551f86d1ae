#include "peer.h"

#include "address.h"
#include "common/error.h"
#include "common/scope.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* One end of a connection, both families alike: IPv4 as ::ffff:a.b.c.d. */
struct end {
    struct in6_addr address;
    in_port_t port; /* network order, as in the kernel's messages */
};

static struct end end_of(const struct sockaddr_storage *from)
{
    return (struct end){.address = address_as_v6(from), .port = htons(address_port(from))};
}

static bool same_end(const struct end *a, const struct end *b)
{
    return a->port == b->port && memcmp(&a->address, &b->address, sizeof a->address) == 0;
}

/* --- the kernel's socket diagnosis --- */

struct question {
    struct nlmsghdr header;
    struct inet_diag_req_v2 body;
};

/* Without a socket of these addresses the kernel offers one that listens on the port: its owner
 * means nothing. Neither does that of a socket without an inode: no process holds it, and its uid
 * reads 0. */
static int read_answer(const struct nlmsghdr *header, size_t len, in_port_t their_port,
                       in_port_t our_port, struct peer_owner *ret)
{
    if (!NLMSG_OK(header, len))
        return -EBADMSG;
    if (header->nlmsg_type == NLMSG_ERROR) {
        const struct nlmsgerr *failure = NLMSG_DATA(header);
        if (header->nlmsg_len < NLMSG_LENGTH(sizeof *failure) || failure->error >= 0)
            return -EBADMSG;
        return failure->error;
    }
    const struct inet_diag_msg *found = NLMSG_DATA(header);
    if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
        header->nlmsg_len < NLMSG_LENGTH(sizeof *found))
        return -EBADMSG;
    if (found->id.idiag_sport != their_port || found->id.idiag_dport != our_port ||
        found->idiag_state == TCP_LISTEN || found->idiag_state == TCP_SYN_SENT)
        return -ENOENT;
    if (found->idiag_inode == 0)
        return -ESRCH;
    *ret = (struct peer_owner){.uid = found->idiag_uid, .inode = found->idiag_inode};
    return 0;
}

static int ask_netlink(int fd, uint32_t sequence, const struct sockaddr_storage *ours,
                       const struct sockaddr_storage *theirs, struct peer_owner *ret)
{
    struct question q = {
        .header = {.nlmsg_len = sizeof q,
                   .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                   .nlmsg_flags = NLM_F_REQUEST,
                   .nlmsg_seq = sequence},
        .body = {.sdiag_family = (uint8_t)theirs->ss_family,
                 .sdiag_protocol = IPPROTO_TCP,
                 .idiag_states = UINT32_MAX,
                 .id.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}},
    };
    struct end from = end_of(theirs); /* the socket we look for: its own address first */
    struct end to = end_of(ours);
    size_t skip = theirs->ss_family == AF_INET6 ? 0 : 12;
    memcpy(q.body.id.idiag_src, from.address.s6_addr + skip, 16 - skip);
    memcpy(q.body.id.idiag_dst, to.address.s6_addr + skip, 16 - skip);
    q.body.id.idiag_sport = from.port;
    q.body.id.idiag_dport = to.port;

    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    if (sendto(fd, &q, sizeof q, MSG_DONTWAIT, (struct sockaddr *)&kernel, sizeof kernel) < 0)
        return -errno;
    /* the answer is there when sendto() returns: this never waits */
    _Alignas(struct nlmsghdr) char answer[1024];
    const struct nlmsghdr *header = (const struct nlmsghdr *)answer;
    ssize_t n;
    do { /* past the remains of an earlier question */
        n = recv(fd, answer, sizeof answer, MSG_DONTWAIT);
        if (n < 0)
            return -errno;
    } while (n < (ssize_t)sizeof *header || header->nlmsg_seq != sequence);
    return read_answer(header, (size_t)n, from.port, to.port, ret);
}

/* --- /proc/net --- */

/* The file has addresses as 32-bit words of the machine's byte order, ports as numbers. */
static bool parse_end(const char *address, unsigned port, struct end *ret_end)
{
    struct end end = {.port = htons((uint16_t)port)};
    uint32_t words[4];
    size_t n_words = strlen(address) / 8;
    if (strlen(address) % 8 != 0 || (n_words != 1 && n_words != 4))
        return false;
    for (size_t i = 0; i < n_words; i++)
        if (sscanf(address + 8 * i, "%8x", &words[i]) != 1)
            return false;
    if (n_words == 1)
        memset(end.address.s6_addr + 10, 0xff, 2);
    memcpy(end.address.s6_addr + 16 - 4 * n_words, words, 4 * n_words);
    *ret_end = end;
    return true;
}

struct line { /* a socket */
    struct end local, remote;
    unsigned state;
    struct peer_owner owner;
};

static bool parse_line(const char *text, struct line *ret)
{
    char local[33], remote[33];
    unsigned local_port, remote_port, state, uid;
    unsigned long inode;
    if (sscanf(text, "%*u: %32[0-9A-Fa-f]:%4x %32[0-9A-Fa-f]:%4x %2x %*s %*s %*s %u %*u %lu", local,
               &local_port, remote, &remote_port, &state, &uid, &inode) != 7)
        return false; /* the head line */
    ret->state = state;
    ret->owner = (struct peer_owner){.uid = uid, .inode = inode};
    return parse_end(local, local_port, &ret->local) &&
           parse_end(remote, remote_port, &ret->remote);
}

static int search_file(const char *path, const struct end *from, const struct end *to,
                       struct peer_owner *ret)
{
    co_autoclose FILE *in = fopen(path, "re");
    if (in == NULL)
        return -errno;
    char text[512];
    while (fgets(text, sizeof text, in) != NULL) {
        struct line line;
        if (!parse_line(text, &line) || !same_end(&line.local, from) || !same_end(&line.remote, to))
            continue;
        if (line.state == TCP_SYN_SENT)
            return -ENOENT;
        if (line.owner.inode == 0)
            return -ESRCH;
        *ret = line.owner;
        return 0;
    }
    return ferror(in) ? -EIO : -ENOENT;
}

/* An IPv6 socket may be connected to an IPv4 address, so the family does not determine the file. */
static int search_proc(const struct sockaddr_storage *ours, const struct sockaddr_storage *theirs,
                       struct peer_owner *ret)
{
    struct end from = end_of(theirs);
    struct end to = end_of(ours);
    int rc = search_file("/proc/net/tcp", &from, &to, ret);
    return rc == -ENOENT ? search_file("/proc/net/tcp6", &from, &to, ret) : rc;
}

/* --- a port that is taken --- */

enum { LINES_MAX = 1 << 17 }; /* of a file of /proc/net */

static bool is_any(const struct in6_addr *a)
{
    static const struct in6_addr mapped = {.s6_addr = {[10] = 0xff, 0xff}};
    return IN6_IS_ADDR_UNSPECIFIED(a) || memcmp(a, &mapped, sizeof mapped) == 0;
}

static bool overlaps(const struct end *a, const struct end *b)
{
    return same_end(a, b) || (a->port == b->port && (is_any(&a->address) || is_any(&b->address)));
}

/* returns whether one was found that listens; one that is connected from there is also kept */
static bool search_bound(const char *path, const struct end *at, struct peer_owner *ret)
{
    char text[512];
    co_autoclose FILE *in = fopen(path, "re");
    for (int i = 0; in != NULL && i < LINES_MAX && fgets(text, sizeof text, in) != NULL; i++) {
        struct line line;
        if (!parse_line(text, &line) || !overlaps(&line.local, at) || line.owner.inode == 0)
            continue;
        if (line.state == TCP_LISTEN || ret->inode == 0)
            *ret = line.owner;
        if (line.state == TCP_LISTEN)
            return true;
    }
    return false;
}

int peer_find_bound(const struct sockaddr_storage *address, struct peer_owner *ret)
{
    const struct end at = end_of(address);
    struct peer_owner found = {0};
    if (!search_bound("/proc/net/tcp", &at, &found))
        search_bound("/proc/net/tcp6", &at, &found);
    if (found.inode == 0)
        return -ENOENT;
    *ret = found;
    return 0;
}

/* --- both --- */

void peer_init(struct peer *p)
{
    *p = (struct peer){.method = PEER_BY_NETLINK};
    p->netlink_fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    struct sockaddr_in nobody = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_storage storage = {0};
    memcpy(&storage, &nobody, sizeof nobody);
    struct peer_owner nothing;
    /* no socket is connected from port 0 to port 0: a kernel that reports this can answer
     * questions */
    if (p->netlink_fd >= 0 &&
        ask_netlink(p->netlink_fd, ++p->sequence, &storage, &storage, &nothing) == -ENOENT)
        return;
    p->method =
        search_proc(&storage, &storage, &nothing) == -ENOENT ? PEER_BY_PROC : PEER_BY_NOTHING;
}

void peer_fini(struct peer *p)
{
    co_close_at(&p->netlink_fd);
    p->netlink_fd = -1;
}

int peer_find(struct peer *p, const struct sockaddr_storage *ours,
              const struct sockaddr_storage *theirs, struct peer_owner *ret, struct co_error *err)
{
    int rc = -ENOSYS;
    if (p->method == PEER_BY_NETLINK)
        rc = ask_netlink(p->netlink_fd, ++p->sequence, ours, theirs, ret);
    else if (p->method == PEER_BY_PROC)
        rc = search_proc(ours, theirs, ret);
    if (rc == -ENOENT || rc == -ESRCH)
        return co_fail(err, rc, "the process at the other end of the connection has exited");
    if (rc < 0)
        return co_fail(err, rc, "cannot determine the user at the other end of the connection: %s",
                       strerror(-rc));
    return 0;
}

int peer_check_user(uid_t uid, struct co_error *err)
{
    if (uid == geteuid() || uid == 0)
        return 0;
    return co_fail(err, -EACCES, "refused: it belongs to user ID %u, the store to user ID %u",
                   (unsigned)uid, (unsigned)geteuid());
}
